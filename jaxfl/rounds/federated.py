"""The round body with a server."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxfl.core import provenance
from jaxfl.core.fusion import LARGEST
from jaxfl.core.keys import at
from jaxfl.core.types import (
    Array,
    Client,
    Draw,
    GeneratedSamples,
    Hyper,
    Info,
    Key,
    Problem,
    PyTree,
    Remembered,
)
from jaxfl.data.samples import numbers
from jaxfl.parts.gradients import Point, at_point
from jaxfl.parts.mechanisms import remembered
from jaxfl.parts.storage import packed
from jaxfl.problems.clipping import clipped_as
from jaxfl.rounds import blocks, estimates, messages
from jaxfl.rounds.blocks import Block, ClientBlock, Estimate, RoundContext
from jaxfl.rounds.body import Body, ServerState

__all__ = ["Federated"]


# The most samples evaluated at once, and the most entries of an array; more clients go in blocks.
ON_CPUS = 1 << 11, 1 << 20  # what caches hold
ELSEWHERE = 1 << 17, LARGEST  # every block costs launches of kernels


@provenance.body
class Federated(Body):
    """One server and n clients.

    Each round, for the clients S that take part::

        g_i = client i's estimate at the server's point x, examples clipped, + grad regularizer(x)
        message_i = C(before(link_i, g_i) + xi_i),   xi_i ~ N(0, sigma^2 I)
        v = receive(link, sum_i weight_i message_i),  x = step(x, v)

    with ``weight_i = w_i/r`` for the weights w_i of the problem, whose mean is 1, and r clients.
    Where only the mean matters (``fused``: no compression, and a channel whose memory the server
    holds) the round is one evaluation over all drawn samples and one fused draw of noise with the
    variance of the mean, sigma^2 sum_i weight_i^2: the law of the trajectory is the same, and no (n, d)
    array exists.  ``noise="per_client"`` draws each client's noise nevertheless, and with ``messages`` each
    client sends one.  Where everyone takes part, the state holds only the mean over clients of the
    estimator's ``base`` (``pooled``), otherwise one vector for each client.

    A ``storage`` of fewer bits rounds the clients' memory, see :mod:`jaxfl.parts.storage`.  With
    ``local``, that procedure returns g_i, its noise included.  With ``aggregation``, the server gets
    only the sum of the messages of S.  The round reads and writes the data and the memory of S only.
    """

    weighs, takes_cohorts, absolute, sends_estimates = True, True, False, True
    plain, uploads = False, 1

    def init(self, key: Key, problem: Problem, hp: Hyper) -> tuple[ServerState, Info]:
        """The state before the first round, and the counts of computing it."""
        problem = clipped_as(problem, self.clipping)
        x = blocks.start(key, problem)
        if self.local is None:
            memory = self.estimator.memory.init(problem, x, hp, self.pooled, self.storage)
        else:
            memory = Remembered(*self.local.init(problem, x))
        links, link = self.channel.init(problem.n, x, self.fused)
        links = packed(links, self.storage)
        past = remembered(self.mechanism, x)
        if self.recalls:
            each = jax.tree.map(lambda a: jnp.zeros((problem.n, *a.shape), a.dtype), past)
            links, past = (links, each), None
        none, server = jnp.int32(0), self.server.init(x, hp.copy())
        state = ServerState(none, server, link, links, memory.shared, memory.local, noise=past)
        info = Info(none, none, memory.gradients.astype(jnp.int32))
        return self._with_base(state, memory.base), info

    def _base(self, state: ServerState) -> Array | None:
        """The estimator's addition to each client's estimate, (n, d), or its mean, (d,)."""
        return state.base if self.pooled else state.bases

    def _with_base(self, state: ServerState, base: Array | None) -> ServerState:
        return state._replace(base=base) if self.pooled else state._replace(bases=base)

    def begin(
        self, key: Key, state: ServerState, problem: Problem, hp: Hyper
    ) -> tuple[RoundContext, ServerState, Array]:
        """The context of this round, the state with it, and the number of gradients evaluated."""
        keys, t, problem = blocks.streams(key), state.t, clipped_as(problem, self.clipping)
        hp = blocks.paced(self.estimator.pace, keys, t, hp)
        x = self.server.view(state.server)
        gradients, gradient = jnp.int32(0), self.estimator.gradient
        if self.estimator.memory.begin is not None:
            shared, base, gradients = self.estimator.memory.begin(
                at(keys.begin, t), state.shared, self._base(state), x, problem, hp
            )
            state = self._with_base(state._replace(shared=shared), base)
        point: Point | None = None  # local procedures have points of their own
        if self.local is None:
            point = at_point(gradient, problem.model, state.shared, x, hp)
        unit = None if gradient.unit is None else gradient.unit(state.shared, x, hp)
        cohort = self.cohort(key, t, problem.n, hp)
        cohort = cohort._replace(weight=cohort.weight.astype(x.dtype))
        rate = share(cohort, problem.n)
        if problem.weights is not None:
            who = slice(None) if cohort.index is None else cohort.index
            w = problem.weights.at[who].get(mode="clip")
            cohort = cohort._replace(weight=w * cohort.weight)
        context = RoundContext(keys, t, cohort, x, state.shared, point, unit, problem, hp, rate)
        return context, state, gradients

    def round(
        self, key: Key, state: ServerState, problem: Problem, hp: Hyper
    ) -> tuple[ServerState, Info]:
        """One round; ``key`` is the run's, the same in every round."""
        context, state, extra = self.begin(key, state, problem, hp)
        keys, t, cohort, x, hp = context.keys, context.t, context.cohort, context.x, context.hp
        block = self.gradients if self.local is None else self.procedures
        (total, moved, step), (local, bases), links, info = blocks.stream(
            lambda who: block(context, who),
            self.members(cohort, problem, state),
            self.block_sizes(problem, hp),
        )
        total = self.decoded(context, total)
        noise = state.noise
        if self.mechanism.central:
            xi, noise = messages.noise_of_mean(self.mechanism, context, total, noise)
            total = total + xi
        if self.fused:
            if state.base is not None:  # weights add up to 1
                total = total + state.base
            if self.noise == "fused" and not self.mechanism.central:
                xi, noise = messages.noise_of_mean(self.mechanism, context, total, noise)
                total = total + xi
            total = self.channel.before(state.link, total)
        v, link = self.channel.receive(state.link, total, context.rate, hp.copy(), moved)
        project, coin = problem.model.project, at(keys.server, t)
        server = self.server.step(coin, state.server, v, project, hp.copy())
        local, links = (
            blocks.put(cohort, old, new)
            for old, new in ((state.local, local), (state.links, links))
        )
        shared, base, problem = state.shared, self._base(state), context.problem
        if step is not None:
            base = base + step
        if bases is not None:
            base = blocks.put(cohort, base, bases)
        if self.local is not None and self.local.close is not None:
            shared = self.local.close(shared, v, context.rate, jnp.sum(cohort.weight), hp)
        if self.estimator.memory.refresh is not None:
            coin = at(keys.refresh, t)
            shared, base, more = self.estimator.memory.refresh(coin, shared, base, x, problem, hp)
            extra = extra + more
        info = info._replace(gradients=info.gradients + extra)
        info = jax.tree.map(lambda a: a.astype(jnp.int32), info)
        state = ServerState(t + 1, server, link, links, shared, local, noise=noise)
        return self._with_base(state, base), info

    def decoded(self, context: RoundContext, total: Array) -> Array:
        """The mean message, from the sum of what clients sent."""
        if self.aggregation is not None:
            weight = context.cohort.weight
            total = jnp.max(weight) * self.aggregation.recover(total, context.x, context.hp)
            if self.regularizer_apart:
                total = total + jnp.sum(weight) * context.point.public
        return total

    def view(self, key: Key, state: ServerState, problem: Problem, hp: Hyper) -> messages.Seen:
        """The messages of the round that :meth:`round` computes from the same arguments.

        A fused round has none.
        """
        assert not self.fused
        context, state, _ = self.begin(key, state, problem, hp)
        who, sent = self.senders(context, state)
        message, g = sent.message, sent.own[0]
        whole = messages.in_full(message, context.x.size)
        hidden = self.aggregation is not None
        words = messages.protect(self, context, who, message)[0] if hidden else None
        mean = self.decoded(context, messages.added_up(self, context, who, message)[0])
        return messages.Seen(who.index, who.weight, g, whole, words, mean)

    def senders(
        self, context: RoundContext, state: ServerState
    ) -> tuple[ClientBlock, messages.Sent]:
        """The clients of the cohort, and what each sends."""
        who = self.members(context.cohort, context.problem, state)
        work: PyTree = who if self.local is not None else estimates.work_of(self, context, who)
        return who, messages.send(self, context, who, work, self.estimate(context))

    def cohort(self, key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        """Who takes part in round t of the run with this key."""
        return self.participation.draw(blocks.streams(key).clients, t, n, hp)

    def output(self, state: ServerState) -> Array:
        return self.server.output(state.server)

    def points(self, state: ServerState) -> Array:
        """The point where gradients are evaluated, which all see, (1, d)."""
        return self.server.view(state.server)[None]

    # --- one block of clients --------------------------------------------------------------------

    def gradients(self, context: RoundContext, who: ClientBlock) -> Block:
        """Gradients at the server's point: their mean, or the messages that carry them."""
        work = estimates.work_of(self, context, who)
        if self.fused:
            total, factors = estimates.mean_estimate(self, context, who, work)
            total = total + jnp.sum(who.weight) * context.point.public
            moved, links = None, who.link
            if self.noise == "per_client":
                xi, links = messages.noise_of_each(self, context, who, total)
                total = total + xi
            counts = Info(jnp.sum(who.weight > 0), jnp.int32(0), jnp.int32(0))
        else:
            (total, moved), factors, links, counts = messages.collect(
                self, context, who, work, self.estimate(context)
            )
        kept = factors
        if work.stored is not None:
            kept = packed(factors, self.storage)
            factors = estimates.reread(self, context, kept, work.batch)
        table, local = self.estimator.memory.table, who.local
        if table is not None:
            local = jax.vmap(table.absorb)(local, work.rows, kept)
        bases, step = estimates.follow(self, context, who, work, factors)
        live = (who.weight > 0)[:, None] & (work.rows.weight > 0)
        counts = counts._replace(gradients=context.point.evaluations * jnp.sum(live))
        return (total, moved, step), (local, bases), links, counts

    def procedures(self, context: RoundContext, who: ClientBlock) -> Block:
        """Local procedures, noise included, and the messages that carry their results."""
        (total, moved), (memory, gradients), links, counts = messages.collect(
            self, context, who, who, self.estimate(context)
        )
        gradients = jnp.sum(jnp.where(who.weight > 0, gradients, 0))
        counts = counts._replace(gradients=gradients)
        return (total, moved, None), (memory, None), links, counts

    def estimate(self, context: RoundContext) -> Estimate:
        """One client's estimate: of its rows, or the result of its local procedure."""
        if self.local is None:
            return estimates.own_estimate(self, context)
        local = self.local

        def run(noise: Key, me: ClientBlock) -> tuple[Array, PyTree, None]:
            stream = jax.random.fold_in(context.keys.rows, me.index)
            points = jax.random.fold_in(at(context.keys.points, context.t), me.index)
            read = functools.partial(blocks.take, context.problem.train, me)
            client = Client(stream, noise, points, me.count, read)
            x, shared, problem, hp = context.x, context.shared, context.problem, context.hp
            g, *rest = local.run(client, x, shared, me.local, problem, hp)
            return g, rest, None

        return run

    def rows_at_once(self, problem: Problem, hp: Hyper, elsewhere: bool) -> int:
        """The rows that a round reads at once, on CPUs or elsewhere."""
        size = self.block_sizes(problem, hp)[elsewhere]
        clients = min(hp.caps.get("cohort", problem.n), size)
        rows = clients * hp.caps.get("batch", problem.m_max)
        if self.packs and "mean_batch" in hp.caps:
            rows = estimates.strip(clients * hp.caps["mean_batch"], rows)
        table = self.local is None and self.estimator.memory.table is not None
        return max(rows, problem.m_max) if table else rows  # it begins with all rows of a client

    # --- who takes part --------------------------------------------------------------------------

    def members(self, cohort: Draw, problem: Problem, state: ServerState) -> ClientBlock:
        """The clients of the round, with their memory."""
        every = self.estimator.sampler.whole and not isinstance(problem.train, GeneratedSamples)
        train = problem.train if every else None
        leaves = (problem.count, train, state.local, state.links, state.bases)
        if cohort.index is None:
            return ClientBlock(jnp.arange(problem.n), cohort.weight, *leaves)
        here = jax.tree.map(lambda a: a.at[cohort.index].get(mode="clip"), leaves)
        return ClientBlock(cohort.index, cohort.weight, *here)

    def block_sizes(self, problem: Problem, hp: Hyper) -> tuple[int, int]:
        """The clients evaluated together on CPUs, and elsewhere: a block's memory has a bound for any n."""
        slots = hp.caps.get("batch", problem.m_max)
        read = hp.caps.get("mean_batch", slots) if self.packs else slots
        points = 1 if self.estimator.gradient.jitter is None else problem.model.dim
        generated = numbers(problem.train) if isinstance(problem.train, GeneratedSamples) else 1
        each = max(points, problem.model.kernel.width, generated)
        vectors = not self.fused or self.noise == "per_client"

        def most(rows: int, samples: int, entries: int) -> int:
            largest = max(rows * each, problem.model.dim if vectors else 0)
            return max(1, min(samples // rows, entries // largest))

        samples, entries = ON_CPUS
        entries = max(entries, problem.model.dim)  # which every block reads and writes
        return most(read, samples, entries), most(slots, *ELSEWHERE)


def share(cohort: Draw, n: int) -> Array:
    """r/n, for the weights 1/r of a round; 0 if no message arrived."""
    if cohort.index is None:
        return jnp.ones((), cohort.weight.dtype)
    w = jnp.max(cohort.weight)
    return jnp.where(w > 0, 1.0 / jnp.maximum(n * w, 1e-30), 0.0)
