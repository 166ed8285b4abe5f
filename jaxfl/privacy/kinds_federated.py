"""Kinds with local steps, disjoint phases, or increments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxfl.errors import InputError
from jaxfl.privacy import formulas
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import AnyEvent, Event, Increments, LocalSteps, Mean, Phases, Sampling
from jaxfl.privacy.kinds_base import Kind, make, scheme
from jaxfl.privacy.kinds_gradient import sgd

__all__ = ["TABLE"]


def _hu(
    samples: int,
    batch: int,
    rounds: int,
    clip: float,
    local_steps: int = 1,
    devices: int = 1,
    colluding: int = 0,
    convex: bool = False,
    fresh: bool = False,
    sigma: float = 1.0,
) -> AnyEvent:
    """One device, in the rounds it took part in."""
    return Event(
        Sampling("shuffled", samples, batch),
        LocalSteps(clip, local_steps, devices, colluding, convex, fresh),
        sigma,
        rounds,
        trust="local_transcript" if devices == 1 else "secure_sum",
    )


def _hu_claim(
    samples: int,
    batch: int,
    rounds: int,
    clip: float,
    delta: float,
    local_steps: int = 1,
    devices: int = 1,
    convex: bool | None = None,
    eps: float | None = None,
    sigma: float | None = None,
    **_: Any,
) -> Claim:
    return formulas.hu(
        clip,
        samples,
        batch,
        local_steps,
        rounds,
        delta,
        devices=devices,
        convex=convex,
        eps=eps,
        sigma=sigma,
    )


def _phase(
    samples: int,
    rounds: int,
    clip: float,
    batch: int | None = None,
    sampling: str = "with_replacement",
    record_norm: float | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    how = "full" if batch is None else scheme(sampling)
    b = samples if batch is None else batch
    return sgd(samples, b, rounds, clip, how, record_norm=record_norm, sigma=sigma)


def _convolution(
    samples: int,
    batch: int,
    rounds: int,
    clip: float,
    sampling: str = "poisson",
    record_norm: float | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    return sgd(samples, batch, rounds, clip, sampling, record_norm=record_norm, sigma=sigma)


def _gao_claim(
    samples: int,
    rounds: int,
    clip: float,
    delta: float,
    batch: int | None = None,
    eps: float | None = None,
    sigma: float | None = None,
    **_: Any,
) -> Claim:
    b = samples if batch is None else batch
    return formulas.gao(clip, samples, b, rounds, delta, eps=eps, sigma=sigma)


def _localized(
    phases: Sequence[dict[str, Any]], clip: float, sampling: str = "poisson", sigma: float = 1.0
) -> AnyEvent:
    """Phases {n, R, K, sigma} over disjoint parts of a silo's data; sigma scales them all."""
    whole = isinstance(phases, list | tuple) and len(phases) > 0
    for p in phases if whole else [phases]:
        if not (whole and isinstance(p, dict) and {"n", "R", "K", "sigma"} == set(p)):
            raise InputError(
                f"phases = {phases!r} has to be a list of phases such as "
                '[{"n": 100, "R": 10, "K": 10, "sigma": 1.0}].'
            )
        for name, value in p.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"phases: {name} = {value!r} has to be a number.")
    return Phases(
        tuple(
            _phase(p["n"], p["R"], clip, p["K"], sampling, sigma=sigma * p["sigma"]) for p in phases
        )
    )


def _one_pass(
    batch: int, clip: float, rounds: int = 1, samples: int | None = None, sigma: float = 1.0
) -> AnyEvent:
    m = batch * rounds if samples is None else samples
    return Event(Sampling("single_pass", m, batch), Mean(clip), sigma, rounds)


def _one_pass_claim(
    batch: int,
    clip: float,
    delta: float,
    eps: float | None = None,
    sigma: float | None = None,
    **_: Any,
) -> Claim:
    return formulas.one_pass(clip, batch, delta, eps=eps, sigma=sigma)


def _classical_claim(
    batch: int,
    clip: float,
    delta: float,
    eps: float | None = None,
    sigma: float | None = None,
    **_: Any,
) -> Claim:
    return formulas.one_pass(clip, batch, delta, classical=True, eps=eps, sigma=sigma)


def _mu2(
    rounds: int,
    clip: float,
    smoothness: float,
    diameter: float,
    machines: int = 1,
    exact: bool = True,
    sigma: float = 1.0,
) -> AnyEvent:
    return Event(
        Sampling("single_pass", rounds, 1),
        Increments(clip, smoothness, diameter, machines, exact),
        sigma,
        rounds,
        trust="local_transcript" if machines == 1 else "trusted_server",
    )


def _mu2_claim(
    rounds: int,
    clip: float,
    smoothness: float,
    diameter: float,
    delta: float,
    machines: int = 1,
    rho: float | None = None,
    eps: float | None = None,
    sigma: float | None = None,
    **_: Any,
) -> Claim:
    S = clip + 2 * smoothness * diameter
    eps = None if rho is not None else eps
    return formulas.mu2(S, rounds, delta, machines=machines, rho=rho, eps=eps, sigma=sigma)


_HU = {"gamma": "batch", "tau": "local_steps", "C_i": "rounds", "r": "devices"}
_ISRL = {"n": "samples", "K": "batch", "R": "rounds", "L": "clip"}
_MU2 = {"L": "smoothness", "D": "diameter", "M": "machines"}

TABLE: tuple[Kind, ...] = (
    make("hu", "private local SGD of one device", _hu, _hu_claim, _HU),
    make("isrl_phase", "a phase of localized ISRL-DP, or MB-SGD", _phase, _gao_claim, _ISRL),
    make("isrl_convolution", "ISRL-DP, convolution smoothing", _convolution, _gao_claim, _ISRL),
    make("isrl_localized", "ISRL-DP, all phases on disjoint data", _localized, letters=_ISRL),
    make("isrl_one_pass", "one-pass ISRL-DP MB-SGD", _one_pass, _one_pass_claim, _ISRL),
    make("isrl_one_pass_classical", "with ln(1.25/delta)", _one_pass, _classical_claim, _ISRL),
    make("mu2", "DP-mu^2-FL; machines > 1: trusted server", _mu2, _mu2_claim, _MU2),
)
