"""Progress on a terminal, in a notebook and in a log."""

import sys
import types
from typing import Any

import pytest

from jaxfl.core.progress import Bar

pytestmark = pytest.mark.once


def test_a_log_gets_ten_lines_and_quiet_none(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        with Bar("head", quiet=quiet) as bar:
            for done in range(1001):
                bar.update(done, 1000, "words")
    told = capsys.readouterr()
    assert told.out == ""
    hundreds = [f"round {n:,}/1,000, words" for n in range(100, 1001, 100)]
    assert told.err.splitlines() == ["head", *hundreds]


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

    package = types.ModuleType("IPython")
    package.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    part = types.ModuleType("IPython.display")
    part.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", part)
    with Bar() as bar:
        for done in range(101):
            bar.update(done, 100, "words", "cell-round")
    assert shown[0] == "compiling"
    assert shown[-1] == "cell-round 100/100, words"
    assert len(shown) < 50  # not once for every update


def test_a_terminal_has_a_bar_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Bar() as bar:
        assert bar.bar is not None
        bar.update(3, 10, "words")
        (task,) = bar.bar.tasks
        assert (task.completed, task.total, task.description) == (3, 10, "words")
    assert "words" in capsys.readouterr().err
