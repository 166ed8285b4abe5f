"""A round body and a plan of its hyper-parameters make an algorithm."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxfl.algorithms.numbers import (
    ASKED_SIZE,
    PRIVACY,
    USUAL,
    WAYS,
    Draft,
    achieved,
    applies,
    resolved,
    usual_delta,
)
from jaxfl.algorithms.resolution import GIVEN, noised
from jaxfl.algorithms.roles import check_parts
from jaxfl.algorithms.standing import derived, ours, own_rounds
from jaxfl.core import provenance
from jaxfl.core.calls import asked
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import choice, known
from jaxfl.core.types import (
    Algorithm,
    AnyBody,
    Asked,
    Cost,
    Noise,
    Origin,
    Param,
    Plan,
    ProblemFacts,
    Resolved,
    Source,
    in_a_sum,
)
from jaxfl.parts.aggregations import COLLUDING
from jaxfl.parts.mechanisms import independent
from jaxfl.parts.storage import STORAGES
from jaxfl.privacy.events import NoClaim
from jaxfl.problems.clipping import CLIPPINGS
from jaxfl.rounds import transcript
from jaxfl.rounds.plain import Plain

__all__ = ["by_messages", "by_rules", "clipping_as", "compose", "in_plain", "stored"]

KEEP = "which keep nothing of a client that may be rounded: leave it out"
FLOAT_BITS = 32  # every number on the wire is a 32-bit float


def compose(
    name: str,
    summary: str,
    paper: str,
    body: AnyBody,
    plan: Callable[[Mapping[str, Any], ProblemFacts], Plan],
    params: Iterable[Param] = (),
    formula: Callable[[Mapping[str, Any], ProblemFacts, Asked], Any] | None = None,
    event: Callable[[Mapping[str, Any], ProblemFacts], Any] | None = None,
    finish: Callable[[Draft, Noise, ProblemFacts], None] | None = None,
    *,
    cited: bool = True,
    follows: Iterable[str] = (),
    reads: Iterable[str] = (),
) -> Algorithm:
    """The algorithm whose rounds are ``body`` and whose hyper-parameters come from ``plan``.

    ``name``, ``summary`` and ``paper`` are texts for lists and results.  ``params`` are those that only
    ``plan`` reads; those of the parts join by themselves, and eps and delta where there is noise.  Rounds
    read what parts declare, and ``reads``.  ``formula`` is the paper's noise both ways, which reports
    show as its claim where it is ``cited``.  Accountants read ``event``.  Without one, they assume one
    noised message per round; with local steps or server noise nothing is proven.  ``finish`` adds to a
    draft what follows from the noise that is used: the names in ``follows``.
    """
    _check(name, body)
    aggregation = body.aggregation
    owners = body.roles.values()
    table = _table(name, (param for one in owners for param in getattr(one, "params", ())))
    read = (*table, "gradient_bound", *reads)  # which estimators read where it is given
    # omega and share are other ways to say k; an aggregation settles its own values once the noise is known
    later = () if aggregation is None else tuple(param.name for param in aggregation.params)
    # a local procedure declares what it reads, and that of the user's own may read no estimator
    own = provenance.own_part(body.local) or provenance.own_around(body.local)
    asking = dict(body.roles) if own or body.local is None else {**body.roles, "estimator": None}
    asked_for = {p.name: p for one in asking.values() for p in getattr(one, "params", ())}
    needs = tuple(name for name in asked_for if name not in (*ASKED_SIZE, *later, *follows))
    table = _table(name, (*table.values(), *params))
    summed = aggregation is not None and aggregation.hides and not body.mechanism.central
    if summed or body.mechanism.coupled:
        table |= {COLLUDING.name: COLLUDING}
    if "sigma" in table and "eps" not in table:  # any noise can be calibrated
        table |= {param.name: param for param in PRIVACY if param.name not in table}
    rules = Rules(body, plan, finish)
    made = Algorithm(
        name=name,
        summary=summary,
        paper=paper,
        params=tuple(table.values()),
        plan=rules.sized,
        finish=rules.finished,
        capacity=rules.capacity,
        cost=rules.cost,
        init=body.init,
        round=body.round,
        output=body.output,
        event=event or functools.partial(_event, body),
        formula=formula,
        cited=cited and formula is not None,
        needs=needs,
        reads=read,
        parts=_described(name, body),
        per_record=body.clip != "batch",
        cohort=body.cohort,
        body=body,
    )
    return ours(made, paper=False) if event is None else own_rounds(made)


class Rules(NamedTuple):
    """The rules of a composition: the user's ``plan`` and ``finish``, and those of the body's parts."""

    body: AnyBody
    plan: Callable[[Mapping[str, Any], ProblemFacts], Plan]
    finish: Callable[[Draft, Noise, ProblemFacts], None] | None

    def sized(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The plan, with the hyper-parameters that a compressor derives from a given omega or share."""
        found, compressor = self._planned(given, facts), self.body.compressor
        own = self.body.mechanism
        require(
            len(own.multiples) in (0, facts.n),
            lambda: f"has the multiples of {len(own.multiples)} clients, and there are {facts.n}",
            "give one for each",
            mechanism=own.name,
        )
        word = next((word for word in ASKED_SIZE if found.sources.get(word) == GIVEN), "")
        if not word:
            return found
        made = resolved(compressor, given, facts.d, self.body.uploads)
        values = {**found.values, **made}
        why = dict.fromkeys(made, Source(Origin.THEOREM, ASKED_SIZE[word]))
        sources = {**found.sources, **why}
        if compressor.omega is not None:
            values["omega"] = asked(compressor, "omega", facts.d, values)
            sources["omega"] = achieved(compressor, word == "omega")
        return found._replace(values=values, sources=sources)

    def _planned(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's plan; its default delta is of n clients where these are protected."""
        found = self.plan(given, facts)
        if self.body.clip != "client" or USUAL.format("m") not in found.sources.get("delta", ""):
            return found
        why = Source(Origin.DEFAULT, f"default: {USUAL.format('n')}")
        values = {**found.values, "delta": usual_delta(facts.n)}
        return found._replace(values=values, sources={**found.sources, "delta": why})

    def capacity(self, values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
        """The slots of the parts; raise where a compressor sets those of another, or bands exceed T."""
        recursion, bands = self.body.mechanism.recursion, len(self.body.mechanism.weights)
        bands = 1 if recursion is not None and recursion.feeds else bands  # of any number of rounds
        rounds = int(np.min(values.get("rounds", bands)))
        require(
            bands <= max(rounds, 1),
            lambda: f"exceed the {rounds} rounds of the run, over which noise is correlated",
            lambda: f"ask for at most {rounds}",
            bands=bands,
        )
        sampler, clients = self.body.estimator.sampler, self.body.participation
        slots = {**asked(sampler, "capacity", values, facts)}
        slots |= asked(clients, "capacity", values, facts)
        more = asked(self.body.compressor, "capacity", values, facts)
        both = ", ".join(sorted(slots.keys() & more.keys()))
        why = f"sets the slots of {both}, which are those of the sampler or of the participation"
        way = "let its capacity leave them alone"
        require(not both, why, way, compressor=self.body.compressor.name)
        return {**slots, **more}

    def cost(self, values: Mapping[str, Any], facts: ProblemFacts) -> Cost:
        """The bits of a message, of its coordinates, and of what the server sends."""
        body, compressor = self.body, self.body.compressor
        down, dense = FLOAT_BITS * facts.d * body.broadcasts, 0
        if compressor.select is None:  # a code of all, or of the k largest
            largest = any(param.name == "k" for param in compressor.params)
            dense = body.uploads * (int(values["k"]) if largest else facts.d)
        if (
            body.aggregation is not None
        ):  # masks cover all coordinates, also those that are not sent
            return Cost(body.aggregation.bits * facts.d, 0.0, down, dense)
        message, coordinate = asked(compressor, "bits", facts.d, values)
        return Cost(body.uploads * message, coordinate, down, dense)

    def finished(self, plan: Plan, noise: Noise, facts: ProblemFacts) -> Resolved:
        """Resolve the values that depend on the noise, with the defaults of an aggregation."""
        draft, body = Draft(*noised(plan, noise), plan.asked), self.body
        if self.finish is not None:
            self.finish(draft, noise, facts)
        if body.aggregation is not None:
            values = draft.values
            senders = self.capacity(values, facts).get("cohort", facts.n)
            bound = transcript.message_bound(body, values, facts)
            defaults = asked(body.aggregation, "settle", values, bound, senders, facts.d)
            for each, (value, why) in defaults.items():
                draft.set(each, value, Source(Origin.DEFAULT, why))
        return Resolved(draft.values, draft.sources)


def _check(name: str, body: AnyBody) -> None:
    """Raise unless the parts of a body fit together."""
    check_parts(name, body.roles)
    why = "does not apply to a network, in which all clients send in every round: take everyone"
    require(
        body.participation.everyone or body.takes_cohorts,
        why,
        participation=body.participation.name,
    )
    for role, ways in WAYS.items():
        choice(role, getattr(body, role), ways)
    twice = body.clip != "example" and body.local is None and body.estimator.clips
    why = (
        f"whose estimator {body.estimator.name!r} clips every example already: give it "
        "clip_examples=False, as in minibatch(sampler, clip_examples=False)"
    )
    applies(not twice, name, why, clip=body.clip)
    why = (
        f"whose estimator {body.estimator.name!r} clips no example, and no noise is enough for "
        "gradients of any length: leave out clip_examples=False, or clip what a client sends, by "
        "clip='client'"
    )
    applies(not _clips_nothing(body), name, why, clip=body.clip)
    networked = "graph" in body.roles
    why = "whose clients have no neighbours to share noise with: take jaxfl.parts.mechanisms.gaussian()"
    applies(networked or not body.mechanism.coupled, name, why, mechanism=body.mechanism)
    shown = body.roles["compressor"].select is not None and not body.mechanism.central
    why = "whose noise counts what a sparsifier shows, and the channel keeps no noise: leave shows out"
    channel = body.roles.get("channel")
    shown = shown and body.local is None and channel is not None and channel.residual is None
    applies(shown or not body.mechanism.shows, name, why, mechanism=body.mechanism)
    server = body.mechanism.central or (body.local is None and not networked)
    why = (
        "whose noise is that of local steps or of a network, which nothing correlates over rounds: take "
        "jaxfl.parts.mechanisms.gaussian()"
    )
    applies(server or independent(body.mechanism), name, why, mechanism=body.mechanism)
    why = "whose clients skip rounds, and stored noise is of all rounds: leave stored out"
    applies(
        body.participation.everyone or body.mechanism.recursion is None,
        name,
        why,
        mechanism=body.mechanism,
    )
    summed = body.aggregation is not None and body.aggregation.draws
    why = "and noise on a ring needs both: a mechanism of jaxfl.parts.rings, and the sum that draws it"
    both = {"mechanism": body.mechanism, "aggregation": body.aggregation}
    applies(summed == (body.mechanism.draw is in_a_sum), name, why, **both)
    local = body.own.std is not None and not body.mechanism.coupled
    why = "where noise of each client's own has no place: take jaxfl.parts.mechanisms.gaussian()"
    applies(local or not body.mechanism.multiples, name, why, mechanism=body.mechanism)
    covered = body.compressor.exact or body.mechanism.std is None or not body.mechanism.central
    why = (
        "whose noise is the server's: compression can enlarge a clipped message beyond what that noise "
        "covers; use an exact compressor"
    )
    applies(covered, name, why, compressor=body.compressor)
    # a round of the user's own may correct what its channel does not
    receiver: Any = body.roles.get("channel", body.roles.get("rule"))
    right = body.compressor.unbiased or receiver is None or not provenance.own_body(body)
    require(
        right or receiver.corrects,
        lambda: (
            f"of {name} is biased, or does not declare unbiased=True, and {receiver.name!r} messages do "
            "not correct that"
        ),
        "take an unbiased one, such as random_k, or messages that correct it, as in porter_dp, ef21 and "
        "ef_sgd; a method that wants the bias, such as a vote of signs, says so in its channel, by "
        "channels.direct()._replace(corrects=True)",
        compressor=body.compressor.name,
    )


def _clips_nothing(body: AnyBody) -> bool:
    """Whether noise is added to estimates that no part clips, as far as jaxfl's parts say."""
    local = body.local is not None or body.clip != "example" or not provenance.own_body(body)
    if local or body.mechanism.std is None or body.estimator.sensitivity is None:
        return False
    before = getattr(body.roles.get("channel"), "before", None)
    if before is not None and not str(before.__module__).startswith("jaxfl."):
        return False  # which may clip
    with contextlib.suppress(Exception):  # of the user's, which may read more
        return math.isinf(body.estimator.sensitivity({"clip": 1.0}).clip)
    return False


def _described(name: str, body: AnyBody) -> tuple[tuple[str, str], ...]:
    """The names of the parts, for the record; and whose word the bits of messages are, if not jaxfl's."""
    absent = {"local": "none", "aggregation": "plain_sum"}
    counts = body.compressor if body.aggregation is None else body.aggregation
    ours = provenance.own_body(body)
    known, where = provenance.own_bits(counts) and ours, "" if ours else ", in a round of your own"
    return (
        *((role, getattr(part, "name", absent.get(role, ""))) for role, part in body.roles.items()),
        ("clip", body.clip),
        ("noise", body.noise),
        *((("clipping", body.clipping),) if body.clipping != "hard" else ()),
        *_storage(name, body),
        *(() if known else (("bits", f"as {counts.name!r} declares{where}, unchecked"),)),
    )


def _table(name: str, params: Iterable[Param]) -> dict[str, Param]:
    """Hyper-parameters by name, the last of each; raise where two read one as different kinds."""
    table: dict[str, Param] = {}
    for param in params:
        known = table.setdefault(param.name, param)
        require(
            (known.integer, known.schedule) == (param.integer, param.schedule),
            lambda: (
                f"{param.name} of {name} is declared twice, and not both times as a whole number, or not "
                "both times as a schedule"
            ),
            "give one of the two another name",
        )
        table[param.name] = param
    return table


def by_rules(
    make: Callable[..., Algorithm],
    paper: str,
    rules: Any,
    params: Iterable[Param] = (),
    **options: Any,
) -> Algorithm:
    """Return :func:`compose` of a paper's rules, under the name of the function ``make``.

    ``rules`` have a ``body`` and a ``plan``, and perhaps a ``formula`` (used where the body adds noise),
    an ``event`` and a ``finish``.  The summary is the docstring of ``make`` up to its first colon or
    citation.
    """
    found = {name: getattr(rules, name, None) for name in ("event", "finish")}
    if rules.body.mechanism.std is not None:
        found["formula"] = getattr(rules, "formula", None)
    name, summary = make.__name__, (make.__doc__ or "").split(":", 1)[0].split("[")[0]
    options = {**found, **options}
    return compose(
        name, summary.strip().rstrip("."), paper, rules.body, rules.plan, params, **options
    )


def _event(body: AnyBody, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
    """Return what a body releases, if that is one message a round, noised by each client itself."""
    private = body.mechanism.std is not None
    if private and (body.local is not None or body.mechanism.central):
        return NoClaim("local steps, or noise at the server, ask for compose(event=...)")
    return transcript.event(body, values, facts)


def stored(algorithm: Algorithm, storage: str) -> Algorithm:
    """Return the algorithm with clients' memory stored as :mod:`jaxfl.parts.storage` names it.

    Raise where nothing may be rounded, and where a server that keeps the mean of its clients' shifts
    sees no single message: it cannot know how each was rounded.
    """
    known("storage", storage, STORAGES)
    body: Any = algorithm.body
    if storage == ("exact" if body is None else body.storage):
        return algorithm
    keeps = body is not None and body.keeps
    applies(keeps, f"{algorithm.name} with these parts", KEEP, storage=storage)
    body = body._replace(storage=storage)
    others = (part for part in algorithm.parts if part[0] != "storage")
    parts = (*others, *_storage(algorithm.name, body))
    made = algorithm._replace(init=body.init, round=body.round, parts=parts, body=body)
    return derived(made, algorithm)


def clipping_as(algorithm: Algorithm, clipping: str) -> Algorithm:
    """Return the algorithm with all that it clips clipped as :mod:`jaxfl.problems.clipping` names it."""
    choice("clipping", clipping, CLIPPINGS)
    body: Any = algorithm.body
    known = body is not None or clipping == "hard"
    applies(
        known, algorithm.name, "whose rounds no parts describe: leave it out", clipping=clipping
    )
    if body is None or clipping == body.clipping:
        return algorithm
    body = body._replace(clipping=clipping)
    return _with_rounds(algorithm, body)._replace(parts=_described(algorithm.name, body))


def by_messages(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm with every message made, even where the mean over clients is enough."""
    body: Any = algorithm.body
    if body is None:
        raise InputError(f"messages = True does not apply to {algorithm.name}: leave it out.")
    return algorithm if body.messages else _with_rounds(algorithm, body._replace(messages=True))


def in_plain(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm with rounds as its paper writes them [:mod:`jaxfl.rounds.plain`]."""
    body: Any = algorithm.body
    if body is None:
        raise InputError(f"plain = True does not apply to {algorithm.name}: leave it out.")
    name, why = algorithm.name, "whose plain rounds keep memory as it is: leave it out"
    applies(body.storage == "exact", name, why, storage=body.storage)
    return algorithm if body.plain else _with_rounds(algorithm, Plain(*body))


def _with_rounds(algorithm: Algorithm, body: Any) -> Algorithm:
    """Return the algorithm that does the same in the rounds of another body."""
    made = algorithm._replace(init=body.init, round=body.round, output=body.output, body=body)
    return derived(made, algorithm)


def _storage(name: str, body: AnyBody) -> tuple[tuple[str, str], ...]:
    """Return the record's entry of the storage, empty if exact; raise as :func:`stored` says."""
    if body.storage == "exact":
        return ()
    applies(body.keeps, f"{name} with these parts", KEEP, storage=body.storage)
    blind = body.mechanism.name if body.mechanism.central else None
    blind = body.aggregation.name if body.aggregation is not None else blind
    why = (
        "whose server acts on sums alone, and could not follow the rounding of each client's "
        "shift: leave out one"
    )
    follows = blind is None or not body.mirrors
    applies(follows, f"{name} with {blind}", why, storage=body.storage)
    return (("storage", body.storage),)
