"""The parts of a round with a server, and what follows from all of them together."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.calls import asked
from jaxfl.core.records import document_all
from jaxfl.core.types import (
    Aggregation,
    Array,
    Channel,
    Compressor,
    Estimator,
    Local,
    Mechanism,
    Participation,
    PyTree,
    Server,
    in_a_sum,
)
from jaxfl.parts.mechanisms import noiseless

__all__ = ["Body", "ServerState"]


class ServerState(NamedTuple):
    """The state between rounds with a server.

    Fields:
        t: the number of the next round, ().
        server: the server's state.
        link: the server's end of the channel.
        links: the clients' ends, leaves (n, ...).
        shared: what the estimator or local procedure remembers for all clients.
        local: what it remembers of each client, leaves (n, ...).
        bases: what is added to each client's estimates, (n, d); None: nothing, or only ``base`` is kept.
        base: the mean of ``bases``, (d,), where no more is needed; None: elsewhere.
        noise: what the noise of the mean remembers; None: nothing.
    """

    t: Array
    server: PyTree
    link: PyTree
    links: PyTree
    shared: PyTree
    local: PyTree
    bases: Array | None = None
    base: Array | None = None
    noise: PyTree = None


class Body(NamedTuple):
    """The parts of :class:`jaxfl.parts.Federated`.

    Fields:
        estimator: which of a client's samples are weighed how, and at which points.
        mechanism: the noise on a client's estimate.
        compressor: what travels of a message.
        channel: what both ends remember of it.
        server: what the mean of the messages does to the model.
        participation: who takes part.
        clip: "example"; or "batch": the mean of a batch, which one record may change completely; or
            "client": the same, where all records of a client are protected together.
        noise: "fused": one draw of the noise of the mean where only the mean matters; or "per_client".
        local: what a client runs instead of one estimate; None: one estimate.
        aggregation: how the server gets the sum of the messages; None: it adds them up.
        storage: in which clients keep vectors: "exact", the precision of the model; or "bfloat16",
            "float16".
        messages: whether every message is computed, also where only their mean matters.
        clipping: "hard", ``g min(1, G/|g|)``; or "smooth", ``g G/(G + |g|)``.
    """

    estimator: Estimator
    mechanism: Mechanism
    compressor: Compressor
    channel: Channel
    server: Server
    participation: Participation
    clip: str = "example"
    noise: str = "fused"
    local: Local | None = None
    aggregation: Aggregation | None = None
    storage: str = "exact"
    messages: bool = False
    clipping: str = "hard"

    @property
    def linear(self) -> bool:
        """Whether the server's estimate is a function of the mean of the clients' estimates."""
        any_cohort = self.participation.everyone or not self.channel.remembers
        return self.compressor.exact and self.channel.linear and any_cohort

    @property
    def fused(self) -> bool:
        """Whether a round is one evaluation over all drawn samples, with one draw of the mean's noise."""
        whole = self.local is None and self.aggregation is None and not self.messages
        gaussian = self.mechanism.draw is Mechanism._field_defaults["draw"]
        return whole and gaussian and self.linear and self.clip == "example"

    @property
    def regularizer_apart(self) -> bool:
        """Whether the server adds the public regularizer's gradient to the sum of the messages.

        Under an aggregation messages are then shorter, and fewer coordinates are clamped.
        """
        aggregated = self.local is None and self.aggregation is not None
        return aggregated and self.linear and self.clip == "example"

    @property
    def pooled(self) -> bool:
        """Whether the round needs only the mean over clients of the estimator's ``base``."""
        return self.fused and self.participation.everyone

    @property
    def packs(self) -> bool:
        """Whether the round packs the rows of all clients, see :mod:`jaxfl.rounds.estimates`."""
        estimator = self.estimator
        plain = estimator.gradient.jitter is None and estimator.memory.follow is None
        return self.fused and plain and estimator.sampler.strips

    @property
    def roles(self) -> dict[str, Any]:
        """The parts by their roles; None where there is none."""
        sampler = {"estimator": self.estimator, "sampler": self.estimator.sampler}
        names = "mechanism compressor channel server participation local aggregation"
        return {**sampler, **{role: getattr(self, role) for role in names.split()}}

    @property
    def remembers(self) -> bool:
        """Whether messages depend on earlier ones."""
        return self.channel.remembers

    def growth(self, omega: float) -> tuple[float, float] | None:
        """The factors by which messages exceed estimates, in length and in noise; None: unknown."""
        found: tuple[float, float] | None = asked(self.channel, "growth", omega)
        return found

    @property
    def mirrors(self) -> bool:
        """Whether the server keeps the mean of what clients remember."""
        return self.channel.mirrors

    @property
    def keeps(self) -> bool:
        """Whether clients keep vectors, which may be stored in fewer bits."""
        links, _ = jax.eval_shape(lambda: self.channel.init(1, jnp.zeros(1), self.fused))
        table = self.local is None and self.estimator.memory.table is not None
        return table or bool(jax.tree.leaves(links))

    @property
    def recalls(self) -> bool:
        """Whether the noise of each client remembers something."""
        drawn_once = self.fused and self.noise == "fused"
        return not drawn_once and (self.own.shows or self.own.recursion is not None)

    @property
    def broadcasts(self) -> int:
        """Vectors that the server sends to a client in a round."""
        return 1 if self.local is None else self.local.broadcasts

    @property
    def own(self) -> Mechanism:
        """The noise that a client adds to its message."""
        mechanism = self.mechanism
        elsewhere = self.local is not None or mechanism.central or mechanism.draw is in_a_sum
        return noiseless() if elsewhere else mechanism


document_all(__name__)
