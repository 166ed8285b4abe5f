"""What clients remember in half the bits: what is claimed of it stays true."""

from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import ROWS, a_network, a_problem
from told import mistakes, refused

import jaxfl
from jaxfl.audit.checks import sensitivity
from jaxfl.core.types import Problem
from jaxfl.engine import memory
from jaxfl.engine.results import config
from jaxfl.parts import storage
from jaxfl.parts.aggregations import aggregation
from jaxfl.parts.compressors import compressor
from jaxfl.parts.sampling import participation, sampler

HALF = ("bfloat16", "float16")
# What one of them shows the other shows too, but for its range.
FEW = ["bfloat16", pytest.param("float16", marks=pytest.mark.full)]
NUMBERS: dict[str, Any] = {"lr": 0.1, "clip": 1.0, "sigma": 0.1, "k": 4, "batch": 4}


def numbers_of(name: str, **more: Any) -> dict[str, Any]:
    row = next(row for row in ROWS if row.name == name)
    return {**row.numbers, **more}


@pytest.mark.optimized
@pytest.mark.parametrize("kind", HALF)
def test_rounding_is_to_the_nearest(kind: str) -> None:
    """Ties to even, subnormal numbers too; the largest number for what lies beyond it."""
    rng = np.random.default_rng(0)
    v = (rng.normal(size=4000) * 10.0 ** rng.uniform(-9, 4.5, 4000)).astype(np.float32)
    ties = np.float32(1) + np.arange(64, dtype=np.float32) * np.float32(
        2**-9 if kind[0] == "b" else 2**-12
    )
    v = np.concatenate([v, ties, np.float32([0.0, 6e-8, 2.9e-8, 3.0e-8, 5.99e-5])])
    pair = jax.jit(lambda v: (storage.rounded(v, kind), storage.packed(v, kind)))
    near, kept = pair(v)
    expected = jnp.asarray(v).astype(kind)
    np.testing.assert_array_equal(near, expected.astype(jnp.float32))
    np.testing.assert_array_equal(np.asarray(kept, np.float32), near)
    assert kept.dtype == kind
    most = float(jnp.finfo(kind).max)
    far = np.asarray(pair(np.float32([3.4e38, -3.4e38, np.inf]))[1], np.float32)
    np.testing.assert_array_equal(far, [most, -most, most])
    assert np.isnan(np.asarray(pair(np.float32([np.nan]))[1], np.float32)).all()


def test_counts_are_left_alone() -> None:
    tree = {"turn": jnp.arange(3), "s": jnp.ones(3)}
    kept = storage.packed(tree, "bfloat16")
    assert kept["turn"].dtype == jnp.int32
    assert storage.unpacked(kept, jnp.float32)["s"].dtype == jnp.float32
    assert storage.packed(tree, "exact") is tree


@pytest.mark.optimized
@pytest.mark.parametrize("kind", FEW)
def test_the_servers_shift_follows_the_rounded_ones(kind: str) -> None:
    """With 3 of 5 in each of 200 rounds."""
    algorithm = jaxfl.algorithm(
        "soteriafl_sgd", participation=participation("uniform"), storage=kind
    )
    given = numbers_of("soteriafl_sgd", sigma=0.1, cohort=3)
    run = jaxfl.simulate(algorithm, a_problem(), jax.random.key(0), 200, eval_every=0, **given)
    s, s_i = np.asarray(run.state.link, float), np.asarray(run.state.links).astype(float)
    assert run.state.links.dtype == kind
    assert np.abs(s_i).max() > 0.1
    assert np.abs(s - s_i.mean(0)).max() < 1e-5 * np.abs(s_i).max()


@pytest.mark.once
def test_shifts_that_are_saturated_still_agree() -> None:
    """float16 ends at 65,504: what is stored is that, and the server knows it."""
    algorithm = jaxfl.algorithm("soteriafl_sgd", storage="float16")
    given = {"lr": 1e-9, "clip": 1.0, "sigma": 1e6, "k": 8, "batch": 4, "shift": 1.0}
    run = jaxfl.simulate(algorithm, a_problem(), jax.random.key(0), 5, **given)
    s_i = np.asarray(run.state.links).astype(float)
    assert np.abs(s_i).max() == 65504
    np.testing.assert_allclose(run.state.link, s_i.mean(0), rtol=1e-5, atol=0.5)


def read(run: jaxfl.Run) -> Any:
    """c_ij as a round uses them, (n, m, d), zero beyond a client's records."""
    problem, kernel = run.problem, run.problem.model.kernel
    G, eye = jnp.float32(run.values["clip"]), jnp.eye(problem.m_max, dtype=jnp.float32)

    def client(F: Any, batch: Any) -> jax.Array:
        F = storage.recalled(kernel, G, storage.unpacked(F, jnp.float32), batch)
        return jax.vmap(lambda w: kernel.contract(w, F, batch))(eye)

    rows = jax.jit(jax.vmap(client))(run.state.local, problem.train)
    live = jnp.arange(problem.m_max)[None] < problem.count[:, None]
    return np.asarray(jnp.where(live[..., None], rows, 0), float)


def table_run(
    problem: Problem, kind: str, draw: str = "poisson", T: int = 30, **parts: Any
) -> jaxfl.Run:
    algorithm = jaxfl.algorithm("soteriafl_saga", sampler=sampler(draw), storage=kind, **parts)
    given = {"lr": 0.2, "clip": 0.5, "sigma": 0.0, "k": 6, "batch": 4}
    if parts:
        del given["k"]
    return jaxfl.simulate(algorithm, problem, jax.random.key(0), T, eval_every=0, **given)


TWICE = {"draw": "with_replacement", "T": 10}  # a row is drawn twice
WHOLE = {"compressor": compressor("identity")}  # no more than the mean is kept


@pytest.mark.parametrize(
    ("problem", "kind", "how"),
    [
        pytest.param(a_problem(), "bfloat16", {}, marks=pytest.mark.optimized),
        (a_problem(), "bfloat16", TWICE),
        (a_problem(), "bfloat16", WHOLE),
        pytest.param(a_problem(), "float16", {}, marks=pytest.mark.full),
        pytest.param(a_network(), "bfloat16", {}, marks=pytest.mark.full),  # long to compile
    ],
    ids=["linear", "twice", "whole", "float16", "dense"],
)
def test_h_is_the_mean_of_the_rounded_rows(problem: Problem, kind: str, how: Any) -> None:
    run = table_run(problem, kind, **how)
    rows, state = read(run), run.state
    means = rows.sum(1) / np.asarray(problem.count)[:, None]
    h = state.base if how is WHOLE else state.bases
    means = means.mean(0) if how is WHOLE else means
    assert np.abs(means - np.asarray(h)).max() < 3e-6 * np.abs(rows).max()
    held = jax.tree.leaves((state.local, state.links))
    assert all(a.dtype == ("uint16" if kind == "bfloat16" else kind) for a in held)  # or their bits
    assert h.dtype == jnp.float32


@pytest.mark.once
def test_rows_that_rounding_lengthened_are_clipped_again() -> None:
    """Of rows with norm G, rounding makes many longer; none is used that is."""
    problem, G = a_network(), jnp.float32(0.05)
    kernel, batch = problem.model.kernel, jax.tree.map(lambda a: a[0], problem.train)

    @jax.jit
    def norms(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        F = kernel.factors(x, batch)
        F = kernel.scale(G / jnp.sqrt(kernel.inner(F, F, batch)), F)
        F = storage.rounded(F, "bfloat16")
        kept = storage.recalled(kernel, G, F, batch)
        return kernel.inner(F, F, batch), kernel.inner(kept, kept, batch)

    long, short = norms(jax.random.normal(jax.random.key(0), (problem.model.dim,)))
    assert np.sqrt(long).max() > G * 1.001
    assert np.sqrt(short).max() < G * (1 + 1e-6)


@pytest.mark.once
@pytest.mark.parametrize("kind", FEW)
def test_messages_move_by_no_more_than_is_declared(kind: str) -> None:
    """G = 0.7015 is no number of theirs: the nearest are longer, 0.703125 in bfloat16."""
    assert float(storage.rounded(jnp.float32(0.7015), kind)) > 0.7016
    algorithm, key = jaxfl.algorithm("soteriafl_saga", storage=kind), jax.random.key(0)
    found = sensitivity(algorithm, rounds=12, key=key, m=6, runs=128, clip=0.7015, batch=2)
    assert 0.999 < found.ratio < 1 + 1e-5


@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("name", ["soteriafl_saga", "ef_sgd"])
def test_runs_come_out_nearly_the_same(name: str, kind: str, key: jax.Array) -> None:
    """The same draws and counts; a loss that differs by less than the numbers' precision."""
    exact, half = (
        jaxfl.simulate(jaxfl.algorithm(name, storage=s), a_problem(), key, 60, **numbers_of(name))
        for s in ("exact", kind)
    )
    assert exact.totals == half.totals
    assert (exact.x != half.x).any()
    np.testing.assert_allclose(half.metrics["loss"], exact.metrics["loss"], rtol=2**-9)
    assert half.settings["parts"]["storage"] == kind
    assert "storage" not in exact.settings["parts"]
    about = config(half.dataset())
    assert about["settings"]["parts"]["storage"] == kind


@pytest.mark.once
@pytest.mark.parametrize("kind", FEW)
def test_a_run_goes_on_as_it_was(kind: str, tmp_path: Path) -> None:
    algorithm = jaxfl.algorithm("soteriafl_saga", storage=kind)
    problem, key, path = a_problem(), jax.random.key(0), tmp_path / "run"
    given = {"eval_every": 4, **numbers_of("soteriafl_saga")}
    whole = jaxfl.simulate(algorithm, problem, key, 12, **given)
    jaxfl.simulate(algorithm, problem, key, 6, out=path, **given)
    again = jaxfl.simulate(algorithm, problem, key, 12, out=path, extend=True, **given)
    np.testing.assert_array_equal(whole.x, again.x)
    chex.assert_trees_all_equal(whole.state, again.state, strict=True)
    np.testing.assert_array_equal(again.extend(15).state.t, 15)
    for other in ("exact", *(name for name in HALF if name != kind)):
        changed = jaxfl.algorithm("soteriafl_saga", storage=other)
        for how in ("resume", "extend"):
            again = lambda a=changed, h=how: jaxfl.simulate(  # noqa: E731
                a, problem, key, 12, out=path, **{h: True}, **given
            )
            refused(again, f"its storage is .{kind}., this one's .{other}.")


@pytest.mark.once
def test_a_sweep_goes_on_with_the_storage_that_it_began_with(tmp_path: Path) -> None:
    options = {**numbers_of("soteriafl_saga"), "rounds": 6, "seeds": 2, "eval_every": 3}
    options |= {"out": tmp_path / "sweep", "lr": [0.1]}
    half, other = (jaxfl.algorithm("soteriafl_saga", storage=kind) for kind in HALF)
    found = jaxfl.sweep(half, a_problem(), **options)
    assert config(found)["settings"]["parts"]["storage"] == "bfloat16"
    again = lambda: jaxfl.sweep(other, a_problem(), resume=True, **options)  # noqa: E731
    refused(again, r'storage is "bfloat16", this one\'s "float16"')


def test_double_precision(x64: None) -> None:
    to = lambda a: a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a  # noqa: E731
    problem = jax.tree.map(to, a_problem())
    algorithm = jaxfl.algorithm("soteriafl_saga", storage="bfloat16")
    run = jaxfl.simulate(algorithm, problem, jax.random.key(0), 20, **numbers_of("soteriafl_saga"))
    s_i = np.asarray(run.state.links).astype(float)
    assert run.state.link.dtype == jnp.float64
    np.testing.assert_allclose(run.state.link, s_i.mean(0), rtol=1e-12, atol=1e-13)


@pytest.mark.once
@pytest.mark.parametrize("name", ["soteriafl_sgd", "soteriafl_svrg", "soteriafl_saga", "ef_sgd"])
def test_bytes_are_predicted(name: str) -> None:
    """Half of what channels and tables take; what is added to estimates stays as it is."""
    problem, found = a_problem(), {}
    for kind in ("exact", "bfloat16"):
        plan = planned(jaxfl.algorithm(name, storage=kind), problem, 8, **numbers_of(name))
        found[kind] = memory.remembered(plan.algorithm, problem, plan.hp)
        assert sum(found[kind].values()) == sum(a.nbytes for a in jax.tree.leaves(plan.start()))
    for part, size in found["exact"].items():
        assert found["bfloat16"][part] == (size // 2 if part in ("links", "local") else size)
    assert found["exact"]["links"] == 4 * problem.n * problem.model.dim


@pytest.mark.optimized
@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("part", ["uniform", pytest.param("everyone", marks=pytest.mark.full)])
def test_a_round_makes_no_copy_of_what_clients_remember(kind: str, part: str) -> None:
    """Nor one in more bits: what it works in is the same with 20 times as many clients."""

    def make(s: jax.Array, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        v = jnp.sin((jnp.arange(100) + 1.0) * (i + j) * s)
        return v, (v[0] > 0).astype(jnp.int32)

    algorithm = jaxfl.algorithm("soteriafl_sgd", storage=kind, participation=participation(part))
    taken = []
    for n in (3_000, 60_000):
        data = jaxfl.data.generated(make, n, 2, source=jnp.float32(0.1), classes=2)
        problem = jaxfl.make_problem(jaxfl.models.logistic(100), data)
        given = {**NUMBERS, "batch": 1} | ({"cohort": 100} if part == "uniform" else {})
        program = planned(algorithm, problem, 3, **given).round(donate_argnums=1)
        taken.append(program.memory_analysis().temp_size_in_bytes)
    assert taken[1] - taken[0] < 60_000 * 2 * 100 / 4  # a quarter of what is remembered


@pytest.mark.once
def test_a_run_that_is_too_large_is_told_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    n, d = 20_000, 1_000_000

    def make(source: object, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(d) + i, jnp.int32(0)

    data = jaxfl.data.generated(make, n, 1, classes=2)
    problem = jaxfl.make_problem(jaxfl.models.logistic(d), data, np.zeros(d))
    for there, words in ((50, r"take storage='bfloat16' \(37.3 GiB\), fewer"), (30, "take fewer")):
        monkeypatch.setattr(memory, "free", lambda device, there=there: there * 2**30)
        given = {"batch": 1, "sigma": 0.1, "lr": 0.1}
        run = lambda: jaxfl.simulate("soteriafl_sgd", problem, jax.random.key(0), 2, **given)  # noqa: E731
        refused(run, words)


def half(name: str, storage: str = "float16", **parts: Any) -> jaxfl.Algorithm:
    return jaxfl.algorithm(name, storage=storage, **parts)


@pytest.mark.once
@mistakes(
    (lambda: half("soteriafl_sgd", "bfloat"), "bfloat16"),
    (lambda: half("ldp_sgd"), "keep nothing of a client"),
    (lambda: half("sdm_dsgd"), "keep nothing of a client"),
    (lambda: half("soteriafl_sgd", compressor=compressor("identity")), "keep nothing"),
    (lambda: half("soteriafl_sgd", aggregation=aggregation("secure_sum")), "acts on sums alone"),
)
def test_what_cannot_be_is_refused(call: Any, words: str) -> None:
    refused(call, words)
