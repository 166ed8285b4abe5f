"""What a run remembers is known before it begins, and refused where it is too much."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import ROWS, Row

import jaxfl
from jaxfl import memory

PARTS = {
    "compressor": jaxfl.compressors.compressor,
    "participation": jaxfl.sampling.participation,
}


def numbers(algorithm: jaxfl.Algorithm, problem: jaxfl.Problem, given: dict[str, float]) -> object:
    facts = jaxfl.hyper.facts_of(problem, 8)
    values = jaxfl.hyper.resolve(algorithm, given, facts).values
    return jaxfl.hyper.build(algorithm, values, facts, jnp.float32)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bytes_are_those_of_the_state(row: Row) -> None:
    problem, algorithm = row.problem, jaxfl.algorithm(row.name)
    hp = numbers(algorithm, problem, row.numbers)
    state, _ = algorithm.init(jax.random.key(0), problem, hp)
    found = memory.remembered(algorithm, problem, hp)
    assert sum(found.values()) == sum(a.nbytes for a in jax.tree.leaves(state))


@pytest.mark.parametrize("name", ["soteriafl_sgd", "soteriafl_saga", "ldp_svrg"])
def test_what_cannot_fit_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 clients with a million coordinates each: nothing of that size may be allocated."""
    monkeypatch.setattr(memory, "free", lambda device: 8 * 2**30)
    n, d = 20_000, 1_000_000

    def make(source: object, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(d) + i, jnp.int32(0)

    data = jaxfl.data.generated(make, n, 1, classes=2)
    problem = jaxfl.make_problem(jaxfl.models.logistic(d), data, np.zeros(d))
    partial = jaxfl.sampling.participation(
        "uniform"
    )  # else the mean of what they remember is enough
    algorithm = jaxfl.algorithm(name, participation=partial)
    words = rf"{name} would remember (74.5|149.0) GiB .* [48],000,00[04] bytes for each of 20,000 clients"
    with pytest.raises(jaxfl.InputError, match=words):
        jaxfl.simulate(algorithm, problem, jax.random.key(0), 2, batch=1, sigma=0.1, lr=0.1)


@pytest.mark.parametrize(
    ("name", "given", "sizes"),
    [
        ("ldp_svrg", {}, "d"),
        ("soteriafl_svrg", {"k": 4}, "n d"),
        ("soteriafl_svrg", {"compressor": "identity"}, "d"),
        ("soteriafl_saga", {"compressor": "identity"}, "d"),
        ("ldp_svrg", {"participation": "uniform"}, "n d"),
        ("mu2_untrusted", {}, "d"),
        ("isrl_svrg", {}, "d"),
    ],
)
def test_where_the_mean_is_enough_it_is_all(name: str, given: dict[str, Any], sizes: str) -> None:
    """What is added to estimates takes n d numbers only where messages, or cohorts, ask for it."""
    row = next(row for row in ROWS if row.name == name)
    problem, parts = row.problem, {k: PARTS[k](v) for k, v in given.items() if k in PARTS}
    algorithm = jaxfl.algorithm(name, **parts)
    number = {k: v for k, v in (row.numbers | given).items() if k not in parts}
    if "compressor" in parts:
        del number["k"]
    hp = numbers(algorithm, problem, number)
    found, n, d = memory.remembered(algorithm, problem, hp), problem.n, problem.model.dim
    assert (found["base"], found["bases"]) == ((4 * d, 0) if sizes == "d" else (0, 4 * n * d))
    table = 4 * problem.n * problem.m_max * problem.model.kernel.width
    assert found["local"] == (table if "saga" in name else 0)


def test_what_is_free_is_looked_up() -> None:
    (device, *_) = jax.devices()
    with open("/proc/meminfo", encoding="ascii") as file:
        total = int(file.readline().split()[1]) * 1024
    assert 0 < memory.free(device) < total
