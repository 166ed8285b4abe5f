"""The round bodies: the only places where parts become an algorithm."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

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
    State,
)
from jaxfl.data.samples import numbers
from jaxfl.parts.mechanisms import normal
from jaxfl.parts.storage import packed
from jaxfl.rounds import estimates, messages
from jaxfl.rounds.blocks import Block, ClientBlock, RoundContext, put, stream, streams, take
from jaxfl.rounds.body import Body

__all__ = ["Federated"]

ROWS_AT_ONCE = 1 << 11  # samples evaluated together; beyond it clients go in blocks
NUMBERS_AT_ONCE = 1 << 20  # numbers that a block may hold


class Federated(Body):
    """One server and n clients.

    Each round, for the clients S that take part::

        g_i = client i's estimate at the server's point x, examples clipped, + grad regularizer(x)
        message_i = C(before(link_i, g_i) + xi_i),   xi_i ~ N(0, sigma^2 I)
        v = receive(link, sum_i weight_i message_i),  x = step(x, v)

    Where only the mean matters (``fused``: no compression, and a channel whose memory the server
    holds) the whole round is one evaluation over all drawn samples and one draw of noise with the
    variance of the mean, sigma^2 sum_i weight_i^2: the law of the trajectory is the same, and no
    (n, d) array exists.  ``noise="per_client"`` draws each client's noise all the same, and with
    ``messages`` clients send theirs one by one.  Where everyone takes part only the mean over clients
    of what the estimator adds to their gradients is kept (``pooled``); with some of the clients, one
    vector for each.

    With a ``storage`` of fewer bits, what clients remember is rounded as :mod:`jaxfl.parts.storage` says.

    With ``local``, g_i is what that procedure returns, and its noise is drawn inside.  With
    ``aggregation``, the server gets the sum of the messages of S and no message.  Either way only the
    data and the memory of S are touched.
    """

    def init(self, key: Key, problem: Problem, hp: Hyper) -> tuple[State, Info]:
        """The state before the first round, and what making it cost."""
        x = problem.x0
        if x is None:
            x = problem.model.init(streams(key).start)
        if self.local is None:
            shared, local, base, gradients = self.estimator.init(
                problem, x, hp, self.pooled, self.storage
            )
        else:
            (shared, local), base, gradients = self.local.init(problem, x), None, jnp.int32(0)
        links, link = self.channel.init(problem.n, x, self.fused)
        links = packed(links, self.storage)
        state = State(jnp.int32(0), self.server.init(x, hp), link, links, shared, local)
        return self.hold(state, base), Info(jnp.int32(0), jnp.int32(0), gradients.astype(jnp.int32))

    def base(self, state: State) -> Array | None:
        """What the estimator adds to each client's gradients, (n, d), or the mean of that."""
        return state.base if self.pooled else state.bases

    def hold(self, state: State, base: Array | None) -> State:
        return state._replace(base=base) if self.pooled else state._replace(bases=base)

    def begin(
        self, key: Key, state: State, problem: Problem, hp: Hyper
    ) -> tuple[RoundContext, State, Array]:
        """What clients have before them in this round, the state with it, and what it cost."""
        keys, t, model = streams(key), state.t, problem.model
        hp = hp.at(t)
        kernel = model.kernel if self.estimator.kernel is None else self.estimator.kernel(model, hp)
        x = self.server.view(state.server)
        gradients = jnp.int32(0)
        if self.estimator.begin is not None:
            shared, base, gradients, hp = self.estimator.begin(
                at(keys.begin, t), state.shared, self.base(state), x, problem, hp
            )
            state = self.hold(state._replace(shared=shared), base)
        terms = self.estimator.terms(state.shared, x, hp)
        slope, public = jax.grad(model.regularizer), self.estimator.public
        grad_r = slope(x) if public is None else public(state.shared, slope, x, hp)
        cohort = self.cohort(key, t, problem.n, hp)
        cohort = cohort._replace(weight=cohort.weight.astype(x.dtype))
        turn = RoundContext(keys, t, cohort, x, state.shared, kernel, terms, grad_r, problem, hp)
        return turn, state, gradients

    def round(self, key: Key, state: State, problem: Problem, hp: Hyper) -> tuple[State, Info]:
        """One round; ``key`` is the run's, the same in every round."""
        turn, state, extra = self.begin(key, state, problem, hp)
        keys, t, cohort, x, hp = turn.keys, turn.t, turn.cohort, turn.x, turn.hp
        block = self.gradients if self.local is None else self.procedures
        (total, moved, step), (local, bases), links, info = stream(
            lambda who: block(turn, who),
            self.members(cohort, problem, state),
            self.block_size(problem, hp),
        )
        total = self.heard(turn, total)
        if self.mechanism.central:
            total = total + normal(at(keys.mean_noise, t), self.mechanism, total, hp)
        if self.fused:
            if state.base is not None:  # weights add up to 1
                total = total + state.base
            if self.noise == "fused":
                total = total + messages.noise_of_mean(self.own, turn, total)
            total = self.channel.before(state.link, total)
        rate = share(cohort, problem.n)
        v, link = self.channel.receive(state.link, total, rate, hp, moved)
        server = self.server.step(at(keys.server, t), state.server, v, problem.model.project, hp)
        local, links = (
            put(cohort, old, new) for old, new in ((state.local, local), (state.links, links))
        )
        shared, base = state.shared, self.base(state)
        if step is not None:
            base = base + step
        if bases is not None:
            base = put(cohort, base, bases)
        if self.local is not None and self.local.close is not None:
            shared = self.local.close(shared, v, rate, jnp.sum(cohort.weight), hp)
        if self.estimator.refresh is not None:
            coin = at(keys.refresh, t)
            shared, base, more = self.estimator.refresh(coin, shared, base, x, problem, hp)
            extra = extra + more
        info = info._replace(gradients=info.gradients + extra)
        info = jax.tree.map(lambda a: a.astype(jnp.int32), info)
        return self.hold(State(t + 1, server, link, links, shared, local), base), info

    def heard(self, turn: RoundContext, total: Array) -> Array:
        """What the server reads of the sum of what clients sent."""
        if self.aggregation is not None:
            total = jnp.max(turn.cohort.weight) * self.aggregation.recover(total, turn.x, turn.hp)
            if self.apart:
                total = total + jnp.sum(turn.cohort.weight) * turn.public
        return total

    def view(self, key: Key, state: State, problem: Problem, hp: Hyper) -> messages.Seen:
        """What clients send in the round that :meth:`round` makes of the same; not of a fused one."""
        assert not self.fused
        turn, state, _ = self.begin(key, state, problem, hp)
        who = self.members(turn.cohort, problem, state)
        work, one = (
            (estimates.work_of(self, turn, who), estimates.own_estimate(self, turn))
            if self.local is None
            else (who, self.procedure(turn))
        )
        return messages.seen(self, turn, who, work, one, lambda total: self.heard(turn, total))

    def cohort(self, key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        """Who takes part in round t of the run with this key."""
        return self.participation.draw(streams(key).clients, t, n, hp)

    def output(self, state: State) -> Array:
        return self.server.output(state.server)

    # --- one block of clients --------------------------------------------------------------------

    def gradients(self, turn: RoundContext, who: ClientBlock) -> Block:
        """Gradients at the server's point: their mean, or the messages that are made of them."""
        work = estimates.work_of(self, turn, who)
        if self.fused:
            total, factors = estimates.mean_estimate(self, turn, who, work)
            total = total + jnp.sum(who.weight) * turn.public
            if self.noise == "per_client":
                total = total + messages.noise_of_each(self.own, turn, who, total)
            moved, links = None, who.link
            counts = Info(jnp.sum(who.weight > 0), jnp.int32(0), jnp.int32(0))
        else:
            one = estimates.own_estimate(self, turn)
            (total, moved), factors, links, counts = messages.collect(self, turn, who, work, one)
        held = factors
        if work.stored is not None:
            held = packed(factors, self.storage)
            factors = estimates.reread(self, turn, held, work.batch)
        table, local = self.estimator.table, who.local
        if table is not None:
            local = jax.vmap(table.absorb)(local, work.rows, held)
        bases, step = estimates.follow(self, turn, who, work, factors)
        live = (who.weight > 0)[:, None] & (work.rows.weight > 0)
        points = len({id(point) for term in turn.terms for point in term.points})
        counts = counts._replace(gradients=points * jnp.sum(live))
        return (total, moved, step), (local, bases), links, counts

    def procedures(self, turn: RoundContext, who: ClientBlock) -> Block:
        """What clients do on their own, noise included, and the messages that are made of it."""
        (total, moved), (memory, gradients), links, counts = messages.collect(
            self, turn, who, who, self.procedure(turn)
        )
        gradients = jnp.sum(jnp.where(who.weight > 0, gradients, 0))
        counts = counts._replace(gradients=gradients)
        return (total, moved, None), (memory, None), links, counts

    def procedure(self, turn: RoundContext) -> Callable[[Key, ClientBlock], tuple[Array, PyTree]]:
        """What one client does on its own."""
        assert self.local is not None
        local = self.local

        def run(noise: Key, me: ClientBlock) -> tuple[Array, PyTree]:
            stream = jax.random.fold_in(turn.keys.rows, me.index)
            read = functools.partial(take, turn.problem.train, me)
            client = Client(stream, noise, me.count, read)
            g, *rest = local.run(client, turn.x, turn.shared, me.local, turn.problem, turn.hp)
            return g, rest

        return run

    # --- who takes part --------------------------------------------------------------------------

    def members(self, cohort: Draw, problem: Problem, state: State) -> ClientBlock:
        every = self.estimator.sampler.whole and not isinstance(problem.train, GeneratedSamples)
        train = problem.train if every else None
        leaves = (problem.count, train, state.local, state.links, state.bases)
        if cohort.index is None:
            return ClientBlock(jnp.arange(problem.n), cohort.weight, *leaves)
        here = jax.tree.map(lambda a: a.at[cohort.index].get(mode="clip"), leaves)
        return ClientBlock(cohort.index, cohort.weight, *here)

    def block_size(self, problem: Problem, hp: Hyper) -> int:
        """Clients evaluated together, so that a block's memory is bounded whatever n is."""
        rows = hp.caps.get("batch", problem.m_max)
        rows = hp.caps.get("mean_batch", rows) if self.packs else rows
        points = 1 if self.estimator.jitter is None else problem.model.dim
        made = numbers(problem.train) if isinstance(problem.train, GeneratedSamples) else 1
        each = rows * max(points, problem.model.kernel.width, made)
        if not self.fused or self.noise == "per_client":
            each = max(each, problem.model.dim)
        return max(1, min(ROWS_AT_ONCE // rows, NUMBERS_AT_ONCE // each))


def share(cohort: Draw, n: int) -> Array:
    """r/n, for the weights 1/r of a round; 0 if nobody was heard."""
    if cohort.index is None:
        return jnp.ones((), cohort.weight.dtype)
    w = jnp.max(cohort.weight)
    return jnp.where(w > 0, 1.0 / jnp.maximum(n * w, 1e-30), 0.0)
