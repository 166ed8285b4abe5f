"""Facts of a problem that are known before the first round.  Host side."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import provenance
from jaxfl.core.errors import require
from jaxfl.core.hosts import on_host
from jaxfl.core.types import Array, GeneratedSamples, Model, Problem, ProblemFacts, PyTree

__all__ = ["escapes", "facts_of", "multiplications"]

T = TypeVar("T")

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
    wrong = f"A client counts {sizes[-1]} records, and its arrays hold {problem.m_max}"
    require(sizes[-1] <= problem.m_max, wrong, "make the problem with jaxfl.Problem")
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


def remembered(read: Callable[[Model, PyTree], T]) -> Callable[[Model, PyTree], T]:
    """``read(model, example)``, computed once for each model and type of example."""

    @functools.lru_cache(maxsize=64)
    def by_types(model: Model, treedef: Any, leaves: tuple[Any, ...]) -> T:
        return read(model, jax.tree.unflatten(treedef, leaves))

    @functools.wraps(read)
    def call(model: Model, example: PyTree) -> T:
        leaves, treedef = jax.tree.flatten(example)
        return by_types(model, treedef, tuple(leaves))

    return call


@remembered
def multiplications(model: Model, example: PyTree) -> float:
    """Count the multiplications of one example's loss, in products and convolutions.

    They are at least one per parameter; one in a convolution counts as :data:`SLOWER`.
    """
    found = (times * _product(step) for times, step in _steps(_traced(model.loss, model, example)))
    return max(float(model.dim), sum(found))


@remembered
def escapes(model: Model, example: PyTree) -> str:
    """Names of operations by which a loss or its gradient may read other examples of a batch."""
    # custom derivatives are seen in the gradient alone
    program = _traced(jax.value_and_grad(model.loss), model, example)
    found = {step.primitive.name for _, step in _steps(program)}
    return ", ".join(sorted(found & BEYOND))


def _traced(function: Any, model: Model, example: PyTree) -> Any:
    """The program of a function of the model's vector and one example."""
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((model.dim,), jnp.float32), example).jaxpr


def _steps(program: Any, times: int = 1) -> Iterator[tuple[int, Any]]:
    """All steps of a traced program and how often each runs, all branches counted together."""
    for step in program.eqns:
        yield times, step
        for inner in _within(step):
            yield from _steps(inner, times * step.params.get("length", 1))


def _within(step: Any) -> Iterator[Any]:
    """The programs that one step of a program runs."""
    for value in jax.tree.leaves(list(step.params.values()), is_leaf=lambda v: hasattr(v, "jaxpr")):
        program = getattr(value, "jaxpr", value)
        if hasattr(program, "eqns"):
            yield program


def _product(step: Any) -> float:
    """The multiplications of one step of a program."""
    given, size = step.params, step.outvars[0].aval.size if step.outvars else 0
    if step.primitive.name == "dot_general":
        (left, _), _ = given["dimension_numbers"]
        return float(size * math.prod(step.invars[0].aval.shape[axis] for axis in left))
    if step.primitive.name == "conv_general_dilated":
        kernel, out = step.invars[1].aval.shape, given["dimension_numbers"].rhs_spec[0]
        return float(SLOWER * size * math.prod(kernel) / kernel[out])
    return 0.0


def _groups(count: Any, weights: Array | None) -> tuple[tuple[int, float, int], ...]:
    if weights is None:
        return ()
    pairs = np.stack([count, np.asarray(on_host(weights), np.float64)], axis=1)
    found, number = np.unique(pairs, axis=0, return_counts=True)
    return tuple((int(m), float(w), int(k)) for (m, w), k in zip(found, number, strict=True))
