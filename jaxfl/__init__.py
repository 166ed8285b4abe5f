"""A JAX simulator for private, compressed federated optimization.

>>> import jax, jaxfl
>>> data = jaxfl.data.split("digits", clients=10)
>>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
>>> run = jaxfl.simulate("soteriafl_sgd", problem, jax.random.key(0), 100, eps=5.0)
"""

from typing import TYPE_CHECKING, Any

from jaxfl import (
    aggregations,
    algorithms,
    channels,
    compressors,
    data,
    dropouts,
    estimators,
    graphs,
    hyper,
    iterates,
    local,
    mechanisms,
    models,
    momentum,
    plots,
    rounds,
    sampling,
    servers,
    sweeps,
    theory,
    views,
)
from jaxfl.algorithms import ALGORITHMS, algorithm, register
from jaxfl.errors import InputError
from jaxfl.problems import make_problem
from jaxfl.profiling import Profile, profile
from jaxfl.pure import functions
from jaxfl.run import Progress, Run, Stop, simulate
from jaxfl.schedules import schedule
from jaxfl.sweeps import sweep
from jaxfl.types import Algorithm, Problem
from jaxfl.version import __version__

if TYPE_CHECKING:  # imported by those who ask for them
    from jaxfl import privacy
    from jaxfl.privacy.questions import account, calibrate
    from jaxfl.results import load

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "InputError",
    "Problem",
    "Profile",
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
    "functions",
    "graphs",
    "hyper",
    "iterates",
    "load",
    "local",
    "make_problem",
    "mechanisms",
    "models",
    "momentum",
    "plots",
    "privacy",
    "profile",
    "register",
    "rounds",
    "sampling",
    "schedule",
    "servers",
    "simulate",
    "sweep",
    "sweeps",
    "theory",
    "views",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# accountants and result files are imported by those who ask for them: name -> (module, attribute)
LATER = {
    "account": ("jaxfl.privacy.questions", "account"),
    "calibrate": ("jaxfl.privacy.questions", "calibrate"),
    "load": ("jaxfl.results", "load"),
    "privacy": ("jaxfl.privacy", None),
}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module 'jaxfl' has no attribute {name!r}")
    import importlib

    where, attribute = LATER[name]
    module = importlib.import_module(where)
    return module if attribute is None else getattr(module, attribute)
