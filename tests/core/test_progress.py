"""Progress on a terminal, in a notebook and in a log."""

import io
import sys
import types
from typing import Any

import pytest
from rich.console import Console

from jaxfl.core import progress
from jaxfl.core.progress import Bar, amount, duration, watching

pytestmark = pytest.mark.once


def test_a_log_gets_ten_lines_and_quiet_none(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        with Bar("head", quiet=quiet) as bar:
            bar.doing("compiling")
            for done in range(1001):
                bar.update(done, 1000, "words")
    told = capsys.readouterr()
    hundreds = [f"round {n:,}/1,000, words" for n in range(100, 1001, 100)]
    assert (told.out, told.err.splitlines()) == ("", ["head", "compiling", *hundreds])


def test_a_notebook_has_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class ZMQInteractiveShell:
        pass

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data["text/plain"])
        return Handle()

    package: Any = types.ModuleType("IPython")
    package.get_ipython, package.display = ZMQInteractiveShell, types.ModuleType("IPython.display")
    package.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", package.display)
    with Bar() as bar:
        bar.doing("compiling 1 of 2")
        for done in range(101):
            bar.update(done, 100, "words", "a note")
    assert shown[:2] == ["starting", "compiling 1 of 2"]
    assert shown[-1] == "round 100/100, words, a note"
    assert len(shown) < 50  # not once for every update


def test_a_bar_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside all words of a sweep; the note below is cut at the end of its line."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Bar() as bar:

        def lines() -> list[str]:
            console = Console(width=80, file=io.StringIO(), force_terminal=True, color_system=None)
            with console.capture() as shown:
                console.print(bar.bar.get_renderable())
            return [line.rstrip() for line in shown.get().splitlines()]

        bar.doing("compiling 2 of 3")
        assert lines()[0].endswith("0 s, compiling 2 of 3")
        words = "chunk 138/1440, 12.3k rounds/s, 100 min left"
        bar.update(45_678, 144_000_000, words, "least loss 0.1 " + "soteriafl_sgd lr=0.1 " * 9)
        first, second = lines()
        assert first[16:].strip() == f"45.7k/144M rounds, {words}"
        assert (len(second), second[-1]) == (80, "…")


def test_amounts_are_short() -> None:
    given = (0.25, 9.7, 9_999, 45_678, 999_600, 144e6, 1e12)
    assert [*map(amount, given)] == ["0.25", "9.7", "9,999", "45.7k", "999k", "144M", "1.00T"]
    assert [*map(duration, (12, 200, 600, 9000))] == ["12 s", "3.3 min", "10 min", "2.5 h"]


@pytest.mark.parametrize(
    ("there", "wait", "told"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)]
)
def test_a_bar_that_nobody_asked_for_comes_late(
    there: bool, wait: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody looks, after some seconds; in a log nothing."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: there, raising=False)
    monkeypatch.setattr(progress, "PATIENCE", wait)
    begun: list[int] = []
    monkeypatch.setattr(Bar, "_start", lambda self: begun.append(1))
    with watching(None, lambda bar, now: bar.doing(now)) as report:
        if report is not None:
            report("compiling")
    assert bool(begun) == told
