"""Audits of parts that are not jaxfl's: what is refuted, and what an audit says that it cannot see."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from own import ONE, changed, drawn_quietly, louder, quiet, the_first_k, with_terms
from planned import federated
from told import Shell, refused

import jaxfl
from jaxfl.audits.attack import AuditResult, audit
from jaxfl.audits.canary import prepare
from jaxfl.core.types import Algorithm, Draw, Gradient, Hyper, Mechanism, Param
from jaxfl.parts import (
    Gossip,
    aggregations,
    channels,
    compose,
    compressors,
    estimators,
    local,
    mechanisms,
    sampling,
    servers,
)
from jaxfl.privacy.events import Event, Mean, Sampling, Unproven
from jaxfl.rounds.gossip import averaging

pytestmark = pytest.mark.once

DELTA, WHY = 1e-3, "the part 'mine' is not jaxfl's"
CENTRAL = mechanisms.central()
FEW: Any = {"rounds": 2, "m": 8, "runs": 100, "delta": DELTA, "key": jax.random.key(0)}
WHOLE, SNAPSHOT = (make(sampling.full()) for make in (estimators.minibatch, estimators.svrg))


def mine(part: Any, **fields: Any) -> Any:
    """A part of jaxfl's under the user's name, with these fields."""
    return part._replace(name="mine", **fields)


LOUD = Gradient(with_terms(ONE._replace(scale=100.0)))
QUIET = mine(mechanisms.gaussian(), draw=drawn_quietly)


def stated(share: Callable[[Any], int] = lambda facts: 1, **more: Any) -> Any:
    """An event of the user's: full batches, whose mean is over ``share`` clients."""

    def event(values: Any, facts: Any) -> Event:
        rows, moves = Sampling("full", facts.m, facts.m), Mean(values["clip"] / share(facts))
        return Event(rows, moves, values["sigma"], int(values["rounds"]), **more)

    return event


OF_A_SERVER = stated(lambda facts: facts.n, trust="trusted_server")


def own(event: Any = None, body: Any = None, numbers: Any = None, **parts: Any) -> Algorithm:
    parts = {"estimator": WHOLE, "server": servers.descent(), **parts}
    plan = jaxfl.parts.plain(**{"clip": 1.0, "eps": 1.0, "lr": 1.0, **(numbers or {})})
    return compose("mine", "", "", body or federated(**parts), plan, event=event)


def attack(algorithm: Algorithm, **options: Any) -> AuditResult:
    """Four rounds of a client, at the noise for eps = 1, of which nothing is proven."""
    given = {"rounds": 4, "m": 8, "runs": 400, "delta": DELTA, "key": jax.random.key(0), **options}
    return audit(algorithm, event=lambda v, f: Unproven(algorithm.event(v, f), WHY), **given)


def weighed(part: Any) -> Any:
    return mine(part, draw=louder(part.draw, 100))


def row(which: int) -> Algorithm:
    """A sampler that always draws the same record."""

    def draw(key: Any, t: Any, count: Any, m: int, hp: Hyper) -> Draw:
        return Draw(jnp.full(1, which), jnp.ones(1))

    rows = mine(sampling.without_replacement(), draw=draw)
    return own(estimator=estimators.minibatch(rows), numbers={"batch": 1})


def differences() -> Algorithm:
    """The terms of snapshots are 100 times as long."""

    def terms(*given: Any) -> Any:
        return tuple(t._replace(scale=100 * t.scale) for t in SNAPSHOT.gradient.terms(*given))

    return own(estimator=mine(SNAPSHOT, gradient=Gradient(terms)), numbers={"refresh": 0.5})


def sends(before: Callable[..., Any], base: Any = None, **more: Any) -> Algorithm:
    return own(channel=mine(base or channels.direct(), before=before), numbers=more)


def repeats() -> Algorithm:
    """Every slot of a message holds the first coordinate, each with its own noise."""
    select = mine(compressors.random_k(), select=the_first_k)
    return own(compressor=select, numbers={"k": 8, "omega": 0.0})


def replaced() -> Algorithm:
    algorithm = own()

    def round(key: Any, state: Any, problem: Any, hp: Hyper) -> Any:
        return algorithm.round(key, state, problem, changed(hp, sigma=quiet(hp)))

    return algorithm._replace(round=round)


def gossip() -> Algorithm:
    parts = WHOLE, QUIET, compressors.identity(), averaging(), jaxfl.parts.graphs.ring()
    return own(body=Gossip(*parts))


def sums(plain: bool) -> Algorithm:
    """A plain sum under the name of a secure one."""
    return own(aggregation=mine(aggregations.plain_sum(), hides=True, plain=plain))


def silent() -> Algorithm:
    """Local steps without noise."""
    steps = local.steps(WHOLE, mechanisms.noiseless(), local.free())
    return own(stated(), local=steps, numbers={"local_steps": 1})


def clients() -> Algorithm:
    return own(OF_A_SERVER, mechanism=CENTRAL, participation=weighed(sampling.everyone()))


def unseen_server() -> Algorithm:
    blind = servers.descent()._replace(view=lambda s: 0 * s[0])
    return own(mechanism=QUIET, server=blind)


TWENTY, THREE, TURNING = {"clients": 20}, {"clients": 3}, {"turning": 2}
BROKEN: dict[str, tuple[Callable[[], Algorithm], dict[str, Any]]] = {
    "std": (lambda: own(mechanism=QUIET), {}),
    "central_std": (lambda: own(OF_A_SERVER, mechanism=QUIET._replace(central=True)), THREE),
    "network_std": (gossip, THREE),
    "before": (lambda: sends(lambda link, g: 100 * g), {}),
    "before_shifted": (lambda: sends(lambda s, g: 100 * g - s, channels.shifted(), shift=0.5), {}),
    "select_repeats": (repeats, {"dim": 8}),
    "terms": (lambda: own(estimator=mine(WHOLE, gradient=LOUD)), {}),
    "differences": (differences, TURNING),
    "rows": (lambda: own(estimator=estimators.minibatch(weighed(sampling.full()))), {}),
    "first_row": (lambda: row(0), {}),
    "clients": (clients, THREE),
    "open_sum": (lambda: sums(True), TWENTY),
    "local": (silent, {}),
    "round": (replaced, {}),
    "server": (unseen_server, {}),
}

PLAIN = ("std", "before", "server")  # what catches planted bugs


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.plain if case in PLAIN else ()) for case in BROKEN],
)
def test_an_event_that_a_part_breaks_is_refuted(case: str) -> None:
    make, options = BROKEN[case]
    found = attack(make(), confidence=0.999, **options)
    assert found.described == pytest.approx(1.0, rel=1e-3)
    assert found.refutes_described
    least = f"refuted: at 99.9 % confidence the true eps is at least {found.plain:.4g} ("
    assert found.verdict.startswith(least)
    assert ", and the event that this algorithm describes has eps " in found.verdict


def test_nothing_is_refuted_where_parts_do_what_they_declare() -> None:
    found = attack(own(channel=mine(channels.direct())))
    assert found.lower < 1
    assert str(found).startswith("mine: not refuted: at 95 % confidence the true eps is at least ")
    assert f"proven none ({WHY})" in str(found)
    assert (found.proven, found.status, found.refutes_proof) == (float("inf"), "", False)
    (generic,) = found.unseen
    assert f"It did not look at {generic}" in str(found)
    given = audit("ldp_gd", event=stated(), **FEW, sigma=1.0)  # given, and not proven
    assert (given.status, given.described) == ("U", None)
    assert f"by the given event {given.proven:.4g}" in str(given)
    assert "proven" not in str(given)


MISSED: dict[str, tuple[Callable[[], Algorithm], dict[str, Any]]] = {
    "which of several coordinates the compressor 'mine' selects: ask for dim = 8": (repeats, {}),
    "how the sampler 'mine' draws records other than the first": (lambda: row(3), {}),
    "what the estimator 'mine' makes of gradients that change: ask for turning = 2": (
        differences,
        {},
    ),
    "whom 'mine' lets take part: ask for clients = 3": (
        lambda: own(participation=weighed(sampling.everyone())),
        {},
    ),
    "whether the aggregation 'mine' hides the messages of a sum": (lambda: sums(False), TWENTY),
    "what single clients send: of rounds that no parts describe it sees x alone": (replaced, {}),
    "the messages of single nodes: it sees the points to which they lead": (gossip, THREE),
}


@pytest.mark.plain
@pytest.mark.parametrize("unseen", MISSED)
def test_an_audit_says_what_it_does_not_look_at(unseen: str) -> None:
    make, options = MISSED[unseen]
    found = attack(make(), runs=100, **options)
    assert unseen in found.unseen
    assert found.refutes_described == (make in (replaced, gossip))


def test_an_audit_of_a_network_sees_points() -> None:
    """Nodes send models: what a message says of a gradient is the change of a point."""
    algorithm = gossip()
    described = lambda v, f: Unproven(algorithm.event(v, f), WHY)  # noqa: E731
    assert not prepare(algorithm, 8, 1, 2, False, described, {}, clients=3).listens


def with_numbers(numbers: dict[str, float], **parts: Any) -> Algorithm:
    body = federated(**{"estimator": WHOLE, "server": servers.descent(), **parts})
    return compose("mine", "", "", body, jaxfl.parts.plain(clip=1.0, lr=1.0, **numbers))


def test_draws_and_noise_of_ones_own_are_audited_too() -> None:
    """Draws of no known law, which have no event; and noise under another name."""
    unknown = estimators.minibatch(mine(sampling.poisson(), scheme=None))
    found = audit(with_numbers({"sigma": 0.1, "batch": 2}, estimator=unknown), **FEW)
    assert "the scheme of" in found.method
    assert found.described is None
    assert found.unseen
    zeta = Mechanism("mine", lambda hp: 2 * hp["zeta"], (Param("zeta", "noise"),))
    found = audit(with_numbers({"zeta": 0.25}, mechanism=zeta), **{**FEW, "runs": 1000})
    assert found.proven == pytest.approx(audit(with_numbers({"sigma": 0.5}), **FEW).proven)
    assert 0.3 * found.proven < found.lower <= found.proven


SILENT = {
    "are the same in all runs of both worlds": lambda state: 0 * state[0],
    "are not finite": lambda state: state[0] / 0,
}


@pytest.mark.parametrize("words", SILENT)
def test_messages_that_tell_nothing_are_no_verdict(words: str) -> None:
    """A server that shows no model, and one whose model is not a number."""
    hidden = jaxfl.algorithm("dp_sgd", server=mine(servers.descent(), view=SILENT[words]))
    asked = lambda: audit(hidden, eps=1.0, clients=2, batch=2, **FEW)  # noqa: E731
    refused(asked, f"The messages of dp_sgd {words}, and nothing was tested")


MINE = """
import jax
import jaxfl
from jaxfl.parts import channels, compressors, estimators, mechanisms, sampling, servers
from jaxfl.privacy.events import Event, Mean, Sampling, Stated

def event(values, facts):
    rows = Sampling("full", facts.m, facts.m)
    return Stated(Event(rows, Mean(values["clip"]), values["sigma"], int(values["rounds"])))

@jaxfl.register
def quiet():
    draw = lambda key, std, like: std / 100 * jax.random.normal(key, like.shape)
    mechanism = mechanisms.gaussian()._replace(name="mine", draw=draw)
    own = lambda key, t, n, hp: sampling.everyone().draw(key, t, n, hp)
    everyone = sampling.everyone()._replace(name="mine", draw=own)
    body = jaxfl.parts.Federated(
        estimators.minibatch(sampling.full()), mechanism, compressors.random_k(),
        channels.direct(), servers.descent(), everyone,
    )
    plan = jaxfl.parts.plain(clip=1.0, sigma=1.0, lr=1.0, k=21, omega=0.0, alpha=2.0)
    own = (jaxfl.parts.Param("alpha", "its author's"),)
    return jaxfl.parts.compose("quiet", "", "", body, plan, own, event=event)
"""


def test_a_registered_algorithm_is_audited_by_its_name(tmp_path: Path, shell: Shell) -> None:
    """One that takes no parts, with an event of the user's own, of which nothing is proven."""
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    line = f"audit quiet --import {file} --samples 8 --rounds 4 --runs 400 --delta 1e-3"
    found = json.loads(shell(f"{line} --json", status=3).out)
    assert (found["proven"], found["claimed"]) == ("inf", None)
    assert found["method"].startswith("stated by the user: ")
    assert found["lower"] > found["described"] > 0
    assert found["refutes_described"] is True
    assert found["verdict"].startswith("refuted: at 95 % confidence the true eps is at least ")
    assert "whom 'mine' lets take part: ask for clients = 3" in found["unseen"]
    text = shell(line, status=3).out
    for what in (found["verdict"], *found["unseen"]):
        assert re.sub(r"ask for (\w+) = ", r"give --\1 ", what) in text
    assert "status             nothing is proven" in text
    asked = f"account quiet --import {file} --samples 8 --rounds 4 --sigma 1 --delta 1e-3 --alpha 3"
    assert "a probe refutes" in shell(asked).out
    for part in ("clip-mode batch", "sampler full"):
        said = shell.refused(f"{line} --{part}")
        assert f"--{part} needs a parameter: the function that makes quiet has no" in said
