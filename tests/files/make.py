"""Make the results of this version that later versions read: ``tests/files/VERSION``.

python tests/files/make.py [FOLDER]

Without FOLDER the files of this version must not be there yet: results of a version stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxfl
from jaxfl.cli import main
from jaxfl.core.version import __version__

TESTS = Path(__file__).resolve().parents[1]
QUIET = "--no-plot --quiet"
DATA = "--data synthetic --data-option d=4 --data-option n=3 --data-option m=20 --clients 3"
RUN = f"run ldp_sgd {DATA} --lr 0.1 --eps 4 --batch 8 --rounds 6 --eval-every 2"
SWEEP = (
    f"sweep ldp_sgd {DATA} --lr 0.1 0.3 --eps 1 4 --batch 8 --rounds 6 9 --eval-every 3 --no-plot"
)
NUMBERS: dict[str, Any] = {"lr": 0.1, "clip": 1.0, "batch": 4}
PRIVATE = {**NUMBERS, "eps": 4.0, "delta": 1e-3}
KEY = 7
ROUNDS, EVERY = 8, 3
FIRST = "chunks/chunk-00000.npz"  # of a sweep of two chunks

# name: (algorithm, options) of a run on `problem()`
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "private": ("soteriafl_saga", {**PRIVATE, "k": 3, "lr": 0.02}),
    "not_private": ("fedavg", {"lr": 0.1, "batch": 4, "local_steps": 2}),
    "stopped": ("ldp_sgd", {**PRIVATE, "stop": dict(bits=1700)}),
    "tested": ("ldp_sgd", {**PRIVATE, "metrics_on": "test", "stop": dict(loss=0.0)}),
    "sizes": ("ldp_sgd", {**PRIVATE, "participation": "balanced", "cohort": 2}),
}


def problem() -> jaxfl.Problem:
    """Three clients of 12, 9 and 16 records, all numbers of which are exact in binary."""
    rng = np.random.default_rng(0)

    def rows(m: int) -> tuple[np.ndarray, np.ndarray]:
        a = (rng.integers(-8, 9, size=(m, 5)) / 8).astype(np.float32)
        return a, (a[:, 0] + a[:, 1] > rng.integers(-4, 5, m) / 8).astype(np.int32)

    data = jaxfl.data.from_clients([rows(m) for m in (12, 9, 16)], test=rows(10), classes=2)
    model = jaxfl.models.logistic(5, regularizer="l2:0.125")
    return jaxfl.Problem(model, data, x0=np.arange(5, dtype=np.float32) / 8, name="older")


def simulated(name: str) -> jaxfl.Run:
    algorithm, options = RUNS[name]
    key = jax.random.key(KEY)
    return jaxfl.simulate(algorithm, problem(), key, ROUNDS, eval_every=EVERY, **options)


def moments(folder: Path, into: Path) -> contextlib.AbstractContextManager[list[Path]]:
    """Copies of ``folder`` before each change of a file, from the tests of killed programs."""
    sys.path.insert(0, str(TESTS / "cli"))
    import test_killed

    return test_killed.moments(folder, into)


@contextlib.contextmanager
def elsewhere() -> Iterator[Path]:
    """Another working directory, so that files hold no path of this machine."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        try:
            yield Path(scratch)
        finally:
            os.chdir(here)


def make_folders(folder: Path) -> None:
    """Folders of the command line; an unfinished one is what a kill between two chunks leaves."""
    with elsewhere() as scratch, moments(scratch / "sweep", scratch / "at") as copies:
        assert main([*RUN.split(), *QUIET.split(), "--out", "run"]) == 0
        assert main([*SWEEP.split(), "--quiet", "--out", "sweep"]) == 0
        left = next(c for c in copies if (c / FIRST).exists())
        assert not (left / "result.nc").exists()
        for name, made in (("run", Path("run")), ("sweep", Path("sweep")), ("unfinished", left)):
            dust = shutil.ignore_patterns("*.part", ".lock")
            shutil.copytree(made, folder / name, ignore=dust)


def make(folder: Path) -> None:
    for name in RUNS:
        simulated(name).save(folder / "runs" / f"{name}.nc")
    make_folders(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name(__version__))
    if target.exists():
        sys.exit(f"{target} exists; name another folder")
    make(target.resolve())
    for file in sorted(path for path in target.rglob("*") if path.is_file()):
        print(f"{file.stat().st_size:7,} {file.relative_to(target)}")
