"""Exported events: the accountants of dp_accounting prove the same of them."""

import json
import tomllib
from typing import Any

import jax
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from rows import a_problem
from scripts import ROOT
from told import Shell, refused

import jaxfl
from jaxfl.core.errors import JaxflWarning
from jaxfl.privacy import (
    Event,
    Increments,
    LocalSteps,
    Mean,
    NoClaim,
    Phases,
    Sampling,
    Sequence,
    epsilon,
)
from jaxfl.privacy.dp_event import _probe, accountant, dp_event, export, neighboring_relation
from jaxfl.privacy.events import Stated, Unproven, svrg

pytestmark = pytest.mark.once
DELTA = 1e-5
MEAN = Mean(1.0)


def draws(scheme: str, b: int = 10) -> Sampling:
    return Sampling(scheme, 100, b)


COINS = Event(draws("poisson"), MEAN, 0.3, 20)
FULL = Event(draws("full", 100), MEAN, 0.03, 20)
SUBSETS = Event(draws("without_replacement"), MEAN, 0.3, 20)
EXACT = {
    "gaussian": FULL,
    "zeroed": Event(draws("full", 100), MEAN, 0.03, 20, adjacency="zero_out"),
    "coins": COINS,
    "coins, one more": Event(draws("poisson"), MEAN, 0.3, 20, adjacency="add_remove"),
    "one pass": Event(draws("single_pass", 5), MEAN, 0.3, 20),
    "whole epochs": Event(draws("shuffled"), MEAN, 0.3, 20),
    "cycles": Event(draws("cyclic"), MEAN, 0.3, 25),
    "increments": Event(draws("single_pass", 5), Increments(1.0, 1.0, 1.0), 30.0, 20),
    "local steps": Event(draws("shuffled"), LocalSteps(1.0, 5, 5, convex=True), 0.3, 8),
    "snapshots of all": Event(draws("full", 100), svrg(1.0), 0.03, 20),
    "sequence": Sequence((COINS, FULL, FULL)),
    "phases": Phases((COINS, FULL)),
    "nothing": Event(draws("full", 100), MEAN, 1.0, 0),
    "no noise": Event(draws("full", 100), MEAN, 0.0, 1),
    "no claim": NoClaim("none"),
}
FAST = ("coins", "coins, one more", "increments", "nothing", "no noise", "no claim")
LOOSE = {  # dp_accounting has a Renyi bound for subsets
    "subsets": SUBSETS,
    "part of an epoch": Event(draws("shuffled"), MEAN, 0.3, 25),
    "subsets, then all": Sequence((SUBSETS, FULL)),
}


def theirs(event: Any, delta: float) -> float:
    """The eps of the accountant that takes the event."""
    made = {"PLD": PLDAccountant, "Rdp": RdpAccountant}[accountant(event, delta)[:3]]
    one = made(neighboring_relation=neighboring_relation(event, delta))
    return float(one.compose(dp_event(event, delta)).get_epsilon(delta))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.plain if name in FAST else ()) for name in EXACT]
)
def test_their_accountant_gives_our_eps(name: str) -> None:
    event = EXACT[name]
    assert theirs(event, DELTA) == pytest.approx(epsilon(event, DELTA).eps, rel=1e-3)


@pytest.mark.parametrize("name", LOOSE)
def test_their_bound_of_subsets_holds_ours(name: str) -> None:
    """At least ours, and that of a Gaussian whose noise is too small by sqrt(2) at most."""
    event = LOOSE[name]
    assert 1 <= theirs(event, DELTA) / epsilon(event, DELTA).eps <= 2


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Event(draws("poisson"), svrg(1.0), 0.3, 20), "drawn or not"),
        (Sequence((COINS, SUBSETS)), "takes both"),
    ],
)
def test_what_no_dp_event_describes_is_refused(event: Any, words: str) -> None:
    refused(lambda: dp_event(event, DELTA), words)


def test_sampling_with_replacement_is_described_though_nobody_accounts_for_it() -> None:
    event = Event(draws("with_replacement"), MEAN, 0.3, 20)
    one = dp_event(event, DELTA).event
    assert (one.source_dataset_size, one.sample_size) == (100, 10)
    assert one.event.noise_multiplier == pytest.approx(1.5)  # two records are 2G/b apart
    assert accountant(event, DELTA).startswith("none")


def test_a_run_and_an_answer_export(key: jax.Array, shell: Shell) -> None:
    run = jaxfl.simulate("ldp_gd", a_problem(), key, 3, eps=2.0, lr=0.1)
    report = run.privacy()
    found = report.dp_event()
    eps = PLDAccountant(found.relation).compose(found.event).get_epsilon(report.delta)
    assert eps == found.epsilon(report.delta) == pytest.approx(2.0, rel=1e-3)
    with pytest.raises(TypeError):  # without its relation nobody composes it
        PLDAccountant().compose(found)
    asked = (
        "account ldp_sgd --samples 100 --batch 10 --rounds 20 --clip 1 --sigma 0.3 --as dp-event"
    )
    answer = json.loads(shell(asked, "--delta 1e-5 --json").out)
    assert answer["dp_event"] == repr(dp_event(COINS, DELTA))
    assert answer["dp_accountant"] == accountant(COINS, DELTA)
    assert "needs delta" in shell.refused(asked, "--eps 1")


def test_exports_of_different_relations_do_not_compose() -> None:
    full, coins = export(FULL, DELTA), export(COINS, DELTA)
    refused(lambda: full.compose(coins), "the relation of one is")
    subsets = export(SUBSETS, DELTA)
    refused(lambda: coins.compose(subsets), "the accountant of one is")
    client = export(Event(draws("full", 100), MEAN, 0.03, 20, unit="client"), DELTA)
    refused(lambda: full.compose(client), "the neighbours of one is")
    both, true = Sequence((FULL, COINS)), epsilon(Sequence((FULL, COINS)), DELTA).eps
    assert export(both, DELTA).epsilon(DELTA) == pytest.approx(true, rel=1e-3)
    twice = full.compose(full).epsilon(DELTA)
    assert twice == pytest.approx(epsilon(Sequence((FULL, FULL)), DELTA).eps, rel=1e-3)
    dense = Event(draws("poisson", 50), MEAN, 0.06, 20)
    one = PLDAccountant().compose(full.event).compose(export(dense, DELTA).event)
    assert one.get_epsilon(DELTA) < 0.95 * epsilon(Sequence((FULL, dense)), DELTA).eps  # as it was
    none = export(Event(draws("with_replacement"), MEAN, 0.3, 20), DELTA)
    refused(lambda: none.epsilon(DELTA), "no accountant")


@pytest.mark.parametrize(
    ("place", "event", "multiplier", "eps"),
    [
        pytest.param("pld.PLDAccountant", COINS, 1.0, "9.99", marks=pytest.mark.plain),
        # twice the sensitivity under replace-one, as a change of theirs would have it
        pytest.param("rdp.RdpAccountant", SUBSETS, 0.5, "10.73", marks=pytest.mark.plain),
    ],
)
def test_the_convention_of_their_accountant_is_probed(
    place: str, event: Event, multiplier: float, eps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {"pld.PLDAccountant": PLDAccountant, "rdp.RdpAccountant": RdpAccountant}[place]

    class Other(theirs):  # type: ignore[misc, valid-type]
        def compose(self, event: Any, count: int = 1) -> Any:
            return super().compose(GaussianDpEvent(multiplier), count)

    _probe.cache_clear()
    assert (
        export(event, DELTA).accountant == place[4:]
    )  # what is installed reads exports as they are
    _probe.cache_clear()
    monkeypatch.setattr(f"dp_accounting.{place}", Other)
    said = f"gives eps = {eps}.* under REPLACE_ONE, where 4.377 is right.*dp-accounting>=0.6,<0.7"
    refused(lambda: export(event, DELTA), said)
    _probe.cache_clear()


def test_the_version_whose_convention_is_exported_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [need for extra in project["optional-dependencies"].values() for need in extra]
    assert "dp-accounting>=0.6,<0.7" in pins


@pytest.mark.parametrize(
    ("unchecked", "words"), [(Unproven(FULL, "mine"), "mine"), (Stated(FULL), "stated by the user")]
)
def test_a_description_inside_a_sequence_is_exported_with_a_warning(
    unchecked: Any, words: str
) -> None:
    with pytest.warns(JaxflWarning, match=f"^This DpEvent is a description: {words}"):
        found = dp_event(Sequence((COINS, unchecked)), DELTA)
    assert found == dp_event(Sequence((COINS, FULL)), DELTA)
