"""Kinds whose clients send gradients, and single-node algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxfl.errors import InputError
from jaxfl.privacy import formulas
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import AnyEvent, Event, Mean, Sampling, Sequence, saga, svrg
from jaxfl.privacy.kinds_base import Kind, make, scheme

__all__ = ["TABLE", "sgd"]


def _gd(samples: int, rounds: int, clip: float, sigma: float = 1.0) -> AnyEvent:
    return Event(Sampling("full", samples, samples), Mean(clip), sigma, rounds)


def sgd(
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
    """A mean of clipped gradients of drawn records."""
    how = scheme(sampling)
    return Event(
        Sampling(how, samples, samples if how == "full" else batch, slots),
        Mean(clip if record_norm is None else record_norm),
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
        b = samples if batch is None else batch
        return formulas.compressed_gd(
            constant, clip, samples, b, rounds, delta, eps=eps, sigma=sigma, snapshot=snapshot
        )

    return claim


def _q_dpsgd_claim(
    samples: int,
    rounds: int,
    delta: float,
    eps: float | None = None,
    sigma: float | None = None,
    **_: Any,
) -> Claim:
    return formulas.q_dpsgd(samples, rounds, delta, eps=eps, sigma=sigma)


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
    return sgd(samples, batch, T, clip, sampling, record_norm=record_norm, sigma=sigma)


def _rrpsgd_claim(
    samples: int,
    clip: float,
    delta: float,
    eps: float | None = None,
    sigma: float | None = None,
    **_: Any,
) -> Claim:
    return formulas.rrpsgd(clip, samples, delta, eps=eps, sigma=sigma)


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
    return Event(
        Sampling(scheme(sampling), samples, batch),
        Mean(clip, over_b=reach / clip / clients),
        sigma,
        rounds,
        trust="single_node" if clients == 1 else "secure_sum",
    )


def _differences(
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
    how = scheme(sampling)
    if how == "shuffled":
        raise InputError(
            "sampling = 'shuffled' has no accountant here: epochs go on through full gradients. Use "
            "'poisson' or 'without_replacement'."
        )
    full = Event(Sampling("full", samples, samples), Mean(clip), noise_ratio * sigma, epochs)
    difference = Event(
        Sampling(how, samples, samples if how == "full" else batch),
        Mean(clip, over_b=2.0),
        sigma,
        epochs * (inner - 1),
    )
    return Sequence((difference, full))


def _multiplier(q: float, nm: float, rounds: int, sigma: float = 1.0) -> AnyEvent:
    """Poisson sampling at rate q with noise multiplier nm = sigma b/G, replace-one."""
    m = 10**9
    return Event(Sampling("poisson", m, q * m), Mean(q * m / nm), sigma, rounds)


_SRM = {"gamma": "momentum", "n": "clients"}
_ROUNDS = {"E": "epochs", "Q": "inner", "sigma1_over_s": "noise_ratio"}
_LOWY = "Lowy et al.: full gradients and differences, noised apart"

TABLE: tuple[Kind, ...] = (
    make("cdp_gd", "CDP-GD, full gradients", _gd, _compressed(8)),
    make("cdp_sgd", "CDP-SGD, minibatch gradients", sgd, _compressed(8)),
    make("ldp_gd", "LDP-GD, full gradients", _gd, _compressed(8)),
    make("ldp_sgd", "LDP-SGD, minibatch gradients", sgd, _compressed(8)),
    make("dp_gd", "DP-GD on a single node", _gd, _compressed(8)),
    make("dp_sgd", "DP-SGD on a single node", sgd, _compressed(8)),
    make("soteriafl_gd", "SoteriaFL-GD, full gradients", _gd, _compressed(12)),
    make("soteriafl_sgd", "SoteriaFL-SGD, minibatch gradients", sgd, _compressed(12)),
    make("soteriafl_svrg", "SoteriaFL-SVRG, loopless", _svrg, _compressed(96, True)),
    make("soteriafl_saga", "SoteriaFL-SAGA, its table hidden", _saga, _compressed(96, True)),
    make("ldp_svrg", "LDP-SVRG as SoteriaFL runs it", _svrg, _compressed(96, True)),
    make("q_dpsgd", "Q-DPSGD-1", sgd, _q_dpsgd_claim),
    make("sdm_dsgd", "SDM-DSGD, its mask not counted", sgd),
    make("rrpsgd", "RRPSGD, its most rounds", _rrpsgd, _rrpsgd_claim),
    make("dp_srm", "DP-SRM, later estimates", _dp_srm, letters=_SRM),
    make("distributed_dp_srm", "DP-SRM of pooled data, secure sum", _dp_srm, letters=_SRM),
    make("lowy_svrg", _LOWY, _differences, letters=_ROUNDS),
    make("lowy_spider", _LOWY, _differences, letters=_ROUNDS),
    make("noise_multiplier", "Poisson sampling in dp-accounting's units", _multiplier),
)
