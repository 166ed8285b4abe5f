"""Calls of jaxfl under the transformations of JAX: right, or refused in one sentence."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_problem
from told import refused

import jaxfl
from jaxfl.core.errors import JaxflWarning
from jaxfl.core.fusion import materialized

T, KEY = 3, jax.random.key(3)
GIVEN = {"eps": 4.0, "lr": 0.1, "clip": 1.0, "delta": 1e-3, "batch": 4}
UNDER: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "jit": lambda f: jax.jit(f)(0.1),
    "vmap": lambda f: jax.vmap(f)(jnp.array([0.1, 0.2])),
    "grad": lambda f: jax.grad(lambda v: jnp.sum(f(v)))(0.1),
    "scan": lambda f: jax.lax.scan(lambda c, v: (c, f(v)), 0, jnp.array([0.1, 0.2])),
    "eval_shape": lambda f: jax.eval_shape(f, 0.1),
}
PROBLEM = a_problem()


def made(name: str = "ldp_sgd", problem: Any = PROBLEM, **given: Any) -> Any:
    return jaxfl.functions(name, problem, T, **{**GIVEN, **given})


def end(name: str = "soteriafl_sgd", key: Any = KEY, **given: Any) -> Any:
    f = made(name, **given)
    return f.output(jax.lax.scan(f.round, f.init(key), length=T)[0])


def loss(**given: Any) -> Any:
    return jnp.sum(end(**given) ** 2)


def lately(v: Any) -> Any:
    return jaxfl.Problem(PROBLEM.model, (PROBLEM.train[0] * v, PROBLEM.train[1])).count


def shifted(v: Any) -> Any:
    return dataclasses.replace(PROBLEM, x0=PROBLEM.x0 + v)


HOST: dict[str, tuple[Callable[[Any], Any], str]] = {
    "simulate": (lambda v: jaxfl.simulate("ldp_sgd", PROBLEM, **{**GIVEN, "lr": v}).x, "functions"),
    "sweep": (lambda v: jaxfl.sweep("ldp_sgd", PROBLEM, **{**GIVEN, "eps": v}), "functions"),
    "Problem": (lately, "make the problem before"),
    "rounds": (lambda v: jaxfl.functions("ldp_sgd", PROBLEM, v, **GIVEN).hp["lr"], "is traced"),
    "batch": (lambda v: end("fedavg", batch=v, eps=None, delta=None), "batch is traced"),
    "omega": (lambda v: end(omega=1 / v), "k follows from omega"),
    "shape": (lambda v: end(lr=v * jnp.ones(2)), "is traced with the shape"),
    "privacy": (lambda v: made(lr=v).privacy(2), "f.privacy"),
    "problem": (lambda v: made(problem=shifted(v)).hp["lr"], "pass them to your program"),
}  # fmt: skip


@pytest.mark.parametrize("how", UNDER)
@pytest.mark.parametrize("what", HOST)
def test_what_the_host_computes_is_refused(what: str, how: str) -> None:
    call, words = HOST[what]
    refused(lambda: UNDER[how](call), words)


@pytest.mark.parametrize("call", [jaxfl.simulate, jaxfl.sweep])
def test_what_compiles_says_that_jit_is_off(call: Any) -> None:
    with jax.disable_jit():
        refused(lambda: call("ldp_sgd", PROBLEM, rounds=T, **GIVEN), "jax.disable_jit is on")


@pytest.mark.full
def test_keys_and_seeds_may_be_traced() -> None:
    keys = jax.random.split(KEY, 3)
    found = jax.vmap(lambda key: end(key=key))(keys)
    for x, key in zip(found, keys, strict=True):
        run = jaxfl.simulate("soteriafl_sgd", PROBLEM, key, T, **GIVEN)
        np.testing.assert_allclose(x, run.x, rtol=1e-5, atol=1e-6)
    f = made()
    again = jax.vmap(lambda seed: f.output(f.round(f.init(KEY, seed))[0]))(jnp.arange(2))
    np.testing.assert_allclose(again[1], f.output(f.round(f.init(KEY, 1))[0]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", UNDER)
@pytest.mark.parametrize("what", ["lr", "eps", "sigma", "clip"])
def test_what_may_be_traced(what: str, how: str) -> None:
    """Runs under a transformation are single runs, to the rounding of noise."""
    given = {what: 0.1} if what != "sigma" else {"sigma": 0.1, "eps": None}
    out = UNDER[how](lambda v: end(**{**given, what: v}))
    if how in ("jit", "vmap", "scan"):
        found = {"jit": lambda: out, "vmap": lambda: out[0], "scan": lambda: out[1][0]}[how]()
        numbers = {n: v for n, v in {**GIVEN, **given}.items() if v is not None}
        run = jaxfl.simulate("soteriafl_sgd", PROBLEM, KEY, T, **numbers)
        np.testing.assert_allclose(found, run.x, rtol=1e-4, atol=1e-5)
    elif how == "grad":
        assert np.isfinite(out)


@pytest.mark.parametrize("name", ["ldp_sgd", "fedavg", "soteriafl_svrg", "dp_fedavg", "ldp_spider"])
def test_the_derivative_in_a_step_size_is_a_difference_quotient(name: str) -> None:
    """In both modes, through a scan over rounds, and of loops whose length is traced."""
    given: dict[str, Any] = {"name": name, "eps": None, "delta": None, "sigma": 0.01}
    given |= {"fedavg": {"sigma": None, "local_steps": 3}, "dp_fedavg": {"clip": None}}.get(
        name, {}
    )
    given |= {"batch": None} if name == "ldp_spider" else {}
    f = jax.jit(lambda lr: loss(**{**given, "lr": lr}))
    quotient = (f(0.101) - f(0.099)) / 0.002
    assert quotient != 0
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(f)(0.1), quotient, rtol=5e-3)


ROUNDED: dict[str, tuple[dict[str, Any], str]] = {
    "secure sum": ({"name": "private_local_sgd"}, "aggregation='plain_sum'"),
    "qsgd": ({"compressor": "qsgd"}, "qsgd rounds messages"),
    "natural": ({"compressor": "natural"}, "natural rounds messages"),
    "bfloat16": ({"storage": "bfloat16"}, "storage='exact'"),
}


@pytest.mark.parametrize("kind", ROUNDED)
def test_the_derivative_of_what_is_rounded_is_refused(kind: str) -> None:
    given, words = ROUNDED[kind]
    refused(lambda: jax.grad(lambda lr: loss(**{**given, "lr": lr}))(0.1), words)


def test_second_derivatives_through_the_host_are_refused() -> None:
    refused(lambda: jax.hessian(lambda eps: loss(eps=eps))(4.0), "have first derivatives alone")


@pytest.mark.parametrize(
    "one",
    [{"lr": -1.0}, {"eps": -1.0}, {"eps": 0.0}, {"eps": np.nan}, {"eps": np.inf}, {"clip": 0.0}],
)
def test_a_traced_value_that_a_run_refuses_gives_nan(one: dict[str, float]) -> None:
    ((name, value),) = one.items()
    given = {"sigma": 0.1, "eps": None} if name == "lr" else {}  # so that no number is derived
    with pytest.warns(JaxflWarning, match=f"since its numbers are refused: {name} = "):
        found = jax.jit(lambda v: end("ldp_sgd", **{**given, name: v}))(value)
    assert np.isnan(found).all()


@pytest.mark.full  # 64 calibrations, and 4 runs
def test_64_values_of_eps() -> None:
    """sigma is never below that of a run, and at most 1e-4 above; models are those of runs."""
    some = jnp.geomspace(0.5, 20, 64)
    sigma = np.asarray(jax.vmap(lambda eps: made(eps=eps).hp["sigma"])(some), np.float64)
    models = jax.vmap(lambda eps: end("ldp_sgd", eps=eps))(some)
    for i in range(0, 64, 9):
        given = {**GIVEN, "eps": float(str(np.asarray(some)[i]))}
        run = jaxfl.simulate("ldp_sgd", PROBLEM, KEY, T, **given)
        assert 1 <= sigma[i] / run.values["sigma"] <= 1 + 1e-4
        np.testing.assert_allclose(models[i], run.x, rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda eps: made(eps=eps).hp["sigma"])(4.0)
    low, high = (made(eps=eps).about.values["sigma"] for eps in (3.8, 4.2))
    np.testing.assert_allclose(slope, (high - low) / 0.4, rtol=1e-2)


def test_noise_of_a_traced_eps_is_never_below_that_of_a_run() -> None:
    some = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    found = np.asarray(jax.vmap(lambda eps: made(eps=eps).hp["sigma"])(jnp.array(some)), np.float64)
    runs = np.array([made(eps=eps).about.values["sigma"] for eps in some])
    assert np.all((runs <= found) & (found <= runs * (1 + 1e-6)))


def test_numbers_kept_from_fusion_have_a_derivative() -> None:
    assert jax.grad(lambda v: 3 * materialized(v, jnp.int32(0)))(2.0) == 3


def test_numbers_that_a_user_replaced_have_no_statement() -> None:
    f = made()
    quiet = dataclasses.replace(f.hp, values={**f.hp.values, "sigma": jnp.float32(1e-3)})
    refused(lambda: dataclasses.replace(f, hp=quiet).privacy(T), "sigma")
    assert f.privacy(T).proven <= 4
