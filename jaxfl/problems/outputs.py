"""Losses of a model's output z and a label y, with their labels and curvature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.checks import labels_below
from jaxfl.core.errors import require
from jaxfl.core.params import known, whole
from jaxfl.core.types import Array, PyTree

__all__ = ["OUTPUTS", "Output", "check_examples", "output"]


class Output(NamedTuple):
    """``loss(z, y)``; z is one number, or one number per class."""

    name: str
    loss: Callable[[Array, Array], Array]
    labels: Literal["binary", "classes", "real", "any"]
    correct: Callable[[Array, Array], Array] | None = None
    curvature: float | None = None  # bound on the norm of the Hessian in z, where one is known

    def classes(self, classes: int) -> int:
        """``classes``; raises where the loss does not apply to as many."""
        classes = whole("classes", classes, 0)
        fits = {"binary": classes == 2, "classes": classes >= 2, "real": classes == 0}
        require(
            fits.get(self.labels, True),
            lambda: f"The {self.name} loss does not serve {classes} classes",
            "use 'logistic' or 'hinge' for 2, 'softmax' for 2 or more, 'least_squares' or "
            "'absolute' for 0 (real labels)",
        )
        return classes


def sign(z: Array, y: Array) -> Array:
    """``s = 2y - 1``: labels {0, 1} as {-1, 1}."""
    return 2 * jnp.asarray(y).astype(z.dtype) - 1


@jax.custom_jvp
def softplus(u: Array) -> Array:
    """``log(1 + exp(u))``; its derivative as one sigmoid, where the chain rule takes two exp."""
    return jnp.maximum(u, 0) + jnp.log1p(jnp.exp(-jnp.abs(u)))


softplus.defjvps(lambda du, out, u: jax.nn.sigmoid(u) * du)


def logistic(z: Array, y: Array) -> Array:
    """``log(1 + exp(-s z))``."""
    value: Array = softplus(-sign(z, y) * z)
    return value


def hinge(z: Array, y: Array) -> Array:
    """``max(0, 1 - s z)``."""
    return jnp.maximum(0, 1 - sign(z, y) * z)


def least_squares(z: Array, y: Array) -> Array:
    """``(z - y)^2 / 2``."""
    return (z - y) ** 2 / 2


def absolute(z: Array, y: Array) -> Array:
    """``|z - y|``."""
    return jnp.abs(z - y)


def softmax(z: Array, y: Array) -> Array:
    """``log sum_k exp(z_k) - z_y``."""
    # not a product with a one-hot row: of many cells and seeds, the CPU compiler of jaxlib 0.10.2 gets
    # that product wrong (from 65,536 numbers of one seed on)
    return jax.nn.logsumexp(z) - jnp.sum(jnp.where(jnp.arange(z.shape[0]) == y, z, 0))


def right_sign(z: Array, y: Array) -> Array:
    return (z > 0) == (y == 1)


def right_class(z: Array, y: Array) -> Array:
    return jnp.argmax(z) == y


OUTPUTS = {
    "logistic": Output("logistic", logistic, "binary", right_sign, 1 / 4),
    "softmax": Output("softmax", softmax, "classes", right_class, 1 / 2),
    "least_squares": Output("least_squares", least_squares, "real", None, 1.0),
    "hinge": Output("hinge", hinge, "binary", right_sign),
    "absolute": Output("absolute", absolute, "real"),
}


def output(
    spec: str | Callable[[Array, Array], Array] | None,
    classes: int,
    correct: Callable[[Array, Array], Array] | None = None,
) -> Output:
    """A loss by name (None: softmax, or least squares for 0 classes), or one of the user's own."""
    if callable(spec):
        return Output("custom", spec, "any", correct)
    usual = "least_squares" if classes == 0 else "softmax"
    return known("loss", usual if spec is None else spec, OUTPUTS)


def check_examples(
    shape: tuple[int, ...], out: Output, classes: int, *, whole: bool = False
) -> Callable[[PyTree], None]:
    """A function that raises unless pairs (features, labels) suit the model.

    It checks the shape of one example's features and the range of the labels.  Features are real
    numbers, or integers (``whole``).
    """

    def check(examples: Any) -> None:
        pairs = isinstance(examples, tuple | list) and len(examples) >= 2
        require(pairs, "This model takes pairs (features, labels)", "pass a tuple of two arrays")
        a, y = examples[0], np.asarray(examples[1])
        own, alike = a.shape[y.ndim :], a.shape[: y.ndim] == y.shape
        way = f"make the model for {own}" if alike else ""
        if alike and math.prod(own) == math.prod(shape):
            to = f"lambda x: x.reshape(x.shape[:-{len(own)}] + {shape})"
            way = f"reshape them with jaxfl.data.map_features(data, {to}), or {way}"
        wrong = (
            f"The model takes features of shape {shape} and one label for each, and the data "
            f"hold features {a.shape} and labels {y.shape}, the leading axes being rows"
        )
        require(alike and own == shape, wrong, way)
        wanted = jnp.integer if whole else jnp.floating
        wrong = f"Features have dtype {a.dtype}, and the model takes {'integers' if whole else 'floats'}"
        way = "convert (and scale) them, or make the model for a sample like them"
        require(jnp.issubdtype(a.dtype, wanted), wrong, way)
        if out.labels in ("binary", "classes"):
            more = ", or make a model for more classes" if np.any(y >= classes) else ""
            labels_below("Labels", y, classes, more)

    return check
