"""Errors and warnings that users see, each one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

__all__ = [
    "TABLE",
    "DivergedWarning",
    "InputError",
    "JaxflWarning",
    "Sentence",
    "assigned",
    "attempt",
    "is_table",
    "listed",
    "one_line",
    "printable",
    "require",
    "shown",
    "within",
]

SHOWN = 60  # characters of a value in a sentence
LONGEST = 300  # of the text of another exception
TABLE = "read a table with jaxfl.data.from_clients(frame, client=..., label=...) or from_frame"


class Sentence(Exception):
    """One sentence with the values concerned and a remedy.

    ``values`` holds the arguments concerned by name, the subject of ``problem``; if it is empty,
    ``problem`` has a subject of its own.  ``remedy`` says what to do; ``{name}`` in it stands for the
    argument ``suggested[name]``.  The command line prints the same sentence with its options in
    place of arguments.
    """

    def __init__(
        self,
        problem: str,
        remedy: str = "",
        /,
        *,
        suggested: Any = None,  # arguments by name
        **values: Any,
    ) -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy = problem, remedy
        self.values, self.suggested = values, dict[str, Any](suggested or {})
        self.context = ""
        self.lines: tuple[str, ...] = ()

    def at(self, lines: Iterable[str]) -> Self:
        """This error, with the lines of a user's code in which it arose; Python prints them below."""
        self.lines = (*self.lines, *lines)
        for line in self.lines:
            self.add_note(line)
        return self

    def __str__(self) -> str:
        return self.sentence(assigned, suggestion)

    def sentence(
        self,
        written: Callable[[str, Any], str],
        suggested: Callable[[str, Any], str],
    ) -> str:
        """The sentence, with arguments formatted by these functions."""
        subject = " and ".join(written(name, value) for name, value in self.values.items())
        text = self.context + (f"{subject} {self.problem}" if subject else self.problem)
        table = TABLE if any(map(is_table, self.values.values())) else ""
        if remedy := "; ".join(filter(None, (self.remedy, table))):
            text = f"{text}: {remedy}"
        for name, value in self.suggested.items():
            text = text.replace(f"{{{name}}}", suggested(name, value))
        return printable(text if text.endswith((".", "?")) else f"{text}.")


class InputError(Sentence, ValueError):
    """A mistake in the input, with which the command line exits with status 2.

    >>> print(InputError("exceeds the 5 records", "ask for at most 5", batch=7))
    batch = 7 exceeds the 5 records: ask for at most 5.
    """

    def within(self, context: str) -> InputError:
        """The same error with a prefix that names its place, such as a cell of a sweep."""
        error = InputError(self.problem, self.remedy, suggested=self.suggested, **self.values)
        error.context = f"{context}: {self.context}"
        return error.at(self.lines)


class JaxflWarning(Sentence, UserWarning):
    """A warning about a result that is computed and returned nevertheless."""


class DivergedWarning(JaxflWarning):
    """The loss of a run is not finite: its NaN is no result."""


def assigned(name: str, value: Any) -> str:
    """An argument as in Python, or an option as on the command line."""
    if name.startswith("--"):
        return f"{name} {value:.10g}" if isinstance(value, float) else f"{name} {value}"
    return f"{name} = {shown(value)}"


def suggestion(name: str, value: Any) -> str:
    return name if value is None else f"{name}={value!r}"


def require(
    holds: Any,
    problem: str | Callable[[], str],
    remedy: str | Callable[[], str] = "",
    /,
    *,
    suggested: Any = None,  # arguments by name
    **values: Any,
) -> None:
    """Raise an :class:`InputError` with these fields unless the condition holds.

    A text that takes work to format is a function, which is called only then.
    """
    if not holds:
        words = (text() if callable(text) else text for text in (problem, remedy))
        raise InputError(*words, suggested=suggested, **values)


@contextlib.contextmanager
def attempt(problem: str, remedy: str = "", **values: Any) -> Iterator[None]:
    """Turn any exception of a user's function into an :class:`InputError` with its cause."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{problem} ({one_line(error)})", remedy, **values) from error


@contextlib.contextmanager
def within(context: str) -> Iterator[None]:
    """Prefix the :class:`InputError` of a block with its place, unless that is empty."""
    try:
        yield
    except InputError as error:
        if not context:
            raise
        raise error.within(context) from None


def one_line(error: BaseException) -> str:
    """An exception in one line, which is not long."""
    name = type(error).__name__
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # of a class of the user's
        return f"{name}, whose text cannot be read"
    if not lines:
        return name
    first = lines[0].rstrip(".")
    if len(first) > LONGEST:  # whole sentences, if one is short enough
        sentences = first[:LONGEST].rpartition(". ")[0]
        first = sentences or f"{first[: LONGEST - 3]}..."
    return f"{name}: {first}"


def printable(text: str) -> str:
    """The text with control characters, line breaks among them, escaped: no name rules a terminal.

    >>> print(printable("a\\x1b[31m b"))
    a\\x1b[31m b
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: Any) -> str:
    """A value in one short line: tables and long arrays by their type and shape."""
    if callable(value) and isinstance(getattr(value, "__name__", None), str):
        return str(value.__name__)
    plain = value.item() if isinstance(value, np.generic) else value  # no np.float64(...) around it
    try:
        text = "" if is_table(value) else " ".join(repr(plain).split())
    except Exception:  # of a class of the user's
        text = type(value).__name__
    if text and len(text) <= SHOWN:
        return text
    if isinstance(shape := getattr(value, "shape", None), tuple):
        kind = f"{value.dtype} array" if hasattr(value, "dtype") else type(value).__name__
        return f"{kind} of shape {shape}"
    if type(value) is tuple and any(hasattr(item, "shape") for item in value):
        return f"({listed([shown(item) for item in value], 3)})"
    return f"{text[: SHOWN - 3]}..."


def is_table(value: Any) -> bool:
    """Whether ``value`` looks like a DataFrame, of whatever library."""
    return hasattr(value, "columns") and hasattr(value, "shape")


def listed(names: Sequence[Any], most: int = 10) -> str:
    """Names in one line, at most ``most`` of them.

    >>> listed("abcd", most=3)
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
