"""Figures 2 and 3 and Tables 1 and 2 of Gao et al.: in small; whole in test_papers."""

from pathlib import Path

import numpy as np
import pytest
import xarray
from papers.gao import experiment as gao

pytestmark = pytest.mark.once


def runs_of_two_steps(lost: bool) -> xarray.Dataset:
    """At the longer step the first of three seeds is better, and the others may have diverged."""
    dims = ("algorithm", "trial", "cohort", "eps", "lr", "seed", "round")
    loss, right = np.full((2, 2, 1, 1, 2, 3, 1), 0.5), np.full((2, 2, 1, 1, 2, 3, 1), 0.8)
    loss[..., 1, 0, 0], right[..., 1, 0, 0] = 0.3, 0.9
    if lost:
        loss[..., 1, 1:, 0] = right[..., 1, 1:, 0] = np.nan
    eps = np.broadcast_to(np.array([1.0, 2.0])[:, None, None, None], loss.shape[:5])
    data = {"loss": (dims, loss), "test_accuracy": (dims, right)}
    data |= {f"{name}_eps": (dims[:5], eps) for name in ("proven", "claimed")}
    return xarray.Dataset(data, {"algorithm": list(gao.NAMES), "lr": [0.1, 1.0]})


@pytest.mark.full
def test_silos_are_those_of_the_paper(data_dir: Path) -> None:
    """25 silos of one even and one odd digit, 1734 training rows each, 50 uncorrelated features."""
    problem = gao.odd_even(3, directory=data_dir)
    assert problem.n == 25
    assert set(problem.count.tolist()) == {1734}
    assert problem.model.dim == 50
    assert len(problem.test[1]) == 25 * (2 * 1084 - 1734)
    other = gao.odd_even(4, directory=data_dir)
    assert problem.name == other.name  # one program serves all trials
    assert problem.model is other.model
    assert np.abs(np.asarray(problem.train[0]) - np.asarray(other.train[0])).max() > 1
    y = np.asarray(problem.train[1])
    assert 0.45 < y.mean() < 0.55
    means = np.asarray(problem.train[0]).mean(1)
    assert len(np.unique(means.round(3), axis=0)) == 25  # heterogeneous


def test_what_is_proven_of_all_trials_is_that_of_the_worst() -> None:
    found = gao.best(runs_of_two_steps(lost=False))
    assert (found["step"] == 1.0).all()
    assert (found["proven"] == 2.0).all()
    assert (found["claimed"] == 2.0).all()


def test_a_step_at_which_a_seed_diverged_is_not_chosen_for_those_that_are_left() -> None:
    runs = runs_of_two_steps(lost=True)
    found = gao.best(runs)
    assert (found["step"] == 0.1).all()
    np.testing.assert_allclose(found["error"], 0.2)
    whole = gao.best(runs.where((runs["lr"] == 1.0) | (runs["trial"] == 0)))
    for name in ("error", "deviation", "beats"):  # one trial diverged at every step
        assert whole[name].isnull().all()
