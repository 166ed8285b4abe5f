"""The vectors of ``vectors/privacy.json`` as questions to ``jaxfl.account`` and ``jaxfl.calibrate``.

:data:`_BY_PARAMS` and :data:`_BY_NAME` say which question a vector is.  Of SoteriaFL-SVRG its ``min(pair,
chain)`` is ``method="pair_or_chain"``, chain alone (as with fixed size) ``"chain_fixed"`` and pair alone
``"theorem_k"``; the default, ``"chain"`` and ``"best"`` are tighter: they share delta between the
chain's steps in the best way.  Of LDP-SPIDER sigma is that of the differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jaxfl.audits.calculators import CALCULATORS
from jaxfl.audits.questions import account, calibrate, plain_event
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import Event, Increments, Phases, Sampling
from jaxfl.privacy.gaussian import gdp_mu

__all__ = ["UNASKED", "answers", "question"]

# Attacks and counterexamples of published formulas, which are no question to this package.
UNASKED = ("theorem_k", "audit_canary", "mask", "batch_clip", "hu_counterexample")

_PLAIN = ("eps", "delta", "sigma")
_SCHEMES = {"wor": "without_replacement", "wr": "with_replacement", "poisson": "poisson"}

# the papers' letters
_COMMON = {"m": "samples", "b": "batch", "T": "rounds", "G": "clip", "K": "batch", "L": "clip"}
_LETTERS: dict[str, dict[str, str]] = {
    "private_local_sgd": {"gamma": "batch", "tau": "local_steps", "C_i": "rounds", "r": "devices"},
    "isrl_svrg": {"E": "epochs", "Q": "inner", "sigma1_over_s": "noise_ratio"},
    "mu2_untrusted": {"L": "smoothness", "D": "diameter", "M": "machines"},
    "audit_one_run": {"m": "canaries"},
}  # fmt: skip

# numbers that follow from others, or say how a vector was made
_DERIVED = (
    "X", "Y", "C", "passes", "S", "q", "q_hit", "claimed_eps", "rounds_released", "loss",
)  # fmt: skip


def question(vector: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name that a test vector asks for, and its parameters as ``account`` takes them."""
    name, raw = _name(vector), vector["params"]
    scheme = str(vector["sampling"])
    letters = _COMMON | _LETTERS.get(name, {})
    params = {letters.get(k, k): v for k, v in raw.items() if k not in _DERIVED}
    if scheme in _SCHEMES and name != "rrpsgd":
        params["sampler"] = _SCHEMES[scheme]
    if name.endswith("_gd"):
        del params["batch"]
    if name == "rrpsgd":
        del params["batch"]  # it is 1
    if name == "private_local_sgd":
        params["convex"] = "amplification by iteration" in str(vector["method"])
        params["fresh"] = "fresh" in scheme
    if "SRM" in str(vector["algorithm"]):  # drawn records add grad f(x+) - (1 - gamma) grad f(x)
        gamma, n = params.pop("gamma", None), params.pop("n", 1)
        params["record_norm"] = raw["C"] if gamma is None else (2 - gamma) * raw["G"] / n
    if "nm" in raw:
        params = {
            "samples": 10**9, "batch": raw["q"] * 10**9, "rounds": raw["T"], "clip": 1.0,
            "noise_multiplier": raw["nm"], "delta": raw["delta"],
        }  # fmt: skip
    if name == "one_pass_mbsgd":
        params["rounds"] = 1
    return name, params


# what a vector's parameters give away
_BY_PARAMS = (
    ("tp", "audit_cp"), ("guesses", "audit_one_run"), ("runs_per_world", "audit_canary"),
    ("instances", "theorem_k"), ("expansion_c", "hu_counterexample"), ("phases", "phases"),
    ("mu_per_round", "mask"), ("nm", "event"), ("E", "isrl_svrg"), ("D", "mu2_untrusted"),
    ("tau", "private_local_sgd"),
)  # fmt: skip

# what its name does
_BY_NAME = (
    ("clip(batch", "batch_clip"), ("same code, but", "batch_clip"), ("Q-DPSGD", "q_dpsgd_1"),
    ("RRPSGD", "rrpsgd"), ("DP-SRM", "event"), ("One-pass", "one_pass_mbsgd"),
    ("Convolution", "multi_pass_mbsgd"), ("ISRL-DP", "multi_pass_mbsgd"),
    ("same, WOR variant", "multi_pass_mbsgd"), ("SVRG", "soteriafl_svrg"), ("SAGA", "soteriafl_saga"),
    ("SoteriaFL-GD", "soteriafl_gd"), ("SoteriaFL-SGD", "soteriafl_sgd"), ("SDM", "sdm_dsgd"),
    ("zCDP", "zcdp"), ("Gaussian", "gaussian"), ("SGD", "cdp_sgd"), ("GD", "cdp_gd"),
)  # fmt: skip


def _name(vector: Mapping[str, Any]) -> str:
    params, algorithm = vector["params"], str(vector["algorithm"])
    found = [name for param, name in _BY_PARAMS if param in params]
    found += [name for text, name in _BY_NAME if text in algorithm]
    assert found, f"algorithm = {algorithm!r} matches no question: see the table in this module."
    return found[0]


def answers(vector: Mapping[str, Any]) -> dict[str, float]:
    """Every number of a test vector that this package computes, under the vector's own names."""
    kind, params = question(vector)
    raw = vector["params"]
    if kind in CALCULATORS:
        return account(kind, **params)
    if "nm" in raw:
        return {"eps": account(kind, **params)["eps"]}
    if kind == "phases":
        return _phases(raw, vector["sampling"])
    poisson, method = vector["sampling"] == "poisson", None
    if kind == "soteriafl_svrg":
        method = "pair_or_chain" if poisson else "chain_fixed"
    elif kind == "soteriafl_saga":
        method = "theorem_k" if poisson else "reveal"
    if "sigma" in params:
        out = account(kind, method=method, **params)
        return {"eps": out["eps"], "sigma": out["sigma"]}
    if kind == "mu2_untrusted":
        return _mu2(raw, params)
    if "rounds_released" in raw:
        fewer = calibrate(kind, method=method, **params)["sigma"]
        params["rounds"] = raw["rounds_released"]
        delta = {"delta": params["delta"]}
        rest = {k: v for k, v in params.items() if k not in _PLAIN}
        return {
            "sigma_for_100": fewer,
            "tight_sigma": calibrate(kind, method=method, **params)["sigma"],
            "eps": account(kind, method=method, sigma=fewer, **rest, **delta)["eps"],
        }
    out = _calibrated(vector, kind, params, method)
    if kind == "one_pass_mbsgd" and "1.25" in str(vector.get("paper_formula")):
        L, K, delta = raw["L"], raw["K"], raw["delta"]
        out["paper_sigma"] = math.sqrt(8 * L**2 * math.log(1.25 / delta)) / (K * raw["eps"])
        noisy = account(kind, **{**params, "eps": None, "sigma": out["paper_sigma"]})
        out["eps_at_paper_sigma"] = noisy["eps"]
    return out


def _calibrated(
    vector: Mapping[str, Any], kind: str, params: dict[str, Any], method: str | None
) -> dict[str, float]:
    """Noise, and what it proves: at the vector's own noise where it has one."""
    found = calibrate(kind, method=method, **params)
    rest = {k: v for k, v in params.items() if k not in ("eps", "sigma")}
    out: dict[str, float] = {}
    for name in ("paper_sigma", "eps_at_paper_sigma"):
        if name in found:
            out[name] = found[name]
    out["tight_sigma"] = found["sigma"]
    at_noise = (
        kind == "private_local_sgd" and params["devices"] > 1
    )  # these vectors have no eps at tight_sigma
    sigma = found["paper_sigma"] if at_noise else vector.get("tight_sigma") or found["sigma"]
    out["eps"] = account(kind, method=method, sigma=sigma, **rest)["eps"]
    if kind in ("soteriafl_svrg", "soteriafl_saga") and vector["sampling"] == "poisson":
        for name, by in (("pair", "theorem_k"), ("chain", "chain_fixed")):
            if by == "chain_fixed" and kind == "soteriafl_saga":
                continue
            out[f"sigma_{name}"] = calibrate(kind, method=by, **params)["sigma"]
            at_paper = account(kind, method=by, sigma=found["paper_sigma"], **rest)
            out[f"eps_{name}_at_paper"] = at_paper["eps"]
    if kind == "private_local_sgd":
        G, m, b, tau, C, r = (vector["params"][k] for k in ("G", "m", "gamma", "tau", "C_i", "r"))
        noise = found["paper_sigma"]
        out["rho"] = 2 * C * tau * G * G / (r * m * b * noise**2)
        alone = account(kind, sigma=noise, **{**rest, "devices": 1})
        out["eps_no_secagg_same_sigma"] = alone["eps"]
    if "GDP" in str(found["method"]):
        out["mu"] = gdp_mu(params["eps"], params["delta"])
    return out


def _phases(raw: Mapping[str, Any], sampling: str) -> dict[str, Any]:
    """Phases {n, R, K, sigma} over disjoint parts of a silo's data."""
    events = tuple(
        plain_event(p["n"], p["R"], raw["L"], p["K"], sampling, sigma=p["sigma"])
        for p in raw["phases"]
    )
    each = [epsilon(event, raw["delta"]).eps for event in events]
    return {"eps": epsilon(Phases(events), raw["delta"]).eps, "per_phase_eps": each}


def _mu2(raw: Mapping[str, Any], params: dict[str, Any]) -> dict[str, float]:
    """Noise from rho; machines > 1: trusted server, by 2 S sqrt(T)."""
    G, L, D, T, M = raw["G"], raw["L"], raw["D"], raw["T"], raw.get("M", 1)
    name = "mu2_untrusted" if M == 1 else "mu2_trusted"
    numbers = {k: v for k, v in params.items() if k != "rho"}
    paper = calibrate(name, **params)["paper_sigma"]
    steps = Increments(G, L, D, M, exact=False)
    loose = epsilon(Event(Sampling("single_pass", T, 1), steps, paper, T), raw["delta"]).eps
    tight = account(name, sigma=paper, **numbers)
    found = calibrate(name, eps=loose, **numbers)
    return {
        "paper_sigma": paper,
        "tight_sigma": found["sigma"],
        "eps": loose,
        "eps_at_paper_sigma": tight["eps"],
        "mu_exact_at_paper_sigma": gdp_mu(tight["eps"], raw["delta"]),
    }
