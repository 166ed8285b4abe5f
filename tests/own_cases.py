"""The table of compositions: what breaks a proof, what only looks as if it did, and what does not."""

import collections
import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import optax
from own import (
    BATCH,
    COHORT,
    FEATURES,
    NUMBERS,
    ONE,
    SIGMA,
    Alike,
    Case,
    Composed,
    body,
    calls_all,
    changed,
    coins,
    composition,
    data,
    exchanged,
    louder,
    network,
    own,
    plan,
    problem_of,
    quiet,
    raw_mean,
    reads_otherwise,
    registered,
    server_of_ones_own,
    signed_step,
    the_first_k,
    two_levels,
    usual,
    with_terms,
)

import jaxfl
from jaxfl.algorithms.composition import by_messages
from jaxfl.algorithms.hu.algorithms import PaperRules
from jaxfl.core.types import (
    Aggregation,
    Channel,
    Compressor,
    Estimator,
    Gradient,
    Mechanism,
    Memory,
    Param,
    Participation,
    Remembered,
    Sampler,
)
from jaxfl.parts import (
    Federated,
    Gossip,
    aggregations,
    channels,
    compose,
    compressors,
    estimators,
    graphs,
    local,
    localization,
    mechanisms,
    plain,
    sampling,
    servers,
    smoothing,
)
from jaxfl.parts.graphs import Graph
from jaxfl.parts.mechanisms import noiseless
from jaxfl.privacy.events import Event, Mean, Sampling
from jaxfl.problems.public import Constraint, Regularizer
from jaxfl.rounds import gossip

# What a report is expected to say, and the role that it names: by name, a function that makes the
# composition, a part in that role, or (the algorithm, what is exchanged, numbers). What is exchanged
# is a part, a model, or several parts by their roles; without an algorithm, in noised descent.
ROWS: dict[tuple[str, str], dict[str, Any]] = collections.defaultdict(dict)

# jaxfl's parts, of which fields are replaced
noise, central = mechanisms.gaussian()._replace, mechanisms.central()._replace
direct, shifted = channels.direct()._replace, channels.shifted()._replace
random_k, plain_sum = compressors.random_k()._replace, aggregations.plain_sum()._replace
poisson, uniform = sampling.poisson()._replace, sampling.uniform()._replace
batch, svrg, saga = (
    make(sampling.poisson())._replace
    for make in (estimators.minibatch, estimators.svrg, estimators.saga)
)
LINEAR = jaxfl.models.logistic(FEATURES)
HEAVY = louder(sampling.poisson().draw)
MINE = Mechanism("mine", lambda hp: hp["sigma"], (SIGMA,))
SECURE = aggregations.secure_sum()
ADAM = lambda hp: optax.adam(hp["lr"])  # noqa: E731
SHORT = {"local_steps": 5, "server_lr": 1.0}


# --- mechanisms ----------------------------------------------------------------------------------


def looks_like(ours: Any) -> Any:
    """Its module and its names are those of jaxfl's own."""

    def std(hp: Any) -> Any:
        return quiet(hp)

    std.__module__, std.__qualname__, std.__name__ = ours.__module__, ours.__qualname__, "<lambda>"
    return std


class Noise:
    def std(self, hp: Any) -> Any:
        return quiet(hp)


GAUSSIAN = mechanisms.gaussian().std
# the event reads the std that rounds read
ROWS["proven", "mechanism"] |= {
    "a hundredth of the noise": noise(std=quiet),
    "a mechanism from scratch": MINE,
    "a server's noise at the client": central(
        central=False, params=mechanisms.gaussian().params, std=quiet
    ),
    "a registered algorithm with a quiet part": lambda: Composed(
        registered("algorithm", "quiet_descent", lambda: own(mechanism=MINE._replace(std=quiet)))
    ),
    "its name is that of jaxfl's": noise(std=looks_like(GAUSSIAN)),
    "functools.wraps": noise(std=functools.wraps(GAUSSIAN)(lambda hp: quiet(hp))),
    "a method of an object": noise(std=Noise().std),
    "a function that equals jaxfl's": noise(std=Alike(GAUSSIAN, quiet)),
    "noise that another event reads": lambda: composition(
        body(mechanism=localization.noised(mechanisms.gaussian())),
        plan(noise_t=0.01),
        reads=("noise_t",),
    ),
    "a quiet network": lambda: network(mechanism=noise(std=quiet)),
}
ROWS["refused", "mechanism"]["a channel in the place of a mechanism"] = channels.direct()
ROWS["refused", "mechanism"] |= {
    "no noise at all": noise(std=lambda hp: 0 * hp["sigma"]),
    "not in proportion to sigma": noise(std=lambda hp: 1 + hp["sigma"]),
}
SILENT = noise(draw=lambda key, std, like: 0 * like)
ROWS["refuted", "mechanism"] |= {
    "a draw of one's own": SILENT,
    "no noise in a sum": {"mechanism": SILENT, "aggregation": SECURE},
}
ROWS["unproven", "mechanism"]["client's noise declared as a server's"] = noise(central=True)
ROWS["unproven", "noise"]["an unknown word"] = lambda: own(body(noise="none"))


# --- channels ------------------------------------------------------------------------------------


def longer(link: Any, g: Any) -> Any:
    return 100 * g


OWN_CHANNEL = Channel(
    "mine",
    init=lambda n, x, fused: ((), ()),
    before=lambda link, g: 3 * g,
    after=lambda link, message, hp: link,
    receive=lambda link, mean, rate, hp, moved: (mean, link),
)
ROWS["refuted", "channel"] |= {
    "messages 100 times as long": direct(before=longer),
    "longer messages in a sum": {"channel": direct(before=longer), "aggregation": SECURE},
    "a memory denied under a sum": {
        "channel": shifted(remembers=False),
        "aggregation": SECURE,
        "participation": sampling.uniform(),
    },
}
ROWS["probed", "channel"]["own linearity"] = direct(linear=False)
ROWS["no claim", "channel"]["a channel from scratch"] = OWN_CHANNEL
ROWS["probed", "channel"]["`before` adds what another channel keeps"] = shifted(
    before=channels.error_feedback().before
)


# --- compressors ---------------------------------------------------------------------------------

TWICE = random_k(select=the_first_k)
OWN_SPARSIFIER = Compressor(
    "mine",
    omega=lambda d, values: d / values["k"] - 1,
    bits=lambda d, values: (0.0, 32.0),
    select=the_first_k,
    resolve=lambda given, d: {"k": given.get("k", 3)},
    capacity=lambda values, facts: {"k": int(values["k"])},
    params=(Param("k", "coordinates", low=1, integer=True),),
    unbiased=True,
)
MORE_SLOTS = random_k(
    resolve=lambda given, d: {"k": 400},
    capacity=lambda values, facts: {"k": 400},
    code=lambda key, v, hp: jnp.zeros_like(v).at[0].set(v.mean()),
    omega=lambda d, values: 0.0,
)


def repeated(ours: Compressor) -> Any:
    """The same coordinates always."""
    return lambda key, d, hp: ours.select(jax.random.key(0), 1, hp)


def equal_compressor() -> Any:
    ours = random_k(name="equal")
    false = ours._replace(select=Alike(ours.select, repeated(ours)))
    made = compressors.compose(compressors.qsgd(), false)
    return Composed(jaxfl.algorithm("cdp_sgd", compressor=made), {"k": 2})


def holds_data() -> Any:
    mean = jnp.asarray(np.asarray(data().train[0])[0].mean(0))
    code = lambda key, v, hp: v + 0 * hp["lr"] + mean  # noqa: E731
    return jaxfl.algorithm("cdp_sgd", compressor=two_levels(name="mine", code=code))


def coded(**fields: Any) -> Compressor:
    return two_levels(name="mine", **fields)


ROWS["refuted", "compressor"] |= {
    "a coordinate twice": ("cdp_sgd", TWICE, {"k": 2}),
    "jaxfl's code after repeats": lambda: Composed(
        jaxfl.algorithm(
            "cdp_sgd",
            compressor=compressors.compose(compressors.qsgd(), TWICE._replace(name="mine")),
        ),
        {"k": 2},
    ),
    "repeats on a network": ("sdm_dsgd", random_k(select=the_first_k, unbiased=True), {"k": 2}),
}
ROWS["no claim", "compressor"] |= {
    "a sparsifier from scratch": ("soteriafl_sgd", OWN_SPARSIFIER),
    "a code under a server's noise": lambda: exchanged(
        jaxfl.algorithm("dp_sgd"), compressor=two_levels()
    ),
}
ROWS["refused", "compressor"] |= {
    "slots past the end": ("cdp_sgd", MORE_SLOTS),
    "capacity of a batch": ("cdp_sgd", coded(capacity=lambda values, facts: {"batch": 1})),
    "turns by `resolve`": ("cdp_sgd", coded(resolve=lambda given, d: {"turns": 1})),
}
ROWS["probed", "compressor"]["an equal argument"] = equal_compressor
ROWS["open", "code"]["closes over the records"] = holds_data


# --- estimators ----------------------------------------------------------------------------------


def large(w: Any, F: Any, batch: Any) -> Any:
    return 100 * LINEAR.kernel.contract(w, F, batch)


OWN_ESTIMATOR = Estimator(
    "mine",
    sampling.poisson(),
    Gradient(with_terms(ONE)),
    params=estimators.minibatch(sampling.poisson()).params,
    points=1,
    sensitivity=lambda values: Mean(values["clip"]),
)
LOUD = Gradient(with_terms(ONE._replace(scale=100.0)))
LOOSE = estimators.minibatch(sampling.poisson(), clip_examples=False)
ROWS["probed", "estimator"] |= {
    "an estimator from scratch": ("soteriafl_sgd", OWN_ESTIMATOR, {"k": 2}),
    "fewer points declared": batch(points=0),
}
ROWS["refuted", "estimator"]["scaled terms of a network"] = lambda: network(
    estimator=batch(gradient=LOUD)
)
ROWS["refused", "estimator"]["terms that grow with the model"] = batch(
    gradient=Gradient(
        lambda shared, x, hp: (
            ONE._replace(points=(x,), scale=1 + jnp.linalg.norm(x), bound=hp["clip"]),
        )
    ),
    sensitivity=None,
)
ROWS["no claim", "estimator"] |= {
    "a lower sigma": batch(pace=lambda key, t, hp: {"sigma": quiet(hp)}),
    "raw data in what is public": batch(
        gradient=batch().gradient._replace(public=lambda shared, slope, x, hp: slope(x) + shared),
        memory=Memory(
            lambda problem, x, hp, pooled, storage: Remembered(shared=raw_mean(problem).mean(0))
        ),
    ),
    "svrg as a minibatch": ("", svrg(sensitivity=batch().sensitivity), {"refresh": 0.5}),
}
ROWS["no claim", "sampler|estimator"]["saga with another sampler"] = {
    "estimator": saga(sampler=sampling.with_replacement())
}
ROWS["unproven", "estimator"]["clipping left to the round"] = LOOSE._replace(
    sensitivity=batch().sensitivity
)
ROWS["proven", "clip"]["a bound that nobody declares"] = lambda: composition(
    body(estimator=LOOSE, clip="batch"), plan(gradient_bound=0.01)
)


# --- samplers ------------------------------------------------------------------------------------


def same_round(draw: Any, key: Any, t: Any, *rest: Any) -> Any:
    return draw(key, 0 * t, *rest)


def alike(name: str) -> tuple[Sampler, Sampler]:
    """jaxfl's sampler under a name that no other case has, and another that equals it."""
    ours = poisson(name=name)
    return ours, ours._replace(draw=Alike(ours.draw, louder(ours.draw)))


def after_an_equal_one() -> Any:
    ours, other = alike("second")
    estimators.minibatch(other)
    made = estimators.minibatch(ours)
    assert made.sampler.draw is ours.draw, "the constructor's cache returned the other part"
    return own(estimator=made)


def after_jaxfls() -> Any:
    ours, other = alike("third")
    own(estimator=estimators.minibatch(ours))
    return own(estimator=estimators.minibatch(ours)._replace(sampler=other))


def algorithm_after_an_equal_one() -> Any:
    ours, other = alike("fourth")
    jaxfl.algorithm("ldp_sgd", sampler=other)
    made = jaxfl.algorithm("ldp_sgd", sampler=ours)
    assert made.body.estimator.sampler.draw is ours.draw, "the cache returned the other algorithm"
    return made


def in_disguise() -> Any:
    sampling.SAMPLERS["in_disguise"] = lambda: poisson(draw=HEAVY)
    try:
        return jaxfl.algorithm("ldp_sgd", sampler="in_disguise")
    finally:
        del sampling.SAMPLERS["in_disguise"]


def smoothed() -> Any:
    smooth = smoothing.moreau(estimators.minibatch(poisson(name="mine", draw=HEAVY)))
    return composition(body(estimator=smooth), plan(moreau=1.0))


class OtherSampler(NamedTuple):
    """A tuple of another type, whose fields have other names: it equals jaxfl's, as tuples do."""

    name: str
    first: Any
    distinct: bool
    params: Any
    capacity: Any
    scheme: str
    strips: bool

    whole = padded = fresh = epochs = single_pass = False
    draw = property(lambda self: HEAVY)


MUCH = poisson(name="much", draw=HEAVY)
COINS = Sampler("coins", coins, distinct=True, params=(BATCH,), scheme="poisson")
ROWS["refuted", "sampler"] |= {
    "another scheme": ("ldp_sgd", poisson(scheme="shuffled", strips=False)),
    "a draw of another sampler": (
        "ldp_sgd",
        sampling.without_replacement()._replace(draw=sampling.with_replacement().draw),
    ),
    "wrapped by jaxfl's constructor": lambda: own(
        estimator=estimators.minibatch(poisson(name="mine", draw=HEAVY))
    ),
    "wrapped twice": smoothed,
    "a partial of jaxfl's draw": (
        "ldp_sgd",
        poisson(draw=functools.partial(same_round, sampling.poisson().draw)),
    ),
    "heavy rows of a network": ("dp_dsgd", poisson(draw=HEAVY)),
    "heavy rows in a sum": {"estimator": estimators.minibatch(MUCH), "aggregation": SECURE},
    "heavy rows before a server's noise": ("dp_sgd", MUCH),
    "heavy rows of local steps": ("private_local_sgd", MUCH, SHORT),
}
ROWS["probed", "sampler|coins"] |= {
    "from scratch, and right": ("cdp_sgd", COINS),
    "of local steps": ("private_local_sgd", COINS, SHORT),
    "exchanged in a deep copy": lambda: own(
        estimator=copy.deepcopy(batch())._replace(sampler=COINS)
    ),
}
ROWS["no claim", "sampler"]["a phase that no event knows"] = lambda: composition(
    body(estimator=estimators.minibatch(localization.phased(sampling.poisson()))),
    plan(level_t=1, batch_t=4.0),
    reads=("level_t", "batch_t"),
)
ROWS["refused", "sampler"]["no scheme"] = ("cdp_sgd", COINS._replace(scheme=None))
ROWS["unproven", "sampler"] |= {
    "an equal one before jaxfl's": lambda: own(estimator=estimators.minibatch(alike("first")[1])),
    "an equal one after jaxfl's": after_jaxfls,
    "a tuple of another type": lambda: own(
        estimator=estimators.minibatch(sampling.full())._replace(
            sampler=OtherSampler(*poisson(strips=False))
        )
    ),
}
ROWS["proven", "sampler"]["jaxfl's after an equal one"] = after_an_equal_one
ROWS["proven", "algorithm"]["an algorithm by name after an equal one"] = (
    algorithm_after_an_equal_one
)
ROWS["unproven", "registry"]["a part that takes jaxfl's name"] = in_disguise


# --- participations and aggregations -------------------------------------------------------------


def protect(key: Any, t: Any, me: Any, cohort: Any, v: Any, hp: Any) -> Any:
    return 100 * v, jnp.int32(0)


TWO = {"cohort": 2}
HEAVY_CLIENTS = uniform(draw=louder(sampling.uniform().draw))
CALLED = Participation("all_called", calls_all, params=(COHORT,), scheme="poisson")
SHOWN_SUM = Aggregation(
    "shown_sum",
    protect=protect,
    recover=lambda total, like, hp: total,
    settle=lambda *_: {},
    bits=32,
)
ROWS["refuted", "participation"] |= {
    "heavy clients": ("dp_sgd", HEAVY_CLIENTS, TWO),
    "everyone in place of some": (
        "dp_fedavg",
        sampling.poisson_clients()._replace(draw=calls_all),
        TWO,
    ),
}
# its weights are those of the clients that answer
ROWS["probed", "participation"]["wrapped by `unreliable`"] = (
    "dp_sgd",
    sampling.unreliable(HEAVY_CLIENTS._replace(name="mine")),
    {"cohort": 2, "dropout": 0.1, "threshold": 1},
)
ROWS["refuted", "participation"]["everyone declared as chance"] = (
    "dp_fedavg",
    sampling.poisson_clients()._replace(draw=sampling.everyone().draw),
    TWO,
)
ROWS["unproven", "participation"]["turns on a network"] = lambda: Composed(
    network(participation=sampling.balanced()), {"cohort": 1}
)
ROWS["no claim", "aggregation"]["a plain sum that hides"] = plain_sum(hides=True, plain=False)
ROWS["refuted", "aggregation"]["longer words for a trusted server"] = (
    "dp_fedavg",
    plain_sum(name="mine", protect=protect, plain=False),
)
ROWS["unproven", "aggregation"]["a plain sum hidden as a secure one"] = SECURE._replace(
    protect=plain_sum().protect, recover=plain_sum().recover
)


# --- servers and hyper-parameters ----------------------------------------------------------------


def declares(param: Param, **fields: Any) -> Any:
    """jaxfl's descent, which declares this hyper-parameter too."""
    return servers.descent()._replace(name="mine", params=(servers.LR, param), **fields)


def one_round(given: Any, facts: Any) -> Any:
    return plan()(given, facts._replace(rounds=1))


def not_read() -> Any:
    algorithm = own()
    whole = (p._replace(integer=p.name == "sigma") for p in algorithm.params)
    return algorithm._replace(params=tuple(whole))


def taken_away() -> Any:
    algorithm = jaxfl.algorithm("ldp_sgd", clip="batch")
    read = tuple(name for name in algorithm.reads or () if name != "gradient_bound")
    return Composed(algorithm._replace(reads=read), {"gradient_bound": 0.01})


WHOLE_SIGMA = SIGMA._replace(integer=True)
RULE = gossip.averaging()
ROWS["refused", "server"] |= {
    "rounds read a whole sigma, 0": declares(WHOLE_SIGMA),
    "rounds read another clip than the event": declares(
        Param("clip", "bound", open_low=True, integer=True)
    ),
    "a number named turns": (
        "",
        declares(Param("turns", "steps of the server", low=1, integer=True)),
        {"turns": 1},
    ),
}
ROWS["probed", "server"]["a step of a trusted server"] = (
    "dp_sgd",
    servers.descent()._replace(step=signed_step),
)
ROWS["refused", "rule"]["a whole sigma on a network"] = lambda: network(
    rule=RULE._replace(params=(*RULE.params, WHOLE_SIGMA))
)
ROWS["unproven", "params"]["the algorithm's own list"] = lambda: composition(params=[WHOLE_SIGMA])
ROWS["unproven", "plan"] |= {
    "a plan sets the turns": lambda: composition(numbers=plan(turns=1)),
    "fewer than none collude": lambda: composition(body(aggregation=SECURE), plan(colluding=-1000)),
}
ROWS["unproven", "reads"] |= {
    "whole numbers of a replaced list": not_read,
    "a bound that rounds no longer read": taken_away,
}
ROWS["refused", "plan"]["noise for fewer rounds"] = lambda: composition(numbers=one_round)


# --- bodies and algorithms -----------------------------------------------------------------------


class Silent(Federated):
    """A body whose clients add no noise."""

    own = property(lambda self: noiseless())


class Leaky(Federated):
    """A body whose rounds begin with less noise."""

    def begin(self, key: Any, state: Any, problem: Any, hp: Any) -> Any:
        return super().begin(key, state, problem, changed(hp, sigma=quiet(hp)))


class LeakyGossip(Gossip):
    def round(self, key: Any, state: Any, problem: Any, hp: Any) -> Any:
        return super().round(key, state, problem, changed(hp, sigma=quiet(hp)))


def lowered(made: Any) -> Any:
    """A body whose instance has an attribute that is found before the method of its class."""
    made.begin = lambda key, state, problem, hp: type(made).begin(
        made, key, state, problem, changed(hp, sigma=quiet(hp))
    )
    return made


def after_composing() -> Any:
    algorithm = own(body())
    lowered(algorithm.body)
    return algorithm


def shared_body() -> Any:
    """Equal calls share it: of an algorithm that no other case makes."""
    algorithm = jaxfl.algorithm("ldp_sgd", noise="per_client", participation="balanced")
    lowered(algorithm.body)
    return Composed(algorithm, TWO)


def with_data(state: Any, problem: Any) -> Any:
    """The model is the mean of the first client's features."""
    x, *memory = state.server
    return state._replace(server=(x + raw_mean(problem)[0], *memory))


def shows_data(key: Any, state: Any, problem: Any, hp: Any) -> Any:
    state, info = own().round(key, state, problem, hp)
    return with_data(state, problem), info


def starts_with_data() -> Any:
    algorithm = jaxfl.algorithm("ldp_sgd")

    def init(key: Any, problem: Any, hp: Any) -> Any:
        state, info = algorithm.init(key, problem, hp)
        return with_data(state, problem), info

    return algorithm._replace(init=init)


def ends_with_data() -> Any:
    algorithm = jaxfl.algorithm("ldp_sgd")
    mean = np.asarray(data().train[0])[0].mean(0)
    return algorithm._replace(output=lambda state: algorithm.output(state) + mean)


QUIET_BODY = body(mechanism=noise(std=quiet))
WORDS = "body|round|begin|Silent|Leaky"
ROWS["no claim", WORDS] |= {
    "a subclass overrides a property": lambda: own(Silent(*body())),
    "a subclass overrides a method": lambda: own(Leaky(*body())),
    "of a network": lambda: own(LeakyGossip(*network().body)),
    "an attribute hides a method": lambda: own(lowered(body())),
    "an attribute after composing": after_composing,
}
ROWS["no claim", "body|begin"]["an attribute on a shared body"] = shared_body
ROWS["no claim", "round|body"] |= {
    "bound to another body": lambda: own()._replace(
        round=functools.partial(Federated.round, QUIET_BODY)
    ),
    "the round of a silent body": lambda: own()._replace(
        round=own(mechanism=noise(std=None)).body.round
    ),
}
ROWS["no claim", "algorithm|round"]["a subclass of an algorithm"] = lambda: reads_otherwise(
    jaxfl.parts.Algorithm, "round", QUIET_BODY.round
)(*own())
ROWS["no claim", "round"]["a round of one's own"] = lambda: own()._replace(round=shows_data)
ROWS["no claim", "init"]["a start that reads the data"] = starts_with_data
ROWS["no claim", "capacity"]["rows dropped"] = lambda: jaxfl.algorithm("ldp_sgd")._replace(
    capacity=lambda values, facts: {"batch": 1, "mean_batch": 1}
)
ROWS["unproven", "output"]["an output that holds data"] = ends_with_data
ROWS["unproven", "body"] |= {
    "another body below the round": lambda: own(QUIET_BODY)._replace(
        body=own().body, event=own().event
    ),
    "a body that clips batches": lambda: exchanged(own(), clip="batch"),
}
ROWS["unproven", "clip"]["an unknown word in a body"] = lambda: exchanged(
    jaxfl.algorithm("soteriafl_sgd"), clip="none"
)


# --- events, local steps, calibration ------------------------------------------------------------


def understated(values: Any, facts: Any) -> Any:
    """Noise and rounds are those of no round."""
    return Event(Sampling("full", 1000, 1000), Mean(1e-3), float(values["sigma"]), 1)


def local_body() -> Any:
    return jaxfl.algorithm("private_local_sgd").body


def pulled() -> Any:
    """A term of the local gradients that the event of jaxfl's steps knows nothing of."""
    pull = local.free()._replace(name="mine", at=lambda x, theta, *_: 100 * (theta - x))
    made = local_body()
    steps = local.steps(made.estimator, made.mechanism, pull)
    return exchanged(jaxfl.algorithm("private_local_sgd"), local=steps)


def finish(name: str, value: Callable[[float], float]) -> Any:
    """An algorithm that sets a number after calibration, by the sigma of the draft."""

    def set_it(draft: Any, noise: Any, facts: Any) -> None:
        draft.set(name, value(draft["sigma"]), draft.sources["sigma"])

    return composition(finish=set_it)


def rules_for_another_body() -> Any:
    rules = PaperRules(local_body(), once=False, fresh=False, convex=True, plain=True)
    return composition(numbers=plan(lr=0.01, local_steps=5), event=rules.event)


def whole_batches(values: Any, facts: Any) -> Any:
    """The event of all records in every round."""
    rows = Sampling("full", facts.m, facts.m)
    return Event(rows, Mean(values["clip"]), float(values["sigma"]), int(values["rounds"]))


ROWS["stated", "event"]["a true one"] = lambda: own(
    estimator=estimators.minibatch(sampling.full()), event=whole_batches
)
ROWS["refuted", "event"] |= {
    "an understated event": lambda: own(event=understated),
    "an event of local steps": lambda: composition(
        local_body()._replace(aggregation=None), plan(**SHORT), event=understated
    ),
}
ROWS["unproven", "event"] |= {
    "the event of another body": lambda: composition(
        body(estimator=estimators.minibatch(sampling.full())),
        plan(batch=1),
        [BATCH],
        event=own().event,
    ),
    "jaxfl's but for its event": lambda: jaxfl.algorithm("ldp_sgd")._replace(event=understated),
    "rules for another body": rules_for_another_body,
}
ROWS["refused", "local"]["local steps without an event"] = lambda: composition(
    local_body(), plan(**SHORT)
)
ROWS["unproven", "local"]["a pull of one's own"] = pulled
ROWS["no claim", "local|optimizer"] |= {
    "clients' own optimizer": ("local_dp_sgd", {"optimizer": ADAM}),
    "updates clipped after own steps": ("dp_fedavg", {"optimizer": ADAM}, {"local_steps": 2}),
}
ROWS["above", "finish"]["noise lowered by `finish`"] = lambda: finish(
    "sigma", lambda sigma: sigma / 100
)
ROWS["proven", "finish"]["a step from the noise"] = lambda: finish(
    "lr", lambda sigma: 0.1 / (1 + sigma)
)


# --- models and data -----------------------------------------------------------------------------


def with_kernel(**fields: Any) -> Any:
    return LINEAR._replace(kernel=LINEAR.kernel._replace(**fields))


def unclipped(F: Any, G: Any, batch: Any) -> Any:
    return 100 * F


def network_with(activation: Any) -> Any:
    return jaxfl.models.mlp(FEATURES, 2, hidden=(3,), activation=activation)


def kernel_of_another() -> Any:
    """Norms are those of a layer that is split, and clipped one by one."""
    other, model = network_with("relu").kernel, network_with("sigmoid")
    mixed = model.kernel._replace(inner=lambda F, H, batch: other.inner(F, H, batch) / 1e4)
    return Composed("ldp_sgd", problem=problem_of(model._replace(kernel=mixed)))


class Same:
    """Factors 100 times as large, which equal those of jaxfl's kernel."""

    def __call__(self, x: Any, batch: Any) -> Any:
        return 100 * LINEAR.kernel.factors(x, batch)

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(LINEAR.kernel.factors)


def linear_loss(how: Callable[[Any], Any], **more: Any) -> Any:
    """A squared loss times ``how`` of the example, which may see all examples of a batch."""

    def loss(params: Any, example: Any) -> Any:
        a, y = example
        return (a @ params["w"] - y) ** 2 / 2 * jax.lax.stop_gradient(how(a))

    start = {"w": np.zeros(FEATURES, np.float32)}
    return jaxfl.models.custom(start, loss, name="mixed", **more)


@jax.custom_batching.custom_vmap
def size(a: Any) -> Any:
    return jnp.float32(1)


@size.def_vmap
def of_batch(axis_size: int, in_batched: Any, a: Any) -> Any:
    return jnp.broadcast_to(1 + jnp.abs(a).max(), (axis_size,)), True


def by_host(a: Any) -> Any:
    def host(a: Any) -> Any:
        return np.broadcast_to(np.float32(1 + np.abs(a).max()), a.shape[:-1])

    shape = jax.ShapeDtypeStruct((), jnp.float32)
    return jax.pure_callback(host, shape, a, vmap_method="expand_dims")


def ball(**how: Any) -> Any:
    return jaxfl.models.logistic(FEATURES, **{"constraint": "ball:1", **how})


def wild(**how: Any) -> Any:
    return Regularizer("mine", lambda x: 50 * jnp.sum(jnp.cos(9 * x)), 0.0, **how)


KERNEL = "kernel|model"
LOCAL = {"local_steps": 5, "lr": 0.01}
# Increments of mu^2-SGD are clipped to what L and the diameter allow, be they false.
ROWS["refuted", KERNEL] |= {
    "a kernel of another model": kernel_of_another,
    "a field that equals jaxfl's": (
        "ldp_sgd",
        with_kernel(clip=Alike(LINEAR.kernel.clip, unclipped)),
    ),
}
ROWS["refuted", "kernel"]["equal factors"] = ("ldp_sgd", with_kernel(factors=Same()))
ROWS["unproven", "kernel"]["a subclass of a model"] = (
    "ldp_sgd",
    reads_otherwise(jaxfl.parts.Model, "kernel", LINEAR.kernel._replace(clip=unclipped))(*LINEAR),
)
ROWS["no claim", "loss"] |= {
    "custom_vmap sees the batch": ("ldp_sgd", linear_loss(size)),
    "the host sees the batch": ("ldp_sgd", linear_loss(by_host)),
}
ROWS["proven", "activation"] |= {
    "mixes what it is given": (
        "ldp_sgd",
        network_with(lambda z: jnp.tanh(z - z.mean(0, keepdims=True))),
    ),
    "normalizes what it is given": ("ldp_sgd", network_with(lambda z: z / (1 + jnp.abs(z).max()))),
}
ROWS["proven", "model"] |= {
    "an L too small": ("mu2_untrusted", ball()._replace(smoothness=lambda *_: 1e-6), {"batch": 1}),
    "a diameter too small": ("mu2_untrusted", ball()._replace(diameter=1e-3), {"batch": 1}),
}
ROWS["proven", "constraint"]["a set that is larger than it says"] = (
    "mu2_untrusted",
    ball(constraint=Constraint("mine", lambda x: jnp.clip(x, -50, 50), lambda d: 1e-3)),
    {"batch": 1},
)
ROWS["proven", "loss"]["a loss less smooth than it says"] = (
    "mu2_untrusted",
    linear_loss(lambda a: 100.0, smoothness=1e-6, constraint="ball:2"),
    {"batch": 1},
)
ROWS["unproven", "regularizer"]["a convexity that is stated"] = (
    "private_local_sgd",
    {"convex": True, "model": jaxfl.models.logistic(FEATURES, regularizer=wild(convex=True))},
    LOCAL,
)
ROWS["unproven", "model"]["convex by a field"] = (
    "private_local_sgd",
    {
        "convex": True,
        "model": jaxfl.models.logistic(FEATURES, regularizer="nonconvex:9")._replace(convex=True),
    },
    LOCAL,
)
ROWS["unproven", "problem"]["more records than there are"] = lambda: Composed(
    "ldp_sgd", problem=dataclasses.replace(usual(), count=jnp.full(3, 1000, jnp.int32))
)
ROWS["proven", "problem"]["weights as they are"] = lambda: Composed(
    "dp_sgd", problem=dataclasses.replace(usual(), weights=jnp.full(3, 100.0))
)


# --- a user's own that costs no proof ------------------------------------------------------------


def centred() -> Any:
    """It subtracts the mean of its batch, which is one example."""
    from flax import linen

    class Centred(linen.Module):
        @linen.compact
        def __call__(self, a: Any) -> Any:
            hidden = linen.Dense(3)(a)
            return linen.Dense(2)(jnp.tanh(hidden - hidden.mean(0, keepdims=True) + a.sum()))

    made = jaxfl.models.flax_model(Centred(), (FEATURES,), name="centred")
    return Composed("ldp_sgd", problem=problem_of(made))


def layered() -> Any:
    """It sees the parameters as a pytree."""
    model = network_with("sigmoid")
    step = servers.optimizer(ADAM, name="layers", model=model)
    return Composed(jaxfl.algorithm("ldp_sgd", server=step), problem=problem_of(model))


def averages(x: Any, g: Any, W: Any, send: Any, hp: Any) -> Any:
    z, sent = send(x - hp["lr"] * g)
    return (W @ z + z) / 2, sent


def generated() -> Any:
    def make(source: Any, i: Any, j: Any) -> Any:
        a = jax.random.normal(jax.random.fold_in(jax.random.fold_in(source, i), j), (FEATURES,))
        return a, (a[0] > 0).astype("int32")

    samples = jaxfl.data.generated(make, 3, 20, source=jax.random.key(0), classes=2)
    return Composed("ldp_sgd", problem=jaxfl.Problem(LINEAR, samples))


def own_numbers(given: Any, facts: Any) -> Any:
    found = plan(clip=2.0, batch=5, lr=0.3)(given, facts)
    found.values["lr"] = 1 / facts.m
    return found


def claimed(values: Any, facts: Any, asked: Any) -> Any:
    return jaxfl.privacy.Claim("mine", "sigma = 1", 1.0, 1.0, values["delta"])


def rolling_ball() -> jaxfl.parts.Algorithm:
    """v <- beta v + mean_i C(g_i + xi_i),  x <- x - eta v, of jaxfl's parts alone."""
    step = servers.optimizer(lambda hp: optax.sgd(hp["lr"], momentum=0.9))
    numbers = {name: NUMBERS[name] for name in ("clip", "batch", "lr", "k")}
    made = body(compressor=compressors.random_k(), server=step)
    return compose("rolling_ball", "momentum", "", made, plain(**numbers, sigma=0.05, omega=0.0))


MEAN = np.asarray(data().train[0]).mean((0, 1))
SCALED = jaxfl.data.standardise(data(), per_feature=True)[0]
W = np.array([[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]])
DECAYS = server_of_ones_own(
    step=lambda key, x, v, project, hp: x - hp["decay"] * v,
    params=(servers.LR, Param("decay", "factor of the step", high=1.0)),
)
COSH = Regularizer("mine", lambda x: jnp.sum(jnp.cosh(x)) / 9, 1.0)
CLIPS = Constraint("mine", lambda x: jnp.clip(x, -1, 1), lambda d: None)
ROWS["proven", "server"] |= {
    "a server from scratch": ("ldp_sgd", server_of_ones_own()),
    "an optax transform": servers.optimizer(ADAM, name="mine"),
    "an optimizer of layers": layered,
    "a number of its own": ("", DECAYS, {"decay": 0.5}),
}
ROWS["proven", "compressor"] |= {
    "a code acts on noised values": ("soteriafl_gd", two_levels()),
    "jaxfl selects, and the author codes": (
        "cdp_sgd",
        compressors.compose(two_levels(), compressors.random_k()),
    ),
    "a code by its name": lambda: jaxfl.algorithm(
        "soteriafl_sgd",
        compressor=registered("compressor", "two_of_them", two_levels()) + "+random_k",
    ),
}
ROWS["proven", "rule"]["a rule of noised messages"] = lambda: network(
    rule=gossip.Rule("mine", averages, (servers.LR,))
)
ROWS["proven", "graph"] |= {
    "a matrix of one's own": ("dp_dsgd", graphs.mixing(W, "mine")),
    "a graph without jaxfl's check": ("dp_dsgd", Graph("mine", lambda n: np.full((n, n), 1 / n))),
}
ROWS["proven", "loss"] |= {
    "a loss of one's own": ("ldp_sgd", linear_loss(lambda a: 1.0)),
    "a loss that knows the data": ("ldp_sgd", linear_loss(lambda a: MEAN[0])),
}
ROWS["proven", "model"]["a flax model that would mix a batch"] = centred
ROWS["proven", "activation"]["an activation by name"] = ("ldp_sgd", network_with("elu"))
ROWS["proven", "regularizer"]["it reads no record"] = ("ldp_sgd", ball(regularizer=COSH))
ROWS["proven", "constraint"]["of what was noised"] = ("ldp_sgd", ball(constraint=CLIPS))
ROWS["proven", "init"]["a start that is fitted"] = lambda: Composed(
    "ldp_sgd", problem=problem_of(LINEAR, x0=MEAN)
)
ROWS["proven", "data"] |= {
    "standardised data": lambda: Composed("ldp_sgd", problem=jaxfl.Problem(LINEAR, SCALED)),
    "samples that are generated": generated,
    "weights of clients are public": lambda: Composed(
        "soteriafl_sgd", problem=problem_of(LINEAR, weights=[1.0, 2.0, 3.0])
    ),
}
ROWS["proven", "plan"]["a plan of one's own"] = lambda: composition(numbers=own_numbers)
ROWS["proven", "schedule"]["steps are the server's"] = (
    "ldp_sgd",
    {},
    {"lr": lambda t: 0.1 / (1 + t)},
)
ROWS["proven", "formula"]["a claim beside the proof"] = lambda: composition(formula=claimed)


# --- every function of every part ------------------------------------------------------------------


def wrapped(function: Any) -> Any:
    """The same function, which jaxfl has not made."""
    return lambda *given, **named: function(*given, **named)


MINIBATCH, EVERY = estimators.minibatch(sampling.poisson()), sampling.everyone()
PARTS: dict[str, tuple[Any, ...]] = {
    "estimator": (
        *(make(sampling.poisson()) for make in (estimators.svrg, estimators.saga)),
        *(change(MINIBATCH) for change in (smoothing.moreau, smoothing.convolution)),
    ),
    "sampler": (sampling.poisson(), sampling.without_replacement()),
    "mechanism": (mechanisms.gaussian(),),
    "compressor": (
        compressors.compose(compressors.qsgd(), compressors.random_k()),
        compressors.random_k(),
    ),
    "channel": (channels.error_feedback(), channels.shifted()),
    "aggregation": (SECURE,),
    "participation": (sampling.uniform(), EVERY),
    "server": (servers.descent(),),
}
FREE = {  # what acts on noised values alone, where every message is seen
    "compressor": {"code", "omega", "bits", "resolve", "capacity"},
    "channel": {"init", "after", "receive", "residual"},
    "server": {"init", "view", "step", "output"},
    "mechanism": {"std"},
}


DECLARED = {  # what a part declares, and a probe does not refute
    "sampler": {"draw", "capacity"},
    "mechanism": {"draw"},
    "compressor": {"select"},
    "channel": {"before", "growth"},
    "participation": {"draw", "capacity"},
}


def with_part(role: str, part: Any, **others: Any) -> Any:
    given = {"estimator": MINIBATCH._replace(sampler=part)} if role == "sampler" else {role: part}
    return own(**given, **others)


def rewritten(part: Any) -> Any:
    """Each function of a part, and the part with an equal one that jaxfl has not made."""
    for field, value in part._asdict().items():
        if callable(value):
            yield field, part._replace(**{field: wrapped(value)})
        elif isinstance(value, Gradient | Memory):
            for inner, changed in rewritten(value):
                yield inner, part._replace(**{field: changed})


for role, parts in PARTS.items():
    for field, part in dict(itertools.chain.from_iterable(map(rewritten, parts))).items():
        free = field in FREE.get(role, ())
        make = functools.partial(with_part, role, part)
        declared = field in DECLARED.get(role, ())
        expected = "proven" if free else "probed" if declared else "no claim"
        ROWS[expected, role][f"its {field}"] = make
        # of a message that is coded nobody knows a bound, and events read the std
        if free and field not in ("bits", "code", "residual", "std"):
            hidden = functools.partial(make, aggregation=SECURE)
            ROWS["probed", role][f"its {field} under a sum"] = hidden
# A record of jaxfl's entries, whose attribute is another.
for role, part, field, value in (
    ("mechanism", mechanisms.gaussian(), "std", quiet),
    ("channel", channels.direct(), "before", longer),
    ("compressor", compressors.random_k(), "select", repeated(compressors.random_k())),
    ("estimator", MINIBATCH, "gradient", LOUD),
    ("sampler", poisson(name="subclass"), "draw", HEAVY),
):
    other = reads_otherwise(type(part), field, value)(*part)
    ROWS["no claim", role]["a subclass"] = functools.partial(with_part, role, other)


def by_its_name(role: str, name: str, part: Any) -> Composed:
    made = jaxfl.algorithm(name, **{role: registered(role, "mine", part)})
    return Composed(made, {"participation": TWO, "compressor": {"k": 2}}.get(role, {}))


for role, name, part, expected in (
    ("compressor", "soteriafl_sgd", TWICE, "refuted"),
    ("sampler", "ldp_sgd", COINS, "probed"),
    ("participation", "ldp_sgd", CALLED, "probed"),
    ("aggregation", "ldp_sgd", SHOWN_SUM, "no claim"),
):
    ROWS[expected, role]["by its name"] = functools.partial(by_its_name, role, name, part)
for field, value in LINEAR.kernel._asdict().items():
    if callable(value):
        ROWS["probed", KERNEL][f"its {field}"] = ("ldp_sgd", with_kernel(**{field: wrapped(value)}))


# --- names, copies, options, and algorithms as they are ------------------------------------------


def renamed(part: Any) -> Any:
    return part._replace(name="nobody knows")


ROWS["proven", "names"] |= {
    "no proof reads a name": lambda: own(
        estimator=renamed(batch(sampler=renamed(sampling.poisson()))),
        mechanism=renamed(mechanisms.gaussian()),
        compressor=renamed(compressors.random_k()),
        channel=renamed(channels.shifted()),
        server=renamed(servers.descent()),
        participation=renamed(sampling.everyone()),
    ),
    "nor where a part is wrapped": lambda: own(
        estimator=estimators.minibatch(renamed(sampling.without_replacement()))
    ),
    "nor under a hidden sum": {"aggregation": renamed(aggregations.secure_sum())},
    "the algorithm itself": lambda: jaxfl.algorithm("soteriafl_sgd")._replace(
        name="mine", summary="", paper=""
    ),
    "a copy": {"estimator": copy.deepcopy(batch())},
}
ROWS["no claim", "body"]["what comes out of a file"] = lambda: cloudpickle.loads(
    cloudpickle.dumps(jaxfl.algorithm("cdp_sgd"))
)
ROWS["proven", "algorithm"]["a registered algorithm"] = lambda: Composed(
    registered("algorithm", "rolling_ball", rolling_ball)
)
ROWS["proven", "messages"]["every message"] = lambda: by_messages(jaxfl.algorithm("ldp_sgd"))
for name, numbers, parts in (
    ("soteriafl_sgd", {}, {"storage": "bfloat16"}),
    ("ldp_sgd", {}, {"noise": "per_client"}),
    ("ldp_sgd", {"gradient_bound": 9.0}, {"clip": "batch"}),
    ("soteriafl_saga", {}, {"sampler": "shuffled"}),
    ("ldp_sgd", TWO, {"participation": "balanced", "aggregation": "secure_sum"}),
    ("private_local_sgd", {"local_steps": 5}, {}),
    ("dp_fedavg", {**TWO, "local_steps": 2}, {"participation": "poisson"}),
    *((name, {}, {}) for name in ("dp_sgd", "dp_srm", "ldp_spider", "porter_dp", "sdm_dsgd")),
    *((name, {}, {}) for name in ("clip21_sgd2m", "dice_sgd")),
    *((name, {"batch": 1}, {"model": ball()}) for name in ("mu2_untrusted", "multi_pass_mbsgd")),
):
    words = " ".join((name, *map(str, parts.values())))
    ROWS["proven", "algorithm"][words] = (name, parts, numbers)


def maker(role: str, row: Any) -> Callable[[], Any]:
    name, parts, numbers = (*row, {})[:3] if type(row) is tuple else ("", row, {})

    def make() -> Any:
        given = {"model": parts} if isinstance(parts, jaxfl.parts.Model) else {role: parts}
        given = dict(parts) if isinstance(parts, dict) else given
        model = given.pop("model", None)
        algorithm = jaxfl.algorithm(name, **given) if name else own(**given)
        return Composed(algorithm, numbers, problem_of(model) if model else None)

    return row if callable(row) else make


CASES = [
    Case(f"{word}: {name}", maker(word.split("|")[0], row), expected, word)
    for (expected, word), rows in ROWS.items()
    for name, row in rows.items()
]
