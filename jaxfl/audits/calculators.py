"""Calculators for questions without an event: conversions, and bounds from counts of an attack.

Each returns a dict of numbers and texts that JSON can hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jaxfl.core.errors import InputError, require
from jaxfl.privacy.gaussian import check_delta, gdp_delta, gdp_eps, gdp_mu, zcdp_eps
from jaxfl.privacy.limits import clopper_pearson, one_run_eps, plain_eps, separation

__all__ = ["CALCULATORS"]


def _gaussian(
    mu: float | None = None, eps: float | None = None, delta: float | None = None
) -> dict[str, Any]:
    """One of mu = sensitivity/sigma, eps and delta of Gaussian noise, from the other two."""
    if delta is None and mu is not None and eps is not None:
        delta = float(gdp_delta(mu, eps))
    elif eps is None and mu is not None and delta is not None:
        eps = float(gdp_eps(mu, check_delta(delta)))
    elif mu is None and eps is not None and delta is not None:
        mu = gdp_mu(eps, delta)
    else:
        raise InputError("Give exactly two of mu, eps and delta")
    return {"mu": mu, "eps": eps, "delta": delta, "method": "GDP, closed form", "status": "E"}


def _zcdp(rho: float, delta: float) -> dict[str, Any]:
    """The eps of a Gaussian mechanism of zCDP rho: exact, and by the usual conversion."""
    return {
        "eps": float(gdp_eps(math.sqrt(2 * rho), check_delta(delta))),
        "eps_simple": float(zcdp_eps(rho, delta)),
        "mu": math.sqrt(2 * rho),
        "delta": delta,
        "method": "GDP, closed form",
        "status": "E",
    }


def _audit_cp(
    tp: int, npos: int, fp: int, nneg: int, delta: float, alpha: float = 0.05
) -> dict[str, Any]:
    """A lower bound on eps from counts of an attack's right and wrong answers."""
    check_delta(delta)
    possible = 0 <= tp <= npos and 0 <= fp <= nneg and npos > 0 and nneg > 0
    require(possible, lambda: f"{tp} of {npos} and {fp} of {nneg} are not counts of successes")
    p, f = clopper_pearson(tp, npos, alpha / 2)[0], clopper_pearson(fp, nneg, alpha / 2)[1]
    return {
        "eps": float(plain_eps(p, f, delta)),
        "eps_through_gdp": float(gdp_eps(max(0.0, float(separation(p, f))), delta)),
        "delta": delta,
        "method": "Clopper-Pearson, both directions",
        "status": "",
    }


def _audit_one_run(
    canaries: int, guesses: int, correct: int, delta: float, alpha: float = 0.05
) -> dict[str, Any]:
    """A lower bound on eps from the number of right guesses about canaries in one run."""
    require(
        0 <= correct <= guesses <= canaries,
        lambda: f"{correct} correct of {guesses} guesses about {canaries} canaries is impossible",
    )
    return {
        "eps": one_run_eps(canaries, guesses, correct, delta, alpha),
        "delta": delta,
        "method": "one run [Steinke, Nasr, Jagielski, 2023]",
        "status": "",
    }


CALCULATORS: dict[str, Callable[..., dict[str, Any]]] = {
    "gaussian": _gaussian,
    "zcdp": _zcdp,
    "audit_cp": _audit_cp,
    "audit_one_run": _audit_one_run,
}
