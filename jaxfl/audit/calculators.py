"""Calculators for questions without an event: conversions, counterexamples, audits.

Each returns a dict of numbers and texts that JSON can hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxfl.algorithms.decentralized.claims import sdm
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.audit import reference
from jaxfl.core.errors import InputError, require
from jaxfl.privacy import limits, unclipped
from jaxfl.privacy.events import Sampling
from jaxfl.privacy.gaussian import (
    Floats,
    check_delta,
    gdp_delta,
    gdp_eps,
    gdp_mu,
    mask_rdp,
    rdp_eps,
    zcdp_eps,
)
from jaxfl.privacy.mixtures import coins_eps

__all__ = ["CALCULATORS", "hu_counterexample"]


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
    """The eps of a Gaussian mechanism of zCDP rho at delta: exact, and by two conversions."""
    return {
        "eps": float(gdp_eps(math.sqrt(2 * rho), check_delta(delta))),
        "eps_cks": rdp_eps(lambda a: a * rho, delta)[0],
        "eps_simple": float(zcdp_eps(rho, delta)),
        "mu": math.sqrt(2 * rho),
        "delta": delta,
        "method": "GDP, closed form",
        "status": "E",
    }


def _mask(p: float, mu_per_round: float, rounds: int, delta: float) -> dict[str, Any]:
    """The eps behind a public mask of a share p of coordinates, and SDM-DSGD's claim."""
    check_delta(delta)
    return {
        "eps": rdp_eps(mask_rdp(p, mu_per_round, rounds), delta)[0],
        "eps_unmasked": float(gdp_eps(mu_per_round * math.sqrt(rounds), delta)),
        "eps_p_scaled_claim": sdm(p, mu_per_round, rounds, delta).eps,
        "eps_single_coordinate": coins_eps(p, mu_per_round, 0.0, rounds, delta),
        "delta": delta,
        "method": "RDP, public mask, all sensitivity in one coordinate",
        "status": "D",
    }


def _batch_clip(
    samples: int,
    batch: int,
    rounds: int,
    clip: float,
    eps: float,
    delta: float,
    sampler: str = "with_replacement",
    sigma: float | None = None,
    bound: float | None = None,
    constant: float = 8.0,
) -> dict[str, Any]:
    """A lower bound on eps where only the batch's mean is clipped, at a given noise."""
    claim = compressed_gd(constant, clip, samples, batch, rounds, delta, eps=eps)
    noise = claim.sigma if sigma is None else sigma
    how = Sampling(sampler, samples, batch)
    attack = unclipped.exposure(how, rounds, clip, noise, eps, bound)
    return {
        "eps": math.inf,
        "delta": delta,
        "method": "clipping only the batch's mean bounds no single record's influence",
        "status": "",
        "sigma": noise,
        "paper_sigma": claim.sigma,
        "q_hit": attack.hit,
        "delta_at_claimed_eps": attack.delta,
        "eps_lower_at_delta": attack.eps,
        "client_level_mu": attack.client_mu,
    }


def hu_counterexample(
    local_steps: int,
    batch: int,
    samples: int,
    devices: int,
    clip: float,
    sigma: float,
    expansion: float | None = None,
    eta: float | None = None,
) -> dict[str, Any]:
    """The zCDP of a secure sum of local steps, which exceeds Hu et al.'s formula.

    The step of one device scales theta by c:

    ``mu^2 = (2G/b)^2 c^(2(tau-1)) / (sigma^2 (sum_k c^2k + (r-1) tau))``: the record's shift is
    amplified by its own device's dynamics, the noise of the others is not.  c is the ``expansion``,
    or 1 + eta for the gradient -theta.
    """
    if expansion is None and eta is None:
        raise InputError(
            "must be given, or the step size eta of the gradient -theta", expansion=None
        )
    c = expansion if expansion is not None else 1 + (eta or 0.0)
    tau, G = local_steps, clip
    own = sum(c ** (2 * k) for k in range(tau))
    mu2 = (2 * G / batch) ** 2 * c ** (2 * (tau - 1)) / (sigma**2 * (own + (devices - 1) * tau))
    paper = 2 * tau * G * G / (devices * samples * batch * sigma**2)
    return {
        "rho_true": mu2 / 2,
        "rho_paper": paper,
        "ratio": mu2 / 2 / paper,
        "mu": math.sqrt(mu2),
        "method": "exact Gaussian",
        "status": "D",
    }


def _hidden_state(instances: int = 100, seed: int = 0) -> dict[str, Any]:
    """How far simulated rounds exceed Theorem K, jaxfl's bound of SVRG and SAGA (at most 0).

    Two random rounds with hidden state.
    Each world's shift is at most X if the record is drawn and Y if not, and in round 2 depends on
    the first output and on the first coin, which is not shown.  Not above 0 but for rounding.
    """
    rng = np.random.default_rng(seed)
    x = np.linspace(-9.0, 9.0, 181)
    cell = float(x[1] - x[0]) ** 2

    def normal(shift: Any) -> Floats:
        return np.asarray(np.exp(-0.5 * (x - shift) ** 2) / math.sqrt(2 * math.pi))

    worst = -math.inf
    for _ in range(instances):
        q, X = rng.uniform(0.05, 0.95), rng.uniform(0.2, 2.0)
        Y = rng.uniform(0.0, X)
        coins = ((1 - q, Y), (q, X))
        worlds = []
        for _ in range(2):
            law = np.zeros((x.size, x.size))
            for w1, most1 in coins:
                first = w1 * normal(rng.uniform(-most1, most1))
                rate, phase = rng.uniform(0, 3), rng.uniform(0, 2 * math.pi)
                turn = np.cos(rate * x + phase)[:, None]
                for w2, most2 in coins:
                    law += first[:, None] * w2 * normal(most2 * turn)
            worlds.append(law)
        side = [sum(w * normal(sign * shift) for w, shift in coins) for sign in (1, -1)]
        pair = [np.outer(s, s) for s in side]
        for eps in (0.0, 0.3, 1.0, 2.0, 4.0):
            gamma = math.exp(eps)
            actual, bound = (
                float(np.maximum(p - gamma * r, 0.0).sum()) * cell for p, r in (worlds, pair)
            )
            worst = max(worst, actual - bound)
    return {"value": worst, "method": "two-dimensional quadrature", "status": "N"}


def _audit_cp(
    tp: int, npos: int, fp: int, nneg: int, delta: float, alpha: float = 0.05
) -> dict[str, Any]:
    """A lower bound on eps from counts of an attack's right and wrong answers."""
    check_delta(delta)
    possible = 0 <= tp <= npos and 0 <= fp <= nneg and npos > 0 and nneg > 0
    require(possible, lambda: f"{tp} of {npos} and {fp} of {nneg} are not counts of successes")
    return {
        "eps": limits.clopper_pearson_eps(tp, npos, fp, nneg, delta, alpha),
        "eps_through_gdp": limits.gdp_audit_eps(tp, npos, fp, nneg, delta, alpha),
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
        "eps": limits.one_run_eps(canaries, guesses, correct, delta, alpha),
        "delta": delta,
        "method": "one run [Steinke, Nasr, Jagielski, 2023]",
        "status": "",
    }


def _audit_canary(
    samples: int,
    batch: float,
    rounds: int,
    clip: float,
    sigma: float,
    delta: float,
    runs: int,
    clip_what: str = "example",
    alpha: float = 0.05,
    seed: int = 0,
) -> dict[str, Any]:
    """A lower bound on eps from simulated runs with and without a canary, Poisson batches."""
    Sampling("poisson", samples, batch)  # checks the batch
    bound = reference.audit_poisson(
        samples, batch, rounds, clip, sigma, delta, runs, clip=clip_what, alpha=alpha, seed=seed
    )
    return {**bound._asdict(), "delta": delta, "method": "canary, many runs", "status": ""}


CALCULATORS: dict[str, Callable[..., dict[str, Any]]] = {
    "gaussian": _gaussian,
    "zcdp": _zcdp,
    "mask": _mask,
    "batch_clip": _batch_clip,
    "theorem_k": _hidden_state,
    "audit_cp": _audit_cp,
    "audit_one_run": _audit_one_run,
    "audit_canary": _audit_canary,
}
