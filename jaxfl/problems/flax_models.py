"""Flax modules, linen and nnx, as models."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.checks import spelt
from jaxfl.core.errors import attempt, require
from jaxfl.core.params import whole
from jaxfl.core.types import Array, Key, Model, PyTree
from jaxfl.problems import public
from jaxfl.problems.flax_layers import linen_tapped, nnx_tapped
from jaxfl.problems.layers import Module, Tapped, layered_kernel
from jaxfl.problems.outputs import Output, check_examples, output
from jaxfl.problems.parameters import (
    Init,
    Layout,
    Trainable,
    check_init,
    frozen,
    initializer,
    layout,
)

__all__ = ["flax_model"]

RANDOM = "dropout or other randomness"


class Forward(NamedTuple):
    """A module as a pure function of its parameters."""

    params: Layout
    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, Array], Any]  # (parameters, inputs with a batch axis)
    tapped: Callable[[Layout], Tapped]


@spelt("Model")
def flax_model(
    module: Any,
    sample: Any,
    *,
    loss: str | Callable[[Array, Array], Array] = "softmax",
    correct: Callable[[Array, Array], Array] | None = None,
    regularizer: str | public.Regularizer | None = None,
    constraint: str | public.Constraint | None = None,
    init: Init = None,
    trainable: Trainable = None,
    name: str | None = None,
) -> Model:
    """A model from a linen module, an nnx module, or a function ``rngs -> nnx module``.

    A module is a ``flax.linen.Module`` or a ``flax.nnx.Module``.

    ``sample`` is one example's features or a tuple with their shape, such as ``(8, 8, 1)``: no batch
    axis.  The module is applied to a batch of that one example.  Features are integers, as an embedding
    takes them, where those of ``sample`` are: ``jax.ShapeDtypeStruct((length,), "int32")``, say.

    ``loss`` is a name ("softmax", "logistic", "least_squares", "hinge", "absolute") or a function of
    (outputs, label); with such a function ``correct(outputs, label)`` is whether a prediction is right.
    ``regularizer`` and ``constraint`` are those of :func:`logistic`.  The default loss,
    "softmax", is for labels that are classes, with one output for each class.  The initial point is the
    module's own: drawn from the key, except that an nnx module starts with the weights it holds.

    ``trainable`` says by their paths which parameters are learned, as ``lambda path: "lora" in path``
    where there is ``Dense_0/lora_a``.  The others are frozen at the values of ``init``, or of the module,
    drawn with ``jax.random.key(0)``, and d counts them no more.  For weights of an earlier training let
    ``init`` return them: ``init=lambda key: trained``.

    Per-example gradients come from what enters dense, convolutional, embedding and recurrent layers
    (linen's Dense, Conv, Embed and RNN, nnx's Linear, Conv, Embed and RNN), also where one is called
    several times; those in the parameters of other layers are kept whole.  Where there are none of
    these layers, or where the weights of one are used outside of it, all come from ``vmap(grad)``,
    with a notice.

    State other than parameters raises, and so does randomness: a batch norm lets one example change
    the gradients of others, and a bound on single gradients would not protect it.
    """
    from flax import linen, nnx

    given = _sample(sample)
    init = check_init(init)
    name = name or f"flax-{_name(module)}"
    reg, within = public.regularizer(regularizer), public.constraint(constraint)
    out = output(loss, 2, correct)
    options = out, reg, within, init, trainable, name
    if isinstance(module, linen.Module):
        try:
            return _linen_model(module, given, *options)
        except TypeError as error:  # a field that cannot be hashed
            if "unhashable" not in str(error):
                raise
            return _linen_model.__wrapped__(module, given, *options)
    a_class = isinstance(module, type) and issubclass(module, linen.Module)
    require(
        not a_class and (isinstance(module, nnx.Module) or callable(module)),
        "must be a linen module (not its class), an nnx module, or a function of nnx.Rngs that makes "
        "one",
        lambda: f"pass {_name(module)}(...)" if a_class else "",
        module=module,
    )
    return _model(_nnx(module, given), given, *options)


@functools.lru_cache(maxsize=64)
def _linen_model(module: Any, sample: jax.ShapeDtypeStruct, *options: Any) -> Model:
    return _model(_linen(module, sample), sample, *options)


def _model(
    forward: Forward,
    sample: jax.ShapeDtypeStruct,
    out: Output,
    reg: public.Regularizer,
    within: public.Constraint,
    init: Init,
    trainable: Trainable,
    name: str,
) -> Model:
    params = frozen(forward.params, trainable, init, forward.init)
    tapped = forward.tapped(params)
    flat = jax.ShapeDtypeStruct((params.dim,), jnp.float32)
    z = jax.eval_shape(lambda x, a: forward.apply(params.unravel(x), a), flat, _batch(sample))
    require(
        hasattr(z, "shape") and z.shape[:1] == (1,),
        "The module must return one array whose first axis is that of the batch",
    )
    scalar, size = out.labels in ("binary", "real"), int(np.prod(z.shape[1:]))
    one = "one" if scalar else "a vector with one for each class"
    wrong = f"The module returns {size} numbers for an example, and the {out.name} loss takes {one}"
    require(
        size == 1 if scalar else out.labels != "classes" or (len(z.shape) == 2 and size >= 2),
        wrong,
        "give its last layer as many outputs, or name another loss",
    )

    def outputs(x: Array, a: Array) -> Array:
        z: Array = forward.apply(params.unravel(x), a[None])[0]
        return z.reshape(()) if scalar else z

    def flat_loss(x: Array, example: PyTree) -> Array:
        return out.loss(outputs(x, example[0]), example[1])

    def batch_loss(z: Array, example: PyTree) -> Array:
        z = z[0].reshape(()) if scalar else z[0]
        return out.loss(z, example[1])

    correct = out.correct
    return Model(
        name=name,
        dim=params.dim,
        init=initializer(init, params, forward.init),
        unravel=params.unravel,
        loss=flat_loss,
        regularizer=reg.value,
        kernel=layered_kernel(Module(tapped, batch_loss, params, sample, flat_loss, name)),
        correct=None if correct is None else lambda x, e: correct(outputs(x, e[0]), e[1]),
        project=within.project,
        diameter=within.diameter(params.dim),
        check=check_examples(
            sample.shape,
            out,
            2 if out.labels == "binary" else size,
            whole=jnp.issubdtype(sample.dtype, jnp.integer),
        ),
        trained=None if trainable is None else params.partial,
    )


def _sample(sample: Any) -> jax.ShapeDtypeStruct:
    """Shape and kind of one example's features, which data come in: float32 or int32."""
    if isinstance(sample, tuple):
        shape = tuple(whole("axis of sample", axis, 1) for axis in sample)
        return jax.ShapeDtypeStruct(shape, jnp.float32)
    dtype = sample.dtype if hasattr(sample, "dtype") else np.asarray(sample).dtype
    wrong = "must be one example's features or a tuple with their shape"
    require(jnp.issubdtype(dtype, jnp.floating) or dtype.kind in "biu", wrong, sample=sample)
    way = "for that many features give a tuple, such as (64,)"
    require(not isinstance(sample, int), "sample is one number", way)
    kind = jnp.float32 if jnp.issubdtype(dtype, jnp.floating) else jnp.int32
    return jax.ShapeDtypeStruct(np.shape(sample), kind)


def _batch(sample: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((1, *sample.shape), sample.dtype)


def _linen(module: Any, sample: jax.ShapeDtypeStruct) -> Forward:
    inputs = _batch(sample)

    def init(key: Key) -> PyTree:
        return module.init(key, jnp.zeros(inputs.shape, inputs.dtype))["params"]

    def apply(params: PyTree, a: Array) -> Any:
        return module.apply({"params": params}, a)

    key = jax.eval_shape(lambda: jax.random.key(0))
    variables = _shape_of(module, sample, module.init, key, inputs)
    _refuse(module, sorted(set(variables) - {"params"}))
    shapes = variables.get("params", {})
    _shape_of(module, sample, apply, shapes, inputs)
    return Forward(layout(shapes), init, apply, functools.partial(linen_tapped, module))


def _nnx(module: Any, sample: jax.ShapeDtypeStruct) -> Forward:
    from flax import nnx

    given = isinstance(module, nnx.Module)
    parts: Any = nnx.split(module if given else _called(module), nnx.Param, ...)
    graph, params, rest = parts
    leaves = (leaf for _, leaf in nnx.to_flat_state(rest))  # the keys of nnx.RNN start its carry
    kinds = {type(leaf).__name__ for leaf in leaves if getattr(leaf, "tag", None) != "carry"}
    _refuse(module, sorted(kinds))

    def init(key: Key) -> PyTree:
        return params if given else nnx.split(module(nnx.Rngs(key)), nnx.Param, ...)[1]

    def apply(params: PyTree, a: Array) -> Any:
        return nnx.merge(graph, params, rest, copy=True)(a)

    _shape_of(module, sample, apply, params, _batch(sample))
    return Forward(layout(params), init, apply, functools.partial(nnx_tapped, graph, rest))


def _called(make: Callable[..., Any]) -> Any:
    from flax import nnx

    way = "pass a module, or a function of nnx.Rngs that makes an nnx module"
    with attempt(
        f"{getattr(make, '__name__', type(make).__name__)} makes no module of nnx.Rngs", way
    ):
        module = make(nnx.Rngs(0))
        if not isinstance(module, nnx.Module):
            raise TypeError(f"it makes {type(module).__name__}")
    return module


def _shape_of(module: Any, sample: jax.ShapeDtypeStruct, f: Callable[..., Any], *args: Any) -> Any:
    """The shapes that ``f`` of the module returns."""
    from flax import errors

    with attempt(
        f"{_name(module)} cannot be applied to one example of shape {sample.shape}, {sample.dtype} of "
        f"shape {(1, *sample.shape)} with its batch axis",
        "give as sample the shape of the features that it takes, such as (8, 8, 1) for an image, or an "
        "example of that shape and dtype",
    ):
        try:
            return jax.eval_shape(f, *args)
        except errors.InvalidRngError:
            _refuse(module, [RANDOM])


def _name(module: Any) -> str:
    """The name of a module, of its class, or of a function; that of a lambda is its result's."""
    name = str(getattr(module, "__name__", type(module).__name__))
    return _name(_called(module)) if name == "<lambda>" else name


def _refuse(module: Any, state: list[str]) -> None:
    """Raise for state other than parameters, with the way out of each kind."""
    batch = any("batch" in name.lower() for name in state)
    random = any(name == RANDOM or name.startswith("Rng") for name in state)
    ways = ["replace batch norm by group norm or layer norm"] * batch + [
        "leave out dropout"
    ] * random
    wrong = (
        f"{_name(module)} uses {', '.join(state)} besides its parameters, and its output "
        "must depend on these and one example only"
    )
    require(not state, wrong, " and ".join(ways) or "leave out the layers that keep it")
