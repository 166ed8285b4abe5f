"""Algorithms that the papers' tables compare with: transcriptions, closed forms, noise, sensitivity."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import LAM, Draws, clipped, gradient, largest, regularizer, shrunk
from planned import planned
from probe import kinked, sent, steep
from rows import a_problem
from told import refusals

import jaxfl
from jaxfl.core.normals import normal
from jaxfl.core.types import Hyper, Problem, ProblemFacts
from jaxfl.parts import compose, iterates, servers
from jaxfl.privacy import events
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.calibration import sigma_for
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.problems.custom import custom
from jaxfl.rounds.blocks import client_keys, streams

pytestmark = pytest.mark.once

ROUNDS, G = 12, 0.6
COMMON = {"lr": 0.2, "clip": G, "sigma": 0.05}
NUMBERS: dict[str, dict[str, Any]] = {
    "dp_gd": COMMON,
    "dp_sgd": {**COMMON, "batch": 5},
    "rrpsgd": COMMON,
    "dp_srm": {
        **COMMON, "batch": 3, "anchor_batch": 7, "momentum": 0.3, "difference_clip": 0.05,
        "step_limit": 0.08, "noise_ratio": 2.0,
    },
    "ldp_spider": {**COMMON, "period": 4, "smoothness": 2.0, "noise_ratio": 0.5},
    "isrl_svrg": {**COMMON, "batch": 4, "epoch": 5, "noise_ratio": 0.5},
    "diana": {"lr": 0.2, "clip": G, "k": 3},
    "marina": {"lr": 0.2, "clip": G, "k": 3, "restart": 0.3},
    "ef21": {"lr": 0.2, "clip": G, "k": 3},
    "ef_sgd": {"lr": 0.2, "clip": G, "k": 3, "batch": 5},
    "ef21_sgdm": {"lr": 0.2, "clip": G, "k": 3, "batch": 5, "momentum": 0.3},
    "dasha": {"lr": 0.2, "clip": G, "k": 3},
    "dasha_mvr": {"lr": 0.1, "k": 3, "batch": 5, "momentum": 0.3},
    "dasha_page": {"lr": 0.1, "clip": G, "k": 3, "batch": 5, "restart": 0.3},
    "clip21_sgd2m": {**COMMON, "clip": 0.15, "batch": 5, "momentum": 0.6, "shift": 0.4},
    "alpha_normec": {**COMMON, "lr": 0.1, "smoothing": 0.3, "shift": 0.4},
    "fed_alpha_normec": {
        **COMMON, "server_lr": 0.1, "smoothing": 0.3, "shift": 0.4, "local_steps": 3,
    },
    "dice_sgd": {**COMMON, "clip": 0.15, "batch": 5, "error_clip": 0.3},
}  # fmt: skip
NUMBERS["distributed_dp_srm"] = NUMBERS["dp_srm"]


def mean(f: Callable[[int], np.ndarray], rows: Sequence[int], b: float) -> np.ndarray:
    return sum((f(j) for j in rows), 0.0) / b


def plain(L: Draws) -> np.ndarray:
    """DP-GD, DP-SGD and RRPSGD: a noised mean of clipped gradients."""
    x, v = L.x0, L.v
    for t in range(ROUNDS):
        g = sum(L.slope(t, i, x, G) for i in range(L.n)) / L.n
        x = x - v["lr"] * (g + regularizer(x) + v["sigma"] * L.central(t))
    return x


def srm(L: Draws) -> np.ndarray:
    v, x, before, h = L.v, L.x0, L.x0, 0.0
    gamma, C = v["momentum"], v["difference_clip"]

    def part(i: int, j: int) -> np.ndarray:
        new = gradient(L.p, i, j, x)
        if t == 0:
            return shrunk(new, G)
        change = shrunk(new - gradient(L.p, i, j, before), C)
        return (1 - gamma) * change + gamma * shrunk(new, G)

    for t in range(ROUNDS):
        b, u = v["batch"] if t else v["anchor_batch"], 0
        hp = Hyper({**L.hp.values, "batch": jnp.int32(b)}, L.hp.capacity)
        for i in range(L.n):
            rows = L.rows(t, i, hp)
            assert len(rows) == b
            u = u + mean(lambda j: part(i, j), rows, b) / L.n
        u = u + regularizer(x) - (t > 0) * (1 - gamma) * regularizer(before)
        u = u + v["sigma"] * (1.0 if t else v["noise_ratio"]) * L.central(t)
        h = (1 - gamma) * h + u if t else u
        eta = min(v["lr"], v["step_limit"] / np.linalg.norm(h))
        before, x = x, x - eta * h
    return x


def spider(L: Draws) -> np.ndarray:
    v, x, before, h = L.v, L.x0, L.x0, 0.0

    def part(i: int, j: int) -> np.ndarray:
        new = gradient(L.p, i, j, x)
        return shrunk(new, G) if anew else shrunk(new - gradient(L.p, i, j, before), C)

    for t in range(ROUNDS):
        anew, u = t % v["period"] == 0, 0
        C = min(2 * G, v["smoothness"] * np.linalg.norm(x - before))
        std = v["sigma"] * (v["noise_ratio"] if anew else C / (2 * G))
        for i in range(L.n):
            rows = range(int(L.p.count[i]))
            u = u + (mean(lambda j: part(i, j), rows, len(rows)) + std * L.noise(t, i)) / L.n
        u = u + regularizer(x) - (not anew) * regularizer(before)
        h = u + (not anew) * h
        before, x = x, x - v["lr"] * h
    return x


def svrg(L: Draws) -> np.ndarray:
    v, x, w, h = L.v, L.x0, L.x0, [np.zeros(L.d)] * L.n
    for t in range(ROUNDS):
        if t % v["epoch"] == 0:
            w, key = x, jax.random.fold_in(L.keys.begin, t)
            for i in range(L.n):
                noise = np.asarray(L.normal(jax.random.fold_in(key, i)), float)
                h[i] = full(L, i, w) - regularizer(w) + v["noise_ratio"] * v["sigma"] * noise
        g = 0
        for i in range(L.n):
            drawn = L.slope(t, i, x, G) - L.slope(t, i, w, G)
            g = g + (drawn + h[i] + v["sigma"] * L.noise(t, i)) / L.n
        x = x - v["lr"] * (g + regularizer(x))
    return x


def full(L: Draws, i: int, x: np.ndarray) -> np.ndarray:
    rows = range(int(L.p.count[i]))
    return mean(lambda j: clipped(L.p, i, j, x, G), rows, len(rows)) + regularizer(x)


def diana(L: Draws) -> np.ndarray:
    v, x, h = L.v, L.x0, np.zeros((L.n, L.d))
    a = v["k"] / L.d  # 1/(1 + omega)
    for t in range(ROUNDS):
        m = np.array([L.mask(t, i) * (full(L, i, x) - h[i]) for i in range(L.n)])
        x, h = x - v["lr"] * (h.mean(0) + m.mean(0)), h + a * m
    return x


def marina(L: Draws) -> np.ndarray:
    v, x, before, g = L.v, L.x0, L.x0, 0.0
    for t in range(ROUNDS):
        if t == 0 or L.coin("begin", t) < v["restart"]:
            g = np.mean([full(L, i, x) for i in range(L.n)], axis=0)
        else:
            change = [L.mask(t, i) * (full(L, i, x) - full(L, i, before)) for i in range(L.n)]
            g = g + np.mean(change, axis=0)
        before, x = x, x - v["lr"] * g
    return x


def ef21(L: Draws) -> np.ndarray:
    v, x, g = L.v, L.x0, np.zeros((L.n, L.d))
    for t in range(ROUNDS):
        for i in L.cohort(t):  # the others keep theirs, which stay in the mean
            g[i] += largest(full(L, i, x) - g[i], v["k"])
        x = x - v["lr"] * g.mean(0)
    return x


def ef21_sgdm(L: Draws) -> np.ndarray:
    v, x, m, g = L.v, L.x0, np.zeros((L.n, L.d)), np.zeros((L.n, L.d))
    for t in range(ROUNDS):
        eta = v["momentum"] if t else 1.0
        for i in range(L.n):
            m[i] = (1 - eta) * m[i] + eta * (L.slope(t, i, x, G) + regularizer(x))
            g[i] += largest(m[i] - g[i], v["k"])
        x = x - v["lr"] * g.mean(0)
    return x


def dasha(L: Draws) -> np.ndarray:
    """Also with noise on the gradients, and with h_i as DASHA-PAGE and DASHA-MVR have it."""
    v, x, before = L.v, L.x0, L.x0
    h, g, a = np.zeros((L.n, L.d)), np.zeros((L.n, L.d)), 1 / (2 * (L.d / v["k"] - 1) + 1)
    for t in range(ROUNDS):
        b, old = v.get("momentum", 0.0) if t else 1.0, h.copy()
        anew = "batch" not in v or t == 0 or L.coin("begin", t) < v.get("restart", 0.0)
        for i in range(L.n):
            if "momentum" in v or not anew:
                pair = lambda j: gradient(L.p, i, j, x) - (1 - b) * gradient(L.p, i, j, before)  # noqa: E731
                change = mean(lambda j: shrunk(pair(j), v["clip"]), L.rows(t, i), v["batch"])
                h[i] = change + regularizer(x) + (1 - b) * (h[i] - (t > 0) * regularizer(before))
            else:
                h[i] = full(L, i, x) + v.get("sigma", 0.0) * L.noise(t, i)
            g[i] += L.mask(t, i) * (h[i] - old[i] - a * (g[i] - old[i]))
        before, x = x, x - v["lr"] * g.mean(0)
    return x


def ef_sgd(L: Draws) -> np.ndarray:
    v, x, e = L.v, L.x0, np.zeros((L.n, L.d))
    for t in range(ROUNDS):
        total = 0
        for i in range(L.n):
            p = e[i] + L.slope(t, i, x, G) + regularizer(x)
            e[i] = p - largest(p, v["k"])
            total = total + largest(p, v["k"]) / L.n
        x = x - v["lr"] * total
    return x


def clip21(L: Draws) -> np.ndarray:
    """Clip21-SGD2M: the momentum of unclipped means, and what moves towards it by clipped steps."""
    v, x, g, shortened = L.v, L.x0, 0 * L.x0, 0
    momentum, mine = np.zeros((L.n, L.d)), np.zeros((L.n, L.d))
    for t in range(ROUNDS):
        for i in range(L.n):
            momentum[i] += v["momentum"] * (L.slope(t, i, x) + regularizer(x) - momentum[i])
            c = shrunk(momentum[i] - mine[i], v["clip"])
            shortened += (c != momentum[i] - mine[i]).any()
            mine[i] += v["shift"] * c
            g = g + v["shift"] / L.n * (c + v["sigma"] * L.noise(t, i))
        x = x - v["lr"] * g
    assert 0 < shortened < ROUNDS * L.n  # some messages were clipped, and some were not
    return x


def normec(L: Draws) -> np.ndarray:
    """Also with local steps, and with the clients that take part."""
    x, v, g, mine, turns = L.x0, L.v, 0 * L.x0, np.zeros((L.n, L.d)), [0] * L.n
    eta, tau = v.get("server_lr", v["lr"]), int(v.get("local_steps", 1))
    for t in range(ROUNDS):
        for i in L.cohort(t):
            theta, mean_slope = x, 0
            for s in range(tau):
                at = turns[i] * tau + s
                slope = L.slope(at, i, theta, G) + regularizer(theta)
                theta, mean_slope = theta - v["lr"] * slope, mean_slope + slope / tau
            turns[i] += 1
            change = mean_slope - mine[i]
            u = change / (v["smoothing"] + np.linalg.norm(change))
            mine[i] += v["shift"] * u
            g = g + v["shift"] / L.n * (u + v["sigma"] * L.noise(t, i))
        x = x - eta * g / max(np.linalg.norm(g), 1e-300)
    return x


def dice(L: Draws) -> np.ndarray:
    """DiceSGD: each client keeps what clipping cut off, and adds a clipped share of it."""
    x, v, shortened, e = L.x0, L.v, 0, np.zeros((L.n, L.d))
    for t in range(ROUNDS):
        total = 0
        for i in range(L.n):
            added = shrunk(e[i], v["error_clip"])
            shortened += (added != e[i]).any()
            sent = L.slope(t, i, x, v["clip"]) + added
            e[i] += L.slope(t, i, x) - sent
            total = total + (sent + v["sigma"] * L.noise(t, i)) / L.n
        x = x - v["lr"] * (total + regularizer(x))
    assert 0 < shortened < ROUNDS * L.n  # some errors were clipped, and some were not
    return x


LOOPS: dict[str, Callable[[Draws], np.ndarray]] = {
    **dict.fromkeys(("dp_gd", "dp_sgd", "rrpsgd"), plain),
    **dict.fromkeys(("dp_srm", "distributed_dp_srm"), srm),
    "ldp_spider": spider,
    "isrl_svrg": svrg,
    "diana": diana,
    "marina": marina,
    "ef21": ef21,
    "ef_sgd": ef_sgd,
    "ef21_sgdm": ef21_sgdm,
    **dict.fromkeys(("dasha", "dasha_page", "dasha_mvr"), dasha),
    "clip21_sgd2m": clip21,
    **dict.fromkeys(("alpha_normec", "fed_alpha_normec"), normec),
    "dice_sgd": dice,
}


def last(run: jaxfl.Run) -> np.ndarray:
    """Where the run is, whatever it would put out."""
    server = run.algorithm.body.server
    return np.asarray(server.view(run.state.server))


# their parts are seen in others
SLOW = ("dp_gd", "dp_sgd", "rrpsgd", "distributed_dp_srm", "diana", "ef21", "dasha")


@pytest.mark.plain
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.full if n in SLOW else ()) for n in LOOPS]
)
def test_transcription(name: str, key: jax.Array) -> None:
    parts = {"noise": "per_client"} if name in ("ldp_spider", "isrl_svrg") else {}
    run = jaxfl.simulate(
        jaxfl.algorithm(name, **parts), a_problem(LAM), key, ROUNDS, eval_every=0, **NUMBERS[name]
    )
    expected = LOOPS[name](Draws(run))
    assert np.linalg.norm(expected - np.asarray(run.problem.x0)) > 0.1
    np.testing.assert_allclose(last(run), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("name", "numbers", "parts"),
    [
        ("ef21", {}, {}),
        ("fed_alpha_normec", {"sigma": 0.0, "batch": 5}, {"sampler": "poisson"}),
    ],
)
def test_some_clients_move_the_mean_of_all(
    name: str, numbers: dict[str, Any], parts: dict[str, Any], key: jax.Array
) -> None:
    """Two of five: the step is along the mean of what all clients remember, which the server has."""
    algorithm = jaxfl.algorithm(
        name, participation=jaxfl.parts.sampling.participation("poisson"), **parts
    )
    given = {"cohort": 2, **NUMBERS[name], **numbers}
    run = jaxfl.simulate(algorithm, a_problem(LAM), key, ROUNDS, eval_every=0, **given)
    L = Draws(run)
    assert len({tuple(L.cohort(t)) for t in range(ROUNDS)}) > 3
    np.testing.assert_allclose(last(run), LOOPS[name](L), rtol=1e-5, atol=2e-6)
    mine = run.state.links if name == "ef21" else run.state.local[2]
    np.testing.assert_allclose(run.state.link, np.mean(mine, axis=0), atol=1e-6)


def test_one_local_step_of_all_clients_is_alpha_normec(key: jax.Array) -> None:
    given = {**NUMBERS["fed_alpha_normec"], "local_steps": 1}
    one = jaxfl.simulate("fed_alpha_normec", a_problem(LAM), key, ROUNDS, eval_every=0, **given)
    given = {**NUMBERS["alpha_normec"], "lr": given["server_lr"]}
    other = jaxfl.simulate("alpha_normec", a_problem(LAM), key, ROUNDS, eval_every=0, **given)
    np.testing.assert_allclose(one.x, other.x, rtol=1e-6)


def test_less_compression_takes_no_smaller_steps() -> None:
    """omega is what top-k loses of v, and the variance of random-k, which may be below 1 as well."""
    facts = ProblemFacts(n=4, m=10, m_max=10, d=8, rounds=5, smoothness=2.0, sizes=(10,))
    for name, kind in itertools.product(("ef21", "ef_sgd"), ("top_k", "random_k")):
        algorithm = jaxfl.algorithm(name, compressor=kind)
        steps = [planned(algorithm, facts, k=k).values["lr"] for k in range(1, 9)]
        assert steps == sorted(steps)
        if (name, kind) == ("ef21", "top_k"):  # 2 of 8: a contraction by 1/4
            assert steps[1] == pytest.approx(1 / (2 * 4))


@pytest.mark.parametrize("rows", ["poisson", "without_replacement", "with_replacement"])
def test_an_estimate_that_starts_anew_has_all_its_samples(rows: str) -> None:
    """Of equal gradients any draw has the mean; a Poisson one on average."""
    model = custom({"w": np.zeros(1)}, lambda x, example: example[0][0] * x["w"][0])
    data = jaxfl.data.from_clients((np.ones((2, 40, 1), np.float32),), stacked=True)
    numbers = {"batch": 2, "anchor_batch": 20, "sigma": 0.0, "clip": 9.0, "lr": 1.0}
    numbers |= {"momentum": 0.5, "difference_clip": 1.0, "step_limit": 9.0, "noise_ratio": 1.0}
    algorithm, problem = jaxfl.algorithm("dp_srm", sampler=rows), jaxfl.Problem(model, data)
    hp = planned(algorithm, problem, 1, **numbers).hp

    def point(key: jax.Array) -> jax.Array:
        state, _ = algorithm.round(key, algorithm.init(key, problem, hp)[0], problem, hp)
        return algorithm.body.server.view(state.server)[0]

    points = jax.jit(jax.vmap(point))(jax.random.split(jax.random.key(0), 20))
    error = 5 / np.sqrt(20 * 20 * 2) if rows == "poisson" else 1e-6
    assert -np.mean(points) == pytest.approx(1.0, abs=error)


def test_outputs_are_drawn_with_the_stated_weights() -> None:
    """x_k = -k: which point came out is read off it; chi-square over 4,000 seeds, at every stop."""
    steep = lambda hp: 1.0 + hp["slope"] * hp["round"]  # noqa: E731
    keys = jax.random.split(jax.random.key(7), 4000)
    for weight, first in ((None, True), (None, False), (steep, False)):
        server = iterates.sampled(servers.descent(), weight, first=first)

        def kept(key: jax.Array, server: Any = server) -> jax.Array:
            hp, points = Hyper({"lr": jnp.float32(1.0), "slope": jnp.float32(0.5)}), []
            state = server.init(jnp.zeros(1), hp)
            for t in range(6):
                now = Hyper({**hp.values, "round": jnp.float32(t)})
                state = server.step(jax.random.fold_in(key, t), state, jnp.ones(1), None, now)
                points.append(-server.output(state)[0])
            return jnp.stack(points)

        points = np.asarray(jax.jit(jax.vmap(kept))(keys))
        for T in (1, 6):
            drawn = points[:, T - 1]
            p = np.ones(T) if weight is None else 1 + 0.5 * np.arange(T)
            expected = 4000 * p / p.sum()
            seen = np.bincount(drawn.astype(int) - (0 if first else 1), minlength=T)
            assert len(seen) == T
            assert ((seen - expected) ** 2 / expected).sum() < T - 1 + 5 * np.sqrt(2 * T) + 1e-9


# --- noise and sensitivity -----------------------------------------------------------------------


FULL = {"batch": 6, "anchor_batch": 6}
WOR = {"sampler": jaxfl.parts.sampling.without_replacement()}
MOVES: dict[str, tuple[dict[str, Any], dict[str, Any], list[float]]] = {
    # what the one record adds when x jumps from 1 to -1 and back: (parts, numbers, shifts x m n)
    "dp_gd": ({}, {}, [2 * G] * 4),
    "dp_srm": (
        WOR,
        {**FULL, "momentum": 0.25, "difference_clip": 0.3, "noise_ratio": 1.0, "step_limit": 1.0},
        [2 * G, *[2 * (0.75 * 0.3 + 0.25 * G)] * 3],
    ),
    "ldp_spider": ({}, {"period": 3, "smoothness": 1e3, "noise_ratio": 1.0}, [2 * G, 4 * G, 4 * G, 2 * G]),
    "isrl_svrg": (
        {"sampler": jaxfl.parts.sampling.full()},
        {"epoch": 3, "noise_ratio": 1.0},
        [2 * G, 2 * G, 2 * G, 2 * G],  # h and the difference: 2G + 4G at opposite signs
    ),
}  # fmt: skip


@pytest.mark.plain
@pytest.mark.parametrize("name", MOVES)
def test_a_record_moves_messages_by_what_the_event_says(name: str) -> None:
    """One record exchanged for its negation, no noise, on a path that turns its gradient around."""
    parts, numbers, shifts = MOVES[name]
    algorithm = jaxfl.algorithm(name, **parts)
    path = np.array([[1.0], [-1.0], [1.0], [-1.0]], np.float32)
    given = {"clip": G, "lr": 1.0, **numbers}
    # |x a| has the same gradient for a and -a: exchange against one with the other slope
    worlds = kinked(1.0), mirrored(kinked(1.0))
    one, other = (sent(algorithm, [world], path, sigma=0.0, **given)[0] for world in worlds)
    moved = np.abs(one - other)[:, 0] * 3 * 6
    np.testing.assert_allclose(moved, shifts, rtol=1e-5)
    event = planned(algorithm, kinked(1.0), 4, **given, sigma=1.0).event
    parts_of = event.events if isinstance(event, events.Sequence) else (event,)
    share = 1 if name in ("dp_gd", "dp_srm") else 3  # local noise: the message of one client
    bounds = [
        2 * part.sensitivity.X(part.sampling) * 6 * 3 / share
        for part in parts_of
        for _ in range(part.releases)
    ]
    if name == "isrl_svrg":  # released apart: the full gradients, and the differences
        shifts = [2 * G] * 2 + [4 * G] * 2
    assert sorted(shifts) == pytest.approx(sorted(bounds))


def mirrored(problem: Problem) -> Problem:
    """The same with the record's loss turned around: its gradient is -1000 sgn(x)."""
    model = custom(np.ones(1, np.float32), lambda x, e: -jnp.abs(jnp.dot(x, e[0]) - e[1]))
    data = jaxfl.data.from_clients(tuple(map(np.asarray, problem.train)), stacked=True)
    return jaxfl.Problem(model, data, x0=np.ones(1, np.float32))


CLIPPED = {"clip": 0.5, "lr": 1.0}


@pytest.mark.plain
@pytest.mark.parametrize(
    ("name", "numbers", "moves", "reach"),
    [  # what moves in each round of a full batch; and by what the event says of one of b records
        ("clip21_sgd2m", {"momentum": 1.0, "shift": 1e-3}, [1.0] * 4, lambda b: 2 * 0.5),
        ("alpha_normec", {"smoothing": 1e-6, "shift": 1e-6}, [2.0] * 4, lambda b: 2),
        (
            "fed_alpha_normec",
            {"smoothing": 1e-6, "shift": 1e-6, "local_steps": 1, "server_lr": 1.0},
            [2.0] * 4,
            lambda b: 2,
        ),
        ("dice_sgd", {"error_clip": 0.2}, [1.0, 1.4, 1.4, 1.4], lambda b: 2 * (0.5 / b + 0.2)),
    ],
)
def test_a_record_moves_what_clients_send_by_what_they_remember(
    name: str, numbers: dict[str, float], moves: list[float], reach: Callable[[int], float]
) -> None:
    """One record of one client turned around, in every round, with memory that saw it too: Clip21
    moves by 2 tau whatever is drawn, DiceSGD by 2 C1/b in the first round and by 2 C2 more later."""
    algorithm = jaxfl.algorithm(name, sampler=jaxfl.parts.sampling.full())
    worlds = [steep(np.array([[sign], [1.0]])) for sign in (1.0, -1.0)]
    a, b = sent(algorithm, worlds, np.zeros((4, 3), np.float32), sigma=0.0, **CLIPPED, **numbers)
    moved = np.linalg.norm(a - b, axis=1) * 2  # of the mean over two clients
    np.testing.assert_allclose(moved, moves, rtol=1e-5)
    for batch, rule in itertools.product((2, 5), ("replace_one", "add_remove")):
        given = {**CLIPPED, **numbers, "sigma": 4.0, "batch": batch}
        usual = jaxfl.algorithm(name).names
        given = {key: value for key, value in given.items() if key in usual}
        event = planned(name, a_problem(), 25, **given).event
        found = epsilon(dataclasses.replace(event, adjacency=rule), 1e-4).eps
        assert found == pytest.approx(float(gdp_eps(reach(batch) * 25**0.5 / 4.0, 1e-4)), rel=1e-6)


@pytest.mark.plain
@pytest.mark.parametrize("shift", [0.1, 1.0, 1.5])
def test_gradients_that_turn_around_reach_the_bound_of_alpha_normec(shift: float) -> None:
    """A record's energy over 100 rounds: 0.2 to 4 % below that of the event, and never above it."""
    algorithm, path = jaxfl.algorithm("alpha_normec", unit="record"), (-1.0) ** np.arange(100)
    given = {"clip": 0.01, "lr": 1.0, "smoothing": 1.0, "shift": shift}
    worlds = kinked(1.0), mirrored(kinked(1.0))
    one, other = sent(algorithm, worlds, path[:, None].astype(np.float32), sigma=0.0, **given)
    mu = np.linalg.norm(one - other) * 3
    event = planned(algorithm, kinked(1.0), 100, **given, sigma=1.0).event
    bound = 2 * (2 * 0.01 / 6) * 100**0.5 / (2 - shift)
    assert 0.96 * bound < mu < bound
    proven = epsilon(event, 1e-4)
    assert (proven.eps, proven.status) == (pytest.approx(float(gdp_eps(bound, 1e-4))), "D")


def test_dice_sgd_claims_nothing_of_batches_of_a_fixed_size() -> None:
    """Its authors add or remove a record, which these do not allow."""
    given = {"clip": 0.5, "error_clip": 0.2, "batch": 3, "lr": 0.1, "eps": 4.0}
    for sampler in ("with_replacement", "without_replacement", "shuffled"):
        plan = planned(jaxfl.algorithm("dice_sgd", sampler=sampler), a_problem(), 4, **given)
        assert plan.claim is None
        assert plan.eps(plan.values["delta"]) == pytest.approx(4.0, rel=1e-3)


def test_the_authors_of_dice_sgd_claim_the_noise_of_dp_sgd_made_longer() -> None:
    """With no error to add, the claim is the eps of DP-SGD; with C2 = C1/b, sigma is sqrt(3) times it."""
    problem, given = a_problem(n=1, m=40), {"clip": 0.5, "batch": 4, "delta": 1e-4}
    plain = planned("ldp_sgd", problem, 25, **given, sigma=0.3).event
    event = dataclasses.replace(plain, adjacency="add_remove")
    for bound, longer in ((1e-9, 1.0), (0.5 / 4, 3**0.5)):
        claim = planned(
            "dice_sgd", problem, 25, **given, sigma=0.3 * longer, error_clip=bound
        ).claim
        assert claim.eps == pytest.approx(epsilon(event, 1e-4).eps, rel=1e-3)
        assert not claim.holds


def test_events_are_those_of_the_named_mechanisms() -> None:
    """One client: what the accountant sees is what `jaxfl account` describes."""

    def event(name: str, **numbers: Any) -> Any:
        return planned(name, a_problem(n=1, m=40), 20, clip=1.0, sigma=0.5, **numbers).event

    epochs = {"epochs": 4, "inner": 5, "noise_ratio": 0.5}
    rows = {"batch": 8, "sampler": "with_replacement"}
    for name, own, asked in (
        ("dp_gd", {}, {"rounds": 20}),
        ("rrpsgd", {}, {"rounds": 20}),
        ("isrl_svrg", {"batch": 8, "epoch": 5, "noise_ratio": 0.5}, {**epochs, **rows}),
        ("ldp_spider", {"period": 5, "noise_ratio": 0.5}, {**epochs, "sampler": "full"}),
    ):
        asked |= {"sigma": 0.5, "delta": 1e-4, "samples": 40, "clip": 1.0}
        same = jaxfl.account(name, **asked)["eps"]
        assert epsilon(event(name, **own), 1e-4).eps == pytest.approx(same, rel=1e-6), name
    differences, full = event("isrl_svrg", batch=8, epoch=6).events
    assert (differences.releases, full.releases) == (16, 4)  # the last epoch has two rounds
    given = {"batch": 8, "anchor_batch": 8, "momentum": 0.1, "difference_clip": 2.0}
    srm = event("dp_srm", **given, noise_ratio=1 / 1.9)
    assert srm.events[0].releases == 19
    assert srm.events[0].sensitivity.X(srm.events[0].sampling) == pytest.approx(1.9 / 8)
    assert srm.events[1].sigma == pytest.approx(0.5 / 1.9)
    assert srm.events[0].trust == "single_node"


# --- the papers' numbers -------------------------------------------------------------------------


def test_paper_noise_claims_the_eps_that_was_asked_for() -> None:
    for name in ("dp_gd", "rrpsgd", "dp_srm", "ldp_spider", "isrl_svrg", "q_dpsgd_1"):
        of, given = (name, a_problem(n=1, m=60), 30), {"eps": 1.5, "delta": 1e-4}
        paper, again = planned(*of, "paper", **given), planned(*of, **given)
        assert paper.claim.eps == pytest.approx(1.5, rel=1e-6), name
        assert again.eps(1e-4) == pytest.approx(1.5, rel=1e-3), name
        needed = sigma_for(paper.event, 1.5, 1e-4).sigma
        assert needed == pytest.approx(again.values["sigma"], rel=1e-3), name


def of(name: str, **numbers: Any) -> jaxfl.Run:
    return jaxfl.simulate(name, a_problem(), jax.random.key(0), 5, **numbers)


test_what_does_not_apply_is_refused = refusals(
    (lambda: jaxfl.algorithm("dp_srm", sampler="full"), "'full' does not apply"),
    (lambda: jaxfl.algorithm("dp_gd", noise="fused"), "noise = 'fused' does not apply to dp_gd"),
    *(
        (lambda name=name: of(name, compressor="top_k"), "is biased")
        for name in ("ldp_sgd", "diana", "soteriafl_gd", "fedavg", "sdm_dsgd")
    ),
    (lambda: of("marina", compressor="qsgd"), "take random_k"),
    (lambda: of("soteriafl_sgd", compressor="fixed_step"), "has an absolute error"),
    (lambda: of("rrpsgd", batch=3), "batch = 3 does not apply to rrpsgd"),
    (lambda: of("dp_sgd", eps=1.0, sigma=1.0), "eps = 1.0 and sigma = 1.0 both set"),
)


# --- error feedback ------------------------------------------------------------------------------


def test_noise_that_is_not_sent_is_remembered() -> None:
    """Error feedback under noise: messages and memory add up to all that was ever noised."""

    sparse, feedback = jaxfl.parts.compressors.random_k(), jaxfl.parts.channels.error_feedback()
    body = jaxfl.algorithm("ldp_gd").body._replace(compressor=sparse, channel=feedback)
    resolve = jaxfl.parts.plain(clip=1e-9, sigma=1.0, k=2, lr=1.0)
    algorithm = compose("noisy_ef", "noisy error feedback", "this test", body, resolve)
    problem = a_problem(0.0)
    run = jaxfl.simulate(algorithm, problem, jax.random.key(1), 6, eval_every=0)
    keys = streams(run.key)
    noise = [
        np.mean([np.asarray(normal(k, (8,))) for k in row], axis=0)
        for t in range(6)
        for row in client_keys([keys.noise], jnp.arange(problem.n), jnp.int32(t))
    ]
    sent_so_far = np.asarray(problem.x0) - run.x
    kept = np.asarray(run.state.links).mean(0)
    assert np.abs(kept).max() > 0.1
    np.testing.assert_allclose(sent_so_far + kept, np.sum(noise, axis=0), atol=1e-5)


def test_dasha_of_noised_gradients_releases_these_alone(key: jax.Array) -> None:
    """What is sent is made of them: one release in a round, as of LDP-GD."""
    body = jaxfl.algorithm("dasha").body._replace(mechanism=jaxfl.parts.mechanisms.gaussian())
    numbers = {"clip": G, "lr": 0.2, "k": 3, "shift": 1 / (2 * (8 / 3 - 1) + 1), "sigma": 0.05}
    private = compose("private_dasha", "", "this test", body, jaxfl.parts.plain(**numbers))
    run = jaxfl.simulate(private, a_problem(LAM), key, ROUNDS, eval_every=0, delta=1e-3)
    np.testing.assert_allclose(last(run), dasha(Draws(run)), rtol=1e-5, atol=2e-6)
    links, link = run.state.links, run.state.link
    np.testing.assert_allclose(link, np.mean(links[1], axis=0), atol=1e-6)
    given = {"clip": G, "lr": 0.2, "sigma": 0.05, "delta": 1e-3}
    plain = jaxfl.simulate("ldp_gd", a_problem(LAM), key, ROUNDS, eval_every=0, **given)
    assert run.privacy().proven == plain.privacy().proven < np.inf


# --- defaults that follow from other numbers -------------------------------------------------------


FREE = ("isrl_svrg", "cdp_sgd", "cdp_gd", "multi_pass_mbsgd")  # that may go without answers


@pytest.mark.parametrize("name", ["ldp_spider", *FREE, "soteriafl_sgd", "soteriafl_svrg", "diana"])
def test_defaults_are_for_those_who_report(name: str) -> None:
    """5 of 20 average as much noise as 5 of 5, and so do 10 of which at least 5 answer."""
    names = jaxfl.algorithm(name).names
    private = "eps" in names
    rounds = 60 if name == "multi_pass_mbsgd" else None if private else 10
    fixed = {"sigma": 1.0} if private else {}
    fixed |= {"omega": 3.0} if "omega" in names else {}

    def numbers(n: int, who: str, **given: Any) -> dict[str, Any]:
        algorithm = jaxfl.algorithm(name, participation=who)
        facts = ProblemFacts(n, 400, 400, 8, rounds, 0.5, (400,), 2.0, True)
        v = planned(algorithm, facts, **given, **fixed).values
        return {key: v[key] for key in ("rounds", "batch", "lr", "period") if key in v}

    few = numbers(5, "everyone")
    assert numbers(20, "uniform", cohort=5) == few
    assert numbers(20, "everyone") != few
    if name in FREE:
        assert numbers(20, "unreliable", cohort=10, dropout=0.2, threshold=5) == few


def settled(name: str, v: dict[str, Any], n: int, m: int, d: int) -> float:
    """The step of the sigma in ``v``, by hand."""
    G, T, sigma = v["clip"], v["rounds"], v["sigma"]
    if name == "rrpsgd":
        L = v["smoothness"]
        return min(1 / L, (v["gap"] / (L * m**2 * d * sigma**2)) ** 0.5)
    D = v["diameter"]
    if name == "noisy_sgd":
        return D / (T * (G**2 + d * sigma**2 / n)) ** 0.5
    machines = n if name == "mu2_trusted" else 1
    L, S = v["smoothness"], G + 2 * v["smoothness"] * D
    assert v["rho"] == pytest.approx(2 * S * T**0.5 / (sigma * machines))
    top = v["rho"] * D * (n if machines == n else n**0.5)
    return min(top / (2 * S * T * d**0.5), 1 / (4 * L * T))


@pytest.mark.parametrize("noise", ["calibrated", "paper"])
@pytest.mark.parametrize("name", ["rrpsgd", "noisy_sgd", "mu2_untrusted", "mu2_trusted"])
def test_steps_follow_the_noise_that_is_used(name: str, noise: str) -> None:
    n, m, d = 1 if name == "rrpsgd" else 4, 60, 8
    facts = ProblemFacts(n, m, m, d, 20, 1.0, (m,))
    given = {"clip": 1.0, "eps": 2.0, "delta": 1e-5}
    own = planned(name, facts, None, noise, **given)
    assert own.sources["sigma"].startswith("calibrated") == (noise == "calibrated")
    assert own.values["lr"] == pytest.approx(settled(name, own.values, n, m, d))
    mine = planned(name, facts, None, noise, **given, lr=0.3)
    assert (mine.values["lr"], mine.sources["lr"]) == (0.3, "given")
    assert mine.values["sigma"] == own.values["sigma"]


def test_an_aggregation_settles_last() -> None:
    """Its range is for the clip that the algorithm's own last step chose."""
    body = jaxfl.algorithm("ldp_gd", aggregation=jaxfl.parts.aggregations.secure_sum()).body

    def finish(draft: Any, noise: Any, facts: Any) -> None:
        draft.values["clip"] = 8.0

    plan = jaxfl.parts.plain(clip=1.0, lr=0.1, sigma=0.0, k=8, omega=0.0)
    facts = ProblemFacts(4, 10, 10, 8, 5, 1.0, (10,))
    for rule, most in ((None, 2.0), (finish, 16.0)):
        made = compose("mine", "mine", "none", body, plan, finish=rule)
        assert planned(made, facts).values["range"] == most
