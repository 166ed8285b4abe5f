"""The vectors of ``vectors/privacy.json`` as questions: which kind each is, and its numbers.

=====================================  =======================================================
vector                                 kind
=====================================  =======================================================
CDP-GD, DP-GD, LDP-GD; SoteriaFL-GD    cdp_gd, dp_gd, ldp_gd; soteriafl_gd
CDP-SGD, LDP-SGD, DP-SGD               cdp_sgd, ldp_sgd, dp_sgd
SoteriaFL-SGD                          soteriafl_sgd
SoteriaFL-SVRG, LDP-SVRG (code)        soteriafl_svrg, ldp_svrg; min(pair, chain):
                                       ``method="pair_or_chain"``; chain alone, as with fixed
                                       size: ``"chain_fixed"``; pair alone: ``"theorem_k"``.
                                       The default, ``"chain"`` and ``"best"`` are tighter: they
                                       share delta between the chain's steps in the best way
SoteriaFL-SAGA                         soteriafl_saga; ``method="theorem_k"`` (Poisson),
                                       ``"reveal"`` (fixed size)
Q-DPSGD-1; RRPSGD                      q_dpsgd; rrpsgd
DP-SRM, distributed DP-SRM             dp_srm, distributed_dp_srm
LDP-SPIDER, original LDP-SVRG          lowy_spider, lowy_svrg; sigma is that of the differences
Hu et al.                              hu; hu_counterexample
ISRL-DP phase, multi-pass              isrl_phase (no batch: all records)
ISRL-DP with convolution               isrl_convolution
ISRL-DP, all phases                    isrl_localized
one-pass ISRL-DP                       isrl_one_pass; isrl_one_pass_classical for ln(1.25/delta)
DP-mu^2-FL                             mu2; ``exact=False`` for 2 S sqrt(T)
LDP-SGD with clip(batch mean)          batch_clip
random sparsification                  mask
Gaussian mechanism; zCDP to DP         gaussian; zcdp
dp-accounting conventions              noise_multiplier
hidden-state dominance                 theorem_k
audits                                 audit_cp, audit_one_run, audit_canary
=====================================  =======================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jaxfl.errors import InputError
from jaxfl.privacy.formulas import mu2 as mu2_claim
from jaxfl.privacy.gaussian import gdp_mu
from jaxfl.privacy.questions import account, calibrate

__all__ = ["answers", "question"]

_PLAIN = ("eps", "delta", "sigma")


def question(vector: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The kind of a test vector, and its parameters as ``account`` and ``calibrate`` take them."""
    kind = _kind(vector)
    algorithm, params = str(vector["algorithm"]), dict(vector["params"])
    for derived in (
        "q",
        "X",
        "Y",
        "passes",
        "S",
        "q_hit",
        "claimed_eps",
        "rounds_released",
        "loss",
    ):
        if not (derived == "q" and kind == "noise_multiplier"):
            params.pop(derived, None)
    if kind in _SAMPLED:
        params["sampling"] = vector["sampling"]
    if kind.endswith("_gd") or vector["sampling"] == "full batch":
        for name in ("b", "sampling"):
            params.pop(name, None)
    if kind.startswith("isrl") and "G" in params:
        params.pop("L", None)
    if kind == "hu":
        params["convex"] = "amplification by iteration" in str(vector["method"])
        params["fresh"] = "fresh" in str(vector["sampling"])
    if kind == "audit_canary" and "batch-mean" in algorithm:
        params["clip_what"] = "batch"
    if kind == "theorem_k":
        params.pop("T", None)
    if kind == "dp_srm" and "C" in params:
        params.pop("gamma", None)
    return kind, params


_SAMPLED = (
    "cdp_sgd", "ldp_sgd", "dp_sgd", "soteriafl_sgd", "soteriafl_svrg", "ldp_svrg", "soteriafl_saga",
    "q_dpsgd", "sdm_dsgd", "rrpsgd", "dp_srm", "distributed_dp_srm", "lowy_spider", "lowy_svrg",
    "isrl_phase", "isrl_convolution", "batch_clip",
)  # fmt: skip

# what a vector's parameters give away
_BY_PARAMS = (
    ("tp", "audit_cp"), ("guesses", "audit_one_run"), ("runs_per_world", "audit_canary"),
    ("instances", "theorem_k"), ("expansion_c", "hu_counterexample"), ("phases", "isrl_localized"),
    ("mu_per_round", "mask"), ("nm", "noise_multiplier"), ("E", "lowy_spider"), ("D", "mu2"),
    ("tau", "hu"),
)  # fmt: skip

# what its name does
_BY_NAME = (
    ("clip(batch", "batch_clip"), ("same code, but", "batch_clip"), ("Q-DPSGD", "q_dpsgd"),
    ("RRPSGD", "rrpsgd"), ("Distributed DP-SRM", "distributed_dp_srm"), ("DP-SRM", "dp_srm"),
    ("One-pass", "isrl_one_pass"), ("Convolution", "isrl_convolution"), ("ISRL-DP", "isrl_phase"),
    ("same, WOR variant", "isrl_phase"), ("SVRG", "soteriafl_svrg"), ("SAGA", "soteriafl_saga"),
    ("SoteriaFL-GD", "soteriafl_gd"), ("SoteriaFL-SGD", "soteriafl_sgd"), ("SDM", "sdm_dsgd"),
    ("zCDP", "zcdp"), ("Gaussian", "gaussian"), ("SGD", "cdp_sgd"), ("GD", "cdp_gd"),
)  # fmt: skip


def _kind(vector: Mapping[str, Any]) -> str:
    params, algorithm = vector["params"], str(vector["algorithm"])
    for name, kind in _BY_PARAMS:
        if name in params:
            return kind
    for text, kind in _BY_NAME:
        if text in algorithm:
            if kind == "isrl_one_pass" and "1.25" in str(vector.get("paper_formula")):
                return "isrl_one_pass_classical"
            return kind
    raise InputError(f"algorithm = {algorithm!r} matches no kind: see the table in this module.")


def answers(vector: Mapping[str, Any]) -> dict[str, float]:
    """Every number of a test vector that this package computes, under the vector's own names."""
    kind, params = question(vector)
    raw = vector["params"]
    if kind in ("gaussian", "zcdp", "mask", "batch_clip", "hu_counterexample", "theorem_k") or (
        kind.startswith("audit")
    ):
        out = account(kind, **params)
        return {
            **out,
            "delta_at_claimed_eps_paper_sigma": out.get("delta_at_claimed_eps", math.nan),
        }
    if kind == "noise_multiplier":
        return {"eps": account(kind, **params)["eps"]}
    if kind == "isrl_localized":
        each = [account(kind, **{**params, "phases": [p]})["eps"] for p in params["phases"]]
        return {"eps": account(kind, **params)["eps"], "per_phase_eps": each}
    poisson, method = vector["sampling"] == "poisson", None
    if kind in ("soteriafl_svrg", "ldp_svrg"):
        method = "pair_or_chain" if poisson else "chain_fixed"
    elif kind == "soteriafl_saga":
        method = "theorem_k" if poisson else "reveal"
    if "sigma" in params:
        out = account(kind, method=method, **params)
        return {"eps": out["eps"], "sigma": out["sigma"]}
    if kind == "mu2":
        return _mu2(raw, params)
    if "rounds_released" in raw:
        fewer = calibrate(kind, method=method, **params)["sigma"]
        params["T"] = raw["rounds_released"]
        delta = {"delta": params["delta"]}
        rest = {k: v for k, v in params.items() if k not in _PLAIN}
        return {
            "sigma_for_100": fewer,
            "tight_sigma": calibrate(kind, method=method, **params)["sigma"],
            "eps": account(kind, method=method, sigma=fewer, **rest, **delta)["eps"],
        }
    return _calibrated(vector, kind, params, method)


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
    at_noise = kind == "hu" and params.get("r", 1) > 1  # these vectors have no eps at tight_sigma
    sigma = found["paper_sigma"] if at_noise else vector.get("tight_sigma") or found["sigma"]
    out["eps"] = account(kind, method=method, sigma=sigma, **rest)["eps"]
    if kind in ("soteriafl_svrg", "soteriafl_saga", "ldp_svrg") and vector["sampling"] == "poisson":
        for name, by in (("pair", "theorem_k"), ("chain", "chain_fixed")):
            if by == "chain_fixed" and kind == "soteriafl_saga":
                continue
            out[f"sigma_{name}"] = calibrate(kind, method=by, **params)["sigma"]
            at_paper = account(kind, method=by, sigma=found["paper_sigma"], **rest)
            out[f"eps_{name}_at_paper"] = at_paper["eps"]
    if kind == "hu":
        G, m, b, tau, C = (params[k] for k in ("G", "m", "gamma", "tau", "C_i"))
        noise = found["paper_sigma"]
        out["rho"] = 2 * C * tau * G * G / (params.get("r", 1) * m * b * noise**2)
        alone = account(kind, sigma=noise, **{**rest, "r": 1})
        out["eps_no_secagg_same_sigma"] = alone["eps"]
    if "GDP" in str(found["method"]):
        out["mu"] = gdp_mu(params["eps"], params["delta"])
    return out


def _mu2(raw: Mapping[str, Any], params: dict[str, Any]) -> dict[str, float]:
    """Noise from rho; machines > 1: trusted server, by 2 S sqrt(T)."""
    S = raw["G"] + 2 * raw["L"] * raw["D"]
    claim = mu2_claim(S, raw["T"], raw["delta"], machines=raw.get("M", 1), rho=raw["rho"])
    numbers = {k: v for k, v in params.items() if k != "rho"}
    loose = account("mu2", sigma=claim.sigma, exact=False, **numbers)
    tight = account("mu2", sigma=claim.sigma, **numbers)
    found = calibrate("mu2", eps=loose["eps"], **numbers)
    return {
        "paper_sigma": claim.sigma,
        "tight_sigma": found["sigma"],
        "eps": loose["eps"],
        "eps_at_paper_sigma": tight["eps"],
        "mu_exact_at_paper_sigma": gdp_mu(tight["eps"], raw["delta"]),
    }
