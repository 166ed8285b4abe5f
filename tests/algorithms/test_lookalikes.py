"""What looks like plain data, or like an event, a smoothness or a part of jaxfl's, and is the user's."""

import copy
import functools
import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from own import ASKED, FEATURES, Case, Composed, Said, begun, body, own, problem_of, said, usual

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.algorithms.standing import standing
from jaxfl.core.types import Hyper, Param
from jaxfl.parts import channels, compose, compressors, estimators, plain, sampling, servers
from jaxfl.problems.identity import dtype

pytestmark = pytest.mark.once


def report(made: Any) -> Said:
    return said(Case("", lambda: made, "", ""))


# --- what is called plain data -------------------------------------------------------------------


class Rates(NamedTuple):
    """A tuple of numbers that is a function, too."""

    factor: float = 100.0

    def __call__(self, hp: Hyper) -> optax.GradientTransformation:
        return optax.adam(self.factor * hp["lr"])


class Number(np.float64):
    """A scalar of NumPy that is a function, too, and may be true or false as it likes."""

    def __call__(self, hp: Hyper) -> optax.GradientTransformation:
        return optax.adam(100 * hp["lr"])

    def __bool__(self) -> bool:
        return True


@pytest.mark.parametrize("made", [Rates(), Number(1)], ids=["tuple", "scalar"])
def test_a_function_that_is_a_tuple_or_a_number_is_the_users(made: Any) -> None:
    algorithm = jaxfl.algorithm("dp_fedavg", optimizer=made)
    found = report(Composed(algorithm, {"local_steps": 2}))
    assert (found.outcome, "the local " in found.method) == ("no claim", True)


@pytest.mark.full
def test_plain_data_are_plain() -> None:
    """Numbers that are true as they like are not."""
    for flag in (True, np.True_, np.float32(1), Number(1)):
        found = report(own(estimator=estimators.minibatch(sampling.poisson(), flag)))
        assert found.outcome == ("probed" if isinstance(flag, Number) else "proven")
    assert "the estimator " in found.method
    rate = Param("lr", "the step size", high=10.0)
    fixed = servers.optimizer(lambda hp: optax.sgd(hp["lr"]), (rate,), np.str_("mine"))
    assert report(own(server=fixed)).outcome == "proven"


# --- losses that see more than one example -------------------------------------------------------


@jax.custom_batching.custom_vmap
def largest(a: jax.Array) -> jax.Array:
    return jnp.float32(1)


@largest.def_vmap
def _of_batch(size: int, batched: Any, a: jax.Array) -> Any:
    return jnp.broadcast_to(1 + jnp.abs(a).max(), (size,)), True


def in_reverse() -> Callable[..., Any]:
    f = jax.custom_vjp(lambda w, a: w @ a)
    f.defvjp(lambda w, a: (w @ a, a), lambda a, g: (g * a * largest(a), 0 * a))
    return f


def forward() -> Callable[..., Any]:
    f = jax.custom_jvp(lambda w, a: w @ a)
    f.defjvp(lambda at, by: (at[0] @ at[1], by[0] @ at[1] * largest(at[1])))
    return f


@pytest.mark.parametrize("derivative", [in_reverse, forward])
def test_a_derivative_that_sees_other_examples(derivative: Any) -> None:
    """The loss itself sees one example."""
    f = derivative()
    start = {"w": np.zeros(FEATURES, np.float32)}
    model = jaxfl.models.custom(start, lambda params, example: f(params["w"], example[0]))
    found = report(Composed("ldp_sgd", problem=problem_of(model)))
    assert found.outcome == "no claim"
    assert "custom_vmap_call" in found.method


# --- events and models that were jaxfl's ---------------------------------------------------------


def test_an_event_at_the_address_of_one_that_is_gone() -> None:
    """Of two equal compositions one is dropped, and what comes to its event's place is another event."""
    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0)
    first = compose("own", "", "", body(), numbers)
    place, of = id(first.event), first.event.func  # type: ignore[union-attr]
    kept = compose("own", "", "", body(), numbers)
    del first
    gc.collect()
    other = body(estimator=estimators.minibatch(sampling.single_pass()))
    others = []
    while len(others) < 2000 and (not others or id(others[-1]) != place):
        others.append(functools.partial(of, other))
    assert standing(kept._replace(event=others[-1]), usual()).kind == "none"
    assert standing(kept, usual()).kind == "proven"


def test_a_copied_model_keeps_its_proof() -> None:
    for model in (jaxfl.models.logistic(FEATURES), jaxfl.models.mlp(FEATURES, 2, hidden=3)):
        assert report(Composed("ldp_sgd", problem=problem_of(copy.deepcopy(model)))).eps <= ASKED


HIDDEN = {"local_steps": 5, "lr": 50.0}


def test_a_smoothness_that_the_user_states() -> None:
    """Amplification by iteration needs steps below 2/L, and the L of a model counts."""
    algorithm, model = jaxfl.algorithm("private_local_sgd", convex=True), jaxfl.models.logistic
    true, small = problem_of(model(FEATURES)), {**HIDDEN, "lr": 0.1}
    proven = report(Composed(algorithm, small, true))
    assert proven.status == "D"
    assert "amplification by iteration" in proven.method
    for numbers in (HIDDEN, {**HIDDEN, "smoothness": 1e-6}):
        assert "messages by themselves" in report(Composed(algorithm, numbers, true)).method
    false = problem_of(model(FEATURES)._replace(smoothness=lambda train, count: 1e-6))
    found = report(Composed(algorithm, HIDDEN, false))
    assert (found.status, found.outcome) == ("U", "stated")
    unknown = problem_of(model(FEATURES)._replace(smoothness=None))
    stated = report(Composed(algorithm, {**small, "smoothness": 1.0}, unknown))
    assert (stated.status, stated.outcome) == ("U", "stated")


# --- parts that write to the hyper-parameters ----------------------------------------------------


CLIP = 1e-3


def first_louder(function: Callable[..., Any]) -> Callable[..., Any]:
    """It raises the clip in the hyper-parameters that it is given, among its arguments."""

    def call(*given: Any) -> Any:
        (hp,) = (each for each in given if isinstance(each, Hyper))
        hp.values["clip"] = 1e6 * hp["clip"]
        return function(*given)

    return call


def writes(role: str) -> Any:
    """A part that acts on noised values, and raises the clip of what comes after it in the round."""
    server, channel = servers.descent(), channels.direct()
    return {
        "server": server._replace(step=first_louder(server.step)),
        "compressor": compressors.natural()._replace(code=first_louder(lambda key, v, hp: v)),
        "channel": channel._replace(
            after=first_louder(channel.after), receive=first_louder(channel.receive)
        ),
    }[role]


@pytest.mark.parametrize("role", ["server", "compressor", "channel"])
def test_a_part_cannot_change_the_clip_of_others(role: str, key: jax.Array) -> None:
    """SVRG's mean gradient at a new snapshot is clipped after the server's step."""
    numbers = plain(clip=CLIP, batch=4, lr=0.1, eps=ASKED, omega=0.0, refresh=1.0)
    parts = {"estimator": estimators.svrg(sampling.poisson()), role: writes(role)}
    algorithm = compose("own", "", "", body(**parts), numbers)
    assert standing(algorithm).kind == "proven"
    run = begun(Composed(algorithm))
    hp = build(algorithm, run.values, run.facts, dtype(run.problem))
    state, _ = jax.jit(algorithm.init)(key, run.problem, hp)
    state, _ = jax.jit(algorithm.round)(key, state, run.problem, hp)
    base = state.base if state.bases is None else state.bases
    assert 0 < np.linalg.norm(base, axis=-1).max() <= CLIP * (1 + 1e-5)
