"""The parts that algorithms are composed of; each is a record of pure functions.

* :mod:`~jaxfl.parts.accelerated` -- servers of ISRL-DP: accelerated stochastic approximation, and
  steps with weighted averaging
* :mod:`~jaxfl.parts.adaptive` -- a clip that adapts to a quantile of what it clips, by bits that are
  released with the messages
* :mod:`~jaxfl.parts.aggregations` -- aggregations: the server learns the sum of the messages;
  secure ones on the ring Z / 2^32
* :mod:`~jaxfl.parts.channels` -- channels: the memory of earlier messages at both ends of a link
* :mod:`~jaxfl.parts.compressors` -- compressors: sparsifiers, codes, and their compositions
* :mod:`~jaxfl.parts.dropouts` -- the protocol of secure aggregation, message by message, where
  clients may drop out
* :mod:`~jaxfl.parts.estimators` -- local gradient estimators: weightings of per-example
  gradients, and their memory
* :mod:`~jaxfl.parts.graphs` -- graphs: mixing matrices of a network without a server
* :mod:`~jaxfl.parts.iterates` -- servers whose output is not the last iterate: averages, and
  iterates drawn at random
* :mod:`~jaxfl.parts.local` -- local procedures: tau optimizer steps of a client on its own
  samples, in place of one estimate
* :mod:`~jaxfl.parts.localization` -- localization: a run in phases over disjoint data, in smaller
  and smaller balls
* :mod:`~jaxfl.parts.mechanisms` -- noise that makes one client's estimate private, at the client
  or at a trusted server
* :mod:`~jaxfl.parts.momentum` -- estimators that correct an earlier estimate by differences of
  gradients
* :mod:`~jaxfl.parts.rings` -- integer noise inside a secure sum: rotate, round within a norm, add
  integers, wrap around the ring
* :mod:`~jaxfl.parts.sampling` -- participations, which choose the clients of a round, and
  samplers, which draw a client's rows
* :mod:`~jaxfl.parts.servers` -- servers: steps with the estimate v of the gradient
* :mod:`~jaxfl.parts.smoothing` -- smoothing of nonsmooth losses: Moreau envelope and convolution,
  as transforms of an estimator
* :mod:`~jaxfl.parts.storage` -- storage of clients' memory in fewer bits than rounds compute with

Records of parts, round bodies and :func:`compose` have their names here as well::

    from jaxfl.parts import Federated, Param, Server, compose, compressors, mechanisms
"""

import importlib
from typing import Any

from jaxfl.core.schedules import schedule
from jaxfl.core.types import (
    Aggregation,
    Algorithm,
    Channel,
    Compressor,
    Draw,
    Estimator,
    Gradient,
    Hyper,
    Local,
    Mechanism,
    Memory,
    Message,
    Model,
    Param,
    Participation,
    Sampler,
    Server,
)
from jaxfl.parts import (
    aggregations,
    channels,
    compressors,
    dropouts,
    estimators,
    graphs,
    iterates,
    local,
    mechanisms,
    momentum,
    sampling,
    servers,
    smoothing,
)

__all__ = [
    "Aggregation",
    "Algorithm",
    "Channel",
    "Compressor",
    "Draw",
    "Estimator",
    "Federated",
    "Gossip",
    "Gradient",
    "Hyper",
    "Local",
    "Mechanism",
    "Memory",
    "Message",
    "Model",
    "Param",
    "Participation",
    "Plain",
    "Sampler",
    "Sent",
    "Server",
    "aggregations",
    "channels",
    "compose",
    "compressors",
    "dropouts",
    "estimate",
    "estimators",
    "graphs",
    "iterates",
    "local",
    "mechanisms",
    "momentum",
    "plain",
    "sampling",
    "schedule",
    "servers",
    "smoothing",
    "with_budgets",
]

# These names lie in rooms that import this one: they are imported when they are first read, and
# __init__.pyi has their types.
ABOVE = {
    "Federated": "jaxfl.rounds.federated",
    "Gossip": "jaxfl.rounds.gossip",
    "Plain": "jaxfl.rounds.plain",
    "Sent": "jaxfl.rounds.messages",
    "compose": "jaxfl.algorithms.composition",
    "estimate": "jaxfl.rounds.plain",
    "plain": "jaxfl.algorithms.numbers",
    "with_budgets": "jaxfl.algorithms.budgets",
}


def __getattr__(name: str) -> Any:
    if name not in ABOVE:
        raise AttributeError(f"module 'jaxfl.parts' has no attribute {name!r}")
    return getattr(importlib.import_module(ABOVE[name]), name)
