"""Helpers of the rules of algorithms: the user's values first, then the paper's, then defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from jaxfl.algorithms.resolution import ASKED, GIVEN, noise_asked
from jaxfl.algorithms.roles import part
from jaxfl.core.calls import asked, place
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import check, choice
from jaxfl.core.types import (
    LARGEST,
    Aggregation,
    Asked,
    Compressor,
    Eps,
    Estimator,
    Local,
    Mechanism,
    Origin,
    Param,
    Participation,
    Plan,
    ProblemFacts,
    Sampler,
    Server,
    Sigma,
    Source,
)
from jaxfl.parts import channels, estimators, graphs, mechanisms, sampling, servers
from jaxfl.parts.aggregations import unless_plain
from jaxfl.parts.compressors import identity
from jaxfl.problems.clipping import CLIPPINGS
from jaxfl.rounds.federated import Federated
from jaxfl.rounds.gossip import Gossip

__all__ = [
    "ASKED_SIZE",
    "DIFFERENCES",
    "EPS",
    "GAP",
    "PRIVACY",
    "UNKNOWN",
    "USUAL",
    "WAYS",
    "Draft",
    "Network",
    "Parts",
    "achieved",
    "applies",
    "body_of",
    "local_body",
    "network_of",
    "only",
    "plain",
    "refuse_epochs",
    "reporting",
    "resolved",
    "usual_delta",
]

PRIVACY = (
    Param("eps", "eps that the noise is calibrated to", open_low=True, high=LARGEST),
    Param("delta", "privacy failure probability, below 1", low=1e-300, high=1.0, open_high=True),
)
GAP = Param(
    "gap",
    "f(x0) - f*, the initial suboptimality that theoretical step sizes and rounds use",
    open_low=True,
    high=LARGEST,
)
WAYS = {
    "clip": ("example", "batch", "client"),
    "noise": ("fused", "per_client"),
    "clipping": CLIPPINGS,
}
DIFFERENCES = "which bounds differences of gradients by those of one record"
GROUP = "jaxfl.privacy.of_group"
UNKNOWN = "L of this model is unknown"
ASKED_SIZE = {
    name: f"from the given {name}" for name in ("omega", "share")
}  # other words for a size
USUAL = "min(0.001, 0.1/{})"  # the default delta, of m records or n clients
EPS = 5.0  # where no way to set the noise is given


class Parts(TypedDict, total=False):
    """Parts that a user may exchange, as far as an algorithm allows it; most of them also by name."""

    compressor: Compressor | str
    sampler: Sampler | str
    mechanism: Mechanism
    participation: Participation | str
    server: Server
    aggregation: Aggregation | str
    clip: str
    noise: str


class Network(Parts, total=False):
    """Parts that a user may exchange in an algorithm without a server."""

    graph: graphs.Graph | str


def achieved(compressor: Compressor, asked: bool) -> Source:
    """The source of an omega that the compressor's own hyper-parameters give, for an ``asked`` one."""
    own = [param.name for param in compressor.params if param.name not in ASKED_SIZE]
    which = " and ".join(own) or "the compressor"
    return Source(Origin.THEOREM, f"given, as near as {which} allows" if asked else f"from {which}")


def applies(fits: Any, name: str, why: str, **parts: Any) -> None:
    """Raise unless a part fits the algorithm; ``why`` says what is in the way, and the way out."""
    names = {role: getattr(part, "name", part) for role, part in parts.items()}
    require(fits, lambda: f"does not apply to {name}, {why}", **names)


def only(name: str, parts: Mapping[str, Any], *allowed: str, records: str = "") -> dict[str, Any]:
    """Return the parts that are given; raise unless the algorithm lets users exchange them.

    ``records``: why nothing is proven of all records of a client together.
    """
    if records and parts.get("clip") == "client":
        applies(False, name, f"{records}: take ldp_sgd, or {GROUP} of a run", clip="client")
    for role, one in parts.items():
        applies(role in allowed, name, f"which takes {', '.join(allowed)}", **{role: one})
    for role, ways in WAYS.items():
        choice(role, parts.get(role, ways[0]), ways)
    return {role: one for role, one in parts.items() if one is not None}


def body_of(parts: Mapping[str, Any], **own: Any) -> Federated:
    """Return the body of the user's ``parts``, else the algorithm's ``own``, else the plainest ones."""
    plainest = {
        "compressor": identity(),
        "channel": channels.direct(),
        "server": servers.descent(),
        "participation": sampling.everyone(),
        "aggregation": None,
    }
    roles: dict[str, Any] = {**plainest, **own, **parts}
    _noises_alike(roles["mechanism"], own["mechanism"])
    return Federated(**{**roles, "aggregation": unless_plain(roles["aggregation"])})


def local_body(
    name: str,
    parts: Mapping[str, Any],
    local: Callable[[Estimator, Mechanism], Local],
    sampler: Sampler,
    estimator: Callable[[Sampler], Estimator] = estimators.minibatch,
    **own: Any,
) -> Federated:
    """Return the body whose clients make their messages in ``local``, with an ``estimator`` and noise."""
    given = only(name, parts, "sampler", "mechanism", "participation", "server")
    usual, rows = mechanisms.gaussian(), estimator(given.pop("sampler", sampler))
    own |= {"local": local(rows, given.get("mechanism", usual)), "noise": "per_client"}
    return body_of(given, estimator=rows, mechanism=usual, **own)


def network_of(parts: Mapping[str, Any], **own: Any) -> Gossip:
    """Return the body, over a network, of the user's ``parts``, else the algorithm's ``own``."""
    roles: dict[str, Any] = {"graph": "complete", **own, **parts}
    _noises_alike(roles["mechanism"], own["mechanism"])
    return Gossip(**{**roles, "graph": part("graph", roles["graph"])})


def _noises_alike(mine: Mechanism, usual: Mechanism) -> None:
    """Raise for a mechanism that noises something else than the one that the event describes."""
    who = {True: "its server adds noise to the mean", False: "its clients add their own noise"}
    there = "it adds no noise" if usual.std is None else who[usual.central]
    require(
        (mine.std is None, mine.central) == (usual.std is None, usual.central),
        lambda: f"does not apply to this algorithm: {there}",
        "change the std of jaxfl.parts.mechanisms.gaussian() or central()",
        mechanism=mine.name,
    )


def resolved(
    compressor: Compressor, values: Mapping[str, Any], d: int, uploads: int
) -> dict[str, Any]:
    """Return the values that a compressor resolves, each in the range of its hyper-parameter.

    A share is that of all ``uploads`` of a client in a round.
    """
    values = {n: v / uploads if n == "share" else v for n, v in values.items()}
    found: dict[str, Any] = asked(compressor, "resolve", values, d)
    names = {param.name for param in compressor.params}
    try:
        check(compressor.params, {n: v for n, v in found.items() if n in names}, compressor.name)
    except InputError as error:
        what = f"The resolve of the compressor {compressor.name!r}"
        raise error.within(what).at(place(compressor.resolve)) from None
    return found


class Draft:
    """The values of one run, filled in by rules: the user's first, then theory's, then defaults.

    ``asked`` is the way in which the noise is chosen; the noise joins the values once it is known.
    """

    def __init__(
        self, values: dict[str, Any], sources: dict[str, Source], asked: Asked | None = None
    ):
        self.values, self.sources, self.asked = values, sources, asked

    @classmethod
    def of(cls, given: Mapping[str, Any], facts: ProblemFacts, theory: bool = False) -> Draft:
        """Start from the given values; with ``theory``, rounds may be chosen later."""
        values = {name: value for name, value in given.items() if name not in ASKED}
        draft = cls(values, dict.fromkeys(values, GIVEN), noise_asked(given))
        if facts.rounds is not None:
            draft._fill("rounds", facts.rounds, GIVEN)
        elif not theory:
            raise InputError("rounds is not given, and this algorithm has no theory to choose it.")
        return draft

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def _fill(self, name: str, value: Any, source: Source) -> None:
        if name not in self.values:
            self.values[name], self.sources[name] = value, source

    def default(self, name: str, value: Any, why: str = "") -> None:
        """Set ``name`` to a default, unless it has a value; ``why`` explains the default in results."""
        self._fill(name, value, Source(Origin.DEFAULT, f"default: {why}" if why else ""))

    def theorem(self, name: str, value: Any, where: str) -> None:
        """Set ``name`` to a value of theory, unless it has one; ``where`` names the theorem."""
        self._fill(name, value, Source(Origin.THEOREM, where))

    def set(self, name: str, value: Any, source: Source) -> None:
        """Set ``name`` to this value, whatever it was before."""
        self.values[name], self.sources[name] = value, source

    @property
    def eps(self) -> float:
        """The eps for which schedules in eps are made."""
        return self.asked.eps if isinstance(self.asked, Eps) else EPS

    @property
    def for_eps(self) -> str:
        """The note on such schedules where sigma is given."""
        return "" if isinstance(self.asked, Eps) else f", for eps = {EPS:g}"

    def parts(self, body: Federated | Gossip, facts: ProblemFacts) -> None:
        """Set the hyper-parameters of compressor and participation; absolute errors have no omega."""
        given = "omega" in self
        self.code(body.compressor, facts, body.uploads)
        if not (body.absolute and body.compressor.absolute):
            require(
                body.compressor.omega is not None,
                "has no omega, which this algorithm reads",
                "take one that declares it, or compose an algorithm of your own",
                compressor=body.compressor.name,
            )
            omega = asked(body.compressor, "omega", facts.d, self.values)
            self.set("omega", omega, achieved(body.compressor, given))
        tenth = max(1, facts.n // 10), "a tenth of the clients"
        self.taking_part(body.participation, *tenth)

    def taking_part(self, participation: Participation, cohort: int, why: str) -> None:
        """Set a default ``cohort``; raise if another hyper-parameter of the participation is missing."""
        names = [param.name for param in participation.params]
        if "cohort" in names:
            self.default("cohort", cohort, why)
        wanted = [name for name in names if name not in self]
        if wanted:
            raise InputError(
                f"participation = {participation.name!r} needs {' and '.join(wanted)}, which nothing "
                "sets: give it."
            )

    def code(self, compressor: Compressor, facts: ProblemFacts, uploads: int = 1) -> None:
        """Set the compressor's own hyper-parameters, from an omega or a share, or by default."""
        words = {param.name: param.default for param in compressor.params}
        for name, value in resolved(compressor, self.values, facts.d, uploads).items():
            require(
                name == "omega" or self.values.get(name, value) == value,
                lambda: (
                    f"is given, and the compressor {compressor.name!r} resolves it to {value!r}"
                ),
                "let its resolve fill in what is missing, and raise for what does not fit",
                **{name: self.values.get(name)},
            )
            for word in ASKED_SIZE.keys() & self.values.keys():
                self.theorem(name, value, ASKED_SIZE[word])
            self.default(name, value, words.get(name, ""))

    def clip(self, private: bool) -> float:
        """Set and return the clip G; raise unless it is finite where noise is calibrated to it."""
        bounded = math.isfinite(self.values.get("clip", 1.0)) or isinstance(self.asked, Sigma)
        if private and not bounded:
            raise InputError(
                "clip = inf bounds no example, and no noise is enough for any eps: give a finite clip."
            )
        self.default("clip", 1.0 if private else math.inf)
        G = float(self.values["clip"])
        largest = f"must be at most {LARGEST:g}, the largest 32-bit float, or inf"
        require(G <= LARGEST or math.isinf(G), largest, clip=G)
        return G

    def unknown(self, facts: ProblemFacts) -> bool:
        """Whether L is unknown: neither the model nor the user gives it."""
        return not facts.smoothness and self.sources.get("smoothness") != GIVEN

    def batch(self, body: Federated | Gossip, facts: ProblemFacts) -> None:
        """Set a default batch: 32 records, or all; 128 under noise where L is unknown.

        Noise for an eps shrinks with the batch until about 100 records: measured with networks, for
        want of a theory of the best batch.
        """
        if body.estimator.sampler.params:
            if body.mechanism.std is not None and self.unknown(facts):
                self.default("batch", min(128, facts.m), UNKNOWN)
            self.default("batch", min(32, facts.m), "min(32, m)")

    def step(self) -> None:
        """Set a default step size for an unknown L: no clipped gradient moves the model further than 1."""
        G = float(self.values["clip"])
        if math.isfinite(G):
            self.default("lr", 1 / G, f"1/clip, as {UNKNOWN}")
        self.default("lr", 0.1, UNKNOWN)

    def smoothness(self, facts: ProblemFacts) -> float:
        """Set and return L: that of the model, or 1, labelled as unknown."""
        if facts.smoothness:
            self.theorem("smoothness", facts.smoothness, "the model's")
        self.default("smoothness", 1.0, UNKNOWN)
        return float(self.values["smoothness"])

    def target(self, facts: ProblemFacts, unit: Literal["m", "n"] = "m") -> None:
        """Set default eps and delta, of m records or of n clients, unless the noise is set otherwise."""
        size = facts.m_max if unit == "m" else facts.n
        self.default("delta", usual_delta(size), USUAL.format(unit))
        self.ask()

    def ask(self) -> None:
        """Ask for noise for the default eps, unless noise is asked for."""
        if self.asked is None:
            self.asked = Eps(EPS)

    def private(self, body: Federated | Gossip, facts: ProblemFacts) -> tuple[float, float]:
        """Set what every private algorithm with clip G and smoothness L needs; return G and L."""
        G = self.clip(True)
        self.parts(body, facts)
        L = self.smoothness(facts)
        self.target(facts, "n" if body.clip == "client" else "m")
        self.default("gap", 1.0)
        return G, L

    def plan(self, parts: tuple[dict[str, Any], ...] = ({},)) -> Plan:
        return Plan(self.values, self.sources, self.asked, parts)


def refuse_epochs(name: str, sampler: Sampler) -> None:
    """Raise for epochs, which continue through rounds of another kind."""
    why = (
        "whose rounds are of two kinds: no epoch is made of one kind alone, and nothing is proven. "
        "Take 'poisson' or 'without_replacement'"
    )
    applies(not (sampler.epochs or sampler.cycles), name, why, sampler=sampler)


def reporting(body: Federated, values: Mapping[str, Any], n: int) -> float:
    """The least number of clients in a round's mean."""
    if body.participation.least is not None:
        return float(asked(body.participation, "least", n, values))
    if body.participation.everyone:
        return n
    require(
        "cohort" in values,
        lambda: (
            f"The participation {body.participation.name!r} does not say how many clients it calls"
        ),
        "declare a Param called 'cohort', or pass Participation(..., least=...)",
    )
    return float(values["cohort"])


def usual_delta(size: int) -> float:
    """The default delta for so many records, or clients."""
    return min(1e-3, 0.1 / size)


def plain(**defaults: Any) -> Callable[[Mapping[str, Any], ProblemFacts], Plan]:
    """The simplest ``plan``: the user's values, and these defaults for others.

    Where ``eps`` is given, or is one of them and ``sigma`` is not given, sigma is calibrated for
    (eps, delta), with delta = min(0.001, 0.1/m) unless it is given; a body that protects whole clients
    has min(0.001, 0.1/n).
    """

    def plan(given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        N = Draft.of(given, facts)
        for name, value in defaults.items():
            if name not in ASKED:
                N.default(name, value)
        usual = [name for name in ("eps", "sigma") if name in defaults][:1]
        N.asked = N.asked or noise_asked({name: defaults[name] for name in usual})
        if "eps" in defaults or isinstance(N.asked, Eps):
            N.default("delta", usual_delta(facts.m_max), USUAL.format("m"))
        return N.plan()

    return plan
