"""Noise that is correlated over rounds: what it is worth, and what rounds draw."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import federated, planned
from rows import a_problem
from told import mistakes, refused

import jaxfl
from jaxfl.algorithms.standing import standing
from jaxfl.core.types import Mechanism
from jaxfl.engine.memory import remembered
from jaxfl.parts import channels, compose, compressors, estimators, mechanisms, plain, sampling
from jaxfl.privacy import Event, Mean, Sampling
from jaxfl.privacy.accountants import closed_form
from jaxfl.privacy.events import Kind, NoClaim, Stated, described
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.privacy.releases import correlates, shown_norm, strategy_norm
from jaxfl.testing import check_algorithm
from jaxfl.testing.algorithms import CHECKS

pytestmark = [pytest.mark.once, pytest.mark.plain]

D, T = 3000, 6
NUMBERS = {"clip": 1.0, "lr": 1e-6, "sigma": 0.5}
WEIGHTS = {bands: mechanisms.banded(bands).weights for bands in (1, 2, 3, 8)}


def strategy(weights: tuple[float, ...], rounds: int) -> np.ndarray:
    """C, from the definition of its inverse."""
    inverse = np.zeros((rounds, rounds))
    for t, j in itertools.product(range(rounds), range(len(weights))):
        if j <= t:
            inverse[t, t - j] = weights[j]
    return np.linalg.inv(inverse)


@pytest.mark.parametrize("apart", [1, 2, 3, 7])
@pytest.mark.parametrize("bands", WEIGHTS)
def test_the_norm_is_the_largest_of_all_patterns(bands: int, apart: int) -> None:
    """Over all sets of rounds so far apart, and signs and directions of what a record moves in each."""
    rounds, largest = 7, 0.0
    C = strategy(WEIGHTS[bands], rounds)
    rng = np.random.default_rng(0)
    for chosen in itertools.product([0, 1], repeat=rounds):
        where = np.flatnonzero(chosen)
        if (np.diff(where) < apart).any():
            continue
        moves = [np.ones((rounds, 1)), *rng.normal(size=(5, rounds, 2))]
        for move in moves:
            unit = move / np.linalg.norm(move, axis=1, keepdims=True) * np.array(chosen)[:, None]
            largest = max(largest, float(np.linalg.norm(C @ unit)))
    assert strategy_norm(WEIGHTS[bands], rounds, apart) == pytest.approx(largest, rel=1e-12)
    assert largest**2 >= len(range(0, rounds, apart))  # no less than under independent noise


@pytest.mark.parametrize("bands", [0, 1, 3])
@pytest.mark.parametrize("batch", [2, 5, 10])
def test_cyclic_batches_cost_what_the_rounds_that_draw_a_record_say(
    bands: int, batch: int, key: Any
) -> None:
    """Of each record of each client, by the draws of 7 rounds: 5 of 12 in a batch are 3 rounds apart."""
    rounds = 7
    made = mechanisms.banded(bands) if bands else mechanisms.gaussian()
    run = stated(made, "ldp_sgd", rounds, batch=batch, sampler="cyclic")
    draw, largest = run.algorithm.body.estimator.sampler.draw, 0.0
    for m in np.unique(run.problem.count).tolist():
        used = np.zeros((rounds, m))
        for t in range(rounds):
            found = draw(key, np.int32(t), np.int32(m), m, run.hp)
            used[t, np.asarray(found.index)[np.asarray(found.weight) > 0]] = 1
        columns = strategy(made.weights, rounds) @ used
        largest = max(largest, np.linalg.norm(columns, axis=0).max())
    assert run.eps(1e-3) == pytest.approx(gdp_eps(2 / batch / 0.5 * largest, 1e-3), rel=1e-9)


@pytest.mark.parametrize("apart", [1, 2, 3, 5])
@pytest.mark.parametrize("bands", [2, 3, 8])
def test_no_mask_shows_more_than_the_norm_by_shows(bands: int, apart: int) -> None:
    """Over masks of 5 rounds and 3 coordinates, records, and what they move, by ascent from many points.

    Some masks show more than the norm by rounds: the record moves coordinates that others leave alone.
    """
    rounds, coordinates, rng = 5, 3, np.random.default_rng(0)
    column = strategy(WEIGHTS[bands], rounds)[:, 0]
    used = np.arange(0, rounds, apart)
    X = np.zeros(
        (*(2,) * rounds, rounds, rounds)
    )  # of every mask of a coordinate, at the record's rounds
    for mask in itertools.product([0, 1], repeat=rounds):
        shown = np.flatnonzero(mask)
        C = np.array(
            [np.roll(np.append(column, 0 * column), n)[: len(shown)] for n in range(len(shown))]
        )
        X[mask][np.ix_(shown, shown)] = C @ C.T
    X = X[..., used, :][..., used]
    largest = 0.0
    only = np.isin(np.arange(rounds), used).astype(int)
    masks = [np.stack([only, 0 * only, 0 * only])]
    masks += [np.stack([only, only * (np.arange(rounds) > 0), only * (np.arange(rounds) < 4)])]
    masks += [rng.integers(0, 2, (coordinates, rounds)) for _ in range(300)]
    for mask in masks:
        here = np.stack([X[tuple(one)] for one in mask])
        d = rng.random((20, len(used), coordinates))  # with X >= 0 signs lose
        for _ in range(40):
            d /= np.maximum(np.linalg.norm(d, axis=-1, keepdims=True), 1e-12)
            values = np.einsum("ksj,jst,ktj->k", d, here, d)
            d = np.einsum("jst,ktj->ksj", here, d)  # the form is convex: it does not fall
        largest = max(largest, float(values.max()))
    found = shown_norm(WEIGHTS[bands], rounds, apart)
    assert largest <= found**2 * (1 + 1e-9)
    if apart in (1, rounds):
        assert largest == pytest.approx(found**2, rel=1e-9)
        assert found == pytest.approx(strategy_norm(WEIGHTS[bands], rounds, apart), rel=1e-12)
    else:
        assert largest > strategy_norm(WEIGHTS[bands], rounds, apart) ** 2


def test_a_strategy_has_the_column_that_it_is_given() -> None:
    """In any scale; columns of a banded C that do not overlap cost their norm each."""
    column = np.array([2.0, 1.2, 0.6])
    made = mechanisms.strategy(column, 9)
    C = strategy(made.weights, 9)
    np.testing.assert_allclose(C[:, 0], [*(column / 2), *[0] * 6], atol=1e-12)
    run = stated(made, "ldp_sgd", 9, batch=4, sampler="cyclic")
    cost = 2 / 4 / 0.5 * np.linalg.norm(column / 2) * np.sqrt(3)
    assert closed_form(run.event.events[2]) == pytest.approx(cost, rel=1e-9)
    longer = stated(mechanisms.strategy(column, 9), "ldp_gd", 40)
    refused(lambda: longer.eps(1e-3), "negative or increase")
    stored = mechanisms.strategy(column, 9, stored=True), mechanisms.buffered([0.5], [0.3], 9)
    for each in stored:  # known for as many rounds as it was made for
        found = stated(each, "ldp_gd", 10).event.events[0]
        assert isinstance(found, NoClaim)
        assert "known for 9 rounds" in found.reason
        assert standing(stated(each, "ldp_gd", 8).algorithm).kind == Kind.PROVEN
    mine = mechanisms.banded(3, stored=True)._replace(weights=WEIGHTS[8])
    assert isinstance(stated(mine, "ldp_gd", 9).event.events[0], NoClaim)
    mine = mechanisms.gaussian()._replace(recursion=stored[0].recursion)
    assert isinstance(stated(mine, "ldp_gd", 9).event.events[0], NoClaim)


@pytest.mark.parametrize("apart", [1, 4, 10, 64])
def test_norms_are_those_of_jax_privacy(apart: int) -> None:
    """Of banded inverses, of BandMF and of a BLT, for all uses that far apart."""
    pytest.importorskip(
        "jax_privacy", reason="the extra mf is not installed: no oracle of strategies"
    )
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

    n = 64
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        decay, scale = jnp.array([0.95, 0.6]), jnp.array([0.3, 0.4])
        blt = buffered_toeplitz.BufferedToeplitz(buf_decay=decay, output_scale=scale)
        columns = {
            "banded inverse": strategy(WEIGHTS[8], n)[:, 0],
            "BandMF": np.asarray(toeplitz.optimize_banded_toeplitz(n, 8)),
            "BLT": np.asarray(blt.toeplitz_coefs(n)),
        }
        for name, column in columns.items():
            theirs = toeplitz.minsep_sensitivity_squared(
                jnp.asarray(column / column[0]), apart, n=n
            )
            forms = [mechanisms.strategy(column, n, stored=stored) for stored in (False, True)]
            if name == "BLT":
                forms.append(mechanisms.buffered(decay, scale, n))
            for made in forms:
                ours = strategy_norm(made.weights, n, apart)
                assert ours**2 == pytest.approx(float(theirs), rel=1e-6), name


def test_the_event_says_which_clock_counts() -> None:
    event = Event(Sampling("cyclic", 6, 2), Mean(1.0), 0.5, 9, correlation=WEIGHTS[3])
    for shows, norm in ((False, strategy_norm), (True, shown_norm)):
        found = closed_form(dataclasses.replace(event, shows=shows))
        assert found == pytest.approx(2 * norm(WEIGHTS[3], 9, 3), rel=1e-12)


def test_one_band_is_independent_noise() -> None:
    event = Event(Sampling("full", 10, 10), Mean(1.0), 2.0, 9)
    one = Event(Sampling("full", 10, 10), Mean(1.0), 2.0, 9, correlation=(1.0,))
    assert closed_form(one) == pytest.approx(closed_form(event), rel=1e-12)


def body_of(mechanism: Mechanism, **parts: Any) -> Any:
    usual = {"estimator": estimators.minibatch(sampling.full()), "mechanism": mechanism}
    return federated(**{**usual, **parts})


def nothing_to_see() -> jaxfl.Problem:
    data = np.zeros((2, 6, D), np.float32), np.zeros((2, 6), np.int32)
    clients = jaxfl.data.from_clients(data, classes=2, stacked=True)
    return jaxfl.Problem(jaxfl.models.logistic(D), clients)


def messages_of(body: Any, key: Any, **more: Any) -> tuple[Any, np.ndarray]:
    """The event, and the first client's messages in T rounds, (T, D): noise alone."""
    algorithm = compose("mine", "", "", body, plain(omega=0.0, **NUMBERS, **more))
    f = jaxfl.functions(algorithm, nothing_to_see(), rounds=T)
    run, found = f.init(key), []
    for _ in range(T):
        found.append(np.asarray(f.view(run).messages[0]))
        run, _ = f.round(run)
    return algorithm.event(f.about.values, f.about.facts), np.stack(found)


def whitened(messages: np.ndarray, weights: tuple[float, ...], sigma: float) -> float:
    """The largest error of the covariance over rounds of C times the messages, in standard errors."""
    z = strategy(weights, T) @ messages / sigma
    return float(np.abs(z @ z.T / D - np.eye(T)).max() * np.sqrt(D / 2))


@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_covariance_over_rounds_is_that_of_the_event(
    sparse: bool, plainly: bool, key: Any
) -> None:
    """Its covariance over rounds is that of the event; nine tenths of it, or independent noise, is not."""
    parts = {"compressor": compressors.random_k()} if sparse else {}
    body = body_of(mechanisms.banded(3), **parts)._replace(messages=True)
    if plainly:
        body = jaxfl.parts.Plain(*body)
    event, messages = messages_of(body, key, **({"k": D} if sparse else {}))
    assert (event.correlation, event.sigma, event.releases) == (WEIGHTS[3], 0.5, T)
    assert whitened(messages, WEIGHTS[3], 0.5) < 5
    assert whitened(0.9 * messages, WEIGHTS[3], 0.5) > 5
    assert whitened(messages, WEIGHTS[2], 0.5) > 5
    assert whitened(messages, (1.0,), 0.5) > 5


@pytest.mark.parametrize(
    ("plainly", "storage"), [(False, "exact"), (True, "exact"), (False, "bfloat16")]
)
def test_noise_is_correlated_over_what_was_shown(plainly: bool, storage: str, key: Any) -> None:
    """In order of shows its covariance is that of the event, and in order of rounds it is not."""
    made = mechanisms.banded(3, shows=True)
    parts = {
        "compressor": compressors.random_k(),
        "channel": channels.shifted(),
        "storage": storage,
    }
    body = body_of(made, **parts)
    body = jaxfl.parts.Plain(*body) if plainly else body
    rounds, k = 12, D // 2
    numbers = {**NUMBERS, "omega": D / k - 1, "k": k, "shift": 0.0}
    algorithm = compose("mine", "", "", body, plain(**numbers))
    f = jaxfl.functions(algorithm, nothing_to_see(), rounds=rounds)
    run, sent = f.init(key), []
    for _ in range(rounds):
        sent.append(np.asarray(f.view(run).messages) / (D / k))
        run, _ = f.round(run)
    event = algorithm.event(f.about.values, f.about.facts)
    assert (event.shows, event.correlation, event.releases) == (True, WEIGHTS[3], rounds)
    links, (counts, _) = run.state.links
    shown = np.stack(sent) != 0
    np.testing.assert_array_equal(counts, shown.sum(0))
    sizes = remembered(algorithm, nothing_to_see(), f.hp)  # what a plan predicts
    assert sizes["links"] == counts.size * (links.dtype.itemsize + 4)
    assert links.dtype == jnp.dtype(storage if storage != "exact" else "float32")
    for messages, mask in zip(np.moveaxis(sent, 1, 0), np.moveaxis(shown, 1, 0), strict=True):
        often = mask.sum(0) >= 5
        pairs = zip(messages.T[often], mask.T[often], strict=True)
        first = np.stack([m[s][:5] for m, s in pairs], axis=1)
        for weights, scale, fits in ((3, 1, True), (3, 0.9, False), (1, 1, False)):
            z = strategy(WEIGHTS[weights], 5) @ first * scale / 0.5
            error = np.abs(z @ z.T / often.sum() - np.eye(5)).max() * np.sqrt(often.sum() / 2)
            assert (error < 5) == fits
    both = shown[0, 0] & shown[0, 1]
    corr = np.corrcoef(sent[0][0][both], sent[0][1][both])[0, 1]
    assert abs(corr) < 5 / np.sqrt(both.sum())  # clients have keys of their own


@pytest.mark.parametrize("central", [False, True])
def test_the_noise_of_the_mean_is_correlated_alike(central: bool, key: Any) -> None:
    """The server's steps show it: the fused draw of the clients' noises, or its own."""
    made = mechanisms.banded(3, central=central)
    event = (lambda *_: NoClaim("")) if central else None
    numbers = {**NUMBERS, "lr": 1.0, "sigma": 1e-4}
    algorithm = compose("mine", "", "", body_of(made), plain(omega=0.0, **numbers), event=event)
    f = jaxfl.functions(algorithm, nothing_to_see(), rounds=T)
    run, x = f.init(key), []
    for _ in range(T + 1):
        x.append(np.asarray(f.output(run), np.float64))
        run, _ = f.round(run)
    std = 1e-4 / (1 if central else np.sqrt(2))
    steps = -np.diff(np.stack(x), axis=0)
    assert whitened(steps, WEIGHTS[3], std) < 5
    assert whitened(steps, WEIGHTS[2], std) > 5


DECAY, SCALE = np.array([0.9, 0.5]), np.array([0.2, 0.3])
BLT = 1.0, *(float(SCALE @ DECAY**j) for j in range(T - 1))  # its column
RECURSIONS: dict[str, Any] = {
    "banded": lambda stored, **how: mechanisms.banded(4, stored=stored, **how),
    "BandMF": lambda stored, **how: mechanisms.strategy([2, 1.2, 0.6], T, stored=stored, **how),
    "BLT": lambda stored, **how: (
        mechanisms.buffered(DECAY, SCALE, T, **how)
        if stored
        else mechanisms.strategy(BLT, T, **how)
    ),
}
ROUNDS = {  # what draws noise, and how many numbers its state holds for each vector
    "mean": ({}, 1),
    "server": ({"central": True}, 1),
    "clients": ({"noise": "per_client"}, 2),
    "messages": ({"messages": True}, 2),
    "plain": ({"plainly": True}, 2),
    "random-k": ({"compressor": compressors.random_k()}, 2),
    "shows": ({"compressor": compressors.random_k(), "shows": True, "storage": "bfloat16"}, 2),
    "top-k": ({"compressor": compressors.top_k(), "channel": channels.error_feedback()}, 2),
}


@pytest.mark.parametrize("kind", RECURSIONS)
@pytest.mark.parametrize("where", ROUNDS)
def test_stored_noise_is_that_of_counters(where: str, kind: str, key: Any) -> None:
    """After each of T rounds, and of T more of which a resumed state holds the vectors; one event."""
    (parts, clients), points, events = ROUNDS[where], [], []
    parts = {"channel": channels.shifted()} | parts if "compressor" in parts else dict(parts)
    how = {name: parts.pop(name) for name in ("central", "shows") if name in parts}
    plainly, k = parts.pop("plainly", False), D // 2
    numbers = {**NUMBERS, "lr": 1.0, "shift": 0.5}
    numbers |= {"k": k, "omega": D / k - 1} if "compressor" in parts else {"omega": 0.0}
    for stored in (False, True):
        made = RECURSIONS[kind](stored, **how)
        body = body_of(made, **parts)
        body = jaxfl.parts.Plain(*body) if plainly else body
        algorithm = compose("mine", "", "", body, plain(**numbers))
        f, x = jaxfl.functions(algorithm, nothing_to_see(), rounds=T), []
        run = f.init(key)
        for _ in range(T):
            run, _ = f.round(run)
            x.append(np.asarray(f.output(run)))
        points.append(np.stack(x))
        events.append(described(algorithm.event(f.about.values, f.about.facts)))
        sizes = remembered(algorithm, nothing_to_see(), f.hp)  # what a plan predicts
    np.testing.assert_allclose(points[0], points[1], rtol=1e-5, atol=1e-5)
    assert np.std(points[1][-1]) > 0.1
    if not isinstance(events[0], NoClaim):
        weights = [one.correlation for one in events]
        np.testing.assert_allclose(weights[1], weights[0], atol=1e-12)
        events = [dataclasses.replace(one, correlation=()) for one in events]
    assert events[0] == events[1]
    assert made.recursion is not None
    number = 4 * D * len(made.recursion.gain)
    if clients == 1:
        assert sizes["noise"] == number
    else:
        past = run.state.links[1]
        assert sum(a.nbytes for a in jax.tree.leaves(past.vectors)) == 2 * number
        assert sizes["links"] == sum(a.nbytes for a in jax.tree.leaves(run.state.links))


def stated(
    mechanism: Mechanism, name: str = "ldp_gd", rounds: int = T, sampler: Any = None, **numbers: Any
) -> Any:
    parts = {} if sampler is None else {"sampler": sampler}
    algorithm = jaxfl.algorithm(name, mechanism=mechanism, **parts)
    return planned(algorithm, a_problem(n=3, m=12), rounds, sigma=0.5, clip=1.0, lr=0.1, **numbers)


def test_a_correlated_mechanism_is_proven_and_calibrated() -> None:
    """One pass costs the norm of C's first column more noise than independent noise; sums have less."""
    asked = {"eps": 2.0, "delta": 1e-3, "clip": 1.0, "lr": 0.1, "diameter": 1.0}
    sigma, problem = {}, a_problem(n=3, m=12)
    for name, mechanism in (("no", mechanisms.gaussian()), ("yes", mechanisms.banded(4))):
        algorithm = jaxfl.algorithm("noisy_sgd", mechanism=mechanism)
        assert standing(algorithm).kind == Kind.PROVEN
        run = planned(algorithm, problem, 8, **asked)
        assert run.eps(1e-3) == pytest.approx(2.0, rel=1e-3)
        sigma[name] = run.values["sigma"]
    C = strategy(WEIGHTS[8][:4], 8)
    assert sigma["yes"] / sigma["no"] == pytest.approx(np.linalg.norm(C[:, 0]), rel=1e-6)
    sums = [np.linalg.norm(np.tril(np.ones((8, 8))) @ M) for M in (np.eye(8), np.linalg.inv(C))]
    assert sums[1] * sigma["yes"] < sums[0] * sigma["no"]


def test_where_nothing_is_known_nothing_is_claimed() -> None:
    made = mechanisms.banded(3)
    assert isinstance(stated(made, "ldp_sgd", batch=4).event.events[0], NoClaim)  # Poisson batches
    shuffled = stated(made, "ldp_sgd", batch=4, sampler="shuffled")
    assert "shuffled draws a record in rounds of any" in shuffled.event.events[0].reason
    averaged = Event(Sampling("full", 10, 10), Mean(1.0, averaged=True), 1.0, T)
    assert "on average" in correlates(averaged)
    assert isinstance(stated(made._replace(event=None)).event.events[0], NoClaim)
    half = federated(
        estimator=estimators.minibatch(sampling.full()),
        mechanism=made,
        participation=sampling.uniform(),
    )
    algorithm = compose("mine", "", "", half, plain(omega=0.0, cohort=1, **NUMBERS))
    assert isinstance(planned(algorithm, nothing_to_see(), T).event, NoClaim)
    fewer = stated(made)
    ones = strategy(made.weights, T) @ np.ones(T)
    assert closed_form(fewer.event.events[2]) == pytest.approx(2 / 12 / 0.5 * np.linalg.norm(ones))
    now = fewer.algorithm.event({**fewer.values, "rounds": 2}, fewer.facts).events[0]
    assert (now.releases, now.correlation) == (2, made.weights)


def test_an_event_of_a_users_own_is_stated_and_not_proven() -> None:
    """A part's word: the accountant answers for it, with the status of a statement."""
    mine = mechanisms.gaussian()._replace(event=lambda event, T: event)
    run = stated(mine)
    assert standing(run.algorithm).kind == Kind.DECLARED  # until a probe has attacked it
    assert isinstance(run.event.events[0], Stated)
    changed = mechanisms.banded(3)._replace(weights=(1.0, -0.9))
    assert isinstance(stated(changed).event.events[0], Stated)


def test_the_clock_that_rounds_read_is_accounted_for() -> None:
    """Also where a mechanism was given another one: several uses by shows cost more."""
    found = [
        stated(made, "cdp_sgd", sampler="cyclic", batch=2, k=2)
        for made in (mechanisms.banded(2)._replace(shows=True), SHOWS)
    ]
    assert described(found[0].event) == found[1].event
    assert found[1].event.events[0].shows
    assert standing(found[0].algorithm).kind == Kind.DECLARED


def test_a_run_with_stored_noise_goes_on_where_it_ended() -> None:
    """And in a sweep as alone; what is extended has the noise of the whole run."""
    made = mechanisms.buffered(DECAY, SCALE, 8, shows=True)
    algorithm = jaxfl.algorithm("soteriafl_sgd", mechanism=made, sampler="cyclic")
    others = tuple(name for name in CHECKS if name not in ("resume", "sweep"))
    numbers = {"sigma": 0.1, "clip": 1.0, "lr": 0.1, "batch": 4, "k": 3}
    found = check_algorithm(algorithm, a_problem(), 8, leave_out=others, **numbers)
    assert found.done == ("resume", "sweep")


SHOWS = mechanisms.banded(2, shows=True)


@mistakes(
    (lambda: stated(SHOWS), "noise counts what a sparsifier shows"),
    (lambda: jaxfl.algorithm("cdp_sgd", mechanism=SHOWS, compressor="qsgd"), "a sparsifier shows"),
    (lambda: shown_norm((1.0, -1.5), 5, 1), "negative or increase"),
    (lambda: strategy_norm((1.0, 0.5), 5, 1), "negative or increase"),
    (lambda: strategy_norm((1.0, -1.5), 5, 1), "negative or increase"),
    (lambda: mechanisms.banded(0), "bands"),
    (lambda: mechanisms.buffered([0.5, 0.2], [0.5], 4), "one of each buffer"),
    (lambda: mechanisms.buffered([0.5], [-0.5], 4), "scale"),
    (
        lambda: jaxfl.algorithm(
            "ldp_sgd", mechanism=mechanisms.banded(2, stored=True), participation="uniform"
        ),
        "clients skip rounds",
    ),
    (lambda: mechanisms.correlated((2.0, -1.0)), "must begin with 1"),
    (lambda: mechanisms.strategy([0.0, 1.0], 4), "first is not 0"),
    (lambda: stated(mechanisms.banded(T + 1)).hp, "bands = 7 exceed the 6 rounds"),
    (
        lambda: jaxfl.algorithm("isrl_svrg", mechanism=mechanisms.banded(2)),
        "anchors are noised apart",
    ),
    (lambda: stated(mechanisms.banded(2), "mu2_untrusted", diameter=1.0).event, "event of its own"),
    *(
        (lambda name=name: jaxfl.algorithm(name, mechanism=mechanisms.banded(2)), "local steps or")
        for name in ("dp_dsgd", "local_adaptive_fedavg", "local_adaptive_sgd", "private_local_sgd")
    ),
)
def test_what_has_no_place_is_refused(call: Any, words: str) -> None:
    refused(call, words)
