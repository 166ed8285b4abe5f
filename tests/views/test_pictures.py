"""Pictures: there, the same each time, showing what a result holds, and honest about privacy."""

import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grids
import numpy as np
import pytest
import xarray
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from scipy.stats import norm
from told import mistakes, refused

import jaxfl
from jaxfl import InputError
from jaxfl.engine import results
from jaxfl.privacy import Event, Mean, NoClaim, Sampling, epsilon
from jaxfl.privacy.events import AnyEvent
from jaxfl.privacy.statements import card
from jaxfl.views import ink, plots
from jaxfl.views.cells import Grid, restrict
from jaxfl.views.ink import PALETTE
from jaxfl.views.plots import FRONT, draw, front
from jaxfl.views.selection import select
from jaxfl.views.tables import table

pytestmark = pytest.mark.once

THREE = ("soteriafl_sgd", "ldp_sgd", "fedsgd")
KINDS = ("front", "map", "curves")
FIVE = ("soteriafl_sgd", "soteriafl_svrg", "soteriafl_saga", "cdp_sgd", "ldp_sgd")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Figure]:
    """Figures by the name of their file, instead of the files, which take most of the time."""
    out: dict[str, Figure] = {}

    def keep(figure: Figure, folder: Path, name: str, formats: Any) -> list[Path]:
        out[name] = figure
        return [folder / f"{name}.{kind}" for kind in formats]

    monkeypatch.setattr(ink, "save", keep)
    monkeypatch.chdir(tmp_path)
    return out


def words(figure: Figure) -> str:
    """All text of a figure, and its notes in full."""
    texts = [text.get_text() for text in figure.findobj(Text)]
    return "\n".join([*texts, str(figure.get_label())])


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for key in figure.legends for text in key.get_texts()]


def panels(figure: Figure) -> list[Any]:
    return [ax for ax in figure.axes if ax.get_visible()]


def test_files_are_written_and_always_the_same(tmp_path: Path) -> None:
    """Three of a metric that is named, each with its notes; the others of a folder stay."""
    ds = grids.grid({"eps": (1.0,), "omega": (1.0, 9.0)})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "map-accuracy.png").write_text("")
    kinds = ("png", "svg", "pdf")
    one, two = (draw(ds, tmp_path / n, metrics=["loss"], formats=kinds) for n in ("a", "b"))
    drawn = itertools.product(("front", "map", "curves"), (*kinds, "txt"))
    assert [path.name for path in one] == [f"{name}-loss.{kind}" for name, kind in drawn]
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
        assert len(a.read_bytes()) > 5_000 or a.suffix == ".txt"
        if a.suffix == ".png":  # as wide as one column
            assert imread(a).shape[1] == 990
    assert {*(tmp_path / "b").iterdir()} == {*two, tmp_path / "b" / "map-accuracy.png"}
    notes = two[-1].read_text().splitlines()
    assert any("delta = 0.001, if only this run" in note for note in notes)
    assert len({*notes}) == len(notes)
    pixels = imread(one[8])[:, :, :3]
    for color in PALETTE[:2]:
        assert (np.abs(pixels - np.array(to_rgb(color))).max(axis=2) < 0.01).sum() > 1000


def test_a_figure_of_runs_is_written(ds: xarray.Dataset, tmp_path: Path) -> None:
    plots.curves(ds, tmp_path / "new" / "a.PDF")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.PDF"]
    refused(lambda: plots.curves(ds, tmp_path / "a.jpg"), r"a\.jpg")
    refused(lambda: plots.curves([]), "0 labels for 0 results: give at least one")
    refused(lambda: plots.curves([("same", ds), ("same", ds)]), "1 labels for 2 results")


def test_curves_are_means_with_bands(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}, spread=0.2)
    for cost in ("uplink_bits", "gradients"):  # some seeds pay more than others
        ds[cost] = ds[cost] * (1 + 0.1 * ds["seed"])
    ds["gradients"] = ds["gradients"] * (1 + (ds["algorithm"] == "ldp_sgd"))
    draw(ds, ".")
    axes = panels(drawn["curves-loss"])
    assert len(axes) == 6
    each = itertools.product(("round", "uplink_bits", "gradients"), (1.0, 5.0))
    for ax, (along, eps) in zip(axes, each, strict=True):
        lines, bands = ax.get_lines(), [band.get_paths()[0] for band in ax.collections]
        assert len(lines) == len(bands) == 3  # ldp_sgd has one line for both values of omega
        places = [("soteriafl_sgd", 1.0), ("soteriafl_sgd", 9.0), ("ldp_sgd", 1.0)]
        for line, band, (name, omega) in zip(lines, bands, places, strict=True):
            cell = ds.sel(algorithm=name, eps=eps, omega=omega).dropna("round")
            mean = cell["loss"].mean("seed").values
            np.testing.assert_allclose(line.get_ydata(), mean, rtol=1e-12)
            x = cell["round"].values if along == "round" else cell[along].mean("seed").values
            unit = {"round": 1, "uplink_bits": 1e6, "gradients": 1e3}[along]
            np.testing.assert_allclose(line.get_xdata(), x / unit, rtol=1e-12)
            error = cell["loss"].std("seed", ddof=1).values / np.sqrt(3)
            corners = band.vertices
            assert corners[:, 1].max() == pytest.approx((mean + error).max(), rel=1e-9)
            assert corners[:, 1].min() == pytest.approx((mean - error).min(), rel=1e-9)
    assert legend(drawn["curves-loss"]) == ["soteriafl_sgd", "ldp_sgd", "ω = 1", "ω = 9", "no ω"]
    assert "Bands: standard error." in words(drawn["curves-loss"])


def test_divergence_ends_in_a_cross(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}, diverged={"omega": 9.0, "eps": 1.0})
    for name in grids.TOTALS:  # a sweep stores no totals of a run from where it diverged
        ds[name] = ds[name].where(~(ds["round"] >= ds["diverged_at"]))
    draw(ds, ".")
    for i, ax in enumerate(panels(drawn["curves-loss"])):
        crosses = [line for line in ax.get_lines() if line.get_marker() == "X"]
        assert len(crosses) == (i % 2 == 0)  # the left panel of each row
        if i == 0:
            mean = ds["loss"].sel(algorithm="soteriafl_sgd", eps=1.0, omega=9.0, round=5).mean()
            assert np.ravel(crosses[0].get_data()).tolist() == [5, pytest.approx(float(mean))]
    assert "1 setting diverged or did not run" in words(drawn["curves-loss"])
    draw(grids.grid({"eps": (1.0, 5.0), "lr": (0.1, 0.3)}, diverged={"eps": 5.0}), ".")
    assert "ε = 1 proven." in words(drawn["curves-loss"])  # where all step sizes diverged is none


def test_what_is_chosen_is_drawn(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0,), "lr": (0.1, 1.0)}, algorithms=("ldp_sgd",))
    shown = jaxfl.views.figures(ds)  # in a notebook
    (line,) = panels(shown["curves-loss"])[0].get_lines()
    best = ds["loss"].sel(lr=1.0).mean("seed").dropna("round").values[0, 0]
    np.testing.assert_allclose(line.get_ydata(), best)
    assert "the best of 2 values of lr (step size)" in words(shown["curves-loss"])
    assert "Best step size by training loss: 1.\n" in words(shown["curves-loss"])
    two = grids.grid({"eps": (1.0, 5.0), "lr": (0.1, 1.0)})
    two["loss"][{"algorithm": 0, "lr": 0}] = 0.0
    several = "0.1 at ε = 1, 1 at ε = 5 (soteriafl_sgd); 1 (ldp_sgd)."
    for eps, says in ((slice(None), "0.1 (soteriafl_sgd); 1 (ldp_sgd)."), ([1], several)):
        two["loss"][{"algorithm": 0, "lr": 1, "eps": eps}] = -1.0 if says == several else 1.0
        under = jaxfl.views.figures(two, choose_by="loss", only="front-loss")["front-loss"].texts
        said = f"Best step size by training loss: {says}"
        assert said in under[0].get_text().replace("\n", " ")
    draw(select(ds, "loss").ds, ".")  # an earlier selection keeps its words
    assert "by the lowest final loss" in words(drawn["curves-loss"]).replace("\n", " ")
    draw(ds, ".", choose_by="none")
    assert len(panels(drawn["curves-loss"])[0].get_lines()) == 2
    assert "best of" not in words(drawn["curves-loss"])


@pytest.mark.parametrize(
    ("axes", "algorithms", "lines"),
    [
        ({"problem": ("a/b c", "mnist"), "eps": (1.0, 5.0), "omega": (1.0, 9.0)}, THREE[:2], 3),
        ({}, THREE, 3),  # no axis at all
        ({"eps": (1.0,), "omega": tuple(range(1, 13))}, THREE[:2], 12),
        ({"omega": (1.0, 3.0, 9.0, 19.0, 40.0, 99.0)}, FIVE, 6),  # 25 lines
        ({"clients": (10, 20), "eps": (1.0, 5.0)}, THREE[:2], None),
        ({"eps": (1.0, 5.0), "omega": tuple(range(1, 31)), "batch": (1.0, 2.0)}, THREE[:1], 24),
    ],
)
def test_any_shape_can_be_drawn(drawn, axes, algorithms, lines):
    draw(grids.grid(axes, algorithms=algorithms, static=("problem",)), ".")
    assert len(drawn) <= 6
    if "clients" in axes:  # fronts of problems are not compared
        assert len(panels(drawn["front-loss"])) == 4
    figure = drawn["curves-loss"]
    if lines is not None:
        assert len(panels(figure)[0].get_lines()) == lines
    for ax in panels(figure):  # no two lines look alike
        looks = [(str(x.get_color()), str(x._unscaled_dash_pattern)) for x in ax.get_lines()]
        assert len({*looks}) == len(looks)
    shown = words(figure)
    assert all(name in shown for name in algorithms) or len(algorithms) == 1
    for text in figure.texts:  # the title and the notes stay inside of the picture
        box = text.get_window_extent()
        assert box.x0 >= 0, text.get_text()
        assert box.x1 <= figure.bbox.x1 + 1, text.get_text()


SAME = {"ldp_sgd": "soteriafl_sgd"}


@mistakes(
    (lambda: draw(grids.grid({}), ".", formats=("jpg",)), "format = 'jpg' must be one of png, pdf"),
    (lambda: draw(grids.grid({}), ".", formats=()), "must be one of png"),
    (lambda: draw(grids.grid({}), ".", metrics=["los"]), "did you mean 'loss'"),
    (
        lambda: draw(grids.grid({}), ".", medium="poster"),
        "'poster' must be one of paper, slides, not",
    ),
    (lambda: draw(grids.grid({}), ".", width=0.5), "width = 0.5"),
    (lambda: draw(grids.grid({}), ".", widht=3), "no option named 'widht': did you mean 'width'"),
    (lambda: draw(grids.grid({}), ".", only=["map"]), "only = 'map' must be one of front-loss"),
    (lambda: draw(grids.grid({}), ".", labels={"ldp_sdg": "LDP"}), "did you mean 'ldp_sgd'"),
    (lambda: draw(grids.grid({}), ".", labels=SAME), "Two values of algorithm cannot have one"),
)
def test_mistakes_are_refused_before_anything_is_written(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(call, words)
    assert not list(tmp_path.iterdir())


def test_an_eps_that_is_not_proven_is_only_claimed(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 3.0)}, algorithms=THREE)
    draw(ds, ".")
    titles = [ax.get_title() for ax in panels(drawn["curves-loss"])[:2]]
    assert titles == ["ε = 1", "ε = 5"]
    text = words(drawn["curves-loss"])
    assert "fedsgd: Not private, no noise." in text
    assert "Each ε at δ = 0.001, if only this run is published." in text
    ds["proven_eps"][0, 0] = np.inf
    draw(ds, ".")
    titles = [ax.get_title().replace("\n", " ") for ax in panels(drawn["curves-loss"])[:2]]
    assert titles == ["ε = 1 (asked for; 1 proven, or none)", "ε = 5"]
    said = "soteriafl_sgd: no ε proven; its paper's formula gives 1 and 5."
    assert said in words(drawn["map-loss"])
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)})
    draw(ds.assign(proven_eps=1.05 * ds["proven_eps"]), ".")
    said = "soteriafl_sgd: ε = 1.05 and 5.25 proven; its paper's formula gives 0.9524 and 4.762."
    assert said in words(drawn["front-loss"])


def test_a_loss_that_did_not_fall_is_named(drawn: dict[str, Figure]) -> None:
    """With a choice and without. Settings that have no final value are not named."""
    ds = grids.grid({"eps": (1.0, 5.0), "lr": (0.1, 0.3)}, diverged={"eps": 5.0, "lr": 0.1})
    draw(ds, ".", choose_by="none")
    assert "did not fall" not in words(drawn["curves-loss"])
    ds["loss"][{"algorithm": 1, "eps": 0, "round": 0}] = 0.1
    each = "ldp_sgd, ε = 1, step size = 0.1; ldp_sgd, ε = 1, step size = 0.3."
    for choice, which in (("none", each), ("auto", "ldp_sgd, ε = 1.")):
        draw(ds, ".", choose_by=choice)
        for name, figure in drawn.items():
            below = figure.texts[-1].get_text().replace("\n", " ")
            assert f"The loss did not fall: {which}" in below, name


@pytest.mark.parametrize(
    ("proven", "said", "several"),
    [
        ([[1.251, 6.0]] * 2, "1.251 proven", True),
        ([[1.251, 6.0], [1.111, 7.0]], "1.111 to 1.251 proven", True),
        ([[np.inf, np.inf]] * 2, "none proven", False),
    ],
)
def test_titles_say_what_is_proven(
    proven: Any, said: str, several: bool, drawn: dict[str, Figure]
) -> None:
    """Where it is more than was asked for; also of one eps, and on the axis of a map."""
    ds = grids.grid({"eps": (1.0, 5.0)})
    draw(ds, ".")
    assert (axis := panels(drawn["map-loss"])[0].get_xlabel()) == "ε"
    ds["proven_eps"] = ("algorithm", "eps"), proven
    draw(ds, ".")
    full = f"ε = 1 (asked for; {said})"
    for name in ("curves-loss", "front-loss"):
        assert panels(drawn[name])[0].get_title().replace("\n", " ") == full
    assert panels(drawn["map-loss"])[0].get_xlabel() == f"{axis} (asked for)"
    whole = plots.WHOLE.format("proven ε")
    assert full in words(drawn["map-loss"])
    assert (whole in words(drawn["curves-loss"])) == several
    draw(restrict(ds, {"eps": 1.0}), ".")
    assert full in words(drawn["curves-loss"])


def test_unequal_batches_are_named(drawn: dict[str, Figure]) -> None:
    """Where they are no axis; a table has a column for them."""
    ds = grids.grid({"eps": (1.0, 4.0)})
    draw(ds.assign(used_batch=(("algorithm", "eps"), [[32.0, 32.0]] * 2)), ".")
    assert "Batch size:" not in words(drawn["curves-loss"])
    ds = ds.assign(used_batch=(("algorithm", "eps"), [[32.0, 32.0], [19.0, 77.0]]))
    ds = ds.assign(used_gap=xarray.ones_like(ds["used_lr"]), used_clip=0 * ds["used_lr"] + 2)
    draw(ds, ".")
    note = "Batch size: 32 (soteriafl_sgd); 19 at ε = 1, 77 at ε = 4 (ldp_sgd)."
    for figure in drawn.values():
        assert note in str(figure.get_label())
        assert "clip bound = 2" in figure.get_label()
        assert "gap" not in figure.get_label()  # the step size follows from it
        assert note in figure.texts[-1].get_text().replace("\n", " ")


def test_compression_without_an_axis_is_named(drawn: dict[str, Figure]) -> None:
    """For each algorithm that has it, or for each compressor."""
    ds = grids.grid({"eps": (1.0, 5.0), "compressor": ("qsgd", "natural")}, static=("compressor",))
    sent = xarray.zeros_like(ds["used_omega"]).where(ds["algorithm"] == "ldp_sgd", 9.0)
    levels = sent.where((sent > 0) & (ds["compressor"] == "qsgd")) / 3
    named = {"used_omega": sent, "used_levels": levels}
    one = ds.assign(named).isel(compressor=0, drop=True)
    about = results.config(one)
    del about["axes"]["compressor"]
    for some, said in (
        (ds.assign(named), "qsgd (levels = 3, ω = 9); natural (ω = 9)"),
        (changed(one, axes=about["axes"]), "soteriafl_sgd (levels = 3, ω = 9)"),
    ):
        draw(some, ".")
        assert all(f"Compression: {said}." in str(f.get_label()) for f in drawn.values())
        drawn.clear()
    draw(grids.grid(), ".")
    assert "Compression" not in words(drawn["curves-loss"])


def squares(ax: Any) -> dict[tuple[float, float], str]:
    return {text.get_position(): text.get_text() for text in ax.texts}


def test_maps_hold_the_final_values(drawn: dict[str, Figure]) -> None:
    axes = {"eps": (1.0, 5.0, 10.0), "omega": (1.0, 9.0)}
    lost = {"diverged": {"omega": 9.0, "eps": 1.0}, "missing": {"eps": 10.0}}
    ds = grids.grid(axes, algorithms=THREE, **lost)
    draw(ds, ".")
    soteria, ldp, fed, bar = panels(drawn["map-loss"])
    final = ds["loss"].sel(algorithm="soteriafl_sgd", omega=1.0).mean("seed")
    found = squares(soteria)
    assert found[1.5, 0.5] == f"{float(final.sel(eps=5.0, round=40)):#.3g}"
    assert found[0.5, 1.5] == "diverged"
    assert found[2.5, 0.5] == found[2.5, 1.5] == "not run"
    assert len(found) == len(squares(ldp)) == len(squares(fed)) == 6
    assert ldp.get_title() == "ldp_sgd\n(no ω)"  # equal squares along it
    (mesh,) = soteria.collections
    assert np.argwhere(np.ma.getmaskarray(mesh.get_array())).tolist() == [[0, 2], [1, 0], [1, 2]]
    assert "lower is better" in bar.get_ylabel()
    bar.figure.draw_without_rendering()
    middle = [each.get_window_extent().intervaly.mean() for each in (soteria.yaxis.label, soteria)]
    assert soteria.get_ylabel() == "ω"
    assert middle[0] == pytest.approx(middle[1], abs=3)  # pixels: it is beside no number
    small = grids.grid({"eps": (1.0, 5.0)})
    figure = jaxfl.views.figures(small, only="map-grad_norm_sq", metrics=["min:grad_norm_sq"])
    bar = panels(figure.popitem()[1])[-1]
    bar.figure.draw_without_rendering()
    box = bar.yaxis.label.get_window_extent()
    assert box.y0 >= 0
    assert box.y1 <= bar.figure.bbox.height


def test_the_numbers_of_a_colour_bar_are_in_the_picture(tmp_path: Path) -> None:
    """Its ticks, and with them the room for their numbers, follow from its size."""
    clip = tuple(123.0 * i for i in range(1, 9))
    ds = grids.grid({"eps": (1.0, 5.0), "clip": clip}, algorithms=THREE, seeds=1)
    how: Any = {"only": "map-grad_norm_sq", "metrics": ["min:grad_norm_sq"], "width": 2.0}
    (path, _) = draw(ds, tmp_path, **how)
    pixels = imread(path)[:, :, :3]
    assert (pixels[:, [0, -1]] == 1).all()  # nothing is cut
    assert (pixels[:, -40:] < 1).any()


def test_values_that_were_added_later_stand_in_their_order() -> None:
    first = grids.grid({"eps": (1.0, 5.0), "lr": (0.1, 0.3)})
    later = first.isel(lr=[1, 0], eps=[1, 0])
    assert jaxfl.views.table(later).csv() == jaxfl.views.table(first).csv()
    (one, two) = (
        panels(jaxfl.views.figures(ds, choose_by="none")["map-loss"])[0] for ds in (first, later)
    )
    assert squares(one) == squares(two)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_front_by_brute_force(sign: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        points = rng.integers(1, 6, (8, 2)).astype(float)
        every = {(b, sign * v) for b, v in points}
        good = {(b, w) for b, w in every if not any(c <= b and x <= w for c, x in every - {(b, w)})}
        found = [tuple(points[i]) for i in front(*points.T, sign)]
        assert {(b, sign * v) for b, v in found} == good
        assert found == sorted(found)


def test_points_of_the_front(drawn: dict[str, Figure]) -> None:
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0)}
    ds = grids.grid(axes, diverged={"omega": 9.0, "eps": 1.0}, spread=0.2)
    draw(ds, ".")
    left, right = panels(drawn["front-loss"])
    left, bars = (ax.collections[0].get_segments() for ax in (left, right))
    assert (len(left), len(bars)) == (2, 3)  # what diverged is no point
    final = ds["loss"].sel(algorithm="soteriafl_sgd", eps=5.0, omega=9.0, round=40)
    places = [line.get_xydata()[0] for line in right.get_lines() if len(line.get_xydata()) == 1]
    (bits, mean), error = (
        (40 * grids.N * 12 * grids.BITS / 1e6, float(final.mean())),
        float(final.std(ddof=1)),
    )
    assert any(place == pytest.approx([bits, mean]) for place in places)
    (bar,) = [bar for bar in bars if bar[:, 1].mean() == pytest.approx(mean)]
    assert np.ptp(bar[:, 1]) == pytest.approx(2 * error / np.sqrt(3))


def test_a_front_is_over_the_axes_without_room(drawn: dict[str, Figure]) -> None:
    """Panels have eps, colours algorithms, markers omega, rows clip: of all batches the best are shown."""
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0), "clip": (1.0, 2.0), "batch": (8.0, 16.0, 32.0)}
    ds = grids.grid(axes)
    ds["uplink_bits"] = ds["uplink_bits"] * (1 + (ds["batch"] == 8.0))
    ds["loss"] = ds["loss"] * (1 - 0.2 * (ds["batch"] == 8.0) + 0.1 * (ds["batch"] == 32.0))
    draw(ds, ".", metrics=["loss"])
    bits, loss = (Grid.of(ds).final(name).mean("seed") for name in ("uplink_bits", "loss"))
    shown = {"eps": 5.0, "clip": 2.0, "algorithm": "soteriafl_sgd", "omega": 9.0}
    expected = [
        (float(bits.sel(**shown, batch=b)), float(loss.sel(**shown, batch=b))) for b in (16.0, 8.0)
    ]
    figure = drawn["front-loss"]
    assert len(panels(figure)) == 4
    lines = panels(figure)[3].get_lines()
    points = [line for line in lines if line.get_marker() == "s" and len(line.get_xdata()) == 1]
    assert len(points) == 2  # neither the first batch alone nor what another one beats
    points.sort(key=lambda line: float(line.get_xdata()[0]))
    for point, (x, y) in zip(points, sorted(expected), strict=True):
        assert np.ravel(point.get_xdata())[0] * 1e6 == pytest.approx(x)
        assert np.ravel(point.get_ydata())[0] == pytest.approx(y)
    joined = [line for line in lines if line.get_linewidth() == 0.8]
    assert len(joined) == 3  # for each algorithm and omega
    assert "Of batch size: all that no other beats in bits and value." in words(figure)
    assert "values (choose with --where)" not in words(figure)


def test_points_of_equal_bits_have_no_line_and_the_best_on_top() -> None:
    ds = grids.grid({"eps": (1.0,), "lr": (0.1, 0.2)})
    ax = jaxfl.views.figures(ds, choose_by="none", only="front-loss")["front-loss"].axes[0]
    several = [line for line in ax.get_lines() if len(line.get_xdata()) > 1]
    assert all(len({*line.get_xdata()}) > 1 for line in several)
    marked = [line for line in ax.get_lines() if line.get_marker() not in ("", "None", None)]
    points = [float(line.get_ydata()[0]) for line in marked]
    assert points == sorted(points, reverse=True)
    assert len({*points}) > 1


def test_what_adds_no_noise_is_on_no_front(drawn: dict[str, Figure]) -> None:
    """It would beat everything, and nobody may have it."""
    ds = grids.grid({"eps": (1.0,), "omega": (1.0, 9.0)}, algorithms=THREE)
    free = ds["algorithm"] == "fedsgd"
    for name in ("loss", "uplink_bits"):
        ds[name] = ds[name].where(~free, ds[name] / 100)
    draw(ds, ".")
    figure = drawn["front-loss"]
    (step,) = (line for line in panels(figure)[0].get_lines() if line.get_color() == "#DDDDDD")
    private = ds["loss"].sel(algorithm=list(THREE[:2]), round=20).mean("seed").values
    assert step.get_ydata().min() == pytest.approx(private.min())
    assert "Pareto front, in grey: the private settings that no other of these" in words(figure)
    assert "fedsgd (no noise)" in legend(figure)
    assert legend(figure).count("Pareto front") == 1
    draw(ds.assign(noisy=0 * ds["noisy"]), ".")  # of all settings a note says it once
    assert "(no noise)" not in (text := words(drawn["front-loss"]))
    assert text.replace("\n", " ").count("Not private, no noise.") == 2  # below it and in full


def test_what_ends_above_its_start_is_on_no_front(drawn: dict[str, Figure]) -> None:
    """However few bits it sends; nor is the accuracy of what has a loss that did."""
    ds = grids.grid({"eps": (1.0,), "omega": (1.0, 9.0)}, algorithms=THREE[:2])
    risen, start = ds["algorithm"] == THREE[0], float(ds["loss"].isel(round=0).max())
    ds["loss"] = ds["loss"].where(~(risen & (ds["round"] == 20)), 1.05 * start)
    ds["uplink_bits"] = ds["uplink_bits"].where(~risen, ds["uplink_bits"] / 100)
    draw(ds, ".")
    figure = drawn["front-loss"]
    steps = [line for line in panels(figure)[0].get_lines() if line.get_color() == "#DDDDDD"]
    assert all(step.get_ydata().max() <= start for step in steps)
    assert "What ends above its start is on none." in words(figure).replace("\n", " ")
    figure, best = drawn["front-test_accuracy"], Grid.of(ds).final("test_accuracy").mean("seed")
    steps = [line for line in panels(figure)[0].get_lines() if line.get_color() == "#DDDDDD"]
    own = best.sel(algorithm=THREE[1]).values
    assert {*np.concatenate([step.get_ydata() for step in steps])} <= {*own.ravel()}
    assert "What has a loss that did not fall is on none." in words(figure).replace("\n", " ")


def test_a_named_picture_that_shows_nothing_is_refused() -> None:
    ds = grids.grid({"eps": (1.0,)}, algorithms=THREE[:1])
    with pytest.raises(
        InputError, match=r"only = .map-loss. shows nothing of this result: a map takes"
    ):
        plots.figures(ds, only="map-loss")


def test_an_algorithm_without_a_run_has_no_privacy_yet(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0,)}, algorithms=THREE[:2], missing={"algorithm": THREE[1]})
    for name in ("proven_eps", "claimed_eps"):
        ds[name] = ds[name].where(ds["algorithm"] == THREE[0])
    draw(ds, ".")
    for figure in drawn.values():
        assert f"{THREE[0]}: ε = 1 proven." in words(figure)
        assert f"{THREE[1]}: ε" not in words(figure)


def test_what_has_no_proven_eps_beats_nothing_that_has(drawn: dict[str, Figure]) -> None:
    """No star, no front, however good it is; where nothing is proven, the best is marked."""
    ds = grids.grid({"eps": (1.0,), "omega": (1.0, 9.0)}, algorithms=THREE[:2])
    lost = ds["algorithm"] == THREE[0]
    ds["proven_eps"] = ds["proven_eps"].where(~lost, np.inf)
    ds["loss"] = ds["loss"].where(~lost | (ds["round"] == 0), ds["loss"] / 2)
    draw(ds, ".")
    (axes,) = panels(figure := drawn["front-loss"])
    best = np.concatenate([x.get_ydata() for x in axes.get_lines() if x.get_color() == "#DDDDDD"])
    ends = Grid.of(ds).final("loss").sel(algorithm=THREE[1]).mean("seed")
    assert {*np.round(best, 6)} <= {*np.round(ends.values.ravel(), 6)}
    text = words(figure).replace("\n", " ")
    assert "What has no proven ε is on none." in text
    assert text.count("All ran 20 rounds, whatever their bits.") == 2
    assert not jaxfl.views.table(ds).best  # one row of the other is no choice
    found = jaxfl.views.table(ds.assign(proven_eps=ds["proven_eps"] * np.inf))
    assert {*found.to_pandas()["algorithm"].iloc[[*found.best]]} == {THREE[0]}


def test_a_legend_has_one_order_in_all_pictures_of_a_sweep(drawn: dict[str, Figure]) -> None:
    """That of the algorithms, whatever comes first in a picture, or has no value in it."""
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}, algorithms=FIVE)
    ds["loss"] = ds["loss"].where(ds["algorithm"] != FIVE[0])
    ds["diverged_at"] = ds["diverged_at"].where(ds["algorithm"] != FIVE[0], 5.0)
    draw(ds, ".")
    kinds = ["ω = 1", "ω = 9", "no ω"]
    for name, figure in drawn.items():
        if not name.startswith("map"):
            found = [one for one in legend(figure) if FRONT not in one]
            assert found == [*FIVE, *(kinds if name.startswith("curves") else kinds[:2])], name


def test_a_front_connects_settings_of_one_protection(drawn: dict[str, Figure]) -> None:
    """The others have fronts of their own, and the legend says which; one is enough for equals."""
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}, algorithms=FIVE[2:])
    protects = xarray.zeros_like(ds["flag"], dtype=np.int32)
    for codes in ((1, 1, 1), (1, 2, 1), (2, 2, 14)):  # in messages, in sums, of clients in sums
        draw(ds.assign(protects=protects + xarray.DataArray([*codes], dims="algorithm")), ".")
        figure, several, joined = drawn["front-loss"], len({*codes}) > 1, set[int]()
        for ax in panels(figure)[:2]:
            steps = [line for line in ax.get_lines() if line.get_color() == "#DDDDDD"]
            assert len(steps) == len({*codes})
            assert len({str(line._unscaled_dash_pattern) for line in steps}) == len(steps)
            dots = [line for line in ax.get_lines() if line.get_marker() in ("o", "s", ink.APART)]
            whose = [FIVE[2:][PALETTE.index(line.get_color())] for line in dots]
            at = [(*line.get_xdata(), *line.get_ydata()) for line in dots]
            for line, code in zip(steps, dict.fromkeys(codes), strict=True):
                owns = [codes[FIVE[2:].index(name)] == code for name in whose]
                own = np.array(at)[owns]
                assert line.get_xydata().tolist() == own[front(*own.T)].tolist()
                joined |= {code} if len(line.get_xdata()) > 1 else set()
        words_of = {1: "record, messages", 2: "record, sums", 14: "client, sums"}
        pairs = zip(FIVE[2:], codes, strict=True)
        named = [name + f" ({words_of[code]})" * several for name, code in pairs]
        assert legend(figure)[:3] == legend(drawn["curves-loss"])[:3] == named
        assert ("A front for each protection" in words(figure)) == several
        fronts = {f"Pareto front ({words_of[code]})" for code in joined} if several else {FRONT}
        assert {name for name in legend(figure) if FRONT in name} == fronts


def test_a_picture_says_the_eps_that_it_is_cut_to(
    drawn: dict[str, Figure], ds: xarray.Dataset
) -> None:
    """In the title, or in the notes where there is none, or one of the user's own."""
    cut = restrict(grids.grid({"eps": (1.0, 8.0), "omega": (1.0, 9.0)}), {"eps": 8})
    for title, medium in ((None, "paper"), (None, "slides"), ("", "slides"), ("Mine", "paper")):
        draw(cut, ".", title=title, medium=medium)
        assert [*drawn] == [f"{kind}-{of}" for of in ("loss", "test_accuracy") for kind in KINDS]
        for figure in drawn.values():
            shown = [text.get_text().replace("\n", " ") for text in figure.texts]
            assert sum("clients, ε = 8, 3 seeds" in text for text in shown) == 1
            assert len(shown) == 1 + bool(title or (medium == "slides" and title is None))
            assert (shown[0] == "Mine") == (title == "Mine")
        texts = [text.get_text() for text in plots.curves(ds, title=title, medium=medium).texts]
        said = " ".join(texts).replace("\n", " ")
        assert "ε = 20" in said
        assert said.count("logistic on data, 5 clients") == 1


def test_a_medium_a_width_and_no_note(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0, 5.0, 10.0)}, algorithms=FIVE)
    for look, inches, columns in (
        ({}, 3.3, 2),
        ({"medium": "slides"}, 5.2, 3),
        ({"medium": "notebook"}, 6.9, 3),
        ({"width": 4.0, "note": False}, 4.0, 2),
    ):
        drawn.clear()
        draw(ds, ".", only=["curves-loss"], **look)
        assert [*drawn] == ["curves-loss"]
        figure = drawn["curves-loss"]
        assert figure.get_size_inches()[0] == inches
        assert len({ax.get_position().x0 for ax in panels(figure)}) == columns
        assert ("standard error" in " ".join(t.get_text() for t in figure.texts)) == (
            "note" not in look
        )
        assert "Bands: standard error." in figure.get_label()


def test_a_diverging_run_leaves_the_picture(drawn: dict[str, Figure]) -> None:
    """An arrow says so; the others keep their axis and their colours."""
    ds = grids.grid({"eps": (1.0,), "omega": (1.0, 9.0)})
    cell = {"algorithm": 0, "omega": 1}
    ds["loss"][cell] = ds["loss"][cell] * np.where(ds["round"] > 0, 1000.0, 1.0)
    draw(ds, ".", metrics=["loss"])
    for name, figure in drawn.items():
        said = " ".join(t.get_text() for t in figure.texts).replace("\n", " ")
        first = panels(figure)[0]
        assert (ink.ARROW in said) == (name != "map-loss")
        if name == "map-loss":
            assert re.search(r"All values above [0-2]\.\d+ have one colour\.", said)
            assert first.collections[0].norm.vmax < 3
            assert squares(first)[0.5, 0.5].startswith(("0", "1"))
            continue
        assert first.get_ylim()[1] < 4
        (arrow,) = [line for line in first.get_lines() if line.get_marker() == "^"]
        assert arrow.get_ydata() == [1.0]
        for ax in panels(figure)[1:]:  # nor does it widen an axis of bits
            seen = [
                x for line in ax.get_lines() if line is not arrow for x in line.get_xdata() if x > 0
            ]
            assert ax.get_xlim()[0] > 0.4 * min(seen) or ax.get_xscale() == "linear"
        assert arrow.get_color() == PALETTE[0]
    draw(ds.isel(omega=[0]), ".", metrics=["loss"])
    assert ink.ARROW not in words(drawn["curves-loss"])


@pytest.mark.parametrize("powers", [False, True])
def test_arrows_stand_where_a_line_leaves(powers: bool) -> None:
    """Each time that it does, at the limit that is drawn; a picture with a margin has another than data."""
    line = ink.Line("a", range(6), [1.0, 9.0, 1.0, 1.0, 9.0, 9.0])
    flat = ink.Line("b", range(6), [1.0, 2.0, 2.0, 2.0, 2.0, 1.0])
    panel = ink.Panel("", "x", "y", [line, flat], False, powers, start=1.0)
    line_at, (ax,) = np.interp, ink.picture("", [[panel]]).axes
    top, scale = ax.get_ylim()[1], np.log if powers else np.asarray
    assert top < 9.0
    marks = [mark for mark in ax.get_lines() if mark.get_marker() == "^"]
    places = [(float(mark.get_xdata()[0]), top * mark.get_ydata()[0]) for mark in marks]
    share = line_at(scale(top), scale([1.0, 9.0]), [0.0, 1.0])
    np.testing.assert_allclose(places, [[share, top], [3.0 + share, top]], rtol=1e-6)


@pytest.mark.parametrize("span", [2.0, 1.3, 1.5, 2.5])
def test_numbers_of_a_logarithmic_axis_stay_apart(span: float) -> None:
    """In two panels of a column of a paper."""
    for first in (0.04, 0.3, 100.0):
        line = ink.Line("a", [first, first * 10**span], [1.0, 2.0])
        sheet, panel = ink.Sheet(ink.COLUMN), ink.Panel("", "x", "y", [line], True)
        figure = ink.picture(sheet, [[panel, panel._replace(across="z")]])
        figure.draw_without_rendering()
        for ax in figure.axes:
            low, high = ax.get_xlim()
            shown = [t for t in ax.xaxis.get_major_ticks() if low <= t.get_loc() <= high]
            ends = [t.label1.get_window_extent().intervalx for t in shown]
            assert len(shown) > 1
            assert all(a[1] + 2 < b[0] for a, b in itertools.pairwise(ends)), (first, span)


def test_colours_stay_apart() -> None:
    """For protanopes and deuteranopes, too (Machado et al., 2009), and beside a lightened one."""
    seen = {
        "all": np.eye(3),
        "red": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.052]],
        "green": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    }
    to_xyz = np.array(
        [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
    )

    def lab(rgb: Any, eye: str) -> Any:
        linear = np.where(rgb > 0.0405, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
        xyz = to_xyz @ np.clip(seen[eye] @ linear, 0, 1) / [0.9505, 1, 1.0888]
        f = np.where(xyz > 0.0089, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    colors = [np.array(to_rgb(color)) for color in PALETTE]
    for eye, (a, b) in itertools.product(seen, itertools.permutations(colors, 2)):
        assert np.linalg.norm(lab(a, eye) - lab(b, eye)) > 18
        assert np.linalg.norm(lab((1 + a) / 2, eye) - lab(b, eye)) > (16 if a.any() else 9)
    looks = [ink.Line("", [], [], color=i, style=i).look() for i in range(28)]
    assert len({(str(look["color"]), str(look["linestyle"])) for look in looks}) == 28


def test_few_lines_have_their_names_beside_them(drawn: dict[str, Figure]) -> None:
    """In their colours, none over another; more lines, or points, have a legend."""
    ds = grids.grid({"eps": (1.0,)}, algorithms=THREE)
    draw(ds, ".", metrics=["loss"])
    figure = drawn["curves-loss"]
    assert not figure.legends
    (ax,) = panels(figure)
    assert {text.get_text() for text in ax.texts} == {*THREE[:2], "fedsgd (no noise)"}
    assert {t.get_color() for t in ax.texts} == {line.get_color() for line in ax.get_lines()}
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert max(box.x1 for box in boxes) <= figure.bbox.x1
    draw(grids.grid({"eps": (1.0,)}, algorithms=FIVE), ".", metrics=["loss"])
    assert legend(drawn["curves-loss"]) == [*FIVE]


def test_no_point_or_line_hides_another() -> None:
    """The lower one is larger, so a ring or an edge of it shows."""
    for x in ([1.0], [1.0, 2.0]):
        lines = [
            ink.Line(
                name, x, x, style="none" if len(x) == 1 else i, marker="o" * (len(x) == 1), color=i
            )
            for i, name in enumerate("abc")
        ]
        (ax,) = ink.picture("", [[ink.Panel("", "x", "y", lines)]]).axes
        sizes = [
            line.get_markersize() if len(x) == 1 else line.get_linewidth()
            for line in ax.get_lines()
        ]
        assert sizes[0] > sizes[1] + 1 > sizes[2] + 2


def test_titles_break_between_words_alone() -> None:
    for inches in (0.5, 1.0, 3.0):
        found = ink.fitted("private_local_sgd, ε = 5", inches, "label")
        assert "private_local_sgd" in found["label"]
        longest = max(map(len, found["label"].split("\n")))
        assert longest * ink.CHARACTER * found["fontsize"] <= inches * 1.01


def test_neighbours_share_one_vertical_axis(drawn: dict[str, Figure]) -> None:
    """Panels of other problems have their own, which names the problem."""
    ds = grids.grid({"problem": ("a9a", "mnist"), "eps": (1.0, 5.0)}, static=("problem",))
    ds["loss"] = ds["loss"] * xarray.where(ds["problem"] == "mnist", 40.0, 1.0)
    ds["loss"] = ds["loss"] * xarray.where(ds["eps"] == 5.0, 0.025, 1.0)
    draw(ds, ".", only=["curves-loss"])
    ones = panels(drawn["curves-loss"])
    limits = [ax.get_ylim() for ax in ones]
    assert limits[0] == limits[1] != limits[2] == limits[3]
    named = [ax.get_ylabel().replace("\n", " ") for ax in ones[::2]]
    assert named == ["training loss, a9a", "training loss, mnist"]


def test_nothing_covers_the_data(drawn: dict[str, Figure]) -> None:
    """Nor do words leave the picture."""
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}, algorithms=FIVE)
    draw(ds.isel(eps=[0]), ".")
    (key,) = drawn["front-loss"].legends
    drawn["front-loss"].draw_without_rendering()
    assert drawn["front-loss"].bbox.containsx(key.get_window_extent().x0)
    draw(ds, ".")
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in figure.texts]
        boxes += [key.get_window_extent() for key in figure.legends]
        for ax, box in itertools.product(panels(figure), boxes):
            assert not ax.get_window_extent().overlaps(box), name
        for a, b in itertools.combinations(boxes, 2):
            assert not a.overlaps(b), name


# --- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ds(a_run: jaxfl.Run) -> xarray.Dataset:
    return a_run.dataset()


def changed(ds: xarray.Dataset, **about: Any) -> xarray.Dataset:
    """The same result with another history."""
    out = ds.copy(deep=True)
    out.attrs["config"] = json.dumps(results.config(ds) | about)
    return out


def test_data_are_drawn_as_they_are(ds: xarray.Dataset) -> None:
    """Each panel has a purpose of its own, and each line its name."""
    figure = plots.curves(ds)
    shown = ("loss", "round"), ("test_accuracy", "round"), ("eps_spent", "uplink_bits")
    for ax, (name, x) in zip(figure.axes, shown, strict=True):
        line = ax.get_lines()[-1]
        np.testing.assert_array_equal(line.get_ydata(), ds[name])
        scale = 1000 if x == "uplink_bits" else 1
        np.testing.assert_allclose(line.get_xdata(), ds[x] / scale)
    ends = [ax.get_subplotspec().get_position(figure).x1 for ax in figure.axes]
    assert ends[1] == ends[2] > ends[0]  # two columns, and no empty place
    text = words(figure)
    assert "soteriafl_sgd: logistic on data, 5 clients" in text
    assert "Compression: soteriafl_sgd (k = 3, ω = 1.667)." in text
    assert ", δ = 0.001 proven" in text
    assert "; the paper's formula says " in text
    assert legend(figure) == ["training", "worst client", "test"]
    colors = [[line.get_color() for line in ax.get_lines()] for ax in figure.axes]
    assert colors[0][1] == colors[1][0]  # of training
    assert len({*itertools.chain(*colors)}) == 4  # training, worst, test, and eps
    assert [ax.get_ylabel() for ax in figure.axes] == ["training loss", "accuracy", "proven ε"]
    alone = changed(
        ds, facts=results.config(ds)["facts"] | {"n": 1}
    )  # it sends nothing, and is the worst
    loss, _, spent = plots.curves(alone).axes
    assert (len(loss.get_lines()), spent.get_xlabel()) == (1, "round")
    assert "uplink" not in table(alone).text()
    bare = plots.curves(ds.drop_vars(["accuracy", "test_accuracy", "test_loss"]))
    assert legend(bare) == ["training", "worst client", "at this round", "mean so far"]


def test_no_claim_without_a_guarantee(ds: xarray.Dataset) -> None:
    """What is said of a result whose privacy is another; where nothing is proven there is no eps."""
    about = results.config(ds)
    settings, none = about["settings"] | {"per_record": False}, about["privacy"] | {"proven": "inf"}
    unclipped = "no per-record privacy guarantee (only the batch's mean is clipped)"
    proven, claims = "; the paper's formula ", "the paper's formula claims 3"
    flagged = about["privacy"] | {"proven": 9.0, "claimed": 3.0, "flag": True}
    flagged |= {"conditions": [("q < 1", False, False, "q = 1")]}
    for history, said, eps in (
        ({"settings": settings, "privacy": none}, unclipped, ""),
        ({"settings": settings}, f"{proven}says ", "ε = 20, "),
        ({"privacy": none | {"claimed": 3.0}}, f"no ε proven, where {claims}", ""),
        ({"privacy": flagged}, f"{proven}claims only 3 for this noise, outside", "ε = 9"),
    ):
        other = changed(ds, **history)
        text = words(plots.curves(other if eps else other.drop_vars("eps_spent")))
        assert said in text
        assert eps in text if eps else "ε =" not in text
    bare = changed(ds, privacy=None).drop_vars("eps_spent")
    assert "b: not private: no noise." in words(plots.curves([("a", ds), ("b", bare)]))


def test_eps_is_drawn_where_it_is_proven(ds: xarray.Dataset) -> None:
    """Never below the truth: a step to the next value; without a proof there is no panel."""
    old = changed(ds, privacy=None).drop_vars("eps_spent")
    assert len(plots.curves(old).axes) == 2
    more = changed(ds)
    more["eps_spent"] = more["eps_spent"] * 3
    more["uplink_bits"] = more["uplink_bits"] * 2
    figure = plots.curves([("old", old), ("a", ds), ("b", more)])
    for ax, x, scale in zip(figure.axes[4:], ("round", "uplink_bits"), (1, 1000), strict=True):
        lines = ax.get_lines()
        assert [line.get_color() for line in lines] == list(PALETTE[1:3])
        assert [line.get_drawstyle() for line in lines] == ["steps-pre"] * 2
        np.testing.assert_array_equal(lines[1].get_ydata(), 3 * ds["eps_spent"])
        np.testing.assert_allclose(lines[1].get_xdata(), more[x] / scale)
    assert figure.axes[4].get_ylabel() == "proven ε"


@pytest.mark.parametrize(("algorithms", "several"), [(THREE[:2], True), (THREE[1:], False)])
def test_curves_say_that_they_spend_eps_at_rates_of_their_own(
    algorithms: Any, several: bool
) -> None:
    """Where a panel has several private curves, and only there."""
    ds = grids.grid({"eps": (1.0,), "omega": (1.0, 9.0)}, algorithms=algorithms)
    said = plots.WHOLE.format("proven ε")
    assert (said in words(jaxfl.views.figures(ds)["curves-loss"])) == several


def test_several_runs_are_told_apart(ds: xarray.Dataset) -> None:
    """Also where one ends first; only what all of them share is in the title."""
    short = ds.isel(round=slice(0, 13, 3))
    figure = plots.curves([("long", ds), ("short", short)])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["long", "short"]
    for ax, name in zip(figure.axes, ("loss", "test_accuracy", "eps_spent"), strict=True):
        for line, run, color in zip(ax.get_lines(), (ds, short), PALETTE, strict=False):
            assert line.get_color() == color
            np.testing.assert_array_equal(line.get_xdata(), run["round"])
            np.testing.assert_array_equal(line.get_ydata(), run[name])
    assert figure.texts[0].get_text().startswith("logistic on data, 5 clients")
    assert ", δ = 0.001 proven" in words(figure)


def test_a_metric_of_each_client_is_a_median_with_deciles(ds: xarray.Dataset) -> None:
    (line,) = plots.lines(Grid.of(ds), "client_loss", "round").values()
    low, median, high = np.quantile(ds["client_loss"], [0.1, 0.5, 0.9], axis=1)
    np.testing.assert_allclose(line.y, median)
    np.testing.assert_allclose(line.error, [median - low, high - median])
    assert plots.OF_CLIENTS in words(plots.curves(ds, metrics=["client_loss"]))


@pytest.mark.parametrize(("bad", "first"), [(np.nan, 9), (np.inf, 1)])
def test_a_run_that_diverged_ends_in_a_cross(ds: xarray.Dataset, bad: float, first: int) -> None:
    ended = f"diverged: the loss is not finite from round {first} on"
    lost = changed(ds, ended=ended)
    for name in ("loss", "worst_client_loss", "grad_norm_sq", "utility"):
        lost[name].values[first:] = bad
        lost[name].values[first - 1] = 1e30 if first > 1 else lost[name].values[0]
    for data in (lost, [("fine", ds), ("lost", lost)]):
        figure = plots.curves(data)
        assert ended in words(figure)
        assert ink.CROSS in words(figure)
        for ax in figure.axes[:1]:
            crosses = [line for line in ax.get_lines() if line.get_marker() == "X"]
            assert crosses
            assert np.ravel(ax.get_lines()[-1].get_ydata())[-1] < 1e6


def attacked(event: AnyEvent, **facts: Any) -> SimpleNamespace:
    """What a card reads of an audit of this event at delta 1e-5."""
    own = {"proven": epsilon(event, 1e-5).eps, "delta": 1e-5, "confidence": 0.95, "power": {}}
    return SimpleNamespace(_asdict=lambda: {**own, **facts})


def test_a_trade_off_has_proof_claim_and_audit(tmp_path: Path) -> None:
    mu = 2.0
    event = Event(Sampling("full", 100, 100), Mean(1.0), 2 / 100 * 20**0.5 / mu, 20)
    audited = attacked(event, lower=1.0, power={0.01: 0.2})
    found = card(event, 1e-5, claimed=1.0, audited=audited)
    figure = jaxfl.views.trade_off(found, tmp_path / "a.png", title="mine")
    assert legend(figure) == [
        "no attack",
        "proven",
        "Gaussian, μ = 2",
        "claimed, ε = 1",
        "reached by an audit",
    ]
    none, proven, gaussian, claimed, audit = panels(figure)[0].get_lines()
    fpr = np.asarray(proven.get_xdata())
    np.testing.assert_allclose(gaussian.get_ydata(), norm.cdf(norm.ppf(fpr) + mu))
    np.testing.assert_allclose(proven.get_ydata(), gaussian.get_ydata(), rtol=2e-2)
    assert (proven.get_ydata() >= gaussian.get_ydata() * (1 - 1e-9)).all()
    assert claimed.get_ydata()[0] == pytest.approx(np.e * fpr[0] + 1e-5)
    assert (*audit.get_xdata(), *audit.get_ydata()) == (0.01, 0.2)
    np.testing.assert_array_equal(none.get_ydata(), fpr)
    assert "at δ = 1e-5 proven" in words(figure).replace("\n", " ")
    assert (tmp_path / "a.png").exists()
    less = Event(event.sampling, event.sensitivity, event.sigma / 1.00006, 20)
    few = jaxfl.views.trade_off(card(less, 1e-5))
    assert legend(few) == ["no attack", "proven", "Gaussian, μ = 2.001"]  # all end in one corner
    both = jaxfl.views.trade_off({"mine": found, "other": card(NoClaim("it is"), 1e-5)})
    assert legend(both) == ["no attack", "mine", "reached by an audit", "other"]
    _, mine, point, other = panels(both)[0].get_lines()
    np.testing.assert_array_equal(mine.get_ydata(), proven.get_ydata())
    assert point.get_color() == mine.get_color() != other.get_color()
    assert (other.get_ydata() == 1).all()
    assert "other: Nothing is proven: no privacy claim: it is." in words(both).replace("\n", " ")


def test_a_trade_off_says_that_nothing_is_proven_and_why_an_audit_has_no_rate() -> None:
    said = {"lower": 4.0, "plain": 2.0}
    none = NoClaim("the loss may end the run")
    found = card(none, 1e-5, claimed=1.0, audited=attacked(none, **said))
    figure = jaxfl.views.trade_off(found)
    assert legend(figure) == ["no attack", "nothing is proven", "claimed, ε = 1"]
    assert (panels(figure)[0].get_lines()[1].get_ydata() == 1).all()
    notes = words(figure).replace("\n", " ")
    assert "Nothing is proven: no privacy claim: the loss may end the run." in notes
    given = "ε at least 4, at 95 % confidence, if only the amount of noise differs"
    assert f"{given}; it has too few runs for a rate" in notes
    full = Event(Sampling("full", 100, 100), Mean(1.0), 0.1, 20)
    assert given.replace("ε", "eps") in str(card(full, 1e-5, audited=attacked(full, **said)))
    said["plain"] = 4.0
    assert "amount of noise" not in str(card(full, 1e-5, audited=attacked(full, **said)))
