"""`jaxfl.testing.check_algorithm`: it passes every algorithm of jaxfl, and finds out those that lie."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from own import drawn_quietly
from planned import federated
from rows import ROWS, Row, a_problem

import jaxfl
from jaxfl.core.types import Hyper
from jaxfl.parts import (
    Federated,
    Message,
    Plain,
    channels,
    compose,
    compressors,
    estimators,
    mechanisms,
    plain,
    sampling,
)
from jaxfl.privacy.events import Event, Mean, Sampling
from jaxfl.testing import CheckFailed, check_algorithm
from jaxfl.testing.algorithms import CHECKS

NUMBERS = {"clip": 1.0, "lr": 0.2, "batch": 4, "sigma": 0.02}


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_algorithm_of_jaxfl_is_what_it_says(row: Row) -> None:
    found = check_algorithm(row.name, row.problem, 20, **row.numbers)
    assert {"descent", "counts", "jit", "vmap", "scan", "sweep", "plain"} <= set(found.done)
    assert set(found.left) <= {"parts", "resume", "noise", "probe", "attack"}


def made(event: Any = None, **parts: Any) -> jaxfl.parts.Algorithm:
    return compose("mine", "", "", federated(**parts), plain(**NUMBERS), event=event)


def stated(values: Any, facts: Any, less: float = 1.0) -> Event:
    rows = Sampling("full", facts.m, facts.m)
    return Event(rows, Mean(values["clip"] / less), values["sigma"], int(values["rounds"]))


understated = functools.partial(stated, less=10.0)


class Loud(Plain):
    """The first client alone adds the noise of the event."""

    def client(self, now: Any, me: Any) -> Any:
        sigma = now.hp["sigma"] * jnp.where(me.index == 0, 1.0, 0.1)
        hp = Hyper({**now.hp.values, "sigma": sigma}, now.hp.capacity)
        return super().client(now._replace(hp=hp), me)


def loud() -> jaxfl.parts.Algorithm:
    return compose("mine", "", "", Loud(*federated(**FULL)), plain(**NUMBERS), event=stated)


class Full(Plain):
    """A client sends all coordinates, and counts those that a sparsifier would send."""

    def client(self, now: Any, me: Any) -> Any:
        sent = super().client(now, me)
        return sent._replace(message=Message(sent.own.g, None))


def full() -> jaxfl.parts.Algorithm:
    body = Full(*federated(**FULL, compressor=compressors.random_k()))
    return compose("mine", "", "", body, plain(**NUMBERS, k=2))


def rising() -> jaxfl.parts.Algorithm:
    server = jaxfl.parts.servers.descent()
    return made(
        server=server._replace(step=lambda key, s, v, p, hp: server.step(key, s, -v, p, hp))
    )


def forgetful() -> jaxfl.parts.Algorithm:
    """Its rounds read a counter of Python, which is traced once."""
    usual, calls = made(), []

    def round(key: Any, state: Any, problem: Any, hp: Any) -> Any:
        calls.append(0)
        return usual.round(jax.random.fold_in(key, len(calls)), state, problem, hp)

    return usual._replace(round=round)


FULL = {"estimator": estimators.minibatch(sampling.full())}
UNCLIPPED = estimators.minibatch(sampling.full(), clip_examples=False)
LONG = channels.direct()._replace(before=lambda link, g: 30 * g)
SHORT = compressors.identity()._replace(code=lambda key, v, hp: v, bits=lambda d, v: (d, 0.0))
QUIET = mechanisms.gaussian()._replace(draw=drawn_quietly)
# an algorithm, and the check that finds it out with a word of its sentence
LYING: dict[str, tuple[Callable[[], jaxfl.parts.Algorithm], str, str]] = {
    "a quiet draw": (lambda: made(mechanism=QUIET), "noise", "declares"),
    "long messages": (lambda: made(**FULL, channel=LONG), "attack", "An attack"),
    "an understated event": (lambda: made(understated, **FULL), "attack", "An attack"),
    "noise of one client alone": (loud, "probe", "an attack on 3 rounds"),
    "noise for a record of a clipped mean": (
        lambda: made(stated, clip="batch", estimator=UNCLIPPED),
        "attack",
        "An attack",
    ),
    "bits of all coordinates": (full, "bits", "sends 40 coordinates in a round, and counts 10"),
    "bits of a part": (lambda: made(compressor=SHORT), "parts", "takes 11.97"),
    "a loss that rises": (rising, "descent", "rises"),
    "a count of Python": (forgetful, "scan", "differ"),
}


MARKED = (
    "noise of one client alone",
    "bits of all coordinates",
    "bits of a part",
    "noise for a record of a clipped mean",
)
MARKS = dict.fromkeys(MARKED, pytest.mark.plain)


@pytest.mark.parametrize("case", [pytest.param(name, marks=MARKS.get(name, ())) for name in LYING])
def test_an_algorithm_that_lies_is_found_out(case: str) -> None:
    make, check, word = LYING[case]
    others = tuple(name for name in CHECKS if name != check)
    with pytest.raises(CheckFailed, match=word):
        check_algorithm(make(), a_problem(), 10, leave_out=others)


def test_what_no_attack_tried_is_left() -> None:
    """An event of the records of this problem alone."""

    def event(values: Any, facts: Any) -> Event:
        if facts.m == 8:
            raise ValueError("of eight records nothing is known")
        return stated(values, facts)

    others = tuple(name for name in CHECKS if name not in ("probe", "attack"))
    found = check_algorithm(made(event, **FULL), a_problem(), 4, leave_out=others)
    assert not found.done
    assert "not attacked: " in found.left["probe"]
    assert "cannot be attacked" in found.left["attack"]


@pytest.mark.parametrize("own", [False, True])
def test_codes_of_a_round_of_ones_own_are_not_checked(own: bool) -> None:
    body = (Loud if own else Federated)(*federated(**FULL, compressor=compressors.sto_sign()))
    algorithm = compose("mine", "", "", body, plain(**NUMBERS))
    others = tuple(name for name in CHECKS if name != "bits")
    found = check_algorithm(algorithm, a_problem(), 4, leave_out=others)
    assert ("bits" in found.left) == own


def test_what_is_left_out_is_told() -> None:
    others = tuple(name for name in CHECKS if name not in ("counts", "attack"))
    seen: list[str] = []
    given: Any = {"lr": 0.2, "clip": 2.0, "leave_out": others, "progress": seen.append}
    found = check_algorithm("fedgd", a_problem(), 4, **given)
    assert found.done == ("counts",)
    assert seen == ["checking counts of fedgd", "checking attack of fedgd"]
    assert found.left["parts"] == "left out"
    assert found.left["descent"] == "left out"
    assert "nothing is claimed" in found.left["attack"]
