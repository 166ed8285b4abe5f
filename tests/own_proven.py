"""More of the table in :mod:`own`: parts of a user's own that cost no proof."""

import copy
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import optax
from own import (
    ASKED,
    FEATURES,
    NUMBERS,
    Composed,
    body,
    case,
    data,
    levels,
    network,
    own,
    problem_of,
    two_levels,
)

import jaxfl
from jaxfl import compressors, estimators, mechanisms, sampling, servers
from jaxfl.algorithms import compose, plain
from jaxfl.algorithms.composition import by_messages
from jaxfl.core.types import Param, Server
from jaxfl.parts import aggregations, channels, graphs
from jaxfl.parts.graphs import Graph
from jaxfl.problems.public import Constraint, Regularizer
from jaxfl.rounds import gossip


def proven(role: str) -> Any:
    return case(role, "proven")


# --- servers -------------------------------------------------------------------------------------


def my_step(key: Any, x: Any, v: Any, project: Any, hp: Any) -> Any:
    return x - hp["lr"] * jnp.sign(v)


MINE = Server(
    "mine",
    init=lambda x, hp: x,
    view=lambda x: x,
    step=my_step,
    output=lambda x: x,
    params=(servers.LR,),
)


@proven("server")
def a_server_from_scratch() -> Any:
    """It sees noised messages, and a function of these is as private."""
    return jaxfl.algorithm("ldp_sgd", server=MINE)


@proven("server")
def an_optimizer_of_ones_own() -> Any:
    """So does an optax transform."""
    return own(server=servers.optimizer(lambda hp: optax.sgd(hp["lr"], 0.9), name="heavy ball"))


@proven("server")
def an_optimizer_of_layers() -> Any:
    """It sees the parameters as a pytree."""
    model = jaxfl.models.mlp(FEATURES, (3,), 2)
    step = servers.optimizer(lambda hp: optax.adam(hp["lr"]), name="layers", model=model)
    return Composed(jaxfl.algorithm("ldp_sgd", server=step), problem=problem_of(model))


@proven("server")
def a_step_of_ones_own() -> Any:
    """One field of jaxfl's server is replaced."""
    sgd = servers.descent()
    step = lambda key, s, v, project, hp: (s[0] - hp["lr"] * jnp.tanh(v), s[1])  # noqa: E731
    return jaxfl.algorithm("soteriafl_sgd", server=sgd._replace(step=step))


@proven("server")
def a_server_with_a_number_of_its_own() -> Any:
    """A hyper-parameter whose name no proof reads."""
    rate = Param("decay", "factor of the step", high=1.0)
    step = lambda key, x, v, project, hp: x - hp["decay"] * v  # noqa: E731
    made = MINE._replace(step=step, params=(servers.LR, rate))
    return Composed(own(server=made), {"decay": 0.5})


# --- compressors ---------------------------------------------------------------------------------


@proven("compressor")
def the_notebooks_two_levels() -> Any:
    """A code acts on noised values."""
    return jaxfl.algorithm("soteriafl_gd", compressor=two_levels())


@proven("compressor")
def a_code_after_random_k() -> Any:
    """jaxfl selects, and the author codes."""
    both = compressors.compose(two_levels(), compressors.random_k())
    return jaxfl.algorithm("cdp_sgd", compressor=both)


@proven("compressor")
def a_code_of_ones_own_in_a_part_of_jaxfls() -> Any:
    """One field of jaxfl's quantizer is replaced."""
    return jaxfl.algorithm("cdp_sgd", compressor=compressors.qsgd()._replace(code=levels))


@proven("compressor")
def a_registered_code() -> Any:
    """By its name, and composed by it."""

    @jaxfl.register("compressor")
    def two_of_them() -> Any:
        """Two levels."""
        return two_levels()._replace(name="two_of_them")

    return jaxfl.algorithm("soteriafl_sgd", compressor="two_of_them+random_k")


@proven("compressor")
def bits_of_ones_own() -> Any:
    """What a message costs is no matter of privacy."""
    free = compressors.random_k()._replace(bits=lambda d, values: (1.0, 1.0))
    return jaxfl.algorithm("cdp_sgd", compressor=free)


# --- channels and networks -----------------------------------------------------------------------


@proven("channel")
def a_receiver_of_ones_own() -> Any:
    """The server uses the mean of noised messages as the author likes."""

    def receive(s: Any, mean: Any, rate: Any, hp: Any, moved: Any) -> Any:
        return s + mean, s + rate * hp["shift"] * mean / 2

    return own(channel=channels.shifted()._replace(receive=receive))


@proven("channel")
def a_shift_of_ones_own() -> Any:
    """A client remembers its noised messages as the author likes."""
    after = lambda s, message, hp: s + hp["shift"] / 2 * message.value  # noqa: E731
    return own(channel=channels.shifted()._replace(after=after))


@proven("channel")
def a_receiver_without_memory() -> Any:
    """The same of a direct channel."""
    plainest = channels.direct()
    receive = lambda link, mean, rate, hp, moved: (jnp.tanh(mean), link)  # noqa: E731
    return own(channel=plainest._replace(receive=receive))


@proven("rule")
def a_rule_of_ones_own() -> Any:
    """Clients of a network use noised messages as the author likes."""

    def step(x: Any, g: Any, W: Any, send: Any, hp: Any) -> Any:
        z, sent = send(x - hp["lr"] * g)
        return (W @ z + z) / 2, sent

    return network(rule=gossip.Rule("mine", step, (servers.LR,)))


@proven("graph")
def a_matrix_of_ones_own() -> Any:
    """Who talks to whom is public."""
    W = np.array([[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]])
    return jaxfl.algorithm("dp_dsgd", graph=graphs.mixing(W, "mine"))


@proven("graph")
def a_graph_from_scratch() -> Any:
    """The same without jaxfl's check of the matrix."""
    return jaxfl.algorithm("dp_dsgd", graph=Graph("mine", lambda n: np.full((n, n), 1 / n)))


# --- models and data -----------------------------------------------------------------------------


def huber(params: Any, example: Any) -> Any:
    a, y = example
    return optax.losses.huber_loss(a @ params["w"] + params["b"], y, delta=1.0)


START = {"w": np.zeros(FEATURES, np.float32), "b": np.zeros((), np.float32)}


@proven("loss")
def a_loss_of_ones_own() -> Any:
    """Each example's gradient is clipped, whatever the loss is."""
    return Composed("ldp_sgd", problem=problem_of(jaxfl.models.custom(START, huber)))


@proven("loss")
def a_loss_that_knows_the_data() -> Any:
    """It closes over a mean of the records: the statement says that functions are public."""
    mean = np.asarray(data().train[0]).mean((0, 1))

    def loss(params: Any, example: Any) -> Any:
        a, y = example
        return huber(params, (a - mean, y))

    return Composed("ldp_sgd", problem=problem_of(jaxfl.models.custom(START, loss)))


@proven("model")
def a_flax_model_that_would_mix_a_batch() -> Any:
    """It subtracts the mean of its batch, which is one example."""
    from flax import linen

    class Centred(linen.Module):
        @linen.compact
        def __call__(self, a: Any) -> Any:
            hidden = linen.Dense(3)(a)
            return linen.Dense(2)(jnp.tanh(hidden - hidden.mean(0, keepdims=True) + a.sum()))

    made = jaxfl.models.flax_model(Centred(), (FEATURES,), name="centred")
    return Composed("ldp_sgd", problem=problem_of(made))


@proven("activation")
def an_activation_by_name() -> Any:
    """jaxfl's activations act on each number alone."""
    return Composed(
        "ldp_sgd", problem=problem_of(jaxfl.models.mlp(FEATURES, (3,), 2, activation="elu"))
    )


@proven("regularizer")
def a_regularizer_of_ones_own() -> Any:
    """It reads the model, and no record."""
    mine = Regularizer("mine", lambda x: jnp.sum(jnp.cosh(x)) / 9, 1.0)
    return Composed(
        "ldp_sgd", problem=problem_of(jaxfl.models.logistic(FEATURES, regularizer=mine))
    )


@proven("constraint")
def a_constraint_of_ones_own() -> Any:
    """The server projects what was noised."""
    mine = Constraint("mine", lambda x: jnp.clip(x, -1, 1), lambda d: None)
    return Composed("ldp_sgd", problem=problem_of(jaxfl.models.logistic(FEATURES, constraint=mine)))


@proven("init")
def a_start_of_ones_own() -> Any:
    """The first model is public."""
    x0 = np.ones(FEATURES, np.float32)
    return Composed("ldp_sgd", problem=problem_of(jaxfl.models.logistic(FEATURES), x0=x0))


@proven("data")
def a_start_that_is_fitted() -> Any:
    """The statement says that the first model is public, and the author knows what it was made of."""
    x0 = np.asarray(data().train[0]).mean((0, 1))
    return Composed("ldp_sgd", problem=problem_of(jaxfl.models.logistic(FEATURES), x0=x0))


@proven("data")
def standardised_data() -> Any:
    """Means and deviations are not covered, as docs/your-data.md says."""
    scaled, _, _ = jaxfl.data.standardise(data(), per_feature=True)
    made = jaxfl.make_problem(jaxfl.models.logistic(FEATURES), scaled)
    return Composed("ldp_sgd", problem=made)


@proven("data")
def samples_that_are_generated() -> Any:
    """What a sample is made of is the author's: the statement protects the sample."""

    def make(source: Any, i: Any, j: Any) -> Any:
        a = jax.random.normal(jax.random.fold_in(jax.random.fold_in(source, i), j), (FEATURES,))
        return a, (a[0] > 0).astype("int32")

    samples = jaxfl.data.generated(make, 3, 20, source=jax.random.key(0), classes=2)
    return Composed("ldp_sgd", problem=jaxfl.make_problem(jaxfl.models.logistic(FEATURES), samples))


@proven("data")
def weights_of_clients() -> Any:
    """They are public."""
    made = problem_of(jaxfl.models.logistic(FEATURES), weights=[1.0, 2.0, 3.0])
    return Composed("soteriafl_sgd", problem=made)


# --- numbers -------------------------------------------------------------------------------------


@proven("plan")
def a_plan_of_ones_own() -> Any:
    """Whatever numbers it chooses, the event reads them."""

    def numbers(given: Any, facts: Any) -> Any:
        found = plain(clip=2.0, batch=5, lr=0.3, eps=ASKED, omega=0.0)(given, facts)
        found.values["lr"] = 1 / facts.m
        return found

    return compose("own", "", "", body(), numbers)


@proven("schedule")
def a_schedule_of_ones_own() -> Any:
    """Steps are the server's."""
    return Composed("ldp_sgd", {"lr": lambda t: 0.1 / (1 + t)})


@proven("formula")
def a_formula_of_ones_own() -> Any:
    """It is a claim beside the proof."""

    def formula(values: Any, facts: Any, asked: Any) -> Any:
        return jaxfl.privacy.Claim("mine", "sigma = 1", 1.0, 1.0, values["delta"])

    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0)
    return compose("own", "", "", body(), numbers, formula=formula)


@proven("finish")
def a_step_that_follows_from_the_noise() -> Any:
    """`finish` sets the step, and leaves the noise."""

    def finish(draft: Any, noise: Any, facts: Any) -> None:
        draft.set("lr", 0.1 / (1 + draft["sigma"]), draft.sources["sigma"])

    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0)
    return compose("own", "", "", body(), numbers, finish=finish)


# --- names and copies ----------------------------------------------------------------------------


def renamed(part: Any) -> Any:
    return part._replace(name="nobody knows")


@proven("names")
def parts_under_other_names() -> Any:
    """No proof reads a name."""
    minibatch = estimators.minibatch(sampling.poisson())
    return own(
        estimator=renamed(minibatch)._replace(sampler=renamed(minibatch.sampler)),
        mechanism=renamed(mechanisms.gaussian()),
        compressor=renamed(compressors.random_k()),
        channel=renamed(channels.shifted()),
        server=renamed(servers.descent()),
        participation=renamed(sampling.everyone()),
    )


@proven("names")
def a_sampler_under_another_name() -> Any:
    """Nor where it is wrapped."""
    return own(estimator=estimators.minibatch(renamed(sampling.without_replacement())))


@proven("names")
def a_secure_sum_under_another_name() -> Any:
    """Nor under a hidden sum."""
    return own(aggregation=renamed(aggregations.secure_sum()))


@proven("names")
def an_algorithm_under_another_name() -> Any:
    """The algorithm itself is renamed, as `register` does."""
    return jaxfl.algorithm("soteriafl_sgd")._replace(name="mine", summary="", paper="")


@proven("names")
def a_copied_part() -> Any:
    """A copy has the functions of its original."""
    return own(estimator=copy.deepcopy(estimators.minibatch(sampling.poisson())))


@case("names", word="sampler")
def an_algorithm_that_was_sent() -> Any:
    """What comes out of a file has functions of its own, whoever wrote it."""
    return cloudpickle.loads(cloudpickle.dumps(jaxfl.algorithm("cdp_sgd")))


@proven("algorithm")
def a_registered_algorithm() -> Any:
    """The third notebook's: of jaxfl's parts alone."""

    @jaxfl.register
    def rolling_ball() -> jaxfl.Algorithm:
        """v <- beta v + mean_i C(g_i + xi_i),  x <- x - eta v."""
        step = servers.optimizer(lambda hp: optax.sgd(hp["lr"], momentum=0.9))
        made = body(compressor=compressors.random_k(), server=step)
        numbers = {name: NUMBERS[name] for name in ("clip", "batch", "lr", "k")}
        start = plain(**numbers, sigma=0.05, omega=0.0)
        return compose("rolling_ball", "momentum", "Polyak, 1964", made, start)

    return Composed("rolling_ball")


@proven("algorithm")
def a_registered_change_of_one() -> Any:
    """As in docs/your-data.md: an algorithm by name, with another server."""

    @jaxfl.register
    def heavy_ball_of_ldp(**parts: Any) -> jaxfl.Algorithm:
        """LDP-SGD with momentum at the server."""
        step = servers.optimizer(lambda hp: optax.sgd(hp["lr"], 0.9), name="heavy_ball")
        return jaxfl.algorithm("ldp_sgd", server=step, **parts)

    return Composed("heavy_ball_of_ldp")


# --- options, and algorithms as they are ---------------------------------------------------------


@proven("storage")
def rounded_memory() -> Any:
    """A client's memory is rounded."""
    return jaxfl.algorithm("soteriafl_sgd", storage="bfloat16")


@proven("messages")
def every_message() -> Any:
    """Messages are made where their mean is enough."""
    return by_messages(jaxfl.algorithm("ldp_sgd"))


@proven("noise")
def noise_of_each_client() -> Any:
    """Each client's noise is drawn."""
    return jaxfl.algorithm("ldp_sgd", noise="per_client")


@proven("clip")
def a_clipped_batch() -> Any:
    """The whole batch is clipped, and a bound on each gradient is given."""
    return Composed(jaxfl.algorithm("ldp_sgd", clip="batch"), {"gradient_bound": 9.0})


def as_it_is(name: str, numbers: Any = (), ball: bool = False, **parts: Any) -> None:
    """Add an algorithm of jaxfl's own to the table."""

    def make() -> Any:
        """Nothing in it is a user's own."""
        constraint = "ball:2" if ball else None
        made = problem_of(jaxfl.models.logistic(FEATURES, constraint=constraint))
        return Composed(jaxfl.algorithm(name, **parts), dict(numbers), made)

    make.__name__ = "_".join((name, *map(str, parts.values())))
    proven("algorithm")(make)


as_it_is("soteriafl_saga", sampler="shuffled")
as_it_is("ldp_sgd", {"cohort": 2}, participation="balanced", aggregation="secure_sum")
as_it_is("private_local_sgd", {"local_steps": 5})
as_it_is("dp_fedavg", {"cohort": 2, "local_steps": 2}, participation="poisson")
as_it_is("dp_sgd")
as_it_is("dp_srm")
as_it_is("ldp_spider")
as_it_is("mu2_untrusted", {"batch": 1}, ball=True)
as_it_is("multi_pass_mbsgd", ball=True)
as_it_is("porter_dp")
as_it_is("sdm_dsgd")
as_it_is("clip21_sgd2m")
as_it_is("dice_sgd")
