"""Rates of the ISRL-DP servers with the noise off, smoothing, and the theorems' numbers."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import jaxfl
from jaxfl import privacy
from jaxfl.algorithms.gao import theory
from jaxfl.parts import localization as phases
from jaxfl.parts import smoothing
from jaxfl.problems.clipping import evaluate
from jaxfl.problems.custom import custom

pytestmark = pytest.mark.once

# --- smoothing ---------------------------------------------------------------------------------------


def losses() -> dict[str, tuple[Any, Callable[[np.ndarray, np.ndarray, float], float]]]:
    def distance(w: Any, example: Any) -> Any:
        return jnp.abs(jnp.dot(w, example[0]) - example[1])

    return {
        "hinge": (jaxfl.models.hinge(3), lambda w, a, y: max(0.0, 1 - (2 * y - 1) * (a @ w))),
        "absolute": (jaxfl.models.absolute(3), lambda w, a, y: abs(a @ w - y)),
        "logistic": (
            jaxfl.models.logistic(3),
            lambda w, a, y: float(np.logaddexp(0, -(2 * y - 1) * (a @ w))),
        ),
        "solver": (custom(np.zeros(3), distance), lambda w, a, y: abs(a @ w - y)),
    }


@pytest.mark.parametrize("name", ["hinge", "absolute", "logistic", "solver"])
@pytest.mark.parametrize("beta", [0.5, 20.0])
def test_moreau_gradients_are_those_of_the_envelope(name: str, beta: float, x64: None) -> None:
    """Finite differences of ``min_v f(v) + beta/2 |w - v|^2``, minimised along a by brute force."""
    model, f = losses()[name]
    rng = np.random.default_rng(0)
    kernel = smoothing.moreau_kernel(model, jnp.float64(beta))
    close = 5e-5 if name != "solver" else 0.03
    for scale in (0.2, 1.0, 4.0):
        w, a, y = scale * rng.normal(size=3), rng.normal(size=3), float(rng.integers(0, 2))

        def envelope(w: np.ndarray, a: np.ndarray = a, y: float = y) -> float:
            def at(s: float) -> float:
                return f(w - s * a, a, y) + beta / 2 * s * s * (a @ a)

            reach = 2 / beta + 1e-3
            found = minimize_scalar(at, bounds=(-reach, reach), method="bounded",
                                    options={"xatol": 1e-13, "maxiter": 5000})  # fmt: skip
            return float(found.fun)

        batch = (jnp.asarray(a)[None], jnp.asarray([y]))
        g = np.asarray(kernel.contract(jnp.ones(1), kernel.factors(jnp.asarray(w), batch), batch))
        h, steps = 1e-3, np.eye(3)
        numeric = [(envelope(w + h * e) - envelope(w - h * e)) / (2 * h) for e in steps]
        np.testing.assert_allclose(g, numeric, atol=close)
        assert np.linalg.norm(g) <= np.linalg.norm(a) * (1 + 0.02)


def test_convolution_is_unbiased(key: jax.Array) -> None:
    """Of ``|a.w - y|`` in three dimensions: ``E sign(z + s|a| u) = (3q - q^3)/2``, q = z/(s|a|)."""
    estimator = smoothing.convolution(jaxfl.estimators.minibatch(jaxfl.sampling.full()))
    assert estimator.jitter is not None
    s, n = 0.7, 200_000
    hp = jaxfl.types.Hyper({"spread": jnp.float32(s)})
    v = np.asarray(estimator.jitter(key, n, jnp.zeros(3), hp), float)
    assert np.linalg.norm(v, axis=1).max() <= s * (1 + 1e-6)
    assert (v**2).sum(1).mean() == pytest.approx(s * s * 3 / 5, rel=0.01)
    few = np.asarray(estimator.jitter(key, 5, jnp.zeros(3), hp))
    np.testing.assert_allclose(few, v[:5], rtol=1e-5)
    model, a = jaxfl.models.absolute(3), np.array([1.0, -2.0, 0.5])
    for z in (-2.0, -0.5, 0.1, 1.2):
        w = z * a / (a @ a)
        batch = (jnp.broadcast_to(jnp.asarray(a, jnp.float32), (n, 3)), jnp.zeros(n))
        term = jaxfl.types.Term(1.0, (jnp.asarray(w + v, jnp.float32),), (1.0,), jnp.float32(9))
        g, _ = evaluate(model.kernel, (term,), jnp.full(n, 1 / n), batch)
        q = np.clip(z / (s * np.linalg.norm(a)), -1, 1)
        expected = (3 * q - q**3) / 2
        assert abs(np.asarray(g) - expected * a).max() < 5 * np.abs(a).max() / n**0.5


def test_rounds_displace_every_row_of_every_client(key: jax.Array) -> None:
    """One round of the algorithm moves by the mean gradient at displaced points, fresh each round."""
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(3, 40, 2)).astype(np.float32), np.zeros((3, 40), np.float32))
    model = jaxfl.models.absolute(2, constraint="ball:2")
    problem = jaxfl.make_problem(model, data, x0=np.array([0.3, -0.2]))
    numbers = {"phases": 1, "batch": 20, "lam": 0.1, "clip": 9.0, "sigma": 0.0}
    ends = [
        jaxfl.simulate("localized_convolution", problem, k, 1, eval_every=0, spread=s, **numbers).x
        for k in jax.random.split(key)
        for s in (1e-6, 3.0)
    ]
    gaps = [np.linalg.norm(ends[i] - ends[i + 1]) for i in (0, 2)]
    assert min(gaps) > 1e-3


# --- the theorems' numbers -----------------------------------------------------------------------------


def test_tables_are_those_of_the_paper() -> None:
    """M = N, d = n, eps = L = beta = D = 1 and ln(1/delta) = 1, each row as printed."""
    N, n = 16.0, 1e4
    s = theory.IsrlSetting(N=N, n=n, d=n, eps=1.0, delta=math.exp(-1))
    assert [row.rounds for row in theory.table1(s)] == pytest.approx(
        [N * n, (N * n) ** 0.2, (N * n) ** 0.25]
    )
    assert [row.rounds for row in theory.table2(s)] == pytest.approx(
        [N * n, (N * n) ** (1 / 3), (N * n) ** 0.5, N * n + 1, N**0.5 * n**0.75 * 2**-0.5], rel=0.5
    )
    printed = N**2 * n + (N * n) ** 1.5
    assert theory.table1(s)[0].gradients == pytest.approx(printed)
    assert theory.table2(s)[3].gradients == pytest.approx(printed, rel=0.01)
    assert theory.table1(s)[1].gradients == N * n
    ours = theory.table1(s)[2].gradients
    assert ours == pytest.approx(N**1.25 * n**0.25 + (N * n) ** (9 / 8), rel=0.1)
    assert [row.optimal for row in theory.table2(s)] == [True, False, True, True, True]
    for row in (theory.table1(s)[2], *theory.table2(s)[2:]):
        assert row.risk == pytest.approx(2 / (N * n) ** 0.5)


def test_upper_bound_meets_lower_bound_where_silos_differ_enough() -> None:
    s = theory.IsrlSetting(N=100, n=1e5, d=1e5, eps=1.0, delta=1e-5, beta=3.0, D=2.0, L=0.5)
    assert theory.rounds_lower_bound(s, 3.0 * 2.0) == pytest.approx(theory.smooth_rounds(s))
    assert theory.rounds_lower_bound(s, 0.6) == pytest.approx(theory.smooth_rounds(s) / 10)


def test_parameters_of_theorem_c1() -> None:
    s = theory.IsrlSetting(N=25, n=1734, d=50, eps=1.0, delta=1 / 1734**2, M=18)
    l = 2 * math.log(1734)
    assert theory.localization_power(s) == 3
    assert theory.localization_power(s._replace(M=1734**5)) == 3.5
    assert theory.localization_lam(s) == pytest.approx(
        max(1734**0.5, (50 * l) ** 0.5) / (1734 * 18**0.5)
    )
    assert theory.isrl_sigma(s, 867, 50) == pytest.approx(2.290898094, rel=1e-9)  # the vectors' own
    assert math.ceil(theory.least_batch(s, 867, 50)) == 6
    few = theory.variance(s, 867, 867, 0.0)
    assert few == pytest.approx(4 / (18 * 867) + 7 / 24 / 18)
    assert theory.variance(s._replace(M=None), 867, 867, 2.0) == pytest.approx(50 * 4 / 25)
    assert theory.subgradient_rounds(s, 100) == 18 * 100 + 1
    assert theory.nesterov_smoothness(s) * theory.convolution_radius(s) == pytest.approx(
        theory.signal(s) * (1 / 1734**0.5 + (50 * l) ** 0.5 / 1734)
    )


def test_stages_as_printed_and_as_they_should_be() -> None:
    sound = theory.stages(2.0, 0.5, 3.0, 4.0, 4000, 1.0)
    assert sum(R for R, _ in sound) == 4000
    assert sound[0][0] == math.ceil(128 * 3 / (3 * 0.5 * 4 / 4))
    assert sound[1][0] == 2 * sound[0][0]
    R, v = sound[0]
    assert v == pytest.approx((0.5 * 3 * R * (R + 1) * (R + 2) / (3 * 4)) ** 0.5)
    printed = theory.stages(2.0, 0.5, 3.0, 4.0, 4000, 1.0, "paper")
    assert printed[0] == (math.ceil(128 / (3 * 0.5)), 4.0)


def test_parallel_composition_of_the_vectors() -> None:
    """The reference's phases, 867/433/216 of 1734 records, by the event that runs export."""
    rows = [(1, 216, 50, 0.35), (2, 108, 40, 0.6), (3, 54, 30, 1.0)]
    made = [phases.Phase(i, K, R, noise=s / 0.35) for i, K, R, s in rows]
    facts = jaxfl.types.ProblemFacts(1, 1734, 1734, 2, 120, None, (1734,))
    event = phases.event("poisson", privacy.Mean(1.0), made, 0.35, facts, None)
    assert privacy.epsilon(event, 1e-6).eps == pytest.approx(0.1921016565, rel=2e-3)
    each = [privacy.epsilon(part, 1e-6).eps for part in event.events]
    assert each == pytest.approx([0.1755107034, 0.1839080944, 0.1921016565], rel=2e-3)


@pytest.mark.parametrize(("total", "wanted"), [(7, [5, 1, 1]), (3, [9, 0.1, 0.1]), (40, [3, 2, 1])])
def test_rounds_are_shared(total: int, wanted: list[float]) -> None:
    found = phases.share(total, wanted)
    assert sum(found) == total
    assert min(found) >= 1
    assert found == sorted(found, reverse=True)
    # what is left over goes to the largest remainders
    assert phases.share(5, [3, 1, 1]) == [2, 2, 1]
