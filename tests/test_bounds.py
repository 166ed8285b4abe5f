"""Bounds beside the curves of a run: their values, their assumptions, and where they are silent."""

from pathlib import Path

import jax
import numpy as np
import pytest
from rows import a_problem

import jaxfl
from jaxfl import plots, theory
from jaxfl.bounds import bounds
from jaxfl.cli import main
from jaxfl.results import config

NUMBERS = {"clip": 3.0, "batch": 4, "local_steps": 2, "sigma": 0.05}


def result(key: jax.Array, name: str = "private_local_sgd", **numbers: float):
    algorithm = jaxfl.algorithm(name, participation=jaxfl.sampling.participation("uniform"))
    given = {**NUMBERS, "cohort": 3, **numbers}
    run = jaxfl.simulate(algorithm, a_problem(), key, 30, eval_every=5, **given)
    return run, run.dataset()


def test_theorem_2_for_the_numbers_of_a_run(key: jax.Array) -> None:
    """By hand, at each evaluated round; above the running average, and not by luck of the constants."""
    run, ds = result(key)
    (found,) = bounds(ds)
    L, d, f0 = run.facts.smoothness, 8, float(ds["loss"][0])
    assert found.metric == "grad_norm_sq"
    np.testing.assert_array_equal(found.rounds, [5, 10, 15, 20, 25, 30])
    for T, value in zip(found.rounds, found.values, strict=True):
        s = theory.LocalSetting(run.values["lr"], 2, T, 3, 4, d, L, 0.05, 3.0**2, f0)
        assert value == pytest.approx(theory.local_bound(s))
    assert (found.values > ds["utility"].values[1:]).all()
    assert (np.diff(found.values) < 0).all()
    assert "β² ≤ clip²" in found.note
    assert "not clipped" in found.note


def test_lemma_6_needs_to_be_told_of_convexity(key: jax.Array) -> None:
    _, ds = result(key)
    second, sixth = bounds(ds, 0.5)
    assert (second.label, sixth.label, sixth.metric) == ("Theorem 2", "Lemma 6", "loss")
    mean = np.cumsum(ds["loss"].values) / np.arange(1, 8)
    assert (sixth.values > mean[1:]).all()
    looser = bounds(ds, 0.05)[1]
    assert (looser.values > sixth.values).all()
    with pytest.raises(jaxfl.InputError, match="lam = -1"):
        bounds(ds, -1.0)


def test_a_theorem_is_silent_where_its_condition_fails(key: jax.Array, tmp_path: Path) -> None:
    """The step that would do is named, and it does."""
    run, ds = result(key, lr=0.5)
    (found,) = bounds(ds)
    assert found.values is None
    assert "is silent: 5ηL + 3τ²η²L² =" in found.note
    most = float(theory.local_step(run.facts.smoothness, 2))
    assert f"{most:.3g} is needed" in found.note
    assert bounds(result(key, lr=most)[1])[0].values is not None
    figure = plots.curves(ds, tmp_path / "a.png", bounds=[found])
    assert "is silent" in "\n".join(text.get_text() for text in figure.texts)


def test_the_picture_shows_it(key: jax.Array, tmp_path: Path) -> None:
    _, ds = result(key)
    for lam, names in ((None, ["Theorem 2"]), (0.5, ["Theorem 2", "Lemma 6"])):
        found = bounds(ds, lam)
        figure = plots.curves(ds, tmp_path / "a.png", bounds=found)
        drawn = {line.get_label(): line for ax in figure.axes for line in ax.get_lines()}
        assert set(names) <= set(drawn)
        for bound in found:
            np.testing.assert_allclose(drawn[bound.label].get_ydata(), bound.values)
    assert "Theorem 2" not in {
        line.get_label()
        for ax in plots.curves(ds, tmp_path / "b.png").axes
        for line in ax.get_lines()
    }


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        ("soteriafl_sgd", {}, "No bound is known to draw for soteriafl_sgd"),
        ("fedprox", {}, "No bound is known"),
        ("fedavg", {}, "clip = inf leaves the variance"),
        ("private_local_sgd", {"server_lr": 0.5}, "server_lr = 1"),
        ("private_local_sgd", {"lr": "cosine:0.01"}, "lr is a schedule"),
    ],
)
def test_what_no_bound_speaks_of(name: str, numbers: dict, words: str, key: jax.Array) -> None:
    own = {"local_steps": 2} if name != "soteriafl_sgd" else {}
    run = jaxfl.simulate(name, a_problem(), key, 2, batch=4, **{**own, **numbers})
    with pytest.raises(jaxfl.InputError, match=words):
        bounds(run.dataset())


def test_the_command_refuses_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    given = ["private_local_sgd", "--data", "digits", "--rounds", "2", "--out", str(out), "--bound"]
    assert main(["run", *given, "--model", "mlp"]) == 2
    assert "smoothness of this model's loss is unknown" in capsys.readouterr().err
    assert not out.exists()
    assert main(["run", *given, "0.1", "--regularizer", "l2:0.1"]) == 0
    assert (out / "curves.png").exists()


# --- what each client spent ----------------------------------------------------------------------


def test_results_hold_the_ledger(key: jax.Array, tmp_path: Path) -> None:
    """C_i, proven and claimed eps of each client, as `privacy.ledger` says; also after a file."""
    run, _ = result(key)
    book = jaxfl.privacy.ledger(run)
    ds = jaxfl.load(run.save(tmp_path / "run.nc"))
    np.testing.assert_array_equal(ds["client_rounds"], book.turns)
    np.testing.assert_allclose(ds["client_eps"], book.proven)
    np.testing.assert_allclose(ds["client_eps_claimed"], book.claimed)
    assert ds["client_eps"].dims == ("client",)
    assert np.ptp(ds["client_eps"].values) > 0
    assert ds["client_eps"].max() <= ds["eps_spent"][-1] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "part"),
    [("local_dp_sgd", "everyone"), ("dp_fedavg", "uniform"), ("fedavg", "uniform")],
)
def test_ledgers_are_left_out_where_they_say_nothing(name: str, part: str, key: jax.Array) -> None:
    """All alike, clients protected as wholes, no noise."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(4, 12, 3)).astype(np.float32), rng.integers(0, 2, (4, 12))
    problem = jaxfl.make_problem(jaxfl.models.logistic(3), data)
    algorithm = jaxfl.algorithm(name, participation=jaxfl.sampling.participation(part))
    more = {"cohort": 2} if part == "uniform" else {}
    ds = jaxfl.simulate(algorithm, problem, key, 5, batch=4, **more).dataset()
    assert not [name for name in ds if str(name).startswith("client_eps")]
    assert config(ds)["settings"]["algorithm"] == name


def test_the_summary_names_the_worst_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["private_local_sgd", "--rounds", "9", "--local-steps", "2", "--no-plot", "--out"]
    parts = {"alike": [], "uniform": ["--participation", "uniform", "--cohort", "3"]}
    for name, more in parts.items():
        assert main(["run", *given, str(tmp_path / name), *more]) == 0
        ds, out = jaxfl.load(tmp_path / name / "result.nc"), capsys.readouterr().out
        assert ("clients' privacy" in out) == (name == "uniform")
    i = int(np.argmax(ds["client_eps"].values))
    assert f"the worst is client {i} with {int(ds['client_rounds'][i])} rounds" in " ".join(
        out.split()
    )
