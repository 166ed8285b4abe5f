"""Chunks that executors compute: those here, which lose them, and those of other packages."""

import errno
import functools
import itertools
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
import xarray
from jaxfl.engine.sweeps import driver, fit, store, worker
from jaxfl.engine.sweeps.plan import Chunk
from jaxfl.engine.sweeps.sweep import sweep
from rows import a_problem
from test_sweeps_durable import Killed, computed, near, written
from told import mistakes, refused

import jaxfl
from jaxfl.core.errors import JaxflWarning
from jaxfl.engine.executors import processes
from jaxfl.engine.loop import work
from jaxfl.problems.facts import facts_of

GRID = {"lr": [0.05, 0.1, 0.2]}
NUMBERS = {"batch": 4, "clip": 2.0, "sigma": 0.05}
CHUNKS = 4
CHUNK = Chunk(0, (0,), (0,))


def job(executor: Any = None, **options: Any) -> xarray.Dataset:
    """Four chunks of three runs, of two programs."""
    usual: dict[str, Any] = {"rounds": 6, "eval_every": 2, "seeds": 2, "numbers": NUMBERS}
    problem = options.pop("problem", None) or a_problem()
    return sweep(
        options.pop("build", ["ldp_sgd", "cdp_sgd"]),
        GRID,
        problem,
        jax.random.key(0),
        **{**usual, "runs_at_once": 3, "executor": executor, **options},
    )


@functools.cache
def whole() -> xarray.Dataset:
    """What no executor computes; not a fixture, so that it is compiled as the others are."""
    return job()


class Later:
    """A future that does not call back, as those of submitit; its call is made when it is asked."""

    def __init__(self, call: Callable[[], Any], after: int) -> None:
        self.call, self.after = call, after
        self.cancelled = False

    def done(self) -> bool:
        self.after -= 1
        return self.after < 0

    def result(self) -> Any:
        return self.call()

    def cancel(self) -> None:
        self.cancelled = True


class Here:
    """Computes in this process; ``act(n, arguments)`` may change call n, or raise in its place."""

    def __init__(self, act: Callable[[int, list[Any]], Any] | None = None) -> None:
        self.act, self.calls, self.replies = act, 0, list[Any]()
        self.futures: list[Later] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Later:
        number, given = self.calls, list(arguments)
        self.calls += 1
        assert self.calls < 100, "chunks that never end"

        def call() -> Any:
            reply = self.act(number, given) if self.act is not None else None
            self.replies.append(reply or function(*given))
            return self.replies[-1]

        self.futures.append(Later(call, after=3 - number % 4))  # in the opposite order
        return self.futures[-1]


def lose(*numbers: int) -> Callable[[int, list[Any]], None]:
    def act(number: int, arguments: list[Any]) -> None:
        if number in numbers:
            raise ConnectionError("the worker was lost")

    return act


def test_lost_and_late_chunks_change_nothing() -> None:
    """In the opposite order, one of them lost twice, data and programs kept between chunks."""
    executor = Here(lose(0, 3, 4))
    ds = job(executor)
    assert executor.calls == CHUNKS + 3
    xarray.testing.assert_equal(ds, whole())
    kinds = [name for name in whole().attrs if name != "config"]
    assert [ds.attrs[name] for name in kinds] == [whole().attrs[name] for name in kinds]


@pytest.mark.once
def test_threads_may_share_a_process() -> None:
    with ThreadPoolExecutor(3) as executor:
        xarray.testing.assert_equal(job(executor), whole())


def test_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed loses its chunk, which another computes; Ctrl-C is the driver's."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # of the processes
    killed = []

    def kill(now: Any) -> None:
        if now.done and not killed:
            killed.append(True)
            for process in executor.running.values():
                os.kill(process.pid, signal.SIGKILL)

    short: dict[str, Any] = {"build": "ldp_sgd", "runs_at_once": 1}
    with processes(2) as executor:
        monkeypatch.setattr(executor, "most", 2, raising=False)  # the others come after the kill
        near(job(executor, progress=kill, out=tmp_path / "sweep", **short), job(**short))
        assert killed
        children = list(executor.running.values())
    assert all(child.poll() is not None for child in children)
    assert not Path(executor.folder.name).exists()


def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that each chunk of a worker needs."""
    needs: list[int] = []

    def noted(*arguments: Any) -> Any:
        needs.append(fit.fitted(*arguments).bytes)
        return fit.fitted(*arguments)

    monkeypatch.setattr(worker, "fitted", noted)
    return needs


def two(problem: Any, x: Any) -> Any:
    return x[:2]


# --- chunks that fail ----------------------------------------------------------------------------


def test_a_chunk_that_fails_is_reported_and_the_rest_saved(tmp_path: Path) -> None:
    def first(number: int, arguments: list[Any]) -> Any:
        task = arguments[2]
        return {"reason": "it is broken"} if task["program"] == task["chunk"][1][0] == 1 else None

    folder, executor = tmp_path / "sweep", Here(first)
    words = "^1 of 4 chunks failed 3 times, the first because of it is broken: the others are saved"
    refused(lambda: job(executor, out=folder), words)
    assert executor.calls == CHUNKS + 2
    before = written(folder)
    assert len(before) == CHUNKS - 1
    complete = jaxfl.load(folder / "result.nc")["complete"]
    assert complete.sum() == whole()["complete"].sum() - 3
    with pytest.warns(JaxflWarning, match="failed 3 times, .*: their runs are missing"):
        ds = job(Here(first))
    xarray.testing.assert_equal(ds["complete"], complete)
    again = Here()
    xarray.testing.assert_equal(job(again, out=folder, resume=True), whole())
    assert again.calls == 1
    assert before.items() < written(folder).items()
    xarray.testing.assert_equal(job(out=folder, resume=True), whole())  # with none


@pytest.mark.once
def test_all_fail(tmp_path: Path) -> None:
    executor = Here(lambda number, arguments: {"reason": "no"})
    refused(lambda: job(executor, out=tmp_path / "sweep"), "^4 of 4 chunks failed 3 times")


@pytest.mark.once
def test_nothing_is_lost_where_a_sweep_must_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another release, no scheduler, a full disk, Ctrl-C: what has come is kept, the rest cancelled."""
    folder = tmp_path / "sweep"

    def other(number: int, arguments: list[Any]) -> None:
        if number == 2:
            arguments[0] = "jaxfl 0.0.1"

    monkeypatch.setattr(Here, "most", 1, raising=False)  # one after the other
    executor = Here(other)
    refused(
        lambda: job(executor, out=folder), "^A worker has jaxfl .*, and this process jaxfl .*same"
    )
    assert len(written(folder)) == 2
    assert executor.calls == 3

    class Gone(Here):
        def submit(self, *arguments: Any) -> Later:
            if self.calls == 1:
                raise OSError("no route\nto host")
            return super().submit(*arguments)

    words = "^The executor takes no more chunks .OSError: no route.: finished chunks are kept"
    refused(lambda: job(Gone(), out=folder, resume=True), words)
    assert len(written(folder)) == 3

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(lambda: job(Here(), out=folder, resume=True), "No space left on device")
    before = written(folder)
    assert len(before) == 3
    xarray.testing.assert_equal(job(Here(), out=folder, resume=True), whole())
    assert before.items() <= written(folder).items()


@pytest.mark.once
def test_an_interrupt_cancels_what_is_queued(tmp_path: Path) -> None:
    def stop(now: Any) -> None:
        if now.done:
            raise KeyboardInterrupt

    executor = Here()
    with pytest.raises(KeyboardInterrupt):
        job(executor, out=tmp_path / "sweep", progress=stop)
    assert [future.cancelled for future in executor.futures] == [True] * 3 + [False]
    assert len(written(tmp_path / "sweep")) == 1


# --- long chunks ---------------------------------------------------------------------------------


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rounds that are computed, in this process; workers return after each two of the six."""
    monkeypatch.setattr(driver, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(driver, "SHARE", 1e9)
    return computed(monkeypatch)


TURNS = 4 * CHUNKS  # two rounds, two, two, and the end


def test_a_lost_worker_costs_a_turn(turns: list[int], tmp_path: Path) -> None:
    """Each turn is lost twice once it is computed: its rounds are computed again, and no others."""

    def lost(number: int, arguments: list[Any]) -> None:
        if arguments[1] < 2:
            worker.chunk(*arguments)
            raise ConnectionError("the worker was lost")

    expected = job()
    turns.clear()
    executor = Here(lost)
    xarray.testing.assert_equal(job(executor, out=tmp_path / "sweep"), expected)
    assert executor.calls == 3 * TURNS
    assert sorted(turns) == sorted(3 * CHUNKS * [*range(6)])
    assert sorted(written(tmp_path / "sweep")) == [f"chunk-{i:05d}.npz" for i in range(CHUNKS)]


def test_an_unfinished_chunk_continues_anywhere(
    turns: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun here or by workers, and ended there or here."""

    def stop(number: int, arguments: list[Any]) -> None:
        if number == 6:
            raise KeyboardInterrupt

    def save(self: store.Store, *given: Any) -> None:
        honest(self, *given)
        raise Killed

    expected, honest = job(), store.Store.save
    for begun, ended in ((Here(stop), None), (None, Here()), (Here(stop), Here())):
        folder = tmp_path / f"{begun is None}-{ended is None}"
        turns.clear()
        with monkeypatch.context() as patch:
            patch.setattr(store.Store, "save", save)
            with pytest.raises((KeyboardInterrupt, Killed)):
                job(begun, out=folder)
        assert list((folder / "chunks").glob("*.checkpoint.npz"))
        xarray.testing.assert_equal(job(ended, out=folder, resume=True), expected)
        assert sorted(turns) == sorted(CHUNKS * [*range(6)])
        assert sorted(path.name for path in (folder / "chunks").glob("chunk-*")) == sorted(
            written(folder)
        )


def test_pieces_of_a_chunk_that_has_begun(
    turns: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes its runs from the checkpoint, on a worker with less memory, and has none itself."""
    needs = watched(monkeypatch)

    def stop(number: int, arguments: list[Any]) -> None:
        if number == 2:
            raise KeyboardInterrupt

    def less(number: int, arguments: list[Any]) -> None:
        arguments[2] = {**arguments[2], "memory": needs[0] - 1}

    one: dict[str, Any] = {"build": "ldp_sgd", "runs_at_once": 6}
    expected = job(**one)
    turns.clear()
    with pytest.raises(KeyboardInterrupt):
        job(Here(stop), out=tmp_path / "sweep", **one)
    executor = Here(less)
    near(job(executor, out=tmp_path / "sweep", resume=True, **one), expected)
    assert [reply["shape"] for reply in executor.replies] == [(2, 2)]
    assert turns == [*range(4), 4, 5, 4, 5]


@pytest.mark.once
def test_a_full_disk_ends_no_long_chunk(
    turns: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: store.Store, *given: Any) -> None:
        raise jaxfl.InputError("Cannot write it", "No space left on device")

    monkeypatch.setattr(store.Store, "keep_bytes", full)
    monkeypatch.setattr(Here, "most", 1, raising=False)
    expected, executor = job(), Here()
    turns.clear()
    with pytest.warns(JaxflWarning, match="No space left on device"):
        xarray.testing.assert_equal(job(executor, out=tmp_path / "sweep"), expected)
    assert executor.calls == CHUNKS + 1
    assert turns == CHUNKS * [*range(6)]


@pytest.mark.once
@pytest.mark.parametrize(
    ("began", "size", "after"), [(1.0, 1, 120.0), (30.0, 1, 600.0), (2.0, 10**9, 440.0)]
)
def test_turns_take_little_time(
    began: float, size: int, after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two minutes, or twenty times what it takes to begin and to send the state twice."""
    now = [began]
    monkeypatch.setattr(worker.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(worker.engine, "blank", lambda run: None)
    task = {"owner": "", "checkpoint": None, "pause": (driver.SAVE_EVERY, driver.SHARE)}
    turn, state = worker.Turn(CHUNK, task, 0.0), jax.ShapeDtypeStruct((size,), "int8")
    turn.begin(0, Any, CHUNK, SimpleNamespace(shardings=(None, None), state=state))
    now[0] = began + after - 1
    assert not turn.due()
    now[0] += 2
    with pytest.raises(worker.Paused):
        turn.due()


# --- memory, time and settings -------------------------------------------------------------------


def test_a_worker_with_less_memory_computes_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second call has a byte too little for its chunk, or a byte for everything."""
    needs = watched(monkeypatch)
    job(Here())

    def less(number: int, arguments: list[Any]) -> None:
        arguments[2] = {**arguments[2], "memory": min(needs) - 1 if number % 2 else 10**9}

    executor = Here(less)
    near(job(executor), whole())
    assert {reply["shape"] for reply in executor.replies} == {(1, 3), (1, 2)}
    words = "failed 3 times, the first because of One run of .* needs .* bytes and 1 are available"
    refused(lambda: job(Here(), memory=1, out=tmp_path / "sweep"), words)


def test_a_device_that_is_full_while_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler promised did not hold: the chunk is computed in pieces all the same."""
    honest, shapes = worker.compute, []

    def full(*arguments: Any) -> Any:
        shapes.append(arguments[3].shape)
        if len(shapes) == 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return honest(*arguments)

    monkeypatch.setattr(worker, "compute", full)
    near(job(Here()), whole())
    assert shapes[:4] == [(1, 3), (1, 3), (1, 2), (1, 2)]


@pytest.mark.once
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_shapes_are_halved_to_the_least(parts: int) -> None:
    for tall, wide in itertools.product(range(1, 13), repeat=2):
        if tall % parts and wide % parts:
            continue
        shapes = [(tall, wide)]
        while (smaller := fit.halved(shapes[-1], parts)) != shapes[-1]:
            assert math.prod(smaller) < math.prod(shapes[-1])
            assert smaller[0] % parts == 0 or smaller[1] % parts == 0
            shapes.append(smaller)
        assert math.prod(shapes[-1]) == parts


@pytest.mark.once
def test_chunks_are_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is timed first, for which a round of a run takes a second; then nothing is computed."""
    problem = a_problem()
    each = work(problem, {"batch": 4.0}, facts_of(problem, 6)).round
    monkeypatch.setattr(sys.modules[sweep.__module__], "LARGE", 0)

    class Timed(Here):
        def submit(self, function: Any, *arguments: Any) -> Later:
            seeds, cells = arguments[2]["chunk"]
            sizes.append(len(seeds) * len(cells))
            timed = {"pace": ("cpu", 1, 10**9, 1 / each, 0.0, 1.0)}
            reply = timed if arguments[2].get("time") else {"mistake": "enough"}
            return Later(lambda: reply, 0)

    for seconds, expected in ((5, [1] * 12), (13, [1] * 4 + [2] * 4), (1e6, [6, 6])):
        sizes: list[int] = []
        long: dict[str, Any] = {"chunk_seconds": seconds, "runs_at_once": None}
        refused(lambda: job(Timed(), problem=problem, **long), "enough")
        assert sorted(sizes[1:]) == expected


@pytest.mark.once
def test_time_is_measured_on_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    executor = Here()
    job(executor, announce=plans.append)
    assert plans[0].time() > 0
    assert "pace" in executor.replies[-1]


def test_settings_of_jax_travel() -> None:
    """They belong to threads; without them a worker would compute in single precision."""
    options: dict[str, Any] = {"runs_at_once": None, "rounds": 3}
    with jax.enable_x64(True), ThreadPoolExecutor(1) as executor:
        data = jaxfl.data.split("digits", clients=3)
        problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data, dtype="float64")
        expected = job(problem=problem, **options)
        xarray.testing.assert_equal(job(executor, problem=problem, **options), expected)


def test_generated_samples_travel() -> None:
    """A closure, and the random key that all samples come from."""
    scale = 2.0

    def make(key: Any, i: Any, j: Any) -> Any:
        drawn = jax.random.fold_in(jax.random.fold_in(key, i), j)
        features = scale * jax.random.normal(drawn, (4,))
        return features, (features[0] > 0).astype("int32")

    data = jaxfl.data.generated(make, clients=3, samples=8, source=jax.random.key(0), classes=2)
    problem = jaxfl.make_problem(jaxfl.models.logistic(4), data)
    options: dict[str, Any] = {"problem": problem, "rounds": 3}
    xarray.testing.assert_equal(job(Here(), **options), job(**options))


LOCK = threading.Lock()


@pytest.mark.once
@mistakes(
    (lambda: job(object()), "executor = .* must be an executor, or the text"),
    (lambda: job("proceses:2"), "There is no executor 'proceses': did you mean 'processes'"),
    (lambda: job("processes"), "processes:4"),
    (lambda: job("processes:no"), "processes:4"),
    (lambda: job("processes:0"), "processes = 0 must be at least 1 and at most 1024"),
    (lambda: job("processes:-1"), "processes = -1 must be at least 1"),
    (lambda: job("processes:1000000"), "processes = 1000000 must be .* at most 1024"),
    (lambda: job("processes:" + "9" * 5000), "has no number of processes"),
    (lambda: job(chunk_seconds=5), "chunk_seconds = 5 is for the workers of an executor"),
    (lambda: job(Here(), chunk_seconds=0), "chunk_seconds = 0 must be above 0"),
    (lambda: job(Here(), devices=jax.devices()), "executor = .* and devices = .* are both given"),
    (lambda: job(Here(), metrics={"a": lambda p, x: (LOCK, x[0])[1]}), "cannot be sent to workers"),
    (lambda: job(Here(), metrics={"two": two}), "^The metric 'two' has shape .2,.: a sweep keeps"),
)
def test_mistakes(call: Callable[[], Any], words: str) -> None:
    refused(call, words)
