"""Every field of a public record says what it is."""

from typing import NamedTuple

import pytest

import jaxfl
from jaxfl.core.records import document
from jaxfl.parts import Channel


class Point(NamedTuple):
    x: float
    y: float = 0.0


def test_fields_of_public_records_are_described() -> None:
    records = [getattr(jaxfl.parts, name) for name in jaxfl.parts.__all__]
    fields = [(r, name) for r in records for name in getattr(r, "_fields", ())]
    bare = [at for at in fields if str(getattr(*at).__doc__).startswith("Alias for field")]
    assert len(fields) > 100
    assert not bare
    assert str(Channel.linear.__doc__).startswith("whether the mean of before(s_i, g_i)")


@pytest.mark.plain
@pytest.mark.parametrize("line", ["", "y: b.\n    z: c.", "y: b.\n    and more"])
def test_a_section_has_just_the_fields(line: str) -> None:
    Point.__doc__ = f"A point.\n\nFields:\n    x: a,\n        aa.\n    {line}"
    with pytest.raises(jaxfl.InputError, match=r"differ in \['(y|z|and more)'\]"):
        document(Point)
