"""DiceSGD: what clipping cuts off is kept, and added to later rounds.

X. Zhang, Z. Bu, Z. S. Wu, M. Hong: Differentially Private SGD Without Clipping Bias: An Error-Feedback
Approach.  ICLR 2024.  Written from the update that the paper prints; its authors' code, from which the
noise is taken, keeps the share ``min(s, 1 - s)`` of an error that is added with the share s, the paper
``1 - s``.  Each client runs it on its own records, and the server takes the mean of the messages; with
one client it is the paper's algorithm.

The error e_i is never shown, and no noise protects it: it is made of gradients that nothing clips, of
all rounds before.  A record moves a message by up to 2 C1/b if it is drawn.  Whether it is drawn or not,
it may have moved e_i as far as it likes, and the message by up to 2 C2.  That is what the accountant
counts in every round, given all messages before, and no sampling amplifies it.

With ``clip="client"`` a client clips the mean gradient of its batch as a whole.  A message without its
noise has norm C1 + C2 at most, whatever the records and e_i are: all records of a client move it by
2 (C1 + C2).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import jax.numpy as jnp

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.dicesgd import claims
from jaxfl.algorithms.numbers import GAP, PRIVACY, Draft, Parts, applies, local_body
from jaxfl.algorithms.roles import cached
from jaxfl.core.provenance import made
from jaxfl.core.types import (
    Algorithm,
    Array,
    Asked,
    Client,
    Estimator,
    Hyper,
    Local,
    Mechanism,
    Noise,
    Param,
    Plan,
    Problem,
    ProblemFacts,
    PyTree,
)
from jaxfl.parts import momentum, sampling
from jaxfl.parts.gradients import at_point, evaluated, unclipped
from jaxfl.parts.mechanisms import normal
from jaxfl.privacy import events
from jaxfl.privacy.claims import Claim
from jaxfl.problems.clipping import clip
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = ["dice_sgd"]

C2 = Param("error_clip", "bound C2 on the norm of the error that is added", open_low=True)
VARY = ("poisson", "full", "single_pass")  # schemes that a record may be added to
OURS = "chosen by jaxfl, since the paper gives no constants"


def dice_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """DiceSGD: clipped gradients, and what clipping cut off before::

        v_i = mean_{j in I_b} clip_C1 grad f_ij(x) + clip_C2 e_i,  send v_i + xi_i
        e_i <- e_i + mean_{j in I_b} grad f_ij(x) - v_i
        x <- x - (eta/n) sum_i (v_i + xi_i)

    ``clip`` is C1 and ``error_clip`` is C2.  Two data sets of which one record differs move a message by
    up to 2 (C1/b + C2), which is what the accountant counts in every round.  With ``clip="client"`` the
    mean is clipped, ``v_i = clip_C1 mean_{j in I_b} grad f_ij(x) + clip_C2 e_i``, and all records of a
    client are protected.
    """
    return _algorithm(**parts)


@cached
def _algorithm(**parts: Any) -> Algorithm:
    clip = parts.pop("clip", "example")
    applies(clip != "batch", "dice_sgd", "which clips examples or clients", clip=clip)
    of_client = functools.partial(_error_feedback, whole=clip == "client")
    body = local_body("dice_sgd", parts, of_client, sampling.poisson(), clip=clip)
    params = (momentum.SMOOTHNESS, GAP, *PRIVACY)
    return by_rules(dice_sgd, "Zhang et al., 2024", PaperRules(body), params, follows=("lr",))


@made
def _error_feedback(estimator: Estimator, mechanism: Mechanism, whole: bool) -> Local:
    """v_i + xi_i, where the client alone knows e_i."""

    def init(problem: Problem, x: Array) -> tuple[PyTree, PyTree]:
        return (), (jnp.zeros(problem.n, jnp.int32), jnp.zeros((problem.n, x.size), x.dtype))

    def run(
        client: Client, x: Array, shared: PyTree, memory: PyTree, problem: Problem, hp: Hyper
    ) -> tuple[Array, PyTree, Array]:
        rounds, e = memory
        rows = estimator.sampler.draw(client.rows, rounds, client.count, problem.m_max, hp)
        weight, examples = rows.weight.astype(x.dtype), client.take(rows)
        point = at_point(estimator.gradient, problem.model, (), x, hp)
        slope, _ = evaluated(unclipped(point), weight, examples, client.points)
        if whole:
            clipped = clip(slope, hp["clip"], point.kernel.smooth)
        else:
            clipped, _ = evaluated(point, weight, examples, client.points)
        v = clipped + clip(e, hp["error_clip"], point.kernel.smooth)
        sent = v + point.public + normal(client.noise, mechanism, v, hp)
        return sent, (rounds + 1, e + slope - v), jnp.sum(weight > 0, dtype=jnp.int32)

    return Local("error feedback", init, run, lambda values: None, params=(C2,))


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, the authors' noise, and what the rounds release."""

    body: Federated

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then our choices."""
        N = Draft.of(given, facts)
        N.private(self.body, facts)
        N.batch(self.body, facts)
        b = 1.0 if self.body.clip == "client" else float(N.values.get("batch", facts.m))
        N.default("error_clip", float(N["clip"]) / b, "C1/b, as in the authors' code")
        return N.plan()

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """The step size: 1/(2L), less where noise adds up."""
        L, T, sigma = float(N["smoothness"]), N["rounds"], float(N.values.get("sigma", 0.0))
        eta = 1 / (2 * L)
        if sigma > 0:
            eta = min(eta, math.sqrt(2 * facts.n * N["gap"] / (L * T * facts.d)) / sigma)
        N.theorem("lr", eta, f"min(1/(2L), sqrt(2 n gap/(L T d))/sigma), {OURS}")

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim | None:
        """The noise of the authors' code, of the client with the fewest records.

        It adds or removes a record, which batches of a fixed size do not allow.
        """
        if self.body.clip == "client":
            return None
        rows = transcript.drawn(self.body.estimator.sampler, values, facts, facts.m)
        if rows.scheme not in VARY and rows.b < rows.m:
            return None
        times, way = transcript.turns(self.body, values, facts), asked.way
        bounds = float(values["clip"]), float(values["error_clip"])
        return claims.dice(*bounds, rows, times, values["delta"], **way)

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """T releases that a record moves by at most 2 (C1/b + C2) each, whatever was drawn.

        All records of a client, whose mean gradient is clipped, move them by 2 (C1 + C2).
        """
        if self.body.clip == "client":
            return transcript.of_clients(
                self.body, values, facts, lambda now: float(now["clip"] + now["error_clip"])
            )
        b = float(values.get("batch", facts.m))
        reach = float(values["clip"]) / b + float(values["error_clip"])
        whole = events.Sampling("full", 1, 1)
        moves = events.Mean(reach, over_b=2.0, mean=2.0, whole=reach)

        def part(some: transcript.Rounds) -> events.Event:
            return events.Event(whole, moves, some.std, some.number)

        return transcript.in_turns(part, self.body, values, facts)
