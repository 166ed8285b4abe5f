"""A round body and a rule for its numbers make an algorithm."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl import transcript
from jaxfl.algorithms.numbers import PRIVACY
from jaxfl.algorithms.parts import check_parts
from jaxfl.errors import InputError
from jaxfl.gossip import Gossip
from jaxfl.hyper import closest
from jaxfl.rounds import Federated
from jaxfl.storage import STORAGES
from jaxfl.types import Algorithm, AnyBody, Cost, Facts, Param, Resolved

__all__ = ["by_messages", "compose", "stored"]

ROLES = ("estimator", "mechanism", "compressor", "channel", "server", "participation")
LATER = ("range", "precision")  # of an aggregation, settled when the noise is known
FLOAT_BITS = 32  # every number on the wire is a 32-bit float


def compose(
    name: str,
    summary: str,
    paper: str,
    body: Federated | Gossip,
    resolve: Callable[[Mapping[str, Any], Facts], Resolved],
    params: Iterable[Param] = (),
    claim: Callable[[Mapping[str, Any], Facts], Any] | None = None,
    event: Callable[[Mapping[str, Any], Facts], Any] | None = None,
    settle: Callable[[Resolved, Facts], Resolved] | None = None,
) -> Algorithm:
    """The algorithm whose rounds are ``body`` and whose numbers come from ``resolve``.

    ``params`` are numbers that only ``resolve`` reads; those that parts read join by themselves, and
    eps and delta where there is noise.
    ``claim`` is what the paper's formula says that the noise is worth; what it is worth,
    accountants read off ``event``, by default the body's own, which knows of one noised message a round:
    of local steps and of noise at the server nothing is claimed without one.
    ``settle`` says what of the numbers follows from the noise that is used, before an aggregation's do.
    """
    if isinstance(body, Federated):
        check_parts(name, {role: getattr(body, role) for role in (*ROLES, "local", "aggregation")})
    sampler, participation, compressor = body.estimator.sampler, body.participation, body.compressor
    if body.mechanism.central and body.mechanism.std is not None and not compressor.exact:
        raise InputError(
            f"compressor = {compressor.name!r} does not apply to {name}, whose noise is the server's: "
            "what compression makes larger than clipping left it, that noise does not cover."
        )
    local, aggregation = body.local, body.aggregation

    def sized(given: Mapping[str, Any], facts: Facts) -> Resolved:
        """An omega that ``resolve`` left alone decides what the compressor makes of it."""
        values, sources = resolve(given, facts)
        if sources.get("omega") != "given":
            return Resolved(values, sources)
        made = compressor.resolve(given, facts.d)
        values = {**values, **made}
        achieved = {"omega": compressor.omega(facts.d, values)}
        why = {**dict.fromkeys(made, "from omega"), "omega": "achieved"}
        return Resolved({**values, **achieved}, {**sources, **why})

    def capacity(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
        parts = (sampler, participation, compressor)
        return {k: v for part in parts for k, v in part.capacity(values, facts).items()}

    def cost(values: Mapping[str, Any], facts: Facts) -> Cost:
        down = FLOAT_BITS * facts.d * body.broadcasts
        if aggregation is not None:  # masks cover all coordinates, also those that are not sent
            return Cost(aggregation.bits * facts.d, 0.0, down)
        return Cost(*compressor.bits(facts.d, values), downlink=down)

    def settled(found: Resolved, facts: Facts) -> Resolved:
        if settle is not None:
            found = settle(found, facts)
        if aggregation is None:
            return found
        assert isinstance(body, Federated)
        senders = capacity(found.values, facts).get("cohort", facts.n)
        new = aggregation.settle(
            found.values, transcript.reach(body, found.values, facts), senders, facts.d
        )
        return Resolved(
            {**found.values, **{name: value for name, (value, _) in new.items()}},
            {**found.sources, **{name: why for name, (_, why) in new.items()}},
        )

    owners = (
        body.estimator,
        sampler,
        body.mechanism,
        compressor,
        body.channel,
        body.server,
        participation,
        *(part for part in (local, aggregation) if part is not None),
    )
    table = {param.name: param for owner in owners for param in owner.params}
    # omega is another way to say k
    needs = tuple(name for name in table if name not in ("omega", *LATER))
    table |= {param.name: param for param in params}
    if "sigma" in table and "eps" not in table:  # any noise can be calibrated
        table |= {param.name: param for param in PRIVACY if param.name not in table}
    return Algorithm(
        name=name,
        summary=summary,
        paper=paper,
        params=tuple(table.values()),
        resolve=sized,
        capacity=capacity,
        cost=cost,
        init=body.init,
        round=body.round,
        output=body.output,
        event=event
        or (functools.partial(transcript.event, body) if one_message(body) else _not_told),
        claim=claim,
        needs=needs,
        parts=(
            *((role, getattr(body, role).name) for role in ROLES),
            ("local", "none" if local is None else local.name),
            ("aggregation", "plain_sum" if aggregation is None else aggregation.name),
            ("sampler", sampler.name),
            ("clip", body.clip),
            ("noise", body.noise),
            *((("graph", body.graph.name),) if isinstance(body, Gossip) else ()),
            *_storage(name, body),
        ),
        per_record=body.clip == "example",
        cohort=body.cohort,
        body=body,
        settle=None if aggregation is None and settle is None else settled,
    )


def one_message(body: AnyBody) -> bool:
    """Whether all that a client releases in a round is one message that it noised itself."""
    return body.mechanism.std is None or not (body.local is not None or body.mechanism.central)


def _not_told(values: Mapping[str, Any], facts: Facts) -> Any:
    from jaxfl.privacy.events import NoClaim

    return NoClaim("local steps, or noise at the server, ask for compose(event=...)")


def stored(algorithm: Algorithm, storage: str) -> Algorithm:
    """The algorithm with what clients remember stored as ``storage`` names, see :mod:`jaxfl.storage`.

    Refused where nothing may be rounded, and where a server that keeps the mean of its clients' shifts
    sees no single message, so that it cannot know what rounding made of each.
    """
    if not isinstance(storage, str) or storage not in STORAGES:
        raise InputError(closest("storage", storage, STORAGES))
    body = algorithm.body
    if storage == (body.storage if isinstance(body, Federated) else "exact"):
        return algorithm
    if not isinstance(body, Federated):
        raise InputError(_nothing_to_store(algorithm.name, storage))
    body = body._replace(storage=storage)
    others = (part for part in algorithm.parts if part[0] != "storage")
    parts = (*others, *_storage(algorithm.name, body))
    return algorithm._replace(init=body.init, round=body.round, parts=parts, body=body)


def by_messages(algorithm: Algorithm) -> Algorithm:
    """The algorithm with every message made, also where the mean of what clients compute would do."""
    body = algorithm.body
    if not isinstance(body, Federated):
        raise InputError(f"messages = True does not apply to {algorithm.name}: leave it out.")
    body = body._replace(messages=True)
    return algorithm._replace(init=body.init, round=body.round, body=body)


def _storage(name: str, body: Federated | Gossip) -> tuple[tuple[str, str], ...]:
    """What the record says of it, unless it is exact; refused as :func:`stored` says."""
    if not isinstance(body, Federated) or body.storage == "exact":
        return ()
    links, _ = jax.eval_shape(lambda: body.channel.init(1, jnp.zeros(1), body.fused))
    table = body.local is None and body.estimator.table is not None
    if not table and not jax.tree.leaves(links):
        raise InputError(_nothing_to_store(name, body.storage))
    blind = body.mechanism.name if body.mechanism.central else None
    blind = body.aggregation.name if body.aggregation is not None else blind
    if body.channel.mirrors and blind is not None:
        raise InputError(
            f"storage = {body.storage!r} does not apply to {name} with {blind}: its server acts on "
            "sums alone, and could not follow the rounding of each client's shift. Leave out one."
        )
    return (("storage", body.storage),)


def _nothing_to_store(name: str, storage: str) -> str:
    return (
        f"storage = {storage!r} does not apply to {name} with these parts, which keep nothing of a "
        "client that may be rounded: leave it out."
    )
