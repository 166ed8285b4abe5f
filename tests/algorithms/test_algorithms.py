"""What every algorithm has to satisfy; a new one joins by a row in ``rows.py``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from planned import federated, planned
from rows import ROWS, Row, a_problem
from told import mistakes, refusals, refused

import jaxfl
from jaxfl.algorithms.roles import part
from jaxfl.algorithms.soteriafl import theory
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.core.types import Algorithm, Origin, ProblemFacts
from jaxfl.engine import results
from jaxfl.engine.runs import totals
from jaxfl.parts import (
    accelerated,
    aggregations,
    channels,
    compose,
    compressors,
    estimators,
    iterates,
    local,
    mechanisms,
    momentum,
    plain,
    sampling,
    servers,
    smoothing,
)
from jaxfl.problems.facts import facts_of
from jaxfl.rounds import gossip


def rows(mark: Any) -> Any:
    """All of the common table; rows with a part that no other has carry the mark."""
    table = [pytest.param(row, marks=mark if row.quick else ()) for row in ROWS]
    return pytest.mark.parametrize("row", table, ids=[row.name for row in ROWS])


PARTS = [
    *(channels.direct, channels.shifted, channels.learned, channels.recursion),
    *(channels.error_feedback, mechanisms.gaussian, mechanisms.central, mechanisms.noiseless),
    *(servers.descent, servers.averaging, accelerated.averaged),
    *(iterates.anytime, iterates.averaged, iterates.limited),
    *(gossip.averaging, gossip.quantized, gossip.differences),
    *(local.free, local.proximal, local.control),
    *(lambda make=make: make(sampling.full()) for make in (estimators.minibatch, estimators.svrg,
      estimators.saga, momentum.corrected, momentum.marina)),
    lambda: momentum.anchored(sampling.full(), mechanisms.gaussian()),
    lambda: smoothing.moreau(estimators.minibatch(sampling.full())),
    lambda: iterates.sampled(servers.descent()),
]  # fmt: skip


def test_every_algorithm_has_a_row_and_is_the_same_each_time() -> None:
    """Compiled programs are found again only if equal calls give equal records."""
    assert {row.name for row in ROWS} == set(jaxfl.ALGORITHMS)
    for row in ROWS:
        assert jaxfl.algorithm(row.name) == jaxfl.algorithm(row.name)
        assert hash(jaxfl.algorithm(row.name)) == hash(jaxfl.algorithm(row.name))
    assert all(make() is make() for make in PARTS)


@rows(pytest.mark.plain)
def test_it_descends_and_counts(row: Row, key: jax.Array) -> None:
    problem, rounds = row.problem, 60
    run = jaxfl.simulate(row.name, problem, key, rounds, **row.numbers)
    loss = run.metrics["loss"]
    assert run.ended == "finished"
    assert np.isfinite(loss).all()
    assert loss[-1] < 0.9 * loss[0]
    assert run.totals["clients"] == rounds * problem.n
    if row.gradients is not None and "batch" not in row.numbers:
        assert run.totals["gradients"] == row.gradients(problem, rounds)
    elif row.gradients is not None:  # Poisson batches: b in the mean
        expected = row.gradients(problem, rounds)
        spread = np.sqrt(rounds * problem.n * row.numbers["batch"])
        assert abs(run.totals["gradients"] - expected) < 5 * spread
    d, k = problem.x0.size + row.more, run.values.get("k")
    if row.compressed is not None:
        assert run.totals["coordinates"] == rounds * problem.n * (k or d)
        bits = k * (32 + np.ceil(np.log2(d))) if k else 32 * d
        bits = 16 * d if row.compressed == "fixed_step" else bits
        assert run.totals["uplink_bits"] == rounds * problem.n * bits
    assert run.totals["downlink_bits"] == rounds * problem.n * 32 * d * row.down
    assert run.totals["clamped"] == 0


@pytest.mark.once
def test_sizes_of_a_users_own_composition_are_checked() -> None:
    """k beyond d sent d coordinates and was billed for k, and an omega decided nothing."""
    problem, key = a_problem(), jax.random.key(0)

    def run(kind: str, **numbers: float) -> jaxfl.Run:
        body = federated(
            estimator=estimators.minibatch(sampling.full()),
            mechanism=mechanisms.noiseless(),
            compressor=compressors.compressor(kind),
            channel=channels.error_feedback(),
        )
        made = compose("mine", "mine", "here", body, plain(clip=1.0, lr=0.1, k=2))
        return jaxfl.simulate(made, problem, key, 2, **numbers)

    for kind in ("random_k", "bernoulli", "stratified_k", "top_k"):
        refused(lambda kind=kind: run(kind, k=9), "k = 9 must be at least 1 and at most 8")
    found = run("random_k", omega=1.2)
    assert (found.values["k"], found.sources["k"]) == (4, "from the given omega")
    assert (found.values["omega"], found.sources["omega"]) == (1.0, "given, as near as k allows")
    assert found.totals["uplink_bits"] == run("random_k", k=4).totals["uplink_bits"]
    found = run("top_k", share=0.5)
    assert (found.values["k"], found.sources["k"]) == (3, "from the given share")
    assert found.totals["uplink_bits"] == run("top_k", k=3).totals["uplink_bits"]
    refused(lambda: run("random_k", k=3, omega=1.0), "are both given")


@rows(())
def test_some_clients_only(row: Row, x64: None) -> None:
    """Three of five take part, in double precision; those who do not keep their memory, and
    s = mean_i s_i."""
    narrow, part = row.problem, jaxfl.parts.sampling.participation("uniform")
    data = jax.tree.map(np.asarray, narrow.train)
    problem = jaxfl.Problem(narrow.model, data, x0=np.asarray(narrow.x0), dtype="float64")
    if row.everyone:
        words = f"'uniform' does not apply to {row.name}"
        refused(lambda: jaxfl.algorithm(row.name, participation=part), words)
        algorithm, numbers = row.name, row.numbers
    else:
        algorithm = jaxfl.algorithm(row.name, participation=part)
        numbers = {**row.numbers, "cohort": 3}
    run = jaxfl.simulate(algorithm, problem, jax.random.key(0), 15, **numbers)
    assert run.settings["dtype"] == run.metrics["loss"].dtype == np.float64
    floats = [a.dtype for a in jax.tree.leaves(run.state) if jnp.issubdtype(a.dtype, jnp.floating)]
    assert set(floats) == {jnp.dtype("float64")}
    if row.everyone:
        return
    assert run.totals["clients"] == 15 * 3
    links = jax.tree.leaves(run.state.links)[-1:]
    if run.settings["parts"]["channel"] in ("shifted", "learned", "dasha"):
        s, (s_i,) = run.state.link, links
        assert np.abs(s).max() > 1e-3
        np.testing.assert_allclose(s, np.mean(s_i, axis=0), atol=1e-12)
    if links:
        moved = np.asarray(jax.tree.leaves(run.extend(16).state.links)[-1]) - links[0]
        assert (np.abs(moved).sum(1) > 0).sum() == 3


def noised(resolve: Any = None, **numbers: float) -> jaxfl.parts.Algorithm:
    """Noised minibatch SGD from known parts; its numbers are plain ones, or come from ``resolve``."""
    body = federated(server=servers.optimizer(lambda hp: optax.sgd(hp["lr"])))
    numbers = {"clip": 1.0, "batch": 4, "lr": 0.02} | numbers
    return compose("noised", "", "this test", body, resolve or plain(**numbers))


@pytest.mark.parametrize(
    ("start", "given"),
    [({"sigma": 0.05}, {"eps": 2.0}), ({"eps": 5.0, "delta": 1e-4}, {"eps": 2.0, "delta": 1e-5})],
)
def test_plain_numbers_calibrate_noise(start: dict[str, float], given: dict[str, float]) -> None:
    """An algorithm of one's own takes eps as the others do; a sigma that is given stays."""
    plan = planned(noised(**start), a_problem(), 5, **given)
    assert plan.values["delta"] == given.get("delta", min(1e-3, 0.1 / plan.facts.m_max))
    assert plan.eps(plan.values["delta"]) == pytest.approx(2.0, rel=1e-3)
    assert plan.sources["sigma"].startswith("calibrated: ")
    values = planned(noised(**start), a_problem(), 5, sigma=0.3).values
    assert values["sigma"] == 0.3
    assert "eps" not in values


def test_delta_is_small_for_the_largest_client() -> None:
    """0.1/m, since it has to be small for each of them."""
    facts = ProblemFacts(n=2, m=50, m_max=1000, d=3, rounds=5, smoothness=1.0, sizes=(50, 1000))
    for name in ("ldp_gd", "soteriafl_gd", "dp_gd", "isrl_svrg", "private_local_sgd"):
        assert planned(name, facts, sigma=0.1).values["delta"] == pytest.approx(1e-4), name


def test_delta_is_small_for_each_client_where_clients_are_protected() -> None:
    """0.1/n, also in compositions of one's own."""
    facts = ProblemFacts(n=200, m=50, m_max=1000, d=3, rounds=5, smoothness=1.0, sizes=(50, 1000))
    whole = estimators.minibatch(sampling.full(), clip_examples=False)
    body = federated(estimator=whole, clip="client")
    mine = compose("mine", "", "", body, plain(clip=1.0, lr=0.1, eps=2.0))
    for algorithm in (
        mine,
        "clip21_sgd2m",
        jaxfl.algorithm("dice_sgd", clip="client"),
        "dp_fedavg",
    ):
        found = planned(algorithm, facts)
        assert found.values["delta"] == pytest.approx(5e-4)
        assert found.sources["delta"] == "default: min(0.001, 0.1/n)"
    assert planned(mine, facts, delta=1e-5).values["delta"] == 1e-5


@pytest.mark.parametrize("name", ["soteriafl_sgd", "cdp_sgd", "ldp_sgd", "dp_sgd", "dp_dsgd"])
def test_defaults_of_a_model_without_a_known_L(name: str) -> None:
    """By a theorem with L = 1, a network on MNIST ends at a test accuracy of 39 %; by these, at 83 %."""
    facts = ProblemFacts(10, 6000, 6000, 50890, 200, None)
    plan = planned(name, facts, clip=2.0)
    assert (plan.values["batch"], plan.values["lr"]) == (128, 0.5)
    for value in ("batch", "lr"):
        assert plan.sources[value].origin is Origin.DEFAULT
        assert "L of this model is unknown" in str(plan.sources[value])
    for known in (
        planned(name, facts._replace(smoothness=3.0)),
        planned(name, facts, smoothness=3.0),
    ):
        assert known.sources["lr"].origin is Origin.THEOREM
        assert known.values["batch"] != 128
    assert planned(name, facts._replace(m=50, m_max=50)).values["batch"] == 50
    if name == "cdp_sgd":
        assert planned("fedsgd", facts).values["lr"] == 0.1


def test_claims_of_variance_reduction_are_of_two_gradients_of_a_record() -> None:
    """Without a bound on any nothing is claimed."""
    facts = ProblemFacts(n=2, m=1000, m_max=1000, d=3, rounds=50, smoothness=1.0, sizes=(1000,))
    for name in ("soteriafl_sgd", "soteriafl_svrg", "soteriafl_saga", "ldp_svrg"):
        plan = planned(name, facts, sigma=0.01, batch=20)
        v, G = plan.values, plan.values["clip"]
        given = v["noise_constant"], G, 1000, 20, 50, v["delta"]
        bounds = (G, 0.0) if name == "soteriafl_sgd" else (2 * G, G)
        stated = compressed_gd(*given, sigma=0.01, bounds=bounds)
        assert plan.claim.conditions == stated.conditions, name
    for name in ("ldp_sgd", "dp_sgd"):
        plan = planned(name, facts, clip=float("inf"), sigma=1.0)
        assert plan.values["eps"] == plan.claim.eps == plan.eps(1e-5) == float("inf")


def test_steps_are_finite_without_features() -> None:
    """L = 0 asks for no step size: local SGD had an infinite one, and a model of NaN."""
    rows = np.zeros((4, 20, 5), np.float32), np.zeros((4, 20), np.int32)
    data = jaxfl.data.from_clients(rows, classes=2, stacked=True)
    problem = jaxfl.Problem(jaxfl.models.logistic(5), data)
    assert facts_of(problem, 5).smoothness == 0
    algorithm = jaxfl.algorithm("private_local_sgd", aggregation="plain_sum")
    assert np.isfinite(planned(algorithm, problem, 5, batch=4).values["lr"])


def unreliable(name: str) -> jaxfl.parts.Algorithm:
    return jaxfl.algorithm(name, participation=jaxfl.parts.sampling.participation("unreliable"))


def deaf(given: Any, facts: Any) -> jaxfl.core.types.Plan:
    """Takes no notice of eps."""
    values = {"clip": 1.0, "batch": 4, "lr": 0.02, "rounds": facts.rounds}
    return jaxfl.core.types.Plan(values, {}, jaxfl.core.types.Sigma(1.0))


def without_delta(given: Any, facts: Any) -> jaxfl.core.types.Plan:
    return deaf(given, facts)._replace(asked=jaxfl.core.types.Eps(given["eps"]))


def needs_rate(rate: float) -> Algorithm:
    raise NotImplementedError


def cdp_sgd(**parts: Any) -> Algorithm:
    return jaxfl.algorithm("cdp_sgd", **parts)


def run(algorithm: Any, **given: Any) -> jaxfl.Run:
    return jaxfl.simulate(algorithm, a_problem(), jax.random.key(0), 5, **given)


test_noise_that_cannot_be_calibrated = refusals(
    (lambda: run(noised()), "noised needs sigma, which nothing sets: give sigma or eps"),
    (lambda: run(noised(), eps=2.0, sigma=1.0), "eps = 2.0 and sigma = 1.0 both set"),
    (lambda: run(noised(sigma=1.0), eps=2.0, noise="paper"), "none that gives sigma for eps = 2"),
    (lambda: run(noised(clip=float("inf")), eps=2.0), "clip = inf"),
    (lambda: run(noised()._replace(event=None), eps=2.0), "does not describe what it releases"),
    (lambda: run(noised(deaf), eps=2.0), "eps = 2.0 decides nothing in noised"),
    (lambda: run(noised(without_delta), eps=2.0), "eps = 2 needs delta"),
    (lambda: run(unreliable("ldp_sgd")), "needs dropout and threshold, which nothing sets"),
    (lambda: run(unreliable("dp_sgd"), dropout=0.1), "'unreliable' needs threshold, which"),
)


@mistakes(
    (lambda: cdp_sgd(compresor=3), r"named 'compresor': did you mean 'compressor'\?"),
    (lambda: cdp_sgd(compressor=5), r"a name or a Compressor: give .*compressor\('qsgd'\)"),
    (lambda: cdp_sgd(compressor=compressors.qsgd), "call it"),
    (lambda: cdp_sgd(compressor=sampling.poisson()), "'poisson' of cdp_sgd is a Sampler"),
    (lambda: cdp_sgd(server=3), "server = 3 of cdp_sgd .* be a Server: give one"),
    (lambda: jaxfl.algorithm("mb_subgradient", compressor=3), ": noise, participation, sampler"),
    (lambda: jaxfl.algorithm("dp_dsgd", graph=3), "graph = 3"),
    (lambda: jaxfl.algorithm("soteriafl_sgd", storage=[3]), r"no storage \[3\]"),
    (lambda: jaxfl.algorithm(3), "name = 3 .* be the name of an algorithm"),
    (
        lambda: compose("mine", "", "", federated(compressor=compressors.qsgd), plain(lr=0.1)),
        "of mine is a function",
    ),
    (lambda: jaxfl.register(3), "register takes the function"),
    (lambda: jaxfl.register(lambda: None), "write one with def"),
    (lambda: jaxfl.register(needs_rate), "needs_rate needs rate, and an algorithm is made by"),
    (lambda: jaxfl.register(cdp_sgd), "There is an algorithm 'cdp_sgd' already"),
    # names of parts
    (lambda: jaxfl.algorithm("ldp_sgd", sampler="poison"), "no sampler 'poison': did you .*"),
    (lambda: jaxfl.ALGORITHMS["scaffold"](compressor="idenity"), "did you mean 'identity'"),
    (lambda: jaxfl.ALGORITHMS["marina"](compressor="qsgd"), "compressor = 'qsgd' does not"),
    (lambda: jaxfl.algorithm("dp_dsgd", graph="rign"), "no graph 'rign': did you mean 'ring'"),
    (lambda: jaxfl.algorithm("ldp_sgd", server="adam"), "server = 'adam' .* must be a Server"),
    (lambda: jaxfl.account("ldp_sgd", sampler="poison", sigma=1.0), "did you mean 'poisson'"),
    (
        lambda: jaxfl.functions(jaxfl.algorithm("ldp_sgd"), a_problem(), 3, sampler="full"),
        "sampler = 'full' comes too late",
    ),
    (
        lambda: jaxfl.sweep("ldp_sgd", a_problem(), None, 3, participation=["unifrom"]),
        "did you mean 'uniform'",
    ),
    (lambda: jaxfl.algorithm("ldp_sgd", noise="fusd"), "one of fused, per_client: did you mean"),
)
def test_parts_and_algorithms_that_cannot_be(call: Any, words: str) -> None:
    refused(call, words)
    assert jaxfl.ALGORITHMS["cdp_sgd"] is jaxfl.algorithms.soteriafl.algorithms.cdp_sgd


def test_an_estimator_of_ones_own_in_soteriafls_framework(key: jax.Array) -> None:
    """Algorithm 2: step size, noise and claim are those of the constants that it declares."""
    usual = jaxfl.parts.estimators.minibatch(jaxfl.parts.sampling.poisson())._replace(name="mine")
    problem, given = a_problem(), {"eps": 2.0, "batch": 4, "omega": 1.0}

    def plan_of(assume: Any, noise: str = "paper") -> Any:
        algorithm = jaxfl.algorithm("soteriafl_sgd", estimator=usual._replace(assume=assume))
        return planned(algorithm, problem, 5, noise, **given)

    plan = plan_of(lambda s, v: theory.sgd(s, v["batch"]))
    v, facts = plan.values, plan.facts
    assert v["noise_constant"] == pytest.approx(12)
    assert plan.claim.eps == pytest.approx(2.0)
    theirs = planned("soteriafl_sgd", problem, 5, "paper", lr=v["lr"], **given).values
    assert v["sigma"] == pytest.approx(theirs["sigma"], rel=1e-12)
    sizes = facts.n, facts.m, facts.d, v["omega"], facts.smoothness
    s = theory.Setting(*sizes, v["clip"], 2.0, v["delta"])
    assert v["lr"] == theory.longest_step(s, theory.sgd(s, 4))
    assert plan.sources["lr"] == "Theorem 3"
    # two gradients of a record, as of SVRG: eight times the variance
    twice = plan_of(lambda s, v: theory.saga(s, v["batch"]))
    assert twice.values["sigma"] == pytest.approx(8**0.5 * v["sigma"])
    # of an estimator that declares nothing, nothing is claimed
    plan = plan_of(None, "calibrated")
    assert plan.sources["lr"] == "default: nothing is known of this estimator"
    assert plan.claim is None
    assert plan.eps(plan.values["delta"]) == pytest.approx(2.0, rel=1e-3)
    refused(lambda: plan_of(None), "none that gives sigma for eps = 2")
    parts = {"estimator": usual, "sampler": sampling.poisson()}
    words = "make the estimator with that sampler"
    refused(lambda: jaxfl.algorithm("soteriafl_sgd", **parts), words)


def test_coordinates_of_messages_that_are_coded_alone_are_counted() -> None:
    """By the cost, where no sparsifier selects them: QSGD reported none."""
    facts = ProblemFacts(5, 50, 50, 12, 7, 1.0)
    algorithm = jaxfl.algorithm("cdp_sgd", compressor="qsgd")
    cost = algorithm.cost(planned(algorithm, facts, sigma=0.1).values, facts)
    counts = {"clients": 35, "coordinates": 0, "gradients": 0, "clamped": 0}
    assert totals(cost, counts)["coordinates"] == 35 * 12


# --- parts by name -------------------------------------------------------------------------------

PART_NAMES: dict[str, tuple[str, Any]] = {
    "sampler": ("without_replacement", sampling.without_replacement()),
    "compressor": (
        "qsgd+random_k",
        compressors.compose(compressors.qsgd(), compressors.random_k()),
    ),
    "participation": ("uniform", sampling.uniform()),
    "aggregation": ("secure_sum", aggregations.secure_sum()),
}


@pytest.mark.parametrize("role", PART_NAMES)
def test_parts_by_name_are_those_of_the_name(role: str, key: jax.Array) -> None:
    """Wherever parts are taken, and the same algorithm, by which compiled rounds are found."""
    name, made = PART_NAMES[role]
    one = jaxfl.algorithm("ldp_sgd", **{role: name})
    assert dict(one.parts)[role] == made.name == name
    assert one is jaxfl.algorithm("ldp_sgd", **{role: part(role, name)})
    given: Any = {role: name, "sigma": 0.5, "batch": 4, "cohort": 2, "k": 3}
    given = {n: v for n, v in given.items() if n == role or n in one.names}
    assert jaxfl.functions("ldp_sgd", a_problem(), 3, **given).algorithm is one
    run = jaxfl.simulate("ldp_sgd", a_problem(), key, 3, **given)
    assert run.algorithm is one
    asked = {"samples": 20, "rounds": 3, "clip": 1.0, "delta": 1e-3, "clients": 5, "dimension": 5}
    assert jaxfl.account("ldp_sgd", **asked, **given)["eps"] > 0
    ds = jaxfl.sweep("ldp_sgd", a_problem(), key, 3, **{"lr": [0.1], **given})
    assert results.config(ds)["settings"]["parts"][role] == name
