"""Lower bounds on eps by attack, for any algorithm.

:func:`audit` runs an algorithm many times in two worlds that differ in one record, and guesses the
world from the trajectories [Jagielski, Ullman, Oprea, 2020; Nasr et al., 2021 and 2023].
:func:`jaxfl.audit.checks.sensitivity` looks at single rounds with the noise off;
:func:`jaxfl.audit.checks.one_run_audit` needs a single run.

The attack reads nothing of an algorithm but its trajectory.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from jaxfl.algorithms.registry import one_algorithm
from jaxfl.audit.canary import EventLike, Setup, prepare, sign, takes, trajectory
from jaxfl.audit.decisions import choose, family
from jaxfl.audit.limits import limits, plain_eps, separation
from jaxfl.audit.ranges import checked
from jaxfl.core.params import whole
from jaxfl.core.types import Algorithm, Array, Hyper, Key, Problem
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import AnyEvent, Event, Mean
from jaxfl.privacy.gaussian import check_delta

__all__ = ["AuditResult", "audit"]

Floats: TypeAlias = npt.NDArray[np.float64]
STATISTICS = ("sum", "likelihood ratio", "extremes", "spread", "contrast")
NUMBERS_AT_ONCE = 1 << 17  # drawn records that are held together, over all runs of a chunk


class AuditResult(NamedTuple):
    """Lower bounds on eps at ``delta``, and the proven and claimed eps.

    ``plain`` assumes nothing; ``curve`` uses the trade-off curve of the event (None without one).
    ``lower`` is the one that was larger on the half of the runs that chooses; each holds with the
    stated confidence by itself.
    """

    algorithm: str
    lower: float
    proven: float  # infinite: no privacy claim can be proven
    claimed: float | None  # by the paper's formula, or by the caller
    delta: float
    plain: float
    curve: float | None
    confidence: float
    runs: int  # in each of the two worlds
    rounds: int
    statistic: str  # which the bound uses, chosen on half of the runs
    method: str  # of the proof
    status: str
    seconds: float

    @property
    def refuted(self) -> bool:
        """The attack succeeds more often than the proof allows: something is wrong."""
        return self.lower > self.proven

    @property
    def exposed(self) -> bool:
        """The attack succeeds more often than the claim allows."""
        return self.claimed is not None and self.lower > self.claimed

    def __str__(self) -> str:
        proven = f"{self.proven:.4g}" if math.isfinite(self.proven) else f"none ({self.method})"
        claim = "" if self.claimed is None else f", claimed {self.claimed:.4g}"
        flag = " REFUTED" if self.refuted else " EXPOSED" if self.exposed else ""
        return (
            f"{self.algorithm}: eps >= {self.lower:.4g} at delta = {self.delta:g} "
            f"({100 * self.confidence:g} % confidence), proven {proven}{claim}; "
            f"2 x {self.runs} runs of {self.rounds} rounds in {self.seconds:.1f} s{flag}"
        )


def audit(
    algorithm: Algorithm | str,
    *,
    rounds: int,
    key: Key,
    m: int = 1000,
    runs: int = 10_000,
    delta: float | None = None,
    event: EventLike | None = None,
    claimed: float | None = None,
    confidence: float = 0.95,
    dim: int = 1,
    turning: bool = False,
    canary: float = 1e6,
    chunk: int | None = None,
    noise: str = "calibrated",
    **numbers: Any,
) -> AuditResult:
    """Attack ``runs`` runs in each of two worlds: one of m records is +C e_1 there, -C e_1 here.

    All other gradients are zero and ``C = canary * clip``; with an event for adjacency by addition
    or removal the record is zero in the second world.  ``turning`` makes the canary's sign depend
    on x (see :mod:`jaxfl.audit.canary`).  ``numbers`` are the algorithm's hyper-parameters.
    Half of the runs choose statistic and threshold, the others bound how often the test succeeds.

    ``event`` describes the mechanism (or is a function of resolved numbers and facts); without it
    the algorithm's own is used, if it has one.  ``claimed`` defaults to what its paper's formula
    says; ``noise="paper"`` takes the noise from there.  The worlds share their draws: each world's
    bound holds by itself, and so do both.

    >>> found = audit("ldp_gd", rounds=5, m=4, runs=1000, eps=4.0, delta=1e-3, key=jax.random.key(0))
    >>> 2 < found.lower <= found.proven, round(found.proven, 3), found.refuted
    (True, 4.0, False)
    """
    began, runs = time.perf_counter(), whole("runs", runs, 20)
    asked = {"confidence": confidence, "canary": canary, "chunk": chunk, "claimed": claimed}
    chunk = checked({**asked, "delta": delta, "turning": turning}).get("chunk")
    algorithm = one_algorithm(algorithm)
    if delta is not None and takes(algorithm, "delta"):
        numbers["delta"] = delta
    setup = prepare(algorithm, m, dim, rounds, turning, event, numbers, noise)
    delta = check_delta(setup.values.get("delta", 1e-3) if delta is None else delta)

    rounds = int(rounds)
    P, Q = _attack(setup, rounds, runs, key, canary, turning, chunk)
    half = runs // 2
    train, test = (P[:half], Q[:half]), (P[half:], Q[half:])
    # strict, so that the luckiest of many rules is not taken for the best one
    strict = 1 - 1e-2 * (1 - confidence), 1 - 1e-4 * (1 - confidence)
    plain_rule = choose(*train, lambda a, b: plain_eps(*limits(a, b, half, strict[0]), delta))
    curves = family(setup.event)
    score = separation if curves is None else curves.score
    curve_rule = choose(*train, lambda a, b: score(*limits(a, b, half, strict[1])))

    def plainly(P: Floats, Q: Floats) -> float:
        rates = limits(*plain_rule.counts(P, Q), P.shape[0], confidence)
        return float(plain_eps(*rates, delta))

    def by_curve(P: Floats, Q: Floats) -> float | None:
        p, f = limits(*curve_rule.counts(P, Q), P.shape[0], confidence)
        return None if curves is None else curves.eps(float(p), float(f), delta)

    plain, curve, guess = plainly(*test), by_curve(*test), by_curve(*train)
    through_curve = curve is not None and guess is not None and guess >= plainly(*train)

    proven, method, status = math.inf, "the algorithm has no event", ""
    if setup.event is not None:
        proven, _, method, status = epsilon(setup.event, delta)
    if claimed is None:
        claimed = _claimed(setup)
    rule = curve_rule if through_curve else plain_rule
    return AuditResult(
        algorithm=algorithm.name,
        lower=curve if through_curve and curve is not None else plain,
        proven=proven,
        claimed=claimed,
        delta=delta,
        plain=plain,
        curve=curve,
        confidence=confidence,
        runs=runs,
        rounds=rounds,
        statistic=STATISTICS[rule.statistic],
        method=method,
        status=status,
        seconds=time.perf_counter() - began,
    )


def _claimed(setup: Setup) -> float | None:
    """The eps of the paper's formula for this noise, or the eps that was asked for."""
    if setup.algorithm.cited:
        claim = setup.algorithm.claim(setup.values, setup.facts)
        return None if claim is None else float(claim.eps)
    return float(setup.values["eps"]) if "eps" in setup.values else None


def _attack(
    setup: Setup,
    rounds: int,
    runs: int,
    key: Key,
    canary: float,
    turning: bool,
    chunk: int | None,
) -> tuple[Floats, Floats]:
    """The statistics of all runs in both worlds, (runs, statistics) each."""
    problem, event = setup.problem, setup.event
    removed = isinstance(event, Event) and event.adjacency != "replace_one"
    worlds = np.zeros((2, 1, problem.m_max, problem.model.dim), np.float32)
    worlds[:, 0, 0, 0] = np.array([1.0, 0.0 if removed else -1.0]) * canary * setup.clip
    turns = np.zeros((1, problem.m_max), np.float32)
    turns[0, 0] = 1.0
    if chunk is None:
        width = max(setup.hp.caps.get("batch", problem.m_max), problem.model.dim, rounds)
        chunk = max(1, min(runs, 4096, NUMBERS_AT_ONCE // width))
    mixture = _mixture(event)

    pieces: list[Array] = []
    for first in range(0, runs, chunk):
        if len(pieces) > 1:  # two at a time: one program seldom fills all cores
            pieces[-2].block_until_ready()
        # the last piece is as long as the others, so that one program serves all
        args = (key, first, worlds, turns, problem, setup.hp, setup.step, mixture)
        pieces.append(_statistics(setup.algorithm, rounds, turning, chunk, *args))
    S = np.concatenate([np.asarray(piece) for piece in pieces], axis=1).astype(np.float64)
    S = np.nan_to_num(S[:, :runs])
    return S[0], S[1]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _statistics(
    algorithm: Algorithm,
    rounds: int,
    turning: bool,
    runs: int,
    key: Key,
    first: ArrayLike,
    worlds: ArrayLike,
    turns: ArrayLike,
    problem: Problem,
    hp: Hyper,
    step: ArrayLike,
    mixture: tuple[ArrayLike, ArrayLike, ArrayLike],
) -> Array:
    """(worlds, runs, statistics).  Samplers do not look at data: both worlds share their work."""

    def one(key: Key, rows: Array) -> Array:
        here = dataclasses.replace(problem, train=(rows, turns) if turning else (rows,))
        x = trajectory(algorithm, rounds, key, here, hp)
        v = (x[:-1, 0] - x[1:, 0]) / step
        s = jax.vmap(sign)(x[:-1]) if turning else jnp.ones_like(v)
        return summary(s, v, mixture)

    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, first + jnp.arange(runs))
    return jax.vmap(lambda rows: jax.vmap(lambda key: one(key, rows))(keys))(worlds)


def summary(s: Array, v: Array, mixture: tuple[ArrayLike, ArrayLike, ArrayLike]) -> Array:
    """The statistics of messages v_t along the canary, whose sign was s_t.

    ======================  ======================================================================
    sum                     ``sum_t s_t v_t``
    likelihood ratio        ``sum_t ln p(s_t v_t)/p(-s_t v_t)``, p the event's mixture
    extremes                ``max_t s_t v_t + min_t s_t v_t``
    spread                  ``max_t v_t + min_t v_t - 2 mean v``: repeated noise cancels
    contrast                ``sum_t (s_t - mean s) v_t``: likewise, for turning canaries
    ======================  ======================================================================
    """
    log_w, a, sigma = (jnp.asarray(part) for part in mixture)
    u = s * v
    y = (u / sigma)[:, None]
    up = jax.nn.logsumexp(log_w[None] + a[None] * y - a[None] ** 2 / 2, axis=1)
    down = jax.nn.logsumexp(log_w[None] - a[None] * y - a[None] ** 2 / 2, axis=1)
    return jnp.stack(
        [
            jnp.sum(u),
            jnp.sum(up - down),
            jnp.max(u) + jnp.min(u),
            jnp.max(v) + jnp.min(v) - 2 * jnp.mean(v),
            jnp.sum((s - jnp.mean(s)) * v),
        ]
    )


def _mixture(event: AnyEvent | None) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
    """``ln w_k``, ``a_k``, sigma: messages of world P are sigma times ``sum_k w_k N(a_k, 1)``."""
    w, a, sigma = np.ones(1), np.ones(1), 1.0
    if isinstance(event, Event) and isinstance(event.sensitivity, Mean) and event.sigma > 0:
        estimator, sampling, sigma = event.sensitivity, event.sampling, event.sigma
        if math.isfinite(estimator.clip):
            X, Y = estimator.X(sampling) / sigma, estimator.Y(sampling) / sigma
            w, a = np.array([1 - sampling.q, sampling.q]), np.array([Y, X])
            if sampling.scheme == "with_replacement":
                from scipy.stats import binom

                k = np.arange(min(int(sampling.b), 12) + 1)
                w, a = binom.pmf(k, int(sampling.b), 1 / sampling.m), np.asarray(k * X)
            elif sampling.q >= 1:
                w, a = np.ones(1), np.array([X])
    log_w = np.log(np.maximum(w, 1e-30))
    return log_w.astype(np.float32), a.astype(np.float32), np.float32(sigma)
