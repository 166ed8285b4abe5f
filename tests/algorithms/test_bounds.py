"""Bounds beside the curves of a run: their values, their assumptions, and where they are silent."""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from planned import planned
from rows import a_convex_problem, a_problem
from told import refused

import jaxfl
from jaxfl.algorithms.bounds import Measured
from jaxfl.algorithms.gao.theory import IsrlSetting, excess_risk
from jaxfl.algorithms.hu import theory
from jaxfl.algorithms.reshef.theory import AnytimeSetting, anytime_bound
from jaxfl.algorithms.soteriafl import bounds as soteriafl
from jaxfl.algorithms.soteriafl.theory import longest_step
from jaxfl.parts.servers import descent
from jaxfl.problems.public import Constraint
from jaxfl.views import plots
from jaxfl.views.bounds import FAMILIES, bounds, possible

pytestmark = pytest.mark.once

NUMBERS = {"clip": 3.0, "batch": 4, "local_steps": 2, "sigma": 0.05}


@cache
def result(**numbers: float):
    algorithm = jaxfl.algorithm("private_local_sgd", participation=jaxfl.parts.sampling.uniform())
    given = {**NUMBERS, "cohort": 3, **numbers}
    run = jaxfl.simulate(algorithm, a_problem(), jax.random.key(0), 30, eval_every=5, **given)
    return run, run.dataset()


@pytest.mark.full
def test_theorem_2_for_the_numbers_of_a_run() -> None:
    """By hand, at each evaluated round; above the running mean, and not by luck of the constants."""
    run, ds = result()
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


def lines(figure: Any) -> dict[str, Any]:
    return {line.get_label(): line for ax in figure.axes for line in ax.get_lines()}


def test_lemma_6_needs_to_be_told_of_convexity(tmp_path: Path) -> None:
    """And the picture shows both."""
    _, ds = result()
    second, sixth = bounds(ds, 0.5)
    assert (second.label, sixth.label, sixth.metric) == ("Theorem 2", "Lemma 6", "loss")
    mean = np.cumsum(ds["loss"].values) / np.arange(1, 8)
    assert (bounds(ds, 0.05)[1].values > sixth.values).all()
    assert (sixth.values > mean[1:]).all()
    refused(lambda: bounds(ds, -1.0), "lam = -1")
    curves = lines(plots.curves(ds, tmp_path / "a.png", bounds=[second, sixth]))
    for bound in (second, sixth):
        np.testing.assert_allclose(curves[bound.label].get_ydata(), bound.values)


def test_a_theorem_is_silent_where_its_condition_fails(tmp_path: Path) -> None:
    """The step that would do is named, and it does."""
    run, ds = result(lr=0.5)
    (found,) = bounds(ds)
    assert found.values is None
    most = float(theory.local_step(run.facts.smoothness, 2))
    assert f"{most:.3g} is needed" in found.note
    assert bounds(result(lr=most)[1])[0].values is not None
    figure = plots.curves(ds, tmp_path / "a.png", bounds=[found])
    assert "does not apply" in " ".join(" ".join(text.get_text() for text in figure.texts).split())


UNKNOWN = Measured(np.ones(1), 1.0, 0.0, False)


def drawn(algorithm: Any, problem: jaxfl.Problem, rounds: int, **numbers: Any) -> Any:
    """What is known of a run with these numbers before it starts, and its bounds."""
    plan = planned(algorithm, problem, rounds, **numbers)
    name, parts = plan.algorithm.name, dict(plan.algorithm.parts)
    case = possible(name, parts, plan.values, plan.facts._asdict(), plan.sources)
    return case, FAMILIES[name].bounds(case, UNKNOWN, None)


LOCAL = {"batch": 4, "local_steps": 2}
HEARD = {"cohort": 3, "clip": 1.0, "sigma": 0.1}
DEAF = {"phases": 2, "dropout": 0.9, "threshold": 1, **HEARD}
SOME = "everyone or uniform, .* = {!r} here"


@pytest.mark.plain
@pytest.mark.parametrize(
    ("name", "parts", "numbers", "words"),
    [
        ("fedprox", {}, LOCAL, "No bound is known"),
        ("soteriafl_sgd", {}, {"batch": 4, "lr": "cosine:0.01"}, "lr is a schedule"),
        ("mu2_untrusted", {}, {"batch": 2}, "Theorem 5.2 assumes one sample a round"),
        ("fedavg", {}, LOCAL, "clip = inf leaves the variance"),
        ("private_local_sgd", {}, {**LOCAL, "server_lr": 0.5}, "server_lr = 1"),
        ("private_local_sgd", {}, {**LOCAL, "lr": "cosine:0.01"}, "lr is a schedule"),
        # another server is no mean of models
        ("private_local_sgd", {"server": descent()}, LOCAL, "= averaging, and server = 'descent'"),
        # who answers is fewer than who is called, and a cycle draws no set anew
        ("private_local_sgd", {"participation": "poisson"}, HEARD, SOME.format("poisson")),
        ("private_local_sgd", {"participation": "balanced"}, HEARD, SOME.format("balanced")),
        ("localized_subgradient", {"participation": "unreliable"}, DEAF, SOME.format("unreliable")),
        ("cdp_gd", {"participation": "uniform"}, {**HEARD, "k": 2}, "everyone, and participation"),
    ],
)
def test_what_no_bound_speaks_of(name: str, parts: Any, numbers: Any, words: str) -> None:
    problem = a_convex_problem() if name.startswith("localized") else a_problem()
    algorithm = jaxfl.algorithm(name, **parts)
    given = {"lr": 0.01, **numbers} if "lr" in algorithm.names else numbers
    refused(lambda: drawn(algorithm, problem, 12, **given), words)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("name", "theorem"),
    [("private_local_sgd", "Theorem 2"), ("cdp_gd", "Theorem 1"), ("soteriafl_gd", "Theorem 3")],
)
def test_unconstrained_theorems_are_not_drawn_on_a_set(name: str, theorem: str) -> None:
    """In a ball of 0.2 the gradient stays at 0.64 for ever, and the bounds go to zero."""
    half = Constraint("positive", lambda x: jax.numpy.maximum(x, 0), lambda d: None)
    for constraint, words in (("ball:0.2", "diameter 0.4"), (half, "no diameter")):
        model = jaxfl.models.logistic(8, constraint=constraint)
        p = jaxfl.Problem(model, jax.tree.map(np.asarray, a_problem().train))
        given = {"clip": 8.0, "sigma": 0.0, "lr": 1e-3}
        refused(lambda: drawn(name, p, 2, **given), f"{theorem} assumes .* set has {words}")


def test_the_bound_of_a_set_is_for_its_whole_diameter() -> None:
    """The model goes wherever the set lets it, whatever diameter says."""
    model = jaxfl.models.logistic(3, constraint="ball:1")
    p = jaxfl.Problem(model, (np.ones((2, 8, 3)), np.ones((2, 8), int)))
    words = r"which is 2, and diameter = 0\.5"
    refused(lambda: drawn("mu2", p, 4, clip=2.0, diameter=0.5), words)
    assert drawn("mu2", p, 4, clip=2.0)


# --- SoteriaFL: Theorems 1 and 3 -----------------------------------------------------------------

COMPRESSED = ("cdp_sgd", "cdp_gd", *(f"soteriafl_{kind}" for kind in ("svrg", "gd", "sgd", "saga")))
EACH = [
    *((name, omega) for name in COMPRESSED for omega in (2.0, 0.0, 5.0)),
    *((name, 0.0) for name in ("ldp_gd", "ldp_sgd", "ldp_svrg")),
]
T = 120


@cache
def unit(n: int = 8, m: int = 40, d: int = 6) -> jaxfl.Problem:
    """Logistic regression on features of norm 1: gradients of at most 1, L = 1/4, and nothing clipped."""
    rng = np.random.default_rng(1)
    a = rng.normal(size=(n, m, d)) + rng.normal(size=(n, 1, d))
    a /= np.linalg.norm(a, axis=-1, keepdims=True)
    y = (a @ rng.normal(size=d) + 0.3 * rng.normal(size=(n, m)) > 0).astype(np.int32)
    data = a.astype(np.float32), y
    return jaxfl.Problem(jaxfl.models.logistic(d), data, x0=3 * np.ones(d), name="unit")


def measured(name: str, seeds: int = 1, **numbers: float):
    """A result, and the running mean of the squared gradients in the mean over seeds."""
    given = {"clip": 1.0, "sigma": 0.05, **numbers}
    runs = [
        jaxfl.simulate(name, unit(), jax.random.key(s), T, eval_every=1, **given).dataset()
        for s in range(seeds)
    ]
    squares = np.mean([ds["grad_norm_sq"].values for ds in runs], axis=0)
    return runs[0], np.cumsum(squares[:-1]) / np.arange(1, T + 1)


@pytest.mark.parametrize(("name", "omega"), EACH)
def test_measured_gradients_stay_below(name: str, omega: float) -> None:
    """After every round, at the longest step that the theorem allows; a longer one is refused, and the
    bound is not a thousand times too large."""
    numbers = {"clip": 1.0, "sigma": 0.05, "lr": 1e-3}
    numbers |= {} if name.startswith("ldp") else {"omega": omega}
    numbers |= {} if name.endswith("_gd") else {"batch": 8}
    numbers |= {"refresh": 0.2} if name.endswith("svrg") else {}
    case, _ = drawn(name, unit(), T, **numbers)
    s = soteriafl.setting(case, UNKNOWN)
    longest = 1 / s.L
    if name.startswith("soteriafl") or name.endswith("svrg"):
        longest = longest_step(s, soteriafl.estimator(case, s))
    _, (silent,) = drawn(name, unit(), T, **{**numbers, "lr": 1.01 * longest})
    assert silent.values is None
    assert f"at most {longest:.3g} is needed" in silent.note
    ds, mean = measured(name, 3, **{**numbers, "lr": longest})
    (found,) = bounds(ds)
    assert found.label == ("Theorem 1" if longest == 1 / s.L else "Theorem 3")
    assert (found.values > mean).all()
    assert found.values[-1] < 1000 * mean[-1]


@pytest.mark.full
def test_theorems_1_and_3_for_the_numbers_of_a_run() -> None:
    """By hand: omega, the variance of Poisson batches and the noise that the run had."""
    numbers = {"lr": 0.5, "batch": 8, "omega": 2.0}
    after = np.arange(1, T + 1)
    ds, _ = measured("cdp_sgd", **numbers)
    f0, variance, noise = float(ds["loss"][0]), (1 - 8 / 40) / 8, 6 * 0.05**2
    (found,) = bounds(ds)
    by_hand = 2 * f0 / (0.5 * after) + 0.25 * 0.5 / 8 * (2 + 3 * (variance + noise))
    np.testing.assert_allclose(found.values, by_hand, rtol=1e-5)
    ds, _ = measured("soteriafl_sgd", **numbers)
    (found,) = bounds(ds)
    reach = (3 * 0.25 * 0.5) ** 2  # beta >= reach (1 + 4 beta (1 + omega))/n
    beta = reach / (8 - 12 * reach)
    by_hand = 2 * (f0 + beta / 0.25) / (0.5 * after) + 3 * beta / (3 * 0.25 * 0.5) * (
        variance + noise
    )
    np.testing.assert_allclose(found.values, by_hand, rtol=1e-5)
    assert "f* ≥ 0" in found.note
    assert "the regularizer's included" not in found.note
    whole = jaxfl.simulate("cdp_gd", a_problem(0.2), jax.random.key(0), 2, lr=1e-3).dataset()
    assert "the regularizer's included" in bounds(whole)[0].note


def test_theorem_3_is_for_one_shift() -> None:
    ds, _ = measured("soteriafl_sgd", lr=0.1, batch=8, omega=2.0, shift=0.1)
    assert "assumes shift = 0.3043" in bounds(ds)[0].note
    refused(lambda: bounds(ds, 0.1), "private local SGD alone")


# --- mu^2-SGD: Theorems 5.2 and 6.2; ISRL-DP: orders -----------------------------------------------


@pytest.mark.parametrize("name", ["mu2_trusted", "mu2_untrusted", "noisy_mu2", "mu2"])
def test_the_last_loss_stays_below(name: str, tmp_path: Path) -> None:
    """Of fresh samples, in the mean over seeds; the least loss on the ball is found by descent."""
    M = 1 if name == "noisy_mu2" else 6
    rng = np.random.default_rng(0)
    a = rng.normal(size=(M, 300, 5))
    a /= np.linalg.norm(a, axis=-1, keepdims=True)
    y = (a @ rng.normal(size=5) > 0).astype(np.int32)
    model = jaxfl.models.logistic(5, constraint="ball:1.5")
    p = jaxfl.Problem(model, (a.astype(np.float32), y), x0=-np.ones(5) / 2)
    numbers = {"clip": 1.0} if name == "mu2" else {"clip": 1.0, "rho": 20.0}
    runs = [
        jaxfl.simulate(name, p, jax.random.key(s), 300, eval_every=100, **numbers).dataset()
        for s in range(3)
    ]
    descent = jaxfl.simulate("fedgd", p, jax.random.key(0), 2000, eval_every=0, lr=4.0)
    excess = np.mean([ds["loss"].values[-1] for ds in runs]) - descent.metrics["loss"][-1]
    (found,) = bounds(runs[0])
    np.testing.assert_array_equal(found.rounds, [300])
    trusted, rho = name == "mu2_trusted", numbers.get("rho", np.inf)
    assert found.label == ("Theorem 6.2" if trusted else "Theorem 5.2")
    s = AnytimeSetting(1.0, 0.25, 3.0, 5, 300, M, rho, trusted)
    most = anytime_bound(s, 1.0, 1.0, 0.25)
    room = float(found.values[0] - runs[0]["loss"].min())
    assert 0 < excess < room <= most * 1.001 < 3.1 * room
    figure = plots.curves(runs[0], tmp_path / "a.png", bounds=[found])
    assert lines(figure)[found.label].get_marker() == "_"
    long = jaxfl.simulate(name, p, jax.random.key(0), 300, eval_every=0, lr=0.1, **numbers)
    assert "does not apply" in bounds(long.dataset())[0].note


def test_orders_are_never_drawn() -> None:
    p = a_convex_problem()
    case, (found,) = drawn("localized_subgradient", p, 12, phases=2, clip=1.0)
    v = case.values
    of = p.n, int(p.count.min()), p.model.dim, v["eps"], v["delta"], 1.0, v["diameter"]
    order = excess_risk(IsrlSetting(*of, v.get("smoothness", 1.0)))
    assert found.values is None
    assert f"{order:.3g} without its constant" in found.note


# --- what each client spent ----------------------------------------------------------------------


def test_results_hold_the_ledger(tmp_path: Path) -> None:
    """C_i, proven and claimed eps of each client, as `ledger` says; also after a file."""
    run, _ = result()
    book = run.ledger()
    ds = jaxfl.load(run.save(tmp_path / "run.nc"))
    np.testing.assert_array_equal(ds["client_rounds"], book.turns)
    np.testing.assert_allclose(ds["client_eps"], book.proven)
    np.testing.assert_allclose(ds["client_eps_claimed"], book.claimed)
    assert ds["client_eps"].dims == ("client",)
    assert np.ptp(ds["client_eps"].values) > 0
    assert ds["client_eps"].max() <= ds["eps_spent"][-1] * (1 + 1e-9)


@pytest.mark.parametrize("name", ["fedavg", "dp_fedavg", "local_dp_sgd"])
def test_ledgers_are_left_out_where_they_say_nothing(name: str, key: jax.Array) -> None:
    """No noise, clients protected as wholes, all alike."""
    data = np.ones((4, 12, 3)), np.ones((4, 12), int)
    problem = jaxfl.Problem(jaxfl.models.logistic(3), data)
    more = {} if name == "local_dp_sgd" else {"participation": "uniform", "cohort": 2}
    ds = jaxfl.simulate(name, problem, key, 5, batch=4, **more).dataset()
    assert not [name for name in ds if str(name).startswith("client_eps")]
