"""Schedules: their values at both ends and between, and what a run makes of them."""

import math
from typing import Any

import jax
import numpy as np
import optax
import pytest
from planned import planned
from rows import a_problem
from told import refusals, refused

import jaxfl
from jaxfl.core.schedules import RULES, pieces, schedule
from jaxfl.parts.local import largest
from jaxfl.problems.metrics import evaluate_metrics

T = 11  # rounds 0 ... 10
VALUES = {
    "cosine:0.4": {0: 0.4, 5: 0.2, 10: 0.0, 2: 0.2 * (1 + math.cos(0.2 * math.pi))},
    "cosine:0.4,0.2": {0: 0.4, 5: 0.3, 10: 0.2},
    "linear:-1,1": {0: -1.0, 3: -0.4, 5: 0.0, 10: 1.0},
    "exponential:1,0.01": {0: 1.0, 5: 0.1, 10: 0.01},
    "sqrt:3": {0: 3.0, 8: 1.0, 3: 1.5},
    "inverse:3": {0: 3.0, 2: 1.0, 9: 0.3},
    "step:2,1,4": {0: 2.0, 3: 2.0, 4: 1.0, 10: 1.0},
    "pieces:2.0,3,0.5,1,4.0,2": {0: 2.0, 2: 2.0, 3: 0.5, 4: 4.0, 5: 4.0, 10: 4.0},
}


def test_named():
    """Over T rounds, and over one: a run of one round begins, and divides by no zero."""
    assert {spec.split(":")[0] for spec in VALUES} == set(RULES)
    for spec, values in VALUES.items():
        found = schedule(spec).over(T)
        assert (found.shape, found.dtype, str(schedule(spec))) == ((T,), np.float64, spec)
        for t, value in values.items():
            assert found[t] == pytest.approx(value, rel=1e-12, abs=1e-15)
        assert schedule(spec).over(1) == pytest.approx([values[0]])
    for spec in ("linear:0.1,0.4", "linear:0.4,0.1"):  # what ranges of sums and convexity ask
        assert largest(schedule(spec), 5) == pytest.approx(0.4)


def test_pieces():
    """Runs of equal numbers are one piece, a text gives the same schedule back, long ones are cut."""
    made = pieces([0.1, 0.1, 1 / 3, 2.0], [2, 1, 1, 0])
    assert made.label == "pieces:0.1,3,0.3333333333333333,1"
    assert schedule(made.label) == made
    assert hash(schedule(made.label)) == hash(made)
    many = pieces(np.linspace(0, 1, 50))
    assert len(str(many)) <= 48
    np.testing.assert_array_equal(schedule(many.label).over(50), np.linspace(0, 1, 50))


def test_functions():
    """One's own, optax's, and a label for the results."""
    own = schedule(lambda t: 0.1 * (t + 1), "mine")
    np.testing.assert_allclose(own.over(3), [0.1, 0.2, 0.3])
    assert str(own) == "mine"
    decay = optax.exponential_decay(0.5, transition_steps=2, decay_rate=0.1)
    np.testing.assert_allclose(schedule(decay).over(3), [0.5, 0.5 * 0.1**0.5, 0.05], 1e-6)
    np.testing.assert_array_equal(schedule(lambda t: 0.25).over(3), [0.25] * 3)


def test_a_run_follows_its_schedule(key):
    """Gradient descent by hand, a step size for every round; extended, where it was."""
    problem = a_problem()
    run = jaxfl.simulate("fedgd", problem, key, 4, lr="linear:0.4,0.1", eval_every=1)
    value = jax.jit(jax.grad(lambda x: evaluate_metrics(problem, x)["loss"]))
    x = problem.x0
    for lr in (0.4, 0.3, 0.2, 0.1):
        x = x - lr * value(x)
    np.testing.assert_allclose(run.x, x, 1e-5, 1e-6)
    assert run.values["lr"].label == "linear:0.4,0.1"
    refused(lambda: run.extend(6), "made for 4 rounds and ends with them")
    whole, half = (
        jaxfl.simulate("fedgd", problem, key, T, lr="pieces:0.3,3,0.1,5") for T in (7, 4)
    )
    np.testing.assert_array_equal(whole.x, half.extend(7).x)


def gd(**given: Any) -> Any:
    return lambda: planned("ldp_gd", a_problem(), 3, **given)


test_mistakes = refusals(
    (lambda: schedule("cosin:0.3"), "There is no schedule 'cosin:0.3'"),
    (lambda: schedule("cosine:"), "cosine:A,B"),
    (lambda: schedule("step:1,2"), "with 3 finite"),
    (lambda: schedule("sqrt:inf"), "finite"),
    (lambda: schedule("pieces:1,2,3"), "pieces:A,k,B,l"),
    (lambda: schedule("exponential:1,0").over(3), "exponential:1,0 must join two numbers of one"),
    (gd(sigma="linear:1,2"), "sigma cannot change from round"),
    (gd(lr="linear:0.1,-0.2", sigma=0.1), r"lr = -0\.2"),
)
