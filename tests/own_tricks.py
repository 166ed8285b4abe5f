"""More of the table in :mod:`own`: what looks like jaxfl's own, or is mixed with it, and is not."""

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from own import (
    ASKED,
    FEATURES,
    SIGMA,
    Composed,
    body,
    case,
    changed,
    coins,
    data,
    louder,
    network,
    own,
    problem_of,
    two_levels,
    with_estimator,
)

import jaxfl
from jaxfl import compressors, estimators, mechanisms, sampling, servers
from jaxfl.algorithms import compose, plain
from jaxfl.algorithms.hu.algorithms import PaperRules
from jaxfl.core.types import Channel, Compressor, Estimator, Mechanism, Param, Sampler
from jaxfl.parts import aggregations, channels, localization
from jaxfl.parts.mechanisms import noiseless
from jaxfl.problems.public import Constraint, Regularizer
from jaxfl.rounds import Federated, Gossip, gossip


def quiet(hp: Any) -> Any:
    """A hundredth of the noise that is accounted for."""
    return hp["sigma"] / 100


# --- functions that look like jaxfl's ------------------------------------------------------------


@case("mechanism")
def a_function_that_says_it_is_jaxfls() -> Any:
    """Its module and its name are those of jaxfl's own."""
    ours = mechanisms.gaussian().std

    def std(hp: Any) -> Any:
        return quiet(hp)

    std.__module__, std.__qualname__, std.__name__ = ours.__module__, ours.__qualname__, "<lambda>"
    return own(mechanism=mechanisms.gaussian()._replace(std=std))


@case("mechanism")
def a_function_that_wraps_jaxfls() -> Any:
    """`functools.wraps` copies name and module, and leaves the original in `__wrapped__`."""
    std = functools.wraps(mechanisms.gaussian().std)(lambda hp: quiet(hp))
    return own(mechanism=mechanisms.gaussian()._replace(std=std))


@case("sampler")
def a_partial_of_jaxfls() -> Any:
    """A partial of jaxfl's draw changes the round that it is told, so that all draws are one."""
    ours = sampling.poisson().draw
    fixed = functools.partial(lambda draw, key, t, *rest: draw(key, 0 * t, *rest), ours)
    return jaxfl.algorithm("ldp_sgd", sampler=sampling.poisson()._replace(draw=fixed))


class Noise:
    """An object whose method is a field."""

    def std(self, hp: Any) -> Any:
        return quiet(hp)


@case("mechanism")
def a_bound_method() -> Any:
    """The deviation is a method of an object of the author's."""
    return own(mechanism=mechanisms.gaussian()._replace(std=Noise().std))


class Alike:
    """A callable that equals another function, and has its hash."""

    def __init__(self, ours: Any, mine: Callable[..., Any]) -> None:
        self.ours, self.mine = ours, mine

    def __call__(self, *given: Any) -> Any:
        return self.mine(*given)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.ours

    def __hash__(self) -> int:
        return hash(self.ours)


@case("mechanism")
def a_callable_that_equals_jaxfls() -> Any:
    """The mechanism equals `gaussian()`, since its function says that it does."""
    std = Alike(mechanisms.gaussian().std, quiet)
    return own(mechanism=mechanisms.gaussian()._replace(std=std))


def alike(name: str) -> tuple[Sampler, Sampler]:
    """jaxfl's sampler under a name that no other case has, and another that equals it."""
    ours = sampling.poisson()._replace(name=name)
    return ours, ours._replace(draw=Alike(ours.draw, louder(ours.draw)))


@case("sampler", "unproven")
def an_equal_sampler_before_jaxfls() -> Any:
    """A cached constructor is given the false one first."""
    _, other = alike("first")
    return own(estimator=estimators.minibatch(other))


@case("sampler", "proven")
def jaxfls_sampler_after_one_that_equals_it() -> Any:
    """The cache must not hand out the false one for the true one, nor state less of the true one."""
    ours, other = alike("second")
    estimators.minibatch(other)
    made = estimators.minibatch(ours)
    assert made.sampler.draw is ours.draw, "the constructor's cache returned the other part"
    return own(estimator=made)


@case("sampler", "unproven")
def an_equal_sampler_after_jaxfls() -> Any:
    """A cached constructor was given the true one before."""
    ours, other = alike("third")
    own(estimator=estimators.minibatch(ours))
    return own(estimator=estimators.minibatch(ours)._replace(sampler=other))


@case("compressor", "unproven")
def an_equal_compressor_in_a_composed_one() -> Any:
    """`compose` of jaxfl is cached, and its argument equals one of jaxfl's."""
    ours = compressors.random_k()._replace(name="equal")
    select = Alike(ours.select, lambda key, d, hp: ours.select(jax.random.key(0), 1, hp))
    made = compressors.compose(compressors.qsgd(), ours._replace(select=select))
    return jaxfl.algorithm("cdp_sgd", compressor=made)


# --- records that look like jaxfl's --------------------------------------------------------------


class QuietMechanism(Mechanism):
    """A tuple with jaxfl's own entries, whose field is read through a property."""

    @property
    def std(self) -> Any:
        return quiet


class HeavySampler(Sampler):
    """The same of a sampler."""

    @property
    def draw(self) -> Any:
        return louder(sampling.poisson().draw)


class LongChannel(Channel):
    """The same of a channel."""

    @property
    def before(self) -> Any:
        return lambda link, g: 100 * g


class RepeatingCompressor(Compressor):
    """The same of a sparsifier."""

    @property
    def select(self) -> Any:
        ours = compressors.random_k().select
        return lambda key, d, hp: ours(jax.random.key(0), 1, hp)


class LoudEstimator(Estimator):
    """The same of an estimator."""

    @property
    def terms(self) -> Any:
        ours = estimators.minibatch(sampling.poisson()).terms
        return lambda *given: tuple(t._replace(scale=100.0) for t in ours(*given))


@case("mechanism")
def a_subclass_of_a_mechanism() -> Any:
    """All entries are jaxfl's, and the attribute is not."""
    return own(mechanism=QuietMechanism(*mechanisms.gaussian()))


@case("sampler")
def a_subclass_of_a_sampler() -> Any:
    """All entries are jaxfl's, and the attribute is not."""
    sampler = HeavySampler(*sampling.poisson()._replace(name="subclass"))
    return own(estimator=estimators.minibatch(sampling.poisson())._replace(sampler=sampler))


@case("channel")
def a_subclass_of_a_channel() -> Any:
    """All entries are jaxfl's, and the attribute is not."""
    return own(channel=LongChannel(*channels.direct()))


@case("compressor")
def a_subclass_of_a_compressor() -> Any:
    """All entries are jaxfl's, and the attribute is not."""
    return own(compressor=RepeatingCompressor(*compressors.random_k()))


@case("estimator")
def a_subclass_of_an_estimator() -> Any:
    """All entries are jaxfl's, and the attribute is not."""
    return own(estimator=LoudEstimator(*estimators.minibatch(sampling.poisson())))


class OtherSampler(NamedTuple):
    """A tuple of another type, whose fields have other names."""

    name: str
    first: Any
    distinct: bool
    params: Any
    capacity: Any
    scheme: str
    strips: bool

    whole = padded = fresh = epochs = single_pass = False

    @property
    def draw(self) -> Any:
        return louder(sampling.poisson().draw)


@case("sampler", "unproven")
def a_tuple_of_another_type() -> Any:
    """It equals jaxfl's sampler, as tuples do, and is none."""
    other = OtherSampler(*sampling.poisson()._replace(strips=False))
    return own(estimator=estimators.minibatch(sampling.full())._replace(sampler=other))


@case("mechanism", "refused")
def a_part_of_another_role() -> Any:
    """A channel stands in the place of a mechanism."""
    return own(mechanism=channels.direct())


# --- bodies --------------------------------------------------------------------------------------


class Silent(Federated):
    """A body whose clients add no noise."""

    @property
    def own(self) -> Mechanism:
        return noiseless()


class Leaky(Federated):
    """A body whose rounds begin with less noise."""

    def begin(self, key: Any, state: Any, problem: Any, hp: Any) -> Any:
        return super().begin(key, state, problem, changed(hp, sigma=hp["sigma"] / 100))


class LeakyGossip(Gossip):
    """The same of a network."""

    def round(self, key: Any, state: Any, problem: Any, hp: Any) -> Any:
        return super().round(key, state, problem, changed(hp, sigma=hp["sigma"] / 100))


@case("body", word="body|round|Silent")
def a_body_without_its_noise() -> Any:
    """A subclass overrides a property, and each of the parts is jaxfl's."""
    return own(Silent(*body()))


@case("body", word="body|round|Leaky")
def a_body_that_begins_otherwise() -> Any:
    """A subclass overrides a method that the round calls."""
    return own(Leaky(*body()))


@case("body", word="body|round|Leaky")
def a_network_of_another_class() -> Any:
    """A subclass of the body of a network does the same."""
    usual_body = network().body
    return own(LeakyGossip(*usual_body))


def lowered(made: Any) -> Any:
    """`begin` of a body, as an attribute of the instance."""
    return lambda key, state, problem, hp: type(made).begin(
        made, key, state, problem, changed(hp, sigma=hp["sigma"] / 100)
    )


@case("body", word="body|round|begin")
def an_attribute_on_a_body() -> Any:
    """The instance has an attribute that the round finds before the method of its class."""
    made = body()
    made.begin = lowered(made)
    return own(made)


@case("body", word="body|round|begin")
def an_attribute_after_composing() -> Any:
    """The attribute comes when the algorithm is made already."""
    algorithm = own(body())
    algorithm.body.begin = lowered(algorithm.body)
    return algorithm


@case("body", word="body|begin")
def an_attribute_on_a_body_of_jaxfls() -> Any:
    """The body of an algorithm by name, which equal calls share: of one that no other case makes."""
    algorithm = jaxfl.algorithm("ldp_sgd", noise="per_client", participation="balanced")
    made = algorithm.body
    made.begin = lowered(made)
    return Composed(algorithm, {"cohort": 2})


@case("round", word="round|body")
def a_round_that_is_bound_to_another_body() -> Any:
    """It is a bound method of jaxfl's class, and its body is not the algorithm's."""
    algorithm = own()
    other = own(mechanism=mechanisms.gaussian()._replace(std=quiet)).body
    return algorithm._replace(round=functools.partial(Federated.round, other))


class Quiet(jaxfl.Algorithm):
    """An algorithm with jaxfl's entries, whose round is read through a property."""

    @property
    def round(self) -> Any:
        quiet_body = own(mechanism=mechanisms.gaussian()._replace(std=quiet)).body
        return quiet_body.round


@case("algorithm", word="algorithm|round|Quiet")
def a_subclass_of_an_algorithm() -> Any:
    """All entries are jaxfl's, and the round that runs is not."""
    return Quiet(*own())


@case("body", "unproven")
def a_body_that_is_replaced_before_the_event() -> Any:
    """The body is without clipping of examples, and the event of the old one stands."""
    algorithm = own()
    whole = algorithm.body._replace(clip="batch")
    return algorithm._replace(body=whole, round=whole.round, init=whole.init)


# --- hyper-parameters ----------------------------------------------------------------------------


def server_with(*params: Param) -> Any:
    """jaxfl's descent, which declares these hyper-parameters too."""
    return servers.descent()._replace(name="mine", params=(servers.LR, *params))


@case("server")
def a_whole_sigma() -> Any:
    """A server declares sigma as a whole number, and rounds read 0 in place of it."""
    return own(server=server_with(SIGMA._replace(integer=True)))


@case("server")
def a_whole_clip() -> Any:
    """A server declares the clip as a whole number: rounds read another one than the event."""
    clip = Param("clip", "bound", open_low=True, integer=True)
    return own(server=server_with(clip))


@case("server")
def turns_of_a_server() -> Any:
    """A server has a number named turns, by which the event counts rounds."""
    turns = Param("turns", "steps of the server", low=1, integer=True)
    return Composed(own(server=server_with(turns)), {"turns": 1})


@case("params", "unproven")
def a_whole_sigma_of_the_algorithm() -> Any:
    """The algorithm's own list declares sigma as a whole number."""
    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0)
    return compose("own", "", "", body(), numbers, [SIGMA._replace(integer=True)])


@case("plan", "unproven")
def a_plan_that_sets_the_turns() -> Any:
    """The plan holds a number that the event reads before it counts rounds."""
    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0, turns=1)
    return compose("own", "", "", body(), numbers)


@case("reads", "unproven")
def hyper_parameters_that_are_not_read() -> Any:
    """Whole numbers are those that the replaced list of an algorithm says."""
    algorithm = own()
    whole = (p._replace(integer=p.name == "sigma") for p in algorithm.params)
    return algorithm._replace(params=tuple(whole))


@case("mechanism")
def the_mechanism_of_a_paper() -> Any:
    """Its noise is a share of sigma that only the event of its paper reads."""
    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0, noise_t=0.01)
    return compose(
        "own", "", "", body(mechanism=localization.noised()), numbers, reads=("noise_t",)
    )


# --- mixed parts ---------------------------------------------------------------------------------


@case("channel", "unproven")
def a_channel_of_two() -> Any:
    """`before` adds what the other channel keeps, whose memory it is given."""
    kept, sent = channels.shifted(), channels.error_feedback()
    return own(channel=kept._replace(before=sent.before))


@case("participation", "unproven")
def a_participation_of_two() -> Any:
    """All clients are called by jaxfl's own draw, and drawn by chance as declared."""
    mixed = sampling.poisson_clients()._replace(draw=sampling.everyone().draw)
    return Composed(jaxfl.algorithm("dp_fedavg", participation=mixed), {"cohort": 2})


@case("aggregation", "unproven")
def an_aggregation_of_two() -> Any:
    """What is recovered and protected is a plain sum's, and hidden as a secure one's."""
    shown, hidden = aggregations.plain_sum(), aggregations.secure_sum()
    mixed = hidden._replace(protect=shown.protect, recover=shown.recover)
    return own(aggregation=mixed)


@case("mechanism", "unproven")
def a_trusted_servers_noise_by_replacement() -> Any:
    """Noise at the client is declared as a server's."""
    return own(mechanism=mechanisms.gaussian()._replace(central=True))


@case("estimator", "unproven")
def a_batch_clip_of_an_example_clip() -> Any:
    """The estimator leaves clipping to the round, and says that it does not."""
    loose = estimators.minibatch(sampling.poisson(), clip_examples=False)
    strict = estimators.minibatch(sampling.poisson())
    return own(estimator=loose._replace(sensitivity=strict.sensitivity))


@case("server")
def a_server_of_hidden_sums() -> Any:
    """A server of the author's own under a secure sum: what it may do is covered by nothing."""
    return jaxfl.algorithm(
        "ldp_sgd", server=server_with()._replace(step=my_step), aggregation="secure_sum"
    )


def my_step(key: Any, state: Any, v: Any, project: Any, hp: Any) -> Any:
    x, memory = state
    return x - hp["lr"] * jnp.sign(v), memory


@case("server")
def a_server_that_is_trusted() -> Any:
    """A trusted server's noise is drawn before its step; the rule covers jaxfl's steps alone."""
    return jaxfl.algorithm("dp_sgd", server=servers.descent()._replace(step=my_step))


@case("rule", word="rule|gossip|network")
def a_rule_that_counts_coordinates_otherwise() -> Any:
    """A rule of a network declares sigma as a whole number."""
    whole = SIGMA._replace(integer=True)
    plainest = gossip.averaging()
    return network(rule=plainest._replace(params=(*plainest.params, whole)))


@case("storage", "unproven")
def a_storage_that_is_replaced() -> Any:
    """A name that jaxfl does not know is put into the body of an algorithm."""
    algorithm = jaxfl.algorithm("soteriafl_sgd")
    made = algorithm.body._replace(clip="none")
    return algorithm._replace(body=made, round=made.round, init=made.init)


# --- jaxfl's parts, put together as jaxfl would not ----------------------------------------------


@case("noise", "unproven")
def a_word_for_no_noise() -> Any:
    """A body takes any word for how noise is drawn, and with an unknown one draws none."""
    return own(body(noise="none"))


@case("participation", "unproven")
def a_network_that_takes_turns() -> Any:
    """All clients of a network take part in every round, and the event counts their turns."""
    return Composed(network(participation=sampling.balanced()), {"cohort": 1})


@case("clip", "proven")
def a_bound_that_nobody_declares() -> Any:
    """Rounds clip every gradient to the bound that the event reads, wherever it comes from."""
    loose = estimators.minibatch(sampling.poisson(), clip_examples=False)
    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0, gradient_bound=0.01)
    return compose("own", "", "", body(estimator=loose, clip="batch"), numbers)


@case("reads", "unproven")
def a_bound_that_is_taken_away() -> Any:
    """The same by replacing what rounds read in an algorithm of jaxfl's."""
    algorithm = jaxfl.algorithm("ldp_sgd", clip="batch")
    read = tuple(name for name in algorithm.reads or () if name != "gradient_bound")
    return Composed(algorithm._replace(reads=read), {"gradient_bound": 0.01})


@case("plan", "unproven")
def a_plan_in_which_fewer_than_none_collude() -> Any:
    """The plan holds a negative number of colluding clients, and a sum counts as one of 1003."""
    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0, colluding=-1000)
    return compose("own", "", "", body(aggregation=aggregations.secure_sum()), numbers)


@case("plan", "refused")
def a_plan_of_fewer_rounds() -> Any:
    """Noise is calibrated for one round, and two are run."""

    def numbers(given: Any, facts: Any) -> Any:
        one = facts._replace(rounds=1)
        return plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0)(given, one)

    return compose("own", "", "", body(), numbers)


@case("event", "unproven")
def rules_of_jaxfls_for_another_body() -> Any:
    """The event is a method of jaxfl's class, whose fields the author filled in."""
    steps = jaxfl.algorithm("private_local_sgd").body
    rules = PaperRules(steps, once=False, fresh=False, convex=True, plain=True)
    numbers = plain(clip=1.0, batch=4, lr=0.01, local_steps=5, eps=ASKED, omega=0.0)
    return compose("own", "", "", body(), numbers, event=rules.event)


@case("algorithm", "proven")
def an_algorithm_after_one_with_an_equal_part() -> Any:
    """Algorithms by name are kept as well: the true one must not come with the false one's part."""
    ours, other = alike("fourth")
    jaxfl.algorithm("ldp_sgd", sampler=other)
    made = jaxfl.algorithm("ldp_sgd", sampler=ours)
    assert made.body.estimator.sampler.draw is ours.draw, "the cache returned the other algorithm"
    return made


@case("registry", "unproven")
def a_part_that_takes_jaxfls_name() -> Any:
    """The table of names is written to, so that jaxfl's name makes the author's sampler."""
    sampling.SAMPLERS["in_disguise"] = lambda: sampling.poisson()._replace(
        draw=louder(sampling.poisson().draw)
    )
    try:
        return jaxfl.algorithm("ldp_sgd", sampler="in_disguise")
    finally:
        del sampling.SAMPLERS["in_disguise"]


# --- what proofs read of a model -----------------------------------------------------------------


def two_steps(model: Any) -> Composed:
    """mu^2-SGD, whose noise rests on the L and the diameter of a model."""
    return Composed("mu2_untrusted", {"batch": 1}, problem_of(model))


@case("constraint", "proven")
def a_constraint_that_is_smaller_than_it_says() -> Any:
    """Increments are clipped to what the diameter of the author's set allows, be it false."""
    mine = Constraint("mine", lambda x: jnp.clip(x, -50, 50), lambda d: 1e-3)
    return two_steps(jaxfl.models.logistic(FEATURES, constraint=mine))


@case("loss", "proven")
def a_loss_that_is_less_smooth_than_it_says() -> Any:
    """Increments are clipped to what the L of the author's loss allows, be it false."""

    def loss(params: Any, example: Any) -> Any:
        a, y = example
        return 50 * (a @ params["w"] - y) ** 2

    start = {"w": np.zeros(FEATURES, np.float32)}
    made = jaxfl.models.custom(start, loss, smoothness=1e-6, constraint="ball:2")
    return two_steps(made)


@case("regularizer", "unproven", word="regularizer|convex|model")
def a_regularizer_that_says_it_is_convex() -> Any:
    """Amplification by iteration rests on steps that bring points closer."""
    wild = Regularizer("mine", lambda x: 50 * jnp.sum(jnp.cos(9 * x)), 0.0, convex=True)
    made = problem_of(jaxfl.models.logistic(FEATURES, regularizer=wild))
    hidden = jaxfl.algorithm("private_local_sgd", convex=True)
    return Composed(hidden, {"local_steps": 5, "lr": 0.01}, made)


@case("model", "unproven", word="convex|model")
def a_model_that_says_it_is_convex() -> Any:
    """The same by a field of the model."""
    wild = jaxfl.models.logistic(FEATURES, regularizer="nonconvex:9")._replace(convex=True)
    hidden = jaxfl.algorithm("private_local_sgd", convex=True)
    return Composed(hidden, {"local_steps": 5, "lr": 0.01}, problem_of(wild))


# --- losses that see more than one example -------------------------------------------------------


def mixed_by(how: Callable[[Any], Any]) -> Any:
    """A linear loss times ``how`` of the example, which may see all examples of a batch."""

    def loss(params: Any, example: Any) -> Any:
        a, y = example
        return (a @ params["w"] - y) ** 2 / 2 * jax.lax.stop_gradient(how(a))

    return jaxfl.models.custom({"w": np.zeros(FEATURES, np.float32)}, loss, name="mixed")


@case("loss")
def a_loss_with_a_rule_for_batches() -> Any:
    """`custom_vmap` tells the loss what the other examples of the batch are."""

    @jax.custom_batching.custom_vmap
    def size(a: Any) -> Any:
        return jnp.float32(1)

    @size.def_vmap
    def of_batch(axis_size: int, in_batched: Any, a: Any) -> Any:
        return jnp.broadcast_to(1 + jnp.abs(a).max(), (axis_size,)), True

    return Composed("ldp_sgd", problem=problem_of(mixed_by(size)))


@case("loss")
def a_loss_that_calls_the_host() -> Any:
    """`pure_callback` hands a function of NumPy all examples of the batch."""

    def host(a: Any) -> Any:
        return np.broadcast_to(np.float32(1 + np.abs(a).max()), a.shape[:-1])

    def size(a: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(host, shape, a, vmap_method="expand_dims")

    return Composed("ldp_sgd", problem=problem_of(mixed_by(size)))


@case("code", "open")
def a_code_that_holds_the_data() -> Any:
    """A function closes over the private records, and sends their mean."""
    mean = jnp.asarray(np.asarray(data().train[0])[0].mean(0))
    code = lambda key, v, hp: v + 0 * hp["lr"] + mean  # noqa: E731
    return jaxfl.algorithm("cdp_sgd", compressor=two_levels()._replace(name="mine", code=code))


# --- others --------------------------------------------------------------------------------------


@case("kernel", word="kernel")
def factors_that_say_they_are_jaxfls() -> Any:
    """They equal those of jaxfl's kernel, by a method of their own, and are 100 times as large."""
    model = jaxfl.models.logistic(FEATURES)
    true = model.kernel.factors

    class Same:
        def __call__(self, x: Any, batch: Any) -> Any:
            return 100 * true(x, batch)

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return hash(true)

    mine = model.kernel._replace(factors=Same())
    return Composed("ldp_sgd", problem=problem_of(model._replace(kernel=mine)))


@case("kernel", "unproven")
def a_model_that_is_a_subclass() -> Any:
    """All entries of the model are jaxfl's, and its kernel is read through a property."""

    class Loud(jaxfl.types.Model):
        @property
        def kernel(self) -> Any:
            ours = jaxfl.models.logistic(FEATURES).kernel
            return ours._replace(clip=lambda F, G, batch: 100 * F)

    return Composed("ldp_sgd", problem=problem_of(Loud(*jaxfl.models.logistic(FEATURES))))


@case("kernel", word="kernel|model")
def a_kernel_that_equals_jaxfls() -> Any:
    """A field of the kernel says that it equals jaxfl's."""
    model = jaxfl.models.logistic(FEATURES)
    clip = Alike(model.kernel.clip, lambda F, G, batch: 100 * F)
    return Composed(
        "ldp_sgd", problem=problem_of(model._replace(kernel=model.kernel._replace(clip=clip)))
    )


@case("sampler", word="sampler|mine")
def a_copied_estimator_with_another_sampler() -> Any:
    """A deep copy keeps jaxfl's functions, and the sampler is exchanged afterwards."""
    copied = copy.deepcopy(estimators.minibatch(sampling.poisson()))
    mine = Sampler("mine", coins, True, sampling.poisson().params, scheme="poisson")
    return own(estimator=copied._replace(sampler=mine))


@case("optimizer", word="local|optimizer")
def an_optimizer_of_trusted_local_steps() -> Any:
    """The updates are clipped after the steps, and the steps are the author's."""
    made = lambda hp: optax.adam(hp["lr"])  # noqa: E731
    return Composed(jaxfl.algorithm("dp_fedavg", optimizer=made), {"local_steps": 2})


@case("estimator")
def an_estimator_that_rounds_follow() -> Any:
    """Rows of a table are read as the author likes."""
    saga = estimators.saga(sampling.poisson())
    table = saga.table._replace(recall=lambda local, rows: 0 * saga.table.recall(local, rows))
    return own(estimator=saga._replace(table=table))


@case("estimator")
def an_estimate_of_fewer_points() -> Any:
    """How many gradients of a row an estimate holds is declared by the author."""
    return with_estimator(points=0)
