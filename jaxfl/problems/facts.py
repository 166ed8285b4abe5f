"""What the host knows of a problem before the first round."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import provenance
from jaxfl.core.errors import require
from jaxfl.core.hosts import on_host
from jaxfl.core.types import Array, GeneratedSamples, Model, Problem, ProblemFacts, PyTree

__all__ = ["escapes", "example_of", "facts_of", "multiplications"]

# calls of other code, and functions that say themselves what a batch of them is
BEYOND = frozenset({"custom_vmap_call", "pure_callback", "io_callback", "ffi_call"})
SLOWER = 4.0  # times as long as one of a product takes a multiplication of a convolution on CPUs


def facts_of(problem: Problem, rounds: int | None) -> ProblemFacts:
    """The facts of a problem that resolution may use."""
    count, model = on_host(problem.count), problem.model
    smoothness = None
    if model.smoothness and not isinstance(problem.train, GeneratedSamples):
        smoothness = model.smoothness(problem.train, count)
    sizes = tuple(int(m) for m in np.unique(count))
    contracts = None if model.convex is None else model.convex and model.kernel.link is not None
    require(
        sizes[-1] <= problem.m_max,
        lambda: f"A client counts {sizes[-1]} records, and its arrays hold {problem.m_max}",
        "make the problem with jaxfl.make_problem",
    )
    return ProblemFacts(
        n=problem.n,
        m=sizes[0],
        m_max=problem.m_max,
        d=model.dim,
        rounds=rounds,
        smoothness=smoothness,
        sizes=sizes,
        diameter=model.diameter,
        convex=model.convex,
        contracts=None if contracts and not provenance.own_convexity(model) else contracts,
        constrained=model.project is not None,
        groups=_groups(count, problem.weights),
    )


def example_of(train: PyTree) -> PyTree:
    """The shapes and types of one example of the training data."""
    if isinstance(train, GeneratedSamples):
        place = jax.ShapeDtypeStruct((1,), jnp.int32)
        made = jax.eval_shape(train.make, train.source, place, place)
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), made)
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[2:], a.dtype), train)


def multiplications(model: Model, example: PyTree) -> float:
    """Those of the loss of one example in products, at least one per parameter, and in convolutions.

    One in a convolution counts as :data:`SLOWER`.
    """
    leaves, treedef = jax.tree.flatten(example)
    return _multiplications(model, treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves))


@functools.lru_cache(maxsize=64)
def _multiplications(model: Model, treedef: Any, leaves: tuple[Any, ...]) -> float:
    return max(float(model.dim), _counted(_traced(model.loss, model, treedef, leaves)))


def escapes(model: Model, example: PyTree) -> str:
    """What of a loss or its gradient may see other examples of a batch; empty if nothing may."""
    leaves, treedef = jax.tree.flatten(example)
    return _escapes(model, treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves))


@functools.lru_cache(maxsize=64)
def _escapes(model: Model, treedef: Any, leaves: tuple[Any, ...]) -> str:
    # custom derivatives are seen in the gradient alone
    program = _traced(jax.value_and_grad(model.loss), model, treedef, leaves)
    found = {step.primitive.name for step in _steps(program)}
    return ", ".join(sorted(found & BEYOND))


def _traced(function: Any, model: Model, treedef: Any, leaves: tuple[Any, ...]) -> Any:
    """The program of a function of the model's vector and one example."""
    example = jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((model.dim,), jnp.float32), example).jaxpr


def _steps(program: Any) -> Iterator[Any]:
    """All steps of a traced program, those of inner programs among them."""
    for step in program.eqns:
        yield step
        for inner in _within(step):
            yield from _steps(inner)


def _within(step: Any) -> Iterator[Any]:
    """The programs that one step of a program runs."""
    for value in jax.tree.leaves(list(step.params.values()), is_leaf=lambda v: hasattr(v, "jaxpr")):
        program = getattr(value, "jaxpr", value)
        if hasattr(program, "eqns"):
            yield program


def _counted(program: Any) -> float:
    """The multiplications of a traced program; of a branch, those of all together."""
    total = 0.0
    for step in program.eqns:
        name, given = step.primitive.name, step.params
        if name == "dot_general":
            (left, _), _ = given["dimension_numbers"]
            of = math.prod(step.invars[0].aval.shape[axis] for axis in left)
            total += step.outvars[0].aval.size * of
        elif name == "conv_general_dilated":
            kernel, out = step.invars[1].aval.shape, given["dimension_numbers"].rhs_spec[0]
            total += SLOWER * step.outvars[0].aval.size * math.prod(kernel) / kernel[out]
        total += given.get("length", 1) * sum(map(_counted, _within(step)))
    return total


def _groups(count: Any, weights: Array | None) -> tuple[tuple[int, float, int], ...]:
    if weights is None:
        return ()
    pairs = np.stack([count, np.asarray(on_host(weights), np.float64)], axis=1)
    found, number = np.unique(pairs, axis=0, return_counts=True)
    return tuple((int(m), float(w), int(k)) for (m, w), k in zip(found, number, strict=True))
