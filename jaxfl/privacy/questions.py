"""``account`` and ``calibrate`` by name, with no data at all: what the command line prints.

>>> from jaxfl.privacy import calibrate
>>> found = calibrate("soteriafl_gd", samples=3256, rounds=100, clip=0.5, eps=5, delta=1e-3)
>>> round(found["sigma"], 6), found["status"], round(found["paper_sigma"], 6)
(0.002119, 'E', 0.002796)

``jaxfl account KIND --samples 3256 ...`` is ``account("KIND", samples=3256, ...)``, and the same for
``calibrate``: every option is the parameter's name with dashes.  The functions also take the letters
of the papers.

Letters
-------

==================  ======================  ==============================================
letter              parameter, option       meaning
==================  ======================  ==============================================
m (n in phases)     samples                 records of a client
b, K, gamma         batch                   records per release
T, R, C_i           rounds                  releases; rounds that a device took part in
G, L (ISRL-DP)      clip                    bound of one record's gradient
C                   record_norm             the same where an estimator changes it
sampling            sampling                full, poisson, without_replacement (wor),
                                            with_replacement (wr), shuffled, single_pass
eps, delta, sigma   eps, delta, sigma
tau, r              local-steps, devices    Hu et al.; also ``convex``, ``fresh``, ``colluding``
gamma (DP-SRM), n   momentum, clients
E, Q                epochs, inner           full rounds, rounds per epoch
sigma1_over_s       noise-ratio             noise of full rounds over noise of differences
L, D, M, rho        smoothness, diameter,   mu^2-SGD; S follows from G, L, D
                    machines, rho
phases              phases                  list of {n, R, K, sigma}
L0                  bound                   data-independent gradient bound
expansion_c, eta    expansion, eta          c = 1 + eta
p, mu_per_round     p, mu-per-round         mask
mu, nm              mu, nm                  ``nm``: noise_multiplier
instances           instances               theorem_k
tp npos fp nneg     the same                also ``alpha``
guesses, correct    the same                m is then ``canaries``
runs_per_world      runs                    also ``seed``; ``clip_what="batch"``
-                   runs, seen              of every other kind: the best of so many runs was chosen
                                            (``seen``: all, or winner if the others stay secret)
==================  ======================  ==============================================
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from jaxfl.errors import InputError
from jaxfl.privacy import accountants, calibration
from jaxfl.privacy.calculators import CALCULATORS
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import Event
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.privacy.kinds import kind as kind_of
from jaxfl.privacy.kinds_base import Kind
from jaxfl.privacy.ranges import ATTACKS, checked
from jaxfl.privacy.selection import best_of

__all__ = ["account", "calibrate"]

_ASKED = ("eps", "delta", "sigma", "rho")


def account(
    kind: str, *, method: str | None = None, seen: str | None = None, **params: Any
) -> dict[str, Any]:
    """What the noise ``sigma`` proves, eps at ``delta`` or delta at ``eps``; and the paper's claim.

    ``params`` are the kind's own, under their names or the papers' letters.  With ``runs`` also
    what the best of so many runs proves (:func:`jaxfl.privacy.best_of`; ``seen="winner"`` where
    the others stay secret).  Kinds without an event (conversions, audits, counterexamples) answer
    their one question.

    >>> numbers = {"samples": 3256, "rounds": 25, "clip": 0.5, "sigma": 0.00570, "delta": 1e-3}
    >>> found = account("cdp_sgd", batch=10, **numbers)
    >>> round(found["eps"], 1), round(found["claimed_eps"], 2), found["flag"]
    (69.0, 1.0, True)
    """
    key = kind.replace("-", "_").lower()
    if key in CALCULATORS:
        function, letters = CALCULATORS[key]
        numbers = checked(_named(key, function, letters, params), ATTACKS)
        return {"kind": key, **_call(key, function, numbers)}
    runs = params.pop("runs", None)
    known, numbers, asked = _split(kind, params)
    sigma, delta, eps = asked.get("sigma"), asked.get("delta"), asked.get("eps")
    if asked.get("rho") is not None:
        raise InputError(f"rho = {asked['rho']!r} stands for noise to be found: ask calibrate.")
    if eps is not None and delta is not None:
        raise InputError(
            f"eps = {eps!r} and delta = {delta!r}: give one of them, account finds the other."
        )
    if runs is None and seen is not None:
        raise InputError(f"seen = {seen!r} needs runs, the number of runs to choose from: give it.")
    if runs is not None and delta is None:
        raise InputError(f"runs = {runs!r} needs delta, at which the choice is accounted: give it.")
    if sigma is None and kind_of(kind).name not in ("isrl_localized", "noise_multiplier"):
        raise InputError("sigma = None: give the noise to account for, or ask to calibrate it.")
    event = _call(known.name, known.event, {**numbers, "sigma": 1.0 if sigma is None else sigma})
    out: dict[str, Any] = {"kind": known.name, "sigma": sigma}
    if delta is None:
        if eps is None:
            raise InputError("delta = None: give delta to get eps, or eps to get delta.")
        answer = accountants.delta(event, eps, method)
        return {**out, **answer._asdict()}
    answer = accountants.epsilon(event, delta, method)
    out |= answer._asdict()
    if runs is not None:
        best = best_of(event, runs, delta, seen=seen or "all", method=method)  # type: ignore[arg-type]
        out |= {f"{name}_of_selection": value for name, value in best._asdict().items()}
        del out["delta_of_selection"]
    claim = _claim(known, numbers, delta=delta, sigma=sigma) if sigma else None
    if claim is not None:
        at = accountants.delta(event, claim.eps, method).delta if claim.eps < math.inf else 0.0
        out |= {
            "claimed_eps": claim.eps,
            "delta_at_claimed_eps": at,
            "flag": answer.eps > claim.eps * (1 + 1e-9),
            **_conditions(claim),
        }
    return out


def calibrate(
    kind: str, *, method: str | None = None, find: str = "sigma", **params: Any
) -> dict[str, Any]:
    """The least noise for (eps, delta), what it proves, and the paper's noise beside it.

    ``find="rounds"`` or ``find="batch"`` take ``sigma`` and look for that number instead: the most
    rounds, up to 2^31, or the smallest batch.
    """
    known, numbers, asked = _split(kind, params)
    delta, eps, rho = asked.get("delta"), asked.get("eps"), asked.get("rho")
    if rho is not None and eps is None and delta is not None:
        eps = float(gdp_eps(rho, delta))  # Reshef and Levy's rho is the mu of GDP
    if eps is None or delta is None:
        raise InputError(f"eps = {eps!r}, delta = {delta!r}: give both to calibrate for them.")
    if find != "sigma":
        return _find(find, known, numbers, asked, eps, delta, method)
    if asked.get("sigma") is not None:
        raise InputError(
            f"sigma = {asked['sigma']!r} is what calibrate looks for: leave it out, or ask for "
            "find = 'rounds' or 'batch'."
        )
    event = _call(known.name, known.event, {**numbers, "sigma": 1.0})
    found = calibration.sigma_for(event, eps, delta, method)
    out: dict[str, Any] = {
        "kind": known.name,
        "sigma": found.sigma,
        **found.proven._asdict(),
        "asked_eps": eps,
    }
    claim = _claim(known, numbers, delta=delta, eps=eps, **({} if rho is None else {"rho": rho}))
    if claim is not None:
        noisy = _call(known.name, known.event, {**numbers, "sigma": claim.sigma})
        at_paper = accountants.epsilon(noisy, delta, method)
        out |= {
            "paper_sigma": claim.sigma,
            "eps_at_paper_sigma": at_paper.eps,
            "delta_at_claimed_eps": accountants.delta(noisy, claim.eps, method).delta,
            "flag": at_paper.eps > claim.eps * (1 + 1e-9),
            **_conditions(claim),
        }
    return out


def _find(
    what: str,
    known: Kind,
    numbers: dict[str, Any],
    asked: dict[str, Any],
    eps: float,
    delta: float,
    method: str | None,
) -> dict[str, Any]:
    search: Callable[..., int]
    if what not in ("rounds", "batch"):
        raise InputError(f"find = {what!r} is not known: use 'sigma', 'rounds' or 'batch'.")
    search = calibration.rounds_for if what == "rounds" else calibration.batch_for
    if asked.get("sigma") is None:
        raise InputError(f"sigma = None: give the noise for which to find {what}.")
    start = {**numbers, "sigma": asked["sigma"]}
    if what not in known.params:
        raise InputError(f"find = {what!r}: {known.name} takes no {what}, find sigma.")
    event = _call(known.name, known.event, {**start, **_widest(what, known, start)})
    if not isinstance(event, Event):
        raise InputError(
            f"find = {what!r} needs one event, and {known.name} has several: find sigma."
        )
    value = search(event, eps, delta, method)
    proven = accountants.epsilon(
        _call(known.name, known.event, {**start, what: value}), delta, method
    )
    return {"kind": known.name, "sigma": asked["sigma"], what: value, **proven._asdict()}


def _widest(what: str, known: Kind, start: Mapping[str, Any]) -> dict[str, Any]:
    """What a search begins with.

    The records of a pass may follow from its rounds and batch: there they have to suffice for every
    answer, and would otherwise end the search at once.
    """
    if what == "rounds":
        return {"rounds": calibration.MOST_ROUNDS}
    follows = known.params.get("samples", 0) is None and "samples" not in start
    many = int(start.get("rounds", 1)) * calibration.MOST_ROUNDS
    return {"batch": 1, **({"samples": many} if follows else {})}


# --- names ---------------------------------------------------------------------------------------


def _split(kind: str, params: Mapping[str, Any]) -> tuple[Kind, dict[str, Any], dict[str, Any]]:
    """The kind, its numbers, and what is asked."""
    if kind.replace("-", "_").lower() in CALCULATORS:
        raise InputError(f"{kind!r} has no noise to calibrate: use account.")
    known = kind_of(kind)
    named = checked(_named(known.name, known.event, dict(known.letters), params, _ASKED))
    asked = {name: named.pop(name) for name in _ASKED if name in named}
    return known, named, asked


def _named(
    kind: str,
    function: Callable[..., Any],
    letters: Mapping[str, str],
    params: Mapping[str, Any],
    more: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Parameters under their names, letters translated, unknown ones refused."""
    names = [*inspect.signature(function).parameters, *more]
    out: dict[str, Any] = {}
    for given, value in params.items():
        if value is None:
            continue
        name = given if given in names else letters.get(given, given)
        if name not in names:
            near = difflib.get_close_matches(name, [*names, *letters], n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise InputError(
                f"{kind} has no parameter {given!r}.{hint} It takes: {', '.join(names)}."
            )
        if name in out and out[name] != value:
            raise InputError(f"{name} is given twice, as {out[name]!r} and as {value!r}.")
        out[name] = value
    return out


def _call(kind: str, function: Callable[..., Any], numbers: dict[str, Any]) -> Any:
    """The function's answer, or a sentence about what is missing."""
    missing = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and name not in numbers
    ]
    if missing:
        raise InputError(f"{kind} needs {', '.join(missing)}: give what is missing.")
    return function(**numbers)


def _claim(known: Kind, numbers: dict[str, Any], **asked: Any) -> Claim | None:
    return known.claim(**{**numbers, **asked})


def _conditions(claim: Claim) -> dict[str, Any]:
    return {
        "paper": claim.source,
        "paper_formula": claim.formula,
        "paper_verified": claim.verified,
        "paper_conditions": [c._asdict() for c in claim.conditions],
        "paper_note": claim.note,
    }
