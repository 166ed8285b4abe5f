"""Three small studies of privacy on a9a: noise between neighbours, a clip that adapts, budgets of clients.

python benchmarks/privacy.py run NAME [NAME ...]   # measures, and keeps the rows in results/privacy
python benchmarks/privacy.py page > docs/studies.md

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
import jax.numpy as jnp
import numpy as np

import jaxfl
from jaxfl.privacy.gaussian import gdp_mu

KEPT = Path(__file__).parent / "results" / "privacy"
Rows = list[dict[str, Any]]
ENDS = """Each number is a mean over seeds after the last round, at the best step size of a grid, which is
chosen by the loss of the same seeds. Loss and accuracy are of the mean model: the first on the training
records, the second on test records."""


def problem(clients: int, weights: Any = "equal") -> Any:
    """Logistic regression on a9a, divided among equal clients."""
    data = jaxfl.data.split("a9a", clients=clients)
    model = jaxfl.models.logistic(123, regularizer=jaxfl.models.l2(1e-3))
    return jaxfl.Problem(model, data, weights=weights)


def of_equal_clients(posed: Any, x: jax.Array) -> jax.Array:
    """The objective in which all clients have one weight, whatever the problem's weights are."""
    each = jax.vmap(jax.vmap(posed.model.loss, (None, 0)), (None, 0))(x, posed.train)
    live = jnp.arange(each.shape[1]) < posed.count[:, None]
    means = jnp.sum(jnp.where(live, each, 0), axis=1) / posed.count
    return jnp.mean(means) + posed.model.regularizer(x)


def best(
    algorithm: Any, posed: Any, rounds: int, seeds: int, lrs: list[float], **numbers: Any
) -> dict[str, float]:
    """Means over seeds at the best step size, with the standard error of the loss."""
    how: dict[str, Any] = {"seeds": seeds, "eval_every": rounds, "lr": lrs}
    how |= {"metrics": {"equal": of_equal_clients}}
    ds = jaxfl.sweep(algorithm, posed, jax.random.key(0), rounds, **how, **numbers)

    def last(name: str) -> Any:
        found = ds[name].isel(round=-1).squeeze().transpose("lr", "seed").values
        return np.nan_to_num(found, nan=np.inf)

    loss = last("loss")
    at = int(loss.mean(1).argmin())
    return {
        "loss": float(loss[at].mean()),
        "error": float(loss[at].std(ddof=1) / math.sqrt(seeds)),
        "equal": float(last("equal")[at].mean()),
        "accuracy": float(last("test_accuracy")[at].mean()),
        "step": lrs[at],
        "proven": float(ds["proven_eps"].values.flat[0]),
    }


# --- DECOR ---------------------------------------------------------------------------------------

N, T, C, DELTA = 16, 100, 1.0, 1e-5
LONG = 5000  # rounds of DECOR's authors
STEPS = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03]


def decor() -> Rows:
    """Local noise, noise of neighbours, and a trusted server's, at one eps of whole clients."""
    posed, out = problem(N), []
    given = {"clip": C, "batch": 64, "delta": DELTA}
    for eps in (3.0, 10.0, 20.0, 40.0):
        # a server that sees the mean alone: a client that is replaced moves it by 2C/n
        central = 2 * C * math.sqrt(LONG) / N / gdp_mu(eps, DELTA)
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
            found = best(algorithm, posed, LONG, 3, STEPS, **given, **numbers)
            out.append({"eps": eps, "case": case, **found})
            print(out[-1], file=sys.stderr, flush=True)
    return out


# --- adaptive clipping ---------------------------------------------------------------------------

CLIPS = [0.01, 0.1, 0.3, 1.0, 4.0]  # no gradient of a9a is longer than 3.8
WIDE = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]


def clipping() -> Rows:
    """Five fixed clips, and a clip that adapts, at one eps of a record against who sees every message."""
    posed, out = problem(10), []
    given = {"batch": 64, "delta": DELTA}
    for eps in (1.0, 4.0):
        for clip in CLIPS:
            found = best(jaxfl.algorithm("ldp_sgd"), posed, T, 5, WIDE, clip=clip, eps=eps, **given)
            out.append({"eps": eps, "case": f"clip {clip:g}", **found})
            print(out[-1], file=sys.stderr, flush=True)
        for quantile in (0.2, 0.5, 0.8):
            made = jaxfl.algorithm("local_adaptive_sgd")
            found = best(made, posed, T, 5, WIDE, quantile=quantile, eps=eps, **given)
            out.append({"eps": eps, "case": f"adaptive, quantile {quantile:g}", **found})
            print(out[-1], file=sys.stderr, flush=True)
    return out


# --- a budget for each client --------------------------------------------------------------------

BUDGETS = (0.1,) * 5 + (0.5,) * 3 + (2.0,) * 2


def budgets() -> Rows:
    """The smallest budget for all, and each client's own, with equal weights and with the best ones."""
    posed, out = problem(10), []
    given = {"batch": 64, "delta": DELTA, "clip": 1.0}
    made, numbers = jaxfl.parts.with_budgets("ldp_sgd", posed, T, BUDGETS, lr=1.0, **given)
    del numbers["lr"]
    assert made.body is not None
    sigma = np.array(made.body.mechanism.multiples)
    weights = sigma**-2 / np.mean(sigma**-2)
    small, plain = min(BUDGETS), jaxfl.algorithm("ldp_sgd")
    cases = {
        f"{small:g} for all": (plain, posed, {**given, "eps": small}),
        "its own each": (made, posed, numbers),
        "its own each, weights 1/sigma^2": (made, problem(10, weights), numbers),
        f"{max(BUDGETS):g} for all": (plain, posed, {**given, "eps": max(BUDGETS)}),
    }
    for case, (algorithm, on, more) in cases.items():
        out.append({"case": case, **best(algorithm, on, T, 5, WIDE, **more)})
        print(out[-1], file=sys.stderr, flush=True)
    return out


STUDIES: dict[str, Callable[[], Rows]] = {"decor": decor, "clipping": clipping, "budgets": budgets}


ABOUT = {
    "decor": (
        "DECOR",
        f"{N} clients, {LONG:,} rounds, batches of 64 of 2,035 records, C = {C:g}, delta = {DELTA:g}. All "
        "records of a client are protected, against who sees all messages and no seed of others; 3 seeds. "
        "*Server* is the noise of a trusted server at the same eps, for a client that is replaced. "
        "DECOR closes 60 to 75 % of the gap between local noise and the server's. Steps are from 0.0001 to "
        "0.03: at eps = 3 the least is the best, and local noise may gain from a smaller one.",
    ),
    "clipping": (
        "Adaptive clipping",
        f"10 clients, {T} rounds, batches of 64 of 3,256 records, delta = {DELTA:g}. A record is "
        "protected, against who sees every message; 5 seeds. The first clip of the adaptive runs is 0.1. "
        "No gradient is longer than 3.8, and clipping costs more than noise: the largest clip is the best, "
        "and the quantile 0.8 comes near it; the usual 0.5 shrinks the clip until all records count as the "
        "larger class (accuracy 0.7638), as the smallest clips do.",
    ),
    "budgets": (
        "A budget for each client",
        f"10 clients as above, C = 1: five with eps = {BUDGETS[0]:g}, three with {BUDGETS[5]:g}, two with "
        f"{BUDGETS[8]:g}; 5 seeds. With weights the loss is that of another "
        "objective; records are divided at random: both are much alike here.",
    ),
}


COLUMNS = {
    "eps": "eps",
    "noise": "case",
    "loss": "loss",
    "standard error": "error",
    "loss of equal weights": "equal",
    "accuracy": "accuracy",
    "step": "step",
}


def page() -> str:
    """The tables, as docs/studies.md has them."""
    lines = ["# Studies of privacy", "", *(__doc__ or "").splitlines()[:1], ""]
    lines += [
        "`python benchmarks/privacy.py` computes and writes them. " + " ".join(ENDS.split()),
        "",
    ]
    for name, (title, text) in ABOUT.items():
        rows = json.loads((KEPT / f"{name}.json").read_text())["rows"]
        lines += [f"## {title}", "", text, ""]
        shown = [title for title, of in COLUMNS.items() if any(of in row for row in rows)]
        lines += ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
        for row in rows:
            cells = (row[COLUMNS[title]] for title in shown)
            texts = (one if isinstance(one, str) else f"{one:.4g}" for one in cells)
            lines.append("| " + " | ".join(texts) + " |")
        lines.append("")
    return "\n".join(lines)


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
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
