"""Selection, targets and links on sweeps with known values."""

import json
import math
from typing import Any

import grids
import numpy as np
import pytest
import xarray
from told import refusals, refused

import jaxfl
from jaxfl.core.links import Links
from jaxfl.engine import results
from jaxfl.views.cells import Grid, over_seeds, restrict
from jaxfl.views.selection import select
from jaxfl.views.tables import table, to_target

pytestmark = pytest.mark.once

RATES = grids.AXES["lr"]
EXACT = 1e-12  # sums of at most 9 numbers of order 1 in float64


@pytest.fixture(scope="module")
def ds() -> xarray.Dataset:
    """The largest step size diverges at omega = 9, in one seed."""
    return grids.grid(diverged={"lr": 1.0, "omega": 9.0})


def utility(rounds: int, **cell: Any) -> float:
    """The mean over seeds of the final utility, by the formula."""
    t = np.arange(0, rounds + 1, grids.EVERY)
    return float(np.mean(grids.grad_norm_sq(t, cell, 0, 0, 1, 0.0)))


def test_final_is_the_value_at_each_cells_own_last_round(ds: xarray.Dataset) -> None:
    """Of what diverged, or has not run, there is none."""
    values = Grid.of(ds).final("utility").sel(algorithm="soteriafl_sgd", omega=1.0, lr=0.3)
    for eps, rounds in ((1.0, 20), (5.0, 40)):
        mean = float(values.sel(eps=eps).mean())
        assert mean == pytest.approx(utility(rounds, lr=0.3, omega=1.0, eps=eps), rel=EXACT)
    turned = Grid.of(ds.transpose("round", "seed", ...)).final("loss").transpose("algorithm", ...)
    xarray.testing.assert_identical(turned, Grid.of(ds).final("loss"))
    # totals go on where metrics are lost, and still have no final value to be averaged
    for name in ("loss", "uplink_bits"):
        lost = Grid.of(ds).final(name).sel(algorithm="soteriafl_sgd", omega=9.0, lr=1.0)
        assert np.isnan(lost).values.tolist() == [[False, False, True]] * 2
    some = Grid.of(grids.grid(missing={"eps": 5.0})).final("loss")
    assert np.isnan(some.sel(eps=5.0)).all()
    assert np.isfinite(some.sel(eps=1.0)).all()


def test_restricting(ds: xarray.Dataset) -> None:
    part = restrict(ds, {"eps": [5], "lr": ["1", 0.3 + 1e-12], "algorithm": "ldp_sgd"})
    found = [part[name].values.tolist() for name in ("eps", "lr", "algorithm")]
    assert found == [[5.0], [0.3, 1.0], ["ldp_sgd"]]


def test_seeds_that_agree_have_no_error() -> None:
    """Rounding of a mean of three equal numbers is no spread."""
    values = np.array([[0.1, 0.1, 0.1], [0.1, 0.1, 0.3], [np.nan, 0.1, 0.1]])
    mean, error = over_seeds(xarray.DataArray(values, dims=("cell", "seed")))
    assert np.array([0.1, 0.1, 0.1]).std(ddof=1) != 0
    assert (mean[0], error[0]) == (0.1, 0.0)
    assert error[1] == pytest.approx(0.2 / 3)
    assert np.isnan([mean[2], error[2]]).all()


@pytest.mark.parametrize(("eps", "rounds"), [(1.0, 20), (5.0, 40)])
@pytest.mark.parametrize("omega", [1.0, 9.0])
def test_the_best_step_size(ds: xarray.Dataset, eps: float, rounds: int, omega: float) -> None:
    scores = {h: utility(rounds, lr=h, omega=omega, eps=eps) for h in RATES}
    if omega == 9.0:
        assert min(scores, key=scores.__getitem__) == RATES[-1]  # it would win, but diverged
        del scores[RATES[-1]]
    best = min(scores, key=scores.__getitem__)
    cell = select(ds, "utility").ds.sel(algorithm="soteriafl_sgd", eps=eps, omega=omega)
    assert float(cell["chosen_lr"]) == best
    assert float(cell["score"]) == pytest.approx(scores[best], rel=EXACT)
    spread = 0.02 * np.std([-1, 0, 1], ddof=1) / math.sqrt(3)
    assert float(cell["score_error"]) == pytest.approx(scores[best] * spread, rel=1e-9)
    assert int(cell["candidates"]) == 3
    assert float(cell["used_lr"]) == best


@pytest.mark.plain
@pytest.mark.parametrize("rates", [(0.1, 0.3), (0.1,)])
def test_one_given_step_size_is_not_called_best(rates: tuple[float, ...]) -> None:
    chosen = select(grids.grid({"eps": (1.0, 5.0), "lr": rates}), over=["lr"]).ds
    (head,) = (column.heading for column in table(chosen).columns if column.name == "chosen_lr")
    drawn = jaxfl.views.figures(chosen, only="curves-loss")["curves-loss"]
    several = len(rates) > 1
    assert (head, "Best step size" in str(drawn.get_label())) == (
        "best lr" if several else "lr",
        several,
    )


def test_what_is_best(ds: xarray.Dataset) -> None:
    """The largest accuracy; of ties the smallest number; a schedule by its words; one's own metric only
    with a direction."""
    chosen = select(ds, "accuracy").ds["chosen_lr"]
    of_each = ds.assign(client_accuracy=ds["accuracy"].expand_dims(client=3, axis=-1))
    refused(
        lambda: Grid.of(of_each).check("client_accuracy"),
        "metric = .client_accuracy. has a value for each client: draw it",
    )
    assert (select(ds, "min:accuracy").ds["chosen_lr"] != chosen).any()
    own = ds.assign(fairness=ds["accuracy"])
    refused(lambda: select(own, "fairness"), "which fairness is best")
    np.testing.assert_array_equal(select(own, "max:fairness").ds["chosen_lr"], chosen)
    ties = grids.grid({"lr": (1.0, 0.3, 0.1), "batch": (64.0, 8.0)}, spread=0.0)
    ties["loss"][:] = 0.5
    least = select(ties, over=("lr", "batch")).ds
    assert least["chosen_lr"].values.tolist() == [0.1, 0.1]
    assert least["chosen_batch"].values.tolist() == [8.0, 8.0]
    said = "In 2 of 2 rows another is as good, and the smallest is shown. "
    assert said in select(ties, over=("lr", "batch")).note
    later = ties["round"] > 0
    even = ties.assign(accuracy=ties["accuracy"] * 0 + 0.5)
    even["loss"] = even["loss"].where(~(later & (even["lr"] == 0.3)), 0.4)
    wide = select(even, "accuracy", over=("lr", "batch"))
    assert wide.ds["chosen_lr"].values.tolist() == [0.3, 0.3]  # inside the grid: no advice
    assert ("and the one of lowest loss is shown" in wide.note, "lr" in wide.warning) == (
        True,
        False,
    )
    words = grids.grid({"eps": (1.0,), "lr": ("cosine:0.3", "0.1")}, algorithms=("ldp_sgd",))
    assert "In the only row another is as good, and the first is shown" in select(words).note
    words["loss"][..., 1, :, :] /= 2
    assert select(words).ds["chosen_lr"].values.tolist() == [["0.1"]]
    # ldp_sgd has no omega: its 3 step sizes were compared, not 6, and it chose none
    both = select(ds, over=("lr", "omega")).ds
    assert both["candidates"].values.tolist() == [[6, 6], [3, 3]]
    assert np.isnan(both["chosen_omega"].sel(algorithm="ldp_sgd")).all()


def test_a_choice_is_among_equal_protection() -> None:
    """Also of a noise against none; where nothing is known of a setting it competes."""
    ds = grids.grid({"participation": ("everyone", "poisson"), "lr": (0.1, 0.3)})
    protects, many = ds["flag"] * 0 + 1, ds["participation"] == "poisson"
    for codes in (protects, protects.where(~many, 0)):
        same = select(ds.assign(protects=codes), over=["participation"])
        assert same.ds["chosen_participation"].values.tolist() == [["everyone"] * 2] * 2
    both = ds.assign(protects=protects.where(~many, 5))
    said = (
        "everyone .eps = 1, record, messages. and poisson .eps = 1, record added or removed, mess"
    )
    refused(lambda: select(both, over=["participation"]), f"would choose between {said}")
    assert select(both).over == ("lr",)
    poisson = restrict(both, {"participation": "poisson"})
    assert select(poisson, over=["participation"]).candidates == 1
    free = ds.assign(protects=protects.where(~many, 0), noisy=ds["noisy"].where(~many, 0))
    refused(lambda: select(free, over=["participation"]), "and poisson .no noise, –., whose eps")


def test_a_choice_is_within_one_eps() -> None:
    """The best row of a table, too; noise of one asked eps competes if that is proven."""
    ds = grids.grid({"sigma": (0.5, 1.0), "lr": (0.1, 0.3)}, algorithms=("ldp_sgd",))
    one, proven = ds["flag"] * 0 + 1, ds["proven_eps"] * 2 / ds["sigma"]
    ds["loss"] = ds["loss"] * ds["sigma"]
    ds = ds.assign(proven_eps=proven, protects=one, used_eps=3.0 * one)
    said = "0.5 .eps = 4, record, messages. and 1.0 .eps = 3, record, messages., whose eps are"
    refused(lambda: select(ds, over=["sigma"]), said)
    assert (len(table(ds).best), select(ds).over) == (2, ("lr",))
    met = ds.assign(used_eps=4.0 * one)
    assert (len(table(met).best), select(met, over=["sigma"]).candidates) == (1, 2)
    none = ds.drop_vars([name for name, v in ds.items() if "round" in v.dims])
    refused(lambda: table(none), "Nothing of this result is computed yet")


def test_nothing_is_chosen_where_all_diverged() -> None:
    """Nor what has not run yet."""
    chosen = select(grids.grid(diverged={"omega": 9.0}))
    cell = chosen.ds.sel(algorithm="soteriafl_sgd", omega=9.0)
    assert (cell["found"].values.tolist(), cell["candidates"].values.tolist()) == ([0, 0], [3, 3])
    for name in ("chosen_lr", "score", "loss", "uplink_bits", "proven_eps", "used_lr"):
        assert np.isnan(cell[name]).all(), name
    assert not cell["flag"].any()
    some = select(grids.grid(missing={"lr": 0.1}))
    assert (some.ds["candidates"] == 2).all()
    assert (some.ds["chosen_lr"] > 0.1).all()
    assert "so far" in some.note


def test_a_loss_that_ran_away_is_not_chosen() -> None:
    """A run at a step size of 1e30 may be finite by chance, with a gradient that vanishes."""
    rates = {"lr": (0.1, 1.0)}
    for lost, expected in (({"lr": 0.1}, [0]), (None, [1])):
        ds = grids.grid(rates, algorithms=("ldp_sgd",), diverged=lost, seeds=2, rounds=(40,))
        ds["utility"][:, 1] = 0.0
        assert select(ds, "utility").ds["chosen_lr"].values.tolist() == [1.0]
        ds["loss"][:, 1, 0, -1] = 1e28  # of one seed
        chosen = select(ds, "utility")
        assert chosen.ds["found"].values.tolist() == expected
        some = "1 step size of a row was" if expected[0] else "2 step sizes of a row were"
        said = f"At most {some} left out because a seed diverged, or ended above 1,000"
        assert said in chosen.note
    assert chosen.ds["chosen_lr"].values.tolist() == [0.1]


def test_validation_data_choose_by_default() -> None:
    ds = grids.grid(algorithms=("ldp_sgd",))
    assert select(ds).criterion.metric == "loss"
    for metric in ("loss", "accuracy"):
        ds[f"validation_{metric}"] = ds[f"test_{metric}"]
        rule = select(ds).criterion
        assert (rule.metric, rule.drawn(ds)) == (f"validation_{metric}", f"test_{metric}")


def test_a_choice_at_an_end_of_its_grid_is_a_warning() -> None:
    """Not of values that are ordered by nothing; nor may a loss have never fallen."""
    for lr, best, way in (
        ((0.1, 0.3, 1.0), 0.1, "below 0.1"),
        ((0.1, 0.3, 1.0), 0.3, ""),
        ((1.0, 0.3, 0.1), 1.0, "above 1"),
        (("0.1", "cosine:0.3"), "0.1", ""),
        ((0.1,), 0.1, ""),
    ):
        end = f"The best lr is at an end of its grid in the only row: try values {way}."
        ds = grids.grid({"eps": (1.0,), "lr": lr}, algorithms=("ldp_sgd",))
        ds["loss"][:, :, lr.index(best), :, 1:] = 0.01
        chosen = select(ds)
        assert chosen.ds["chosen_lr"].values.tolist() == [[best]]
        assert chosen.warning == (end if way else "")
        assert chosen.warning in table(chosen.ds).text()
    ds = grids.grid({"eps": (1.0, 5.0), "lr": (0.1, 0.3, 1.0)}, algorithms=("ldp_sgd",))
    ds["loss"][:, :, 1, :, 1:] = 0.01
    ds["loss"][:, 0, :, :, 0] = 0.005  # of eps = 1
    said = "With the chosen lr the loss ends no lower than it began in 1 of 2 rows"
    assert select(ds).warning == f"{said}."
    lines = table(select(ds).ds).text().splitlines()
    assert ["loss did not fall" in line for line in lines[2:4]] == [True, False]
    ds["loss"][:, 0, 2, :, 1:] = 0.001  # of lr = 1, which has the lowest accuracy
    accuracy = ds["accuracy"].copy()
    accuracy[:] = -abs(ds["lr"] - 0.3)
    other = "; in 1 of 2 rows another value lowers it."
    assert select(ds.assign(accuracy=accuracy), "accuracy").warning == said + other


@pytest.mark.parametrize("said", [True, False], ids=["said", "older"])
def test_runs_that_share_their_noise_prove_nothing_together(ds: xarray.Dataset, said: bool) -> None:
    """Also where a file holds an eps for them, as if they did not, or does not say that they do."""
    if not said:
        about = results.config(ds)
        del about["paired"]
        ds = ds.assign_attrs(config=json.dumps(about))
    note = select(ds).note
    assert "Publishing" not in note
    assert "Runs with the same seed share their noise, so no eps is proven for publishing" in note


def test_the_price_of_choosing_is_said() -> None:
    """Only of what was accounted for, and not where one algorithm proves nothing, as a mean would."""
    ds = grids.grid(paired=False)
    chosen = select(ds)
    assert chosen.candidates == 3
    assert chosen.note == (
        "Shown is the best of 3 values of lr (step size) with 3 seeds each, by the lowest final "
        "loss on the private data. The eps of one run does not cover this choice, which reads exact "
        "values of the training records. Publishing all 9 runs of a row has a proven eps of 9 to 45, "
        "which the table has of each row. That eps does not cover the choice or losses and accuracies "
        "of the training data, which are exact."
    )
    rows = table(chosen.ds).facts()["rows"]
    assert [row["eps_of_choice"] for row in rows] == [9 * row["proven_eps"] for row in rows]
    assert "eps_of_choice" not in table(ds).facts()["rows"][0]
    for name in ("validation", "test"):
        held = select(
            ds.assign(validation_loss=ds["test_loss"]), f"{name}_loss", allow_test=True
        ).note
        said = f"not cover this choice, and nothing protects the {name} records. Publishing all 9 runs of"
        assert f"{said} a row, and the choice, has a proven eps of 9 to 45 for the train" in held
        assert held.endswith(
            "not cover losses and accuracies of the training data, which are exact."
        )
    paired = grids.grid().assign(validation_loss=ds["test_loss"])
    said = (
        "The eps of one run does not cover this choice, and nothing protects the validation records"
    )
    assert said in select(paired).note
    assert results.config(chosen.ds)["selection"]["note"] == chosen.note
    assert "lr" not in results.config(chosen.ds)["axes"]
    assert "eps" not in select(grids.grid({"lr": RATES}, algorithms=("fedsgd",))).note
    assert select(ds, over=()).note == ""
    two = grids.grid({"lr": RATES, "shift": (0.1, 0.5)}, paired=False)
    assert "Publishing all 18 runs of a row has a proven eps of 18" in select(two).note
    for some in (two, restrict(ds, {"lr": [0.1, 0.3]})):
        assert "Publishing" not in select(some, over=("lr",)).note
    ds["proven_eps"][:], ds["eps_of_choice"][:] = np.inf, np.inf
    note = select(ds).note
    assert "proven eps" not in note
    assert "Publishing" not in note


def test_to_a_target(ds: xarray.Dataset) -> None:
    cell = {"algorithm": "soteriafl_sgd", "omega": 1.0, "lr": 1.0}
    t = np.arange(0, 41, grids.EVERY)
    loss = 0.6 + grids.grad_norm_sq(t, {**cell, "eps": 5.0}, 0, 0, 1, 0.0)
    found = to_target(ds, "loss", target=float(loss[3] + loss[4]) / 2)
    here = found.sel({**cell, "eps": 5.0})
    assert float(here["rounds_to_target"]) == t[4]
    assert float(here["uplink_bits_to_target"]) == t[4] * grids.N * 60 * grids.BITS
    assert float(here["gradients_to_target"]) == t[4] * grids.N * 32
    assert found["rounds_to_target"].dims == ("algorithm", "eps", "omega", "lr")
    assert "seconds_to_target" not in found
    above = to_target(ds, "accuracy", target=0.8)  # reached from below
    assert (above["rounds_to_target"] > 0).any()
    assert (to_target(ds, "loss", target=9.0)["rounds_to_target"] == 0).all()
    assert np.isnan(found["rounds_to_target"].sel({**cell, "eps": 1.0, "lr": 0.1}))
    lost = {**cell, "omega": 9.0, "eps": 5.0}  # of which a seed diverges
    late = float(ds["loss"].sel(lost).isel(seed=0, round=-1)) * 1.01
    assert np.isnan(to_target(ds, "loss", target=late)["rounds_to_target"].sel(lost))


def test_seconds_follow_the_clients_axis() -> None:
    ds = grids.grid({"clients": (10.0, 20.0)}, algorithms=("ldp_sgd",))
    for name in grids.TOTALS:
        ds[name].values[:, 1] *= 0.5  # 5 of 20
    rates = Links("lognormal:1e4,1.0", seed=3)
    seconds = to_target(ds, "loss", target=1.2, links=rates)["seconds_to_target"].values[0]
    rounds = to_target(ds, "loss", target=1.2)["rounds_to_target"].values[0]
    bits = grids.D * grids.BITS
    assert seconds[0] == pytest.approx(rounds[0] * rates.round_seconds(10, 10, bits, bits))
    assert seconds[1] == pytest.approx(rounds[1] * rates.round_seconds(20, 5, bits, bits))


DS = grids.grid()


def test_a_selection_has_one_line() -> None:
    said = repr(select(DS))
    assert said.startswith("Selection(the best of 3 along lr, by the lowest final ")
    assert len(said) < 200


test_mistakes = refusals(
    (lambda: select(DS, "utilty"), "did you mean 'utility'"),
    (lambda: select(DS, "mean:loss"), "write 'min:loss' or 'max:loss'"),
    (lambda: select(DS, "max:test_accuracy"), "allow_test=True"),
    (lambda: select(DS, over=("eps",)), "over = 'eps' is what a sweep compares"),
    (lambda: restrict(DS, {"eps": [2]}), r"eps = 2 is not in this sweep.* one of 1, 5\."),
    (lambda: restrict(DS, {"omga": [1]}), "did you mean 'omega'"),
    (lambda: restrict(DS, {"eps": []}), "no values of eps"),
    (lambda: to_target(DS, "loss", target=math.nan), "target = nan"),
)
