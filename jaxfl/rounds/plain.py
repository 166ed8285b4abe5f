"""The round with a server as the papers write it, one client at a time: read this first.

:class:`jaxfl.parts.Federated` computes the same, faster: it evaluates clients together where only
their mean matters, in blocks, with their samples packed and their memory in fewer bits.  Draws are
equal, and numbers up to rounding.  A network has no faster form than :class:`jaxfl.parts.Gossip`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core import provenance
from jaxfl.core.keys import at
from jaxfl.core.records import document_all
from jaxfl.core.types import Array, Client, Hyper, Info, Key, Problem, PyTree
from jaxfl.parts.compressors import dense
from jaxfl.parts.gradients import evaluated
from jaxfl.parts.mechanisms import drawn, in_units, multiples_of, noiseless, past
from jaxfl.problems.clipping import clip
from jaxfl.rounds.blocks import ClientBlock, RoundContext, put, take
from jaxfl.rounds.body import ServerState
from jaxfl.rounds.federated import Federated
from jaxfl.rounds.messages import Sent, added_up, joined, noise_of_mean, parted, release

__all__ = ["Estimate", "Plain", "estimate"]


class Estimate(NamedTuple):
    """A client's estimate from its records, and its new memory.

    Fields:
        g: g_i, (d,).
        local: its new memory of its own.
        base: its new ``base_i``, (d,); None: the estimator has none, or a local procedure runs.
        gradients: per-example gradients evaluated, ().
    """

    g: Array
    local: PyTree
    base: Array | None
    gradients: Array


@provenance.body
class Plain(Federated):
    """The round of the clients S that take part [SoteriaFL, Algorithm 2]::

        message_i = C(before(link_i, g_i) + xi_i),   xi_i ~ N(0, sigma^2 I),   i in S
        v = receive(link, sum_i weight_i message_i),   x <- step(x, v)

    A round of your own inherits from this class and defines :meth:`client`, or all of :meth:`round`.
    Nothing is proven of it, but for what your own event states.
    """

    plain, fused = True, False

    def client(self, now: RoundContext, me: ClientBlock) -> Sent:
        """``C(before(link_i, g_i) + xi_i)``; a sparsifier chooses coordinates before they are noised."""
        fold = functools.partial(jax.random.fold_in, data=me.index)
        noise, mask = past(self.own, now.keys.noise, now.t), fold(at(now.keys.mask, now.t))
        noise = fold(noise) if noise.ndim == 0 else jax.vmap(fold)(noise)
        own, channel, hp, t = estimate(self, now, me, noise), self.channel, now.hp, now.t
        link, old = parted(self, me.link)
        v = channel.before(link, own.g)
        unit = in_units(now.unit, multiples_of(self.own, me.index))
        if channel.residual is None:
            message, sent, new = release(
                self.own, self.compressor, noise, mask, v, t, hp, unit, old
            )
            return Sent(message, sent, joined(channel.after(link, message, hp), new), own)
        xi, new = drawn(noise, self.own, v, hp, unit, t, past=old)
        v = v + xi  # the channel keeps what is not sent
        message, sent, _ = release(noiseless(), self.compressor, noise, mask, v, t, hp)
        kept = channel.residual(link, v, dense(message, v.size), hp)
        return Sent(message, sent, joined(kept, new), own)

    def senders(self, now: RoundContext, state: ServerState) -> tuple[ClientBlock, Sent]:
        """The clients of the cohort, and what each sends."""
        who = self.members(now.cohort, now.problem, state)
        return who, jax.vmap(functools.partial(self.client, now))(who)

    def round(
        self, key: Key, state: ServerState, problem: Problem, hp: Hyper
    ) -> tuple[ServerState, Info]:
        """One round; ``key`` is the run's, the same in every round."""
        now, state, begun = self.begin(key, state, problem, hp)  # x, S, and the values of round t
        hp, t, cohort = now.hp, now.t, now.cohort
        who, sent = self.senders(now, state)
        total, clamped = added_up(self, now, who, sent.message)
        mean = self.decoded(now, total)
        noise = state.noise
        if self.mechanism.central:
            xi, noise = noise_of_mean(self.mechanism, now, mean, noise)
            mean = mean + xi
        v, link = self.channel.receive(state.link, mean, now.rate, hp, None)
        project, coin = problem.model.project, at(now.keys.server, t)
        server = self.server.step(coin, state.server, v, project, hp)

        local, links = put(cohort, (state.local, state.links), (sent.own.local, sent.link))
        shared, bases = state.shared, put(cohort, state.bases, sent.own.base)
        gradients, live = begun, who.weight > 0
        if self.local is not None and self.local.close is not None:
            shared = self.local.close(shared, v, now.rate, jnp.sum(cohort.weight), hp)
        if (refresh := self.estimator.memory.refresh) is not None:
            coin = at(now.keys.refresh, t)
            shared, bases, more = refresh(coin, shared, bases, now.x, now.problem, hp)
            gradients = gradients + more
        gradients = gradients + jnp.sum(jnp.where(live, sent.own.gradients, 0))
        selected = sent.coordinates if self.compressor.select else 0
        coordinates = jnp.sum(jnp.where(live, selected, 0))
        info = Info(jnp.sum(live), coordinates, gradients, clamped)
        info = jax.tree.map(lambda a: a.astype(jnp.int32), info)
        return ServerState(t + 1, server, link, links, shared, local, bases, noise=noise), info


def estimate(body: Plain, now: RoundContext, me: ClientBlock, noise: Key) -> Estimate:
    """g_i: ``sum of terms - sum_j weight_j stored_j + base_i + grad regularizer``, or local steps.

    ``now`` is the context of the round, ``me`` the client, and ``noise`` the key of its local steps' noise.
    """
    rows_of, points = jax.random.fold_in(now.keys.rows, me.index), now.keys.points
    points = jax.random.fold_in(at(points, now.t), me.index)
    read = functools.partial(take, now.problem.train, me)
    if body.local is not None:
        who = Client(rows_of, noise, points, me.count, read)
        g, local, gradients = body.local.run(who, now.x, now.shared, me.local, now.problem, now.hp)
        return Estimate(g, local, me.base, gradients)
    estimator, kernel, table = body.estimator, now.point.kernel, body.estimator.memory.table
    rows = estimator.sampler.draw(rows_of, now.t, me.count, now.problem.m_max, now.hp)
    rows, batch = rows._replace(weight=rows.weight.astype(now.x.dtype)), read(rows)
    stored = None if table is None else table.recall(me.local, rows)
    g, new = evaluated(now.point, rows.weight, batch, points, stored=stored)
    g = g if me.base is None else g + me.base
    g = g if body.regularizer_apart else g + now.point.public
    g = clip(g, now.hp["clip"], kernel.smooth) if body.clip != "example" else g
    base, local = me.base, me.local if table is None else table.absorb(me.local, rows, new)
    if estimator.memory.follow is not None and base is not None:
        change = new if stored is None else kernel.combine((1.0, -1.0), (new, stored))
        base = base + kernel.contract(estimator.memory.follow(rows, me.count), change, batch)
    return Estimate(g, local, base, now.point.evaluations * jnp.sum(rows.weight > 0))


document_all(__name__)
