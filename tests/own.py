"""Compositions with parts of a user's own, and what may be stated of each when eps = 1 is asked for.

Every case is a function that composes an algorithm; its docstring says what breaks the proof, or why
it holds.  `expected` is what a run's report says:

* "no claim": nothing is proven, and the sentence names the part;
* "unproven": no claim, a refusal, or "stated by the user", whichever comes first;
* "stated": the eps rests on an event that the user states;
* "refused": a sentence before the first round;
* "above": more is proven than was asked for, with a flag;
* "proven": at most the eps that was asked for;
* "open": nothing that jaxfl sees tells it from a case that is proven.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxfl
from jaxfl import compressors, estimators, mechanisms, sampling, servers
from jaxfl.algorithms import compose, plain
from jaxfl.algorithms.resolution import build
from jaxfl.core.types import (
    Aggregation,
    Channel,
    Compressor,
    Draw,
    Estimator,
    Kernel,
    Mechanism,
    Memory,
    Param,
    Participation,
    Sampler,
    State,
    Term,
)
from jaxfl.engine.grid import lay_out
from jaxfl.engine.log import Log
from jaxfl.engine.runs import Record, settings
from jaxfl.parts import aggregations, channels, graphs, local, smoothing
from jaxfl.privacy.events import Event, Mean, Sampling
from jaxfl.problems.identity import dtype
from jaxfl.rounds import Federated, Gossip, gossip

ASKED = 1.0
FEATURES = 4
NUMBERS = {"clip": 1.0, "lr": 0.1, "batch": 4, "k": 2, "shift": 0.3, "cohort": 2, "carry": 0.5}
BATCH = Param("batch", "rows that a client draws", low=1)
COHORT = Param("cohort", "clients of a round", low=1, integer=True)
SIGMA = Param("sigma", "standard deviation of the noise")


class Composed(NamedTuple):
    """An algorithm, or the name of one, with numbers and perhaps a problem of its own."""

    algorithm: jaxfl.Algorithm | str
    numbers: Mapping[str, Any] = MappingProxyType({})
    problem: jaxfl.Problem | None = None


class Case(NamedTuple):
    name: str
    make: Callable[[], Any]  # an algorithm, or Composed
    role: str
    expected: str
    word: str  # a regular expression that the sentence of the report matches
    why: str


CASES: list[Case] = []


def case(role: str, expected: str = "no claim", word: str = "") -> Callable[[Any], Any]:
    """Add the decorated function to the table; without a ``word``, the sentence names the role."""

    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        why = " ".join((make.__doc__ or "").split())
        name = make.__name__.replace("_", " ").strip()
        CASES.append(Case(name, make, role, expected, word or role, why))
        return make

    return add


# --- running a case ------------------------------------------------------------------------------


@functools.cache
def data() -> Any:
    """Three clients with 20 records each."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 20, FEATURES)).astype(np.float32)
    y = rng.integers(0, 2, (3, 20)).astype(np.int32)
    return jaxfl.data.from_clients((a, y), classes=2, stacked=True)


@functools.cache
def usual() -> jaxfl.Problem:
    return jaxfl.make_problem(jaxfl.models.logistic(FEATURES), data())


def problem_of(model: Any, **how: Any) -> jaxfl.Problem:
    return jaxfl.make_problem(model, data(), **how)


def begun(composed: Composed) -> Any:
    """The run before its first round, as :func:`jaxfl.simulate` plans it."""
    algorithm, problem = composed.algorithm, composed.problem or usual()
    algorithm = jaxfl.algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    names = {param.name for param in algorithm.params}
    given = {name: value for name, value in {"lr": 0.1, "batch": 4}.items() if name in names}
    given |= {"eps": ASKED, **composed.numbers, "rounds": 2}
    (study,) = lay_out(algorithm, problem, {}, given, [0], "calibrated", "train").studies
    ((_, _, values, sources, facts, *_),) = study.cells
    about, state = settings(algorithm, problem, study.standing), State(*[0] * len(State._fields))
    return Record(
        algorithm, problem, jax.random.key(0), values, sources, facts, state, Log(), about
    )


def composed(case: Case) -> Composed:
    made = case.make()
    return made if isinstance(made, Composed) else Composed(made)


class Said(NamedTuple):
    """What a run of a case is said to prove."""

    eps: float
    status: str
    method: str
    flag: bool
    text: str

    @property
    def outcome(self) -> str:
        """One of the words of ``expected``."""
        if self.status == "refused":
            return "refused"
        if not np.isfinite(self.eps):
            return "no claim"
        if "stated by the user" in self.text:
            return "stated"
        return "above" if self.eps > ASKED * (1 + 1e-3) else "proven"


def said(case: Case) -> Said:
    """The report after two rounds, which are traced and not computed."""
    try:
        run = begun(composed(case))
        state, _ = traced(run)
    except jaxfl.InputError as error:
        return Said(np.inf, "refused", str(error), False, str(error))
    run.state = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), state)._replace(t=jnp.int32(2))
    return of_report(run.privacy())


def of_report(report: Any) -> Said:
    return Said(report.proven, report.status, report.method, report.flag, str(report))


def traced(run: Any) -> Any:
    """The shapes of a round's results: raises for a composition that cannot run."""
    algorithm, key, problem = run.algorithm, run.key, run.problem
    hp = build(algorithm, run.values, run.facts, dtype(problem))
    return jax.eval_shape(
        lambda p, hp: algorithm.round(key, algorithm.init(key, p, hp)[0], p, hp), problem, hp
    )


def fits(case: Case, found: Said) -> bool:
    """Whether the report says what is expected of the case."""
    if case.expected == "unproven":
        return found.outcome in ("no claim", "refused", "stated")
    if case.expected == "no claim" and found.outcome == "refused":
        return True
    if found.outcome != case.expected:
        return False
    if case.expected == "no claim":
        return not found.status and bool(re.search(case.word, found.method))
    return found.flag if case.expected == "above" else True


# --- what cases share ----------------------------------------------------------------------------


def body(**parts: Any) -> Federated:
    """Noised Poisson minibatch descent of jaxfl's own parts, but for ``parts``."""
    plainest: dict[str, Any] = {
        "estimator": estimators.minibatch(sampling.poisson()),
        "mechanism": mechanisms.gaussian(),
        "compressor": compressors.identity(),
        "channel": channels.direct(),
        "server": servers.descent(),
        "participation": sampling.everyone(),
    }
    return Federated(**{**plainest, **parts})


def own(made: Any = None, event: Any = None, **parts: Any) -> jaxfl.Algorithm:
    """The algorithm of such a body, or of the one that is given."""
    made = body(**parts) if made is None else made
    owners = made.estimator, made.estimator.sampler, made.mechanism, made.compressor
    owners += made.channel, made.server, made.participation
    names = {param.name for owner in owners for param in owner.params}
    numbers = {name: value for name, value in NUMBERS.items() if name in names}
    return compose("own", "", "", made, plain(**numbers, eps=ASKED, omega=0.0), event=event)


def network(**parts: Any) -> jaxfl.Algorithm:
    """Noisy decentralized SGD of jaxfl's own parts, but for ``parts``."""
    plainest: dict[str, Any] = {
        "estimator": estimators.minibatch(sampling.poisson()),
        "mechanism": mechanisms.gaussian(),
        "compressor": compressors.identity(),
        "rule": gossip.averaging(),
        "graph": graphs.complete(),
    }
    return own(Gossip(**{**plainest, **parts}))


def with_estimator(**fields: Any) -> jaxfl.Algorithm:
    """Descent with a minibatch estimator of which these fields are replaced."""
    return own(estimator=estimators.minibatch(sampling.poisson())._replace(**fields))


def louder(draw: Callable[..., Draw]) -> Callable[..., Draw]:
    """The same draw with weights 100 times as large."""
    return lambda *given: Draw(draw(*given).index, 100 * draw(*given).weight)


def changed(hp: Any, **values: Any) -> Any:
    return dataclasses.replace(hp, values={**hp.values, **values})


def the_first_k(key: Any, d: int, hp: Any) -> Draw:
    """Coordinate 0 in every slot."""
    slots = hp.caps["k"]
    return Draw(jnp.zeros(slots, jnp.int32), jnp.full(slots, 1.0))


def levels(key: Any, v: Any, hp: Any) -> Any:
    """Each coordinate at random to the smallest or to the largest, without bias."""
    low, high = v.min(), v.max()
    up = jax.random.uniform(key, v.shape) * (high - low) < v - low
    return jnp.where(up, high, low)


@functools.cache
def two_levels() -> Compressor:
    """The compressor of the third notebook."""
    return Compressor(
        "two_levels",
        code=levels,
        omega=lambda d, values: d / 2,
        bits=lambda d, values: (2 * 32.0 + d, 0.0),
    )


def raw_mean(problem: Any) -> Any:
    """The mean of each client's features, without noise."""
    return jnp.mean(problem.train[0], axis=1)


def exchanged(algorithm: jaxfl.Algorithm, **parts: Any) -> jaxfl.Algorithm:
    """The algorithm with these parts in its body and its rounds, and all else as it was."""
    made: Any = algorithm.body
    made = made._replace(**parts)
    return algorithm._replace(body=made, round=made.round, init=made.init)


# --- mechanisms ----------------------------------------------------------------------------------


@case("mechanism")
def a_hundredth_of_the_noise() -> Any:
    """The deviation is sigma/100, and the event says sigma."""
    return own(mechanism=mechanisms.gaussian()._replace(std=lambda hp: hp["sigma"] / 100))


@case("mechanism")
def no_noise_at_all() -> Any:
    """The deviation is 0, and the event says sigma."""
    return own(mechanism=mechanisms.gaussian()._replace(std=lambda hp: 0 * hp["sigma"]))


@case("mechanism")
def a_noise_multiplier() -> Any:
    """Sigma is read as a multiple of clip/m, the usual convention elsewhere."""
    multiplied = Mechanism("mine", lambda hp: hp["sigma"] * hp["clip"] / 20, (SIGMA,))
    return own(mechanism=multiplied)


@case("mechanism")
def a_mechanism_from_scratch() -> Any:
    """It is right, and jaxfl has not made it."""
    return own(mechanism=Mechanism("mine", lambda hp: hp["sigma"], (SIGMA,)))


@case("mechanism")
def noise_of_the_server_at_the_clients() -> Any:
    """Two of jaxfl's mechanisms are mixed: nothing of noise at the client is said of the server's."""
    noise = mechanisms.central()._replace(central=False, params=mechanisms.gaussian().params)
    return own(mechanism=noise._replace(std=lambda hp: hp["sigma"] / 9))


@case("mechanism")
def a_notebook_of_ones_own() -> Any:
    """An algorithm is registered with all of its parts in place, one of which is its author's."""

    @jaxfl.register
    def quiet_descent() -> jaxfl.Algorithm:
        """x <- x - eta mean_i (g_i + xi_i/10)."""
        return own(mechanism=Mechanism("quiet", lambda hp: hp["sigma"] / 10, (SIGMA,)))

    return Composed("quiet_descent")


# --- channels ------------------------------------------------------------------------------------


@case("channel")
def longer_messages() -> Any:
    """What is noised is 100 times as long as the event says."""
    return own(channel=channels.direct()._replace(before=lambda link, g: 100 * g))


@case("channel")
def longer_messages_that_are_not_linear() -> Any:
    """The same without a mean that is taken first."""
    times = channels.direct()._replace(before=lambda link, g: 100 * g, linear=False)
    return own(channel=times)


@case("channel")
def longer_shifted_messages() -> Any:
    """The difference from a shift is lengthened before it is noised."""
    return own(channel=channels.shifted()._replace(before=lambda s, g: 100 * (g - s)))


@case("channel")
def normalized_messages() -> Any:
    """A short estimate becomes one of length 1: alpha-NormEC as one would write it."""
    unit = channels.direct()._replace(
        before=lambda link, g: g / (1e-3 + jnp.linalg.norm(g)), linear=False
    )
    return own(channel=unit)


@case("channel")
def normalized_coordinates() -> Any:
    """Each coordinate becomes a sign, nearly."""
    each = channels.direct()._replace(before=lambda link, g: g / (1e-3 + jnp.abs(g)), linear=False)
    return own(channel=each)


@case("channel")
def a_channel_from_scratch() -> Any:
    """Its `before` is the author's, and so is its name."""
    mine = Channel(
        "mine",
        init=lambda n, x, fused: ((), ()),
        before=lambda link, g: 3 * g,
        after=lambda link, message, hp: link,
        receive=lambda link, mean, rate, hp, moved: (mean, link),
    )
    return own(channel=mine)


@case("channel")
def an_own_growth_in_a_hidden_sum() -> Any:
    """The range of a secure sum rests on how long messages may become."""
    kept = channels.shifted()._replace(growth=lambda omega: (1e-3, 1e-3))
    return own(channel=kept, aggregation=aggregations.secure_sum())


@case("channel")
def own_linearity() -> Any:
    """Whether the mean of `before` is `before` of the mean, the author says."""
    return own(channel=channels.direct()._replace(linear=False))


@case("channel")
def a_memory_that_is_denied_in_a_hidden_sum() -> Any:
    """What a sum hides rests on whether it matters who sends."""
    kept = channels.shifted()._replace(remembers=False)
    return own(
        channel=kept, aggregation=aggregations.secure_sum(), participation=sampling.uniform()
    )


@case("channel")
def an_own_receiver_of_a_trusted_server() -> Any:
    """What a trusted server does before it adds its noise is covered by nothing."""

    def receive(link: Any, mean: Any, rate: Any, hp: Any, moved: Any) -> Any:
        return 100 * mean, link

    mine = channels.direct()._replace(receive=receive)
    return exchanged(jaxfl.algorithm("dp_sgd"), channel=mine)


# --- compressors ---------------------------------------------------------------------------------


@case("compressor")
def a_coordinate_twice() -> Any:
    """Random-k with replacement sends several noised copies of one value."""
    twice = compressors.random_k()._replace(select=the_first_k)
    return jaxfl.algorithm("cdp_sgd", compressor=twice)


@case("compressor")
def a_sparsifier_from_scratch() -> Any:
    """The same, with fields of its author's alone."""
    k = Param("k", "coordinates", low=1, integer=True)
    mine = Compressor(
        "mine",
        omega=lambda d, values: d / values["k"] - 1,
        bits=lambda d, values: (0.0, 32.0),
        select=the_first_k,
        resolve=lambda given, d: {"k": given.get("k", 3)},
        capacity=lambda values, facts: {"k": int(values["k"])},
        params=(k,),
    )
    return jaxfl.algorithm("soteriafl_sgd", compressor=mine)


@case("compressor")
def a_registered_sparsifier() -> Any:
    """It is known by its name, as after `--import`."""

    @jaxfl.register("compressor")
    def repeats() -> Compressor:
        """Coordinate 0 only."""
        return compressors.random_k()._replace(name="repeats", select=the_first_k)

    return jaxfl.algorithm("soteriafl_sgd", compressor="repeats")


@case("compressor")
def a_coordinate_twice_and_coded() -> Any:
    """jaxfl's code after a sparsifier with repeats averages the noise away."""
    twice = compressors.random_k()._replace(name="mine", select=the_first_k)
    return jaxfl.algorithm("cdp_sgd", compressor=compressors.compose(compressors.qsgd(), twice))


@case("compressor")
def selection_by_index_of_another_part() -> Any:
    """A function that jaxfl made for another part selects."""
    mixed = compressors.random_k()._replace(
        select=lambda key, d, hp: compressors.stratified_k().select(key, d, hp)
    )
    return jaxfl.algorithm("cdp_sgd", compressor=mixed)


@case("compressor")
def more_slots_than_coordinates() -> Any:
    """Slots past the end hold noised copies of the last coordinate, whose mean a code sends."""
    slots = compressors.random_k()._replace(
        resolve=lambda given, d: {"k": 400},
        capacity=lambda values, facts: {"k": 400},
        code=lambda key, v, hp: jnp.zeros_like(v).at[0].set(v.mean()),
        omega=lambda d, values: 0.0,
    )
    return jaxfl.algorithm("cdp_sgd", compressor=slots)


@case("compressor")
def a_code_that_says_how_large_a_batch_is() -> Any:
    """Its capacity replaces that of the sampler, which the event reads."""
    small = two_levels()._replace(name="mine", capacity=lambda values, facts: {"batch": 1})
    return jaxfl.algorithm("cdp_sgd", compressor=small)


@case("compressor")
def a_code_that_says_how_often_a_client_takes_part() -> Any:
    """Its `resolve` sets the turns that the event reads."""
    rare = two_levels()._replace(name="mine", resolve=lambda given, d: {"turns": 1})
    return jaxfl.algorithm("cdp_sgd", compressor=rare)


@case("compressor")
def a_code_under_a_servers_noise() -> Any:
    """The server's noise comes after the code, which may lengthen a message."""
    return exchanged(jaxfl.algorithm("dp_sgd"), compressor=two_levels())


# --- estimators ----------------------------------------------------------------------------------


def with_begin(change: Callable[..., Any]) -> jaxfl.Algorithm:
    """Descent whose hyper-parameters ``change(hp, x, problem)`` replaces before each round."""

    def begin(key: Any, shared: Any, base: Any, x: Any, problem: Any, hp: Any) -> Any:
        return shared, base, jnp.int32(0), change(hp, x, problem)

    return with_estimator(begin=begin)


@case("estimator")
def less_noise_before_each_round() -> Any:
    """`begin` lowers sigma after it was accounted for."""
    return with_begin(lambda hp, x, problem: changed(hp, sigma=hp["sigma"] / 100))


@case("estimator")
def larger_clips_before_each_round() -> Any:
    """`begin` raises the clip after it was accounted for."""
    return with_begin(lambda hp, x, problem: changed(hp, clip=100 * hp["clip"]))


@case("estimator")
def adaptive_clipping() -> Any:
    """The clip is a quantile of the data's own norms, without noise."""

    def change(hp: Any, x: Any, problem: Any) -> Any:
        norms = jnp.linalg.norm(problem.train[0], axis=-1)
        return changed(hp, clip=jnp.quantile(norms, 0.9))

    return with_begin(change)


def with_terms(*terms: Term) -> Callable[..., Any]:
    """Terms at x with the clip of the round where a bound is None."""

    def at(shared: Any, x: Any, hp: Any) -> tuple[Term, ...]:
        return tuple(
            t._replace(points=(x,), bound=hp["clip"] if t.bound is None else t.bound) for t in terms
        )

    return at


ONE = Term(1.0, (), (1.0,), None)


@case("estimator")
def a_scaled_term() -> Any:
    """The clipped gradients are multiplied by 100."""
    return with_estimator(terms=with_terms(ONE._replace(scale=100.0)))


@case("estimator")
def a_term_without_a_bound() -> Any:
    """Nothing is clipped."""
    return with_estimator(terms=with_terms(ONE._replace(bound=jnp.float32(jnp.inf))))


@case("estimator")
def a_second_term() -> Any:
    """Momentum as one would write it adds a second gradient of each row."""
    return with_estimator(terms=with_terms(ONE, ONE._replace(scale=0.9)))


@case("estimator")
def raw_data_in_the_memory() -> Any:
    """The base of every estimate holds the mean of the features."""

    def init(problem: Any, x: Any, hp: Any, pooled: bool, storage: str) -> Memory:
        base = raw_mean(problem)
        return Memory(base=base.mean(0) if pooled else base)

    return with_estimator(init=init)


@case("estimator")
def raw_data_in_what_is_public() -> Any:
    """The shared memory holds the mean of the features, and counts as public."""
    return with_estimator(
        init=lambda problem, x, hp, pooled, storage: Memory(shared=raw_mean(problem).mean(0)),
        public=lambda shared, slope, x, hp: slope(x) + shared,
    )


@case("estimator")
def raw_data_after_a_round() -> Any:
    """`refresh` reads the data once more."""

    def refresh(key: Any, shared: Any, base: Any, x: Any, problem: Any, hp: Any) -> Any:
        return shared, base + 100 * raw_mean(problem).mean(0), jnp.int32(0)

    svrg = estimators.svrg(sampling.poisson())
    return own(estimator=svrg._replace(refresh=refresh, params=svrg.params[:1]))


def kernel_of(**fields: Any) -> Callable[..., Kernel]:
    """The kernel of a linear model without its own clipping, and with these fields."""
    return lambda model, hp: model.kernel._replace(clip=None, **fields)


@case("estimator", word="estimator|kernel")
def norms_that_are_too_small() -> Any:
    """The kernel's inner products are a hundredth of what they are."""
    small = jaxfl.models.logistic(FEATURES).kernel.inner
    return with_estimator(kernel=kernel_of(inner=lambda F, H, batch: small(F, H, batch) / 1e4))


@case("estimator", word="estimator|kernel")
def sums_that_are_too_large() -> Any:
    """The kernel's weighted sums are 100 times what they are."""
    total = jaxfl.models.logistic(FEATURES).kernel.contract
    return with_estimator(kernel=kernel_of(contract=lambda w, F, batch: 100 * total(w, F, batch)))


@case("estimator")
def a_sensitivity_of_ones_own() -> Any:
    """The event is told a hundredth of the clip."""
    return with_estimator(sensitivity=lambda values: Mean(values["clip"] / 100))


@case("estimator")
def snapshots_with_the_sensitivity_of_a_minibatch() -> Any:
    """Two of jaxfl's estimators are mixed: each row enters three times and is counted once."""
    svrg = estimators.svrg(sampling.poisson())
    batch = estimators.minibatch(sampling.poisson())
    algorithm = own(estimator=svrg._replace(sensitivity=batch.sensitivity))
    return Composed(algorithm, {"refresh": 0.5})


@case("estimator")
def an_estimator_from_scratch() -> Any:
    """An estimator for SoteriaFL's framework, right as it is, and of its author's own."""
    mine = Estimator(
        "mine",
        sampling.poisson(),
        init=lambda problem, x, hp, pooled, storage: Memory(),
        terms=with_terms(ONE),
        params=estimators.minibatch(sampling.poisson()).params,
        points=1,
        sensitivity=lambda values: Mean(values["clip"]),
    )
    return Composed(jaxfl.algorithm("soteriafl_sgd", estimator=mine), {"k": 2})


@case("estimator")
def displaced_points() -> Any:
    """Points move by a function of the author's, which may read what it likes."""
    return with_estimator(jitter=lambda key, rows, x, hp: jnp.zeros((rows, x.size)))


@case("sampler|estimator", word="sampler|estimator")
def an_estimator_with_another_sampler() -> Any:
    """SAGA follows rows as the sampler it was made with draws them, and gets another."""
    saga = estimators.saga(sampling.poisson())
    return own(estimator=saga._replace(sampler=sampling.with_replacement()))


# --- samplers ------------------------------------------------------------------------------------


@case("sampler")
def heavy_rows() -> Any:
    """Weights are 100 times 1/b, and the scheme is still Poisson."""
    heavy = sampling.poisson()._replace(draw=louder(sampling.poisson().draw))
    return jaxfl.algorithm("ldp_sgd", sampler=heavy)


@case("sampler")
def always_the_first_row() -> Any:
    """Row 0 is drawn in every round, and the event counts on chance."""

    def draw(key: Any, t: Any, count: Any, m_max: int, hp: Any) -> Draw:
        return Draw(jnp.zeros(1, jnp.int32), jnp.ones(1) / hp["batch"])

    first = sampling.poisson()._replace(draw=draw, strips=False)
    return jaxfl.algorithm("ldp_sgd", sampler=first)


def coins(key: Any, t: Any, count: Any, m_max: int, hp: Any) -> Draw:
    """Each row with probability batch/count."""
    heads = jax.random.uniform(jax.random.fold_in(key, t), (m_max,)) < hp["batch"] / count
    return Draw(None, jnp.where(heads & (jnp.arange(m_max) < count), 1 / hp["batch"], 0.0))


@case("sampler", word="sampler|coins")
def the_notebooks_coins() -> Any:
    """A sampler from scratch that declares its scheme, rightly."""
    mine = Sampler("coins", coins, distinct=True, params=(BATCH,), scheme="poisson")
    return jaxfl.algorithm("cdp_sgd", sampler=mine)


@case("sampler")
def a_registered_sampler() -> Any:
    """It declares Poisson and draws all rows, by its name."""

    @jaxfl.register("sampler")
    def all_rows() -> Sampler:
        """Every row, with weight 1/b."""
        draw = lambda key, t, count, m, hp: Draw(None, jnp.ones(m) / hp["batch"])  # noqa: E731
        return Sampler("all_rows", draw, distinct=True, params=(BATCH,), scheme="poisson")

    return jaxfl.algorithm("ldp_sgd", sampler="all_rows")


@case("sampler", "refused")
def a_sampler_without_a_scheme() -> Any:
    """No accountant knows its draws, so that no noise can be calibrated."""
    return jaxfl.algorithm("cdp_sgd", sampler=Sampler("mine", coins, True, (BATCH,)))


@case("sampler")
def another_scheme() -> Any:
    """Poisson draws are declared as shuffled epochs."""
    mixed = sampling.poisson()._replace(scheme="shuffled", strips=False)
    return jaxfl.algorithm("ldp_sgd", sampler=mixed)


@case("sampler")
def a_draw_of_another_sampler() -> Any:
    """Rows come with replacement, by jaxfl's own function, and are declared as distinct."""
    mixed = sampling.without_replacement()._replace(draw=sampling.with_replacement().draw)
    return jaxfl.algorithm("ldp_sgd", sampler=mixed)


@case("sampler")
def larger_slots() -> Any:
    """How many rows a batch holds at most is the author's, and enters delta."""
    mixed = sampling.poisson()._replace(capacity=lambda values, facts: {"batch": 19})
    return jaxfl.algorithm("ldp_sgd", sampler=mixed._replace(strips=False))


@case("sampler")
def a_wrapped_sampler() -> Any:
    """jaxfl's constructor of an estimator is given a sampler of the author's own."""
    mine = sampling.poisson()._replace(name="mine", draw=louder(sampling.poisson().draw))
    return own(estimator=estimators.minibatch(mine))


@case("sampler")
def a_sampler_that_is_wrapped_twice() -> Any:
    """A smoothed estimator is made of one with such a sampler."""
    mine = sampling.poisson()._replace(name="mine", draw=louder(sampling.poisson().draw))
    smooth = smoothing.moreau(estimators.minibatch(mine))
    numbers = plain(clip=1.0, batch=4, lr=0.1, moreau=1.0, eps=ASKED, omega=0.0)
    return compose("own", "", "", body(estimator=smooth), numbers)


# --- participations ------------------------------------------------------------------------------


def calls_all(key: Any, t: Any, n: int, hp: Any) -> Draw:
    return Draw(jnp.arange(n), jnp.full(n, 1 / hp["cohort"]))


@case("participation")
def heavy_clients() -> Any:
    """Weights are 100 times 1/r, and a trusted server adds the noise."""
    heavy = sampling.uniform()._replace(draw=louder(sampling.uniform().draw))
    return Composed(jaxfl.algorithm("dp_sgd", participation=heavy), {"cohort": 2})


@case("participation")
def everyone_in_place_of_some() -> Any:
    """All clients are called, and chance is counted on to hide who was."""
    all_of_them = sampling.poisson_clients()._replace(draw=calls_all)
    return Composed(jaxfl.algorithm("dp_fedavg", participation=all_of_them), {"cohort": 2})


@case("participation")
def a_thousand_senders() -> Any:
    """A hidden sum of 3 messages counts as one of 1000."""
    many = sampling.everyone()._replace(least=lambda n, values: 1000)
    return own(participation=many, aggregation=aggregations.secure_sum())


@case("participation")
def a_single_turn() -> Any:
    """A client takes part in all rounds, and is said to do so once."""
    return own(participation=sampling.everyone()._replace(most=lambda T, n, values: 1))


@case("participation")
def a_registered_participation() -> Any:
    """By its name, with a scheme that is not its own."""

    @jaxfl.register("participation")
    def all_called() -> Participation:
        """All clients, declared as drawn."""
        return Participation("all_called", calls_all, params=(COHORT,), scheme="poisson")

    return Composed(jaxfl.algorithm("ldp_sgd", participation="all_called"), {"cohort": 2})


@case("participation")
def a_wrapped_participation() -> Any:
    """jaxfl's `unreliable` is given a participation of the author's own."""
    heavy = sampling.uniform()._replace(name="mine", draw=louder(sampling.uniform().draw))
    some = jaxfl.algorithm("dp_sgd", participation=sampling.unreliable(heavy))
    return Composed(some, {"cohort": 2, "dropout": 0.1, "threshold": 1})


# --- aggregations --------------------------------------------------------------------------------


@case("aggregation")
def a_plain_sum_that_hides() -> Any:
    """The server sees each message, and the proof counts on all clients' noise."""
    shown = aggregations.plain_sum()._replace(hides=True, plain=False)
    return own(aggregation=shown)


@case("aggregation")
def protected_and_lengthened() -> Any:
    """Words are 100 times the messages, and a trusted server adds the noise."""
    exact = aggregations.plain_sum()

    def protect(key: Any, t: Any, me: Any, cohort: Any, v: Any, hp: Any) -> Any:
        return 100 * v, jnp.int32(0)

    longer = exact._replace(name="mine", protect=protect, plain=False)
    return jaxfl.algorithm("dp_fedavg", aggregation=longer)


@case("aggregation")
def a_registered_aggregation() -> Any:
    """By its name; every field is the author's."""

    @jaxfl.register("aggregation")
    def shown_sum() -> Aggregation:
        """Floats that anyone may read."""
        return Aggregation(
            "shown_sum",
            protect=lambda key, t, me, cohort, v, hp: (v, jnp.int32(0)),
            recover=lambda total, like, hp: total,
            settle=lambda *_: {},
            bits=32,
        )

    return jaxfl.algorithm("ldp_sgd", aggregation="shown_sum")


@case("aggregation")
def a_secure_sum_that_recovers_more() -> Any:
    """A trusted server's noise is added to 100 times the sum."""
    secure = aggregations.secure_sum()
    loud = secure._replace(recover=lambda words, like, hp: 100 * secure.recover(words, like, hp))
    return jaxfl.algorithm("dp_fedavg", aggregation=loud)


# --- networks ------------------------------------------------------------------------------------


@case("mechanism")
def a_quiet_network() -> Any:
    """Neighbours see a hundredth of the noise."""
    return network(mechanism=mechanisms.gaussian()._replace(std=lambda hp: hp["sigma"] / 100))


@case("estimator")
def a_network_of_scaled_terms() -> Any:
    """Neighbours see 100 times the gradient."""
    loud = with_terms(ONE._replace(scale=100.0))
    return network(estimator=estimators.minibatch(sampling.poisson())._replace(terms=loud))


@case("sampler")
def a_network_of_heavy_rows() -> Any:
    """Neighbours see rows with weights 100 times 1/b."""
    heavy = sampling.poisson()._replace(draw=louder(sampling.poisson().draw))
    return jaxfl.algorithm("dp_dsgd", sampler=heavy)


@case("compressor")
def a_network_of_repeats() -> Any:
    """Of a noised vector a copy is a copy; the rule is that a selection of one's own has no proof."""
    twice = compressors.random_k()._replace(select=the_first_k, unbiased=True)
    return Composed(jaxfl.algorithm("sdm_dsgd", compressor=twice), {"k": 2})


# --- algorithms, events, bodies ------------------------------------------------------------------


def shows_data(key: Any, state: Any, problem: Any, hp: Any) -> Any:
    """A round after which the model is the mean of the first client's features."""
    state, info = own().round(key, state, problem, hp)
    x, *memory = state.server
    return state._replace(server=(x + raw_mean(problem)[0], *memory)), info


@case("round", word="round")
def a_round_of_ones_own() -> Any:
    """The event describes another round."""
    return jaxfl.algorithm("ldp_sgd")._replace(round=shows_data)


@case("init", word="init")
def a_start_that_reads_the_data() -> Any:
    """The first model is computed from the data without noise."""
    algorithm = jaxfl.algorithm("ldp_sgd")

    def init(key: Any, problem: Any, hp: Any) -> Any:
        state, info = algorithm.init(key, problem, hp)
        x, *memory = state.server
        return state._replace(server=(x + raw_mean(problem)[0], *memory)), info

    return algorithm._replace(init=init)


@case("capacity", word="capacity")
def slots_of_ones_own() -> Any:
    """Batches have one slot, so that rows are dropped which the event counts as drawn."""
    return jaxfl.algorithm("ldp_sgd")._replace(
        capacity=lambda values, facts: {"batch": 1, "mean_batch": 1}
    )


@case("output", "unproven")
def an_output_that_holds_data() -> Any:
    """What is shown of the last state is the author's."""
    algorithm = jaxfl.algorithm("ldp_sgd")
    mean = np.asarray(data().train[0])[0].mean(0)
    return algorithm._replace(output=lambda state: algorithm.output(state) + mean)


@case("body", "unproven")
def another_body() -> Any:
    """The body is replaced beneath the round and the event of the old one."""
    quiet = mechanisms.gaussian()._replace(std=lambda hp: hp["sigma"] / 100)
    loud = own(mechanism=quiet)
    return loud._replace(body=own().body, event=own().event)


@case("round", word="round|body")
def the_round_of_another_body() -> Any:
    """jaxfl's round of a body without noise stands under the event of one with noise."""
    silent = own(mechanism=mechanisms.gaussian()._replace(std=None))
    return own()._replace(round=silent.body.round)


@case("event", "stated")
def an_understated_event() -> Any:
    """Noise and rounds are those of no round."""

    def event(values: Any, facts: Any) -> Any:
        return Event(Sampling("full", 1000, 1000), Mean(1e-3), float(values["sigma"]), 1)

    return own(event=event)


@case("event", "stated")
def an_event_of_local_steps() -> Any:
    """What is noised elsewhere needs an event, and the author states one."""
    noisy = jaxfl.algorithm("private_local_sgd")
    made = noisy.body._replace(aggregation=None)

    def event(values: Any, facts: Any) -> Any:
        return Event(Sampling("full", 20, 20), Mean(1.0), float(values["sigma"]), 10)

    numbers = plain(clip=1.0, batch=4, lr=0.1, local_steps=5, server_lr=1.0, eps=ASKED, omega=0.0)
    return compose("own", "", "", made, numbers, event=event)


@case("event", "unproven")
def the_event_of_another_body() -> Any:
    """jaxfl's own event of a Poisson batch is given to a body that draws all rows."""
    full = body(estimator=estimators.minibatch(sampling.full()))
    numbers = plain(clip=1.0, batch=1, lr=0.1, eps=ASKED, omega=0.0)
    return compose("own", "", "", full, numbers, [BATCH], event=own().event)


@case("event", "unproven")
def an_event_that_is_replaced() -> Any:
    """The algorithm is jaxfl's but for its event."""

    def event(values: Any, facts: Any) -> Any:
        return Event(Sampling("full", 1000, 1000), Mean(1e-3), float(values["sigma"]), 1)

    return jaxfl.algorithm("ldp_sgd")._replace(event=event)


@case("local", "refused")
def local_steps_without_an_event() -> Any:
    """Of local steps nothing is claimed without an event, so that no noise can be calibrated."""
    noisy = jaxfl.algorithm("private_local_sgd").body
    numbers = plain(clip=1.0, batch=4, lr=0.1, local_steps=5, server_lr=1.0, eps=ASKED, omega=0.0)
    return compose("own", "", "", noisy, numbers)


@case("local", "unproven")
def a_pull_of_ones_own() -> Any:
    """A term of the local gradients that the event of jaxfl's steps knows nothing of."""
    pull = local.free()._replace(name="mine", at=lambda x, theta, *_: 100 * (theta - x))
    noisy = jaxfl.algorithm("private_local_sgd")
    steps = local.steps(noisy.body.estimator, noisy.body.mechanism, pull)
    return exchanged(noisy, local=steps)


@case("local", word="local|optimizer")
def an_optimizer_of_ones_own_in_local_steps() -> Any:
    """Clients step by a function of the author's, and a local procedure is never covered."""
    made = lambda hp: optax.adam(hp["lr"])  # noqa: E731
    return Composed(jaxfl.algorithm("local_dp_sgd", optimizer=made))


@case("finish", "above")
def less_noise_after_calibration() -> Any:
    """`finish` lowers sigma: the proof reads the new one, and says that it is not what was asked."""

    def finish(draft: Any, noise: Any, facts: Any) -> None:
        draft.set("sigma", draft["sigma"] / 100, draft.sources["sigma"])

    numbers = plain(clip=1.0, batch=4, lr=0.1, eps=ASKED, omega=0.0)
    return compose("own", "", "", body(), numbers, finish=finish)


# --- models and data -----------------------------------------------------------------------------


@case("kernel", word="kernel|model")
def a_kernel_of_ones_own() -> Any:
    """The model's per-example gradients are summed 100 times."""
    model = jaxfl.models.logistic(FEATURES)
    total = model.kernel.contract
    loud = model.kernel._replace(contract=lambda w, F, batch: 100 * total(w, F, batch))
    return Composed("ldp_sgd", problem=problem_of(model._replace(kernel=loud)))


@case("kernel", word="kernel|model")
def a_kernel_that_does_not_clip() -> Any:
    """The shorter way to clip a linear model's gradients is replaced."""
    model = jaxfl.models.logistic(FEATURES)
    unclipped = model.kernel._replace(clip=lambda F, G, batch: 100 * F)
    return Composed("ldp_sgd", problem=problem_of(model._replace(kernel=unclipped)))


@case("kernel", word="kernel|model")
def a_kernel_of_another_model() -> Any:
    """Norms are those of a layer that is split, and clipped one by one."""
    model = jaxfl.models.mlp(FEATURES, (3,), 2)
    other = jaxfl.models.mlp(FEATURES, (3,), 2, activation="relu").kernel
    mixed = model.kernel._replace(inner=lambda F, H, batch: other.inner(F, H, batch) / 1e4)
    return Composed("ldp_sgd", problem=problem_of(model._replace(kernel=mixed)))


@case("activation", "proven")
def an_activation_that_would_mix_examples() -> Any:
    """It is applied to the units of one example, and subtracts their mean."""
    model = jaxfl.models.mlp(
        FEATURES, (3,), 2, activation=lambda z: jnp.tanh(z - z.mean(0, keepdims=True))
    )
    return Composed("ldp_sgd", problem=problem_of(model))


@case("activation", "proven")
def an_activation_that_would_normalize_a_batch() -> Any:
    """The largest unit of one example divides all of them."""
    model = jaxfl.models.mlp(FEATURES, (3,), 2, activation=lambda z: z / (1 + jnp.abs(z).max()))
    return Composed("ldp_sgd", problem=problem_of(model))


@case("model", "proven")
def a_smoothness_that_is_too_small() -> Any:
    """The increments of mu^2-SGD are clipped to what this L allows."""
    flat = jaxfl.models.logistic(FEATURES, constraint="ball:1")
    flat = flat._replace(smoothness=lambda train, count: 1e-6)
    return Composed("mu2_untrusted", {"batch": 1}, problem_of(flat))


@case("model", "proven")
def a_diameter_that_is_too_small() -> Any:
    """The increments of mu^2-SGD are clipped to what this diameter allows."""
    flat = jaxfl.models.logistic(FEATURES, constraint="ball:100")._replace(diameter=1e-3)
    return Composed("mu2_untrusted", {"batch": 1}, problem_of(flat))


@case("problem", "unproven")
def more_records_than_there_are() -> Any:
    """A problem is made to say that each client has 1000 records, of which it holds 20."""
    many = dataclasses.replace(usual(), count=jnp.full(3, 1000, jnp.int32))
    return Composed("ldp_sgd", problem=many)


@case("problem", "proven")
def heavy_clients_of_a_problem() -> Any:
    """Weights that are not divided by their mean enter the event as they are."""
    heavy = dataclasses.replace(usual(), weights=jnp.array([100.0, 100.0, 100.0]))
    return Composed("dp_sgd", problem=heavy)
