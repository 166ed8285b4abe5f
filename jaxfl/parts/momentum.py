"""Estimators that correct an earlier estimate by differences of gradients.

Six recursions, each a weighting of gradients at the point x of this round and the one before, x':

==============  ===================================================================================
``averaged``    each client remembers an average: h <- (1-eta) h + eta grad f(x; z), or with differences
``page``        each client remembers its own: h <- h + grad f(x; z) - grad f(x'; z); a coin restarts all
``corrected``   each client remembers its own: d <- grad f(x; z) + (1-beta) (d - grad f(x'; z))
``recursive``   the server remembers it (:func:`jaxfl.parts.channels.recursion`); clients send differences
``marina``      the same with compressed differences; a coin restarts it
``anchored``    a full gradient with noise of its own, taken at the start of every epoch
==============  ===================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from jaxfl.core.batching import cond_any
from jaxfl.core.errors import require
from jaxfl.core.provenance import made
from jaxfl.core.types import (
    LARGEST,
    Array,
    Estimator,
    Gradient,
    Hyper,
    Key,
    Mechanism,
    Memory,
    Param,
    Problem,
    ProblemFacts,
    PyTree,
    Remembered,
    Sampler,
    Term,
    Values,
)
from jaxfl.parts.estimators import CLIP
from jaxfl.parts.iterates import WEIGHT_POWER
from jaxfl.problems.metrics import full_gradient, mean_gradient, over_clients

__all__ = [
    "DIAMETER",
    "SMOOTHNESS",
    "anchored",
    "averaged",
    "corrected",
    "marina",
    "page",
    "recursive",
    "step_bound",
]

SMOOTHNESS = Param(
    "smoothness",
    "smoothness L of every example's loss (default: the model's, where it is known)",
    open_low=True,
    high=LARGEST,
)
DIAMETER = Param("diameter", "diameter D of the set that the model stays in", open_low=True)
MOMENTUM_POWER = Param(
    "momentum_power", "power r of the corrected momentum's weights beta_t = t^-r", high=4.0
)
MOMENTUM = Param("momentum", "weight gamma of the new gradient in the recursion", high=1.0)
AVERAGE = Param(
    "momentum", "weight eta of the new gradient in a client's h_i", open_low=True, high=1.0
)
DIFFERENCE_CLIP = Param(
    "difference_clip", "bound C on the difference of one example's two gradients", open_low=True
)
RESTART = Param("restart", "probability p of a full gradient that is not compressed", high=1.0)
ANEW = Param(
    "restart", "probability p of full gradients in place of differences", open_low=True, high=1.0
)
PERIOD = Param("period", "rounds q between estimates that restart", low=1, integer=True)
EPOCH = Param("epoch", "rounds Q between full gradients", low=1, integer=True)
ANCHOR_BATCH = Param(
    "anchor_batch", "records that a client draws where an estimate restarts", low=1, integer=True
)
NOISE_RATIO = Param(
    "noise_ratio", "noise of an estimate that restarts over that of a difference", open_low=True
)
POINTS = 3  # gradients that an estimate adds up, at most


def importance(t: Array, p: Array) -> Array:
    """``alpha_t = Gamma(t+p)/(Gamma(t) Gamma(1+p))``: exactly t for p = 1."""
    log = gammaln(t + p) - gammaln(t) - gammaln(1 + p)
    return jnp.where(p == 1, t, jnp.exp(log))


def correction(t: Array, r: Array) -> Array:
    """``beta_t = t^-r``."""
    return jnp.where(r == 1, 1 / t, t**-r)


def step_bound(t: Array, hp: Hyper) -> Array:
    """``S_t = alpha_t (beta_t G + (1-beta_t) L D (p+1)/(t+p))``: a bound on the norm of s_t, t = 1, 2, ...

    ``|g - (1-beta) g~| <= beta |g| + (1-beta) L |x_t - x_{t-1}|``, and anytime averaging moves x by at
    most ``D alpha_t/alpha_{1:t} = D (p+1)/(t+p)``.  For p = r = 1 it is ``G + 2 L D (t-1)/(t+1)``.
    """
    p, r, LD = hp["weight_power"], hp["momentum_power"], hp["smoothness"] * hp["diameter"]
    beta = correction(t, r)
    length = beta * hp["clip"] + (1 - beta) * LD * (p + 1) / (t + p)
    plain = hp["clip"] + 2 * hp["smoothness"] * hp["diameter"] * (t - 1) / (t + 1)
    return jnp.where((p == 1) & (r == 1), plain, importance(t, p) * length)


def _first(problem: Problem, x: Array, hp: Hyper, pooled: bool, storage: str) -> Remembered:
    """Round 0, with x as the point before it; the server keeps the estimate."""
    return Remembered(shared=(jnp.int32(0), x))


def _zero(
    first: int, problem: Problem, x: Array, hp: Hyper, pooled: bool, storage: str
) -> Remembered:
    """The number of the first round, x, and an estimate of 0 for each client."""
    base = jnp.zeros(x.shape if pooled else (problem.n, x.size), x.dtype)
    return Remembered(shared=(jnp.int32(first), x), base=base)


def _next_round(
    key: Key, shared: PyTree, base: Array | None, x: Array, problem: Problem, hp: Hyper
) -> tuple[PyTree, Array | None, Array]:
    """The number of the next round, with x as the point before it."""
    return (shared[0] + 1, x), base, jnp.int32(0)


def _difference(shared: PyTree, slope: Callable[[Array], Array], x: Array, hp: Hyper) -> Array:
    """A public gradient's part of a message: all of it, or its change where the server carries v."""
    carry: Array = hp["carry"]
    return slope(x) - carry * slope(shared[1])


@made
def corrected(sampler: Sampler) -> Estimator:
    """Corrected momentum of mu^2-SGD [Reshef, Levy, Section 3.1]::

        d_i <- g + (1 - beta_t)(d_i - g~),  g = grad f(x_t; z), g~ = grad f(x_{t-1}; z), z fresh
        q_i = alpha_t d_i <- kappa_t q_i + s_t,  s_t = alpha_t (g - (1 - beta_t) g~)

    with ``kappa_t = (1 - beta_t) alpha_t/alpha_{t-1}``, alpha_t of :func:`importance` and beta_t = t^-r.
    In Algorithms 1 and 2 alpha_t = t and beta_t = 1/t, that is p = r = 1, and kappa_t = 1.

    The memory is q_i, and every s_t is clipped to :func:`step_bound`.  Where G bounds the gradients,
    L their change and D the set, clipping changes nothing; where one of them fails, a record still
    changes q_i by at most 2 S_t.
    """

    def begin(
        key: Key, shared: PyTree, base: Array | None, x: Array, problem: Problem, hp: Hyper
    ) -> tuple[PyTree, Array | None, Array]:
        t, p, r = shared[0].astype(x.dtype), hp["weight_power"], hp["momentum_power"]
        one = jnp.maximum(t - 1, 1)  # the first round has no memory
        kept = (1 - correction(t, r)) * (t - 1 + p) / one
        kappa = jnp.where((p == 1) & (r == 1), 1, kept).astype(x.dtype)
        assert base is not None
        return shared, kappa * base, jnp.int32(0)

    def terms(shared: PyTree, x: Array, hp: Hyper) -> tuple[Term, ...]:
        t, before = shared[0].astype(x.dtype), shared[1]
        p, r = hp["weight_power"], hp["momentum_power"]
        alpha = importance(t, p)
        old = jnp.where((p == 1) & (r == 1), 1 - t, -alpha * (1 - correction(t, r)))
        return (Term(1.0, (x, before), (alpha, old), step_bound(t, hp)),)

    def public(shared: PyTree, slope: Callable[[Array], Array], x: Array, hp: Hyper) -> Array:
        # the same recursion telescopes
        return importance(shared[0].astype(x.dtype), hp["weight_power"]) * slope(x)

    return Estimator(
        "corrected",
        sampler,
        Gradient(terms, public),
        Memory(
            functools.partial(_zero, 1), begin, _next_round, follow=lambda rows, count: rows.weight
        ),
        params=(CLIP, SMOOTHNESS, DIAMETER, WEIGHT_POWER, MOMENTUM_POWER),
        points=POINTS,
        clips=True,
    )


@made
def averaged(sampler: Sampler, differences: bool) -> Estimator:
    """A client's average of its gradients, with a new batch I in every round::

        h_i <- (1 - eta) h_i + eta mean_{j in I} clip grad f_ij(x)
        h_i <- mean_{j in I} clip(grad f_ij(x) - (1 - eta) grad f_ij(x')) + (1 - eta) h_i

    The first is Polyak's momentum [EF21-SGDM, Algorithm 1], and the second, with ``differences``,
    removes its delay [STORM; DASHA-MVR, Algorithm 1].  In the first round eta = 1.  Everyone takes part.
    """

    def pace(key: Key, t: Array, hp: Hyper) -> dict[str, Array]:
        return {"momentum": jnp.where(t == 0, 1, hp["momentum"])}

    def begin(
        key: Key, shared: PyTree, base: Array | None, x: Array, problem: Problem, hp: Hyper
    ) -> tuple[PyTree, Array | None, Array]:
        assert base is not None
        base = (1 - hp["momentum"]) * base
        if not differences:  # the public part is averaged as well; differences of it telescope
            base = base + hp["momentum"] * jax.grad(problem.model.regularizer)(x)
        return shared, base, jnp.int32(0)

    def terms(shared: PyTree, x: Array, hp: Hyper) -> tuple[Term, ...]:
        G, eta = hp["clip"], hp["momentum"]
        if differences:
            return (Term(1.0, (x, shared[1]), (1.0, eta - 1), G),)
        return (Term(1.0, (x,), (eta,), eta * G),)

    def nothing(shared: PyTree, slope: Callable[[Array], Array], x: Array, hp: Hyper) -> Array:
        return jnp.zeros_like(x)

    return Estimator(
        "momentum with differences" if differences else "momentum",
        sampler,
        Gradient(terms, None if differences else nothing),
        Memory(
            functools.partial(_zero, 0), begin, _next_round, follow=lambda rows, count: rows.weight
        ),
        pace,
        params=(CLIP, AVERAGE),
        clips=True,
    )


@made
def page(sampler: Sampler) -> Estimator:
    """A client's gradient, followed by differences, with a new batch I in every round::

        h_i <- mean_j clip grad f_ij(x)                                   with probability p, else
        h_i <- h_i + mean_{j in I} clip(grad f_ij(x) - grad f_ij(x'))

    [PAGE; DASHA-PAGE, Algorithm 1].  One coin for all clients; the first round takes full gradients.
    Everyone takes part.  Rounds that restart draw a batch, too, which weighs nothing and counts.
    """

    def anew(key: Key, t: Array, hp: Hyper) -> Array:
        restarts: Array = (t == 0) | (jax.random.uniform(key) < hp["restart"])
        return restarts

    def pace(key: Key, t: Array, hp: Hyper) -> dict[str, Array]:
        return {"carry": jnp.where(anew(key, t, hp), 0, jnp.ones_like(hp["clip"]))}

    def begin(
        key: Key, shared: PyTree, base: Array | None, x: Array, problem: Problem, hp: Hyper
    ) -> tuple[PyTree, Array | None, Array]:
        assert base is not None
        restarts, pooled = anew(key, shared[0], hp), base.ndim == 1  # pace has the same key

        def move(x: Array, problem: Problem, G: Array) -> Array:
            return (mean_gradient if pooled else full_gradient)(problem, x, G)

        base = cond_any(restarts, move, base, x, problem, hp["clip"])
        return shared, base, jnp.where(restarts, jnp.sum(problem.count), 0)

    def terms(shared: PyTree, x: Array, hp: Hyper) -> tuple[Term, ...]:
        return (Term(1.0, (x, shared[1]), (hp["carry"], -hp["carry"]), hp["clip"]),)

    return Estimator(
        "page",
        sampler,
        Gradient(terms),
        Memory(
            functools.partial(_zero, 0), begin, _next_round, follow=lambda rows, count: rows.weight
        ),
        pace,
        params=(CLIP, ANEW),
        clips=True,
    )


@made
def with_anchors(base: Sampler) -> Sampler:
    """``base`` with slots for ``anchor_batch`` too, which rounds that restart draw."""
    require(
        not base.single_pass,
        "does not apply where rounds that restart draw anchor_batch samples and others batch",
        "take 'poisson' or 'without_replacement'",
        sampler=base.name,
    )

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        most = np.maximum(values["batch"], values["anchor_batch"])
        return base.capacity({**values, "batch": most}, facts)

    return base._replace(capacity=capacity)


@made
def recursive(sampler: Sampler, moving: bool) -> Estimator:
    """Differences u_i for a server that keeps v <- (1-gamma) v + mean_i u_i [DP-SRM; SPIDER]::

        u_i = mean_{j in I} clip_G grad f_ij(x)                     in a round that restarts, else
        u_i = mean_{j in I} ((1-gamma) clip_C(grad f_ij(x) - grad f_ij(x')) + gamma clip_G grad f_ij(x))

    With ``moving=False`` (DP-SRM) only the first round restarts, and C is a hyper-parameter.  With
    ``moving=True`` (SPIDER) every q-th round does, gamma = 0, ``C = min(2G, L |x - x'|)``, and the
    noise of a difference is ``sigma C/(2G)``: its ratio to the sensitivity is the same in every
    round.  Rounds that restart have ``noise_ratio`` times the noise, and draw ``anchor_batch``
    rows where the sampler has a batch.  Every round evaluates both points, on slots for the larger
    draw.
    """
    has_batch = any(param.name == "batch" for param in sampler.params)
    sampler = with_anchors(sampler) if has_batch else sampler

    def pace(key: Key, t: Array, hp: Hyper) -> dict[str, Array]:
        restarts = t % hp["period"] == 0 if moving else t == 0
        carry = jnp.ones_like(hp["clip"]) if moving else 1 - hp["momentum"]
        now = {"carry": jnp.where(restarts, 0, carry)}
        if "sigma" in hp.values:
            now["sigma"] = hp["sigma"] * jnp.where(restarts, hp["noise_ratio"], 1)
        if has_batch:
            now["batch"] = jnp.where(restarts, hp["anchor_batch"], hp["batch"])
        return now

    def longest(shared: PyTree, x: Array, hp: Hyper) -> Array:
        """C: what a difference is clipped to."""
        if not moving:
            bound: Array = hp["difference_clip"]
            return bound
        square = jnp.sum((x - shared[1]) ** 2)
        step = jnp.sqrt(jnp.where(square > 0, square, 1))  # 0 has a root without a derivative
        return jnp.where(square > 0, jnp.minimum(2 * hp["clip"], hp["smoothness"] * step), 0)

    def unit(shared: PyTree, x: Array, hp: Hyper) -> Array:
        return jnp.where(hp["carry"] == 0, 1, longest(shared, x, hp) / (2 * hp["clip"]))

    def terms(shared: PyTree, x: Array, hp: Hyper) -> tuple[Term, ...]:
        carry = hp["carry"]
        difference = Term(carry, (x, shared[1]), (1.0, -1.0), longest(shared, x, hp))
        return difference, Term(1 - carry, (x,), (1.0,), hp["clip"])

    own = (PERIOD, SMOOTHNESS) if moving else (DIFFERENCE_CLIP, MOMENTUM)
    return Estimator(
        "spider" if moving else "recursive momentum",
        sampler,
        Gradient(terms, _difference, unit if moving else None),
        Memory(_first, refresh=_next_round),
        pace,
        params=(CLIP, NOISE_RATIO, *own, *((ANCHOR_BATCH,) if has_batch else ())),
        points=POINTS,
        clips=True,
    )


@made
def marina(sampler: Sampler) -> Estimator:
    """MARINA's differences: with probability p all of the gradient, uncompressed, else its change::

        g_i = grad f_i(x)  or  g_i + C(grad f_i(x) - grad f_i(x')),  one coin for all clients

    The server adds them up (:func:`jaxfl.parts.channels.recursion`).  The full gradient is a message of
    k = d coordinates.  The first round is a full one.
    """

    def pace(key: Key, t: Array, hp: Hyper) -> dict[str, Array]:
        restarts = (t == 0) | (jax.random.uniform(key) < hp["restart"])
        carry = jnp.where(restarts, 0, jnp.ones_like(hp["clip"]))
        return {"carry": carry, "k": jnp.where(restarts, hp.caps["k"], hp["k"])}

    def terms(shared: PyTree, x: Array, hp: Hyper) -> tuple[Term, ...]:
        G, carry = hp["clip"], hp["carry"]
        return Term(1.0, (x,), (1.0,), G), Term(-carry, (shared[1],), (1.0,), G)

    return Estimator(
        "marina",
        sampler,
        Gradient(terms, _difference),
        Memory(_first, refresh=_next_round),
        pace,
        params=(CLIP, RESTART),
        points=POINTS,
        clips=True,
    )


@made
def anchored(sampler: Sampler, mechanism: Mechanism) -> Estimator:
    """SVRG with epochs of Q rounds and a noised full gradient [FedProx-SVRG of Lowy et al., 2023]::

        at the start of every epoch:  w <- x,  h_i = mean_j clip grad f_ij(w) + N(0, sigma1^2 I)
        g_i = mean_{j in I_b} (clip grad f_ij(x) - clip grad f_ij(w)) + h_i

    h_i stays with client i; sigma1 is ``noise_ratio`` times the std of ``mechanism``, which draws it.
    """

    require(
        mechanism.weights == (1.0,) and mechanism.event is None,
        "has an event of its own, and anchors are noised apart",
        "take jaxfl.parts.mechanisms.gaussian()",
        mechanism=mechanism.name,
    )

    def begin(
        key: Key, shared: PyTree, h: Array, x: Array, problem: Problem, hp: Hyper
    ) -> tuple[PyTree, Array, Array]:
        t, w = shared
        restarts = t % hp["epoch"] == 0
        std = jnp.zeros((), x.dtype) if mechanism.std is None else mechanism.std(hp)
        pooled = h.ndim == 1
        gradient = mean_gradient if pooled else full_gradient

        def move(key: Key, x: Array, problem: Problem, G: Array, std: Array) -> PyTree:
            def draw(i: Array) -> tuple[Array, None]:
                return mechanism.draw(jax.random.fold_in(key, i), jnp.ones_like(std), x), None

            xi, _ = over_clients(draw, problem, x, pooled)
            return x, gradient(problem, x, G) + std * xi

        std = std * hp["noise_ratio"]
        w, h = cond_any(restarts, move, (w, h), key, x, problem, hp["clip"], std)
        return (t, w), h, jnp.where(restarts, jnp.sum(problem.count), 0)

    def terms(shared: PyTree, x: Array, hp: Hyper) -> tuple[Term, ...]:
        G = hp["clip"]
        return Term(1.0, (x,), (1.0,), G), Term(-1.0, (shared[1],), (1.0,), G)

    def refresh(
        key: Key, shared: PyTree, h: Array, x: Array, problem: Problem, hp: Hyper
    ) -> tuple[PyTree, Array, Array]:
        return (shared[0] + 1, shared[1]), h, jnp.int32(0)

    return Estimator(
        "anchored svrg",
        sampler,
        Gradient(terms),
        Memory(functools.partial(_zero, 0), begin, refresh),
        params=(CLIP, EPOCH, NOISE_RATIO),
        points=POINTS,
        clips=True,
    )
