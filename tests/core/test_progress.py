"""Progress on a terminal, in a notebook and in a log."""

import sys
import types
from typing import Any

import pytest

from jaxfl.core import progress
from jaxfl.core.progress import Bar, amount, duration, watching

pytestmark = pytest.mark.once


def test_a_log_gets_ten_lines_and_quiet_none(capsys):
    for quiet in (True, False):
        with Bar("head", quiet=quiet) as bar:
            bar.doing("compiling")
            for done in range(1001):
                bar.update(done, 1000, "words")
    told = capsys.readouterr()
    hundreds = [f"round {n:,}/1,000, words" for n in range(100, 1001, 100)]
    assert (told.out, told.err.splitlines()) == ("", ["head", "compiling", *hundreds])


def test_a_notebook_has_one_bar_that_changes_and_goes(monkeypatch):
    shown: list[Any] = []
    html: list[str] = []

    class ZMQInteractiveShell:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])
            html.append(data.get("text/html", ""))

    def display(data: dict[str, str], raw: bool, display_id: bool) -> ZMQInteractiveShell:
        shown.append(data["text/plain"])
        return ZMQInteractiveShell()

    package: Any = types.ModuleType("IPython")
    package.get_ipython, package.display = ZMQInteractiveShell, types.ModuleType("IPython.display")
    package.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", package.display)
    with Bar() as bar:
        bar.doing("compiling 1 of 2")
        for done in range(101):
            bar.update(done, 100, "words", "a <note>")
    assert shown[:2] == ["starting", "compiling 1 of 2"]
    assert shown[-2:] == ["round 100/100, words, a <note>", ""]
    assert '<progress value="100" max="100"' in html[-2]
    assert "a &lt;note&gt;" in html[-2]
    assert "<progress style" in html[0]
    assert html[-1] == ""
    assert len(shown) < 50  # not once for every update


def test_amounts_are_short():
    given = (0.25, 9.7, 9_999, 45_678, 999_600, 144e6, 1e12)
    assert [*map(amount, given)] == ["0.25", "9.7", "9,999", "45.7k", "999k", "144M", "1.00T"]
    assert [*map(duration, (12, 200, 600, 9000))] == ["12 s", "3.3 min", "10 min", "2.5 h"]


@pytest.mark.parametrize(
    ("there", "wait", "told"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)]
)
def test_a_bar_that_nobody_asked_for_comes_late(there, wait, told, monkeypatch):
    """Where somebody looks, after some seconds; in a log nothing."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: there, raising=False)
    monkeypatch.setattr(progress, "PATIENCE", wait)
    begun: list[int] = []
    monkeypatch.setattr(Bar, "_start", lambda self: begun.append(1))
    with watching(None, lambda bar, now: bar.doing(now)) as report:
        if report is not None:
            report("compiling")
    assert bool(begun) == told
