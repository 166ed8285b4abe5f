"""Runs and sweeps whose clients are split over two processes of `jax.distributed`; one may be killed."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from clusters import HOST, port
from rows import a_problem
from scripts import end, start
from test_executors import job
from test_sweeps_durable import NUMBERS, near, tiny
from told import refused

import jaxfl

BEGIN = """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    here = "{host}:{port}"
    jax.distributed.initialize(
        here, 2, {index}, coordinator_bind_address=here, heartbeat_timeout_seconds=10)
    from test_hosts import *
    problem, folder = split(a_problem(n=8)), Path({folder!r})
"""
GRID: dict[str, Any] = {"lr": [0.05, 0.1]}
FLAGS = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"


def grid(problem: Any, **options: Any) -> Any:
    """Two chunks of two runs."""
    return tiny("soteriafl_sgd", GRID, problem, seeds=2, runs_at_once=2, k=3, **NUMBERS, **options)


def run(problem: Any, **options: Any) -> jaxfl.Run:
    if "resume" not in options:
        options |= {"lr": 0.1, "k": 3, **NUMBERS}
    key = jax.random.key(0)
    return jaxfl.simulate("soteriafl_sgd", problem, key, 6, eval_every=2, **options)


def pair(code: str, folder: Path) -> list[subprocess.Popen[str]]:
    """Two processes; each has a folder of its own, as on machines without a shared disk."""
    where = port()
    return [
        start(
            BEGIN.format(host=HOST, port=where, index=i, folder=str(folder / str(i))) + code,
            XLA_FLAGS=FLAGS,
        )
        for i in range(2)
    ]


WHOLE = """
    reports = []
    ds = grid(problem, out=folder / "sweep", progress=reports.append, announce=reports.append)
    assert bool(reports) == (jax.process_index() == 0)
    if jax.process_index() == 0:
        (folder / "sweep" / "chunks" / "chunk-00001.npz").unlink()
    xarray.testing.assert_equal(grid(problem, out=folder / "sweep", resume=True), ds)
    one = run(problem, checkpoint=folder / "run.npz", checkpoint_every=2)
    again = run(problem, resume=folder / "run.npz")
    xarray.testing.assert_equal(one.dataset(), again.dataset())
    memory = jax.tree.leaves((one.state.local, one.state.links))
    assert memory and all(len(a.sharding.device_set) == 4 for a in memory)
    one.save(folder / "run.nc")
    for executor, given in ((None, a_problem(n=8)), ("processes:1", problem)):
        try:
            grid(given, executor=executor)
        except jaxfl.InputError as error:
            assert "2 processes, and the clients of this sweep are not split over them" in str(error)
        else:
            raise AssertionError("a sweep that is not split")
    print("all of it")
"""


@pytest.mark.full  # two processes that import JAX and compile
def test_two_processes(tmp_path: Path) -> None:
    """Their numbers are those of one, only process 0 writes, and the other follows what it reads."""
    for i in range(2):
        (tmp_path / str(i)).mkdir()
    for process in pair(WHOLE, tmp_path):
        assert "all of it" in end(process)
    near(jaxfl.load(tmp_path / "0" / "sweep" / "result.nc"), grid(a_problem(n=8)))
    near(jaxfl.load(tmp_path / "0" / "run.nc"), run(a_problem(n=8)).dataset())
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["run.nc"]


KILL = """
    import time
    from jaxfl.engine import checkpoint
    compute.SAVE_EVERY, compute.SHARE, honest, saves = 0.0, 1e9, checkpoint.content, []
    def content(*given):
        saves.append(honest(*given))
        if len(saves) == 2 and jax.process_index() == {victim}:
            print("killed", time.time(), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return saves[-1]
    checkpoint.content = content
    {call}
"""
CALLS = {
    "sweep": 'grid(problem, out=folder / "sweep")',
    "run": 'run(problem, checkpoint=folder / "run.npz", checkpoint_every=2)',
}


@pytest.mark.full  # two processes that import JAX and compile
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("what", list(CALLS))
def test_the_loss_of_a_process_is_one_sentence(what: str, victim: int, tmp_path: Path) -> None:
    """At once, whoever it is; what process 0 has saved continues, here in one process."""
    for i in range(2):
        (tmp_path / str(i)).mkdir()
    processes = pair(KILL.format(victim=victim, call=CALLS[what]), tmp_path)
    texts = [process.communicate(timeout=240)[0] for process in processes]
    assert processes[victim].returncode == -signal.SIGKILL, texts[victim]
    assert processes[1 - victim].returncode == 1, texts[1 - victim]
    last = texts[1 - victim].strip().splitlines()[-1]
    way = "True" if what == "sweep" else f"'{tmp_path / str(1 - victim) / 'run.npz'}'"
    assert "Another process of this computation is lost" in last
    assert last.endswith(f": start all of them again, and pass resume={way}.")
    problem, folder = a_problem(n=8), tmp_path / "0"
    if what == "sweep":
        assert list((folder / "sweep" / "chunks").glob("*.checkpoint.npz"))
        near(grid(problem, out=folder / "sweep", resume=True), grid(problem))
    else:
        near(run(problem, resume=folder / "run.npz").dataset(), run(problem).dataset())


@pytest.mark.once
def test_several_processes_without_split_clients_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr("jaxfl.core.hosts.several", lambda: True)
    monkeypatch.setattr("jaxfl.core.hosts.gathered", lambda value: np.array([value]))
    monkeypatch.setattr("jaxfl.core.hosts.first", lambda call: call())
    words = "has joined 2 processes, and the clients of this sweep are not split .* pass executor"
    refused(job, words)
