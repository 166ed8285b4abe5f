"""What is proven of compositions with parts of a user's own: the table of :mod:`own`."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own import (
    ASKED,
    FEATURES,
    Case,
    Composed,
    begun,
    composed,
    fits,
    louder,
    own,
    problem_of,
    said,
    the_first_k,
    usual,
)
from own_cases import CASES
from told import refused

import jaxfl
from jaxfl.core import provenance
from jaxfl.core.types import Compressor
from jaxfl.parts import mechanisms, servers

pytestmark = pytest.mark.once

WORDS = {"no claim", "unproven", "stated", "refused", "above", "proven", "open"}
WORDS |= {"probed", "refuted"}
PROBES = {  # of the cases that compile a probe, those of the plain tier
    "channel: messages 100 times as long",
    "compressor: a coordinate twice",
    "sampler|coins: from scratch, and right",
    "kernel: equal factors",
    "kernel|model: its clip",
    "participation: heavy clients",
    "server: a step of a trusted server",
}


def tier(case: Case) -> Any:
    slow = case.expected in ("probed", "refuted") and case.name not in PROBES
    return pytest.param(case, marks=pytest.mark.full if slow else pytest.mark.plain, id=case.name)


TABLE = {case.name: case for case in CASES}


def test_each_case_has_a_name() -> None:
    assert len(TABLE) == len(CASES)
    assert {case.expected for case in CASES} == WORDS


@pytest.mark.parametrize("case", [*map(tier, CASES)])
def test_what_is_stated(case: Case) -> None:
    found = said(case)
    assert fits(case, found), f"{case.expected} expected\n{found}"


# --- elsewhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "mechanism: a draw of one's own",
        "compressor: a coordinate twice",
        "kernel|model: a kernel of another model",
    ],
)
def test_all_who_state_an_eps_state_none(name: str, key: jax.Array) -> None:
    """Of a run: its report, its line, its rounds, its clients, and its labelled data; and a sweep."""
    made = composed(TABLE[name])
    algorithm, problem = made.algorithm, made.problem or usual()
    given = {"eps": ASKED, "batch": 4, **made.numbers}
    run = jaxfl.simulate(algorithm, problem, key, 2, lr=0.1, **given)
    assert run.privacy().proven == np.inf
    assert "calibrated eps" not in repr(run)
    assert np.isinf(run.spent([1, 2])).all()
    ledger = run.ledger()
    assert np.isinf(ledger.proven).all()
    assert not ledger.status
    assert "eps_spent" not in run.dataset()
    found = jaxfl.sweep(algorithm, problem, key, 2, lr=[0.1, 0.2], **given)
    assert np.isinf(found["proven_eps"].values).all()


def test_a_resumed_run_states_nothing_of_its_first_rounds(tmp_path: Path, key: jax.Array) -> None:
    """The parts of both have the same names, and those of the first rounds had less noise."""
    quiet = mechanisms.gaussian()._replace(std=lambda hp: hp["sigma"] / 100)
    given = {"sigma": 5.0, "out": tmp_path / "run"}
    jaxfl.simulate(own(mechanism=quiet), usual(), key, 1, **given)
    run = jaxfl.simulate(own(), usual(), key, 2, extend=True, **given)
    assert run.privacy().proven == np.inf
    assert not run.privacy().status


@pytest.mark.plain
def test_a_run_goes_on_with_the_code_that_began_it(tmp_path: Path, key: jax.Array) -> None:
    """The std calls functions of a package, and is made anew."""

    def std(hp: Any) -> Any:
        return jnp.sqrt(2.0) * jnp.maximum(hp["sigma"], 0)

    made = [own(mechanism=mechanisms.gaussian()._replace(std=std)) for _ in range(2)]
    given = {"eps": ASKED, "out": tmp_path / "run"}
    jaxfl.simulate(made[0], usual(), key, 2, **given)
    run = jaxfl.simulate(made[1], usual(), key, 2, resume=True, **given)
    assert run.privacy().proven == pytest.approx(ASKED, rel=1e-3)


def test_a_code_alone_is_covered_whatever_was_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It selects nothing; no constructor of jaxfl has to be called first."""
    monkeypatch.setattr(provenance, "_known", {})
    mine = Compressor(
        "mine", code=lambda key, v, hp: v, omega=lambda *_: 0.0, bits=lambda *_: (0.0, 1.0)
    )
    assert provenance.own_part(mine, later=False)
    assert not provenance.own_part(mine)


def test_a_servers_start_changes_nothing_that_rounds_read(key: jax.Array) -> None:
    plain = servers.descent()

    def init(x: Any, hp: Any) -> Any:
        hp.values["sigma"] = 0.0 * hp["sigma"]
        return plain.init(x, hp)

    runs = [
        jaxfl.simulate(own(server=server), usual(), key, 2, eps=ASKED)
        for server in (plain, plain._replace(init=init))
    ]
    assert np.array_equal(runs[0].x, runs[1].x)


def test_accountants_compute_in_double_precision() -> None:
    """A number of another kind is the number that it stands for, or is refused."""

    def event(clip: Any) -> Any:
        given = {"sigma": 1e-3, "batch": 4, "lr": 0.1, "eps": None, "clip": clip}
        return begun(Composed(own(), given)).event(2)

    half = np.float16(1e-3)
    assert event(half) == event(float(half))
    refused(lambda: event(1e-30), "clip = 1e-30")


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_is_not_finite_proves_nothing(key: jax.Array) -> None:
    """The gradient of one record is not a number, and clipping lets that pass."""

    def loss(p: Any, example: Any) -> Any:
        return jnp.sqrt((p["w"] @ example[0] * 0.0) ** 2)

    problem = problem_of(jaxfl.models.custom({"w": np.zeros(FEATURES, np.float32)}, loss))
    report = jaxfl.simulate("ldp_sgd", problem, key, 2, eps=ASKED, batch=4, lr=0.1).privacy()
    assert report.proven == np.inf
    assert "not finite" in report.note


@pytest.mark.plain
@pytest.mark.parametrize("role", ["compressor", "sampler", "server"])
def test_an_answer_without_data(role: str) -> None:
    """What `account` says of a registered part: only a server's step costs no proof."""
    select = jaxfl.parts.compressors.random_k()._replace(select=the_first_k)
    heavy = jaxfl.parts.sampling.poisson()._replace(
        draw=louder(jaxfl.parts.sampling.poisson().draw)
    )
    part = {"compressor": select, "sampler": heavy, "server": servers.descent()}[role]

    @jaxfl.register
    def quiet() -> jaxfl.parts.Algorithm:
        """LDP-SGD or CDP-SGD with a part of the user's."""
        made = {role: part._replace(name="mine")}
        return jaxfl.algorithm("cdp_sgd" if role == "compressor" else "ldp_sgd", **made)

    given = {"samples": 20, "rounds": 2, "batch": 4, "sigma": 1.0, "delta": 1e-3, "clip": 1.0}
    found = jaxfl.account("quiet", **given, **({"k": 1} if role == "compressor" else {}))
    assert (found["status"] == "E") == (role == "server")
