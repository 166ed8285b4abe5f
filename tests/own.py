"""Compositions with parts of a user's own: how they are made, and what a run's report says of each.

The table itself is :mod:`own_cases`.
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
from planned import federated as body

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.core.types import Compressor, Draw, Param, Server, Term
from jaxfl.engine.grid import lay_out
from jaxfl.engine.log import Log
from jaxfl.engine.runs import Reached, Record, settings
from jaxfl.parts import (
    Gossip,
    compose,
    compressors,
    estimators,
    graphs,
    mechanisms,
    plain,
    sampling,
    servers,
)
from jaxfl.problems.identity import dtype
from jaxfl.rounds import gossip

ASKED = 1.0
FEATURES = 4
NUMBERS = {"clip": 1.0, "lr": 0.1, "batch": 4, "k": 2, "shift": 0.3, "cohort": 2, "carry": 0.5}
NUMBERS |= {"refresh": 0.5, "moreau": 1.0, "spread": 1.0, "levels": 4}
BATCH = Param("batch", "rows that a client draws", low=1)
COHORT = Param("cohort", "clients of a round", low=1, integer=True)
SIGMA = Param("sigma", "standard deviation of the noise")


class Composed(NamedTuple):
    """An algorithm, or the name of one, with numbers and perhaps a problem of its own."""

    algorithm: jaxfl.parts.Algorithm | str
    numbers: Mapping[str, Any] = MappingProxyType({})
    problem: jaxfl.Problem | None = None


class Case(NamedTuple):
    """``expected`` is what a run's report says:

    * "no claim": nothing is proven, and the sentence names the part, or matches ``word``;
    * "probed": the eps rests on what a part declares, which a probe did not refute;
    * "refuted": no claim, since a probe refutes what the part declares;
    * "unproven": no claim, a refusal, or "stated by the user", whichever comes first;
    * "stated": the eps rests on an event that the user states;
    * "refused": a sentence before the first round;
    * "above": more is proven than was asked for, with a flag;
    * "proven": at most the eps that was asked for;
    * "open": no one looks, and the report says what it assumes.
    """

    name: str  # the role, and what breaks the proof, or why it holds
    make: Callable[[], Any]  # an algorithm, or Composed
    expected: str
    word: str  # a regular expression that the sentence of the report matches


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
    return problem_of(jaxfl.models.logistic(FEATURES))


def problem_of(model: Any, **how: Any) -> jaxfl.Problem:
    return jaxfl.Problem(model, data(), **how)


def begun(composed: Composed) -> Any:
    """The run before its first round, as :func:`jaxfl.simulate` plans it."""
    algorithm, problem = composed.algorithm, composed.problem or usual()
    algorithm = jaxfl.algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    names = {param.name for param in algorithm.params}
    given = {name: value for name, value in {"lr": 0.1, "batch": 4}.items() if name in names}
    given |= {"eps": ASKED, **composed.numbers, "rounds": 2}
    (study,) = lay_out(algorithm, problem, {}, given, [0], "calibrated", "train").studies
    ((_, _, values, sources, facts, *_),) = study.cells
    about, state = settings(algorithm, problem, study.standing), Reached(0)
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
        if "a probe refutes" in self.text:
            return "refuted"
        if not np.isfinite(self.eps):
            return "no claim"
        if self.status == "P":
            return "probed"
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
    report = run.privacy()
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
    if case.expected == "open":
        return "arrays in the user's parts" in found.text
    if case.expected == "unproven":
        return found.outcome in ("no claim", "refused", "refuted", "stated")
    if found.outcome != case.expected:
        return False
    if case.expected in ("no claim", "refuted"):
        return not found.status and bool(re.search(case.word, found.method))
    return found.flag if case.expected == "above" else True


# --- algorithms ----------------------------------------------------------------------------------


def own(made: Any = None, event: Any = None, **parts: Any) -> jaxfl.parts.Algorithm:
    """The algorithm of such a body, or of the one that is given."""
    made = body(**parts) if made is None else made
    names = {p.name for part in made.roles.values() for p in getattr(part, "params", ())}
    numbers = {name: value for name, value in NUMBERS.items() if name in names}
    return compose("own", "", "", made, plain(**numbers, eps=ASKED, omega=0.0), event=event)


def plan(**more: Any) -> Any:
    """The numbers of minibatch descent, and more."""
    return plain(**{"clip": 1.0, "batch": 4, "lr": 0.1, "eps": ASKED, "omega": 0.0, **more})


def composition(made: Any = None, numbers: Any = None, params: Any = (), **how: Any) -> Any:
    """An algorithm whose plan or rules are the author's."""
    return compose("own", "", "", made or body(), numbers or plan(), params, **how)


def network(**parts: Any) -> jaxfl.parts.Algorithm:
    """Noisy decentralized SGD of jaxfl's own parts, but for ``parts``."""
    plainest: dict[str, Any] = {
        "estimator": estimators.minibatch(sampling.poisson()),
        "mechanism": mechanisms.gaussian(),
        "compressor": compressors.identity(),
        "rule": gossip.averaging(),
        "graph": graphs.complete(),
    }
    return own(Gossip(**{**plainest, **parts}))


def exchanged(algorithm: jaxfl.parts.Algorithm, **parts: Any) -> jaxfl.parts.Algorithm:
    """The algorithm with these parts in its body and its rounds, and all else as it was."""
    made: Any = algorithm.body
    made = made._replace(**parts)
    return algorithm._replace(body=made, round=made.round, init=made.init)


def registered(kind: str, name: str, made: Any) -> str:
    """The name of a part or an algorithm that its author registers."""

    def make() -> Any:
        """Of a user's own."""
        return made() if kind == "algorithm" else made._replace(name=name)

    make.__name__ = name
    jaxfl.register(make) if kind == "algorithm" else jaxfl.register(kind)(make)
    return name


# --- functions of an author's own ----------------------------------------------------------------


def quiet(hp: Any) -> Any:
    """A hundredth of the noise that is accounted for."""
    return hp["sigma"] / 100


def drawn_quietly(key: Any, std: Any, like: Any) -> Any:
    """A hundredth of the noise that a mechanism declares."""
    return std / 100 * jax.random.normal(key, like.shape, like.dtype)


def louder(draw: Callable[..., Draw], times: float = 1.9) -> Callable[..., Draw]:
    """The same draw with weights so many times as large."""
    return lambda *given: Draw(draw(*given).index, times * draw(*given).weight)


def changed(hp: Any, **values: Any) -> Any:
    return dataclasses.replace(hp, values={**hp.values, **values})


def the_first_k(key: Any, d: int, hp: Any) -> Draw:
    """Coordinate 0 in every slot: several noised copies of one value."""
    slots = hp.caps["k"]
    return Draw(jnp.zeros(slots, jnp.int32), jnp.full(slots, 1.0))


def coins(key: Any, t: Any, count: Any, m_max: int, hp: Any) -> Draw:
    """Each row with probability batch/count."""
    heads = jax.random.uniform(jax.random.fold_in(key, t), (m_max,)) < hp["batch"] / count
    return Draw(None, jnp.where(heads & (jnp.arange(m_max) < count), 1 / hp["batch"], 0.0))


def calls_all(key: Any, t: Any, n: int, hp: Any) -> Draw:
    return Draw(jnp.arange(n), jnp.full(n, 1 / hp["cohort"]))


def levels(key: Any, v: Any, hp: Any) -> Any:
    """Each coordinate at random to the smallest or to the largest, without bias."""
    low, high = v.min(), v.max()
    up = jax.random.uniform(key, v.shape) * (high - low) < v - low
    return jnp.where(up, high, low)


def two_levels(**fields: Any) -> Compressor:
    """The compressor of the third notebook."""
    made = Compressor(
        "two_levels",
        code=levels,
        omega=lambda d, values: d / 2,
        bits=lambda d, values: (2 * 32.0 + d, 0.0),
        unbiased=True,
    )
    return made._replace(**fields)


def raw_mean(problem: Any) -> Any:
    """The mean of each client's features, without noise."""
    return jnp.mean(problem.train[0], axis=1)


def with_terms(*terms: Term) -> Callable[..., Any]:
    """Terms at x with the clip of the round where a bound is None."""

    def at(shared: Any, x: Any, hp: Any) -> tuple[Term, ...]:
        return tuple(
            t._replace(points=(x,), bound=hp["clip"] if t.bound is None else t.bound) for t in terms
        )

    return at


ONE = Term(1.0, (), (1.0,), None)


def signed_step(key: Any, state: Any, v: Any, project: Any, hp: Any) -> Any:
    """Of the state that jaxfl's descent keeps."""
    x, memory = state
    return x - hp["lr"] * jnp.sign(v), memory


def server_of_ones_own(**fields: Any) -> Server:
    """A server from scratch."""
    made = Server(
        "mine",
        init=lambda x, hp: x,
        view=lambda x: x,
        step=lambda key, x, v, project, hp: x - hp["lr"] * jnp.sign(v),
        output=lambda x: x,
        params=(servers.LR,),
    )
    return made._replace(**fields)


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


def reads_otherwise(kind: type, field: str, value: Any) -> type:
    """A subclass of a record whose attribute is not the entry of that name."""
    return type(f"Own{kind.__name__}", (kind,), {field: property(lambda self: value)})
