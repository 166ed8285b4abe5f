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
from jaxfl.core.identity import identity
from jaxfl.core.types import Algorithm, Problem
from jaxfl.privacy.events import Standing
from jaxfl.rounds.federated import Federated
from jaxfl.rounds.gossip import Gossip

__all__ = ["derived", "ours", "own_rounds", "standing", "weaker"]

WAY = "pass an event= of your own to compose, or measure with `jaxfl audit`"
ALWAYS = ("mechanism", "participation", "local", "aggregation")
LATER = ("compressor", "channel", "server")  # roles that act on noised values, in part or in whole
BODIES: dict[type, tuple[str, ...]] = {  # the parts that a proof may rest on
    Federated: (*ALWAYS, *LATER),
    Gossip: (*ALWAYS, "compressor"),
}
_rounds: dict[Hashable, Algorithm] = {}  # that compose made, by what they are made of
_events: dict[
    Hashable, bool
] = {}  # with the rounds that they describe: whether a paper's rules did
_own_events: set[Hashable] = set()  # as long as _rounds holds their algorithms


def own_rounds(made: Algorithm) -> Algorithm:
    """Register the rounds of an algorithm that were made of a body of jaxfl's."""
    if type(made.body) in BODIES and not getattr(made.body, "__dict__", None):
        _rounds[_key(made)] = made
    return made


def ours(made: Algorithm, paper: bool) -> Algorithm:
    """Register the event of an algorithm, which jaxfl wrote for its rounds.

    The event of a ``paper`` knows parts of which the body's own knows nothing.  The first entry counts.
    """
    _own_events.add(identity(made.event))
    _events.setdefault((_key(made), identity(made.event)), paper)
    return own_rounds(made)


def derived(made: Algorithm, origin: Algorithm) -> Algorithm:
    """Register an algorithm that does what ``origin`` does in another way."""
    if _key(origin) not in _rounds:
        return made
    known = _events.get((_key(origin), identity(origin.event)))
    return own_rounds(made) if known is None else ours(made, known)


def standing(algorithm: Algorithm, problem: Problem | None = None) -> Standing:
    """Return what may be said of the privacy of an algorithm, and of one on this problem."""
    key, event = _key(algorithm), identity(algorithm.event)
    if algorithm.event is not None and event not in _own_events:
        return Standing("stated", f"the user states the event of {algorithm.name!r}")
    paper = _events.get((key, event))
    if key not in _rounds:
        foreign = f"the round of {algorithm.name!r}"
    elif paper is None:
        foreign = f"the event of {algorithm.name!r}, which describes other rounds,"
    else:
        foreign = next(_foreign(algorithm.body, paper, problem), "")
    if not foreign:
        return Standing()
    return Standing("none", f"no claim: {foreign} is not jaxfl's own, so {WAY}")


def weaker(earlier: Standing, now: Standing) -> Standing:
    """Return what may be said of rounds of which some ran with the one and some with the other."""
    if earlier.kind == "proven" or now.kind == "none" or earlier == now:
        return now
    if earlier.kind == "none":
        return earlier
    if now.kind == "stated":  # for all rounds
        return now
    return Standing("none", f"no claim: for earlier rounds {earlier.why}, and another one now")


def _key(algorithm: Algorithm) -> Hashable:
    """Return what the rounds of an algorithm, and the values that they read, are made of."""
    return identity(
        (
            *(algorithm.init, algorithm.round, algorithm.output, algorithm.capacity),
            *(algorithm.cohort, algorithm.params, algorithm.reads, algorithm.body),
        )
    )


def _foreign(body: Any, paper: bool, problem: Problem | None) -> Iterator[str]:
    """What a proof rests on and jaxfl did not make, in words."""
    hidden = body.mechanism.central or body.aggregation is not None
    roles = {"sampler": body.estimator.sampler, "estimator": body.estimator}
    roles |= {role: getattr(body, role) for role in BODIES[type(body)]}
    for role, part in roles.items():
        later = hidden or role not in LATER
        if part is not None and not provenance.own_part(part, later, alone=not paper):
            yield f"the {role} {part.name!r}"
    if problem is not None and not provenance.own_kernel(problem.model.kernel):
        yield f"the gradient kernel of the model {problem.model.name!r}"
