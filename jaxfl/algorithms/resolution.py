"""Resolve a user's values into the hyper-parameters that a round reads.  Host side."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.calls import blamed, described
from jaxfl.core.errors import InputError, one_line, require, shown, within
from jaxfl.core.params import LEAST, check, choice, varies
from jaxfl.core.schedules import Floats, Schedule, schedule
from jaxfl.core.types import (
    Algorithm,
    Asked,
    Eps,
    Hyper,
    Noise,
    Origin,
    Plan,
    ProblemFacts,
    Resolved,
    Rho,
    Sigma,
    Source,
)
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.calibration import level_for, sigma_for
from jaxfl.privacy.events import AnyEvent, sigmas

__all__ = [
    "ASKED",
    "GIVEN",
    "NOISE",
    "build",
    "completed",
    "noise_asked",
    "noise_for",
    "noised",
    "planned",
    "read",
    "resolve",
    "rests_on_smoothness",
    "rounded_up",
]

NOISES = ("calibrated", "paper")
NOISE = "sigma"  # the number that rounds read rounded up
ASKED: dict[str, Callable[[float], Asked]] = {"eps": Eps, "sigma": Sigma, "rho": Rho}
GIVEN, DEFAULT = Source(Origin.GIVEN), Source(Origin.DEFAULT)
LEAST_CLIP = 1e-17  # squares of smaller norms vanish in 32 bits
ACCOUNTED = frozenset({"turns", "clamped", "phase"})  # what events read, and no run sets


def resolve(
    algorithm: Algorithm, given: Mapping[str, Any], facts: ProblemFacts, noise: str = "calibrated"
) -> Resolved:
    """Return the values of one run: the plan, the noise, and what follows from the noise."""
    choice("noise", noise, NOISES)
    return completed(algorithm, planned(algorithm, given, facts), facts, noise)


def rests_on_smoothness(
    algorithm: Algorithm,
    values: Mapping[str, Any],
    sources: Mapping[str, Source],
    facts: ProblemFacts,
) -> bool:
    """Whether what rounds read, or their event, follows from the smoothness L of the model and its data.

    The given values, with the same noise, are resolved with L and with twice as much.
    """
    if not facts.smoothness or sources.get("smoothness", GIVEN).origin is Origin.GIVEN:
        return False
    given = {
        name: values[name]
        for name in algorithm.names & sources.keys()
        if sources[name].origin is Origin.GIVEN
    }
    if "sigma" in algorithm.names & values.keys():
        given = {name: given[name] for name in given.keys() - ASKED.keys()}
        given["sigma"] = values["sigma"]
    found = []
    for L in (facts.smoothness, 2 * facts.smoothness):
        other = facts._replace(smoothness=L, rounds=int(values["rounds"]))
        try:
            new = resolve(algorithm, given, other).values
        except InputError:
            return True
        reads = new.keys() - {"eps", *(() if read(algorithm, "smoothness", L) else ["smoothness"])}
        event = algorithm.event and algorithm.event({**new, "smoothness": L}, other)
        found.append(({name: str(new[name]) for name in reads}, event))
    return found[0] != found[1]


def completed(algorithm: Algorithm, plan: Plan, facts: ProblemFacts, noise: str) -> Resolved:
    """Return the values of a plan, with the noise that :func:`noise_for` decides."""
    facts = facts._replace(rounds=int(plan.values["rounds"]))
    found = noise_for(algorithm, plan, facts, noise)
    with blamed(f"The finish of {algorithm.name!r}"):
        finish = algorithm.finish
        done = noised(plan, found) if finish is None else finish(plan, found, facts)
    for name in sorted(done.values.keys() & ACCOUNTED):
        why = f"is what accountants count, and {algorithm.name} sets it"
        require(False, why, "name its hyper-parameter otherwise", **{name: done.values[name]})
    return done


def planned(algorithm: Algorithm, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
    """Check the given values, and return ``algorithm.plan`` of them."""
    unsaid = "eps" in given and given["eps"] is None
    given = {
        name: schedule(value) if varies(value) else _plain(value)
        for name, value in given.items()
        if value is not None
    }
    varying = {name: value for name, value in given.items() if isinstance(value, Schedule)}
    able = [param.name for param in algorithm.params if param.schedule]
    for name in varying.keys() & algorithm.names - set(able):
        raise InputError(
            f"{name} cannot change from round to round, since one number enters the accounting and "
            f"the theory: {algorithm.name} takes schedules for {', '.join(able)}."
        )
    fixed = {name: value for name, value in given.items() if name not in varying}
    check(algorithm.params, fixed, algorithm.name)
    for name, value in fixed.items():
        one = "must be one number: a run has no axes, and sweep() has"
        require(np.ndim(value) == 0, one, **{name: value})
    require(fixed.get("lr", 1) != 0, "leaves the model where it is", "take a step", lr=0)
    require(
        not facts.groups or (algorithm.body is not None and algorithm.body.weighs),
        lambda: f"{algorithm.name} has no server that weighs its clients",
        "make the problem with weights='equal'",
    )
    with blamed(f"The plan of {algorithm.name!r}"):
        plan = algorithm.plan(given, facts)
    returned = lambda: f"The plan of {algorithm.name!r} returns {described(plan)}"  # noqa: E731
    require(isinstance(plan, Plan), returned, "return a Plan, as that of jaxfl.parts.plain")
    plan = plan._replace(given=given)
    if unsaid and isinstance(plan.asked, Eps):  # who means no privacy gets none by accident
        without = f", or give sigma=0 to run {algorithm.name} without noise" * (
            "sigma" in algorithm.names
        )
        way = f"leave it out for the default of {plan.asked.eps:g}, give a number{without}"
        raise InputError("is no number", way, eps=None)
    _check_defaults(algorithm, plan)
    T = int(plan.values["rounds"])
    why = f"is what was asked for, and the plan of {algorithm.name} is for {T}"
    require(facts.rounds in (None, T), why, "plan for the rounds of the facts", rounds=facts.rounds)
    G = plan.values.get("clip", 1.0)
    small = plan.asked is not None and isinstance(G, int | float) and G < LEAST_CLIP
    why = "is below what the norm of a gradient in 32 bits can be compared with"
    require(not small, why, lambda: f"give at least {LEAST_CLIP:g}", clip=G)
    for name, value in varying.items():
        numbers = _over(name, value, int(plan.values["rounds"]))
        for extreme in (float(numbers.min()), float(numbers.max())):
            check(algorithm.params, {name: extreme}, algorithm.name)
    missing = sorted(set(algorithm.needs) - set(plan.values) - {"sigma" if plan.asked else ""})
    if missing:
        ways = [*missing, *(["eps"] if missing == ["sigma"] and "eps" in algorithm.names else [])]
        raise InputError(
            f"{algorithm.name} needs {' and '.join(missing)}, which nothing sets",
            f"give {(' or ' if len(missing) == 1 else ' and ').join(f'{{{name}}}' for name in ways)}",
            suggested=dict.fromkeys(ways),
        )
    if "eps" in given and not isinstance(plan.asked, Eps):
        raise InputError(
            f"eps = {given['eps']!r} decides nothing in {algorithm.name}, whose plan leaves it out: "
            "give sigma."
        )
    return plan


def _check_defaults(algorithm: Algorithm, plan: Plan) -> None:
    """Raise for a value that a plan fills in and no round can read."""
    for name, value in plan.values.items():
        if isinstance(value, Schedule) or name in plan.given:
            continue
        number = np.ndim(value) == 0 and isinstance(value, int | float | np.generic | jax.Array)
        says = f"The plan of {algorithm.name!r} sets {name} = {shown(value)}"
        require(number, says, "let it be one number, or a schedule")
        if plan.sources.get(name) == DEFAULT and name in algorithm.names:
            with within(f"The plan of {algorithm.name!r}"):
                check(algorithm.params, {name: value}, algorithm.name)
    if plan.asked is not None and not plan.asked.way.keys() & plan.given.keys():
        noise = {name: v for name, v in plan.asked.way.items() if name in algorithm.names}
        check(algorithm.params, noise, algorithm.name)


def _plain(value: Any) -> Any:
    """A number of NumPy or JAX as Python's, in which accountants compute."""
    numeric = isinstance(value, np.generic | np.ndarray | jax.Array)
    return value.item() if numeric and value.ndim == 0 else value


def noise_for(algorithm: Algorithm, plan: Plan, facts: ProblemFacts, how: str) -> Noise:
    """Return the noise of each part of a plan: given, by the paper's formula, or calibrated for eps.

    Where eps is asked for, ``how="calibrated"`` takes the least noise that an accountant proves
    (eps, delta) for; ``how="paper"`` takes the noise of the paper's formula and raises where its
    conditions fail; ``how="formula"`` takes that noise even then.
    """
    asked, given = plan.asked, plan.given
    if asked is None:
        return Noise((), GIVEN)
    ((name, value),) = asked.way.items()
    source = GIVEN if name in given else Source(Origin.DEFAULT)
    if isinstance(asked, Sigma):
        levels = (asked.sigma,) * len(plan.parts)
        if algorithm.formula is None:
            return Noise(levels, source)
        if not value:
            return Noise(levels, source, math.inf, Source(Origin.FORMULA, "there is no noise"))
        claims = [claim for claim in _stated(algorithm, plan, facts) if claim is not None]
        if not claims:
            where = Source(Origin.FORMULA, "no formula for these parts")
            return Noise(levels, source, math.inf, where)
        worst = max(claims, key=lambda claim: claim.eps)
        where = Source(Origin.FORMULA, f"{worst.where}, from sigma")
        return Noise(levels, source, float(worst.eps), where)
    eps = value if isinstance(asked, Eps) else None
    event = algorithm.event is not None or algorithm.formula is None
    if isinstance(asked, Eps) and how == "calibrated" and event:
        levels, method = _calibrated(algorithm, plan, asked.eps, facts)
        return Noise(levels, Source(Origin.CALIBRATED, f"calibrated: {method}"), eps, source)
    stated = _stated(algorithm, plan, facts)
    if not all(stated):
        raise InputError(
            f"noise = 'paper' takes the formula of a paper, and {algorithm.name} has none that gives "
            f"sigma for {name} = {value:g}: let the noise be calibrated, or give sigma."
        )
    failed = [c for claim in stated for c in claim.conditions if c.needed and c.holds is False]
    if failed and how == "paper":
        raise InputError(
            f"noise = 'paper' takes the formula of {stated[0].source}, and a condition {failed[0]}: "
            "change batch, local_steps, rounds or who takes part, or let the noise be calibrated."
        )
    levels = tuple(float(claim.sigma) for claim in stated)
    return Noise(levels, Source(Origin.FORMULA, stated[0].where), eps, source)


def noised(plan: Plan, noise: Noise) -> Resolved:
    """Return the values of a plan with its noise."""
    values, sources = dict(plan.values), dict(plan.sources)
    if noise.levels:
        values["sigma"], sources["sigma"] = noise.levels[0], noise.source
    if noise.eps is not None:
        values["eps"], sources["eps"] = noise.eps, noise.eps_source
    return Resolved(values, sources)


def _stated(algorithm: Algorithm, plan: Plan, facts: ProblemFacts) -> list[Any]:
    """Return the claim of the paper's formula for each part of a plan; None where there is none."""
    formula, asked = algorithm.formula, plan.asked
    if formula is None or asked is None:
        return [None]
    with blamed(f"The formula of {algorithm.name!r}"):
        return [formula({**plan.values, **part}, facts, asked) for part in plan.parts]


def _calibrated(
    algorithm: Algorithm, plan: Plan, eps: float, facts: ProblemFacts
) -> tuple[tuple[float, ...], str]:
    """Return the least noise of each part, by its event at sigma = 1, and the accountant's method."""
    event, values = algorithm.event, plan.values
    if event is None:
        raise InputError(
            f"{algorithm.name} does not describe what it releases, and no noise can be calibrated "
            f"for eps = {eps:g}: give it an event, or give sigma."
        )
    if "noise_constant" in plan.given:
        raise InputError(
            "is part of the paper's formula",
            "give {noise} with it",
            suggested={"noise": "paper"},
            noise_constant=plan.given["noise_constant"],
        )
    if "delta" not in values:
        raise InputError(f"eps = {eps:g} needs delta, which nothing sets: give it.")
    if not algorithm.per_record and "gradient_bound" not in values:
        ways = ["clip every example or whole clients"]
        ways += ["give gradient_bound"] if "gradient_bound" in algorithm.names else []
        ways += ["give {noise} for the paper's formula"] if algorithm.formula is not None else []
        raise InputError(
            "A record may move all of a batch's clipped mean, so no noise can be calibrated for "
            f"eps = {eps:g} where clip = 'batch'",
            f"{', '.join(ways)}, or give sigma",
            suggested={"noise": "paper"},
        )
    with blamed(f"The event of {algorithm.name!r}"):
        events = [event({**values, "sigma": 1.0, **part}, facts) for part in plan.parts]
    found = [sigma_for(each, eps, values["delta"]) for each in events]
    levels = tuple(one.sigma / _noise(each) for one, each in zip(found, events, strict=True))
    parts = [functools.partial(_at, event, {**values, **part}, facts) for part in plan.parts]
    for i, (now, level, one) in enumerate(zip(parts, levels, found, strict=True)):
        if not np.allclose(sigmas(now(level)), sigmas(one.event), rtol=1e-6):
            loud, quiet = (epsilon(now(s * level), values["delta"]).eps for s in (1.0, 2.0))
            falls = f"The noise of {algorithm.name} does not grow with sigma"
            require(quiet < loud, falls, lambda: f"give sigma instead of eps = {eps:g}")
            level = level_for(now, eps, values["delta"], level)  # not in proportion
            levels = (*levels[:i], level, *levels[i + 1 :])
    if not min(levels) >= LEAST:
        raise InputError(
            f"eps = {eps:g} asks for so little noise that none is left (sigma = {min(levels):.3g}): "
            "ask for a smaller eps, or take an algorithm without noise."
        )
    worst = max((one.proven for one in found), key=lambda proof: proof.eps)
    return levels, "disjoint phases, the worst: " * (len(found) > 1) + worst.method


def _at(
    event: Callable[[Mapping[str, Any], ProblemFacts], Any],
    values: Mapping[str, Any],
    facts: ProblemFacts,
    sigma: float,
) -> Any:
    return event({**values, "sigma": sigma}, facts)


def _noise(event: AnyEvent) -> float:
    """The noise of the first release for sigma = 1."""
    first: float = next(iter(sigmas(event)))
    require(
        first > 0, "This noise is 0 whatever sigma is, and no eps holds", "add noise to messages"
    )
    return first


def _over(name: str, rule: Schedule, rounds: int) -> Floats:
    """Return one number per round; raise for whatever the user's own function raises."""
    try:
        return rule.over(rounds)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{name} = {rule} gives no number for each of {rounds} rounds ({one_line(error)}): let it "
            "take the round and return one number."
        ) from error


def build(
    algorithm: Algorithm,
    values: Mapping[str, Any],
    facts: ProblemFacts,
    dtype: jnp.dtype[Any],
    rounds: int = 0,
) -> Hyper:
    """Return what rounds read: whole numbers as int32, others in the model's dtype, and sigma rounded up.

    ``rounds`` is how far schedules must reach, if beyond the planned rounds.
    """
    planned = int(values["rounds"])
    for name, value in values.items():
        if rounds > planned and isinstance(value, Schedule) and value.ends:
            raise InputError(
                f"{name} = {value} is made for {planned} rounds and ends with them: ask for at most "
                f"{planned} rounds, or start a run of {rounds}."
            )
    caps = algorithm.capacity(values, facts)
    clients = min(facts.n, caps.get("cohort", facts.n))
    tau = int(np.max(values.get("local_steps", 1)))
    each = max(caps.get("k", 0), 2 * caps.get("batch", facts.m_max) * tau)
    if clients * each >= 2**31 or facts.n * facts.m_max >= 2**31:
        raise InputError(
            f"{clients} clients with {each} coordinates or gradients each are more than one round can "
            "count (2^31): let fewer take part, or make k or batch smaller."
        )
    integers = {param.name for param in algorithm.params if param.integer}
    leaves: dict[str, jax.Array] = {}
    for name, value in values.items():
        if read(algorithm, name, value):
            exact = value.over(max(planned, rounds)) if isinstance(value, Schedule) else value
            exact = rounded_up(exact, dtype) if name == NOISE else exact
            leaves[name] = jnp.asarray(exact, jnp.int32 if name in integers else dtype)
    return Hyper(leaves, tuple(sorted(caps.items())))


def rounded_up(exact: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Return the least numbers of this dtype that are no less: the noise of rounds is that of a proof."""
    exact = np.asarray(exact, np.float64)
    near = exact.astype(dtype)
    up = np.nextafter(near, np.asarray(np.inf, near.dtype))
    found: np.ndarray[Any, Any] = np.where(near.astype(np.float64) < exact, up, near)
    return found


def read(algorithm: Algorithm, name: str, value: Any) -> bool:
    """Return whether rounds read this value; they read every schedule."""
    return algorithm.reads is None or name in algorithm.reads or isinstance(value, Schedule)


def noise_asked(given: Mapping[str, Any]) -> Asked | None:
    """Return the one way of setting the noise that is given; raise if there are several."""
    found = {name: given[name] for name in ASKED if name in given}
    many = "both" if len(found) == 2 else "all"
    require(len(found) < 2, lambda: f"{many} set the noise", "give one of them", **found)
    return next((ASKED[name](float(value)) for name, value in found.items()), None)
