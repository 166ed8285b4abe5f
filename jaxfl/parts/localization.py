"""Localization: a run in phases over disjoint data, in smaller and smaller balls.

In phase i of :class:`Phase` numbers, of any algorithm and any server::

    minimise  mean of f over n_i fresh records of each client + lambda_i/2 |w - w_{i-1}|^2
    over      {w in W : |w - w_{i-1}| <= D_i},   started at w_{i-1}

with w_{i-1} the output of phase i-1 [Feldman, Koren, Talwar, STOC 2020].  All phases run in one
compiled program: their hyper-parameters are schedules, one of which ends the phases.  The event is
made of the schedules that rounds read: sampling and accounting cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.core.provenance import made, of_a_paper, ours, own_function
from jaxfl.core.schedules import Pieces, Schedule, pieces
from jaxfl.core.subsets import permuted
from jaxfl.core.types import (
    Array,
    Draw,
    Hyper,
    Key,
    Mechanism,
    ProblemFacts,
    Project,
    PyTree,
    Sampler,
    Server,
    Values,
)
from jaxfl.problems.clipping import clip

__all__ = [
    "Phase",
    "localized",
    "noised",
    "phased",
    "phases_of",
    "planned",
    "share",
    "spread",
    "within",
]

BISECTIONS = 40
UNBOUNDED = 1e30  # the radius in a schedule that stands for no ball
NAMES = ("level_t", "batch_t", "lam_t", "radius_t", "noise_t")  # schedules of the fields of a phase


class Phase(NamedTuple):
    """One phase; ``level`` i takes n_i = floor(m / 2^i) records of a client with m."""

    level: int  # 0: all records
    batch: int  # K_i
    rounds: int  # R_i
    lam: float = 0.0  # lambda_i
    radius: float = UNBOUNDED  # D_i
    noise: float = 1.0  # sigma_i / sigma, sigma being the first phase's

    def size(self, m: int) -> int:
        return m >> self.level


# --- on the host ---------------------------------------------------------------------------------


def spread(phases: Iterable[Phase]) -> dict[str, Schedule]:
    """The phases as schedules, under the names that the parts below read."""
    phases = [phase._replace(radius=min(phase.radius, UNBOUNDED)) for phase in phases]
    lengths = [phase.rounds for phase in phases]
    last = np.concatenate([np.arange(R, 0, -1) == 1 for R in lengths])
    fields = {name: [getattr(p, name.removesuffix("_t")) for p in phases] for name in NAMES}
    return {
        **{name: pieces(numbers, lengths) for name, numbers in fields.items()},
        "ends_t": pieces(last),
    }


def phases_of(values: Values) -> list[Phase]:
    """The phases of a run with these values."""
    T = int(values["rounds"])
    table = zip(*(values[name].over(T).tolist() for name in NAMES), strict=True)
    return [
        Phase(int(level), int(batch), len(list(group)), *rest)
        for (level, batch, *rest), group in groupby(table)
    ]


@made
def planned(base: Sampler) -> Sampler:
    """``base``, for no more rounds than the phases have.

    Every record is in one phase, and rounds after the last phase would be in none.
    """

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        slots = base.capacity(values, facts)
        rule = getattr(values.get("level_t"), "rule", None)
        if isinstance(rule, Pieces) and (facts.rounds or 0) > sum(rule.lengths):
            raise InputError(
                f"go beyond the {sum(rule.lengths)} that phases and step sizes are planned for, "
                "and a plan cannot be extended",
                "start a new run with as many rounds",
                rounds=facts.rounds,
            )
        return slots

    return base._replace(capacity=capacity)


def share(total: int, wanted: Iterable[float]) -> list[int]:
    """``total`` rounds in proportion to what phases want, at least one for each."""
    weights = np.asarray(list(wanted), np.float64)
    require(
        total >= len(weights),
        lambda: f"leaves some of the {len(weights)} phases without a round",
        lambda: f"give at least {len(weights)}, or phases = {max(total, 1)} at most",
        rounds=total,
    )
    exact = weights / weights.sum() * (total - len(weights))
    out = np.floor(exact).astype(int)
    for i in np.argsort(out - exact, kind="stable")[: total - len(weights) - out.sum()]:
        out[i] += 1
    return [int(R) for R in out + 1]


# --- traced --------------------------------------------------------------------------------------


@made
def noised(base: Mechanism) -> Mechanism:
    """The noise of ``base`` times sigma_i/sigma_1 in phase i; its ``sigma`` is that of the first phase."""
    std = base.std
    if std is None:
        return base

    def scaled(hp: Hyper) -> Array:
        noise: Array = std(hp) * hp["noise_t"]
        return noise

    return base._replace(std=own_function(scaled) if ours(std) else scaled)


@of_a_paper
def phased(base: Sampler) -> Sampler:
    """``base`` on the records of the phase, a slice of one permutation for each client.

    A batch of n_i or more is the exact mean over the phase's records.
    """
    require(
        base.fresh,
        "cannot draw from the records of a phase",
        "use with_replacement, without_replacement or poisson",
        sampler=base.name,
    )

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        order, rows = jax.random.split(key)
        count = jnp.asarray(count, jnp.int32)
        level, b = jnp.int32(hp["level_t"]), jnp.int32(hp["batch_t"])
        shifts = jnp.arange(1, 31)
        size = count >> level
        start = jnp.sum(jnp.where(shifts < level, count >> shifts, 0))
        slot = jnp.arange(hp.caps["batch"])
        drawn = base.draw(rows, t, size, m_max, Hyper({**hp.values, "batch": b}, hp.capacity))
        assert drawn.index is not None
        whole = b >= size
        place = jnp.where(whole, slot, drawn.index)
        weight = jnp.where(
            whole,
            jnp.where(slot < size, 1.0 / jnp.maximum(size, 1), 0.0),
            drawn.weight,
        )
        place = start + jnp.minimum(place, jnp.maximum(size - 1, 0))
        index = permuted(order, count, place, m_max)
        return Draw(jnp.where(weight > 0, index, m_max), weight)

    return planned(base)._replace(draw=draw)


def within(project: Project, centre: Array, radius: Array) -> Callable[[Array], Array]:
    """A map onto the intersection of ``W`` and the ball B(c, r), for c in W::

        Pi_W(c + s (z - c)) with the largest s in [0, 1] that lands in the ball

    By bisection, since the distance to c does not decrease in s.
    """
    if project is None:
        return lambda z: centre + clip(z - centre, radius)
    onto = project

    def inside(z: Array) -> Array:
        def far(s: Array) -> Array:
            out: Array = jnp.linalg.norm(onto(centre + s * (z - centre)) - centre) > radius
            return out

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            out = far(middle)
            return jnp.where(out, low, middle), jnp.where(out, middle, high)

        one = jnp.ones((), z.dtype)
        low, _ = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros_like(one), one))
        s = jnp.where(far(one), low, one)
        return onto(centre + s * (z - centre))

    return inside


@made
def localized(inner: Server) -> Server:
    """``inner`` with the phase's regularizer, ball and restarts::

        v <- v + lambda_i (x - c),   Pi_W <- Pi of W and B(c, D_i),   x the point that clients saw
        after a stage:  inner restarts from its own output;   after a phase:  c <- that output

    The output is that of the last stage.
    """

    def init(x: Array, hp: Hyper) -> PyTree:
        return inner.init(x, hp), x

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        memory, c = state
        v = v + hp["lam_t"] * (inner.view(memory) - c)
        memory = inner.step(key, memory, v, within(project, c, hp["radius_t"]), hp)
        out = inner.output(memory)
        ends = hp["ends_t"] > 0
        again = ends | (hp["stage_t"] > 0) if "stage_t" in hp.values else ends
        memory = jax.tree.map(lambda a, b: jnp.where(again, a, b), inner.init(out, hp), memory)
        return memory, jnp.where(ends, out, c)

    return Server(
        f"localized {inner.name}",
        init,
        view=lambda state: inner.view(state[0]),
        step=step,
        output=lambda state: inner.output(state[0]),
        params=inner.params,
    )
