"""`benchmarks/papers.py`: the registry, its files, and the verdicts on what was recorded."""

import dataclasses
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import papers
import pytest
from papers.courses import ahead, courses, ordered, ordering
from papers.entry import Entry, Epsilons, Job, Numbers, Row, estimate, most
from papers.hu.setting import TRAIN, adult
from papers.report import RECORD, epsilon_table, write, write_overview
from papers.soteriafl.setting import METHODS, a9a, mnist, numbers
from scripts import ROOT, load
from told import refused

import jaxfl
from jaxfl.privacy.limits import limits, plain_eps
from jaxfl.problems.metrics import evaluate_metrics
from jaxfl.views import ink
from jaxfl.views.ink import Line, Panel, picture

pytestmark = pytest.mark.once

RECORDS = ROOT / "benchmarks" / "results" / "papers"
HU = tuple(f"hu-figure-{i}" for i in range(3, 9))
SOTERIAFL = tuple(sorted(file.name for file in RECORDS.glob("soteriafl-figure-*")))


def failed(report: papers.Report) -> set[str]:
    """What the paper states and the run does not show; of the recorded runs the entries' notes say why."""
    return {
        row.what.split(", for")[0]
        for row in report.rows
        if row.published != "–" and row.holds is False
    }


def recorded(name: str) -> papers.Report:
    return papers.read_report(papers.entry(name), RECORDS / name / RECORD)


def cells_of(name: str) -> list[Numbers]:
    cells: list[Numbers] = json.loads((RECORDS / name / RECORD).read_text())["numbers"]["cells"]
    return cells


# --- a small entry -------------------------------------------------------------------------------


def measure(job: Job) -> Numbers:
    rng_data = jaxfl.data.split("digits", clients=3)
    problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), rng_data)
    ds = job.sweep("steps", "fedsgd", problem, rounds=4, lr=[0.1, 1.0], batch=8)
    return {"cells": courses(ds, ["loss"], {"end": lambda rounds: rounds == rounds[-1]})}


def judge(numbers: Numbers) -> list[Row]:
    ends = [cell["loss@end"] for cell in numbers["cells"]]
    return [
        ordering("loss, for lr = 0.1, 1", "falls with lr", ends, -1),
        ordering("loss, for lr = 0.1, 1", "rises with lr", ends, 1),
        Row("loss at lr = 1", "2.0", estimate(ends[1]), None, "0.5"),
    ]


def draw(numbers: Numbers) -> dict[str, Any]:
    lines = [
        Line(f"lr = {c['lr']:g}", c["round"], c["loss"], c["loss_error"], i)
        for i, c in enumerate(numbers["cells"])
    ]
    return {"": picture("Digits", [[Panel("left", "round", "loss", lines)]])}


SMALL = Entry(
    "small-figure-1",
    "Nobody, 2020",
    "a figure",
    measure,
    judge,
    draw,
    choices=("the step sizes",),
    privacy=lambda numbers: [Epsilons("nothing", None, float("inf"), None, 1e-5)],
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Entry:
    papers.entries.cache_clear()
    monkeypatch.setattr(papers, "entries", lambda: {SMALL.name: SMALL})
    return SMALL


@pytest.fixture
def command() -> Any:
    return load("benchmarks/papers").main


def test_files_of_an_entry(
    small: Entry, command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that is promised is there; the page says what holds, what does not, and what is ours.

    A second call computes no chunk; its record is the same, and a damaged one is refused.
    """
    assert command(["list", "--json"]) == 0
    about = {"what": "a figure", "paper": "Nobody, 2020"}
    assert json.loads(capsys.readouterr().out) == {small.name: about}
    words = ["run", "small", "--fast", "--out", str(tmp_path)]
    assert command(words) == 0
    out = capsys.readouterr().out
    assert "falls with lr" in out
    assert "small-figure-1.pdf" in out
    page = (tmp_path / "papers.md").read_text()
    for said in ("| 1 of 2 |", "rises with lr; here", "minutes by the clock", "| falls with lr |",
                 "| yes |", "| NO |", "the step sizes", "| none |", "3 seeds",
                 "![small-figure-1](small-figure-1-fast/small-figure-1.png)"):  # fmt: skip
        assert said in page, said
    folder = tmp_path / "small-figure-1-fast"
    chunks = list((folder / "steps" / "chunks").iterdir())
    stamps = [chunk.stat().st_mtime_ns for chunk in chunks]
    first = papers.read_report(small, folder / RECORD)
    assert command([*words, "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)[small.name]
    assert [row["holds"] for row in told["rows"]] == [True, False, None]
    assert told["epsilons"][0]["proven"] == "inf"
    assert [chunk.stat().st_mtime_ns for chunk in chunks] == stamps
    second = papers.read_report(small, folder / RECORD)
    assert (second.numbers, second.rows) == (first.numbers, first.rows)
    names = RECORD, "report.md", "table.csv", "small-figure-1.png", "small-figure-1.pdf"
    assert all((folder / name).stat().st_size > 100 for name in names)
    (tmp_path / RECORD).write_text("{")
    damaged = "damaged, or not a record of small-figure-1"
    refused(lambda: papers.read_report(small, tmp_path / RECORD), damaged)


# --- verdicts ------------------------------------------------------------------------------------


def test_what_is_in_order() -> None:
    for values, sign, holds in (
        ([[1.0], [2.0], [3.0]], 1, True),
        ([[1.0], [2.0], [2.0]], 1, False),
        ([[3.0], [2.0], [1.0]], -1, True),
        ([[1.0, 1.1, 0.9], [2.0, 2.1, 1.9]], 1, True),
        # a common part of all seeds does not hide a difference that each of them shows
        ([[1.0, 5.0, 9.0], [1.1, 5.11, 9.1]], 1, True),
        ([[1.0, 5.0, 9.0], [1.5, 4.0, 9.9]], 1, False),
        # a step back within its error is no step back, one beyond it is
        ([[1.0, 1.1, 0.9], [0.95, 1.12, 0.89], [2.0, 2.1, 1.9]], 1, True),
        ([[1.0, 1.1, 0.9], [0.5, 0.6, 0.4], [2.0, 2.1, 1.9]], 1, False),
        ([[1.0, 1.1], [float("nan"), 1.2]], 1, False),
    ):
        assert ordered(values, sign) is holds
        assert not (holds and (ordered(values, -sign) or ordered(values[::-1], sign)))


@pytest.mark.parametrize("name", [*HU, *SOTERIAFL])
def test_recorded_statements_hold(name: str) -> None:
    """What the paper states is seen in the full run that was recorded."""
    report = recorded(name)
    assert (report.seeds, report.fast) == (report.entry.seeds, False)
    stated = [row for row in report.rows if row.published != "–" and row.holds is not None]
    assert len(stated) >= 3
    assert len(failed(report)) < len(stated) / 2


@pytest.mark.parametrize("name", HU)
def test_verdicts_follow_the_numbers(name: str) -> None:
    """With the noises, local steps, methods or eps of the cells exchanged, statements fail."""
    entry, cells = papers.entry(name), cells_of(name)
    before = [row.holds for row in entry.judge({"cells": cells})]
    for axis in ("sigma", "local_steps", "algorithm", "aggregation", "eps"):
        values = sorted({c.get(axis) for c in cells}, key=str)
        if len(values) < 2 or None in values:
            continue
        turned = dict(zip(values, reversed(values), strict=True))
        moved = [{**c, axis: turned[c[axis]]} for c in cells]
        after = [row.holds for row in entry.judge({"cells": moved})]
        assert sum(after) < sum(before) if None not in before else after != before


def test_verdicts_are_by_the_worst_pair() -> None:
    for margins, verdict, holds in (
        ({"a": [1.0, 1.1, 0.9]}, "holds", True),
        ({"a": [-1.0, -1.1, -0.9]}, "does not", False),
        ({"a": [1.0, -1.1, 0.9]}, "undecided", None),
        ({"a": [1.0, 1.1, 0.9], "b": [1.0, -1.1, 0.9]}, "undecided", None),
        ({"a": [1.0, -1.1, 0.9], "b": [-9.0, -9.1, -8.9]}, "does not", False),
        ({"a": [0.0, 0.0]}, "undecided", None),
        ({"a": [1.0]}, "undecided", None),
        ({"a": [float("nan"), 1.0]}, "undecided", None),
    ):
        row = ahead("all", "ahead", margins)
        assert (row.verdict, row.holds) == (verdict, holds)
        assert row.what == f"all: {[*margins][-1]}"


@pytest.mark.parametrize("name", SOTERIAFL)
def test_bands_are_bands(name: str) -> None:
    """All methods move out of them together, and one alone; the private rerun is not judged."""
    entry, cells = papers.entry(name), cells_of(name)
    assert {(c["method"], c["way"]) for c in cells} == set(product(METHODS, ("batch", "example")))
    metric = "test_accuracy" if "test_accuracy" in cells[0] else "utility"
    others = 5 if metric == "utility" else 0  # the loss

    def moved(chosen: Sequence[str]) -> list[bool | None]:
        shifted = [
            {**c, f"{metric}@end": [v + 0.15 for v in c[f"{metric}@end"]]}
            if c["method"] in chosen
            else c
            for c in cells
        ]
        rows = entry.judge({"cells": shifted})
        return [row.holds for row in rows if " at the end, " in row.what]

    missed = {what for what in failed(recorded(name)) if " at the end, " in what}
    off, lost = len(missed), sum("loss" in what for what in missed)
    assert moved(()).count(True) == 5 + others - off
    assert moved(METHODS).count(False) == 5 + lost
    assert moved(("ldp_svrg",)).count(False) == 1 + off
    assert moved(METHODS).count(None) == 20 - 5 - others


def test_shifts_pay_off_by_label_with_many_rounds() -> None:
    """The map, and its verdicts with both methods exchanged."""
    entry, cells = papers.entry("soteriafl-when"), cells_of("soteriafl-when")
    found = [row.verdict for row in entry.judge({"cells": cells})]
    assert found.count("pays off") >= 2
    assert "pays off" not in found[len(found) // 2 :]  # split at random
    turned = [{**c, "shifted": c["direct"], "direct": c["shifted"]} for c in cells]
    after = [row.verdict for row in entry.judge({"cells": turned})]
    assert after.count("costs") == found.count("pays off")
    assert all(0.99 * c["used_eps"] < c[f"{way}_proven"] <= c["used_eps"] for c in cells
               for way in ("direct", "shifted"))  # fmt: skip


@pytest.mark.full
def test_steps_are_those_of_least_utility(tmp_path: Path) -> None:
    """Of the private rerun, by runs of other seeds, which the sweep keeps; a published one is kept."""
    rows = jaxfl.data.split("digits", clients=10)
    problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), rows)
    study = papers.entry("soteriafl-figure-1").measure.__self__._replace(
        d=640, rounds=12, eps=50.0, steps=(0.03,) * 5, batch=16, tuning=2
    )
    job = Job(tmp_path, full=1)
    cell = study.cell(job, problem, "cdp_sgd", "example")
    tried = jaxfl.load(tmp_path / "cdp_sgd-example-steps")["utility"].isel(round=-1).mean("seed")
    assert cell["lr"] == float(tried["lr"][int(tried.values.argmin())]) != 0.03
    assert study.cell(job, problem, "cdp_sgd", "batch")["lr"] == 0.03


def test_a_rise_alone_is_no_fall_that_turns() -> None:
    cells = cells_of("hu-figure-3")

    def last(cells: list[Numbers]) -> Row:
        return papers.entry("hu-figure-3").judge({"cells": cells})[-1]

    assert last(cells).holds
    assert last(cells).published == "falls first, then rises"
    low = [{**c, "loss": [0.1, *c["loss"][1:]]} for c in cells]  # it only rises
    assert last(low).holds is False
    still = [{**c, "loss@floor": c["loss@turn"]} for c in cells]
    assert last(still).holds is False


# --- what is said of the numbers -----------------------------------------------------------------


@pytest.mark.parametrize("name", SOTERIAFL)
def test_bits_as_the_authors_count_them(name: str) -> None:
    """64 for each coordinate of the record."""
    cells, entry = cells_of(name), papers.entry(name)
    d = 124 if int(name[-1]) < 4 else 50_890
    figure = entry.draw({"cells": cells})[""]
    ends = sorted({float(line.get_xdata()[-1]) for line in figure.axes[1].lines})
    rounds = cells[0]["round"][-1]
    assert ends == [64 * 10 * (d // 20) * rounds, 64 * 10 * d * rounds]


@pytest.mark.parametrize("name", ["hu-figure-5", "hu-figure-6"])
def test_claims_below_the_proof_are_flagged(name: str) -> None:
    """In tables and in pictures; what is said of all entries is on the page."""
    report = recorded(name)
    flags = list(epsilon_table(report).columns[5].values)
    assert flags == [
        "claim < proven" if e.proven > e.claimed * (1 + 1e-9) else "" for e in report.epsilons
    ]
    figure = papers.entry(name).draw({"cells": cells_of(name)})[""]
    words = " ".join(text.get_text() for text in figure.texts)
    assert "39.8 for private local SGD" in words
    under = [line for ax in figure.axes for line in ax.get_lines() if line.get_alpha() == ink.PALE]
    assert under  # lines that coincide are wide and pale
    assert all(line.get_linewidth() > 2 for line in under)


def test_the_most_that_an_attack_shows() -> None:
    """No run in 500 goes wrong, of each world: what is found then."""
    by_hand = plain_eps(*limits(500, 0, 500, 0.95), 1e-3)
    assert most(1000, 1e-3) == pytest.approx(by_hand, rel=1e-12)


def test_the_page_is_written_from_the_records(tmp_path: Path) -> None:
    """papers.md of the repository is what the code of today makes of the recorded numbers."""
    for name in papers.entries():
        (tmp_path / name).mkdir()
        (tmp_path / name / RECORD).write_bytes((RECORDS / name / RECORD).read_bytes())
    page = write_overview(tmp_path, papers.entries())
    assert page.read_text() == (RECORDS / "papers.md").read_text()


@pytest.mark.parametrize(
    ("make", "loss", "square", "accuracy"),
    [(a9a, 1.6297258, 0.8960451**2, None), (mnist, 2.74345, 1.81104, 0.1313)],
)
def test_starts_of_soteriafl(
    make: Any, loss: float, square: float, accuracy: float | None, data_dir: Path
) -> None:
    """The anchors of the authors' parametrisation, without a run."""
    problem = make(str(data_dir))
    found = jax.jit(evaluate_metrics)(problem, problem.x0)
    assert float(found["loss"]) == pytest.approx(loss, rel=3e-6)
    assert float(found["grad_norm_sq"]) == pytest.approx(square, rel=4e-6)
    if accuracy is not None:
        assert float(found["test_accuracy"]) == pytest.approx(accuracy, abs=5e-5)
    assert (np.diff(np.asarray(problem.train[1]).mean(1)) >= 0).all()  # sorted by label


def test_numbers_of_soteriafl() -> None:
    """Batches and compression as the authors' code computes them."""
    found = {eps: numbers("soteriafl_sgd", 3256, 124, 0.5, eps, None) for eps in (1.0, 5.0, 10.0)}
    assert [found[eps]["batch"] for eps in found] == [10, 51, 103]
    assert {values["k"] for values in found.values()} == {6}
    svrg = numbers("ldp_svrg", 3256, 124, 0.5, 1.0, None)
    assert (svrg["batch"], svrg["refresh"]) == (54, 54 / 3256)
    assert "k" not in svrg
    assert numbers("cdp_sgd", 6000, 50_890, 1.0, 4.0, 128)["batch"] == 128


@pytest.mark.full  # reads Adult twice
def test_devices_of_adult(data_dir: Path) -> None:
    """16 devices of 3,052 rows, 80/10/10; a round of Figures 5 to 8 is one whole pass."""
    problem = adult("logistic", str(data_dir))
    assert np.asarray(problem.count).tolist() == [TRAIN] * 16
    assert len(problem.test[1]) == 16 * 306 == 16 * (3052 - TRAIN) / 2
    assert 0.22 < float(np.mean(np.asarray(problem.train[1]))) < 0.26
    assert problem.x0 is None or not np.any(problem.x0)
    for tau in (2, 5, 10):
        assert TRAIN % tau == 0
    assert adult("network", str(data_dir)).model.dim == 108 * 32 + 32 + 32 * 16 + 16 + 16 * 2 + 2


@pytest.mark.full  # minutes for each entry; the glimpses below are their code
@pytest.mark.parametrize("name", list(papers.entries()))
def test_fast_variants(name: str, data_dir: Path, tmp_path: Path) -> None:
    """`benchmarks/papers.py run all --fast`, entry by entry: what the paper states is seen in it too."""
    report = papers.run(name, tmp_path, fast=True, data=data_dir)
    missed = failed(report) - failed(recorded(name))
    assert not [what for what in missed if not (name.startswith("gao") and "formulas" in what)]
    if report.entry.privacy(report.numbers):
        assert all((e.audited or 0.0) <= e.proven for e in report.epsilons)


def some(problem: Any, batch: float) -> Any:
    """Enough records of each client for a batch, and some to test on."""
    if callable(problem):  # of a static axis, and small
        return problem
    rows = max(64, 2 * int(batch))
    return dataclasses.replace(
        problem,
        train=jax.tree.map(lambda a: a[:, :rows], problem.train),
        count=jnp.minimum(problem.count, rows),
        test=jax.tree.map(lambda a: a[:200], problem.test),
    )


class Glimpse(Job):
    """Eight rounds of one seed in place of a sweep's cells, on some of the data, and no attack."""

    def sweep(
        self, name: str, build: Any, problem: Any, key: Any = None, rounds: Any = None, **given: Any
    ) -> Any:
        problem = some(problem, given.get("batch", 1))
        rounds = 8 if isinstance(rounds, int) else [4, 8]
        return super().sweep(
            name, build, problem, key, rounds, **{**given, "seeds": 1, "eval_every": 1}
        )

    def audit(self, algorithm: Any, **options: Any) -> float:
        return 0.0


SMOKE = ("soteriafl-figure-1", "soteriafl-figure-4", "soteriafl-when", "hu-figure-3", "hu-figure-5",
         "hu-figure-7", "gao-figure-2", "gao-table-1", "reshef-table-1")  # fmt: skip


@pytest.mark.full  # from a second to a quarter of a minute each
@pytest.mark.parametrize("name", SMOKE)
def test_every_study_in_a_glimpse(name: str, data_dir: Path, tmp_path: Path) -> None:
    """From the data to the page, whatever comes out; the other entries are other numbers of these."""
    entry = papers.entry(name)
    report = write(entry, Glimpse(tmp_path / name, True, str(data_dir)))
    assert report.rows
    page = (tmp_path / name / "report.md").read_text()
    assert page.count("| ") > 10
    assert all(file.stat().st_size > 100 for file in report.files)


def test_no_study_is_left_out() -> None:
    def kind(name: str) -> Any:
        measure: Any = papers.entry(name).measure
        study = getattr(measure, "__self__", None)
        return getattr(measure, "func", None) or (type(study), getattr(study, "problem", None))

    assert {kind(name) for name in papers.entries()} == {kind(name) for name in SMOKE}


# --- the command ---------------------------------------------------------------------------------


def test_families_of_names(command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[str] = []
    monkeypatch.setattr(papers, "run", lambda name, *_, **__: ran.append(name))
    assert command(["run", "hu-figure-8", "hu", "--quiet", "--out", str(tmp_path)]) == 0
    assert ran == ["hu-figure-8", *HU[:-1]]


def test_a_mistake_is_one_sentence(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        ("run", "required: NAME"),
        ("run hu-figure-33", "did you mean 'hu-figure-3'?"),
        ("walk", "invalid choice: 'walk'"),
    ):
        with pytest.raises(SystemExit, match="2"):
            command(words.split())
        assert says in capsys.readouterr().err
