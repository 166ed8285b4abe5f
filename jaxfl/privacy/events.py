"""Events, which describe what a run releases about one record: frozen, hashable, for accountants.

An :class:`Event` is a repeated Gaussian mechanism: how records are drawn, how far one record can move
a release, the noise, and the number of releases.  Events compose one after the other
(:class:`Sequence`) or over disjoint data (:class:`Phases`).  :class:`NoClaim` stands for what has no
description.

Letters: m records of which b are drawn per release, clip G, noise sigma on the released *mean*,
T releases.  The mean divides by b, also where more or fewer records are drawn.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

from jaxfl.core.errors import require
from jaxfl.core.params import choice, nonnegative, number, whole
from jaxfl.core.records import document_all
from jaxfl.core.subsets import coin_tail
from jaxfl.core.types import SCHEMES, Algorithm, ProblemFacts, Scheme

__all__ = [
    "OBSERVED",
    "PROTECTED",
    "RELATIONS",
    "RING_NOISES",
    "SCHEMES",
    "AnyEvent",
    "Described",
    "Event",
    "Increments",
    "Kind",
    "LocalSteps",
    "Mean",
    "NoClaim",
    "OnRing",
    "Phases",
    "Probed",
    "RingNoise",
    "Sampling",
    "Scheme",
    "Sequence",
    "Standing",
    "Stated",
    "Status",
    "Unproven",
    "batch_clipped",
    "changed",
    "described",
    "inside",
    "neighbours",
    "plain_events",
    "protects",
    "released",
    "saga",
    "scaled",
    "sigmas",
    "svrg",
    "together",
    "until",
    "weakest",
    "worst",
    "wrappers",
]

Adjacency: TypeAlias = Literal["replace_one", "add_remove", "zero_out"]
ADJACENCIES: tuple[Adjacency, ...] = ("replace_one", "add_remove", "zero_out")
RingNoise: TypeAlias = Literal["skellam", "discrete_gaussian", "rounded_gaussian"]
RING_NOISES: tuple[RingNoise, ...] = ("skellam", "discrete_gaussian", "rounded_gaussian")
# what the adversary sees, by the trust of an event
OBSERVED = {
    "local_transcript": "every message of every client",
    "secure_sum": "only the sum of the clients' messages",
    "trusted_server": "the models that a trusted server shows",
    "single_node": "the models of the node that holds the data",
    "shared_seeds": "every message of every client, but not the seeds that honest neighbours share",
}
NEIGHBOURS = {
    ("record", "replace_one"): "one record of one client, replaced by another",
    ("record", "add_remove"): "one record of one client, added or removed",
    ("record", "zero_out"): "one record of one client, its share replaced by zero",
    ("client", "replace_one"): "all records of one client, replaced by another client's",
    ("client", "add_remove"): "all records of one client, added or removed",
    ("client", "zero_out"): "all records of one client, its update replaced by zero",
}


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The draw of records for each release.

    Fields:
        scheme: one of ``SCHEMES``, the names of :mod:`jaxfl.parts.sampling`.
        m: records.
        b: records drawn per release; of Poisson sampling, on average.
        slots: the capacity of a padded Poisson batch: a draw beyond it loses records, and a chance is added
            to delta, see :meth:`overflow`.  None: no padding.
    """

    scheme: str
    m: int
    b: float
    slots: int | None = None

    def __post_init__(self) -> None:
        choice("sampler", self.scheme, SCHEMES)
        whole("samples", self.m, 1, math.inf)
        number("batch", self.b, above=0)
        require(
            self.scheme == "with_replacement" or self.b <= self.m,
            lambda: f"exceeds the {self.m} records",
            lambda: f"ask for at most {self.m}",
            batch=self.b,
        )
        require(
            self.scheme in ("poisson", "full") or self.b == int(self.b),
            "must be whole where the number of records is fixed",
            "round it, or sample by Poisson",
            batch=self.b,
        )
        if self.slots is not None:
            number("slots", self.slots, least=1, remedy="give None for no padding")
        require(
            self.scheme != "full" or self.b == self.m,
            lambda: f"contradicts sampler = 'full', which draws all {self.m} records",
            "leave it out",
            batch=self.b,
        )

    @property
    def q(self) -> float:
        return self.b / self.m

    def overflow(self, releases: int) -> float:
        """``T P[Bin(m - 1, q) >= slots]``: the chance that all others ever fill the slots.

        What the others draw does not depend on the record.  Where they leave a slot in every release,
        nothing is dropped with or without the record, and the release is that of unpadded batches
        given their draws.  Hockey-stick divergences are jointly convex: padding adds this chance to
        delta, and no more.
        """
        if self.slots is None or self.scheme != "poisson" or self.slots >= self.m:
            return 0.0
        others = self.m - 1
        return min(1.0, releases * coin_tail(self.q * others, others, self.slots - 1))


# --- the sensitivity of one release --------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Mean:
    """A weighting of clipped gradients.

    A drawn record has norm at most ``G (over_b/b + over_m/m)`` in the estimate, an undrawn one
    ``G undrawn/m``; the two differ by at most ``G over_b/b`` and average to ``G mean/m``.

    =================  ======  ======  =======  ======
    estimator          over_b  over_m  undrawn  hidden
    =================  ======  ======  =======  ======
    minibatch, full    1       0       0        no
    SVRG               2       -1      1        no
    SAGA               2       -1      1        yes
    SPIDER difference  2       0       0        no
    DP-SRM             2-g     0       0        no
    =================  ======  ======  =======  ======

    Fields:
        clip: G, the norm of one example's gradient.
        over_b: the share of a drawn record, in units of G/b.
        over_m: what is added to it, in units of G/m.
        undrawn: the share of a record that is not drawn, in units of G/m.
        mean: the share of a record on average over draws, in units of G/m.
        hidden: whether the estimator remembers more than the transcript shows, as a SAGA table
            remembers who was drawn.
        whole: the norm to which the estimate is clipped in the end: no record moves it by more than twice
            that.
        averaged: whether only the root mean square of a record's shifts, over the releases of full
            batches so far, is bounded so, along every transcript.
    """

    clip: float
    over_b: float = 1.0
    over_m: float = 0.0
    undrawn: float = 0.0
    mean: float = 1.0
    hidden: bool = False
    whole: float = math.inf
    averaged: bool = False

    def __post_init__(self) -> None:
        number("clip", self.clip, above=0)
        number("over_b", self.over_b, above=0, remedy="a drawn record counts")

    def X(self, sampling: Sampling) -> float:
        """The norm of a drawn record's share."""
        share = self.clip * (self.over_b / sampling.b + self.over_m / sampling.m)
        return min(share, 2 * self.whole)

    def Y(self, sampling: Sampling) -> float:
        """The norm of an undrawn record's share."""
        return min(self.clip * self.undrawn / sampling.m, 2 * self.whole)

    def V(self, sampling: Sampling) -> float:
        """The norm of the difference between the two."""
        return self.clip * self.over_b / sampling.b

    def M(self, sampling: Sampling) -> float:
        """The norm of a record's share averaged over the draw."""
        return self.clip * self.mean / sampling.m


def svrg(clip: float) -> Mean:
    """``mean_B (clip grad f_j(x) - clip grad f_j(w)) + mean_j clip grad f_j(w)``, w a former x."""
    return Mean(clip, over_b=2.0, over_m=-1.0, undrawn=1.0)


def saga(clip: float) -> Mean:
    """:func:`svrg` with a snapshot per record, taken when it was last drawn: hidden state."""
    return dataclasses.replace(svrg(clip), hidden=True)


def batch_clipped(
    bound: float | None = None,
    clip: float = math.inf,
    make: Callable[[float], Mean] = Mean,
) -> Mean:
    """The estimate clipped to norm ``clip`` as a whole: no single record's influence is bounded.

    With ``bound``, a bound on every record's gradient that does not depend on data, records have
    the shares of ``make(bound)``, since projection onto a ball increases no distance, and two points
    of a ball of radius ``clip`` are at most its diameter apart.  A projected share may have another
    direction.  Drawn and undrawn rounds then no longer cancel, as the chain bound of SVRG requires:
    the estimator counts as one with hidden state.
    """
    if bound is None:
        return Mean(math.inf, whole=clip)
    return dataclasses.replace(make(bound), whole=clip, hidden=True)


@dataclasses.dataclass(frozen=True)
class LocalSteps:
    """Hu, Guo and Gong: tau noisy local steps per release, over shuffled epochs.

    Fields:
        clip: G, the norm of one example's gradient.
        tau: local steps per release.
        devices: whose models' mean the server sees; 1: no secure aggregation.
        colluding: those of the devices whose models the server knows.
        convex: whether the loss is convex and beta-smooth and eta <= 2/beta; otherwise the sum counts as a
            function of private messages.
        fresh: whether every round shuffles again; a partial pass is then a random subset.
    """

    clip: float
    tau: int
    devices: int = 1
    colluding: int = 0
    convex: bool = False
    fresh: bool = False

    def __post_init__(self) -> None:
        number("clip", self.clip, above=0)
        whole("local_steps", self.tau, 1, math.inf)
        whole("devices", self.devices, 1, math.inf)
        require(
            0 <= self.colluding < self.devices,
            lambda: f"must be less than the {self.devices} devices",
            colluding=self.colluding,
        )


@dataclasses.dataclass(frozen=True)
class Increments:
    """mu^2-SGD: a record shifts every release from its own step on.

    With S = G + 2LD a record of step t moves the later releases by at most 2 S each, more exactly
    by ``2 (G + 2LD (t-1)/(t+1))``.  That is with alpha_t = t and beta_t = 1/t; with others a shift changes
    from release to release [:func:`jaxfl.parts.momentum.corrected`].

    Fields:
        clip: G, the norm of one example's gradient.
        smoothness: L.
        diameter: D, of the constraint set.
        machines: over how many the mean is that has the noise.
        exact: whether the exact shift counts, which needs G and L proven for the loss.
        weight_power: p of alpha_t.
        momentum_power: r of beta_t.
    """

    clip: float
    smoothness: float = 0.0
    diameter: float = 0.0
    machines: int = 1
    exact: bool = True
    weight_power: float = 1.0
    momentum_power: float = 1.0

    def __post_init__(self) -> None:
        number("clip", self.clip, above=0)
        whole("machines", self.machines, 1, math.inf)
        for name in ("smoothness", "diameter", "weight_power", "momentum_power"):
            nonnegative(name, getattr(self, name))

    @property
    def S(self) -> float:
        return self.clip + 2 * self.smoothness * self.diameter


@dataclasses.dataclass(frozen=True)
class OnRing:
    """A client's message in a sum of integers, all with integer noise [:mod:`jaxfl.privacy.rings`].

    The event's sigma is ``step std sqrt(senders)``, for integers that stand for multiples of a step.

    Fields:
        clip: the norm of a message before it is rounded.
        d: its coordinates.
        noise: the law of the noise.
        std: the standard deviation of one client's noise, in integers.
        senders: clients whose noise counts: those that send at least, without those that collude.
        draws: numbers that all clients draw in a release.
    """

    clip: float
    d: int
    noise: RingNoise
    std: float
    senders: int
    draws: int

    def __post_init__(self) -> None:
        number("clip", self.clip, above=0)
        choice("noise", self.noise, RING_NOISES)
        whole("senders", self.senders, 1, math.inf)


# --- events --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Event:
    """``releases`` times: draw, weigh, add N(0, sigma^2 I), show to the adversary.

    Fields:
        sampling: how each release draws its records.
        sensitivity: how far one record can move a release.
        sigma: the standard deviation of the noise on a coordinate of the released mean.
        releases: T.
        unit: what is protected, one record or all records of one client.
        adjacency: how neighbouring data differ in it: replaced, added or removed, or its share zero.
        trust: what the adversary sees, a key of ``OBSERVED``.
        correlation: w, where the noise of release t is ``sum_j w_j z_{t-j}``, z_s ~ N(0, sigma^2 I); ():
            releases have independent noise.
        shows: whether t counts, for each coordinate, the releases that show it, chosen without the data.
    """

    sampling: Sampling
    sensitivity: Mean | LocalSteps | Increments | OnRing
    sigma: float
    releases: int
    unit: Literal["record", "client"] = "record"
    adjacency: Adjacency = "replace_one"
    trust: Literal[
        "local_transcript", "secure_sum", "trusted_server", "single_node", "shared_seeds"
    ] = "local_transcript"
    correlation: tuple[float, ...] = ()
    shows: bool = False

    def __post_init__(self) -> None:
        choice("adjacency", self.adjacency, ADJACENCIES)
        number("sigma", self.sigma, least=0)
        whole("rounds", self.releases, 0, math.inf)


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Events on the same data, in any order: privacy losses add.

    Fields:
        events: those that compose.
    """

    events: tuple[AnyEvent, ...]


@dataclasses.dataclass(frozen=True)
class Phases:
    """Events on disjoint data: the worst counts, and delta does not add.

    Fields:
        events: one for each part of the data.
        together: whether they run at the same time, as those of clients do; False: one after the other.
    """

    events: tuple[AnyEvent, ...]
    together: bool = False


@dataclasses.dataclass(frozen=True)
class NoClaim:
    """No event can be given; any number would be wrong.

    Fields:
        reason: why, as a clause.
    """

    reason: str


Described: TypeAlias = Event | Sequence | Phases | NoClaim


@dataclasses.dataclass(frozen=True)
class Unproven:
    """The event that unchecked parts describe: noise is calibrated for it, and nothing proves it.

    Fields:
        event: as they describe it.
        why: a sentence that says what is not checked.
    """

    event: AnyEvent
    why: str


class Status(enum.StrEnum):
    """The basis of a proof, by the letter that results show."""

    ESTABLISHED = "E"  # published accountants
    DERIVED = "D"  # an elementary derivation, given in the docstrings
    NEW = "N"  # a proof that is sketched and checked numerically, and not reviewed
    STATED = "U"  # the user's event, which nobody proved
    PROBED = "P"  # what the user's parts declare, which a probe did not refute
    NONE = ""  # nothing is proven


def weakest(*found: Status) -> Status:
    """The status of what rests on all of these."""
    return max(found, key=[*"EDNPU", ""].index)


@dataclasses.dataclass(frozen=True)
class Stated:
    """An event that the user states: accountants answer for it, and nobody checked it.

    Fields:
        event: as the user states it.
        why: that no attack tried it, and why; "" where one did not refute it.
    """

    status: ClassVar[Status] = Status.STATED
    event: AnyEvent
    why: str = ""


class Probed(Stated):
    """The event of parts as their authors declare them, which a probe did not refute."""

    status: ClassVar[Status] = Status.PROBED


AnyEvent: TypeAlias = Described | Unproven | Stated
E = TypeVar("E", bound=AnyEvent)


class Kind(enum.StrEnum):
    """How far the event of an algorithm may be trusted."""

    PROVEN = "proven"  # jaxfl made all that a proof rests on
    DECLARED = "declared"  # the user's parts declare the rest
    PROBED = "probed"  # and a probe did not refute that
    REFUTED = "refuted"  # or did
    STATED = "stated"  # the event is the user's own
    UNTRIED = "untried"  # and no attack could try it
    NONE = "none"


class Standing(NamedTuple):
    """Whether accountants may state an eps for the event of an algorithm, and why not.

    Fields:
        kind: how far the event may be trusted.
        why: a sentence; empty where the event is proven.
        code: a digest of the user's functions on which the event rests.
    """

    kind: Kind = Kind.PROVEN
    why: str = ""
    code: str = ""

    @property
    def claims(self) -> bool:
        """Whether an eps may be stated."""
        return self.kind in (Kind.PROVEN, Kind.PROBED) or self.stated

    @property
    def stated(self) -> bool:
        """Whether the event is the user's own."""
        return self.kind in (Kind.STATED, Kind.UNTRIED)

    def of(self, event: AnyEvent) -> AnyEvent:
        """The event as accountants may read it."""
        if not self.claims and not isinstance(event, NoClaim):
            return Unproven(event, self.why)
        if self.kind == Kind.PROBED:
            return Probed(event)
        return Stated(event, self.why * (self.kind == Kind.UNTRIED)) if self.stated else event


def released(
    algorithm: Algorithm, values: Mapping[str, Any], facts: ProblemFacts, standing: Standing
) -> AnyEvent:
    """Return what a run with these values releases, as accountants may read it."""
    event: AnyEvent = NoClaim("the algorithm does not describe what it releases")
    if algorithm.event is not None:
        event = algorithm.event(values, facts)
    return standing.of(event)


def described(event: AnyEvent) -> Described:
    """The event without :class:`Unproven` and :class:`Stated`, wherever they are in it."""
    if isinstance(event, Unproven | Stated):
        return described(event.event)
    return inside(event, described)


def inside(event: E, change: Callable[[Any], Any]) -> E:
    """``event`` with each of the events of which it is made, if any, changed."""
    if isinstance(event, Unproven | Stated):
        return dataclasses.replace(event, event=change(event.event))
    if isinstance(event, Sequence | Phases):
        return dataclasses.replace(event, events=tuple(map(change, event.events)))
    return event


def _walk(event: AnyEvent | None) -> Iterator[AnyEvent | None]:
    """Yield an event and all inside it, the outermost first."""
    yield event
    if isinstance(event, Unproven | Stated):
        yield from _walk(event.event)
    for part in getattr(event, "events", ()):
        yield from _walk(part)


def wrappers(event: AnyEvent) -> Iterator[Unproven | Stated]:
    """Yield the unproven and the stated events inside an event, the outermost first."""
    return (one for one in _walk(event) if isinstance(one, Unproven | Stated))


def plain_events(event: AnyEvent | None) -> Iterator[Event]:
    """The events of which this one is made, in order."""
    return (one for one in _walk(event) if isinstance(one, Event))


# whose data and what is seen, in the order of the numbers that results hold: later adversaries at the end
RELATIONS = tuple(
    sorted(itertools.product(NEIGHBOURS, OBSERVED), key=lambda pair: pair[1] == "shared_seeds")
)
# what an eps is about, by the number that results hold; 0: nothing is released under noise
PROTECTED = (
    "",
    *(
        f"{NEIGHBOURS[whose]}, from an adversary who sees {OBSERVED[seen]}"
        for whose, seen in RELATIONS
    ),
)


def protects(event: AnyEvent) -> str:
    """Describe what an eps of this event protects: the difference of neighbouring data, and from whom."""
    first = next(plain_events(event), None)
    if first is None:
        return ""
    return f"{neighbours(event)}, from an adversary who sees {OBSERVED[first.trust]}"


def neighbours(event: AnyEvent) -> str:
    """Describe the difference of neighbouring data; "" where nothing is released."""
    first = next(plain_events(event), None)
    return "" if first is None else NEIGHBOURS[first.unit, first.adjacency]


def sigmas(event: AnyEvent) -> tuple[float, ...]:
    """The noise of each plain event, in order."""
    return tuple(part.sigma for part in plain_events(event))


def changed(event: AnyEvent, change: Callable[[Event], Event]) -> AnyEvent:
    """``event`` with every plain event changed."""
    if isinstance(event, Event):
        return change(event)
    return inside(event, lambda part: changed(part, change))


def scaled(event: AnyEvent, factor: float) -> AnyEvent:
    """``event`` with all noise multiplied by ``factor``."""
    return changed(event, lambda part: dataclasses.replace(part, sigma=part.sigma * factor))


def until(event: AnyEvent, releases: int) -> AnyEvent:
    """The event of the first ``releases`` releases.

    Phases follow one another, or each has that many (``together``).  The parts of a sequence advance in
    proportion, each rounded up.
    """
    if isinstance(event, Event):
        return dataclasses.replace(event, releases=releases)
    if not isinstance(event, Sequence | Phases) or (isinstance(event, Phases) and event.together):
        return inside(event, lambda part: until(part, releases))
    lengths = [sum(part.releases for part in plain_events(each)) for each in event.events]
    total = max(1, sum(lengths))
    parts: list[Any] = []
    for part, length in zip(event.events, lengths, strict=True):
        if isinstance(event, Phases):
            parts.append(until(part, max(0, min(releases, length))))
            releases -= length
        else:
            parts.append(until(part, math.ceil(releases * length / total)))
    return dataclasses.replace(event, events=tuple(parts))


def together(event: AnyEvent, other: Event) -> AnyEvent:
    """``event`` and ``other`` on all of its records; each phase composes with all of ``other``."""
    if isinstance(event, Event | Sequence):
        return Sequence((event, other))
    return inside(event, lambda part: together(part, other))


def worst(facts: ProblemFacts, client: Callable[[int], AnyEvent]) -> AnyEvent:
    """``client(m)``, the event of a client with m records; for several m, phases of which the worst counts.

    ``facts`` hold the clients' numbers of records.
    """
    found = tuple(client(m) for m in facts.sizes or (facts.m,))
    return found[0] if len(found) == 1 else Phases(found, together=True)


document_all(__name__)
