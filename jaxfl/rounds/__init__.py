"""The two round bodies, over a server and over a network, and what a round releases.

* :mod:`~jaxfl.rounds.blocks` -- clients in blocks of bounded memory, their keys and their samples
* :mod:`~jaxfl.rounds.body` -- the parts of a round with a server, and what they say together of
  how it can be computed
* :mod:`~jaxfl.rounds.estimates` -- what clients compute from their samples: all of a block at
  once if only the mean matters, or each
* :mod:`~jaxfl.rounds.federated` -- the round bodies: the only places where parts become an
  algorithm
* :mod:`~jaxfl.rounds.gossip` -- the round body of a network without a server: every client has a
  model, and talks to neighbours
* :mod:`~jaxfl.rounds.messages` -- what clients send: noised, compressed, and added up
* :mod:`~jaxfl.rounds.packing` -- rows of all clients one after the other, where clients draw more
  or fewer of them by chance
* :mod:`~jaxfl.rounds.transcript` -- what the rounds of a body release, as accountants read it
"""

from jaxfl.rounds.federated import Federated
from jaxfl.rounds.gossip import Gossip

__all__ = ["Federated", "Gossip"]
