"""mu^2-SGD: corrected momentum, anytime averages, one pass; its noise, its privacy, its tables."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import LAM, Draws, clipped, gradient, regularizer, shrunk
from papers.reshef import experiment as reshef
from planned import planned
from probe import sent, steep
from rows import a_problem
from told import refusals, refused

import jaxfl
from jaxfl.privacy.events import Increments
from jaxfl.privacy.releases import increments_shift

pytestmark = pytest.mark.once

G, L, D, T = 0.7, 0.9, 0.8, 12
NUMBERS = {"clip": G, "smoothness": L, "diameter": D, "lr": 0.02, "sigma": 0.3}


def noise(D: Draws, t: int) -> np.ndarray:
    """Of the mean over clients."""
    if D.run.settings["parts"]["mechanism"] == "none":
        return np.zeros(D.d)
    central = D.run.settings["parts"]["mechanism"] == "central"
    each = [D.central(t)] if central else [D.noise(t, i) for i in range(D.n)]
    return D.v["sigma"] * np.mean(each, axis=0)


def weighted(run: jaxfl.Run) -> np.ndarray:
    """Section 3.1 with alpha_t and beta_t of powers, of d_i and weighted averages as they are written.
    With both powers 1 these are Algorithms 1 and 2."""
    draws, p, v, n = Draws(run), run.problem, run.values, run.problem.n
    power, r = v.get("weight_power", 1.0), v.get("momentum_power", 1.0)
    alphas = [
        math.gamma(t + power) / math.gamma(t) / math.gamma(1 + power) for t in range(1, T + 2)
    ]
    x = before = w = start = np.asarray(p.x0, float)
    points, d, cut = [start], [0 * x] * n, 0
    for t in range(1, T + 1):
        q, alpha, beta = 0, alphas[t - 1], t**-r
        for i in range(n):
            g, old = gradient(p, i, t - 1, x), gradient(p, i, t - 1, before)
            most = beta * v["clip"] + (1 - beta) * L * D * alpha / sum(alphas[:t])
            c = shrunk(g - (1 - beta) * old, most)
            cut += (c != g - (1 - beta) * old).any()
            d[i] = (1 - beta) * d[i] + c
            q = q + alpha * (d[i] + regularizer(x)) / n
        w = start + shrunk(w - v["lr"] * (q + noise(draws, t - 1)) - start, D / 2)
        points.append(w)
        output, before = x, x
        x = np.average(points, axis=0, weights=alphas[: t + 1])
    assert cut < T * n
    return output


def plain(run: jaxfl.Run) -> np.ndarray:
    """Projected one-pass SGD, and the mean of the points it was at."""
    draws, p, v = Draws(run), run.problem, run.values
    x = start = np.asarray(p.x0, float)
    points = []
    for t in range(T):
        points.append(x)
        g = np.mean([clipped(p, i, t, x, G) for i in range(p.n)], axis=0)
        x = start + shrunk(x - v["lr"] * (g + regularizer(x) + noise(draws, t)) - start, D / 2)
    return np.mean(points, axis=0)


PLAIN = ("mu2_trusted", "mu2", "noisy_sgd")


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(n, marks=pytest.mark.plain) for n in PLAIN), "mu2_untrusted", "noisy_mu2"],
)
def test_transcription(name: str, key: jax.Array) -> None:
    numbers, parts = dict(NUMBERS), {} if name == "mu2" else {"noise": "per_client"}
    if name in ("mu2", "noisy_sgd"):
        del numbers["sigma" if name == "mu2" else "smoothness"]
    numbers["lr"] = 0.1 if name == "noisy_sgd" else NUMBERS["lr"]
    p = a_problem(LAM, n=1 if name == "noisy_mu2" else 4, m=T + 2)
    run = jaxfl.simulate(jaxfl.algorithm(name, **parts), p, key, T, eval_every=0, **numbers)
    expected = (plain if name == "noisy_sgd" else weighted)(run)
    assert np.linalg.norm(expected - np.asarray(p.x0)) > 0.05
    np.testing.assert_allclose(run.x, expected, rtol=2e-5, atol=2e-6)


POWERS = (
    *((1.0, 1.0), (0.0, 1.0), (2.0, 1.0), (1.0, 0.0)),
    pytest.param(1.5, 0.5, marks=pytest.mark.plain),
)


@pytest.mark.parametrize(("p", "r"), POWERS)
def test_transcription_with_other_weights(p: float, r: float, key: jax.Array) -> None:
    algorithm = jaxfl.algorithm("mu2_untrusted", noise="per_client")
    numbers = {**NUMBERS, "clip": 1.5, "weight_power": p, "momentum_power": r, "lr": 0.02}
    run = jaxfl.simulate(algorithm, a_problem(LAM, n=4, m=T + 2), key, T, eval_every=0, **numbers)
    np.testing.assert_allclose(run.x, weighted(run), rtol=5e-5, atol=5e-6)


def test_weights_that_the_theorems_do_not_have() -> None:
    """The shift of p = r = 1 is that of near powers; with others nothing is claimed by a theorem."""
    near = increments_shift(Increments(G, L, D, weight_power=1 + 1e-9), T)
    assert near == pytest.approx(increments_shift(Increments(G, L, D), T), rel=1e-6)
    given = {"clip": G, "smoothness": L, "diameter": D, "delta": 1e-5, "weight_power": 2.0}
    plan = planned("mu2_untrusted", a_problem(m=T + 2), T, eps=2.0, **given)
    assert plan.eps(1e-5) == pytest.approx(2.0, rel=1e-3)
    assert not plan.claim.holds
    assert "times T/alpha_T" in str(plan.sources["lr"])
    paper = lambda: planned("mu2_untrusted", a_problem(m=T + 2), T, "paper", eps=2.0, **given)  # noqa: E731
    refused(paper, "alpha_t = t and beta_t = 1/t")


@pytest.mark.parametrize(("p", "r"), POWERS)
def test_one_record_moves_what_is_sent_by_the_stated_shift(p: float, r: float) -> None:
    """sqrt(sum_t |change of q_t|^2) for the worst record is the event's shift, and no more; on a
    path whose jumps are far beyond the diameter, and with gradients far beyond G."""
    weights = {"weight_power": p, "momentum_power": r}
    algorithm, numbers = jaxfl.algorithm("mu2_untrusted"), {**NUMBERS, "sigma": 0.0, **weights}
    path = np.abs(100 * np.random.default_rng(0).normal(size=(T, 3))).astype(np.float32)
    signs = np.ones((T + 1, 1, T))
    for j in range(T):
        signs[1 + j, 0, j] = -1
    base, *others = sent(algorithm, [steep(each) for each in signs], path, **numbers)
    changes = [np.linalg.norm(other - base, axis=1) for other in others]
    for j, change in enumerate(changes):
        assert (change[:j] == 0).all()
        if (p, r) == (1.0, 1.0):  # else it is another in every round
            np.testing.assert_allclose(change[j:], change[j], rtol=1e-5)
    bound = increments_shift(Increments(G, L, D, **weights), T)
    assert max(np.sqrt((change**2).sum()) for change in changes) == pytest.approx(bound, rel=1e-4)
    event = planned("mu2_untrusted", a_problem(m=T + 2), T, **NUMBERS, **weights).event
    assert increments_shift(event.sensitivity, T) == pytest.approx(bound)


def test_no_sample_is_used_twice(key: jax.Array) -> None:
    p = a_problem(m=8)  # the smallest client has 6
    numbers = {"lr": 0.01, "sigma": 1.0, "diameter": 1.0}
    run = lambda *rounds, **b: jaxfl.simulate("mu2_untrusted", p, key, *rounds, **numbers, **b)  # noqa: E731
    refused(lambda: run(7), "rounds = 7 use 7 samples .* ask for at most 6")
    refused(lambda: run(4, batch=2), "ask for at most 3 rounds")
    whole = run(eval_every=0)
    assert whole.values["rounds"] == 6
    refused(lambda: whole.extend(7), "ask for at most 6")
    sampler, used = jaxfl.parts.sampling.in_order(), []
    for t in range(3):
        hp = jaxfl.parts.Hyper({"batch": jnp.int32(2)}, (("batch", 3),))
        rows = sampler.draw(key, jnp.int32(t), jnp.int32(6), 8, hp)
        used += np.asarray(rows.index)[np.asarray(rows.weight) > 0].tolist()
    assert used == list(range(6))


@pytest.mark.parametrize("trusted", [False, True])
def test_noise_and_proof_are_those_of_the_theorems(trusted: bool) -> None:
    name, M = ("mu2_trusted", 4) if trusted else ("mu2_untrusted", 1)
    given = {"clip": 1.0, "smoothness": 2.0, "diameter": 0.5, "delta": 1e-6}
    plan = planned(name, a_problem(n=4, m=52), 50, rho=2.0, **given)
    v = plan.values
    assert v["sigma"] == pytest.approx(2 * 3.0 * math.sqrt(50) / (2.0 * M))
    shape = 2.0 * 0.5 * (4 if trusted else 2) / (2 * 3.0 * 50 * math.sqrt(plan.facts.d))
    assert v["lr"] == pytest.approx(min(shape, 1 / (4 * 2.0 * 50)))
    known = jaxfl.account(name, sigma=v["sigma"], rounds=50, machines=M, **given)
    assert plan.eps(1e-6) == pytest.approx(known["eps"])
    assert plan.claim.eps == pytest.approx(2.0**2 / 2 + 2.0 * math.sqrt(2 * math.log(1e6)))
    assert plan.eps(1e-6) < plan.claim.eps
    # from eps to rho and back
    again = planned(name, plan.problem, 50, "paper", eps=plan.claim.eps, **given).values
    assert again["rho"] == pytest.approx(2.0)
    assert again["sigma"] == pytest.approx(v["sigma"])


def made(name: str, **numbers: float) -> jaxfl.Run:
    return jaxfl.simulate(name, a_problem(LAM, n=4), jax.random.key(0), 4, **numbers)


test_mistakes_are_explained = refusals(
    (lambda: made("mu2_untrusted", rho=1.0, eps=2.0), "eps = 2.0 and rho = 1.0 both set"),
    (lambda: made("noisy_mu2"), "single machine's algorithm, and there are 4 clients"),
    (lambda: made("mu2_trusted", clip=math.inf), "clip = inf bounds no example"),
    (lambda: made("mu2_trusted", clip=1e300), "the largest 32-bit float"),
    (
        lambda: jaxfl.algorithm("mu2", sampler=jaxfl.parts.sampling.poisson()),
        "does not apply to mu2",
    ),
    (lambda: jaxfl.algorithm("mu2_trusted", noise="loud"), "noise = 'loud' "),
)


@pytest.mark.full
def test_a_cell_of_small_size(data_dir) -> None:
    """3,000 of the samples, M = 10: every number by the public API, noise from rho."""
    cells = reshef.tables(
        str(data_dir), machines=(10,), rho=(4.0, 16.0), servers=("trusted",), samples=3000
    )
    assert [(c.machines, c.rho) for c in cells] == [(10, 4.0), (10, 16.0)]
    assert cells[1].loss < cells[0].loss < math.log(10)
    assert cells[0].loss == pytest.approx(2.293, abs=0.003)
    assert cells[0].accuracy > 55
    assert cells[0].published_loss == 2.256
    assert not cells[0]._replace(loss=2.2595).within
    assert cells[0]._replace(loss=2.2585).within
