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
drawn per round, ``k`` coordinates sent, ``t`` the round.  Functions that draw take their key first.
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
from jaxfl.core.identity import compared_by_identity

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
    "Clients",
    "Compressor",
    "Cost",
    "Draw",
    "Eps",
    "Estimator",
    "GeneratedSamples",
    "Gradient",
    "Hyper",
    "Info",
    "Kernel",
    "Key",
    "Local",
    "Mechanism",
    "Memory",
    "Message",
    "MessageBound",
    "Model",
    "Noise",
    "Origin",
    "Pace",
    "Param",
    "Participation",
    "Plan",
    "Problem",
    "ProblemFacts",
    "Project",
    "PyTree",
    "Remembered",
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
    "Values",
]

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array
PyTree: TypeAlias = Any
Values: TypeAlias = Mapping[str, Any]  # hyper-parameters by name
Project: TypeAlias = Callable[[Array], Array] | None  # onto the constraint set, if there is one
# roles that distinguish algorithms of one name, with short values
SHOWN_ROLES = (
    "estimator",
    "mechanism",
    "compressor",
    "channel",
    "server",
    "participation",
    "sampler",
    "rule",
    "graph",
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
    default: str = ""  # how a part's default depends on the model, in words


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

    def copy(self) -> Hyper:
        """The same values in a dictionary of its own, which a user's part may write to."""
        return Hyper(dict(self.values), self.capacity)

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
    contracts: bool | None = None  # whether small steps along clipped gradients bring points closer
    constrained: bool | None = None  # whether the model is projected onto a set, bounded or not
    groups: tuple[tuple[int, float, int], ...] = ()
    # (records, weight, number) of equal clients, weights of mean 1; (): all weigh the same

    def weight(self, m: int | None = None) -> float:
        """The largest weight of a client, or of one with m records."""
        return max((w for size, w, _ in self.groups if m in (None, size)), default=1.0)

    def noises(self, r: int, m: int) -> float:
        """The least ``sum_S w_j^2 / w_i^2`` over sets S of r clients with i, which has m records."""
        if not self.groups:
            return r
        mine, left, total = self.weight(m), r - 1, 0.0
        for size, w, number in sorted(self.groups, key=lambda group: group[1]):
            others = min(left, number - (size == m and w == mine))
            total, left = total + others * w**2, left - others
        return 1 + total / mine**2


class Origin(enum.Enum):
    """The kinds of sources of a value."""

    GIVEN = "given"  # by the user
    DEFAULT = "default"
    THEOREM = "theorem"  # or what follows from other values
    FORMULA = "formula"  # of a paper, for the noise
    CALIBRATED = "calibrated"  # by an accountant


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


class Ask:
    """A way of asking for noise: one number, under its name."""

    @property
    def way(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclasses.dataclass(frozen=True)
class Eps(Ask):
    """Noise for this eps, at the delta of the plan."""

    eps: float


@dataclasses.dataclass(frozen=True)
class Sigma(Ask):
    """Noise of this standard deviation."""

    sigma: float


@dataclasses.dataclass(frozen=True)
class Rho(Ask):
    """Noise for (alpha, alpha rho^2/2)-Renyi privacy."""

    rho: float


Asked: TypeAlias = Eps | Sigma | Rho  # the ways of asking for noise


class Plan(NamedTuple):
    """Every value of a run except its noise, and how the noise is chosen."""

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

    A kernel of several ``layers`` is clipped layer by layer: inner products and the c of ``scale`` and
    ``combine`` have shape (b, layers).
    """

    factors: Callable[[Array, PyTree], PyTree]  # (x, batch) -> F, leaves (b, ...)
    inner: Callable[[PyTree, PyTree, PyTree], Array]  # -> (b,)
    scale: Callable[[Array, PyTree], PyTree]
    combine: Callable[[Sequence[Any], Sequence[PyTree]], PyTree]
    contract: Callable[[Array, PyTree, PyTree], Array]  # -> (d,)
    width: int  # floats that one example's factors occupy
    clip: Callable[[PyTree, Array, PyTree], PyTree] | None = None  # (F, G, batch): without norms
    link: Callable[[Array, PyTree], Array] | None = None  # phi, where f_j(x) = phi(a_j . x)
    squares: bool = False  # of examples (a_j, y_j) it needs |a_j|^2, see samples.measured
    convolves: bool = False  # XLA is slow at gradients of convolutions in loops on CPUs
    layers: int = 1
    split: Callable[[], Kernel] | None = None  # the kernel of several layers; None: there is one


@compared_by_identity
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
    check: Callable[[PyTree], None] | None = None  # host: raises for data that the loss cannot take
    convex: bool | None = None  # every example's loss, regularizer included; None: not known
    trained: Callable[[Array], PyTree] | None = (
        None  # the pytree with None for frozen leaves, if any
    )

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


@dataclasses.dataclass(frozen=True, eq=False)
class Clients:
    """What the host knows about the clients of a problem.

    All are equal, so that problems which differ in nothing else share their compiled programs.
    """

    names: tuple[str, ...] = ()  # or none
    partition: str = ""  # how the records were divided among them, in words

    def name(self, client: int) -> str:
        return self.names[client] if self.names else str(client)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Clients)

    def __hash__(self) -> int:
        return 0


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
    clients: Clients = dataclasses.field(default=Clients(), metadata={"static": True})
    # samples of each client that metrics read, evenly spaced; None: all
    evaluated: int | None = dataclasses.field(default=None, metadata={"static": True})
    weights: Array | None = None  # (n,) of the clients in the objective, with mean 1; None: equal
    test_owner: Array | None = None  # (N,) the client of each test example, -1: of none

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
            least, most = int(np.min(self.count)), self.m_max
            sizes = f"n={self.n}, m={most if least == most else f'{least} to {most}'}"
        except (
            AttributeError,
            IndexError,
            TypeError,
        ):  # other leaves in place of arrays, as in in_axes
            sizes = "no data"
        return f"Problem({self.name!r}, {sizes}, d={self.model.dim}, model={self.model.name!r})"


def nothing(values: Values, about: Any) -> dict[str, Any]:
    """The default ``resolve`` and ``capacity``, of parts that have no hyper-parameters."""
    return {}


# --- parts of a round ----------------------------------------------------------------------------

# the laws of draws for which there are accountants
Scheme: TypeAlias = Literal[
    "full", "poisson", "without_replacement", "with_replacement", "shuffled", "single_pass"
]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

Capacity: TypeAlias = Callable[[Values, ProblemFacts], dict[str, int]]  # host: static lengths


class Sampler(NamedTuple):
    """A law of the rows that one client draws in a round.

    ``key`` is the client's own stream, the same in every round.  ``scheme`` is the law as
    accountants know it; None claims nothing.  With ``strips``, the live slots of a draw come first
    and ``capacity`` returns ``mean_batch``, the mean number of them, so that a round can read the
    rows of all clients one after the other (:mod:`jaxfl.rounds.estimates`).
    """

    name: str
    draw: Callable[[Key, Array, Array, int, Hyper], Draw]  # (key, t, count, m_max, hp)
    distinct: bool  # whether no draw holds a row twice
    params: tuple[Param, ...] = ()
    capacity: Capacity = nothing
    scheme: Scheme | None = None
    strips: bool = False

    @property
    def whole(self) -> bool:
        """Whether every draw holds all rows."""
        return self.scheme == "full"

    @property
    def padded(self) -> bool:
        """Whether the number of rows in a draw is random, so that some slots may stay empty."""
        return self.scheme == "poisson"

    @property
    def fresh(self) -> bool:
        """Whether the draws of different rounds are independent, each of some of the rows."""
        return self.scheme in ("poisson", "without_replacement", "with_replacement")

    @property
    def epochs(self) -> bool:
        """Whether every pass over the rows uses each of them once."""
        return self.scheme == "shuffled"

    @property
    def single_pass(self) -> bool:
        """Whether a run uses each row at most once."""
        return self.scheme == "single_pass"


class Participation(NamedTuple):
    """A law of the clients that take part in a round, each with weight 1/r.

    ``key`` is the run's stream.  ``scheme`` is the law for an observer who does not learn who took
    part; None: the observer knows no more than ``most``.
    """

    name: str
    draw: Callable[[Key, Array, int, Hyper], Draw]  # (key, t, n, hp)
    everyone: bool = False
    params: tuple[Param, ...] = ()
    capacity: Capacity = nothing
    most: Callable[[int, int, Values], int] | None = None
    # host: (T, n, values) -> the most rounds in which any client takes part; None: T
    least: Callable[[int, Values], int] | None = None
    # host: (n, values) -> the fewest clients whose messages a round adds up; None: all it calls
    scheme: Scheme | None = None
    fixed_size: bool = False  # whether every round calls the same number of clients


class Term(NamedTuple):
    """``scale * sum_j weight_j clip(sum_p coef_p grad f_j(point_p), bound)``."""

    scale: float | Array
    points: tuple[Array, ...]
    coefs: tuple[float | Array, ...]
    bound: Array


class Table(NamedTuple):
    """One client's memory of every row, as factors of the row's gradient."""

    recall: Callable[[PyTree, Draw], PyTree]  # (local, rows) -> stored
    absorb: Callable[[PyTree, Draw, PyTree], PyTree]  # (local, rows, new factors) -> local


class Remembered(NamedTuple):
    """What an estimator remembers before the first round, and what computing it cost."""

    shared: PyTree = ()  # the same for all clients
    local: PyTree = ()  # of each client, leaves (n, ...)
    base: Array | None = None  # added to each client's estimate: (n, d), or its mean (d,)
    gradients: Array = np.zeros((), np.int32)  # type: ignore[assignment]  # per-example gradients


class Updates(Protocol):
    """A change of what an estimator remembers, for all clients, before or after a round."""

    def __call__(
        self, key: Key, shared: PyTree, base: Any, x: Array, problem: Problem, hp: Hyper, /
    ) -> tuple[PyTree, Any, Array]:
        """Return the new ``shared`` and ``base``, and the number of gradients evaluated.

        ``base`` is (n, d), its mean (d,), or None.
        """
        ...


Pace: TypeAlias = Callable[[Key, Array, Hyper], dict[str, Array]]
"""(key, t, hp) -> the hyper-parameters that differ in round t, by name.

Rounds and accountants evaluate the same function.  ``key`` draws what all see, such as a common coin."""


class Gradient(NamedTuple):
    """What a client evaluates at a point: a weighting of clipped per-example gradients.

    ``public`` is the regularizer's part; None: its gradient at x.  ``kernel`` and ``jitter`` smooth
    the loss.  ``unit`` is a length that all see: the noise of the round is multiplied by it, and so
    must be the bounds of the terms.
    """

    terms: Callable[[PyTree, Array, Hyper], tuple[Term, ...]]  # (shared, x, hp)
    public: Callable[[PyTree, Callable[[Array], Array], Array, Hyper], Array] | None = None
    # (shared, gradient of the regularizer, x, hp)
    unit: Callable[[PyTree, Array, Hyper], Array] | None = None  # (shared, x, hp); None: 1
    kernel: Callable[[Model, Hyper], Kernel] | None = None  # of the gradients; None: the model's
    jitter: Callable[[Key, int, Array, Hyper], Array] | None = None
    # (key, rows, x, hp) -> displacements of the points of one client's rows, (rows, d)


def _remembers_nothing(
    problem: Problem, x: Array, hp: Hyper, pooled: bool, storage: str
) -> Remembered:
    return Remembered()


class Memory(NamedTuple):
    """What an estimator remembers from round to round.

    ``init`` receives whether the round is ``pooled``: it then needs only the mean of ``base`` over
    clients, (d,).  ``begin`` runs before a round and ``refresh`` after it.  With ``follow``,
    ``base_i <- base_i + sum_j u_j (c_j - stored_j)`` after the round, with c_j the clipped gradients
    of the first term.
    """

    init: Callable[[Problem, Array, Hyper, bool, str], Remembered] = _remembers_nothing
    # (problem, x, hp, pooled, storage)
    begin: Updates | None = None
    refresh: Updates | None = None
    table: Table | None = None
    follow: Callable[[Draw, Array], Array] | None = None  # (rows, count) -> u; None: base stays


class Estimator(NamedTuple):
    """A client's estimate of its gradient: ``sum of terms - sum_j weight_j stored_j + base_i``.

    The round decides how to evaluate it.
    """

    name: str
    sampler: Sampler
    gradient: Gradient
    memory: Memory = Memory()
    pace: Pace | None = None  # the hyper-parameters of a round that differ from the run's
    params: tuple[Param, ...] = ()
    points: int | None = None  # gradients of one row in an estimate; None: any number
    sensitivity: Callable[[Values], Any] | None = None  # host: for the privacy event
    assume: Callable[..., Any] | None = None
    # host: (theory.Setting, values) -> the constants of SoteriaFL's Assumption 3, as a
    # theory.soteriafl.Estimator; None: not known


def _normal(key: Key, std: Array, like: Array) -> Array:
    """xi ~ N(0, std^2 I) with the shape and dtype of ``like``."""
    return std * jax.random.normal(key, like.shape, like.dtype)


class Mechanism(NamedTuple):
    """Noise on every coordinate of a client's estimate: Gaussian, of standard deviation ``std``.

    Rounds draw it and accountants read it: both evaluate ``std``, which may depend on any
    hyper-parameter of the round.  With ``central``, a server that clients trust adds the noise to the
    mean of the messages instead.
    """

    name: str
    std: Callable[[Hyper], Array] | None  # None: no noise
    params: tuple[Param, ...] = ()
    central: bool = False
    draw: Callable[[Key, Array, Array], Array] = _normal  # (key, std, like)


class Client(NamedTuple):
    """One client, as its local procedure sees it."""

    rows: Key  # the stream of its samples, the same in every round
    noise: Key  # of this round
    points: Key  # of this round, for displacements of the points of rows
    count: Array  # type: ignore[assignment]  # tuples have a method of that name
    take: Callable[[Draw], PyTree]  # the drawn samples, leaves (b, ...)


MessageBound: TypeAlias = tuple[float, float] | None
"""A bound on the norm of a clipped message, and the standard deviation of the noise on each of its
coordinates; None where no bound is known."""


class Runs(Protocol):
    """A client's procedure in one round."""

    def __call__(
        self,
        client: Client,
        x: Array,
        shared: PyTree,
        memory: PyTree,
        problem: Problem,
        hp: Hyper,
        /,
    ) -> tuple[Array, PyTree, Array]:
        """Return g, the new ``memory`` of the client, and the number of gradients evaluated."""
        ...


class Local(NamedTuple):
    """A procedure that a client runs in place of one estimate, its noise included.

    ``run`` returns ``g = x - theta_i`` for a client that moves the model x to theta_i; g replaces the
    estimate.  ``close`` updates the shared memory from the mean of the g_i.
    """

    name: str
    init: Callable[[Problem, Array], tuple[PyTree, PyTree]]  # shared, and of each client
    run: Runs
    message_bound: Callable[[Values], MessageBound]  # host: of g
    close: Callable[[PyTree, Array, Array, Array, Hyper], PyTree] | None = None
    # (shared, sum_S weight g_i, r/n, sum_S weight, hp)
    params: tuple[Param, ...] = ()
    broadcasts: int = 1  # vectors that the server sends to a client


class Settles(Protocol):
    """Host: the hyper-parameters of an aggregation that are not given."""

    def __call__(
        self, values: Values, message_bound: MessageBound, senders: int, d: int, /
    ) -> dict[str, tuple[float, str]]:
        """Return each value with its source, given that no round has more than ``senders`` messages
        of d coordinates."""
        ...


class Aggregation(NamedTuple):
    """A protocol by which the server learns the sum of the messages.

    ``protect(key, t, me, cohort, v, hp)`` returns one client's message as words, and the number of
    coordinates that it clamped.  Words add up modulo 2^32, and ``recover`` decodes their sum.
    """

    name: str
    protect: Callable[[Key, Array, Array, Draw, Array, Hyper], tuple[Array, Array]]
    recover: Callable[[Array, Array, Hyper], Array]  # (words, like, hp)
    settle: Settles
    bits: int  # of one word
    params: tuple[Param, ...] = ()
    hides: bool = True  # whether the server sees nothing but the sum
    plain: bool = False  # whether words are the messages, so that the round may add them up itself


class Message(NamedTuple):
    """One client's message: ``value`` at the coordinates ``index`` (None: all of them)."""

    value: Array
    index: Array | None  # type: ignore[assignment]  # tuples have a method of that name


class Compressor(NamedTuple):
    """A compressor C(v) of two stages: it selects coordinates without looking at v, then codes them.

    ``select`` returns coordinates and their weights (d/k for random-k) in ``hp.caps["k"]`` slots; the
    other coordinates need neither noise nor arithmetic.  An empty slot has index d and weight 0, and a
    slot's draw does not depend on their number.  With k = d, C(v) = v.  ``code`` acts on the selected
    values.  ``resolve`` fills in what is not given, and raises for what does not fit.
    """

    name: str
    omega: Callable[[int, Values], float]  # host: E|C(v) - v|^2 <= omega |v|^2
    bits: Callable[[int, Values], tuple[float, float]]
    # host: per message, and per coordinate of nonzero weight
    select: Callable[[Key, int, Hyper], Draw] | None = None
    code: Callable[[Key, Array, Hyper], Array] | None = None
    resolve: Callable[[Values, int], dict[str, Any]] = nothing  # host: (given, d) -> values
    capacity: Capacity = nothing
    params: tuple[Param, ...] = ()
    unbiased: bool = True
    absolute: bool = False  # whether the error does not depend on v; ``omega`` then raises
    fixed_size: bool = False  # whether ``select`` chooses exactly k coordinates in every message
    scalars: bool = False  # whether a vector of one coordinate arrives unchanged
    distinct: bool = False  # whether ``select`` never returns a coordinate twice

    @property
    def exact(self) -> bool:
        """Whether C(v) = v."""
        return self.select is None and self.code is None


class Receives(Protocol):
    """The server's use of the mean message; ``link`` is its end of the channel."""

    def __call__(
        self, link: PyTree, mean: Array, rate: Array, hp: Hyper, moved: Any, /
    ) -> tuple[Array, PyTree]:
        """Return the server's estimate and the new ``link``.

        ``rate`` is r/n.  ``moved`` is the mean change of the clients' memories; None: it follows from
        the messages.
        """
        ...


def unbounded(omega: float) -> None:
    """The default ``growth``: nothing is known of the length of messages."""
    return None


class Channel(NamedTuple):
    """The memory of earlier messages at both ends.

    A client compresses ``before(link, g)`` instead of its estimate g, and then remembers ``after``;
    ``receive`` turns the mean message into the server's estimate.
    """

    name: str
    init: Callable[[int, Array, bool], tuple[PyTree, PyTree]]  # (n, x, fused) -> clients', server's
    before: Callable[[PyTree, Array], Array]
    after: Callable[[PyTree, Message, Hyper], PyTree]
    receive: Receives
    params: tuple[Param, ...] = ()
    residual: Callable[[PyTree, Array, Array], PyTree] | None = None
    # (link, noised v before compression, C(v)) -> the client's new link, instead of ``after``
    linear: bool = False  # whether the mean of before(s_i, g_i) is before(s, g) of the means
    remembers: bool = True  # whether messages change either end, so that it matters who sends them
    mirrors: bool = False  # whether the server keeps the mean of what clients remember
    corrects: bool = False  # whether later messages make up for the bias of a compressor
    growth: Callable[[float], tuple[float, float] | None] = unbounded
    # host: omega -> the factors by which messages exceed estimates, in length and in noise
    nonexpanding: bool = (
        False  # whether |before(s, g) - before(s, h)| <= |g - h| for all s, g and h
    )


class Steps(Protocol):
    """The server's step with the estimate v of the gradient."""

    def __call__(self, key: Key, state: PyTree, v: Array, project: Project, hp: Hyper, /) -> PyTree:
        """Return the new ``state``."""
        ...


class Server(NamedTuple):
    """The owner of the model: its state, the point that clients see, its step and its output."""

    name: str
    init: Callable[[Array, Hyper], PyTree]
    view: Callable[[PyTree], Array]  # where clients evaluate
    step: Steps
    output: Callable[[PyTree], Array]
    params: tuple[Param, ...] = ()


class AnyBody(Protocol):
    """A round: its parts, its functions of a state that it alone knows, and facts about both."""

    @property
    def roles(self) -> dict[str, Any]: ...  # the parts by their roles; None where there is none
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
    def own(self) -> Mechanism: ...  # the noise that a client adds to its message
    @property
    def clip(self) -> str: ...
    @property
    def noise(self) -> str: ...
    @property
    def storage(self) -> str: ...  # of what clients keep
    @property
    def uploads(self) -> int: ...  # messages of a client in a round
    @property
    def broadcasts(self) -> int: ...  # vectors that a client gets in a round
    @property
    def messages(self) -> bool: ...  # whether each message is computed, where only the mean matters
    @property
    def fused(self) -> bool: ...  # whether no message is computed
    @property
    def plain(self) -> bool: ...  # whether rounds compute one client at a time
    @property
    def linear(self) -> bool: ...  # whether the server's estimate follows from the clients' mean
    @property
    def weighs(self) -> bool: ...  # whether the weights of clients count
    @property
    def takes_cohorts(self) -> bool: ...  # whether rounds may be without some clients
    @property
    def sends_estimates(self) -> bool: ...  # whether a message is an estimate of the gradient
    @property
    def remembers(self) -> bool: ...  # whether messages depend on earlier ones
    @property
    def mirrors(self) -> bool: ...  # whether a server keeps the mean of what clients remember
    @property
    def keeps(self) -> bool: ...  # whether clients keep vectors, which may be stored in fewer bits
    @property
    def absolute(self) -> bool: ...  # whether compressors may have an absolute error

    def growth(self, omega: float) -> tuple[float, float] | None: ...  # of messages, see Channel
    def init(self, key: Key, problem: Problem, hp: Hyper) -> tuple[State, Info]: ...
    def round(self, key: Key, state: State, problem: Problem, hp: Hyper) -> tuple[State, Info]: ...
    def output(self, state: State) -> Array: ...
    def view(self, key: Key, state: State, problem: Problem, hp: Hyper) -> Any: ...
    def points(self, state: State) -> Array: ...  # where gradients are evaluated, (nodes, d)
    def cohort(self, key: Key, t: Array, n: int, hp: Hyper) -> Draw: ...
    def beginnings(self) -> dict[str, Callable[..., Array]]: ...  # parts of a round, to be measured
    def rows_at_once(self, problem: Problem, hp: Hyper, elsewhere: bool) -> int: ...


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
    """Host: bits of one message, of one coordinate that rounds count in it, and of one broadcast."""

    per_message: float
    per_coordinate: float
    downlink: float
    coordinates: int = 0  # of one message, where rounds count none: no sparsifier selects some


@compared_by_identity
class Algorithm(NamedTuple):
    """A published algorithm: hyper-parameters resolved on the host, rounds traced.

    :func:`jaxfl.algorithms.resolve` calls ``plan``, chooses the noise, and calls ``finish``.
    """

    name: str
    summary: str
    paper: str  # where it was published
    params: tuple[Param, ...]  # its hyper-parameters
    plan: Callable[[Mapping[str, Any], ProblemFacts], Plan]  # of what is given: all but the noise
    capacity: Callable[[Mapping[str, Any], ProblemFacts], dict[str, int]]
    # host: the slots of arrays whose size a round draws
    cost: Callable[[Mapping[str, Any], ProblemFacts], Cost]  # host: the bits of its messages
    init: Callable[[Key, Problem, Hyper], tuple[State, Info]]  # the state before the first round
    round: Callable[[Key, State, Problem, Hyper], tuple[State, Info]]  # one round
    output: Callable[[State], Array]  # the model of a state, flat
    finish: Callable[[Plan, Noise, ProblemFacts], Resolved] | None = None
    # what follows from the noise; None: nothing but the noise itself
    event: Callable[[Mapping[str, Any], ProblemFacts], Any] | None = None
    # (values, facts): what a run releases; with "phase" among the values, that part alone
    formula: Callable[[Mapping[str, Any], ProblemFacts, Asked], Any] | None = None
    # (values, facts, asked): the paper's noise as a Claim, both ways; None where it has none
    cited: bool = False  # whether reports show the formula as the paper's claim
    needs: tuple[str, ...] = ()  # hyper-parameters that rounds require
    reads: tuple[str, ...] | None = None  # those that rounds read; None: all
    parts: tuple[tuple[str, str], ...] = ()  # (role, name), for the record
    per_record: bool = True  # False: clip="batch", which bounds no single record's influence
    cohort: Callable[[Key, Array, int, Hyper], Draw] | None = None  # of a round, by the run's key
    body: AnyBody | None = None  # what init and round are made of, where that is known

    @property
    def names(self) -> frozenset[str]:
        """The names of the hyper-parameters."""
        return frozenset(param.name for param in self.params)

    def claim(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """What the paper states of the noise of these values; None where it states nothing."""
        if not self.cited or self.formula is None or not values.get("sigma"):
            return None
        return self.formula(values, facts, Sigma(float(values["sigma"])))

    def __repr__(self) -> str:
        parts = "".join(f", {role}={name!r}" for role, name in self.parts if role in SHOWN_ROLES)
        return f"Algorithm({self.name!r}{parts})"
