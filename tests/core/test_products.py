"""Products of samples and models: the same numbers in whatever order and under whatever vmap."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core import fusion, products

SHAPES = pytest.mark.parametrize(("b", "d"), [(3, 7), (600, 7)])  # a short batch and a tall one
SIZES = {"k": 4, "l": 3}
# what maps the product, letters of vectors and of samples
WAYS: dict[str, tuple[Callable, str, str]] = {
    "cells in seeds": (lambda f: jax.vmap(jax.vmap(f, (0, None))), "kl", "k"),
    "one": (lambda f: f, "", ""),
    "many models": (lambda f: jax.vmap(f, (0, None)), "k", ""),
    "many batches": (lambda f: jax.vmap(f, (None, 0)), "", "k"),
    "each its own": (lambda f: jax.vmap(f), "k", "k"),
    "seeds in cells": (lambda f: jax.vmap(jax.vmap(f), (0, None)), "lk", "k"),
    "models in models": (lambda f: jax.vmap(jax.vmap(f, (0, None)), (0, None)), "kl", ""),
}


def some(letters: str, *shape: int) -> np.ndarray:
    shape = (*(SIZES[c] for c in letters), *shape)
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def check(product: Callable, formula: str, v: np.ndarray, a: np.ndarray) -> None:
    right = np.einsum(formula, v.astype(float), a.astype(float))
    np.testing.assert_allclose(jax.jit(product)(v, a), right, rtol=1e-4, atol=1e-4)


@SHAPES
@pytest.mark.parametrize("way", WAYS)
def test_models_and_samples(way, b, d):
    mapped, vs, sets = WAYS[way]
    out, a = max(vs, sets, key=len), some(sets, b, d)
    check(mapped(products.outputs), f"{vs}d,{sets}bd->{out}b", some(vs, d), a)
    check(mapped(products.totals), f"{vs}b,{sets}bd->{out}d", some(vs, b), a)


@SHAPES
@pytest.mark.parametrize("r", [2, 40])
@pytest.mark.parametrize("way", ["each its own", "one"])
def test_samples_and_deltas(way, b, d, r):
    mapped, vs, _ = WAYS[way]
    check(mapped(products.crossed), f"{vs}br,{vs}bd->{vs}dr", some(vs, b, r), some(vs, b, d))


@pytest.mark.parametrize("b", [3, 40, 600])
def test_some_entries_are_those_of_all(b):
    """Two products and a sum, one after the other; an index beyond the end reads the last entry."""
    parts = [
        (some("", b, 9), some("", b, 70)),
        (None, some("", b, 5)),
        (some("", b, 2), some("", b, 3)),
    ]
    every = np.concatenate([products.summed(*part) for part in parts])
    index = np.asarray([0, 629, 630, 634, 635, 640, 300, 700])
    found = jax.jit(products.summed_at)(parts, index)
    np.testing.assert_allclose(found, every[np.minimum(index, 640)], rtol=1e-4, atol=1e-4)


def test_many_models_are_one_product():
    """And its order is held, where the compiler's own would copy the samples of a round."""
    a = some("", 1280, 124)
    for product, v in (
        (products.outputs, some("", 64, 124)),
        (products.totals, some("", 64, 1280)),
    ):
        text = jax.jit(jax.vmap(product, (0, None))).lower(v, a).as_text()
        assert text.count("optimization_barrier") == 2
        assert "64x1280x124" not in text


def test_what_accelerators_add_up_is_the_same():
    a = jnp.asarray([-0.0, 0.0, jnp.inf, -1.5, 2e-38, 3.0])
    parts = fusion.added(a, lambda a: [a[:1], a[1:5].reshape(2, 2), a[5:]])
    np.testing.assert_array_equal(parts.view(jnp.int32), a.view(jnp.int32))
