"""A budget of privacy for each client: the more eps a client allows, the less noise it adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from jaxfl.algorithms.numbers import ASKED_SIZE
from jaxfl.algorithms.registry import algorithm as by_name
from jaxfl.algorithms.resolution import resolve
from jaxfl.core.checks import one_problem
from jaxfl.core.errors import require
from jaxfl.core.types import Algorithm, Problem
from jaxfl.parts import mechanisms, sampling
from jaxfl.problems.facts import facts_of

__all__ = ["with_budgets"]

NOISE = ("eps", "sigma", "rho", "noise_constant")  # ways to ask for noise


def with_budgets(
    name: str,
    problem: Problem,
    rounds: int,
    eps: Sequence[float],
    parts: Any = None,
    spend: Literal["noise", "rounds"] = "noise",
    **numbers: Any,
) -> tuple[Algorithm, dict[str, Any]]:
    """An algorithm whose clients have budgets eps_i, and the numbers of its runs.

    The noise of client i is the least that proves eps_i over all rounds, of a client of the worst size.
    Budgets and multiples are public: where eps_i depends on a client's records, nothing is proven of it.  A
    run proves the largest eps_i, and ``run.ledger()`` that of each client.  With equal weights the mean of
    the messages has the variance of the most private ones; it is least with ``weights`` of the problem
    proportional to ``1/sigma_i^2``, with another objective.

    With ``spend="rounds"`` all have the noise that the largest budget needs, and a client retires before
    the round that would exceed its own.  Means are then of those that are left, which is another
    objective.

    Args:
        name: of an algorithm whose clients add their own noise to messages.
        problem: on which it runs.
        rounds: of its runs.
        eps: the budgets, one for each client.
        parts: of the algorithm, by role.
        spend: how budgets differ, by the "noise" of a client or by its "rounds".
        numbers: hyper-parameters.

    >>> import jax, jaxfl
    >>> data = jaxfl.data.split("digits", clients=3)
    >>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> made, numbers = jaxfl.parts.with_budgets("ldp_sgd", problem, 9, (1.0, 2.0, 4.0), delta=1e-3)
    >>> run = jaxfl.simulate(made, problem, jax.random.key(0), 9, **numbers)
    >>> run.ledger().proven.round(2).tolist()
    [1.0, 2.0, 4.0]
    """
    problem = one_problem(problem)
    require(
        len(eps) == problem.n,
        lambda: f"has {len(eps)} budgets, and there are {problem.n} clients",
        "give one for each",
        eps=tuple(eps),
    )
    for client, each in enumerate(eps):
        way = "leave the client out, or give it a budget above 0"
        require(each > 0, lambda: f"of client {client} allows no release", way, eps=each)
    facts, usual = facts_of(problem, rounds), by_name(name, **(parts or {}))
    values = resolve(usual, {**numbers, "eps": max(eps)}, facts).values
    left = {*NOISE, *(ASKED_SIZE if "k" in values else ())}
    fixed = {n: v for n, v in values.items() if n in usual.names - left}  # for one eps, or another
    if spend == "rounds":
        least = float(resolve(usual, {**fixed, "eps": max(eps)}, facts).values["sigma"])
        longest = {e: _turns(usual, problem, rounds, {**fixed, "eps": e}, least) for e in {*eps}}
        parts = {
            **(parts or {}),
            "participation": sampling.retiring(tuple(longest[e] for e in eps)),
        }
        return by_name(name, **parts), {**fixed, "sigma": least}
    sigma = {e: float(resolve(usual, {**fixed, "eps": e}, facts).values["sigma"]) for e in {*eps}}
    least = sigma[max(eps)]
    multiples = tuple(sigma[e] / least for e in eps)
    made = by_name(name, **{**(parts or {}), "mechanism": mechanisms.gaussian(multiples)})
    return made, {**fixed, "sigma": least}


def _turns(usual: Algorithm, problem: Problem, rounds: int, given: Any, sigma: float) -> int:
    """The most rounds, up to ``rounds``, in which this sigma proves the eps of ``given``."""
    low, high = 0, rounds
    while low < high:
        middle = (low + high + 1) // 2
        needed = float(resolve(usual, given, facts_of(problem, middle)).values["sigma"])
        low, high = (middle, high) if needed <= sigma else (low, middle - 1)
    way = "give it a larger budget, leave the client out, or spend budgets by noise"
    require(low > 0, "allows no round with the noise of the largest budget", way, eps=given["eps"])
    return low
