"""What users are told of a mistake: one sentence, with the value and the way out."""

from collections.abc import Callable
from typing import Any

import pytest

from jaxfl.core.errors import InputError


def refused(call: Callable[[], Any], words: str) -> None:
    """``call`` raises an `InputError` of one sentence, in which ``words`` are found."""
    with pytest.raises(InputError, match=words) as caught:
        call()
    text = str(caught.value)
    assert text.endswith((".", "?"))
    assert "\n" not in text


def mistakes(*rows: tuple[Callable[[], Any], str]) -> pytest.MarkDecorator:
    """A table of calls and of the words that each is refused with."""
    return pytest.mark.parametrize(("call", "words"), rows, ids=[words for _, words in rows])
