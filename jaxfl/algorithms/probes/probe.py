"""All probes of a composition with parts of a user's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

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
SETTINGS = 8  # that differ in what a probe reads
SIZES = frozenset(
    {"k", "omega", "share"}
)  # of messages, which are selected with the numbers of the run
_known: dict[Hashable, Standing] = {}  # by the parts' code, and by all else that a probe reads


class _Step(NamedTuple):
    """One probe of a run: of what, all numbers that it reads, and how it is done."""

    what: str
    reads: Hashable
    go: Callable[[], None]


def probed(
    algorithm: Algorithm, problem: Problem | None, settings: Sequence[Mapping[str, Any]], d: int
) -> Standing:
    """Return what may be said of an algorithm with these settings, after a probe of the user's parts.

    A probe takes some seconds, most of them of compilation, once for parts of the same code and for all
    settings that agree in what it reads; of many that do not it tries :data:`SETTINGS`.  Of an event that
    the user states it attacks the rounds.
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
    # neighbours have the same numbers of the parts: places that are evenly spread find each of a few
    ordered = sorted(settings, key=lambda values: str(_own(declared, values, more)))
    each = [_steps(algorithm, values, d, mine) for values in ordered]
    if KERNEL in mine and problem is not None:
        compare, rows = (
            functools.partial(kernels.kernel, problem),
            code_of(kernels.rows_of(problem)),
        )
        first = _Step(in_words(KERNEL, mine[KERNEL]), rows, compare)
        each = [[first, *steps] for steps in each]
    answers = []
    for alike in zip(*each, strict=True):
        different = [*{step.reads: step for step in alike}.values()]
        for i in np.unique(np.linspace(0, len(different) - 1, SETTINGS).astype(int)):
            step = different[i]
            key = code, found.code, algorithm.name, d, step.what, step.reads
            if key not in _known:
                with jax.default_device(jax.local_devices(backend="cpu")[0]):
                    _known[key] = _probed(algorithm, step, mine, found)
            if not _known[key].claims:
                return _known[key]
            answers.append(_known[key])
    return next((one for one in answers if one.kind == Kind.UNTRIED), answers[-1])


def _steps(
    algorithm: Algorithm, values: Mapping[str, Any], d: int, mine: Mapping[str, Any]
) -> list[_Step]:
    """The probes of a run with these values: of the user's parts one by one, and the attack."""
    steps = []
    for role in sorted(mine.keys() - {KERNEL}):
        own = _own({role: mine[role]}, values)
        given = mine[role], values, d, unseen(algorithm.body)
        check = functools.partial(_in_32_bits, parts.check_privacy, *given, **own)
        reads = parts.read_by_checks(mine[role], values, **own)
        steps.append(_Step(in_words(role, mine[role]), reads, check))
    try:
        small = in_small(algorithm, values, d)
    except Exception:  # the attack meets it again, and says so
        small = dict(values)
    whole = functools.partial(_in_32_bits, attack, algorithm, values, d)
    words = _all(mine) or f"the event of {algorithm.name!r}"
    return [*steps, _Step(words, ("attack", parts.in_full(small)), whole)]


def _in_32_bits(probe: Callable[..., None], *given: Any, **numbers: float) -> None:
    with jax.enable_x64(False):
        probe(*given, **numbers)


def _probed(
    algorithm: Algorithm, step: _Step, mine: Mapping[str, Any], found: Standing
) -> Standing:
    try:
        step.go()
    except CheckFailed as wrong:
        whole = "; clip = 'batch' bounds the mean of a batch, and no record" * (
            not algorithm.per_record
        )
        return Standing(Kind.REFUTED, f"no claim: a probe refutes {step.what}: {wrong}{whole}")
    except Exception as error:
        if found.kind == Kind.STATED:
            return _untried(one_line(error))
        why = f"{_all(mine)} cannot be probed on a small problem ({one_line(error)}); {WAY}"
        return Standing(Kind.NONE, f"no claim: {why}")
    if found.kind == Kind.STATED:
        return found
    said = f"{_all(mine)} as declared, which a probe did not refute"
    return Standing(Kind.PROBED, said, found.code)


def _all(mine: Mapping[str, Any]) -> str:
    return ", ".join(in_words(*pair) for pair in mine.items())


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
