"""Clusters of several nodes on this machine, bound to 127.0.0.1: their addresses, and nodes to kill."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

HOST = "127.0.0.1"
# read when ray is imported; without it Ray replaces 127.0.0.1 by another address of this machine
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


class Dask:
    """``on`` is the text of its executor; ``kill`` ends a worker as a lost machine does."""

    def __init__(self) -> None:
        self.folder, self.port = tempfile.TemporaryDirectory(), port()
        self.on = f"dask://{HOST}:{self.port}"
        self.scheduler = self.start("dask_scheduler", "--port", str(self.port))
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.add()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                break
            time.sleep(0.1)

    def start(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        words = (f"distributed.cli.{module}", "--host", HOST, "--no-dashboard", *words)
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self) -> None:
        words = ["--nthreads", "1", "--no-nanny", "--local-directory", self.folder.name]
        self.nodes.append(self.start("dask_worker", *words, f"tcp://{HOST}:{self.port}"))

    def kill(self, i: int) -> None:
        _end(self.nodes.pop(i))

    def stop(self) -> None:
        for process in [*self.nodes, self.scheduler]:
            _end(process)
        self.folder.cleanup()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Ray:
    """A head that computes nothing, and nodes of one CPU."""

    on = "ray"

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as Nodes

        self.own: dict[str, Any] = {"node_ip_address": HOST, "object_store_memory": 2**27}
        self.cluster = Nodes()
        self.cluster.add_node(num_cpus=0, **self.own)
        os.environ["RAY_ADDRESS"] = self.cluster.address
        self.nodes: list[Any] = []
        self.add()

    def add(self) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=1, **self.own))

    def kill(self, i: int) -> None:
        self.cluster.remove_node(self.nodes.pop(i), allow_graceful=False)

    def stop(self) -> None:
        for node in [*self.nodes, self.cluster.head_node]:
            node.kill_all_processes(check_alive=False, allow_graceful=False)
        del os.environ["RAY_ADDRESS"]


@contextlib.contextmanager
def cluster(kind: str) -> Iterator[Any]:
    """A cluster of Dask or Ray with one node that has begun to answer."""
    made: Any = {"dask": Dask, "ray": Ray}[kind]()
    try:
        yield made
    finally:
        made.stop()
