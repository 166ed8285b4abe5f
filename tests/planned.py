"""Runs that have their hyper-parameters and were not made, and bodies of the usual parts."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.core.types import Algorithm, Problem, ProblemFacts
from jaxfl.engine import program
from jaxfl.parts import Federated, channels, compressors, estimators, mechanisms, sampling, servers
from jaxfl.privacy.accountants import epsilon
from jaxfl.problems.facts import facts_of


class Planned(NamedTuple):
    algorithm: Algorithm
    problem: Any  # or the facts of one
    key: jax.Array
    values: dict[str, Any]
    sources: Any
    facts: ProblemFacts

    @property
    def body(self) -> Any:
        return self.algorithm.body

    @property
    def hp(self) -> Any:
        dtype = jnp.float32 if self.problem.x0 is None else self.problem.x0.dtype
        return build(self.algorithm, self.values, self.facts, dtype)

    @property
    def event(self) -> Any:
        return self.algorithm.event(self.values, self.facts)

    @property
    def claim(self) -> Any:
        return self.algorithm.claim(self.values, self.facts)

    def eps(self, delta: float) -> float:
        return float(epsilon(self.event, delta).eps)

    def start(self) -> Any:
        return self.algorithm.init(self.key, self.problem, self.hp)[0]

    def round(self, **how: Any) -> Any:
        """One round from the start, compiled without computing anything."""
        key, problem, hp = self.key, self.problem, self.hp
        state = jax.eval_shape(lambda: self.algorithm.init(key, problem, hp)[0])
        return jax.jit(self.algorithm.round, **how).lower(key, state, problem, hp).compile()

    def states(self, *rounds: int) -> list[Any]:
        """After so many rounds, each from the start."""
        algorithm, key = self.algorithm, self.key

        @jax.jit
        def go(problem: Problem, hp: Any, T: int) -> Any:
            step = lambda _, state: algorithm.round(key, state, problem, hp)[0]  # noqa: E731
            return jax.lax.fori_loop(0, T, step, algorithm.init(key, problem, hp)[0])

        return [go(self.problem, self.hp, jnp.int32(T)) for T in rounds]


def planned(
    algorithm: str | Algorithm,
    problem: Problem | ProblemFacts,
    rounds: int | None = None,
    noise: str = "calibrated",
    **given: Any,
) -> Planned:
    algorithm = jaxfl.algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    facts = problem if isinstance(problem, ProblemFacts) else facts_of(problem, rounds)
    values, sources = jaxfl.algorithms.resolution.resolve(algorithm, given, facts, noise)
    facts = facts._replace(rounds=int(values["rounds"]))
    return Planned(algorithm, problem, jax.random.key(0), values, sources, facts)


def forget() -> None:
    """Drop all compiled programs."""
    program._compiled.cache_clear()
    jax.clear_caches()


def federated(**parts: Any) -> Federated:
    """Noised minibatch descent of all clients, but for ``parts``."""
    usual: dict[str, Any] = {
        "estimator": estimators.minibatch(sampling.poisson()),
        "mechanism": mechanisms.gaussian(),
        "compressor": compressors.identity(),
        "channel": channels.direct(),
        "server": servers.descent(),
        "participation": sampling.everyone(),
    }
    return Federated(**{**usual, **parts})
