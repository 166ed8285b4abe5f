"""An attack on the first rounds of a composition, before it runs.

Two worlds differ in one record of the first or of the last client, as long as numbers allow.  An adversary
who sees the points of the rounds, and that client's messages or the sum that hides them, distinguishes the
worlds by a linear rule.  Its success rate certifies an eps [:mod:`jaxfl.privacy.decisions`].
The composition is refuted where its event allows less.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.algorithms.composition import by_messages
from jaxfl.algorithms.probes.canary import canary_problem, observed
from jaxfl.algorithms.probes.given import FAST
from jaxfl.algorithms.probes.laws import CheckFailed
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.core.errors import InputError, require
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Array, Hyper, Key, Problem, ProblemFacts, Values
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.calibration import level_for
from jaxfl.privacy.decisions import certify, family
from jaxfl.privacy.events import AnyEvent, NoClaim, described, plain_events
from jaxfl.problems.facts import facts_of

__all__ = ["ELSEWHERE", "attack", "in_small"]

Floats: TypeAlias = npt.NDArray[np.float64]

ROUNDS, RECORDS, CLIENTS = 3, 8, 3  # more rounds where noise is correlated over more
RUNS = 1200  # in each world: a quarter fits the rule, a quarter chooses a threshold, a half bounds
# values of a coordinate that is a code: a bit says less than a number, and takes so many times the runs
FEW, MORE = 4, 4
EPS, DELTA = 3.0, 1e-3  # for which the noise is calibrated: half as much noise is found
LOOKS = 4  # at most: at two clients, and a second one at each where messages are codes
SURE = 1 - 1e-6 / LOOKS  # of 10^6 honest compositions one is refuted by chance
WIDEST, COORDINATES = 4096, 16  # of the model, and those that the rule reads one by one
LENGTH = 1e6  # of the record, in units of the bound that clips it
SEEN = 1e6  # of a number that differs between the worlds without noise, in units of noise
NUMBERS = 1 << 24  # drawn records that are held together
ELSEWHERE = frozenset({"eps", "delta", "sigma", "rho", "rounds", "batch", "cohort", "colluding"})


class Worlds(NamedTuple):
    """A composition on a small problem, and the records of a client in both worlds."""

    algorithm: Algorithm
    problem: Problem
    hp: Hyper
    event: AnyEvent
    direction: npt.NDArray[np.float32]
    records: npt.NDArray[np.float32]  # (2, m, d)


def attack(
    algorithm: Algorithm, values: Mapping[str, Any], d: int, seeds: Iterable[int] = (0,)
) -> None:
    """Raise :class:`CheckFailed` if the rounds reveal more of a record than the event says.

    ``values`` are the hyper-parameters of a run on a model of d parameters.  Raises an
    :class:`InputError` if the composition cannot run on a small problem.
    """
    worlds = _worlds(algorithm, values, d)
    allowed = epsilon(worlds.event, DELTA)
    require(
        not isinstance(worlds.event, NoClaim) and np.isfinite(allowed.eps),
        lambda: f"nothing follows from its event: {allowed.method}",
    )
    for P, Q in _statistics(worlds, seeds):
        quarter, half = len(P) // 4, len(P) // 2
        chosen, bounding = (P[quarter:half], Q[quarter:half]), (P[half:], Q[half:])
        lower = certify(chosen, bounding, family(worlds.event), DELTA, SURE).lower
        if lower > allowed.eps:
            raise CheckFailed(
                f"an attack on {_rounds(algorithm)} rounds of {algorithm.name!r} certifies "
                f"eps >= {lower:.4g}, where its event allows {allowed.eps:.4g} at delta = {DELTA:g}"
            )


def _rounds(algorithm: Algorithm) -> int:
    mechanism = getattr(algorithm.body, "mechanism", None)
    return max(ROUNDS, len(getattr(mechanism, "weights", ())))


def _worlds(algorithm: Algorithm, values: Mapping[str, Any], d: int) -> Worlds:
    """The composition with noise for :data:`EPS`, on clients that all take part with all records."""
    dim = min(d, WIDEST)
    problem = canary_problem(CLIENTS, RECORDS, dim, "once")
    facts = facts_of(problem, _rounds(algorithm))
    values = _small(algorithm, values, facts)
    assert algorithm.event is not None
    event = described(algorithm.event(values, facts))
    direction = np.random.default_rng(0).choice([-1.0, 1.0], dim) / dim**0.5
    clip = float(values.get("clip", 1.0))
    length = LENGTH * (clip if np.isfinite(clip) else 1.0)
    parts = list(plain_events(event))
    removed = any(part.adjacency != "replace_one" for part in parts)
    planted = slice(None) if any(part.unit == "client" for part in parts) else slice(1)
    records = np.zeros((2, RECORDS, dim), np.float32)
    records[0, planted] = length * direction
    records[1, planted] = 0.0 if removed else -length * direction
    hp = build(algorithm, values, facts, jnp.dtype(jnp.float32))
    return Worlds(algorithm, problem, hp, event, direction.astype(np.float32), records)


def in_small(algorithm: Algorithm, values: Mapping[str, Any], d: int) -> Values:
    """The values with which a run on a model of d parameters is attacked, on a small problem."""
    problem = canary_problem(CLIENTS, RECORDS, min(d, WIDEST), "once")
    return _small(algorithm, values, facts_of(problem, _rounds(algorithm)))


def _small(algorithm: Algorithm, values: Mapping[str, Any], facts: ProblemFacts) -> Values:
    """Values of the small problem, with noise for :data:`EPS` where any can be found.

    Where none can be calibrated, the mechanism's own numbers are those of the run, one of them scaled
    until the event allows :data:`EPS`; where the event follows none of them, they are as they are.
    """
    body: Any = algorithm.body
    single = body is not None and body.estimator.sampler.single_pass
    batch = RECORDS // _rounds(algorithm) if single else RECORDS
    asked = {"delta": DELTA, "batch": batch, "cohort": CLIENTS}
    kept = {name: values[name] for name in algorithm.needs if name in values.keys() - ELSEWHERE}
    # all coordinates are sent: what a message leaves out hides a part of what the others say
    kept |= {"k": facts.d} if "k" in kept else {}
    given = {name: v for name, v in {**kept, **asked}.items() if name in algorithm.names}
    if "eps" in algorithm.names:
        try:
            return resolve(algorithm, {**given, "eps": EPS}, facts).values
        except InputError:  # an event that no calibration asks, or a mechanism without sigma
            pass
    params = () if body is None else body.mechanism.params
    own = {p.name: _first(values[p.name]) for p in params if p.name in values and not p.integer}
    given |= own
    found = resolve(algorithm, given, facts).values
    for name, number in own.items():

        def event(level: float, name: str = name) -> AnyEvent:
            assert algorithm.event is not None
            return described(algorithm.event({**found, name: level}, facts))

        try:
            level = level_for(event, EPS, DELTA, number or 1.0)
            return resolve(algorithm, {**given, name: level}, facts).values
        except Exception:  # the event does not follow it, or not as far
            continue
    return found


def _first(number: Any) -> Any:
    """A number, or that of the first round."""
    return float(number.over(1)[0]) if isinstance(number, Schedule) else number


def _statistics(worlds: Worlds, seeds: Iterable[int]) -> Iterator[tuple[Floats, Floats]]:
    """Yield rules in both worlds, (runs, rules), which a quarter of the runs fits, by seed and client.

    Where messages are codes, those of the first runs come before those of all.
    """
    some = np.unique(np.linspace(0, worlds.direction.size - 1, COORDINATES).astype(int))
    given = worlds.records, worlds.problem, worlds.hp, worlds.direction, some
    for seed, client in itertools.product(seeds, (0, CLIENTS - 1)):

        def runs(key: Key, client: int = client) -> Floats:
            keys = jax.random.split(key, RUNS)
            seen = np.asarray(_seen(worlds.algorithm, keys, jnp.int32(client), *given), np.float64)
            require(np.isfinite(seen).all(), "its messages are not finite")
            return seen

        key = jax.random.key(seed)
        seen = runs(key)
        yield _rules(seen)
        if _coded(seen):  # and the first runs did not refute
            more = [runs(jax.random.fold_in(key, i)) for i in range(1, MORE)]
            yield _rules(np.concatenate([seen, *more], axis=1))


def _coded(seen: Floats) -> bool:
    """Return whether a third of all numbers, as many as messages have, take few values."""
    values = [np.unique(number).size for number in seen.reshape(-1, seen.shape[-1]).T]
    return sum(1 < count <= FEW for count in values) >= len(values) / 3


def _rules(seen: Floats) -> tuple[Floats, Floats]:
    """Linear rules of what is seen, (worlds, runs, numbers), and its largest number."""
    quarter = seen.shape[1] // 4
    fitted = seen[:, :quarter]
    mean, scale = fitted.mean((0, 1)), fitted.std(1).mean(0)
    z = (seen - mean) / np.where(scale > 0, scale, np.inf)
    # what never varies, and differs between the worlds, is seen exactly
    exact = (scale == 0) & (np.ptp(fitted, axis=(0, 1)) > 0)
    z[..., exact] = np.sign(seen - mean)[..., exact] * SEEN
    fitted = z[:, :quarter]
    gap = fitted[0].mean(0) - fitted[1].mean(0)
    within = (np.cov(fitted[0], rowvar=False) + np.cov(fitted[1], rowvar=False)) / 2
    ridge = z.shape[-1] / fitted[0].shape[0] * 0.1 + 1e-6
    weights = np.linalg.solve(within + ridge * np.eye(len(gap)), gap)
    rules = np.stack([z @ weights, z @ gap, np.abs(z).max(-1), z[..., np.abs(gap).argmax()]], -1)
    return rules[0], rules[1]


@functools.partial(jax.jit, static_argnums=0, compiler_options=FAST)
def _seen(
    algorithm: Algorithm,
    keys: Key,
    client: Array,
    records: Array,
    problem: Problem,
    hp: Hyper,
    direction: Array,
    coordinates: Array,
) -> Array:
    """The adversary's observations of each run in both worlds, (worlds, runs, numbers).

    Samplers do not look at data: both worlds share their draws.
    """
    body: Any = algorithm.body
    rounds = _rounds(algorithm)
    listens = not body.mechanism.central
    summed = body.aggregation is not None and body.aggregation.hides

    def read(sent: Array) -> Array:
        each = sent.reshape(*sent.shape[:-1], -1, direction.size)  # a round may send two vectors
        return jnp.concatenate([each[..., coordinates], each @ direction[:, None]], -1).ravel()

    def one(key: Key, rows: Array) -> Array:
        train = (problem.train[0].at[client].set(rows), problem.train[1].at[client].set(1.0))
        here = dataclasses.replace(problem, train=train)
        attacked = by_messages(algorithm) if listens else algorithm
        given = attacked, rounds, key, here, hp
        x, sent = observed(*given, listens=listens, summed=summed, client=client)
        if listens and body.fused:  # its own rounds compute no message, and draw the mean's noise
            x, _ = observed(algorithm, rounds, key, here, hp, listens=False)
        steps = read(jnp.mean(x[1:] - x[:-1], axis=1))
        return jnp.concatenate([steps, read(sent[:, 0])]) if listens else steps

    at_once = max(1, NUMBERS // (problem.train[0].size * rounds))
    both: Array = jax.lax.map(
        lambda key: jax.vmap(one, (None, 0))(key, records), keys, batch_size=min(RUNS, at_once)
    )
    return both.swapaxes(0, 1)
