"""What may be said of an algorithm's privacy: proven, stated by the user, or nothing.

A proof covers a composition whose rounds, event and parts are jaxfl's own, as far as the proof rests on
them [:mod:`jaxfl.core.provenance`].  Where each client adds its own noise and every message is seen,
what acts on noised values may be the user's: codes of compressors, servers, rules of a network, and what
a channel does after the noise.  Under the noise of a server, or a sum that hides its messages, these count
too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from jaxfl.core import provenance
from jaxfl.core.identity import code_of, identity
from jaxfl.core.types import Algorithm, Problem
from jaxfl.privacy.events import Standing
from jaxfl.problems.facts import escapes, example_of

__all__ = ["derived", "ours", "own_rounds", "standing", "weaker"]

WAY = "state an event of your own with compose(event=...), or run `jaxfl audit`"
LATER = ("compressor", "channel", "server")  # roles that act on noised values, in part or in whole
AFTER = ("rule", "graph")  # roles that act on noised values alone
MADE_OF = ("init", "round", "output", "capacity", "cohort", "params", "reads", "body")
_rounds: dict[Hashable, Algorithm] = {}  # that compose made, by what they are made of
# by rounds and event: the algorithm of both, and whether a paper's rules wrote the event
_events: dict[Hashable, tuple[Algorithm, bool]] = {}
_described_by: set[int] = set()  # the functions of these events, which _events holds


def own_rounds(made: Algorithm) -> Algorithm:
    """Register the rounds of an algorithm that were made of a body of jaxfl's."""
    if provenance.own_body(made.body):
        _rounds[_key(made)] = made
    return made


def ours(made: Algorithm, paper: bool) -> Algorithm:
    """Register the event of an algorithm, which jaxfl wrote for its rounds.

    The event of a ``paper`` knows parts of which the body's own knows nothing.  The first entry counts.
    """
    _described_by.add(id(_function(made.event)))
    _events.setdefault((_key(made), identity(made.event)), (made, paper))
    return own_rounds(made)


def derived(made: Algorithm, origin: Algorithm) -> Algorithm:
    """Register an algorithm that does what ``origin`` does in another way."""
    if _key(origin) not in _rounds:
        return made
    known = _events.get((_key(origin), identity(origin.event)))
    return own_rounds(made) if known is None else ours(made, known[1])


def standing(algorithm: Algorithm, problem: Problem | None = None) -> Standing:
    """Return what may be said of the privacy of an algorithm, and of one on this problem."""
    if algorithm.event is not None and id(_function(algorithm.event)) not in _described_by:
        return Standing("stated", f"the user states the event of {algorithm.name!r}")
    foreign = next(_foreign(algorithm, problem), "")
    if not foreign:
        std = algorithm.body.mechanism.std if algorithm.body is not None else None
        return Standing(code="" if provenance.ours(std) else code_of(std))
    return Standing("none", f"no claim: no proof covers {foreign}; {WAY}")


def weaker(earlier: Standing, now: Standing) -> Standing:
    """Return what may be said of rounds of which some ran with the one and some with the other."""
    if earlier.kind == now.kind == "proven" and earlier.code != now.code:
        why = "no claim: the std of the mechanism had other code in earlier rounds"
        return Standing("none", f"{why}; {WAY}")
    if earlier.kind == "proven" or now.kind == "none" or earlier == now:
        return now
    if earlier.kind == "none":
        return earlier
    if now.kind == "stated":  # for all rounds
        return now
    return Standing("none", f"no claim: for earlier rounds {earlier.why}, and another one now")


def _function(event: Any) -> Any:
    """The function behind an event, which is the same where an algorithm was copied or sent."""
    return getattr(event, "func", getattr(event, "__func__", event))


def _key(algorithm: Algorithm) -> Hashable:
    """Return what the rounds of an algorithm, and the values that they read, are made of."""
    return identity(tuple(getattr(algorithm, name) for name in MADE_OF))


def _foreign(algorithm: Algorithm, problem: Problem | None) -> Iterator[str]:
    """What a proof rests on and jaxfl did not make, in words."""
    key, body = _key(algorithm), algorithm.body
    if not provenance.own_body(body):
        yield f"the body of {algorithm.name!r}, which is not jaxfl's own"
        return
    _, paper = _events.get((key, identity(algorithm.event)), (algorithm, False))
    yield from _parts(body, paper)
    if key not in _rounds:
        yield f"the {_changed(algorithm)} of {algorithm.name!r}, which is not the one of its body"
    elif (key, identity(algorithm.event)) not in _events:
        yield f"the event of {algorithm.name!r}, which describes other rounds"
    if problem is not None and not provenance.own_kernel(problem.model.kernel):
        yield f"the gradient kernel of the model {problem.model.name!r}, which is not jaxfl's own"
    if problem is not None and (beyond := escapes(problem.model, example_of(problem.train))):
        yield f"the loss of the model {problem.model.name!r}, which may see other examples ({beyond})"


def _parts(body: Any, paper: bool) -> Iterator[str]:
    """The parts that a proof rests on and jaxfl did not make."""
    hidden = body.mechanism.central or body.aggregation is not None
    first = {"sampler": body.estimator.sampler}
    for role, part in {**first, **body.roles}.items():
        if role in AFTER:
            continue
        # an event that jaxfl wrote for a paper knows the noise of that paper
        later = paper if role == "mechanism" else hidden or role not in LATER
        if part is not None and not provenance.own_part(part, later, alone=not paper):
            yield f"the {role} {part.name!r}, which is not jaxfl's own"


def _changed(algorithm: Algorithm) -> str:
    """The field in which an algorithm differs from one that compose made of the same body."""
    body = identity(algorithm.body)
    for known in _rounds.values():
        if identity(known.body) == body:
            pairs = ((name, getattr(algorithm, name), getattr(known, name)) for name in MADE_OF)
            return next((n for n, mine, its in pairs if identity(mine) != identity(its)), "body")
    return "body"
