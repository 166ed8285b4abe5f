"""Executors, which compute chunks elsewhere: local processes, Ray, Dask and SLURM.

Each is an executor: ``submit(function, *arguments)`` returns a future (:mod:`jaxfl.engine.driver`).

>>> with processes(2) as executor:
...     executor.submit(sum, [1, 2]).result()
3
"""

from __future__ import annotations

import contextlib
import functools
import logging
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
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import jax

from jaxfl.core.checks import imported
from jaxfl.core.errors import InputError, one_line, require
from jaxfl.core.files import writable
from jaxfl.core.params import closest, whole

__all__ = ["dask", "opened", "processes", "ray", "read", "serve", "slurm"]

WRITTEN = {
    "processes": "processes:4",
    "ray": "ray, or ray://HOST:PORT",
    "dask": "dask://HOST:PORT",
    "slurm": "slurm",
}
MANY = 1024  # processes of one machine
PATIENCE = 20  # seconds that a scheduler has to answer
SECONDS = 0.5  # between looks at a cluster, at most
STARTS = 5  # actors in a row that do not start, for which a chunk counts as tried


def opened(executor: Any) -> contextlib.AbstractContextManager[Any]:
    """An executor by its text, closed at the end; any other stays as it is."""
    if isinstance(executor, str):
        return read(executor)
    usable = callable(getattr(executor, "submit", None))
    text = "must be an executor, or the text of one, as in 'processes:4'"
    require(usable, text, executor=executor)
    context = getattr(executor, "_mp_context", None)  # of a ProcessPoolExecutor
    require(
        context is None or context.get_start_method() != "fork",
        "would start processes by fork, which hang once JAX has begun",
        "make it with mp_context=multiprocessing.get_context('spawn')",
        executor=type(executor).__name__,
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


class _Shared(contextlib.ExitStack):
    """Brings bytes to workers by files, in a folder that lasts as long as the executor."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="jaxfl-", dir=folder)
        self.callback(self.folder.cleanup)

    def share(self, data: bytes) -> Callable[[], bytes]:
        handle, name = tempfile.mkstemp(dir=self.folder.name)
        with open(handle, "wb") as file:
            file.write(data)
        return functools.partial(Path.read_bytes, Path(name))


# --- processes of this machine -------------------------------------------------------------------

SERVE = "from jaxfl.engine.executors import serve; serve()"
# settings of JAX that processes of the same machine share
LOCAL = (
    "jax_platforms",
    "jax_enable_compilation_cache",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


class processes(_Shared):
    """``count`` processes of this machine.  One that dies loses its own chunk, and is replaced."""

    def __init__(self, count: int) -> None:
        # a thread for each process, which waits for its results
        self.threads = ThreadPoolExecutor(whole("processes", count, 1, MANY))
        super().__init__()
        self.most, self.cpus = 2 * count, (os.cpu_count() or 1) / count
        self.running: dict[int, subprocess.Popen[bytes]] = {}  # by thread
        self.closed = False
        self.callback(self._close)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        # pickled twice: what a process cannot unpickle ends one call, and not the process
        call = pickle.dumps(cloudpickle.dumps((function, arguments)))
        return self.threads.submit(self._call, call)

    def _close(self) -> None:
        self.closed = True
        for process in [*self.running.values()]:
            process.kill()
        self.threads.shutdown(cancel_futures=True)
        for process in self.running.values():
            _ended(process)

    def _call(self, call: bytes) -> Any:
        process = self.running.get(threading.get_ident()) or self._begun()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(call)
            process.stdin.flush()
            done, found = pickle.load(process.stdout)
        except Exception:
            del self.running[threading.get_ident()]
            raise RuntimeError(f"its process ended with {_ended(process)}") from None
        if not done:
            raise found
        return found

    def _begun(self) -> subprocess.Popen[bytes]:
        """A process of a session of its own: Ctrl-C reaches the driver alone."""
        known = {name.upper(): jax.config.values[name] for name in LOCAL}
        settings = {name: str(value) for name, value in known.items() if value is not None}
        env = {**os.environ, **settings, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
        words, pipe = [sys.executable, "-P", "-c", SERVE], subprocess.PIPE
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, env=env, start_new_session=True)
        self.running[threading.get_ident()] = process
        if self.closed:
            process.kill()
        return process


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The status of a process that is ended for good, with its pipes closed."""
    with contextlib.suppress(OSError), process:
        process.kill()
    return process.wait()


def serve() -> NoReturn:
    """Compute what arrives on standard input, in a process of :class:`processes`, until it is closed."""
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what calls print does not mix with results
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    while True:
        try:
            function, arguments = pickle.loads(calls.get())
            reply = True, function(*arguments)
        except Exception as error:
            reply = False, error
        try:
            results.write(cloudpickle.dumps(reply))
            results.flush()
        except BrokenPipeError:  # whoever wanted the results is gone
            os._exit(1)


def _listen(calls: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))
    finally:  # whoever wanted the results is gone
        os._exit(1)


# --- other packages ------------------------------------------------------------------------------


class dask(contextlib.ExitStack):
    """The workers of the Dask scheduler at ``address``, such as ``"tcp://10.0.0.1:8786"``."""

    def __init__(self, address: str) -> None:
        super().__init__()
        distributed = _imported("distributed", "dask")
        _imported("dask", "dask").config.set(
            {"distributed.admin.large-graph-warning-threshold": "1TiB"}
        )
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # tracebacks: see submit
        self.calls = 0
        try:
            self.client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            way = "start one with `dask scheduler`"
            raise _unreachable(f"The scheduler of Dask at {address}", error, way) from None
        self.callback(self.client.close)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        if self.client.status != "running":
            raise ConnectionError("the scheduler of Dask has ended")
        self.calls += 1  # the last one first: chunks that have begun end before others begin
        return self.client.submit(function, *arguments, pure=False, priority=self.calls)

    def share(self, data: bytes) -> Any:
        """The result of a task: the scheduler keeps the task, and makes what a lost worker had again."""
        return self.submit(functools.partial, bytes, data)


class slurm(_Shared):
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
        given = {name.replace("-", "_"): value for name, value in options.items()}
        name, minutes = given.pop("job_name", "jaxfl"), str(given.pop("time", 60))
        require(minutes.isdigit(), "must be a whole number of minutes", time=minutes)
        try:
            self.executor = submitit.AutoExecutor(place / "%j", cluster=cluster)
            self.executor.update_parameters(
                name=name, timeout_min=int(minutes), slurm_additional_parameters=given
            )
        except Exception as error:
            raise _unreachable("SLURM", error, "run this where `sbatch` is installed") from None
        super().__init__(place)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        return self.executor.submit(function, *arguments)


class ray(contextlib.ExitStack):
    """The cluster of Ray at ``address``: one long-lived actor for each GPU or TPU, or for ``cpus`` CPUs.

    An actor is added whenever chunks wait and the cluster has room.  One that dies is replaced alike:
    new workers are used as those that return.
    """

    def __init__(self, address: str = "auto", cpus: int = 4) -> None:
        super().__init__()
        self.ray = _imported("ray", "ray")
        self.own, before = not self.ray.is_initialized(), signal.getsignal(signal.SIGTERM)
        try:
            if self.own:
                _answers(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
                self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
                with contextlib.suppress(ValueError):  # only the main thread can
                    signal.signal(signal.SIGTERM, before)  # Ray's own prints frames of C++
            found = self.ray.get_runtime_context().gcs_address
            self.head = address if "://" in address else found
            nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        except Exception as error:
            way = "start one with `ray start --head`"
            raise _unreachable(f"The cluster of Ray at {address}", error, way) from None
        cpus = int(min([cpus, *(node["CPU"] for node in nodes if node.get("CPU"))]))
        kinds = [kind for kind in ("GPU", "TPU") if any(node.get(kind) for node in nodes)]
        needs: Any = {"resources": {"TPU": 1}} if "TPU" in kinds else {"num_cpus": cpus}
        needs = {"num_gpus": 1} if "GPU" in kinds else needs
        self.kind, self.cpus = self.ray.remote(**needs)(_Actor), None if kinds else cpus
        self.waiting: list[tuple[Future[Any], Any]] = []  # the last one is the first: see `dask`
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        self.callback(self._close)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, (function, *arguments)))
        if not self.thread.is_alive():
            raise ConnectionError("the cluster of Ray has ended")
        return future

    def share(self, data: bytes) -> Any:
        return self.ray.put(functools.partial(bytes, data))

    def _close(self) -> None:
        self.closed.set()
        self.thread.join()
        if self.own:
            self.ray.shutdown()

    def _watch(self) -> None:
        """Give what waits to actors, until this executor is closed or the cluster is lost."""
        idle: list[Any] = []
        busy: dict[Any, tuple[Any, Future[Any]]] = {}  # by reference
        first: Any = None  # the reference of the last actor's first call
        failed = 0  # actors in a row that did not start
        lost: Exception = RuntimeError("the executor is closed")
        try:
            while not self.closed.wait(0 if busy else SECONDS):
                if self.waiting and not idle and first not in busy:
                    actor = self.kind.remote()
                    first = actor.call.remote(int)
                    busy[first] = actor, Future()
                while self.waiting and idle:
                    (future, call), actor = self.waiting.pop(), idle.pop()
                    busy[actor.call.remote(*call)] = actor, future
                ended = self.ray.wait([*busy], timeout=SECONDS)[0] if busy else []
                if not ended:
                    _answers(self.head)
                for reference in ended:
                    actor, future = busy.pop(reference)
                    try:
                        _settle(future.set_result, self.ray.get(reference))
                        idle.append(actor)
                        failed = 0
                    except Exception as error:
                        _settle(future.set_exception, error)
                        failed += reference == first
                        if self.waiting and failed == STARTS:  # or it would try for ever
                            _settle(self.waiting.pop()[0].set_exception, error)
                            failed = 0
        except Exception as error:
            lost = error
        for future in (*(future for _, future in busy.values()), *(f for f, _ in self.waiting)):
            _settle(future.set_exception, lost)
        for actor, _ in busy.values():
            with contextlib.suppress(Exception):
                self.ray.kill(actor)


def _settle(way: Callable[[Any], None], found: Any) -> None:
    """Set what a future returns or raises, unless nobody waits for it any more."""
    with contextlib.suppress(InvalidStateError):
        way(found)


def _answers(address: str) -> None:
    """Raise unless something listens there: Ray itself waits for minutes."""
    if found := re.fullmatch(r"(?:ray://)?\[?([^/\]]+)\]?:(\d+)", address):
        socket.create_connection((found[1], int(found[2])), PATIENCE).close()


class _Actor:
    """Computes chunks in a process of Ray."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)
