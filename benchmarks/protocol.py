"""Contenders in processes of their own: one line asks, one line answers.  Standard library only.

The driver writes ``{"name": ..., "rounds": k}``.  With k = 0 the worker prepares that contender and
runs one round; otherwise it runs k rounds to their end.  It answers with seconds, the highest
memory of its process meanwhile, and whether the model is finite; or with the reason why not.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Failed", "Made", "Worker", "serve"]

# rounds -> some number of the model, after they are done; or it and the seconds that count
Run = Callable[[int], Any]
Made = Any  # a Run, or (Run, facts to be reported)


class Failed(Exception):
    """A contender that cannot run, and why."""


# --- the worker's side ---------------------------------------------------------------------------


def serve(makers: Mapping[str, Callable[[], Made]], versions: Mapping[str, str]) -> None:
    """Answer until there is no more to read."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    _write(answers, {"names": list(makers), "versions": dict(versions)})
    ready: dict[str, Run] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        name, rounds = asked["name"], int(asked["rounds"])
        try:
            _write(answers, _answer(makers, ready, name, rounds))
        except Exception as error:
            words = str(error).strip().splitlines() or [""]
            _write(answers, {"failed": f"{type(error).__name__}: {words[0][:200]}"})


def _answer(
    makers: Mapping[str, Callable[[], Made]],
    ready: dict[str, Run],
    name: str,
    rounds: int,
) -> dict[str, Any]:
    _forget_peak()
    told: dict[str, Any] = {}
    began = time.perf_counter()
    if rounds == 0:
        made = makers[name]()
        ready[name], told = made if isinstance(made, tuple) else (made, {})
        set_up = time.perf_counter()
        value = ready[name](1)
        told = {**told, "setup_s": set_up - began, "first_round_s": time.perf_counter() - set_up}
    else:
        value = ready[name](rounds)
        told["seconds"] = time.perf_counter() - began
    if isinstance(value, tuple):
        value, told["seconds"] = value
    if not math.isfinite(value):
        raise FloatingPointError("the model is not finite")
    return {**told, "peak_mib": _peak_mib()}


def _write(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mib() -> float:
    """Highest resident memory since :func:`_forget_peak`, children (such as Ray's) included."""
    parents, peaks = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = (folder / "status").read_text().splitlines()
            rows = dict(line.split(":", 1) for line in lines if ":" in line)
            parents[int(folder.name)] = int(rows["PPid"])
            peaks[int(folder.name)] = int(rows.get("VmHWM", "0 kB").split()[0])
    mine, total = {os.getpid()}, 0
    while mine:
        total += sum(peaks.get(pid, 0) for pid in mine)
        mine = {pid for pid, parent in parents.items() if parent in mine}
    return total / 1024


# --- the driver's side ---------------------------------------------------------------------------


class Worker:
    """A process that serves."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        except OSError as error:
            self.log.close()
            raise Failed(f"its interpreter does not start: {error.strerror}") from None
        self.lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            hello = self._answer(120.0)
        except Failed:
            self.close()
            raise
        self.names: list[str] = hello["names"]
        self.versions: dict[str, str] = hello["versions"]

    def ask(self, name: str, rounds: int, timeout: float = 120.0) -> dict[str, Any]:
        try:
            self.process.stdin.write(json.dumps({"name": name, "rounds": rounds}) + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            raise Failed("its process has ended") from None
        return self._answer(timeout)

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def _answer(self, timeout: float) -> dict[str, Any]:
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            raise Failed(f"no answer within {timeout:.0f} s") from None
        if not line:
            self.log.seek(0)
            last = [words for words in self.log.read().splitlines() if words.strip()]
            raise Failed(last[-1].strip()[:200] if last else "its process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise Failed(answer["failed"])
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.reader.join(timeout=3)
        self.process.stdout.close()
        self.log.close()
