"""All probes of a composition with parts of a user's own."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any

import jax

from jaxfl.algorithms.probes import kernels, parts
from jaxfl.algorithms.probes.attack import attack
from jaxfl.algorithms.probes.laws import CheckFailed
from jaxfl.algorithms.standing import KERNEL, WAY, in_words, standing, users_parts
from jaxfl.core.errors import InputError, JaxflWarning, one_line
from jaxfl.core.identity import code_of
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Param, Problem
from jaxfl.privacy.events import Kind, Standing

__all__ = ["probed"]

_known: dict[Hashable, Standing] = {}  # by the code of the parts, and by what else a probe reads


def probed(
    algorithm: Algorithm, problem: Problem | None, values: Mapping[str, Any], d: int
) -> Standing:
    """Return what may be said of an algorithm with these values, after a probe of the user's parts.

    A probe takes some seconds, most of them of compilation, once for parts of the same code.  What it
    refutes loses its claim, with a warning.  Of an event that the user states it attacks the rounds.
    """
    found = standing(algorithm, problem)
    body: Any = algorithm.body
    if found.kind not in (Kind.DECLARED, Kind.STATED) or body is None:
        return found
    stated = found.kind == Kind.STATED
    mine = {} if stated else users_parts(algorithm, problem)
    code = code_of((algorithm.event, type(body), *body)) if stated else found.code
    names = sorted({param.name for part in mine.values() for param in _params(part)})
    key = (
        code,
        algorithm.name,
        algorithm.parts,
        d,
        *((name, str(values.get(name))) for name in names),
    )
    if key not in _known:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            _known[key] = _probed(algorithm, problem, values, d, mine, found)
    return _known[key]


def _probed(
    algorithm: Algorithm,
    problem: Problem | None,
    values: Mapping[str, Any],
    d: int,
    mine: Mapping[str, Any],
    found: Standing,
) -> Standing:
    words = ", ".join(in_words(*pair) for pair in mine.items())
    words = words or f"the event of {algorithm.name!r}"
    try:
        if KERNEL in mine and problem is not None:
            kernels.kernel(problem)
        with jax.enable_x64(False):
            for role in mine.keys() - {KERNEL}:
                parts.check_privacy(mine[role], **_numbers(mine[role], values))
            attack(algorithm, values, d)
    except CheckFailed as wrong:
        why = f"no claim: a probe refutes {words}: {wrong}"
        warnings.warn(JaxflWarning(f"{algorithm.name} has {why}"), stacklevel=2)
        return Standing(Kind.REFUTED, why)
    except Exception as error:
        if found.kind == Kind.STATED:  # the user's word, on which no probe could look
            return found
        if isinstance(error, InputError):
            why = f"no claim: {words} cannot be probed, {one_line(error)}"
        else:
            why = f"no claim: {words} raises {one_line(error)} on the small problem of a probe"
        return Standing(Kind.NONE, f"{why}; {WAY}")
    if found.kind == Kind.STATED:
        return found
    return Standing(Kind.PROBED, f"{words} as declared, which a probe did not refute", found.code)


def _params(part: Any) -> tuple[Param, ...]:
    return getattr(part, "params", ())


def _numbers(part: Any, values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a run that a part alone declares; sizes are those of the small problem."""
    names = {param.name for param in _params(part)} - {"batch", "cohort", "k", "omega", "sigma"}
    return {
        name: values[name]
        for name in sorted(names & values.keys())
        if not isinstance(values[name], Schedule)
    }
