"""All that states an eps says the same of parts and events that are not jaxfl's own."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from own import body, drawn_quietly, usual

import jaxfl
from jaxfl.core.errors import JaxflWarning
from jaxfl.engine import results
from jaxfl.engine.trackers import Tracker
from jaxfl.parts import compose, mechanisms, plain
from jaxfl.privacy import events
from jaxfl.views import tables

pytestmark = pytest.mark.once
KEY = jax.random.key(0)
GIVEN = {"clip": 1.0, "batch": 4, "lr": 0.1, "eps": 1.0, "omega": 0.0}


def descent(mechanism: Any = None, event: Any = None, finish: Any = None) -> jaxfl.parts.Algorithm:
    """The same descent, by the names of its parts, with a mechanism or an event of the user's."""
    mechanism = mechanisms.gaussian() if mechanism is None else mechanism
    return compose(
        "descent", "", "", body(mechanism=mechanism), plain(**GIVEN), event=event, finish=finish
    )


def stated(values: Any, facts: Any) -> Any:
    """An event of the user's: every record as if it were drawn in every round."""
    rows = events.Sampling("full", int(values["batch"]), int(values["batch"]))
    return events.Event(rows, events.Mean(1.0), float(values["sigma"]), int(values["rounds"]))


@functools.cache
def quiet() -> Any:
    """A mechanism with the name of jaxfl's, and a hundredth of its noise."""
    return mechanisms.gaussian()._replace(draw=drawn_quietly)


@functools.cache
def drawn_again() -> Any:
    """A mechanism that draws as it declares."""
    return mechanisms.gaussian()._replace(
        draw=lambda key, std, like: std * jax.random.normal(key, like.shape)
    )


MAKE: dict[str, Callable[[], jaxfl.parts.Algorithm]] = {
    "none": functools.cache(lambda: descent(quiet())),
    "stated": functools.cache(lambda: descent(event=stated)),
    "probed": functools.cache(lambda: descent(drawn_again())),
    "proven": functools.cache(descent),
}
WORDS = {
    "none": "mechanism 'gaussian'",
    "stated": "stated by the user",
    "probed": "declared and probed",
    "proven": "established",
}
KINDS = list(MAKE)


def tier(kind: str) -> Any:
    return pytest.param(kind, marks=[pytest.mark.plain] * (kind == "stated"))


def simulated(kind: str, rounds: int = 2, **how: Any) -> jaxfl.Run:
    return jaxfl.simulate(MAKE[kind](), usual(), KEY, rounds, **how)


def is_of(kind: str, *found: bool) -> bool:
    """Whether these are true of no claim, and of a stated event."""
    return found == (kind == "none", kind == "stated")


def agree(kind: str, eps: Any, text: str = "") -> None:
    """Every eps is infinite where there is no claim, and no text calls anything else established."""
    assert np.isinf(eps).all() == (kind == "none"), text
    assert not text or WORDS[kind] in text
    assert kind == "proven" or "established" not in text


@pytest.mark.parametrize("kind", [tier(kind) for kind in KINDS])
def test_what_a_run_states(kind: str, tmp_path: Path) -> None:
    heard: list[float] = []
    run = simulated(kind, callbacks=[lambda now: heard.append(now.eps)])
    report = run.privacy()
    agree(kind, report.proven, str(report))
    agree(kind, run.spent([1, 2]))
    agree(kind, run.ledger().proven, str(run.ledger()))
    agree(kind, heard[1:])
    assert is_of(kind, "no eps proven" in repr(run), "user's event" in repr(run))
    about = results.config(jaxfl.load(run.save(tmp_path / "run.nc")))
    said = results.privacy(about)
    assert is_of(kind, "no eps proven" in said, "stated by the user" in said)
    assert about["privacy"]["assumes"].startswith("that losses, regularizers")
    assert ("eps_spent" in run.dataset()) == (kind != "none")
    if kind == "stated":
        assert "user's event" in run.dataset()["eps_spent"].attrs["long_name"]
    assert ("(stated)" in tables.table(run.dataset()).text()) == (kind == "stated")


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_sweep_states(kind: str) -> None:
    heard: list[float] = []
    how = {"rounds": 2, "seeds": 1, "callbacks": [lambda now: heard.append(now.eps)]}
    ds = jaxfl.sweep(MAKE[kind](), usual(), KEY, lr=[0.1, 0.2], **how)
    agree(kind, ds["proven_eps"].values)
    agree(kind, [eps for eps in heard if eps])
    assert ds["stated"].values.tolist() == [[{"stated": 1, "probed": 2}.get(kind, 0)] * 2]
    table = tables.table(ds)
    notes, refuted = " ".join(table.notes), f"refutes the {WORDS['none']}"
    assert is_of(kind, refuted in notes, "user states" in notes)
    assert (kind == "probed") == ("as declared, which a probe did not refute" in notes)
    (shown,) = [column for column in table.columns if column.name == "proven_eps"]
    assert all(is_of(kind, "none" in w, "(stated)" in w) for w in map(str, shown.values))
    for figure in jaxfl.views.figures(ds, choose_by="none").values():
        said = str(figure.get_label())
        proven = re.search(r"(?<!no )ε( = \S+( to \S+)?)? proven", said)
        assert bool(proven) == (kind not in ("none", "stated")), said
        assert is_of(kind, refuted in said, "stated by the user" in said)
        plt.close(figure)


@pytest.mark.parametrize("kind", KINDS)
def test_what_trackers_write(kind: str) -> None:
    class Kept(Tracker):
        def begin(self, run: Any, parameters: Any) -> Any:
            return dict(parameters)

        def write(self, there: Any, rows: Any) -> None:
            there["eps"] = [row.get("eps_spent") for _, row in rows]

        def close(self, there: Any, ended: str) -> None:
            found.append(there)

    found: list[Any] = []
    simulated(kind, callbacks=[Kept()])
    (one,) = found
    assert ("privacy" in one) == (kind != "proven")
    assert all((eps is None) == (kind == "none") for eps in one["eps"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_questions_answer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from jaxfl.algorithms.registry import ALGORITHMS

    monkeypatch.setitem(ALGORITHMS, "descent", MAKE[kind])
    numbers = {"samples": 20, "rounds": 2, "clip": 1.0, "batch": 4, "lr": 0.1, "delta": 1e-3}
    found = jaxfl.account("descent", sigma=0.5, **numbers)
    agree(kind, found["eps"], f"{found['method']} {found['status']}" * (kind == "none"))
    assert found["status"] == {"none": "", "stated": "U", "probed": "P", "proven": "E"}[kind]
    found = jaxfl.calibrate("descent", eps=1.0, **numbers)
    agree(kind, found["eps"])
    assert 0 < found["sigma"] < np.inf  # the event calibrates nevertheless


@pytest.mark.plain
@pytest.mark.parametrize(("first", "then"), [("none", "proven"), ("proven", "none")])
def test_no_claim_sticks_to_a_run(first: str, then: str, tmp_path: Path) -> None:
    """Parts have the same names, so that the run goes on; nothing is proven of all its rounds."""
    given = {"out": tmp_path, "sigma": 5.0}
    simulated(first, **given)
    for rounds, kind in ((4, then), (6, "proven")):
        run = simulated(kind, rounds, extend=True, **given)
        agree("none", run.privacy().proven, str(run.privacy()))


@pytest.mark.plain
@pytest.mark.parametrize(("first", "then"), [("none", "proven"), ("proven", "none")])
def test_no_claim_sticks_to_a_sweep(first: str, then: str, tmp_path: Path) -> None:
    def swept(kind: str, steps: list[float], **how: Any) -> Any:
        return jaxfl.sweep(MAKE[kind](), usual(), KEY, 2, lr=steps, out=tmp_path, **how)

    agree(first, swept(first, [0.1])["proven_eps"])
    agree(first, swept(first, [0.1], resume=True)["proven_eps"])
    agree("none", swept(then, [0.1], resume=True)["proven_eps"])
    agree("none", swept("proven", [0.1, 0.2], extend=True)["proven_eps"])
    agree("none", swept("proven", [0.1, 0.2], resume=True)["proven_eps"])


def test_a_stated_event_does_not_cover_rounds_of_other_code(tmp_path: Path) -> None:
    """And a run in memory keeps what it was."""
    given = {"out": tmp_path, "sigma": 5.0}
    simulated("stated", **given)
    report = simulated("proven", 4, extend=True, **given).privacy()
    assert np.isinf(report.proven)
    assert "earlier rounds" in report.method
    agree("none", simulated("none").extend(4).privacy().proven)


def test_noise_that_finish_lowers_is_flagged() -> None:
    """And not that of a run as it was asked for, whose eps grows with the rounds."""
    run = simulated("proven")
    assert not run.privacy().flag
    assert not run.extend(6).privacy().flag

    def finish(N: Any, noise: Any, facts: Any) -> None:
        N.values["sigma"] = N["sigma"] / 10

    algorithm = descent(finish=finish)
    report = jaxfl.simulate(algorithm, usual(), KEY, 2).privacy()
    assert report.flag
    assert "eps = 1 was asked for" in report.note
    ds = jaxfl.sweep(algorithm, usual(), KEY, 2, lr=[0.1])
    assert ds["flag"].values.all()
    assert any("asked for" in note for note in tables.table(ds).notes)


def test_exports_of_what_nobody_checked_warn() -> None:
    for kind, words in (("none", "no claim"), ("stated", "not proven")):
        with pytest.warns(JaxflWarning, match=words):
            simulated(kind).privacy().dp_event()
