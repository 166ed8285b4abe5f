"""A clip that adapts to a quantile of what it clips, by bits that are released with the messages.

[G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy: Differentially Private Learning with Adaptive
Clipping, NeurIPS 2021.]  In each round, with C the clip and values v, which are gradients of records or
reports of clients::

    release the noised means of clip_C(v) and of s = 1/2 where |v| <= C, else -1/2
    b = 1/2 + the noised mean of s;   C <- C exp(-eta_C (b - gamma))

A message carries kappa C s as its last coordinate, and all coordinates get noise of deviation ``z C``,
where z is the multiple of a value's share: the bits get sigma_b = z/kappa.  A share has norm at most
``C sqrt(1 + kappa^2/4)``.  Together they are as private as values alone with noise z_total::

    z = z_total/sqrt(1 - (z_total/(2 sigma_b))^2) = (z_total^-2 - (2 sigma_b)^-2)^(-1/2)

``sigma`` is z_total, as a multiple of the clip and on the scale of the mean, and ``bit_noise`` is
``sigma_b/z_total``.  The clip depends on released bits alone: it is public, and events count multiples.

This holds for values that are replaced or left out, bits included.  A report that is replaced by zero
still has a bit, of 1/2: from a clipped report it is ``C sqrt(1 + kappa^2)`` away.  Where a server adds the
noise of reports, sigma_b therefore counts in place of 2 sigma_b, and covers clients that are left out, too.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp

from jaxfl.core.provenance import made
from jaxfl.core.types import (
    LARGEST,
    Array,
    Client,
    Estimator,
    Gradient,
    Hyper,
    Key,
    Local,
    Mechanism,
    MessageBound,
    Param,
    Problem,
    Project,
    PyTree,
    Sampler,
    Server,
    Values,
)
from jaxfl.parts.estimators import minibatch
from jaxfl.parts.gradients import at_point, evaluated
from jaxfl.parts.mechanisms import normal
from jaxfl.problems.clipping import clip

__all__ = ["gradients", "minibatch_in_units", "of_values", "reports"]

CLIP = Param("clip", "the first clip C", open_low=True, high=LARGEST)
QUANTILE = Param("quantile", "share gamma of values that should not be clipped", high=1.0)
CLIP_LR = Param("clip_lr", "step eta_C of the logarithm of the clip", high=LARGEST)
BIT_NOISE = Param(
    "bit_noise",
    "sigma_b/z_total: the noise on the sum of bits, as a multiple of the noise without them",
    low=0.5,
    high=LARGEST,
    open_low=True,
)
LOUDER = BIT_NOISE._replace(low=1.0)
PARAMS = (CLIP, QUANTILE, CLIP_LR, BIT_NOISE)


def stretch(hp: Hyper, zeroed: bool = False) -> Array:
    """``z/z_total``, by which the norm of a share grows with its bit; ``zeroed`` if zero has a bit, too."""
    ratio: Array = 1 / jnp.sqrt(1 - 1 / ((1 if zeroed else 2) * hp["bit_noise"]) ** 2)
    return ratio


def with_bits(
    mechanism: Mechanism, noise: Key, v: Array, bits: Array, C: Array, z: Array, hp: Hyper
) -> Array:
    """The message of clipped values and bits +-1/2, with the noise that a client adds; z over z_total."""
    kappa = z / hp["bit_noise"]
    message: Array = jnp.concatenate([v, (kappa * C * bits)[None]])
    if not mechanism.central:
        message = message + normal(noise, mechanism, message, hp, C * z)
    return message


def _length(shared: Array, hp: Hyper) -> Array:
    """C, of which the state holds ln(C/C_0)."""
    C: Array = hp["clip"] * jnp.exp(shared)
    return C


def _close(
    shared: Array, v: Array, rate: Array, total: Array, hp: Hyper, zeroed: bool = False
) -> Array:
    kappa = stretch(hp, zeroed) / hp["bit_noise"]
    b = 0.5 + v[-1] / (kappa * _length(shared, hp))
    new: Array = shared - hp["clip_lr"] * (b - hp["quantile"])
    return new


def _unknown(values: Values) -> MessageBound:
    return None


@made
def minibatch_in_units(sampler: Sampler, zeroed: bool = False) -> Estimator:
    """The minibatch whose noise a server multiplies by ``C z/z_total``."""
    plain = minibatch(sampler)

    def unit(shared: PyTree, x: Array, hp: Hyper) -> Array:
        return _length(shared, hp) * stretch(hp, zeroed)

    return plain._replace(gradient=Gradient(plain.gradient.terms, unit=unit))


@made
def gradients(estimator: Estimator, mechanism: Mechanism) -> Local:
    """One minibatch: values are the gradients of records."""

    def init(problem: Problem, x: Array) -> tuple[PyTree, PyTree]:
        return jnp.zeros((), x.dtype), jnp.zeros(problem.n, jnp.int32)

    def run(
        client: Client, x: Array, shared: PyTree, turns: Array, problem: Problem, hp: Hyper
    ) -> tuple[Array, PyTree, Array]:
        C = _length(shared, hp)
        rows = estimator.sampler.draw(client.rows, turns, client.count, problem.m_max, hp)
        weight, batch = rows.weight.astype(x.dtype), client.take(rows)
        now = Hyper({**hp.values, "clip": C}, hp.capacity)
        point = at_point(estimator.gradient, problem.model, (), x, now)
        g, _ = evaluated(point, weight, batch, client.points)
        factors = point.kernel.factors(x, batch)
        square = point.kernel.inner(factors, factors, batch).reshape(weight.size, -1)
        inside = point.kernel.layers * square.max(1) <= C * C
        bits = jnp.sum(weight * jnp.where(inside, 0.5, -0.5))
        sent = with_bits(mechanism, client.noise, g + point.public, bits, C, stretch(hp), hp)
        return sent, turns + 1, jnp.sum(weight > 0, dtype=jnp.int32)

    return Local("gradients, adaptive clip", init, run, _unknown, _close, PARAMS)


@made
def reports(inner: Local, mechanism: Mechanism) -> Local:
    """A local procedure without noise: values are the reports x - theta_i of clients."""
    zeroed = mechanism.central

    def init(problem: Problem, x: Array) -> tuple[PyTree, PyTree]:
        return jnp.zeros((), x.dtype), inner.init(problem, x)[1]

    def run(
        client: Client, x: Array, shared: PyTree, memory: PyTree, problem: Problem, hp: Hyper
    ) -> tuple[Array, PyTree, Array]:
        C = _length(shared, hp)
        unbounded = Hyper({**hp.values, "clip": jnp.full_like(C, jnp.inf)}, hp.capacity)
        g, memory, count = inner.run(client, x, (), memory, problem, unbounded)
        bits = jnp.where(jnp.sum(g * g) <= C * C, 0.5, -0.5).astype(x.dtype)
        g = clip(g, C, problem.model.kernel.smooth)
        z = stretch(hp, zeroed)
        return with_bits(mechanism, client.noise, g, bits, C, z, hp), memory, count

    params = (*inner.params, *PARAMS[:-1], LOUDER if zeroed else BIT_NOISE)
    close = functools.partial(_close, zeroed=zeroed)
    return Local(f"{inner.name}, adaptive clip", init, run, _unknown, close, params)


@made
def of_values(inner: Server) -> Server:
    """The step of a server with the mean of the values, without that of their bits."""

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        return inner.step(key, state, v[:-1], project, hp)

    return inner._replace(step=step)
