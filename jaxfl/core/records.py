"""The fields of records, as the docstrings of their classes describe them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys

from jaxfl.core.errors import require

__all__ = ["FIELDS", "document", "document_all", "field_docs"]

FIELDS = re.compile(
    r"^Fields:\n(?:(?: {4}.*)?\n)+", re.M
)  # the section, in a docstring cleaned of indents


def field_docs(kind: type) -> dict[str, str]:
    """Return the text about each field in the section ``Fields`` of a class's docstring."""
    section = "".join(FIELDS.findall(inspect.cleandoc(kind.__doc__ or "") + "\n"))
    entries = (entry.partition(": ") for entry in re.split(r"^ {4}(?=\S)", section, flags=re.M)[1:])
    return {name.strip(): inspect.cleandoc(text) for name, _, text in entries}


def document(kind: type) -> None:
    """Give the fields of a named tuple the texts of :func:`field_docs`, which ``help`` then shows.

    Raises for a named tuple or data class whose section Fields leaves out a field, or names another.
    """
    slots = getattr(kind, "_fields", ())
    names, docs = slots or [field.name for field in dataclasses.fields(kind)], field_docs(kind)
    wrong = sorted({*names} ^ {*docs})
    require(not wrong, lambda: f"{kind.__name__} and the section Fields of it differ in {wrong}")
    for name in slots:
        vars(kind)[name].__doc__ = docs[name]


def document_all(module: str) -> None:
    """Document the records of a module, at its end."""
    for kind in [*vars(sys.modules[module]).values()] * (sys.flags.optimize < 2):
        own = isinstance(kind, type) and kind.__module__ == module
        if own and {"_fields", "__dataclass_fields__"} & vars(kind).keys():
            document(kind)
