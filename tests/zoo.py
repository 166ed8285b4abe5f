"""The common table of models: a new one joins by a row, with data that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.types import Model, Term
from jaxfl.problems import models
from jaxfl.problems.clipping import evaluate
from jaxfl.problems.custom import custom
from jaxfl.problems.flax_models import flax_model

FEATURES = 5


class Entry(NamedTuple):
    name: str
    build: Callable[[], Model]
    classes: int  # of its labels; 0: real numbers


def quadratic() -> Model:
    start = {"w": np.linspace(-1, 1, FEATURES, dtype=np.float32), "c": np.float32(0.5)}

    def loss(params: Any, example: Any) -> Any:
        a, y = example
        return jnp.tanh(jnp.dot(params["w"], a) + params["c"] ** 2 - y)

    return custom(start, loss, regularizer="l2:0.1")


def linen() -> Model:
    from flax import linen

    class Net(linen.Module):
        @linen.compact
        def __call__(self, a: Any) -> Any:
            return linen.Dense(3)(linen.LayerNorm()(linen.tanh(linen.Dense(4)(a))))

    return flax_model(Net(), np.zeros(FEATURES))


def nnx() -> Model:
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.first = nnx.Linear(FEATURES, 4, rngs=rngs)
            self.last = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, a: Any) -> Any:
            return self.last(nnx.relu(self.first(a)))

    return flax_model(lambda rngs: Net(rngs), (FEATURES,), name="nnx")


ZOO = (
    Entry("logistic", lambda: models.logistic(FEATURES, regularizer="nonconvex:0.2"), 2),
    Entry("least_squares", lambda: models.least_squares(FEATURES, regularizer="l2:0.3"), 0),
    Entry("hinge", lambda: models.hinge(FEATURES), 2),
    Entry("absolute", lambda: models.absolute(FEATURES), 0),
    Entry("logistic_bias", lambda: models.logistic(FEATURES, bias=True, regularizer="l2:0.1"), 2),
    Entry("softmax", lambda: models.softmax_regression(FEATURES, 3), 3),
    Entry("softmax_no_bias", lambda: models.softmax_regression(FEATURES, 3, bias=False), 3),
    Entry("mlp_sigmoid", lambda: models.mlp(FEATURES, 3, hidden=4), 3),
    Entry("mlp_tanh_deep", lambda: models.mlp(FEATURES, 3, hidden=(4, 3), activation="tanh"), 3),
    Entry(
        "mlp_no_bias", lambda: models.mlp(FEATURES, 3, hidden=4, activation="gelu", bias=False), 3
    ),
    Entry("mlp_regression", lambda: models.mlp(FEATURES, 0, hidden=4, activation="softplus"), 0),
    Entry("mlp_one_output", lambda: models.mlp(FEATURES, 2, hidden=4, loss="logistic"), 2),
    Entry("custom", quadratic, 0),
    Entry("linen", linen, 3),
    Entry("nnx", nnx, 3),
)


def examples(entry: Entry, rows: int, seed: int = 0, dtype: Any = np.float32) -> tuple[Any, Any]:
    """Random examples of very different norms; the last row repeats the first."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(rows, FEATURES)) * np.exp(rng.normal(size=(rows, 1)))
    y = rng.normal(size=rows) if entry.classes == 0 else rng.integers(0, entry.classes, rows)
    a[-1], y[-1] = a[0], y[0]
    return a.astype(dtype), y.astype(dtype if entry.classes == 0 else np.int32)


def point(model: Model, seed: int, dtype: Any = np.float32) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=model.dim) / 2, dtype)


def shortened(g: np.ndarray, bound: float, ends: Any = (), smooth: bool = False) -> np.ndarray:
    """Gradients (b, d) within the bound; of K layers with these ends each within bound / sqrt(K)."""
    layers = np.split(g, ends, axis=1)
    most = bound / np.sqrt(len(layers))
    longer = np.add if smooth else np.maximum
    norms = (np.linalg.norm(part, axis=1, keepdims=True) for part in layers)
    return np.hstack([p * most / longer(most, n) for p, n in zip(layers, norms, strict=True)])


def sums(
    model: Model, x: Any, w: Any, weight: Any, batch: Any, ends: Any = ()
) -> list[tuple[Any, Any]]:
    """Factors, and clipped sums of one and two points: found, and written out in NumPy on every
    `jax.grad`.  Half of the gradients at x are longer than the bound.  ``ends`` are those of layers."""
    kernel = model.kernel
    gradients = jax.jit(jax.vmap(jax.grad(model.loss), (None, 0)))
    g, h = (np.asarray(gradients(p, batch), np.float64) for p in (x, w))
    norms = np.linalg.norm(g, axis=1)
    bound = float(np.median(norms))
    assert 0 < np.sum(norms > bound) < len(norms)
    G = jnp.asarray(bound, x.dtype)

    def term(p: Any, scale: float = 1.0) -> Term:
        return Term(scale, (p,), (1.0,), G)

    @jax.jit
    def run() -> Any:
        F, H = kernel.factors(x, batch), kernel.factors(w, batch)
        both = kernel.combine((2.0, weight), (F, H))
        return (
            kernel.inner(F, H, batch).reshape(len(weight), -1).sum(axis=1),
            kernel.inner(both, both, batch).reshape(len(weight), -1).sum(axis=1),
            kernel.contract(weight, both, batch),
            evaluate(kernel, (Term(-0.5, (x, w), (3.0, -2.0), G),), weight, batch)[0],
            evaluate(kernel, (Term(2.0, (x,), (-1.5,), G),), weight, batch)[0],
            evaluate(kernel, (term(x), term(w, -1.0)), weight, batch)[0],
            evaluate(kernel, (term(x),), weight, batch, F)[0],
            evaluate(kernel, (term(x),), weight, batch, H)[0],
        )

    def short(g: np.ndarray) -> np.ndarray:
        return shortened(g, bound, ends, kernel.smooth)

    u = np.asarray(weight, np.float64)
    both = 2 * g + u[:, None] * h
    expected = (
        np.sum(g * h, axis=1),
        np.sum(both**2, axis=1),
        u @ both,
        -0.5 * u @ short(3 * g - 2 * h),
        2.0 * u @ short(-1.5 * g),
        u @ (short(g) - short(h)),
        u @ (short(g) - g),
        u @ (short(g) - h),
    )
    return list(zip(run(), expected, strict=True))


def close(left: Any, right: Any, tolerance: float) -> None:
    left, right = np.asarray(left), np.asarray(right)
    assert np.linalg.norm(left - right) <= tolerance * np.linalg.norm(right)
