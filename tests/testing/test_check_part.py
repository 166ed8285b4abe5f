"""`jaxfl.testing.check_part`: it passes every part of jaxfl, and finds out parts that lie."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own import FEATURES, Case, Composed, network, own, problem_of, raw_mean, said
from told import refusals

import jaxfl
from jaxfl.core import types
from jaxfl.core.types import Compressor, Draw, Remembered, Term
from jaxfl.parts import (
    aggregations,
    channels,
    compressors,
    estimators,
    graphs,
    iterates,
    local,
    mechanisms,
    momentum,
    sampling,
    servers,
    smoothing,
)
from jaxfl.testing import CheckFailed, check_algorithm, check_part

CODES: dict[str, dict[str, float]] = {
    "identity": {},
    "random_k": {"k": 6},
    "stratified_k": {"k": 5},
    "bernoulli": {"k": 6},
    "qsgd": {"levels": 4},
    "natural": {},
    "lazy": {"keep": 0.25},
    "terngrad": {},
    "natural_dithering": {"levels": 3},
    "sto_sign": {},
    "top_k": {"k": 4},
    "qsgd+random_k": {"k": 9, "levels": 4},
    "natural+stratified_k": {"k": 6},
    "count_sketch": {"sketch_rows": 3, "sketch_columns": 7},
}
LINKS = (
    *(channels.direct, channels.shifted, channels.learned, channels.recursion),
    *(channels.error_feedback, channels.dasha),
)
poisson, fixed = sampling.poisson(), sampling.without_replacement()
with_replacement = sampling.with_replacement()


def unbiased(estimator: Any) -> Any:
    """It declares the constants of SoteriaFL's Assumption 3."""
    return estimator._replace(name="mine", assume=lambda setting, values: None)


minibatch, svrg = unbiased(estimators.minibatch(poisson)), unbiased(estimators.svrg(poisson))
ESTIMATORS: dict[str, Any] = {
    "minibatch": minibatch,
    "minibatch with replacement": unbiased(estimators.minibatch(with_replacement)),
    "svrg": svrg,
    "saga": unbiased(estimators.saga(with_replacement)),
    "moreau": smoothing.moreau(estimators.minibatch(poisson)),
    "convolution": smoothing.convolution(estimators.minibatch(fixed)),
    "corrected": momentum.corrected(sampling.in_order()),
    "recursive": momentum.recursive(fixed, False),
    "spider": momentum.recursive(sampling.full(), True),
    "marina": momentum.marina(sampling.full()),
    "page": momentum.page(poisson),
    "anchored": momentum.anchored(poisson, mechanisms.gaussian()),
}
# numbers of local steps; those of the noise they do not declare
STEP = {"local_steps": 3, "lr": 0.1, "clip": 1.0, "batch": 4, "sigma": 0.3}
STEP |= {"reads": ("clip", "batch", "sigma")}
SHORT = {**STEP, "update_clip": 0.2}
gaussian = mechanisms.gaussian()
steps = local.steps(estimators.minibatch(fixed), gaussian, local.free())
bounded = local.steps(estimators.minibatch(fixed), mechanisms.central(), local.free(), bounded=True)
LOCALS: dict[str, tuple[Any, dict[str, Any]]] = {
    "steps": (steps, STEP),
    "steps of Poisson batches": (local.steps(minibatch, gaussian, local.free()), STEP),
    "control": (
        local.steps(estimators.minibatch(sampling.shuffled()), gaussian, local.control()),
        STEP,
    ),
    "bounded": (bounded, SHORT),
}
MODELS = {
    "logistic": jaxfl.models.logistic(FEATURES),
    "mlp": jaxfl.models.mlp(FEATURES, 2, hidden=(3,)),
}
NETWORKS = ("complete", "ring", "grid", "erdos_renyi:0.3,2")
W = [[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]]
HONEST: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: (compressors.compressor(name), numbers) for name, numbers in CODES.items()},
    **{name: (sampling.sampler(name), {}) for name in sampling.SAMPLERS},
    **{f"{name} clients": (sampling.participation(name), {}) for name in sampling.PARTICIPATIONS},
    **{f"{make.__name__} channel": (make(), {}) for make in LINKS},
    "gaussian": (mechanisms.gaussian(), {"sigma": 0.3}),
    "central": (mechanisms.central(), {"sigma": 2.0}),
    "noiseless": (mechanisms.noiseless(), {}),
    "descent": (servers.descent(), {}),
    "averaged": (servers.averaging(), {}),
    "normalized": (servers.normalized(), {}),
    "majority": (servers.majority(), {}),
    "majority of averages": (servers.majority(momentum=True), {"beta": 0.9}),
    "anytime": (iterates.anytime(), {"diameter": 2.0, "reads": ("diameter",)}),
    **{
        name: (part, {"k": 6, "sigma": 0.3, "reads": ("k", "sigma")})
        for name, part in ESTIMATORS.items()
    },
    **LOCALS,
    **{name: (aggregations.aggregation(name), {}) for name in aggregations.AGGREGATIONS},
    **{name: (graphs.graph(name), {}) for name in NETWORKS},
    "matrix": (graphs.mixing(W), {"clients": 3}),
    **{name: (problem_of(model), {}) for name, model in MODELS.items()},
}

random_k, qsgd = compressors.random_k(), compressors.qsgd()
uniform, balanced, chance = sampling.uniform(), sampling.balanced(), sampling.poisson_clients()
direct, secure, logistic = channels.direct(), aggregations.secure_sum(), MODELS["logistic"]


def selects(change: Callable[[Draw, int], Draw]) -> Any:
    select = random_k.select
    assert select is not None
    return random_k._replace(name="mine", select=lambda key, d, hp: change(select(key, d, hp), d))


def codes(code: Callable[..., Any], **fields: Any) -> Any:
    fields |= {"resolve": lambda given, d: {}, "bits": lambda d, values: (32.0 * d, 0.0)}
    return qsgd._replace(name="mine", code=code, params=(), **fields)


def two(v: Any) -> Any:
    return jnp.where(v >= 0, 1, -1).astype(v.dtype)


def signs(code: Callable[[Any], Any], more: int = 0) -> Any:
    """One bit a coordinate, and ``more``: it has no omega."""
    bits = lambda d, values: (d + more, 0.0)  # noqa: E731
    return Compressor("mine", None, bits, code=lambda key, v, hp: code(v), unbiased=False)


def noise(draw: Callable[..., Any]) -> Any:
    return gaussian._replace(name="mine", draw=draw)


def weighs(part: Any, factor: float) -> Any:
    def draw(*given: Any) -> Draw:
        found = part.draw(*given)
        return Draw(found.index, factor * found.weight)

    return part._replace(name="mine", draw=draw)


def same_key(part: Any) -> Any:
    """Every round draws what the first one drew."""
    return part._replace(name="mine", draw=lambda key, t, *rest: part.draw(key, 0 * t, *rest))


def of_the_first(key: Any, t: Any, count: Any, m: int, hp: Any) -> Draw:
    """The same records, whoever asks."""
    b = hp.caps["batch"]
    live = jnp.arange(b) < hp["batch"]
    return Draw(jnp.where(live, jnp.arange(b), m), jnp.where(live, 1 / hp["batch"], 0.0))


def everyone_at_once(key: Any, t: Any, n: int, hp: Any) -> Draw:
    return Draw(jnp.arange(n), jnp.full(n, 1 / hp["cohort"]))


def all_or_none(key: Any, t: Any, count: Any, m: int, hp: Any) -> Draw:
    """Each record with probability q, all with one coin."""
    q, slots = hp["batch"] / count, hp.caps["batch"]
    live = (jax.random.uniform(jax.random.fold_in(key, t)) < q) & (jnp.arange(slots) < count)
    return Draw(jnp.where(live, jnp.arange(slots), m), jnp.where(live, 1 / hp["batch"], 0.0))


def normal(key: Any, like: Any) -> Any:
    return jax.random.normal(key, like.shape, like.dtype)


def half(draw: Draw, d: int) -> Draw:
    return Draw(draw.index, jnp.where(draw.index < d // 2, draw.weight, 0))


def uniform_noise(key: Any, std: Any, like: Any) -> Any:
    return std * 12**0.5 * (jax.random.uniform(key, like.shape) - 0.5)


def sends(before: Callable[..., Any], channel: Any = direct) -> Any:
    return channel._replace(name="mine", before=before)


def mine(part: Any, **fields: Any) -> Any:
    return part._replace(name="mine", **fields)


def scaled(factor: float) -> Any:
    """Terms so many times as long."""
    terms = lambda shared, x, hp: (Term(factor, (x,), (1.0,), hp["clip"]),)  # noqa: E731
    return minibatch._replace(gradient=minibatch.gradient._replace(terms=terms))


def remembers(init: Callable[..., Any]) -> Any:
    return svrg._replace(memory=svrg.memory._replace(init=init))


def shows_data(problem: Any, x: Any, *rest: Any) -> Any:
    """The mean of a client's features, unclipped, is added to its estimates."""
    base = raw_mean(problem) if rest[1] is False else raw_mean(problem).mean(0)
    return svrg.memory.init(problem, x, *rest)._replace(base=base)


def runs(change: Callable[..., Any], part: Any = steps) -> Any:
    return part._replace(name="mine", run=lambda *given: change(*part.run(*given)))


def protects(change: Callable[..., Any]) -> Any:
    return secure._replace(
        name="mine", protect=lambda *given: change(given, *secure.protect(*given))
    )


def matrix(W: Any) -> Any:
    return graphs.Graph("mine", lambda n: np.asarray(W(n)))


def kernel(**fields: Any) -> Any:
    return problem_of(logistic._replace(kernel=logistic.kernel._replace(**fields)))


def one_longer(w: Any, F: Any, batch: Any) -> Any:
    return logistic.kernel.contract(w, F, batch).at[1].multiply(1.5)


def unprojected(key: Any, state: Any, v: Any, project: Any, hp: Any) -> Any:
    return servers.descent().step(key, state, v, None, hp)


NUMBERS = {"k": 6, "sigma": 1.0}
# name: a part that lies, and a word of the sentence that finds it out
LYING: dict[str, tuple[Any, str]] = {
    # compressors
    "with replacement": (
        selects(lambda draw, d: Draw(draw.index // 2, draw.weight)),
        "more than once",
    ),
    "beyond the end": (selects(lambda draw, d: Draw(draw.index + d, draw.weight)), "beyond"),
    "unscaled": (selects(lambda draw, d: Draw(draw.index, (draw.weight > 0) * 1.0)), "should be"),
    "the first half alone": (selects(half), "k coordinates"),
    "omega of another k": (mine(random_k, omega=lambda d, v: d / v["k"] - 1.5), "omega"),
    "a bias of 1 %": (codes(lambda key, v, hp: 1.01 * v, omega=lambda d, v: 1.0), "should be"),
    "a bias that is declared, and too large": (
        codes(lambda key, v, hp: 0.5 * v, omega=lambda d, v: 0.1, unbiased=False),
        "error",
    ),
    "scaled signs of d bits": (signs(lambda v: jnp.abs(v).mean() * two(v)), "dimension 1 takes 11"),
    "three levels of d bits": (signs(jnp.sign), "1 for a message, .* dimension 1 takes 1.58"),
    "signs of d - 1 bits": (signs(two, -1), "0 for a message, .* dimension 1 takes 1"),
    "negative bits": (mine(random_k, bits=lambda d, v: (-1.0, 32.0)), "bits"),
    "one bit": (mine(random_k, bits=lambda d, v: (1.0, 0.0)), "to distinguish"),
    "a tail that is never sent": (
        codes(
            lambda key, v, hp: jnp.where(jnp.arange(v.size) < v.size // 4 * 4, v, 0),
            omega=lambda d, v: 0.9,
            unbiased=False,
        ),
        "error",
    ),
    "signs of short vectors": (
        codes(lambda key, v, hp: jnp.sign(v), omega=lambda d, v: 1e4, unbiased=False),
        "its error",
    ),
    "an error of unit vectors": (
        codes(lambda key, v, hp: jnp.where((v != 0).sum() == 1, 2 * v, v), omega=lambda d, v: 0.0),
        "should be",
    ),
    # samplers
    "weights 1.01 times": (weighs(poisson, 1.01), "weight"),
    "always the first records": (mine(fixed, draw=of_the_first), "should be"),
    "one coin for all records": (mine(poisson, draw=all_or_none), "two given|spread"),
    "with as Poisson": (mine(with_replacement, scheme="poisson"), "weight"),
    "fixed size as Poisson": (mine(fixed, scheme="poisson"), "two given|spread"),
    "the same rows in every round": (same_key(poisson), "two rounds"),
    "fresh rows as an epoch": (mine(fixed, scheme="shuffled"), "rounds"),
    "an epoch that repeats": (same_key(sampling.shuffled()), "rounds"),
    "epochs as cycles": (mine(sampling.shuffled(), scheme="cyclic"), "the same order"),
    "cycles as epochs": (mine(sampling.cyclic(), scheme="shuffled"), "two epochs"),
    # participations
    "clients 100 times": (weighs(uniform, 100.0), "weight"),
    "everyone as chance": (mine(chance, draw=everyone_at_once), "share"),
    "as many turns as rounds": (same_key(balanced), "rounds for a client"),
    "fewer turns than it takes": (mine(uniform, most=lambda T, n, v: 1), "rounds for a client"),
    "a random number as fixed": (mine(chance, fixed_size=True), "calls"),
    "more clients than there are": (mine(uniform, least=lambda n, v: 5), "at least 5"),
    "the same clients in every round": (same_key(chance), "two rounds"),
    # mechanisms
    "nine tenths": (noise(lambda key, std, like: 0.9 * std * normal(key, like)), "declares"),
    "pairs of coordinates": (
        noise(lambda key, std, like: std * jnp.repeat(normal(key, like[::2]), 2)[: like.size]),
        "correlation",
    ),
    "cut off": (noise(lambda key, std, like: std * normal(key, like).clip(-2, 2)), "declares"),
    "uniform": (noise(uniform_noise), "fourth moment"),
    "one key for ever": (
        noise(lambda key, std, like: std * normal(jax.random.key(0), like)),
        "is the same for every key: draw it with",
    ),
    "a mean": (noise(lambda key, std, like: std * (normal(key, like) + 0.5)), "noise"),
    "half of the message": (
        noise(lambda key, std, x: std * normal(key, x) + 0.5 * x),
        "depends on the message",
    ),
    "now and then nothing": (
        noise(lambda key, std, x: std * normal(key, x) * (jax.random.uniform(key) > 0.005)),
        "or they draw nothing",
    ),
    # channels
    "messages 1.1 times": (sends(lambda link, g: 1.1 * g), "apart"),
    "one coordinate longer": (sends(lambda link, g: g.at[3].multiply(2.0)), "apart"),
    "linear only in name": (sends(lambda link, g: jnp.clip(g, -0.5, 0.5)), "mean of before"),
    "a shift that grows": (sends(lambda s, g: 2 * g - s, channels.shifted()), "apart"),
    "coordinates that others change": (
        sends(lambda link, g: g[::-1], mine(channels.direct(), elementwise=True)),
        "all in before",
    ),
    "coordinates that fade unsent": (
        mine(
            channels.shifted(),
            after=lambda s, v, hp: channels.add(0.9 * s, v, hp["shift"]),
            linear=False,
            mirrors=False,
        ),
        "all in after",
    ),
    "a memory that is denied": (mine(channels.shifted(), remembers=False), "does not remember"),
    "a shift that the server does not follow": (
        mine(channels.shifted(), receive=lambda s, mean, *rest: (s + mean, s)),
        "mean of before",
    ),
    # estimators
    "terms 1.01 times": (scaled(1.01), "worst one"),
    "shorter terms": (scaled(0.9), "should be"),
    "svrg as a minibatch": (mine(svrg, sensitivity=minibatch.sensitivity), "worst one"),
    "data in the memory": (remembers(shows_data), "should be|worst one"),
    "a start that is not counted": (
        remembers(lambda *given: svrg.memory.init(*given)._replace(gradients=jnp.int32(0))),
        "counts 0 gradients",
    ),
    "a start that is counted twice": (
        mine(
            minibatch,
            memory=minibatch.memory._replace(init=lambda *_: Remembered(gradients=jnp.int32(12))),
        ),
        "does not read",
    ),
    # local procedures
    "longer reports": (runs(lambda g, *rest: (1.1 * g, *rest)), "has norm"),
    "reports beyond their bound": (runs(lambda g, *rest: (2 * g, *rest), bounded), "has norm"),
    "less noise in a report": (
        mine(steps, message_bound=lambda v: (steps.message_bound(v)[0], 0.1)),
        "noise of 0.1",
    ),
    "steps that count nothing": (runs(lambda g, own, count: (g, own, 0 * count)), "counts 0"),
    # aggregations
    "longer words": (protects(lambda given, words, clamped: (2 * words, clamped)), "off"),
    "a client that is left out": (
        protects(lambda given, words, clamped: (jnp.where(given[2] == 0, 0, words), clamped)),
        "off",
    ),
    "clamps in silence": (
        protects(lambda given, words, clamped: (words, 0 * clamped)),
        "counts no clamped",
    ),
    "shorter words in name": (mine(secure, bits=16), "16 bits"),
    # graphs
    "a weight that is not returned": (
        matrix(lambda n: (np.eye(n) + np.roll(np.eye(n), 1, 0)) / 2),
        "transpose",
    ),
    "a negative weight": (matrix(lambda n: 2 * np.eye(n) - 1 / n), "negative"),
    "rows of another sum": (matrix(lambda n: np.full((n, n), 0.9 / n)), "miss a sum"),
    "islands": (matrix(np.eye), "second eigenvalue"),
    # gradients of models
    "short norms": (kernel(inner=lambda F, H, b: logistic.kernel.inner(F, H, b) / 4), "differs"),
    "one coordinate of gradients longer": (kernel(contract=one_longer), "differs"),
    "a coordinate of other rows": (
        kernel(coordinates=lambda w, F, b, i: one_longer(w, F, b)[i]),
        "whole sum",
    ),
    # servers
    "another first point": (mine(servers.descent(), view=lambda s: s[0] + 1), "first"),
    "no projection": (mine(servers.descent(), step=unprojected), "the constraint set reaches"),
    "no projection of the output": (
        mine(servers.descent(), output=lambda s: 1.01 * s[0]),
        "output .* 1.01 times as far out",
    ),
}


def tiers(names: Iterable[str], *plain: str) -> list[Any]:
    return [pytest.param(n, marks=pytest.mark.plain) if n in plain else n for n in names]


@pytest.mark.parametrize(
    "name", tiers(HONEST, "steps of Poisson batches", "minibatch", NETWORKS[3])
)
def test_every_part_of_jaxfl_is_what_it_declares(name: str) -> None:
    part, numbers = HONEST[name]
    assert check_part(part, **numbers).done


def test_what_is_not_checked_is_told() -> None:
    found = check_part(signs(two))
    assert found.done == ("bits", "jit")
    assert found.left["error"] == "it declares no omega"
    assert set(found.left) == {"coordinates", "mean", "error"}


@pytest.mark.parametrize(
    "name",
    tiers(
        LYING,
        "one bit",
        "three levels of d bits",
        "terms 1.01 times",
        "the same clients in every round",
        "longer words",
    ),
)
def test_a_part_that_lies_is_found_out(name: str) -> None:
    part, word = LYING[name]
    names = [p.name for p in getattr(part, "params", ())]
    numbers = {name: NUMBERS[name] for name in names if name in NUMBERS}
    numbers |= (SHORT if "update_clip" in names else STEP) if "local_steps" in names else {}
    with pytest.raises(CheckFailed, match=word):
        check_part(part, **numbers)


def composed(part: Any) -> Any:
    """The part in a composition on whose proof it has a bearing, if it has one at all."""
    kind, two = type(part), {"local_steps": 2, "cohort": 2}
    if kind is types.Sampler:
        return own(estimator=estimators.minibatch(part))
    if kind is types.Participation:
        return Composed(jaxfl.algorithm("dp_fedavg", participation=part), two)
    if kind is types.Aggregation:
        return Composed(jaxfl.algorithm("dp_fedavg", aggregation=part), {"local_steps": 2})
    if kind is types.Problem:
        return Composed("ldp_sgd", problem=part)
    hidden = {"aggregation": secure} if kind is types.Channel else {}
    if kind is graphs.Graph:
        return network(graph=part)
    return own(**{kind.__name__.lower(): part}, **hidden)


# what a run says of the parts that a probe does not refute: they lie about nothing private, or have
# no claim whatever they say
UNREFUTED: dict[str, tuple[str, ...]] = {
    "probed": (
        *("unscaled", "the first half alone", "shorter terms", "clamps in silence"),
        "shorter words in name",
    ),
    "proven": (
        *("omega of another k", "a bias of 1 %"),
        *("negative bits", "one bit", "an error of unit vectors"),
        *("a weight that is not returned", "a negative weight"),
        *("rows of another sum", "islands", "another first point"),
        *("no projection", "no projection of the output"),
    ),
    "no claim": (
        *("svrg as a minibatch", "data in the memory", "a start that is not counted"),
        "a start that is counted twice",
    ),
    "refused": (
        *("scaled signs of d bits", "three levels of d bits", "signs of d - 1 bits"),
        *("a bias that is declared, and too large", "a tail that is never sent"),
        "signs of short vectors",
        *(
            "beyond the end",
            "longer reports",
            "reports beyond their bound",
            "less noise in a report",
        ),
        "steps that count nothing",
        *("with as Poisson", "fixed size as Poisson"),  # whose slots a Poisson batch would overflow
    ),
}
OUTCOMES = {name: word for word, names in UNREFUTED.items() for name in names}


@pytest.mark.full  # each compiles a probe; the parts themselves are checked above
@pytest.mark.parametrize("name", LYING)
def test_what_a_run_says_of_a_part_that_lies(name: str) -> None:
    found = said(Case(name, lambda: composed(LYING[name][0]), "", ""))
    assert found.outcome == OUTCOMES.get(name, "refuted"), found.text


test_what_cannot_be_checked = refusals(
    (lambda: check_part(3), "3 is no part that can be checked alone"),
    (lambda: check_part(compressors.random_k(), kk=6), "kk"),
    (lambda: check_part(mechanisms.gaussian(), sigma=-1), "sigma = -1"),
    (lambda: check_part(mine(random_k, select=lambda key, d, hp: key), k=6), "return a Draw"),
    (lambda: check_part(mine(qsgd, omega=lambda d, v: v["s"]), levels=4), "let resolve compute it"),
    (lambda: check_algorithm("ldp_gd", None, leave_out=("descnt",)), "did you mean 'descent'"),
    (lambda: check_algorithm("ldp_gd", None, leav_out=()), "did you mean the option 'leave_out'"),
)
