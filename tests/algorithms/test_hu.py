"""Local steps: against closed forms, a NumPy loop with the same draws, and the laws of their noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from loops import LAM, Draws, regularizer
from planned import planned
from rows import a_problem
from scipy import stats
from told import refusals

import jaxfl
from jaxfl.core.types import Hyper
from jaxfl.parts.sampling import participation
from jaxfl.rounds.blocks import client_keys

pytestmark = pytest.mark.once

NAMES = (
    "dp_fedavg",
    "local_dp_fedavg",
    "fedprox",
    "scaffold",
    "private_local_sgd",
    "dp_scaffold",
    "shifted_local_sgd",
)
NOISY = ("private_local_sgd", "dp_scaffold", "shifted_local_sgd")  # in every step


def step_noise(D: Draws, t: int, i: int) -> np.ndarray:
    """Of every local step."""

    def draw(t: jax.Array, i: jax.Array, hp: Hyper) -> jax.Array:
        key = client_keys([D.keys.noise], i[None], t)[0, 0]
        steps = jnp.arange(int(D.v["local_steps"]))
        return jax.vmap(lambda s: D.normal(jax.random.fold_in(key, s)))(steps)

    return D.v["sigma"] * D.grid("steps", draw)[t, i].astype(float)


def loop(run: jaxfl.Run, D: Draws) -> np.ndarray:
    """Client by client, step by step, sample by sample; one loop with what differs by name."""
    p, v, name, n = run.problem, run.values, run.algorithm.name, run.problem.n
    x, turns, tau = np.asarray(p.x0, float), [0] * n, v.get("local_steps", 1)
    (c, c_i), (shift, shifts) = ((0 * x, [0 * x for _ in range(n)]) for _ in range(2))
    for t in range(int(run.state.t)):
        total, change, members = 0 * x, 0 * x, D.cohort(t)
        for i in members:
            theta, m, noised = x, 0 * x, []
            for s in range(tau):
                g = D.slope(turns[i] * tau + s, i, theta, v["clip"]) + regularizer(theta)
                if name in NOISY:
                    g = g + step_noise(D, t, i)[s]
                noised.append(g)
                if name == "fedprox":
                    g = g + v["prox"] * (theta - x)
                if name.endswith("scaffold"):
                    g = g - c_i[i] + c
                m = g + (0.9 * m if run.settings["parts"]["local"].startswith("optax") else 0)
                theta = theta - v["lr"] * m
            turns[i] += 1
            if name.endswith("scaffold"):
                new = c_i[i] - c + (x - theta) / (tau * v["lr"])
                new = np.mean(noised, axis=0) if name == "dp_scaffold" else new
                change = change + new - c_i[i]
                c_i[i] = new
            sent = x - theta
            if name.endswith("dp_fedavg"):
                sent = sent * min(1, v["update_clip"] / np.linalg.norm(sent))
            if name == "local_dp_fedavg":
                sent = sent + v["sigma"] * D.noise(t, i)
            if name == "shifted_local_sgd":
                sent = D.mask(t, i) * (sent - shifts[i])
                shifts[i] = shifts[i] + v["shift"] * sent
            total = total + sent
        c = c + change / n
        mean = (
            shift + total / len(members) + (v["sigma"] * D.central(t) if name == "dp_fedavg" else 0)
        )
        shift = np.mean(shifts, axis=0)
        x = x - v["server_lr"] * mean
    return x


@pytest.mark.parametrize(
    ("part", "name"),
    [
        *(pytest.param("uniform", name, marks=pytest.mark.plain) for name in NAMES),
        *(("uniform", "fedavg"), ("uniform", "momentum"), ("everyone", "scaffold")),
    ],
)
def test_transcription(part: str, name: str, key: jax.Array) -> None:
    """Epochs of 2 or 3 batches, which tau = 4 neither fills nor divides: they go on across rounds."""
    parts, numbers = {}, {"lr": 0.3, "clip": 0.6, "batch": 4, "local_steps": 4}
    if name in (*NOISY, "dp_fedavg", "local_dp_fedavg", "momentum"):
        numbers["sigma"] = 0.05
    if name == "momentum":
        parts["optimizer"] = lambda hp: optax.sgd(hp["lr"], momentum=0.9)
        numbers["range"] = 32.0
    numbers |= {"fedprox": {"prox": 0.7}}.get(name, {})
    numbers |= {"update_clip": 0.1} if name.endswith("dp_fedavg") else {}
    numbers |= {"k": 4} if name == "shifted_local_sgd" else {}
    if part == "uniform":
        numbers["cohort"] = 3
    name, problem = "private_local_sgd" if name == "momentum" else name, a_problem(LAM)
    algorithm = jaxfl.algorithm(name, participation=participation(part), **parts)
    run = jaxfl.simulate(algorithm, problem, key, 8, eval_every=0, server_lr=0.9, **numbers)
    expected = loop(run, Draws(run))
    assert np.linalg.norm(expected - np.asarray(problem.x0)) > 0.1
    np.testing.assert_allclose(run.x, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


def test_epochs_go_on_across_rounds_unless_fresh(key: jax.Array) -> None:
    """Four batches of three, one per round: each record once in every four rounds, or by chance.
    Fresh batches are independent: two of them share 3 * 3/12 records in the mean, by the
    hypergeometric law."""
    used, model = {}, jaxfl.models.least_squares(12)
    rows = np.eye(12, dtype=np.float32)[None], np.ones((1, 12), np.float32)
    problem = jaxfl.Problem(model, rows, x0=np.zeros(12))
    for fresh in (False, True):
        algorithm, point = jaxfl.algorithm("fedavg", fresh=fresh), {"point": lambda problem, x: x}
        given = {"eval_every": 1, "metrics": point, "lr": 0.1, "batch": 3, "local_steps": 1}
        run = jaxfl.simulate(algorithm, problem, key, 40, **given)
        moved = np.abs(np.diff(run.metrics["point"], axis=0)) > 1e-6
        assert (moved.sum(1) == 3).all()
        used[fresh] = moved.astype(int)
    assert (used[False].reshape(10, 4, 12).sum(1) == 1).all()
    assert (used[True][:4].sum(0) != 1).any()
    pairs = (used[True] @ used[True].T)[np.triu_indices(40, 1)]
    law = stats.hypergeom(12, 3, 3)
    assert abs(pairs.mean() - law.mean()) < 5 * law.std() / np.sqrt(pairs.size)


def run(name: str = "private_local_sgd", parts: Any = {}, **numbers: Any) -> jaxfl.Run:  # noqa: B006
    algorithm = jaxfl.algorithm(name, **parts)
    return jaxfl.simulate(algorithm, a_problem(), jax.random.key(0), 3, **numbers)


UNIFORM = {"participation": participation("uniform")}
SPARSE = {"compressor": jaxfl.parts.compressors.random_k()}
PAPER = {"noise": "paper", "local_steps": 2}


test_mistakes_are_explained = refusals(
    (lambda: run("fedavg", cohort=9), "no hyper-parameter|named 'cohort'"),
    (lambda: run("fedavg", UNIFORM, cohort=9), "exceeds the 5 clients"),
    (lambda: run("fedavg", {"clip": "batch"}), "clips every example"),
    (lambda: run("fedavg", {"noise": "fused"}), "draw their own noise"),
    (lambda: run("scaffold", {"optimizer": lambda hp: optax.adam(0.1)}), "leave it out"),
    (lambda: run("scaffold", SPARSE, k=2), "not apply to scaffold"),
    (lambda: run("dp_scaffold", SPARSE, k=2), "not apply to dp_scaffold"),
    (lambda: run("dp_scaffold", {"aggregation": "secure_sum"}), "no proof covers a sum"),
    (lambda: run("shifted_local_sgd", {"aggregation": "secure_sum"}), "a sum hides nothing"),
    (lambda: run(sigma=1.0, eps=1.0), "give one of them"),
    (lambda: run(clip=np.inf), "finite clip"),
    (lambda: run(parts={"convex": True}, batch=4, local_steps=7), "does not divide"),
    (lambda: run(eps=0.0), "eps"),
    (lambda: run("local_dp_sgd", local_steps=3), "named 'local_steps'"),
    # whole passes of the smallest client's 10 rows: gamma divides them, m/gamma the 6 steps
    (lambda: run(batch=4, **PAPER), "C tau gamma/m = 2.4"),
    (lambda: run(batch=2, **PAPER), "needs whole passes"),
)


def test_whole_passes_may_take_the_papers_noise() -> None:
    """As many steps as two epochs of five batches have."""
    given = {"local_steps": 2, "lr": 0.1, "batch": 2}
    found = planned("private_local_sgd", a_problem(), 5, "paper", **given)
    assert found.claim.eps == pytest.approx(found.values["eps"])


@pytest.mark.plain
@pytest.mark.parametrize("name", ["dp_scaffold", "shifted_local_sgd"])
def test_every_local_step_of_a_turn_counts(name: str) -> None:
    """6 rounds of 3 steps are 18 releases of a Poisson batch, and 6 of 20 rounds are a client's turns."""
    given = {"clip": 0.7, "sigma": 0.3, "batch": 4, "local_steps": 3}
    for who, rounds, more in (("everyone", 6, {}), ("balanced", 20, {"cohort": 3})):
        algorithm = jaxfl.algorithm(name, sampler="poisson", participation=who)
        problem = a_problem(n=10, m=40)
        found = planned(algorithm, problem, rounds, **given, **more)
        assert found.claim is None
        plain = planned("ldp_sgd", problem, 18, clip=0.7, sigma=0.3, batch=4)
        assert found.eps(1e-4) == pytest.approx(plain.eps(1e-4), rel=1e-9)
