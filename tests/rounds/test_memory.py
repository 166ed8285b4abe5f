"""What a run remembers is known before it begins, and refused where it is too much."""

import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import ROWS, Row
from told import mistakes, refused

import jaxfl
from jaxfl.core.types import Info
from jaxfl.data.samples import DRAWING
from jaxfl.engine import compute, memory
from jaxfl.engine.log import Log
from jaxfl.problems.metrics import evaluate_metrics

PARTS = {
    "compressor": jaxfl.compressors.compressor,
    "participation": jaxfl.sampling.participation,
}


def wide(n: int, m: int, d: int = 1_000_000, drawn: bool = False) -> jaxfl.Problem:
    """Clients whose samples are made where they are read, each of a million features."""

    def make(key: jax.Array, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = jax.random.fold_in(jax.random.fold_in(key, i), j)
        return jax.random.normal(key, (d,)) if drawn else jnp.zeros(d) + i, jnp.int32(0)

    data = jaxfl.data.generated(make, n, m, source=jax.random.key(0), classes=2)
    return jaxfl.make_problem(jaxfl.models.logistic(d), data, np.zeros(d))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bytes_are_those_of_the_state(row: Row) -> None:
    plan = planned(row.name, row.problem, 8, **row.numbers)
    found = memory.remembered(plan.algorithm, plan.problem, plan.hp)
    assert sum(found.values()) == sum(a.nbytes for a in jax.tree.leaves(plan.start()))


@pytest.mark.parametrize("name", ["soteriafl_sgd", "soteriafl_saga", "ldp_svrg"])
def test_what_cannot_fit_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 clients with a million coordinates each: nothing of that size may be allocated."""
    monkeypatch.setattr(memory, "free", lambda device: 8 * 2**30)
    problem = wide(20_000, 1)
    # with all clients the mean of what they remember is enough
    partial = jaxfl.sampling.participation("uniform")
    algorithm = jaxfl.algorithm(name, participation=partial)
    words = rf"{name} would remember (74.5|149.0) GiB .* [48],000,00[04] bytes for each of 20,000 clients"
    with pytest.raises(jaxfl.InputError, match=words):
        jaxfl.simulate(algorithm, problem, jax.random.key(0), 2, batch=1, sigma=0.1, lr=0.1)


@pytest.mark.parametrize("name", ["ldp_svrg", "ldp_gd", "private_local_sgd"])
def test_a_block_of_large_samples_is_bounded(name: str) -> None:
    """2,000 samples of a million features at once were 8 GB, and four times that with drawing them."""
    problem = wide(20_000, 1, drawn=True)
    given = {"sigma": 0.1, "lr": 0.1} | ({} if name == "ldp_gd" else {"batch": 1})
    plan = planned(name, problem, 8, **given)
    rows, guess = memory.made(plan.algorithm, problem, plan.hp)
    assert (rows, guess) == (1, DRAWING * 4_000_004)
    assert plan.round().memory_analysis().temp_size_in_bytes < 2**28
    program = jax.jit(evaluate_metrics).lower(problem, problem.x0).compile()
    assert program.memory_analysis().temp_size_in_bytes < 2**28


SMALL = next(row for row in ROWS if row.name == "fedgd").problem


def large(key: Any, i: Any, j: Any) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros(10**10), jnp.int32(0)


def swept(axes: dict[str, Any], rounds: int = 2, **more: Any) -> Any:
    return jaxfl.sweep("fedgd", SMALL, rounds=rounds, **axes, **more)


def simulated(rounds: int, **more: Any) -> Any:
    return jaxfl.simulate("fedgd", SMALL, jax.random.key(0), rounds, lr=0.1, **more)


@pytest.mark.once
@mistakes(
    (lambda: jaxfl.models.softmax_regression(10**6, 10**4), "10,000,010,000 parameters .* 111.8"),
    (lambda: jaxfl.data.generated(large, 10**9, 3), "1,000,000,000 clients would take 29.8 GiB"),
    (
        lambda: jaxfl.make_problem(
            jaxfl.models.logistic(5), jaxfl.data.generated(large, 3, 3, source=())
        ),
        "3 samples of 10,000,000,001 numbers would take",
    ),
    (lambda: jaxfl.data.load("synthetic", d=10**9), "100 samples of 1,000,000,000 would take"),
    (lambda: jaxfl.data.iid(2**31 - 1, 3), "partition of 2,147,483,647 rows"),
    (lambda: swept({"lr": [0.1]}, seeds=2**31), "seeds = 2147483648 are more than 100,000"),
    (lambda: swept({"lr": [0.1]}, seeds=2**70), "are more than 100,000"),
    (lambda: swept({"lr": np.linspace(0.1, 1, 10**6)}), "axis lr has more than 100,000 values"),
    (lambda: swept({"lr": itertools.count()}), "axis lr has more than 100,000 values"),
    (
        lambda: swept({"lr": np.linspace(0.1, 1, 10**3), "gap": np.linspace(1, 2, 10**3)}),
        "The grid has 1,000,000 cells",
    ),
    (lambda: swept({"lr": [0.1]}, 2 * 10**9, eval_every=1), "results of this sweep would take"),
    (
        lambda: swept({"lr": np.linspace(0.1, 1, 40)}, 20_000, seeds=99, eval_every=1),
        "results of this sweep would take",
    ),
    (lambda: simulated(2 * 10**9, eval_every=1), "metrics of 2,000,000,000 evaluations would take"),
)
def test_what_is_too_large_is_refused_at_once(
    call: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each went on without end, or ended the process."""
    monkeypatch.setattr("jaxfl.core.memory.free", lambda device: 16 * 2**30)
    began = time.perf_counter()
    refused(call, words)
    assert time.perf_counter() - began < 10


@pytest.mark.once
def test_an_evaluation_keeps_no_buffer_of_the_device() -> None:
    """A view of one kept it, and counts of 1,024 rounds waited: 41 KiB for each evaluation."""
    run = simulated(500, eval_every=1)
    kept = [a for entry in run.log.metrics for a in entry.values()]
    assert all((a if a.base is None else a.base).flags.owndata for a in kept)
    log = Log()
    for t in range(500):
        log.add(t, Info(*[jnp.array([0, 1024], jnp.int32)] * 4), {"loss": jnp.float32(t)})
    held = [
        item for item in log.content.pending if isinstance(jax.tree.leaves(item)[-1], jax.Array)
    ]
    assert len(held) <= 64
    assert log.total["clients"] == 500 * 1024


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "given", "rows"),
    [
        ("ldp_gd", {}, "4,000"),
        ("ldp_sgd", {"batch": 2000}, r"2,\d\d\d"),
        ("soteriafl_saga", {"batch": 4}, "4,000"),
        ("dp_dsgd", {"batch": 1000}, r"3,\d\d\d"),
    ],
)
def test_samples_that_no_block_can_hold_are_refused(
    name: str, given: dict[str, int], rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client's batch of them is the least that a round makes at once."""
    monkeypatch.setattr(memory, "free", lambda device: 8 * 2**30)
    words = (
        rf"^A round of {name} generates {rows} samples at once, which takes about [345]\d.\d GiB"
    )
    with pytest.raises(jaxfl.InputError, match=words):
        jaxfl.simulate(name, wide(3, 4000), jax.random.key(0), 2, sigma=0.1, lr=0.1, **given)


@pytest.mark.full
@pytest.mark.once
def test_what_is_made_at_once_is_no_more_than_said() -> None:
    """The compiler's own analysis of a round, beside what is reckoned from shapes."""
    problem = wide(3, 400, 20_000, drawn=True)
    for name, given in (("ldp_gd", {}), ("ldp_sgd", {"batch": 100}), ("dp_dsgd", {"batch": 100})):
        plan = planned(name, problem, 8, **given, sigma=0.1, lr=0.1)
        found = plan.round().memory_analysis().temp_size_in_bytes
        _, guess = memory.made(plan.algorithm, problem, plan.hp)
        assert 0.5 * guess < found < 1.3 * guess, name


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
    hp = planned(algorithm, problem, 8, **number).hp
    found, n, d = memory.remembered(algorithm, problem, hp), problem.n, problem.model.dim
    assert (found["base"], found["bases"]) == ((4 * d, 0) if sizes == "d" else (0, 4 * n * d))
    table = 4 * problem.n * problem.m_max * problem.model.kernel.width
    assert found["local"] == (table if "saga" in name else 0)


@pytest.mark.parametrize("room", ["state", "all"])
def test_what_a_round_works_in_is_counted(
    room: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside the state, before anything is allocated; and nothing is compiled twice to know it."""
    d, n = 200, 500 if room == "state" else 501  # another program
    samples = np.ones((n, 1, d), np.float32), np.zeros((n, 1), np.int32)
    data = jaxfl.data.from_clients(samples, classes=2, stacked=True)
    problem, key = jaxfl.make_problem(jaxfl.models.logistic(d), data), jax.random.key(0)
    algorithm = jaxfl.algorithm("soteriafl_svrg")
    given = {"batch": 1, "sigma": 0.1, "lr": 0.1, "k": 10}
    hp = planned(algorithm, problem, 8, **given).hp
    state = sum(memory.remembered(algorithm, problem, hp).values())
    free = lambda _: state + (1 << 16 if room == "state" else 1 << 30)  # noqa: E731
    monkeypatch.setattr(compute, "free", free)
    if room == "state":
        monkeypatch.setattr(compute, "blank", None)  # nothing is allocated
        words = r"^One run of soteriafl_svrg on data needs .* bytes and .* are available"
        refused(lambda: jaxfl.simulate(algorithm, problem, key, 2, **given), words)
        return
    with jax.log_compiles(), caplog.at_level("WARNING"):
        jaxfl.simulate(algorithm, problem, key, 2, **given)
    assert caplog.text.count("Finished XLA compilation of jit(alone)") == 1
