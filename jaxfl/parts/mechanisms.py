"""Noise that makes one client's estimate private, at the client or at a trusted server."""

from __future__ import annotations

import jax

from jaxfl.core.errors import require
from jaxfl.core.provenance import made, own_function
from jaxfl.core.types import LARGEST, Array, Hyper, Key, Mechanism, Param

__all__ = ["central", "gaussian", "noiseless", "normal", "sigma"]

SIGMA = Param(
    "sigma", "standard deviation of the noise on a coordinate of a client's estimate", high=LARGEST
)
MEAN_SIGMA = SIGMA._replace(doc="standard deviation of the noise on a coordinate of the mean")


@own_function
def sigma(hp: Hyper) -> Array:
    """The hyper-parameter ``sigma``."""
    std: Array = hp["sigma"]
    return std


@made
def gaussian() -> Mechanism:
    """xi ~ N(0, sigma^2 I) added to the estimate, ``sigma`` on the scale of the released mean."""
    return Mechanism("gaussian", sigma, params=(SIGMA,))


@made
def central() -> Mechanism:
    """xi ~ N(0, sigma^2 I) added to the mean of the messages by a server that clients trust."""
    return Mechanism("central", sigma, params=(MEAN_SIGMA,), central=True)


@made
def noiseless() -> Mechanism:
    """No noise: a non-private reference."""
    return Mechanism("none", std=None)


def normal(
    key: Key, mechanism: Mechanism, like: Array, hp: Hyper, unit: Array | None = None
) -> Array:
    """One draw of the noise with the shape and dtype of ``like``, times ``unit``."""
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
    return mechanism.draw(key, std if unit is None else std * unit, like)
