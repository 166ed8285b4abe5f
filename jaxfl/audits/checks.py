"""Two quick audits: the change that one record makes without noise, and the leak of one run."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxfl.algorithms.probes.canary import trajectory
from jaxfl.algorithms.registry import one_algorithm
from jaxfl.audits.canary import EventLike, prepare, takes
from jaxfl.audits.ranges import checked
from jaxfl.core.errors import InputError, require
from jaxfl.core.types import Algorithm, Array, Hyper, Key, Problem
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.decisions import family
from jaxfl.privacy.events import AnyEvent, Event, Mean, Sequence
from jaxfl.privacy.limits import one_run_eps

__all__ = ["OneRun", "Sensitivity", "one_run_audit", "sensitivity"]


class Sensitivity(NamedTuple):
    """The largest change of a message by one record, and the bound of the event."""

    moved: float
    bound: float | None  # None: the event does not bound single messages

    @property
    def ratio(self) -> float | None:
        return None if self.bound is None else self.moved / self.bound


def sensitivity(
    algorithm: Algorithm | str,
    *,
    rounds: int,
    key: Key,
    m: int = 8,
    runs: int = 64,
    event: EventLike | None = None,
    dim: int = 1,
    canary: float = 1e6,
    **numbers: Any,
) -> Sensitivity:
    """The largest change of a message, without noise, if one record is exchanged for its negation.

    ``numbers`` are the algorithm's hyper-parameters; one client has m records, and the model ``dim``
    coordinates.  ``event`` gives the bound, by default the algorithm's own event.  Both worlds share
    their draws.  The record is a turning canary (:mod:`jaxfl.algorithms.probes.canary`), the worst case
    for estimators that compare two points; the other gradients do not depend on x: worlds whose
    trajectories differ can be compared round by round.  The maximum is over the rounds of ``runs`` runs:
    with few records and many runs it comes close to the bound.  Noise that an algorithm has no ``sigma``
    for is the same in both worlds and cancels.  A sparsifier multiplies what it keeps, noise included, by
    1 + omega: the change is divided by that factor.
    """
    checked({"canary": canary})
    algorithm = one_algorithm(algorithm, numbers)
    if takes(algorithm, "sigma"):
        numbers["sigma"] = 0.0
    setup = prepare(algorithm, m, dim, rounds, True, event, numbers)
    kept = _kept(setup.algorithm, dim, setup.values)
    worlds = np.empty((2, 1, m, dim), np.float32)
    worlds[:] = setup.clip * np.linspace(-0.5, 1.0, m)[:, None] / math.sqrt(dim)
    worlds[:, 0, 0] = 0.0
    worlds[:, 0, 0, 0] = canary * setup.clip, -canary * setup.clip
    turns = np.zeros((1, m), np.float32)
    turns[0, 0] = 1.0
    keys = jax.random.split(key, runs)
    x = np.asarray(_points(setup.algorithm, rounds, keys, worlds, turns, setup.problem, setup.hp))
    v = x[:, :, :-1] - x[:, :, 1:]
    moved = float(np.max(np.linalg.norm(v[0] - v[1], axis=-1) / setup.step)) / kept
    return Sensitivity(moved, _largest(setup.event))


def _kept(algorithm: Algorithm, dim: int, values: Mapping[str, Any]) -> float:
    """The factor by which compression multiplies a message's coordinates, noise included.

    There is none for codes, whose output depends on the whole message, nor for a channel that adds
    what earlier messages left.
    """
    body = algorithm.body
    if body is None:
        return 1.0
    compressor = body.compressor
    if compressor.exact or (dim == 1 and compressor.scalars):
        return 1.0
    omega = compressor.omega
    if compressor.select is not None and compressor.code is None and omega is not None:
        scale = 1 + omega(dim, values)
        if scale == 1 or not body.remembers:
            return scale
    out = "ask for dim = 1, or " if dim > 1 and compressor.scalars else ""
    raise InputError(
        f"changes messages of {algorithm.name} by more than a common factor",
        f"{out}take compressors.identity()",
        compressor=compressor.name,
        dim=dim,
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _points(
    algorithm: Algorithm,
    rounds: int,
    keys: Key,
    worlds: ArrayLike,
    turns: ArrayLike,
    problem: Problem,
    hp: Hyper,
) -> Array:
    """The points that the server shows, (worlds, runs, T + 1, d)."""

    def one(key: Key, rows: Array) -> Array:
        here = dataclasses.replace(problem, train=(rows, turns)[: len(problem.train)])
        return trajectory(algorithm, rounds, key, here, hp)[:, 0]

    return jax.vmap(lambda rows: jax.vmap(lambda key: one(key, rows))(keys))(worlds)


def _largest(event: AnyEvent | None) -> float | None:
    """The L2 sensitivity of one release: ``2 max(X, Y)`` under replace-one.

    With replacement a record may come b times over.
    """
    if isinstance(event, Sequence):
        bounds = [_largest(part) for part in event.events]
        known = [bound for bound in bounds if bound is not None]
        return max(known) if known and len(known) == len(bounds) else None
    if not isinstance(event, Event) or not isinstance(event.sensitivity, Mean):
        return None
    estimator, sampling = event.sensitivity, event.sampling
    X = estimator.X(sampling)
    if sampling.scheme == "with_replacement":
        X = estimator.clip * (estimator.over_b + estimator.over_m / sampling.m)
    factor = 2.0 if event.adjacency == "replace_one" else 1.0
    return factor * max(X, estimator.Y(sampling))


# --- one run -------------------------------------------------------------------------------------


class OneRun(NamedTuple):
    """Lower bounds on eps from the guesses of a single run.

    ``lower`` assumes nothing; ``curve`` uses the trade-off curve of the event (None without one).
    """

    algorithm: str
    lower: float
    curve: float | None
    proven: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    right: int
    seconds: float


def one_run_audit(
    algorithm: Algorithm | str,
    *,
    rounds: int,
    key: Key,
    m: int = 1000,
    dim: int = 1000,
    canaries: int | None = None,
    guesses: int | None = None,
    delta: float = 1e-3,
    event: EventLike | None = None,
    confidence: float = 0.95,
    canary: float = 1e6,
    **numbers: Any,
) -> OneRun:
    """Privacy auditing with one training run [Steinke, Nasr, Jagielski, NeurIPS 2023].

    One client has m records, ``canaries`` of them planted (default: as many as fit): canary i is +C e_i
    or -C e_i by a fair coin, ``C = canary * clip``.  The ``guesses`` with the largest ``|sum_t v_t|_i``
    (default: a quarter) are guessed by their sign.  Canaries must not meet, so there can be at most
    ``dim`` of them.  The bound on eps at ``delta`` holds with the ``confidence``.  Through the event's
    curve [Mahloujifar, Melis, Chaudhuri, 2024] the bound comes much closer to eps than the one that
    assumes nothing.
    """
    began = time.perf_counter()
    checked({"delta": delta, "confidence": confidence, "canary": canary})
    most = min(m, dim)  # a canary needs a record and a coordinate
    k = most if canaries is None else canaries
    require(
        1 <= k <= most, lambda: f"must be at least 1 and at most {most}, one per record", canaries=k
    )
    r = max(1, k // 4) if guesses is None else guesses
    require(1 <= r <= k, lambda: f"must be at least 1 and at most the {k} canaries", guesses=r)
    algorithm = one_algorithm(algorithm, numbers)
    if takes(algorithm, "delta"):
        numbers["delta"] = delta
    setup = prepare(algorithm, m, dim, rounds, False, event, numbers)
    coin_key, run_key = jax.random.split(key)
    coins = np.asarray(jax.random.rademacher(coin_key, (k,), jnp.float32))
    rows, turns = np.zeros((1, 1, m, dim), np.float32), np.zeros((1, m), np.float32)
    rows[0, 0, range(k), range(k)] = canary * setup.clip * coins
    args = run_key[None], rows, turns, setup.problem, setup.hp
    x = np.asarray(_points(setup.algorithm, rounds, *args))[0, 0]
    score = (x[0] - x[-1])[:k]
    sure = np.argsort(-np.abs(score), kind="stable")[:r]
    right = int(np.sum(np.sign(score[sure]) == coins[sure]))
    curves = family(setup.event)
    guessed = k, r, right, delta, 1 - confidence
    return OneRun(
        algorithm=setup.algorithm.name,
        lower=one_run_eps(*guessed),
        curve=None if curves is None else curves.one_run_eps(*guessed),
        proven=math.inf if setup.released is None else epsilon(setup.released, delta).eps,
        delta=delta,
        confidence=confidence,
        canaries=k,
        guesses=r,
        right=right,
        seconds=time.perf_counter() - began,
    )
