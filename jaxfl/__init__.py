"""A JAX simulator for private, compressed federated optimization.

>>> import jax, jaxfl
>>> data = jaxfl.data.split("digits", clients=10)
>>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
>>> run = jaxfl.simulate("soteriafl_sgd", problem, jax.random.key(0), 100, eps=5.0)
"""

from jaxfl import algorithms, data, privacy, rounds, types, views
from jaxfl.algorithms import theory
from jaxfl.algorithms.registry import ALGORITHMS, algorithm, register
from jaxfl.audit.questions import account, calibrate
from jaxfl.core.errors import InputError
from jaxfl.core.schedules import schedule
from jaxfl.core.types import Algorithm, Problem
from jaxfl.core.version import __version__
from jaxfl.engine import executors, trackers
from jaxfl.engine.callbacks import Evaluation
from jaxfl.engine.functions import functions
from jaxfl.engine.progress import Plan, Progress
from jaxfl.engine.results import load
from jaxfl.engine.simulate import Run, Stop, simulate
from jaxfl.engine.sweep import sweep
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
)
from jaxfl.problems import models
from jaxfl.problems.problem import make_problem
from jaxfl.views import plots

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Evaluation",
    "InputError",
    "Plan",
    "Problem",
    "Progress",
    "Run",
    "Stop",
    "__version__",
    "account",
    "aggregations",
    "algorithm",
    "algorithms",
    "calibrate",
    "channels",
    "compressors",
    "data",
    "dropouts",
    "estimators",
    "executors",
    "functions",
    "graphs",
    "iterates",
    "load",
    "local",
    "make_problem",
    "mechanisms",
    "models",
    "momentum",
    "plots",
    "privacy",
    "register",
    "rounds",
    "sampling",
    "schedule",
    "servers",
    "simulate",
    "sweep",
    "theory",
    "trackers",
    "types",
    "views",
]
