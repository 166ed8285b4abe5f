"""Flax modules, linen and nnx, as models."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl import public
from jaxfl.errors import InputError
from jaxfl.flax_layers import linen_tapped, nnx_tapped
from jaxfl.layers import Tapped, layered_kernel
from jaxfl.outputs import Output, check_examples, output
from jaxfl.parameters import Init, Layout, check_init, initializer, layout
from jaxfl.types import Array, Key, Model, PyTree

__all__ = ["flax_model"]


class Forward(NamedTuple):
    """A module as a pure function of its parameters."""

    params: Layout
    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, Array], Any]  # (parameters, inputs with a batch axis)
    tapped: Tapped


def flax_model(
    module: Any,
    sample: Any,
    *,
    loss: str | Callable[[Array, Array], Array] = "softmax",
    correct: Callable[[Array, Array], Array] | None = None,
    regularizer: str | public.Regularizer | None = None,
    constraint: str | public.Constraint | None = None,
    init: Init = None,
    name: str | None = None,
) -> Model:
    """A model from a linen module, an nnx module, or a function ``rngs -> nnx module``.

    ``sample`` is one example's features or a tuple with their shape: no batch axis.  The module is
    applied to a batch of that one example.  ``loss`` is a name ("softmax", "logistic",
    "least_squares", "hinge", "absolute") or a function of (outputs, label); ``correct`` belongs to
    a loss of one's own.  The initial point is the module's own: drawn from the key, except that an
    nnx module starts with the weights it holds.

    Gradients of single examples come from what enters dense and convolutional layers (linen's Dense
    and Conv, nnx's Linear and Conv), and by ``vmap(grad)`` where there are none.

    State other than parameters is refused, and so is randomness: a batch norm lets one example
    change the gradients of others, and no bound on a single gradient would then protect it.
    """
    from flax import linen, nnx

    shape = sample if isinstance(sample, tuple) else tuple(np.shape(sample))
    init = check_init(init)
    name = name or f"flax-{getattr(module, '__name__', type(module).__name__)}"
    reg, within = public.regularizer(regularizer), public.constraint(constraint)
    out = output(loss, 2, correct)
    if isinstance(module, linen.Module):
        try:
            return _linen_model(module, shape, out, reg, within, init, name)
        except TypeError as error:  # a field that cannot be hashed
            if "unhashable" not in str(error):
                raise
            return _model(_linen(module, shape), shape, out, reg, within, init, name)
    if isinstance(module, nnx.Module) or callable(module):
        return _model(_nnx(module, shape), shape, out, reg, within, init, name)
    raise InputError(
        f"flax_model takes a linen module, an nnx module or a function of nnx.Rngs that makes one, "
        f"not {type(module).__name__}."
    )


@lru_cache(maxsize=64)
def _linen_model(module: Any, shape: tuple[int, ...], *options: Any) -> Model:
    return _model(_linen(module, shape), shape, *options)


def _model(
    forward: Forward,
    shape: tuple[int, ...],
    out: Output,
    reg: public.Regularizer,
    within: public.Constraint,
    init: Init,
    name: str,
) -> Model:
    params = forward.params
    flat = _struct((params.dim,))
    z = jax.eval_shape(lambda x, a: forward.apply(params.unravel(x), a), flat, _struct((1, *shape)))
    if not hasattr(z, "shape") or z.shape[:1] != (1,):
        raise InputError("The module must return one array whose first axis is that of the batch.")
    scalar, size = out.labels in ("binary", "real"), int(np.prod(z.shape[1:]))
    if (scalar and size != 1) or (out.labels == "classes" and (len(z.shape) != 2 or size < 2)):
        raise InputError(
            f"The module returns {size} numbers for an example, and the {out.name} loss takes "
            + ("one." if scalar else "a vector with one for each class.")
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
        kernel=layered_kernel(forward.tapped, batch_loss, params, shape, flat_loss, name),
        correct=None if correct is None else lambda x, e: correct(outputs(x, e[0]), e[1]),
        project=within.project,
        diameter=within.diameter(params.dim),
        check=check_examples(shape, out, 2 if out.labels == "binary" else size),
    )


def _struct(shape: tuple[int, ...]) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _linen(module: Any, shape: tuple[int, ...]) -> Forward:
    from flax import errors

    inputs = _struct((1, *shape))

    def init(key: Key) -> PyTree:
        return module.init(key, jnp.zeros(inputs.shape, inputs.dtype))["params"]

    def apply(params: PyTree, a: Array) -> Any:
        return module.apply({"params": params}, a)

    key = jax.eval_shape(lambda: jax.random.key(0))
    variables = jax.eval_shape(module.init, key, inputs)
    _refuse(module, sorted(set(variables) - {"params"}))
    try:
        jax.eval_shape(apply, variables.get("params", {}), inputs)
    except errors.InvalidRngError:
        _refuse(module, ["dropout or other randomness"])
    params = layout(variables.get("params", {}))
    return Forward(params, init, apply, linen_tapped(module, params))


def _nnx(module: Any, shape: tuple[int, ...]) -> Forward:
    from flax import nnx

    made = isinstance(module, nnx.Module)
    start = module if made else module(nnx.Rngs(0))
    graph, params, *others = nnx.split(start, nnx.Param, ...)
    rest = others[0]
    kinds = {type(leaf).__name__ for _, leaf in nnx.to_flat_state(rest)}
    _refuse(module, sorted(kinds))

    def init(key: Key) -> PyTree:
        return params if made else nnx.split(module(nnx.Rngs(key)), nnx.Param, ...)[1]

    def apply(params: PyTree, a: Array) -> Any:
        return nnx.merge(graph, params, rest)(a)

    return Forward(layout(params), init, apply, nnx_tapped(graph, rest, layout(params)))


def _refuse(module: Any, state: list[str]) -> None:
    if state:
        name = getattr(module, "__name__", type(module).__name__)
        raise InputError(
            f"{name} uses {', '.join(state)} besides its parameters, and its output must depend on "
            "these and one example only: replace batch norm by group norm, and leave out dropout."
        )
