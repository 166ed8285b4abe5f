"""What others need to know of a part is in its fields: none of its behaviour hangs on its name."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from planned import federated, planned
from rows import a_problem
from told import refusals, refused

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.core.types import Channel, Hyper, Local, Model, Param, Sampler, Server
from jaxfl.parts import (
    Federated,
    aggregations,
    channels,
    compose,
    compressors,
    estimators,
    local,
    mechanisms,
    sampling,
    servers,
)
from jaxfl.parts.compressors import top_k
from jaxfl.rounds import transcript

FACTS = jaxfl.core.types.ProblemFacts(5, 10, 12, 8, 6, 1.0, (10, 12))
NUMBERS = {"clip": 1.0, "sigma": 0.5, "lr": 0.1, "batch": 4, "k": 3, "shift": 0.3, "cohort": 2}


def renamed(part: Any) -> Any:
    """The same part under a name that nobody knows."""
    if hasattr(part, "sampler"):
        part = part._replace(sampler=renamed(part.sampler))
    return part._replace(name="own")


CARRY = Param("carry", "what is kept of the estimate before")  # of estimators with a recursion
BODIES: dict[str, dict[str, Any]] = {
    "fused": {},
    "full": {"estimator": estimators.minibatch(sampling.full())},
    "snapshots": {"estimator": estimators.svrg(sampling.poisson())},
    "table": {"estimator": estimators.saga(sampling.shuffled())},
    "one pass": {"estimator": estimators.minibatch(sampling.single_pass())},
    "sparse": {"compressor": compressors.bernoulli()},
    "shifted": {"channel": channels.shifted()},
    "shifted sparse": {"compressor": compressors.random_k(), "channel": channels.shifted()},
    "learned": {"channel": channels.learned()},
    "feedback": {"compressor": top_k(), "channel": channels.error_feedback()},
    "recursion": {"channel": channels.recursion()._replace(params=(CARRY,))},
    **{
        f"{name} clients": {"participation": part()}
        for name, part in sampling.PARTICIPATIONS.items()
    },
}
BODIES |= {
    f"{name}, summed": {**parts, "aggregation": aggregations.secure_sum()}
    for name, parts in BODIES.items()
}


def own(body: Federated, **more: float) -> jaxfl.parts.Algorithm:
    names = {p.name for owner in (*body[:6], body.estimator.sampler) for p in owner.params}
    numbers = {name: value for name, value in {**NUMBERS, **more}.items() if name in names}
    numbers |= {"refresh": 0.3} if "refresh" in names else {}
    numbers |= {"batch": 1} if body.estimator.sampler.single_pass else {}
    numbers |= {"range": 64.0} if body.aggregation and not body.channel.growth(0) else {}
    numbers |= {"dropout": 0.1, "threshold": 2} if "dropout" in names else {}
    return compose("own", "", "", body, jaxfl.parts.plain(**numbers, carry=0.5, omega=0.0))


@pytest.mark.parametrize("case", BODIES)
def test_a_part_under_another_name_behaves_alike(case):
    """The program of a round, what it releases and costs, and the range of a secure sum."""
    body, problem, key = federated(**BODIES[case]), a_problem(), jax.random.key(0)
    parts = {role: getattr(body, role) for role in (*body._fields[:6], "aggregation")}
    other = body._replace(**{role: part and renamed(part) for role, part in parts.items()})
    seen = []
    for one in (body, other):
        algorithm = own(one)
        plan = planned(algorithm, FACTS)
        values = plan.values
        hp = build(algorithm, values, FACTS, jnp.dtype(jnp.float32))
        state = jax.eval_shape(lambda p, a=algorithm, hp=hp: a.init(key, p, hp)[0], problem)
        rounds = jax.make_jaxpr(lambda s, p, a=algorithm, hp=hp: a.round(key, s, p, hp))
        how = one.fused, one.linear, one.regularizer_apart, one.packs, one.broadcasts
        how += (one.own == one.mechanism,)
        of = one, values, FACTS
        sums = transcript.noises(*of), transcript.turns(*of), transcript.message_bound(*of)
        event, cost = repr(plan.event).replace("own", ""), algorithm.cost(values, FACTS)
        program = re.sub("0x[0-9a-f]+", "", str(rounds(state, problem)))
        seen.append((how, sums, event, cost, values, hp.capacity, program))
    assert seen[0][:-1] == seen[1][:-1]
    assert seen[0][-1] == seen[1][-1]


def test_a_nonlinear_channel_is_not_fused(key):
    """Clients send signs: their mean is not the sign of the mean."""
    plain = channels.direct()
    sign = plain._replace(name="sign", before=lambda link, g: jnp.sign(g), linear=False)
    undeclared = Channel("own", plain.init, sign.before, plain.after, plain.receive)
    for channel in (sign, undeclared):
        body = federated(
            estimator=estimators.minibatch(sampling.full()),
            channel=channel,
            mechanism=mechanisms.noiseless(),
        )
        assert not body.fused
        problem = a_problem()
        f = jaxfl.functions(own(body, clip=1e6), problem, 1)
        seen = f.view(f.init(key))
        x = f.output(f.round(f.init(key))[0])
        step = np.sign(np.asarray(seen.estimates)).mean(0)
        np.testing.assert_allclose(problem.x0 - x, 0.1 * step, rtol=1e-5, atol=1e-7)
        assert np.abs(step).min() < 1  # clients disagree somewhere


def test_what_is_not_declared_is_not_claimed():
    """A sampler of one's own runs; nothing is proven of it before it says what it does."""
    bare = Sampler("own", sampling.full().draw, distinct=True)
    plans = [
        planned(own(federated(estimator=estimators.minibatch(one))), a_problem(), 3)
        for one in (sampling.full(), bare)
    ]
    ends = [plan.algorithm.output(*plan.states(3)) for plan in plans]
    np.testing.assert_allclose(*ends, rtol=1e-6)
    assert isinstance(plans[1].event, jaxfl.privacy.events.NoClaim)
    assert "scheme" in plans[1].event.reason
    refused(lambda: transcript.drawn(bare, NUMBERS, FACTS, 10), "scheme")
    other = own(federated(estimator=estimators.minibatch(bare._replace(scheme="chance"))))
    refused(lambda: jaxfl.functions(other, a_problem(), 3), "'own' = 'chance' must be one of full")

    clients = sampling.uniform()._replace(name="own", fixed_size=False)  # a cohort by chance
    body = federated(participation=clients, aggregation=aggregations.secure_sum())
    assert transcript.noises(body, {**NUMBERS, "rounds": 6}, FACTS) == 1
    body = body._replace(participation=sampling.uniform())
    assert transcript.noises(body, {**NUMBERS, "rounds": 6}, FACTS) == 2


def small() -> jaxfl.Problem:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 6, 3)).astype(np.float32), rng.integers(0, 2, (3, 6))
    return jaxfl.Problem(jaxfl.models.mlp(3, 2, hidden=(4,)), data)


def by_leaf(rate: float, model: Model) -> Server:
    """Momentum; matrices step with lr, vectors with ``rate`` times lr."""

    def make(hp: Any) -> optax.GradientTransformation:
        labels = lambda tree: jax.tree.map(lambda a: "wb"[a.ndim == 1], tree)  # noqa: E731
        steps = {"w": optax.sgd(hp["lr"], 0.9), "b": optax.sgd(rate * hp["lr"], 0.9)}
        return optax.multi_transform(steps, labels)

    return servers.optimizer(make, name="by leaf", model=model)


@pytest.mark.full
def test_a_server_steps_leaf_by_leaf(key):
    """As a loop in NumPy does; resumed equals uninterrupted."""
    problem, rate = small(), 0.3
    algorithm = jaxfl.algorithm("fedgd", server=by_leaf(rate, problem.model))
    run = jaxfl.simulate(algorithm, problem, key, 4, lr=0.5)
    leaves = jax.tree.leaves(run.params)
    scale = np.concatenate([np.full(a.size, 1.0 if a.ndim == 2 else rate) for a in leaves])

    def f(x: Any) -> Any:
        each = jax.vmap(jax.vmap(problem.model.loss, (None, 0)), (None, 0))
        return each(x, problem.train).mean()

    x = np.asarray(jaxfl.simulate(algorithm, problem, key, 1, lr=1e-30).x)
    m = np.zeros_like(x)
    for _ in range(4):
        m = 0.9 * m + np.asarray(jax.grad(f)(x))
        x = x - 0.5 * scale * m
    np.testing.assert_allclose(run.x, x, rtol=2e-5, atol=1e-6)
    half = jaxfl.simulate(algorithm, problem, key, 2, lr=0.5).extend(4)
    assert (half.x == run.x).all()


@pytest.mark.full  # compiles two runs
def test_clients_step_leaf_by_leaf(key):
    """A mask leaves vectors as they were; matrices step as by SGD."""

    def make(hp: Any) -> optax.GradientTransformation:
        vectors = lambda tree: jax.tree.map(lambda a: a.ndim == 1, tree)  # noqa: E731
        return optax.chain(optax.sgd(hp["lr"]), optax.masked(optax.set_to_zero(), vectors))

    problem, ends = small(), []
    for algorithm in (jaxfl.algorithm("fedavg", optimizer=make), jaxfl.algorithm("fedavg")):
        plan = planned(algorithm, problem, 1, local_steps=1, batch=6, lr=0.3)
        ends += [problem.model.unravel(algorithm.output(state)) for state in plan.states(0, 1)]
    for before, now, _, sgd in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(now, before if now.ndim == 1 else sgd, rtol=1e-5, atol=1e-7)
        assert (now == sgd).all() == (now.ndim == 2)


def with_parts(**parts: Any) -> Any:
    return jaxfl.algorithm("ldp_sgd", **parts)


@pytest.mark.parametrize("clip", ["batch", "client"])
@pytest.mark.parametrize("estimator", [estimators.minibatch, estimators.svrg])
def test_estimates_are_clipped_once(clip, estimator):
    def made(one):
        body = federated(clip=clip, estimator=one)
        return compose("mine", "", "", body, jaxfl.parts.plain(clip=1.0))

    words = f"clip = '{clip}' does not apply to mine, whose .* already: give it clip_examples=False"
    refused(lambda: made(estimator(sampling.poisson())), words)
    assert made(estimator(sampling.poisson(), clip_examples=False)).body.clip == clip


def test_noised_estimates_are_clipped_somewhere():
    """By the estimator, the round, local steps, or a channel of one's own; or there is no noise."""
    loose = estimators.minibatch(sampling.poisson(), clip_examples=False)

    def made(**parts):
        return compose(
            "mine", "", "", federated(estimator=loose, **parts), jaxfl.parts.plain(clip=1.0)
        )

    words = "clip = 'example' does not apply to mine, whose estimator 'minibatch' clips no example"
    refused(made, words)
    refused(lambda: made(mechanism=mechanisms.central()), words)
    shorter = channels.direct()._replace(before=lambda link, g: g / (1 + jnp.linalg.norm(g)))
    right = {"clip": "client"}, {"channel": shorter}, {"mechanism": mechanisms.noiseless()}
    assert all(made(**parts).name == "mine" for parts in right)
    assert jaxfl.algorithm("clip21_sgd2m").body.estimator.clips is False


VOTES = compressors.identity()._replace(
    omega=None,
    name="votes",
    code=lambda key, v, hp: jnp.sign(v),
    unbiased=False,
    bits=lambda d, v: (d, 0.0),
)


def of_votes(server: Server, wanted: bool = True) -> jaxfl.parts.Algorithm:
    body = federated(
        estimator=estimators.minibatch(sampling.full()),
        mechanism=mechanisms.noiseless(),
        compressor=VOTES,
        channel=channels.direct()._replace(corrects=wanted),
        server=server,
    )
    return own(body, clip=1e6)


def test_a_biased_compressor_needs_messages_that_correct_it():
    """Also in a composition of the user's own, unless a channel says that the method wants the bias."""
    refused(
        lambda: of_votes(servers.majority(), False),
        "compressor = 'votes' of own is biased, or does not declare unbiased=True",
    )
    body = of_votes(servers.majority()).body._replace(channel=channels.direct())
    own(OwnRound(*body), clip=1e6)  # which may correct it itself


def test_local_steps_of_ones_own_ask_for_what_they_read(key):
    """They may clip themselves; jaxfl's steps read what the estimator declares."""

    def run(client, x, shared, memory, problem, hp):
        return hp["radius"] * jnp.ones_like(x), memory, jnp.int32(0)

    radius = Param("radius", "length of what a client reports")
    nothing = lambda problem, x: ((), ())  # noqa: E731
    mine = Local("mine", nothing, run, lambda values: None, params=(radius,))
    full, none = estimators.minibatch(sampling.full()), mechanisms.noiseless()
    numbers = jaxfl.parts.plain(radius=0.5, lr=0.1, local_steps=2)
    steps = local.steps(full, none, local.free(), lambda hp: optax.sgd(hp["lr"]))
    for one in (mine, steps):
        body = federated(estimator=full, mechanism=none, local=one)
        made = compose("own", "", "", body, numbers)
        assert ("clip" in made.needs) == (one is steps)
        if one is mine:
            x = jaxfl.simulate(made, a_problem(), key, 1).x
            np.testing.assert_allclose(a_problem().x0 - x, 0.05, rtol=1e-5)
        else:
            refused(lambda: jaxfl.simulate(made, a_problem(), key, 1), "own needs clip")


class OwnRound(jaxfl.parts.Plain):
    """A round of the user's own."""


@pytest.mark.parametrize("whose", ["code", "bits", "round"])
def test_bits_that_nobody_checked_are_marked(whose):
    """Of a compressor or a round of one's own; jaxfl's are counted by tests."""
    qsgd, kind = compressors.compressor("qsgd+random_k"), Federated
    assert "bits" not in dict(own(federated(compressor=qsgd), levels=4).parts)
    if whose == "round":
        kind = OwnRound
    else:
        qsgd = qsgd._replace(**{whose: functools.partial(getattr(qsgd, whose))})
    made = own(kind(*federated(compressor=qsgd)), levels=4)
    said = "as 'qsgd+random_k' declares, unchecked"
    assert dict(made.parts)["bits"] == said
    if whose == "code":
        ds = jaxfl.sweep([made, "cdp_sgd"], a_problem(), rounds=1, sigma=1.0, batch=2, lr=0.1)
        assert jaxfl.views.table(ds).notes[-1] == f"Uplink of own: {said}."


def test_a_majority_of_averages_takes_their_signs():
    """m <- beta m + (1 - beta) v with ties as v = 0; beta = 0 is the majority of each round."""
    votes = jnp.array([[0.5, -0.5, 1e-8], [-0.2, -0.5, -0.1], [-0.6, 1e-8, 0.3]])

    def path(server, **numbers):
        hp = Hyper({"lr": jnp.float32(1), **{n: jnp.float32(v) for n, v in numbers.items()}})
        state, points = server.init(jnp.zeros(3), hp), []
        for v in votes:
            state = server.step(jax.random.key(0), state, v, None, hp)
            points.append(server.output(state))
        return np.diff(np.stack(points), axis=0, prepend=0)

    averages = path(servers.majority(momentum=True), beta=0.5)
    np.testing.assert_array_equal(averages, [[-1, 1, 0], [-1, 1, 1], [1, 1, -1]])
    alone = path(servers.majority(momentum=True), beta=0.0)
    np.testing.assert_array_equal(alone, path(servers.majority()))


def test_a_tie_of_votes_moves_nothing(key):
    """Six clients' votes of one bit: rounding of their mean decides nothing."""
    problem, moved = a_problem(n=6, d=40), []
    for server in (servers.majority(), servers.optimizer(lambda hp: optax.sign_sgd(hp["lr"]))):
        f = jaxfl.functions(of_votes(server), problem, 1)
        votes = np.asarray(f.view(f.init(key)).messages).sum(0)
        moved.append(np.asarray(f.output(f.init(key)) - f.output(f.round(f.init(key))[0])))
    np.testing.assert_allclose(moved[0], 0.1 * np.sign(votes), atol=1e-6)
    assert moved[1][votes == 0].any()  # where rounding decides some


CALLS_TWO = jaxfl.parts.Participation(
    "two", draw=lambda key, t, n, hp: jaxfl.parts.Draw(jnp.arange(2), jnp.ones(2) / 2)
)
test_fields_of_another_kind_are_refused = refusals(
    (
        lambda: with_parts(server=servers.descent()._replace(params=("lr",))),
        "must be a tuple of Param",
    ),
    (
        lambda: with_parts(server=servers.descent()._replace(params=CARRY)),
        "must be a tuple of Param",
    ),
    (
        lambda: with_parts(server=servers.descent()._replace(step=3)),
        "step = 3 of the server 'descent'",
    ),
    (lambda: with_parts(server=servers.descent()._replace(view=None)), "view = None of the server"),
    (
        lambda: planned(
            with_parts(participation=CALLS_TWO), a_problem(), 2, eps=2.0, batch=4, clip=1.0
        ),
        "'two' does not say how many clients it calls: declare a Param called 'cohort'",
    ),
)
