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

from jaxfl.core import provenance
from jaxfl.core.checks import bind, instance, spelt
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
    "by_layer",
    "char_lstm",
    "cnn",
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
    "resnet_gn",
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


@spelt("Model")
def logistic(
    features: int,
    *,
    bias: bool = False,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = "zeros",
) -> Model:
    """``f_j(x) = log(1 + exp(-s_j a_j . x))``, ``s_j = 2 y_j - 1``, labels {0, 1}.

    ``L = max ||a||^2 / 4`` plus the regularizer's.  ``features`` is the length of a.  There is no
    intercept, as in papers whose features have a column of ones: ``bias=True`` adds b to ``a_j . x``,
    and 1 to ``||a||^2``.  Take it for features that are centred, unless the classes are of equal size.

    ``regularizer`` and ``constraint``, which act on the bias too, are names, such as ``"l2:0.01"`` and
    ``"ball:1"``, or made by :func:`l2`, :func:`nonconvex`, :func:`ball` and :func:`box`.  ``init`` is
    ``"zeros"``, ``"normal"`` for N(0, 1) on every coordinate, ``"normal/5"`` for a fifth of that, or a
    function of a key that returns the point.

    >>> logistic(8).dim, logistic(8, bias=True).dim
    (8, 9)
    """
    return _linear("logistic", features, bias, regularizer, constraint, init)


@spelt("Model")
def least_squares(
    features: int,
    *,
    bias: bool = False,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = "zeros",
) -> Model:
    """``f_j(x) = (a_j . x - y_j)^2 / 2``; ``L = max ||a||^2`` plus the regularizer's.

    There is no intercept without ``bias=True``.  The arguments are those of :func:`logistic`.

    >>> least_squares(8).dim
    8
    """
    return _linear("least_squares", features, bias, regularizer, constraint, init)


@spelt("Model")
def hinge(
    features: int,
    *,
    bias: bool = False,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = "zeros",
) -> Model:
    """``f_j(x) = max(0, 1 - s_j a_j . x)``, ``s_j = 2 y_j - 1``, labels {0, 1}; not smooth.

    There is no intercept without ``bias=True``.  The arguments are those of :func:`logistic`.

    >>> hinge(8, constraint="ball:1").dim
    8
    """
    return _linear("hinge", features, bias, regularizer, constraint, init)


@spelt("Model")
def absolute(
    features: int,
    *,
    bias: bool = False,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = "zeros",
) -> Model:
    """``f_j(x) = |a_j . x - y_j|``; not smooth.

    There is no intercept without ``bias=True``.  The arguments are those of :func:`logistic`.

    >>> absolute(8, regularizer="l2:0.1").dim
    8
    """
    return _linear("absolute", features, bias, regularizer, constraint, init)


def _linear(name: str, features: int, bias: bool, reg: Reg, within: Set, init: Init) -> Model:
    features = whole("features", features, 1)
    classes = 2 if OUTPUTS[name].labels == "binary" else 0
    return _dense(name, (features, 1), OUTPUTS[name], classes, None, bias, reg, within, init)


# --- several outputs or layers -------------------------------------------------------------------


@spelt("Model")
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

    ``L = max ||a||^2 / 2`` (``||a||^2 + 1`` with a bias) plus the regularizer's.  The other arguments are
    those of :func:`logistic`.

    >>> softmax_regression(64, 10).dim
    650
    """
    features, out = whole("features", features, 1), OUTPUTS["softmax"]
    widths = features, out.classes(classes)
    return _dense("softmax", widths, out, classes, None, bias, regularizer, constraint, init)


@spelt("Model")
def mlp(
    features: int,
    classes: int = 10,
    *,
    hidden: int | Sequence[int] = (64,),
    activation: str | Activation = "sigmoid",
    loss: str | None = None,
    bias: bool = True,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = None,
) -> Model:
    """Dense layers with one activation between them: ``hidden`` units in each layer but the last.

    ``loss`` is softmax with an output per class by default, least squares with one output for
    ``classes=0``; "logistic" and "hinge" take one output for two classes.  Weights start as
    N(0, 1/in) and biases at 0; ``init="normal/5"`` draws all of them from N(0, 1/25).  ``regularizer`` and
    ``constraint`` are those of :func:`logistic`.
    """
    widths = _widths("hidden", hidden)
    out = outputs.output(loss, whole("classes", classes, 0))
    classes = out.classes(classes)
    if not callable(activation):
        activation = known("activation", activation, ACTIVATIONS)
    last = classes if out.labels == "classes" else 1
    sizes = whole("width of a layer", features, 1), *widths, last
    name = "mlp-" + "-".join(map(str, sizes))
    return _dense(name, sizes, out, classes, activation, bias, regularizer, constraint, init)


def _widths(name: str, given: Any) -> tuple[int, ...]:
    """The widths of layers; raises unless ``given`` is one, or a list of them."""
    widths: Any = [given] if isinstance(given, int | np.integer) else given
    listed = isinstance(widths, Iterable) and not isinstance(widths, str | bytes)
    require(listed, "must be the width of a layer, or a list of them", **{name: given})
    return tuple(whole("width of a layer", width, 1) for width in widths)


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

    # a user's function sees one example at a time, whatever it does
    apart = activation
    if activation is not None and not any(activation is f for f in ACTIVATIONS.values()):
        apart = jax.vmap(activation)
    correct = out.correct
    made = Model(
        name=name,
        dim=params.dim,
        init=initializer(init, params, fan_in),
        unravel=params.unravel,
        loss=loss,
        regularizer=reg.value,
        kernel=linear_kernel(output_loss)
        if linear
        else dense_kernel(widths, output_loss, apart, bias),
        correct=None if correct is None else lambda x, e: correct(forward(x, e[0]), e[1]),
        project=within.project,
        smoothness=smoothness if len(widths) == 2 and out.curvature is not None else None,
        diameter=within.diameter(params.dim),
        check=check_examples((widths[0],), out, classes),
        convex=(len(widths) == 2 and reg.convex) if out.name in OUTPUTS else None,
    )
    return provenance.known_convexity(made) if provenance.own_part(reg) else made


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


# --- deep networks -------------------------------------------------------------------------------

Widths = int | Sequence[int]
Shape = int | tuple[int, ...]
NETWORKS: dict[str, tuple[tuple[int, ...], int, tuple[int, ...]]] = {
    "femnist": ((32, 64), 2, (2048,)),
    "cifar": ((64, 64), 3, (384, 192)),
}


@spelt("Model")
def cnn(
    shape: Shape,
    classes: int,
    *,
    network: str | None = None,
    channels: Widths | None = None,
    hidden: Widths | None = None,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = None,
) -> Model:
    """Convolutions of 5x5, each with ReLU and max pooling by 2, then dense layers with ReLU.

    ``network="femnist"``, for images of one channel, is that of LEAF [Caldas et al., 2018]: 32 and 64
    channels, pools of 2x2, 2048 hidden units.  ``"cifar"``, for others, is that of McMahan et al. [2017]
    without its local response normalization: 64 and 64 channels, overlapping pools of 3x3, 384 and 192
    units.  ``channels`` and ``hidden`` replace these widths.

    ``shape`` is that of an image, or its number of pixels where images are flat squares of one
    or three channels: 784 for 28x28x1.  ``regularizer``, ``constraint`` and ``init`` are those of
    :func:`logistic`; by default weights are drawn layer by layer.

    >>> cnn(784, 62, channels=(4, 8), hidden=32).dim
    15534
    """
    image = _image(shape)
    usual = NETWORKS["femnist" if image[-1] == 1 else "cifar"]
    filters, window, units = usual if network is None else known("network", network, NETWORKS)
    filters = filters if channels is None else _widths("channels", channels)
    units = units if hidden is None else _widths("hidden", hidden)

    name = "cnn", *filters, f"pool{window}", *units
    options = regularizer, constraint, init
    return _deep(name, _cnn, (filters, window, units), shape, image, classes, options)


def _cnn(nn: Any, a: Array, filters: Sequence[int], window: int, units: Sequence[int]) -> Array:
    for width in filters:
        a = nn.relu(nn.Conv(width, (5, 5))(a))
        a = nn.max_pool(a, (window, window), strides=(2, 2), padding="SAME")
    a = a.reshape(len(a), -1)
    for width in units:
        a = nn.relu(nn.Dense(width)(a))
    return a


@spelt("Model")
def resnet_gn(
    shape: Shape,
    classes: int,
    *,
    channels: Widths = (16, 32, 64),
    blocks: int = 1,
    groups: int = 8,
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = None,
) -> Model:
    """A small residual network [He et al., 2016] with group norm, whose output is of one example only.

    A convolution of 3x3, then for each width of ``channels`` so many ``blocks`` of two convolutions
    around which the input is added, the first block of each later width with stride 2; the mean over
    pixels, and a dense layer.  Channels are normalized in ``groups``.  ``shape`` and the other arguments
    are those of :func:`cnn`.

    >>> resnet_gn((32, 32, 3), 10).dim > 10_000
    True
    """
    image, filters = _image(shape), _widths("channels", channels)
    blocks, groups = whole("blocks", blocks, 1), whole("groups", groups, 1)
    fits = all(width % groups == 0 for width in filters)
    wrong = f"does not divide the channels {filters}"
    require(fits, wrong, "take a common divisor", groups=groups)

    name = "resnet_gn", *filters, f"blocks{blocks}", f"groups{groups}"
    settings = filters, blocks, groups
    options = regularizer, constraint, init
    return _deep(name, _resnet, settings, shape, image, classes, options)


def _resnet(nn: Any, a: Array, filters: Sequence[int], blocks: int, groups: int) -> Array:
    def conv(a: Array, width: int, size: int, stride: int = 1) -> Array:
        out = nn.Conv(width, (size, size), strides=stride, use_bias=False)(a)
        normed: Array = nn.GroupNorm(groups)(out)
        return normed

    a = nn.relu(conv(a, filters[0], 3))
    for i, width in enumerate(filters):
        for block in range(blocks):
            stride = 2 if i > 0 and block == 0 else 1
            b = conv(nn.relu(conv(a, width, 3, stride)), width, 3)
            same = a.shape == b.shape
            a = nn.relu(b + (a if same else conv(a, width, 1, stride)))
    return a.mean(axis=(1, 2))


@spelt("Model")
def char_lstm(
    features: Shape,
    classes: int,
    *,
    embedding: int = 8,
    hidden: Widths = (256, 256),
    regularizer: Reg = None,
    constraint: Set = None,
    init: Init = None,
) -> Model:
    """The next character after ``features`` characters, by LSTM layers: LEAF's model of Shakespeare.

    Characters are integers below ``classes``; each has ``embedding`` numbers.  ``hidden`` are the widths of
    the LSTM layers.  A dense layer of the last step's output gives one output for each character [Caldas et
    al., 2018].  The other arguments are those of :func:`cnn`.

    >>> char_lstm(20, 80).dim > 10_000
    True
    """
    one: Any = features[0] if isinstance(features, tuple) and len(features) == 1 else features
    length = whole("features", one, 1)
    size, widths = whole("embedding", embedding, 1), _widths("hidden", hidden)

    name, settings = ("char_lstm", size, *widths), (classes, size, widths)
    options = regularizer, constraint, init
    return _deep(name, _lstm, settings, length, None, classes, options)


def _lstm(nn: Any, tokens: Array, classes: int, size: int, widths: Sequence[int]) -> Array:
    a: Array = nn.Embed(classes, size)(tokens)
    for width in widths:
        a = nn.RNN(nn.OptimizedLSTMCell(width))(a)
    return a[:, -1]


def _image(features: Shape) -> tuple[int, ...]:
    """Height, width and channels of an image, given so, without channels, or as one number of pixels."""
    way = "give height, width and channels, such as (28, 28, 1)"
    if isinstance(features, tuple | list):
        shape = tuple(whole("axis of an image", axis, 1) for axis in features)
        require(len(shape) in (2, 3), "is no shape of an image", way, features=shape)
        return shape if len(shape) == 3 else (*shape, 1)
    pixels = whole("features", features, 1)
    sides = {c: math.isqrt(pixels // c) for c in (1, 3)}
    shapes = [(s, s, c) for c, s in sides.items() if s * s * c == pixels]
    require(shapes, "is not the size of a square image of 1 or 3 channels", way, features=pixels)
    return shapes[0]


def _deep(
    name: tuple[Any, ...],
    layers: Callable[..., Array],
    settings: tuple[Any, ...],
    features: Shape,
    shape: tuple[int, ...] | None,
    classes: int,
    options: tuple[Reg, Set, Init],
) -> Model:
    classes = OUTPUTS["softmax"].classes(classes)
    given = tuple(features) if isinstance(features, tuple | list) else (features,)
    sample = jax.ShapeDtypeStruct(given, jnp.int32 if shape is None else jnp.float32)
    module, named = (
        _network()(layers, settings, shape, classes),
        "-".join(map(str, (*name, classes))),
    )
    reg, within, init = options
    return flax_model(module, sample, regularizer=reg, constraint=within, init=init, name=named)


@lru_cache
def _network() -> Any:
    from flax import linen as nn

    class Network(nn.Module):
        layers: Callable[..., Array]
        settings: tuple[Any, ...]
        shape: tuple[int, ...] | None
        classes: int

        @nn.compact
        def __call__(self, a: Array) -> Any:
            inputs = a if self.shape is None else a.reshape(-1, *self.shape)
            u = self.layers(nn, inputs, *self.settings)  # first, by which layers have their names
            return nn.Dense(self.classes)(u)

    return Network


def by_layer(model: Model) -> Model:
    """The model with gradients that are clipped layer by layer::

        clip(g_l, G / sqrt(K))   for each of K layers l

    The gradient of an example is then within G as before: noise, events and claims are those of
    clipping it as a whole [McMahan et al., 2018, arXiv:1710.06963].  A dense, convolutional or recurrent
    layer has its bias with it; every other leaf of the parameters counts as a layer.

    >>> by_layer(mlp(64, 10, hidden=32)).kernel.layers
    2
    """
    instance("model", model, Model, "make one, such as jaxfl.models.mlp(64, 10, hidden=32)")
    require(model.kernel.layers == 1, lambda: f"{model.name} is clipped by layer already")
    one = f"{model.name} has one layer"
    require(model.kernel.split is not None, one, "clip its gradients as a whole")
    return _by_layer(model)


@lru_cache(maxsize=64)
def _by_layer(model: Model) -> Model:
    assert model.kernel.split is not None
    return model._replace(name=f"{model.name}-by_layer", kernel=model.kernel.split())


# --- by name -------------------------------------------------------------------------------------

MODELS: dict[str, Callable[..., Model]] = {
    "logistic": logistic,
    "softmax": softmax_regression,
    "least_squares": least_squares,
    "hinge": hinge,
    "absolute": absolute,
    "mlp": mlp,
    "cnn": cnn,
    "resnet_gn": resnet_gn,
    "char_lstm": char_lstm,
}
LINEAR = ("logistic", "least_squares", "hinge", "absolute")  # by default without a bias


def model(name: str, features: Shape, classes: int, **options: Any) -> Model:
    """The model of that name for data with so many features and classes (0: real labels).

    A model of images takes their shape in place of the number of features.
    """
    make = known("model", name, MODELS)
    takes = inspect.signature(make).parameters
    wrong = f"is a shape, and the model {name!r} takes flat features"
    way = "take 'cnn' or 'resnet_gn' for images, or flatten them with jaxfl.data.map_features"
    require(np.ndim(features) == 0 or "features" not in takes, wrong, way, features=features)
    vectors = "shape" in takes and np.shape(features) == (1,)
    one = f"The model {name!r} takes images, and these data are vectors of {np.ravel(features)[0]} features"
    require(not vectors, one, "take 'mlp', or give images")
    if "classes" in takes:
        options["classes"] = classes
    elif name in OUTPUTS:
        OUTPUTS[name].classes(classes)
    return instance(name, bind("Model", name, make, features, **options), Model, "return one")


def default_model(classes: int, features: Shape, **options: Any) -> Model:
    """Logistic regression for two classes, softmax for more, least squares for 0 (real labels)."""
    classes = whole("classes", classes, 0)
    require(classes != 1, "leaves nothing to learn", "take data with several", classes=classes)
    name = {0: "least_squares", 2: "logistic"}.get(classes, "softmax")
    return model(name, features, classes, **options)
