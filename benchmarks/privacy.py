"""Three small studies of privacy on a9a: noise between neighbours, a clip that adapts, budgets of clients.

    python benchmarks/privacy.py run NAME [NAME ...]   # measures, and keeps the rows in results/privacy
    python benchmarks/privacy.py page > docs/studies.md

Every number is a mean over seeds of the loss after all rounds, at the best step size of a grid, which is
chosen by the mean loss of the same seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxfl
from jaxfl.privacy.gaussian import gdp_mu

KEPT = Path(__file__).parent / "results" / "privacy"
Rows = list[dict[str, Any]]


def problem(clients: int, how: str = "iid") -> Any:
    """Logistic regression on a9a, divided among clients."""
    data = jaxfl.data.split("a9a", clients=clients, how=how)
    return jaxfl.make_problem(jaxfl.models.logistic(123, regularizer=jaxfl.models.l2(1e-3)), data)


def best(
    algorithm: Any, posed: Any, rounds: int, seeds: int, lrs: list[float], **numbers: Any
) -> Any:
    """The mean final loss at the best step size, its standard error, that step size, and the accuracy."""
    axis = "server_lr" if "server_lr" in algorithm.names and "lr" in numbers else "lr"
    ds = jaxfl.sweep(
        algorithm,
        posed,
        jax.random.key(0),
        rounds,
        seeds=seeds,
        eval_every=rounds,
        **{axis: lrs},
        **numbers,
    )
    loss = np.nan_to_num(
        ds["loss"].isel(round=-1).squeeze().transpose(axis, "seed").values, nan=np.inf
    )
    at = int(loss.mean(1).argmin())
    accuracy = ds["test_accuracy"].isel(round=-1).squeeze().transpose(axis, "seed").values[at]
    proven = float(ds["proven_eps"].values.flat[0])
    error = float(loss[at].std(ddof=1) / math.sqrt(seeds))
    found = {"loss": float(loss[at].mean()), "error": error, "step": lrs[at], "proven": proven}
    return {**found, "accuracy": float(accuracy.mean())}


# --- DECOR ---------------------------------------------------------------------------------------

N, T, C, DELTA = 16, 100, 1.0, 1e-5
STEPS = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0]


def decor() -> Rows:
    """Local noise, noise of neighbours, and a trusted server's, at one eps of whole clients."""
    posed, out = problem(N), []
    given = {"clip": C, "batch": 64, "delta": DELTA}
    for eps in (5.0, 10.0, 20.0, 40.0):
        # a server that sees the mean alone: a client that is replaced moves it by 2C/n
        central = 2 * C * math.sqrt(T) / N / gdp_mu(eps, DELTA)
        cases: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
            "local": ("dp_dsgd", {"graph": "ring"}, {"eps": eps}),
            "local, complete": ("dp_dsgd", {"graph": "complete"}, {"eps": eps}),
            "DECOR, ring": ("decor", {"graph": "ring"}, {"eps": eps}),
            "DECOR, ring, 1 colluding": ("decor", {"graph": "ring"}, {"eps": eps, "colluding": 1}),
            "DECOR, complete": ("decor", {"graph": "complete"}, {"eps": eps}),
            "DECOR, complete, 4 colluding": (
                "decor",
                {"graph": "complete"},
                {"eps": eps, "colluding": 4},
            ),
            "server": ("dp_sgd", {}, {"sigma": central}),
        }
        for case, (name, parts, numbers) in cases.items():
            algorithm = jaxfl.algorithm(name, clip="client", **parts)
            found = best(algorithm, posed, T, 3, STEPS, **given, **numbers)
            out.append({"eps": eps, "case": case, **found})
            print(out[-1], file=sys.stderr, flush=True)
    return out


STUDIES: dict[str, Callable[[], Rows]] = {"decor": decor}


def run(names: list[str]) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in names:
        began = time.perf_counter()
        rows = STUDIES[name]()
        kept = {"seconds": round(time.perf_counter() - began), "rows": rows}
        (KEPT / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.what == "run":
        run(given.names or list(STUDIES))


if __name__ == "__main__":
    main()
