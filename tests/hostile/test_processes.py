"""Runs in threads, in other processes, and on meshes of devices: right, or refused in one sentence."""

import copy
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_network, a_problem
from scripts import end, start
from told import refused

import jaxfl

GIVEN = {"eps": 4.0, "lr": 0.1, "clip": 1.0, "delta": 1e-3, "batch": 4}
KEY = jax.random.key(3)


def run(problem: Any = None, seed: int = 0, **given: Any) -> Any:
    problem = a_problem() if problem is None else problem
    return jaxfl.simulate("ldp_sgd", problem, KEY, 3, seed=seed, **{**GIVEN, **given})


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda a: pickle.loads(pickle.dumps(a)),
    "cloudpickle": lambda a: cloudpickle.loads(cloudpickle.dumps(a)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.full
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("make", [a_problem, a_network])
def test_a_problem_is_copied(make: Callable[[], Any], how: str) -> None:
    """Every bit of a run; of a model from a file no constructor of jaxfl is known, so it is probed."""
    one = make()
    other = COPIES[how](one)
    np.testing.assert_array_equal(run(one).x, run(other).x)
    proven = [str(run(problem).privacy()) for problem in (one, other)]
    assert ("declared and probed" in proven[1]) == ("pickle" in how)
    assert "declared and probed" not in proven[0]


@pytest.mark.parametrize("strict", ["dtype", "rank", "numpy"])
def test_strict_settings_change_nothing(strict: str) -> None:
    settings = {
        "dtype": jax.numpy_dtype_promotion("strict"),
        "rank": jax.numpy_rank_promotion("raise"),
    }
    plain = run(seed=1)
    with settings.get(strict) or np.errstate(all="raise"):
        again = run(seed=1)
        f = jaxfl.functions("ldp_sgd", a_problem(), 3, **GIVEN)
        state, _ = f.round(f.init(KEY, 1))
        assert again.privacy() == plain.privacy()
        assert f.privacy(3) == plain.privacy()
        assert np.isfinite(f.output(state)).all()
        assert again.dataset().equals(plain.dataset())
    np.testing.assert_array_equal(plain.x, again.x)


THREADED: dict[str, Callable[[int], Any]] = {
    "runs": lambda s: run(seed=s).x,
    "sweeps": lambda s: jaxfl.sweep("ldp_sgd", a_problem(), KEY, 3, seeds=[s], keep=["x"], **GIVEN)[
        "x"
    ],
    "traced": lambda s: jax.vmap(lambda e: made(eps=e, seed=s))(jnp.array([4.0, 8.0]))[0],
}


def made(eps: Any, seed: int) -> Any:
    f = jaxfl.functions("ldp_sgd", a_problem(), 3, **{**GIVEN, "eps": eps})
    return f.output(jax.lax.scan(f.round, f.init(KEY, seed), length=3)[0])


@pytest.mark.parametrize("what", THREADED)
def test_threads_do_not_disturb_each_other(what: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(THREADED[what], range(4)))
    for seed, x in enumerate(found):
        np.testing.assert_allclose(np.squeeze(x), run(seed=seed).x, rtol=1e-5, atol=1e-6)


def test_interrupts_of_a_thread_stay_in_it() -> None:
    """A callback that raises ends its own run."""

    def bad(_: Any) -> None:
        raise KeyError("mine")

    seen: list[Any] = []

    def failing() -> None:
        try:
            run(callbacks=[bad])
        except KeyError as error:
            seen.append(error)

    thread = threading.Thread(target=failing)
    thread.start()
    x = run().x
    thread.join()
    assert len(seen) == 1
    np.testing.assert_array_equal(x, run().x)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_of_processes(method: str) -> None:
    """Those of a fork would hang, and are refused."""
    expected = jaxfl.sweep(
        "ldp_sgd", a_problem(), KEY, 3, lr=[0.1, 0.2], **{"eps": 4.0, "clip": 1.0}
    )
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        call = lambda: jaxfl.sweep(  # noqa: E731
            "ldp_sgd", a_problem(), KEY, 3, lr=[0.1, 0.2], eps=4.0, clip=1.0, executor=pool
        )
        if method == "fork":
            refused(call, "get_context")
        else:
            np.testing.assert_allclose(call()["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.parametrize("what", ["simulate", "sweep", "functions", "Problem"])
def test_a_forked_process_says_that_it_would_hang(what: str) -> None:
    calls = {
        "simulate": run,
        "sweep": lambda: THREADED["sweeps"](0),
        "functions": lambda: made(4.0, 0),
    }
    run()
    child = os.fork()
    if child == 0:
        try:
            calls.get(what, a_problem)()
        except jaxfl.InputError as error:
            os._exit(7 if "get_context('spawn')" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


MESHES = """
    import dataclasses
    from rows import a_problem
    problem, key = a_problem(n=8), jax.random.key(3)
    given = dict(eps=4.0, lr=0.1, clip=1.0, batch=4, k=3)
    one = jaxfl.simulate("soteriafl_saga", problem, key, 4, **given)
    mesh = jax.make_mesh(({count},), ("clients",))
    assert mesh.axis_types == (jax.sharding.AxisType.Explicit,)
    auto = jax.make_mesh(({count},), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("clients"))
    for context in (None, mesh, auto):
        with jax.set_mesh(context):
            train, count = jax.device_put((problem.train, problem.count), where)
            split = problem.shard(mesh, "clients")
            assert len(split.count.sharding.device_set) == {count}
            for here in (problem, dataclasses.replace(problem, train=train, count=count), split):
                run = jaxfl.simulate("soteriafl_saga", here, key, 4, **given)
                near(run.dataset(), one.dataset())
                assert run.privacy() == one.privacy()
                ds = jaxfl.sweep("soteriafl_saga", here, key, 4, seeds=[0, 1], keep=["x"], **given)
                np.testing.assert_allclose(ds["x"][0, 0], one.x, rtol=1e-5, atol=1e-6)
                f = jaxfl.functions("soteriafl_saga", here, 4, **given)
                state = f.init(key)
                for _ in range(4):
                    state, _ = jax.block_until_ready(f.round(state))
                np.testing.assert_allclose(f.output(state), one.x, rtol=1e-5, atol=1e-6)
    split = problem.shard(mesh, "clients")
    make = lambda eps: jaxfl.functions("soteriafl_saga", split, 4, **{{**given, "eps": eps}})
    end = lambda f: f.output(jax.lax.scan(f.round, f.init(key), length=4)[0])
    np.testing.assert_allclose(jax.jit(lambda eps: end(make(eps)))(4.0), one.x, rtol=1e-5, atol=1e-6)
    for words, call in {{
        "cannot be split evenly": lambda: a_problem(n=5).shard(jax.make_mesh((4,), ("a",)), "a"),
        "is no axis of the mesh": lambda: problem.shard(mesh, "cats"),
        "is no mesh": lambda: problem.shard(None, "cats"),
    }}.items():
        if {count} == 8:
            try:
                call()
            except jaxfl.InputError as error:
                assert words in str(error)
            else:
                raise AssertionError(words)
    import warnings
    rows = jax.device_put((np.zeros((8, 4, 2)), np.zeros((8, 4), int)), where)
    calls = {{
        "Problem": lambda: jaxfl.Problem(jaxfl.models.logistic(2), rows),
        "from_clients": lambda: jaxfl.data.from_clients(rows, stacked=True, classes=2),
    }}
    for name, call in calls.items():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        wanted = "Arrays of {count} devices are copied to one"
        assert any(wanted in str(w.message) for w in seen) == ({count} > 1), name
    print("all of it")
"""


@pytest.mark.full  # processes that import JAX and compile
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_meshes_as_jax_makes_them(count: int) -> None:
    """Explicit axes are those of `jax.make_mesh`; runs are those of one device."""
    flags = f"--xla_force_host_platform_device_count={count} --xla_backend_optimization_level=0"
    text = end(start(MESHES.format(count=count), XLA_FLAGS=flags, NPROC="8"), 600)
    assert "all of it" in text
