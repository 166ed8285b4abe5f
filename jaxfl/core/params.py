"""Validators of names and numbers: unknown names, ranges, whole numbers."""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from jaxfl.core.errors import InputError, require, shown
from jaxfl.core.schedules import Floats, Schedule
from jaxfl.core.types import LARGEST, Param

__all__ = [
    "LEAST",
    "MOST",
    "at_most_one",
    "check",
    "choice",
    "closest",
    "exactly_one",
    "fraction",
    "known",
    "near",
    "nonnegative",
    "number",
    "numbers",
    "only",
    "positive",
    "reads",
    "unknown",
    "varies",
    "whole",
]

MOST = 2**31 - 1  # of rounds and other whole numbers, which a run holds as int32
LEAST = 1e-37  # noise below it is 0, or rounds to 0, in a float32
CLOSE = 0.8  # least likeness of a name with another first letter: more than of "steps" and "eps"
# what others call a hyper-parameter or an option
SYNONYMS = {
    "learning_rate": "lr",
    "step_size": "lr",
    "eta": "lr",
    "epsilon": "eps",
    "batch_size": "batch",
}
# arguments that others give in the wrong place, and what takes them
ELSEWHERE = {
    "constraint": "the model, as in jaxfl.models.logistic(10, constraint='ball:1')",
    "regularizer": "the model, as in jaxfl.models.logistic(10, regularizer='l2:0.01')",
    "weights": "jaxfl.Problem(model, data, weights=...)",
    "validation_share": "jaxfl.Problem(model, data, validation_share=...)",
    "choose_by": "jaxfl.views.select(ds, choose_by=...), with what the sweep returns",
    "over": "jaxfl.views.select(ds, over=...), with what the sweep returns",
    "seeds": "jaxfl.sweep(..., seeds=3)",
    "paired": "jaxfl.sweep(..., paired=False)",
    "batch": "an algorithm that draws some of the records, such as an _sgd variant, or one with "
    "sampler='poisson': the sampler 'full' takes all",
}
FEW = 20  # most names that are listed with a suggestion
MANY, NEAREST = 40, 5  # of more names than these, as many are listed

T = TypeVar("T")


# --- names ---------------------------------------------------------------------------------------


def near(name: Any, names: Iterable[str]) -> str:
    """The one of ``names`` that this is probably meant to be, or nothing."""
    name, names = str(name), [*names]
    if (lower := str(name).lower().replace("-", "_")) in names:
        return lower
    if (other := SYNONYMS.get(name.replace("-", "_"))) in names:
        return str(other)
    if len(ends := [n for n in names if n.endswith(f"_{name}")]) == 1:
        return ends[0]
    alike = difflib.get_close_matches(name, [n for n in names if n[:1] == name[:1]], 1)
    if alike := alike or difflib.get_close_matches(name, names, 1, CLOSE):
        return str(alike[0])
    words = re.split("[-_]", name)  # lr-rate is lr, and used_lr what else ends with lr
    for same in (
        [n for n in names if n in words],
        [n for n in names if n.endswith(f"_{words[-1]}")],
    ):
        if len(same) == 1:
            return same[0]
    return ""


def closest(kind: str, name: Any, names: Iterable[str], other: str = "") -> str:
    """The sentence of an error about an unknown name; ``other`` is what it may be if none of these."""
    names = sorted(names)
    close, every = near(name, names), f"known: {', '.join(names)}{other}."
    if len(names) > MANY:
        some = difflib.get_close_matches(str(name), names, NEAREST, 0.0)
        whole = "; `jaxfl list algorithms` has all" * kind.startswith("algorithm")
        every = f"of {len(names)}, the nearest are {', '.join(some)}{other}{whole}."
    hint = f"did you mean {close!r}{other}? " if close else ""
    return f"There is no {kind} {shown(name)}: {hint}{'' if close and len(names) > FEW else every}".strip()


def unknown(
    kind: str, name: Any, names: Iterable[str], call: Callable[..., Any] | None = None
) -> str:
    """The sentence of :func:`closest`, or what takes an argument of that name.

    It may be an option of ``call``, a function that takes ``names``, too.
    """
    parameters = () if call is None else inspect.signature(call).parameters.values()
    options = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    names = [*names]
    usual = str(SYNONYMS.get(name, name))
    there = next(iter(difflib.get_close_matches(usual, ELSEWHERE, 1, CLOSE)), "")
    no = f"There is no {kind} {shown(name)}: "
    if near(name, names):
        return closest(kind, name, names)
    if name != there and (option := near(name, options)):
        return f"{no}did you mean the option {option!r}?"
    return f"{no}give {there} to {ELSEWHERE[there]}." if there else closest(kind, name, names)


def only(
    given: Iterable[str], names: Collection[str], owner: str, call: Callable[..., Any]
) -> None:
    """Raise for a name that is no hyper-parameter of ``owner``, which ``call`` takes."""
    for name in set(given) - set(names):
        raise InputError(unknown(f"hyper-parameter of {owner} named", name, names, call))


def known(kind: str, name: Any, table: Mapping[str, T], other: str = "") -> T:
    """Return the entry with this name; raise as :func:`closest` says if there is none."""
    if not isinstance(name, str) or name not in table:
        raise InputError(closest(kind, name, table, other))
    return table[name]


def choice(name: str, value: Any, names: Iterable[str]) -> None:
    """Raise unless ``value`` is one of these names."""
    names = tuple(names)
    matches = isinstance(value, str) and value in names
    close = "" if matches else near(value, names)
    hint = f"did you mean {close!r}?" if close else ""
    require(matches, lambda: f"must be one of {', '.join(names)}", hint, **{name: value})


def at_most_one(remedy: str = "give one of them", **values: Any) -> None:
    """Raise if more than one of the values is given."""
    given = {name: value for name, value in values.items() if value is not None}
    require(
        len(given) < 2, lambda: f"are {'both' if len(given) == 2 else 'all'} given", remedy, **given
    )


def exactly_one(remedy: str = "give exactly one of them", **values: Any) -> None:
    """Raise unless exactly one of the values is given; ``remedy`` is for none."""
    given = {name: value for name, value in values.items() if value is not None}
    require(given, lambda: f"There is no {' and no '.join(values)}", remedy)
    require(len(given) == 1, "are alternatives", "give exactly one of them", **given)


# --- numbers -------------------------------------------------------------------------------------


def check(params: Iterable[Param], given: Mapping[str, Any], owner: str) -> None:
    """Raise unless every given value is one of ``params`` and in its range."""
    table = {param.name: param for param in params}
    for name, value in given.items():
        if name not in table:
            raise InputError(unknown(f"hyper-parameter of {owner} named", name, table))
        _within(table[name], value)


def number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float | None = None,
    most: float = math.inf,
    below: float | None = None,
    integer: bool = False,
    remedy: str = "",
) -> float:
    """``value`` as a float in the range; infinity is allowed only as ``most`` or ``least``, NaN never."""
    low = least if above is None else above
    high = most if below is None else below
    param = Param(name, "", low, high, integer, above is not None, False, below is not None)
    several = numbers(name, value).ndim
    require(not several, "must be one number", remedy, **{name: value})
    _within(param, value, remedy)
    return float(value)


def nonnegative(name: str, value: Any) -> float:
    return number(name, value, least=0, below=math.inf)


def positive(name: str, value: Any) -> float:
    return number(name, value, above=0, below=math.inf)


def fraction(name: str, value: Any) -> float:
    return number(name, value, above=0, below=1)


def _within(param: Param, value: Any, remedy: str = "") -> None:
    array, concerned = numbers(param.name, value), {param.name: value}
    low, high = float(array.min()), float(array.max())
    if math.isnan(low):
        raise InputError("is not a number", remedy, **concerned)
    infinite = math.isinf(low) or math.isinf(high)
    if param.integer and (infinite or (array != np.rint(array)).any()):
        raise InputError("must be a whole number", remedy, **concerned)
    below = low < param.low or (param.open_low and low == param.low)
    if below or high > param.high or (param.open_high and high == param.high):
        what = f" ({param.doc})" if param.doc else ""
        if param.high in (LARGEST, MOST) and high <= param.high:  # a limit of the machine
            param = param._replace(high=math.inf)
        raise InputError(f"must be {_range(param)}{what}", remedy, **concerned)


def _range(param: Param) -> str:
    """The range in words, such as "at least 0 and below 1"."""
    ends = []
    if param.low > -math.inf:
        ends.append(f"{'above' if param.open_low else 'at least'} {param.low:.10g}")
    if param.high < math.inf:
        ends.append(f"{'below' if param.open_high else 'at most'} {param.high:.10g}")
    elif param.open_high:
        ends.append("finite")
    return " and ".join(ends)


def numbers(name: str, value: Any) -> Floats:
    """Return ``value`` as floats; raise for text, booleans, complex and masked numbers."""
    try:
        given = np.asarray(value)
        if given.size == 0 or given.dtype.kind in "bcSUmM" or np.ma.is_masked(value):
            raise TypeError
        return given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        quoted = isinstance(value, str) and reads(value)
        way = "leave out the quotes" if quoted else ""
        if isinstance(value, jax.core.Tracer):
            why = "is traced by jit, vmap, grad, scan or the like, and is needed here as a number"
            way = "pass a number; jaxfl.functions says what may be traced"
            raise InputError(f"{name} {why}", way) from None
        several = getattr(value, "ndim", isinstance(value, list | tuple))
        what = "must hold real numbers" if several else "is not a number"
        raise InputError(what, way, **{name: value}) from None


def whole(name: str, value: Any, least: int, most: float = MOST) -> int:
    """``value`` as an int in the range."""
    number(name, value, least=least, most=most, integer=True)
    return int(value)


def reads(text: str) -> bool:
    """Whether the text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def varies(value: Any) -> bool:
    """Whether ``value`` specifies a schedule."""
    return (
        callable(value) or isinstance(value, Schedule) or (isinstance(value, str) and ":" in value)
    )
