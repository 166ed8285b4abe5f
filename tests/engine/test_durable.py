"""Runs and sweeps that are killed, cut short, resumed, damaged; on many devices."""

import dataclasses
import json
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from calls import Calls
from rows import a_problem
from scripts import eight, end, start
from told import refused

import jaxfl
from jaxfl.core.errors import JaxflWarning
from jaxfl.core.files import NO_DIGEST, sealed
from jaxfl.engine import store
from jaxfl.engine.progress import Plan

GRID = {"lr": [0.05, 0.1, 0.2], "sigma": [0.01, 0.02, 0.03]}
CHUNKS = 9
ROUNDS = 100
JOB: dict[str, Any] = {"rounds": ROUNDS, "eval_every": 10, "runs_at_once": 1}
Whole = tuple[Path, xarray.Dataset]  # a folder, and the sweep that it holds
ROUNDING = 1e-5  # relative, where shapes or devices differ
FILES = ["chunks", "planned.jsonl", "result.nc"]


def job(out: Path | None = None, *, grid: Mapping[str, Any] = GRID, **options: Any) -> Any:
    """Nine chunks of one run each."""
    given = {"problem": a_problem(), "key": jax.random.key(0), "algorithm": "ldp_gd", "clip": 2.0}
    return jaxfl.sweep(**{**given, **JOB, "out": out, **grid, **options})


def written(folder: Path) -> dict[str, int]:
    """Finished chunks, and when each was written."""
    return {file.name: file.stat().st_mtime_ns for file in (folder / "chunks").glob("chunk-*.npz")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """What nobody has interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "sweep"
    return folder, job(folder)


@pytest.mark.once
def test_a_folder_holds_the_sweep(whole: Whole) -> None:
    folder, ds = whole
    xarray.testing.assert_equal(jaxfl.load(folder / "result.nc"), ds)
    before = written(folder)
    assert len(before) == CHUNKS == json.loads(ds.attrs["config"])["chunks"]
    plans: list[Plan] = []
    xarray.testing.assert_equal(job(folder, resume=True, announce=plans.append), ds)
    assert (plans[0].finished, plans[0].chunks, plans[0].left) == (CHUNKS, 0, 0)
    assert written(folder) == before


# --- interrupted, damaged, without room ----------------------------------------------------------


def _altered(file: Path) -> None:
    """Another loss in a file that is whole."""
    with np.load(file) as held:
        arrays = dict(held)
    arrays["loss"] = arrays["loss"] + 1
    np.savez_compressed(file, allow_pickle=False, **arrays)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "chunk-00001.npz": _altered,
    "chunk-00003.npz": lambda file: file.write_bytes(b""),
    "chunk-00005.npz": lambda file: file.unlink(),
    "chunk-00006.npz": lambda file: np.savez(file, allow_pickle=False, loss=np.zeros((1, 1, 3))),
    "chunk-00008.npz": lambda file: shutil.copy(file.with_name("chunk-00007.npz"), file),
}


@pytest.mark.once
def test_damaged_chunks_are_computed_again(whole: Whole, tmp_path: Path) -> None:
    """Altered, empty, gone, of something else, of another chunk or sweep."""
    folder, other = tmp_path / "sweep", tmp_path / "other"
    shutil.copytree(whole[0], folder)
    job(other, key=jax.random.key(1))
    of_another = {"chunk-00004.npz": lambda file: shutil.copy(other / "chunks" / file.name, file)}
    damages = {**DAMAGES, **of_another}
    for name, damage in damages.items():
        damage(folder / "chunks" / name)
    before = written(folder)
    plans: list[Plan] = []
    xarray.testing.assert_equal(job(folder, resume=True, announce=plans.append), whole[1])
    assert plans[0].finished == CHUNKS - len(damages)
    for name, when in written(folder).items():
        assert (before.get(name) == when) == (name not in damages)


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a plan, and seal it again."""
    file = folder / "planned.jsonl"
    head, *lines = file.read_text().splitlines()
    held = json.loads(head)
    change(held)
    held["digest"] = NO_DIGEST
    text = "\n".join([json.dumps(held), *lines]) + "\n"
    file.write_bytes(sealed(text.encode(), store.DIGEST))


HOLD = """
    import signal
    from jaxfl.core.files import locked
    with locked(Path({out!r})):
        print("holds", flush=True)
        signal.pause()
"""


def test_a_folder_has_one_driver(whole: Whole, tmp_path: Path) -> None:
    """Another process is named; once it is killed, the folder is free."""
    folder = tmp_path / "sweep"
    shutil.copytree(whole[0], folder)
    (folder / "chunks" / "chunk-00004.npz").unlink()
    process = start(HOLD.format(out=str(folder)))
    assert process.stdout is not None
    while "holds" not in process.stdout.readline():
        pass
    refused(lambda: job(folder, resume=True), f"is in use by process {process.pid} on .*: wait")
    process.kill()
    process.communicate()
    xarray.testing.assert_equal(job(folder, resume=True), whole[1])
    assert sorted(path.name for path in folder.iterdir()) == FILES


@pytest.mark.once
def test_other_draws_finish_no_sweep(whole: Whole, tmp_path: Path) -> None:
    """Those of another version or setting; what is finished is read all the same."""
    for what, value in (("jaxfl", "0.0.1"), ("threefry_partitionable", None)):
        folder = Path(shutil.copytree(whole[0], tmp_path / what))
        edited(folder, lambda held, to={what: value}: held["drawn"].update(to))
        xarray.testing.assert_equal(job(folder, resume=True), whole[1])
        (folder / "chunks" / "chunk-00004.npz").unlink()
        before = written(folder)
        words = f"begun with other draws: its {what} is .*: finish it"
        refused(lambda place=folder: job(place, resume=True), words)
        assert written(folder) == before


@pytest.mark.once
def test_room_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the results will take: 9 runs of 11 evaluations of some 20 numbers, and 4 of 5 clients."""
    usage = shutil.disk_usage(tmp_path)
    folder, least = tmp_path / "sweep", 9 * 11 * 8 * (20 + 4 * 5)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=least))
    refused(lambda: job(folder), "evaluate less often")
    assert not (folder / "planned.jsonl").exists()


# --- checkpoints of chunks -----------------------------------------------------------------------

SLICES = {"lr": [0.05, 0.1, 0.2], "sigma": [0.01]}
SLICED: dict[str, Any] = dict(grid=SLICES, rounds=60, seeds=2, runs_at_once=4)  # two chunks


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def killed(folder: Path, monkeypatch: pytest.MonkeyPatch, saves: int) -> Path:
    """The checkpoint of a sweep that is killed after so many of them, of an unfinished chunk."""
    honest, files = store.Store.save, []

    def save(self: store.Store, index: int, *args: Any) -> None:
        honest(self, index, *args)
        files.append(self.state(index))
        if len(files) == saves:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "save", save)
        with pytest.raises(Killed):
            job(folder, **SLICED)
    return files[-1]


def _edited(file: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    with np.load(file) as held:
        arrays = dict(held)
    about = json.loads(arrays.pop("about").tobytes())
    change(arrays, about)
    np.savez(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)


UNUSABLE: dict[str, Callable[[Path], object]] = {
    "chunk": lambda file: _edited(
        file, lambda _, about: about.update(owner=about["owner"][:5] + "0" + about["owner"][6:])
    ),
    "version": lambda file: _edited(
        file, lambda _, about: about.update(owner=about["owner"].replace(jax.__version__, "0.1"))
    ),
    "shape": lambda file: _edited(
        file, lambda arrays, _: arrays.update(state1=arrays["state1"][:, :-1])
    ),
    "log": lambda file: _edited(file, lambda _, about: about["rounds"].pop()),
    "finished": lambda file: shutil.copy(file, file.with_name("state-00001.npz")),
}


@pytest.mark.once
def test_what_is_no_checkpoint_of_the_chunk_is_not_used(
    calls: Calls, often: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another chunk, version or shape: the chunk is computed again."""
    full, folder = job(**SLICED), tmp_path / "sweep"
    left = killed(folder, monkeypatch, 2)
    for name, change in UNUSABLE.items():
        other = tmp_path / name
        shutil.copytree(folder, other)
        change(other / "chunks" / left.name)
        calls.clear()
        xarray.testing.assert_equal(job(other, resume=True, **SLICED), full)
        first = 20 if name == "finished" else 0  # that is the same chunk's, and whole
        assert calls.rounds == [*range(first, 60), *range(60)], name
        assert len(written(other)) == 2


def test_an_interrupt_waits_for_the_end_of_tracing() -> None:
    """JAX may lose it meanwhile, or fail in a way of its own."""
    traced: list[str] = []

    def metric(problem: jaxfl.Problem, x: jax.Array) -> jax.Array:
        traced.append("begun")
        signal.raise_signal(signal.SIGINT)
        traced.append("ended")
        return jnp.sum(x)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            job(metrics={"own": metric}, **SLICED)
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(traced) == {"begun", "ended"}


@pytest.mark.once
def test_a_checkpoint_that_cannot_be_written_ends_nothing(
    often: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def full(self: store.Store, *args: Any) -> None:
        tried.append(args)
        raise jaxfl.InputError("Cannot write it", "No space left on device")

    monkeypatch.setattr(store.Store, "save", full)
    with pytest.warns(JaxflWarning, match="No space left on device"):
        found = job(tmp_path / "sweep", **SLICED)
    assert len(tried) == 1
    xarray.testing.assert_equal(found, job(**SLICED))


# --- whose folder it is --------------------------------------------------------------------------


OTHERS: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("lr", lambda: {"grid": {**GRID, "lr": [0.05, 0.1, 0.3]}}),
    ("seeds", lambda: {"seeds": 2}),
    ("keys", lambda: {"key": jax.random.key(1)}),
    ("metrics", lambda: {"metrics": {"first": lambda problem, x: x[0]}}),
    ("eval_every", lambda: {"eval_every": 50}),
    ("paired", lambda: {"paired": False}),
    ("noise", lambda: {"noise": "paper"}),
    ("data", lambda: {"problem": a_problem(seed=1)}),
    ("objective", lambda: {"problem": a_problem(0.3)}),
    ("eval_records", lambda: {"problem": dataclasses.replace(a_problem(), evaluated=3)}),
    ("matmul_precision", lambda: {"matmul_precision": "highest"}),
    ("clip", lambda: {"clip": 3.0}),
    ("rounds", lambda: {"rounds": 60}),
]


@pytest.mark.once
def test_another_sweep_is_refused(whole: Whole) -> None:
    """Whatever decides its numbers; nothing is written."""
    folder = whole[0]
    before = written(folder)
    for what, change in OTHERS:
        words = f"^.{{,450}}holds other runs: its {what} is"
        refused(lambda more=change: job(folder, resume=True, **more()), words)
    assert written(folder) == before


@pytest.mark.once
def test_schedules_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    """Two functions of one name are two sweeps."""

    def with_lr(lr: float, resume: bool) -> None:
        def decay(t: int) -> float:
            return lr / (1 + t)

        job(tmp_path / "sweep", grid={"lr": [decay], "sigma": [0.01]}, rounds=5, resume=resume)

    with_lr(0.1, False)
    with_lr(0.1, True)
    refused(lambda: with_lr(0.2, True), "holds other runs: its lr")


@pytest.mark.once
def test_folders_are_not_overwritten(whole: Whole, tmp_path: Path) -> None:
    refused(lambda: job(whole[0]), "holds a run or a sweep already: continue it with resume=True")
    folder = tmp_path / "other"
    refused(lambda: job(folder, extend=True), "planned.jsonl does not exist, so there is no plan")
    assert not folder.exists()
    xarray.testing.assert_equal(job(tmp_path / "new", resume=True), whole[1])  # one line for both
    (file := folder / "chunks" / "chunk-00003.npz").parent.mkdir(parents=True)
    file.write_bytes(b"somebody's")
    refused(lambda: job(folder), "holds a run or a sweep already")
    refused(lambda: job(folder, resume=True), "planned.jsonl does not exist, so there is no plan")
    assert file.read_bytes() == b"somebody's"
    for text, words in (("{", "is damaged"), ('{"format": 99}', "has plan format 99")):
        (folder / "planned.jsonl").write_text(text)
        refused(lambda: job(folder, resume=True), words)


# --- devices and hosts ---------------------------------------------------------------------------

NUMBERS = {"batch": 4, "clip": 2.0, "sigma": 0.05}
SHAPES: dict[str, dict[str, Any]] = {
    "11 cells": {"grid": {"lr": np.linspace(0.05, 0.2, 11)}, "seeds": 2},
    "unpaired": {"grid": {"lr": [0.1, 0.2]}, "seeds": 9, "paired": False},
}


def tiny(algorithm: str, grid: Any, problem: Any, **options: Any) -> xarray.Dataset:
    """A few rounds."""
    return jaxfl.sweep(algorithm, problem, jax.random.key(0), 6, eval_every=2, **grid, **options)


def small(name: str, **options: Any) -> xarray.Dataset:
    return tiny("ldp_sgd", problem=a_problem(n=8), **NUMBERS, **SHAPES[name], **options)


def near(a: xarray.Dataset, b: xarray.Dataset) -> None:
    """Draws and counts exactly, the rest to rounding."""
    for name in ("messages", "coordinates", "gradients", "uplink_bits", "downlink_bits"):
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    for name in ("loss", "grad_norm_sq", "test_loss"):
        np.testing.assert_allclose(a[name], b[name], ROUNDING, err_msg=name)


def split(problem: jaxfl.Problem) -> jaxfl.Problem:
    """Clients over all devices."""
    return problem.shard(jax.make_mesh((jax.device_count(),), ("clients",)), "clients")


ON_EIGHT = """
    assert jax.device_count() == 8
    one = jax.devices()[:1]
    alone = {{name: small(name, devices=one) for name in {shapes}}}
    for name in alone:
        near(small(name), alone[name])
    if not {names}:
        raise SystemExit

    out = Path({out!r}) / "sweep"
    with pytest.raises(KeyboardInterrupt):
        small("11 cells", devices=one, out=out, runs_at_once=3, progress=stop_at_once)
    near(small("11 cells", out=out, resume=True), alone["11 cells"])

    problem, key = split(a_problem(n=8)), jax.random.key(0)
    for name in {names}:
        numbers = dict(k=3, **NUMBERS)
        run = jaxfl.simulate(name, problem, key, 6, seed=1, eval_every=2, lr=0.1, **numbers)
        memory = jax.tree.leaves((run.state.local, run.state.links))
        assert memory and all(len(a.sharding.device_set) == 8 for a in memory)
        ds = tiny(name, dict(lr=[0.05, 0.1]), problem, seeds=2, **numbers)
        near(ds, tiny(name, dict(lr=[0.05, 0.1]), a_problem(n=8), seeds=2, devices=one, **numbers))
        near(ds.isel(algorithm=0).sel(lr=0.1, seed=1), run.dataset())
    print("all of it")
"""


@pytest.mark.parametrize(
    ("names", "shapes"), [([], ["11 cells"]), (["soteriafl_saga", "soteriafl_svrg"], list(SHAPES))]
)
def test_eight_devices(names: list[str], shapes: list[str], tmp_path: Path) -> None:
    """Runs split over devices; in full also clients, and a sweep that was begun on one."""
    code = ON_EIGHT.format(out=str(tmp_path), names=names, shapes=shapes)
    text = end(start(code, XLA_FLAGS=eight()))
    assert not names or "all of it" in text


def stop_at_once(now: Any) -> None:
    if now.done:
        raise KeyboardInterrupt
