"""The parts that algorithms are composed of; each is a record of pure functions.

* :mod:`~jaxfl.parts.accelerated` -- servers of ISRL-DP: accelerated stochastic approximation, and
  steps with weighted averaging
* :mod:`~jaxfl.parts.aggregations` -- the sum of the messages, and nothing else of them: secure
  aggregation on the ring Z / 2^32
* :mod:`~jaxfl.parts.channels` -- what both ends of a link remember of earlier messages
* :mod:`~jaxfl.parts.codes` -- codes: what travels in place of numbers that are all sent
* :mod:`~jaxfl.parts.compressors` -- compressors: E C(v) = v and E |C(v) - v|^2 <= omega |v|^2,
  where they say nothing else
* :mod:`~jaxfl.parts.dropouts` -- secure aggregation played through, message by message, also
  where clients drop out
* :mod:`~jaxfl.parts.estimators` -- local gradient estimators: weightings of per-example
  gradients, and what they remember
* :mod:`~jaxfl.parts.graphs` -- who talks to whom: mixing matrices of a network without a server
* :mod:`~jaxfl.parts.iterates` -- servers that keep more than the last model: averages, and
  iterates drawn at random
* :mod:`~jaxfl.parts.local` -- what a client runs in place of one estimate: tau optimizer steps on
  its own samples
* :mod:`~jaxfl.parts.localization` -- localization: a run in phases over disjoint data, ever
  closer to where it stands
* :mod:`~jaxfl.parts.mechanisms` -- noise that makes one client's estimate private, at the client
  or at a trusted server
* :mod:`~jaxfl.parts.momentum` -- estimators that correct an earlier estimate by differences of
  gradients
* :mod:`~jaxfl.parts.sampling` -- who takes part in a round, and which of its rows a client draws
* :mod:`~jaxfl.parts.servers` -- what the server does with the estimate v of the gradient
* :mod:`~jaxfl.parts.sketches` -- codes of the whole vector: an absolute error, a biased choice, a
  linear sketch
* :mod:`~jaxfl.parts.smoothing` -- nonsmooth losses made smooth: Moreau envelope and convolution,
  as transforms of an estimator
* :mod:`~jaxfl.parts.storage` -- what clients remember, in fewer bits than what a round computes
  with
"""
