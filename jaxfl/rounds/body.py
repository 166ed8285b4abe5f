"""The parts of a round with a server, and what they say together of how it can be computed."""

from __future__ import annotations

from typing import NamedTuple

from jaxfl.core.types import (
    Aggregation,
    Channel,
    Compressor,
    Estimator,
    Local,
    Mechanism,
    Participation,
    Server,
)
from jaxfl.parts.mechanisms import noiseless

__all__ = ["Body"]


class Body(NamedTuple):
    """What :class:`jaxfl.rounds.Federated` computes rounds with."""

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
    messages: bool = False  # whether rounds go client by client also where only the mean matters

    @property
    def linear(self) -> bool:
        """Whether the server's estimate is a function of the mean of what clients compute."""
        stays = self.participation.everyone or not self.channel.remembers
        return self.compressor.exact and self.channel.linear and stays

    @property
    def fused(self) -> bool:
        """Whether a round is one evaluation over all drawn samples."""
        whole = self.local is None and self.aggregation is None and not self.messages
        return whole and self.linear and self.clip == "example"

    @property
    def apart(self) -> bool:
        """Whether the public regularizer joins the sum of the messages, which encode less without it."""
        hidden = self.local is None and self.aggregation is not None
        return hidden and self.linear and self.clip == "example"

    @property
    def pooled(self) -> bool:
        """Whether the estimator needs no more than the mean of what it adds to each client's."""
        return self.fused and self.participation.everyone

    @property
    def packs(self) -> bool:
        """Whether rows of all clients are read one after the other, see :mod:`jaxfl.rounds.packing`."""
        plain = self.estimator.jitter is None and self.estimator.follow is None
        return self.fused and plain and self.estimator.sampler.strips

    @property
    def uploads(self) -> int:
        """Messages that a client sends in a round."""
        return 1

    @property
    def broadcasts(self) -> int:
        """Vectors that the server sends to a client in a round."""
        return 1 if self.local is None else self.local.broadcasts

    @property
    def own(self) -> Mechanism:
        """The noise that a client adds to its message."""
        elsewhere = self.local is not None or self.mechanism.central
        return noiseless() if elsewhere else self.mechanism
