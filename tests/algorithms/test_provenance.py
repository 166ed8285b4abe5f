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
    own,
    problem_of,
    said,
    usual,
)
from own_cases import CASES
from told import Shell

import jaxfl
from jaxfl import mechanisms, servers
from jaxfl.cli import imports
from jaxfl.core import provenance
from jaxfl.core.types import Compressor

pytestmark = pytest.mark.once

WORDS = {"no claim", "unproven", "stated", "refused", "above", "proven", "open"}
TABLE = {case.name: case for case in CASES}


def test_each_case_has_a_name() -> None:
    assert len(TABLE) == len(CASES)
    assert {case.expected for case in CASES} == WORDS


@pytest.mark.plain
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_stated(case: Case) -> None:
    found = said(case)
    if case.expected != "open":
        assert fits(case, found), f"{case.expected} expected\n{found}"


# --- elsewhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["mechanism: a draw of one's own", "compressor: a coordinate twice", "kernel|model: its clip"],
)
def test_all_who_state_an_eps_state_none(name: str, key: jax.Array) -> None:
    """Of a run: its report, its line, its rounds, its clients, and its labelled data; and a sweep."""
    made = composed(next(case for case in CASES if case.name.endswith(name)))
    algorithm, problem = made.algorithm, made.problem or usual()
    given = {"eps": ASKED, "batch": 4}
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


def test_a_server_changes_nothing_that_rounds_read(key: jax.Array) -> None:
    """Its `init` is given numbers of its own."""
    plain = servers.descent()

    def init(x: Any, hp: Any) -> Any:
        hp.values["sigma"] = 0.0 * hp["sigma"]
        return plain.init(x, hp)

    runs = [
        jaxfl.simulate(own(server=server), usual(), key, 2, eps=ASKED)
        for server in (plain, plain._replace(init=init))
    ]
    assert np.array_equal(runs[0].x, runs[1].x)


def test_accountants_compute_in_double_precision(key: jax.Array) -> None:
    """A number of another kind is the number that it stands for, or is refused."""
    given = {"sigma": 1e-3, "batch": 4, "lr": 0.1}
    half = np.float16(1e-3)
    found = [
        begun(Composed(own(), {**given, "eps": None, "clip": clip})).event(2)
        for clip in (half, float(half))
    ]
    assert found[0] == found[1]
    with pytest.raises(jaxfl.InputError, match="clip = 1e-30"):
        begun(Composed(own(), {**given, "eps": None, "clip": 1e-30}))


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_is_not_finite_proves_nothing(key: jax.Array) -> None:
    """The gradient of one record is not a number, and clipping lets that pass."""

    def loss(p: Any, example: Any) -> Any:
        return jnp.sqrt((p["w"] @ example[0] * 0.0) ** 2)

    problem = problem_of(jaxfl.models.custom({"w": np.zeros(FEATURES, np.float32)}, loss))
    report = jaxfl.simulate("ldp_sgd", problem, key, 2, eps=ASKED, batch=4, lr=0.1).privacy()
    assert report.proven == np.inf
    assert "not finite" in report.note


# --- on the command line -------------------------------------------------------------------------

MINE = '''
import jax.numpy as jnp

import jaxfl


@jaxfl.register("compressor")
def repeats():
    """Coordinate 0 in every slot."""

    def select(key, d, hp):
        slots = hp.caps["k"]
        return jaxfl.types.Draw(jnp.zeros(slots, "int32"), jnp.ones(slots))

    return jaxfl.compressors.random_k()._replace(name="repeats", select=select)


@jaxfl.register("sampler")
def all_rows():
    """Every row, declared as drawn by chance."""
    draw = lambda key, t, count, m, hp: jaxfl.types.Draw(None, jnp.ones(m) / hp["batch"])
    return jaxfl.sampling.poisson()._replace(name="all_rows", draw=draw, strips=False)


@jaxfl.register
def quiet():
    """LDP-SGD with a hundredth of its noise."""
    made = jaxfl.algorithm("ldp_sgd")
    noise = made.body.mechanism._replace(std=lambda hp: hp["sigma"] / 100)
    body = made.body._replace(mechanism=noise)
    return made._replace(body=body, round=body.round, init=body.init)


@jaxfl.register
def heavy_ball(**parts):
    """LDP-SGD with another step of the server."""
    step = jaxfl.servers.descent()._replace(name="heavy_ball")
    return jaxfl.algorithm("ldp_sgd", server=step, **parts)
'''
NOTED = "--import mine.py --samples 20 --rounds 2 --batch 4 --sigma 1 --delta 1e-3"


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """An empty folder with one file."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    monkeypatch.setattr(imports, "LOADED", {})
    return Shell(capsys)


@pytest.mark.parametrize(
    ("words", "proven"),
    [
        ("cdp_sgd --compressor repeats", False),
        ("ldp_sgd --sampler all_rows", False),
        ("quiet", False),
        ("heavy_ball", True),
        ("cdp_sgd", True),
    ],
)
def test_an_imported_part(shell: Shell, words: str, proven: bool) -> None:
    """What `account` says of it; a refusal says nothing either."""
    try:
        out: Any = shell(f"account {words}", NOTED).out
    except AssertionError:
        assert not proven
        return
    assert ("established" in out) == proven, out


@pytest.mark.full
def test_an_imported_run(shell: Shell) -> None:
    """What `run` and `show` say of it."""
    given = "--import mine.py --data digits --clients 3 --rounds 2 --eps 1 --batch 4 --lr 0.1"
    first = shell("run quiet --no-plot --quiet --out a", given)
    out = first.out + shell("show a").out
    assert "proven for" not in out, out
