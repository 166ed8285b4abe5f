"""The records of which algorithms and problems are composed.

An algorithm is a record of pure functions over a state pytree.  One round body
(:mod:`jaxfl.rounds`) turns these parts into an algorithm:

* :class:`Participation` -- who takes part this round;
* :class:`Estimator` -- which of a client's samples are weighed how, and at which points;
* :class:`Mechanism` -- the noise that makes one client's estimate private;
* :class:`Compressor` and :class:`Channel` -- what travels, and what both ends remember of it;
* :class:`Server` -- what the mean of the messages does to the model;
* optionally :class:`Local`, what a client runs in place of one estimate, and :class:`Aggregation`,
  how the server gets the sum of the messages and nothing else.

Letters: ``n`` clients, ``m`` samples per client, ``d`` coordinates, ``b`` samples and ``r`` clients
drawn per round, ``k`` coordinates sent, ``t`` the round.  Whatever draws takes its key first.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.errors import InputError

__all__ = [
    "LARGEST",
    "SCHEMES",
    "Aggregation",
    "Algorithm",
    "AnyBody",
    "Array",
    "Asked",
    "Capacity",
    "Channel",
    "Client",
    "Compressor",
    "Cost",
    "Draw",
    "Eps",
    "Estimator",
    "GeneratedSamples",
    "Hyper",
    "Info",
    "Kernel",
    "Key",
    "Local",
    "Mechanism",
    "Message",
    "Model",
    "Noise",
    "Origin",
    "Param",
    "Participation",
    "Plan",
    "Problem",
    "ProblemFacts",
    "PyTree",
    "Resolved",
    "Rho",
    "Sampler",
    "Scheme",
    "Server",
    "Sigma",
    "Source",
    "State",
    "Table",
    "Term",
]

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array
PyTree: TypeAlias = Any
SHOWN_ROLES = (
    "estimator",
    "mechanism",
    "compressor",
    "channel",
    "server",
    "participation",
    "sampler",
)


# --- hyper-parameters ----------------------------------------------------------------------------

LARGEST = 3.4e38  # upper end of a finite 32-bit float


class Param(NamedTuple):
    """A hyper-parameter that a user may set, and its range."""

    name: str
    doc: str
    low: float = 0.0
    high: float = float("inf")
    integer: bool = False
    open_low: bool = False  # the lower end is excluded
    schedule: bool = False  # may change from round to round
    open_high: bool = False  # the upper end is excluded


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Hyper:
    """Resolved hyper-parameters: ``values`` are traced leaves, ``caps`` the static lengths they may fill.

    ``hp["batch"]`` is a traced number, ``hp.caps["batch"]`` the number of slots that its draw has.
    Cells of a sweep differ in ``values`` and share ``caps``.
    """

    values: dict[str, Any]
    capacity: tuple[tuple[str, int], ...] = dataclasses.field(default=(), metadata={"static": True})

    def __getitem__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise InputError(
                f"A round reads {name}, which none of its parts declares",
                f"add Param({name!r}, ...) to the params of the part that reads it",
            ) from None

    def at(self, t: Array) -> Hyper:
        """The hyper-parameters of round t; after its end a schedule keeps its last value."""
        values = {
            name: value if value.ndim == 0 else value[jnp.minimum(t, value.shape[0] - 1)]
            for name, value in self.values.items()
        }
        return Hyper(values, self.capacity)

    @property
    def caps(self) -> dict[str, int]:
        return dict(self.capacity)


class ProblemFacts(NamedTuple):
    """The facts of a problem that the host knows before the first round."""

    n: int
    m: int  # samples of the smallest client
    m_max: int  # of the largest
    d: int
    rounds: int | None  # None: the algorithm's own theory decides
    smoothness: float | None  # L of every per-example loss, where a closed form exists
    sizes: tuple[int, ...] = ()  # the different numbers of samples that clients have
    diameter: float | None = None  # of the constraint set
    convex: bool | None = None  # every example's loss
    contracts: bool | None = (
        None  # whether small steps along clipped gradients bring points together
    )
    constrained: bool | None = None  # whether the model is projected onto a set, bounded or not


class Origin(enum.Enum):
    """The kinds of sources of a value."""

    GIVEN = "given"  # by the user
    DEFAULT = "default"
    THEOREM = "theorem"  # or what follows from other values
    FORMULA = "formula"  # of a paper, for the noise
    CALIBRATED = "calibrated"  # by an accountant
    ACHIEVED = "achieved"  # by the compressor, in place of the omega that was asked for


class Source(str):
    """Where a value comes from, as a text, and as the ``origin`` that code reads."""

    origin: Origin

    def __new__(cls, origin: Origin, text: str = "") -> Source:
        source = super().__new__(cls, text or origin.value)
        source.origin = origin
        return source

    def __getnewargs__(self) -> tuple[Origin, str]:  # type: ignore[override]
        return self.origin, str(self)

    @classmethod
    def read(cls, text: str) -> Source:
        """The source whose text a file holds."""
        word = text.partition(":")[0]
        known = {origin.value: origin for origin in Origin}
        return cls(known.get(word, Origin.THEOREM), text)


class Eps(NamedTuple):
    """Noise for this eps, at the delta of the plan."""

    eps: float


class Sigma(NamedTuple):
    """Noise of this standard deviation."""

    sigma: float


class Rho(NamedTuple):
    """Noise for (alpha, alpha rho^2/2)-Renyi privacy."""

    rho: float


Asked: TypeAlias = Eps | Sigma | Rho  # the ways of asking for noise


class Plan(NamedTuple):
    """Every value of a run but those of its noise, and the noise that is asked for."""

    values: dict[str, Any]
    sources: dict[str, Source]
    asked: Asked | None = None
    parts: tuple[dict[str, Any], ...] = ({},)  # of disjoint records, each with noise of its own
    given: Mapping[str, Any] = {}  # by the user, an omega that was asked for included


class Noise(NamedTuple):
    """The standard deviation for each part of a plan."""

    levels: tuple[float, ...]
    source: Source
    eps: float | None = None  # asked for, or that of the formula for a given sigma
    eps_source: Source = Source(Origin.GIVEN)


class Resolved(NamedTuple):
    """Values that a run uses, and where each comes from."""

    values: dict[str, Any]
    sources: dict[str, Source]


class Draw(NamedTuple):
    """Some of a collection: positions and weights.

    ``index`` is None for everything in its own order.  A slot that holds nothing has weight 0 and
    an index one past the end, so that reads clamp it and writes drop it.
    """

    index: Array | None  # type: ignore[assignment]  # tuples have a method of that name
    weight: Array


# --- problems ------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """Per-example gradients kept as factors F, so that no (b, d) array need exist.

    With ``g_j`` the gradient of example j: ``inner(F, H, batch)_j = <g_j(F), g_j(H)>``,
    ``scale(c, F)`` are the factors of ``c_j g_j``, ``combine((c, ...), (F, ...))`` those of
    ``sum_p c_pj g_j(F_p)`` (c_p of shape () or (b,)) and ``contract(w, F, batch) = sum_j w_j g_j``.
    """

    factors: Callable[[Array, PyTree], PyTree]  # (x, batch) -> F, leaves (b, ...)
    inner: Callable[[PyTree, PyTree, PyTree], Array]  # -> (b,)
    scale: Callable[[Array, PyTree], PyTree]
    combine: Callable[[Sequence[Any], Sequence[PyTree]], PyTree]
    contract: Callable[[Array, PyTree, PyTree], Array]  # -> (d,)
    width: int  # floats that one example's factors occupy
    clip: Callable[[PyTree, Array, PyTree], PyTree] | None = None  # (F, G, batch): without norms
    link: Callable[[Array, PyTree], Array] | None = (
        None  # phi of f_j(x) = phi(a_j . x), if it is so
    )
    squares: bool = False  # of examples (a_j, y_j) it needs |a_j|^2, see samples.measured


class Model(NamedTuple):
    """A loss per example over a flat parameter vector, and what is known of it."""

    name: str
    dim: int
    init: Callable[[Key], Array]
    unravel: Callable[[Array], PyTree]  # the user's own parameter pytree
    loss: Callable[[Array, PyTree], Array]  # (x, one example) -> scalar, the private part
    regularizer: Callable[[Array], Array]  # x -> scalar, public: never clipped
    kernel: Kernel
    correct: Callable[[Array, PyTree], Array] | None = None  # (x, one example) -> 0 or 1
    project: Callable[[Array], Array] | None = None  # onto the constraint set
    smoothness: Callable[[PyTree, Any], float] | None = None  # host: (train, count) -> L
    diameter: float | None = None  # of the constraint set
    check: Callable[[PyTree], None] | None = None  # host: refuses data that the loss cannot take
    convex: bool | None = None  # every example's loss, regularizer included; None: not known

    def __repr__(self) -> str:
        return f"Model({self.name!r}, d={self.dim})"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GeneratedSamples:
    """Samples that are generated when read: those at (i, j) are ``make(source, i, j)``.

    ``i`` and ``j`` are clients and rows, (B,), and the leaves made (B, ...).
    """

    source: PyTree
    make: Callable[[PyTree, Array, Array], PyTree] = dataclasses.field(metadata={"static": True})
    m: int = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Problem:
    """Data of n clients as leaves, their model as structure."""

    train: PyTree  # leaves (n, m_max, ...), zero-padded; or GeneratedSamples
    count: Array  # (n,) samples that each client really has
    test: PyTree | None  # leaves (N, ...)
    x0: Array | None  # (d,), or None: drawn by the model
    model: Model = dataclasses.field(metadata={"static": True})
    name: str = dataclasses.field(default="problem", metadata={"static": True})
    validation: PyTree | None = None  # examples that settings may be chosen on, leaves (N, ...)

    @property
    def n(self) -> int:
        return int(self.count.shape[0])

    @property
    def m_max(self) -> int:
        if isinstance(self.train, GeneratedSamples):
            return self.train.m
        return int(jax.tree.leaves(self.train)[0].shape[1])

    def __repr__(self) -> str:
        try:
            sizes = f"n={self.n}, m={self.m_max}"
        except (AttributeError, IndexError):  # other leaves in place of arrays, as in in_axes
            sizes = "no data"
        return f"Problem({self.name!r}, {sizes}, d={self.model.dim}, model={self.model.name!r})"


def nothing(values: Mapping[str, Any], about: Any) -> dict[str, Any]:
    """The ``capacity`` and ``resolve`` of parts without any."""
    return {}


# --- parts of a round ----------------------------------------------------------------------------

# the laws of draws for which there are accountants
Scheme: TypeAlias = Literal[
    "full", "poisson", "without_replacement", "with_replacement", "shuffled", "single_pass"
]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

Capacity: TypeAlias = Callable[
    [Mapping[str, Any], ProblemFacts], dict[str, int]
]  # host: static lengths


class Sampler(NamedTuple):
    """Rows of one client.  ``key`` is the client's own stream, the same in every round.

    ``scheme`` is the law of the draws; None: another one, for which nothing is claimed.
    ``strips``: the live slots of a draw come before the others, and its capacity says the
    ``mean_batch`` of them, so that rows of all clients can be read one after the other
    (:mod:`jaxfl.rounds.packing`).
    """

    name: str
    draw: Callable[[Key, Array, Array, int, Hyper], Draw]  # (key, t, count, m_max, hp)
    distinct: bool  # no row twice in one draw
    params: tuple[Param, ...] = ()
    capacity: Capacity = nothing
    scheme: Scheme | None = None
    strips: bool = False

    @property
    def whole(self) -> bool:
        """Whether every draw is all rows."""
        return self.scheme == "full"

    @property
    def padded(self) -> bool:
        """Whether a draw has more or fewer rows by chance, in slots that others may fill."""
        return self.scheme == "poisson"

    @property
    def fresh(self) -> bool:
        """Whether the draws of different rounds are independent, each of some of the rows."""
        return self.scheme in ("poisson", "without_replacement", "with_replacement")

    @property
    def epochs(self) -> bool:
        """Whether a row comes once in every pass over all of them."""
        return self.scheme == "shuffled"

    @property
    def single_pass(self) -> bool:
        """Whether a row comes once in the whole run."""
        return self.scheme == "single_pass"


class Participation(NamedTuple):
    """The clients of one round, all of one weight, 1/r.  ``key`` is the run's stream.

    ``scheme`` is the law of the draws for an observer who does not learn who took part; None: nothing
    is known beyond ``most``.
    """

    name: str
    draw: Callable[[Key, Array, int, Hyper], Draw]  # (key, t, n, hp)
    everyone: bool = False
    params: tuple[Param, ...] = ()
    capacity: Capacity = nothing
    most: Callable[[int, int, Mapping[str, Any]], int] | None = None
    # host: (T, n, values) -> rounds that no client exceeds; None: all of them
    least: Callable[[int, Mapping[str, Any]], int] | None = None
    # host: (n, values) -> clients whose messages a round adds up, at least; None: all that are called
    scheme: Scheme | None = None
    fixed_size: bool = False  # the same number of clients is called in every round


class Term(NamedTuple):
    """``scale * sum_j weight_j clip(sum_p coef_p grad f_j(point_p), bound)``."""

    scale: float | Array
    points: tuple[Array, ...]
    coefs: tuple[float | Array, ...]
    bound: Array


class Table(NamedTuple):
    """The memory of an estimator for every row of a client, as factors of its gradient."""

    recall: Callable[[PyTree, Draw], PyTree]  # (local, rows) -> stored
    absorb: Callable[[PyTree, Draw, PyTree], PyTree]  # (local, rows, new factors) -> local


class Estimator(NamedTuple):
    """A weighting of per-example gradients, with a memory.

    The estimate of client i is ``sum of terms - sum_j weight_j stored_j + base_i``: the round decides
    how to evaluate it.  ``shared`` memory is the same for all clients, ``local`` is one client's.
    After the round ``base_i <- base_i + sum_j u_j (c_j - stored_j)``, with c_j the clipped gradients of
    the first term and u the weights of ``follow``.  ``base`` is (n, d); ``pooled``, where the round
    needs no more of it than its mean over clients, that mean, (d,).
    ``begin`` runs before a round: it updates the memory, and sets the hyper-parameters that depend on
    the data; ``refresh`` runs after it.
    ``public`` is the regularizer's part of the estimate, where that is not its gradient at x.
    """

    name: str
    sampler: Sampler
    init: Callable[
        [Problem, Array, Hyper, bool, str], tuple[PyTree, PyTree, Array | None, Array]
    ]  # (problem, x, hp, pooled, storage) -> shared, local, base, gradients
    terms: Callable[[PyTree, Array, Hyper], tuple[Term, ...]]  # (shared, x, hp)
    params: tuple[Param, ...] = ()
    points: int | None = None  # gradients of one row that an estimate adds up; None: unbounded
    sensitivity: Callable[[Mapping[str, Any]], Any] | None = None  # host: for the privacy event
    table: Table | None = None
    follow: Callable[[Draw, Array], Array] | None = None  # (rows, count) -> u; None: base stays
    begin: Callable[[Key, PyTree, Any, Array, Problem, Hyper], Any] | None = None
    # (key, shared, base, x, problem, hp) -> shared, base, gradients evaluated, hp of this round
    refresh: Callable[[Key, PyTree, Any, Array, Problem, Hyper], Any] | None = None
    # (key, shared, base, x, problem, hp) -> shared, base, gradients evaluated
    public: Callable[[PyTree, Callable[[Array], Array], Array, Hyper], Array] | None = None
    # (shared, gradient of the regularizer, x, hp)
    kernel: Callable[[Model, Hyper], Kernel] | None = None  # whose gradients; None: the model's
    jitter: Callable[[Key, int, Array, Hyper], Array] | None = None
    # (key, rows, x, hp) -> what moves the point of each of one client's rows, (rows, d)
    assume: Callable[..., Any] | None = None
    # host: (theory.Setting, values) -> the constants of SoteriaFL's Assumption 3, as a
    # theory_shifted.Estimator; None: not known


class Mechanism(NamedTuple):
    """Gaussian noise of standard deviation ``std`` on every coordinate of a client's estimate.

    ``central``: on the mean of the messages instead, by a server that clients trust.
    """

    name: str
    std: Callable[[Hyper], Array] | None  # None: no noise
    params: tuple[Param, ...] = ()
    central: bool = False


class Client(NamedTuple):
    """One client as its own procedure sees it."""

    rows: Key  # the stream of its samples, the same in every round
    noise: Key  # of this round
    count: Array  # type: ignore[assignment]  # tuples have a method of that name
    take: Callable[[Draw], PyTree]  # the drawn samples, leaves (b, ...)


class Local(NamedTuple):
    """A procedure that a client runs in place of one estimate, its noise included.

    The g that ``run`` returns replaces the estimate: ``x - theta_i`` of a client that moves the model
    x to theta_i.  ``close`` updates the shared memory from the mean of them.
    """

    name: str
    init: Callable[[Problem, Array], tuple[PyTree, PyTree]]  # shared, one per client
    run: Callable[[Client, Array, PyTree, PyTree, Problem, Hyper], tuple[Array, PyTree, Array]]
    # (client, x, shared, memory of this client, problem, hp) -> g, memory, gradients evaluated
    reach: Callable[[Mapping[str, Any]], tuple[float, float] | None]  # host: see Aggregation
    close: Callable[[PyTree, Array, Array, Array, Hyper], PyTree] | None = None
    # (shared, sum_S weight g_i, r/n, sum_S weight, hp)
    params: tuple[Param, ...] = ()
    broadcasts: int = 1  # vectors that the server sends to a client


class Aggregation(NamedTuple):
    """How the server obtains the sum of the messages without seeing any of them.

    ``protect(key, t, me, cohort, v, hp)`` is one client's message as words, and how many of its
    coordinates had to be clamped; words add up modulo 2^32, and ``recover`` reads the sum.
    ``settle`` takes a bound on the part of a message that clipping bounds and the deviation of its
    noise, or None where neither is known.
    """

    name: str
    protect: Callable[[Key, Array, Array, Draw, Array, Hyper], tuple[Array, Array]]
    recover: Callable[[Array, Array, Hyper], Array]  # (words, like, hp)
    settle: Callable[
        [Mapping[str, Any], tuple[float, float] | None, int, int], dict[str, tuple[float, str]]
    ]  # host: (values, reach, senders, d) -> each value that was not given, with its source
    bits: int  # of one word
    params: tuple[Param, ...] = ()
    hides: bool = True  # whether the server sees the sum alone
    plain: bool = False  # words are the messages: the round may add them up by itself


class Message(NamedTuple):
    """What one client sends: ``value`` at the coordinates ``index`` (None: all of them)."""

    value: Array
    index: Array | None  # type: ignore[assignment]  # tuples have a method of that name


class Compressor(NamedTuple):
    """C(v) in two stages: coordinates chosen without a look at v, then a code of their values.

    ``select`` returns coordinates with their weights (d/k for random-k), so that the others need
    neither noise nor arithmetic; ``code`` acts on the chosen values.
    """

    name: str
    omega: Callable[[int, Mapping[str, Any]], float]  # host: E|C(v) - v|^2 <= omega |v|^2
    bits: Callable[
        [int, Mapping[str, Any]], tuple[float, float]
    ]  # host: per message, per coordinate
    select: Callable[[Key, int, Hyper], Draw] | None = None
    code: Callable[[Key, Array, Hyper], Array] | None = None
    resolve: Callable[[Mapping[str, Any], int], dict[str, Any]] = nothing
    # host: (given, d) -> numbers
    capacity: Capacity = nothing
    params: tuple[Param, ...] = ()
    unbiased: bool = True
    absolute: bool = False  # the error does not depend on v: asking for omega raises
    fixed_size: bool = False  # ``select`` chooses k coordinates in every message
    scalars: bool = False  # a vector of one coordinate arrives as it is

    @property
    def exact(self) -> bool:
        """Whether C(v) = v."""
        return self.select is None and self.code is None


def unbounded(omega: float) -> None:
    """The ``growth`` of a channel that declares none."""
    return None


class Channel(NamedTuple):
    """The memory of earlier messages at both ends.

    ``before`` is what a client compresses instead of its estimate g, ``after`` what it then
    remembers; ``receive`` turns the mean message into the server's estimate.  Its ``link`` is the
    server's end, and ``moved`` the mean change of the clients' memories, or None where that is what the
    messages say.
    """

    name: str
    init: Callable[[int, Array, bool], tuple[PyTree, PyTree]]  # (n, x, fused) -> clients', server's
    before: Callable[[PyTree, Array], Array]
    after: Callable[[PyTree, Message, Hyper], PyTree]
    receive: Callable[[PyTree, Array, Array, Hyper, Any], tuple[Array, PyTree]]
    # (link, mean message, r/n, hp, moved) -> the server's estimate, link
    params: tuple[Param, ...] = ()
    residual: Callable[[PyTree, Array, Array], PyTree] | None = None
    # (state, what was to be compressed, noise included, C of it) -> clients', in place of ``after``
    linear: bool = False  # the mean of ``before(s_i, g_i)`` is ``before(s, g)`` of the means
    remembers: bool = True  # either end is moved by messages, so that it matters who sends them
    mirrors: bool = False  # the server follows the mean of what clients remember
    growth: Callable[[float], tuple[float, float] | None] = unbounded
    # host: omega -> by what factors messages are longer than estimates and their noise larger


class Server(NamedTuple):
    """The model's owner."""

    name: str
    init: Callable[[Array, Hyper], PyTree]
    view: Callable[[PyTree], Array]  # where clients evaluate
    step: Callable[[Key, PyTree, Array, Callable[[Array], Array] | None, Hyper], PyTree]
    # (key, state, the estimate v, projection onto the constraint set if any, hp) -> state
    output: Callable[[PyTree], Array]
    params: tuple[Param, ...] = ()


class AnyBody(Protocol):
    """The parts of the body of a round."""

    @property
    def estimator(self) -> Estimator: ...
    @property
    def mechanism(self) -> Mechanism: ...
    @property
    def compressor(self) -> Compressor: ...
    @property
    def participation(self) -> Participation: ...
    @property
    def local(self) -> Local | None: ...
    @property
    def aggregation(self) -> Aggregation | None: ...
    @property
    def clip(self) -> str: ...
    @property
    def broadcasts(self) -> int: ...


# --- the whole -----------------------------------------------------------------------------------


class State(NamedTuple):
    """What the next round needs."""

    t: Array
    server: PyTree
    link: PyTree  # the server's end of the channel
    links: PyTree  # the clients' ends, leaves (n, ...)
    shared: PyTree  # the estimator's memory
    local: PyTree  # one per client, leaves (n, ...)
    bases: Array | None = None  # what is added to each client's estimates, (n, d)
    base: Array | None = None  # their mean, (d,), where no more is needed


class Info(NamedTuple):
    """Counts of one round; the host turns them into totals and bits."""

    clients: Array  # messages sent
    coordinates: Array  # coordinates in them
    gradients: Array  # per-example gradients evaluated
    clamped: Array = np.zeros((), np.int32)  # type: ignore[assignment]  # coordinates out of range


class Cost(NamedTuple):
    """Host: bits of one message, of one coordinate in it, and of one broadcast."""

    per_message: float
    per_coordinate: float
    downlink: float


class Algorithm(NamedTuple):
    """A published algorithm: hyper-parameters resolved on the host, rounds traced.

    :func:`jaxfl.algorithms.resolution.resolve` calls ``plan``, chooses the noise, and calls ``finish``.
    """

    name: str
    summary: str
    paper: str
    params: tuple[Param, ...]
    plan: Callable[[Mapping[str, Any], ProblemFacts], Plan]  # of what is given: all but the noise
    capacity: Callable[[Mapping[str, Any], ProblemFacts], dict[str, int]]
    cost: Callable[[Mapping[str, Any], ProblemFacts], Cost]
    init: Callable[[Key, Problem, Hyper], tuple[State, Info]]
    round: Callable[[Key, State, Problem, Hyper], tuple[State, Info]]
    output: Callable[[State], Array]
    finish: Callable[[Plan, Noise, ProblemFacts], Resolved] | None = None
    # what follows from the noise; None: nothing but the noise itself
    event: Callable[[Mapping[str, Any], ProblemFacts], Any] | None = None
    # (values, facts): what a run releases; with "phase" among the values, that part alone
    formula: Callable[[Mapping[str, Any], ProblemFacts, Asked], Any] | None = None
    # (values, facts, asked): the paper's noise as a Claim, both ways; None where it has none
    cited: bool = False  # whether reports show the formula as the paper's claim
    needs: tuple[str, ...] = ()  # hyper-parameters that rounds cannot do without
    reads: tuple[str, ...] | None = None  # those that rounds read; None: all
    parts: tuple[tuple[str, str], ...] = ()  # (role, name), for the record
    per_record: bool = True  # False: clip="batch", which bounds no single record's influence
    cohort: Callable[[Key, Array, int, Hyper], Draw] | None = None  # of a round, by the run's key
    body: AnyBody | None = None  # what init and round are made of, where that is known

    def claim(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """What the paper states of the noise of these values; None where it states nothing."""
        if not self.cited or self.formula is None or not values.get("sigma"):
            return None
        return self.formula(values, facts, Sigma(float(values["sigma"])))

    def __repr__(self) -> str:
        parts = "".join(f", {role}={name!r}" for role, name in self.parts if role in SHOWN_ROLES)
        return f"Algorithm({self.name!r}{parts})"
