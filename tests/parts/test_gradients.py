"""A point counts as often as compiled rounds evaluate it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from planned import federated
from rows import a_problem

import jaxfl
from jaxfl.core.types import Array, Estimator, Gradient, Hyper, Term
from jaxfl.parts import compose, plain, sampling
from jaxfl.parts.gradients import at_point, evaluated

Map = Callable[[Array], Array]
COPIES: list[Map] = [
    jnp.copy,
    *(lambda x: x + 0, lambda x: 0 + x, lambda x: x - 0, lambda x: 1 * x, lambda x: x / 1),
    lambda x: jax.tree.map(lambda a: jnp.copy(a + 0), {"x": x})["x"],
    jax.lax.stop_gradient,
]
OTHERS: list[Map] = [lambda x: x + 1, lambda x: 2 * x, lambda x: 0 - x, lambda x: 1 / x]
UNKNOWN: list[Map] = [lambda x: jnp.where(x > 5, x, x), jax.jit(lambda x: x)]


def two(other: Map) -> Gradient:
    def terms(shared: Any, x: Array, hp: Hyper) -> tuple[Term, ...]:
        return Term(1.0, (x,), (1.0,), jnp.float32(1)), Term(
            1.0, (other(x),), (1.0,), jnp.float32(2)
        )

    return Gradient(terms)


def work(other: Map) -> tuple[int, float]:
    """The points that are counted, and the operations of a compiled evaluation."""
    model, counts = jaxfl.models.logistic(64), []

    def gradient(x: Array) -> Array:
        point = at_point(two(other), model, (), x, Hyper({}))
        counts.append(point.evaluations)
        batch = jnp.ones((128, 64)), jnp.ones(128, jnp.int32)
        return evaluated(point, jnp.ones(128) / 128, batch)[0]

    flops = jax.jit(gradient).lower(jnp.ones(64)).compile().cost_analysis()["flops"]
    return counts[-1], flops


@pytest.mark.optimized
def test_a_copied_point_is_evaluated_and_counted_once() -> None:
    """Of points that are equal in ways that nobody sees the count is an upper bound."""
    one, once = work(lambda x: x)
    assert one == 1
    for other in COPIES:
        assert work(other) == (1, once)
    for other in OTHERS:
        count, flops = work(other)
        assert count == 2
        assert flops > 1.4 * once
    for other in UNKNOWN:
        assert work(other) == (2, once)


@pytest.mark.parametrize(("other", "points"), [(jnp.copy, 1), (lambda x: 2 * x, 2)])
def test_rounds_count_the_points_that_differ(other: Map, points: int) -> None:
    estimator = Estimator("two", sampling.full(), two(other), points=2)
    algorithm = compose(
        "two", "two", "here", federated(estimator=estimator), plain(lr=0.1, sigma=1.0)
    )
    for how in (False, True):
        f = jaxfl.functions(algorithm, a_problem(), 1, plain=how)
        _, info = f.round(f.init(jax.random.key(0)))
        assert info.gradients == points * f.problem.count.sum()
