"""The price of choosing the best of several runs, against the exact law of the best of Gaussians."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm

import jaxfl
from jaxfl.privacy import (
    Event,
    Mean,
    NoClaim,
    Phases,
    Sampling,
    Sequence,
    best_of,
    epsilon,
    selection,
    selection_note,
    svrg,
)

DELTA = 1e-5


def gaussian(mu: float) -> Event:
    """One release of a mean over one record, which moves by 2G = 2: N(0, 1) against N(mu, 1)."""
    return Event(Sampling("full", 1, 1), Mean(1.0), sigma=2 / mu, releases=1)


def poisson(T: int = 30) -> Event:
    return Event(Sampling("poisson", 500, 25), Mean(1.0), sigma=0.1, releases=T)


def winner_delta(mu: float, runs: float, eps: float) -> float:
    """Exact delta at eps of the best of K runs, K geometric, for the worst of many scores.

    A run shows y from N(mu, 1) or from N(0, 1); y < a scores 2, y > b scores 1, all else 0.  Where
    few runs reach the top under one law and many under the other, the second best is what tells
    them apart: the winner is one of it with chance f(1 - P[y < a]) - f(1 - P[y < a] - P[y > b]).
    """
    g = 1 / runs
    a, b = np.meshgrid(np.linspace(-4, 2, 61), np.linspace(-2, 6, 81), indexing="ij")

    def f(x: np.ndarray) -> np.ndarray:
        return g * x / (1 - (1 - g) * x)

    def second(shift: float) -> np.ndarray:
        rest = norm.sf(a - shift)
        return f(rest) - f(np.maximum(rest - norm.sf(b - shift), 0))

    one, other = second(mu)[b > a], second(0.0)[b > a]
    return float(np.max(np.maximum(one - np.exp(eps) * other, 0)))


@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("runs", [2, 10, 100])
def test_the_bound_is_above_the_exact_law_of_the_winner(mu: float, runs: int) -> None:
    for delta in (1e-2, 1e-5):
        found = best_of(gaussian(mu), runs, delta, seen="winner")
        one = epsilon(gaussian(mu), delta).eps
        assert winner_delta(mu, runs, found.eps) <= delta
        assert winner_delta(mu, runs, one) > (
            delta if runs > 2 else 0
        )  # one run's eps is too little
        assert found.eps <= 3.2 * epsilon(gaussian(mu), delta / runs).eps


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_one_ratio_in_place_of_its_square_would_be_false(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the comparison with the exact law can fail."""
    right = selection._log_ratio
    monkeypatch.setattr(selection, "_log_ratio", lambda *given: share * right(*given))
    found = best_of(gaussian(1.0), 1000, 1e-2, seen="winner")
    assert winner_delta(1.0, 1000, found.eps) > 1e-2


def test_one_run_is_one_run_and_more_cost_more() -> None:
    for seen in ("all", "winner"):
        assert best_of(poisson(), 1, DELTA, seen=seen).eps == epsilon(poisson(), DELTA).eps
        eps = [best_of(poisson(), runs, DELTA, seen=seen).eps for runs in (1, 2, 5, 20)]
        assert eps == sorted(eps)
        assert eps[0] < eps[1]


def test_all_runs_are_their_composition() -> None:
    found = best_of(poisson(30), 4, DELTA)
    assert found.eps == epsilon(poisson(120), DELTA).eps
    both = Sequence((poisson(10), gaussian(0.2)))
    assert best_of(both, 2, DELTA).eps == pytest.approx(
        epsilon(Sequence((poisson(20), gaussian(0.2), gaussian(0.2))), DELTA).eps, rel=1e-3
    )
    few = dataclasses.replace(poisson(10), sampling=Sampling("poisson", 100, 25))
    clients = Phases((poisson(10), few), together=True)
    assert best_of(clients, 3, DELTA).eps == best_of(few, 3, DELTA).eps


def test_single_passes_repeat_although_one_pass_uses_all_the_data() -> None:
    once = Event(Sampling("single_pass", 100, 10), Mean(1.0), sigma=1.0, releases=10)
    assert epsilon(once, DELTA).eps < best_of(once, 3, DELTA).eps < math.inf


def test_many_runs_cost_a_trusted_party_less_than_showing_them() -> None:
    for event in (poisson(), dataclasses.replace(poisson(), sensitivity=svrg(1.0))):
        every = best_of(event, 50, DELTA)
        assert best_of(event, 50, DELTA, seen="winner").eps < every.eps


def test_what_proves_nothing_stays_unproven() -> None:
    nothing = NoClaim("no noise")
    for seen in ("all", "winner"):
        assert best_of(nothing, 5, DELTA, seen=seen).eps == math.inf
    silent = dataclasses.replace(poisson(), sigma=0.0)
    for seen in ("all", "winner"):
        assert best_of(silent, 5, DELTA, seen=seen).eps == math.inf
    assert "none of them proves" in selection_note(silent, 5, DELTA)


def test_the_note_holds_both_prices() -> None:
    note = selection_note(poisson(), 12, DELTA)
    for seen in ("all", "winner"):
        assert f"{best_of(poisson(), 12, DELTA, seen=seen).eps:.3g}" in note


@pytest.mark.parametrize(("runs", "seen"), [(0, "all"), (1.5, "winner"), (2, "best")])
def test_mistakes(runs: float, seen: str) -> None:
    with pytest.raises(jaxfl.InputError, match="has to be"):
        best_of(poisson(), runs, DELTA, seen=seen)  # type: ignore[arg-type]
