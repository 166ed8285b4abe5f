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


def _start(*words: str, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Cluster:
    """``on`` is the text of its executor; ``kill`` ends a worker as a lost machine does."""

    on: str
    nodes: list[Any]

    def add(self, **env: str) -> None:
        raise NotImplementedError

    def kill(self, i: int) -> None:
        _end(self.nodes.pop(i))

    def lose(self) -> None:
        """End the head."""
        raise NotImplementedError


class Dask(Cluster):
    def __init__(self, nodes: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.port = port()
        where = ["--host", HOST, "--port", str(self.port)]
        words = [sys.executable, "-m", "distributed.cli.dask_scheduler", *where, "--no-dashboard"]
        self.scheduler = _start(*words)
        self.on = f"dask://{HOST}:{self.port}"
        self.nodes = []
        for _ in range(nodes):
            self.add()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                break
            time.sleep(0.1)

    def add(self, **env: str) -> None:
        words = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", HOST]
        words += ["--local-directory", self.folder.name, f"tcp://{HOST}:{self.port}"]
        self.nodes.append(
            _start(sys.executable, "-m", "distributed.cli.dask_worker", *words, **env)
        )

    def lose(self) -> None:
        _end(self.scheduler)

    def stop(self) -> None:
        for process in [*self.nodes, self.scheduler]:
            _end(process)
        self.folder.cleanup()


class Ray(Cluster):
    """A head that computes nothing, and nodes of one CPU."""

    def __init__(self, nodes: int) -> None:
        from ray.cluster_utils import Cluster as Nodes

        self.own: dict[str, Any] = {"node_ip_address": HOST, "object_store_memory": 2**27}
        self.cluster = Nodes()
        self.cluster.add_node(num_cpus=0, **self.own)
        self.on = "ray"
        os.environ["RAY_ADDRESS"] = self.cluster.address
        self.nodes = []
        for _ in range(nodes):
            self.add()

    def add(self, **env: str) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=1, env_vars=env or None, **self.own))

    def kill(self, i: int) -> None:
        self.cluster.remove_node(self.nodes.pop(i), allow_graceful=False)

    def lose(self) -> None:
        self.cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill_all_processes(check_alive=False, allow_graceful=False)
        self.lose()
        del os.environ["RAY_ADDRESS"]


@contextlib.contextmanager
def cluster(kind: str, nodes: int) -> Iterator[Any]:
    """A cluster of Dask or Ray that has begun to answer."""
    made: Any = {"dask": Dask, "ray": Ray}[kind](nodes)
    try:
        yield made
    finally:
        made.stop()
