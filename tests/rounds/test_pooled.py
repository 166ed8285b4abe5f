"""Where a round needs no more than the mean of what clients remember, that is all it keeps: the same
runs as with a memory for each."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import forget, planned
from rows import ROWS

import jaxfl
from jaxfl.engine import compute
from jaxfl.parts import Federated
from jaxfl.parts.compressors import compressor
from jaxfl.parts.sampling import sampler

NAMES = ("ldp_svrg", "soteriafl_svrg", "soteriafl_saga", "mu2_untrusted", "isrl_svrg")


class Each(Federated):
    """The round that keeps what every client remembers."""

    pooled = False  # type: ignore[assignment]


def both(name: str, **parts: Any) -> tuple[jaxfl.parts.Algorithm, jaxfl.parts.Algorithm]:
    """The algorithm without compression, and the same with a memory for each client."""
    if name.startswith("soteriafl"):
        parts["compressor"] = compressor("identity")
    pooled = jaxfl.algorithm(name, **parts)
    body = Each(*pooled.body)
    assert pooled.body.pooled
    return pooled, pooled._replace(init=body.init, round=body.round)


def numbers_of(name: str, **more: Any) -> dict[str, Any]:
    row = next(row for row in ROWS if row.name == name)
    return {**{k: v for k, v in row.numbers.items() if k != "k"}, **more}


def double(name: str) -> jaxfl.Problem:
    """The row's problem in double precision."""
    problem = next(row for row in ROWS if row.name == name).problem
    to = lambda a: a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a  # noqa: E731
    return jax.tree.map(to, problem)


def same(one: jaxfl.Run, two: jaxfl.Run) -> None:
    np.testing.assert_allclose(one.x, two.x, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(one.metrics["loss"], two.metrics["loss"], rtol=1e-9)
    assert one.totals == two.totals
    base, bases = one.state.base, two.state.bases
    assert base is not None
    assert bases is not None
    assert one.state.bases is None
    assert bases.shape == (one.problem.n, *base.shape)
    np.testing.assert_allclose(base, bases.mean(0), rtol=1e-9, atol=1e-10)


CASES = [
    *((name, 0.05, "fused", None) for name in NAMES),
    ("ldp_svrg", 0.05, "per_client", "shuffled"),
    ("soteriafl_saga", 0.05, "per_client", "with_replacement"),  # one row twice in a batch
]


@pytest.mark.full  # compiles runs twice; transcriptions are of pooled rounds
@pytest.mark.parametrize(("name", "sigma", "noise", "draw"), CASES)
def test_runs_are_the_same(name, sigma, noise, draw, x64):
    parts: dict[str, Any] = {} if noise == "fused" else {"noise": noise}
    if draw:
        parts["sampler"] = sampler(draw)
    key, given = jax.random.key(1), numbers_of(name, sigma=sigma)
    runs = [
        jaxfl.simulate(algorithm, double(name), key, 12, eval_every=4, **given)
        for algorithm in both(name, **parts)
    ]
    same(*runs)
    assert np.linalg.norm(runs[0].x - np.asarray(runs[0].problem.x0)) > 1e-2


@pytest.mark.full  # two runs and a folder; `test_runs_are_the_same` compares without
def test_blocks_chunks_and_resuming_change_nothing(tmp_path, monkeypatch, x64):
    """Clients two by two, rounds three by three, and a file between round 5 and the rest."""
    name = "soteriafl_saga"
    pooled, each = both(name)
    key, problem, given = jax.random.key(1), double(name), numbers_of(name)
    whole = jaxfl.simulate(each, problem, key, 12, eval_every=4, **given)
    monkeypatch.setattr(Federated, "block_sizes", lambda self, problem, hp: (2, 2))
    given |= {"eval_every": 4, "out": tmp_path / "run"}
    monkeypatch.setattr(compute, "rounds_of_call", lambda work: 3)
    forget()
    jaxfl.simulate(pooled, problem, key, 5, **given)
    run = jaxfl.simulate(pooled, problem, key, 12, extend=True, **given)
    same(run, whole)


@pytest.mark.optimized
def test_no_array_of_all_clients_vectors():
    """20,000 clients of 20,000 coordinates, compiled: a block of rows, where such an array is 1.6 GB."""
    n, d = 20_000, 20_000

    def make(source: object, i: jax.Array, j: jax.Array) -> Any:
        return jnp.zeros(d).at[(97 * i + j) % d].set(1.0), jnp.int32(0)

    data = jaxfl.data.generated(make, n, 4, classes=2)
    problem = jaxfl.Problem(jaxfl.models.logistic(d), data, np.zeros(d, np.float32))
    uniform = jaxfl.parts.sampling.participation("uniform")
    for parts, least, most in (({}, 0, 0.1), ({"participation": uniform}, 0.99, np.inf)):
        algorithm = jaxfl.algorithm("ldp_svrg", sampler=sampler("with_replacement"), **parts)
        given = {"batch": 1, "sigma": 0.1, "lr": 0.1, "refresh": 0.5, "clip": 1.0}
        plan = planned(algorithm, problem, 4, **given, **({"cohort": 4} if parts else {}))
        program = jax.jit(algorithm.init).lower(plan.key, problem, plan.hp).compile()
        memory = program.memory_analysis()
        taken = memory.temp_size_in_bytes + memory.output_size_in_bytes
        assert least < taken / (4 * n * d) < most
