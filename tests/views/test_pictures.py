"""Pictures of sweeps: there, the same each time, and showing what the sweep holds."""

import itertools
from pathlib import Path
from typing import Any

import grids
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from told import mistakes, refused

import jaxfl
from jaxfl.views import ink
from jaxfl.views.ink import PALETTE
from jaxfl.views.plots import draw, front
from jaxfl.views.selection import select

pytestmark = pytest.mark.once

THREE = ("soteriafl_sgd", "ldp_sgd", "fedsgd")
FIVE = ("soteriafl_sgd", "soteriafl_svrg", "soteriafl_saga", "cdp_sgd", "ldp_sgd")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Figure]:
    """Figures by the name of their file without its number, instead of the files, which take most of
    the time."""
    out: dict[str, Figure] = {}

    def keep(figure: Figure, folder: Path, name: str, formats: Any) -> list[Path]:
        out[name.partition("-")[2]] = figure
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
    """Three of a metric that is named; the others of a folder go, but for those of the user."""
    ds = grids.grid({"eps": (1.0,), "omega": (1.0, 9.0)})
    (tmp_path / "b").mkdir()
    for name in ("4-map-accuracy.png", "1-mine.png"):
        (tmp_path / "b" / name).write_text("")
    one, two = (draw(ds, tmp_path / name, metrics=["loss"]) for name in ("a", "b"))
    names = [f"{i}-{kind}-loss.png" for i, kind in enumerate(("front", "map", "curves"), 1)]
    assert [path.name for path in one] == [*names, "notes.txt"]
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
        assert len(a.read_bytes()) > 5_000 or a.name == "notes.txt"
        if a.suffix == ".png":  # as wide as one column, or two
            assert imread(a).shape[1] in (990, 2070)
    assert {*(tmp_path / "b").iterdir()} == {*two, tmp_path / "b" / "1-mine.png"}
    assert "δ = 0.001, for one run" in two[-1].read_text()
    pixels = imread(one[2])[:, :, :3]
    for color in PALETTE[:2]:
        assert (np.abs(pixels - np.array(to_rgb(color))).max(axis=2) < 0.01).sum() > 1000


def test_curves_are_means_with_bands(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}, spread=0.2)
    for cost in ("uplink_bits", "gradients"):  # some seeds pay more than others
        ds[cost] = ds[cost] * (1 + 0.1 * ds["seed"])
    ds["gradients"] = ds["gradients"] * (1 + (ds["algorithm"] == "ldp_sgd"))
    draw(ds, ".")
    axes = panels(drawn["curves-loss"])
    assert len(axes) == 6
    for ax, (along, eps) in zip(
        axes, itertools.product(("round", "uplink_bits", "gradients"), (1.0, 5.0)), strict=True
    ):
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
    assert "Bands: standard error over 3 seeds." in words(drawn["curves-loss"])


def test_divergence_ends_in_a_cross(drawn: dict[str, Figure]) -> None:
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0)}
    ds = grids.grid(axes, diverged={"omega": 9.0, "eps": 1.0})
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


def test_what_is_chosen_is_drawn(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0,), "lr": (0.1, 1.0)}, algorithms=("ldp_sgd",))
    shown = jaxfl.views.figures(ds)  # in a notebook
    (line,) = panels(shown["curves-loss"])[0].get_lines()
    best = ds["loss"].sel(lr=1.0).mean("seed").dropna("round").values[0, 0]
    np.testing.assert_allclose(line.get_ydata(), best)
    assert "the best of 2 values of lr (step size)" in words(shown["curves-loss"])
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
        looks = [
            (str(line.get_color()), str(line._unscaled_dash_pattern)) for line in ax.get_lines()
        ]
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
    assert "fedsgd: not private, no noise." in text
    assert "δ = 0.001, for one run published alone." in text
    ds["proven_eps"][0, 0] = np.inf
    draw(ds, ".")
    titles = [ax.get_title() for ax in panels(drawn["curves-loss"])[:2]]
    assert titles == ["ε = 1 (asked for)", "ε = 5"]
    said = "soteriafl_sgd: no ε proven; its paper's formula gives 1 to 5."
    assert said in words(drawn["map-loss"])
    draw(grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}), ".")
    said = "soteriafl_sgd: ε = 1 to 5.25 proven; its paper's formula gives 1 to 5 for ε = 1.05 to 5.25."
    assert said in words(drawn["front-loss"])


def squares(ax: Any) -> dict[tuple[float, float], str]:
    return {text.get_position(): text.get_text() for text in ax.texts}


def test_maps_hold_the_final_values(drawn: dict[str, Figure]) -> None:
    axes = {"eps": (1.0, 5.0, 10.0), "omega": (1.0, 9.0)}
    ds = grids.grid(
        axes, algorithms=THREE, diverged={"omega": 9.0, "eps": 1.0}, missing={"eps": 10.0}
    )
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
    marker = [line for line in right.get_lines() if line.get_marker() in ("o", "s", "*")][1]
    assert marker.get_ydata()[0] == pytest.approx(float(final.mean()))
    assert marker.get_xdata()[0] == pytest.approx(40 * grids.N * 12 * grids.BITS / 1e6)
    error = float(final.std(ddof=1)) / np.sqrt(3)
    assert np.ptp(bars[1][:, 1]) == pytest.approx(2 * error)


def test_what_adds_no_noise_is_on_no_front(drawn: dict[str, Figure]) -> None:
    """It would beat everything, and nobody may have it."""
    axes = {"eps": (1.0,), "omega": (1.0, 9.0)}
    ds = grids.grid(axes, algorithms=THREE)
    free = ds["algorithm"] == "fedsgd"
    for name in ("loss", "uplink_bits"):
        ds[name] = ds[name].where(~free, ds[name] / 100)
    draw(ds, ".")
    figure = drawn["front-loss"]
    (step,) = (line for line in panels(figure)[0].get_lines() if line.get_color() == "#DDDDDD")
    private = ds["loss"].sel(algorithm=list(THREE[:2]), round=20).mean("seed").values
    assert step.get_ydata().min() == pytest.approx(private.min())
    assert "Grey: the private settings that no other of these beats" in words(figure)


def test_nothing_covers_the_data(drawn: dict[str, Figure]) -> None:
    draw(grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}, algorithms=FIVE), ".")
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in figure.texts]
        boxes += [key.get_window_extent() for key in figure.legends]
        for ax, box in itertools.product(panels(figure), boxes):
            assert not ax.get_window_extent().overlaps(box), name
        for a, b in itertools.combinations(boxes, 2):
            assert not a.overlaps(b), name
