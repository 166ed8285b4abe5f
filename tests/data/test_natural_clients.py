"""Data that know whose they are: test parts of clients, LEAF's files, images, examples of any source."""

from typing import Any

import jax
import numpy as np
import pandas
import pytest
from told import mistakes, refused

from jaxfl import data, make_problem, models
from jaxfl.problems.problem import held_out

pytestmark = pytest.mark.once

# --- test parts of clients -----------------------------------------------------------------------


def test_rows_held_out_of_each_client_stay_with_it():
    """The features of client i are i; an owner that is shifted, or sorted otherwise, is seen."""
    x, y = np.arange(12.0)[:, None] // 4, np.arange(12) % 2
    made = data.split(data.Dataset("d", (x, y), None, 2), 3, "contiguous", test_share=0.25)
    assert made.test_owner.tolist() == made.test[0][:, 0].tolist() == [0, 1, 2]
    assert "3 for testing of 3 clients" in repr(made)
    assert data.synthetic(4, 5, 3, test=2).test_owner.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.split("digits", 3).test_owner is None


def test_a_test_table_says_whose_its_rows_are():
    frame = pandas.DataFrame({"site": ["b", "a", "b"], "x": [1.0, 2, 3], "y": [0, 1, 1]})
    test = frame.assign(site=["c", "b", "a"])
    made = data.from_clients(frame, test, client="site", label="y")
    assert made.test_owner.tolist() == [-1, 1, 0]
    given = data.from_clients(frame, test, client="site", label="y", test_owner=[1, 1, -1])
    assert given.test_owner.tolist() == [1, 1, -1]


def test_a_problem_holds_the_owners_of_its_test_examples():
    """They follow the examples where some are set aside, and change no number."""
    made = data.synthetic(4, 20, 3, test=5, seed=1)
    made.test[0][:, 0] = made.test_owner
    model = models.softmax_regression(3, 10)
    problem = make_problem(model, made)
    assert problem.test_owner.tolist() == made.test_owner.tolist()
    assert problem.test_owner.dtype == np.int32
    part = make_problem(model, made, validation_share=0.4)
    assert part.test_owner.tolist() == part.test[0][:, 0].tolist()
    assert len(part.test_owner) == 12
    assert held_out(problem, "test").test_owner is None
    without = make_problem(model, made._replace(test_owner=None))
    assert len(jax.tree.leaves(without)) == len(jax.tree.leaves(problem)) - 1


CLIENTS: Any = [(np.ones((2, 3)), np.ones(2, int))] * 2


@mistakes(
    (lambda: data.from_clients(CLIENTS, test_owner=[0]), "test_owner = .0. needs test examples"),
    (
        lambda: data.from_clients(CLIENTS, CLIENTS[0], test_owner=[0]),
        "one client number for each of",
    ),
    (lambda: data.from_clients(CLIENTS, CLIENTS[0], test_owner=[0.0, 1]), "one client number for"),
    (lambda: data.from_clients(CLIENTS, CLIENTS[0], test_owner=[0, 2]), r"must lie in 0\.\.1, or"),
    (
        lambda: make_problem(
            models.logistic(3),
            data.from_clients(CLIENTS, CLIENTS[0], classes=2)._replace(test_owner=[0, -2]),
        ),
        r"test_owner = \[0, -2\] must lie in 0\.\.1",
    ),
)
def test_mistakes_in_owners(call, words):
    refused(call, words)
