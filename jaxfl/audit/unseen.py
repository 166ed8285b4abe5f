"""What an attack does not look at, in words."""

from __future__ import annotations

from jaxfl.algorithms.probes.canary import plays
from jaxfl.audit.canary import Setup
from jaxfl.core.provenance import own_body, own_part

__all__ = ["unseen"]


def unseen(setup: Setup, turning: bool | int) -> tuple[str, ...]:
    """What the attack on this algorithm does not look at, jaxfl's own parts left out."""
    body, n, d = setup.algorithm.body, setup.problem.n, setup.problem.model.dim
    out = ["gradients other than the planted record's: no model and no data of yours enter"]
    if body is None or not plays(setup.algorithm):
        return (*out, "what single clients send: of rounds that no parts describe it sees x alone")
    if not own_body(body) and turning is False:
        out.append(f"what rounds of {setup.algorithm.name!r} make of gradients that change")
    sampler, estimator, aggregation = body.estimator.sampler, body.estimator, body.aggregation
    if not own_part(sampler):
        out.append(f"how the sampler {sampler.name!r} draws records other than the first")
    if estimator.points != 1 and body.local is None and turning is False:
        what = f"what the estimator {estimator.name!r} makes of gradients that change"
        out.append(f"{what}: ask for turning = 2")
    if body.compressor.select and d == 1 and not own_part(body.compressor, later=False):
        what = f"which of several coordinates the compressor {body.compressor.name!r} selects"
        out.append(f"{what}: ask for dim = 8")
    if n == 1 and not own_part(body.participation):
        out.append(f"whom {body.participation.name!r} lets take part: ask for clients = 3")
    hides = aggregation is not None and aggregation.hides and not aggregation.plain
    if aggregation and hides and not own_part(aggregation):
        out.append(f"whether the aggregation {aggregation.name!r} hides the messages of a sum")
    if not body.sends_estimates:
        out.append("the messages of single nodes: it sees the points to which they lead")
    return tuple(out)
