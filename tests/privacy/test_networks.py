"""Noise that neighbours of a network share: what it is worth, and what rounds draw."""

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest
from planned import federated, planned
from rows import a_problem
from told import refusals

import jaxfl
from jaxfl import audit
from jaxfl.algorithms.decentralized.claims import decor
from jaxfl.core.types import ProblemFacts
from jaxfl.parts import compose, graphs, mechanisms, plain
from jaxfl.privacy import networks
from jaxfl.privacy.accountants import closed_form, epsilon
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.privacy.networks import balanced, exposures, hidden

pytestmark = pytest.mark.once

T, DELTA = 3500, 1e-5
# of 16 clients that send vectors of norm 1: sigma, sigma_c, the published eps, and that of GDP
PUBLISHED = {
    "ring": (22.96953176771683, 94.0, 10.459689394937765, 8.96935),
    "complete": (17.827099282407094, 32.0, 10.796774471878715, 9.27353),
}
D, RING = 4000, graphs.ring()


@pytest.mark.plain
@pytest.mark.parametrize("graph", PUBLISHED)
def test_published_values(graph: str) -> None:
    """The formula of the paper, and what is proven of its noise: by an algorithm, and by the functions."""
    sigma, shared, claimed, proven = PUBLISHED[graph]
    found = hidden(graphs.links(graphs.graph(graph), 16), shared / sigma)
    claim = decor(1.0, T, found, DELTA, sigma=sigma)
    assert claim.eps == pytest.approx(claimed, rel=1e-12)
    assert decor(1.0, T, found, DELTA, eps=claimed).sigma == pytest.approx(sigma, rel=1e-9)
    assert gdp_eps(2 * math.sqrt(T) / (sigma * found.noise), DELTA) == pytest.approx(
        proven, abs=5e-6
    )
    numbers = {"sigma": sigma, "coupling": shared / sigma, "clip": 1.0, "delta": DELTA}
    made = jaxfl.algorithm("decor", graph=graph, clip="client")
    facts = ProblemFacts(16, 3, 3, 10, T, 1.0)
    run = planned(made, facts, batch=1, **numbers)
    assert (run.event.unit, run.event.trust) == ("client", "shared_seeds")
    assert run.claim.eps == pytest.approx(claimed, abs=1e-9)
    assert run.eps(DELTA) == pytest.approx(proven, abs=5e-6)
    # of full batches of 3 a record moves 2/3
    made = jaxfl.algorithm("decor", graph=graph, sampler="full")
    run = planned(made, facts, **{**numbers, "sigma": sigma / 3})
    assert run.claim.eps == pytest.approx(claimed, abs=1e-9)
    assert run.eps(DELTA) == pytest.approx(proven, abs=5e-6)


def by_force(links: np.ndarray, coupling: float, gone: tuple[int, ...]) -> tuple[float, bool]:
    """The largest exposure of a client that stays, from all that is drawn, and what ``gone`` know of it."""
    n = len(links)
    edges = [(i, j) for i, j in itertools.combinations(range(n), 2) if links[i, j]]
    unknown = [e for e in edges if not {*e} & {*gone}]
    stay = [i for i in range(n) if i not in gone]
    # what each draw that nobody knows adds to each message
    draws = np.zeros((n, n + len(unknown)))
    draws[:, :n] = np.eye(n)
    for k, (i, j) in enumerate(unknown):
        draws[i, n + k], draws[j, n + k] = coupling, -coupling
    cov = (draws @ draws.T)[np.ix_(stay, stay)]
    best = max(float(u @ np.linalg.solve(cov, u)) for u in np.eye(len(stay)))
    reach = np.linalg.matrix_power(np.eye(len(stay)) + links[np.ix_(stay, stay)], n) > 0
    return best, bool(reach.all())


def some_graphs() -> list[np.ndarray]:
    rng, found = (
        np.random.default_rng(0),
        [graphs.links(RING, 5), graphs.links(graphs.complete(), 4)],
    )
    for n, p in ((1, 0.5), (2, 1.0), (4, 0.5), (5, 0.5), (6, 0.7), (6, 0.9)):
        upper = np.triu(rng.random((n, n)) < p, 1)
        found.append(upper | upper.T)
    found.append(np.kron(np.eye(2), np.ones((3, 3))) > 0)  # two parts, and loops
    return found


@pytest.mark.plain
@pytest.mark.parametrize("coupling", [0.0, 0.7, 20.0])
def test_the_noise_hides_what_the_worst_colluding_clients_leave(
    coupling: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every tiny graph, by all sets of at most so many; a bound for very many sets never says more."""
    loose = []
    for links in some_graphs():
        n, bare = len(links), links & ~np.eye(len(links), dtype=bool)
        for q in range(n):
            sets = [s for k in range(q + 1) for s in itertools.combinations(range(n), k)]
            worst, whole = zip(*(by_force(bare, coupling, gone) for gone in sets), strict=True)
            found = hidden(links, coupling, q)
            assert found.noise == pytest.approx(max(worst) ** -0.5, rel=1e-9)
            assert found.connected == all(
                one for one, gone in zip(whole, sets, strict=True) if len(gone) == q
            )
            with monkeypatch.context() as now:
                now.setattr(networks, "MOST_SETS", 0)
                many = hidden(links, coupling, q)
            assert many.noise <= found.noise * (1 + 1e-12)
            assert many.connected in (None, found.connected)
            loose.append(many.noise / found.noise)
    assert np.median(loose) > 0.6  # and often as much


@pytest.mark.plain
@pytest.mark.parametrize("coupling", [1e6, 1e12, 1e30])
def test_noise_that_cancels_hides_no_more_than_that_of_all(coupling: float) -> None:
    """Of any graph a connected part of r clients hides sqrt(r), whatever rounding makes of L."""
    for links, r in ((graphs.links(RING, 100), 100), (graphs.links(graphs.grid(), 12), 12)):
        assert hidden(links, coupling).noise <= math.sqrt(r) * (1 + 1e-12)
        assert hidden(links, coupling).noise == pytest.approx(math.sqrt(r), rel=1e-5)
    parts = np.kron(np.eye(2), np.ones((3, 3))) > 0
    assert hidden(parts, coupling).noise == pytest.approx(math.sqrt(3), rel=1e-5)
    links = graphs.links(RING, 16)
    assert 16 * exposures(links, balanced(links)).max() == pytest.approx(2)


def noises(scale: float = 1.0, coupling: float = 3.0) -> tuple[Any, np.ndarray]:
    """The event of a ring of 5, and ``scale`` times the noise of each message, (5, D)."""
    data = np.zeros((5, 6, D), np.float32), np.zeros((5, 6), np.int32)
    clients = jaxfl.data.from_clients(data, classes=2, stacked=True)
    problem = jaxfl.Problem(jaxfl.models.logistic(D), clients)
    numbers: dict[str, Any] = {
        "clip": 1.0,
        "lr": 0.5,
        "sigma": 0.5,
        "coupling": coupling,
        "batch": 3,
    }
    f = jaxfl.functions(jaxfl.algorithm("decor", graph=RING), problem, 2, **numbers)
    run = f.init(jax.random.key(5))
    seen = f.view(run)
    np.testing.assert_allclose(seen.messages, -0.5 * seen.estimates, rtol=1e-6)
    event = f.algorithm.event(f.about.values, f.about.facts)
    return event, scale * np.asarray(seen.estimates, np.float64)


def excess(v: np.ndarray, coupling: float = 3.0) -> float:
    """The largest error of the covariance of whitened messages, in standard errors."""
    L = 2 * np.eye(5) - graphs.links(RING, 5)
    z = np.linalg.solve(np.linalg.cholesky(0.25 * (np.eye(5) + coupling**2 * L)), v)
    return float(np.abs(z @ z.T / D - np.eye(5)).max() * math.sqrt(D / 2))


@pytest.mark.plain
def test_messages_have_the_covariance_of_the_event() -> None:
    """Nine tenths of the noise are found out, as is another coupling, or a seed that is not shared."""
    event, v = noises()
    assert excess(v) < 5
    assert excess(0.9 * v) > 5
    assert excess(v, coupling=2.7) > 5
    assert excess(np.concatenate([v[:4], np.random.default_rng(0).permuted(v[4:], axis=1)])) > 5
    L = 2 * np.eye(5) - graphs.links(RING, 5)
    assert event.sigma == pytest.approx(0.5 * np.linalg.inv(np.eye(5) + 9 * L)[0, 0] ** -0.5)
    assert np.abs(v.sum(0)).std() < 2 * math.sqrt(5) * 0.5  # what is shared cancels


@pytest.mark.parametrize("colluding", [0, 1])
def test_an_attack_on_all_messages_comes_close_to_the_proof(colluding: int) -> None:
    """The attack knows no seed, so that fewer colluding clients are what it can reach."""
    given: Any = dict(rounds=8, m=8, runs=1500, delta=1e-3, eps=4.0, clients=4, batch=8)
    made = jaxfl.algorithm("decor", graph="ring")
    key = jax.random.key(2)
    found = audit(made, coupling=2.0, colluding=colluding, confidence=0.999, key=key, **given)
    assert found.proven == pytest.approx(4.0, rel=1e-3)
    assert found.lower <= found.proven
    assert colluding or found.lower > 0.5 * found.proven


@pytest.mark.plain
def test_colluding_neighbours_leave_a_client_with_its_own_noise() -> None:
    """A ring is cut by two: what is proven is that of independent noise, and the claim says what fails."""
    numbers = {"clip": 1.0, "batch": 4, "sigma": 2.0, "coupling": 5.0}
    ring, alone = jaxfl.algorithm("decor", graph="ring"), jaxfl.algorithm("dp_dsgd", graph="ring")
    runs = [planned(ring, a_problem(n=6), 20, **numbers, colluding=q) for q in (0, 1, 2)]
    eps = [run.eps(1e-3) for run in runs]
    assert eps[0] < eps[1] < eps[2]
    del numbers["coupling"]
    assert eps[2] == planned(alone, a_problem(n=6), 20, **numbers).eps(1e-3)
    assert [run.claim.holds for run in runs] == [True, True, False]
    assert "cut off" in str(runs[2].claim.conditions[0])
    assert closed_form(runs[0].event) is None  # drawn batches amplify
    assert epsilon(runs[0].event, 1e-3).eps < runs[0].claim.eps


def of_a_server() -> Any:
    return compose("mine", "", "", federated(mechanism=mechanisms.cancelling()), plain())


test_mistakes_are_explained = refusals(
    (of_a_server, "mechanism = 'cancelling' .* no neighbours to share noise with"),
    (
        lambda: planned("decor", a_problem(n=5), 5, sigma=1.0, colluding=5),
        "colluding = 5 leaves none of the 5 clients of the network to protect: ask for at most 4",
    ),
    (lambda: planned("decor", a_problem(), 5, sigma=1.0, coupling=-1.0), "coupling = -1.0 must be"),
    (lambda: jaxfl.algorithm("decor", clip="batch"), "clip = 'batch' does not apply to decor"),
    (
        lambda: hidden(np.zeros((2, 2)), 1.0, -1),
        "colluding = -1 must be",
    ),
)
