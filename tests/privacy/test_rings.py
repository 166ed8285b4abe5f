"""Integer noise in secure sums: tables, norms and divergences against brute force, and rounds."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import a_problem
from scipy import special, stats
from told import refusals

import jaxfl
from jaxfl import audit
from jaxfl.parts import rings
from jaxfl.parts.sampling import participation
from jaxfl.privacy import Event, Sampling, epsilon, sigma_for
from jaxfl.privacy.events import RING_NOISES, OnRing, RingNoise
from jaxfl.privacy.rings import ORDERS, apart, longest, renyi, ring_delta, table

pytestmark = pytest.mark.once
BOTH = pytest.mark.parametrize("noise", RING_NOISES)
NUMBERS = {"lr": 0.2, "update_clip": 0.2, "sigma": 0.1, "batch": 4, "local_steps": 2}


def masses(noise: RingNoise, std: float) -> tuple[np.ndarray, np.ndarray]:
    """The numbers that a table draws, and their chances."""
    law = table(noise, std)
    high, low = (words.astype(object) for words in law.above)
    ends = np.array([0, *(high * 2**32 + low), 2**64], object)
    return np.arange(-law.last, law.last + 1), np.diff(ends).astype(float) / 2.0**64


def wanted(noise: RingNoise, std: float, k: np.ndarray) -> np.ndarray:
    if noise == "skellam":
        return special.ive(abs(k), std**2)
    if noise == "rounded_gaussian":
        return stats.norm.sf((abs(k) - 0.5) / std) - stats.norm.sf((abs(k) + 0.5) / std)
    found = np.exp(-(k**2) / (2 * std**2))
    return found / found.sum()


def event(noise: RingNoise, clip: float, std: float, h: int, d: int, **given: Any) -> Event:
    """A release in steps of 1."""
    ring = OnRing(clip, d, noise, std, h, h * d)
    usual = {"releases": 1, "unit": "client", "adjacency": "zero_out", "trust": "secure_sum"}
    return Event(Sampling("full", h, float(h)), ring, std * h**0.5, **(usual | given))


# --- what is drawn --------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("std", [1.0, 2.5, 40.0, 1024.0])
def test_a_table_is_as_far_from_its_law_as_it_says(noise: RingNoise, std: float) -> None:
    k, p = masses(noise, std)
    known = wanted(noise, std, k)  # as well as scipy does
    assert abs(p - known).sum() / 2 < 1e-14 * std + 1e-15
    assert len(k) * 2.0**-68 < table(noise, std).distance < len(k) * 2.0**-63
    np.testing.assert_allclose(p, p[::-1], rtol=1e-9, atol=2.0**-62)


@BOTH
@pytest.mark.parametrize("scale", [1.0, 0.97])
def test_draws_are_those_of_the_table(noise: RingNoise, scale: float, key: jax.Array) -> None:
    """Both tails included; noise of 97 % is told from it."""
    z = np.asarray(rings.integers(key, table(noise, 6.0 * scale), (200_000,)))
    edges = np.arange(-20, 21)
    counts = np.bincount(np.clip(np.digitize(z, edges), 0, 41), minlength=42)
    k, p = masses(noise, 6.0)
    chances = np.bincount(np.digitize(k, edges), p, minlength=42)
    found = stats.chisquare(counts, chances * z.size / chances.sum()).pvalue
    assert found > 1e-4 if scale == 1 else found < 1e-12


# --- what is proven -------------------------------------------------------------------------------


def law_of_a_sum(noise: RingNoise, std: float, h: int, k: np.ndarray) -> np.ndarray:
    p = one = wanted(noise, std, k)
    for _ in range(h - 1):
        p = np.convolve(p, one)
    return p


@pytest.mark.parametrize(("std", "h"), [(1.0, 2), (1.0, 1), (1.0, 5), (1.3, 3)])
def test_sums_of_rounded_numbers_are_as_near_to_one_as_counted(std: float, h: int) -> None:
    """The density of a normal number and h uniform ones, from its characteristic function."""
    p = law_of_a_sum("rounded_gaussian", std, h, np.arange(-60, 61))
    k = np.arange(p.size) - p.size // 2
    t = np.linspace(-40, 40, 80_001)
    psi = np.exp(-h * std**2 * t**2 / 2) * np.sinc(t / (2 * np.pi)) ** h
    w = np.trapezoid(np.cos(np.outer(k, t)) * psi, t, axis=1) / (2 * np.pi)
    off = abs(p - w).sum() / 2
    assert off <= apart(std, h) + 1e-13
    assert apart(std, h) <= 1e3 * off + 1e-13


@pytest.mark.parametrize(("std", "h"), [(4.0, 4), (1.5, 1), (1.5, 3), (2.0, 2)])
@pytest.mark.parametrize("d", [1, 2])
def test_sums_of_rounded_numbers_hide_what_a_gaussian_hides(std: float, h: int, d: int) -> None:
    """Against the exact profile of sums, for every integer vector of the counted norm; and close to it."""
    p = law_of_a_sum("rounded_gaussian", std, h, np.arange(-40, 41))
    made = event("rounded_gaussian", 1.5, std, h, d)
    square = int(longest(1.5, 1.0, d))

    def moved(shift: int) -> tuple[np.ndarray, np.ndarray]:
        return p, np.roll(p, shift)

    for eps in (0.1, 0.5, 1.0, 2.0):
        worst = 0.0
        for shifts in itertools.product(range(math.isqrt(square) + 1), repeat=d):
            if sum(i * i for i in shifts) <= square:
                pairs = [moved(shift) for shift in shifts]
                P, Q = (
                    functools.reduce(np.multiply.outer, some) for some in zip(*pairs, strict=True)
                )
                worst = max(worst, float(np.maximum(P - math.exp(eps) * Q, 0).sum()))
        bound = ring_delta([made], eps)
        assert worst <= bound
        assert ring_delta([made], 1.5 * eps + 0.1) < worst or std * h**0.5 < 3 or worst < 1e-9


RENYI = pytest.mark.parametrize("noise", ["skellam", "discrete_gaussian"])


@RENYI
@pytest.mark.parametrize(("std", "h"), [(1.0, 1), (1.0, 3), (2.0, 2), (4.0, 4)])
@pytest.mark.parametrize("d", [1, 2])
def test_no_two_sums_are_further_apart(noise: RingNoise, std: float, h: int, d: int) -> None:
    """Against the exact law of a sum, for every integer vector of the counted norm; and close to it."""
    p = law_of_a_sum(noise, std, h, np.arange(-200, 201))
    made = event(noise, 1.5, std, h, d)
    L = math.isqrt(int(longest(1.5, 1.0, d)))
    orders = ORDERS[ORDERS <= 12].astype(int)

    def divergence(shift: int) -> np.ndarray:
        P, Q = (p[shift:], p[: p.size - shift]) if shift else (p, p)
        keep = (P > 1e-280) & (Q > 1e-280)
        lp, lq = np.log(P[keep]), np.log(Q[keep])
        terms = [special.logsumexp(a * lp + (1 - a) * lq) / (a - 1) for a in orders]
        return np.array(terms)

    each = [divergence(shift) for shift in range(L + 1)]
    vectors = itertools.product(range(L + 1), repeat=d)
    shifts = [v for v in vectors if sum(i * i for i in v) <= longest(1.5, 1.0, d)]
    worst = np.max([np.sum([each[i] for i in v], axis=0) for v in shifts], axis=0)
    bound = renyi(made)[: orders.size]
    assert (worst <= bound * (1 + 1e-9)).all()
    if std * h**0.5 >= 2:
        assert (worst >= 0.55 * bound)[:4].all()  # three quarters of the noise would not do
    assert renyi(dataclasses.replace(made, releases=5)) == pytest.approx(5 * renyi(made))


def test_every_draw_of_a_table_counts() -> None:
    one = event("skellam", 3.0, 64.0, 10, 100)
    ring = one.sensitivity
    assert isinstance(ring, OnRing)
    far = table("skellam", 64.0).distance
    some, many = (
        dataclasses.replace(one, sensitivity=dataclasses.replace(ring, draws=draws))
        for draws in (10**5, 10**12)
    )
    more = ring_delta([some], 0.2) - ring_delta([one], 0.2)
    assert more == pytest.approx((1 + math.exp(0.2)) * 1e5 * far, rel=2e-3)
    assert epsilon(many, 1e-7).eps == math.inf
    # what tables add grows with eps, and a smaller eps proves less of it
    at = [ring_delta([many], eps) for eps in (0.2, 1.0, 30.0, 1e4)]
    assert at == sorted(at, reverse=True)
    assert at[-1] == pytest.approx(2 * 1e12 * far, rel=0.2)


@BOTH
@pytest.mark.parametrize(
    ("adjacency", "eps", "limit"),
    [("replace_one", 4.0, 0.04676), ("zero_out", 1.0, 0.13918), ("zero_out", 4.0, 0.011689)],
)
def test_the_noise_of_a_mean_is_close_to_the_gaussian_limit(
    noise: RingNoise, adjacency: Any, eps: float, limit: float
) -> None:
    """d = 250, norm 10, n = 100: above the limit by what Renyi divergences lose, and never below.

    Of rounded numbers by what rounding a message to steps adds to its norm.
    """
    made = event(noise, 10.0, 256.0, 100, 250, adjacency=adjacency)
    found = sigma_for(made, eps, 1e-5)
    assert found.proven.eps <= eps
    assert 1 < (found.sigma / 100) ** 2 / limit < (1.02 if noise == "rounded_gaussian" else 1.25)


# --- what a client sends --------------------------------------------------------------------------

VECTORS = {
    "random": lambda rng, d: rng.normal(size=d),
    "one": lambda rng, d: np.eye(d)[0] * 5,
    "huge": lambda rng, d: rng.normal(size=d) * 1e30,
    "nan": lambda rng, d: np.where(np.arange(d) == 1, np.nan, 1.0),
    "inf": lambda rng, d: np.where(np.arange(d) == 1, np.inf, 1.0),
    "halves": lambda rng, d: np.full(d, 0.5),
}


@pytest.mark.parametrize("kind", VECTORS)
def test_no_rounded_message_is_longer_than_is_counted(kind: str, key: jax.Array) -> None:
    rng = np.random.default_rng(0)
    for d, square in itertools.product((3, 64, 1000), (0, 1, 17, 4000, 2**31 - 128)):
        y = jnp.asarray(VECTORS[kind](rng, d), jnp.float32)
        z = np.asarray(rings.within(key, y, jnp.uint32(square))).astype(object)
        assert (z * z).sum() <= square
    if kind in ("random", "halves"):  # where the norm allows all, rounding is unbiased
        y = jnp.asarray(VECTORS[kind](rng, 20), jnp.float32)
        draws = jax.vmap(lambda k: rings.within(k, y, jnp.uint32(10**6)))(
            jax.random.split(key, 20_000)
        )
        error = np.asarray(draws).mean(0) - np.asarray(y)
        assert (abs(error) < 5 * 0.5 / 20_000**0.5).all()


def test_rotations_turn_back_and_spread() -> None:
    for d in (1, 7, 250):
        v = jnp.zeros(d).at[d // 2].set(3.0)
        y = rings.rotated(v)
        np.testing.assert_allclose(rings.turned_back(y), v, atol=1e-5)
        assert float(jnp.linalg.norm(y)) == pytest.approx(3.0, rel=1e-5)
        assert float(abs(y).max()) <= 3.0 * (2 / d) ** 0.5 + 1e-5


@pytest.mark.parametrize("bits", [8, 12, 32])
def test_words_wrap_around_the_ring(bits: int, key: jax.Array) -> None:
    """The sum is right modulo 2^bits, whatever single words are."""
    part, values = rings.ring_sum("skellam", 4.0, bits), {"sigma": 4.0, "update_clip": 20.0}
    hp = jaxfl.parts.Hyper({name: jnp.float32(v) for name, v in values.items()})
    cohort = jaxfl.parts.Draw(None, jnp.ones(3))
    v = jnp.linspace(-1, 1, 10)
    each = [part.protect(key, jnp.int32(0), jnp.int32(i), cohort, v, hp)[0] for i in range(3)]
    assert all(int(words.max()) < 2**bits for words in each)
    total = sum(each[1:], each[0])
    found = part.recover(total, v, hp)
    signed = [rings.rotated(part.recover(words, v, hp)) for words in each]
    np.testing.assert_allclose(rings.rotated(found), sum(signed), atol=1e-3)


# --- in rounds ------------------------------------------------------------------------------------


def sums(noise: RingNoise, T: int, key: jax.Array) -> np.ndarray:
    """The steps of T rounds of clients whose updates are 0, (T, d), in units of their noise."""
    p, name = a_problem(n=5, m=8, d=12), {"skellam": "skellam_fedavg"}.get(noise, "discrete_fedavg")
    parts: dict[str, Any] = {"rounded": True} if noise == "rounded_gaussian" else {}
    made = jaxfl.algorithm(name, noise_std=64.0, **parts)
    f = jaxfl.functions(made, p, rounds=1, **{**NUMBERS, "lr": 1e-9})

    def step(key: jax.Array) -> jax.Array:
        state = f.init(key)
        return f.output(f.round(state)[0]) - f.output(state)

    found = jax.jit(jax.vmap(step))(jax.random.split(key, T))
    return np.asarray(found * p.n**0.5 / NUMBERS["sigma"], float)


@BOTH
def test_the_sum_has_the_noise_of_all(noise: RingNoise, key: jax.Array) -> None:
    """In every direction, without correlation; nine tenths of it would be refused."""
    z = sums(noise, 4000, key)
    low, high = stats.chi2(z.size).interval(1 - 1e-6)
    assert low < (z**2).sum() < high
    assert 0.81 * high < low
    away = np.cov(z.T) - np.eye(z.shape[1])
    assert abs(away).max() < 5.5 * (2 / len(z)) ** 0.5


def test_it_is_fedavg_but_for_noise(key: jax.Array) -> None:
    p = a_problem(n=5, m=8, d=12)
    given = {**NUMBERS, "sigma": 1e-3}
    ours = jaxfl.simulate(jaxfl.algorithm("skellam_fedavg", noise_std=64.0), p, key, 10, **given)
    other = jaxfl.simulate("dp_fedavg", p, key, 10, **{**given, "sigma": 1e-9})
    assert abs(ours.x - other.x).max() < 6 * 1e-3 * (10 / 5) ** 0.5
    assert abs(other.x - p.x0).max() > 0.1


def test_two_data_sets_of_a_client_differ_by_integers_that_are_counted(key: jax.Array) -> None:
    """Outliers of a million included: the same coins and noise leave the difference of two messages."""
    part = rings.ring_sum("skellam", 64.0)
    hp = jaxfl.parts.Hyper({"sigma": jnp.float32(0.1), "update_clip": jnp.float32(0.2)})
    cohort = jaxfl.parts.Draw(None, jnp.ones(3))
    square = longest(0.2, 0.1 / 64, 12)
    for length in (0.01, 0.2, 1e6):
        v = jax.random.normal(key, (12,))
        v = v * (length / jnp.linalg.norm(v))
        one, none = (
            jax.lax.bitcast_convert_type(
                part.protect(key, jnp.int32(3), jnp.int32(1), cohort, x, hp)[0], jnp.int32
            )
            for x in (v, 0 * v)
        )
        away = np.asarray(one - none).astype(object)
        assert (away * away).sum() <= square
        assert (away * away).sum() > 0.8 * square or length != 0.2


@pytest.mark.plain
@pytest.mark.parametrize(
    ("part", "given", "senders"),
    [
        ("everyone", {}, 5),
        ("everyone", {"colluding": 2}, 3),
        ("uniform", {"cohort": 4}, 4),
        ("uniform", {"cohort": 4, "colluding": 3}, 1),
        ("poisson", {"cohort": 3}, 1),
        ("unreliable", {"cohort": 4, "dropout": 0.3, "threshold": 2}, 2),
    ],
)
def test_noise_counts_of_those_who_surely_send_it(
    part: str, given: dict[str, Any], senders: int
) -> None:
    algorithm = jaxfl.algorithm("skellam_fedavg", participation=participation(part))
    found = planned(algorithm, a_problem(n=5, m=8, d=12), 2, **NUMBERS, **given)
    assert found.event.sensitivity.senders == senders
    assert found.event.sigma == pytest.approx(0.1 * senders**0.5)


def test_an_attack_certifies_less_than_is_proven_and_more_of_half_the_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: Any = {
        "rounds": 8,
        "m": 8,
        "runs": 6000,
        "delta": 1e-3,
        "eps": 4.0,
        "key": jax.random.key(2),
    }
    given |= {"batch": 4, "clients": 3, "confidence": 0.9999}
    found = audit(jaxfl.algorithm("skellam_fedavg", noise_std=64.0), **given)
    assert found.proven == pytest.approx(4.0, rel=1e-3)
    assert 0.35 * found.proven <= found.lower <= found.proven
    honest = rings.integers
    monkeypatch.setattr(rings, "integers", lambda *args: honest(*args) // 3)
    broken = audit(jaxfl.algorithm("skellam_fedavg", noise_std=63.0), **given)
    assert broken.lower > broken.proven


def plan(name: str = "skellam_fedavg", eps: float | None = None, **parts: Any) -> Any:
    noise = {"sigma": 0.1} if eps is None else {"sigma": None, "eps": eps}
    numbers = {k: v for k, v in (NUMBERS | noise).items() if v is not None}
    return jaxfl.simulate(
        jaxfl.algorithm(name, **parts), a_problem(n=5, m=8, d=12), rounds=2, **numbers
    )


test_what_does_not_fit_is_refused = refusals(
    (lambda: plan(noise_std=0.5), "noise_std = 0.5"),
    (lambda: plan(noise_std=1e9), "noise_std = 1000000000.0 must be at least 1 and at most 32768"),
    (lambda: plan(bits=33), "bits = 33"),
    (lambda: plan(bits=6), "bits = 6 let the sum of 5 messages wrap around, which needs 1\\d"),
    (
        lambda: plan(noise_std=1.0, eps=0.1),
        "noise_std = 1.0 is too coarse: rounding 12 coordinates",
    ),
    (lambda: plan(mechanism=jaxfl.parts.mechanisms.gaussian()), "does not apply to skellam_fedavg"),
    (
        lambda: plan("dp_fedavg", aggregation=rings.ring_sum("skellam", 64.0)),
        "noise on a ring needs both",
    ),
    (
        lambda: plan("ldp_sgd", mechanism=rings.on_ring("skellam", 64.0)),
        "noise on a ring needs both",
    ),
)
