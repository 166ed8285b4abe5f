"""``jaxfl.account`` and ``jaxfl.calibrate``: privacy by the name of an algorithm, without data.

>>> import jaxfl
>>> found = jaxfl.calibrate("soteriafl_gd", samples=3256, rounds=100, clip=0.5, eps=5, delta=1e-3)
>>> round(found["sigma"], 6), found["status"], round(found["paper_sigma"], 6)
(0.002119, 'E', 0.002796)

``jaxfl account NAME --samples 3256 ...`` is ``account("NAME", samples=3256, ...)``, and the same for
``calibrate``.  A name is one of

* an algorithm: its own event answers, from its hyper-parameters and the numbers below;
* ``event``: a mean of clipped gradients, :func:`plain_event`;
* a calculator (:mod:`jaxfl.audit.calculators`), which ``account`` alone answers.

=========================  =====================================================================
parameter                  meaning
=========================  =====================================================================
samples                    records of a client
clients, devices,          how many clients there are, as the papers call them
machines
dimension                  of the model, where a default follows from it
sampling                   full, poisson, without_replacement, with_replacement, shuffled, ...
fresh, convex              of local SGD, see :func:`jaxfl.algorithms.hu.algorithms.private_local_sgd`
epochs, inner              instead of rounds, where an epoch has so many rounds
=========================  =====================================================================

``assumed`` in an answer holds the numbers that nobody gave and that the event depends on: the
algorithm's own defaults.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxfl.algorithms.registry import ALGORITHMS, algorithm
from jaxfl.algorithms.resolution import finished, planned
from jaxfl.audit.calculators import CALCULATORS
from jaxfl.audit.ranges import ATTACKS, checked
from jaxfl.core.errors import InputError
from jaxfl.core.params import check, closest
from jaxfl.core.types import Algorithm, ProblemFacts
from jaxfl.parts.sampling import sampler
from jaxfl.privacy import accountants, calibration
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import AnyEvent, Event, Mean, Phases, Sampling
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.privacy.selection import best_of

__all__ = ["account", "calibrate", "names", "plain_event"]

ASKED = ("eps", "delta", "sigma", "rho")
CLIENTS = ("clients", "devices", "machines")
PARTS = ("fresh", "convex")
ONCE = ("in_order", "single_pass")  # samplers that use a record once
UNKNOWN = {"dimension": "d", "smoothness": "smoothness", "diameter": "diameter"}  # fields of Facts


def account(
    name: str, /, *, method: str | None = None, seen: str | None = None, **params: Any
) -> dict[str, Any]:
    """What the noise ``sigma`` proves, eps at ``delta`` or delta at ``eps``; and the paper's claim.

    With ``runs`` also what the best of so many runs proves (:func:`jaxfl.privacy.best_of`;
    ``seen="winner"`` where the others stay secret).  Calculators answer their one question.

    >>> numbers = {"samples": 3256, "rounds": 25, "clip": 0.5, "sigma": 0.00570, "delta": 1e-3}
    >>> found = account("cdp_sgd", batch=10, **numbers)
    >>> round(found["eps"], 1), round(found["claimed_eps"], 2), found["flag"]
    (69.0, 1.0, True)
    """
    key = _key(name)
    if key in CALCULATORS:
        return {"kind": key, **_call(key, CALCULATORS[key], checked(_said(params), ATTACKS))}
    runs = params.pop("runs", None)
    numbers, asked = _split(params)
    sigma, delta, eps = asked.get("sigma"), asked.get("delta"), asked.get("eps")
    if "rho" in asked:
        raise InputError(f"rho = {asked['rho']!r} stands for noise to be found: ask calibrate.")
    if eps is not None and delta is not None:
        raise InputError(
            f"eps = {eps!r} and delta = {delta!r}: give one of them, account finds the other."
        )
    if runs is None and seen is not None:
        raise InputError(f"seen = {seen!r} needs runs, the number of runs to choose from: give it.")
    if runs is not None and delta is None:
        raise InputError(f"runs = {runs!r} needs delta, at which the choice is accounted: give it.")
    asks = _question(key, numbers, delta)
    if sigma is None and "noise_multiplier" not in numbers:
        raise InputError("sigma = None: give the noise to account for, or ask to calibrate it.")
    if sigma is not None and "noise_multiplier" in numbers:
        raise InputError(
            f"sigma = {sigma!r} and noise_multiplier both set the noise: give one of them."
        )
    event = asks.event(1.0 if sigma is None else sigma)
    sigma = event.sigma if sigma is None and isinstance(event, Event) else sigma
    out: dict[str, Any] = {"kind": key, "sigma": sigma}
    if delta is None:
        if eps is None:
            raise InputError("delta = None: give delta to get eps, or eps to get delta.")
        return {**out, **accountants.delta(event, eps, method)._asdict(), **asks.told}
    answer = accountants.epsilon(event, delta, method)
    out |= answer._asdict() | asks.told
    if runs is not None:
        best = best_of(event, runs, delta, seen=seen or "all", method=method)  # type: ignore[arg-type]
        out |= {f"{name}_of_selection": value for name, value in best._asdict().items()}
        del out["delta_of_selection"]
    claim, _ = asks.paper({"sigma": sigma}) if sigma else (None, None)
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
    name: str, /, *, method: str | None = None, find: str = "sigma", **params: Any
) -> dict[str, Any]:
    """The least noise for (eps, delta), what it proves, and the paper's noise beside it.

    Disjoint phases are calibrated each by itself: ``sigma`` is the first phase's, ``sigmas`` are all.
    ``find="rounds"`` or ``find="batch"`` take ``sigma`` and look for that number instead: the most
    rounds, up to 2^31, or the smallest batch.
    """
    key = _key(name)
    if key in CALCULATORS:
        raise InputError(f"{name!r} has no noise to calibrate: use account.")
    numbers, asked = _split(params)
    delta, eps, rho = asked.get("delta"), asked.get("eps"), asked.get("rho")
    if rho is not None and eps is None and delta is not None:
        eps = float(gdp_eps(rho, delta))  # Reshef and Levy's rho is the mu of GDP
    if eps is None or delta is None:
        raise InputError(f"eps = {eps!r}, delta = {delta!r}: give both to calibrate for them.")
    if find != "sigma":
        return _find(find, key, numbers, asked.get("sigma"), eps, delta, method)
    for given in ("sigma", "noise_multiplier"):
        if given in {**asked, **numbers}:
            raise InputError(
                f"{given} = {params[given]!r} is what calibrate looks for: leave it out, or ask for "
                "find = 'rounds' or 'batch'."
            )
    asks = _question(key, numbers, delta)
    event = asks.event(1.0)
    apart = isinstance(event, Phases) and not event.together
    each = [
        calibration.sigma_for(part, eps, delta, method)
        for part in (event.events if apart else (event,))  # type: ignore[union-attr]
    ]
    out = {
        "kind": key,
        "sigma": each[0].sigma,
        **({"sigmas": [found.sigma for found in each]} if len(each) > 1 else {}),
        **max((found.proven for found in each), key=lambda proven: proven.eps)._asdict(),
        "asked_eps": eps,
        **asks.told,
    }
    try:
        claim, noisy = asks.paper({"eps": eps, **({} if rho is None else {"rho": rho})})
    except InputError as error:  # the paper has no noise for this eps
        return {**out, "paper_note": str(error)}
    if claim is not None:
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
    name: str,
    numbers: dict[str, Any],
    sigma: float | None,
    eps: float,
    delta: float,
    method: str | None,
) -> dict[str, Any]:
    """The search begins with 1 round, or batches of 1, of which the sampling alone is replaced."""
    search: Callable[..., int]
    if what not in ("rounds", "batch"):
        raise InputError(f"find = {what!r} is not known: use 'sigma', 'rounds' or 'batch'.")
    search = calibration.rounds_for if what == "rounds" else calibration.batch_for
    if sigma is None:
        raise InputError(f"sigma = None: give the noise for which to find {what}.")
    asks = _question(name, {**numbers, what: 1}, delta)
    event = asks.event(sigma)
    if not isinstance(event, Event):
        raise InputError(f"find = {what!r} needs one event, and {name} has several: find sigma.")
    sampling = dataclasses.replace(event.sampling, slots=None)
    if sampling.scheme == "single_pass" and "samples" not in numbers:
        # the records follow from rounds and batch, and suffice for every answer
        many = int(sampling.b if what == "rounds" else event.releases) * calibration.MOST_ROUNDS
        sampling = dataclasses.replace(sampling, m=many)
    event = dataclasses.replace(event, sampling=sampling)
    value = search(event, eps, delta, method)

    def proof(value: int) -> accountants.Guarantee:
        found: AnyEvent = dataclasses.replace(event, releases=value)
        if what == "batch":
            found = dataclasses.replace(event, sampling=dataclasses.replace(sampling, b=value))
        if sampling.scheme == "poisson":  # with its padding
            found = _question(name, {**numbers, what: value}, delta).event(sigma)
        return accountants.epsilon(found, delta, method)

    proven = proof(value)
    while proven.eps > eps and value > 1:  # padding costs a little
        value += -1 if what == "rounds" else 1
        proven = proof(value)
    return {"kind": name, "sigma": sigma, what: value, **proven._asdict(), **asks.told}


# --- events by name ------------------------------------------------------------------------------


class Question(NamedTuple):
    """What is asked about; ``assumed`` holds the numbers that nobody gave."""

    event: Callable[[float], AnyEvent]  # of sigma
    paper: Callable[[Mapping[str, float]], tuple[Claim | None, AnyEvent]]
    # of sigma, eps or rho: what the paper claims, and the event with its noise
    assumed: dict[str, Any]

    @property
    def told(self) -> dict[str, Any]:
        return {"assumed": self.assumed} if self.assumed else {}


def names() -> list[str]:
    """Everything that :func:`account` can be asked about."""
    private = [name for name in ALGORITHMS if "sigma" in algorithm(name).names]
    return sorted([*private, *CALCULATORS, "event"])


def plain_event(
    samples: int,
    rounds: int,
    clip: float,
    batch: float | None = None,
    sampling: str = "poisson",
    slots: int | None = None,
    adjacency: str = "replace_one",
    record_norm: float | None = None,
    noise_multiplier: float | None = None,
    sigma: float = 1.0,
) -> Event:
    """A mean of clipped gradients of drawn records, released ``rounds`` times.

    Without ``batch`` all records are drawn.  ``record_norm`` is the norm of a record's share where an
    estimator makes it larger than ``clip``; ``noise_multiplier`` is sigma b/G, instead of sigma.
    """
    b = samples if batch is None else batch
    return Event(
        Sampling("full" if batch is None else sampling, samples, b, slots),
        Mean(clip if record_norm is None else record_norm),
        sigma if noise_multiplier is None else noise_multiplier * clip / b,
        rounds,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def _question(name: str, numbers: Mapping[str, Any], delta: float | None) -> Question:
    if name == "event":
        _call(name, plain_event, numbers)

        def plain(sigma: float) -> AnyEvent:
            return plain_event(**{**numbers, "sigma": sigma})

        return Question(plain, lambda asked: (None, plain(1.0)), {})
    if name not in ALGORITHMS:
        raise InputError(closest("algorithm or question", name, names()))
    made, given, facts = _setting(name, dict(numbers))
    check(made.params, {**given, "sigma": 1.0}, made.name)
    if delta is not None:
        given["delta"] = delta
    given, assumed = _completed(made, given, facts, numbers)
    return Question(
        lambda sigma: _released(made, {**given, "sigma": sigma}, facts)[1],
        lambda asked: _paper(made, {**given, **asked}, facts),
        assumed,
    )


def _released(
    made: Algorithm, given: Mapping[str, Any], facts: ProblemFacts
) -> tuple[Mapping[str, Any], AnyEvent]:
    """The algorithm's own hyper-parameters, and what it releases with them."""
    event = made.event
    if event is None:
        raise InputError(f"{made.name} does not describe what it releases: give it an event.")
    values = finished(made, planned(made, given, facts), facts, "formula").values
    return values, event(values, facts._replace(rounds=int(values["rounds"])))


def _paper(
    made: Algorithm, given: Mapping[str, Any], facts: ProblemFacts
) -> tuple[Claim | None, AnyEvent]:
    """The paper's claim, and the event with its noise; rho, where the paper has it, stands for eps."""
    if not made.cited:
        return None, _released(made, {**given, "sigma": 1.0}, facts)[1]
    other = "eps" if "rho" in made.names else "rho"
    if {"eps", "rho"} <= set(given):
        given = {name: value for name, value in given.items() if name != other}
    values, event = _released(made, given, facts)
    return made.claim(values, facts._replace(rounds=int(values["rounds"]))), event


def _setting(name: str, numbers: dict[str, Any]) -> tuple[Algorithm, dict[str, Any], ProblemFacts]:
    """The algorithm with its parts, its hyper-parameters, and what else events read."""
    parts = {role: numbers.pop(role) for role in PARTS if role in numbers}
    if "sampling" in numbers:
        drawn = numbers.pop("sampling")
        if not isinstance(drawn, str):
            raise InputError(f"sampling = {drawn!r} has to be a name, as 'poisson'.")
        parts["sampler"] = sampler(drawn)
    made = algorithm(name, **parts)
    known = made.names
    every = next((each for each in ("epoch", "period") if each in known), None)
    if every and {"epochs", "inner"} <= set(numbers):
        numbers[every] = numbers.pop("inner")
        numbers["rounds"] = numbers.pop("epochs") * numbers[every]
    n = [numbers.pop(each) for each in CLIENTS if each in numbers]
    if len(n) > 1:
        raise InputError(f"{', '.join(CLIENTS)} are one number: give one of them.")
    rounds, d = numbers.pop("rounds", None), numbers.pop("dimension", None)
    m = numbers.pop("samples", None)
    for each in numbers:
        if each not in known:
            others = (*CLIENTS, *PARTS, "rounds", "samples", "dimension", "sampling")
            raise InputError(closest(f"parameter of {name}", each, {*known, *others}))
    if m is None and rounds is not None and dict(made.parts)["sampler"] in ONCE:
        m = rounds * numbers.get("batch", 1)
    if m is None:
        raise InputError(f"{name} needs samples: give what is missing.")
    # smoothness and diameter are any: nothing that is answered depends on them
    facts = ProblemFacts(max(n, default=1), m, m, d or 1, rounds, 1.0, (m,), 1.0, True, True)
    return made, numbers, facts


def _completed(
    made: Algorithm, given: Mapping[str, Any], facts: ProblemFacts, said: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``given``, and the algorithm's own defaults that the event depends on.

    A default that follows from what a question does not say is asked for.  Only DP-SRM goes on without
    its theory: differences are then clipped to 2G, which is no clipping, and batches are alike.
    """
    fixed = {**given, "sigma": 1.0}
    values, event = _released(made, fixed, facts)
    every = made.names
    known = {*fixed, *(() if facts.rounds is None else ("rounds",))}
    assumed = {
        name: value
        for name, value in values.items()
        if name not in known and _matters(made, name, values, facts)
    }
    lacking: set[str] = set()
    for name, field in UNKNOWN.items():
        if name not in said:
            elsewhere = facts._replace(**{field: 3 * getattr(facts, field)})
            other, changed = _released(made, fixed, elsewhere)
            follows = {each for each in assumed if other.get(each) != values.get(each)}
            if changed != event and not follows and name == "dimension" and "precision" in every:
                assumed[name] = facts.d  # it decides the rounding of a sum, of little weight
            elif changed != event:
                lacking |= follows or {name}
    usual = {
        "momentum": 0.0,
        "difference_clip": 2 * values["clip"],
        "anchor_batch": values.get("batch"),
    }
    filled = {name: usual[name] for name in lacking if name in usual}
    if filled:
        given, others = _completed(made, {**given, **filled}, facts, said)
        return given, {**filled, **others}
    if lacking:
        raise InputError(f"{made.name} needs {', '.join(sorted(lacking))}: give what is missing.")
    if not set(CLIENTS) & set(said):
        try:
            more = _released(made, fixed, facts._replace(n=facts.n + 1))[1]
        except InputError:  # a single node's algorithm
            more = event
        assumed |= {"clients": facts.n} if more != event else {}
    return dict(given), assumed


def _matters(made: Algorithm, name: str, values: Mapping[str, Any], facts: ProblemFacts) -> bool:
    """Whether the event changes with this number."""
    assert made.event is not None
    if isinstance(values[name], bool) or not isinstance(values[name], int | float):
        return False
    facts = facts._replace(rounds=int(values["rounds"]))
    near = values[name] + 1 if isinstance(values[name], int) else values[name] * 1.01
    try:
        return bool(made.event({**values, name: near}, facts) != made.event(values, facts))
    except InputError:
        return True


# --- names ---------------------------------------------------------------------------------------


def _key(name: str) -> str:
    return name.replace("-", "_").lower() if isinstance(name, str) else name


def _said(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _split(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The numbers of an event, and what is asked."""
    said = checked(_said(params))
    return said, {name: said.pop(name) for name in ASKED if name in said}


def _call(name: str, function: Callable[..., Any], numbers: Mapping[str, Any]) -> Any:
    """The function's answer, or a sentence about what is missing or unknown."""
    parameters = inspect.signature(function).parameters
    for each in numbers:
        if each not in parameters:
            raise InputError(closest(f"parameter of {name}", each, parameters))
    missing = [
        each
        for each, parameter in parameters.items()
        if parameter.default is parameter.empty and each not in numbers
    ]
    if missing:
        raise InputError(f"{name} needs {', '.join(missing)}: give what is missing.")
    return function(**numbers)


def _conditions(claim: Claim) -> dict[str, Any]:
    return {
        "paper": claim.source,
        "paper_formula": claim.formula,
        "paper_verified": claim.verified,
        "paper_conditions": [c._asdict() for c in claim.conditions],
        "paper_note": claim.note,
    }
