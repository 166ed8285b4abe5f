"""What trackers write offline, read back: one run per run, with the numbers of its result."""

import importlib.util
import itertools
import json
import math
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from rows import a_problem
from test_callbacks import run
from told import mistakes, refused

import jaxfl
from jaxfl.engine import compute, trackers

Found = dict[str, tuple[dict[str, Any], dict[str, dict[int, float]]]]  # by name: parameters, series


def needs(package: str) -> Any:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


def records(file: Path) -> Iterator[bytes]:
    """The records of an event file, each between two checksums."""
    data, at = file.read_bytes(), 0
    while at < len(data):
        size = struct.unpack("<Q", data[at : at + 8])[0]
        yield data[at + 12 : at + 12 + size]
        at += 16 + size


def of_tensorboard(place: Path) -> Found:
    """The last file of each run, as TensorBoard takes it where the one before was written again."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    out: Found = {}
    for file in sorted(place.rglob("events.out.tfevents.*")):
        series: dict[str, dict[int, float]] = {}
        events = map(Event.FromString, records(file))
        given: dict[str, Any] = {}
        for event in events:
            for value in event.summary.value:
                if value.tag.startswith("_hparams_/session_start"):
                    content = value.metadata.plugin_data.content
                    start = HParamsPluginData.FromString(content).session_start_info
                    given = {n: getattr(v, v.WhichOneof("kind")) for n, v in start.hparams.items()}
                elif not value.tag.startswith("_"):
                    series.setdefault(value.tag, {})[event.step] = value.simple_value
        name = file.parent.relative_to(place).as_posix()
        out["" if name == "." else name] = given, series
    return out


def of_wandb(place: Path) -> Found:
    """The offline files, logs of records in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    out: Found = {}
    for file in sorted(place.glob("wandb/offline-run-*/*.wandb"), key=lambda f: f.stat().st_ctime):
        data, at, part, name = file.read_bytes(), 7, b"", ""
        given: dict[str, Any] = {}
        series: dict[str, dict[int, float]] = {}
        while at < len(data):
            if (left := 32768 - at % 32768) < 7:
                at += left
                continue
            _, size, kind = struct.unpack("<IHB", data[at : at + 7])
            part += data[at + 7 : at + 7 + size]
            at += 7 + size
            if kind not in (1, 4):  # whole, or the last part
                continue
            record, part = Record.FromString(part), b""
            if record.WhichOneof("record_type") == "run":
                name = record.run.display_name
                given |= {u.key: json.loads(u.value_json) for u in record.run.config.update}
            row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for key, value in row.items():
                series.setdefault(key, {})[row["_step"]] = float(value)
        out[name] = given, series
    return out


def of_mlflow(place: Path) -> Found:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    out: Found = {}
    for there in client.search_runs([client.get_experiment_by_name("jaxfl").experiment_id])[::-1]:
        one = there.info.run_id
        history = {name: client.get_metric_history(one, name) for name in there.data.metrics}
        series = {name: {m.step: m.value for m in found} for name, found in history.items()}
        out[there.info.run_name] = there.data.params, series
    return out


KINDS = {
    "tensorboard": (lambda place: f"tensorboard:{place}", of_tensorboard),
    "wandb": (lambda place: "wandb:trial", of_wandb),
    "mlflow": (lambda place: f"mlflow:sqlite:///{place}/mlflow.db", of_mlflow),
}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}
EACH = pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=needs(p)) for k, p in PACKAGES.items()]
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setattr(compute, "OFTEN", 1)


def tracked(kind: str, place: Path) -> trackers.Tracker:
    tracker = trackers.read(KINDS[kind][0](place))
    if isinstance(tracker, trackers.WandB):
        tracker.options["dir"] = place  # its service keeps the first WANDB_DIR of a process
    return tracker


def close(mine: dict[int, float], rounds: Any, values: Any, kind: str) -> None:
    """The same rounds, and the same numbers in the tracker's precision."""
    assert list(mine) == list(rounds)
    precision = np.float32 if kind == "tensorboard" else np.float64
    np.testing.assert_array_equal(np.array(list(mine.values())), np.asarray(values, precision))


@EACH
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_and_its_resumption(kind: str, tmp_path: Path) -> None:
    """All numbers and hyper-parameters; a continued run is whole again."""
    read = KINDS[kind][1]
    half = run(8, callbacks=[tracked(kind, tmp_path)])
    result = half.extend(14, callbacks=[tracked(kind, tmp_path)])
    ds = result.dataset()
    given, series = list(read(tmp_path).values())[-1]
    assert float(given["lr"]) == 0.1
    assert given["algorithm"] == "soteriafl_sgd"
    names = {n for n in ds.data_vars if ds[n].dims == ("round",)} - {"utility"}
    assert names <= series.keys()
    for name in names:
        close(series[name], ds["round"].values, ds[name].values, kind)
    assert series["claimed_eps"][14] == pytest.approx(result.privacy().claimed)


@EACH
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_sweep(kind: str, tmp_path: Path) -> None:
    """One run per cell and seed; NaN as it is."""
    how: Any = {"rounds": 4, "eval_every": 2, "seeds": 2, "lr": [0.1, 1e38], "batch": 4}
    how |= {"clip": 2.0, "sigma": 0.0, "callbacks": [tracked(kind, tmp_path)]}
    ds = jaxfl.sweep("cdp_sgd", a_problem(), **how)
    found = KINDS[kind][1](tmp_path)
    assert len(found) == 4
    for lr, seed in itertools.product((0.1, 1e38), (0, 1)):
        given, series = found[f"algorithm=cdp_sgd,lr={lr},seed={seed}"]
        assert (float(given["lr"]), float(given["seed"])) == (lr, seed)
        here = ds.sel(algorithm="cdp_sgd", lr=lr, seed=seed)
        rounds = list(series["loss"])
        assert rounds == [0, 2, 4] if lr == 0.1 else math.isnan(series["loss"][rounds[-1]])
        for name in ("loss", "uplink_bits"):
            close(series[name], rounds, here[name].sel(round=rounds).values, kind)


@needs("tensorboardX")
def test_a_tracker_that_is_slow_writes_less_often(tmp_path: Path) -> None:
    """Writing takes a share of the time at most, and loses nothing."""
    tracker = trackers.TensorBoard(tmp_path)
    calls, write = [], tracker.write

    def slow(there: Path, rows: trackers.Rows) -> None:
        calls.append(len(rows))
        time.sleep(0.1)
        write(there, rows)

    tracker.write = slow  # type: ignore[method-assign]
    run(30, eval_every=1, callbacks=[tracker])
    assert calls[0] == 1
    assert len(calls) < 4
    assert sum(calls) == 31
    ((_, series),) = of_tensorboard(tmp_path).values()
    assert list(series["loss"]) == list(range(31))


@mistakes(
    (lambda: trackers.read("tensorbord:x"), "no tracker 'tensorbord'.*tensorboard"),
    (lambda: trackers.read("wandb"), "track = .wandb. does not say where: write it as wandb:PRO"),
)
def test_mistakes(call: Callable[[], Any], words: str) -> None:
    refused(call, words)


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_library_that_is_missing(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[kind], None)
    words = rf'needs the package {PACKAGES[kind]}: pip install "jaxfl\[trackers\]"'
    refused(lambda: tracked(kind, tmp_path), words)


@needs("mlflow")
def test_a_server_that_is_not_there() -> None:
    refused(lambda: trackers.MLflow("nowhere://x"), "MLflow cannot use 'nowhere://x' .*: write it")


def test_only_numbers_are_tracked() -> None:
    """Arrays and an eps that nothing proves are left out; names of folders are short, and differ."""
    found: list[Any] = []
    numbers: Any = {"delta": 1e-3, "batch": 4, "lr": 0.1, "clip": 1.0, "sigma": 0.0}
    problem, key = a_problem(), jax.random.key(0)
    jaxfl.simulate("cdp_sgd", problem, key, 2, callbacks=[found.append], **numbers)
    names = trackers._numbers(found[-1]).keys()
    assert "client_loss" in found[-1].metrics
    assert not {"client_loss", "eps_spent"} & names
    assert {"loss", "gradients", "messages", "uplink_bits"} <= names
    short = {trackers._file_name(f"lr={'1/2' * 100}{i}") for i in range(2)}
    assert len(short) == 2
    assert all("/" not in name and len(name) < 200 for name in short)
