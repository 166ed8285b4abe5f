"""A JAX simulator for private, compressed federated optimization.

>>> import jax, jaxfl
>>> data = jaxfl.data.split("digits", clients=10)
>>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
>>> run = jaxfl.simulate("soteriafl_sgd", problem, jax.random.key(0), 100, eps=5.0)

These names, and those of ``data``, ``models``, ``parts``, ``privacy``, ``testing``, ``theory`` and
``views``, are public; all else may change.
"""

from jaxfl import data, models, parts, privacy, testing, theory, views
from jaxfl.algorithms.registry import ALGORITHMS, algorithm, register
from jaxfl.audits.attack import audit
from jaxfl.audits.questions import account, calibrate
from jaxfl.core.errors import InputError
from jaxfl.core.version import __version__
from jaxfl.engine.functions import functions
from jaxfl.engine.results import load
from jaxfl.engine.simulate import Run, simulate
from jaxfl.engine.sweep import sweep
from jaxfl.problems.problem import Problem

__all__ = [
    "ALGORITHMS",
    "InputError",
    "Problem",
    "Run",
    "__version__",
    "account",
    "algorithm",
    "audit",
    "calibrate",
    "data",
    "functions",
    "load",
    "models",
    "parts",
    "privacy",
    "register",
    "simulate",
    "sweep",
    "testing",
    "theory",
    "views",
]
