"""Secure aggregation: sums are exact, single messages say nothing, and what cannot work is refused."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import a_problem
from scipy import stats
from told import mistakes, refused

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.types import Draw, Hyper
from jaxfl.parts.aggregations import (
    aggregation,
    decode,
    encode,
    pair_masks,
    plain_sum,
    secure_sum,
    settle,
)
from jaxfl.parts.dropouts import collect, enrol, reconstruct, share
from jaxfl.rounds import transcript

pytestmark = pytest.mark.once

NUMBERS = {"lr": 0.2, "clip": 1.0, "sigma": 0.05, "batch": 4}


def cohort_of(r: int, n: int, slots: int) -> Draw:
    """r of n clients in that many slots, the rest of them dead."""
    index = np.random.default_rng(r).permutation(n)[:slots]
    live = np.arange(slots) < r
    return Draw(jnp.where(live, index, n), jnp.where(live, 1 / r, 0.0))


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [2.0**-20, 1e-3])
def test_sums_are_recovered_to_the_declared_precision(precision: float, key: jax.Array) -> None:
    """Also where numbers are negative: r/2 precisions at worst, whatever the range."""
    r, d, R = 10, 400, 8.0
    v = R * jax.random.uniform(key, (r, d), minval=-1.0)
    words, clamped = jax.vmap(lambda v: encode(v, R, precision))(v)
    assert clamped.sum() == 0
    total = decode(jnp.sum(words, 0, dtype=jnp.uint32), jnp.float32(precision))
    error = np.abs(np.asarray(total, float) - np.asarray(v, float).sum(0))
    # beside the rounding to the precision, that of float32 to 24 bits
    assert error.max() <= r * precision / 2 + r * R * 2.0**-23
    assert error.max() > precision / 4


def test_single_words_are_rounded_and_not_cut_off() -> None:
    """Truncation would pass as a larger error, and as a bias."""
    v = jax.random.uniform(jax.random.key(0), (4000,), minval=-1.0)
    error = np.asarray(decode(encode(v, 2.0, 0.01)[0], jnp.float32(0.01)) - v)
    assert np.abs(error).max() < 0.00501
    assert abs(error.mean()) < 5 * 0.01 / np.sqrt(12 * 4000)


def test_what_is_out_of_range_is_clamped_and_counted() -> None:
    v = jnp.array([0.5, -3.0, 7.0, jnp.inf, -jnp.inf, jnp.nan, 2.0])
    words, clamped = encode(v, 2.0, 2.0**-10)
    assert clamped == 5
    np.testing.assert_array_equal(
        decode(words, jnp.float32(2.0**-10)), [0.5, -2.0, 2.0, 2.0, -2.0, 0.0, 2.0]
    )


def test_runs_count_what_they_clamp(key: jax.Array) -> None:
    problem, x0 = a_problem(), np.full(8, 9.0)
    quiet = jaxfl.simulate("private_local_sgd", problem, key, 5, local_steps=2, **NUMBERS)
    assert quiet.totals["clamped"] == 0
    # No regularizer enters the check of the range; make it large, so that it is what is clamped.
    model = jaxfl.models.logistic(8, regularizer="l2:50")
    pulled = jaxfl.make_problem(model, jax.tree.map(np.asarray, problem.train), x0=x0)
    run = jaxfl.simulate(
        "private_local_sgd", pulled, key, 1, local_steps=1, **{**NUMBERS, "lr": 0.01}
    )
    moved = x0 - run.x
    assert run.totals["clamped"] == 5 * 8
    np.testing.assert_allclose(moved, run.values["range"], rtol=1e-5)


# --- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("r", "slots"), [(2, 2), (3, 5), (7, 7)])
def test_masks_cancel_in_1000_random_cohorts(r: int, slots: int) -> None:
    """Seeds for unordered pairs would make every mask zero; dead slots must not take part."""
    n, d = 12, 3

    def one(key: jax.Array, t: jax.Array) -> jax.Array:
        index = jax.random.permutation(key, n)[:slots]
        live = jnp.arange(slots) < r
        cohort = Draw(jnp.where(live, index, n), jnp.where(live, 1 / r, 0.0))
        masks = jax.vmap(lambda me: pair_masks(key, t, me, cohort, d))(cohort.index)
        return jnp.where(live[:, None], masks, 0)

    masks = np.asarray(
        jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 1000), jnp.arange(1000))
    )
    assert (masks.sum(1, dtype=np.uint32) == 0).all()
    live = masks[:, :r]
    assert (live == 0).mean() < 1e-3
    assert len(np.unique(live)) > 0.98 * live.size / (2 if r == 2 else 1)


def test_masks_are_fresh_every_round(key: jax.Array) -> None:
    cohort = cohort_of(3, 8, 3)
    now, later = (
        pair_masks(key, t, cohort.index[0], cohort, 50) for t in (jnp.int32(0), jnp.int32(1))
    )
    assert (now != later).all()


def test_one_message_is_uniform_on_the_ring(key: jax.Array) -> None:
    """Chi-square over the upper and the lower bits; the message itself is a single number."""
    cohort, d = cohort_of(4, 9, 4), 200_000
    hp = Hyper({"range": jnp.float32(4.0), "precision": jnp.float32(2.0**-20)})
    v = jnp.full(d, 1.25)
    args = key, jnp.int32(3), cohort.index[0], cohort, v, hp
    words = np.asarray(secure_sum(masks=True).protect(*args)[0])
    plain = np.asarray(secure_sum().protect(*args)[0])
    assert len(np.unique(plain)) == 1
    for part in (words >> 24, words & 0xFF):
        counts = np.bincount(part, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    difference = words[1:] - words[:-1]
    assert stats.chisquare(np.bincount(difference >> 24, minlength=256)).pvalue > 1e-4


# --- in rounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "private_local_sgd",
        "soteriafl_sgd",
        # slow: their messages are those of the two above
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("cdp_sgd", "ldp_sgd")),
    ],
)
def test_a_run_is_the_same_under_any_aggregation(name: str, key: jax.Array) -> None:
    """Up to the precision; real masks change no bit.  Three of five clients, in every algorithm."""
    problem, ends, more = a_problem(), {}, {}
    if name.startswith("private"):
        more = {"local_steps": 3}
    elif not name.startswith("ldp"):
        more = {"k": 4, "range": 64.0}
    for way in ("plain_sum", "secure_sum", "masked_sum"):
        algorithm = jaxfl.algorithm(
            name,
            noise="per_client",
            aggregation=aggregation(way),
            participation=jaxfl.sampling.participation("uniform"),
        )
        numbers = {**NUMBERS, **more, "cohort": 3}
        if way == "plain_sum":
            numbers.pop("range", None)
        run = jaxfl.simulate(algorithm, problem, key, 6, **numbers)
        assert run.totals["clamped"] == 0
        if way != "plain_sum":
            assert run.totals["uplink_bits"] == 6 * 3 * 32 * problem.model.dim
        ends[way] = run.x
    np.testing.assert_array_equal(ends["secure_sum"], ends["masked_sum"])
    np.testing.assert_allclose(ends["secure_sum"], ends["plain_sum"], rtol=1e-5, atol=1e-5)
    assert np.abs(ends["plain_sum"] - np.asarray(problem.x0)).max() > 0.05


# --- refusals ------------------------------------------------------------------------------------


def test_wrapping_around_is_refused_beforehand() -> None:
    reach = (1.0, 0.1)
    most = 2.0**31 / 10 * 1e-3
    settle({"range": 0.999 * most, "precision": 1e-3, "rounds": 9}, reach, 10, 5)
    beyond = {"range": 1.001 * most, "precision": 1e-3, "rounds": 9}
    refused(lambda: settle(beyond, reach, 10, 5), "wrap around")


def test_defaults_leave_room_for_the_sum() -> None:
    for senders in (1, 3, 10, 1000):
        found = settle({"rounds": 100}, (0.7, 0.2), senders, 5)
        R, p = found["range"][0], found["precision"][0]
        assert 4.0 >= R >= 2 * 0.7 + 8 * 0.2
        assert 2.0**29 <= senders * R / p <= 2.0**30


def summed(**numbers: float) -> jaxfl.Run:
    given = {**NUMBERS, "local_steps": 3, **numbers}
    return jaxfl.simulate("private_local_sgd", a_problem(), jax.random.key(0), 3, **given)


@mistakes(
    (lambda: summed(range=0.5), "range = 0.5 is too small for clip and noise"),
    (lambda: summed(precision=0.5), "precision = 0.5 is too coarse for noise"),
    (lambda: summed(clip=np.inf), "give the range"),
    (lambda: summed(range=1e9, precision=0.001), "wrap around"),
    (lambda: summed(precision=0.0), "above 0"),
)
def test_mistakes_are_explained(call: Any, words: str) -> None:
    refused(call, words)


def test_a_range_holds_the_noise_of_all_rounds() -> None:
    """The least one: P[any of r d T noises is clamped] < 1e-12 e^-eps."""
    r, d, T, eps, sigma = 10, 5000, 300, 2.0, 0.1
    found = settle({"rounds": T, "eps": eps}, (1.0, sigma), r, d)["range"][0]
    values = {"rounds": T, "eps": eps, "precision": 1e-7}
    edges = np.linspace(1.0, found, 400)
    accepted = [R for R in edges if not _refused({**values, "range": R}, (1.0, sigma), r, d)]
    tail = 2 * stats.norm.sf((min(accepted) - 1.0) / sigma)
    assert 1e-15 < r * d * T * tail * math.exp(eps) < 1e-12


def test_a_range_holds_all_local_steps() -> None:
    """A message of tau steps reaches eta tau G."""
    given = {"lr": 0.5, "clip": 1.0, "local_steps": 4, "batch": 4, "sigma": 1e-3}
    plan = planned("private_local_sgd", a_problem(), 3, **given)
    assert plan.values["range"] >= 2 * 0.5 * 4 * 1.0


def _refused(values: dict, reach: tuple[float, float], r: int, d: int) -> bool:
    try:
        settle(values, reach, r, d)
    except InputError:
        return True
    return False


def test_what_was_clamped_hides_nothing_in_a_sum(key: jax.Array) -> None:
    """A range of one's own where nothing is known of the messages: the proof is that of a message."""
    algorithm = jaxfl.algorithm("ldp_gd", aggregation=secure_sum())
    run = jaxfl.simulate(algorithm, a_problem(), key, 3, lr=0.1, clip=0.5, sigma=0.2)
    alone = jaxfl.simulate("ldp_gd", a_problem(), key, 3, lr=0.1, clip=0.5, sigma=0.2)
    assert run.privacy().proven < 0.7 * alone.privacy().proven
    run.log.counts[-1]["clamped"] = 1
    assert run.privacy().proven == pytest.approx(alone.privacy().proven)
    assert run.ledger().proven.max() == pytest.approx(alone.privacy().proven)


def test_a_sweep_proves_no_more_of_what_was_clamped(key: jax.Array) -> None:
    """Local steps on a steep regularizer leave the range that clipping and noise ask for."""
    problem = a_problem()
    model = problem.model._replace(regularizer=lambda x: 500.0 * jnp.sum(x))
    problem = dataclasses.replace(problem, model=model)
    proven = {}
    for how in ("plain_sum", "secure_sum"):
        algorithm = jaxfl.algorithm("private_local_sgd", aggregation=aggregation(how))
        numbers = {"batch": 4, "local_steps": 1, "clip": 0.5, "sigma": 0.2, "delta": 1e-3}
        run = jaxfl.simulate(algorithm, problem, key, 3, lr=0.1, **numbers)
        assert (run.totals["clamped"] > 0) == (how == "secure_sum")
        grid = {"lr": [0.1], **{name: [value] for name, value in numbers.items()}}
        found = jaxfl.sweep(algorithm, grid, problem, key=key, rounds=3)
        proven[how] = run.privacy().proven, float(found.proven_eps.max())
    assert proven["secure_sum"] == pytest.approx(proven["plain_sum"])
    assert proven["plain_sum"][0] == pytest.approx(proven["plain_sum"][1])


def test_the_public_regularizer_is_not_clamped(key: jax.Array) -> None:
    """It is added to the sum: however large, messages hold clipped gradients and noise alone."""
    problem = a_problem()
    model = problem.model._replace(regularizer=lambda x: 50.0 * jnp.sum(x))
    problem = dataclasses.replace(problem, model=model)
    ends = []
    for how in ("plain_sum", "secure_sum"):
        algorithm = jaxfl.algorithm("ldp_gd", aggregation=aggregation(how), noise="per_client")
        run = jaxfl.simulate(algorithm, problem, key, 3, lr=0.01, clip=0.5, sigma=0.01)
        assert run.totals["clamped"] == 0
        ends.append(run.x)
    np.testing.assert_allclose(*ends, rtol=1e-5)


@pytest.mark.parametrize("name", ["dp_fedavg", "distributed_dp_srm"])
def test_rounding_before_a_servers_noise_counts(name: str) -> None:
    """A message moves by p sqrt(d) more, whose share of the mean no noise but the server's covers."""
    algorithm = jaxfl.algorithm(name, aggregation=secure_sum())
    given = {"lr": 0.1, "sigma": 1.0, "batch": 4, "range": 8.0}
    given |= {"update_clip": 1.0} if name == "dp_fedavg" else {"anchor_batch": 4, "momentum": 0.5}
    shares = []
    for p in (1e-6, 0.05):
        plan = planned(algorithm, a_problem(), 4, **given, precision=p)
        event = plan.event
        event = event.events[0] if hasattr(event, "events") else event
        event = event.events[0] if hasattr(event, "events") else event
        shares.append(event.sensitivity.X(event.sampling))
    moved = 0.05 * np.sqrt(plan.facts.d) / 2 / plan.facts.n
    assert shares[1] - shares[0] == pytest.approx(moved, rel=1e-3)


def test_a_plain_sum_is_no_secure_one() -> None:
    """As a part of one's own body, where nothing puts None in its place."""
    of = jaxfl.algorithm("ldp_gd", aggregation=secure_sum()).body
    facts = jaxfl.types.ProblemFacts(5, 10, 10, 4, 3, 1.0, (10,))
    values = {"clip": 1.0, "sigma": 1.0, "rounds": 3}
    found = {how.name: of._replace(aggregation=how) for how in (secure_sum(), plain_sum())}
    assert transcript.noises(found["secure_sum"], values, facts) == 5
    assert transcript.noises(found["plain_sum"], values, facts) == 1
    assert transcript.event(found["plain_sum"], values, facts).trust == "local_transcript"


def test_masks_beyond_their_limit_are_refused() -> None:
    settle({"rounds": 9}, (1.0, 0.1), 100, 20_000, masks=True)
    beyond = lambda: settle({"rounds": 9}, (1.0, 0.1), 100, 30_000, masks=True)  # noqa: E731
    refused(beyond, "leave masks out")


# --- messages one by one -------------------------------------------------------------------------


def words_of(r: int, d: int = 6) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(0)
    return {i: rng.integers(0, 2**32, d, np.uint32) for i in range(3, 3 + r)}


def test_a_missing_client_is_noticed() -> None:
    messages = words_of(4)
    expected = sum(messages.values(), np.zeros(6, np.uint32))
    np.testing.assert_array_equal(collect(messages, messages), expected)
    some = {i: words for i, words in messages.items() if i != 5}
    refused(lambda: collect(messages, some), "Clients .5. did not report")


@pytest.mark.parametrize("gone", [(), (4,), (3, 7)])
def test_dropouts_are_survived(gone: tuple[int, ...]) -> None:
    """The sum of those who report comes back exactly, and no message shows its words."""
    plain, t = words_of(6), 17
    group = enrol(plain, threshold=4, seed=5)
    sent = {i: group.message(i, words, t) for i, words in plain.items() if i not in gone}
    expected = sum((plain[i] for i in sent), np.zeros(6, np.uint32))
    np.testing.assert_array_equal(group.unmask(sent, t), expected)
    for i in sent:
        assert (sent[i].words != plain[i]).all()
    if gone:  # without recovery the masks of the pairs stay in the sum
        own = sum((sent[i].words for i in sent), np.zeros(6, np.uint32))
        assert (own != expected).all()


def test_too_few_survivors_are_refused() -> None:
    plain = words_of(6)
    group = enrol(plain, threshold=4, seed=5)
    sent = {i: group.message(i, plain[i], 0) for i in (3, 4, 5)}
    refused(lambda: group.unmask(sent, 0), "3 of 6 clients reported")
    refused(lambda: group.unmask({**sent, 99: plain[3]}, 0), "Clients .99.")
    refused(lambda: enrol(plain, threshold=7, seed=0), "threshold = 7")


GROUP = enrol(range(3), threshold=2, seed=0)
SENT = {i: GROUP.message(i, [i, 7], 3) for i in range(3)}
RNG = np.random.default_rng(0)


@mistakes(
    (lambda: GROUP.unmask(SENT, 4), "client 0 in round 3, and its masks do not cancel in round 4"),
    (lambda: GROUP.unmask({**SENT, 1: GROUP.message(1, [1, 7], 4)}, 3), "client 1 in round 4"),
    (lambda: GROUP.unmask({**SENT, 1: SENT[2]}, 3), "under client 1 is of client 2"),
    (lambda: enrol(range(3), 2, 1).unmask(SENT, 3), "of another enrolment"),
    (lambda: GROUP.unmask({0: [1], 1: [2]}, 3), "must be a Message"),  # type: ignore[dict-item]
    (lambda: GROUP.unmask({**SENT, 1: GROUP.message(1, [1], 3)}, 3), "Messages of .1, 2. words"),
    (lambda: GROUP.message(0, [1.7], 0), "words of client 0 must be a vector of integers"),
    (lambda: GROUP.message(0, [-1], 0), "words of client 0"),
    (lambda: GROUP.message(0, [2**32], 0), "words of client 0"),
    (lambda: GROUP.message(0, [[1, 2]], 0), "words of client 0"),
    (lambda: GROUP.message(0, [[1], [1, 2]], 0), "words of client 0"),
    (lambda: GROUP.message(0, np.ma.masked_equal([1, 2], 2), 0), "words of client 0"),
    (lambda: GROUP.message(7, [1], 0), "client = 7 is not enrolled"),
    (lambda: GROUP.message(0, [1], -1), "t = -1"),
    (lambda: collect([], {}), "There are 0 clients"),
    (lambda: collect([0], {0: [1], 1: [5]}), "Clients .1. reported and are not in the cohort"),
    (lambda: collect([0, 1], {0: [1], 1: [5, 6]}), "do not add up"),
    (lambda: collect([0, 1], {0: [1.5], 1: [5.9]}), "words of client 0"),
    (lambda: collect([0, 0], {0: [1]}), "name a client twice"),
    (lambda: enrol(5, 1, 0), "clients = 5"),  # type: ignore[arg-type]
    (lambda: enrol(range(300), 2, 0), "enrol at most 256"),
    (lambda: enrol([0, 1], 1, -1), "seed = -1"),
    (lambda: share(5, [0, 1], 0, RNG), "threshold = 0"),
    (lambda: share(5, [0, 1], 3, RNG), "threshold = 3 exceeds the 2 clients"),
    (lambda: share(2**61 + 5, [0, 1], 1, RNG), "secret = 2305843009213693957 must be"),
    (lambda: share(1.5, [0, 1], 1, RNG), "secret = 1.5"),  # type: ignore[arg-type]
    (lambda: share(5, [-1, 1], 2, RNG), "client = -1"),
    (lambda: share(5, [0, 1], 2, None), "rng = None"),  # type: ignore[arg-type]
    (lambda: reconstruct({}), "There are 0 clients"),
    (lambda: reconstruct({0: 1, 2**61 - 1: 2}), "client = 2305843009213693951"),
)  # fmt: skip
def test_mistakes_of_the_protocol(call: Callable[[], Any], words: str) -> None:
    """Each gave a wrong sum, the secret itself, or a traceback."""
    refused(call, words)


def test_shares_below_the_threshold_say_nothing() -> None:
    """t shares give the secret, t - 1 of them an unrelated number."""
    rng = np.random.default_rng(1)
    secret = 123_456_789_012_345
    shares = share(secret, range(5), 3, rng)
    for chosen in ((0, 1, 2), (4, 2, 0), (1, 3, 4)):
        assert reconstruct({i: shares[i] for i in chosen}) == secret
    assert reconstruct({i: shares[i] for i in (0, 1)}) != secret
    first = {share(secret, range(5), 3, rng)[0] for _ in range(50)}
    assert len(first) == 50
