"""An interrupt at any instant, and writers that meet: what is on disk is right, or what was there."""

import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
from rows import QUIET, a_problem

import jaxfl
from jaxfl.core.files import replace, writable
from jaxfl.core.interrupts import interrupts_deferred
from jaxfl.engine import compute

pytestmark = pytest.mark.once

NUMBERS = {**QUIET, "k": 3, "batch": 4}
WHERE = tuple(
    f"jaxfl/engine/{name}.py" for name in ("compute", "loop", "log", "store", "checkpoint")
)
WHERE += ("jaxfl/core/files.py",)


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Shells start what runs in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(call: Callable[[], Any], position: int) -> tuple[int, int]:
    """Raise at the line of that number, from the first of the loop over rounds on, or where signals
    are held back at the next line where they are not.  The lines there were, and the rounds done."""
    seen, loops, due, done = 0, False, position > 0, 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal seen, loops, due, done
        if not frame.f_code.co_filename.endswith(WHERE):
            return None
        if event == "line":
            if {"t", "end"} <= frame.f_locals.keys():  # of Loop.calls
                loops, done = True, frame.f_locals["t"]
            seen += loops
            free = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if due and loops and seen >= position and free:
                due = False
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen, done


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a file dropped before `with` has it
def test_an_interrupt_at_any_line_leaves_a_run_that_goes_on(key, tmp_path, monkeypatch):
    """Of 700 lines, every fifth of a turn of the loop and 6 of all: before a round is counted, while
    counts are added up, while they are written."""
    problem, folder = a_problem(), tmp_path / "run"
    given = {**NUMBERS, "eval_every": 3, "stop": dict(loss=0.0)}  # which is never reached
    monkeypatch.setattr(compute, "rounds_of_call", lambda work: 2)
    monkeypatch.setattr(compute, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(compute, "SHARE", math.inf)

    def run(**more: Any) -> jaxfl.Run:
        return jaxfl.simulate("soteriafl_sgd", problem, key, 13, **given, **more)

    full = run()
    lines, _ = interrupted(lambda: run(out=folder), 0)
    assert lines > 500
    turn = range(lines // 2, lines // 2 + 40, 5)
    for position in sorted({*turn, *np.linspace(1, lines, 6).astype(int)}):
        shutil.rmtree(folder)
        _, done = interrupted(lambda: run(out=folder), position)
        with np.load(folder / "chunks" / "state-00000.npz") as held:
            assert json.loads(held["about"].tobytes())["at"] >= done
        again = run(out=folder, resume=True)
        np.testing.assert_array_equal(again.x, full.x)
        assert again.log.counts == full.log.counts
        np.testing.assert_array_equal(again.rounds, full.rounds)
        np.testing.assert_array_equal(again.metrics["loss"], full.metrics["loss"])
        names = {file.name for file in folder.rglob("*") if not file.name.startswith(".")}
        assert names == {
            "planned.jsonl",
            "chunks",
            "chunk-00000.npz",
            "state-00000.npz",
            "result.nc",
        }


def test_signals_wait():
    """In the main thread; elsewhere nothing is held back."""
    done: list[Any] = []

    def lines() -> None:
        with interrupts_deferred():
            done.append(signal.getsignal(signal.SIGINT))
            if threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGINT)
                done.append("after")

    with pytest.raises(KeyboardInterrupt):
        lines()
    assert done.pop() == "after"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    thread = threading.Thread(target=lines)
    thread.start()
    thread.join()
    assert done[1] is signal.default_int_handler


def test_writers_do_not_meet(tmp_path):
    """Two of them and a reader, who sees one file or the other; nobody is refused."""
    file, size, failed = tmp_path / "file", 50_000, []

    def write(letter: bytes) -> None:
        try:
            for _ in range(60):
                writable(file, "file")
                replace(file, lambda held: held.write(letter * size))
        except Exception as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        if file.exists():
            content = file.read_bytes()
            assert content in (b"a" * size, b"b" * size)
        time.sleep(1e-3)  # else the reader keeps the interpreter to itself
    for writer in writers:
        writer.join()
    assert not failed
    assert [f.name for f in tmp_path.iterdir()] == ["file"]
    umask = os.umask(0)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    file = tmp_path / "file"
    replace(file, lambda held: held.write(b"old"))
    for error, told in ((KeyboardInterrupt, KeyboardInterrupt), (OSError, jaxfl.InputError)):

        def fail(held: Any, error: type[BaseException] = error) -> None:
            held.write(b"new")
            raise error

        with pytest.raises(told):
            replace(file, fail)
    with pytest.raises(FileExistsError):
        replace(file, lambda held: held.write(b"new"), new=True)
    assert file.read_bytes() == b"old"
    assert [f.name for f in tmp_path.iterdir()] == ["file"]
