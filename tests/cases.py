"""What the record of numbers runs: every algorithm alone and in a sweep, and for a few of them
every way to run one [:mod:`record`]."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from rows import ROWS, Row, a_convex_problem, a_network, a_problem

import jaxfl
from jaxfl.core.types import Problem

ROUNDS, HALF, EVERY = 6, 3, 2
KEY = (0, 11)  # the words of the key of every run
SEEDS = (0, 3)
SIGMA = 0.5  # so large that a change of 1e-4 of the noise changes what is recorded
STUDIED = (
    "ldp_sgd",
    "soteriafl_sgd",
    "soteriafl_saga",
    "private_local_sgd",
    "sdm_dsgd",
    "clip21_sgd2m",
    "dp_sgd",
)
SWEPT = ("ldp_sgd", "soteriafl_sgd", "private_local_sgd")
DRAWN = tuple(row.name for row in ROWS if row.quick)  # of whom draws are recorded
RANGED = ("soteriafl_sgd", "soteriafl_saga")  # whose messages have no bound of their own
FIRST = "ldp_sgd"  # with what one algorithm shows for all
COMPRESSED = ("soteriafl_sgd", "sdm_dsgd")
SAMPLED = ("ldp_sgd", "private_local_sgd")  # of whom every participation and sampler is recorded
QUICK = (  # one of each kind of body, estimator, local procedure and way
    "ldp_sgd/run",
    "ldp_sgd/sweep",
    "soteriafl_sgd/run",
    "soteriafl_sgd/sweep",
    "soteriafl_sgd/resumed",
    "soteriafl_saga/run",
    "soteriafl_svrg/run",
    "private_local_sgd/run",
    "sdm_dsgd/run",
    "sdm_dsgd/sweep",
    "clip21_sgd2m/run",
    "dice_sgd/run",
    "dp_sgd/run",
    "dp_sgd/stop=bits",
    "localized_mbsgd/run",
    "mu2_trusted/run",
)


class Case(NamedTuple):
    """One call of ``simulate`` or ``sweep``, or what several do together."""

    name: str  # algorithm/what, unique
    algorithm: str
    how: str  # a function of `record.WAYS`
    numbers: dict[str, Any]  # hyper-parameters
    parts: Mapping[str, Any] = MappingProxyType({})  # in place of the algorithm's own
    problem: str = "usual"
    options: Mapping[str, Any] = MappingProxyType({})  # of simulate or sweep
    grid: Mapping[str, Any] = MappingProxyType({})  # of a sweep
    rounds: int = ROUNDS

    @property
    def double(self) -> bool:
        return self.problem == "double"


def clients(seed: int = 1) -> Any:
    """Four clients of very different size, with test records."""
    rng = np.random.default_rng(seed)
    sizes = (6, 9, 14, 30)
    made = [
        (rng.normal(size=(m, 5)).astype(np.float32), rng.integers(0, 2, m).astype(np.int32))
        for m in sizes
    ]
    test = (rng.normal(size=(24, 5)).astype(np.float32), rng.integers(0, 2, 24).astype(np.int32))
    return jaxfl.data.from_clients(made, test=test, classes=2)


FOUR: dict[str, dict[str, Any]] = {  # of the four clients of very different size
    "double": {"x0": np.ones(5) / 3, "dtype": "float64"},
    "sizes": {"x0": np.ones(5) / 4, "weights": "samples"},
    "weights": {"x0": np.ones(5) / 4, "weights": [1, 2, 3, 1]},
    "validation": {"validation_share": 0.5},
    "sampled": {"eval_records": 4},
}


@functools.cache
def problem_of(name: str) -> Problem:
    """A problem by its name; ``n,m`` is the one of `rows.py` with clients of this number and size."""
    if name in FOUR:
        model = jaxfl.models.logistic(5, regularizer="l2:0.1")
        return jaxfl.Problem(model, clients(), **FOUR[name])
    if name in ("convex", "network"):
        return a_convex_problem() if name == "convex" else a_network()
    n, m = (5, 12) if name == "usual" else map(int, name.split(","))
    return a_problem(n=n, m=m)


def numbers_of(row: Row) -> dict[str, Any]:
    """Those of the common table, with more noise."""
    return {**row.numbers, **({"sigma": SIGMA} if "sigma" in row.numbers else {})}


def of_row(row: Row) -> Iterator[Case]:
    """An algorithm alone, and two settings of it with two seeds."""
    problem = "convex" if row.convex else "usual" if (row.n, row.m) == (5, 12) else ""
    problem, numbers = problem or f"{row.n},{row.m}", numbers_of(row)
    yield Case(f"{row.name}/run", row.name, "run", numbers, problem=problem)
    value = numbers[row.axis]
    grid = {row.axis: [value, value / 2]}
    rest = {name: number for name, number in numbers.items() if name != row.axis}
    yield Case(f"{row.name}/sweep", row.name, "sweep", rest, problem=problem, grid=grid)


def of_execution(name: str, numbers: dict[str, Any]) -> Iterator[Case]:
    """Other ways to the numbers of one run, and runs that end or are seen in another way."""
    stops = {
        "loss": dict(loss=0.8),
        "bits": dict(bits=1000),
        "gradients": dict(gradients=50),
        "noisy": dict(loss=0.9, bound=2.0, sigma=0.1),
    }
    for what, stop in stops.items():
        yield Case(f"{name}/stop={what}", name, "run", numbers, options={"stop": stop})
    held = {"metrics_on": "test", "stop": dict(loss=0.8)}
    yield Case(f"{name}/stop=test", name, "run", numbers, options=held)
    for how in ("resumed", "extended", "functions", "messages"):
        yield Case(f"{name}/{how}", name, how, numbers)
    options: dict[str, dict[str, Any]] = {
        "metrics_on=test": {"metrics_on": "test"},
        "eval_every=0": {"eval_every": 0},
        "eval_every=usual": {"eval_every": None},
        **({"matmul_precision": {"matmul_precision": "highest"}} if name == FIRST else {}),
    }
    for what, more in options.items():
        yield Case(f"{name}/{what}", name, "run", numbers, options=more)
    few = {k: min(v, 3) if k == "k" else v for k, v in numbers.items()}
    more = ("weights", "sampled", "network") if name == FIRST else ()
    for problem in ("sizes", "double", *more):
        yield Case(f"{name}/problem={problem}", name, "run", few, problem=problem)
    if name == FIRST:
        on, what = {"metrics_on": "validation"}, "metrics_on=validation"
        yield Case(f"{name}/{what}", name, "run", few, problem="validation", options=on)


def of_numbers(name: str, numbers: dict[str, Any]) -> Iterator[Case]:
    """Schedules, and noise for an eps by an accountant or by a formula."""
    for lr in ("cosine:0.3", "pieces:0.3,2,0.1,4"):
        yield Case(f"{name}/lr={lr}", name, "run", {**numbers, "lr": lr})
    asked = {k: v for k, v in numbers.items() if k != "sigma"} | {"eps": 3.0, "delta": 1e-3}
    for noise in ("calibrated", "paper"):
        yield Case(f"{name}/noise={noise}", name, "run", asked, options={"noise": noise})
    theory = {k: v for k, v in asked.items() if k != "lr"}
    yield Case(f"{name}/lr of the theory", name, "run", theory)


def of_parts(name: str, numbers: dict[str, Any]) -> Iterator[Case]:
    """Every part that an option names, where the algorithm takes it."""
    cohort, ring = {"cohort": 3}, {"range": 64.0} if name in RANGED else {}
    free = {k: v for k, v in numbers.items() if k != "k"}
    table: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "noise": [("per_client", numbers)],
        "storage": [("bfloat16", numbers), ("float16", numbers)],
        "participation": [("uniform", numbers | cohort), ("poisson", numbers | cohort)],
        "aggregation": [
            ("plain_sum", numbers),
            ("secure_sum", numbers | ring | {"colluding": 1}),
            ("masked_sum", numbers | ring),
        ],
        "clip": [("batch", numbers), ("batch", numbers | {"gradient_bound": 9.0})],
        "graph": [("ring", numbers)],
    }
    if name in SAMPLED:
        table["participation"] += [
            ("balanced", numbers | cohort),
            ("unreliable", numbers | cohort | {"dropout": 0.3, "threshold": 2}),
        ]
        table["sampler"] = [
            ("full", {k: v for k, v in numbers.items() if k != "batch"}),
            ("with_replacement", numbers),
            ("without_replacement", numbers),
            ("shuffled", numbers),
        ]
    if name in COMPRESSED:
        table["compressor"] = [
            ("identity", free),
            ("bernoulli", free | {"k": 3}),
            ("qsgd+random_k", free | {"levels": 4, "k": 3}),
            ("count_sketch", free),
            ("top_k", free | {"k": 3}),
        ]
    for role, parts in table.items():
        for part, given in parts:
            more = given.keys() - numbers.keys()
            words = ",".join([f"{role}={part}", *sorted(more - {"cohort"})])
            yield Case(f"{name}/{words}", name, "run", given, {role: part})


def of_sweeps(name: str, numbers: dict[str, Any]) -> Iterator[Case]:
    """Every way to run a grid."""
    rest = {k: v for k, v in numbers.items() if k != "lr"}
    grid = {"lr": [0.2, 0.1]}
    asked = {k: v for k, v in rest.items() if k != "sigma"} | {"delta": 1e-3, "lr": 0.1}

    def case(what: str, **more: Any) -> Case:
        how = more.pop("how", "sweep")
        given = {"numbers": rest, "grid": grid, **more}
        return Case(f"{name}/sweep, {what}", name, how, **given)

    yield case("unpaired", options={"paired": False})
    yield case("one run at once", options={"runs_at_once": 1})
    for how in ("resumed", "extended"):
        yield case(how, how=f"sweep {how}")
    if name != FIRST:
        return
    yield case("by eps", grid={"eps": [1.0, 4.0]}, numbers=asked)
    yield case("paper", grid={"eps": [1.0, 4.0]}, numbers=asked, options={"noise": "paper"})
    yield case("rounds", grid={"rounds": [3, 6], **grid})
    yield case("schedules", grid={"lr": [0.2, "cosine:0.3"]})
    yield case("participation", grid={"participation": ["everyone", "uniform"], **grid})
    yield case("algorithms", grid={"algorithm": [name, "fedavg"], **grid})
    yield case("problems", problem="usual+sizes")
    yield case("processes", options={"executor": "processes:1"})


@functools.cache
def cases() -> dict[str, Case]:
    """All of them by name."""
    found: list[Case] = []
    for row in ROWS:
        found += of_row(row)
        if row.name in STUDIED:
            for table in (of_execution, of_numbers, of_parts):
                found += table(row.name, numbers_of(row))
        if row.name in SWEPT:
            found += of_sweeps(row.name, numbers_of(row))
    by_name = {case.name: case for case in found}
    assert len(by_name) == len(found)
    return by_name
