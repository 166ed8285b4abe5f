"""The price of choosing the best of several runs, against winners whose law is known."""

import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm
from told import refusals, refused

from jaxfl.privacy import events
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import (
    Event,
    Mean,
    NoClaim,
    Phases,
    Probed,
    Sampling,
    Sequence,
    Stated,
    saga,
    svrg,
)
from jaxfl.privacy.gaussian import Floats, gdp_eps, gdp_mu
from jaxfl.privacy.groups import of_group
from jaxfl.privacy.selection import best_of, selection_note

pytestmark = pytest.mark.once

Above = Callable[[float, Floats], Floats]  # (mean, y) -> chance of a better score than that of y


def gaussian(mu: float) -> Event:
    """One release of N(+-mu/2, 1), in units of the noise."""
    return Event(Sampling("full", 10, 10), Mean(1.0), sigma=0.2 / mu, releases=1)


def sampled(T: int = 60, scheme: str = "poisson", **more: Any) -> Event:
    return Event(Sampling(scheme, 1000, 50), more.get("estimator", Mean(1.0)), 0.06, T)


def pieces(a: float, b: float) -> Iterator[tuple[Floats, Above]]:
    """A score that deceives: best are outputs below -a, then those above b, then the others.

    Above b the first data set is the likelier one, and the second has more that is better still.
    Within each part smaller outputs are better; grids are fine where a part begins.
    """
    steps = np.concatenate([[0.0], np.geomspace(1e-9, 14, 4000)])
    yield -a - steps[::-1], lambda mean, y: ndtr(y - mean)
    yield (
        b + steps,
        lambda mean, y: ndtr(-a - mean) + np.maximum(ndtr(y - mean) - ndtr(b - mean), 0),
    )
    yield np.linspace(-a, b, 4001), lambda mean, y: ndtr(mean - b) + ndtr(y - mean)


def plain() -> Iterator[tuple[Floats, Above]]:
    """The score is the output."""
    yield np.linspace(-14, 14, 40_001), lambda mean, y: ndtr(mean - y)


SCORES = [plain] + [
    functools.partial(pieces, a, b) for a in np.linspace(0, 5, 8) for b in np.linspace(0, 5, 8)
]


def exact(eps: float, mu: float, runs: float) -> float:
    """The winner's largest delta over all these scores, in both directions.

    Its density at y is ``f'(q) phi(y - mean)`` with ``q`` the chance of no better score, and
    ``f'(q) = g/(g + (1-g)(1-q))^2``.
    """
    g, worst = 1 / runs, 0.0
    for score in SCORES:
        for means in ((mu / 2, -mu / 2), (-mu / 2, mu / 2)):
            total = excess = 0.0
            for y, above in score():
                slope = (g / (g + (1 - g) * above(mean, y)) ** 2 for mean in means)
                P, Q = (f * norm.pdf(y - mean) for f, mean in zip(slope, means, strict=True))
                total += float(np.trapezoid(P, y))
                excess += float(np.trapezoid(np.maximum(P - math.exp(eps) * Q, 0), y))
            assert total == pytest.approx(1, abs=1e-3)  # a density, as far as the grid goes
            worst = max(worst, excess)
    return worst


@pytest.mark.parametrize("mu", [0.1, 0.7, 3.0])
@pytest.mark.parametrize("runs", [10, 1.5, 1000])
@pytest.mark.parametrize("d", [1e-6, 1e-2])
def test_the_bound_is_above_every_winner_and_not_far(mu: float, runs: float, d: float) -> None:
    """Half of the correction is too little, for the deceiving scores."""
    found = best_of(gaussian(mu), runs, d, seen="winner")
    assert found.status == "D"
    assert exact(found.eps, mu, runs) <= d * 1.01  # the grid's own error
    one = gdp_eps(mu, d / runs)
    assert one < found.eps < 3 * one
    if d == 1e-6:
        assert exact((found.eps + one) / 2, mu, runs) > 1.2 * d
        assert exact(0.7 * found.eps, mu, runs) > d


@pytest.mark.parametrize("seen", ["all", "winner"])
@pytest.mark.parametrize(
    "event",
    [gaussian(0.5), sampled(), sampled(estimator=saga(1.0)), Phases((sampled(), sampled(30)))],
)
def test_one_run_costs_itself_and_more_cost_more(event: Any, seen: Any) -> None:
    eps = [best_of(event, runs, 1e-5, seen=seen).eps for runs in (1, 2, 7, 40)]
    assert eps[0] == epsilon(event, 1e-5).eps
    assert np.all(np.diff(eps) > 0)
    if seen == "winner":
        assert best_of(event, 1.001, 1e-5, seen="winner").eps == pytest.approx(eps[0], rel=5e-3)


def test_runs_that_are_all_seen_compose() -> None:
    assert best_of(sampled(), 12, 1e-5).eps == epsilon(sampled(720), 1e-5).eps
    assert best_of(sampled(estimator=svrg(1.0)), 3, 1e-5)[:4] == epsilon(
        sampled(180, estimator=svrg(1.0)), 1e-5
    )
    phases = Phases((sampled(60), sampled(30)), together=True)  # the client for which it is worst
    assert best_of(phases, 5, 1e-5).eps == best_of(sampled(60), 5, 1e-5).eps
    said = repr(best_of(phases, 5, 1e-5))
    assert said.startswith("Selected(the best of 5 runs, all seen: eps = ")
    assert ", delta = 1e-05: Poisson" in said
    assert "for the records with the largest eps" in said
    said = repr(best_of(sampled(), 4, 1e-5, seen="winner"))
    assert said.startswith(
        "Selected(the best of 4 runs on average, a secret number, winner seen: eps = "
    )
    both = Sequence((sampled(), gaussian(0.3)))
    twice = Sequence((sampled(120), gaussian(0.3), gaussian(0.3)))
    in_turn = Sequence((Phases((sampled(), sampled(9))), Phases((sampled(9), sampled()))))
    refused(
        lambda: epsilon(in_turn, 1e-5), "add up the eps of the parts of the Sequence, and their"
    )
    assert best_of(both, 2, 1e-5).eps == pytest.approx(epsilon(twice, 1e-5).eps, rel=1e-3)


@pytest.mark.parametrize(("seen", "eps"), [("winner", 5.81), ("all", 11.01)])
def test_the_best_of_five_as_documented(seen: Any, eps: float) -> None:
    whole = gaussian(gdp_mu(4.0, 2.5e-4))
    assert best_of(whole, 5, 2.5e-4, seen=seen).eps == pytest.approx(eps, abs=5e-3)


def test_epochs_begin_anew_with_every_run() -> None:
    """Two runs of half an epoch are not one epoch: a record may be in both."""
    two = best_of(sampled(10, "shuffled"), 2, 1e-12).eps
    assert two > 1.1 * epsilon(sampled(20, "shuffled"), 1e-12).eps
    once = sampled(20, "single_pass")
    mu = 2 / 50 / 0.06
    assert best_of(once, 3, 1e-5).eps == pytest.approx(gdp_eps(mu * math.sqrt(3), 1e-5))
    moments = Event(Sampling("single_pass", 50, 1), events.Increments(1.0, 1.0, 1.0), 100.0, 50)
    single = epsilon(moments, 1e-5).eps
    assert single < best_of(moments, 3, 1e-5).eps < 3 * single


def test_what_is_said_of_a_choice() -> None:
    named = best_of(sampled(estimator=saga(1.0)), 3, 1e-5, seen="winner", method="theorem_k")
    assert named.status == "N"
    assert named.method.startswith("private selection, Theorem K")
    text, none = selection_note(sampled(), 12, 1e-5), NoClaim("no event")
    for seen in ("all", "winner"):
        nothing = best_of(none, 3, 1e-5, seen=seen)  # type: ignore[arg-type]
        assert (nothing.eps, nothing.status) == (math.inf, "")
        eps = best_of(sampled(), 12, 1e-5, seen=seen).eps  # type: ignore[arg-type]
        assert f"= {eps:.4g}" in text
    assert "no event" in selection_note(none, 12, 1e-5)
    assert "not chosen" in selection_note(sampled(), 1, 1e-5)


HERS = Stated(gaussian(0.3), "stated by the user, and not attacked: it fails")
WEAKER = (  # an event, the status of its eps, and words that stand beside it
    (gaussian(0.3), "E", ""),
    (sampled(estimator=svrg(1.0)), "D", ""),
    (Probed(gaussian(0.3)), "P", "declared and probed"),
    (HERS, "U", "not attacked: it fails (stated by the user: not proven)"),
    (Sequence((Probed(gaussian(0.3)), Stated(gaussian(0.1)))), "U", "stated by the user"),
    # of phases, the first of which has by far the larger eps
    (Phases((gaussian(2.0), sampled(estimator=svrg(1.0)))), "D", ""),
    (Phases((Probed(gaussian(9.0)), Stated(gaussian(0.1)))), "U", "stated by the user"),
)


@pytest.mark.plain
@pytest.mark.parametrize(("event", "status", "words"), WEAKER)
def test_an_eps_has_the_weakest_status_of_all_that_it_rests_on(
    event: Any, status: str, words: str
) -> None:
    """Of each phase, and in the choice of the best of several runs, whose own derivation is D."""
    found = epsilon(event, 1e-5)
    assert found.status == of_group(event, 2, 1e-5).status == status
    won = best_of(event, 3, 1e-5, seen="winner")
    assert won.status == ("D" if status == "E" else status)
    for said in map(repr, (found, best_of(event, 3, 1e-5), won)):
        assert words in said if words else said.endswith(f"{found.method})")


test_mistakes_are_named = refusals(
    (lambda: best_of(sampled(), 0, 1e-5), "runs = 0"),
    (lambda: best_of(sampled(), 2.5, 1e-5), "runs = 2.5"),
    (lambda: best_of(sampled(), 0.5, 1e-5, seen="winner"), "runs = 0.5"),
    (lambda: best_of(sampled(), math.inf, 1e-5, seen="winner"), "runs = inf"),
    (lambda: best_of(sampled(), 3, 1e-5, seen="some"), "seen = 'some'"),  # type: ignore[arg-type]
    (lambda: best_of(sampled(), 3, 1e-5, method="magic"), "magic"),
)


def test_what_docs_count_of_a_choice() -> None:
    """Their example, where mu adds up in squares: a winner that runs again, longer, and three rows."""
    page = Path(__file__).parents[2].joinpath("docs/privacy.md").read_text("utf-8")
    code = page.split("### What is counted")[1].split("```python")[1].split("```")[0]
    run = SimpleNamespace(event=lambda: gaussian(0.3), delta=1e-5)
    scope: dict[str, Any] = {"run": run, "long": SimpleNamespace(event=lambda: gaussian(0.6))}
    exec(code, scope)
    for name, mu in {"chosen": 5**0.5, "again": 6**0.5, "longer": 3.0, "patient": 54**0.5}.items():
        assert scope[name].eps == pytest.approx(gdp_eps(0.3 * mu, 1e-5), rel=1e-3)
    assert best_of(scope["event"], 6, 1e-5).eps == pytest.approx(scope["again"].eps, rel=1e-3)
