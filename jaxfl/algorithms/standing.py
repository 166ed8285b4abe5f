"""The standing of an algorithm's privacy: proven, stated by the user, or neither.

A proof covers a composition whose rounds, event and parts are jaxfl's own, as far as the proof rests on
them [:mod:`jaxfl.core.provenance`].  Where each client adds its own noise and every message is seen,
what acts on noised values may be the user's: codes of compressors, servers, rules of a network, and what
a channel does after the noise.  Under the noise of a server, or a sum that hides its messages, these count
too.

A part of the user's own on which the proof rests has to declare what the event assumes of it
[:func:`undeclared`].  Then the proof holds if the part is what it declares, which a probe tries to refute
[:mod:`jaxfl.algorithms.probes`].  It looks at what the adversary of the event sees: messages, sums that
hide them, or the points of a server that adds the noise.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from jaxfl.core import provenance
from jaxfl.core.identity import arrays_of, code_of, identity
from jaxfl.core.types import Algorithm, Estimator, Kernel, Problem
from jaxfl.data.samples import example
from jaxfl.privacy.events import Kind, Standing
from jaxfl.problems.facts import escapes
from jaxfl.rounds import transcript

__all__ = [
    "WAY",
    "derived",
    "in_words",
    "ours",
    "own_rounds",
    "standing",
    "unseen",
    "users_parts",
    "weaker",
]

WAY = "state an event of your own with compose(event=...), or run `jaxfl audit`"
LATER = ("compressor", "channel", "server")  # roles that act on noised values, in part or in whole
AFTER = ("rule", "graph")  # roles that act on noised values alone
KERNEL = "gradient kernel of the model"
CONSTANTS = 64  # numbers in an array that a part may hold: more may be data
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

    The event of a ``paper`` covers parts that the body's own event does not.  The first entry counts.
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
        return Standing(Kind.STATED, f"the user states the event of {algorithm.name!r}")
    foreign = next(_foreign(algorithm, problem), "")
    if foreign:
        return Standing(Kind.NONE, f"no claim: no proof covers {foreign}; {WAY}")
    body: Any = algorithm.body
    std = body.mechanism.std
    code = "" if provenance.ours(std) else code_of(std)
    found = users_parts(algorithm, problem)
    if not found:
        return Standing(code=code)
    names = ", ".join(in_words(*pair) for pair in found.items())
    why = f"no claim: a run probes what {names} declares, and an audit does not"
    return Standing(Kind.DECLARED, why, code_of((*found.values(), std)))


def in_words(role: str, part: Any) -> str:
    """A part by its role and its name."""
    return f"the {role} {part.name!r}"


def users_parts(algorithm: Algorithm, problem: Problem | None) -> dict[str, Any]:
    """The parts on which a proof rests and which jaxfl did not make, by their roles."""
    body: Any = algorithm.body
    _, paper = _events.get((_key(algorithm), identity(algorithm.event)), (algorithm, False))
    hidden = unseen(body)
    found = {}
    for role, part in {"sampler": body.estimator.sampler, **body.roles}.items():
        # of a mechanism every event reads the std
        later = role != "mechanism" and (hidden or role not in LATER)
        own = provenance.own_part(part, later, alone=not paper)
        own = own or provenance.own_around(part)
        if role not in AFTER and part is not None and not own:
            found[role] = part
    if problem is not None and not provenance.own_kernel(problem.model.kernel):
        found[KERNEL] = problem.model
    return found


def unseen(body: Any) -> bool:
    """Whether a server adds the noise, or messages are in a sum, which may hide them."""
    return body.mechanism.central or body.aggregation is not None


def holds_data(part: Any) -> str:
    """A sentence about an array of a part that may be data; empty if it holds none."""
    data = next((a for a in arrays_of(part) if a.size > CONSTANTS), None)
    return "" if data is None else f"holds an array of shape {data.shape}, which may be data"


def undeclared(body: Any, role: str, part: Any) -> str:
    """The declaration that a user's part lacks for a proof, in words; empty if it lacks none."""
    if role == KERNEL:
        plain = type(part.kernel) is Kernel and part.kernel.layers == 1
        return "" if plain else "has a type of its own, or clips layer by layer"
    if type(part) not in provenance.RESTS:
        return "has a type of its own, which may do anything"
    if lacking := holds_data(part):
        return lacking
    if role == "estimator":
        return _of_estimator(part)
    if role == "sampler" and part.scheme is None:
        return "does not declare its scheme"
    if role == "channel" and not part.nonexpanding:
        return "does not declare that before is nonexpanding"
    if role == "compressor" and part.select is not None and not part.distinct:
        return "does not declare that it selects distinct coordinates"
    if body.mechanism.central and role in ("channel", "compressor"):
        return "acts on messages before a server's noise, which no declaration bounds"
    if role == "aggregation" and part.hides and not body.mechanism.central:
        return "declares that the server sees sums alone, which no round can show"
    return "does not declare what it releases" if role == "local" else ""


def _of_estimator(part: Estimator) -> str:
    """The same of an estimator, whose terms an event reads at the numbers of the run."""
    if not transcript.forgets(part):
        return "remembers what no term declares"
    if part.pace is not None:
        return "changes numbers from round to round in a way of its own"
    smooths = any(way is not None for way in (part.gradient.kernel, part.gradient.jitter))
    return "smooths the loss in a way of its own" if smooths else ""


def weaker(earlier: Standing, now: Standing) -> Standing:
    """Return what may be said of rounds of which some ran with the one and some with the other."""
    rest_on_code = (Kind.PROVEN, Kind.PROBED)
    if earlier.kind in rest_on_code and now.kind in rest_on_code and earlier.code != now.code:
        why = "no claim: the user's parts had other code in earlier rounds"
        return Standing(Kind.NONE, f"{why}; {WAY}")
    if earlier.kind == Kind.PROVEN or not now.claims or earlier == now:
        return now
    if not earlier.claims:
        return earlier
    if now.stated:  # for all rounds
        return now
    return Standing(Kind.NONE, f"no claim: for earlier rounds {earlier.why}, and another one now")


def _function(event: Any) -> Any:
    """The function behind an event, which is the same where an algorithm was copied or sent."""
    return getattr(event, "func", getattr(event, "__func__", event))


def _key(algorithm: Algorithm) -> Hashable:
    """Return what the rounds of an algorithm, and the values that they read, are made of."""
    return identity(tuple(getattr(algorithm, name) for name in MADE_OF))


def _foreign(algorithm: Algorithm, problem: Problem | None) -> Iterator[str]:
    """Name what no proof covers: code on which a proof would rest, neither jaxfl's nor declared."""
    key, body = _key(algorithm), algorithm.body
    if not provenance.own_body(body):
        yield f"the body of {algorithm.name!r}, which is not jaxfl's own"
        return
    found = users_parts(algorithm, problem)
    for role, part in found.items():
        if lacking := undeclared(body, role, part):
            yield f"{in_words(role, part)}, which is not jaxfl's own and {lacking}"
    roles: Any = getattr(body, "roles", {})
    for role in roles.keys() & {*LATER} - found.keys():
        if not provenance.own_part(roles[role]) and (lacking := holds_data(roles[role])):
            yield f"{in_words(role, roles[role])}, which is not jaxfl's own and {lacking}"
    if key not in _rounds:
        yield f"the {_changed(algorithm)} of {algorithm.name!r}, which compose did not make of its parts"
    elif (key, identity(algorithm.event)) not in _events:
        yield f"the event of {algorithm.name!r}, which describes other rounds"
    if problem is not None and (beyond := escapes(problem.model, example(problem.train))):
        yield f"the loss of the model {problem.model.name!r}, which may see other examples ({beyond})"


def _changed(algorithm: Algorithm) -> str:
    """The field in which an algorithm differs from one that compose made of the same body."""
    body = identity(algorithm.body)
    for known in _rounds.values():
        if identity(known.body) == body:
            pairs = ((name, getattr(algorithm, name), getattr(known, name)) for name in MADE_OF)
            return next((n for n, mine, its in pairs if identity(mine) != identity(its)), "body")
    return "body"
