"""CDP-SGD and SoteriaFL: Theorems 1 and 3 of Li, Zhao, Li and Chi."""

from __future__ import annotations

import math

import numpy as np

from jaxfl.algorithms.bounds import (
    CLOSE,
    Array,
    Bound,
    Case,
    Family,
    Measured,
    assumed,
    no_lam,
    numbers,
    parts,
    unconstrained,
)
from jaxfl.algorithms.soteriafl import theory
from jaxfl.core.errors import InputError

__all__ = ["FAMILY", "estimator", "setting"]


def _check_server(case: Case) -> None:
    parts(
        case,
        _name(case),
        participation=("everyone",),
        server=("descent",),
        estimator=("minibatch", "svrg", "saga"),
        clip=("example",),
        aggregation=("plain_sum",),
        sampler=("poisson", "full", "without_replacement", "with_replacement"),
    )
    if case.parts["estimator"] == "saga":
        parts(case, "Lemma 1", sampler=("poisson", "full", "without_replacement"))
    unconstrained(case, _name(case))
    numbers(case)
    for name in ("shift", "refresh"):
        if not isinstance(case.values.get(name, 0.0), int | float):
            raise InputError(f"The bound is for one {name}, and it is a schedule: give a number.")


def _name(case: Case) -> str:
    plain = case.parts["estimator"] == "minibatch" and case.parts["channel"] == "direct"
    return "Theorem 1" if plain else "Theorem 3"


def setting(case: Case, measured: Measured) -> theory.Setting:
    """The quantities of the theorems, with the largest m, at which a minibatch is least accurate."""
    n, m, d = (case.facts[name] for name in ("n", "m_max", "d"))
    omega, gap = float(case.values["omega"]), measured.start
    return theory.Setting(n, m, d, omega, case.L, case.clip, eps=1.0, delta=0.5, gap=gap)


def _variance(case: Case, s: theory.Setting, b: float) -> float:
    """The variance of the mean of b of m gradients, each at most G long, by how they are drawn."""
    share = {
        "full": 0.0,
        "poisson": (1 - b / s.m) / b,
        "without_replacement": (s.m - b) / (b * max(s.m - 1, 1)),
        "with_replacement": 1 / b,
    }
    return float(share[case.parts["sampler"]] * s.G**2)


def estimator(case: Case, s: theory.Setting) -> theory.Estimator:
    """The constants of Assumption 3 [Lemma 1], the variance as batches are drawn."""
    b = float(case.values.get("batch", s.m))
    if case.parts["estimator"] == "svrg":
        return theory.svrg(s, b, float(case.values["refresh"]))
    if case.parts["estimator"] == "saga":
        return theory.saga(s, b)
    return theory.sgd(s, b)._replace(C2=_variance(case, s, b))


def _server(case: Case, measured: Measured, lam: float | None) -> list[Bound]:
    no_lam(case, lam)
    name, s, values = _name(case), setting(case, measured), case.values
    eta, sigma, b = float(values["lr"]), float(values["sigma"]), float(values.get("batch", s.m))
    rounds = measured.rounds.astype(np.float64)
    found: Array | None = None
    if name == "Theorem 1":
        most = 1 / s.L
        if eta <= most * CLOSE:
            variance = _variance(case, s, b)
            found = np.asarray(theory.cdp_bound(s, eta, rounds, sigma, variance))
    else:
        e = estimator(case, s)
        wanted = float(theory.shift(s.omega))
        if s.omega > 0 and not math.isclose(float(values["shift"]), wanted, rel_tol=1e-5):
            note = f"{name} does not apply: it assumes shift = {wanted:.4g}"
            return [Bound("grad_norm_sq", name, measured.rounds, None, note)]
        most = theory.longest_step(s, e)
        if eta <= most * CLOSE:
            eta = min(eta, most)
            beta = theory.least_beta(s, e, eta)
            found = np.asarray(theory.shifted_bound(s, e, beta, eta, rounds, sigma))
    if found is None:
        note = (
            f"{name} does not apply: at L = {s.L:.4g} a step size of at most {most:.3g} is needed, and "
            f"it is {eta:.3g}"
        )
    else:
        note = f"{name} {assumed(case, measured, 'f* ≥ 0', 'gradients within the clip')}"
    return [Bound("grad_norm_sq", name, measured.rounds, found, note)]


FAMILY = Family(_check_server, _server)
