"""Sweeps with known values: what :func:`jaxfl.sweep` makes, from formulas instead of runs.

With step size h, omega w and privacy eps, seed s of S, the squared gradient norm at round t is

    (floor + 0.8 exp(-h t / (4 + w))) (1 + spread (s - (S-1)/2)),
    floor = 0.02 (1 + a/2) (1 + w/5) (0.3 + h) / eps,

where a counts the algorithms; w = 0 where omega does not apply.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
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
    t = np.arange(0, max(rounds) + 1, EVERY)
    data: dict[str, Any] = {
        name: np.full((*shape, seeds, len(t)), np.nan) for name in (*METRICS, "utility", *TOTALS)
    }
    last, complete = np.zeros((*shape, seeds), np.int32), np.ones((*shape, seeds), np.int8)
    lost = np.full((*shape, seeds), np.nan)
    cells: dict[str, Any] = {name: np.full(shape, np.nan) for name in NUMBERS}
    cells |= {"flag": np.zeros(shape, np.int8), "noisy": np.ones(shape, np.int8)}
    cells["n"] = np.full(shape, N, np.int32)
    for where in itertools.product(*(range(size) for size in shape)):
        cell = {name: values[name][i] for name, i in zip(names, where, strict=True)}
        lacks = LACKS.get(cell["algorithm"], ())
        seen = {name: v if name not in lacks else values[name][0] for name, v in cell.items()}
        real = {name: v for name, v in cell.items() if name not in lacks}
        place = values["eps"].index(seen["eps"]) if "eps" in values else 0
        last[where] = total = rounds[min(place, len(rounds) - 1)]
        for s, name, series in series_of(t[t <= total], real, seeds, spread):
            data[name][(*where, s, t <= total)] = series
        w, private = float(real.get("omega", 0.0)), "eps" not in lacks
        eps = float(real.get("eps", 1.0)) if private else math.inf
        tried = seeds * math.prod(len(axes[name]) for name in ("lr", "shift") if name in real)
        numbers = {
            "used_lr": np.nan if isinstance(lr := real.get("lr", 0.3), str) else lr,
            "used_sigma": 0.3 / eps if private else 0.0,
            "used_omega": w,
            "proven_eps": eps,
            "claimed_eps": eps / 1.05 ** (w > 5) if private else np.nan,
            "delta": 1e-3,
            "delta_at_claimed": 1e-3,
            "flag": private and w > 5,
            "tried": tried if private else np.nan,
            "eps_of_choice": tried * eps if private else np.nan,  # each run as much again
            "noisy": private,
            "n": cell.get("clients", N),
        }
        for name, number in numbers.items():
            cells[name][where] = number
        if matches(seen, missing):
            complete[where] = 0
            for array in data.values():
                array[where] = np.nan
        elif matches(seen, diverged):
            lost[(*where, -1)] = 10
            for name in (*METRICS, "utility"):
                data[name][(*where, -1, t >= 10)] = np.nan
    seeded = (*names, "seed")
    variables: dict[str, Any] = {name: ((*seeded, "round"), array) for name, array in data.items()}
    variables |= {name: (names, array) for name, array in cells.items()}
    variables |= {"last_round": (seeded, last), "diverged_at": (seeded, lost)}
    variables["complete"] = seeded, complete
    for axis in names[1:]:
        has = np.array([axis not in LACKS.get(a, ()) for a in values["algorithm"]], np.int8)
        if not has.all():
            variables[f"applies_{axis}"] = (("algorithm",), has)
    coords = {name: np.asarray(v) for name, v in values.items()}
    coords |= {"seed": np.arange(seeds, dtype=np.int32), "round": t.astype(np.int32)}
    spans = {
        name: {"values": v, "static": name in ("algorithm", *static), "problem": name in problems}
        for name, v in values.items()
    }
    of_problem = {"model": "logistic", "problem": "a9a", "data": "abc", "key": [0, 7]}
    about = {"format": 1, "kind": "sweep", "axes": spans, "paired": paired}
    about |= {"settings": {**of_problem, **settings}, "facts": {"n": N, "d": D}}
    about |= {"compilations": 2, "seconds": 1.5, "ended": "finished"}
    ds = xarray.Dataset(variables, coords, {"config": json.dumps(about)})
    for name in ds.variables:
        units, words = LABELS.get(str(name), ("1", str(name).replace("_", " ")))
        ds[name].attrs.update(units=units, long_name=words)
    return ds


def matches(cell: Mapping[str, Any], labels: Mapping[str, Any] | None) -> bool:
    return labels is not None and all(cell[name] == value for name, value in labels.items())


def series_of(t: Any, real: Any, seeds: int, spread: float) -> Iterator[tuple[int, str, Any]]:
    """The series of one cell, by seed and name."""
    numeric = {name: v for name, v in real.items() if not isinstance(v, str)}
    messages = N * t.astype(np.float64)
    coordinates = messages * round(D / (1 + float(real.get("omega", 0.0))))
    totals = (messages, coordinates, 32 * messages, BITS * coordinates, BITS * D * messages)
    a = {"soteriafl_sgd": 0, "ldp_sgd": 1}.get(real["algorithm"], 2)
    for s in range(seeds):
        g = grad_norm_sq(t, numeric, a, s, seeds, spread)
        mean = np.cumsum(g) / np.arange(1, len(g) + 1)
        metrics = (0.6 + g, g, 0.7 + g, 0.95 - 0.3 * g, 0.62 + g, 0.93 - 0.3 * g, mean)
        names = (*METRICS, "utility", *TOTALS)
        yield from ((s, *one) for one in zip(names, (*metrics, *totals), strict=True))
