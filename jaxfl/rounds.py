"""The round bodies: the only places where parts become an algorithm."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl import transcript
from jaxfl.blocks import Keys, Members, Work, client_keys, displaced, put, stream, streams, take
from jaxfl.channels import add
from jaxfl.clipping import clip, evaluate
from jaxfl.compressors import dense
from jaxfl.fusion import apart, once
from jaxfl.keys import at
from jaxfl.mechanisms import noiseless, normal
from jaxfl.packing import strip, strips
from jaxfl.samples import numbers, samples
from jaxfl.storage import packed, recalled, rounded, unpacked
from jaxfl.types import (
    Aggregation,
    Array,
    Channel,
    Client,
    Compressor,
    Draw,
    Estimator,
    Facts,
    Hyper,
    Info,
    Kernel,
    Key,
    Local,
    Made,
    Mechanism,
    Message,
    Participation,
    Problem,
    PyTree,
    Server,
    State,
    Term,
)

__all__ = ["Federated"]

ROWS_AT_ONCE = 1 << 11  # samples evaluated together; beyond it clients go in blocks
NUMBERS_AT_ONCE = 1 << 20  # numbers that a block may hold


class Federated(NamedTuple):
    """One server and n clients.

    Each round, for the clients S that take part::

        g_i = client i's estimate at the server's point x, examples clipped, + grad regularizer(x)
        message_i = C(before(link_i, g_i) + xi_i),   xi_i ~ N(0, sigma^2 I)
        v = receive(link, sum_i weight_i message_i),  x = step(x, v)

    Where only the mean matters (``fused``: no compression, and a channel whose memory the server
    holds) the whole round is one evaluation over all drawn samples and one draw of noise with the
    variance of the mean, sigma^2 sum_i weight_i^2: the law of the trajectory is the same, and no
    (n, d) array exists.  ``noise="per_client"`` draws each client's noise all the same.  Of what the
    estimator adds to each client's gradients no more than the mean is kept (``pooled``) where
    everyone takes part; the sum over some of the clients asks for each of theirs.

    With a ``storage`` of fewer bits, what clients remember is rounded as :mod:`jaxfl.storage` says.

    With ``local``, g_i is what that procedure returns, and its noise is drawn inside.  With
    ``aggregation``, the server gets the sum of the messages of S and no message.  Either way only the
    data and the memory of S are touched.
    """

    estimator: Estimator
    mechanism: Mechanism
    compressor: Compressor
    channel: Channel
    server: Server
    participation: Participation
    clip: str = "example"  # or "batch": the whole estimate, which bounds no record's influence
    noise: str = "fused"  # or "per_client"
    local: Local | None = None
    aggregation: Aggregation | None = None
    storage: str = "exact"  # or "bfloat16", "float16"

    @property
    def linear(self) -> bool:
        """Whether the server's estimate is a function of the mean of what clients compute."""
        plain = self.compressor.select is None and self.compressor.code is None
        remembers = self.channel.name != "direct"
        return plain and (self.participation.everyone or not remembers)

    @property
    def fused(self) -> bool:
        whole = self.local is None and self.aggregation is None
        return whole and self.linear and self.clip == "example"

    @property
    def pooled(self) -> bool:
        """Whether the estimator needs no more than the mean of what it adds to each client's."""
        return self.fused and self.participation.everyone

    @property
    def packs(self) -> bool:
        """Whether rows of all clients are read one after the other, see :mod:`jaxfl.packing`."""
        plain = self.estimator.jitter is None and self.estimator.follow is None
        return self.fused and plain and self.estimator.sampler.name == "poisson"

    @property
    def broadcasts(self) -> int:
        """Vectors that the server sends to a client in a round."""
        return 1 if self.local is None else self.local.broadcasts

    @property
    def own(self) -> Mechanism:
        """The noise that a client adds to its message."""
        elsewhere = self.local is not None or self.mechanism.central
        return noiseless() if elsewhere else self.mechanism

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

    def round(self, key: Key, state: State, problem: Problem, hp: Hyper) -> tuple[State, Info]:
        """One round; ``key`` is the run's, the same in every round."""
        keys, t, model = streams(key), state.t, problem.model
        hp = hp.at(t)
        kernel = model.kernel if self.estimator.kernel is None else self.estimator.kernel(model, hp)
        x = self.server.view(state.server)
        extra = jnp.int32(0)
        if self.estimator.begin is not None:
            start = at(keys.begin, t)
            shared, base, extra, hp = self.estimator.begin(
                start, state.shared, self.base(state), x, problem, hp
            )
            state = self.hold(state._replace(shared=shared), base)
        terms = self.estimator.terms(state.shared, x, hp)
        slope = jax.grad(model.regularizer)
        public = self.estimator.public
        grad_r = slope(x) if public is None else public(state.shared, slope, x, hp)
        cohort = self.cohort(key, t, problem.n, hp)
        cohort = cohort._replace(weight=cohort.weight.astype(x.dtype))

        def estimates(who: Members) -> tuple[PyTree, PyTree, PyTree, Info]:
            rows = self.draw_rows(keys.rows, t, who, problem.m_max, hp)
            batch = take(problem.train, who, rows)

            def reread(table: PyTree) -> PyTree:
                if table is None or self.storage == "exact":
                    return table
                one = functools.partial(recalled, kernel, terms[0].bound)
                return jax.vmap(one)(unpacked(table, x.dtype), batch)

            stored = reread(jax.vmap(self.estimator.recall)(who.local, rows))
            work = Work(rows, batch, who.base, stored)
            work = work._replace(offset=self.offsets(keys.points, t, who, rows, x, hp))
            if self.fused:
                if self.packs and stored is None:
                    factors = None
                    total = self.packed_estimate(kernel, terms, who, work, problem, hp)
                else:
                    total, factors = self.mean_estimate(kernel, terms, who, work)
                total = total + jnp.sum(who.weight) * grad_r
                if self.noise == "per_client":
                    total = total + self.noise_of_each(keys.noise, t, who, total, hp)
                moved, links = None, who.link
                counts = Info(jnp.sum(who.weight > 0), jnp.int32(0), jnp.int32(0))
            else:
                estimate = self.estimate(kernel, terms, grad_r, hp)
                (total, moved), factors, links, counts = self.messages(
                    keys, t, cohort, who, work, estimate, x, hp
                )
            if stored is not None:
                factors = packed(factors, self.storage)
            local = jax.vmap(self.estimator.absorb)(who.local, rows, factors)
            bases, step = self.follow(
                kernel, who, work, factors if stored is None else reread(factors)
            )
            live = (who.weight > 0)[:, None] & (rows.weight > 0)
            points = len({id(point) for term in terms for point in term.points})
            counts = counts._replace(gradients=points * jnp.sum(live))
            return (total, moved, step), (local, bases), links, counts

        def procedures(who: Members) -> tuple[PyTree, PyTree, PyTree, Info]:
            assert self.local is not None
            local = self.local

            def run(noise: Key, me: Members) -> tuple[Array, PyTree]:
                stream = jax.random.fold_in(keys.rows, me.index)
                client = Client(stream, noise, me.count, lambda rows: take(problem.train, me, rows))
                g, *rest = local.run(client, x, state.shared, me.local, problem, hp)
                return g, rest

            (total, moved), (memory, gradients), links, counts = self.messages(
                keys, t, cohort, who, who, run, x, hp
            )
            gradients = jnp.sum(jnp.where(who.weight > 0, gradients, 0))
            counts = counts._replace(gradients=gradients)
            return (total, moved, None), (memory, None), links, counts

        who = self.members(cohort, problem, state)
        block = estimates if self.local is None else procedures
        (total, moved, step), (local, bases), links, info = stream(
            block, who, self.block_size(problem, hp)
        )
        if self.aggregation is not None:
            total = jnp.max(cohort.weight) * self.aggregation.recover(total, x, hp)
        if self.mechanism.central:
            server_noise = at(keys.mean_noise, t)
            total = total + normal(server_noise, self.mechanism, total, hp)
        if self.fused:
            if state.base is not None:  # weights add up to 1
                total = total + state.base
            if self.noise == "fused":
                total = total + self.noise_of_mean(keys.mean_noise, t, cohort, total, hp)
            total = self.channel.before(state.link, total)
        rate = self.participation.rate(problem.n, hp).astype(x.dtype)
        v, link = self.channel.receive(state.link, total, rate, hp, moved)
        server = self.server.step(at(keys.server, t), state.server, v, model.project, hp)
        local, links = (
            put(cohort, old, new) for old, new in ((state.local, local), (state.links, links))
        )
        shared, base = state.shared, self.base(state)
        if step is not None:
            base = base + step
        if bases is not None:
            base = put(cohort, base, bases)
        if self.local is not None and self.local.close is not None:
            shared = self.local.close(shared, v, rate, hp)
        if self.estimator.refresh is not None:
            coin = at(keys.refresh, t)
            shared, base, more = self.estimator.refresh(coin, shared, base, x, problem, hp)
            extra = extra + more
        info = info._replace(gradients=info.gradients + extra)
        info = jax.tree.map(lambda a: a.astype(jnp.int32), info)
        return self.hold(State(t + 1, server, link, links, shared, local), base), info

    def cohort(self, key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        """Who takes part in round t of the run with this key."""
        return self.participation.draw(streams(key).clients, t, n, hp)

    def output(self, state: State) -> Array:
        return self.server.output(state.server)

    def event(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """What all rounds release about one record of one client."""
        return transcript.event(self, values, facts)

    def turns(self, values: Mapping[str, Any], facts: Facts) -> int:
        """The rounds in which a client takes part: its own number if known, else the most of any."""
        return transcript.turns(self, values, facts)

    def noises(self, values: Mapping[str, Any], facts: Facts) -> int:
        """How many clients' noises the server sees added up, at least: 1 where it sees messages."""
        return transcript.noises(self, values, facts)

    # --- one block of clients --------------------------------------------------------------------

    def draw_rows(self, key: Key, t: Array, who: Members, m: int, hp: Hyper) -> Draw:
        keys = once(jax.vmap(jax.random.fold_in, (None, 0))(key, who.index), t)
        draw = self.estimator.sampler.draw
        rows = jax.vmap(lambda key, count: draw(key, t, count, m, hp))(keys, who.count)
        if rows.index is not None:
            rows = rows._replace(index=once(rows.index, t))
        return rows._replace(weight=rows.weight.astype(who.weight.dtype))

    def offsets(
        self, key: Key, t: Array, who: Members, rows: Draw, x: Array, hp: Hyper
    ) -> Array | None:
        """What is added to the point of each row of each client, (r, b, d); None: nothing."""
        jitter = self.estimator.jitter
        if jitter is None:
            return None
        (keys,) = client_keys([key], who.index, t)
        return jax.vmap(lambda key: jitter(key, rows.weight.shape[1], x, hp))(keys)

    def mean_estimate(
        self,
        kernel: Kernel,
        terms: tuple[Term, ...],
        who: Members,
        work: Work,
    ) -> tuple[Array, PyTree]:
        """sum_i weight_i g_i in one evaluation over the samples of all clients."""
        weight = who.weight[:, None] * work.rows.weight
        batch, stored = (
            jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), a)
            for a in (work.batch, work.stored)
        )
        if work.offset is not None:
            terms = displaced(terms, work.offset.reshape(-1, work.offset.shape[-1]))
        total, factors = evaluate(kernel, terms, weight.reshape(-1), batch, stored)
        if work.base is not None:
            total = total + who.weight @ work.base
        return total, jax.tree.map(lambda a: a.reshape(*weight.shape, *a.shape[1:]), factors)

    def packed_estimate(
        self,
        kernel: Kernel,
        terms: tuple[Term, ...],
        who: Members,
        work: Work,
        problem: Problem,
        hp: Hyper,
    ) -> Array:
        """:meth:`mean_estimate` over the rows that there are, and few slots that hold none."""

        def part(i: Array, rows: Draw) -> Array:
            assert rows.index is not None
            batch = samples(problem.train, who.index[i], rows.index)
            return evaluate(kernel, terms, who.weight[i] * rows.weight, batch)[0]

        clients, slots = work.rows.weight.shape
        length = strip(clients * hp.caps.get("mean_batch", slots), clients * slots)
        total = strips(work.rows, length, part, terms[0].points[0])
        return total if work.base is None else total + who.weight @ work.base

    def follow(
        self, kernel: Kernel, who: Members, work: Work, factors: PyTree
    ) -> tuple[Array | None, Array | None]:
        """``base_i + sum_j u_j (c_j - stored_j)`` of each member, or what moves the mean of them."""
        if self.estimator.follow is None:
            return None, None
        u = jax.vmap(self.estimator.follow)(work.rows, who.count)

        def step(u: Array, batch: PyTree, new: PyTree, old: PyTree) -> Array:
            new = new if old is None else kernel.combine((1.0, -1.0), (new, old))
            return kernel.contract(u, new, batch)

        parts = work.batch, factors, work.stored
        if self.pooled:
            flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), parts)
            return None, step((who.weight[:, None] * u).reshape(-1), *flat)
        assert who.base is not None
        return who.base + jax.vmap(step)(u, *parts), None

    def noise_of_each(self, key: Key, t: Array, who: Members, like: Array, hp: Hyper) -> Array:
        """sum_i weight_i xi_i, each from its client's own stream."""
        (keys,) = client_keys([key], who.index, t)
        return who.weight @ jax.vmap(lambda key: normal(key, self.own, like, hp))(keys)

    def noise_of_mean(self, key: Key, t: Array, cohort: Draw, like: Array, hp: Hyper) -> Array:
        """One draw with the law of sum_i weight_i xi_i: N(0, sigma^2 sum_i weight_i^2)."""
        draw = self.draw_noise(at(key, t), t, like, hp)
        return jnp.sqrt(jnp.sum(cohort.weight**2)) * draw

    def estimate(
        self, kernel: Kernel, terms: tuple[Term, ...], grad_r: Array, hp: Hyper
    ) -> Callable[[Key, Work], tuple[Array, PyTree]]:
        """One client's estimate from what it has before it."""

        def estimate(_: Key, work: Work) -> tuple[Array, PyTree]:
            here = terms if work.offset is None else displaced(terms, work.offset)
            g, factors = evaluate(kernel, here, work.rows.weight, work.batch, work.stored)
            g = g + grad_r if work.base is None else g + work.base + grad_r
            return (clip(g, hp["clip"]) if self.clip == "batch" else g), factors

        return estimate

    def messages(
        self,
        keys: Keys,
        t: Array,
        cohort: Draw,
        who: Members,
        work: PyTree,
        estimate: Callable[[Key, Any], tuple[Array, PyTree]],
        x: Array,
        hp: Hyper,
    ) -> tuple[tuple[Array, PyTree], PyTree, PyTree, Info]:
        """sum_i weight_i message_i client by client, or the words that stand for their sum; with it
        what rounded memories moved by, likewise."""

        def one(
            noise: Key, mask: Key, link: PyTree, work: PyTree
        ) -> tuple[Message, Array, PyTree, PyTree]:
            g, rest = estimate(noise, work)
            v = self.channel.before(link, g)
            if self.channel.residual is None:
                message, sent = self.release(noise, mask, v, t, hp)
                return message, sent, rest, self.channel.after(link, message, hp)
            v = v + self.draw_noise(noise, t, v, hp)  # all of it: what is not sent is remembered
            quiet = self._replace(mechanism=noiseless())
            message, sent = quiet.release(noise, mask, v, t, hp)
            return message, sent, rest, self.channel.residual(link, v, dense(message, x.size))

        noise, mask = client_keys([keys.noise, keys.mask], who.index, t)
        before = unpacked(who.link, x.dtype)
        message, sent, rest, links = jax.vmap(one)(noise, mask, before, work)
        moved = None
        if self.storage != "exact":
            links = rounded(links, self.storage)
            moved = jax.tree.map(lambda new, old: who.weight @ (new - old), links, before)
            links = packed(links, self.storage)
        live = who.weight > 0
        counts = Info(jnp.sum(live), jnp.sum(jnp.where(live, sent, 0)), jnp.int32(0), jnp.int32(0))
        if self.aggregation is not None:
            protect = self.aggregation.protect

            def hide(me: Array, message: Message) -> tuple[Array, Array]:
                return protect(keys.pairs, t, me, cohort, dense(message, x.size), hp)

            words, clamped = jax.vmap(hide)(who.index, message)
            total = jnp.sum(jnp.where(live[:, None], words, 0), axis=0, dtype=words.dtype)
            counts = counts._replace(clamped=jnp.sum(jnp.where(live, clamped, 0)))
        elif message.index is None:
            total = who.weight @ message.value
        else:
            flat = Message(
                (who.weight[:, None] * message.value).reshape(-1), message.index.reshape(-1)
            )
            total = add(jnp.zeros_like(x), flat, jnp.ones((), x.dtype))
        return (total, moved), rest, links, counts

    def draw_noise(self, key: Key, t: Array, like: Array, hp: Hyper) -> Array:
        return apart(lambda: normal(key, self.own, like, hp), t)

    def release(
        self, noise: Key, mask: Key, v: Array, t: Array, hp: Hyper
    ) -> tuple[Message, Array]:
        """C(v + xi), and the number of coordinates that it holds.

        Coordinates that are chosen without looking at v are chosen first, and only they get noise:
        the message has the same law.
        """
        select, code = self.compressor.select, self.compressor.code
        pick, encode = jax.random.split(mask) if select and code else (mask, mask)
        if select is None:
            value = v + self.draw_noise(noise, t, v, hp)
            index, sent = None, jnp.int32(0)
        else:
            chosen = select(pick, v.size, hp)
            value = v.at[chosen.index].get(mode="clip")
            weight = chosen.weight.astype(v.dtype)
            value = weight * (value + self.draw_noise(noise, t, value, hp))
            index, sent = chosen.index, jnp.sum(chosen.weight != 0)
        if code is not None:
            value = code(encode, value, hp)
        return Message(value, index), sent

    # --- who takes part --------------------------------------------------------------------------

    def members(self, cohort: Draw, problem: Problem, state: State) -> Members:
        every = self.estimator.sampler.name == "full" and not isinstance(problem.train, Made)
        train = problem.train if every else None
        leaves = (problem.count, train, state.local, state.links, state.bases)
        if cohort.index is None:
            return Members(jnp.arange(problem.n), cohort.weight, *leaves)
        here = jax.tree.map(lambda a: a.at[cohort.index].get(mode="clip"), leaves)
        return Members(cohort.index, cohort.weight, *here)

    def block_size(self, problem: Problem, hp: Hyper) -> int:
        """Clients evaluated together, so that a block's memory is bounded whatever n is."""
        rows = hp.caps.get("batch", problem.m_max)
        rows = hp.caps.get("mean_batch", rows) if self.packs else rows
        points = 1 if self.estimator.jitter is None else problem.model.dim
        made = numbers(problem.train) if isinstance(problem.train, Made) else 1
        each = rows * max(points, problem.model.kernel.width, made)
        if not self.fused or self.noise == "per_client":
            each = max(each, problem.model.dim)
        return max(1, min(ROWS_AT_ONCE // rows, NUMBERS_AT_ONCE // each))
