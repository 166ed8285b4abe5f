"""PORTER: gradient tracking over a network, with error feedback for what compression leaves out.

B. Li, Y. Chi: Convergence and Privacy of Decentralized Nonconvex Optimization with Gradient Clipping
and Communication Compression.  2023.  The updates are those of BEER [Zhao et al., 2022], which were checked
against its authors' code; the gradient is clipped and noised.

=========  =======================  ========
algorithm  clipped                  noise
=========  =======================  ========
porter_dp  each example's gradient  Gaussian
porter_gc  the minibatch's          none
=========  =======================  ========

Both clip smoothly, ``clip(g) = g tau/(tau + |g|)``; ``clipping="hard"`` is ``g min(1, tau/|g|)``.  What is
proven of both is the same [:mod:`jaxfl.problems.clipping`].  Ours are p_i = x_0 at first, and the step
sizes, since the paper's hold up to constants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import jax.numpy as jnp

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.numbers import GAP, PRIVACY, Draft, Network, applies, network_of, only
from jaxfl.algorithms.roles import cached
from jaxfl.core.errors import require
from jaxfl.core.products import exact
from jaxfl.core.provenance import made
from jaxfl.core.types import (
    Algorithm,
    Array,
    Hyper,
    Noise,
    Param,
    Plan,
    ProblemFacts,
)
from jaxfl.parts import compressors, estimators, mechanisms, momentum, sampling
from jaxfl.parts.servers import LR
from jaxfl.rounds import gossip

__all__ = ["porter_dp", "porter_gc"]

TAU = Param("clip", "bound tau on the norm of a minibatch's gradient", open_low=True)
OURS = "chosen by jaxfl, since the paper gives no constants"


def porter_dp(**parts: Unpack[Network]) -> Algorithm:
    """PORTER-DP: clipped examples, noise, and compressed gradient tracking::

        g_i = mean_{j in I_b} clip grad f_ij(x_i) + xi_i,   clip(g) = g tau/(tau + |g|)
        v_i <- v_i + k sum_j W_ij (q_j - q_i) + g_i - g_i',   q_i <- q_i + C(v_i - q_i)
        x_i <- x_i + k sum_j W_ij (p_j - p_i) - eta v_i,      p_i <- p_i + C(x_i - p_i)

    g_i' is the noised gradient of the round before: all that a client sends is made of its g_i, and an
    accountant counts one release of each round, though there are two messages.  C may be
    biased, and needs an omega below 1: top-k by default.  With ``clip="client"`` a client clips its whole
    g_i before the noise, and all of its records are protected: all else that it sends follows.
    """
    return _algorithm("porter_dp", True, **parts)


def porter_gc(**parts: Unpack[Network]) -> Algorithm:
    """PORTER-GC: clipped minibatches and compressed gradient tracking::

        g_i = clip(mean_{j in I_b} grad f_ij(x_i)),   clip(g) = g tau/(tau + |g|)
        v_i <- v_i + k sum_j W_ij (q_j - q_i) + g_i - g_i',   q_i <- q_i + C(v_i - q_i)
        x_i <- x_i + k sum_j W_ij (p_j - p_i) - eta v_i,      p_i <- p_i + C(x_i - p_i)

    Not private.
    """
    return _algorithm("porter_gc", False, **parts)


# --- what they share -----------------------------------------------------------------------------


@cached
def _algorithm(name: str, private: bool, **parts: Any) -> Algorithm:
    noises = ("mechanism",) if private else ()
    given = only(
        name, parts, "compressor", "sampler", *noises, *(("clip",) if private else ()), "graph"
    )
    sampler, clip = given.pop("sampler", sampling.poisson()), given.get("clip", "example")
    applies(clip != "batch", name, "which clips examples or clients: take porter_gc", clip=clip)
    given.setdefault("clip", "example" if private else "batch")
    body = network_of(
        given,
        estimator=estimators.minibatch(sampler, clip_examples=private and clip == "example"),
        mechanism=mechanisms.gaussian() if private else mechanisms.noiseless(),
        compressor=compressors.top_k(),
        rule=_tracking(),
        clipping="smooth",
    )
    params = (momentum.SMOOTHNESS, GAP, *(PRIVACY if private else (TAU,)))
    rules = PaperRules(body, private)
    return by_rules(globals()[name], "Li, Chi, 2023", rules, params, follows=("lr",))


@made
def _tracking() -> gossip.Rule:
    """Gradient tracking with error feedback  [BEER; PORTER, Algorithm 1]::

        v_i <- v_i + k sum_j W_ij (q_j - q_i) + g_i - g_i',   q_i <- q_i + C(v_i - q_i)
        x_i <- x_i + k sum_j W_ij (p_j - p_i) - eta v_i,      p_i <- p_i + C(x_i - p_i)

    g_i' is the gradient of the round before.  Neighbours keep copies of q_i and p_i, which move by the
    messages; the mean of the v_i is that of the g_i.  At first v_i = q_i = g_i' = 0, and p_i = x_0, which
    everyone knows.
    """

    def start(x: Array) -> tuple[Array, ...]:
        zero = jnp.zeros_like(x)
        return zero, zero, x, zero

    def step(
        x: Array,
        g: Array,
        W: Array,
        send: gossip.Send,
        hp: Hyper,
        v: Array,
        q: Array,
        p: Array,
        before: Array,
    ) -> tuple[Array, ...]:
        k = hp["consensus"]
        v = v + k * (exact(W, q) - q) + g - before
        of_v, sent = send(v - q)
        x = x + k * (exact(W, p) - p) - hp["lr"] * v
        of_x, more = send(x - p, 1)
        return x, sent + more, v, q + of_v, p + of_x, g

    return gossip.Rule("tracking", step, (LR, gossip.CONSENSUS), start, 2, corrects=True)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run."""

    body: gossip.Gossip
    private: bool

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then our choices."""
        N = Draft.of(given, facts)
        N.default("clip", 1.0)
        N.clip(self.private)
        N.parts(self.body, facts)
        omega = N["omega"]
        require(
            omega < 1,
            lambda: (
                f"of {self.body.compressor.name} must be below 1, or error feedback learns nothing"
            ),
            "take top_k, or keep more coordinates",
            omega=omega,
        )
        N.smoothness(facts)
        if self.private:
            N.target(facts, "n" if self.body.clip == "client" else "m")
        N.default("gap", 1.0)
        N.batch(self.body, facts)
        N.default("consensus", (1 - omega) / 2, f"(1 - omega)/2, {OURS}")
        return N.plan()

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """The step size: a share of 1/L that compression leaves, less where noise adds up."""
        L, T, sigma = float(N["smoothness"]), N["rounds"], float(N.values.get("sigma", 0.0))
        eta = (1 - N["omega"]) / (2 * L)
        if sigma > 0:
            eta = min(eta, math.sqrt(2 * facts.n * N["gap"] / (L * T * facts.d)) / sigma)
        N.theorem("lr", eta, f"min((1 - omega)/(2L), sqrt(2 n gap/(L T d))/sigma), {OURS}")
