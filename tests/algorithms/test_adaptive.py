"""A clip that adapts to a quantile, by the formulas of its paper, and what its rounds release."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import LAM, Draws, gradient, regularizer, shrunk
from planned import planned
from rows import a_problem
from told import refusals

import jaxfl
from jaxfl import audit
from jaxfl.core.normals import normal
from jaxfl.core.types import Hyper
from jaxfl.parts.adaptive import stretch
from jaxfl.privacy import Event, Mean, Sampling
from jaxfl.rounds.blocks import client_keys

NAMES = ("adaptive_fedavg", "local_adaptive_fedavg", "adaptive_sgd", "local_adaptive_sgd")
T = 10
GIVEN: dict[str, Any] = {"lr": 0.3, "batch": 4, "clip": 0.2, "quantile": 0.4, "clip_lr": 0.5}


def draws(run: Any, D: Draws, t: int) -> np.ndarray:
    """Standard normals of the server, (d + 1,), or of each client, (n, d + 1)."""

    def one(t: jax.Array, i: jax.Array, hp: Hyper) -> tuple[jax.Array, jax.Array]:
        own = client_keys([D.keys.noise], i[None], t)[0, 0]
        server = jax.random.fold_in(D.keys.mean_noise, t)
        return normal(server, (D.d + 1,)), normal(own, (D.d + 1,))

    server, own = D.grid("extended", one)
    found = own[t] if "local" in run.algorithm.name else server[t, 0]
    return np.asarray(found, float)


def by_hand(run: Any) -> tuple[np.ndarray, list[float]]:
    """The point and the clip of each round, with noise z C on values and sigma_b on the sum of bits."""
    D, v, name = Draws(run), run.values, run.algorithm.name
    x, C, clips = D.x0, v["clip"], []
    for t in range(T):
        values, bits = [], []
        for i in range(D.n):
            if "sgd" in name:
                each = [gradient(D.p, i, j, x) for j in D.rows(t, i)]
                values.append(sum((shrunk(g, C) for g in each), 0 * x) / 4 + regularizer(x))
                bits.append(sum(0.5 if np.linalg.norm(g) <= C else -0.5 for g in each) / 4)
                continue
            theta = x
            for s in range(2):
                theta = theta - 0.3 * (D.slope(2 * t + s, i, theta) + regularizer(theta))
            values.append(shrunk(x - theta, C))
            bits.append(0.5 if np.linalg.norm(x - theta) <= C else -0.5)
        # of so many shares
        r = (4 if "sgd" in name else 1) * (1 if "local" in name else D.n)
        total = v["sigma"] * r
        sigma_b = v["bit_noise"] * total
        halves = 1 if name == "adaptive_fedavg" else 2  # a report of zero has a bit, too
        z = (total**-2 - (halves * sigma_b) ** -2) ** -0.5
        xi = np.mean(np.atleast_2d(draws(run, D, t)), axis=0) / r
        step = np.mean(values, axis=0) + z * C * xi[:-1]
        b = 0.5 + np.mean(bits) + sigma_b * xi[-1]
        x = x - (0.3 if "sgd" in name else 0.9) * step
        clips.append(C)
        C = C * np.exp(-0.5 * (b - 0.4))
    return x, [*clips, C]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.plain) for name in NAMES])
def test_transcription(name: str, key: jax.Array) -> None:
    numbers: dict[str, Any] = {**GIVEN, "sigma": 0.1, "bit_noise": 1.3}
    numbers |= {"local_steps": 2, "server_lr": 0.9} if "fedavg" in name else {}
    run = jaxfl.simulate(name, a_problem(LAM), key, T, eval_every=0, **numbers)
    x, clips = by_hand(run)
    assert max(clips) / min(clips) > 1.2
    np.testing.assert_allclose(np.exp(run.state.shared) * 0.2, clips[-1], rtol=1e-4)
    np.testing.assert_allclose(run.x, x, rtol=1e-4, atol=1e-5)


EVERYONE = Event(Sampling("full", 4, 4), Mean(1.0), 0.1, T, "client", "zero_out", "trusted_server")
RELEASED = {
    "adaptive_fedavg": EVERYONE,
    "local_adaptive_fedavg": Event(
        Sampling("full", 1, 1), Mean(1.0, over_b=2.0, mean=2.0, whole=1.0), 0.1, T, "client"
    ),
    "adaptive_sgd": Event(
        Sampling("without_replacement", 9, 4), Mean(1 / 4), 0.1, T, trust="trusted_server"
    ),
    "local_adaptive_sgd": Event(Sampling("without_replacement", 9, 4), Mean(1.0), 0.1, T),
}


@pytest.mark.plain
@pytest.mark.parametrize("name", NAMES)
def test_events_count_multiples_of_the_clip(name: str) -> None:
    """Whatever the first clip is, and whatever the bits cost: noise grows with both."""
    made = jaxfl.algorithm(name, sampler="without_replacement")
    facts = jaxfl.core.types.ProblemFacts(4, 9, 9, 8, T, 1.0)
    for more in ({}, {"clip": 7.0}, {"bit_noise": 1.01}):
        run = planned(made, facts, **{**GIVEN, **more}, sigma=0.1)
        assert run.event == RELEASED[name]
    asked = planned(made, facts, **GIVEN, eps=3.0)
    assert asked.eps(asked.values["delta"]) == pytest.approx(3.0, rel=1e-3)
    assert asked.values["bit_noise"] >= 1


@pytest.mark.plain
@pytest.mark.parametrize("ratio", [0.51, 1.0, 7.0])
def test_bits_and_values_together_have_the_noise_of_values_alone(ratio: float) -> None:
    hp = Hyper({"bit_noise": jnp.float32(ratio)})
    z = 3.0 * float(stretch(hp))  # for z_total = 3
    assert z**-2 + (2 * ratio * 3.0) ** -2 == pytest.approx(3.0**-2, rel=1e-4)


@pytest.mark.parametrize("clip_lr", [0.2, 0.0])
@pytest.mark.parametrize("name", NAMES)
def test_an_attack_stays_below_the_proof(name: str, clip_lr: float) -> None:
    """Also where later clips show the bits: a client of zeros has one, too."""
    given: Any = dict(rounds=8, m=8, runs=1500, delta=1e-3, eps=4.0, batch=8, clip_lr=clip_lr)
    given |= {"clients": 1 if "local" in name else 3}
    given |= {"local_steps": 1} if "fedavg" in name else {}
    found = audit(name, confidence=0.999, key=jax.random.key(2), **given)
    assert found.proven == pytest.approx(4.0, rel=1e-3)
    assert 0.3 * found.proven <= found.lower <= found.proven


def test_the_clip_finds_the_quantile(key: jax.Array) -> None:
    """With little noise, seven tenths of the gradients are not clipped in the end."""
    numbers: dict[str, Any] = {**GIVEN, "quantile": 0.7, "clip_lr": 0.1, "sigma": 1e-3}
    made = jaxfl.algorithm("local_adaptive_sgd", sampler="full")
    del numbers["batch"]
    run = jaxfl.simulate(made, a_problem(n=4, m=40), key, 200, eval_every=0, **numbers)
    C = 0.2 * float(np.exp(run.state.shared))
    p = run.problem
    every = [
        np.linalg.norm(gradient(p, i, j, np.asarray(run.x, float))) <= C
        for i in range(4)
        for j in range(int(p.count[i]))
    ]
    assert np.mean(every) == pytest.approx(0.7, abs=0.06)


test_mistakes_are_explained = refusals(
    (
        lambda: planned("adaptive_fedavg", a_problem(), T, sigma=0.1, bit_noise=0.5),
        "bit_noise = 0.5 must be above 1",
    ),
    (
        lambda: jaxfl.algorithm("adaptive_fedavg", aggregation="secure_sum"),
        "aggregation = 'secure_sum' does not apply to adaptive_fedavg",
    ),
)
