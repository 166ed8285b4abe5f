"""Attacks never beat the proof, come close to it where it is tight, and catch what is broken."""

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import ONE_SHOT
from scipy.stats import binom, norm
from told import refusals

import jaxfl
from jaxfl.algorithms.numbers import plain
from jaxfl.algorithms.registry import ALGORITHMS
from jaxfl.audits.attack import audit
from jaxfl.audits.checks import one_run_audit, sensitivity
from jaxfl.core.types import Algorithm, Cost, Info, Param, ProblemFacts
from jaxfl.privacy import limits as bounds
from jaxfl.privacy.decisions import certify, family, reached
from jaxfl.privacy.events import AnyEvent, Event, Mean, Sampling
from jaxfl.privacy.gaussian import gdp_eps, gdp_mu, gdp_power

pytestmark = pytest.mark.once

DELTA = 1e-3
ERROR = 1e-3  # chance that any gate of a table fails although all is well
SAMPLERS = ("poisson", "without_replacement", "with_replacement", "shuffled")
PRIVATE = [name for name in ONE_SHOT if name not in ("fedgd", "fedsgd")]
SAMPLED = [name for name in PRIVATE if not name.endswith("_gd")]


def test_clopper_pearson_covers() -> None:
    """Each side misses at most alpha, by summation over all outcomes."""
    n, alpha, k = 40, 0.05, np.arange(41)
    low, high = bounds.clopper_pearson(k, n, alpha)
    for p in np.linspace(0.01, 0.99, 25):
        chance = binom.pmf(k, n, p)
        assert chance[low > p].sum() <= alpha + 1e-12
        assert chance[high < p].sum() <= alpha + 1e-12
    assert (low[0], high[-1]) == (0, 1)


def test_rates_of_known_mechanisms() -> None:
    """Randomized response of eps = 1, no privacy lost at all, and a Gaussian."""
    p = math.e / (1 + math.e)
    assert bounds.plain_eps(p, 1 - p, 0.0) == pytest.approx(1.0)
    assert bounds.plain_eps(0.3, 0.4, 0.0) == pytest.approx(0.0)
    assert bounds.separation(norm.cdf(0.7), norm.cdf(-0.5)) == pytest.approx(1.2)


# --- soundness: mechanisms whose eps is known exactly -----------------------------------------------


def most(trials: int, alpha: float) -> int:
    """Failures that as many trials show with chance ERROR."""
    return int(binom.isf(ERROR, trials, alpha))


@pytest.mark.full
def test_bounds_exceed_a_gaussians_eps_as_seldom_as_stated() -> None:
    """A confidence of 60 %, so that what is unsound shows: the luckiest of six statistics, 80 times.

    The event says half the noise, which a bound may not take from it.
    """
    mu, n, alpha = 1.5, 600, 0.4
    curves = family(Event(Sampling("full", 1, 1), Mean(1.0), 1 / mu, 1))
    truth, found = float(gdp_eps(mu, DELTA)), []
    for seed in range(80):
        P, Q = np.random.default_rng(seed).standard_normal((2, n, 6))
        P[:, :3] += mu
        half = n // 2
        found.append(certify((P[:half], Q[:half]), (P[half:], Q[half:]), curves, DELTA, 1 - alpha))
    for which in ("plain", "curve", "lower"):
        assert sum(getattr(each, which) > truth for each in found) <= most(80, alpha)
    assert np.median([each.lower for each in found]) > 0.7 * truth


@pytest.mark.plain
def test_power_that_is_reached_exceeds_that_of_the_best_test_as_seldom_as_stated() -> None:
    rng, trials, alpha, mu = np.random.default_rng(3), 150, 0.1, 2.0
    above, found = 0, list[float]()
    for _ in range(trials):
        Q = rng.normal(size=(12_000, 1))
        P = mu + rng.normal(size=(12_000, 1))
        power = reached((P[:4000], Q[:4000]), (P[4000:], Q[4000:]), 1 - alpha)
        above += power.get(0.01, 0.0) > gdp_power(mu, 0.01)
        found.append(power.get(0.01, 0.0))
    assert above <= most(trials, alpha)
    assert np.median(found) > 0.6 * gdp_power(mu, 0.01)
    few = reached((P[:400], Q[:400]), (P[400:1200], Q[400:1200]), 1 - alpha)
    assert 0.001 not in few  # too few runs say nothing
    assert not reached((Q, Q), (Q, Q), 0.95)  # as a coin has


def test_without_a_curve_bounds_hold_for_any_mechanism() -> None:
    """Randomized response of eps = 1, which no Gaussian event describes."""
    n, alpha, right = 600, 0.4, math.e / (1 + math.e)

    def run(rng: np.random.Generator) -> float:
        P = (rng.random((n, 1)) < right) + 0.0
        Q = (rng.random((n, 1)) > right) + 0.0
        half = n // 2
        return certify((P[:half], Q[:half]), (P[half:], Q[half:]), None, 1e-9, 1 - alpha).lower

    assert sum(run(np.random.default_rng(seed)) > 1 for seed in range(80)) <= most(80, alpha)


def test_guesses_of_one_run_exceed_eps_as_seldom_as_stated() -> None:
    """200 canaries of a Gaussian: the bound through its curve, and close to it."""
    mu, k, r, alpha = 1.5, 200, 50, 0.4
    curves = family(Event(Sampling("full", 1, 1), Mean(1.0), 2 / mu, 1))
    assert curves is not None
    truth, found = float(gdp_eps(mu, DELTA)), []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        s = rng.choice([-1, 1], k)
        z = s * mu / 2 + rng.standard_normal(k)
        sure = np.argsort(-abs(z))[:r]
        right = int(np.sum(np.sign(z[sure]) == s[sure]))
        found.append(curves.one_run_eps(k, r, right, DELTA, alpha))
    assert sum(eps > truth for eps in found) <= most(20, alpha)
    assert np.median(found) > 0.6 * truth
    # one guess about one canary is right with chance Phi(mu/2)
    one = curves.one_run_eps(1, 1, 1, DELTA, alpha=0.9)
    assert one == pytest.approx(float(gdp_eps(2 * norm.ppf(0.9), DELTA)), rel=5e-3)


# --- how close ------------------------------------------------------------------------------------


TRUST: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "local_transcript": ("ldp_spider", {"turning": 2, "period": 4, "smoothness": 1e6}, {}),
    "secure_sum": ("private_local_sgd", {"batch": 8, "local_steps": 1, "clients": 3}, {}),
    "trusted_server": ("dp_fedavg", {"batch": 4, "clients": 3}, {}),
    "single_node": ("dp_gd", {}, {}),
    "network": ("dp_dsgd", {"batch": 8, "clients": 4}, {"graph": jaxfl.parts.graphs.ring()}),
}


@pytest.mark.parametrize("trust", TRUST)
def test_what_is_seen_under_each_trust_model_comes_close_to_the_proof(trust: str) -> None:
    """Too little noise, or noise that repeats or is shared, certifies more than is proven."""
    name, numbers, parts = TRUST[trust]
    given: Any = dict(rounds=8, m=8, runs=1500, delta=DELTA, eps=4.0, key=jax.random.key(2))
    found = audit(jaxfl.algorithm(name, **parts), confidence=1 - ERROR / 5, **given, **numbers)
    assert found.proven == pytest.approx(4.0, rel=1e-3)
    assert 0.5 * found.proven <= found.lower <= found.proven


def test_the_page_of_audits_has_every_algorithm_or_a_reason() -> None:
    text = Path(__file__).parents[2].joinpath("docs/audits.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    found = {row[0].strip("`"): row for row in rows if row and row[0].strip("`") in ALGORITHMS}
    private = {name for name in ALGORITHMS if "sigma" in jaxfl.algorithm(name).names}
    assert set(found) == private
    for row in found.values():
        assert float(row[2]) <= 1
        assert float(row[2]) >= 0.5 or row[-1]
    others = [row for row in rows if row and row[0].startswith("`") and "`, " in row[0]]
    assert len(others) >= 10
    for row in others:
        assert float(row[2]) <= 1
        assert float(row[4]) > 1 or row[-1]


class Toy(NamedTuple):
    """A state of the user's own."""

    t: jax.Array
    x: jax.Array


@functools.cache
def toy(bug: str = "") -> Algorithm:
    """Noisy gradient descent written by hand, as a user would; with one of several bugs."""

    def init(key, problem, hp):
        return Toy(jnp.int32(0), problem.x0), Info(*[jnp.int32(0)] * 3)

    def round(key, state, problem, hp):
        data = jax.tree.map(lambda a: a[0], problem.train)
        g = jax.vmap(jax.grad(problem.model.loss), (None, 0))(state.x, data)
        at = key if bug == "same key in every round" else jax.random.fold_in(key, state.t)
        xi = hp["sigma"] * jax.random.normal(at, state.x.shape)
        xi = xi * {"noise scaled by 2/3": 2 / 3, "noise scaled by 3/2": 3 / 2}.get(bug, 1.0)
        if bug == "noise before clipping":
            g = g + xi[None]
        G = 2 * hp["clip"] if bug == "sensitivity G instead of 2G" else hp["clip"]
        if bug != "clip after averaging":
            g = g * jnp.minimum(1, G / jnp.maximum(jnp.linalg.norm(g, axis=1, keepdims=True), 1e-9))
        v = jnp.mean(g, axis=0)
        if bug == "clip after averaging":
            v = v * jnp.minimum(1, G / jnp.linalg.norm(v))
        if bug != "noise before clipping":
            v = v + xi
        return Toy(state.t + 1, state.x - hp["lr"] * v), Info(*[jnp.int32(1)] * 3)

    params = tuple(Param(name, name) for name in ("lr", "clip", "sigma"))
    steps = {"init": init, "round": round, "output": lambda state: state.x}
    sizes = {"capacity": lambda values, facts: {}, "cost": lambda v, f: Cost(0.0, 32.0, 32.0)}
    plan = plain(lr=0.1, clip=1.0, sigma=1.0)
    return Algorithm("toy", summary="", paper="", params=params, plan=plan, **sizes, **steps)


def gaussian(values: dict[str, Any], facts: ProblemFacts) -> AnyEvent:
    sampling = Sampling("full", facts.m, facts.m)
    return Event(sampling, Mean(values["clip"]), float(values["sigma"]), int(values["rounds"]))


def attack(bug: str = "", eps: float = 5.0, **options: Any) -> Any:
    m, rounds = 4, 10
    options = {"event": gaussian, "runs": 4000, "confidence": 1 - 1e-4, **options}
    sigma = 2 * 0.5 * math.sqrt(rounds) / m / gdp_mu(eps, DELTA)
    options |= {"rounds": rounds, "m": m, "delta": DELTA, "clip": 0.5, "sigma": sigma}
    return audit(toy(bug), key=jax.random.key(7), **options)


@pytest.mark.parametrize("turning", [False, True])
def test_a_users_algorithm_needs_no_extra_code(turning: bool) -> None:
    """Without an event there is no proof; a claim below what an attack certifies is refuted."""
    found = attack(turning=turning)
    assert 0.6 * found.proven < found.needed < found.proven
    assert found.proven == pytest.approx(5.0, rel=1e-3)
    assert found.lower == found.plain < found.needed  # nobody checked the event
    condition = "confidence, if only the amount of noise differs)"
    assert condition not in str(found)
    assert condition in str(found._replace(lower=found.needed))
    found = attack(event=None, claimed=0.5, turning=turning)
    assert found.refutes_claim
    above = f"REFUTES THE CLAIM: the lower bound {found.lower:.4g} exceeds the claimed eps 0.5"
    assert found.verdict == above
    assert f"; it {above}" in repr(found)
    assert (found.proven, found.curve) == (math.inf, None)
    assert 1 < found.lower == found.plain < 5


BUGS = (
    *("noise scaled by 2/3", "noise before clipping", "same key in every round"),
    *("sensitivity G instead of 2G", "clip after averaging"),
)


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug: str) -> None:
    found = attack(bug, turning=bug.startswith("same key"))
    assert found.refutes_proof
    bound = (
        f"the lower bound {found.needed:.4g} exceeds the eps of the given event {found.proven:.4g}"
    )
    assert str(found).endswith(f"; it REFUTES THE GIVEN EVENT: {bound}")
    words = "refutes nothing: the lower bound 0 does not exceed the eps of the given event"
    assert found._replace(needed=0.0).verdict.startswith(words)
    assert found._replace(proven=math.inf).verdict == "refutes nothing: no eps is proven or claimed"
    claimed = found._replace(claimed=7.0, status="E", needed=2.0, lower=9.0, proven=3.0).verdict
    words = "the lower bound 9 exceeds the claimed eps 7, and 2 does not exceed the proven eps 3"
    assert claimed == f"REFUTES THE CLAIM: {words}"


def test_repeated_noise_is_caught_under_sampling_too() -> None:
    """Rounds in which the record was not drawn give the noise away."""
    algorithm = jaxfl.algorithm("ldp_sgd")

    def round(key, state, problem, hp):
        quiet = jaxfl.parts.Hyper({**hp.values, "sigma": jnp.float32(0)}, hp.capacity)
        state, info = algorithm.round(key, state, problem, quiet)
        x, memory = state.server
        xi = hp["lr"] * hp["sigma"] * jax.random.normal(key, x.shape)
        return state._replace(server=(x - xi, memory)), info

    broken = algorithm._replace(round=round)
    given: Any = dict(rounds=20, m=40, runs=2000, delta=DELTA, batch=4, clip=1.0, eps=1.0)
    found = audit(broken, key=jax.random.key(0), confidence=1 - 1e-4, **given)
    assert found.refutes_described
    assert found.statistic == "spread"


FAST = ("soteriafl_svrg-poisson", "ldp_sgd-with_replacement")  # and the first
TABLE = [f"{name}-{scheme}" for name in SAMPLED for scheme in SAMPLERS]
TABLE += [f"{name}-full" for name in PRIVATE if name not in SAMPLED]


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.plain if row in FAST else ()) for row in TABLE]
)
def test_messages_move_by_their_sensitivity(row: str) -> None:
    """And by nearly as much at worst; b = 2 of 6, so that the worst does come up."""
    name, scheme = row.split("-")
    given: Any = {} if scheme == "full" else {"batch": 2, "sampler": scheme}
    found = sensitivity(name, rounds=12, key=jax.random.key(0), m=6, runs=128, clip=0.7, **given)
    assert 0.999 < found.ratio < 1.001


def shown(name: str, kind: str, dim: int = 3, rounds: int = 6, **numbers: float) -> Any:
    """How far one record moves what a message shows."""
    algorithm = jaxfl.algorithm(name, compressor=jaxfl.parts.compressors.compressor(kind))
    given: Any = {"m": 6, "batch": 2, "clip": 0.7, "dim": dim, **numbers}
    return sensitivity(algorithm, rounds=rounds, key=jax.random.key(0), **given)


@pytest.mark.parametrize("bug", BUGS[3:])
def test_sensitivity_catches_planted_bugs(bug: str) -> None:
    given: Any = dict(rounds=5, key=jax.random.key(0), event=gaussian, clip=0.5)
    assert sensitivity(toy(bug), **given).ratio > 1.9
    assert sensitivity(toy(), **given).ratio == pytest.approx(1, rel=1e-3)


def test_one_run_says_something_and_not_too_much() -> None:
    algorithm = jaxfl.algorithm("ldp_gd")
    numbers = {"rounds": 3, "m": 400, "dim": 400, "clip": 1.0, "delta": 1e-5}
    found = one_run_audit(algorithm, key=jax.random.key(0), eps=8.0, **numbers)
    assert found.proven == pytest.approx(8.0, rel=1e-3)
    assert 1.0 < found.lower <= found.proven
    assert found.curve is not None
    assert 0.5 * found.proven < found.curve <= found.proven
    noise = one_run_audit(algorithm, key=jax.random.key(0), sigma=100.0, **numbers)
    assert noise.lower == 0 == noise.curve


FEW: Any = {"algorithm": "ldp_gd", "rounds": 2, "m": 4, "key": jax.random.key(0)}


def test_an_audit_shows_its_progress_where_it_is_asked_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[tuple[int, int]] = []
    for progress in (None, False, seen.append, True):
        assert capsys.readouterr().err == ""
        audit(**FEW, runs=50, chunk=20, eps=4.0, progress=progress)
    assert seen == [(40, 100), (80, 100), (100, 100)]
    assert "round 100/100, attack on ldp_gd" in capsys.readouterr().err


test_mistakes_are_explained = refusals(
    (lambda: audit(**FEW, runs=3), "runs = 3"),
    (lambda: audit(**FEW, confidnce=0.9), "did you mean the option 'confidence'?"),
    (lambda: audit(**FEW, confidence=1.0), "confidence"),
    (lambda: audit(**{**FEW, "algorithm": toy()}, delta=2.0), "delta"),
    (lambda: audit(**{**FEW, "rounds": 0}), "rounds"),
    (lambda: audit(**FEW, chunk=0), "chunk = 0"),
    (lambda: audit(**FEW, clients=0), "clients = 0"),
    (lambda: audit(**FEW, turning=1), "turning = 1"),
    (lambda: audit(**FEW, turning=2, lr=lambda t: 1.0), "turning = 2 needs a clock"),
    (lambda: one_run_audit(**FEW, dim=3, canaries=4), "canaries"),
    *(
        (lambda f=f: f(**FEW, canary=-1.0), "canary = -1")
        for f in (audit, sensitivity, one_run_audit)
    ),
    # no alarm is raised of what a message does not show
    (lambda: shown("cdp_sgd", "terngrad"), "ask for dim = 1, or take"),
    (lambda: shown("cdp_sgd", "qsgd+random_k"), "ask for dim = 1, or take"),
    (lambda: shown("cdp_sgd", "natural", dim=1), ": take compressors.identity"),
    (lambda: shown("soteriafl_sgd", "random_k"), "of soteriafl_sgd by more than a"),
)
