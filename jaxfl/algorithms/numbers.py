"""What constructors of algorithms share: the user's numbers first, then the paper's, then defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from jaxfl.checks import shown
from jaxfl.errors import InputError
from jaxfl.gossip import Gossip
from jaxfl.hyper import usual_delta
from jaxfl.rounds import Federated
from jaxfl.transcript import drawn, worst
from jaxfl.types import (
    LARGEST,
    Aggregation,
    Compressor,
    Facts,
    Param,
    Participation,
    Resolved,
    Sampler,
    Server,
)

__all__ = [
    "EPS",
    "PRIVACY",
    "Numbers",
    "Parts",
    "curator",
    "of_eps",
    "only",
    "refuse_epochs",
    "reporting",
    "summary_of",
    "taking_part",
]

PRIVACY = (
    Param("eps", "privacy that sigma is calibrated for", open_low=True, high=LARGEST),
    Param("delta", "privacy failure probability, below 1", low=1e-300, high=1.0, open_high=True),
)
EPS = 5.0  # where no way to set the noise is given


class Parts(TypedDict, total=False):
    """What a user may exchange, as far as an algorithm allows it."""

    compressor: Compressor
    sampler: Sampler
    participation: Participation
    server: Server
    aggregation: Aggregation
    clip: str
    noise: str


def only(name: str, parts: Mapping[str, Any], *allowed: str) -> dict[str, Any]:
    """The parts, or one sentence on the first that this algorithm does not let exchange."""
    for role, part in parts.items():
        if role not in allowed:
            what = getattr(part, "name", part)
            way = f"it takes {', '.join(allowed)}" if allowed else "leave it out"
            raise InputError(f"{role} = {what!r} does not apply to {name}: {way}.")
    if parts.get("noise", "fused") not in ("fused", "per_client"):
        raise InputError(f"noise = {parts['noise']!r} has to be 'fused' or 'per_client'.")
    return dict(parts)


def _omega(compressor: Compressor, d: int, values: Mapping[str, Any]) -> float:
    """What the compressor says of itself, where that can be."""
    omega = compressor.omega(d, values)
    try:
        fits = 0 <= float(omega) < math.inf
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise InputError(
            f"The compressor {compressor.name!r} says omega = {shown(omega)}, and E|C(v) - v|^2 <= omega "
            "|v|^2 needs a finite number that is not negative: correct its omega."
        )
    return omega


def of_eps(values: Mapping[str, Any]) -> str:
    """What is said of schedules in eps where sigma is given, from which eps follows only with them."""
    return "" if "eps" in values else f", for eps = {EPS:g}"


def summary_of(constructor: Any) -> str:
    """What a docstring says before its first colon or citation."""
    return (constructor.__doc__ or "").split(":", 1)[0].split("[")[0].strip().rstrip(".")


class Numbers:
    """Numbers of one run, and where each came from."""

    def __init__(self, given: Mapping[str, Any], facts: Facts, rounds: Any = None):
        self.values, self.sources = dict(given), dict.fromkeys(given, "given")
        if facts.rounds is not None:
            self.default("rounds", facts.rounds, "given")
        elif rounds is None:
            raise InputError("rounds is not given, and this algorithm has no theory to choose it.")

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def default(self, name: str, value: Any, source: str = "default") -> None:
        """``value``, if the user gave none."""
        if name not in self.values:
            self.values[name], self.sources[name] = value, source

    def set(self, name: str, value: Any, source: str) -> None:
        """``value``, whatever there was."""
        self.values[name], self.sources[name] = value, source

    def one_of(self, *names: str) -> None:
        """Refuse two ways of saying one thing."""
        given = [name for name in names if name in self.values]
        if len(given) > 1:
            both = " and ".join(f"{name} = {self.values[name]!r}" for name in given)
            many = "both" if len(given) == 2 else "all"
            raise InputError(f"{both} {many} set the noise: give one of them.")

    def parts(self, body: Federated | Gossip, facts: Facts) -> None:
        """What compressor and participation need."""
        given = "from omega" if "omega" in self.values else "default"
        for name, value in body.compressor.resolve(self.values, facts.d).items():
            self.default(name, value, given)
        self.set("omega", _omega(body.compressor, facts.d, self.values), "achieved")
        tenth = max(1, facts.n // 10), "default: a tenth of the clients"
        taking_part(body.participation, self.values, self.default, *tenth)

    def clip(self, private: bool) -> float:
        """G, finite where noise is calibrated to it."""
        if private and math.isinf(self.values.get("clip", 1.0)) and "sigma" not in self.values:
            raise InputError(
                "clip = inf bounds no example, so that no noise is enough for any eps: give a finite "
                "clip."
            )
        self.default("clip", 1.0 if private else math.inf)
        return float(self.values["clip"])

    def smoothness(self, facts: Facts) -> float:
        """L of the model, or 1 under a label that says so."""
        known = facts.smoothness
        if known:
            self.default("smoothness", known, "the model's")
        self.default("smoothness", 1.0, "default: L of this model is unknown")
        return float(self.values["smoothness"])

    def target(self, facts: Facts, unit: Literal["m", "n"] = "m") -> None:
        """eps and delta, of m records or of n clients, where no other way to set the noise is given."""
        size = facts.m_max if unit == "m" else facts.n
        self.default("delta", usual_delta(size), f"default: min(0.001, 0.1/{unit})")
        if "sigma" not in self.values and "rho" not in self.values:
            self.default("eps", EPS)

    def noise(
        self, sigma_of: Callable[[float], float], eps_of: Callable[[float], float], where: str
    ) -> None:
        """sigma by the paper's formula for eps, or what the formula says of a given sigma."""
        v = self.values
        if "sigma" in v:
            eps = float(eps_of(v["sigma"])) if v["sigma"] else math.inf
            self.set("eps", eps, f"{where}, from sigma")
        else:
            self.default("sigma", float(sigma_of(v["eps"])), where)

    def private(self, body: Federated, facts: Facts) -> tuple[float, float]:
        """What every private algorithm of known G and L takes; returns both."""
        self.one_of("eps", "sigma")
        G = self.clip(True)
        self.parts(body, facts)
        L = self.smoothness(facts)
        self.target(facts)
        self.default("gap", 1.0)
        return G, L

    def resolved(self) -> Resolved:
        return Resolved(self.values, self.sources)


def taking_part(
    participation: Participation,
    values: Mapping[str, Any],
    default: Callable[[str, Any, str], None],
    cohort: int,
    source: str,
) -> None:
    """``cohort`` where none is given; the other numbers of a participation have no default."""
    names = [param.name for param in participation.params]
    if "cohort" in names:
        default("cohort", cohort, source)
    wanted = [name for name in names if name not in values]
    if wanted:
        raise InputError(
            f"participation = {participation.name!r} needs {' and '.join(wanted)}, which nothing sets: "
            "give it."
        )


def refuse_epochs(name: str, sampler: Sampler) -> None:
    """Epochs go on through rounds of another kind, so that where a record falls is not known."""
    if sampler.epochs:
        raise InputError(
            f"sampler = 'shuffled' does not apply to {name}, whose rounds are of two kinds: no epoch is "
            "made of one kind alone, and nothing is proven. Take 'poisson' or 'without_replacement'."
        )


def reporting(body: Federated, values: Mapping[str, Any], n: int) -> float:
    """How many clients a mean is over, at least."""
    if body.participation.least is not None:
        return body.participation.least(n, values)
    return n if body.participation.everyone else float(values["cohort"])


def curator(
    body: Federated, values: Mapping[str, Any], facts: Facts, make: Callable[..., Any]
) -> Any:
    """The event of a trusted curator that noises the mean over r clients.

    ``make(draw, r)`` is the event of a record of a client, where ``draw(batch)`` is what the client
    draws in a round.  Who takes part is public, and amplifies nothing.
    """
    from jaxfl.privacy import events

    if body.mechanism.std is None:
        return events.NoClaim("nothing is noised")
    r = reporting(body, values, facts.n)

    def client(m: int) -> Any:
        def draw(batch: str) -> events.Sampling:
            return drawn(body.estimator.sampler, values, facts, m, batch)

        return make(draw, r)

    return worst(facts, client)
