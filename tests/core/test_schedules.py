"""Schedules: their values at both ends and between, and what a run makes of them."""

import contextlib
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from planned import planned
from rows import a_problem
from told import refusals, refused

import jaxfl
from jaxfl.core.schedules import RULES, pieces, schedule
from jaxfl.core.types import Hyper, ProblemFacts
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


def test_named() -> None:
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


def test_pieces() -> None:
    """Runs of equal numbers are one piece, a text gives the same schedule back, long ones are cut."""
    made = pieces([0.1, 0.1, 1 / 3, 2.0], [2, 1, 1, 0])
    assert made.label == "pieces:0.1,3,0.3333333333333333,1"
    assert schedule(made.label) == made
    assert hash(schedule(made.label)) == hash(made)
    np.testing.assert_array_equal(made.over(6), [0.1, 0.1, 0.1, 1 / 3, 1 / 3, 1 / 3])
    many = pieces(np.linspace(0, 1, 50))
    assert len(str(many)) <= 48
    np.testing.assert_array_equal(schedule(many.label).over(50), np.linspace(0, 1, 50))


def test_functions() -> None:
    """One's own, optax's, and a label for the results."""
    own = schedule(lambda t: 0.1 * (t + 1), "mine")
    np.testing.assert_allclose(own.over(3), [0.1, 0.2, 0.3])
    assert str(own) == "mine"
    assert schedule(own) is own
    decay = optax.exponential_decay(0.5, transition_steps=2, decay_rate=0.1)
    np.testing.assert_allclose(schedule(decay).over(3), [0.5, 0.5 * 0.1**0.5, 0.05], 1e-6)
    np.testing.assert_array_equal(schedule(lambda t: 0.25).over(3), [0.25] * 3)


def test_a_round_reads_its_own_number() -> None:
    """After the last one, the last; plain numbers stay."""
    hp = Hyper({"lr": jnp.array([3.0, 2.0, 1.0]), "clip": jnp.float32(7)}, (("batch", 4),))
    at = [float(hp.at(jnp.int32(t))["lr"]) for t in (0, 1, 2, 3, 100)]
    assert at == [3, 2, 1, 1, 1]
    now = hp.at(jnp.int32(1))
    assert (float(now["clip"]), now.caps) == (7, {"batch": 4})


def test_a_run_follows_its_schedule(key: jax.Array) -> None:
    """Gradient descent by hand, a step size for every round; extended, where it was."""
    problem = a_problem()
    run = jaxfl.simulate("fedgd", problem, key, 4, lr="linear:0.4,0.1", eval_every=1)
    value = jax.grad(lambda x: evaluate_metrics(problem, x)["loss"])
    x = problem.x0
    for lr in (0.4, 0.3, 0.2, 0.1):
        x = x - lr * value(x)
    np.testing.assert_allclose(run.x, x, 1e-5, 1e-6)
    assert run.values["lr"].label == "linear:0.4,0.1"
    refused(lambda: run.extend(6), "made for 4 rounds and ends with them")
    for lr in ("pieces:0.3,3,0.1,5", lambda t: 0.3 / (1 + t)):
        whole = jaxfl.simulate("fedgd", problem, key, 7, lr=lr)
        parts = jaxfl.simulate("fedgd", problem, key, 4, lr=lr).extend(7)
        np.testing.assert_array_equal(whole.x, parts.x)


def test_a_run_by_a_function_goes_on(key: jax.Array, tmp_path: Path) -> None:
    """In its folder; the name of the function may be that of another schedule."""
    folder, problem, stop = tmp_path / "run", a_problem(), jaxfl.Stop(loss=9.0)
    lr = schedule(lambda t: 0.1 * (t + 1), "cosine:0.3")
    run = jaxfl.simulate("fedgd", problem, key, 4, lr=lr, out=folder, stop=stop)
    assert run.state.t < 4
    again = jaxfl.simulate("fedgd", problem, key, 4, lr=lr, out=folder, extend=True)
    np.testing.assert_array_equal(again.x, jaxfl.simulate("fedgd", problem, key, 4, lr=lr).x)
    assert again.values["lr"].label == "cosine:0.3"
    longer = jaxfl.simulate("fedgd", problem, key, 6, lr=lr)
    np.testing.assert_array_equal(again.extend(6).x, longer.x)


@pytest.mark.parametrize("name", jaxfl.ALGORITHMS)
def test_every_number_that_may_vary_is_resolved(name: str) -> None:
    """Or one sentence says what else is asked for."""
    facts = ProblemFacts(1, 100, 100, 8, 20, 1.0, (100,), 10.0, True, True)
    for param in jaxfl.algorithm(name).params:
        if param.schedule:
            with contextlib.suppress(jaxfl.InputError):
                values = planned(name, facts, **{param.name: "linear:0.5,0.1"}).values
                assert values[param.name].label == "linear:0.5,0.1"


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
