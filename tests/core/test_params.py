"""The one error and the validators that raise it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from told import refusals

from jaxfl.cli.written import as_typed, suggested
from jaxfl.core.checks import counts, finite, numeric, stacked
from jaxfl.core.errors import InputError, attempt, require
from jaxfl.core.params import at_most_one, choice, exactly_one, known, number, whole


def test_the_command_line_renders_the_same_record():
    error = InputError("is too small", "give {noise}", suggested={"noise": "paper"}, batch_size=2)
    assert str(error) == "batch_size = 2 is too small: give noise='paper'."
    words = ["run", "--batch-size", "2"]
    shown = "--batch-size 2 is too small: give --noise paper."
    assert error.sentence(as_typed(words), suggested) == shown
    assert error.sentence(as_typed(["run"]), suggested).startswith("batch_size = 2 is too small")
    option = ["run", "--data-option", "batch_size=2"]
    assert error.sentence(as_typed(option), suggested).startswith("--data-option batch_size=2 is")
    assert str(error.within("cdp_sgd with k=3")).startswith("cdp_sgd with k=3: batch_size = 2 is")


test_mistakes_get_one_sentence = refusals(
    (lambda: require(False, "A file is gone"), "^A file is gone.$"),
    (lambda: number("p", math.nan), "^p = nan is not a number.$"),
    (lambda: number("p", [1, 2]), r"^p = \[1, 2\] must be one number.$"),
    (lambda: number("p", 1, above=0, below=1), "^p = 1 must be above 0 and below 1.$"),
    (lambda: number("p", np.float64(2.5), integer=True), "^p = 2.5 must be a whole number.$"),
    (lambda: whole("T", "3", 1), "^T = '3' is not a number: leave out the quotes.$"),
    (lambda: whole("T", 2**31, 1), f"^T = {2**31} must be at least 1 and at most {2**31 - 1}.$"),
    (lambda: choice("how", [1], ("a", "b")), r"^how = \[1\] must be one of a, b.$"),
    (lambda: known("part", "ab", {"abc": 1}), r": did you mean 'abc'\? known: abc.$"),
    (lambda: known("part", "lr-rate", {"lr": 1, "rounds": 2}), "did you mean 'lr'?"),
    (lambda: known("part", "used_lr", {"chosen_lr": 1, "used_batch": 2}), "mean 'chosen_lr'?"),
    (lambda: known("part", "p7x", {f"p{i}": 1 for i in range(50)}), "'p7x': did you mean 'p7'?"),
    (lambda: known("part", "x7", {f"p{i}": 1 for i in range(50)}), ": of 50, the nearest are p7, "),
    (lambda: at_most_one(k=1, omega=2), "^k = 1 and omega = 2 are both given: give one of them.$"),
    (lambda: exactly_one(k=None, omega=None), "^There is no k and no omega: give exactly one"),
    (lambda: counts([1, 4], 2, 3), r"^count = \[1, 4\] must lie in 1..3"),
    (lambda: stacked("X", [np.ones(3)]), r"^X must be arrays \(clients, samples, ...\)"),
    (lambda: numeric("X", [2**40]), "^X has integers beyond 32 bits"),
    (lambda: finite("X", np.array([[1.0], [math.nan]])), "^X is not finite in row 1: replace"),
)


def test_errors_of_a_users_code_are_told_with_their_cause():
    with (
        pytest.raises(InputError, match=r"^It fails \(ZeroDivisionError.*\): mend it\.$") as caught,
        attempt("It fails", "mend it"),
    ):
        1 / 0  # noqa: B018
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_message_is_formatted_only_where_it_is_raised():
    asked: list[str] = []

    def words() -> str:
        asked.append("words")
        return "is wrong"

    require(True, words, words, lr=1)
    assert not asked
    with pytest.raises(InputError, match=r"lr = 1 is wrong: is wrong\."):
        require(False, words, words, lr=1)
