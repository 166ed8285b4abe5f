"""What `profile` says is of the round that runs."""

from typing import Any

import jax
import numpy as np
import pytest
from rows import a_network, a_problem

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.engine import profiling
from jaxfl.problems.facts import facts_of


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "SECONDS", 0.002)
    monkeypatch.setattr(profiling, "SIDE", 64)
    monkeypatch.setattr(profiling, "COPIED", 1 << 12)


@pytest.mark.parametrize("name", ["ldp_sgd", "private_local_sgd"])
def test_phases_add_up(name: str) -> None:
    found = jaxfl.profile(name, a_network(), jax.random.key(0), 3, sigma=0.1, lr=0.1, batch=3)
    assert found.round > 0
    assert found.evaluation > 0
    assert min(found.phases.values()) >= 0
    assert sum(found.phases.values()) == pytest.approx(found.round)
    whole = name == "private_local_sgd"
    assert list(found.phases) == (
        ["whole"] if whole else ["draws", "samples", "gradients", "messages and server"]
    )


def test_arithmetic_is_that_of_the_products() -> None:
    """Full gradients of logistic regression: two products with all features, and little else."""
    n, m, d = 4, 200, 300
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(n, m, d)).astype(np.float32), rng.integers(0, 2, (n, m))
    data = jaxfl.data.from_clients(arrays, classes=2, stacked=True)
    problem = jaxfl.make_problem(jaxfl.models.logistic(d), data)
    found = jaxfl.profile("ldp_gd", problem, jax.random.key(0), 3, sigma=0.1, lr=0.1)
    assert 1.0 <= found.flops / (4 * n * m * d) < 2.0
    assert found.data == sum(a.nbytes for a in jax.tree.leaves(problem))
    assert found.memory["links"] == found.memory["local"] == 0


def begun(name: str, problem: jaxfl.Problem, **given: float) -> Any:
    """The beginnings of a round, and what they are called with."""
    algorithm, facts = jaxfl.algorithm(name), facts_of(problem, 3)
    values = jaxfl.algorithms.resolve(algorithm, given, facts).values
    hp, key = build(algorithm, values, facts, "float32"), jax.random.key(0)
    state, _ = algorithm.init(key, problem, hp)
    return algorithm.body.beginnings(), key, state, hp


@pytest.mark.once
def test_beginnings_depend_on_the_round() -> None:
    """And gradients on the model: work that is always the same would be moved out of the timed loop."""
    problem = a_problem()
    parts, key, state, hp = begun("cdp_sgd", problem, sigma=0.1, lr=0.1, batch=4, k=3)
    for name, part in parts.items():
        part = jax.jit(part)
        seen = {float(part(key, state._replace(t=t), problem, hp)) for t in range(4)}
        assert len(seen) > 1, name
    parts, key, state, hp = begun("fedgd", problem, lr=0.1)
    moved = jax.tree.map(lambda a: a + 1 if a.dtype == "float32" else a, state)
    at = [float(jax.jit(parts["gradients"])(key, one, problem, hp)) for one in (state, moved)]
    assert at[0] != at[1]
