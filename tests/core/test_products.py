"""Products of samples and models: the same numbers in whatever order and under whatever vmap."""

from collections.abc import Callable

import jax
import numpy as np
import pytest

from jaxfl.core import products

SHAPES = [(3, 7), (600, 7)]  # a short batch and a tall one


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def close(found: jax.Array, formula: str, v: np.ndarray, a: np.ndarray) -> None:
    right = np.einsum(formula, v.astype(float), a.astype(float))
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


# who: what maps the product, letters of vectors and of samples, their sizes
WAYS: dict[str, tuple[Callable, str, str]] = {
    "one": (lambda f: f, "", ""),
    "many models": (lambda f: jax.vmap(f, (0, None)), "k", ""),
    "many batches": (lambda f: jax.vmap(f, (None, 0)), "", "k"),
    "each its own": (lambda f: jax.vmap(f), "k", "k"),
    "cells in seeds": (lambda f: jax.vmap(jax.vmap(f, (0, None))), "kl", "k"),
    "seeds in cells": (lambda f: jax.vmap(jax.vmap(f), (0, None)), "lk", "k"),
    "models in models": (lambda f: jax.vmap(jax.vmap(f, (0, None)), (0, None)), "kl", ""),
}
SIZES = {"k": 4, "l": 3}


@pytest.mark.parametrize(("b", "d"), SHAPES)
@pytest.mark.parametrize("way", WAYS)
def test_models_and_samples(way: str, b: int, d: int) -> None:
    mapped, vs, sets = WAYS[way]
    a = some(*(SIZES[c] for c in sets), b, d)
    for product, old, new in ((products.outputs, "d", "b"), (products.totals, "b", "d")):
        v = some(*(SIZES[c] for c in vs), d if old == "d" else b)
        out = vs if len(vs) >= len(sets) else sets
        close(jax.jit(mapped(product))(v, a), f"{vs}{old},{sets}bd->{out}{new}", v, a)


@pytest.mark.parametrize(("b", "d"), SHAPES)
@pytest.mark.parametrize("r", [2, 40])
@pytest.mark.parametrize("way", ["one", "each its own"])
def test_samples_and_deltas(way: str, b: int, d: int, r: int) -> None:
    mapped, vs, sets = WAYS[way]
    lead = [SIZES[c] for c in vs]
    v, a = some(*lead, b, r), some(*lead, b, d)
    close(jax.jit(mapped(products.crossed))(v, a), f"{vs}br,{sets}bd->{vs}dr", v, a)


def test_many_models_are_one_product() -> None:
    """And its order is held, where the compiler's own would copy the samples of a round."""
    a, x, w = some(1280, 124), some(64, 124), some(64, 1280)
    for product, v in ((products.outputs, x), (products.totals, w)):
        text = jax.jit(jax.vmap(product, (0, None))).lower(v, a).as_text()
        assert text.count("optimization_barrier") == 2
        assert "64x1280x124" not in text
