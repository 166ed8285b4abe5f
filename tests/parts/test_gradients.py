"""A point counts as often as compiled rounds evaluate it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from planned import federated
from rows import a_problem

import jaxfl
from jaxfl.algorithms import compose, plain
from jaxfl.core.types import Array, Estimator, Gradient, Hyper, Term
from jaxfl.parts import sampling
from jaxfl.parts.gradients import at_point, evaluated

COPIES: dict[str, Callable[[Array], Array]] = {
    "copy": jnp.copy,
    "array": jnp.array,
    "+ 0": lambda x: x + 0,
    "0 +": lambda x: 0 + x,
    "- 0": lambda x: x - 0,
    "* 1": lambda x: 1 * x,
    "/ 1": lambda x: x / 1,
    "twice": lambda x: jnp.copy(x + 0),
    "cast": lambda x: jax.lax.convert_element_type_p.bind(
        x, new_dtype=x.dtype, weak_type=False, sharding=None
    ),
    "tree": lambda x: jax.tree.map(jnp.copy, {"x": x})["x"],
    "stopped": jax.lax.stop_gradient,
}
OTHERS: dict[str, Callable[[Array], Array]] = {
    "+ 1": lambda x: x + 1,
    "* 2": lambda x: 2 * x,
    "0 -": lambda x: 0 - x,
    "1 /": lambda x: 1 / x,
    "turned": lambda x: x[::-1],
}
UNKNOWN = {"chosen": lambda x: jnp.where(x > 5, x, x), "compiled": jax.jit(lambda x: x)}


def terms(other: Callable[[Array], Array]) -> Callable[..., tuple[Term, ...]]:
    def both(shared: Any, x: Array, hp: Hyper) -> tuple[Term, ...]:
        return Term(1.0, (x,), (1.0,), jnp.float32(1)), Term(
            1.0, (other(x),), (1.0,), jnp.float32(2)
        )

    return both


def work(other: Callable[[Array], Array]) -> tuple[int, float]:
    """The points that are counted, and the operations of a compiled evaluation."""
    model, counts = jaxfl.models.logistic(64), []
    batch = jnp.ones((128, 64)), jnp.ones(128, jnp.int32)

    def gradient(x: Array) -> Array:
        point = at_point(Gradient(terms(other)), model, (), x, Hyper({}))
        counts.append(point.evaluations)
        return evaluated(point, jnp.ones(128) / 128, batch)[0]

    compiled = jax.jit(gradient).lower(jnp.ones(model.dim)).compile()
    return counts[-1], compiled.cost_analysis()["flops"]


@pytest.mark.optimized
def test_a_copied_point_is_evaluated_and_counted_once() -> None:
    """Of points that are equal in ways that nobody sees the count is an upper bound."""
    one, once = work(lambda x: x)
    assert one == 1
    for name, other in COPIES.items():
        assert work(other) == (1, once), name
    for name, other in OTHERS.items():
        count, flops = work(other)
        assert count == 2, name
        assert flops > 1.4 * once, name
    for name, other in UNKNOWN.items():
        assert work(other) == (2, once), name


@pytest.mark.parametrize(("other", "points"), [(jnp.copy, 1), (lambda x: 2 * x, 2)])
def test_rounds_count_the_points_that_differ(other: Callable[[Array], Array], points: int) -> None:
    estimator = Estimator("two", sampling.full(), Gradient(terms(other)), points=2)
    algorithm = compose(
        "two", "two", "here", federated(estimator=estimator), plain(lr=0.1, sigma=1.0)
    )
    problem = a_problem()
    for how in (False, True):
        f = jaxfl.functions(algorithm, problem, 1, plain=how)
        _, info = f.round(f.init(jax.random.key(0)))
        assert info.gradients == points * problem.count.sum()
