"""SoteriaFL and the algorithms it is compared with.

Z. Li, H. Zhao, B. Li, Y. Chi: SoteriaFL: A Unified Framework for Private Federated Learning with
Communication Compression.  NeurIPS 2022.

===================  ================  ==========  =======  =====
algorithm            estimator         compressor  channel  noise
===================  ================  ==========  =======  =====
soteriafl_gd, _sgd   full, minibatch   random-k    shifted  yes
soteriafl_svrg       loopless SVRG     random-k    shifted  yes
soteriafl_saga       SAGA              random-k    shifted  yes
cdp_gd, cdp_sgd      full, minibatch   random-k    direct   yes
ldp_gd, ldp_sgd      full, minibatch   none        direct   yes
ldp_svrg             loopless SVRG     none        direct   yes
fedgd, fedsgd        full, minibatch   none        direct   no
===================  ================  ==========  =======  =====
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.numbers import (
    GAP,
    PRIVACY,
    UNKNOWN,
    Draft,
    Parts,
    applies,
    body_of,
    only,
    reporting,
    usual_delta,
)
from jaxfl.algorithms.roles import cached, part
from jaxfl.algorithms.soteriafl import theory
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.core.errors import InputError, require
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import (
    LARGEST,
    Algorithm,
    Asked,
    Channel,
    Compressor,
    Estimator,
    Mechanism,
    Param,
    Plan,
    ProblemFacts,
    Sampler,
)
from jaxfl.parts import channels, compressors, estimators, mechanisms, sampling
from jaxfl.parts.compressors import identity
from jaxfl.parts.momentum import SMOOTHNESS
from jaxfl.privacy.claims import Claim
from jaxfl.rounds.federated import Federated

__all__ = [
    "cdp_gd",
    "cdp_sgd",
    "fedgd",
    "fedsgd",
    "ldp_gd",
    "ldp_sgd",
    "ldp_svrg",
    "soteriafl_gd",
    "soteriafl_saga",
    "soteriafl_sgd",
    "soteriafl_svrg",
]

PAPER = "SoteriaFL, NeurIPS 2022"
NUMBERS = (SMOOTHNESS, GAP)
NOISE = (
    *PRIVACY,
    Param(
        "noise_constant",
        "c in the formula sigma^2 = c G^2 T ln(1/delta)/(m eps)^2 of --noise paper and of the claimed eps",
        open_low=True,
        high=LARGEST,
    ),
    Param(
        "gradient_bound",
        "with batch clipping: a bound on the norm of every example's gradient that holds for any data, "
        "such as the largest norm of the features in logistic regression; needed for a proven eps "
        "(default: none)",
        open_low=True,
    ),
)


class Rule(NamedTuple):
    """The paper's choices for one family; None: it makes none."""

    where: str
    assume: Callable[[theory.Setting, Mapping[str, Any]], theory.Estimator] | None
    step: Callable[[theory.Setting, Mapping[str, Any]], Any] | None
    rounds: Callable[[theory.Setting, Mapping[str, Any]], Any] | None
    batch: Callable[[theory.Setting], Any] | None = None
    constant: float | None = None  # c of the noise formula; None: 48 (G_A^2/4 + G_B^2)/G^2


SGD = Rule(
    "Corollary 1",
    lambda s, v: theory.sgd(s, v.get("batch", s.m)),
    lambda s, v: theory.sgd_step(s),
    lambda s, v: theory.sgd_rounds(s),
    theory.sgd_batch,
    theory.CONSTANT / 4,
)
SVRG = Rule(
    "Corollary 2",
    lambda s, v: theory.svrg(s, v.get("batch", s.m), v["refresh"]),
    lambda s, v: theory.svrg_step(s, v["batch"], v["refresh"]),
    lambda s, v: theory.svrg_rounds(s),
    theory.svrg_batch,
    theory.CONSTANT * 2,
)
SAGA = Rule(
    "Corollary 3",
    lambda s, v: theory.saga(s, v.get("batch", s.m)),
    lambda s, v: theory.saga_step(s),
    lambda s, v: theory.svrg_rounds(s),
    theory.saga_batch,
    theory.CONSTANT * 2,
)
CDP = Rule(
    "Theorem 1",
    SGD.assume,
    lambda s, v: theory.cdp_step(s),
    lambda s, v: theory.cdp_rounds(s),
    theory.sgd_batch,
    theory.CDP_CONSTANT,
)


def own(estimator: Estimator) -> Rule:
    """Algorithm 2 with an estimator of your own: Theorems 2 and 3, for the constants that it declares."""
    assume = estimator.assume
    if assume is None:
        return Rule("nothing is known of this estimator", None, None, None)

    def step(s: theory.Setting, v: Mapping[str, Any]) -> float:
        return theory.longest_step(s, assume(s, v))

    def rounds(s: theory.Setting, v: Mapping[str, Any]) -> Any:
        e = assume(s, v)
        return theory.shifted_rounds(s, e, theory.least_beta(s, e, theory.longest_step(s, e)))

    return Rule("Theorem 3", assume, step, rounds)


class Variant(NamedTuple):
    """Parts and rules in which the algorithms of this folder differ."""

    rule: Rule
    estimator: Estimator | Callable[[Sampler, bool], Estimator] = estimators.minibatch
    channel: Callable[[], Channel] = channels.direct
    compressor: Callable[[], Compressor] = compressors.random_k
    mechanism: Callable[[], Mechanism] = mechanisms.gaussian
    whole: bool = False  # every sample in every round
    paper: str = PAPER


FEDAVG = Variant(
    SGD,
    compressor=identity,
    mechanism=mechanisms.noiseless,
    paper="McMahan et al., AISTATS 2017",
)


def soteriafl_gd(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-GD: :func:`soteriafl_sgd` with every sample in every round [Corollary 1]::

        g_i = mean_j clip grad f_ij(x) + xi_i
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i

    The shifts s_i learn the gradients: less and less is left to compress.
    """
    kind = Variant(SGD, channel=channels.shifted, whole=True)
    return _algorithm("soteriafl_gd", kind, **parts)


class Framework(Parts, total=False):
    """Parts that a user may exchange in the paper's Algorithm 2, which takes any estimator."""

    estimator: Estimator


def soteriafl_sgd(**parts: Unpack[Framework]) -> Algorithm:
    """SoteriaFL-SGD [Algorithm 3, option I]::

        g_i = mean_{j in I_b} clip grad f_ij(x) + xi_i,  xi_i ~ N(0, sigma^2 I)
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i

    The shifts s_i learn the gradients: less and less is left to compress.

    With another ``estimator`` it is the paper's Algorithm 2.  Where that declares the constants of
    Assumption 3 (``Estimator.assume``), step size and noise are those of Theorems 2 and 3.
    """
    mine = parts.pop("estimator", None)
    if mine is None:
        kind = Variant(SGD, channel=channels.shifted)
        return _algorithm("soteriafl_sgd", kind, **parts)
    if "sampler" in parts:
        sampler = part("sampler", parts["sampler"]).name
        raise InputError(
            f"sampler = {sampler!r} and estimator = {mine.name!r} are both given: make the estimator "
            "with that sampler."
        )
    return _algorithm("soteriafl_sgd", Variant(own(mine), mine, channels.shifted), **parts)


def soteriafl_svrg(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-SVRG [Algorithm 3, option II]: :func:`soteriafl_sgd` with the estimator
    :func:`jaxfl.parts.estimators.svrg`::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - clip grad f_ij(w)) + mean_j clip grad f_ij(w) + xi_i
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i
        w <- x with probability p, one coin for all clients
    """
    return _algorithm("soteriafl_svrg", Variant(SVRG, estimators.svrg, channels.shifted), **parts)


def soteriafl_saga(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-SAGA [Algorithm 3, option III]: :func:`soteriafl_sgd` with the estimator
    :func:`jaxfl.parts.estimators.saga`::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - c_ij) + mean_j c_ij + xi_i
        c_ij <- clip grad f_ij(x) for j in I_b
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i
    """
    return _algorithm("soteriafl_saga", Variant(SAGA, estimators.saga, channels.shifted), **parts)


def cdp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """CDP-GD: :func:`cdp_sgd` with every sample in every round::

        g_i = mean_j clip grad f_ij(x);  v_i = C_i(g_i + xi_i);  x <- x - eta mean_i v_i

    xi_i ~ N(0, sigma^2 I), and C_i is random-k unless another compressor is given.
    """
    return _algorithm("cdp_gd", Variant(CDP, whole=True), **parts)


def cdp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """CDP-SGD [Algorithm 1]::

        g_i = mean_{j in I_b} clip grad f_ij(x);  v_i = C_i(g_i + xi_i);  x <- x - eta mean_i v_i

    xi_i ~ N(0, sigma^2 I), and C_i is random-k unless another compressor is given.
    """
    return _algorithm("cdp_sgd", Variant(CDP), **parts)


def ldp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-GD: :func:`cdp_gd` without compression::

        x <- x - eta mean_i (mean_j clip grad f_ij(x) + xi_i),  xi_i ~ N(0, sigma^2 I)

    Every client adds its own noise before it sends.
    """
    return _algorithm("ldp_gd", Variant(CDP, compressor=identity, whole=True), **parts)


def ldp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-SGD: :func:`cdp_sgd` without compression::

        x <- x - eta mean_i (mean_{j in I_b} clip grad f_ij(x) + xi_i),  xi_i ~ N(0, sigma^2 I)

    Every client adds its own noise before it sends.
    """
    return _algorithm("ldp_sgd", Variant(CDP, compressor=identity), **parts)


def ldp_svrg(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-SVRG: :func:`soteriafl_svrg` without compression and shift, as the SoteriaFL experiments
    run it; loopless, one noise on the whole estimate::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - clip grad f_ij(w)) + mean_j clip grad f_ij(w) + xi_i
        x <- x - eta mean_i g_i;  w <- x with probability p, one coin for all clients
    """
    return _algorithm("ldp_svrg", Variant(SVRG, estimators.svrg, compressor=identity), **parts)


def fedgd(**parts: Unpack[Parts]) -> Algorithm:
    """Federated gradient descent: every sample in every round::

        x <- x - eta mean_i grad f_i(x)

    Not private.
    """
    return _algorithm("fedgd", FEDAVG._replace(whole=True), **parts)


def fedsgd(**parts: Unpack[Parts]) -> Algorithm:
    """FedSGD: one minibatch gradient per client and round [McMahan et al., 2017]::

        x <- x - eta mean_i mean_{j in I_b} grad f_ij(x)

    Not private.
    """
    return _algorithm("fedsgd", FEDAVG, **parts)


# --- what they share -----------------------------------------------------------------------------


@cached
def _algorithm(name: str, kind: Variant, **parts: Any) -> Algorithm:
    given = only(name, parts, *Parts.__annotations__)
    sampler = given.pop("sampler", sampling.full() if kind.whole else sampling.poisson())
    why = "which takes every sample: take its _sgd variant"
    applies(sampler.whole or not kind.whole, name, why, sampler=sampler)
    estimator = kind.estimator
    if not isinstance(estimator, Estimator):
        estimator = estimator(sampler, given.get("clip", "example") == "example")
    body = body_of(
        given,
        estimator=estimator,
        mechanism=kind.mechanism(),
        compressor=kind.compressor(),
        channel=kind.channel(),
    )
    params = NUMBERS + (() if body.mechanism.std is None else NOISE)
    rules = PaperRules(body, kind.rule)
    options = {} if kind.rule.assume is not None else {"formula": None}
    return by_rules(globals()[name], kind.paper, rules, params, **options)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, and what the paper says of its noise."""

    body: Federated
    rule: Rule

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the paper's, then defaults, labelled as such."""
        rule, body = self.rule, self.body
        private = body.mechanism.std is not None
        require(
            "gradient_bound" not in given or body.clip == "batch",
            "applies only where the batch's mean is clipped",
            "every example is clipped here, so give clip, its bound G, instead",
            gradient_bound=given.get("gradient_bound"),
        )
        N = Draft.of(given, facts, theory=rule.rounds is not None)
        N.clip(private)
        N.parts(body, facts)
        N.default("gap", 1.0)
        L, known = N.values.get("smoothness", facts.smoothness), True
        if not L:  # unknown, or 0 on data without features
            L, known = 1.0, False
        note = rule.where if known else f"{rule.where} with L = 1: {UNKNOWN}"
        if private:
            N.target(facts, "n" if body.clip == "client" else "m")
        v, of, s = N.values, N.for_eps, self._setting(N.values, facts, L, N.eps)
        names = {param.name for param in body.estimator.params}
        if rule.batch is None or (rule.batch is theory.sgd_batch and not known):  # which reads L
            N.batch(body, facts)
        if rule.rounds is not None:
            N.theorem("rounds", max(1, round(float(rule.rounds(s, v)))), note + of)
        if rule.batch is not None and body.estimator.sampler.params:
            N.theorem("batch", int(rule.batch(s)), note + of)
        if rule.batch is not None and "refresh" in names:
            N.theorem("batch", facts.m, "full passes")
            N.theorem("refresh", min(1.0, N["batch"] / facts.m), f"{rule.where}: b/m")
        if body.channel.params:
            N.theorem("shift", float(theory.shift(N["omega"])), "Theorem 3")
        if private and rule.assume is not None:
            c, why = rule.constant, "the authors' code"
            if c is None:
                c, why = theory.CONSTANT * rule.assume(s, v).size / s.G**2, "Theorem 2"
            N.theorem("noise_constant", c, why)
        if not known:
            N.step()
        elif rule.step is None:
            N.default("lr", 0.1, rule.where)
        if "lr" not in N and isinstance(v.get("refresh"), Schedule):
            raise InputError(
                f"refresh = {v['refresh']} changes from round to round, and {rule.where} has a step size "
                "for one probability: give lr."
            )
        if "lr" not in N and rule.step is not None:
            N.theorem("lr", float(rule.step(s, v)), note + of * (rule is CDP))
        return N.plan()

    def _setting(
        self, v: Mapping[str, Any], facts: ProblemFacts, L: float, eps: float = 1.0
    ) -> theory.Setting:
        G = float(v["clip"]) if math.isfinite(v["clip"]) else 1.0  # of schedules alone
        r = reporting(self.body, v, facts.n)  # whose messages a mean is over
        delta = v.get("delta", usual_delta(facts.m_max))
        return theory.Setting(r, facts.m, facts.d, v["omega"], L, G, eps, delta, v["gap"])

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim | None:
        """The paper's noise, and whether its conditions hold; of whole clients it says nothing."""
        if self.body.clip == "client":
            return None
        assume = self.rule.assume
        assert assume is not None
        L = values.get("smoothness", facts.smoothness) or 1.0
        s = self._setting({"gap": 1.0, **values}, facts, L)._replace(G=float(values["clip"]))
        e = assume(s, values)
        c, G, T, delta = (values[name] for name in ("noise_constant", "clip", "rounds", "delta"))
        bounds, b = (float(e.G_A), float(e.G_B)), values.get("batch", facts.m)
        claim = compressed_gd(c, G, facts.m, b, T, delta, bounds=bounds, **asked.way)
        return claim._replace(where=self.rule.where)
