"""Hyper-parameters that the user's program traces, and the values that the host derives from them.

Shapes and whole numbers are resolved while the program is traced.  Numbers that follow from traced ones,
such as sigma from eps, come from a callback to the same resolution, with derivatives by differences.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero

from jaxfl.algorithms.resolution import NOISE, build, resolve, rounded_up
from jaxfl.core.derivatives import no_derivative
from jaxfl.core.errors import InputError, JaxflWarning, listed, require
from jaxfl.core.foreign import warn
from jaxfl.core.types import Algorithm, Array, Hyper, ProblemFacts, Resolved

__all__ = ["split", "traced_values"]

PROBES = (1.0, 0.1, 0.5, 0.01, 4.0, 1e-3, 30.0, 1e-4)  # numbers for which shapes are resolved
# of a value: 2e-4 of calibrated noise are arbitrary, and the sixth derivative is small
STEPS = (0.05, 1e-3)
STENCIL = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))

Numbers = dict[str, Any]


def split(algorithm: Algorithm, numbers: Numbers) -> tuple[dict[str, Array], Numbers]:
    """The traced numbers, as floats, and the others; raise for what cannot be traced."""
    traced: dict[str, Any] = {n: a for n, a in numbers.items() if isinstance(a, Tracer)}
    able = [p.name for p in algorithm.params if not p.integer]
    for name in sorted(traced.keys() & algorithm.names):
        problem = f"{name} is traced, and shapes follow from it"
        offer = f"pass a number; what may be traced are the key and {listed(able, 30)}"
        require(name in able, problem, offer)
        shape = traced[name].shape
        problem = f"{name} is traced with the shape {shape}"
        way = "a run takes one number: map over calls of functions with jax.vmap"
        require(shape == (), problem, way)
    return traced, {n: a for n, a in numbers.items() if n not in traced}


def traced_values(
    algorithm: Algorithm,
    known: Numbers,
    traced: Mapping[str, Array],
    facts: ProblemFacts,
    noise: str,
    dtype: Any,
) -> tuple[Resolved, Hyper]:
    """Values with a stand-in for what is traced, and the hyper-parameters that rounds read.

    All floats are NaN, and a warning says why, where the traced values are refused.
    """
    with jax.ensure_compile_time_eval():
        resolved, hp = _shapes(algorithm, known, tuple(traced), facts, noise, dtype)
        fixed = {n: a for n, a in hp.values.items() if _fixed(n, a, known)}
    derived = {n: a for n, a in hp.values.items() if n not in fixed and n not in traced}
    host = _Host(algorithm, known, tuple(traced), facts, noise, hp, tuple(sorted(derived)))
    exact = [a if _real(a) else a.astype(dtype) for a in traced.values()]
    valid, *found = _derived(host, tuple(exact))
    given = {n: a.astype(dtype) for n, a in zip(traced, exact, strict=True)}
    values = {**fixed, **given, **dict(zip(host.names, found, strict=True))}
    values = {n: jnp.where(valid > 0, a, jnp.nan) if _real(a) else a for n, a in values.items()}
    read = {name: values[name] for name in hp.values}
    return resolved, Hyper(read, hp.capacity)


class _Host(NamedTuple):
    """A resolution on the host: its algorithm, the given values, and the names that it returns."""

    algorithm: Algorithm
    known: Numbers
    traced: tuple[str, ...]
    facts: ProblemFacts
    noise: str
    hp: Hyper  # of a stand-in
    names: tuple[str, ...]

    def numbers(self, given: Numbers) -> list[np.ndarray[Any, Any]]:
        """The resolved numbers for these values, rounded as rounds read them; noise is rounded up."""
        values = _resolved(self.algorithm, {**self.known, **given}, self.facts, self.noise).values
        self.check(values)
        out = []
        for name in self.names:
            like, value = self.hp[name], values[name]
            exact = value.over(like.size) if like.ndim else np.asarray(value, np.float64)
            upwards = name == NOISE
            out.append(rounded_up(exact, like.dtype) if upwards else exact.astype(like.dtype))
        return out

    def check(self, values: Mapping[str, Any]) -> None:
        facts = self.facts._replace(rounds=int(values["rounds"]))
        caps = self.algorithm.capacity(values, facts)
        whole = {n: int(a) for n, a in self.hp.values.items() if not _real(a) and a.ndim == 0}
        for name, before in {**whole, **dict(self.hp.capacity)}.items():
            now = int(caps[name]) if name in caps else int(np.max(values[name]))
            _same(name, before, now, self.traced)


def _same(name: str, before: Any, now: Any, traced: tuple[str, ...]) -> None:
    why = (
        f"{name} follows from {' and '.join(traced)}, and shapes cannot follow from what is traced"
    )
    require(before == now, lambda: f"{why} ({before} or {now})", lambda: f"give {name}")


def _shapes(
    algorithm: Algorithm,
    known: Numbers,
    traced: tuple[str, ...],
    facts: ProblemFacts,
    noise: str,
    dtype: Any,
) -> tuple[Resolved, Hyper]:
    """Values and hyper-parameters of a stand-in that is not refused; two of them have the same shapes."""
    found: list[tuple[Resolved, Hyper]] = []
    refused: InputError | None = None
    for probe in PROBES:
        try:
            one = _resolved(algorithm, {**known, **dict.fromkeys(traced, probe)}, facts, noise)
            now = facts._replace(rounds=int(one.values["rounds"]))
            found.append((one, build(algorithm, one.values, now, dtype)))
        except InputError as error:
            refused = refused or error
        if len(found) == 2:
            break
    if not found:
        assert refused is not None
        raise refused
    (first, hp), (_, other) = found[0], found[-1]
    for name, before in dict(hp.capacity).items():
        _same(name, before, other.caps[name], traced)
    for name, a in hp.values.items():
        if not _real(a):
            _same(name, np.asarray(a).tolist(), np.asarray(other[name]).tolist(), traced)
    return first, hp


def _resolved(algorithm: Algorithm, given: Numbers, facts: ProblemFacts, noise: str) -> Resolved:
    return resolve(algorithm, given, facts, noise)


def _fixed(name: str, value: Array, known: Numbers) -> bool:
    """Whether a number is given, or a whole number, which cannot follow from what is traced."""
    return known.get(name) is not None or not _real(value)


def _real(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.floating))


def _decimal(value: Any) -> float:
    """The shortest decimal that rounds to this float: 0.1 for 0.1 in single precision."""
    return float(str(np.asarray(value)[()]))


# --- callbacks -----------------------------------------------------------------------------------


def _answer(host: _Host, *given: Any) -> Any:
    """1 and the derived numbers; 0 and NaN, with a warning, where the given ones are refused."""
    try:
        named = dict(zip(host.traced, map(_decimal, given), strict=True))
        return np.float32(1), *host.numbers(named)
    except InputError as error:
        why = JaxflWarning(f"The run is NaN, since its numbers are refused: {error}")
        warn(why)
        return np.float32(0), *(np.full_like(host.hp[name], np.nan) for name in host.names)


def _slopes(host: _Host, *given: Any) -> Any:
    """The derivative of each derived number in each given one; NaN at the ends of a range."""
    point = dict(zip(host.traced, map(_decimal, given), strict=True))
    return tuple(_slope(host, point, name) for name in host.traced)


def _slope(host: _Host, point: Numbers, name: str) -> tuple[Any, ...]:
    kinds = [host.hp[one].dtype for one in host.names]
    for step in STEPS:
        h = step * (abs(point[name]) or 1)
        try:
            near = [host.numbers({**point, name: point[name] + k * h}) for k, _ in STENCIL]
        except InputError:
            continue
        weights = [weight / h for _, weight in STENCIL]
        return tuple(_sum(weights, some).astype(k) for *some, k in zip(*near, kinds, strict=True))
    return tuple(np.full_like(host.hp[one], np.nan) for one in host.names)


def _sum(weights: list[float], values: list[Any]) -> Any:
    """The weighted sum of values of which one that does not vary, such as infinity, adds nothing."""
    first = np.asarray(values[0], np.float64)
    with np.errstate(invalid="ignore"):
        moved = [np.where(a == values[0], 0, np.asarray(a, np.float64) - first) for a in values]
    return np.sum([w * a for w, a in zip(weights, moved, strict=True)], axis=0)


def _called(
    function: Callable[..., Any], host: _Host, shapes: Any, given: tuple[Array, ...]
) -> Any:
    call = functools.partial(function, host)
    return jax.pure_callback(call, shapes, *given, vmap_method="sequential")


def _like(host: _Host) -> tuple[Any, ...]:
    return tuple(jax.ShapeDtypeStruct(host.hp[n].shape, host.hp[n].dtype) for n in host.names)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _derived(host: _Host, given: tuple[Array, ...]) -> Any:
    flag = jax.ShapeDtypeStruct((), np.float32)
    return _called(_answer, host, (flag, *_like(host)), given)


def _change(host: _Host, primals: Any, tangents: Any) -> Any:
    (given,), (changes,) = primals, tangents
    out = _derived(host, given)
    problem = "Numbers that follow from traced ones have first derivatives alone"
    fixed = tuple(no_derivative(a, problem, "give them, or take first derivatives") for a in given)
    slopes = _called(_slopes, host, (_like(host),) * len(given), fixed)
    moved = [jnp.zeros_like(a) for a in out]
    for change, column in zip(changes, slopes, strict=True):
        if not isinstance(change, SymbolicZero):
            some = [change.astype(slope.dtype) * slope for slope in column]
            moved[1:] = [a + b for a, b in zip(moved[1:], some, strict=True)]
    return out, tuple(moved)


_derived.defjvp(_change, symbolic_zeros=True)
