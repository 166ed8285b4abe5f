"""A mechanism of a user's own in the algorithms of papers: rounds draw its noise, and events read it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from planned import Planned, planned
from rows import ROWS, Row
from told import mistakes, refused

import jaxfl
from jaxfl.algorithms.standing import standing
from jaxfl.core.schedules import pieces
from jaxfl.core.types import Mechanism, Param
from jaxfl.parts import mechanisms
from jaxfl.privacy.events import Kind, described, plain_events

pytestmark = pytest.mark.once

RINGED = ("skellam_fedavg", "discrete_fedavg")  # whose noise no other mechanism can draw
NOISED = {row.name: row for row in ROWS if "sigma" in jaxfl.algorithm(row.name).names}
NOISED = {name: row for name, row in NOISED.items() if name not in RINGED}
ZETA = Param("zeta", "a factor of the noise", schedule=True)
T, TIMES = 6, [3.0, 1.0, 2.0, 4.0, 1.0, 5.0]
# the kinds of rounds that draw more noise, and by which value
RESTARTS: dict[str, tuple[Callable[[int], bool], str]] = {
    "isrl_svrg": (lambda t: t % 2 == 0, "noise_ratio"),
    "ldp_spider": (lambda t: t % 2 == 0, "noise_ratio"),
    "dp_srm": (lambda t: t == 0, "noise_ratio"),
    "distributed_dp_srm": (lambda t: t == 0, "noise_ratio"),
}
OWN_EVENTS = {
    "clip21_sgd2m",
    "dice_sgd",
    "dp_fedavg",
    "private_local_sgd",
    "mu2_trusted",
    "ldp_sgd",
}
OWN_EVENTS |= {*RESTARTS, "dp_sgd", "localized_mbsgd", "one_pass_mbsgd"}
EVERY = {"isrl_svrg": {"epoch": 2}, "ldp_spider": {"period": 2}}


TIER = {
    True: pytest.mark.plain,
    False: pytest.mark.full,
}  # the others have the event of one of these
CASES = [pytest.param(name, marks=TIER[name in OWN_EVENTS]) for name in NOISED]


def own(row: Row, std: Callable[[Any], Any], *params: Param) -> Mechanism:
    """The algorithm's own mechanism, with another std."""
    usual = jaxfl.algorithm(row.name).body.mechanism
    base = mechanisms.central() if usual.central else mechanisms.gaussian()
    return base._replace(std=std, params=(*base.params, *params))


def half(row: Row) -> Mechanism:
    return own(row, lambda hp: hp["sigma"] / 2)


def at(row: Row, rounds: int, sigma: float, mechanism: Any = None, **more: Any) -> Planned:
    parts = {} if mechanism is None else {"mechanism": mechanism}
    algorithm = jaxfl.algorithm(row.name, **parts)
    given = {"noise_ratio": 1.5} if "noise_ratio" in algorithm.names else {}
    given = {**given, **row.numbers, **EVERY.get(row.name, {}), **more, "sigma": sigma}
    return planned(algorithm, row.problem, rounds, **given)


@pytest.mark.parametrize("name", CASES)
def test_half_the_noise_is_accounted_as_half_the_sigma(name: str) -> None:
    row = NOISED[name]
    mine, plain = at(row, T, 2.0, half(row)), at(row, T, 1.0)
    assert standing(mine.algorithm).kind == Kind.PROVEN
    assert mine.event == plain.event
    assert mine.eps(1e-3) == plain.eps(1e-3)
    assert at(row, T, 2.0).event != plain.event


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_is_accounted_in_each_round(name: str) -> None:
    """``zeta`` is 3, 1, 2, 4, 1, 5 times sigma, and rounds that restart have 1.5 times as much."""
    row = NOISED[name]
    mine = own(row, lambda hp: hp["sigma"] * hp["zeta"], ZETA)
    run = at(row, T, 0.5, mine, zeta=pieces(TIMES))
    found, sampler = described(run.event), run.body.estimator.sampler
    if isinstance(found, jaxfl.privacy.NoClaim):
        assert sampler.epochs or sampler.single_pass
        return
    restarts, ratio = RESTARTS.get(name, (lambda t: False, ""))
    factors = [run.values[ratio] if restarts(t) else 1.0 for t in range(T)]
    if "noise_t" in run.values:
        factors = run.values["noise_t"].over(T).tolist()
    expected = [0.5 * f * z for f, z in zip(factors, TIMES, strict=True)]
    parts = list(plain_events(found))
    if not isinstance(
        parts[0].sensitivity, jaxfl.privacy.Mean
    ):  # which has one noise for all rounds
        expected = [min(expected)] * T
    stated = [part.sigma for part in parts for _ in range(part.releases)]
    np.testing.assert_allclose(sorted(stated), sorted(expected * (len(stated) // T)), rtol=1e-6)


@pytest.mark.plain
@pytest.mark.parametrize("name", ["isrl_svrg", "clip21_sgd2m", "mu2_trusted", "private_local_sgd"])
def test_rounds_draw_the_noise_of_the_mechanism(name: str) -> None:
    """Anchors, local procedures and servers, too: twice the sigma is halved exactly."""
    row, lr = NOISED[name], {"lr": 0.1}
    mine, plain = at(row, T, 2.0, half(row), **lr), at(row, T, 1.0, **lr)
    found, expected = (jax.tree.leaves(run.states(3)[0].server) for run in (mine, plain))
    assert all(map(np.array_equal, found, expected))


@pytest.mark.plain
@mistakes(
    (
        lambda: jaxfl.algorithm("dp_sgd", mechanism=mechanisms.gaussian()),
        "server adds noise to the mean",
    ),
    (
        lambda: jaxfl.algorithm("ldp_sgd", mechanism=mechanisms.central()),
        "clients add their own noise",
    ),
    (
        lambda: jaxfl.algorithm("dp_dsgd", mechanism=mechanisms.noiseless()),
        "clients add their own noise",
    ),
    (lambda: jaxfl.algorithm("fedavg", mechanism=mechanisms.gaussian()), "it adds no noise"),
    (lambda: jaxfl.algorithm("porter_gc", mechanism=mechanisms.gaussian()), "takes compressor"),
)
def test_noise_at_another_place_is_refused(call: Callable[[], Any], words: str) -> None:
    refused(call, words)


@pytest.mark.plain
def test_a_statement_follows_the_mechanism() -> None:
    """An eps that is asked for is met with the noise that rounds draw, and a tenth of it is flagged."""
    row = NOISED["isrl_svrg"]
    numbers = {k: v for k, v in row.numbers.items() if k != "sigma"}
    tenth = own(row, lambda hp: hp["sigma"] / 10)
    runs = [
        planned(jaxfl.algorithm(row.name, **parts), row.problem, T, eps=2.0, **numbers)
        for parts in ({}, {"mechanism": tenth})
    ]
    assert runs[1].values["sigma"] == pytest.approx(10 * runs[0].values["sigma"], rel=1e-3)
    assert runs[1].eps(runs[1].values["delta"]) == pytest.approx(2.0, rel=1e-3)
    fixed = mechanisms.gaussian()._replace(std=lambda hp: 0 * hp["sigma"] + 0.1)
    with pytest.raises(jaxfl.InputError, match="does not grow with sigma"):
        planned(jaxfl.algorithm(row.name, mechanism=fixed), row.problem, T, eps=2.0, **numbers)


@pytest.mark.plain
def test_noise_out_of_proportion_to_sigma_is_searched_for() -> None:
    """An event that counts the square of the noise meets the eps that is asked for."""
    row = NOISED["ldp_gd"]
    numbers = {k: v for k, v in row.numbers.items() if k != "sigma"}

    def squared(event: Any, T: int) -> Any:
        return dataclasses.replace(event, sigma=event.sigma**2)

    mine = mechanisms.gaussian()._replace(event=squared)
    run = planned(jaxfl.algorithm("ldp_gd", mechanism=mine), row.problem, T, eps=2.0, **numbers)
    assert run.eps(run.values["delta"]) == pytest.approx(2.0, rel=1e-3)


@pytest.mark.plain
def test_noise_that_changes_amid_a_servers_epochs_has_no_event() -> None:
    """Every second round may use a record as often as there are epochs."""
    row = NOISED["dp_sgd"]
    mine = own(row, lambda hp: hp["sigma"] * hp["zeta"], ZETA)
    run = planned(
        jaxfl.algorithm("dp_sgd", sampler="shuffled", mechanism=mine),
        row.problem,
        T,
        zeta=pieces([1.0, 2.0] * 3),
        **row.numbers,
    )
    assert np.isinf(run.eps(1e-3))


def test_a_record_of_alpha_normec_may_move_most_where_the_noise_is_least() -> None:
    """Its bound is one on the mean over all rounds: the least noise counts in each of them."""
    row = NOISED["alpha_normec"]
    mine = own(row, lambda hp: hp["sigma"] * hp["zeta"], ZETA)
    algorithm = jaxfl.algorithm(row.name, unit="record", mechanism=mine)
    given = {**row.numbers, "sigma": 0.5, "zeta": pieces(TIMES)}
    for event in plain_events(planned(algorithm, row.problem, T, **given).event):
        assert (event.sigma, event.releases) == (0.5, T)
