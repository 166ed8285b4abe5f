"""Numbers that others published, measured here: one row each, with what the reference lists as public.

* ``rows.toml`` -- what they published, and in which setting
* :mod:`~outside.accounting` -- eps that others print, beside the eps that is proven here
* :mod:`~outside.descent` -- EF21, DASHA and MARINA on a9a and mushrooms: orderings, and rates of theorems
* :mod:`~outside.images` -- networks of others on MNIST
* :mod:`~outside.page` -- the page of the documentation, from the records
* :mod:`~outside.row` -- a row, its rule, and its record
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path

from jaxfl import InputError
from outside import accounting, descent, images, noise
from outside.page import page, table
from outside.row import Row, check_of, measured, read

__all__ = ["ROWS", "chosen", "measured", "page", "read", "table"]

MEASURES = {**images.MEASURES, **accounting.MEASURES, **descent.MEASURES, **noise.MEASURES}


def _rows() -> dict[str, Row]:
    """The rows of ``rows.toml``, in its order."""
    text = Path(__file__).with_name("rows.toml").read_text("utf-8")
    found = {}
    for source in tomllib.loads(text)["source"]:
        rows, who = source.pop("row"), source.pop("who")
        for about in rows:
            checks = tuple(check_of(**each) for each in about.pop("check", ()))
            measure = MEASURES.get(about["name"])
            found[about["name"]] = Row(
                source=who, checks=checks, measure=measure, **source, **about
            )
    return found


ROWS = _rows()


def chosen(words: Sequence[str]) -> list[Row]:
    """Rows by name, each once, the shortest first; the beginning of several names stands for these."""
    names: dict[str, None] = {}
    for word in words:
        several = [name for name in ROWS if word == "all" or name.startswith(f"{word}-")]
        if word not in ROWS and not several:
            near = difflib.get_close_matches(word, ROWS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the names are {', '.join(ROWS)}"
            raise InputError(f"There is no row named {word!r}", hint)
        names |= dict.fromkeys([word] if word in ROWS else several)
    return sorted((ROWS[name] for name in names), key=lambda row: row.minutes)
