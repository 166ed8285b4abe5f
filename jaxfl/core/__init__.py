"""The foundations: records, keys, errors, validation, schedules, files, arithmetic.

* :mod:`~jaxfl.core.batching` -- control flow that stays cheap under vmap
* :mod:`~jaxfl.core.calls` -- calls of a user's functions, whose errors become one sentence
* :mod:`~jaxfl.core.checks` -- validators of types, options and arrays
* :mod:`~jaxfl.core.derivatives` -- derivatives of loops of traced length, and errors where there
  are none
* :mod:`~jaxfl.core.display` -- displays in notebooks: tables, small curves, equations, progress
* :mod:`~jaxfl.core.equations` -- the equations of docstrings as LaTeX
* :mod:`~jaxfl.core.errors` -- errors and warnings that users see, each one sentence
* :mod:`~jaxfl.core.files` -- reading files with readable errors, and replacing them atomically
* :mod:`~jaxfl.core.foreign` -- contexts for code of the user's own: imports of its modules, standard
  output, NumPy's error settings
* :mod:`~jaxfl.core.fusion` -- barriers against fusion by the compiler, and code for CPUs only
* :mod:`~jaxfl.core.hosts` -- arrays and numbers of the processes of `jax.distributed`, gathered on the host
* :mod:`~jaxfl.core.interrupts` -- a context manager that delays signals
* :mod:`~jaxfl.core.keys` -- the keys of rounds
* :mod:`~jaxfl.core.memory` -- the free memory of a device, and a check that a need fits into it
* :mod:`~jaxfl.core.meshes` -- arrays on the devices of a mesh, and settings of JAX
* :mod:`~jaxfl.core.normals` -- the noise of every mechanism: normal numbers with long tails
* :mod:`~jaxfl.core.params` -- validators of names and numbers: unknown names, ranges, whole
  numbers
* :mod:`~jaxfl.core.products` -- products of samples with models, in the order in which CPUs
  multiply fastest
* :mod:`~jaxfl.core.progress` -- progress: a bar on a terminal, a changing line in a notebook,
  lines in a log
* :mod:`~jaxfl.core.records` -- the fields of records, as the docstrings of their classes describe
  them
* :mod:`~jaxfl.core.schedules` -- hyper-parameters that change from round to round: step sizes,
  shifts, refresh probabilities
* :mod:`~jaxfl.core.secret` -- the base key of runs that are given no key, and the salt of digests
* :mod:`~jaxfl.core.subsets` -- random subsets of ``range(size)`` at a cost that follows the
  subset, not the size
* :mod:`~jaxfl.core.threefry` -- threefry keys with unrolled rounds: the bits of JAX's own, in fewer
  and larger programs
* :mod:`~jaxfl.core.types` -- the records of which algorithms and problems are composed
* :mod:`~jaxfl.core.version` -- the version of the package, where every module can read it
"""
