"""Build the privacy event of a round body.  Host side.

``body`` is a :class:`jaxfl.parts.Federated` or a :class:`jaxfl.parts.Gossip`; in the latter all
clients take part, and each message is seen.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import provenance
from jaxfl.core.calls import asked
from jaxfl.core.errors import InputError, one_line, require
from jaxfl.core.identity import by_identity, identity
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import (
    AnyBody,
    Estimator,
    Hyper,
    Memory,
    MessageBound,
    Pace,
    ProblemFacts,
    Sampler,
    Values,
)
from jaxfl.parts.graphs import Graph, links
from jaxfl.parts.mechanisms import independent, response
from jaxfl.privacy import events
from jaxfl.privacy.events import Sampling, worst
from jaxfl.privacy.networks import Hidden, hidden

__all__ = [
    "Rounds",
    "between_neighbours",
    "drawn",
    "equal_rounds",
    "event",
    "forgets",
    "in_sequence",
    "in_turns",
    "least_noise",
    "loudest",
    "message_bound",
    "noises",
    "of_clients",
    "others",
    "rounding",
    "sensitivity_of",
    "turns",
]

READ = ("clip", "gradient_bound", "batch", "coupling")  # by events, besides the noise
POINTS = 3  # at which scales and bounds of terms have to agree
BLOCK = 1024  # rounds whose numbers are evaluated together
PRECISION = 1e-4  # by which a std may differ in single and in double precision


def event(body: AnyBody, values: Values, facts: ProblemFacts) -> Any:
    """The privacy event of all rounds, about one record of one client.

    An observer sees each message, or, under an aggregation and where :func:`noises` says so, sums of
    r messages whose noise is sqrt(r) times as large, with :meth:`ProblemFacts.noises` in place of r
    where clients differ in weight.  Compression, shifts and the server's steps act on noised values.
    Who takes part is public, so client sampling amplifies nothing, but a client releases only in its
    turns.  Clients' data are disjoint, and the worst client size counts, which may be neither the
    smallest nor the largest.  Noise that neighbours share counts as :func:`between_neighbours` says.
    With ``clip="client"`` all records of a client are protected, see :func:`of_clients`.
    """
    sampler = body.estimator.sampler
    if body.clip == "client":
        return of_clients(body, values, facts, lambda now: float(now["clip"]))
    if body.mechanism.std is None:
        return events.NoClaim("nothing is noised")
    if body.estimator.gradient.unit is not None:
        return events.NoClaim(f"the noise of {body.estimator.name} has a unit of its own")
    if sampler.scheme is None:
        return events.NoClaim(f"the scheme of {sampler.name} is not declared")
    sensitivity = sensitivity_of(body.estimator, values, facts.d)
    if sensitivity is None:
        return events.NoClaim(f"the sensitivity of {body.estimator.name} is not declared")
    senders = noises(body, values, facts)
    rounds = equal_rounds(body, values, facts)
    if len(rounds) > 1 and not (sampler.whole or sampler.fresh):
        return events.NoClaim(
            f"noise, clip or batch change while {sampler.name} uses up its records"
        )
    moves = sensitivity(rounds[0].values)
    if isinstance(moves, events.Mean) and math.isfinite(moves.clip):
        if math.isfinite(moves.whole) and body.clip != "batch":
            return events.NoClaim("the estimator leaves clipping to clip='batch', which is not set")
        if body.clip == "batch" and not moves.hidden:
            return events.NoClaim("clip='batch' needs an estimator that leaves clipping to it")

    def client(m: int) -> Any:
        r = facts.noises(senders, m)  # independent noises of one client's size in a sum

        def part(some: Rounds) -> events.Event:
            return events.Event(
                drawn(sampler, some.values, facts, m),
                sensitivity(some.values),
                _hiding(body, some, facts, r),
                some.number,
                trust=_seen(body),
            )

        return in_sequence(body, values, part, loudest(rounds, turns(body, values, facts)))

    return worst(facts, client)


def of_clients(
    body: AnyBody, values: Values, facts: ProblemFacts, bound: Callable[[Values], float]
) -> Any:
    """The event of all rounds about all records of one client, whose message is clipped to ``bound``.

    Without its noise a message is in a ball, whatever the client's records are, which of them are drawn and
    what the client remembers; all else that moves it has been seen.  So other records move it by twice
    ``bound`` at most.
    """
    if body.mechanism.std is None:
        return events.NoClaim("nothing is noised")
    if body.estimator.gradient.unit is not None:
        return events.NoClaim(f"the noise of {body.estimator.name} has a unit of its own")
    senders = noises(body, values, facts)
    r = min(facts.noises(senders, m) for m in facts.sizes or (facts.m,))

    def part(some: Rounds) -> events.Event:
        C = bound(some.values)
        return events.Event(
            Sampling("full", 1, 1),  # of one client, which counts as one record
            events.Mean(C, over_b=2.0, mean=2.0, whole=C),
            _hiding(body, some, facts, r),
            some.number,
            unit="client",
            trust=_seen(body),
        )

    return in_turns(part, body, values, facts)


def _hiding(body: AnyBody, some: Rounds, facts: ProblemFacts, r: float) -> float:
    """The deviation of the noise behind which a client hides, in a sum of r noises or alone.

    Of clients with multiples of their own the least counts, or that of one as ``values["multiple"]``.
    """
    multiple = some.values.get("multiple", min(body.mechanism.multiples, default=1.0))
    alone = float(some.std * r**0.5) * float(multiple)
    return alone * between_neighbours(body, some.values, facts).noise


def _seen(body: AnyBody) -> Any:
    """The adversary's view of a body's messages, by its name in events."""
    if body.aggregation is not None and body.aggregation.hides:
        return "secure_sum"
    return "shared_seeds" if body.mechanism.coupled else "local_transcript"


def between_neighbours(body: AnyBody, values: Values, facts: ProblemFacts) -> Hidden:
    """The protection by noise that neighbours share, if ``colluding`` clients know theirs."""
    if not body.mechanism.coupled:
        return Hidden(1.0, True)
    colluding = int(values.get("colluding", 0))
    return _hidden(body.roles["graph"], facts.n, float(values["coupling"]), colluding)


@functools.lru_cache(maxsize=1024)
def _hidden(graph: Graph, n: int, coupling: float, colluding: int) -> Hidden:
    return hidden(links(graph, n), coupling, colluding)


def forgets(estimator: Estimator) -> bool:
    """Whether an estimator has no memory from round to round."""
    return identity(estimator.memory) == identity(Memory())


def sensitivity_of(estimator: Estimator, values: Values, d: int) -> Callable[[Values], Any] | None:
    """The sensitivity that an estimator declares, else the sum of its terms' bounds; None: unknown.

    A drawn record adds ``sum_terms |scale| bound / b`` at most.  Terms say so if there is no memory, and
    if scales and bounds are the same at every point.
    """
    if estimator.sensitivity is not None or not forgets(estimator):
        return estimator.sensitivity

    def reach(values: Values, x: Any) -> float:
        terms = estimator.gradient.terms((), x, Hyper(dict(values)))
        return math.fsum(float(np.abs(term.scale)) * float(term.bound) for term in terms)

    fixed = {n: v.over(1)[0] if isinstance(v, Schedule) else v for n, v in values.items()}
    points = np.random.default_rng(0).normal(size=(POINTS, d)).astype(np.float32)
    points *= np.logspace(-3, 3, POINTS, dtype=np.float32)[:, None]
    if len({reach(fixed, x) for x in points}) > 1:
        return None
    return lambda values: events.Mean(reach(values, points[0]))


# --- what changes from round to round ------------------------------------------------------------


class Rounds(NamedTuple):
    """Rounds that release in the same way: how many they are, their noise, their values and their kind."""

    number: int
    std: float
    values: Values
    kind: int = 0


def equal_rounds(
    body: AnyBody,
    values: Values,
    facts: ProblemFacts,
    kinds: Callable[[Any], Any] | None = None,
) -> list[Rounds]:
    """The rounds of a run, by their noise, bounds and batch: schedules and pace as rounds evaluate them.

    Every event reads the noise here.  ``kinds`` (rounds t -> a number for each) keeps apart rounds that
    release different things: those that restart, or phases.  Rounds of the first kind come first.
    """
    T, std, pace = int(values["rounds"]), body.mechanism.std, body.estimator.pace
    assert std is not None
    planned = max(T, facts.rounds or T, 1)
    varies = {name: v.over(planned) for name, v in values.items() if isinstance(v, Schedule)}
    if not varies and pace is None and kinds is None and provenance.ours(std):
        return [Rounds(T, float(asked(body.mechanism, "std", Hyper(dict(values)))), values)]
    # one round stands for all where nothing varies; the number of those that ran compiles nothing anew
    t = np.arange(planned if varies or pace is not None else 1)
    fixed = {name: value for name, value in values.items() if name not in varies}
    try:
        exact = _columns(std, pace, t, fixed, varies, True)
        ours = provenance.ours(std)
        single = exact if ours else _columns(std, pace, t, fixed, varies, False)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"The std of the mechanism {body.mechanism.name!r} or the pace of the estimator "
            f"{body.estimator.name!r} raises ({one_line(error)})",
            "return one number for the numbers of a round",
        ) from error
    require(
        np.allclose(single["std"], exact["std"], rtol=PRECISION, atol=0),
        lambda: (
            f"The std of the mechanism {body.mechanism.name!r} is {single['std'].min():.4g} in single "
            f"precision, in which rounds compute, and {exact['std'].min():.4g} in double"
        ),
        "write it without squares or products of small numbers",
    )
    names = sorted(exact)  # of which std is one
    some = np.arange(max(T, 1))
    columns = 0 if kinds is None else kinds(some), *(exact[name][: some.size] for name in names)
    rows = np.stack([np.broadcast_to(column, some.size) for column in columns], 1)
    found, counts = np.unique(rows, axis=0, return_counts=True)
    out = []
    for (kind, *row), number in zip(found.tolist(), counts.tolist(), strict=True):
        now = dict(zip(names, row, strict=True))
        out.append(Rounds(min(number, T), now.pop("std"), {**values, **now}, int(kind)))
    return out


def in_sequence(
    body: AnyBody,
    values: Values,
    part: Callable[[Rounds], events.Event],
    rounds: Sequence[Rounds],
) -> Any:
    """The events of all these rounds, on the same records, as the mechanism describes its noise.

    Some of the rounds of an epoch may use a record more often than as many rounds in a row.
    """
    parts: Any = tuple(map(part, rounds))
    if len(parts) > 1 and any(one.sampling.scheme in ("shuffled", "cyclic") for one in parts):
        return events.NoClaim("noise, clip or batch change amid the epochs of a sampler")
    mechanism, T = body.mechanism, int(values["rounds"])
    if len(mechanism.weights) > 1 and not body.participation.everyone:
        return events.NoClaim(
            "noise is correlated over rounds, and clients take part in some of them"
        )
    recursion, weights = mechanism.recursion, np.array(mechanism.weights)
    if recursion is not None:  # that rounds run
        found = np.array(response(recursion, max(T, weights.size)))
        found[: weights.size] -= weights
        if found.any():
            return events.NoClaim(
                f"noise is correlated over rounds by a recursion, known for {weights.size} rounds"
            )
    if mechanism.event is not None:
        parts = tuple(dataclasses.replace(one, shows=mechanism.shows) for one in parts)
        parts = tuple(asked(mechanism, "event", one, T) for one in parts)
        if not provenance.own_part(mechanism, later=False):
            parts = tuple(map(events.Stated, parts))
    elif not independent(mechanism):
        return events.NoClaim("noise is correlated over rounds, and its mechanism has no event")
    return parts[0] if len(parts) == 1 else events.Sequence(parts)


def in_turns(
    part: Callable[[Rounds], events.Event],
    body: AnyBody,
    values: Values,
    facts: ProblemFacts,
    number: int | None = None,
) -> Any:
    """The events of the ``number`` rounds with the least noise, by default of a client's turns."""
    number = turns(body, values, facts) if number is None else number
    return in_sequence(body, values, part, loudest(equal_rounds(body, values, facts), number))


def least_noise(body: AnyBody, values: Values, facts: ProblemFacts) -> float:
    """The least noise of any round, for an event with one: more in other rounds proves no less."""
    require(
        body.mechanism.event is None,
        "has an event of its own, which does not describe local steps over epochs, or increments",
        "take jaxfl.parts.mechanisms.gaussian()",
        mechanism=body.mechanism.name,
    )
    return min(some.std for some in equal_rounds(body, values, facts))


def _columns(
    std: Callable[[Hyper], Any],
    pace: Pace | None,
    t: Any,
    fixed: Values,
    varies: Values,
    x64: bool,
) -> dict[str, Any]:
    """``std`` and what events read, in the rounds t."""
    with jax.enable_x64(x64), jax.default_device(jax.local_devices(backend="cpu")[0]):
        kind = np.float64 if x64 else np.float32
        numbers = {n: kind(v) for n, v in fixed.items()}
        blocks = []
        for first in range(0, len(t), BLOCK):  # of one size: another number compiles nothing anew
            some = np.minimum(np.arange(first, first + BLOCK, dtype=np.int32), t[-1])
            now = {n: kind(v[some]) for n, v in varies.items()}
            blocks.append(_traced(std, pace)(some, numbers, now))
        names = blocks[0]
        columns = {n: np.concatenate([np.broadcast_to(b[n], BLOCK) for b in blocks]) for n in names}
        return {name: column[: len(t)].astype(np.float64) for name, column in columns.items()}


def _evaluation(std: Callable[[Hyper], Any], pace: Pace | None) -> Callable[..., Any]:
    """A function of rounds and numbers: ``std`` and what events read, traced as in rounds.

    Of coordinates with different noise the least counts: more noise on others proves no less.
    """

    def one(t: Any, fixed: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
        hp = Hyper({**fixed, **now})
        if pace is not None:  # of no run: what events read may not depend on the key
            hp = Hyper({**hp.values, **pace(jax.random.key(0), t, hp)})
        read = {name: hp.values[name] for name in READ if name in hp.values}
        return {"std": jnp.min(jnp.abs(std(hp))), **read}

    return jax.jit(jax.vmap(one, (0, None, 0)))


_traced = by_identity(_evaluation, most=256)


def loudest(rounds: Sequence[Rounds], turns: int) -> list[Rounds]:
    """The ``turns`` releases with the least noise: nobody knows in which rounds a client takes part.

    A round with local steps may have several.  Where bounds or batches differ, too, all rounds count.
    """
    out: list[Rounds] = []
    if not rounds:
        return out
    first, *others = sorted(rounds, key=lambda one: one.std)
    if turns > sum(some.number for some in rounds):
        others = []
    elif len({tuple(some.values.get(name) for name in READ) for some in rounds}) > 1:
        return [first, *others]
    for some in (first, *others):
        number = min(some.number, turns) if others else turns
        turns -= number
        out += [some._replace(number=number)] if number or not out else []
    return out


def drawn(sampler: Sampler, values: Values, facts: ProblemFacts, m: int) -> Sampling:
    """The sampling of a client with m records in a round."""
    if sampler.scheme is None:
        raise InputError(
            f"The sampler {sampler.name!r} declares no scheme, and no accountant covers its draws: "
            "pass one, as in Sampler(..., scheme='poisson')."
        )
    slots = sampler.capacity(values, facts).get("batch") if sampler.padded else None
    b = m if sampler.whole else float(values["batch"])
    return Sampling(sampler.scheme, m, b, slots)


def turns(
    body: AnyBody, values: Values, facts: ProblemFacts, rounds: Sequence[int] | None = None
) -> int:
    """The rounds in which a client takes part: ``values["turns"]``, else the most of any client.

    A client releases nothing in other rounds, whoever learns who takes part: what the server then sends
    and computes follows from earlier messages and from those of others.  So its releases are as many as
    its turns, if what a client keeps leaves it in its turns alone.  ``rounds`` asks for its turns among
    some of the rounds.  Where epochs follow the rounds and not the client's turns, a record is used once
    in every epoch, in whatever turns.
    """
    some = range(int(values["rounds"])) if rounds is None else rounds
    sampler = body.estimator.sampler
    if body.local is None and (sampler.epochs or sampler.cycles):
        return len(some)
    if rounds is None and "turns" in values:
        return int(values["turns"])
    most = len(some)
    if body.participation.most is not None:
        most = int(asked(body.participation, "most", some, facts.n, values))
    return min(most, int(values.get("turns", most)))


def noises(body: AnyBody, values: Values, facts: ProblemFacts) -> int:
    """The least number of clients whose noises the server sees as one sum; 1 if it sees messages.

    The noises of ``colluding`` clients do not count, since the server knows them.  The number is 1 as well

    * for cohorts of random size, which may have one client;
    * with a sparsifier: its masks are public, and one client alone may send some coordinate;
    * with a shift that does not cancel, since it depends on earlier messages that stayed hidden;
    * where clients' noises have multiples of their own;
    * where noise was ``clamped``, or may be, since nothing bounds the messages.
    """
    if body.aggregation is None or not body.linear or body.mechanism.multiples:
        return 1
    bounded = message_bound(body, {"sigma": 0.0, **values}, facts) is not None
    if not body.aggregation.hides or values.get("clamped") or not bounded:
        return 1
    clients, colluding = body.participation, int(values.get("colluding", 0))
    if clients.least is not None:
        senders = int(asked(clients, "least", facts.n, values))
    elif clients.everyone:
        senders = facts.n
    else:
        senders = int(values["cohort"]) if clients.fixed_size else 1
    require(
        0 <= colluding < max(2, senders),
        lambda: f"must be less than the {senders} clients of a sum",
        lambda: f"ask for at most {senders - 1}",
        colluding=colluding,
    )
    return max(1, senders - colluding)


def others(body: AnyBody, values: Values, facts: ProblemFacts) -> tuple[int, str]:
    """The number of clients that a proof may trust besides the protected one, and what they must not do."""
    if body.mechanism.coupled:
        return facts.n - 1, "of the network show their seeds"
    return noises(body, {**values, "colluding": 0}, facts) - 1, "of a sum collude with the server"


def message_bound(body: AnyBody, values: Values, facts: ProblemFacts) -> MessageBound:
    """A bound on the norm of a clipped message, and the deviation of its noise; None: no bound.

    A Poisson batch is divided by b and may be larger.  Estimators may add up several gradients of a
    row, channels lengthen an estimate, and sparsifiers scale what they keep by 1 + omega.  The bound
    leaves out the public regularizer, except for that of local steps, which it takes to be small.
    """
    b = values.get("batch", 1)
    slots = body.estimator.sampler.capacity(values, facts).get("batch", b)
    if body.local is not None:
        if body.mechanism.std is not None and not body.mechanism.central:
            values = {**values, "sigma": _most_noise(body, values, facts)}
        bound: MessageBound = asked(body.local, "message_bound", {**values, "slots": slots})
        return bound
    omega = values.get("omega", 0.0)
    growth, points = body.growth(omega), body.estimator.points
    varies = any(isinstance(values.get(name), Schedule) for name in READ)
    if body.compressor.code is not None or growth is None or points is None or varies:
        return None
    scale = 1.0 + omega
    signal = scale * points * slots / b * values["clip"]
    noise = 0.0
    if body.own.std is not None:
        noise = scale * _most_noise(body, values, facts)
    return float(growth[0] * signal), float(growth[1] * noise)


def _most_noise(body: AnyBody, values: Values, facts: ProblemFacts) -> float:
    most = max(some.std for some in equal_rounds(body, {"rounds": 1, **values}, facts))
    most *= max(body.mechanism.multiples, default=1.0)
    return most * float(np.linalg.norm(body.mechanism.weights))


def rounding(body: AnyBody, values: Values, facts: ProblemFacts) -> float:
    """The most by which an aggregation's rounding changes a message, ``p sqrt(d)/2``."""
    if body.aggregation is None or not body.aggregation.params:
        return 0.0
    senders = body.participation.capacity(values, facts).get("cohort", facts.n)
    bound = message_bound(body, values, facts)
    defaults = asked(body.aggregation, "settle", values, bound, senders, facts.d)
    p = values["precision"] if "precision" in values else defaults["precision"][0]
    return float(p * np.sqrt(facts.d) / 2)
