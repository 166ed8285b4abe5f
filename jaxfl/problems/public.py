"""Regularizers and constraint sets: the parts of an objective that depend on no data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import JaxflWarning, attempt, require
from jaxfl.core.params import known, nonnegative, positive
from jaxfl.core.provenance import made
from jaxfl.core.types import Array
from jaxfl.problems.clipping import clip

__all__ = [
    "Constraint",
    "Regularizer",
    "ball",
    "beyond",
    "box",
    "constraint",
    "distance",
    "l2",
    "nonconvex",
    "regularizer",
]


ROUNDING = 1e-5  # of a projection, over the length of a model


class Regularizer(NamedTuple):
    """A public term of the objective: never clipped, no noise needed."""

    name: str
    value: Callable[[Array], Array]
    smoothness: float  # bound on the norm of its Hessian
    convex: bool = True


class Constraint(NamedTuple):
    """A closed convex set."""

    name: str
    project: Callable[[Array], Array] | None
    diameter: Callable[[int], float | None]  # of the set in d dimensions; raises for another d


UNCONSTRAINED = Constraint("none", None, lambda d: None)


@made
def no_term() -> Regularizer:
    """No term."""
    return Regularizer("none", lambda x: jnp.zeros((), x.dtype), 0.0)


NONE = no_term()


def unconstrained() -> Constraint:
    """All vectors."""
    return UNCONSTRAINED


@made
def nonconvex(strength: float = 0.2) -> Regularizer:
    """``lambda sum_j x_j^2 / (1 + x_j^2)`` [SoteriaFL]; curvature in [-lambda/2, 2 lambda].

    >>> nonconvex(0.2).name
    'nonconvex:0.2'
    """
    strength = nonnegative("strength", strength)
    return Regularizer(
        f"nonconvex:{strength:g}",
        lambda x: strength * jnp.sum(x**2 / (1 + x**2)),
        2 * strength,
        convex=False,
    )


@made
def l2(strength: float) -> Regularizer:
    """``lambda/2 ||x||^2``.

    >>> l2(0.1).name
    'l2:0.1'
    """
    strength = nonnegative("strength", strength)
    return Regularizer(f"l2:{strength:g}", lambda x: strength / 2 * jnp.sum(x**2), strength)


def distance(project: Callable[[Array], Array], x: Array) -> Array:
    """The distance of x from the set onto which ``project`` projects, and the length of x."""
    far: Array = jnp.linalg.norm(jnp.stack([x - project(x), x]), axis=1)
    return far


def beyond(far: float, length: float, who: str) -> list[JaxflWarning]:
    """A warning if a model at this :func:`distance` lies outside its set by more than rounding."""
    words = f"The model of {who} is outside its constraint set, by {far:.3g} of |x| = {length:.3g}"
    way = "let the step of the server apply project"
    return [JaxflWarning(words, way)] * bool(far > ROUNDING * length)


def ball(radius: float, centre: float | Sequence[float] = 0.0) -> Constraint:
    """``||x - c|| <= r``, of diameter 2r, for the ``radius`` r and the ``centre`` c.

    >>> ball(1.0).name
    'ball:1'
    """
    return _ball(positive("radius", radius), _hashable("centre", centre))


def box(low: float | Sequence[float], high: float | Sequence[float]) -> Constraint:
    """``low_j <= x_j <= high_j``; ``low`` and ``high`` are numbers, or one for each coordinate.

    >>> box(-1.0, 1.0).diameter(4)
    4.0
    """
    l, h = _hashable("low", low), _hashable("high", high)
    ends = np.size(l), np.size(h)
    alike = not np.ndim(l) * np.ndim(h) or ends[0] == ends[1]
    require(
        alike, lambda: f"The box has {ends[0]} lower and {ends[1]} upper ends", "give equally many"
    )
    wrong = "A box needs low < high in every coordinate"
    require(np.all(np.less(l, h)), wrong, "swap or widen its ends")
    return _box(l, h)


@lru_cache
def _ball(radius: float, centre: float | tuple[float, ...]) -> Constraint:
    c = np.asarray(centre)

    def project(x: Array) -> Array:
        c_x = jnp.asarray(c, x.dtype)
        return c_x + clip(x - c_x, jnp.asarray(radius, x.dtype))

    def diameter(d: int) -> float:
        _check_fits(c, d)
        return 2 * radius

    return Constraint(f"ball:{radius:g}", project, diameter)


@lru_cache
def _box(low: float | tuple[float, ...], high: float | tuple[float, ...]) -> Constraint:
    side = np.asarray(high) - np.asarray(low)

    def project(x: Array) -> Array:
        return jnp.clip(x, jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype))

    def diameter(d: int) -> float:
        _check_fits(side, d)
        return float(np.linalg.norm(np.broadcast_to(side, (d,))))

    return Constraint("box", project, diameter)


def _check_fits(per_coordinate: npt.NDArray[np.float64], d: int) -> None:
    wrong = f"The constraint set has {per_coordinate.size} coordinates and the model {d}"
    require(per_coordinate.shape in ((), (d,)), wrong, "give one number for all, or one for each")


def regularizer(spec: str | Regularizer | None) -> Regularizer:
    """A regularizer, or one by name: ``"nonconvex:0.2"``, ``"l2:0.01"``, ``"none"``."""
    return spec if isinstance(spec, Regularizer) else _parse("regularizer", spec, REGULARIZERS)


def constraint(spec: str | Constraint | None) -> Constraint:
    """A constraint set, or one by name: ``"ball:0.05"``, ``"box:-1,1"``, ``"none"``."""
    return spec if isinstance(spec, Constraint) else _parse("constraint set", spec, CONSTRAINTS)


T = TypeVar("T")

REGULARIZERS: dict[str, Callable[..., Regularizer]] = {
    "none": no_term,
    "nonconvex": nonconvex,
    "l2": l2,
}
CONSTRAINTS: dict[str, Callable[..., Constraint]] = {
    "none": unconstrained,
    "ball": ball,
    "box": box,
}


def _parse(kind: str, spec: Any, table: dict[str, Callable[..., T]]) -> T:
    name, _, numbers = ("none" if spec is None else str(spec)).partition(":")
    make = known(kind, name, table)
    example = "nonconvex:0.2" if kind == "regularizer" else "ball:1 or box:-1,1"
    with attempt(
        f"The {kind} {spec!r} is no name with its numbers", f"give for instance {example}"
    ):
        return make(*(float(number) for number in numbers.split(",") if number))


def _hashable(name: str, value: Any) -> float | tuple[float, ...]:
    array = np.asarray(value, np.float64)
    usable = array.ndim <= 1 and np.all(np.isfinite(array))
    require(usable, "must be a finite number, or one for each coordinate", **{name: value})
    return float(array) if array.ndim == 0 else tuple(array.tolist())
