"""The round body of a network without a server: clients keep models and send messages to neighbours.

Each round, for all clients at once::

    g_i = client i's estimate at its own x_i, examples clipped, + grad regularizer(x_i) + xi_i
    x_i <- rule(x_i, g_i, what neighbours sent, weighted by W)

A mechanism that is ``coupled`` adds noise that neighbours draw from a seed of their own.
All neighbours of a client see what it sends.  The model of a run is the mean of the x_i.  The
estimator has no memory, and everyone takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import provenance
from jaxfl.core.keys import at
from jaxfl.core.products import exact
from jaxfl.core.provenance import made
from jaxfl.core.records import document_all
from jaxfl.core.types import (
    Aggregation,
    Array,
    Compressor,
    Draw,
    Estimator,
    Hyper,
    Info,
    Key,
    Local,
    Mechanism,
    Message,
    Param,
    Participation,
    Problem,
)
from jaxfl.parts.gradients import at_point, evaluated
from jaxfl.parts.graphs import Graph, links
from jaxfl.parts.mechanisms import multiples_of, noiseless, normal
from jaxfl.parts.sampling import everyone
from jaxfl.parts.servers import LR
from jaxfl.problems.clipping import clip, clipped_as
from jaxfl.rounds.blocks import ClientBlock, Keys, client_keys, paced, start, streams, take
from jaxfl.rounds.estimates import draw_rows
from jaxfl.rounds.messages import Seen, in_full, release

__all__ = ["CONSENSUS", "Gossip", "Rule", "Send", "averaging", "differences", "quantized"]

THETA = Param("theta", "weight theta of the new point in a step", high=1.0)
CONSENSUS = Param("consensus", "step k towards what neighbours sent", high=1.0, schedule=True)

Send = Callable[..., tuple[Array, Array]]  # see ``step`` of Rule


class Rule(NamedTuple):
    """The rule of a network: messages of clients, and steps of their points; for all clients at once.

    Fields:
        name: how the part is called in records and messages.
        step: (x, g, W, send, hp, ``*kept``) -> the points after a round, (n, d), the coordinates that each
            client sent, (n,), and each of the vectors ``kept``; g are the noised gradients, (n, d).
            ``send(v, number)`` returns what arrives of each v_i, (n, d), and its coordinates, (n,), where
            ``number`` distinguishes several messages of a round.
        params: the hyper-parameters that it reads.
        start: x -> the vectors that clients keep besides their points, each (n, d).
        uploads: messages that a client sends in a round.
        corrects: whether later messages make up for the bias of a compressor, or the method wants the bias,
            as a vote of signs does; without it no biased compressor is composed with the part.
    """

    name: str
    step: Callable[..., tuple[Array, ...]]
    params: tuple[Param, ...] = ()
    start: Callable[[Array], tuple[Array, ...]] = lambda x: ()
    uploads: int = 1
    corrects: bool = False


@made
def averaging() -> Rule:
    """x_i <- sum_j W_ij C(x_j - eta g_j): a step, then the mean over neighbours.

    Decentralized SGD, adapt then combine.  On a complete graph it is the server's round.
    """

    def step(x: Array, g: Array, W: Array, send: Send, hp: Hyper) -> tuple[Array, Array]:
        z, sent = send(x - hp["lr"] * g)
        return exact(W, z), sent

    return Rule("averaging", step, (LR,))


@made
def quantized() -> Rule:
    """z_i = C(x_i);  x_i <- (1 - k + k W_ii) x_i + k sum_{j != i} W_ij z_j - eta k g_i  [Q-DPSGD-1]."""

    def step(x: Array, g: Array, W: Array, send: Send, hp: Hyper) -> tuple[Array, Array]:
        z, sent = send(x)
        k, own = hp["consensus"], jnp.diag(W)[:, None]
        others = exact(W, z) - own * z
        return (1 - k + k * own) * x + k * others - hp["lr"] * k * g, sent

    return Rule("quantized", step, (LR, CONSENSUS))


@made
def differences() -> Rule:
    """y_i = (1-theta) x_i + theta (sum_j W_ij x_j - eta g_i);  x_i <- x_i + C(y_i - x_i)  [SDM-DSGD].

    Neighbours keep copies of x_i, which move by the same C(y_i - x_i) and so stay equal to it.
    """

    def step(x: Array, g: Array, W: Array, send: Send, hp: Hyper) -> tuple[Array, Array]:
        moved = hp["theta"] * (exact(W, x) - x - hp["lr"] * g)
        arrived, sent = send(moved)
        return x + arrived, sent

    return Rule("differences", step, (LR, THETA))


class NetworkState(NamedTuple):
    """The state between rounds of a network.

    Fields:
        t: the number of the next round, ().
        x: the clients' points, (n, d).
        W: the mixing matrix, (n, n).
        links: the vectors that clients keep besides, each (n, d).
    """

    t: Array
    x: Array
    W: Array
    links: tuple[Array, ...]


class Network(NamedTuple):
    """The parts of :class:`jaxfl.parts.Gossip`.

    Fields:
        estimator: which of a client's samples are weighed how, and at which points; without memory.
        mechanism: the noise on a client's estimate.
        compressor: what travels of a message.
        rule: what clients send, and how their points move.
        graph: who hears whom, as mixing matrices.
        participation: who takes part, which is everyone.
        clip: "example"; or "batch": the mean of a batch, which one record may change completely; or
            "client": the same, where all records of a client are protected together.
        noise: "per_client": each client draws its own.
        clipping: "hard", ``g min(1, G/|g|)``; or "smooth", ``g G/(G + |g|)``.
    """

    estimator: Estimator
    mechanism: Mechanism
    compressor: Compressor
    rule: Rule
    graph: Graph
    participation: Participation = everyone()
    clip: str = "example"
    noise: str = "per_client"
    clipping: str = "hard"


@provenance.body
class Gossip(Network):
    """A network of n clients with the mixing matrix of ``graph``.

    Every message is computed, one client at a time; nothing comes from a server.
    """

    local: Local | None = None
    aggregation: Aggregation | None = None
    storage, broadcasts = "exact", 0
    messages, plain, fused = True, True, False
    weighs, takes_cohorts, absolute = False, False, True
    linear, sends_estimates = False, False
    remembers, mirrors, keeps = True, False, False

    def growth(self, omega: float) -> None:
        """No bound of messages is known."""

    @property
    def uploads(self) -> int:
        """Messages that a client sends in a round."""
        return self.rule.uploads

    @property
    def own(self) -> Mechanism:
        """The noise that a client adds to its message."""
        return self.mechanism

    @property
    def roles(self) -> dict[str, Any]:
        """The parts by their roles."""
        names = ("mechanism", "compressor", "rule", "graph", "participation")
        sampler = {"estimator": self.estimator, "sampler": self.estimator.sampler}
        return {**sampler, **{role: getattr(self, role) for role in names}}

    def init(self, key: Key, problem: Problem, hp: Hyper) -> tuple[NetworkState, Info]:
        """All clients at the same point, and the mixing matrix."""
        x = start(key, problem)
        W = jnp.asarray(self.graph.matrix(problem.n), x.dtype)
        points = jnp.broadcast_to(x, (problem.n, x.size))
        none = jnp.int32(0)
        links = self.rule.start(points)
        return NetworkState(none, points, W, links), Info(none, none, none)

    def round(
        self, key: Key, state: NetworkState, problem: Problem, hp: Hyper
    ) -> tuple[NetworkState, Info]:
        """One round; ``key`` is the run's, the same in every round."""
        return self._computed(key, state, problem, hp)[:2]

    def view(self, key: Key, state: NetworkState, problem: Problem, hp: Hyper) -> Seen:
        """The messages of the round that :meth:`round` computes from the same arguments.

        Of a client that sends several they follow one another in its row.
        """
        _, _, g, sent = self._computed(key, state, problem, hp)
        messages = jnp.concatenate(sent, axis=1)
        weight = jnp.ones(problem.n, g.dtype)
        return Seen(jnp.arange(problem.n), weight, g, messages, None, jnp.mean(messages, axis=0))

    def _computed(
        self, key: Key, state: NetworkState, problem: Problem, hp: Hyper
    ) -> tuple[NetworkState, Info, Array, list[Array]]:
        """The new state and the counts of a round, the noised estimates, and what clients send."""
        keys, t, x = streams(key), state.t, state.x
        model = clipped_as(problem, self.clipping).model
        hp, n = paced(self.estimator.pace, keys, t, hp), problem.n
        index = jnp.arange(n)
        noise, mask, points = client_keys([keys.noise, keys.mask, keys.points], index, t)
        whole = self.estimator.sampler.whole
        who = ClientBlock(
            index, jnp.ones(n, x.dtype), problem.count, problem.train if whole else None, (), ()
        )
        rows = draw_rows(self.estimator.sampler, keys.rows, t, who, problem.m_max, hp)

        def estimate(
            x: Array, weight: Array, batch: Any, noise: Key, points: Key, unit: Array | None
        ) -> Array:
            point = at_point(self.estimator.gradient, model, (), x, hp)
            g = evaluated(point, weight, batch, points)[0] + point.public
            g = clip(g, hp["clip"], point.kernel.smooth) if self.clip != "example" else g
            return g + normal(noise, self.mechanism, g, hp, unit)

        batch, units = take(problem.train, who, rows), multiples_of(self.mechanism, index)
        g = jax.vmap(estimate)(x, rows.weight, batch, noise, points, units)
        if self.mechanism.coupled:
            g = g + self._cancelling(keys, t, g, hp)

        messages: list[Array] = []

        def send(v: Array, number: int = 0) -> tuple[Array, Array]:
            keys = jax.vmap(jax.random.fold_in, (0, None))(mask, number) if number else mask

            def one(key: Key, v: Array) -> tuple[Message, Array]:
                return release(noiseless(), self.compressor, key, key, v, t, hp)[:2]

            message, sent = jax.vmap(one)(keys, v)
            arrived = in_full(message, x.shape[1])
            messages.append(arrived)
            return arrived, sent

        x, sent, *links = self.rule.step(x, g, state.W, send, hp, *state.links)
        if model.project is not None:
            x = jax.vmap(model.project)(x)
        counts = jnp.sum(rows.weight > 0)
        info = Info(jnp.int32(n), jnp.sum(sent), counts)
        info = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.int32), info)
        return NetworkState(t + 1, x, state.W, tuple(links)), info, g, messages

    def _cancelling(self, keys: Keys, t: Array, like: Array, hp: Hyper) -> Array:
        """``sum_{j ~ i} v_ij``, v_ij = -v_ji, of each client i, (n, d); v_ij has a key of its own."""
        first, second = np.nonzero(np.triu(links(self.graph, like.shape[0])))
        if not first.size:
            return jnp.zeros_like(like)

        def shared(i: Array, j: Array) -> Array:
            key = jax.random.fold_in(jax.random.fold_in(at(keys.pairs, t), i), j)
            v: Array = hp["coupling"] * normal(key, self.mechanism, like[0], hp)
            return v

        v = jax.vmap(shared)(jnp.asarray(first), jnp.asarray(second))
        return jnp.zeros_like(like).at[first].add(v).at[second].add(-v)

    def output(self, state: NetworkState) -> Array:
        return jnp.mean(state.x, axis=0)

    def points(self, state: NetworkState) -> Array:
        """The points where gradients are evaluated, which all see: one for each client, (n, d)."""
        return state.x

    def rows_at_once(self, problem: Problem, hp: Hyper, elsewhere: bool) -> int:
        """The rows that a round reads at once."""
        return problem.n * hp.caps.get("batch", problem.m_max)

    def cohort(self, key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        """Everyone."""
        return self.participation.draw(streams(key).clients, t, n, hp)


document_all(__name__)
