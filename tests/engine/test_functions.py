"""The state and the privacy of loops of the user's own, in one process and in two."""

from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np
import pytest
from clusters import HOST, port
from rows import a_problem
from scripts import end, start
from told import refused

import jaxfl

T, HALF = 6, 3
GIVEN = {"lr": 0.1, "clip": 1.0, "eps": 4.0, "delta": 1e-3, "batch": 4}


def words(run: Any) -> Any:
    return jax.random.key_data(run.key), run.state


def rounds(f: Any, run: Any, count: int) -> Any:
    for _ in range(count):
        run, _ = f.round(run)
    return run


def test_a_state_is_saved_and_loaded(tmp_path: Path) -> None:
    """Every bit, in half precision too; what is no such state is refused."""
    given = {**GIVEN, "storage": "bfloat16", "k": 3, "sigma": 0.5}
    del given["eps"]
    f = jaxfl.functions("soteriafl_saga", a_problem(), T, **given)
    path = tmp_path / "state.npz"
    half = rounds(f, f.init(jax.random.key(3), 2), HALF)
    f.save(half, path)
    again = f.load(path, f.init(jax.random.key(0)))
    chex.assert_trees_all_equal(words(again), words(half), strict=True)
    chex.assert_trees_all_equal(words(rounds(f, again, 2)), words(rounds(f, half, 2)), strict=True)
    run = jaxfl.simulate("soteriafl_saga", a_problem(), jax.random.key(3), HALF, seed=2, **given)
    np.testing.assert_array_equal(run.x, f.output(half))
    for other in (
        jaxfl.functions("soteriafl_saga", a_problem(), T, **{**given, "storage": "exact"}),
        jaxfl.functions("soteriafl_saga", a_problem(n=6), T, **given),
        jaxfl.functions("ldp_sgd", a_problem(), T, **GIVEN),
    ):
        refused(lambda o=other: o.load(path, o.init(jax.random.key(0))), "holds another state")
        for use in (other.round, other.output):
            refused(lambda use=use: use(half), "is not that of a run of .* with f.init")
    path.write_bytes(path.read_bytes()[:-9])
    refused(lambda: f.load(path, half), "is damaged, or not a state of a run")
    refused(lambda: f.load(tmp_path / "none.npz", half), "does not exist")
    refused(lambda: f.load(path, half.state), "is not the state of a run")


@pytest.mark.parametrize("name", ["soteriafl_sgd", "mu2_untrusted", "fedavg", "dp_fedavg"])
def test_privacy_is_that_of_a_run(name: str) -> None:
    """Of all planned rounds and of fewer, with the words of its report."""
    given: Any = {"k": 3} if name == "soteriafl_sgd" else {}
    problem = a_problem(m=24)
    if name == "fedavg":
        given = {"eps": None, "delta": None}
    if name == "dp_fedavg":
        given = {"clip": None, "update_clip": 1.0}
    if name == "mu2_untrusted":
        given = {"smoothness": 4.0, "diameter": 4.0, "batch": 1}
    given = {n: v for n, v in {**GIVEN, **given}.items() if v is not None}
    f = jaxfl.functions(name, problem, T, **given)
    run = jaxfl.simulate(name, problem, rounds=T, **given)
    for delta in (None, 1e-4):  # functions have no key, of which a run says that a seed is guessed
        mine, its = f.privacy(T, delta), run.privacy(delta)
        assert mine == its._replace(assumes=its.assumes.partition("; here")[0])
    assert f.privacy(2).proven == run.spent([2])[0]
    assert name == "fedavg" or f.privacy(2 * T).proven > 1.2 * run.privacy().proven
    refused(lambda: f.privacy(0), "rounds = 0")


def test_what_a_secure_sum_clamps_is_not_assumed() -> None:
    """Unless the user says that it clamped nothing, nothing more is proven than of a plain sum."""
    given = {"lr": 0.1, "clip": 1.0, "sigma": 5.0, "batch": 4, "delta": 1e-3}
    f, plain = (
        jaxfl.functions("ldp_sgd", a_problem(), T, aggregation=kind, **given)
        for kind in ("secure_sum", "plain_sum")
    )
    run = jaxfl.simulate("ldp_sgd", a_problem(), rounds=T, aggregation="secure_sum", **given)
    assert run.totals["clamped"] == 0
    assert f.privacy(T, clamped=0).proven == run.privacy().proven < plain.privacy(T).proven
    assert f.privacy(T).proven == f.privacy(T, clamped=1).proven == plain.privacy(T).proven


PROCESS = """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    here = "{host}:{port}"
    jax.distributed.initialize(here, 2, {index}, coordinator_bind_address=here)
    from jax.experimental.multihost_utils import sync_global_devices
    from test_functions import *
    f, path = jaxfl.functions("soteriafl_sgd", split(a_problem(n=8)), T, k=3, **GIVEN), {path!r}
    step = jax.jit(lambda f, run: f.round(run)[0])
    half = f.init(jax.random.key(3), 2)
    for _ in range(HALF):
        half = step(f, half)
    memory = jax.tree.leaves(half.state.links)
    assert memory and all(len(a.sharding.device_set) == 4 for a in memory)
    f.save(half, path)
    sync_global_devices("saved")
    again = f.load(path, f.init(jax.random.key(0)))
    for one, other in zip(*(jax.tree.leaves(words(run)) for run in (half, again))):
        for a, b in zip(one.addressable_shards, other.addressable_shards):
            np.testing.assert_array_equal(a.data, b.data)
    for _ in range(T - HALF):
        again = step(f, again)
    x = np.asarray(f.output(again).addressable_data(0))
    np.save(f"{{path}}-{index}", np.append(x, f.privacy(T).proven))
"""


@pytest.mark.full  # two processes that import JAX and compile
def test_two_processes(tmp_path: Path) -> None:
    """Their model and their eps are those of one process."""
    where, path = port(), str(tmp_path / "state.npz")
    processes = [
        start(
            PROCESS.format(host=HOST, port=where, index=i, path=path),
            XLA_FLAGS="--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0",
        )
        for i in range(2)
    ]
    for process in processes:
        end(process)
    run = jaxfl.simulate(
        "soteriafl_sgd", a_problem(n=8), jax.random.key(3), T, seed=2, k=3, **GIVEN
    )
    for i in range(2):
        *x, eps = np.load(f"{path}-{i}.npy")
        np.testing.assert_allclose(x, run.x, rtol=1e-5, atol=1e-6)
        assert eps == run.privacy().proven
