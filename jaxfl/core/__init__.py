"""What everything stands on: records, keys, errors, validation, schedules, files, arithmetic.

* :mod:`~jaxfl.core.batching` -- control flow that stays cheap under vmap
* :mod:`~jaxfl.core.checks` -- checks of what a user hands over, before anything is computed: one
  sentence each
* :mod:`~jaxfl.core.errors` -- the one error that a user is meant to read
* :mod:`~jaxfl.core.files` -- files that appear whole or not at all: written beside their place,
  synced, renamed
* :mod:`~jaxfl.core.fusion` -- what the compiler had better not fuse
* :mod:`~jaxfl.core.interrupts` -- lines that no signal interrupts
* :mod:`~jaxfl.core.keys` -- threefry keys whose rounds are written out: the bits of JAX's own, in
  fewer and larger programs
* :mod:`~jaxfl.core.memory` -- how many bytes are free on a device
* :mod:`~jaxfl.core.params` -- the one validator of hyper-parameters: ranges, whole numbers,
  unknown names
* :mod:`~jaxfl.core.products` -- products of samples with models, in the order in which CPUs
  multiply fastest
* :mod:`~jaxfl.core.progress` -- how far something is: a bar on a terminal, a line that changes in
  a notebook, lines in a log
* :mod:`~jaxfl.core.schedules` -- numbers that change from round to round: step sizes, shifts,
  refresh probabilities
* :mod:`~jaxfl.core.subsets` -- random subsets of ``range(size)`` at a cost that follows the
  subset, not the size
* :mod:`~jaxfl.core.types` -- the records that everything is composed of, and nothing else
* :mod:`~jaxfl.core.version` -- the version of the package, where every module can read it
"""
