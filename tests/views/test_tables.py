"""Tables of sweeps: what they say, and how they are written."""

import csv
import io
import math
from typing import Any

import grids
import jax
import numpy as np
import pytest
import xarray
from rich.console import Console
from rows import a_problem
from told import refused

import jaxfl
from jaxfl.engine import results
from jaxfl.views.cells import Grid, final, restrict
from jaxfl.views.selection import select
from jaxfl.views.tables import BROKEN, FLAG, UNPROVEN, Column, Estimate, Table, compare, table
from jaxfl.views.words import estimate, number, prefix

pytestmark = pytest.mark.once

THREE = ("soteriafl_sgd", "ldp_sgd", "fedsgd")


@pytest.fixture(scope="module")
def ds() -> xarray.Dataset:
    return grids.grid(algorithms=THREE, diverged={"omega": 9.0, "eps": 1.0})


def read(found: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(found.csv())))


# --- numbers -------------------------------------------------------------------------------------


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


# --- the table of a sweep ------------------------------------------------------------------------


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
    text = shown.text()
    assert chosen.note in text
    assert "ε at δ = 0.001, for one run published alone." in text
    assert "best lr" in text


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("paired", [True, False])
def test_what_eps_covers_is_said_once(chosen: bool, paired: bool) -> None:
    """Also where nothing was chosen; a single run is not compared with others."""
    ds = grids.grid({"eps": (1.0, 5.0), "lr": (0.1, 0.3)}, paired=paired)
    notes = " ".join(table(select(ds).ds if chosen else ds).notes)
    assert notes.count("share their noise, so no eps is proven for publishing several") == paired
    assert notes.count("for one run published alone") == 1
    one = restrict(ds.isel(seed=[0]), {"eps": 1.0, "lr": 0.1, "algorithm": "ldp_sgd"})
    assert "published alone" not in " ".join(table(one).notes)


def test_the_best_row_of_each_group(ds: xarray.Dataset) -> None:
    rows = read(table(ds))
    for eps in ("1", "5", ""):
        group = [row for row in rows if row["eps"] == eps and row["loss"]]
        best = min(group, key=lambda row: float(row["loss"]))
        assert [row for row in group if row["best"] == "1"] == [best]
    lines = table(ds).text().splitlines()
    assert sum(line.startswith("*") for line in lines) == 4  # three groups, and the note
    assert "* lowest final loss of the rows with the same ε." in lines
    rows = read(table(select(ds, "max:utility", over=()).ds))
    group = {float(row["utility"]): row["best"] for row in rows if row["eps"] == "5"}
    assert [value for value, best in group.items() if best == "1"] == [max(group)]


def test_problems_do_not_compete() -> None:
    """Whatever the axis is called, if the problem takes it."""
    axes = {"regularizer": ("l2", "none"), "eps": (1.0,)}
    apart = table(grids.grid(axes, problems=("regularizer",)))
    assert len(apart.best) == 2
    assert [column.name for column in apart.columns][:2] == ["regularizer", "algorithm"]
    assert len(table(grids.grid(axes)).best) == 1


def test_a_broken_bound_is_an_alarm(ds: xarray.Dataset) -> None:
    broken = ds.copy(deep=True)
    broken["broken"][1], broken["flag"][1] = 2.5, 1
    found = table(broken)
    flags = {(row["algorithm"], row["flag"]) for row in read(found)}
    assert ("ldp_sgd", BROKEN) in flags
    assert ("soteriafl_sgd", FLAG) in flags
    assert "gradient has norm 2.5 at x0, above gradient_bound" in found.text()
    assert BROKEN not in table(ds).text()


def test_a_claim_below_what_is_proven_is_flagged(ds: xarray.Dataset) -> None:
    rows = read(table(ds))
    assert all((row["flag"] == FLAG) == (row["omega"] == "9") for row in rows)
    assert (
        f"{FLAG}: the proven eps exceeds that of the paper's formula by more than 1 %"
        in table(ds).text()
    )
    quiet = table(restrict(ds, {"omega": [1], "algorithm": ["ldp_sgd"]}))
    assert FLAG not in quiet.text()
    assert "flag" not in quiet.csv()


def test_privacy_that_is_not_there(ds: xarray.Dataset) -> None:
    rows = read(table(ds))
    assert {row["proven_eps"] for row in rows if row["algorithm"] == "fedsgd"} == {"no noise"}
    bare = table(restrict(ds, {"algorithm": "fedsgd"}))
    assert "ε" not in bare.text()
    assert "Not private: no noise." in bare.text()
    unproven = ds.copy(deep=True)
    unproven["proven_eps"][:2] = np.inf
    assert {row["proven_eps"] for row in read(table(unproven))} == {"none", "no noise"}
    assert {row["flag"] for row in read(table(unproven))} == {UNPROVEN, ""}
    assert f"{UNPROVEN}: the paper's formula claims an eps, and none is" in table(unproven).text()
    assert FLAG not in table(unproven).text()


def test_what_diverged_has_no_mean(ds: xarray.Dataset) -> None:
    for row in read(table(ds)):
        lost = (row["algorithm"], row["eps"], row["omega"]) == ("soteriafl_sgd", "1", "9")
        assert row["state"] == ("1 of 3 seeds diverged" if lost else "")
        assert (row["loss"] == "") == lost
    states = [row["state"] for row in read(table(select(ds).ds))]
    assert states.count("all 3 settings diverged") == 1
    alone = grids.grid(diverged={"omega": 9.0, "eps": 1.0}, seeds=1)
    states = [row["state"] for row in read(table(select(alone).ds))]
    assert states.count("all 3 settings diverged") == 1
    assert "diverged" in [row["state"] for row in read(table(alone))]
    assert "state" not in table(grids.grid()).csv()


def test_what_has_not_run() -> None:
    part = grids.grid(missing={"eps": 5.0})
    assert {row["state"] for row in read(table(part)) if row["eps"] == "5"} == {"not run yet"}
    chosen = read(table(select(part).ds))
    assert {row["state"] for row in chosen if row["eps"] == "5"} == {"not run yet"}
    half = grids.grid({"eps": (1.0,)}, algorithms=("ldp_sgd",))
    half["complete"][..., -1] = 0
    assert [row["state"] for row in read(table(half))] == ["unfinished"]
    assert "not run yet" not in {row["state"] for row in chosen if row["eps"] == "1"}


def test_one_value_of_an_axis_is_in_the_title(ds: xarray.Dataset) -> None:
    """And one seed has no error; a step size that theory chose is shown."""
    found = table(restrict(ds, {"eps": [5], "lr": [0.3]}))
    assert found.title == "logistic on a9a, 10 clients, ε = 5, step size = 0.3, 3 seeds"
    assert "eps" not in read(found)[0]
    one = table(grids.grid({"eps": (1.0,)}, seeds=1))
    assert {(row["used_lr"], row["loss_se"]) for row in read(one)} == {("0.3", "")}
    assert "±" not in one.text()
    assert "1 seed" in one.title
    assert "used_lr" not in table(grids.grid()).csv() + table(select(grids.grid()).ds).csv()


def test_the_metric_that_chose_is_there(ds: xarray.Dataset) -> None:
    """On validation data, whatever metrics are asked for; utility only where asked for."""
    held = ds.assign(validation_accuracy=ds["test_accuracy"])
    shown = table(select(held).ds, metrics=["loss"])
    assert "validation accuracy (chosen by)" in shown.text()
    assert "validation_accuracy,validation_accuracy_se" in shown.csv()
    assert "chosen by" not in table(held).text()
    assert "utility" not in table(ds).csv()
    assert "utility" in table(ds, metrics=["utility"]).csv()


def test_what_a_compressor_keeps_is_a_column() -> None:
    """Where it is fixed: no axis, and not for an algorithm without a compressor."""
    for axes, known in (({"eps": (1.0,)}, {"6", ""}), ({"omega": (1.0, 9.0)}, None)):
        ds = grids.grid(axes)
        ds["used_k"] = (ds["used_omega"] * 0 + 6).where(ds["algorithm"] == "soteriafl_sgd")
        ds["used_omega"] = ds["used_k"].fillna(0.0)
        found = table(ds)
        assert (f"k of {grids.D}" in found.text()) == bool(known)
        if known:
            assert {row["used_k"] for row in read(found)} == known
            # what has no compressor has no omega, as where omega is an axis
            assert all((row["used_omega"] == "") == (row["used_k"] == "") for row in read(found))


# --- how it is written ---------------------------------------------------------------------------


def hostile() -> Table:
    columns = (
        Column("a_b", "a_b", ("50 % of [bold]{x}_~^\\", "plain, comma")),
        Column("x", "x (kbit)", (Estimate(1500.0, 12.0), 2.5e-4), 1000.0),
        Column("w", "50 % [b]<&> #1", (None, -3.0)),
    )
    return Table("a $title$", columns, ("* lowest.", "a note."), frozenset({1}))


def test_text_is_one_line_per_row() -> None:
    lines = hostile().text().splitlines()
    assert lines[0] == "a $title$"
    assert "50 % [b]<&> #1" in lines[1]
    assert "50 % of [bold]{x}_~^\\" in lines[2]
    assert "1.500 ± 0.012" in lines[2]
    assert lines[3].startswith("*")
    assert lines[4:] == ["* lowest.", "a note."]
    assert "\x1b" not in hostile().text()


def test_on_a_terminal_the_best_rows_are_bold() -> None:
    file = io.StringIO()
    hostile().show(Console(file=file, force_terminal=True, width=200))
    shown = file.getvalue().splitlines()
    assert ["\x1b[1m" in line for line in shown[2:4]] == [False, True]


def test_a_data_frame_has_the_columns_of_csv() -> None:
    frame = hostile().to_pandas()
    assert [*frame] == ["a_b", "x", "x_se", "w", "best"]
    assert [frame[name].dtype for name in ("x", "x_se", "w", "best")] == [float, float, float, bool]
    assert frame["x"].tolist() == [1500.0, 2.5e-4]
    assert frame["w"].isna().tolist() == [True, False]


def test_csv_keeps_all_digits() -> None:
    assert read(hostile()) == [
        {"a_b": "50 % of [bold]{x}_~^\\", "x": "1500", "x_se": "12", "w": "", "best": "0"},
        {"a_b": "plain, comma", "x": "0.00025", "x_se": "", "w": "-3", "best": "1"},
    ]


def test_latex_is_escaped() -> None:
    text = hostile().latex()
    assert r"a\_b & x (kbit) & 50 \% [b]$<$\&$>$ \#1 \\" in text
    assert r"50 \% of [bold]\{x\}\_\textasciitilde{}\textasciicircum{}\textbackslash{}" in text
    assert r"$1.500 \pm 0.012$ & -- \\" in text
    assert r"\textbf{plain, comma} & $2.5 \cdot 10^{-7}$ & $-3$ \\" in text
    assert text.startswith("% a $title$\n")
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")


# --- two sweeps ----------------------------------------------------------------------------------


def single(k: int) -> xarray.Dataset:
    numbers = {"batch": 4, "k": k, "lr": 0.3, "sigma": 0.1}
    return jaxfl.simulate("soteriafl_sgd", a_problem(), jax.random.key(0), 6, **numbers).dataset()


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
    x, y = (final(ds.isel(lr=0), "loss").sel(at).values for ds in (a, b))
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
    x, y = (final(ds, "loss").values[0, 0, 0] for ds in (a, b))
    assert error != pytest.approx((y - x).std(ddof=1) / math.sqrt(3), rel=0.05)


def test_what_is_on_one_side_only() -> None:
    a = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)})
    b = grids.grid({"eps": (1.0, 10.0), "omega": (1.0 + 1e-12, 9.0)}, problem="adult")
    text = compare(a, b, names=("a", "b")).text()
    assert "Only in a: soteriafl_sgd, ε = 5, ω = 1; " in text
    assert (
        "Only in b: soteriafl_sgd, ε = 10, ω = 1; soteriafl_sgd, ε = 10, ω = 9; ldp_sgd, ε = 10."
        in text
    )
    assert "a and b: 3 common settings" in text
    assert "Different problem: a9a in a, adult in b." in text


def test_costs_and_privacy_are_compared() -> None:
    a, b = (grids.grid({"eps": (5.0,), "omega": (9.0,)}) for _ in range(2))
    b["proven_eps"][:] = 4.0
    b["uplink_bits"] = b["uplink_bits"] * 3
    found = compare(a, b)
    assert rows_of(found, "proven ε")[0]["difference"] == pytest.approx(4.0 - 5.25)
    bits = rows_of(found, "uplink (Mbit)")[0]
    assert bits["b B"].mean == pytest.approx(3 * bits["a A"].mean)


def test_numbers_that_differ_are_said() -> None:
    a = grids.grid({"eps": (1.0, 5.0), "lr": (0.3,)}, rounds=(20, 40))
    b = grids.grid({"eps": (1.0, 5.0), "lr": (0.3,)}, rounds=(20, 20))
    b["used_sigma"] = b["used_sigma"] * 2
    a["used_clip"] = xarray.full_like(a["used_sigma"], 1.0)
    b["used_clip"] = xarray.full_like(b["used_sigma"], 0.5)
    text = compare(a, b).text()
    a["used_rounds"], b["used_rounds"] = a["used_sigma"] * 0 + 40, b["used_sigma"] * 0 + 20
    assert "Different rounds in 2 of 4 settings: 40 in A, 20 in B." in text
    assert compare(a, b).text().count("rounds") == 1  # they are one of the numbers too
    assert "Different sigma in 4 of 4 settings." in text
    assert "Different clip in 4 of 4 settings: 1 in A, 0.5 in B." in text
    assert "Different" not in compare(a, a).text()
    c = grids.grid({"eps": (1.0, 5.0), "lr": (0.3,)}, data="0b5", objective="10869.2793 0 29.9")
    other = grids.grid({"eps": (1.0, 5.0), "lr": (0.3,)}, objective="1.47406638 0 325.1")
    text = compare(c, other).text()
    both = "a9a (10 clients, checksum"
    assert f"Different data: {both} 0b5) in A, {both} abc) in B." in text
    assert "objective" not in text  # of other data it is another one
    apart = grids.grid({"eps": (1.0, 5.0), "lr": (0.3,)}, data="0b5", partition="by_label")
    said = "a9a (by_label, 10 clients, checksum 0b5) in A, a9a (10 clients, checksum abc) in B"
    assert f"Different data: {said}." in compare(apart, other).text()
    other = grids.grid({"eps": (1.0, 5.0), "lr": (0.3,)}, data="0b5", objective="10869.2793 9 29.9")
    said = "constraint or size): 10869.2793 0 29.9 in A, 10869.2793 9 29.9 in B."
    assert said in compare(c, other).text()


def test_what_diverged_is_said() -> None:
    """A value that is missing was "-", and nobody said why."""
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0)}
    lost = grids.grid(axes, diverged={"omega": 9.0})
    text = compare(lost, grids.grid(axes), names=("bad", "good")).text()
    assert "In bad 2 of 6 compared settings diverged." in text
    assert "In good" not in text
    text = compare(grids.grid(axes, missing={"omega": 9.0}), lost, names=("new", "bad")).text()
    assert "In new 2 of 6 compared settings did not run." in text
    run = single(3)
    whole = run.copy(deep=True)
    run["loss"][3:] = np.nan
    one = Grid.of(run).ds  # lost as a sweep too
    assert (one["diverged_at"].values, results.config(one)["kind"]) == (3, "sweep")
    assert np.isnan(final(one, "utility")).all()
    text = compare(run, whole, names=("bad", "good")).text()
    assert "In bad 1 of 1 compared setting diverged." in text
    assert "In good" not in text


def test_mistakes_in_a_comparison() -> None:
    a, b = grids.grid({"eps": (1.0,), "lr": (0.1, 0.3)}), grids.grid({"eps": (1.0,)})
    compare(select(a).ds, b)
    refused(lambda: compare(a, b), r"Only A has the axis lr, with 2 values.*--where lr=0\.1")
    refused(lambda: compare(b, grids.grid({"eps": (2.0,)})), "no setting in common")
    refused(lambda: compare(b, b, metrics=["los"]), "did you mean 'loss'")
    refused(lambda: table(b, metrics=["los"]), "did you mean 'loss'")
    words = "Only grid has the axis lr, with 2 values"
    refused(lambda: compare(single(3), a, names=("k3", "grid")), words)


def test_two_runs() -> None:
    one, two = single(3), single(6)
    found = compare(one, two, names=("k3", "k6"))
    row = rows_of(found, "loss")[0]
    assert row["a k3"].mean == float(one["loss"][-1])
    assert row["difference"].mean == pytest.approx(float(two["loss"][-1]) - float(one["loss"][-1]))
    assert "±" not in found.text()
    assert Grid.of(one).ds["loss"].dims == ("algorithm", "seed", "round")
    (cell,) = read(table(one, labels={"soteriafl_sgd": "Soteria"}))
    assert (cell["algorithm"], float(cell["loss"])) == ("Soteria", row["a k3"].mean)


def test_a_run_beside_a_sweep_of_one_cell() -> None:
    numbers = {"batch": 4, "k": 3, "lr": 0.3, "sigma": 0.1}
    alone = jaxfl.sweep("soteriafl_sgd", a_problem(), None, 6, **numbers)
    found = compare(single(3), alone, names=("run", "sweep"))
    (row,) = rows_of(found, "loss")
    assert row["difference"].mean == pytest.approx(0, abs=1e-5)  # the same numbers up to rounding
    assert [n for n in found.notes if n.startswith(("Only", "Different"))] == []
