"""What a record keeps of a sweep: mean curves, and the values of each seed that are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from papers.entry import Epsilons, Numbers, Row, estimate, in_words

if TYPE_CHECKING:
    import xarray

__all__ = [
    "ERRORS",
    "Window",
    "ahead",
    "best",
    "best_of",
    "chain",
    "courses",
    "epsilons",
    "find",
    "name_of",
    "ordered",
    "ordering",
]

Window = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]  # the rounds whose mean is judged
DIGITS = 5
FACTS = ("claimed_eps", "proven_eps", "delta", "used_sigma", "used_eps", "lr")
ERRORS = 2.0  # standard errors that a difference must exceed
NAMES = {
    "grad_norm": "gradient norm",
    "loss": "training loss",
    "test_accuracy": "test accuracy",
    "utility": "utility (running mean of ‖∇f‖²)",
}


def name_of(metric: str) -> str:
    """A metric in words."""
    return NAMES[metric]


def courses(
    ds: xarray.Dataset, metrics: Sequence[str], windows: Mapping[str, Window]
) -> list[Numbers]:
    """One dictionary per cell: its labels, ``METRIC`` and ``METRIC_error`` against ``round``.

    ``METRIC@WINDOW`` is one value per seed: the mean over the rounds of the window.  A cell also has
    its eps, claimed and proven, and the step size that was chosen for it.
    """
    axes = [str(name) for name in ds["last_round"].dims if name != "seed"]
    facts = [name for name in FACTS if name in ds and name not in axes]
    out: list[Numbers] = []
    for place in np.ndindex(*(ds.sizes[name] for name in axes)):
        here = ds.isel(dict(zip(axes, place, strict=True)))
        ran = (here["round"] <= here["last_round"].max()).values
        here = here.isel(round=np.isfinite(here["loss"].isel(seed=0).values) | ran)
        ticks = here["round"].values
        has = {name: bool(here.get(f"applies_{name}", 1)) for name in axes}
        found: Numbers = {name: here[name].item() if has[name] else None for name in axes}
        found["round"] = ticks.tolist()
        for metric in metrics:
            values = here[metric].transpose("seed", "round").values.astype(np.float64)
            mean, error = zip(*map(estimate, values.T), strict=True)
            found |= {metric: _short(mean), f"{metric}_error": _short(error)}
            for name, window in windows.items():
                found[f"{metric}@{name}"] = _short(values[:, window(ticks)].mean(1))
        found |= {name: here[name].item() for name in facts if np.isfinite(here[name])}
        out.append(found)
    return out


def find(cells: Sequence[Numbers], **labels: Any) -> Numbers:
    """The one cell with these labels."""
    (found,) = [c for c in cells if all(c[name] == value for name, value in labels.items())]
    return found


def ordered(values: Sequence[Sequence[float]], sign: int) -> bool:
    """Whether these rise (+1) or fall (-1), each given as one value per seed.

    The first and the last must differ by more than :data:`ERRORS` standard errors of the difference, which
    is paired since seeds share their draws, and no step in between may go against the order by more.
    With a single seed every step must follow the order.
    """
    each = sign * np.asarray(values, np.float64)
    steps = np.diff(each, axis=0)
    if each.shape[1] == 1:
        return bool((steps > 0).all())
    forward = all(mean + ERRORS * error > 0 for mean, error in map(estimate, steps))
    total, of_total = estimate(each[-1] - each[0])
    return forward and total - ERRORS * of_total > 0


def chain(values: Sequence[Sequence[float]]) -> str:
    """Means with standard errors in a row, in words."""
    return ", ".join(in_words(estimate(each), digits=3) for each in values)


def ordering(what: str, published: str, values: Sequence[Sequence[float]], sign: int) -> Row:
    """A statement that these values rise (+1) or fall (-1) in the given order."""
    return Row(what, published, chain(values), ordered(values, sign))


def ahead(what: str, published: str, margins: Mapping[str, Sequence[float]]) -> Row:
    """A statement that one side is ahead: margins by pair, one value per seed, positive where it is.

    It holds if every mean exceeds :data:`ERRORS` of its standard errors, it does not if one lies below
    minus that, and is undecided otherwise.  The row shows the pair that speaks most against it.
    """
    found = {pair: estimate(values) for pair, values in margins.items()}
    pair = min(found, key=lambda pair: found[pair].mean / (found[pair].error or 1e-300))
    mean, room = found[pair].mean, ERRORS * (found[pair].error or 0.0)
    holds = True if mean > room else False if mean < -room else None
    words = {True: "holds", False: "does not", None: "undecided"}[holds]
    return Row(
        f"{what}: {pair}", published, found[pair], holds, f"{ERRORS:g} standard errors", words
    )


def best(ends: xarray.DataArray) -> xarray.DataArray:
    """The place of the step size whose mean over seeds is least; one that diverged is never chosen."""
    return ends.mean("seed", skipna=False).fillna(np.inf).argmin("lr")


def best_of(steps: Sequence[float], by: str) -> str:
    """How steps were chosen, in words."""
    return f"Each step is the best of {', '.join(f'{step:g}' for step in steps)} by {by}."


def epsilons(cell: Numbers, what: str, note: str = "") -> Epsilons:
    """The three eps of a cell; proven is infinite where nothing is proven."""
    return Epsilons(
        what,
        cell.get("claimed_eps"),
        float(cell.get("proven_eps", "inf")),
        cell.get("audited_eps"),
        float(cell["delta"]),
        note,
    )


def _short(values: Any) -> Any:
    return [float(f"{v:.{DIGITS}g}") for v in np.asarray(values, np.float64).tolist()]
