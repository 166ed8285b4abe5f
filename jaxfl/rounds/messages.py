"""Clients' messages: noised, compressed, and added up."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.checks import kind_of
from jaxfl.core.errors import require
from jaxfl.core.fusion import in_own_loop, materialized, on_cpus, read_at
from jaxfl.core.products import exact
from jaxfl.core.records import document_all
from jaxfl.core.types import Array, Compressor, Draw, Hyper, Info, Key, Mechanism, Message, PyTree
from jaxfl.parts.channels import add
from jaxfl.parts.compressors import dense
from jaxfl.parts.mechanisms import (
    Past,
    drawn,
    in_units,
    independent,
    multiples_of,
    noiseless,
    past,
)
from jaxfl.parts.storage import packed, rounded, unpacked
from jaxfl.rounds.blocks import ClientBlock, Estimate, RoundContext, Some, client_keys
from jaxfl.rounds.body import Body

__all__ = [
    "Seen",
    "Sent",
    "added_up",
    "collect",
    "in_full",
    "joined",
    "noise_of_each",
    "noise_of_mean",
    "parted",
    "protect",
    "release",
    "send",
]

TINY = 1e-30  # keeps 0/0 away where nobody takes part


class Seen(NamedTuple):
    """The messages of one round, and what they are made of; a slot for each client of the cohort.

    An observer sees ``messages``; under an aggregation that hides them, only ``mean``, and ``words``
    where masks are drawn.  A server's noise comes after ``mean``.

    Fields:
        clients: their numbers, (r,); n in a slot that holds nobody.
        weight: of each message in the mean, (r,); 0 in a slot that holds nobody.
        estimates: the gradients g_i, or x - theta_i of local steps, noise included, (r, d).
        messages: C(before(link_i, g_i) + xi_i), (r, d), and 0 where a coordinate is not sent; of a network
            all messages of a client in a row, (n, uploads d).
        words: the messages as an aggregation encodes them, (r, d); None: there is no aggregation.
        mean: sum_i weight_i message_i, as the server decodes it, (d,).
    """

    clients: Array
    weight: Array
    estimates: Array
    messages: Array
    words: Array | None
    mean: Array


class Sent(NamedTuple):
    """A client's message, and the values that it keeps.

    Fields:
        message: what is sent.
        coordinates: those in it that the ``select`` of a compressor chose, (); without one it is not read.
        link: its new end of the channel.
        own: what it computed, of which g_i is the first.
        moved: the change of ``link`` where that is stored in fewer bits, of the coordinates of ``message``
            alone where only they are written; None where it is exact.
    """

    message: Message
    coordinates: Array
    link: PyTree
    own: Any
    moved: PyTree = None


def send(
    body: Body, context: RoundContext, who: ClientBlock, work: PyTree, estimate: Estimate
) -> Sent:
    """Each client's message, and what it keeps."""
    keys, t, x, hp, channel = context.keys, context.t, context.x, context.hp, body.channel
    sparsely = writes_sparsely(body)

    def one(noise: Key, mask: Key, links: PyTree, work: PyTree, multiple: Array | None) -> Sent:
        unit = in_units(context.unit, multiple)
        stored, old = parted(body, links)
        link = unpacked(stored, x.dtype)
        g, rest, some = estimate(noise, work)
        own = g, rest
        v = channel.before(link, g)
        require(
            _like(v, g.shape, g.dtype),
            lambda: (
                f"The before of the channel {channel.name!r} returns {kind_of(v)} for {kind_of(g)}"
            ),
            "return as many values as the estimate has, of the same dtype",
        )
        if channel.residual is None:

            def picked(index: Array) -> Array:
                read = jax.tree.map(lambda a: read_at(a, index, t), stored)
                numbers = some or (lambda index: g.at[index].get(mode="clip"))
                g_k = in_own_loop(lambda: numbers(index), t)
                return channel.before(unpacked(read, x.dtype), g_k)

            few = picked if channel.elementwise and (sparsely or some is not None) else None
            message, sent, new = release(
                body.own, body.compressor, noise, mask, v, t, hp, unit, old, few
            )
            if sparsely:
                kept, moved = written(body, stored, message, context)
                return Sent(message, sent, joined(kept, new), own, moved)
            link, moved = kept_as(body, link, channel.after(link, message, hp.copy()))
            return Sent(message, sent, joined(link, new), own, moved)
        # on all coordinates, since the channel keeps those that are not sent
        xi, new = drawn(noise, body.own, v, hp, unit, t, past=old)
        v = v + xi
        message, sent, _ = release(noiseless(), body.compressor, noise, mask, v, t, hp)
        link, moved = kept_as(
            body, link, channel.residual(link, v, dense(message, x.size), hp.copy())
        )
        return Sent(message, sent, joined(link, new), own, moved)

    noise, mask = client_keys([keys.noise, keys.mask], who.index, t)
    if not independent(body.own):
        noise = noise_keys(body.own, context, who)
    links = who.link
    if body.storage != "exact" and not sparsely:
        # read once before the write, or XLA copies all of it
        links = jax.tree.map(lambda a: materialized(a, t), links)
    return jax.vmap(one)(noise, mask, links, work, multiples_of(body.own, who.index))


def writes_sparsely(body: Body) -> bool:
    """Whether memory in fewer bits is read and written at the coordinates of a message alone."""
    channel, compressor = body.channel, body.compressor
    each_once = compressor.select is not None and compressor.distinct
    return (
        body.storage != "exact" and channel.elementwise and channel.residual is None and each_once
    )


def written(
    body: Body, stored: PyTree, message: Message, context: RoundContext
) -> tuple[PyTree, PyTree]:
    """A client's memory with the coordinates of a message changed, and their changes."""
    index, dtype = message.index, context.x.dtype
    assert index is not None
    old = unpacked(jax.tree.map(lambda a: read_at(a, index, context.t), stored), dtype)
    now = body.channel.after(old, Message(message.value, None), context.hp.copy())
    new, moved = kept_as(body, old, now)
    return jax.tree.map(lambda a, v: a.at[index].set(v, mode="drop"), stored, new), moved


def kept_as(body: Body, old: PyTree, new: PyTree) -> tuple[PyTree, PyTree]:
    """What a client stores of its new memory, and how far that is from the old one; None: it is exact."""
    if body.storage == "exact":
        return new, None
    new = rounded(new, body.storage)
    return packed(new, body.storage), jax.tree.map(jnp.subtract, new, old)


def protect(
    body: Body, context: RoundContext, who: ClientBlock, message: Message
) -> tuple[Array, Array]:
    """Each message as words, and which of its coordinates were clamped, or how many."""
    assert body.aggregation is not None
    protect_one = body.aggregation.protect
    pairs, t, cohort, x, hp = context.keys.pairs, context.t, context.cohort, context.x, context.hp

    def one(me: Array, weight: Array, message: Message) -> tuple[Array, Array]:
        whole = dense(message, x.size)
        if context.problem.weights is not None:  # in a sum all words weigh the same
            whole = whole * (weight / jnp.maximum(jnp.max(cohort.weight), TINY))
        return protect_one(pairs, t, me, cohort, whole, hp)

    return jax.vmap(one)(who.index, who.weight, message)


def collect(
    body: Body, context: RoundContext, who: ClientBlock, work: PyTree, estimate: Estimate
) -> tuple[tuple[Array, PyTree], PyTree, PyTree, Info]:
    """Returns ((total, moved), rest, links, counts).

    ``total`` is sum_i weight_i message_i, or the sum of words under an aggregation; ``moved`` the
    mean change of rounded memories; ``rest`` the other results of ``estimate``.
    """
    message, sent, links, (_, rest), moved = send(body, context, who, work, estimate)
    x, index = context.x, message.index

    def scattered(value: Array) -> Array:
        assert index is not None
        flat = Message((who.weight[:, None] * value).reshape(-1), index.reshape(-1))
        return add(jnp.zeros_like(x), flat, jnp.ones((), x.dtype))

    mean = scattered if writes_sparsely(body) else lambda change: exact(who.weight, change)
    moved = jax.tree.map(mean, moved)
    live = who.weight > 0
    clamped = jnp.int32(0)
    if body.aggregation is not None or index is None:
        total, clamped = added_up(body, context, who, message)
    else:
        total = scattered(message.value)
    counts = Info(jnp.sum(live), jnp.sum(jnp.where(live, sent, 0)), jnp.int32(0), clamped)
    return (total, moved), rest, links, counts


def in_full(message: Message, d: int) -> Array:
    """The vectors that the messages of several clients stand for, (r, d)."""
    return jax.vmap(lambda one: dense(one, d))(message)


def added_up(
    body: Body, context: RoundContext, who: ClientBlock, message: Message
) -> tuple[Array, Array]:
    """``sum_i weight_i message_i``, or the sum of words; and the number of clamped coordinates."""
    if body.aggregation is None:
        return exact(who.weight, in_full(message, context.x.size)), jnp.int32(0)
    live = (who.weight > 0)[:, None]
    words, clamped = protect(body, context, who, message)
    words = jnp.where(live, words, 0)
    clamped = jnp.where(live, clamped.reshape(live.size, -1), 0)
    at_once = words.dtype == np.uint32 and clamped.shape == words.shape
    total, clamped = on_cpus(apart, in_pairs if at_once else apart)(words, clamped)
    return total, jnp.sum(clamped)


def apart(words: Array, clamped: Array) -> tuple[Array, Array]:
    """Sums over clients, (d,) each."""
    total = tuple(jnp.sum(a, axis=0, dtype=a.dtype) for a in (words, clamped))
    both: tuple[Array, Array] = jax.lax.optimization_barrier(total)  # one kernel adds up both
    return both


def in_pairs(words: Array, clamped: Array) -> tuple[Array, Array]:
    """:func:`apart`, in the halves of one number: XLA fuses one sum with the noise of messages, not two."""
    with jax.enable_x64(True):
        pairs = (words.astype(np.uint64) << np.uint64(32)) | clamped.astype(np.uint64)
        total = jnp.sum(pairs, axis=0)  # of the words modulo 2^32; no number of clients carries
        return (total >> np.uint64(32)).astype(np.uint32), total.astype(clamped.dtype)


def release(
    mechanism: Mechanism,
    compressor: Compressor,
    noise: Key,
    mask: Key,
    v: Array,
    t: Array,
    hp: Hyper,
    unit: Array | None = None,
    past: Past | None = None,
    some: Some | None = None,
) -> tuple[Message, Array, Past | None]:
    """C(v + xi), the number of its coordinates, and what the noise remembers after ``past``.

    A sparsifier chooses coordinates first, and only they get noise: the message has the same law.  ``some``
    computes them for less work than v.
    """
    select, code = compressor.select, compressor.code
    pick, encode = jax.random.split(mask) if select and code else (mask, mask)
    if select is None:
        xi, past = drawn(noise, mechanism, v, hp, unit, t, past=past)
        value = v + xi
        index, sent = None, jnp.int32(0)
    else:
        chosen = select(pick, v.size, hp)
        _one_draw(compressor.name, chosen, v.size)
        assert chosen.index is not None
        value = v.at[chosen.index].get(mode="clip") if some is None else some(chosen.index)
        weight = chosen.weight.astype(v.dtype)
        if independent(mechanism):
            xi, _ = drawn(noise, mechanism, value, hp, unit, t)
        else:  # of the coordinate in other rounds, whether it was sent then or not; or in other shows
            xi, past = drawn(noise, mechanism, v, hp, unit, t, chosen.index, past)
        value = weight * (value + xi)
        index, sent = chosen.index, jnp.sum(chosen.weight != 0)
    if code is not None:
        coded = code(encode, value, hp.copy())
        require(
            _like(coded, value.shape, value.dtype),
            lambda: (
                f"The code of the compressor {compressor.name!r} returns {kind_of(coded)} for "
                f"{kind_of(value)}"
            ),
            "return as many values as it is given, of the same dtype",
        )
        value = coded
    return Message(value, index), sent, past


def parted(body: Body, links: PyTree) -> tuple[PyTree, Past | None]:
    """The clients' ends of the channel, and what their noise remembers, if it does."""
    return links if body.recalls else (links, None)


def joined(link: PyTree, past: Past | None) -> PyTree:
    """A client's end of the channel, with what its noise remembers."""
    return link if past is None else (link, past)


def _one_draw(name: str, chosen: Any, d: int) -> None:
    """Raise, while tracing, for a draw that would broadcast instead of selecting coordinates."""
    slots: tuple[int, ...] = getattr(getattr(chosen, "index", None), "shape", ())
    fits = isinstance(chosen, Draw) and len(slots) == 1
    require(
        fits and _like(chosen.index, slots, jnp.integer) and _like(chosen.weight, slots),
        lambda: (
            f"The select of the compressor {name!r} returns "
            f"{[kind_of(part) for part in chosen] if isinstance(chosen, Draw) else kind_of(chosen)}"
        ),
        "return a Draw of the coordinates, as integers, and as many weights",
    )
    require(
        slots[0] <= d,
        lambda: (
            f"The select of the compressor {name!r} has {slots[0]} slots, and there are {d} coordinates"
        ),
        "let its capacity give at most as many",
    )


def _like(value: Any, shape: tuple[int, ...], kind: Any = jnp.number) -> bool:
    is_array = hasattr(value, "dtype") and value.shape == shape
    return is_array and bool(jnp.issubdtype(value.dtype, kind))


def noise_of_each(
    body: Body, context: RoundContext, who: ClientBlock, like: Array
) -> tuple[Array, PyTree]:
    """sum_i weight_i xi_i, each from its client's own stream; and the clients' ends of the channel."""
    mechanism, (link, past) = body.own, parted(body, who.link)

    def one(key: Key, multiple: Array | None, past: Past | None) -> tuple[Array, Past | None]:
        unit = in_units(context.unit, multiple)
        return drawn(key, mechanism, like, context.hp, unit, context.t, past=past)

    keys, multiples = noise_keys(mechanism, context, who), multiples_of(mechanism, who.index)
    xi, past = jax.vmap(one)(keys, multiples, past)
    return exact(who.weight, xi), joined(link, past)


def noise_keys(mechanism: Mechanism, context: RoundContext, who: ClientBlock) -> Key:
    """The keys of each client's noise, (r,), or (r, p) of p rounds."""

    def each(stream: Key, t: Array) -> Key:
        return client_keys([stream], who.index, t)[0]

    return past(mechanism, context.keys.noise, context.t, each)


def noise_of_mean(
    mechanism: Mechanism, context: RoundContext, like: Array, old: Past | None
) -> tuple[Array, Past | None]:
    """A server's own draw, or one with the law of sum_i weight_i xi_i: N(0, sigma^2 sum_i weight_i^2).

    And what it remembers after ``old``.
    """
    key = past(mechanism, context.keys.mean_noise, context.t)
    xi, new = drawn(key, mechanism, like, context.hp, context.unit, context.t, past=old)
    if mechanism.central:
        return xi, new
    weight, index = context.cohort.weight, context.cohort.index
    own = multiples_of(mechanism, jnp.arange(weight.size) if index is None else index)
    return jnp.sqrt(jnp.sum(weight**2 if own is None else (own * weight) ** 2)) * xi, new


document_all(__name__)
