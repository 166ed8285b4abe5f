"""The foundations: records, keys, errors, validation, schedules, files, arithmetic.

* :mod:`~jaxfl.core.batching` -- conditionals that stay cheap under vmap
* :mod:`~jaxfl.core.checks` -- validators of types, options and arrays
* :mod:`~jaxfl.core.errors` -- ``InputError``, and helpers that raise it
* :mod:`~jaxfl.core.files` -- reading files with readable errors, and replacing them atomically
* :mod:`~jaxfl.core.fusion` -- barriers against fusion by the compiler
* :mod:`~jaxfl.core.interrupts` -- a context manager that delays signals
* :mod:`~jaxfl.core.keys` -- threefry keys with unrolled rounds
* :mod:`~jaxfl.core.memory` -- free memory of a device
* :mod:`~jaxfl.core.params` -- validators of names and numbers
* :mod:`~jaxfl.core.products` -- products of samples with models
* :mod:`~jaxfl.core.progress` -- progress bars and lines
* :mod:`~jaxfl.core.schedules` -- hyper-parameters that change from round to round
* :mod:`~jaxfl.core.subsets` -- random subsets of ``range(size)``, at the cost of the subset
* :mod:`~jaxfl.core.types` -- the records of which algorithms and problems are composed
* :mod:`~jaxfl.core.version` -- the version of the package
"""
