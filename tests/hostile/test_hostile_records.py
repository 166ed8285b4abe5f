"""Rows, tables and numbers that are odd: read as what they mean, or refused with the record's name."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from told import refused

from jaxfl import Problem, data, models
from jaxfl.core.types import Term
from jaxfl.problems.clipping import clip, evaluate, factor
from jaxfl.problems.kernels import Factors

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]

ONE: Any = (np.ones((2, 3)), np.arange(2))
FRAME = pandas.DataFrame({"s": [*"abab"], "x": [1.0, 2, 3, 4], "y": [0, 1, 1, 0]})
LISTS, REAL, MIXED = "is a column of lists", "is a column of real numbers", "of several types"
TWICE, KEYS = (
    "2 clients are named '1': rename",
    "a dict with keys of several types .*: make all of them text",
)


def rows(**changed: Any) -> Any:
    """Clients of rows whose fields are functions of their number."""
    made = [{"image": [1.0, 2.0], "label": j % 2, "w": j % 2} for j in range(4)]
    each = [{**row, **{k: f(j) for k, f in changed.items()}} for j, row in enumerate(made)]
    return lambda: data.from_examples(each, client="w")


def frame(classes: int = 0, **changed: Any) -> Any:
    made = FRAME.assign(**{k: pandas.Series(v) for k, v in changed.items()})
    return lambda: data.from_clients(made, client="s", label="y", classes=classes)


def clients(*given: Any, **more: Any) -> Any:
    return lambda: data.from_clients(*given, **more)


def posed(x: Any, y: Any = ((0, 1), (1, 0)), model: Any = None) -> Any:
    pair = np.asarray(x, np.float64), np.asarray(y)
    return lambda: Problem(model or models.logistic(2), pair)


X = np.ones((2, 2, 2))


def but(value: float) -> Any:
    """The second client's first row has this size."""
    return posed(np.where(np.arange(4).reshape(2, 2, 1) == 2, value, X))


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "whole numbers that are rounded": (
        frame(x=[2**24, 2**24 + 1, 0, 1]),
        "'x' holds 16777217 in row 1, which float32 rounds",
    ),
    "lists of clients in rows": (rows(w=lambda j: [1, 2]), LISTS),
    "pairs in rows": (rows(w=lambda j: (1, 2)), LISTS),
    "lists of clients": (frame(s=[[1, 2]] * 4), LISTS),
    "pairs of clients": (frame(s=[(1, 2)] * 4), LISTS),
    "sets of clients": (frame(s=[{1}, {2}] * 2), LISTS),
    "dicts of clients": (frame(s=[{1: 1}, {2: 1}] * 2), LISTS),
    "text and numbers as clients": (frame(s=[1, "1", 2, "2"]), MIXED),
    "infinite clients": (frame(s=[np.inf, 1, 1, 1]), REAL),
    "a client of 1e300": (rows(w=lambda j: 1e300), REAL),
    "1 and '1'": (clients({1: ONE, "1": ONE}), TWICE),
    "tables 1 and '1'": (clients({1: FRAME, "1": FRAME}, label="y", features=["x"]), TWICE),
    "tests 1 and '1'": (clients({"1": ONE, "2": ONE}, {1: ONE, "1": ONE}), TWICE),
    "leaves 1 and '1'": (clients([{1: ONE[0], "1": ONE[0]}] * 2), KEYS),
    "stacked 1 and '1'": (clients({1: X, "1": X}, stacked=True), KEYS),
    "posed 1 and '1'": (lambda: Problem(models.logistic(2), {1: X, "1": X}), KEYS),
    "half of a pair of surrogates": (clients({"\ud800": ONE}), "has a name that is no text"),
    "classes of one half": (frame(3, y=[0.5, 1, 2, 1]), "hold 0.5, and must be whole numbers"),
    "test labels": (clients([ONE], (ONE[0], np.array([0, 7])), classes=2), "test labels .* hold 7"),
    "an infinite label": (rows(label=lambda j: np.inf), "is not finite in row 0"),
    "dates beside numbers": (
        lambda: data.from_examples(
            [{"a": 1, "b": np.datetime64("2020-01-01"), "label": 0}], features=["a", "b"], clients=1
        ),
        "'b' holds dates",
    ),
    "a column of 1e-50": (frame(x=[1e-50] * 4), "column 'x', is smaller than float32"),
    "a row of 1e-50": (clients([ONE, (1e-50 * ONE[0], ONE[1])]), r"Client 1, .* smaller .* row 0:"),
    "a sample of 1e-50": (but(1e-50), "smaller than float32 .1.2e-38. at client 1, row 0: scale"),
    "a sample of 1e300": (but(1e300), "exceeds float32 .3.4e.38. at client 1, row 0: scale"),
    "a sample of 1e-17": (but(1e-17), "Sample 0 of client 1 .* size 1e-17, .* from 7e-16 to 3e"),
    "a sample of 1e16": (but(1e16), "Sample 0 of client 1 .* size 1e.16, .* rescale it"),
    "a sample that is no number": (but(np.nan), "not finite at client 1, row 0: replace"),
    "a label of 1e16": (posed(X, 1e16 * X[..., 0], models.least_squares(2)), "Sample 0 of client 0"),
}  # fmt: skip


@pytest.mark.plain
@pytest.mark.parametrize("name", MISTAKES)
def test_odd_records_are_refused(name: str) -> None:
    refused(*MISTAKES[name])


def test_floats_are_classes_where_classes_are_counted() -> None:
    for classes, kind in ((0, np.float32), (3, np.int32)):
        for made in (
            frame(classes, y=[0.0, 1, 2, 1])(),
            data.from_clients(
                [(ONE[0], np.array([0.0, 2]))], (ONE[0], np.array([1.0, 0])), classes=classes
            ),
            data.from_frame(
                FRAME.assign(y=[0.0, 1, 2, 1]), label="y", features=["x"], classes=classes
            ),
        ):
            assert {a.dtype for a in (made.train[1], *(made.test or ())[1:])} == {np.dtype(kind)}
    assert frame(s=[1.0, 2.0, 1.0, 1.0])().client_names == ("1", "2")


def test_a_vanishing_entry_of_a_row_is_no_mistake() -> None:
    made = data.from_clients([(np.array([[1.0, 1e-50], [0, 0]]), np.array([0.5, 1e-50]))])
    assert made.train[0].tolist() == [[[1, 0], [0, 0]]]


def test_a_deviation_that_vanishes_divides_nothing() -> None:
    x = np.zeros((1000, 2), np.float32)
    x[0] = 1e-45, 1
    made, *_ = data.standardise(data.Dataset("d", (x, x[:, 0])), per_feature=True)
    assert np.isfinite(made.train[0]).all()


def gradients(loss: Any, points: Any, coefs: Any, batch: Any) -> Any:
    """One for each sample, in float64."""
    with jax.enable_x64(True):
        samples = zip(*(np.asarray(a, np.float64) for a in batch), strict=True)
        at = [(c, np.asarray(p, np.float64)) for c, p in zip(coefs, points, strict=True)]
        return np.array([sum(c * jax.grad(loss)(p, s) for c, p in at) for s in samples])


MODELS = {
    "custom": models.custom(np.zeros(3), lambda x, s: (x @ s[0] - s[1]) ** 2 / 2),
    "least_squares": models.least_squares(3),
    "network": models.mlp(3, 0, hidden=[4], loss="least_squares"),
    "logistic": models.logistic(3),
}


@pytest.mark.parametrize("coefs", [(1.0,), (1.0, -0.5)])
@pytest.mark.parametrize("size", [1e15, 1e-14, 1e-9, 1.0, 1e9])
@pytest.mark.parametrize("name", MODELS)
def test_clipped_gradients_of_extreme_samples(name: str, size: float, coefs: Any) -> None:
    """Norms of 1e-22 to 1e30, at one point and two, clipped from far above, by a bit, and not at all."""
    model, rng = MODELS[name], np.random.default_rng(1)
    y = rng.normal(size=3) * max(size, 1e6) if name != "logistic" else np.arange(3.0) % 2
    batch = (rng.normal(size=(3, 3)) * size).astype(np.float32), y.astype(np.float32)
    points = [rng.normal(size=model.dim).astype(np.float32) * scale for scale in (1, 0.1)]
    points = points[: len(coefs)]
    true = gradients(model.loss, points, coefs, batch)
    norms = np.linalg.norm(true, axis=1)
    for G in np.maximum(1e-30, np.median(norms) * np.array([1e-28, 0.5, 1.0, 9.0])):
        term = Term(1.0, tuple(map(jnp.asarray, points)), coefs, jnp.float32(G))
        total, _ = evaluate(model.kernel, (term,), jnp.ones(3), tuple(map(jnp.asarray, batch)))
        clipped = (true * np.minimum(1, G / norms)[:, None]).sum(axis=0)
        np.testing.assert_allclose(total, clipped, rtol=1e-4, atol=1e-4 * np.abs(clipped).max())


@pytest.mark.parametrize("norm", [1e25, 1e-30, 1e-20, 1.0, 1e37])
def test_clipped_vectors_of_extreme_norms(norm: float) -> None:
    g = np.float64([0.6, 0, -0.8]) * norm
    for G in (norm / 4, norm * 4, max(1e-30, norm * 1e-30), np.inf, 0.0):
        found = clip(jnp.asarray(g, jnp.float32), jnp.float32(G))
        np.testing.assert_allclose(found, g * min(1, G / norm), rtol=1e-5, atol=0)


def test_a_short_gradient_of_a_layer_is_clipped_beside_a_long_one() -> None:
    kernel = models.by_layer(models.mlp(3, 2, hidden=[4])).kernel
    pair = jnp.ones((1, 1, 5)), jnp.full((1, 1, 2), 1e3)
    F = Factors((pair,), (jnp.full((1, 4), 1e25),))
    c = factor(kernel, F, (jnp.ones((1, 3)), jnp.zeros(1, int)), jnp.float32(1))
    norms = np.array([[4e25, np.sqrt(10) * 1e3]])
    np.testing.assert_allclose(c * norms, 1 / np.sqrt(2), rtol=1e-5)
