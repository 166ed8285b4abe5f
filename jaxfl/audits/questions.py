"""``jaxfl.account`` and ``jaxfl.calibrate``: privacy by the name of an algorithm, without data.

>>> import jaxfl
>>> found = jaxfl.calibrate("soteriafl_gd", samples=3256, rounds=100, clip=0.5, eps=5, delta=1e-3)
>>> round(found["sigma"], 6), str(found["status"]), round(found["paper_sigma"], 6)
(0.002119, 'E', 0.002796)

``jaxfl account NAME --samples 3256 ...`` is ``account("NAME", samples=3256, ...)``, and the same for
``calibrate``.  A name is one of

* an algorithm, whose event follows from its hyper-parameters and the parameters below;
* ``event``: a mean of clipped gradients, :func:`plain_event`;
* a calculator (:mod:`jaxfl.audits.calculators`), for ``account`` alone.

=========================  =====================================================================
parameter                  meaning
=========================  =====================================================================
samples                    records of a client
clients, devices,          number of clients, by the name that the paper uses
machines
dimension                  of the model, where a default follows from it
sampler                    full, poisson, without_replacement, with_replacement, shuffled, ...
compressor, participation, parts by name, as in ``participation="uniform"``
aggregation, graph
fresh, convex              of local SGD, see :func:`jaxfl.algorithms.hu.algorithms.private_local_sgd`
epochs, inner              instead of rounds: the number of epochs, and of rounds in each
=========================  =====================================================================

``assumed`` in an answer has the defaults of the algorithm that the event depends on.
"""

from __future__ import annotations

import bisect
import dataclasses
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxfl.algorithms.probes import probed
from jaxfl.algorithms.registry import ALGORITHMS, algorithm
from jaxfl.algorithms.resolution import completed, planned
from jaxfl.algorithms.roles import BY_NAME
from jaxfl.audits.calculators import CALCULATORS
from jaxfl.audits.ranges import checked
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import at_most_one, choice, closest, exactly_one
from jaxfl.core.types import Algorithm, ProblemFacts
from jaxfl.engine.runs import honest
from jaxfl.privacy import accountants, calibration, statements
from jaxfl.privacy import dp_event as exports
from jaxfl.privacy.claims import Claim, understates
from jaxfl.privacy.events import (
    AnyEvent,
    Event,
    Mean,
    Phases,
    Sampling,
    Stated,
    Status,
    Unproven,
    described,
    plain_events,
    protects,
)
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.privacy.selection import best_of

__all__ = ["account", "calibrate", "names", "plain_event"]

PROBED = 16  # parameters of a model for probes, at least
ASKED = ("eps", "delta", "sigma", "rho")
CLIENTS = ("clients", "devices", "machines")
# what calculators alone are asked, and an algorithm may mean something else by
CALCULATED = {name for make in CALCULATORS.values() for name in inspect.signature(make).parameters}
CALCULATED -= {*ASKED}
PARTS = ("fresh", "convex", *BY_NAME)
# what may not be given, and the field of ProblemFacts that stands for it
FACTS = {"dimension": "d", "smoothness": "smoothness", "diameter": "diameter", "clients": "n"}


def account(
    name: str, /, *, method: str | None = None, seen: str | None = None, **params: Any
) -> dict[str, Any]:
    """The eps at ``delta``, or the delta at ``eps``, that noise ``sigma`` proves, and the paper's claim.

    ``name`` is an algorithm, ``"event"`` or a calculator; ``params`` are its hyper-parameters and the
    sizes of the data, named as in ``jaxfl account NAME --help``.  ``method`` asks for one proof, as in
    :func:`jaxfl.privacy.epsilon`.  ``runs`` adds the eps of the best of that many runs
    (:func:`jaxfl.privacy.best_of`; ``seen="winner"`` if the others stay secret).
    ``**{"as": "dp-event"}`` adds the event as text of a ``dp_accounting.DpEvent``, and the accountant for
    it, and ``"card"`` the facts of a :class:`jaxfl.privacy.statements.Card`.  A calculator answers its one
    question.

    >>> numbers = {"samples": 3256, "rounds": 25, "clip": 0.5, "sigma": 0.00570, "delta": 1e-3}
    >>> found = account("cdp_sgd", batch=10, **numbers)
    >>> round(found["eps"], 1), round(found["claimed_eps"], 2), found["flag"]
    (69.0, 1.0, True)
    """
    key = _key(name)
    way = "in Python run.privacy(rounds=T) and jaxfl.functions(...).privacy(T) answer for runs"
    require(
        key in (*ALGORITHMS, *CALCULATORS, "event") or not Path(name).is_dir(),
        lambda: f"{name!r} is a folder",
        way,
    )
    if key in CALCULATORS:
        return {"kind": key, **_call(key, CALCULATORS[key], checked(params))}
    runs, form = params.pop("runs", None), params.pop("as", None)
    if form is not None:
        choice("as", form, ("dp-event", "card"))
        require(params.get("delta"), "needs delta", "give delta instead of eps", **{"as": form})
    numbers, asked = _split(params)
    sigma, delta, eps = asked.get("sigma"), asked.get("delta"), asked.get("eps")
    if "rho" in asked:
        raise InputError("asks for noise", "use calibrate", rho=asked["rho"])
    if runs is None and seen is not None:
        raise InputError("needs runs, the number of runs to choose from", seen=seen)
    if runs is not None and delta is None:
        raise InputError("needs delta, at which the choice is accounted", runs=runs)
    question = _question(key, numbers, delta)
    if "noise_multiplier" in numbers:
        at_most_one(sigma=sigma, noise_multiplier=numbers["noise_multiplier"])
    else:
        way = "give the noise as {sigma}, or ask for the least noise of an eps with calibrate"
        require(
            sigma is not None, "There is no noise to account for", way, suggested={"sigma": None}
        )
    way = "give delta, at which eps is computed, or eps, at which delta is"
    exactly_one(way, eps=eps, delta=delta)
    event = question.event(1.0 if sigma is None else sigma)
    if sigma is None and isinstance(event, Event):
        sigma = event.sigma
    out: dict[str, Any] = {"kind": key, "sigma": sigma}
    if delta is None:
        assert eps is not None
        return {**out, **question.proven(accountants.delta(event, eps, method)), **question.assumed}
    proven = accountants.epsilon(event, delta, method)
    out |= question.proven(proven) | question.assumed
    if runs is not None:
        best = best_of(event, runs, delta, seen=seen or "all", method=method)  # type: ignore[arg-type]
        out |= {f"{name}_of_selection": value for name, value in best._asdict().items()}
        del out["delta_of_selection"]
    claim = question.paper({"sigma": sigma})[0] if sigma else None
    if claim is not None:
        at = accountants.delta(event, claim.eps, method).delta if claim.eps < math.inf else 0.0
        out |= {"claimed_eps": claim.eps, **_judged(claim, at, proven.eps)}
    if form == "dp-event":
        out |= {"dp_event": repr(exports.export(event, delta).event)}
        out["dp_accountant"] = exports.accountant(event, delta)
    if form == "card":
        out |= _card(event, delta, method)
        if runs is not None:
            out["card_of"] = f"one run alone; the best of {runs:g} runs has eps_of_selection"
    return out


def _card(event: AnyEvent, delta: float, method: str | None) -> dict[str, Any]:
    names = ("mu", "floor", "regret", "rates", "profile")
    facts = statements.card(event, delta, method=method).facts()
    return {name: facts[name] for name in names}


def calibrate(
    name: str, /, *, method: str | None = None, find: str = "sigma", **params: Any
) -> dict[str, Any]:
    """The least noise ``sigma`` that proves ``eps`` at ``delta``, the eps that it proves, and the paper's.

    ``name``, ``method`` and ``params`` are those of :func:`account`.

    Each of several disjoint phases is calibrated by itself: ``sigma`` is that of the first, ``sigmas`` has
    all.  ``find="rounds"`` and ``find="batch"`` take ``sigma``, and find the most rounds, up to 2^31, or
    the smallest batch.
    """
    key = _key(name)
    if key in CALCULATORS:
        raise InputError(f"{name!r} has no noise to calibrate", "use account")
    numbers, asked = _split(params)
    delta, eps, rho = asked.get("delta"), asked.get("eps"), asked.get("rho")
    if rho is not None and eps is None and delta is not None:
        eps = float(gdp_eps(rho, delta))  # Reshef and Levy's rho is the mu of GDP
    if eps is None or delta is None:
        raise InputError(
            "The noise is calibrated for an eps and a delta",
            "give both {eps} and {delta}: a run without one takes min(0.001, 0.1/m)",
            suggested={"eps": None, "delta": None},
        )
    choice("find", find, ("sigma", "rounds", "batch"))
    if find != "sigma":
        return _find(find, key, numbers, asked.get("sigma"), eps, delta, method)
    for given in ("sigma", "noise_multiplier"):
        if given in {**asked, **numbers}:
            raise InputError(
                "is what calibrate looks for",
                "leave it out, or ask for find = 'rounds' or 'batch'",
                **{given: params[given]},
            )
    question = _question(key, numbers, delta)
    whole = question.event(1.0)
    event = described(whole)
    separate = isinstance(event, Phases) and not event.together
    calibrations = [
        calibration.sigma_for(part, eps, delta, method)
        for part in (event.events if separate else (event,))  # type: ignore[union-attr]
    ]
    out = {
        "kind": key,
        "sigma": calibrations[0].sigma,
        **({"sigmas": [each.sigma for each in calibrations]} if len(calibrations) > 1 else {}),
        **question.proven(
            _as(whole, max((each.proven for each in calibrations), key=lambda one: one.eps))
        ),
        "asked_eps": eps,
        **question.assumed,
    }
    try:
        claim, noisy = question.paper({"eps": eps, **({} if rho is None else {"rho": rho})})
    except InputError as error:  # the paper has no noise for this eps
        return {**out, "paper_note": str(error)}
    if claim is not None:
        at_paper = accountants.epsilon(noisy, delta, method).eps
        at = accountants.delta(noisy, claim.eps, method).delta
        out |= {"paper_sigma": claim.sigma, "eps_at_paper_sigma": at_paper}
        out |= _judged(claim, at, at_paper)
    return out


def _judged(claim: Claim, delta: float, proven: float) -> dict[str, Any]:
    """A claim, the proven ``delta`` at its eps, and whether it is below the proven eps."""
    return {
        "delta_at_claimed_eps": delta,
        "flag": bool(understates(claim.eps, proven)),
        "paper": claim.source,
        "paper_formula": claim.formula,
        "formula_checked": claim.verified,
        "paper_conditions": [condition._asdict() for condition in claim.conditions],
        "paper_note": claim.note,
    }


def _find(
    what: str,
    name: str,
    numbers: dict[str, Any],
    sigma: float | None,
    eps: float,
    delta: float,
    method: str | None,
) -> dict[str, Any]:
    """Search from 1 round, or from batches of 1 where the sampling alone changes."""
    if sigma is None:
        raise InputError(f"must be the noise for which to find {what}", sigma=sigma)

    def asked(value: int) -> Question:
        return _question(name, {**numbers, what: value}, delta)

    question = asked(1)
    whole = question.event(sigma)
    event = described(whole)
    if not isinstance(event, Event):
        raise InputError(f"needs one event, and {name} has several", "find sigma", find=what)
    sampling = dataclasses.replace(event.sampling, slots=None)
    if sampling.scheme == "single_pass" and "samples" not in numbers:
        # the records follow from rounds and batch, and suffice for every answer
        many = int(sampling.b if what == "rounds" else event.releases) * calibration.MOST_ROUNDS
        sampling = dataclasses.replace(sampling, m=many)
    event = dataclasses.replace(event, sampling=sampling)
    each = event.releases if what == "rounds" else 1  # in a round: local steps may release several

    def proof(value: int) -> accountants.Guarantee:
        changed: AnyEvent = dataclasses.replace(event, releases=min(value * each, found))
        if what == "batch":
            changed = dataclasses.replace(event, sampling=dataclasses.replace(sampling, b=value))
        if sampling.scheme == "poisson":  # with its padding
            changed = described(asked(value).event(sigma))
        return accountants.epsilon(changed, delta, method)

    search = calibration.rounds_for if what == "rounds" else calibration.batch_for
    found = search(event, eps, delta, method)
    value = found // each
    words = lambda: f"does not allow one round at eps = {eps:g}"  # noqa: E731
    require(value > 0, words, "add noise", sigma=sigma)

    if (
        what == "rounds" and sampling.scheme != "single_pass"
    ):  # of which no client needs to be in all
        value = _longest(
            value,
            lambda rounds: (
                max(one.releases for one in plain_events(asked(rounds).event(sigma))) <= found
            ),
        )
    proven = proof(value)
    while proven.eps > eps and value > 1:  # padding costs a little
        value += -1 if what == "rounds" else 1
        proven = proof(value)
    return {
        "kind": name,
        "sigma": sigma,
        what: value,
        **question.proven(_as(whole, proven)),
        **question.assumed,
    }


def _longest(rounds: int, fits: Callable[[int], bool]) -> int:
    """The most rounds that fit, of which ``rounds`` do."""
    most = calibration.MOST_ROUNDS
    if rounds >= most or not fits(rounds + 1):
        return rounds
    low = rounds + 1
    while low < most and fits(min(2 * low, most)):
        low = min(2 * low, most)
    return low + bisect.bisect_left(
        range(low + 1, min(2 * low, most) + 1), True, key=lambda rounds: not fits(rounds)
    )


def _as(event: AnyEvent, found: accountants.Guarantee) -> accountants.Guarantee:
    """The guarantee of an event from that of its description: none for an unproven event."""
    if isinstance(event, Unproven):
        return found._replace(eps=math.inf, method=event.why, status=Status.NONE)
    if not isinstance(event, Stated):
        return found
    return found._replace(
        method=found.method + f", {event.why}" * bool(event.why), status=event.status
    )


# --- events by name ------------------------------------------------------------------------------


class Question(NamedTuple):
    """An event by name, all but its noise."""

    event: Callable[[float], AnyEvent]  # of sigma
    paper: Callable[[Mapping[str, float]], tuple[Claim | None, AnyEvent]]
    # of sigma, eps or rho: the paper's claim, and the event with its noise
    assumed: dict[str, Any]  # {"assumed": defaults that the event depends on}, or empty
    honest: str = ""  # whom the proof trusts

    def proven(self, found: Any) -> dict[str, Any]:
        """An accountant's answer, with what it protects and whom the proof trusts."""
        about = {"method": found.method + self.honest, "protects": protects(self.event(1.0))}
        return {**found._asdict(), **about}


def names() -> list[str]:
    """Everything that :func:`account` can be asked about."""
    private = [name for name in ALGORITHMS if "sigma" in algorithm(name).names]
    return sorted([*private, *CALCULATORS, "event"])


def plain_event(
    samples: int,
    rounds: int,
    clip: float,
    batch: float | None = None,
    sampler: str = "poisson",
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
        Sampling("full" if batch is None else sampler, samples, b, slots),
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
    algo, given, facts = _setting(name, dict(numbers))
    if delta is not None:
        given["delta"] = delta
    given, assumed = _completed(algo, given, facts, numbers)
    values, _ = _released(algo, {**given, "sigma": 1.0}, facts)
    assert algo.event is not None
    described_by, stands = algo.event, probed(algo, None, [values], max(facts.d, PROBED))
    reached = facts._replace(rounds=int(values["rounds"]))
    trusted = honest(algo, values, reached, lambda more: described_by({**values, **more}, reached))
    return Question(
        lambda sigma: stands.of(_released(algo, {**given, "sigma": sigma}, facts)[1]),
        lambda asked: _paper(algo, {**given, **asked}, facts),
        {"assumed": assumed} if assumed else {},
        f", if {trusted}" * bool(trusted),
    )


def _released(
    algo: Algorithm, given: Mapping[str, Any], facts: ProblemFacts
) -> tuple[Mapping[str, Any], AnyEvent]:
    """The values of all hyper-parameters, and the event of a run with them."""
    if algo.event is None:
        raise InputError(f"{algo.name} does not describe what it releases", "give it an event")
    values = completed(algo, planned(algo, given, facts), facts, "formula").values
    return values, algo.event(values, facts._replace(rounds=int(values["rounds"])))


def _paper(
    algo: Algorithm, given: Mapping[str, Any], facts: ProblemFacts
) -> tuple[Claim | None, AnyEvent]:
    """The paper's claim, and the event with its noise; a paper with rho reads it instead of eps."""
    if not algo.cited:
        given = {name: value for name, value in given.items() if name not in ("eps", "rho")}
        return None, _released(algo, {**given, "sigma": 1.0}, facts)[1]
    if {"eps", "rho"} <= set(given):
        unread = "eps" if "rho" in algo.names else "rho"
        given = {name: value for name, value in given.items() if name != unread}
    values, event = _released(algo, given, facts)
    return algo.claim(values, facts._replace(rounds=int(values["rounds"]))), event


def _setting(name: str, numbers: dict[str, Any]) -> tuple[Algorithm, dict[str, Any], ProblemFacts]:
    """The algorithm with its parts, its hyper-parameters, and the facts that events read."""
    parts = {role: numbers.pop(role) for role in PARTS if role in numbers}
    algo = algorithm(name, **parts)
    known = algo.names
    epoch = next((each for each in ("epoch", "period") if each in known), None)
    if epoch and {"epochs", "inner"} <= set(numbers):
        numbers[epoch] = numbers.pop("inner")
        numbers["rounds"] = numbers.pop("epochs") * numbers[epoch]
    clients = {each: numbers.pop(each) for each in CLIENTS if each in numbers}
    at_most_one(**clients)
    rounds, d, m = (numbers.pop(each, None) for each in ("rounds", "dimension", "samples"))
    others = (*CLIENTS, *PARTS, "rounds", "samples", "dimension", "method", "find", "seen", "runs")
    _known(name, numbers, known, others)
    body = algo.body
    if m is None and rounds is not None and body and body.estimator.sampler.single_pass:
        m = rounds * numbers.get("batch", 1)
    _needed(name, [] if m else ["samples"])
    # no answer depends on smoothness and diameter, see _completed
    n = max(clients.values(), default=1)
    return algo, numbers, ProblemFacts(n, m, m, d or 1, rounds, 1.0, (m,), 1.0, True, True)


def _completed(
    algo: Algorithm, given: Mapping[str, Any], facts: ProblemFacts, numbers: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``given``, and the defaults that the event depends on.

    Raise for a default that follows from a fact that ``numbers`` lacks.  DP-SRM alone needs no theory:
    its differences are then clipped to 2G, which changes nothing, and its batches are equal.
    """
    fixed = {**given, "sigma": 1.0}
    values, event = _released(algo, fixed, facts)
    known = {*fixed, *(() if facts.rounds is None else ("rounds",))}
    assumed = {
        name: value
        for name, value in values.items()
        if name not in known and _matters(algo, name, values, facts)
    }
    lacking: set[str] = set()
    for name, field in FACTS.items():
        if name in numbers or (name == "clients" and set(CLIENTS) & set(numbers)):
            continue
        value = getattr(facts, field)
        near = value + 1 if name == "clients" else 3 * value
        try:
            other, changed = _released(algo, fixed, facts._replace(**{field: near}))
        except InputError:  # a single node's algorithm
            continue
        follow = {each for each in assumed if other.get(each) != values.get(each)}
        # a dimension that decides only the rounding of a sum matters little
        rounding = name == "dimension" and not follow and "precision" in algo.names
        if changed != event and (name == "clients" or rounding):
            assumed[name] = value
        elif changed != event:
            lacking |= follow or {name}
    usual = {
        "momentum": 0.0,
        "difference_clip": 2 * values["clip"],
        "anchor_batch": values.get("batch"),
    }
    filled = {name: usual[name] for name in lacking if name in usual}
    if filled:
        given, others = _completed(algo, {**given, **filled}, facts, numbers)
        return given, {**filled, **others}
    _needed(algo.name, sorted(lacking))
    return dict(given), assumed


def _matters(algo: Algorithm, name: str, values: Mapping[str, Any], facts: ProblemFacts) -> bool:
    """Whether the event changes with this hyper-parameter."""
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or algo.event is None:
        return False
    facts = facts._replace(rounds=int(values["rounds"]))
    near = value + 1 if isinstance(value, int) else value * 1.01
    try:
        return bool(algo.event({**values, name: near}, facts) != algo.event(values, facts))
    except InputError:
        return True


# --- names ---------------------------------------------------------------------------------------


def _key(name: str) -> str:
    return name.replace("-", "_").lower() if isinstance(name, str) else name


def _split(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The numbers of an event, and what is asked."""
    own = {name: v for name, v in params.items() if name in CALCULATED and v is not None}
    numbers = own | checked({name: v for name, v in params.items() if name not in CALCULATED})
    return numbers, {name: numbers.pop(name) for name in ASKED if name in numbers}


def _known(name: str, given: Iterable[str], known: Iterable[str], others: Iterable[str]) -> None:
    for each in given:
        if each not in known:
            names = {*known, *others} - {each}  # it may be an option of the other question
            raise InputError(closest(f"parameter of {name}", each, names))


def _needed(name: str, missing: Collection[str]) -> None:
    way = f"give {' and '.join(f'{{{each}}}' for each in missing)}"
    way += ", the number of records of the smallest client" * ("samples" in missing)
    needs = f"{name} needs {', '.join(missing)}"
    require(not missing, needs, way, suggested=dict.fromkeys(missing))


def _call(name: str, function: Callable[..., Any], numbers: Mapping[str, Any]) -> Any:
    """``function(**numbers)``; raises for parameters that are unknown or missing."""
    parameters = inspect.signature(function).parameters
    _known(name, numbers, parameters, ())
    needed = [each for each, p in parameters.items() if p.default is p.empty]
    _needed(name, [each for each in needed if each not in numbers])
    return function(**numbers)
