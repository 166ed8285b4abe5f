"""Tables of sweeps: what they say, and how they are written."""

import csv
import io
import math
from types import SimpleNamespace
from typing import Any

import grids
import numpy as np
import pytest
import xarray
from rich.console import Console
from told import refusals, refused

import jaxfl
from jaxfl.engine import results
from jaxfl.privacy import Event, Mean, NoClaim, Sampling, epsilon
from jaxfl.privacy.gaussian import gdp_eps, gdp_power
from jaxfl.privacy.statements import card
from jaxfl.views.cells import IN_SHORT, Grid, restrict
from jaxfl.views.selection import select
from jaxfl.views.statements import cards, trade_off
from jaxfl.views.tables import BROKEN, FLAG, UNPROVEN, WIDE, Column, Estimate, Table, compare, table
from jaxfl.views.words import estimate, listed, number, prefix, span

pytestmark = pytest.mark.once

THREE = ("soteriafl_sgd", "ldp_sgd", "fedsgd")


@pytest.fixture(scope="module")
def ds() -> xarray.Dataset:
    return grids.grid(algorithms=THREE, diverged={"omega": 9.0, "eps": 1.0})


def read(found: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(found.csv())))


def test_numbers() -> None:
    texts = {0.0: "0", 1.0: "1", 0.123456: "0.1235", -0.00123456: "-0.001235", 1.5e-7: "1.5e-7"}
    texts |= {32560.0: "32560", 12345.6: "12346", 1.234567e12: "1.235e12", math.inf: "∞"}
    assert {value: number(value) for value in texts} == texts
    assert number(math.nan) == "–"
    assert prefix(np.array([999.0, np.nan]), "bit") == (1.0, "bit")
    assert prefix(np.array([5.0, 1.2e7]), "bit") == (1e6, "Mbit")
    assert prefix(np.array([np.nan]), "bit") == (1.0, "bit")


def test_means_and_errors_end_at_the_same_place() -> None:
    texts = {
        (0.16034, 0.00123): ("0.1603", "0.0012"), (0.16034, 0.0623): ("0.160", "0.062"),
        (0.16034, 2e-7): ("0.1603", "2e-7"), (0.16034, 0.0): ("0.1603", "0.0000"),
        (-12.3456, 1.26): ("-12.3", "1.3"), (123.456, 17.0): ("123", "17"),
        (0.01, 3.21): ("0.0", "3.2"), (3.4567e-9, 1.2e-10): ("3.457e-9", "1.2e-10"),
        (0.16034, math.nan): ("0.1603", ""), (math.nan, math.nan): ("–", ""), (0.0, 0.0): ("0", "0"),
    }  # fmt: skip
    assert {pair: estimate(*pair) for pair in texts} == texts


def test_rows_are_the_cells_that_differ(ds: xarray.Dataset) -> None:
    found = read(table(ds))
    labels = [(row["eps"], row["algorithm"], row["omega"], row["lr"]) for row in found]
    assert len(set(labels)) == len(labels) == 12 + 6 + 3
    assert {row["omega"] for row in found if row["algorithm"] != "soteriafl_sgd"} == {""}
    assert {row["eps"] for row in found if row["algorithm"] == "fedsgd"} == {""}
    assert [row["eps"] for row in found] == ["1"] * 9 + ["5"] * 9 + [""] * 3


def test_values_are_means_with_standard_errors(ds: xarray.Dataset) -> None:
    rows = {(row["algorithm"], row["eps"], row["lr"]): row for row in read(table(ds))}
    row = rows["ldp_sgd", "5", "0.3"]
    cell = {"eps": 5.0, "lr": 0.3}
    g = grids.grad_norm_sq(np.arange(0, 41, grids.EVERY), cell, 1, 0, 1, 0.0)
    spread = 0.02 * np.std([-1, 0, 1], ddof=1) / math.sqrt(3)
    for name, value, error in (
        ("loss", 0.6 + g[-1], g[-1] * spread),
        ("accuracy", 0.95 - 0.3 * g[-1], 0.3 * g[-1] * spread),
    ):
        assert float(row[name]) == pytest.approx(value, rel=1e-12)
        assert float(row[f"{name}_se"]) == pytest.approx(error, rel=1e-9)
    assert float(row["uplink_bits"]) == 40 * grids.N * grids.D * grids.BITS
    assert (row["claimed_eps"], row["proven_eps"], row["flag"]) == ("5", "5", "")


def test_a_selection_shows_its_choice_and_its_price(ds: xarray.Dataset) -> None:
    chosen = select(ds)
    shown = table(chosen.ds)
    rows = read(shown)
    assert len(rows) == 4 + 2 + 1
    for row in rows:
        if row["algorithm"] == "ldp_sgd":
            at = {"algorithm": "ldp_sgd", "eps": float(row["eps"]), "omega": 1.0}
            assert float(row["chosen_lr"]) == float(chosen.ds["chosen_lr"].sel(at))
    assert chosen.note in shown.text()
    renamed = table(chosen.ds, labels={"lr": r"$\gamma$"}).text()
    assert chosen.note.replace("lr (step size)", r"$\gamma$") in renamed
    assert chosen.warning.replace("best lr", r"best $\gamma$") in renamed
    for some in (chosen.ds, ds):  # also where nothing was chosen
        notes = " ".join(table(some).notes)
        assert notes.count("share their noise, so no eps is proven for publishing several") == 1
        assert notes.count("if only this run is published") == 1
    one = table(restrict(ds.isel(seed=[0]), {"eps": 1.0, "lr": 0.1, "algorithm": "ldp_sgd"}))
    assert "only this run" not in one.text()
    assert "±" not in one.text()
    assert one.title == "logistic on a9a, 10 clients, ε = 1, step size = 0.1, 1 seed"


def test_the_best_row_of_each_group(ds: xarray.Dataset) -> None:
    """Problems do not compete, whatever the axis is called, and equals are all the best."""
    rows = read(table(ds))
    for eps in ("1", "5", ""):
        group = [row for row in rows if row["eps"] == eps and row["loss"]]
        best = min(group, key=lambda row: float(row["loss"]))
        assert [row for row in group if row["best"] == "1"] == [best]
    assert "* lowest final loss of the rows with the same eps." in table(ds).text()
    rows = read(table(select(ds, "max:utility", over=()).ds))
    group = {float(row["utility"]): row["best"] for row in rows if row["eps"] == "5"}
    assert [value for value, best in group.items() if best == "1"] == [max(group)]
    axes = {"regularizer": ("l2", "none"), "eps": (1.0,)}
    for problems, tied, count in (((), True, 2), ((), False, 1), (("regularizer",), False, 2)):
        some = grids.grid(axes, problems=problems)
        some["loss"] = some["loss"] * xarray.where(some["regularizer"] == "l2", 1.0, 1 + (not tied))
        assert len(table(some).best) == count


def test_what_an_eps_protects_is_said_and_only_equals_compete(a_run: jaxfl.Run) -> None:
    """All records of a client, a record in a sum, a record in messages: none competes."""
    names, given = ["clip21_sgd2m", "private_local_sgd", "ldp_sgd"], {"lr": 0.1, "batch": 4}
    found = jaxfl.sweep(names, a_run.problem, None, 4, eps=[2.0], clip=[0.5, 1.0], **given)
    shown = table(found)
    rows = read(shown)
    said = ["client, messages", "record, sums", "record, messages"]
    assert [row["protects"] for row in rows] == [words for words in said for _ in range(2)]
    assert [sum(row["best"] == "1" for row in rows[i : i + 2]) for i in (0, 2, 4)] == [1, 1, 1]
    assert "of the rows with the same protection." in shown.text()
    who = "private_local_sgd: ε protects one record of one client, replaced by another, from an adversary"
    assert f"{who} who sees only the sum of the clients' messages." in shown.notes
    assert shown.title == "logistic on data, 5 clients of 10 to 12 records, ε = 2, 1 seed"
    (one,) = read(table(a_run.dataset()))
    assert one["protects"] == "record, messages"
    assert len({*IN_SHORT.values()}) == len(IN_SHORT)
    for codes in ((1, 1, 1), (1, 5, 5), (1, 5, 9)):  # a record replaced, added or removed, zeroed
        each = found["protects"] * 0 + xarray.DataArray([*codes], dims="algorithm")
        assert len(table(found.assign(protects=each)).best) == len({*codes})
    # so does an eps with a smaller delta
    deltas = xarray.DataArray([1e-5, 1e-6, 1e-6], dims="algorithm")
    alike = found.assign(protects=found["protects"] * 0 + 1)
    assert len(table(alike).best) == 1
    assert len(table(alike.assign(delta=alike["delta"] * 0 + deltas)).best) == 2
    said = found["protects"].attrs["flag_meanings"].split("; ")
    assert said[int(found["protects"].values.flat[0])].startswith("all")


def test_alarms(ds: xarray.Dataset) -> None:
    """Claims below what is proven, bounds that are broken, and noise or proofs that are not there."""
    rows, quiet = read(table(ds)), table(restrict(ds, {"omega": [1], "algorithm": ["ldp_sgd"]}))
    assert all((row["flag"] == FLAG) == (row["omega"] == "9") for row in rows)
    assert f"{FLAG}: the proven eps exceeds that of the paper's formula by" in table(ds).text()
    assert FLAG not in quiet.text()
    assert "flag" not in quiet.csv()
    assert {row["proven_eps"] for row in rows if row["algorithm"] == "fedsgd"} == {"no noise"}
    bare = table(restrict(ds, {"algorithm": "fedsgd"})).text()
    assert "eps" not in bare
    assert "Not private, no noise." in bare
    broken, unproven = ds.copy(deep=True), ds.copy(deep=True)
    broken["broken"][1], broken["flag"][1] = 2.5, 1
    flags = {(row["algorithm"], row["flag"]) for row in read(table(broken))}
    assert {("ldp_sgd", BROKEN), ("soteriafl_sgd", FLAG)} <= flags
    assert "gradient has norm 2.5 at x0, above gradient_bound" in table(broken).text()
    unproven["proven_eps"][:2] = np.inf
    flags = {(row["proven_eps"], row["flag"]) for row in read(table(unproven))}
    assert flags == {("none", UNPROVEN), ("no noise", "")}


def test_what_diverged_has_no_mean(ds: xarray.Dataset) -> None:
    """Nor has what has not run."""
    for row in read(table(ds)):
        lost = (row["algorithm"], row["eps"], row["omega"]) == ("soteriafl_sgd", "1", "9")
        assert row["state"] == ("1 of 3 seeds diverged" if lost else "")
        assert (row["loss"] == "") == lost
    alone = grids.grid(diverged={"omega": 9.0, "eps": 1.0}, seeds=1)
    for some in (ds, alone):
        states = [row["state"] for row in read(table(select(some).ds))]
        assert states.count("all 3 settings diverged") == 1
    assert "diverged" in [row["state"] for row in read(table(alone))]
    part = grids.grid(missing={"eps": 5.0})
    for some in (part, select(part).ds):
        states = {(row["eps"], row["state"]) for row in read(table(some))}
        assert ("5", "not run yet") in states
        assert ("1", "not run yet") not in states
    half = grids.grid({"eps": (1.0,)}, algorithms=("ldp_sgd",))
    half["complete"][..., -1] = 0
    assert [row["state"] for row in read(table(half))] == ["unfinished"]


def hostile() -> Table:
    columns = (
        Column("a_b", "a_b", ("50 % of [bold]{x}_~^\\", "plain, comma")),
        Column("x", "x (kbit)", (Estimate(1500.0, 12.0), 2.5e-4), 1000.0),
        Column("w", "50 % [b]<&> #1", (None, -3.0)),
    )
    return Table("a $title$", columns, ("* lowest.", "a note."), frozenset({1}))


def test_a_table_as_text_and_as_csv() -> None:
    """One line per row; all digits in files."""
    lines = hostile().text().splitlines()
    assert lines[0] == "a $title$"
    assert "50 % [b]<&> #1" in lines[1]
    assert "50 % of [bold]{x}_~^\\" in lines[2]
    assert "1.500 ± 0.012" in lines[2]
    assert lines[3].startswith("*")
    assert lines[4:] == ["* lowest.", "a note."]
    file = io.StringIO()
    hostile().show(Console(file=file, force_terminal=True, width=200))
    shown = file.getvalue().splitlines()
    assert ["\x1b[1m" in line for line in shown[2:4]] == [False, True]
    assert read(hostile()) == [
        {"a_b": "50 % of [bold]{x}_~^\\", "x": "1500", "x_se": "12", "w": "", "best": "0"},
        {"a_b": "plain, comma", "x": "0.00025", "x_se": "", "w": "-3", "best": "1"},
    ]
    frame = hostile().to_pandas()
    assert [frame[name].dtype for name in ("x", "x_se", "w", "best")] == [float, float, float, bool]


def test_cards_are_rows_with_what_they_protect() -> None:
    full = Event(Sampling("full", 100, 100), Mean(1.0), 0.05, 20)
    same = {"proven": epsilon(full, 1e-5).eps, "delta": 1e-5}
    audited = SimpleNamespace(
        _asdict=lambda: {"lower": 1.0, "confidence": 0.95, "power": {0.01: 0.2}, **same}
    )
    found = cards(
        {"a_b": card(full, 1e-5, audited=audited), "none": card(NoClaim("no noise is known"), 1e-5)}
    )
    mu = 2 / 100 * 20**0.5 / 0.05
    (row, none) = found.facts()["rows"]
    assert (row["mu"], row["tpr_0.01"]) == (pytest.approx(mu), pytest.approx(gdp_power(mu, 0.01)))
    assert (row["proven_eps"], row["reached_0.01"]) == (pytest.approx(gdp_eps(mu, 1e-5)), 0.2)
    assert (none["mu"], none["proven_eps"], none["tpr_0.001"]) == (None, None, 1.0)
    assert r"a\_b & $8.721$" in found.latex()
    assert "& $0.09657$ &" in found.latex()  # 0.096565: an upper bound is rounded up
    assert (
        "a_b: protects one record of one client, replaced by another; the adversary sees"
        in found.text()
    )


CARD: Any = card(NoClaim("no noise is known"), 1e-5)
test_no_cards = refusals(
    (lambda: cards([CARD]), r"must be a dict: label them, as in cards\({'mine': card}\)"),  # type: ignore
    (lambda: cards({"a": "mine"}), "'mine' must be a Card: make one with run"),  # type: ignore
    (lambda: trade_off({"a": "mine"}), "'mine' must be a Card: make one with run"),  # type: ignore
)


def test_latex_is_escaped() -> None:
    text = hostile().latex()
    assert r"a\_b & x (kbit) & 50 \% [b]$<$\&$>$ \#1 \\" in text
    assert r"50 \% of [bold]\{x\}\_\textasciitilde{}\textasciicircum{}\textbackslash{}" in text
    assert r"$1.500 \pm 0.012$ & -- \\" in text
    assert r"\textbf{plain, comma} & $2.5 \cdot 10^{-7}$ & $-3$ \\" in text
    assert text.startswith("% a $title$\n")
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")


def test_latex_has_the_columns_that_are_named_or_that_differ() -> None:
    same = Column("d", "δ", (0.1, 0.1))
    found = Table("t", (Column("a", "a", ("x", "y")), same, Column("b", "b", (1.0, 2.0))))
    assert r"a & b \\" in (text := found.latex())
    assert "% In all rows: delta = 0.1.\n" in text
    assert r"b & $\delta$ \\" in (text := found.latex(columns=["b", "d"]))
    assert "In all rows" not in text
    one = Table("t", tuple(c._replace(values=c.values[:1]) for c in found.columns))
    assert r"a & $\delta$ & b \\" in one.latex()  # a single row has all
    refused(lambda: found.latex(["B"]), "columns = 'B' must be one of a, d, b, state")
    assert [*found.only(["b", "state"]).columns[1].values] == ["", ""]  # nothing diverged


def test_bounds_are_rounded_up_also_in_notes() -> None:
    assert span([9.350505, 19.24412792], bounds=True) == "9.351 to 19.25"
    assert span([9.350505, 19.24412792]) == "9.351 to 19.24"


@pytest.mark.parametrize(
    ("values", "bounds", "said"),
    [
        ([1.2541, 2.5], True, "1.255 and 2.5"),  # as a table has them
        ([8.0, 1.0, 8.0], False, "1 and 8"),
        ([8.0, 0.99991, 4.0], True, "1, 4 and 8"),
        ([1.0, 2.0, 4.0, 8.0], False, "1 to 8"),
        ([3.0, 2.9999], True, "3"),
        (["b", "a", "d", "c"], False, "a, b, c and d"),
    ],
)
def test_few_numbers_are_named(values: list[Any], bounds: bool, said: str) -> None:
    assert listed(values, bounds=bounds) == said


def test_latex_leaves_details_to_a_comment_unless_they_are_named(ds: xarray.Dataset) -> None:
    """A claimed eps never stands alone; a table with details alone has them."""
    found = table(ds)
    head, body = found.latex().split(r"\begin{tabular}")
    heads = r"proven $\varepsilon$ & algorithm & $\omega$ & lr & loss & accuracy & test accuracy & "
    assert heads + r"uplink (Mbit) \\" in body
    assert "% Left out, unless columns are named: claimed_eps, flag, state.\n" in head
    assert "% In all rows: protects = –.\n" in head
    assert "claimed" in found.latex(["claimed_eps", "proven_eps"])
    assert "claimed" in found.only(["claimed_eps", "flag"]).latex().split("tabular")[1]
    for names in (["algorithm", "loss"], ["algorithm", "flag"]):
        for text in (found.only(names).text(), found.latex(names)):
            assert (f"{FLAG}: the proven" in text) == ("flag" in names)
            assert WIDE not in text
    assert (WIDE in head, f"{FLAG}: the proven" in head) == (True, True)
    assert found.latex().endswith("\\end{tabular}\n")


def test_latex_has_one_eps_where_each_is_proven_as_asked(ds: xarray.Dataset) -> None:
    """Rounded up to what was asked; no noise has words, and what proves less or more has both columns."""
    for factor, one in ((1.0, True), (0.9999, True), (1.05, False), (0.5, False), (np.inf, False)):
        body = table(ds.assign(proven_eps=ds["proven_eps"] * factor)).latex().split("tabular}")[1]
        assert body.count("proven") == 1
        assert (r"proven $\varepsilon$ & algorithm" in body) == one
        assert ("\n$1$ & soteria" in body, "\nno noise & fedsgd" in body) == (True, one)


def test_latex_names_the_compression(ds: xarray.Dataset) -> None:
    """Of what is compared with algorithms without any; omega alone where no k or levels say it."""
    some = grids.grid({"eps": (1.0, 5.0)})
    sent = xarray.zeros_like(some["used_omega"]).where(some["algorithm"] == "ldp_sgd", 9.0)
    for name, heads in (("used_k", "k of 120"), ("used_levels", "levels"), ("other", r"$\omega$")):
        body = table(some.assign({"used_omega": sent, name: sent.where(sent > 0)})).latex()
        assert f"algorithm & {heads} & loss" in body.split("tabular}")[1]


@pytest.mark.parametrize("name", ["batch", "local_steps"])
def test_unequal_work_has_a_column(name: str) -> None:
    """Unless it is an axis, or what did not run has none."""
    ds = grids.grid({"eps": (1.0, 4.0)}, missing={"eps": 4.0})
    for values, there in (
        ([[9, 9], [9, 9]], False),
        ([[9, 9], [9, 7]], False),
        ([[9, 9], [7, 9]], True),
    ):
        one = table(ds.assign({f"used_{name}": (("algorithm", "eps"), values)}))
        assert (f"used_{name}" in {column.name for column in one.columns}) == there
    assert [row[f"used_{name}"] for row in read(one)] == ["9", "7", "9", "9"]
    assert "7" in one.only([f"used_{name}"]).text()
    with_axis = grids.grid({name: (1.0, 4.0)})
    more = table(with_axis.assign({f"used_{name}": with_axis[name]}))
    assert f"used_{name}" not in {column.name for column in more.columns}


def rows_of(found: Table, metric: str) -> list[dict[str, Any]]:
    names = [column.name for column in found.columns]
    values = zip(*(column.values for column in found.columns), strict=True)
    rows = [dict(zip(names, row, strict=True)) for row in values]
    return [row for row in rows if row["metric"] == metric]


def test_a_difference_paired_by_seed() -> None:
    a = grids.grid({"eps": (1.0, 5.0), "lr": (0.3,)})
    b = grids.grid({"eps": (5.0, 1.0), "lr": (1.0,)})
    found = compare(restrict(a, {"lr": 0.3}).isel(lr=0), b.isel(lr=0), names=("old", "new"))
    rows = rows_of(found, "loss")
    assert [(row["algorithm"], row["eps"]) for row in rows] == [
        ("soteriafl_sgd", 1.0), ("soteriafl_sgd", 5.0), ("ldp_sgd", 1.0), ("ldp_sgd", 5.0),
    ]  # fmt: skip
    at = {"algorithm": "ldp_sgd", "eps": 5.0}
    # b has its eps in another order, and so other numbers of rounds
    x, y = (Grid.of(ds.isel(lr=0)).final("loss").sel(at).values for ds in (a, b))
    assert rows[3]["a old"].mean == pytest.approx(x.mean(), rel=1e-12)
    assert rows[3]["b new"].mean == pytest.approx(y.mean(), rel=1e-12)
    difference = rows[3]["difference"]
    assert difference.mean == pytest.approx((y - x).mean(), rel=1e-12)
    assert difference.error == pytest.approx((y - x).std(ddof=1) / math.sqrt(3), rel=1e-9)
    assert "paired by seed" in found.text()


@pytest.mark.parametrize("how", ["unpaired", "other seeds", "other keys"])
def test_a_difference_of_unpaired_seeds(how: str) -> None:
    axes = {"eps": (1.0,), "omega": (1.0,)}
    key = [0, 8] if how == "other keys" else [0, 7]
    a, b = grids.grid(axes, paired=how != "unpaired"), grids.grid(axes, spread=0.1, key=key)
    if how == "other seeds":
        b = b.assign_coords(seed=b["seed"] + 1)
    assert "of unpaired seeds" in compare(a, b).text()
    row = rows_of(compare(a, b), "loss")[0]
    error = math.hypot(row["a A"].error, row["b B"].error)
    assert row["difference"].error == pytest.approx(error, rel=1e-12)


def test_two_eps_are_compared_where_they_protect_the_same() -> None:
    a = grids.grid({"eps": (1.0, 5.0)}, algorithms=THREE[1:])
    a["protects"] = (a["flag"] * 0 + 1).where(a["noisy"] > 0, 0)
    b = a.assign(
        protects=a["protects"].where(a["protects"] == 0, 2), proven_eps=a["proven_eps"] - 0.5
    )
    alike, unlike = compare(a, b.assign(protects=a["protects"])), compare(a, b)
    who = "one record of one client, replaced by another, from an adversary who sees"
    said = [
        f"{who} every message of every client.",
        f"{who} only the sum of the clients' messages.",
    ]
    for found, other, difference in ((alike, "messages", -0.5), (unlike, "sums", None)):
        assert [row["difference"] for row in rows_of(found, "proven eps")] == [difference] * 2
        sides = [(row["a A"], row["b B"]) for row in rows_of(found, "protects")]
        assert sides == [("record, messages", f"record, {other}")] * 2 * (found is unlike)
        assert not found.best
    assert f"ldp_sgd: ε protects {said[0]}" in alike.notes
    assert {
        f"In {side}, ldp_sgd: ε protects {what}" for side, what in zip("AB", said, strict=True)
    } < {*unlike.notes}
    assert "neither side is the better one" in unlike.text()
    assert "neither side" not in alike.text()
    a["proven_eps"] = a["proven_eps"] + 1e-9
    assert "1.001" in compare(a, b, names=("a", "b")).text()  # a bound that is rounded down is none
    later = compare(a, b.assign(protects=a["protects"], delta=a["delta"] * 10))
    assert [row["difference"] for row in rows_of(later, "proven eps")] == [None] * 2
    assert len(rows_of(later, "delta")) == 2
    assert not rows_of(alike, "delta")


def test_what_is_on_one_side_only() -> None:
    a = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)})
    b = grids.grid({"eps": (1.0, 10.0), "omega": (1.0 + 1e-12, 9.0)}, problem="adult")
    text = compare(a, b, names=("a", "b")).text()
    assert "Only in a: soteriafl_sgd, eps = 5, omega = 1; " in text
    only = (
        "soteriafl_sgd, eps = 10, omega = 1; soteriafl_sgd, eps = 10, omega = 9; ldp_sgd, eps = 10."
    )
    assert f"Only in b: {only}" in text
    assert "a and b: 3 common settings" in text
    assert "Different problem: a9a in a, adult in b." in text


def test_numbers_that_differ_are_said() -> None:
    axes = {"eps": (1.0, 5.0), "lr": (0.3,)}
    a, b = grids.grid(axes, rounds=(20, 40)), grids.grid(axes, rounds=(20, 20))
    b["used_sigma"] = b["used_sigma"] * 2
    a["used_clip"] = xarray.full_like(a["used_sigma"], 1.0)
    b["used_clip"] = xarray.full_like(b["used_sigma"], 0.5)
    text = compare(a, b).text()
    assert "Different rounds in 2 of 4 settings: 40 in A, 20 in B." in text
    assert "Different sigma in 4 of 4 settings." in text
    assert "Different clip in 4 of 4 settings: 1 in A, 0.5 in B." in text
    assert "Different" not in compare(a, a).text()
    c, one = grids.grid(axes, data="0b5", objective="1 0 2"), "a9a (10 clients, checksum 0b5) in A"
    text = compare(c, grids.grid(axes, objective="3 0 4", partition="by_label")).text()
    assert f"Different data: {one}, a9a (by_label, 10 clients, checksum abc) in B." in text
    assert "objective" not in text  # of other data it is another one
    salted = grids.grid(axes, data="5a17:0b5"), grids.grid(axes, data="0000:abc")
    assert "Different data" not in compare(*salted).text()  # of different salts: nothing is known
    assert "Different data" in compare(salted[0], grids.grid(axes, data="5a17:abc")).text()
    other = grids.grid(axes, data="0b5", objective="1 9 2")
    said = "(regularizer, constraint or size): 0 2 in A, 9 2 in B."
    assert said in compare(c, other).text()


def test_what_diverged_is_said() -> None:
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0)}
    lost, new = grids.grid(axes, diverged={"omega": 9.0}), grids.grid(axes, missing={"omega": 9.0})
    text = compare(new, lost, names=("new", "bad")).text()
    assert "In bad 2 of 6 compared settings diverged." in text
    assert "In new 2 of 6 compared settings did not run." in text


def test_mistakes_in_a_comparison() -> None:
    a, b = grids.grid({"eps": (1.0,), "lr": (0.1, 0.3)}), grids.grid({"eps": (1.0,)})
    compare(select(a).ds, b)
    refused(lambda: compare(a, b), r"Only A has the axis lr, with 2 values.*--where lr=0\.1")
    refused(lambda: compare(b, grids.grid({"eps": (2.0,)})), "no setting in common")
    refused(lambda: compare(b, b, metrics=["los"]), "did you mean 'loss'")
    refused(lambda: table(b, metrics=["los"]), "did you mean 'loss'")


def test_a_run_beside_a_sweep_of_one_cell(a_run: jaxfl.Run) -> None:
    run, given = a_run.dataset().copy(deep=True), {"batch": 4, "k": 3, "lr": 0.3, "eps": 20.0}
    alone = jaxfl.sweep("soteriafl_sgd", a_run.problem, None, 24, **given)
    found = compare(run, alone, names=("run", "sweep"))
    (row,) = rows_of(found, "loss")
    assert row["a run"].mean == float(run["loss"][-1])
    assert row["difference"].mean == pytest.approx(0, abs=1e-5)  # the same numbers up to rounding
    assert [n for n in found.notes if n.startswith(("Only", "Different"))] == []
    (cell,) = read(table(run, labels={"soteriafl_sgd": "Soteria"}))
    assert (cell["algorithm"], float(cell["loss"])) == ("Soteria", row["a run"].mean)
    whole = run.copy(deep=True)
    run["loss"][3:] = np.nan
    one = Grid.of(run).ds  # lost as a sweep too
    assert (one["diverged_at"].values, results.config(one)["kind"]) == (3, "sweep")
    assert np.isnan(Grid.of(one).final("utility")).all()
    text = compare(run, whole, names=("bad", "good")).text()
    assert "In bad 1 of 1 compared setting diverged." in text
