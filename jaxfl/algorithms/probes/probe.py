"""All probes of a composition with parts of a user's own."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxfl.algorithms.probes import kernels, parts
from jaxfl.algorithms.probes.attack import ELSEWHERE, attack, in_small
from jaxfl.algorithms.probes.laws import CheckFailed
from jaxfl.algorithms.standing import KERNEL, WAY, in_words, standing, unseen, users_parts
from jaxfl.core.errors import one_line
from jaxfl.core.identity import code_of
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Problem
from jaxfl.privacy.events import Kind, Standing

__all__ = ["probed"]

BEFORE = "estimator", "mechanism", "channel", "local"  # roles on which what is released depends
SETTINGS = 8  # of the parts' own numbers
SIZES = frozenset(
    {"k", "omega", "share"}
)  # of messages, which are selected with the numbers of the run
_known: dict[Hashable, Standing] = {}  # by the code of the parts, and by what else a probe reads


def probed(
    algorithm: Algorithm, problem: Problem | None, settings: Sequence[Mapping[str, Any]], d: int
) -> Standing:
    """Return what may be said of an algorithm with these settings, after a probe of the user's parts.

    A probe takes some seconds, most of them of compilation, once for parts of the same code and numbers;
    of many settings of their numbers it tries :data:`SETTINGS`.  Of an event that the user states it
    attacks the rounds.
    """
    found, body = standing(algorithm, problem), algorithm.body
    if found.kind not in (Kind.DECLARED, Kind.STATED):
        return found
    if body is None:
        return _untried("its rounds are not those of a body of parts")
    mine = users_parts(algorithm, problem) if found.kind == Kind.DECLARED else {}
    code = code_of((algorithm.event, type(body), *body.roles.values()))
    declared = mine or {role: body.roles.get(role) for role in BEFORE}
    # the noise of a stated event's attack follows from that of the run only where none is calibrated
    more = SIZES if mine else SIZES | {"sigma"}
    different = [*{str(_own(declared, values, more)): values for values in settings}.items()]
    some = np.unique(np.linspace(0, len(different) - 1, SETTINGS).astype(int))
    for numbers, values in (different[i] for i in some):
        if not mine:
            with contextlib.suppress(Exception):  # the attack meets it again, and says so
                numbers = str(_own(declared, in_small(algorithm, values, d), more))
        key = code, found.code, algorithm.name, d, numbers
        if key not in _known:
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                _known[key] = _probed(algorithm, problem, values, d, mine, found)
        if not _known[key].claims:
            return _known[key]
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
    what = words = words or f"the event of {algorithm.name!r}"
    try:
        if KERNEL in mine and problem is not None:
            what = in_words(KERNEL, mine[KERNEL])
            kernels.kernel(problem)
        with jax.enable_x64(False):
            for role in mine.keys() - {KERNEL}:
                what, own = in_words(role, mine[role]), _own({role: mine[role]}, values)
                parts.check_privacy(mine[role], values, d, unseen(algorithm.body), **own)
            what = words
            attack(algorithm, values, d)
    except CheckFailed as wrong:
        whole = "; clip = 'batch' bounds the mean of a batch, and no record" * (
            not algorithm.per_record
        )
        return Standing(Kind.REFUTED, f"no claim: a probe refutes {what}: {wrong}{whole}")
    except Exception as error:
        if found.kind == Kind.STATED:
            return _untried(one_line(error))
        why = f"no claim: {words} cannot be probed on a small problem ({one_line(error)}); {WAY}"
        return Standing(Kind.NONE, why)
    if found.kind == Kind.STATED:
        return found
    return Standing(Kind.PROBED, f"{words} as declared, which a probe did not refute", found.code)


def _untried(why: str) -> Standing:
    return Standing(Kind.UNTRIED, f"stated by the user, and not attacked: {why.rstrip('.')}")


def _own(
    mine: Mapping[str, Any], values: Mapping[str, Any], more: frozenset[str] = frozenset()
) -> dict[str, float]:
    """The numbers of a run that these parts declare; others are those of the small problem."""
    names = {param.name for part in mine.values() for param in getattr(part, "params", ())}
    names -= (ELSEWHERE | SIZES) - more
    return {
        name: values[name]
        for name in sorted(names & values.keys())
        if not isinstance(values[name], Schedule)
    }
