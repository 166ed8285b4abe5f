"""Sweeps on real engines of this machine, whose workers are killed, added, too small, or others."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, cluster
from test_durable import near, written
from test_executors import ONE, job
from told import refused

from jaxfl.engine import executors

ENGINES = {"dask": "distributed", "ray": "ray"}
QUIET = pytest.mark.filterwarnings("default")  # those packages have warnings of their own


def needs(package: str) -> None:
    pytest.importorskip(package, reason=f"needs {package}: pip install 'jaxfl[dask,ray,slurm]'")


@pytest.fixture(params=list(ENGINES))
def nodes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    needs(ENGINES[request.param])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, filter(None, sys.path))))
    with cluster(request.param, 1) as made:
        yield made


@QUIET
@pytest.mark.full  # starts a cluster, whose workers import JAX
def test_a_node_is_added_and_one_is_killed(nodes: Cluster, tmp_path: Path) -> None:
    """The new one takes part, and computes what the other has lost."""
    short: dict[str, Any] = {"runs_at_once": 1, "lr": [0.05, 0.1, 0.2]}
    done: list[int] = []

    def watch(now: Any) -> None:
        if now.chunk != len(done):
            done.append(now.chunk)
            if len(done) == 1:
                nodes.add()
                nodes.kill(0)

    expected = job(**short)
    near(job(nodes.on, progress=watch, out=tmp_path / "sweep", **short), expected)
    assert len(written(tmp_path / "sweep")) == 6


@pytest.mark.once
@pytest.mark.parametrize("name", ["distributed", "ray", "submitit"])
def test_an_absent_package_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    text = {"distributed": "dask://127.0.0.1:1", "ray": "ray", "submitit": "slurm"}[name]
    extra = {"distributed": "dask", "submitit": "slurm"}.get(name, name)
    refused(lambda: executors.read(text), rf"needs the package {name}: .*jaxfl\[{extra}\]")


@QUIET
@pytest.mark.parametrize(
    "kind",
    ["debug", pytest.param("local", marks=pytest.mark.full)],  # slow: a process for each chunk
)
def test_jobs_of_submitit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("submitit")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, filter(None, sys.path))))
    with executors.slurm(
        tmp_path / "jobs", cluster=kind, partition="gpu", gres="gpu:1"
    ) as executor:
        near(job(executor, **ONE), job(**ONE))
    assert not list((tmp_path / "jobs").glob("jaxfl-*"))


@pytest.mark.once
def test_options_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sbatch` has them, known to submitit or not; without SLURM one sentence."""
    needs("submitit")
    monkeypatch.chdir(tmp_path)
    refused(lambda: executors.read("slurm"), "SLURM cannot be reached .*sbatch")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("srun", "sbatch"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    with executors.slurm(partition="gpu", licenses="a:1", time=30) as executor:
        text = executor.executor._executor._make_submission_file_text("true", "0")
    for line in ("--partition=gpu", "--licenses=a:1", "--time=30", "--job-name=jaxfl"):
        assert f"#SBATCH {line}" in text


@QUIET
@pytest.mark.full  # starts a cluster, whose workers import JAX
def test_a_lost_scheduler_is_one_sentence(nodes: Cluster, tmp_path: Path) -> None:
    def lose(now: Any) -> None:
        if now.done and not began:
            began.append(time.monotonic())
            nodes.lose()

    began: list[float] = []
    call = lambda: job(nodes.on, progress=lose, out=tmp_path / "sweep", runs_at_once=1)  # noqa: E731
    refused(call, "takes no more chunks .*has ended.: finished chunks are kept, and resume=True")
    assert time.monotonic() - began[0] < 30
    assert written(tmp_path / "sweep")
    near(job(out=tmp_path / "sweep", resume=True), job(runs_at_once=1))
