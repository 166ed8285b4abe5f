"""Checks of a whole algorithm, whatever parts it has."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.composition import by_messages
from jaxfl.algorithms.probes.attack import ELSEWHERE, in_small
from jaxfl.algorithms.probes.laws import ERRORS, Checked, confirm, equal
from jaxfl.algorithms.probes.parts import CHECKS as OF_PARTS
from jaxfl.algorithms.probes.parts import check_part
from jaxfl.algorithms.probes.probe import SIZES, probed
from jaxfl.algorithms.registry import one_algorithm
from jaxfl.audits.attack import audit
from jaxfl.core.errors import InputError, JaxflWarning, require
from jaxfl.core.params import closest, only
from jaxfl.core.progress import Bar, watching
from jaxfl.core.provenance import own_body, own_part
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Hyper, Key, Mechanism, Problem
from jaxfl.engine.functions import Functions, functions
from jaxfl.engine.runs import totals
from jaxfl.engine.simulate import simulate
from jaxfl.engine.sweep import sweep
from jaxfl.parts.graphs import Graph
from jaxfl.privacy.events import Kind
from jaxfl.rounds import transcript

__all__ = ["Checked", "check_algorithm"]

DELTA, SURE = 1e-3, 0.9999  # of the attack
RUNS, RECORDS = 600, 8  # in each of its two worlds, and of its client
KEYS = 200  # draws of noise


class DoesNotApply(Exception):
    """Raised by a check that does not apply to the algorithm."""


class Case(NamedTuple):
    """An algorithm on a problem, with its numbers."""

    algorithm: Algorithm
    problem: Problem
    rounds: int
    key: Key
    numbers: dict[str, Any]

    def functions(self, **how: Any) -> Functions:
        return functions(self.algorithm, self.problem, self.rounds, **how, **self.numbers)

    def run(self, rounds: int | None = None) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JaxflWarning)
            T = self.rounds if rounds is None else rounds
            return simulate(
                self.algorithm, self.problem, self.key, T, progress=False, **self.numbers
            )


def check_algorithm(
    algorithm: Algorithm | str,
    problem: Problem,
    rounds: int = 20,
    *,
    leave_out: tuple[str, ...] = (),
    progress: bool | Callable[[str], None] | None = None,
    **numbers: Any,
) -> Checked:
    """Check what every algorithm of jaxfl satisfies; return what was checked, and what could not be.

    Args:
        algorithm: an algorithm, or the name of one.
        problem: a small problem, on which it makes progress.
        rounds: how many rounds it runs.
        leave_out: names of checks that do not apply, as in ``leave_out=("descent",)``.
        progress: that of :func:`jaxfl.simulate`; a function is called with the name of each check.
        numbers: hyper-parameters.

    Raises:
        CheckFailed: the algorithm does something else, in one sentence with both numbers.

    The last check attacks a few rounds on a problem of its own, whose worst record it exchanges, and
    compares what it finds with the event [:func:`jaxfl.audit`].

    >>> import jax, jaxfl.testing
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> jaxfl.testing.check_algorithm("ldp_gd", problem, 10, sigma=0.01, lr=0.5).done
    ('descent', 'counts', 'bits', 'jit', 'vmap', 'scan', 'resume', 'sweep', 'plain', 'noise', 'attack')
    """
    for name in leave_out:
        require(name in CHECKS, closest("check", name, CHECKS))
    one = Case(one_algorithm(algorithm, numbers), problem, rounds, jax.random.key(3), numbers)
    only(numbers, one.algorithm.names, one.algorithm.name, check_algorithm)
    done, left = [], dict.fromkeys(leave_out, "left out")
    with watching(progress, Bar.doing) as report:
        for name, check in CHECKS.items():
            if name in left:
                continue
            if report is not None:
                report(f"checking {name} of {one.algorithm.name}")
            try:
                check(one)
                done.append(name)
            except DoesNotApply as why:
                left[name] = str(why)
    return Checked(tuple(done), left)


def _parts(one: Case) -> None:
    """Parts that jaxfl did not make do what they declare [:func:`check_part`]."""
    roles = {} if one.algorithm.body is None else one.algorithm.body.roles
    mine: list[Any] = [
        p for p in roles.values() if isinstance(p, tuple(OF_PARTS)) and not own_part(p)
    ]
    if not mine:
        raise DoesNotApply("its parts are jaxfl's")
    values, left = one.run(1).values, []
    values = {n: v for n, v in values.items() if n not in ELSEWHERE | SIZES}
    numbers = {n: v for n, v in values.items() if not isinstance(v, Schedule)}
    for part in mine:
        owners = part, getattr(part, "sampler", None)
        names = {p.name for owner in owners for p in getattr(owner, "params", ())}
        given = {n: numbers[n] for n in sorted(names & numbers.keys())}
        given |= {"clients": one.problem.n} if isinstance(part, Graph) else {}
        reads = numbers.keys() - names if isinstance(part, Mechanism) else set()
        given |= {n: numbers[n] for n in sorted(reads)}  # its std may read what others declare
        try:
            check_part(part, reads=reads, **given)
        except InputError as error:
            left.append(f"{part.name!r} cannot be checked alone: {error}")
    if left:
        raise DoesNotApply(" ".join(left))


def _descent(one: Case) -> None:
    """The loss is finite and falls."""
    loss = np.asarray(one.run().metrics["loss"], np.float64)
    confirm(np.isfinite(loss).all(), f"The loss of {one.algorithm.name} is not finite")
    confirm(
        loss[-1] < loss[0],
        f"The loss of {one.algorithm.name} rises from {loss[0]:.4g} to {loss[-1]:.4g}",
    )


def _counts(one: Case) -> None:
    """A run's totals are the counts of its rounds, and their bits."""
    f, run = one.functions(), one.run()
    _, infos = jax.lax.scan(f.round, f.init(one.key), length=one.rounds)
    counts = {n: int(np.sum(a)) for n, a in infos._asdict().items()}
    start = run.log.counts[0]["gradients"]  # evaluated before the first round
    expected = totals(run.cost, {**counts, "gradients": counts["gradients"] + start})
    for name, value in expected.items():
        _agree(one, name, run.totals[name], value)


def _agree(one: Case, name: str, found: float, expected: float) -> None:
    words = f"{one.algorithm.name} reports {found:,} {name}, and its rounds count {expected:,}"
    confirm(found == expected, words)


def _bits(one: Case) -> None:
    """Messages hold no more coordinates than their bits count."""
    body = one.algorithm.body
    if body is None:
        raise DoesNotApply("no parts describe its messages")
    if body.compressor.code is not None and not own_body(body):
        raise DoesNotApply("codes of a round of your own count as its compressor declares")
    f = functions(by_messages(one.algorithm), one.problem, one.rounds, **one.numbers)
    run, cost = f.init(one.key), f.algorithm.cost(f.about.values, f.about.facts)
    for _ in range(3):
        seen = f.view(run)
        sent = int(np.count_nonzero(seen.messages[seen.weight > 0]))
        run, info = f.round(run)
        counted = totals(cost, {n: int(count) for n, count in info._asdict().items()})
        words = f"{one.algorithm.name} sends {sent:,} coordinates in a round, and counts"
        confirm(sent <= counted["coordinates"], f"{words} {counted['coordinates']:,}")


def _jit(one: Case) -> None:
    """A round gives the same without ``jit``."""
    f = one.functions()
    run = f.init(one.key)
    fast = f.output(f.round(run)[0])
    with jax.disable_jit():
        slow = one.algorithm.output(one.algorithm.round(run.key, run.state, f.problem, f.hp)[0])
    equal(fast, slow, f"A round of {one.algorithm.name} with and without jit", 1e-4)


def _vmap(one: Case) -> None:
    """Runs together are the runs one by one."""
    f = one.functions()

    def go(key: Key) -> Any:
        return f.output(jax.lax.scan(f.round, f.init(key), length=3)[0])

    keys = jax.random.split(one.key, 3)
    alone = np.stack([np.asarray(go(key)) for key in keys])
    equal(
        jax.jit(jax.vmap(go))(keys), alone, f"Runs of {one.algorithm.name} together and alone", 1e-4
    )


def _scan(one: Case) -> None:
    """A loop of rounds is the run, draw by draw."""
    f = one.functions()
    end, _ = jax.lax.scan(f.round, f.init(one.key), length=one.rounds)
    equal(f.output(end), one.run().x, f"A loop of rounds of {one.algorithm.name} and its run", 1e-4)


def _resume(one: Case) -> None:
    """A run in two halves is the run."""
    values = one.run(1).values
    if any(isinstance(value, Schedule) for value in values.values()):
        raise DoesNotApply("its schedules are made for the number of rounds")
    other = {"eps", "delta", "rho"} | (
        {"omega"} if "k" in values else set()
    )  # ways to say the same
    numbers = {n: v for n, v in values.items() if n in one.algorithm.names - other}
    fixed = one._replace(numbers=numbers)  # what theory makes of the number of rounds stays
    half = fixed.run(one.rounds // 2).extend(one.rounds, progress=False)
    equal(half.x, fixed.run().x, f"A run of {one.algorithm.name} in two parts and in one", 1e-5)


def _sweep(one: Case) -> None:
    """A run of a sweep is the run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxflWarning)
        how: Any = {"seeds": 2, "progress": False, **one.numbers}
        ds = sweep(one.algorithm, one.problem, one.key, one.rounds, **how)
    found = ds["loss"].sel(seed=0).values.ravel()
    equal(
        found,
        one.run().metrics["loss"],
        f"A run of {one.algorithm.name} alone and in a sweep",
        1e-4,
    )


def _plain(one: Case) -> None:
    """Fast rounds are those that read as the paper does."""
    if one.algorithm.body is None or one.algorithm.body.storage != "exact":
        raise DoesNotApply("it has no plain rounds")

    def end(**how: bool) -> Any:
        f = one.functions(**how)
        return f.output(jax.lax.scan(f.round, f.init(one.key), length=3)[0])

    what = f"Fast and plain rounds of {one.algorithm.name}"
    equal(end(messages=True), end(plain=True), what, 1e-4)


def _noise(one: Case) -> None:
    """Two rounds with other noise differ by as much as the mechanism declares."""
    body = one.algorithm.body
    alone = body is not None and body.own.std is not None and body.local is None
    if body is None or not alone or not body.compressor.exact or "sigma" not in one.algorithm.names:
        raise DoesNotApply("no message shows the noise alone")
    if body.mechanism.coupled:
        raise DoesNotApply("neighbours share a part of the noise")
    f = functions(by_messages(one.algorithm), one.problem, one.rounds, **one.numbers)
    run, body = f.init(one.key), f.algorithm.body
    assert body is not None
    silent = Hyper({**f.hp.values, "sigma": jnp.zeros_like(f.hp["sigma"])}, f.hp.capacity)
    (now, *_) = transcript.equal_rounds(body, {**f.about.values, "rounds": 1}, f.about.facts)
    std = now.std * (*body.mechanism.multiples, 1.0)[0]

    def noise(key: Key) -> Any:
        noisy, quiet = (body.view(key, run.state, f.problem, hp) for hp in (f.hp, silent))
        return noisy.messages[0] - quiet.messages[0]

    x = np.asarray(jax.jit(jax.vmap(noise))(jax.random.split(one.key, KEYS)), np.float64)
    found = float(x.std())
    allowed = ERRORS / math.sqrt(2 * x.size) + 1e-3
    confirm(
        abs(found / std - 1) < allowed,
        f"The noise of a message of {one.algorithm.name} has the deviation {found:.4g}, and the "
        f"mechanism declares {std:.4g}",
    )


def _probe(one: Case) -> None:
    """The probe that precedes a run does not refute it [:mod:`jaxfl.algorithms.probes`]."""
    values, d = one.run(1).values, one.problem.model.dim
    found = probed(one.algorithm, one.problem, [values], d)
    if found.kind not in (Kind.REFUTED, Kind.PROBED, Kind.STATED):
        raise DoesNotApply(found.why or "the proof rests on no part of yours")
    confirm(found.kind != Kind.REFUTED, f"{one.algorithm.name}, {found.why}")


def _noised(one: Case, numbers: dict[str, Any], d: int) -> dict[str, Any]:
    """The numbers, with noise for an eps that so few runs can refute."""
    body: Any = one.algorithm.body
    values = in_small(one.algorithm, one.functions().about.values, d)
    own = {p.name for p in body.mechanism.params if not p.integer} & values.keys()
    kept = {n: v for n, v in numbers.items() if n not in ("eps", "rho")}
    return {**(kept if own else numbers), **{n: values[n] for n in sorted(own)}}


def _attack(one: Case) -> None:
    """No attack on a few rounds succeeds more often than the event allows."""
    body = one.algorithm.body
    if body is None or one.algorithm.event is None or body.mechanism.std is None:
        raise DoesNotApply("nothing is claimed of it")
    numbers = {
        n: v for n, v in one.numbers.items() if n not in ("k", "omega", "batch", "cohort", "delta")
    }
    wide = 8 if body.compressor.select is not None else 1
    clients = 1 if body.participation.everyone and own_body(body) else 3
    with contextlib.suppress(InputError):  # its rules ask for more: the noise is that of the run
        numbers = _noised(one, numbers, wide)
    given = {"batch": 4, "cohort": 2, "k": max(1, wide // 2)}
    numbers |= {n: v for n, v in given.items() if n in one.algorithm.names}
    turning = body.estimator.points != 1 and body.local is None
    try:
        found = audit(
            one.algorithm,
            rounds=3,
            key=one.key,
            m=RECORDS,
            runs=RUNS,
            delta=DELTA,
            confidence=SURE,
            dim=wide,
            clients=clients,
            turning=turning,
            progress=False,
            **numbers,
        )
    except InputError as error:
        raise DoesNotApply(f"it cannot be attacked: {error}") from None
    confirm(
        not (found.refutes_proof or found.refutes_described),
        f"An attack on {one.algorithm.name} shows eps >= {found.needed:.4g}, and its event allows "
        f"{found.described or found.proven:.4g} at delta = {DELTA:g}",
    )


CHECKS: dict[str, Callable[[Case], None]] = {
    "parts": _parts,
    "descent": _descent,
    "counts": _counts,
    "bits": _bits,
    "jit": _jit,
    "vmap": _vmap,
    "scan": _scan,
    "resume": _resume,
    "sweep": _sweep,
    "plain": _plain,
    "noise": _noise,
    "probe": _probe,
    "attack": _attack,
}
