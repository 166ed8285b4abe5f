"""What clients remember in half the bits: what is claimed of it stays true."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import ROWS, a_network, a_problem
from told import refusals, refused

import jaxfl
from jaxfl.audits.checks import sensitivity
from jaxfl.core.types import Problem
from jaxfl.engine import memory
from jaxfl.engine.results import config
from jaxfl.parts import storage
from jaxfl.parts.aggregations import aggregation
from jaxfl.parts.compressors import compressor
from jaxfl.parts.sampling import participation, sampler

KINDS = pytest.mark.parametrize("kind", ["bfloat16", "float16"])
NUMBERS = {row.name: row.numbers for row in ROWS}
KEY = jax.random.key(0)


@pytest.mark.optimized
@KINDS
def test_rounding_is_to_the_nearest(kind):
    """Ties to even, subnormal numbers too; the largest number for what lies beyond it.  Counts are
    left alone."""
    rng = np.random.default_rng(0)
    v = (rng.normal(size=4000) * 10.0 ** rng.uniform(-9, 4.5, 4000)).astype(np.float32)
    step = np.float32(2**-9 if kind == "bfloat16" else 2**-12)
    ties = np.float32(1) + np.arange(64, dtype=np.float32) * step
    v = np.concatenate([v, ties, np.float32([0.0, 6e-8, 2.9e-8, 3.0e-8, 5.99e-5])])
    pair = jax.jit(lambda v: (storage.rounded(v, kind), storage.packed(v, kind)))
    near, kept = pair(v)
    np.testing.assert_array_equal(near, jnp.asarray(v).astype(kind).astype(jnp.float32))
    np.testing.assert_array_equal(np.asarray(kept, np.float32), near)
    assert kept.dtype == kind
    most = float(jnp.finfo(kind).max)
    far = np.asarray(pair(np.float32([3.4e38, -3.4e38, np.inf, np.nan]))[1], np.float32)
    np.testing.assert_array_equal(far, [most, -most, most, np.nan])
    tree = {"turn": jnp.arange(3), "s": jnp.ones(3)}
    kept = storage.packed(tree, kind)
    assert kept["turn"].dtype == jnp.int32
    assert storage.unpacked(kept, jnp.float32)["s"].dtype == jnp.float32
    assert storage.packed(tree, "exact") is tree


@pytest.mark.full
@pytest.mark.optimized
@KINDS
def test_the_servers_shift_follows_the_rounded_ones(kind):
    """With 3 of 5 in each of 200 rounds; and where numbers are saturated, as float16 at 65,504."""
    who = participation("uniform")
    algorithm = jaxfl.algorithm("soteriafl_sgd", participation=who, storage=kind)
    given = {**NUMBERS["soteriafl_sgd"], "sigma": 0.1, "cohort": 3}
    run = jaxfl.simulate(algorithm, a_problem(), KEY, 200, eval_every=0, **given)
    s, s_i = np.asarray(run.state.link, float), np.asarray(run.state.links).astype(float)
    assert run.state.links.dtype == kind
    assert np.abs(s_i).max() > 0.1
    assert np.abs(s - s_i.mean(0)).max() < 1e-5 * np.abs(s_i).max()
    if kind == "float16":
        given = {"lr": 1e-9, "clip": 1.0, "sigma": 1e6, "k": 8, "batch": 4, "shift": 1.0}
        algorithm = jaxfl.algorithm("soteriafl_sgd", storage=kind)
        run = jaxfl.simulate(algorithm, a_problem(), KEY, 5, **given)
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


TWICE = {"sampler": sampler("with_replacement")}  # a row is drawn twice
WHOLE = {"compressor": compressor("identity")}  # no more than the mean is kept


@pytest.mark.full  # compiles a run; messages of SAGA are looked at below
@pytest.mark.parametrize(
    ("problem", "kind", "how"),
    [
        (a_problem(), "bfloat16", TWICE),
        (a_problem(), "bfloat16", {}),
        (a_problem(), "bfloat16", WHOLE),
        (a_problem(), "float16", {}),
        (a_network(), "bfloat16", {}),
    ],
    ids=["twice", "linear", "whole", "float16", "dense"],
)
def test_h_is_the_mean_of_the_rounded_rows(problem, kind, how):
    parts = {"sampler": sampler("poisson"), **how}
    algorithm = jaxfl.algorithm("soteriafl_saga", storage=kind, **parts)
    given = {"lr": 0.2, "clip": 0.5, "sigma": 0.0, "batch": 4}
    given |= {} if how is WHOLE else {"k": 6}
    run = jaxfl.simulate(algorithm, problem, KEY, 10 if how is TWICE else 30, eval_every=0, **given)
    rows, state = read(run), run.state
    means = rows.sum(1) / np.asarray(problem.count)[:, None]
    h = state.base if how is WHOLE else state.bases
    means = means.mean(0) if how is WHOLE else means
    assert np.abs(means - np.asarray(h)).max() < 3e-6 * np.abs(rows).max()
    held = jax.tree.leaves((state.local, state.links))
    assert all(a.dtype == ("uint16" if kind == "bfloat16" else kind) for a in held)  # or their bits
    assert h.dtype == jnp.float32


@pytest.mark.once
def test_rows_that_rounding_lengthened_are_clipped_again():
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

    long, short = norms(jax.random.normal(KEY, (problem.model.dim,)))
    assert np.sqrt(long).max() > G * 1.001
    assert np.sqrt(short).max() < G * (1 + 1e-6)


@pytest.mark.once
@KINDS
def test_messages_move_by_no_more_than_is_declared(kind):
    """G = 0.7015 is no number of theirs: the nearest are longer, 0.703125 in bfloat16."""
    assert float(storage.rounded(jnp.float32(0.7015), kind)) > 0.7016
    algorithm = jaxfl.algorithm("soteriafl_saga", storage=kind)
    found = sensitivity(algorithm, rounds=12, key=KEY, m=6, runs=128, clip=0.7015, batch=2)
    assert 0.999 < found.ratio < 1 + 1e-5


@pytest.mark.full
@pytest.mark.once
@KINDS
def test_a_run_goes_on_as_it_was(kind, tmp_path):
    """And a sweep, with the storage that it began with; no other is taken."""
    other = "exact" if kind == "float16" else "float16"
    algorithm, wrong = (jaxfl.algorithm("soteriafl_saga", storage=name) for name in (kind, other))
    problem, given = a_problem(), {**NUMBERS["soteriafl_saga"], "eval_every": 4}
    whole = jaxfl.simulate(algorithm, problem, KEY, 12, **given)
    more = {"out": tmp_path / "run", **given}
    jaxfl.simulate(algorithm, problem, KEY, 6, **more)
    again = jaxfl.simulate(algorithm, problem, KEY, 12, extend=True, **more)
    chex.assert_trees_all_equal(whole.state, again.state, strict=True)
    for rounds, how in ((12, "resume"), (20, "extend")):
        resume = lambda T=rounds, h=how: jaxfl.simulate(wrong, problem, KEY, T, **{h: True}, **more)  # noqa: E731
        refused(resume, f"storage is .{kind}. there, and")
    options: dict[str, Any] = {**given, "rounds": 6, "out": tmp_path / "sweep", "lr": [0.1]}
    found = jaxfl.sweep(algorithm, problem, **options)
    assert config(found)["settings"]["parts"]["storage"] == kind
    swept = lambda: jaxfl.sweep(wrong, problem, resume=True, **options)  # noqa: E731
    refused(swept, f'storage is "{kind}", this one')


@pytest.mark.once
@pytest.mark.parametrize("name", ["soteriafl_sgd", "soteriafl_svrg", "soteriafl_saga", "ef_sgd"])
def test_bytes_are_predicted(name):
    """Half of what channels and tables take; what is added to estimates stays as it is."""
    problem, found = a_problem(), {}
    for kind in ("exact", "bfloat16"):
        plan = planned(jaxfl.algorithm(name, storage=kind), problem, 8, **NUMBERS[name])
        found[kind] = memory.remembered(plan.algorithm, problem, plan.hp)
        assert sum(found[kind].values()) == sum(a.nbytes for a in jax.tree.leaves(plan.start()))
    for part, size in found["exact"].items():
        assert found["bfloat16"][part] == (size // 2 if part in ("links", "local") else size)
    assert found["exact"]["links"] == 4 * problem.n * problem.model.dim


def of_many(n: int, m: int, d: int) -> Problem:
    def make(s: jax.Array, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        v = jnp.sin((jnp.arange(d) + 1.0) * (i + j) * s)
        return v, (v[0] > 0).astype(jnp.int32)

    data = jaxfl.data.generated(make, n, m, source=jnp.float32(0.1), classes=2)
    return jaxfl.Problem(jaxfl.models.logistic(d), data, np.zeros(d))


@pytest.mark.full
@pytest.mark.optimized
@KINDS
@pytest.mark.parametrize("part", ["uniform", "everyone"])
def test_a_round_makes_no_copy_of_what_clients_remember(kind, part):
    """Nor one in more bits: what it works in is the same with 20 times as many clients."""
    algorithm = jaxfl.algorithm("soteriafl_sgd", storage=kind, participation=participation(part))
    given = {"lr": 0.1, "clip": 1.0, "sigma": 0.1, "k": 4, "batch": 1}
    given |= {"cohort": 100} if part == "uniform" else {}
    taken = []
    for n in (3_000, 60_000):
        program = planned(algorithm, of_many(n, 2, 100), 3, **given).round(donate_argnums=1)
        taken.append(program.memory_analysis().temp_size_in_bytes)
    assert taken[1] - taken[0] < 60_000 * 2 * 100 / 4  # a quarter of what is remembered


def half(name: str, storage: str = "float16", **parts: Any) -> Any:
    return lambda: jaxfl.algorithm(name, storage=storage, **parts)


test_what_cannot_be_is_refused = refusals(
    (half("soteriafl_sgd", "bfloat"), "bfloat16"),
    (half("ldp_sgd"), "keep nothing of a client"),
    (half("sdm_dsgd"), "keep nothing of a client"),
    (half("soteriafl_sgd", compressor=compressor("identity")), "keep nothing"),
    (half("soteriafl_sgd", aggregation=aggregation("secure_sum")), "acts on sums alone"),
)
