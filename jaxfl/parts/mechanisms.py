"""Noise that makes one client's estimate private, at the client or at a trusted server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, require
from jaxfl.core.keys import at
from jaxfl.core.params import number
from jaxfl.core.params import whole as whole_number
from jaxfl.core.provenance import made, own_function
from jaxfl.core.types import LARGEST, Array, Hyper, Key, Mechanism, Param
from jaxfl.privacy.events import Event, NoClaim
from jaxfl.privacy.releases import correlates

__all__ = [
    "banded",
    "cancelling",
    "central",
    "correlated",
    "gaussian",
    "in_units",
    "multiples_of",
    "noiseless",
    "normal",
    "past",
    "sigma",
    "strategy",
]

SIGMA = Param(
    "sigma", "standard deviation of the noise on a coordinate of a client's estimate", high=LARGEST
)
COUPLING = Param(
    "coupling",
    "ratio sigma_c/sigma of the noise that two neighbours share to a client's own",
    high=LARGEST,
)
NEVER = 2**31 - 1  # no round has this number
MEAN_SIGMA = SIGMA._replace(doc="standard deviation of the noise on a coordinate of the mean")


@own_function
def sigma(hp: Hyper) -> Array:
    """The hyper-parameter ``sigma``."""
    std: Array = hp["sigma"]
    return std


@made
def gaussian(multiples: tuple[float, ...] = ()) -> Mechanism:
    """xi ~ N(0, sigma^2 I) added to the estimate, ``sigma`` on the scale of the released mean.

    With ``multiples``, which are public, client i adds ``multiples[i]`` times as much: see
    :func:`jaxfl.parts.with_budgets`.
    """
    for each in multiples:
        number("multiple", each, above=0, below=LARGEST)
    return Mechanism("gaussian", sigma, params=(SIGMA,), multiples=tuple(multiples))


def multiples_of(mechanism: Mechanism, index: Array) -> Array | None:
    """The multiples of these clients' noise; None: 1."""
    return jnp.asarray(mechanism.multiples)[index] if mechanism.multiples else None


def in_units(unit: Array | None, multiple: Array | None) -> Array | None:
    """The unit of a client's noise, which has a multiple of its own."""
    return unit if multiple is None else multiple if unit is None else multiple * unit


@made
def central() -> Mechanism:
    """xi ~ N(0, sigma^2 I) added to the mean of the messages by a server that clients trust."""
    return Mechanism("central", sigma, params=(MEAN_SIGMA,), central=True)


@made
def cancelling() -> Mechanism:
    """``w_i + sum_{j ~ i} v_ij`` in a network, w_i ~ N(0, sigma^2 I), v_ij = -v_ji ~ N(0, (c sigma)^2 I).

    v_ij is drawn from a seed that i and j alone know.  In the sum of all clients the v_ij cancel, and who
    knows no seed of a client sees them [:mod:`jaxfl.privacy.networks`].  ``coupling`` is c.
    """
    return Mechanism("cancelling", sigma, params=(SIGMA, COUPLING), coupled=True)


@made
def noiseless() -> Mechanism:
    """No noise: a non-private reference."""
    return Mechanism("none", std=None)


@made
def correlated(weights: tuple[float, ...], central: bool = False, shows: bool = False) -> Mechanism:
    """``sum_j w_j z_{t-j}`` in round t, z_s ~ N(0, sigma^2 I), drawn from the keys of rounds, not stored.

    With ``C = w(B)^{-1}``, B the shift by a round, T rounds are one Gaussian release of C times the
    estimates [Denisov et al., 2022].  What that is worth is known where each record is in every round, in
    one, or in rounds that far apart [:func:`jaxfl.privacy.releases.strategy_norm`].

    Under a sparsifier noise is correlated as if all coordinates were sent.  With ``shows``, t counts the
    messages in which a client has sent the coordinate, so that terms cancel in the sum of what was sent,
    however rarely that is.  Counts are state, an integer for each client and coordinate.
    [:func:`jaxfl.privacy.releases.shown_norm`] says what that is worth.

    w_0 = 1: each use of a record then costs as much as under independent noise, or more.  What is released
    beside, such as the bits of an adaptive clip, is accounted for as a share of that.
    """
    require(weights[:1] == (1.0,), "must begin with 1", "divide by the first", weights=weights)

    def event(one: Event, T: int) -> Event | NoClaim:
        if one.releases != T:
            return NoClaim(
                "noise that is correlated over rounds needs all rounds of a run to be alike"
            )
        found = dataclasses.replace(one, correlation=weights)
        return NoClaim(why) if (why := correlates(found)) else found

    params = (MEAN_SIGMA,) if central else (SIGMA,)
    name = "correlated by shows" if shows else "correlated"
    return Mechanism(name, sigma, params, central, weights=weights, event=event, shows=shows)


def banded(bands: int, central: bool = False, shows: bool = False) -> Mechanism:
    """:func:`correlated`, w the first coefficients of ``(1 - B)^{1/2}`` [BISR; Kalinin, Lampert, 2025].

    Sums of all rounds so far then have little noise, as in one pass over the records.  Where each
    record is in every round, independent noise is as good: take :func:`gaussian`.
    """
    weights = [1.0]
    for j in range(1, int(whole_number("bands", bands, 1))):
        weights.append(weights[-1] * (j - 1.5) / j)
    return correlated(tuple(weights), central, shows)


def strategy(
    column: npt.ArrayLike, rounds: int, central: bool = False, shows: bool = False
) -> Mechanism:
    """:func:`correlated` by the Toeplitz matrix C with this first column, w the first coefficients of 1/c.

    For the strategies of others, such as BandMF [Choquette-Choo et al., 2023] and BLT [McMahan et al.,
    2024], which jax_privacy optimizes (the extra ``mf``)::

        from jax_privacy.matrix_factorization import toeplitz
        mechanism = strategy(toeplitz.optimize_banded_toeplitz(rounds, bands=8), rounds)

    C is scaled to have ones on its diagonal.  Nothing is stored: a round draws the noise of all rounds so
    far, ``rounds`` times, so that this is for short runs.  One with more rounds has no statement, since
    what follows these coefficients is not those of 1/c.
    """
    from scipy.signal import lfilter

    c = np.asarray(column, np.float64)
    impulse = np.zeros(int(whole_number("rounds", rounds, 1)))
    impulse[0] = 1.0
    require(
        c.ndim == 1 and np.isfinite(c).all() and c[:1].all() and c.size,
        "must be the first column of C, numbers of which the first is not 0",
        column=column,
    )
    return correlated(tuple(lfilter([1.0], c / c[0], impulse).tolist()), central, shows)


def past(mechanism: Mechanism, stream: Key, t: Array, key: Callable[..., Key] = at) -> Key:
    """The ``key`` of round t of a stream, or (..., p) those of the rounds whose draws noise is made of.

    That of no round, where noise counts what is shown.
    """
    p = len(mechanism.weights)
    if mechanism.shows:
        return key(stream, jnp.int32(NEVER))
    if p == 1:
        return key(stream, t)
    return jax.vmap(key, (None, 0), -1)(stream, jnp.maximum(t - jnp.arange(p), 0))


def normal(
    key: Key,
    mechanism: Mechanism,
    like: Array,
    hp: Hyper,
    unit: Array | None = None,
    t: Array | None = None,
    index: Array | None = None,
    counts: Array | None = None,
) -> Array:
    """The noise with the shape and dtype of ``like``, times ``unit``, from the keys of :func:`past`.

    Correlated noise may be drawn at the coordinates ``index`` alone, (k,); ``counts`` says how often each
    coordinate was shown before, (d,).
    """
    if mechanism.std is None:
        return jax.numpy.zeros_like(like)
    std = mechanism.std(hp)
    require(
        jax.numpy.shape(std) in ((), like.shape),
        lambda: (
            f"The std of the mechanism {mechanism.name!r} has shape {jax.numpy.shape(std)}, and there are "
            f"{like.shape} coordinates to noise"
        ),
        "return one number, or one for each coordinate",
    )
    std = std if unit is None else std * unit
    weights = mechanism.weights
    if mechanism.shows and counts is None:
        why = "counts the messages that show a coordinate, and here no sparsifier chooses them"
        raise InputError(why, "leave shows out", mechanism=mechanism.name)
    if weights == (1.0,):
        return mechanism.draw(key, std, like)
    if t is None:
        why = "is correlated over rounds, which the noise of local steps and of networks is not"
        raise InputError(why, "take jaxfl.parts.mechanisms.gaussian()", mechanism=mechanism.name)
    if index is not None:
        return _of_coordinates(key, mechanism, like, std, t, index, counts)
    keys = key if len(weights) > 1 else key[None]
    w = jnp.where(jnp.arange(len(weights)) <= t, jnp.asarray(weights, like.dtype), 0)

    def add(j: Array, total: Array) -> Array:
        return total + w[j] * mechanism.draw(keys[j], std, like)

    total: Array = jax.lax.fori_loop(0, len(weights), add, jnp.zeros_like(like))
    return total


def _of_coordinates(
    key: Key,
    mechanism: Mechanism,
    like: Array,
    std: Array,
    t: Array,
    index: Array,
    counts: Array | None,
) -> Array:
    """Correlated noise at some coordinates, each with keys of its own, of past rounds or shows."""
    w, place = jnp.asarray(mechanism.weights, like.dtype), jnp.zeros((), like.dtype)
    std = jnp.broadcast_to(std, like.shape).at[index].get(mode="clip")
    now = t if counts is None else counts.at[index].get(mode="clip")

    def draw(key: Key, i: Array, std: Array) -> Array:
        return mechanism.draw(jax.random.fold_in(key, i), std, place)

    def add(j: Array, total: Array) -> Array:
        if counts is None:
            z = jax.vmap(draw, (None, 0, 0))(key[j], index, std)
        else:
            shows = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.maximum(now - j, 0))
            z = jax.vmap(draw)(shows, index, std)
        return total + jnp.where(j <= now, w[j], 0) * z

    start = jnp.zeros(index.shape, like.dtype)
    total: Array = jax.lax.fori_loop(0, len(mechanism.weights), add, start)
    return total
