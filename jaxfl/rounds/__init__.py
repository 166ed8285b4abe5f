"""The two round bodies, over a server and over a network, and what a round releases.

* :mod:`~jaxfl.rounds.blocks` -- clients in blocks of bounded memory, their keys and their samples
* :mod:`~jaxfl.rounds.body` -- the parts of a round with a server, and what follows from all of
  them together
* :mod:`~jaxfl.rounds.estimates` -- clients' estimates: one evaluation per block where only the
  mean matters, else one per client
* :mod:`~jaxfl.rounds.federated` -- the round body with a server
* :mod:`~jaxfl.rounds.gossip` -- the round body of a network without a server: clients keep models
  and send messages to neighbours
* :mod:`~jaxfl.rounds.messages` -- clients' messages: noised, compressed, and added up
* :mod:`~jaxfl.rounds.plain` -- the round with a server as the papers write it, one client at a time:
  read this first
* :mod:`~jaxfl.rounds.transcript` -- build the privacy event of a round body
"""
