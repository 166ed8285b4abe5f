"""Published algorithms, each a composition of parts: one folder per paper, one function each.

* :mod:`~jaxfl.algorithms.registry` -- algorithms by name, and how to register one's own
* :mod:`~jaxfl.algorithms.composition` -- a round body and a rule for its hyper-parameters make an algorithm
* :mod:`~jaxfl.algorithms.clients` -- what rounds with a trusted server release about whole clients
* :mod:`~jaxfl.algorithms.budgets` -- a budget of privacy for each client
* :mod:`~jaxfl.algorithms.resolution` -- from a user's values to what a round reads
* :mod:`~jaxfl.algorithms.traced` -- hyper-parameters that the user's program traces
* :mod:`~jaxfl.algorithms.defaults` -- the defaults of hyper-parameters in words
* :mod:`~jaxfl.algorithms.numbers` -- helpers that the rules of all papers share
* :mod:`~jaxfl.algorithms.roles` -- the roles of an algorithm, and the types and names of their parts
* :mod:`~jaxfl.algorithms.trial` -- a trial of the user's own parts before anything is compiled
* :mod:`~jaxfl.algorithms.bounds` -- records and checks that convergence bounds share
* :mod:`~jaxfl.algorithms.paper` -- the record ``PAPER`` that each paper's folder declares

Every folder is one paper, or one kind of comparators; :data:`~jaxfl.algorithms.registry.PAPERS` has them.
"""
