"""Chunks that executors compute: those here, which lose them, and processes."""

import functools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from calls import Calls
from rows import a_problem
from test_durable import Killed, near, written
from told import mistakes, refused

import jaxfl
from jaxfl.core.errors import JaxflWarning
from jaxfl.engine import compute, store, worker
from jaxfl.engine.checkpoint import Batch
from jaxfl.engine.compute import Ready, TooLarge
from jaxfl.engine.executors import processes
from jaxfl.engine.log import Log
from jaxfl.engine.plan import Chunk
from jaxfl.engine.worker import Turn

CHUNKS = 4
ROUNDS = 6
once = pytest.mark.once


def job(executor: Any = None, **options: Any) -> xarray.Dataset:
    """Four chunks of two runs."""
    usual: dict[str, Any] = {"algorithm": "ldp_sgd", "problem": a_problem(), "rounds": ROUNDS}
    usual |= {"eval_every": 2, "seeds": 2, "lr": [0.05, 0.1, 0.2, 0.3], "runs_at_once": 2}
    usual |= {"batch": 4, "clip": 2.0, "sigma": 0.05}
    given = {**usual, "executor": executor, **options}
    return jaxfl.sweep(**{name: value for name, value in given.items() if value is not None})


@functools.cache
def whole() -> xarray.Dataset:
    """Computed without an executor; not a fixture, so that it is compiled as the others are."""
    return job()


class Later:
    """A future whose call is made when its result is asked for."""

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

    def __init__(self, act: Callable[[int, list[Any]], Any] | None = None, most: int = 256) -> None:
        self.act, self.most, self.calls = act, most, 0
        self.replies: list[Any] = []
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


# --- the same result -----------------------------------------------------------------------------


def test_lost_and_late_chunks_change_nothing() -> None:
    """In the opposite order, some of them lost, data and programs kept between chunks."""
    executor = Here(lose(0, 3, 4))
    ds = job(executor)
    assert executor.calls == CHUNKS + 3
    xarray.testing.assert_equal(ds, whole())


@once
def test_a_run_is_computed_by_an_executor(tmp_path: Path) -> None:
    """With its final state, and it is extended in its folder."""

    def run(rounds: int = ROUNDS, executor: Any = None, **options: Any) -> jaxfl.Run:
        numbers = {"batch": 4, "clip": 2.0, "sigma": 0.05, "lr": 0.1, "eval_every": 2}
        return jaxfl.simulate(
            "ldp_sgd", a_problem(), rounds=rounds, executor=executor, **numbers, **options
        )

    for expected, found in (
        (run(), run(executor=Here(), out=tmp_path)),
        (run(10), run(10, Here(), out=tmp_path, extend=True)),
    ):
        assert (found.x == expected.x).all()
        xarray.testing.assert_equal(found.dataset()["loss"], expected.dataset()["loss"])


def test_settings_of_jax_travel() -> None:
    """They belong to threads; with a closure, and the random key that all samples come from."""
    scale = 2.0

    def make(key: Any, i: Any, j: Any) -> Any:
        drawn = jax.random.fold_in(jax.random.fold_in(key, i), j)
        return scale * jax.random.normal(drawn, (2,)), j % 2

    with jax.enable_x64(True), ThreadPoolExecutor(1) as executor:
        data = jaxfl.data.generated(make, clients=2, samples=2, source=jax.random.key(0), classes=2)
        problem = jaxfl.Problem(jaxfl.models.logistic(2), data, np.zeros(2), dtype="float64")
        given: dict[str, Any] = {"algorithm": "fedgd", "problem": problem, "lr": 0.1, "seeds": 1}
        given |= {"rounds": 1, "keep": ["x"], "batch": None, "sigma": None}
        found = job(executor, **given)
        assert found["x"].dtype == "float64"
        xarray.testing.assert_equal(found, job(**given))


# --- chunks that fail ----------------------------------------------------------------------------


def test_a_chunk_that_fails_is_reported_and_the_rest_saved(tmp_path: Path) -> None:
    def second(number: int, arguments: list[Any]) -> Any:
        return {"reason": "it is broken"} if arguments[1]["number"] == 1 else None

    folder, executor = tmp_path / "sweep", Here(second)
    words = "^1 of 4 chunks failed 3 times, the first because of it is broken: the others are saved"
    refused(lambda: job(executor, out=folder), words)
    assert executor.calls == CHUNKS + 2
    before = written(folder)
    assert len(before) == CHUNKS - 1
    complete = jaxfl.load(folder / "result.nc")["complete"]
    assert complete.sum() == whole()["complete"].sum() - 2
    with pytest.warns(JaxflWarning, match="failed 3 times, .*: their runs are missing"):
        ds = job(Here(second))
    xarray.testing.assert_equal(ds["complete"], complete)
    again = Here()
    xarray.testing.assert_equal(job(again, out=folder, resume=True), whole())
    assert again.calls == 1
    assert before.items() < written(folder).items()


@once
def test_damaged_messages_are_sent_again() -> None:
    """Content that arrives with another bit is refused by its digest, on a worker without it."""

    def damage(number: int, arguments: list[Any]) -> None:
        if number in (0, 2):
            worker._held.clear()
            data = arguments[3]()
            arguments[3] = lambda: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]

    executor = Here(damage)
    xarray.testing.assert_equal(job(executor), whole())
    reasons = [reply["reason"] for reply in executor.replies if "reason" in reply]
    assert reasons == ["ValueError: what was sent to this worker arrived damaged"] * 2


@once
def test_nothing_is_lost_where_a_sweep_must_end(tmp_path: Path) -> None:
    """Another release, no scheduler, Ctrl-C: finished chunks are kept, and the rest is cancelled."""
    folder = tmp_path / "sweep"

    def other(number: int, arguments: list[Any]) -> None:
        if number == 1:
            arguments[0] = "jaxfl 0.0.1"

    words = "^A worker has jaxfl .*, and this process jaxfl .*same on all; finished chunks are kept"
    refused(lambda: job(Here(other, most=1), out=folder), words)
    assert len(written(folder)) == 1

    class Gone(Here):
        def submit(self, *arguments: Any) -> Later:
            if self.calls == 1:
                raise OSError("no route\nto host")
            return super().submit(*arguments)

    words = "^The executor takes no more chunks .OSError: no route.: finished chunks are kept"
    refused(lambda: job(Gone(), out=folder, resume=True), words)

    def stop(number: int, arguments: list[Any]) -> None:
        if number == 1:
            raise KeyboardInterrupt

    executor = Here(stop, most=2)
    with pytest.raises(KeyboardInterrupt):
        job(executor, out=folder, resume=True)
    assert [future.cancelled for future in executor.futures] == [True, False]
    before = written(folder)
    assert before
    xarray.testing.assert_equal(job(Here(), out=folder, resume=True), whole())
    assert before.items() < written(folder).items()


# --- long chunks ---------------------------------------------------------------------------------


ONE: dict[str, Any] = {"lr": 0.1, "runs_at_once": 1}  # two chunks
EVERY = [*range(ROUNDS)]


def test_a_lost_worker_costs_a_turn(calls: Calls, often: None, tmp_path: Path) -> None:
    """Each turn is lost twice once it is computed: its rounds are computed again, and no others."""

    def lost(number: int, arguments: list[Any]) -> None:
        if arguments[1]["attempt"] < 2:
            worker.chunk(*arguments)
            raise ConnectionError("the worker was lost")

    expected = job(**ONE)
    calls.clear()
    executor = Here(lost)
    xarray.testing.assert_equal(job(executor, out=tmp_path / "sweep", **ONE), expected)
    assert executor.calls == 3 * 2 * 4  # two rounds, two, two, and the end
    assert sorted(calls.rounds) == sorted(3 * 2 * EVERY)
    assert len(written(tmp_path / "sweep")) == 2


@once
def test_an_unfinished_chunk_continues_anywhere(
    calls: Calls, often: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun here or by workers, and ended there or here."""

    def stop(number: int, arguments: list[Any]) -> None:
        if number == 3:
            raise KeyboardInterrupt

    def save(self: store.Store, *given: Any) -> None:
        honest(self, *given)
        if self.folder is not None:  # workers keep it in memory
            raise Killed

    expected, honest = job(**ONE), store.Store.save
    for begun, ended in ((Here(stop), None), (None, Here()), (Here(stop), Here())):
        folder = tmp_path / f"{begun is None}-{ended is None}"
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(store.Store, "save", save)
            with pytest.raises((KeyboardInterrupt, Killed)):
                job(begun, out=folder, **ONE)
        assert list((folder / "chunks").glob("state-*"))
        assert not written(folder)
        xarray.testing.assert_equal(job(ended, out=folder, resume=True, **ONE), expected)
        assert sorted(calls.rounds) == sorted(2 * EVERY)


@once
def test_a_full_disk_ends_no_long_chunk(
    calls: Calls, often: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: store.Store, *given: Any) -> None:
        raise jaxfl.InputError("Cannot write it", "No space left on device")

    monkeypatch.setattr(store.Store, "save_content", full)
    expected, executor = job(**ONE), Here(most=1)
    calls.clear()
    with pytest.warns(JaxflWarning, match="No space left on device"):
        xarray.testing.assert_equal(job(executor, out=tmp_path / "sweep", **ONE), expected)
    assert executor.calls == 2 + 1
    assert sorted(calls.rounds) == sorted([0, 1, *EVERY, *EVERY])


CHUNK = Chunk(0, (0, 1), (0,), (1, 2), 0)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A worker's turn by a clock: it takes ``at`` seconds to begin, and is asked ``after`` others."""

    def ask(at: float, after: float, share: float, size: int = 1, t: int = 0, **task: Any) -> None:
        monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
        turn = worker.Turn({"chunk": CHUNK, "cadence": None, "seconds": 60.0, **task})
        monkeypatch.setattr(time, "perf_counter", lambda: at)
        turn.begin(0, t)
        monkeypatch.setattr(time, "perf_counter", lambda: at + after)
        batch: Any = SimpleNamespace(state=SimpleNamespace(nbytes=size))
        turn.ready(0, compute.Ready(50, share, 1.0, late=True), batch)

    return ask


@once
def test_turns_take_little_time(ready: Any) -> None:
    """Two minutes, or twenty times what it takes to begin and to send the state twice."""
    for at, size, after in ((1.0, 1, 120.0), (30.0, 1, 600.0), (2.0, 10**9, 440.0)):
        given = {"share": 0.5, "size": size, "cadence": (compute.SAVE_EVERY, compute.SHARE)}
        ready(at, after - 1, **given)
        with pytest.raises(worker.Paused):
            ready(at, after + 1, **given)


# --- memory and time -----------------------------------------------------------------------------


def test_a_worker_with_less_memory_has_chunks_halved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The halves are in the plan; runs that do not fit either are reported with their bytes."""
    honest = worker.Machine.compiled

    def compiled(self: Any, program: Any, chunk: Chunk) -> Any:
        if chunk.runs > 1:
            raise compute.TooLarge("it needs more")
        return honest(self, program, chunk)

    folder, executor = tmp_path / "sweep", Here()
    monkeypatch.setattr(worker.Machine, "compiled", compiled)
    near(job(executor, out=folder, lr=[0.05, 0.1]), job(lr=[0.05, 0.1], runs_at_once=1))
    lines = (folder / "planned.jsonl").read_text().splitlines()[1:]
    assert sum('"parent": null' in line for line in lines) == 2
    assert len(written(folder)) == 4
    assert executor.calls == 6
    monkeypatch.undo()
    words = "failed 3 times, the first because of One run of .* needs .* bytes and 1 are available"
    refused(lambda: job(Here(), memory=1, lr=0.1, seeds=1, out=tmp_path / "other"), words)


@once
def test_a_device_that_is_full_while_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, shapes = compute._computed, []

    def full(*arguments: Any) -> Any:
        shapes.append(arguments[0].run.shape)
        if len(shapes) == 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return honest(*arguments)

    expected = job(lr=[0.05, 0.1])
    monkeypatch.setattr(compute, "_computed", full)
    near(job(Here(), lr=[0.05, 0.1]), expected)
    assert sorted(shapes)[:3] == [(1, 1), (1, 1), shapes[1]]


@once
def test_chunks_are_as_long_as_asked(ready: Any) -> None:
    """A chunk that would take longer is halved early, unless it goes on from a checkpoint."""
    with pytest.raises(compute.TooLarge, match="100 s"):
        ready(0.0, 10.0, 0.1)
    ready(0.0, 7.0, 0.1)  # 70 s
    ready(0.0, 50.0, 0.5)  # it is half done
    ready(0.0, 10.0, 0.1, t=5)  # it goes on from a checkpoint
    ready(0.0, 10.0, 0.1, chunk=CHUNK._replace(cells=(0,), shape=(1, 1)))  # it has no halves


# --- processes -----------------------------------------------------------------------------------


@pytest.mark.full  # processes import JAX and compile
def test_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed loses its chunk, which another computes."""
    killed = []

    def kill(now: Any) -> None:
        if now.done and not killed:
            killed.append(True)
            for process in [*executor.running.values()]:
                os.kill(process.pid, signal.SIGKILL)

    with processes(2) as executor:
        near(job(executor, progress=kill, out=tmp_path / "sweep"), whole())
        assert killed
        children = list(executor.running.values())
    assert all(child.wait(10) is not None for child in children)
    assert not Path(executor.folder.name).exists()


def exits(status: int) -> None:
    os._exit(status)


def fails(text: str) -> None:
    raise LookupError(text)


def test_what_processes_return() -> None:
    """Results, exceptions, what was printed on the way, and the end of a process."""
    with processes(1) as executor:
        assert executor.submit(print, "printed").result() is None
        with pytest.raises(LookupError, match="no such"):
            executor.submit(fails, "no such").result()
        with pytest.raises(RuntimeError, match="its process ended with 3"):
            executor.submit(exits, 3).result()
        assert executor.submit(executor.share(b"shared")).result() == b"shared"
        (process,) = executor.running.values()
        assert os.getpgid(process.pid) == process.pid  # Ctrl-C does not reach it
        assert process.stdin is not None
        process.stdin.close()  # as when the driver is killed
        assert process.wait(20) == 1


@pytest.mark.full  # processes import JAX and compile
def test_a_pool_of_processes() -> None:
    """With processes that are started afresh; those of a fork would hang."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        near(job(executor), whole())  # compiled with other options


# --- mistakes ------------------------------------------------------------------------------------

LOCK = threading.Lock()
FORK = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))


def two(problem: Any, x: Any) -> Any:
    return x[:2]


@once
@pytest.mark.plain
@mistakes(
    (lambda: job(object()), "executor = .* must be an executor, or the text"),
    (lambda: job(FORK), r"mp_context=multiprocessing.get_context\('spawn'\)"),
    (lambda: job("proceses:2"), "There is no executor 'proceses': did you mean 'processes'"),
    (lambda: job("processes:no"), "processes:4"),
    (lambda: job(chunk_seconds=5), "chunk_seconds = 5 is for the workers of an executor"),
    (lambda: job(Here(), devices=jax.devices()), "executor = .* and devices = .* are both given"),
    (lambda: job(Here(), metrics={"a": lambda p, x: (LOCK, x[0])[1]}), "cannot be sent to workers"),
    (lambda: job(Here(), metrics={"two": two}), "^The metric 'two' has shape .2,."),
)
def test_mistakes(call: Callable[[], Any], words: str) -> None:
    refused(call, words)


def test_a_chunk_is_halved_by_what_it_has_computed() -> None:
    """The first report comes before a round of it has ended: it says nothing of the time that is left."""
    chunk = Chunk(0, (0, 1), (0, 1), (2, 2), 1)
    turn = Turn({"chunk": chunk, "seconds": 1.0, "cadence": None})
    turn.begin(0, 0)
    turn.last -= 10.0  # so many seconds have passed
    turn.ready(0, Ready(0, 0.0, np.inf, True), Batch((), Log(), np.array([])))
    with pytest.raises(TooLarge, match="1000 s"):
        turn.ready(0, Ready(1, 0.01, np.inf, True), Batch((), Log(), np.array([])))
