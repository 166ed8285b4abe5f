"""Noise that makes one client's estimate private, at the client or at a trusted server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, require
from jaxfl.core.fusion import in_own_loop
from jaxfl.core.keys import at
from jaxfl.core.normals import normal_at
from jaxfl.core.params import number
from jaxfl.core.params import whole as whole_number
from jaxfl.core.provenance import made, own_function
from jaxfl.core.records import document_all
from jaxfl.core.types import LARGEST, Array, Hyper, Key, Mechanism, Param, Recursion
from jaxfl.privacy.events import Event, NoClaim
from jaxfl.privacy.releases import correlates

__all__ = [
    "Past",
    "banded",
    "buffered",
    "cancelling",
    "central",
    "correlated",
    "drawn",
    "gaussian",
    "in_units",
    "independent",
    "multiples_of",
    "noiseless",
    "normal",
    "past",
    "remembered",
    "response",
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
def correlated(
    weights: tuple[float, ...], central: bool = False, shows: bool = False, stored: bool = False
) -> Mechanism:
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

    ``stored``: the same noise up to rounding, from the last vectors z, one less than w has terms, which the
    state holds: of each client where each draws its own noise.  A round then draws one vector.
    """
    require(weights[:1] == (1.0,), "must begin with 1", "divide by the first", weights=weights)
    gain = weights[1:] if stored else ()
    return _correlated(weights, central, shows, Recursion(gain) if gain else None)


def _correlated(
    weights: tuple[float, ...], central: bool, shows: bool, recursion: Recursion | None
) -> Mechanism:
    def event(one: Event, T: int) -> Event | NoClaim:
        if one.releases != T:
            return NoClaim(
                "noise that is correlated over rounds needs all rounds of a run to be alike"
            )
        found = dataclasses.replace(one, correlation=weights)
        return NoClaim(why) if (why := correlates(found)) else found

    params = (MEAN_SIGMA,) if central else (SIGMA,)
    name = "correlated" + " by shows" * shows + ", stored" * (recursion is not None)
    made = Mechanism(name, sigma, params, central, weights=weights, event=event)
    return made._replace(shows=shows, recursion=recursion)


@made
def _recursive(recursion: Recursion, rounds: int, central: bool, shows: bool) -> Mechanism:
    """Noise of a recursion, with the weights that it has over so many rounds."""
    return _correlated(response(recursion, rounds), central, shows, recursion)


def response(recursion: Recursion, rounds: int) -> tuple[float, ...]:
    """The weights w of a recursion over so many rounds: its outcomes for z = (1, 0, 0, ...)."""
    gain, decay = np.asarray(recursion.gain), np.asarray(recursion.decay)
    stored, weights = np.zeros(gain.size), []
    for t in range(rounds):
        z = float(t == 0)
        weights.append(z + float(gain @ stored))
        v = weights[-1] if recursion.feeds else z
        stored = decay * stored + v if decay.size else np.append(v, stored[:-1])
    return tuple(weights)


def banded(
    bands: int, central: bool = False, shows: bool = False, stored: bool = False
) -> Mechanism:
    """:func:`correlated`, w the first coefficients of ``(1 - B)^{1/2}`` [BISR; Kalinin, Lampert, 2025].

    Sums of all rounds so far then have little noise, as in one pass over the records.  Where each
    record is in every round, independent noise is as good: take :func:`gaussian`.
    """
    weights = [1.0]
    for j in range(1, int(whole_number("bands", bands, 1))):
        weights.append(weights[-1] * (j - 1.5) / j)
    return correlated(tuple(weights), central, shows, stored)


def strategy(
    column: npt.ArrayLike,
    rounds: int,
    central: bool = False,
    shows: bool = False,
    stored: bool = False,
) -> Mechanism:
    """:func:`correlated` by the Toeplitz matrix C with this first column, w the first coefficients of 1/c.

    For the strategies of others, such as BandMF [Choquette-Choo et al., 2023] and BLT [McMahan et al.,
    2024], which jax_privacy optimizes (the extra ``mf``)::

        from jax_privacy.matrix_factorization import toeplitz
        mechanism = strategy(toeplitz.optimize_banded_toeplitz(rounds, bands=8), rounds)

    C is scaled to have ones on its diagonal.  Nothing is stored: a round draws the noise of all rounds so
    far, ``rounds`` times, so that this is for short runs.  ``stored``: one draw, and the state holds the
    noise xi of as many earlier rounds as c has further terms, since
    ``xi_t = sigma z_t - sum_{j >= 1} c_j xi_{t-j}``: few where C is banded.  A run with more rounds has no
    statement.
    """
    c, number = np.asarray(column, np.float64), int(whole_number("rounds", rounds, 1))
    require(
        c.ndim == 1 and np.isfinite(c).all() and c[:1].all() and c.size,
        "must be the first column of C, numbers of which the first is not 0",
        column=column,
    )
    c = np.trim_zeros(c[:number] / c[0], "b")
    made = _recursive(Recursion(tuple((-c[1:]).tolist()), feeds=True), number, central, shows)
    return made if stored and c.size > 1 else correlated(made.weights, central, shows)


def buffered(
    decay: npt.ArrayLike,
    scale: npt.ArrayLike,
    rounds: int,
    central: bool = False,
    shows: bool = False,
) -> Mechanism:
    """:func:`correlated` by a BLT, ``c_j = sum_i scale_i decay_i^{j-1}``, j >= 1, with its buffers stored::

        xi_t = sigma z_t - sum_i scale_i s_i,   s_i <- decay_i s_i + xi_t

    [McMahan, Xu, Zhang, 2024].  ``rounds``: those of a run; one with more has no statement.  jax_privacy
    optimizes both (the extra ``mf``)::

        from jax_privacy.matrix_factorization import buffered_toeplitz
        blt = buffered_toeplitz.optimize(n=rounds, min_sep=50, max_participations=rounds // 50)
        mechanism = buffered(blt.buf_decay, blt.output_scale, rounds)
    """
    decay, scale = np.asarray(decay, np.float64), np.asarray(scale, np.float64)
    require(
        decay.ndim == 1 and decay.shape == scale.shape and decay.size > 0,
        "must be as many numbers as decay, one of each buffer",
        scale=scale.tolist(),
    )
    for name, numbers in (("decay", decay), ("scale", scale)):
        for each in numbers.tolist():
            number(name, each, above=0, below=LARGEST)
    recursion = Recursion(tuple((-scale).tolist()), tuple(decay.tolist()), feeds=True)
    return _recursive(recursion, int(whole_number("rounds", rounds, 1)), central, shows)


def independent(mechanism: Mechanism) -> bool:
    """Whether the noise of a round has nothing to do with that of others."""
    alone = mechanism.weights == (1.0,) and mechanism.recursion is None
    return alone and not mechanism.shows


class Past(NamedTuple):
    """What noise remembers of earlier rounds.

    Fields:
        counts: how often each coordinate was shown, (d,); None: noise does not count it.
        vectors: s_i of a recursion, each (d,), or (d, number) where they are of each coordinate's shows;
            None: there is none.
    """

    counts: Array | None
    vectors: Any


def remembered(mechanism: Mechanism, x: Array) -> Past | None:
    """What noise remembers before the first round; None: nothing."""
    recursion, shows = mechanism.recursion, mechanism.shows
    if recursion is None and not shows:
        return None
    vectors: Any = None
    if recursion is not None:
        number = len(recursion.gain)
        vectors = jnp.zeros((x.size, number), x.dtype) if shows else (jnp.zeros_like(x),) * number
    return Past(jnp.zeros(x.size, jnp.int32) if shows else None, vectors)


def past(mechanism: Mechanism, stream: Key, t: Array, key: Callable[..., Key] = at) -> Key:
    """The ``key`` of round t of a stream, or (..., p) those of the rounds whose draws noise is made of.

    That of no round, where noise counts what is shown.
    """
    p = len(mechanism.weights) if mechanism.recursion is None else 1
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
) -> Array:
    """Independent noise with the shape and dtype of ``like``, times ``unit``."""
    if mechanism.std is None:
        return jnp.zeros_like(like)
    if not independent(mechanism):
        why = "is correlated over rounds, which the noise of local steps and of networks is not"
        raise InputError(why, "take jaxfl.parts.mechanisms.gaussian()", mechanism=mechanism.name)
    return mechanism.draw(key, _std(mechanism, like, hp, unit), like)


def drawn(
    key: Key,
    mechanism: Mechanism,
    like: Array,
    hp: Hyper,
    unit: Array | None,
    t: Array,
    index: Array | None = None,
    past: Past | None = None,
) -> tuple[Array, Past | None]:
    """The noise of ``like``, times ``unit``, from the keys of :func:`past`; and what it remembers then.

    Correlated noise may be drawn at the coordinates ``index`` alone, (k,).  Large draws have loops of their
    own.
    """
    if mechanism.std is None:
        return jnp.zeros_like(like), past
    std = _std(mechanism, like, hp, unit)
    if mechanism.shows and (past is None or index is None):
        why = "counts the messages that show a coordinate, and here no sparsifier chooses them"
        raise InputError(why, "leave shows out", mechanism=mechanism.name)
    if mechanism.recursion is not None:
        return _recalled(key, mechanism, mechanism.recursion, like, std, t, index, past)
    if independent(mechanism):
        return in_own_loop(lambda: mechanism.draw(key, std, like), t), None
    counts = None if past is None else past.counts
    total = in_own_loop(lambda: _summed(key, mechanism, like, std, t, index, counts), t)
    return total, past if counts is None else Past(_counted(counts, index), None)


def _std(mechanism: Mechanism, like: Array, hp: Hyper, unit: Array | None) -> Array:
    assert mechanism.std is not None
    std = mechanism.std(hp)
    require(
        jnp.shape(std) in ((), like.shape),
        lambda: (
            f"The std of the mechanism {mechanism.name!r} has shape {jnp.shape(std)}, and there are "
            f"{like.shape} coordinates to noise"
        ),
        "return one number, or one for each coordinate",
    )
    return std if unit is None else std * unit


def _summed(
    key: Key,
    mechanism: Mechanism,
    like: Array,
    std: Array,
    t: Array,
    index: Array | None,
    counts: Array | None,
) -> Array:
    """``sum_j w_j z_{t-j}``, every z drawn anew: of past rounds, or of past shows."""
    weights, now = mechanism.weights, t
    if index is not None:
        std = jnp.broadcast_to(std, like.shape).at[index].get(mode="clip")
        now = t if counts is None else counts.at[index].get(mode="clip")
    keys = key if len(weights) > 1 or counts is not None else key[None]
    w = jnp.asarray(weights, like.dtype)

    def add(j: Array, total: Array) -> Array:
        if index is None:
            z = mechanism.draw(keys[j], std, like)
        elif counts is None:
            z = _at(keys[j], mechanism, std, like, index)
        else:
            z = _at(keys, mechanism, std, like, index, jnp.maximum(now - j, 0))
        return total + jnp.where(j <= now, w[j], 0) * z

    start = jnp.zeros(like.shape if index is None else index.shape, like.dtype)
    total: Array = jax.lax.fori_loop(0, len(weights), add, start)
    return total


def _at(
    key: Key,
    mechanism: Mechanism,
    std: Array,
    like: Array,
    index: Array,
    shows: Array | None = None,
) -> Array:
    """z at some coordinates, each by a counter of its own; of these shows of theirs.

    By rounds it is what a draw of all coordinates has there.
    """
    if mechanism.draw is Mechanism._field_defaults["draw"]:
        return std * normal_at(key, index, like.dtype, shows)
    place = jnp.zeros((), like.dtype)

    def draw(key: Key, i: Array, std: Array) -> Array:
        return mechanism.draw(jax.random.fold_in(key, i), std, place)

    if shows is None:
        return jax.vmap(draw, (None, 0, 0))(key, index, std)
    return jax.vmap(draw)(jax.vmap(jax.random.fold_in, (None, 0))(key, shows), index, std)


def _recalled(
    key: Key,
    mechanism: Mechanism,
    recursion: Recursion,
    like: Array,
    std: Array,
    t: Array,
    index: Array | None,
    past: Past | None,
) -> tuple[Array, Past]:
    """One draw z, and a sum of stored vectors; by rounds of all coordinates, also where few are sent."""
    assert past is not None
    one, counts = jnp.ones((), like.dtype), past.counts
    if index is None or counts is None:
        z = in_own_loop(lambda: mechanism.draw(key, one, like), t)
        y, vectors = _step(recursion, z, past.vectors)
        xi = std * y
        return xi if index is None else xi.at[index].get(mode="clip"), Past(None, vectors)
    shows = counts.at[index].get(mode="clip")
    ones, rows = jnp.ones_like(index, like.dtype), past.vectors.at[index].get(mode="clip")
    z = in_own_loop(lambda: _at(key, mechanism, ones, like, index, shows), t)
    y, columns = _step(recursion, z, tuple(rows.T))
    vectors = past.vectors.at[index].set(jnp.stack(columns, axis=-1), mode="drop")
    std = jnp.broadcast_to(std, like.shape).at[index].get(mode="clip")
    return std * y, Past(_counted(counts, index), vectors)


def _step(recursion: Recursion, z: Array, s: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    """``z + sum_i gain_i s_i``, and the next s."""
    y = z
    for gain, each in zip(recursion.gain, s, strict=True):
        y = y + gain * each
    v = y if recursion.feeds else z
    if not recursion.decay:
        return y, (v, *s[:-1])
    return y, tuple(decay * each + v for decay, each in zip(recursion.decay, s, strict=True))


def _counted(counts: Array, index: Array | None) -> Array:
    """With one more show of these coordinates; XLA would copy all counts before it adds to some."""
    return counts.at[index].set(counts.at[index].get(mode="clip") + 1, mode="drop")


document_all(__name__)
