"""Sweeps with known values: what :func:`jaxfl.sweep` makes, from formulas instead of runs.

With step size h, omega w and privacy eps, seed s of S, the squared gradient norm at round t is

    (floor + 0.8 exp(-h t / (4 + w))) (1 + spread (s - (S-1)/2)),
    floor = 0.02 (1 + a/2) (1 + w/5) (0.3 + h) / eps,

where a counts the algorithms; w = 0 where omega does not apply.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray

from jaxfl.engine.results import LABELS

N, D = 10, 120  # clients, parameters
BITS = 64  # per coordinate
EVERY = 5
AXES = {"eps": (1.0, 5.0), "omega": (1.0, 9.0), "lr": (0.1, 0.3, 1.0)}
LACKS = {"ldp_sgd": ("omega",), "fedsgd": ("omega", "eps")}  # which axes an algorithm has not
METRICS = ("loss", "grad_norm_sq", "worst_client_loss", "accuracy", "test_loss", "test_accuracy")
ELSE = {"lr": 0.3, "omega": 0.0, "eps": 1.0}  # where a sweep has no such axis
NUMBERS = ("used_lr", "used_sigma", "used_omega", "proven_eps", "claimed_eps", "delta",
           "delta_at_claimed", "tried", "eps_of_choice", "broken")  # fmt: skip
TOTALS = ("messages", "coordinates", "gradients", "uplink_bits", "downlink_bits")


def grad_norm_sq(t: Any, cell: Mapping[str, Any], a: int, s: int, seeds: int, spread: float) -> Any:
    """The formula above."""
    h, w, eps = (float(cell.get(name, other)) for name, other in ELSE.items())
    floor = 0.02 * (1 + a / 2) * (1 + w / 5) * (0.3 + h) / eps
    level = floor + 0.8 * np.exp(-h * np.asarray(t) / (4 + w))
    return level * (1 + spread * (s - (seeds - 1) / 2))


def grid(
    axes: Mapping[str, Sequence[Any]] = AXES,
    *,
    algorithms: Sequence[str] = ("soteriafl_sgd", "ldp_sgd"),
    static: Sequence[str] = (),
    problems: Sequence[str] = ("problem", "data", "clients", "model"),
    seeds: int = 3,
    spread: float = 0.02,
    rounds: Sequence[int] = (20, 40),
    diverged: Mapping[str, Any] | None = None,
    missing: Mapping[str, Any] | None = None,
    paired: bool = True,
    **settings: Any,
) -> xarray.Dataset:
    """A sweep over ``axes``; the i-th eps (or the first cell) has the i-th number of ``rounds``.

    ``diverged`` and ``missing`` are labels of cells: the last seed of those that match diverged at
    round 10, and those that match are not run yet.
    """
    names = ("algorithm", *axes)
    values = {"algorithm": list(algorithms), **{name: list(v) for name, v in axes.items()}}
    shape = tuple(len(values[name]) for name in names)
    evaluated = np.arange(0, max(rounds) + 1, EVERY)
    data: dict[str, Any] = {
        name: np.full((*shape, seeds, len(evaluated)), np.nan)
        for name in (*METRICS, "utility", *TOTALS)
    }
    last = np.zeros((*shape, seeds), np.int32)
    lost = np.full((*shape, seeds), np.nan)
    complete = np.ones((*shape, seeds), np.int8)
    cells = {name: np.full(shape, np.nan) for name in NUMBERS}
    flag, noisy = np.zeros(shape, np.int8), np.ones(shape, np.int8)
    for where in itertools.product(*(range(size) for size in shape)):
        cell = {name: values[name][i] for name, i in zip(names, where, strict=True)}
        lacks = LACKS.get(cell["algorithm"], ())
        seen = {name: v if name not in lacks else values[name][0] for name, v in cell.items()}
        real = {name: v for name, v in cell.items() if name not in lacks}
        place = values["eps"].index(seen["eps"]) if "eps" in values else 0
        total = rounds[min(place, len(rounds) - 1)]
        fill(data, where, seen, real, total, evaluated, seeds, spread)
        last[where] = total
        w = float(real.get("omega", 0.0))
        private = "eps" not in lacks
        eps = float(real.get("eps", 1.0)) if private else math.inf
        cells["used_lr"][where] = np.nan if isinstance(lr := real.get("lr", 0.3), str) else lr
        cells["used_sigma"][where] = 0.3 / eps if private else 0.0
        cells["used_omega"][where] = w
        cells["proven_eps"][where] = 1.05 * eps if private and w > 5 else eps
        cells["claimed_eps"][where] = eps if private else np.nan
        cells["delta"][where], cells["delta_at_claimed"][where] = 1e-3, 1e-3
        flag[where] = private and w > 5
        tried = seeds * math.prod(len(axes[name]) for name in ("lr", "shift") if name in real)
        if private:  # each run as much again
            cells["tried"][where], cells["eps_of_choice"][where] = tried, tried * eps
        noisy[where] = private
        if matches(seen, missing):
            complete[where] = 0
            for array in data.values():
                array[where] = np.nan
        elif matches(seen, diverged):
            lost[(*where, -1)] = 10
            for name in (*METRICS, "utility"):
                data[name][(*where, -1, evaluated >= 10)] = np.nan
    return labelled(
        names, values, static, problems, evaluated, data, last, lost, complete, cells, flag, noisy,
        paired, settings,
    )  # fmt: skip


def matches(cell: Mapping[str, Any], labels: Mapping[str, Any] | None) -> bool:
    return labels is not None and all(cell[name] == value for name, value in labels.items())


def fill(
    data: Any, where: Any, seen: Any, real: Any, total: int, evaluated: Any, seeds: int, spread: Any
) -> None:
    """The series of one cell."""
    here = evaluated <= total
    t = evaluated[here]
    w = float(real.get("omega", 0.0))
    numeric = {name: v for name, v in real.items() if not isinstance(v, str)}
    messages = N * t.astype(np.float64)
    coordinates = messages * round(D / (1 + w))
    totals = (messages, coordinates, 32 * messages, BITS * coordinates, BITS * D * messages)
    a = {"soteriafl_sgd": 0, "ldp_sgd": 1}.get(seen["algorithm"], 2)
    for s in range(seeds):
        g = grad_norm_sq(t, numeric, a, s, seeds, spread)
        series = {
            "loss": 0.6 + g,
            "grad_norm_sq": g,
            "worst_client_loss": 0.7 + g,
            "accuracy": 0.95 - 0.3 * g,
            "test_loss": 0.62 + g,
            "test_accuracy": 0.93 - 0.3 * g,
            "utility": np.cumsum(g) / np.arange(1, len(g) + 1),
            **dict(zip(TOTALS, totals, strict=True)),
        }
        for name, numbers in series.items():
            data[name][(*where, s, here)] = numbers


def labelled(
    names: Any, values: Any, static: Any, problems: Any, evaluated: Any, data: Any, last: Any,
    lost: Any, complete: Any, cells: Any, flag: Any, noisy: Any, paired: bool, settings: Any,
) -> xarray.Dataset:  # fmt: skip
    """Arrays with their dimensions, units and the sweep's account of itself."""
    seeds = last.shape[-1]
    series, seeded = (*names, "seed", "round"), (*names, "seed")
    variables: dict[str, Any] = {name: (series, array) for name, array in data.items()}
    variables |= {name: (names, array) for name, array in cells.items()}
    variables |= {"last_round": (seeded, last), "diverged_at": (seeded, lost)}
    variables |= {"complete": (seeded, complete), "flag": (names, flag), "noisy": (names, noisy)}
    shape = [len(values[name]) for name in names]
    n = np.full(shape, N, np.int32)
    if "clients" in names:
        along = [-1 if name == "clients" else 1 for name in names]
        n = np.broadcast_to(np.array(values["clients"], np.int32).reshape(along), shape)
    variables["n"] = names, n
    for axis in names[1:]:
        has = np.array([axis not in LACKS.get(a, ()) for a in values["algorithm"]], np.int8)
        if not has.all():
            variables[f"applies_{axis}"] = (("algorithm",), has)
    coords = {name: np.asarray(v) for name, v in values.items()}
    coords |= {"seed": np.arange(seeds, dtype=np.int32), "round": evaluated.astype(np.int32)}
    about = {
        "format": 1,
        "kind": "sweep",
        "axes": {
            name: {
                "values": values[name],
                "static": name == "algorithm" or name in static,
                "problem": name in problems,
            }
            for name in names
        },
        "paired": paired,
        "settings": {
            "model": "logistic",
            "problem": "a9a",
            "data": "abc",
            "key": [0, 7],
            **settings,
        },
        "facts": {"n": N, "d": D},
        "compilations": 2,
        "seconds": 1.5,
        "ended": "finished",
    }
    ds = xarray.Dataset(variables, coords, {"config": json.dumps(about)})
    for name in ds.variables:
        units, words = LABELS.get(str(name), ("1", str(name).replace("_", " ")))
        ds[name].attrs.update(units=units, long_name=words)
    return ds
