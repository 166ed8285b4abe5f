"""Mechanisms by name: the event of each algorithm from a few numbers, and its paper's formula.

A kind needs no data and no model: ``event(**numbers)`` describes what is released,
``claim(eps=... or sigma=..., **numbers)`` is what its paper states.  :mod:`jaxfl.privacy.questions`
asks both.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from jaxfl.errors import InputError
from jaxfl.privacy import formulas
from jaxfl.privacy.events import (
    AnyEvent,
    Event,
    Increments,
    LocalSteps,
    Mean,
    Phases,
    Sampling,
    Scheme,
    Sequence,
    saga,
    svrg,
)
from jaxfl.privacy.formulas import Claim

__all__ = ["KINDS", "SCHEME_NAMES", "Kind", "kind", "scheme"]

SCHEME_NAMES: dict[str, Scheme] = {
    "full": "full",
    "full batch": "full",
    "poisson": "poisson",
    "wor": "without_replacement",
    "without_replacement": "without_replacement",
    "wr": "with_replacement",
    "with_replacement": "with_replacement",
    "shuffled": "shuffled",
    "shuffled epoch": "shuffled",
    "single_pass": "single_pass",
    "single pass": "single_pass",
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """An algorithm's release.  ``letters``: the symbols of the papers and test vectors, by name."""

    name: str
    doc: str
    event: Callable[..., AnyEvent]
    claim: Callable[..., Claim | None]
    letters: tuple[tuple[str, str], ...] = ()

    @property
    def params(self) -> dict[str, Any]:
        """The names that the event takes, with their defaults; no default: required."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.event).parameters.items()
            if name != "sigma"
        }


KINDS: dict[str, Kind] = {}

_LETTERS = {"m": "samples", "b": "batch", "T": "rounds", "G": "clip", "C": "record_norm"}


def scheme(name: str) -> Scheme:
    """A sampling scheme under any of its names."""
    if name not in SCHEME_NAMES:
        raise InputError(f"sampling = {name!r} is not known: use one of {', '.join(SCHEME_NAMES)}.")
    return SCHEME_NAMES[name]


def kind(name: str) -> Kind:
    """The kind of that name, or an error that names the nearest match."""
    import difflib

    key = name.replace("-", "_").lower()
    if key in KINDS:
        return KINDS[key]
    near = difflib.get_close_matches(key, KINDS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise InputError(f"There is no mechanism {name!r}.{hint} Known: {', '.join(KINDS)}.")


def _add(
    name: str,
    doc: str,
    event: Callable[..., AnyEvent],
    claim: Callable[..., Claim | None] | None = None,
    letters: Mapping[str, str] | None = None,
) -> None:
    KINDS[name] = Kind(
        name,
        doc,
        event,
        claim or (lambda **numbers: None),
        tuple({**_LETTERS, **(letters or {})}.items()),
    )


# --- gradients: SoteriaFL and its relatives, single node -----------------------------------------


def _gd(samples: int, rounds: int, clip: float, sigma: float = 1.0) -> AnyEvent:
    return Event(Sampling("full", samples, samples), Mean(clip), sigma, rounds)


def _sgd(
    samples: int,
    batch: float,
    rounds: int,
    clip: float,
    sampling: str = "poisson",
    slots: int | None = None,
    adjacency: str = "replace_one",
    record_norm: float | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    how = scheme(sampling)
    m, b = samples, samples if how == "full" else batch
    estimator = Mean(clip if record_norm is None else record_norm)
    return Event(
        Sampling(how, m, b, slots),
        estimator,
        sigma,
        rounds,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def _svrg(
    samples: int,
    batch: float,
    rounds: int,
    clip: float,
    sampling: str = "poisson",
    slots: int | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    return Event(Sampling(scheme(sampling), samples, batch, slots), svrg(clip), sigma, rounds)


def _saga(
    samples: int,
    batch: float,
    rounds: int,
    clip: float,
    sampling: str = "poisson",
    slots: int | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    return Event(Sampling(scheme(sampling), samples, batch, slots), saga(clip), sigma, rounds)


def _compressed(constant: float, snapshot: bool = False) -> Callable[..., Claim]:
    def claim(
        samples: int,
        rounds: int,
        clip: float,
        delta: float,
        batch: float | None = None,
        eps: float | None = None,
        sigma: float | None = None,
        **_: Any,
    ) -> Claim:
        return formulas.compressed_gd(
            constant,
            clip,
            samples,
            samples if batch is None else batch,
            rounds,
            delta,
            eps=eps,
            sigma=sigma,
            snapshot=snapshot,
        )

    return claim


for _name, _constant in (("cdp", 8), ("ldp", 8), ("dp", 8), ("soteriafl", 12)):
    _add(f"{_name}_gd", "full gradients", _gd, _compressed(_constant))
    _add(f"{_name}_sgd", "minibatch gradients", _sgd, _compressed(_constant))
for _name in ("soteriafl_svrg", "ldp_svrg"):
    _add(_name, "loopless SVRG, one noise on the estimate", _svrg, _compressed(96, True))
_add("soteriafl_saga", "SAGA, whose table is hidden", _saga, _compressed(96, True))
_add(
    "q_dpsgd",
    "Q-DPSGD-1",
    _sgd,
    lambda samples, rounds, delta, eps=None, sigma=None, **_: formulas.q_dpsgd(
        samples, rounds, delta, eps=eps, sigma=sigma
    ),
)
_add("sdm_dsgd", "SDM-DSGD, its mask not counted", _sgd)


def _rrpsgd(
    samples: int,
    clip: float,
    rounds: int | None = None,
    batch: int = 1,
    sampling: str = "without_replacement",
    record_norm: float | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    """At most m^2 rounds of one record; how many is random and says nothing of the data."""
    T = samples**2 if rounds is None else rounds
    return _sgd(samples, batch, T, clip, sampling, record_norm=record_norm, sigma=sigma)


_add(
    "rrpsgd",
    "RRPSGD, its most rounds",
    _rrpsgd,
    lambda samples, clip, delta, eps=None, sigma=None, **_: formulas.rrpsgd(
        clip, samples, delta, eps=eps, sigma=sigma
    ),
)


def _dp_srm(
    samples: int,
    batch: int,
    rounds: int,
    clip: float,
    momentum: float = 0.0,
    clients: int = 1,
    sampling: str = "without_replacement",
    record_norm: float | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    """A drawn record adds ``grad f(x+) - (1 - gamma) grad f(x)``, of norm (2 - gamma) G."""
    reach = (2 - momentum) * clip if record_norm is None else record_norm
    trust = "single_node" if clients == 1 else "secure_sum"
    return Event(
        Sampling(scheme(sampling), samples, batch),
        Mean(clip, over_b=reach / clip / clients),
        sigma,
        rounds,
        trust=trust,  # type: ignore[arg-type]
    )


_add("dp_srm", "DP-SRM, later estimates", _dp_srm, letters={"gamma": "momentum", "n": "clients"})
KINDS["distributed_dp_srm"] = dataclasses.replace(
    KINDS["dp_srm"], name="distributed_dp_srm", doc="DP-SRM of pooled data by a secure sum"
)


def _spider(
    samples: int,
    batch: int,
    clip: float,
    epochs: int,
    inner: int,
    noise_ratio: float = 1.0,
    sampling: str = "poisson",
    sigma: float = 1.0,
) -> AnyEvent:
    """E full gradients of noise ``ratio sigma``, E (Q - 1) differences of noise sigma."""
    full = Event(Sampling("full", samples, samples), Mean(clip), noise_ratio * sigma, epochs)
    difference = Event(
        Sampling(scheme(sampling), samples, samples if scheme(sampling) == "full" else batch),
        Mean(clip, over_b=2.0),
        sigma,
        epochs * (inner - 1),
    )
    return Sequence((difference, full))


for _name in ("lowy_svrg", "lowy_spider"):
    _add(
        _name,
        "Lowy et al.: full gradients and differences, noised apart",
        _spider,
        letters={"E": "epochs", "Q": "inner", "sigma1_over_s": "noise_ratio"},
    )


# --- local steps ---------------------------------------------------------------------------------


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
    return Event(
        Sampling("shuffled", samples, batch),
        LocalSteps(clip, local_steps, devices, colluding, convex, fresh),
        sigma,
        rounds,
        trust="local_transcript" if devices == 1 else "secure_sum",
    )


_add(
    "hu",
    "private local SGD of one device, in the rounds it took part in",
    _hu,
    lambda samples, batch, rounds, clip, delta, local_steps=1, devices=1, convex=None, eps=None, sigma=None, **_: (
        formulas.hu(
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
    ),
    {"gamma": "batch", "tau": "local_steps", "C_i": "rounds", "r": "devices"},
)


# --- ISRL-DP -------------------------------------------------------------------------------------

_ISRL = {"n": "samples", "K": "batch", "R": "rounds", "L": "clip"}


def _phase(
    samples: int,
    rounds: int,
    clip: float,
    batch: int | None = None,
    sampling: str = "with_replacement",
    record_norm: float | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    whole = batch is None or sampling in ("full", "full batch")
    how = "full" if whole else sampling
    b = samples if batch is None else batch
    return _sgd(samples, b, rounds, clip, how, record_norm=record_norm, sigma=sigma)


def _gao(
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


def _convolution(
    samples: int,
    batch: int,
    rounds: int,
    clip: float,
    sampling: str = "poisson",
    record_norm: float | None = None,
    sigma: float = 1.0,
) -> AnyEvent:
    return _sgd(samples, batch, rounds, clip, sampling, record_norm=record_norm, sigma=sigma)


def _localized(
    phases: list[dict[str, Any]], clip: float, sampling: str = "poisson", sigma: float = 1.0
) -> AnyEvent:
    """Phases ``{n, R, K, sigma}`` over disjoint parts of a silo's data; sigma scales all of them."""
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


_add("isrl_phase", "one phase of localized ISRL-DP, or multi-pass MB-SGD", _phase, _gao, _ISRL)
_add("isrl_convolution", "ISRL-DP with convolution smoothing", _convolution, _gao, _ISRL)
_add("isrl_localized", "all phases, over disjoint data", _localized, letters=_ISRL)
for _name, _classical in (("isrl_one_pass", False), ("isrl_one_pass_classical", True)):
    _add(
        _name,
        "one-pass ISRL-DP MB-SGD" + (", with ln(1.25/delta)" if _classical else ""),
        _one_pass,
        lambda batch, clip, delta, eps=None, sigma=None, c=_classical, **_: formulas.one_pass(
            clip, batch, delta, classical=c, eps=eps, sigma=sigma
        ),
        _ISRL,
    )


# --- mu^2-SGD ------------------------------------------------------------------------------------


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
    eps: float | None = None,
    sigma: float | None = None,
    **_: Any,
) -> Claim:
    S = clip + 2 * smoothness * diameter
    return formulas.mu2(S, rounds, delta, machines=machines, eps=eps, sigma=sigma)


_add(
    "mu2",
    "DP-mu^2-FL; machines > 1: trusted server, against the other machines",
    _mu2,
    _mu2_claim,
    {"L": "smoothness", "D": "diameter", "M": "machines"},
)

# --- nothing but sampling ------------------------------------------------------------------------


def _multiplier(q: float, nm: float, rounds: int, sigma: float = 1.0) -> AnyEvent:
    """Poisson sampling at rate q with noise multiplier nm = sigma b/G, replace-one."""
    m = 10**9
    return Event(Sampling("poisson", m, q * m), Mean(q * m / nm), sigma, rounds)


_add("noise_multiplier", "Poisson sampling in dp-accounting's units", _multiplier)
del _name, _constant, _classical, math
