"""What computes the chunks of a sweep elsewhere: local processes, Ray, Dask and SLURM.

Each is an executor: ``submit(function, *arguments)`` returns a future (:mod:`jaxfl.engine.driver`).

>>> with processes(2) as executor:
...     executor.submit(sum, [1, 2]).result()
3
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import jax

from jaxfl.core.checks import imported
from jaxfl.core.errors import InputError, one_line, require
from jaxfl.core.files import writable
from jaxfl.core.params import closest, whole
from jaxfl.engine import worker

__all__ = ["dask", "opened", "processes", "ray", "read", "serve", "slurm"]

WRITTEN = {
    "processes": "processes:4",
    "ray": "ray, or ray://HOST:PORT",
    "dask": "dask://HOST:PORT",
    "slurm": "slurm",
}
MANY = 1024  # processes of one machine
PATIENCE = 20  # seconds that a scheduler has to answer
SECONDS = 0.2  # between looks at what a cluster does
STARTS = 5  # actors in a row that do not start, for which a chunk counts as tried


def opened(executor: Any) -> contextlib.AbstractContextManager[Any]:
    """An executor by its text, closed at the end; any other stays as it is."""
    if isinstance(executor, str):
        return read(executor)
    usable = callable(getattr(executor, "submit", None))
    require(
        usable, "must be an executor, or the text of one, as in 'processes:4'", executor=executor
    )
    return contextlib.nullcontext(executor)


def read(
    text: str, options: Mapping[str, Any] | None = None
) -> contextlib.AbstractContextManager[Any]:
    """The executor that a text names, as `--on` takes it; ``options`` are those of jobs of SLURM."""
    kind, colon, rest = text.partition(":")
    require(kind in WRITTEN, closest("executor", kind, WRITTEN))
    form = f"write it as {WRITTEN[kind]}"
    if kind == "processes":
        number = re.fullmatch(r"[+-]?[0-9]{1,99}", rest)
        require(number, "has no number of processes", form, executor=text)
        return processes(int(rest))
    if kind == "slurm":
        require(not colon, "is more than a name", form, executor=text)
        return slurm(**(options or {}))
    address = re.fullmatch(r"//[^/\s]+:\d+", rest) or (kind == "ray" and not colon)
    require(address, "has no address", form, executor=text)
    return ray(text if colon else "auto") if kind == "ray" else dask(f"tcp:{rest}")


def _imported(name: str, extra: str) -> Any:
    """A package that only this executor needs."""
    return imported(name, extra, f"The executor {extra}")


def _unreachable(what: str, error: Exception, remedy: str) -> InputError:
    return InputError(f"{what} cannot be reached ({one_line(error)})", remedy)


class Shared:
    """Brings bytes to workers by files, in a folder that lasts as long as the executor."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="jaxfl-", dir=folder)

    def share(self, data: bytes) -> Callable[[], bytes]:
        handle, name = tempfile.mkstemp(dir=self.folder.name)
        with open(handle, "wb") as file:
            file.write(data)
        return functools.partial(Path.read_bytes, Path(name))


# --- processes of this machine -------------------------------------------------------------------

CHILD = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from jaxfl.engine.executors import serve
serve()
"""
# Settings of this process that processes of the same machine share, beside their environment.
LOCAL = (
    "jax_platforms",
    "jax_enable_compilation_cache",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


class processes(Shared):
    """``count`` processes of this machine.  One that dies loses its own chunk, and is replaced."""

    def __init__(self, count: int) -> None:
        count = whole("processes", count, 1, MANY)
        super().__init__()
        self.waiting = queue.LifoQueue[Any]()  # chunks that have begun end before others begin
        self.running: dict[threading.Thread, subprocess.Popen[bytes]] = {}
        settings = {name: jax.config.values[name] for name in LOCAL}
        self.start = [sys.path, (settings, 1 / count)]
        self.closed = False
        self.threads = [threading.Thread(target=self._pull, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        # pickled twice: what a process cannot unpickle ends one call, and not the process
        self.waiting.put((future, pickle.dumps(cloudpickle.dumps((function, arguments)))))
        return future

    def __enter__(self) -> processes:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True
        for _ in self.threads:
            self.waiting.put(None)
        for process in list(self.running.values()):
            process.kill()
        for thread in self.threads:
            thread.join()
        self.folder.cleanup()

    def _pull(self) -> None:
        """Have one process at a time compute what waits."""
        process: subprocess.Popen[bytes] | None = None
        while (item := self.waiting.get()) is not None and not self.closed:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            process = process or self._begun()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(call)
                process.stdin.flush()
                done, found = pickle.load(process.stdout)
            except Exception:
                future.set_exception(RuntimeError(f"its process ended with {_ended(process)}"))
                process = None
            else:
                (future.set_result if done else future.set_exception)(found)
        if process is not None:
            _ended(process)

    def _begun(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        # of a session of its own, so that Ctrl-C reaches the driver alone
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe, start_new_session=True
        )
        self.running[threading.current_thread()] = process
        if self.closed:
            process.kill()
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: the first call says so
            for part in self.start:
                pickle.dump(part, process.stdin)
            process.stdin.flush()
        return process


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The status of a process that is ended for good."""
    status = process.poll()
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):  # of what it did not read any more
            pipe.close()
    killed = process.wait()
    return killed if status is None else status


def serve() -> NoReturn:
    """Compute what arrives on standard input, in a process of :class:`processes`, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what calls print does not mix with results
    settings, share = pickle.load(sys.stdin.buffer)
    for name, value in settings.items():
        jax.config.update(name, value)
    worker.use_share(share)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    while True:
        try:
            function, arguments = pickle.loads(calls.get())
            reply = True, function(*arguments)
        except Exception as error:
            reply = False, error
        results.write(cloudpickle.dumps(reply))
        results.flush()


def _listen(calls: queue.SimpleQueue[Any]) -> None:
    while True:
        try:
            calls.put(pickle.load(sys.stdin.buffer))
        except EOFError:  # whoever wanted the results is gone
            os._exit(1)


# --- other packages ------------------------------------------------------------------------------


class dask:
    """The workers of the Dask scheduler at ``address``, such as ``"tcp://10.0.0.1:8786"``."""

    def __init__(self, address: str) -> None:
        distributed = _imported("distributed", "dask")
        _imported("dask", "dask").config.set(
            {"distributed.admin.large-graph-warning-threshold": "1TiB"}
        )
        self.calls = 0
        try:
            self.client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            way = "start one with `dask scheduler`"
            raise _unreachable(f"The scheduler of Dask at {address}", error, way) from None

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        if self.client.status != "running":
            raise ConnectionError("the scheduler of Dask has ended")
        self.calls += (
            1  # the last one first, so that chunks that have begun end before others begin
        )
        return self.client.submit(function, *arguments, pure=False, priority=self.calls)

    def share(self, data: bytes) -> Any:
        """The result of a task: the scheduler keeps the task, and makes what a lost worker had again."""
        return self.submit(functools.partial, bytes, data)

    def __enter__(self) -> dask:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()


JOB = {"job_name": "jaxfl", "time": 60}  # options of a job that are not given; minutes


class slurm(Shared):
    """One job for each chunk, by submitit, which keeps its files in ``folder``, on a shared disk.

    ``options`` are those of `sbatch`: ``slurm(partition="gpu", gres="gpu:1", time=60)``.
    """

    most = 100  # jobs in the queue
    pauses = False  # since each job waits in it

    def __init__(
        self, folder: str | Path = "jaxfl-slurm", cluster: str = "slurm", **options: Any
    ) -> None:
        submitit = _imported("submitit", "slurm")
        place = Path(folder).absolute()
        writable(place / "job", "job")
        known = submitit.SlurmExecutor._valid_parameters()
        given = {name.replace("-", "_"): value for name, value in {**JOB, **options}.items()}
        more = {name: given.pop(name) for name in given.keys() - known}
        given |= {"additional_parameters": more} if more else {}
        try:
            self.executor = submitit.AutoExecutor(place / "%j", cluster=cluster)
            self.executor.update_parameters(**{f"slurm_{n}": value for n, value in given.items()})
        except Exception as error:
            raise _unreachable("SLURM", error, "run this where `sbatch` is installed") from None
        super().__init__(place)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        return self.executor.submit(function, *arguments)

    def __enter__(self) -> slurm:
        return self

    def __exit__(self, *error: object) -> None:
        self.folder.cleanup()


class ray:
    """The cluster of Ray at ``address``: one long-lived actor for each GPU or TPU, or for ``cpus`` CPUs.

    An actor is added whenever chunks wait and the cluster has room; one that dies is replaced alike, so
    that new workers are used as those that return.
    """

    def __init__(self, address: str = "auto", cpus: int = 4) -> None:
        self.ray = _imported("ray", "ray")
        self.own = not self.ray.is_initialized()
        try:
            if self.own:
                _answers(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
                self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            # what Ray says of lost nodes would be printed on standard output
            logs: Any = importlib.import_module("ray._private.worker")
            logs._worker_logs_enabled = False
            nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        except Exception as error:
            way = "start one with `ray start --head`"
            raise _unreachable(f"The cluster of Ray at {address}", error, way) from None
        kinds = [kind for kind in ("GPU", "TPU") if any(node.get(kind) for node in nodes)]
        cpus = int(min([cpus, *(node["CPU"] for node in nodes if node.get("CPU"))]))
        needs: dict[str, Any] = {"resources": {"TPU": 1}} if "TPU" in kinds else {"num_cpus": cpus}
        needs = {"num_gpus": 1} if "GPU" in kinds else needs
        self.kind = self.ray.remote(max_restarts=0, **needs)(_Actor)
        self.cpus = None if kinds else cpus
        self.waiting = queue.LifoQueue[Any]()  # chunks that have begun end before others begin
        self.ended: Exception | None = None
        self.lost = 0  # actors in a row that did not start
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        if self.ended is not None:
            raise self.ended
        future: Future[Any] = Future()
        self.waiting.put((future, function, arguments))
        return future

    def share(self, data: bytes) -> Any:
        return self.ray.put(functools.partial(bytes, data))

    def __enter__(self) -> ray:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed.set()
        self.thread.join()
        if self.own:
            self.ray.shutdown()

    def _watch(self) -> None:
        """Give what waits to actors, until this executor is closed or the cluster is lost."""
        idle: list[Any] = []
        begun: dict[Any, Any] = {}  # actors that are not ready, at most one
        busy: dict[Any, tuple[Any, Future[Any]]] = {}
        try:
            while not self.closed.is_set():
                while idle and not self.waiting.empty():
                    future, function, arguments = self.waiting.get()
                    if future.set_running_or_notify_cancel():
                        actor = idle.pop()
                        busy[actor.call.remote(function, *arguments)] = actor, future
                if not self.waiting.empty() and not begun:
                    actor = self.kind.remote(self.cpus)
                    begun[actor.ready.remote()] = actor
                references = [*begun, *busy]
                if not references:
                    time.sleep(SECONDS)
                    continue
                for reference in self.ray.wait(references, num_returns=1, timeout=SECONDS)[0]:
                    self._end(reference, idle, begun, busy)
        except Exception as error:
            self.ended = error
        for actor in [*idle, *begun.values(), *(actor for actor, _ in busy.values())]:
            with contextlib.suppress(Exception):
                self.ray.kill(actor)
        for _, future in busy.values():
            future.set_exception(self.ended or RuntimeError("the executor is closed"))

    def _end(self, reference: Any, idle: list[Any], begun: Any, busy: Any) -> None:
        """Take the result of a call, or the end of its actor."""
        actor, future = (begun.pop(reference), None) if reference in begun else busy.pop(reference)
        try:
            found = self.ray.get(reference)
        except Exception as error:
            with contextlib.suppress(Exception):
                self.ray.kill(actor)
            if future is None:  # it did not start: a node may be leaving
                self.lost += 1
                time.sleep(SECONDS)
            if future is None and self.lost % STARTS == 0 and not self.waiting.empty():
                # or it would try for ever
                future = self.waiting.get()[0]
                future = future if future.set_running_or_notify_cancel() else None
            if future is not None:
                future.set_exception(error)
        else:
            idle.append(actor)
            self.lost = 0
            if future is not None:
                future.set_result(found)


def _answers(address: str) -> None:
    """Raise unless something listens there: Ray itself waits for minutes."""
    if found := re.fullmatch(r"(?:ray://)?\[?([^/\]]+)\]?:(\d+)", address):
        socket.create_connection((found[1], int(found[2])), PATIENCE).close()


class _Actor:
    """Computes chunks in a process of Ray."""

    def __init__(self, cpus: int | None) -> None:
        if cpus is not None:
            worker.use_share(min(1.0, cpus / (os.cpu_count() or cpus)))

    def ready(self) -> None:
        """Answer once the actor runs."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)
