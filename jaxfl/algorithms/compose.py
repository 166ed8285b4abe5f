"""A round body and a rule for its numbers make an algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jaxfl.rounds import Federated
from jaxfl.types import Algorithm, Cost, Facts, Param, Resolved

__all__ = ["compose"]

ROLES = ("estimator", "mechanism", "compressor", "channel", "server", "participation")
FLOAT_BITS = 32  # every number on the wire is a 32-bit float


def compose(
    name: str,
    summary: str,
    paper: str,
    body: Federated,
    resolve: Callable[[Mapping[str, Any], Facts], Resolved],
    params: Iterable[Param] = (),
    claim: Callable[[Mapping[str, Any], Facts], Any] | None = None,
) -> Algorithm:
    """The algorithm whose rounds are ``body`` and whose numbers come from ``resolve``.

    ``params`` are numbers that only ``resolve`` reads; those that parts read join by themselves.
    ``claim`` is what the paper's formula says that the noise is worth; what it is worth,
    accountants read off the body's own event.
    """
    sampler, participation, compressor = body.estimator.sampler, body.participation, body.compressor

    def capacity(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
        parts = (sampler, participation, compressor)
        return {k: v for part in parts for k, v in part.capacity(values, facts).items()}

    def cost(values: Mapping[str, Any], facts: Facts) -> Cost:
        return Cost(*compressor.bits(facts.d, values), downlink=FLOAT_BITS * facts.d)

    owners = (
        body.estimator,
        sampler,
        body.mechanism,
        compressor,
        body.channel,
        body.server,
        participation,
    )
    table = {param.name: param for owner in owners for param in owner.params}
    needs = tuple(name for name in table if name != "omega")  # another way to say k
    table |= {param.name: param for param in params}
    return Algorithm(
        name=name,
        summary=summary,
        paper=paper,
        params=tuple(table.values()),
        resolve=resolve,
        capacity=capacity,
        cost=cost,
        init=body.init,
        round=body.round,
        output=body.output,
        event=body.event,
        claim=claim,
        needs=needs,
        parts=(
            *((role, getattr(body, role).name) for role in ROLES),
            ("sampler", sampler.name),
            ("clip", body.clip),
            ("noise", body.noise),
        ),
        per_record=body.clip == "example",
    )
