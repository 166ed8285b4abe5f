"""From what a user gives to the numbers that a round reads.  Host side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.errors import InputError, said
from jaxfl.params import LEAST, check, varies
from jaxfl.schedules import Floats, Schedule, schedule
from jaxfl.types import Algorithm, Facts, Hyper, Made, Problem, Resolved

NOISES = ("calibrated", "paper")
CALIBRATED = "calibrated"  # the source of a sigma that is yet to be found, whatever it is

__all__ = [
    "CALIBRATED",
    "build",
    "facts_of",
    "plain",
    "resolve",
    "usual_delta",
]


def facts_of(problem: Problem, rounds: int | None) -> Facts:
    """What the resolution of numbers may look at."""
    count, model = np.asarray(problem.count), problem.model
    smoothness = None
    if model.smoothness and not isinstance(problem.train, Made):
        smoothness = model.smoothness(problem.train, count)
    sizes = tuple(int(m) for m in np.unique(count))
    return Facts(
        problem.n,
        sizes[0],
        problem.m_max,
        model.dim,
        rounds,
        smoothness,
        sizes,
        model.diameter,
        model.convex,
        None if model.convex is None else bool(model.convex and model.kernel.link is not None),
        model.project is not None,
    )


def resolve(
    algorithm: Algorithm, given: Mapping[str, Any], facts: Facts, noise: str = "calibrated"
) -> Resolved:
    """Checked numbers of one run: the user's, then the algorithm's theory and defaults.

    Where sigma is not given, ``noise="calibrated"`` takes the least that an accountant proves
    (eps, delta) for, ``noise="paper"`` what the paper's formula says.  What depends on the noise
    is settled last.
    """
    found = _with_noise(algorithm, given, facts, noise)
    if algorithm.settle is None:
        return found
    return algorithm.settle(found, facts._replace(rounds=int(found.values["rounds"])))


def _with_noise(
    algorithm: Algorithm, given: Mapping[str, Any], facts: Facts, noise: str
) -> Resolved:
    if noise not in NOISES:
        raise InputError(f"noise = {noise!r} has to be one of {', '.join(NOISES)}.")
    given = {
        name: schedule(value) if varies(value) else value
        for name, value in given.items()
        if value is not None
    }
    varying = {name: value for name, value in given.items() if isinstance(value, Schedule)}
    _may_vary(algorithm, varying)
    fixed = {name: value for name, value in given.items() if name not in varying}
    check(algorithm.params, fixed, algorithm.name)
    for name, value in fixed.items():
        if np.ndim(value) != 0:
            raise InputError(
                f"{name} = {value!r} has to be one number: a run has no axes, and sweep() has."
            )
    values, sources = algorithm.resolve(given, facts)
    for name, value in varying.items():
        numbers = _over(name, value, int(values["rounds"]))
        for extreme in (float(numbers.min()), float(numbers.max())):
            check(algorithm.params, {name: extreme}, algorithm.name)
    missing = sorted(set(algorithm.needs) - set(values))
    if missing:
        known = {param.name for param in algorithm.params}
        way = ", or eps" if missing == ["sigma"] and "eps" in known else ""
        raise InputError(
            f"{algorithm.name} needs {' and '.join(missing)}, which nothing sets: give it{way}."
        )
    if "eps" in given and "eps" not in values:
        raise InputError(
            f"eps = {given['eps']!r} decides nothing in {algorithm.name}, whose resolve leaves it out: "
            "give sigma."
        )
    wanted = {"sigma", "eps"} <= set(values) and "sigma" not in given
    formula = sources.get("sigma") not in ("default", CALIBRATED)
    if noise == "paper" and wanted and not formula:
        raise InputError(
            f"noise = 'paper' takes the formula of a paper, and {algorithm.name} has none that gives "
            f"sigma for eps = {values['eps']:g}: let the noise be calibrated, or give sigma."
        )
    if algorithm.event is None and wanted and not formula:
        raise InputError(
            f"{algorithm.name} does not describe what it releases, so that no noise can be calibrated "
            f"for eps = {values['eps']:g}: give it an event, or give sigma."
        )
    if noise == "paper" and wanted and algorithm.claim is not None:
        _speaks(algorithm.claim(values, facts._replace(rounds=int(values["rounds"]))))
    if noise == "paper" or algorithm.event is None or not wanted:
        return Resolved(values, sources)
    if "noise_constant" in given:
        raise InputError(
            "is part of the paper's formula",
            "give {noise} with it",
            suggested={"noise": "paper"},
            noise_constant=given["noise_constant"],
        )
    from jaxfl import privacy

    if "delta" not in values:
        raise InputError(f"eps = {values['eps']:g} needs delta, which nothing sets: give it.")
    if not algorithm.per_record and "gradient_bound" not in values:
        raise InputError(
            "clip='batch' bounds no record's influence, so no noise can be calibrated for "
            f"eps = {values['eps']:g}",
            "give gradient_bound, {noise} for the paper's formula, or sigma",
            suggested={"noise": "paper"},
        )
    event = algorithm.event(values, facts._replace(rounds=int(values["rounds"])))
    found = privacy.sigma_for(event, values["eps"], values["delta"])
    if not found.sigma >= LEAST:
        raise InputError(
            f"eps = {values['eps']:g} asks for so little noise that none is left (sigma = "
            f"{found.sigma:.3g}): ask for a smaller eps, or take an algorithm without noise."
        )
    values = {**values, "sigma": found.sigma}
    return Resolved(values, {**sources, "sigma": f"calibrated: {found.proven.method}"})


def _over(name: str, rule: Schedule, rounds: int) -> Floats:
    """One number per round; what the user's own function does wrong is said once, here."""
    try:
        return rule.over(rounds)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{name} = {rule} gives no number for each of {rounds} rounds ({said(error)}): let it "
            "take the round and return one number."
        ) from error


def _speaks(claim: Any) -> None:
    """Refuse a formula where it counts something else than what is run."""
    failed = [c.text for c in claim.conditions if c.needed and c.holds is False] if claim else []
    if failed:
        raise InputError(
            f"noise = 'paper' takes the formula of {claim.source}, which needs {failed[0]}: change "
            "batch, local_steps, rounds or who takes part, or let the noise be calibrated."
        )


def _may_vary(algorithm: Algorithm, names: Iterable[str]) -> None:
    able = [param.name for param in algorithm.params if param.schedule]
    for name in set(names) & {param.name for param in algorithm.params} - set(able):
        raise InputError(
            f"{name} cannot change from round to round, since one number enters the accounting and "
            f"the theory: {algorithm.name} takes schedules for {', '.join(able)}."
        )


def build(
    algorithm: Algorithm,
    values: Mapping[str, Any],
    facts: Facts,
    dtype: jnp.dtype[Any],
    rounds: int = 0,
) -> Hyper:
    """The traced form: whole numbers as int32, others in the model's dtype.

    ``rounds`` is how far schedules have to reach, if beyond the planned rounds.
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
    leaves: dict[str, jax.Array] = {
        name: jnp.asarray(
            value.over(max(planned, rounds)) if isinstance(value, Schedule) else value,
            jnp.int32 if name in integers else dtype,
        )
        for name, value in values.items()
    }
    return Hyper(leaves, tuple(sorted(caps.items())))


def usual_delta(size: int) -> float:
    """For so many records, or clients, where none is given."""
    return min(1e-3, 0.1 / size)


def plain(**defaults: Any) -> Callable[[Mapping[str, Any], Facts], Resolved]:
    """The simplest ``resolve``: what the user gives, and these numbers otherwise.

    Where ``eps`` is given, or is one of them and ``sigma`` is not given, sigma is calibrated for
    (eps, delta), with delta = min(0.001, 0.1/m) unless it is said.
    """

    def resolve(given: Mapping[str, Any], facts: Facts) -> Resolved:
        if facts.rounds is None:
            raise InputError("rounds is not given, and this algorithm has no theory to choose it.")
        values = {**defaults, **given, "rounds": facts.rounds}
        sources = {name: "given" if name in given else "default" for name in values}
        sources["rounds"] = "given"
        if {"sigma", "eps"} <= set(given):
            raise InputError(
                f"eps = {given['eps']!r} and sigma = {given['sigma']!r} both set the noise: "
                "give one of them."
            )
        if "sigma" in given:
            values.pop("eps", None)
        elif "eps" in values:
            if "delta" not in values:
                values["delta"] = usual_delta(facts.m_max)
                sources["delta"] = "default: min(0.001, 0.1/m)"
            values["sigma"], sources["sigma"] = 1.0, CALIBRATED  # any: calibration replaces it
        sources = {name: sources[name] for name in values}
        return Resolved(values, sources)

    return resolve
