"""Rounds as functions: a loop of one's own gives the numbers of simulate, and shows what clients send."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_problem

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.parts.aggregations import secure_sum
from jaxfl.parts.compressors import compressor
from jaxfl.parts.sampling import participation

T = 6
QUIET = {"lr": 0.2, "clip": 0.6, "sigma": 0.05, "batch": 4}
SPARSE = {**QUIET, "k": 3}
CODED = {"compressor": compressor("qsgd+random_k")}
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "fused": ("ldp_sgd", {}, QUIET),
    "shifted": ("soteriafl_svrg", {}, {**SPARSE, "refresh": 0.3}),
    "saga": ("soteriafl_saga", {}, SPARSE),
    "coded": ("cdp_sgd", CODED, SPARSE),
    "some": ("soteriafl_sgd", {"participation": participation("uniform")}, {**SPARSE, "cohort": 2}),
    "residual": ("ef_sgd", {}, {"lr": 0.1, "k": 3, "batch": 4}),
    "words": ("ldp_sgd", {"aggregation": secure_sum()}, QUIET),
    "local": ("private_local_sgd", {}, {**QUIET, "local_steps": 3}),
}


def made(case: str, **more: Any) -> tuple[Any, jaxfl.parts.Algorithm]:
    name, parts, numbers = RUNS[case]
    algorithm = jaxfl.algorithm(name, **parts)
    return jaxfl.functions(algorithm, a_problem(), T, **more, **numbers), algorithm


def test_a_round_takes_no_key(key):
    f, _ = made("fused")
    course = f.init(key)
    for call in (
        lambda: f.round(course, key),
        lambda: jax.lax.scan(f.round, course, jax.random.split(key, T)),
        lambda: f.round(key, course),
        lambda: f.round(course.state),
        lambda: f.output(course.state),
        lambda: f.init(jax.random.split(key, T)),
        lambda: f.init(0),
        lambda: f.view(course),
    ):
        with pytest.raises(InputError):
            call()


@pytest.mark.parametrize("case", RUNS)
def test_messages_are_those_of_the_round(case, key):
    """From what is seen the round after follows, by the equations of channel, sum and server."""
    f, algorithm = made(case, messages=case == "fused")
    body, n = f.algorithm.body, f.problem.n
    course = f.init(key)
    for t in range(3):
        seen, before = f.view(course), course
        course, counts = f.round(course)
        here = np.asarray(seen.weight) > 0
        cohort = algorithm.cohort(course.key, jnp.int32(t), n, f.hp)
        chosen = np.arange(n) if cohort.index is None else np.asarray(cohort.index)
        np.testing.assert_array_equal(np.asarray(seen.clients)[here], chosen[here])
        assert int(counts.clients) == here.sum()
        mean = np.asarray(seen.weight) @ np.asarray(seen.messages)
        close = {"rtol": 1e-5, "atol": 1e-6}
        if seen.words is None:
            np.testing.assert_allclose(seen.mean, mean, **close)
            sent = int((np.asarray(seen.messages)[here] != 0).sum())
            assert int(counts.coordinates) in (0, sent) or case == "coded"  # some codes are 0
        else:
            assert seen.words.dtype == np.uint32
            p = float(f.hp["precision"])
            total = np.asarray(seen.words).astype(np.uint32).sum(0, dtype=np.uint32).view(np.int32)
            public = np.asarray(seen.mean) - p * total / n  # the regularizer's gradient
            x = f.output(before)
            gradient = jax.grad(f.problem.model.regularizer)(x)
            slope = gradient if body.regularizer_apart else jnp.zeros_like(x)
            np.testing.assert_allclose(public, slope, atol=1e-6)
            np.testing.assert_allclose(p * total / n, mean, atol=p)
        rate = jnp.float32(here.sum() / n)
        v, _ = body.channel.receive(before.state.link, seen.mean, rate, f.hp, None)
        step = "server_lr" if case == "local" else "lr"
        x = f.output(before) - f.hp[step] * v
        np.testing.assert_allclose(f.output(course), x, rtol=1e-5, atol=1e-6)
