"""Trackers of experiments, as callbacks: TensorBoard, Weights & Biases, MLflow.

Each run of :func:`simulate` or :func:`sweep` is a run of the tracker, named by its labels and seed, with
its hyper-parameters, and at each evaluated round its metrics that are numbers, the totals, ``eps_spent``
and ``claimed_eps``.  A continued run or sweep is written whole, also what an earlier process computed.

>>> import jaxfl
>>> jaxfl.simulate("ldp_sgd", problem, key, 100, callbacks=["tensorboard:logs"])  # doctest: +SKIP

The classes below take options of their libraries: ``WandB("a-project", mode="offline")``.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from jaxfl.core.checks import imported, one_path
from jaxfl.core.errors import attempt, require
from jaxfl.core.files import writable
from jaxfl.core.params import closest
from jaxfl.engine.callbacks import Evaluation, RunInfo

__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB", "opened", "read"]

Rows: TypeAlias = Sequence[tuple[int, dict[str, float]]]  # numbers by name, at rounds
EXTRA = "trackers"
WRITTEN = {
    "tensorboard": "tensorboard:DIR",
    "wandb": "wandb:PROJECT",
    "mlflow": "mlflow:URI, as in mlflow:sqlite:///mlflow.db",
}
SHARE = 0.1  # of the time that a tracker takes while runs go on, at most
BATCH = 1000  # numbers that MLflow takes at once
NAME = 150  # characters of a folder, before a checksum takes the place of the rest
LONGEST = 6000  # characters of a parameter of MLflow


class Tracker:
    """Hands the numbers of each run to a library: begin, write, close.

    Writing takes at most a tenth of the time: slow writes wait, and the rest is written when a run ends.
    """

    def __init__(self) -> None:
        self.open: dict[RunInfo, Any] = {}  # the library's own runs
        self.waiting: dict[RunInfo, list[tuple[int, dict[str, float]]]] = {}
        self.due = 0.0  # when to write again

    def __call__(self, now: Evaluation) -> None:
        self.waiting.setdefault(now.run, []).append((now.round, _numbers(now)))
        began = time.perf_counter()
        if began >= self.due:
            for run in list(self.waiting):
                self._write(run)
            end = time.perf_counter()
            self.due = end + (end - began) * (1 / SHARE - 1)

    def end(self, run: RunInfo, ended: str) -> None:
        self._write(run)
        if run in self.open:
            self.close(self.open.pop(run), ended)

    def _write(self, run: RunInfo) -> None:
        rows = self.waiting.pop(run, [])
        if rows and run not in self.open:
            self.open[run] = self.begin(run, _parameters(run))
        if rows:
            self.write(self.open[run], rows)

    def begin(self, run: RunInfo, parameters: Mapping[str, Any]) -> Any:
        """A new run of the library."""
        raise NotImplementedError

    def write(self, there: Any, rows: Rows) -> None:
        raise NotImplementedError

    def close(self, there: Any, ended: str) -> None:
        raise NotImplementedError


class TensorBoard(Tracker):
    """Event files: of a single run in ``folder``, of the runs of a sweep in folders of their names.

    ``tensorboard --logdir folder`` shows curves and, under HPARAMS, the table of the runs.  It keeps
    numbers in single precision.  A run that is written again replaces its earlier curves.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = one_path("folder", folder)
        imported("tensorboardX", EXTRA, "TensorBoard")
        writable(self.folder / "events", "event file")

    def begin(self, run: RunInfo, parameters: Mapping[str, Any]) -> Path:
        """A file of its own; an earlier one of this run is void from its first round on."""
        from tensorboardX.proto.event_pb2 import SessionLog
        from tensorboardX.summary import hparams

        place = self.folder / _file_name(run.name)
        place.mkdir(parents=True, exist_ok=True)
        stamp = f"{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        file = place / f"events.out.tfevents.{stamp}"
        experiment, start, _ = hparams(parameters, {"loss": 0.0})
        self._append(
            file,
            {"file_version": "brain.Event:2"},
            {"session_log": SessionLog(status=SessionLog.START)},
            {"summary": experiment},
            {"summary": start},
        )
        return file

    def write(self, there: Path, rows: Rows) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        def summary(found: Mapping[str, float]) -> Any:
            return Summary(value=[Summary.Value(tag=n, simple_value=x) for n, x in found.items()])

        self._append(there, *({"step": t, "summary": summary(found)} for t, found in rows))

    def close(self, there: Path, ended: str) -> None:
        """Nothing to close: a file is open only while it is written, and runs may be many."""

    def _append(self, file: Path, *events: Mapping[str, Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c

        def checked(data: bytes) -> bytes:
            return data + struct.pack("<I", masked_crc32c(data))

        made = [Event(wall_time=time.time(), **e).SerializeToString() for e in events]
        with file.open("ab") as out:
            out.write(b"".join(checked(struct.pack("<Q", len(e))) + checked(e) for e in made))


class WandB(Tracker):
    """Runs of Weights & Biases in ``project``; ``options`` are those of ``wandb.init``.

    ``mode="offline"``, or ``WANDB_MODE=offline`` in the environment, writes a folder for `wandb sync`.
    """

    def __init__(self, project: str, **options: Any) -> None:
        super().__init__()
        self.project, self.options = project, options
        self.wandb = imported("wandb", EXTRA, "WandB")

    def begin(self, run: RunInfo, parameters: Mapping[str, Any]) -> Any:
        about = {
            "config": dict(parameters),
            "name": _title(run),
            "reinit": "create_new",
            "settings": self.wandb.Settings(console="off"),  # runs share one output
        }
        way = "log in with `wandb login`, or set WANDB_MODE=offline"
        with attempt(f"Weights & Biases begins no run in {self.project!r}", way):
            return self.wandb.init(project=self.project, **{**about, **self.options})

    def write(self, there: Any, rows: Rows) -> None:
        for t, found in rows:
            there.log(found, step=t)

    def close(self, there: Any, ended: str) -> None:
        there.summary["ended"] = ended
        there.finish(exit_code=int(ended == "interrupted"))


class MLflow(Tracker):
    """Runs of MLflow in an experiment of the server or the database ``uri``."""

    def __init__(self, uri: str, experiment: str = "jaxfl") -> None:
        super().__init__()
        mlflow = imported("mlflow", EXTRA, "MLflow")
        self.entities = imported("mlflow.entities", EXTRA, "MLflow")
        way = "write it as http://HOST:PORT or sqlite:///FILE"
        with attempt(f"MLflow cannot use {uri!r}", way):
            self.client = mlflow.MlflowClient(tracking_uri=uri)
            known = self.client.get_experiment_by_name(experiment)
            made = known or self.client.get_experiment(self.client.create_experiment(experiment))
        self.experiment = made.experiment_id

    def begin(self, run: RunInfo, parameters: Mapping[str, Any]) -> str:
        there: str = self.client.create_run(self.experiment, run_name=_title(run)).info.run_id
        texts = {name: str(value)[:LONGEST] for name, value in parameters.items()}
        params = [self.entities.Param(name, text) for name, text in texts.items()]
        self.client.log_batch(there, params=params)
        return there

    def write(self, there: str, rows: Rows) -> None:
        stamp, metric = int(1000 * time.time()), self.entities.Metric
        found = [metric(name, x, stamp, t) for t, row in rows for name, x in row.items()]
        for i in range(0, len(found), BATCH):
            self.client.log_batch(there, metrics=found[i : i + BATCH])

    def close(self, there: str, ended: str) -> None:
        self.client.set_tag(there, "ended", ended)
        self.client.set_terminated(there, "KILLED" if ended == "interrupted" else "FINISHED")


def opened(callbacks: Any) -> Any:
    """These callbacks, with trackers in the place of their texts."""
    if not isinstance(callbacks, list | tuple):
        return callbacks
    return [read(each) if isinstance(each, str) else each for each in callbacks]


def read(text: str) -> Tracker:
    """The tracker that a text names, as `--track` takes it."""
    kind, _, rest = text.partition(":")
    require(kind in WRITTEN, closest("tracker", kind, WRITTEN))
    require(rest, "does not say where", lambda: f"write it as {WRITTEN[kind]}", track=text)
    made: dict[str, Any] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
    tracker: Tracker = made[kind](rest)
    return tracker


def _numbers(now: Evaluation) -> dict[str, float]:
    """All numbers of an evaluation, by the names of results."""
    found = {name: x for name, x in now.metrics.items() if isinstance(x, int | float)}
    eps = {"eps_spent": now.eps, "claimed_eps": now.claimed_eps}
    known = {name: x for name, x in eps.items() if x is not None and math.isfinite(x)}
    return {name: float(x) for name, x in {**found, **now.totals, **known}.items()}


def _parameters(run: RunInfo) -> dict[str, Any]:
    """Hyper-parameters and labels, as numbers and texts, and why no eps is proven."""
    about = {"algorithm": run.algorithm, "problem": run.problem, **run.values, **run.labels}
    _, why, *_ = run.settings["proof"]
    about |= {"privacy": why} if why else {}
    about |= {} if run.seed is None else {"seed": run.seed}
    return {n: x if isinstance(x, int | float | str) else str(x) for n, x in about.items()}


def _title(run: RunInfo) -> str:
    return run.name or f"{run.algorithm} on {run.problem}"


def _file_name(name: str) -> str:
    """The name of a run as a folder: values may have a slash, or be long."""
    short = name if len(name) <= NAME else f"{name[:NAME]}-{zlib.crc32(name.encode()):08x}"
    return short.replace("/", "_") or "."
