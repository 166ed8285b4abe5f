"""What users are told of a mistake: one sentence, with the value and the way out."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from jaxfl.core.errors import InputError

# A small data set for commands.
SYNTHETIC = (
    "--data synthetic --data-option n=3 --data-option m=8 --data-option d=4 --data-option classes=2"
    " --clients 3 --partition contiguous"
)


def refused(call: Callable[[], Any], words: str) -> None:
    """``call`` raises an `InputError` of one sentence, in which ``words`` are found."""
    with pytest.raises(InputError, match=words) as caught:
        call()
    text = str(caught.value)
    assert text.endswith((".", "?"))
    assert "\n" not in text


def mistakes(*rows: tuple[Callable[[], Any], str]) -> pytest.MarkDecorator:
    """A table of calls and of the words that each is refused with."""
    return pytest.mark.parametrize(("call", "words"), rows, ids=[words for _, words in rows])


def refusals(*rows: tuple[Callable[[], Any], str]) -> Callable[[Callable[[], Any], str], None]:
    """A plain test that each of these calls is refused with its words."""

    @pytest.mark.plain
    @mistakes(*rows)
    def test(call: Callable[[], Any], words: str) -> None:
        refused(call, words)

    return test


class Shell:
    """The command line: what it prints, and the one sentence of a mistake."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: object, status: int = 0) -> Any:
        """``out`` and ``err`` of a call that ends with this status; a text may hold several words."""
        from jaxfl import cli  # most tests do without

        split = [w.split() if isinstance(w, str) else [str(w)] for w in words]
        self.capsys.readouterr()
        assert cli.main([word for part in split for word in part]) == status
        return self.capsys.readouterr()

    def refused(self, *words: object) -> str:
        """The one sentence of a mistake, beside which nothing is printed."""
        shown = self(*words, status=2)
        assert shown.out == ""
        one_sentence(shown.err)
        return str(shown.err)


def one_sentence(text: str) -> None:
    """What the command line says of a mistake."""
    assert text.startswith("jaxfl: error: ")
    assert text.endswith((".\n", "?\n"))
    assert text.count("\n") == 1
    assert not re.search(r"[.?!] +[A-Z]", text)
