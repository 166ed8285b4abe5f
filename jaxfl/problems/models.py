"""Models: a loss per example over a flat vector, with an initial point and per-example gradients.

Equal calls return the same object, by which compiled programs are found again.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.checks import bind
from jaxfl.core.errors import require
from jaxfl.core.hosts import gathered, on_host
from jaxfl.core.params import known, whole
from jaxfl.core.types import Array, Key, Model, PyTree
from jaxfl.problems import outputs, public
from jaxfl.problems.custom import custom
from jaxfl.problems.flax_models import flax_model
from jaxfl.problems.kernels import dense_kernel, linear_kernel
from jaxfl.problems.outputs import OUTPUTS, Output, check_examples
from jaxfl.problems.parameters import Init, check_init, initializer, layout
from jaxfl.problems.public import Constraint, Regularizer, ball, box, l2, nonconvex

__all__ = [
    "MODELS",
    "Layer",
    "absolute",
    "ball",
    "box",
    "custom",
    "default_model",
    "flax_model",
    "hinge",
    "l2",
    "least_squares",
    "logistic",
    "mlp",
    "model",
    "nonconvex",
    "softmax_regression",
]

Reg = str | Regularizer | None
Set = str | Constraint | None
Activation = Callable[[Array], Array]


class Layer(NamedTuple):
    """Parameters of a dense layer ``z = u W + b``."""

    weight: Array  # (in, out)
    bias: Array | None


ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
}


# --- linear models -------------------------------------------------------------------------------


def logistic(
    features: int, *, regularizer: Reg = None, constraint: Set = None, init: Init = "zeros"
) -> Model:
    """``f_j(x) = log(1 + exp(-s_j a_j . x))``, ``s_j = 2 y_j - 1``, labels {0, 1}.

    ``L = max ||a||^2 / 4`` plus the regularizer's.
    """
    return _linear("logistic", features, regularizer, constraint, init)


def least_squares(
    features: int, *, regularizer: Reg = None, constraint: Set = None, init: Init = "zeros"
) -> Model:
    """``f_j(x) = (a_j . x - y_j)^2 / 2``; ``L = max ||a||^2`` plus the regularizer's."""
    return _linear("least_squares", features, regularizer, constraint, init)


def hinge(
    features: int, *, regularizer: Reg = None, constraint: Set = None, init: Init = "zeros"
) -> Model:
    """``f_j(x) = max(0, 1 - s_j a_j . x)``, ``s_j = 2 y_j - 1``, labels {0, 1}; not smooth."""
    return _linear("hinge", features, regularizer, constraint, init)


def absolute(
    features: int, *, regularizer: Reg = None, constraint: Set = None, init: Init = "zeros"
) -> Model:
    """``f_j(x) = |a_j . x - y_j|``; not smooth."""
    return _linear("absolute", features, regularizer, constraint, init)


def _linear(name: str, features: int, reg: Reg, within: Set, init: Init) -> Model:
    features = whole("features", features, 1)
    classes = 2 if OUTPUTS[name].labels == "binary" else 0
    return _dense(name, (features, 1), OUTPUTS[name], classes, None, False, reg, within, init)


# --- several outputs or layers -------------------------------------------------------------------


def softmax_regression(
    features: int,
    classes: int,
    *,
    bias: bool = True,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = "zeros",
) -> Model:
    """``f_j(W) = log sum_k exp(z_k) - z_y``, ``z = a_j W (+ b)``; labels 0, ..., classes - 1.

    ``L = max ||a||^2 / 2`` (``||a||^2 + 1`` with a bias) plus the regularizer's.

    >>> softmax_regression(64, 10).dim
    650
    """
    features, out = whole("features", features, 1), OUTPUTS["softmax"]
    widths = features, out.classes(classes)
    return _dense("softmax", widths, out, classes, None, bias, regularizer, constraint, init)


def mlp(
    features: int,
    hidden: int | Sequence[int] = (64,),
    classes: int = 10,
    *,
    activation: str | Activation = "sigmoid",
    loss: str | None = None,
    bias: bool = True,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = None,
) -> Model:
    """Dense layers with one activation between them.

    ``loss`` is softmax with an output per class by default, least squares with one output for
    ``classes=0``; "logistic" and "hinge" take one output for two classes.  Weights start as
    N(0, 1/in) and biases at 0; ``init="normal/5"`` draws all of them from N(0, 1/25).
    """
    widths: Any = [hidden] if isinstance(hidden, int | np.integer) else hidden
    listed = isinstance(widths, Iterable) and not isinstance(widths, str | bytes)
    require(listed, "must be the width of a layer, or a list of them", hidden=hidden)
    out = outputs.output(loss, whole("classes", classes, 0))
    classes = out.classes(classes)
    if not callable(activation):
        activation = known("activation", activation, ACTIVATIONS)
    sizes = (features, *widths, classes if out.labels == "classes" else 1)
    sizes = tuple(whole("width of a layer", size, 1) for size in sizes)
    name = "mlp-" + "-".join(map(str, sizes))
    return _dense(name, sizes, out, classes, activation, bias, regularizer, constraint, init)


def _dense(
    name: str,
    widths: tuple[int, ...],
    out: Output,
    classes: int,
    activation: Activation | None,
    bias: bool,
    reg: Reg,
    within: Set,
    init: Init,
) -> Model:
    options = bool(bias), public.regularizer(reg), public.constraint(within), check_init(init)
    return _build(name, widths, out, classes, activation, *options)


@lru_cache(maxsize=256)
def _build(
    name: str,
    widths: tuple[int, ...],
    out: Output,
    classes: int,
    activation: Activation | None,
    bias: bool,
    reg: Regularizer,
    within: Constraint,
    init: Init,
) -> Model:
    scalar = widths[-1] == 1
    linear = len(widths) == 2 and scalar and not bias

    def number(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    layers = [Layer(number(i, o), number(o) if bias else None) for i, o in pairwise(widths)]
    params = layout(number(widths[0]) if linear else tuple(layers))

    def forward(x: Array, a: Array) -> Array:
        if linear:
            return x @ a  # in this order, many x give rows of outputs without a transposition
        u = a
        for l, (W, b) in enumerate(params.unravel(x)):
            if l > 0:
                assert activation is not None
                u = activation(u)
            u = u @ W if b is None else u @ W + b
        return u[0] if scalar else u

    def loss(x: Array, example: PyTree) -> Array:
        return out.loss(forward(x, example[0]), example[1])

    def output_loss(z: Array, example: PyTree) -> Array:
        return out.loss(z, example[1])

    def fan_in(key: Key) -> PyTree:
        keys = jax.random.split(key, len(layers))
        return tuple(
            Layer(
                jax.random.normal(k, W.shape, jnp.float32) / math.sqrt(W.shape[0]),
                None if b is None else jnp.zeros(b.shape, jnp.float32),
            )
            for k, (W, b) in zip(keys, layers, strict=True)
        )

    def smoothness(train: PyTree, count: Any) -> float:
        assert out.curvature is not None
        return out.curvature * (largest_square(train[0], count) + bias) + reg.smoothness

    correct = out.correct
    return Model(
        name=name,
        dim=params.dim,
        init=initializer(init, params, fan_in),
        unravel=params.unravel,
        loss=loss,
        regularizer=reg.value,
        kernel=linear_kernel(output_loss)
        if linear
        else dense_kernel(widths, output_loss, activation, bias),
        correct=None if correct is None else lambda x, e: correct(forward(x, e[0]), e[1]),
        project=within.project,
        smoothness=smoothness if len(widths) == 2 and out.curvature is not None else None,
        diameter=within.diameter(params.dim),
        check=check_examples((widths[0],), out, classes),
        convex=(len(widths) == 2 and reg.convex) if out.name in OUTPUTS else None,
    )


def largest_square(a: Any, count: Any) -> float:
    """``max ||a_ij||^2`` over the examples that clients really have."""
    largest, count = 0.0, on_host(count)
    split = isinstance(a, jax.Array) and not a.is_fully_addressable
    parts = [(part.data, count[part.index[0]]) for part in a.addressable_shards] if split else []
    for clients, owned in parts or [(a, count)]:
        for a_i, m_i in zip(clients, owned, strict=True):
            rows = np.asarray(a_i)[:m_i]
            largest = max(largest, float(np.einsum("jk,jk->j", rows, rows, dtype=np.float64).max()))
    return float(gathered(largest).max()) if split else largest


# --- by name -------------------------------------------------------------------------------------

MODELS: dict[str, Callable[..., Model]] = {
    "logistic": logistic,
    "softmax": softmax_regression,
    "least_squares": least_squares,
    "hinge": hinge,
    "absolute": absolute,
    "mlp": mlp,
}


def model(name: str, features: int | tuple[int, ...], classes: int, **options: Any) -> Model:
    """The model of that name for data with so many features and classes (0: real labels).

    A model of images takes their shape in place of the number of features.
    """
    make = known("model", name, MODELS)
    if "classes" in inspect.signature(make).parameters:
        options["classes"] = classes
    else:
        OUTPUTS[name].classes(classes)
    return bind("Model", name, make, features, **options)


def default_model(classes: int, features: int, **options: Any) -> Model:
    """Logistic regression for two classes, softmax for more, least squares for 0 (real labels)."""
    classes = whole("classes", classes, 0)
    require(classes != 1, "leaves nothing to learn", "take data with several", classes=classes)
    name = {0: "least_squares", 2: "logistic"}.get(classes, "softmax")
    return model(name, features, classes, **options)
