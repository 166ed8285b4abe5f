"""The round bodies: the only places where parts become an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.channels import add
from jaxfl.clipping import clip, evaluate
from jaxfl.mechanisms import normal
from jaxfl.types import (
    Array,
    Channel,
    Compressor,
    Draw,
    Estimator,
    Facts,
    Hyper,
    Info,
    Key,
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

ROWS_AT_ONCE = 1 << 14  # samples evaluated together; beyond it clients go in blocks
NUMBERS_AT_ONCE = 1 << 25  # numbers that a block may hold


class Keys(NamedTuple):
    """One stream per purpose.  Clients fold in their number, rounds theirs."""

    start: Key
    clients: Key
    rows: Key
    noise: Key
    mean_noise: Key
    mask: Key
    refresh: Key
    server: Key


class Members(NamedTuple):
    """The clients of a round, or of a block of it; leaves (r, ...)."""

    index: Array  # type: ignore[assignment]  # tuples have methods of these names
    weight: Array
    count: Array  # type: ignore[assignment]
    train: PyTree  # their samples, where a draw takes them all; None where it gathers
    local: PyTree
    link: PyTree


class Work(NamedTuple):
    """What members have before them; leaves (r, b, ...), ``base`` (r, d)."""

    rows: Draw
    batch: PyTree
    base: Array | None
    stored: PyTree


class Federated(NamedTuple):
    """One server and n clients.

    Each round, for the clients S that take part::

        g_i = client i's estimate at the server's point x, examples clipped, + grad regularizer(x)
        message_i = C(before(link_i, g_i) + xi_i),   xi_i ~ N(0, sigma^2 I)
        v = receive(link, sum_i weight_i message_i),  x = step(x, v)

    Where only the mean matters (``fused``: no compression, and a channel whose memory the server
    holds) the whole round is one evaluation over all drawn samples and one draw of noise with the
    variance of the mean, sigma^2 sum_i weight_i^2: the law of the trajectory is the same, and no
    (n, d) array exists.  ``noise="per_client"`` draws each client's noise all the same.
    """

    estimator: Estimator
    mechanism: Mechanism
    compressor: Compressor
    channel: Channel
    server: Server
    participation: Participation
    clip: str = "example"  # or "batch": the whole estimate, which bounds no record's influence
    noise: str = "fused"  # or "per_client"

    @property
    def fused(self) -> bool:
        plain = self.compressor.select is None and self.compressor.code is None
        remembers = self.channel.name != "direct"
        return plain and self.clip == "example" and (self.participation.everyone or not remembers)

    def init(self, key: Key, problem: Problem, hp: Hyper) -> tuple[State, Info]:
        """The state before the first round, and what making it cost."""
        x = problem.x0
        if x is None:
            x = problem.model.init(streams(key).start)
        shared, local, gradients = self.estimator.init(problem, x, hp)
        links, link = self.channel.init(problem.n, x, self.fused)
        state = State(jnp.int32(0), self.server.init(x, hp), link, links, shared, local)
        return state, Info(jnp.int32(0), jnp.int32(0), gradients)

    def round(self, key: Key, state: State, problem: Problem, hp: Hyper) -> tuple[State, Info]:
        """One round; ``key`` is the run's, the same in every round."""
        keys, t, model = streams(key), state.t, problem.model
        hp = hp.at(t)
        x = self.server.view(state.server)
        terms = self.estimator.terms(state.shared, x, hp)
        grad_r = jax.grad(model.regularizer)(x)

        def block(who: Members) -> tuple[Array, PyTree, PyTree, Info]:
            rows = self.draw_rows(keys.rows, t, who, problem.m_max, hp)
            batch = take(problem.train, who, rows)
            work = Work(rows, batch, *jax.vmap(self.estimator.recall)(who.local, rows))
            if self.fused:
                total, factors = self.mean_estimate(problem, terms, who, work)
                total = total + jnp.sum(who.weight) * grad_r
                if self.noise == "per_client":
                    total = total + self.noise_of_each(keys.noise, t, who, total, hp)
                links, sent = who.link, jnp.int32(0)
            else:
                total, factors, links, sent = self.messages(
                    keys, t, problem, terms, grad_r, who, work, hp
                )
            local = jax.vmap(lambda *a: self.estimator.absorb(model.kernel, *a))(
                who.local, rows, batch, factors, who.count
            )
            live = (who.weight > 0)[:, None] & (rows.weight > 0)
            points = sum(len(term.points) for term in terms)
            counts = Info(jnp.sum(who.weight > 0), sent, points * jnp.sum(live))
            return total, local, links, counts

        cohort = self.participation.draw(keys.clients, t, problem.n, hp)
        cohort = cohort._replace(weight=cohort.weight.astype(x.dtype))
        who = self.members(cohort, problem, state)
        total, local, links, info = stream(block, who, self.block_size(problem, hp))
        if self.fused:
            if self.noise == "fused":
                total = total + self.noise_of_mean(keys.mean_noise, t, cohort, total, hp)
            total = self.channel.before(state.link, total)
        rate = self.participation.rate(problem.n, hp).astype(x.dtype)
        v, link = self.channel.receive(state.link, total, rate, hp)
        server = self.server.step(
            jax.random.fold_in(keys.server, t), state.server, v, model.project, hp
        )
        local, links = (
            put(cohort, old, new) for old, new in ((state.local, local), (state.links, links))
        )
        shared = state.shared
        if self.estimator.refresh is not None:
            coin = jax.random.fold_in(keys.refresh, t)
            shared, local, extra = self.estimator.refresh(coin, shared, local, x, problem, hp)
            info = info._replace(gradients=info.gradients + extra)
        info = jax.tree.map(lambda a: a.astype(jnp.int32), info)
        return State(t + 1, server, link, links, shared, local), info

    def output(self, state: State) -> Array:
        return self.server.output(state.server)

    def event(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """What all rounds release about one record of one client; messages are seen one by one.

        Compression, shifts and the server's steps act on what is already noised.  Who takes part is
        public, so client sampling amplifies nothing.  Clients' data are disjoint, and of clients of
        different sizes the worst counts, which may be one in the middle.
        """
        from jaxfl.privacy import events

        sampler, sensitivity = self.estimator.sampler, self.estimator.sensitivity
        if self.mechanism.std is None:
            return events.NoClaim("nothing is noised")
        if sensitivity is None:
            return events.NoClaim(f"the sensitivity of {self.estimator.name} is not declared")
        slots = sampler.capacity(values, facts).get("batch") if sampler.name == "poisson" else None

        def client(m: int) -> Any:
            b = m if sampler.name == "full" else float(values["batch"])
            return events.Event(
                events.Sampling(sampler.name, m, b, slots),
                sensitivity(values),
                float(values["sigma"]),
                int(values["rounds"]),
            )

        if len(facts.sizes) == 1:
            return client(facts.m)
        return events.Phases(tuple(client(m) for m in facts.sizes), together=True)

    # --- one block of clients --------------------------------------------------------------------

    def draw_rows(self, key: Key, t: Array, who: Members, m: int, hp: Hyper) -> Draw:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, who.index)
        draw = self.estimator.sampler.draw
        rows = jax.vmap(lambda key, count: draw(key, t, count, m, hp))(keys, who.count)
        return rows._replace(weight=rows.weight.astype(who.weight.dtype))

    def mean_estimate(
        self,
        problem: Problem,
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
        total, factors = evaluate(problem.model.kernel, terms, weight.reshape(-1), batch, stored)
        if work.base is not None:
            total = total + who.weight @ work.base
        return total, jax.tree.map(lambda a: a.reshape(*weight.shape, *a.shape[1:]), factors)

    def noise_of_each(self, key: Key, t: Array, who: Members, like: Array, hp: Hyper) -> Array:
        """sum_i weight_i xi_i, each from its client's own stream."""
        (keys,) = client_keys([key], who.index, t)
        return who.weight @ jax.vmap(lambda key: normal(key, self.mechanism, like, hp))(keys)

    def noise_of_mean(self, key: Key, t: Array, cohort: Draw, like: Array, hp: Hyper) -> Array:
        """One draw with the law of sum_i weight_i xi_i: N(0, sigma^2 sum_i weight_i^2)."""
        draw = normal(jax.random.fold_in(key, t), self.mechanism, like, hp)
        return jnp.sqrt(jnp.sum(cohort.weight**2)) * draw

    def messages(
        self,
        keys: Keys,
        t: Array,
        problem: Problem,
        terms: tuple[Term, ...],
        grad_r: Array,
        who: Members,
        work: Work,
        hp: Hyper,
    ) -> tuple[Array, PyTree, PyTree, Array]:
        """sum_i weight_i message_i, client by client."""
        kernel = problem.model.kernel

        def one(
            noise: Key, mask: Key, link: PyTree, work: Work
        ) -> tuple[Message, Array, PyTree, PyTree]:
            g, factors = evaluate(kernel, terms, work.rows.weight, work.batch, work.stored)
            g = g + grad_r if work.base is None else g + work.base + grad_r
            if self.clip == "batch":
                g = clip(g, hp["clip"])
            message, sent = self.release(noise, mask, self.channel.before(link, g), hp)
            return message, sent, factors, self.channel.after(link, message, hp)

        noise, mask = client_keys([keys.noise, keys.mask], who.index, t)
        message, sent, factors, links = jax.vmap(one)(noise, mask, who.link, work)
        if message.index is None:
            total = who.weight @ message.value
        else:
            every = Message(
                (who.weight[:, None] * message.value).reshape(-1), message.index.reshape(-1)
            )
            total = add(jnp.zeros_like(grad_r), every, jnp.ones((), grad_r.dtype))
        return total, factors, links, jnp.sum(jnp.where(who.weight > 0, sent, 0))

    def release(self, noise: Key, mask: Key, v: Array, hp: Hyper) -> tuple[Message, Array]:
        """C(v + xi), and the number of coordinates that it holds.

        Coordinates that are chosen without looking at v are chosen first, and only they get noise:
        the message has the same law.
        """
        select, code = self.compressor.select, self.compressor.code
        pick, encode = jax.random.split(mask) if select and code else (mask, mask)
        if select is None:
            value = v + normal(noise, self.mechanism, v, hp)
            index, sent = None, jnp.int32(0)
        else:
            chosen = select(pick, v.size, hp)
            value = v.at[chosen.index].get(mode="clip")
            weight = chosen.weight.astype(v.dtype)
            value = weight * (value + normal(noise, self.mechanism, value, hp))
            index, sent = chosen.index, jnp.sum(chosen.weight != 0)
        if code is not None:
            value = code(encode, value, hp)
        return Message(value, index), sent

    # --- who takes part --------------------------------------------------------------------------

    def members(self, cohort: Draw, problem: Problem, state: State) -> Members:
        every = self.estimator.sampler.name == "full"
        leaves = (problem.count, problem.train if every else None, state.local, state.links)
        if cohort.index is None:
            return Members(jnp.arange(problem.n), cohort.weight, *leaves)
        here = jax.tree.map(lambda a: a.at[cohort.index].get(mode="clip"), leaves)
        return Members(cohort.index, cohort.weight, *here)

    def block_size(self, problem: Problem, hp: Hyper) -> int:
        """Clients evaluated together, so that a block's memory is bounded whatever n is."""
        rows = hp.caps.get("batch", problem.m_max)
        each = rows * problem.model.kernel.width
        if not self.fused or self.noise == "per_client":
            each = max(each, problem.model.dim)
        return max(1, min(ROWS_AT_ONCE // rows, NUMBERS_AT_ONCE // each))


def streams(key: Key) -> Keys:
    return Keys(*jax.random.split(key, len(Keys._fields)))


def client_keys(streams: list[Key], index: Array, t: Array) -> Key:
    """One key per stream and client, for this round."""
    now = jax.vmap(jax.random.fold_in, (0, None))(jnp.stack(streams), t)
    return jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(now, index)


def take(train: PyTree, who: Members, rows: Draw) -> PyTree:
    """The drawn samples, leaves (r, b, ...)."""
    if rows.index is None:
        return who.train
    m = jax.tree.leaves(train)[0].shape[1]
    flat = who.index[:, None] * m + jnp.minimum(rows.index, m - 1)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]).at[flat].get(mode="clip"), train)


def put(cohort: Draw, old: PyTree, new: PyTree) -> PyTree:
    """Members' memory back in its place; the others keep theirs."""
    if cohort.index is None:
        return new
    return jax.tree.map(lambda a, v: a.at[cohort.index].set(v, mode="drop"), old, new)


def stream(block: Any, who: Members, size: int) -> tuple[Array, PyTree, PyTree, Info]:
    """``block`` over clients, ``size`` at a time: totals and counts add up, memories line up."""
    r = who.index.shape[0]
    if r <= size:
        whole_round: tuple[Array, PyTree, PyTree, Info] = block(who)
        return whole_round
    whole = r // size
    head = jax.tree.map(lambda a: a[: whole * size].reshape(whole, size, *a.shape[1:]), who)

    def step(carry: PyTree, who: Members) -> tuple[PyTree, PyTree]:
        total, local, links, info = block(who)
        return jax.tree.map(jnp.add, carry, (total, info)), (local, links)

    shapes = jax.eval_shape(block, jax.tree.map(lambda a: a[0], head))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), (shapes[0], shapes[3]))
    (total, info), (local, links) = jax.lax.scan(step, zero, head)
    local, links = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), (local, links))
    if whole * size < r:
        rest = block(jax.tree.map(lambda a: a[whole * size :], who))
        total, info = jax.tree.map(jnp.add, (total, info), (rest[0], rest[3]))
        local, links = jax.tree.map(
            lambda a, b: jnp.concatenate([a, b]), (local, links), (rest[1], rest[2])
        )
    return total, local, links, info
