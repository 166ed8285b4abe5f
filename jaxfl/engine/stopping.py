"""Stopping rules: what ends a run before its last round, and what that reveals of the data.

A rule is public if it reads only what observers have seen: bits, seconds, the loss of data that are
not protected.  The round at which the exact training loss ends a run is a function of the
records without noise: no eps holds for such a run, whether the loss ended it or not.  With
``bound`` and ``sigma`` every client adds noise to its mean loss, and each check is one more
Gaussian release of all its records.

If a rule reads what a run releases, the rounds that ran are not the cost: with other noise the run would
have taken more.  All planned rounds count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.checks import instance
from jaxfl.core.errors import require
from jaxfl.core.normals import normal
from jaxfl.core.params import known, number
from jaxfl.core.types import Algorithm, Array, Key, Problem, PyTree
from jaxfl.data import samples
from jaxfl.privacy.events import AnyEvent, plain_events
from jaxfl.problems.metrics import NUMBERS, ROWS, mean, sums
from jaxfl.rounds.blocks import Keys

__all__ = [
    "PROTECTED",
    "Limits",
    "Stop",
    "checks",
    "exposed",
    "followed",
    "holds",
    "noisy_loss",
    "planned",
    "reached",
    "read",
    "rule",
    "uncovered",
]

PROTECTED = "train"  # the protected data, on which metrics are taken by default
# of the noise of checks: the streams of rounds have the numbers below it
STREAM = len(Keys._fields)

Limits = Mapping[str, float | None] | None  # of a user, by the names of the fields of Stop
Rule = Mapping[str, Any]  # the limits of a Stop, and the rounds to which they apply


class Stop(NamedTuple):
    """Limits that end a run before its last round, checked after every evaluation.  None: never.

    The proof covers bits, seconds, a loss of data that are not protected (``metrics_on``), and a
    training loss with noise: each example's loss is clipped to [0, ``bound``], and every client adds
    N(0, ``sigma``^2) to its mean of them.  (Where whole clients are protected, the trusted server adds
    it to the mean over clients.)  ``run.privacy()`` includes the price of all planned checks.  No eps
    holds where the exact training loss may end a run.
    """

    loss: float | None = None  # training loss at or below it
    seconds: float | None = None  # wall time, compilation included
    bits: float | None = None  # uplink bits of all clients together
    gradients: float | None = None  # per-example gradients of all clients together
    bound: float | None = None  # to which each example's loss is clipped before noise
    sigma: float | None = None  # standard deviation of the noise of one client's mean loss


def read(limits: Limits, metrics_on: str) -> Stop | None:
    """The rule of a user's limits by name, checked; None: no rule."""
    if limits is None:
        return None
    instance("stop", limits, dict, "pass limits by name, such as stop={'loss': 0.5}")
    for name in limits:
        known("limit of stop", name, Stop._field_defaults)
    stop = Stop(**limits)
    for name, limit in stop._asdict().items():
        if limit is not None:
            above = None if name == "loss" else 0
            exact = "leave out bound and sigma for the exact loss, for which nothing is proven"
            way = exact if name in ("bound", "sigma") else "give None for never"
            number(f"stop.{name}", limit, above=above, remedy=way)
    noise = {f"stop.{name}": getattr(stop, name) for name in ("loss", "bound", "sigma")}
    given = [value is not None for value in noise.values()]
    require(
        all(given) or not any(given[1:]),
        "belong together",
        "give all three for a loss with noise, which the proof covers, or the limit alone for the "
        "exact loss, for which nothing is proven",
        **noise,
    )
    require(
        stop.sigma is None or metrics_on == PROTECTED,
        lambda: f"is noise for the training loss, and metrics are taken on the {metrics_on} data",
        "leave it out",
        **{"stop.sigma": stop.sigma},
    )
    return stop


def rule(stop: Stop, first: int, until: int, every: int) -> dict[str, Any]:
    """The rule of one call, as settings keep it: it may end the run at evaluations before ``until``."""
    limits = {name: limit for name, limit in stop._asdict().items() if limit is not None}
    return {**limits, "first": first, "until": until, "every": every}


def followed(earlier: Sequence[Rule], new: Rule) -> list[Rule]:
    """All rules of a run.  One that continues after an interrupt is the same."""

    def same(one: Rule) -> bool:
        return {**one, "first": 0} == {**new, "first": 0}

    return [*earlier] if any(map(same, earlier)) else [*earlier, dict(new)]


def holds(now: Sequence[Rule], before: Sequence[Rule]) -> bool:
    """Whether the last rule of ``before`` goes on in ``now``, which are all rules of a longer run."""

    def limits(rules: Sequence[Rule]) -> dict[str, Any]:
        return {name: limit for name, limit in rules[-1].items() if name in Stop._fields}

    return len(now) > len(before) > 0 and limits(now) == limits(before)


def reached(stop: Stop, loss: float, std: float, spent: Mapping[str, float], seconds: float) -> str:
    """The limit that has been reached, in words; "" if none has.

    ``std`` is that of the noise of ``loss``.
    """
    if stop.loss is not None and loss <= stop.loss:
        noise = f", with noise of deviation {std:.2g}," * (std > 0)
        return f"stopped: loss {loss:.6g}{noise} reached {stop.loss:g}"
    for name, limit, value in (
        ("seconds", stop.seconds, seconds),
        ("bits", stop.bits, spent["uplink_bits"]),
        ("gradients", stop.gradients, spent["gradients"]),
    ):
        if limit is not None and value >= limit:
            return f"stopped: {value:.6g} {name} reached {limit:g}"
    return ""


# --- what rules reveal ----------------------------------------------------------------------------


def exposed(settings: Mapping[str, Any], algorithm: Algorithm, event: AnyEvent) -> str:
    """The limit that reads protected data without noise; "" if there is none.

    A number of gradients reveals the size of a random batch, which a proof may rely on to hide who was
    drawn.  Where whole clients are protected it reveals how many records they have, and bits reveal the
    size of a random cohort.
    """
    body, clients = algorithm.body, any(one.unit == "client" for one in plain_events(event))
    private = {
        "loss": settings.get("metrics_on", PROTECTED) == PROTECTED,
        "gradients": body is None or body.estimator.sampler.padded or clients,
        "bits": body is None or (clients and body.participation.scheme == "poisson"),
    }
    for one in settings.get("stop", []):
        for name, protected in private.items():
            if protected and name in one and not (name == "loss" and "sigma" in one):
                return name
    return ""


def uncovered(settings: Mapping[str, Any]) -> str:
    """The data outside the proof whose loss may end the run, such as "test"; "" if there are none."""
    on = str(settings.get("metrics_on", PROTECTED))
    ends = any("loss" in one for one in settings.get("stop", []))
    return on if ends and on != PROTECTED else ""


def planned(settings: Mapping[str, Any], rounds: int) -> int:
    """The rounds that count if ``rounds`` ran: all planned ones, if a release may end the run."""
    ends = (int(one["until"]) for one in settings.get("stop", []) if "loss" in one)
    return max([rounds, *ends])


def checks(settings: Mapping[str, Any], rounds: int) -> dict[tuple[float, float], int]:
    """The noisy losses of ``rounds`` rounds: how often a loss with this (bound, sigma) may be read."""
    times: dict[tuple[float, float], int] = {}
    for one in settings.get("stop", []):
        every, last = int(one["every"]), min(rounds, int(one["until"]) - 1)
        if "sigma" in one and every:
            kind = float(one["bound"]), float(one["sigma"])
            times[kind] = times.get(kind, 0) + max(0, last // every - int(one["first"]) // every)
    return {kind: count for kind, count in times.items() if count}


# --- the check -----------------------------------------------------------------------------------


@jax.jit
def noisy_loss(
    key: Key, problem: Problem, x: Array, t: Array | int, bound: Array | float, std: Array | float
) -> Array:
    """The loss of clipped examples at x with the noise of round t, and the public regularizer."""
    model = problem.model

    def clipped(x: Array, example: PyTree) -> Array:
        loss = model.loss(x, example)
        return jnp.clip(jnp.where(jnp.isnan(loss), bound, loss), 0, bound)

    rows = max(1, min(ROWS, NUMBERS // samples.numbers(problem.train)))
    kind = model._replace(loss=clipped, correct=None)
    losses, _, _ = sums(kind, x, problem.train, problem.count, problem.m_max, rows, gradient=False)
    own = jax.random.fold_in(jax.random.fold_in(key, STREAM), t)
    noise = std * normal(own, (), x.dtype)
    return mean(problem, losses / problem.count.astype(x.dtype)) + noise + model.regularizer(x)
