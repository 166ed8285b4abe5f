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
from jaxfl.views.cells import Grid, restrict
from jaxfl.views.ink import PALETTE
from jaxfl.views.plots import draw, front, scene
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


# --- files ---------------------------------------------------------------------------------------


def test_files_are_written_and_always_the_same(tmp_path: Path) -> None:
    ds = grids.grid({"eps": (1.0,), "omega": (1.0, 9.0)})
    kinds = ("png", "pdf")
    one, two = (draw(ds, tmp_path / name, formats=kinds) for name in ("deep/a", "b"))
    names = [f"{kind}-{name}" for name in ("loss", "test_accuracy")
             for kind in ("front", "map", "curves")]  # fmt: skip
    wanted = [f"{i}-{name}.{kind}" for i, name in enumerate(names, 1) for kind in kinds]
    assert [path.name for path in one] == [*wanted, "notes.txt"]
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
        assert len(a.read_bytes()) > 5_000 or a.name == "notes.txt"
        if a.suffix == ".png":  # as wide as one column, or two
            assert imread(a).shape[1] in (990, 2070)
    assert set((tmp_path / "b").iterdir()) == set(two)
    shown = jaxfl.views.figures(ds)  # in a notebook
    assert list(shown) == names
    assert "Bands: standard error" in words(shown["curves-loss"])
    pixels = imread(one[4])[:, :, :3]
    for color in PALETTE[:2]:
        assert (np.abs(pixels - np.array(to_rgb(color))).max(axis=2) < 0.01).sum() > 1000


# --- curves --------------------------------------------------------------------------------------


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


def test_lines_are_told_apart(drawn: dict[str, Figure]) -> None:
    draw(grids.grid({"eps": (1.0,), "omega": (1.0, 3.0, 9.0)}), ".")
    lines = panels(drawn["curves-loss"])[0].get_lines()
    looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines}
    assert len(looks) == len(lines) == 4
    # what has no omega is not drawn as the first omega is
    assert legend(drawn["curves-loss"])[2:] == ["ω = 1", "ω = 3", "ω = 9", "no ω"]
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == 4


def test_nothing_finite_makes_no_front(drawn: dict[str, Figure]) -> None:
    """Empty axes were drawn."""
    ds = grids.grid({"omega": (1.0, 9.0)}, algorithms=THREE[:1], diverged={}, rounds=(20,))
    draw(ds, ".")
    assert "curves-loss" in drawn
    assert not [name for name in drawn if name.startswith("front")]


def test_a_panel_without_runs_takes_the_axes_of_the_others(drawn: dict[str, Figure]) -> None:
    """An empty logarithmic axis could not be drawn."""
    axes = {"eps": (1.0, 5.0, 10.0), "omega": (1.0, 9.0)}
    draw(grids.grid(axes, missing={"eps": 10.0}), ".")
    drawn["curves-loss"].draw_without_rendering()
    *_, full, empty = panels(drawn["curves-loss"])
    assert empty.get_xscale() == "log"
    assert empty.get_xlim() == full.get_xlim()
    assert [text.get_text() for text in empty.texts] == ["diverged, or not run"]


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
    assert "A cross: the first of the seeds diverged." in words(drawn["curves-loss"])
    assert "1 setting diverged or did not run" in words(drawn["curves-loss"])


def test_the_partition_is_in_the_title(drawn: dict[str, Figure]) -> None:
    words = "logistic on a9a, 10 clients, dirichlet(alpha=0.5), 3 seeds"
    for axes, said in (({}, True), ({"alpha": (0.1, 0.5)}, False)):
        ds = grids.grid(axes, partition="dirichlet(alpha=0.5)")
        draw(ds, ".")
        assert (drawn["curves-loss"].texts[0].get_text() == words) == said


def test_what_is_chosen_is_drawn(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0,), "lr": (0.1, 1.0)}, algorithms=("ldp_sgd",))
    draw(ds, ".")
    (line,) = panels(drawn["curves-loss"])[0].get_lines()
    best = ds["loss"].sel(lr=1.0).mean("seed").dropna("round").values[0, 0]
    np.testing.assert_allclose(line.get_ydata(), best)
    assert "the best of 2 values of lr (step size)" in words(drawn["curves-loss"])
    draw(select(ds, "loss").ds, ".")  # an earlier selection keeps its words
    assert "by the lowest final loss" in words(drawn["curves-loss"]).replace("\n", " ")
    drawn.clear()
    draw(ds, ".", choose_by="none")
    assert len(panels(drawn["curves-loss"])[0].get_lines()) == 2
    assert "best of" not in words(drawn["curves-loss"])


@pytest.mark.parametrize(
    ("axes", "algorithms", "lines"),
    [
        ({}, THREE, 3),  # no axis at all
        ({"omega": (1.0, 3.0, 9.0, 19.0, 40.0, 99.0)}, THREE[:1], 6),
        ({"eps": (1.0,), "omega": tuple(range(1, 13))}, THREE[:2], 12),
        ({"omega": (1.0, 3.0, 9.0, 19.0, 40.0, 99.0)}, FIVE, 6),  # 25 lines
        ({"problem": ("a/b c", "mnist"), "eps": (1.0, 5.0), "omega": (1.0, 9.0)}, THREE[:2],
         3),
        ({"clients": (10, 20), "eps": (1.0, 5.0)}, THREE[:2], None),
        ({"lr": (0.1, 0.3)}, THREE[2:], 1),  # no noise
        ({"eps": tuple(range(1, 31))}, THREE[:2], 2),
        ({"eps": (1.0, 5.0), "omega": tuple(range(1, 31)), "batch": (1.0, 2.0)}, THREE[:1], 24),
        ({"eps": (1.0,)}, tuple(f"a{i}" for i in range(12)), 12),
        ({"eps": (1.0, 2.0, 4.0, 8.0), "omega": (1.0, 3.0, 9.0, 19.0, 40.0)}, FIVE, 4 * 4 + 1),
    ],
)  # fmt: skip
def test_any_shape_can_be_drawn(
    drawn: dict[str, Figure], axes: Any, algorithms: Any, lines: int | None
) -> None:
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


@mistakes(
    (lambda: draw(grids.grid({}), ".", formats=("jpg",)), "format = 'jpg' must be one of png, pdf"),
    (lambda: draw(grids.grid({}), ".", formats=()), "must be one of png"),
    (lambda: draw(grids.grid({"lr": (1, 2)}), ".", choose_by="test_loss"), "allow_test=True"),
    (lambda: draw(grids.grid({}), ".", metrics=["los"]), "did you mean 'loss'"),
    (lambda: draw(grids.grid({}), ".", labels={"ldp_sdg": "LDP"}), "did you mean 'ldp_sgd'"),
    (
        lambda: draw(grids.grid({}), ".", labels={"ldp_sgd": "soteriafl_sgd"}),
        "Two values of algorithm cannot have one label",
    ),
)
def test_mistakes_are_refused_before_anything_is_written(
    call: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(call, words)
    assert not list(tmp_path.iterdir())


# --- privacy -------------------------------------------------------------------------------------


def test_an_eps_that_is_not_proven_is_only_claimed(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 3.0)}, algorithms=THREE)
    draw(ds, ".")
    titles = [ax.get_title() for ax in panels(drawn["curves-loss"])[:2]]
    assert titles == ["ε = 1", "ε = 5"]
    text = words(drawn["curves-loss"])
    assert "fedsgd: not private, no noise." in text
    assert "fedsgd (no noise)" in text
    assert "δ = 0.001, for one run published alone." in text
    ds["proven_eps"][0, 0] = np.inf
    draw(ds, ".")
    titles = [ax.get_title() for ax in panels(drawn["curves-loss"])[:2]]
    assert titles == ["ε = 1 (asked for)", "ε = 5"]
    assert "soteriafl_sgd: no ε proven; its paper's formula gives 1 to 5." in words(
        drawn["map-loss"]
    )
    flagged = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)})
    draw(flagged, ".")
    said = "soteriafl_sgd: ε = 1 to 5.25 proven; its paper's formula gives 1 to 5 for ε = 1.05 to 5.25."
    assert said in words(drawn["front-loss"])
    draw(grids.grid({"omega": (1.0, 3.0)}), ".")
    assert "ε = 1 proven." in words(drawn["curves-loss"])


# --- maps ----------------------------------------------------------------------------------------


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
    expected = f"{float(final.sel(eps=5.0, round=40)):#.3g}"
    found = squares(soteria)
    assert found[1.5, 0.5] == expected
    assert found[0.5, 1.5] == "diverged"
    assert found[2.5, 0.5] == found[2.5, 1.5] == "not run"
    assert len(found) == len(squares(ldp)) == len(squares(fed)) == 6
    assert ldp.get_title() == "ldp_sgd\n(no ω)"  # equal squares along it
    assert fed.get_title() == "fedsgd\n(no ε, no ω)"
    assert soteria.patch.get_hatch()
    (mesh,) = soteria.collections
    assert np.argwhere(np.ma.getmaskarray(mesh.get_array())).tolist() == [[0, 2], [1, 0], [1, 2]]
    assert "lower is better" in bar.get_ylabel()


def test_one_colour_is_one_value_in_all_panels(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)})
    ds["loss"][:] = 0.3
    ds["loss"][0, 0] = 0.9
    draw(ds, ".")
    one, two, _ = panels(drawn["map-loss"])
    first, second = (ax.collections[0] for ax in (one, two))
    colors = first.cmap(first.norm(first.get_array().ravel()))
    assert (colors[1] == second.cmap(second.norm(0.3))).all()
    assert (colors[0] != colors[1]).any()


def test_shares_have_linear_axes(drawn: dict[str, Figure]) -> None:
    """Of an accuracy that begins at a tenth, too; a loss over more than a decade is logarithmic.
    One seed has no bands."""
    ds = grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}, seeds=1)
    for name in ("loss", "test_accuracy"):
        ds[name][..., 0], ds[name][..., 1:] = 0.05, 0.9
    draw(ds, ".", metrics=["loss", "test_accuracy"])
    for name, scale in (("loss", "log"), ("test_accuracy", "linear")):
        axes = panels(drawn[f"curves-{name}"])
        assert {(ax.get_yscale(), len(ax.collections)) for ax in axes} == {(scale, 0)}
        assert "Bands" not in words(drawn[f"curves-{name}"])


def test_one_axis_is_drawn_against_the_algorithms(drawn: dict[str, Figure]) -> None:
    draw(grids.grid({"eps": (1.0, 5.0), "lr": (0.1, 0.3)}), ".", choose_by="accuracy")
    ax = panels(drawn["map-accuracy"])[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["soteriafl_sgd", "ldp_sgd"]
    assert len(squares(ax)) == 4
    assert "higher is better" in panels(drawn["map-accuracy"])[-1].get_ylabel()
    assert "curves-accuracy" in drawn
    drawn.clear()
    draw(grids.grid({}), ".")
    assert not any(name.startswith("map") for name in drawn)


# --- fronts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_the_front_by_brute_force(sign: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        bits = rng.integers(1, 6, 8).astype(float).tolist()
        values = rng.integers(1, 6, 8).astype(float).tolist()
        good = {
            (b, v)
            for b, v in zip(bits, values, strict=True)
            if not any(
                (c <= b and sign * w <= sign * v) and (c, w) != (b, v)
                for c, w in zip(bits, values, strict=True)
            )
        }
        found = [(bits[i], values[i]) for i in front(bits, values, sign)]
        assert set(found) == good
        assert found == sorted(found)


def test_points_of_the_front(drawn: dict[str, Figure]) -> None:
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0)}
    ds = grids.grid(axes, diverged={"omega": 9.0, "eps": 1.0}, spread=0.2)
    draw(ds, ".")
    left, right = panels(drawn["front-loss"])
    left, bars = (ax.collections[0].get_segments() for ax in (left, right))
    assert len(left) == 2  # what diverged is no point
    assert len(bars) == 3
    final = ds["loss"].sel(algorithm="soteriafl_sgd", eps=5.0, omega=9.0, round=40)
    marker = [line for line in right.get_lines() if line.get_marker() in ("o", "s", "*")][1]
    assert marker.get_ydata()[0] == pytest.approx(float(final.mean()))
    assert marker.get_xdata()[0] == pytest.approx(40 * grids.N * 12 * grids.BITS / 1e6)
    error = float(final.std(ddof=1)) / np.sqrt(3)
    assert np.ptp(bars[1][:, 1]) == pytest.approx(2 * error)
    assert legend(drawn["front-loss"]) == ["soteriafl_sgd", "ldp_sgd", "ω = 1", "ω = 9"]


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


# --- what is what --------------------------------------------------------------------------------


def test_parts_that_axes_play() -> None:
    ds = grids.grid({"batch": (8.0, 16.0), "omega": (1.0, 9.0), "eps": (1.0, 5.0)}, seeds=1)
    for where, roles in (
        ({}, ("eps", "omega", "batch")),
        ({"eps": 1}, ("batch", "omega", None)),
        ({"eps": 1, "omega": 1}, (None, "batch", None)),
        ({"algorithm": "ldp_sgd"}, ("eps", "batch", None)),  # it has no omega
    ):
        assert scene(Grid.of(restrict(ds, where)))[:3] == roles


# --- options -------------------------------------------------------------------------------------


def test_one_metric_chooses_and_another_is_drawn(drawn: dict[str, Figure]) -> None:
    """Test accuracy of the step size that is best on validation data."""
    ds = grids.grid({"eps": (1.0,), "lr": (0.1, 1.0)}, algorithms=("ldp_sgd",), seeds=1)
    ds["validation_accuracy"] = 1 - ds["test_accuracy"]  # the worst on test data
    for options in ({}, {"choose_by": "validation_accuracy", "metrics": ["test_accuracy"]}):
        draw(ds, ".", **options)
        (line,) = panels(drawn["curves-test_accuracy"])[0].get_lines()
        worst = ds["test_accuracy"].isel(algorithm=0, eps=0, seed=0).dropna("round")
        np.testing.assert_allclose(line.get_ydata(), worst.sel(lr=0.1))
        assert "by the highest final validation accuracy; no proven ε covers this choice" in words(
            drawn["curves-test_accuracy"]
        )
        assert ("curves-loss" in drawn) == (not options)
        drawn.clear()


def test_titles_and_names_are_the_users(drawn: dict[str, Figure]) -> None:
    labels = {"soteriafl_sgd": "SoteriaFL", "loss": "empirical risk", "omega": "variance"}
    draw(grids.grid({"eps": (1.0, 5.0), "omega": (1.0, 9.0)}), ".", title="Mine", labels=labels)
    for name, figure in drawn.items():
        text = words(figure)
        assert figure.texts[0].get_text() == "Mine"
        assert "SoteriaFL" in text
        assert "soteriafl_sgd" not in text
        assert "variance" in text
        assert ("empirical risk" in text) == ("loss" in name)
    draw(grids.grid({}), ".", title="")
    assert drawn["front-loss"].texts[0].get_text().startswith("ε = 1 proven. ε at δ = 0.001")


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    """Six pictures at most, three of a metric that is named; the others of a folder go."""
    ds = grids.grid({"omega": (1.0, 9.0), "batch": (1, 2), "clip": (1, 2)}, seeds=1)
    files = draw(ds, tmp_path)
    assert [file.name.partition("-")[0] for file in files[:-1]] == [*"123456"]
    notes = files[-1].read_text()
    assert "Drawn: clip bound = 1, of 2 values (choose with --where)." in notes
    assert "δ = 0.001, for one run" in notes
    (tmp_path / "1-mine.png").write_text("")
    again = draw(ds, tmp_path, metrics=["test_loss"])
    assert [file.name.split("-")[1] for file in again[:-1]] == ["front", "map", "curves"]
    assert {*tmp_path.iterdir()} == {*again, tmp_path / "1-mine.png"}


def test_lines_that_coincide_are_both_seen(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0,)}, spread=0)
    ds["loss"][1] = ds["loss"][0]
    draw(ds, ".")
    under, over = panels(drawn["curves-loss"])[0].get_lines()
    assert under.get_linewidth() > over.get_linewidth()
    assert under.get_zorder() <= over.get_zorder()
    assert "A wide, pale line lies under another" in words(drawn["curves-loss"])


def test_a_large_eps_is_not_flattened_by_a_small_one(drawn: dict[str, Figure]) -> None:
    ds = grids.grid({"eps": (1.0, 5.0)}, seeds=1)
    for spread, own in ((0.5, False), (0.1, True)):
        ds["loss"][:, 0] = 0.6 + 0.1 * np.linspace(1, 0, ds.sizes["round"])
        ds["loss"][:, 1] = 0.6 + spread * 0.1 * np.linspace(1, 0, ds.sizes["round"])
        draw(ds, ".")
        one, two = panels(drawn["curves-loss"])[:2]
        assert (one.get_ylim() != two.get_ylim()) == own
        low, high = two.get_ylim()
        assert (0.01 if own else 0.1) <= high - low <= (0.012 if own else 0.12)
