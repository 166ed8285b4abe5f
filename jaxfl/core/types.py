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
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import display
from jaxfl.core.errors import InputError
from jaxfl.core.identity import compared_by_identity
from jaxfl.core.meshes import by_clients
from jaxfl.core.normals import normal
from jaxfl.core.records import document_all

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
    "Recursion",
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
    "in_a_sum",
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
    """A hyper-parameter that a user may set, and its range.

    Fields:
        name: its key in ``hp`` and in values.
        doc: what it is, in words.
        low: the lower end of its range.
        high: the upper end.
        integer: whether it is a whole number, which rounds read as int32.
        open_low: whether the lower end is excluded.
        schedule: whether it may change from round to round.
        open_high: whether the upper end is excluded.
        default: how a part's default depends on the model, in words.
    """

    name: str
    doc: str
    low: float = 0.0
    high: float = float("inf")
    integer: bool = False
    open_low: bool = False
    schedule: bool = False
    open_high: bool = False
    default: str = ""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Hyper:
    """Resolved hyper-parameters: ``values`` are traced leaves, ``caps`` the static lengths they may fill.

    ``hp["batch"]`` is a traced number, ``hp.caps["batch"]`` the number of slots that its draw has.
    Cells of a sweep differ in ``values`` and share ``caps``.

    Fields:
        values: arrays by name, (); of a schedule (rounds,), from which :meth:`at` takes one.
        capacity: the pairs of ``caps``.
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
    """The facts of a problem that are known before the first round.  Host side.

    Fields:
        n: clients.
        m: samples of the smallest client.
        m_max: samples of the largest client.
        d: coordinates of the model.
        rounds: the rounds asked for; None: the algorithm's own theory decides.
        smoothness: L of every per-example loss; None: no closed form.
        sizes: the different numbers of samples that clients have; (): only ``m``.
        diameter: of the constraint set; None: not known, or no bounded set.
        convex: whether every example's loss is; None: not known.
        contracts: whether small steps along clipped gradients bring points closer; None: not known.
        constrained: whether the model is projected onto a set, bounded or not; None: not known.
        groups: (records, weight, number) of equal clients, weights of mean 1; (): all weigh the same.
    """

    n: int
    m: int
    m_max: int
    d: int
    rounds: int | None
    smoothness: float | None
    sizes: tuple[int, ...] = ()
    diameter: float | None = None
    convex: bool | None = None
    contracts: bool | None = None
    constrained: bool | None = None
    groups: tuple[tuple[int, float, int], ...] = ()

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
    """The source of a value, as a text, and as the ``origin`` that code reads."""

    origin: Origin | None  # None: a text that a file holds does not say it

    def __new__(cls, origin: Origin | None, text: str = "") -> Source:
        source = super().__new__(cls, text or (origin.value if origin else ""))
        source.origin = origin
        return source

    def __getnewargs__(self) -> tuple[Origin | None, str]:  # type: ignore[override]
        return self.origin, str(self)

    @classmethod
    def read(cls, text: str) -> Source:
        """The source whose text a file holds; those of theorems and formulas look alike."""
        word = text.partition(":")[0]
        known = {origin.value: origin for origin in Origin}
        return cls(known.get(word), text)


class Ask:
    """A way of asking for noise: one number, under its name."""

    @property
    def way(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclasses.dataclass(frozen=True)
class Eps(Ask):
    """Noise for this eps, at the delta of the plan.

    Fields:
        eps: of the whole run.
    """

    eps: float


@dataclasses.dataclass(frozen=True)
class Sigma(Ask):
    """Noise of this standard deviation.

    Fields:
        sigma: on each coordinate of what is noised, in units of the gradient.
    """

    sigma: float


@dataclasses.dataclass(frozen=True)
class Rho(Ask):
    """Noise for (alpha, alpha rho^2/2)-Renyi privacy.

    Fields:
        rho: of the whole run.
    """

    rho: float


Asked: TypeAlias = Eps | Sigma | Rho  # the ways of asking for noise


class Plan(NamedTuple):
    """Every value of a run except its noise, and how the noise is chosen.

    Fields:
        values: by name.
        sources: where each value comes from.
        asked: how the user asks for noise; None: there is none.
        parts: of the run, on disjoint records, each with noise of its own: the values of each alone.
        given: what the user gave, an omega that was asked for included.
    """

    values: dict[str, Any]
    sources: dict[str, Source]
    asked: Asked | None = None
    parts: tuple[dict[str, Any], ...] = ({},)
    given: Mapping[str, Any] = {}


class Noise(NamedTuple):
    """The standard deviation for each part of a plan.

    Fields:
        levels: sigma of each part; (): no noise.
        source: where sigma comes from.
        eps: asked for, or that of the formula for a given sigma; None: neither.
        eps_source: where eps comes from.
    """

    levels: tuple[float, ...]
    source: Source
    eps: float | None = None
    eps_source: Source = Source(Origin.GIVEN)


class Resolved(NamedTuple):
    """Values that a run uses, and where each comes from.

    Fields:
        values: by name.
        sources: where each value comes from.
    """

    values: dict[str, Any]
    sources: dict[str, Source]


class Draw(NamedTuple):
    """Positions and weights of drawn members of a collection, by slots.

    An empty slot has weight 0 and an index one past the end: reads clamp the index, and writes drop it.

    Fields:
        index: positions, (slots,) of integers; None: everything in its own order.
        weight: of each slot, (slots,).
    """

    index: Array | None  # type: ignore[assignment]  # tuples have a method of that name
    weight: Array


# --- problems ------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """Per-example gradients kept as factors F, without an array (b, d).

    ``g_j`` is the gradient of example j of a batch of b, and ``g_j(F)`` the one whose factors are F.

    Fields:
        factors: (x, batch) -> F, leaves (b, ...).
        inner: (F, H, batch) -> <g_j(F), g_j(H)> of each example, (b,).
        scale: (c, F) -> the factors of c_j g_j(F), with c of shape () or (b,).
        combine: ((c_1, ...), (F_1, ...)) -> the factors of sum_p c_pj g_j(F_p), c_p of shape () or (b,).
        contract: (w, F, batch) -> sum_j w_j g_j, (d,).
        width: floats that one example's factors occupy.
        clip: (F, G, batch) -> the factors of clip(g_j(F), G) without the norms; None: by ``inner`` and
            ``scale``.
        link: (z, example) -> phi(z), where f_j(x) = phi(a_j . x); None: the loss has another form.
        squares: whether it needs |a_j|^2 of examples (a_j, y_j), see ``samples.measured``.
        convolves: whether the model has convolutions, whose gradients XLA computes slowly in loops on
            CPUs.
        layers: how many are clipped each to G/sqrt(layers).  Of several, inner products and the c of
            ``scale`` and ``combine`` have shape (b, layers).
        split: () -> the kernel of several layers; None: there is one.
        smooth: whether gradients are clipped smoothly, see :mod:`jaxfl.problems.clipping`; by ``inner``
            and ``scale``.
        coordinates: (w, F, batch, index) -> the numbers of ``contract`` at these indices, (k,), for less
            work where they are few; None: there is no such way.
    """

    factors: Callable[[Array, PyTree], PyTree]
    inner: Callable[[PyTree, PyTree, PyTree], Array]
    scale: Callable[[Array, PyTree], PyTree]
    combine: Callable[[Sequence[Any], Sequence[PyTree]], PyTree]
    contract: Callable[[Array, PyTree, PyTree], Array]
    width: int
    clip: Callable[[PyTree, Array, PyTree], PyTree] | None = None
    link: Callable[[Array, PyTree], Array] | None = None
    squares: bool = False
    convolves: bool = False
    layers: int = 1
    split: Callable[[], Kernel] | None = None
    smooth: bool = False
    coordinates: Callable[[Array, PyTree, PyTree, Array], Array] | None = None


@compared_by_identity
class Model(NamedTuple):
    """A loss per example over a flat parameter vector x, and what is known of it.

    Fields:
        name: how it is called in records and messages.
        dim: d, the length of x.
        init: key -> the first x, (d,).
        unravel: x -> the user's own pytree of parameters.
        loss: (x, one example) -> its loss, (): the private part.
        regularizer: x -> (), the public part, which is never clipped.
        kernel: the gradients of ``loss``.
        correct: (x, one example) -> 0 or 1; None: there is no accuracy.
        project: x -> its projection onto the constraint set; None: there is no such set.
        smoothness: host: (train, count) -> L of every per-example loss; None: no closed form.
        diameter: of the constraint set; None: not known, or no bounded set.
        check: host: raises for data that the loss cannot take; None: it takes any.
        convex: whether every example's loss is, regularizer included; None: not known.
        trained: x -> the pytree with None for frozen leaves; None: no leaf is frozen.
    """

    name: str
    dim: int
    init: Callable[[Key], Array]
    unravel: Callable[[Array], PyTree]
    loss: Callable[[Array, PyTree], Array]
    regularizer: Callable[[Array], Array]
    kernel: Kernel
    correct: Callable[[Array, PyTree], Array] | None = None
    project: Callable[[Array], Array] | None = None
    smoothness: Callable[[PyTree, Any], float] | None = None
    diameter: float | None = None
    check: Callable[[PyTree], None] | None = None
    convex: bool | None = None
    trained: Callable[[Array], PyTree] | None = None

    def __reduce__(self) -> Any:
        """Functions within functions travel by value, as :mod:`cloudpickle` writes them."""
        return _read_model, (cloudpickle.dumps(tuple(self)),)

    def __copy__(self) -> Model:
        return self

    def __deepcopy__(self, memo: Any) -> Model:
        return self

    def __repr__(self) -> str:
        return f"Model({self.name!r}, d={self.dim})"


def _read_model(data: bytes) -> Model:
    return Model(*pickle.loads(data))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GeneratedSamples:
    """Samples that are generated when read.

    Fields:
        source: what ``make`` reads.
        make: (source, i, j) -> the samples of clients i at rows j, both (B,): leaves (B, ...).
        m: rows of a client.
    """

    source: PyTree
    make: Callable[[PyTree, Array, Array], PyTree] = dataclasses.field(metadata={"static": True})
    m: int = dataclasses.field(metadata={"static": True})


@dataclasses.dataclass(frozen=True, eq=False)
class Clients:
    """The names of a problem's clients, and how records were divided among them.

    All instances are equal: problems that differ in nothing else share their compiled programs.

    Fields:
        names: of each client; (): their numbers.
        partition: how the records were divided among them, in words.
    """

    names: tuple[str, ...] = ()
    partition: str = ""

    def name(self, client: int) -> str:
        return self.names[client] if self.names else str(client)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Clients)

    def __hash__(self) -> int:
        return 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Problem:
    """Data of n clients as leaves, their model as structure.

    Fields:
        train: samples, leaves (n, m_max, ...), zero-padded; or :class:`GeneratedSamples`.
        count: samples that each client really has, (n,).
        test: test examples, leaves (N, ...); None: there are none.
        x0: the initial model, (d,); None: drawn by ``model.init``.
        model: the loss, and what is known of it.
        name: how it is called in results.
        validation: examples that settings may be chosen on, leaves (N, ...); None: there are none.
        clients: what the host knows about them.
        evaluated: samples of each client that metrics read, evenly spaced; None: all.
        weights: of the clients in the objective, (n,), with mean 1; None: all are equal.
        test_owner: the client of each test example, (N,), -1: of none; None: of no example.
        held: "test" or "validation" where ``train`` is one row with those examples, and the number of
            clients of the problem that they are from; None: ``train`` has the clients' records.
    """

    train: PyTree
    count: Array
    test: PyTree | None
    x0: Array | None
    model: Model = dataclasses.field(metadata={"static": True})
    name: str = dataclasses.field(default="problem", metadata={"static": True})
    validation: PyTree | None = None
    clients: Clients = dataclasses.field(default=Clients(), metadata={"static": True})
    evaluated: int | None = dataclasses.field(default=None, metadata={"static": True})
    weights: Array | None = None
    test_owner: Array | None = None
    held: tuple[str, int] | None = dataclasses.field(default=None, metadata={"static": True})

    @property
    def n(self) -> int:
        return int(self.count.shape[0])

    @property
    def m_max(self) -> int:
        if isinstance(self.train, GeneratedSamples):
            return self.train.m
        return int(jax.tree.leaves(self.train)[0].shape[1])

    def shard(self, mesh: Any, axis: str) -> Problem:
        """This problem with its clients split evenly over an axis of a mesh of devices.

        All else, such as test data, is on each device.

        >>> import jax, jaxfl
        >>> data = jaxfl.data.split("digits", clients=8)
        >>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
        >>> problem.shard(jax.make_mesh((1,), ("clients",)), "clients").count.sharding.spec
        PartitionSpec('clients',)
        """
        return by_clients(self, mesh, axis)

    def _said(self) -> dict[str, str]:
        """The facts that identify the problem, by name."""
        try:
            sizes = {"n": f"{self.n}", "m": display.between(int(np.min(self.count)), self.m_max)}
        except (AttributeError, IndexError, TypeError):  # other leaves than arrays, as in in_axes
            sizes = {}
        return {**sizes, "d": f"{self.model.dim}", "model": repr(self.model.name)}

    def __repr__(self) -> str:
        said = self._said()
        words = ["no data"] * ("n" not in said) + [f"{k}={v}" for k, v in said.items()]
        return f"Problem({self.name!r}, {', '.join(words)})"

    def _repr_html_(self) -> str:
        names = {"n": "clients", "m": "records of a client", "d": "parameters"}
        rows = [(names.get(name, name), word) for name, word in self._said().items()]
        return display.table(f"Problem {self.name}", rows)


def nothing(values: Values, about: Any) -> dict[str, Any]:
    """The default ``resolve`` and ``capacity``, of parts that have no hyper-parameters."""
    return {}


# --- parts of a round ----------------------------------------------------------------------------

# the laws of draws for which there are accountants
Scheme: TypeAlias = Literal[
    "full",
    "poisson",
    "without_replacement",
    "with_replacement",
    "shuffled",
    "cyclic",
    "single_pass",
]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

Capacity: TypeAlias = Callable[[Values, ProblemFacts], dict[str, int]]  # host: static lengths


class Sampler(NamedTuple):
    """A law of the rows that one client draws in a round.

    Fields:
        name: how the part is called in records and messages.
        draw: (key, t, count, m_max, hp) -> rows below ``count`` and their weights, 1/b each; ``key`` is
            the client's own stream, the same in every round.
        distinct: whether no draw holds a row twice.
        params: the hyper-parameters that it reads.
        capacity: host: (values, facts) -> slots of a draw, as {"batch": slots}; {}: it takes all rows.  In
            a sweep a value may be an array, of all cells that share the slots.
        scheme: the law as accountants know it, one of ``SCHEMES``; None: nothing is claimed.
        strips: whether the live slots of a draw come first, and ``capacity`` returns ``mean_batch``, the
            mean number of them: a round may then read the rows of all clients one after the other
            (:mod:`jaxfl.rounds.estimates`).
    """

    name: str
    draw: Callable[[Key, Array, Array, int, Hyper], Draw]
    distinct: bool
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
        """Whether the number of rows in a draw is random: some slots may then stay empty."""
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
    def cycles(self) -> bool:
        """Whether the batches of the first pass come again, in the same order."""
        return self.scheme == "cyclic"

    @property
    def single_pass(self) -> bool:
        """Whether a run uses each row at most once."""
        return self.scheme == "single_pass"


class Participation(NamedTuple):
    """A law of the clients that take part in a round, each with weight 1/r.

    Fields:
        name: how the part is called in records and messages.
        draw: (key, t, n, hp) -> clients below n and their weights, 1/r each; ``key`` is the run's stream.
        everyone: whether every draw holds all clients.
        params: the hyper-parameters that it reads.
        capacity: host: (values, facts) -> slots of a draw, as {"cohort": slots}; {}: n.
        most: host: (rounds, n, values) -> the most of these rounds, increasing numbers from 0 on, in which
            any client takes part; None: all.
        least: host: (n, values) -> the fewest clients whose messages a round adds up, if any; None: all
            that it calls.
        scheme: the law for an observer who does not learn who took part, one of ``SCHEMES``; None: the
            observer knows no more than ``most``.
        fixed_size: whether every round calls the same number of clients.
    """

    name: str
    draw: Callable[[Key, Array, int, Hyper], Draw]
    everyone: bool = False
    params: tuple[Param, ...] = ()
    capacity: Capacity = nothing
    most: Callable[[Sequence[int], int, Values], int] | None = None
    least: Callable[[int, Values], int] | None = None
    scheme: Scheme | None = None
    fixed_size: bool = False


class Term(NamedTuple):
    """``scale * sum_j weight_j clip(sum_p coef_p grad f_j(point_p), bound)``.

    Fields:
        scale: a number, or ().
        points: where gradients are evaluated, each (d,), or (b, d) with one for each example.
        coefs: of each point, numbers or ().
        bound: the norm G to which sums of gradients are clipped, ().
    """

    scale: float | Array
    points: tuple[Array, ...]
    coefs: tuple[float | Array, ...]
    bound: Array


class Table(NamedTuple):
    """One client's memory of every row, as factors of the row's gradient.

    Fields:
        recall: (local, rows) -> the factors stored for these rows, leaves (b, ...).
        absorb: (local, rows, new factors) -> the new ``local``.
    """

    recall: Callable[[PyTree, Draw], PyTree]
    absorb: Callable[[PyTree, Draw, PyTree], PyTree]


class Remembered(NamedTuple):
    """An estimator's memory before the first round, and what computing it cost.

    Fields:
        shared: the same for all clients.
        local: of each client, leaves (n, ...).
        base: added to each client's estimate, (n, d), or its mean over clients, (d,); None: nothing is.
        gradients: per-example gradients evaluated, ().
    """

    shared: PyTree = ()
    local: PyTree = ()
    base: Array | None = None
    gradients: Array = np.zeros((), np.int32)  # type: ignore[assignment]


Pace: TypeAlias = Callable[[Key, Array, Hyper], dict[str, Array]]
"""The ``pace`` of an :class:`Estimator`."""

Updates: TypeAlias = Callable[[Key, PyTree, Any, Array, Problem, Hyper], tuple[PyTree, Any, Array]]


class Gradient(NamedTuple):
    """A weighting of clipped per-example gradients, which a client evaluates at a point.

    ``kernel`` and ``jitter`` smooth the loss.

    Fields:
        terms: (shared, x, hp) -> the terms whose sum is the estimate, of which a table remembers the first.
        public: (shared, gradient of the regularizer, x, hp) -> the regularizer's part, (d,), added after
            clipping; None: its gradient at x.
        unit: (shared, x, hp) -> a length that all see, (): the noise of the round is multiplied by it, and
            so must be the bounds of the terms; None: 1.
        kernel: (model, hp) -> the kernel of the gradients; None: the model's.
        jitter: (key, rows, x, hp) -> displacements of the points of one client's rows, (rows, d); None:
            there are none.
    """

    terms: Callable[[PyTree, Array, Hyper], tuple[Term, ...]]
    public: Callable[[PyTree, Callable[[Array], Array], Array, Hyper], Array] | None = None
    unit: Callable[[PyTree, Array, Hyper], Array] | None = None
    kernel: Callable[[Model, Hyper], Kernel] | None = None
    jitter: Callable[[Key, int, Array, Hyper], Array] | None = None


def _remembers_nothing(
    problem: Problem, x: Array, hp: Hyper, pooled: bool, storage: str
) -> Remembered:
    return Remembered()


class Memory(NamedTuple):
    """The memory of an estimator: how it begins, is read and is written.

    ``begin`` and ``refresh`` get ``base`` as (n, d), as its mean (d,), or as None.

    Fields:
        init: (problem, x, hp, pooled, storage) -> what it remembers before the first round.  Where the
            round is ``pooled``, it needs only the mean of ``base`` over clients, (d,).
        begin: (key, shared, base, x, problem, hp) -> (shared, base, gradients evaluated) before a round.
        refresh: the same after a round.
        table: one client's memory of every row; None: there is none.
        follow: (rows, count) -> u, (b,), with which ``base_i <- base_i + sum_j u_j (c_j - stored_j)`` after
            the round, c_j being the clipped gradients of the first term; None: ``base`` stays.
    """

    init: Callable[[Problem, Array, Hyper, bool, str], Remembered] = _remembers_nothing
    begin: Updates | None = None
    refresh: Updates | None = None
    table: Table | None = None
    follow: Callable[[Draw, Array], Array] | None = None


class Estimator(NamedTuple):
    """A client's estimate of its gradient: ``sum of terms - sum_j weight_j stored_j + base_i``.

    The round decides how to evaluate it.

    Fields:
        name: how the part is called in records and messages.
        sampler: the rows that a client draws.
        gradient: the terms, and what else is evaluated at a point.
        memory: what it remembers from round to round.
        pace: (key, t, hp) -> the hyper-parameters that differ in round t, by name; None: none does.
            Rounds and accountants evaluate it.  ``key`` draws what all see, such as a common coin.
        params: the hyper-parameters that it reads, without those of the sampler.
        points: how many clipped gradients of one row an estimate adds up, those in ``base`` included;
            None: any number.
        sensitivity: host: values -> how far one record moves an estimate, as a ``Mean``, ``LocalSteps`` or
            ``Increments`` of :mod:`jaxfl.privacy`.  None: by the bounds of the terms where nothing is
            remembered; nothing is claimed elsewhere.
        assume: host: (theory.Setting, values) -> the constants of SoteriaFL's Assumption 3, as a
            theory.soteriafl.Estimator; None: not known.
        clips: whether each example is clipped already; a body that clips whole estimates refuses the part.
    """

    name: str
    sampler: Sampler
    gradient: Gradient
    memory: Memory = Memory()
    pace: Pace | None = None
    params: tuple[Param, ...] = ()
    points: int | None = None
    sensitivity: Callable[[Values], Any] | None = None
    assume: Callable[..., Any] | None = None
    clips: bool = False


def _normal(key: Key, std: Array, like: Array) -> Array:
    """xi ~ N(0, std^2 I) with the shape and dtype of ``like``."""
    return std * normal(key, like.shape, like.dtype)


def in_a_sum(key: Key, std: Array, like: Array) -> Array:
    """The draw of a mechanism whose noise an aggregation adds to its words."""
    raise InputError("This noise is drawn in a sum alone", "pass the aggregation that draws it")


class Recursion(NamedTuple):
    """Correlated noise as a recursion: ``xi_t = sigma (z_t + sum_i gain_i s_i)``, and s is stored.

    Fields:
        gain: of each stored vector.
        decay: s_i <- decay_i s_i + v; (): s holds the last v, the newest first.
        feeds: whether v is xi_t/sigma; else z_t.
    """

    gain: tuple[float, ...]
    decay: tuple[float, ...] = ()
    feeds: bool = False


class Mechanism(NamedTuple):
    """Noise on every coordinate of a client's estimate: Gaussian, of standard deviation ``std``.

    Rounds draw it and accountants read it: both evaluate ``std``, which may depend on any
    hyper-parameter of the round.  The noise of round t is ``sum_j w_j z_{t-j}``, where z_s is drawn with
    the key of round s, and is 0 before the first round: nothing is stored, unless a ``recursion`` has the
    same sum in fewer draws.  Or t and s count the messages in which a client has sent the coordinate: the
    state holds these counts.

    Fields:
        name: how the part is called in records and messages.
        std: hp -> the standard deviation on a coordinate, () or (d,), in units of the estimate; None: no
            noise.
        params: the hyper-parameters that it reads.
        central: whether a server that clients trust adds the noise, to the mean of the messages instead.
        draw: (key, std, like) -> z, with the shape and dtype of ``like``.  An estimator that has a ``unit``
            multiplies this std.  :func:`in_a_sum`: the aggregation draws it.
        weights: w, of this round and of those before.
        shows: whether t counts, for each client and coordinate, the messages that show it.
        recursion: that has these weights, of vectors that the state holds; None: z is drawn anew.
        event: host: (event, T) -> what this noise releases, as an event of :mod:`jaxfl.privacy`.
            ``event`` has the draws, the sensitivity and the number of rounds with one std, of T in the
            run, as if their noise were Gaussian and independent; None: that event.
        coupled: whether two neighbours of a network draw more noise from a seed that they share, of
            ``hp["coupling"]`` times this std, which one of them adds and the other subtracts.
        multiples: of this std, one for each client; (): 1.
    """

    name: str
    std: Callable[[Hyper], Array] | None
    params: tuple[Param, ...] = ()
    central: bool = False
    draw: Callable[[Key, Array, Array], Array] = _normal
    weights: tuple[float, ...] = (1.0,)
    event: Callable[[Any, int], Any] | None = None
    coupled: bool = False
    multiples: tuple[float, ...] = ()
    shows: bool = False
    recursion: Recursion | None = None


class Client(NamedTuple):
    """One client, as its local procedure sees it.

    Fields:
        rows: the key of its samples, the same in every round.
        noise: the key of its noise in this round.
        points: the key of this round for displacements of the points of rows.
        count: its number of samples, ().
        take: rows -> the drawn samples, leaves (b, ...).
    """

    rows: Key
    noise: Key
    points: Key
    count: Array  # type: ignore[assignment]  # tuples have a method of that name
    take: Callable[[Draw], PyTree]


MessageBound: TypeAlias = tuple[float, float] | None
"""A bound on the norm of a clipped message, and the standard deviation of the noise on each of its
coordinates; None where no bound is known."""


class Local(NamedTuple):
    """A procedure that a client runs in place of one estimate, its noise included.

    Fields:
        name: how the part is called in records and messages.
        init: (problem, x) -> (shared, memory): what all clients share, and what each remembers before the
            first round, leaves (n, ...).
        run: (client, x, shared, memory, problem, hp) -> (g, memory, gradients evaluated), with the client's
            own ``memory``, leaves (...), and ``g = x - theta_i``, (d,), as its estimate for a
            client that moves the model x to theta_i.
        message_bound: host: values -> (norm, std), a bound on the norm of g without its noise, and the
            standard deviation of the noise on each coordinate of g; None: no bound is known.  The values
            hold the most noise of a round as sigma, and the most rows of a batch as ``slots``.
        close: (shared, v, rate, total, hp) -> the new ``shared`` after a round, from the server's estimate
            v of ``sum_S weight_i g_i``, (d,), r/n, and ``total = sum_S weight_i``; None: it stays.
        params: the hyper-parameters that it reads.
        broadcasts: vectors that the server sends to a client in a round.
    """

    name: str
    init: Callable[[Problem, Array], tuple[PyTree, PyTree]]
    run: Callable[[Client, Array, PyTree, PyTree, Problem, Hyper], tuple[Array, PyTree, Array]]
    message_bound: Callable[[Values], MessageBound]
    close: Callable[[PyTree, Array, Array, Array, Hyper], PyTree] | None = None
    params: tuple[Param, ...] = ()
    broadcasts: int = 1


class Aggregation(NamedTuple):
    """A protocol by which the server learns the sum of the messages.

    Fields:
        name: how the part is called in records and messages.
        protect: (key, t, me, cohort, v, hp) -> the message v of client ``me`` as words, (d,), which add up
            modulo 2^32, and 1 for each coordinate that it clamped, (d,), or their number, ().
        recover: (words, like, hp) -> the sum of messages that a sum of words stands for, (d,), in the dtype
            of ``like``.
        settle: host: (values, message_bound, senders, d) -> the hyper-parameters that are not given, each
            with its source, where no round has more than ``senders`` messages of d coordinates.
        bits: of one word.
        params: the hyper-parameters that it reads.
        hides: whether the server sees nothing but the sum.
        plain: whether words are the messages; the round may then add them up itself.
        draws: whether ``protect`` adds noise to the words, which the mechanism describes.
    """

    name: str
    protect: Callable[[Key, Array, Array, Draw, Array, Hyper], tuple[Array, Array]]
    recover: Callable[[Array, Array, Hyper], Array]
    settle: Callable[[Values, MessageBound, int, int], dict[str, tuple[float, str]]]
    bits: int
    params: tuple[Param, ...] = ()
    hides: bool = True
    plain: bool = False
    draws: bool = False


class Message(NamedTuple):
    """One client's message.

    Fields:
        value: of the coordinates that are sent, (k,) or (d,).
        index: the coordinates, (k,), d in an empty slot; None: all of them.
    """

    value: Array
    index: Array | None  # type: ignore[assignment]  # tuples have a method of that name


class Compressor(NamedTuple):
    """A compressor C(v) of two stages: it selects coordinates without looking at v, then codes them.

    Coordinates that are not selected need neither noise nor arithmetic.  With k = d, C(v) = v.

    Fields:
        name: how the part is called in records and messages.
        omega: host: (d, values) -> omega, with E|C(v) - v|^2 <= omega |v|^2 for all v; below 1 if biased.
            None: there is none, as for bare signs; algorithms whose theory reads omega refuse the part.
        bits: host: (d, values) -> two numbers: the bits of a message, and the bits that each selected
            coordinate of nonzero weight adds to them, 0 without ``select``.
        select: (key, d, hp) -> coordinates and their weights, as d/k of random-k, in ``hp.caps["k"]``
            slots.  An empty slot has index d and weight 0, and what a slot draws does not depend on their
            number.  None: all coordinates.
        code: (key, v, hp) -> what arrives of the selected values, of the same shape; None: v.
        resolve: host: (given, d) -> the missing values by name; raises for given ones that do not fit.
        capacity: host: (values, facts) -> slots of a selection, as {"k": slots}; {}: it has none.
        params: the hyper-parameters that it reads.
        unbiased: whether E C(v) = v; :func:`jaxfl.testing.check_part` tests it.
        absolute: whether E|C(v) - v|^2 has a bound that is the same for all v, as where v is rounded to
            multiples of a number; there is no omega then.
        fixed_size: whether ``select`` chooses exactly k coordinates in every message.
        scalars: whether a vector of one coordinate arrives unchanged.
        distinct: whether ``select`` never returns a coordinate twice in one message.
    """

    name: str
    omega: Callable[[int, Values], float] | None
    bits: Callable[[int, Values], tuple[float, float]]
    select: Callable[[Key, int, Hyper], Draw] | None = None
    code: Callable[[Key, Array, Hyper], Array] | None = None
    resolve: Callable[[Values, int], dict[str, Any]] = nothing
    capacity: Capacity = nothing
    params: tuple[Param, ...] = ()
    unbiased: bool = False
    absolute: bool = False
    fixed_size: bool = False
    scalars: bool = False
    distinct: bool = False

    @property
    def exact(self) -> bool:
        """Whether C(v) = v."""
        return self.select is None and self.code is None


def unbounded(omega: float) -> None:
    """The default ``growth``: nothing is known of the length of messages."""
    return None


class Channel(NamedTuple):
    """The memory of earlier messages at both ends; ``link`` is what one end remembers.

    Fields:
        name: how the part is called in records and messages.
        init: (n, x, fused) -> (links, link) before the first round: the clients' ends, leaves (n, ...), and
            the server's.  Where rounds are ``fused``, only the server's end is read.
        before: (link, g) -> what a client compresses instead of its estimate g, (d,).  A fused round
            calls it once, with the server's link and the mean estimate.
        after: (link, message, hp) -> a client's new link, once it has sent the message.
        receive: (link, mean, rate, hp, moved) -> (v, link): the server's estimate, (d,), and its new link.
            ``mean`` is ``sum_S weight_i message_i``, (d,), and ``rate`` r/n, 0 if no message arrived.
            ``moved`` is the mean change of the links of the clients in S, with the leaves of one link,
            where links are stored in fewer bits; None: it follows from the messages.
        params: the hyper-parameters that it reads.
        residual: (link, v, C(v), hp) -> a client's new link instead of ``after``, for the noised v, (d,),
            that it compressed; noise is then drawn on all coordinates.  None: ``after`` says it.
        linear: whether the mean of before(s_i, g_i) is before(s, g) of the means.
        remembers: whether messages change either end; it then matters who sends them.
        mirrors: whether the server keeps the mean of what clients remember.
        corrects: whether later messages make up for the bias of a compressor, or the method wants the bias,
            as a vote of signs does; without it no biased compressor is composed with the part.
        growth: host: omega -> the factors by which messages exceed estimates, in length and in noise; None:
            nothing is known.
        nonexpanding: whether |before(s, g) - before(s, h)| <= |g - h| for all s, g and h.
        elementwise: whether ``before`` computes each coordinate from that of g and of the link's leaves,
            (d,), alone, and ``after`` those of a message from theirs, and no other.  A sparsifier then
            computes those that it sends, and links that are stored in fewer bits are written there alone.
    """

    name: str
    init: Callable[[int, Array, bool], tuple[PyTree, PyTree]]
    before: Callable[[PyTree, Array], Array]
    after: Callable[[PyTree, Message, Hyper], PyTree]
    receive: Callable[[PyTree, Array, Array, Hyper, Any], tuple[Array, PyTree]]
    params: tuple[Param, ...] = ()
    residual: Callable[[PyTree, Array, Array, Hyper], PyTree] | None = None
    linear: bool = False
    remembers: bool = True
    mirrors: bool = False
    corrects: bool = False
    growth: Callable[[float], tuple[float, float] | None] = unbounded
    nonexpanding: bool = False
    elementwise: bool = False


class Server(NamedTuple):
    """The owner of the model: its state, the point that clients see, its step and its output.

    Fields:
        name: how the part is called in records and messages.
        init: (x, hp) -> the state before the first round.
        view: state -> the point where clients evaluate, (d,).
        step: (key, state, v, project, hp) -> the new state, for the estimate v of the gradient, (d,), and
            the projection onto the constraint set; ``project`` is None where there is no such set.
        output: state -> the model of a run, (d,).
        params: the hyper-parameters that it reads.
    """

    name: str
    init: Callable[[Array, Hyper], PyTree]
    view: Callable[[PyTree], Array]
    step: Callable[[Key, PyTree, Array, Project, Hyper], PyTree]
    output: Callable[[PyTree], Array]
    params: tuple[Param, ...] = ()


State: TypeAlias = Any
"""The state of a run between rounds: a named tuple of the body's own; ``t`` numbers the next round."""


class AnyBody(Protocol):
    """A round: its parts, its functions of a state whose type is its own, and facts about both."""

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
    def clipping(self) -> str: ...  # hard or smooth
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
    def weighs(self) -> bool: ...  # whether the weights of clients count
    @property
    def takes_cohorts(self) -> bool: ...  # whether rounds may be without some clients
    @property
    def absolute(self) -> bool: ...  # whether compressors may have an absolute error
    @property
    def linear(self) -> bool: ...  # whether the server's estimate follows from the clients' mean
    @property
    def sends_estimates(self) -> bool: ...  # whether a message is an estimate of the gradient
    @property
    def remembers(self) -> bool: ...  # whether messages depend on earlier ones
    @property
    def mirrors(self) -> bool: ...  # whether a server keeps the mean of what clients remember
    @property
    def keeps(self) -> bool: ...  # whether clients keep vectors, which may be stored in fewer bits

    def growth(self, omega: float) -> tuple[float, float] | None: ...  # of messages, see Channel
    def init(self, key: Key, problem: Problem, hp: Hyper) -> tuple[State, Info]: ...
    def round(self, key: Key, state: State, problem: Problem, hp: Hyper) -> tuple[State, Info]: ...
    def output(self, state: State) -> Array: ...
    def view(self, key: Key, state: State, problem: Problem, hp: Hyper) -> Any: ...
    def points(self, state: State) -> Array: ...  # where gradients are evaluated, (nodes, d)
    def cohort(self, key: Key, t: Array, n: int, hp: Hyper) -> Draw: ...
    def rows_at_once(self, problem: Problem, hp: Hyper, elsewhere: bool) -> int: ...


# --- the whole -----------------------------------------------------------------------------------


class Info(NamedTuple):
    """Counts of one round, each () of int32; the host turns them into totals and bits.

    Fields:
        clients: messages sent; of a network, clients.
        coordinates: selected coordinates in them; 0 where a compressor selects none.
        gradients: per-example gradients evaluated; of points of a term that may be equal, each counts.
        clamped: coordinates out of the range of an aggregation.
    """

    clients: Array
    coordinates: Array
    gradients: Array
    clamped: Array = np.zeros((), np.int32)  # type: ignore[assignment]


class Cost(NamedTuple):
    """Host: what communication costs.

    Fields:
        per_message: bits of one message (of a network, of all that a client sends in a round).
        per_coordinate: bits of one coordinate that rounds count in it.
        downlink: bits that one client receives from the server in a round.
        coordinates: of one message, where rounds count none: no sparsifier selects some.
    """

    per_message: float
    per_coordinate: float
    downlink: float
    coordinates: int = 0


@compared_by_identity
class Algorithm(NamedTuple):
    """A published algorithm: hyper-parameters resolved on the host, rounds traced.

    :func:`jaxfl.algorithms.resolve` calls ``plan``, chooses the noise, and calls ``finish``.

    Fields:
        name: by which it is registered and called.
        summary: what it is, in a few words.
        paper: where it was published.
        params: its hyper-parameters.
        plan: host: (given, facts) -> all values but the noise and what follows from it.
        capacity: host: (values, facts) -> the slots of arrays whose size a round draws, by name.
        cost: host: (values, facts) -> the bits of its messages.
        init: (key, problem, hp) -> the state before the first round, and the counts of computing it.
        round: (key, state, problem, hp) -> the next state, and the counts of the round; ``key`` is the
            run's, the same in every round.
        output: state -> the model, (d,).
        finish: host: (plan, noise, facts) -> the values with what follows from the noise; None: nothing but
            the noise itself does.
        event: host: (values, facts) -> what a run releases; with "phase" among the values, that part alone.
            None: it is not described.
        formula: host: (values, facts, asked) -> the paper's noise as a Claim, for an eps or for a sigma, or
            None where it has none; None: it never has.
        cited: whether reports show the formula as the paper's claim.
        needs: names of the hyper-parameters that rounds require.
        reads: names of those that rounds read; None: all.
        parts: (role, name) of each part, for the record.
        per_record: False: clip="batch", where one record may change the clipped mean completely.
        cohort: (key, t, n, hp) -> the clients of round t of the run with this key; None: not known.
        body: what init and round are made of; None: not known.
    """

    name: str
    summary: str
    paper: str
    params: tuple[Param, ...]
    plan: Callable[[Mapping[str, Any], ProblemFacts], Plan]
    capacity: Callable[[Mapping[str, Any], ProblemFacts], dict[str, int]]
    cost: Callable[[Mapping[str, Any], ProblemFacts], Cost]
    init: Callable[[Key, Problem, Hyper], tuple[State, Info]]
    round: Callable[[Key, State, Problem, Hyper], tuple[State, Info]]
    output: Callable[[State], Array]
    finish: Callable[[Plan, Noise, ProblemFacts], Resolved] | None = None
    event: Callable[[Mapping[str, Any], ProblemFacts], Any] | None = None
    formula: Callable[[Mapping[str, Any], ProblemFacts, Asked], Any] | None = None
    cited: bool = False
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None
    parts: tuple[tuple[str, str], ...] = ()
    per_record: bool = True
    cohort: Callable[[Key, Array, int, Hyper], Draw] | None = None
    body: AnyBody | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of the hyper-parameters."""
        return frozenset(param.name for param in self.params)

    def claim(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """The paper's statement about the noise of these values; None where it makes none."""
        if not self.cited or self.formula is None or not values.get("sigma"):
            return None
        return self.formula(values, facts, Sigma(float(values["sigma"])))

    def __repr__(self) -> str:
        parts = "".join(f", {role}={name!r}" for role, name in self.parts if role in SHOWN_ROLES)
        return f"Algorithm({self.name!r}{parts})"

    def _repr_html_(self) -> str:
        rows = [("paper", self.paper), *self.parts]
        rows.append(("hyper-parameters", ", ".join(param.name for param in self.params)))
        title = f"{self.name}: {self.summary}"
        return display.table(title, rows, above=display.equation(self.name))


document_all(__name__)
