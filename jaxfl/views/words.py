"""Numbers, units and names of axes as texts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxfl.privacy.claims import above

__all__ = ["NAMES", "SYMBOLS", "estimate", "in_units", "listed", "number", "prefix", "span"]

FEW = 3  # values that a note names
SYMBOLS = {"eps": "ε", "omega": "ω", "delta": "δ", "sigma": "σ", "shift": "γ"}
NAMES = {
    "lr": "step size", "clip": "clip bound", "clip_by": "clip by", "share": "share of bits",
    "batch": "batch size", "utility": "utility (running mean of ‖∇f‖²)", "eps_spent": "proven ε",
    "grad_norm": "gradient norm", "grad_norm_sq": "squared gradient norm", "loss": "training loss",
    "accuracy": "training accuracy",
}  # fmt: skip
OF = {"client": "clients", "worst_client": "worst client", "worst_tenth": "worst tenth of clients"}
for of, who in OF.items():
    for what in ("loss", "accuracy"):
        NAMES[f"{of}_{what}"] = f"training {what} of the {who}"
        NAMES[f"{of}_test_{what}"] = f"test {what} of the {who}"
PREFIXES = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "µ"}


def number(value: float | str, digits: int = 4) -> str:
    """Four significant digits, without an exponent where possible; – for NaN; a text as it is."""
    if isinstance(value, str):
        return value
    value = float(value)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text and 1 < abs(value) < 1e6 else _short(text)


def span(values: Any, *, bounds: bool = False) -> str:
    """The smallest to the largest of some numbers; upper ``bounds`` are rounded up."""
    return listed([np.min(values), np.max(values)], " to ", bounds=bounds)


def listed(values: Any, last: str = " and ", *, bounds: bool = False) -> str:
    """Texts, or a few numbers in ascending order, such as "1, 4 and 8"; of more, their :func:`span`."""
    each = np.unique(values).tolist()
    words = (number(above(v) if bounds else v) for v in each)
    *first, end = dict.fromkeys(words)
    few = len(first) < FEW or isinstance(each[0], str)
    return last.join([", ".join(first), end][not first :]) if few else span(values, bounds=bounds)


def estimate(mean: float, error: float, digits: int = 4) -> tuple[str, str]:
    """Mean and standard error to the same place: two digits of the error, four of the mean at most.

    The error is empty for a single seed.
    """
    if not math.isfinite(mean) or not math.isfinite(error):
        return number(mean, digits), ""
    scale = max(abs(mean), error)
    if scale == 0:
        return "0", "0"
    places = digits - 1 - math.floor(math.log10(scale))
    if error > 0:
        places = min(places, 1 - math.floor(math.log10(error)))
    if not -2 <= places <= 6:  # too large or too small to be read without an exponent
        return _short(f"{mean:.{digits - 1}e}"), number(error, 2)
    shown = f"{error:.{max(places, 0)}f}"
    if error > 0 and float(shown) == 0:
        shown = _short(f"{error:.0e}")
    return f"{mean:.{max(places, 0)}f}", shown


def prefix(values: Any, unit: str) -> tuple[float, str]:
    """The factor and the unit in which the largest of some amounts is a short number."""
    most = max((v for v in np.ravel(values).tolist() if math.isfinite(v)), default=0.0)
    factor = next((factor for factor in PREFIXES if most >= factor), 1.0)
    return factor, PREFIXES[factor] + unit


def in_units(value: float, unit: str) -> str:
    """An amount as a short number with its unit."""
    scale, unit = prefix([value], unit)
    return f"{value / scale:{'g' if scale == 1 else '.3g'}} {unit}"


def _short(text: str) -> str:
    """1.2e-05 as 1.2e-5."""
    mantissa, _, power = text.partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa
