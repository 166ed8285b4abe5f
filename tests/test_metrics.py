"""Exact evaluation against sums written out client by client, and the published anchors."""

import gzip
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import FEATURES, ZOO, Entry, examples, point

from jaxfl import models
from jaxfl.clipping import clip
from jaxfl.data import ClientData
from jaxfl.metrics import evaluate_metrics, even, full_gradient
from jaxfl.problems import make_problem
from jaxfl.types import Problem

ENTRY = pytest.mark.parametrize("entry", ZOO, ids=lambda entry: entry.name)
COUNT = (7, 3, 5)


def ragged(entry: Entry) -> Problem:
    """Three clients of unequal size, whose padding holds huge examples."""
    a, y = examples(entry, 21)
    a, y = a.reshape(3, 7, -1), y.reshape(3, 7)
    for i, m in enumerate(COUNT):
        a[i, m:] = 1e4
    data = ClientData((a, y), np.asarray(COUNT, np.int32), examples(entry, 11, seed=4))
    return make_problem(entry.build(), data)


def clients(problem: Problem) -> list[Any]:
    return [jax.tree.map(lambda a, i=i, m=m: a[i, :m], problem.train) for i, m in enumerate(COUNT)]


@ENTRY
def test_metrics_are_means_over_clients_of_their_real_examples(entry: Entry) -> None:
    problem = ragged(entry)
    model, x = problem.model, point(problem.model, 1)
    losses = jax.vmap(model.loss, (None, 0))

    def f(x: Any) -> Any:
        each = jnp.stack([jnp.mean(losses(x, rows)) for rows in clients(problem)])
        return jnp.mean(each) + model.regularizer(x), each

    (value, each), grad = jax.value_and_grad(f, has_aux=True)(x)
    expected = {
        "loss": value,
        "grad_norm_sq": grad @ grad,
        "client_loss": each + model.regularizer(x),
        "worst_client_loss": jnp.max(each) + model.regularizer(x),
        "test_loss": jnp.mean(losses(x, problem.test)),
    }
    if model.correct is not None:
        correct = jax.vmap(model.correct, (None, 0))
        right = jnp.stack([jnp.mean(correct(x, rows)) for rows in clients(problem)])
        expected |= {
            "accuracy": jnp.mean(right),
            "client_accuracy": right,
            "worst_client_accuracy": jnp.min(right),
            "test_accuracy": jnp.mean(correct(x, problem.test)),
        }
    for rows in (4, 2048):  # blocks that overlap at the end, and one block for everything
        got = jax.jit(evaluate_metrics, static_argnums=2)(problem, x, rows)
        assert got.keys() == expected.keys()
        for name, number in expected.items():
            np.testing.assert_allclose(got[name], number, rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("y", [0, 1])
def test_accuracy_counts_the_right_ones(y: int) -> None:
    """Signs and classes by hand: predicted 1, 0, 1, and a tie that counts as 0."""
    a = np.asarray([[[2.0], [-1.0], [0.5], [0.0]]])
    labels = np.full((1, 4), y)
    expected = 0.5
    for model, x in (
        (models.logistic(1), [1.0]),
        (models.hinge(1), [1.0]),
        (models.softmax_regression(1, 2, bias=False), [0.0, 1.0]),
    ):
        problem = make_problem(model, (a, labels), x0=np.asarray(x))
        assert problem.x0 is not None
        assert evaluate_metrics(problem, problem.x0)["accuracy"] == expected


@ENTRY
def test_full_gradient_is_the_clipped_mean_of_each_client(entry: Entry) -> None:
    problem = ragged(entry)
    model, x = problem.model, point(problem.model, 1)
    each = [jax.vmap(jax.grad(model.loss), (None, 0))(x, rows) for rows in clients(problem)]
    bound = float(np.median(np.linalg.norm(np.concatenate(each), axis=1)))
    expected = np.stack(
        [np.mean([clip(row, jnp.asarray(bound)) for row in g], axis=0) for g in each]
    )
    for numbers in (1, 3 * (model.kernel.width + FEATURES + 1), 1 << 22):
        h = jax.jit(full_gradient, static_argnums=3)(problem, x, jnp.asarray(bound), numbers)
        np.testing.assert_allclose(h, expected, rtol=2e-5, atol=1e-6)
    free = full_gradient(problem, x, jnp.asarray(jnp.inf))
    np.testing.assert_allclose(free, np.stack([g.mean(axis=0) for g in each]), rtol=2e-5, atol=1e-6)


def test_blocks() -> None:
    assert [even(6000, 4539), even(10, 3), even(7, 7), even(5, 100)] == [3000, 3, 7, 5]


@pytest.mark.parametrize("name", ["evaluate_metrics", "full_gradient"])
def test_memory_is_that_of_a_block(name: str) -> None:
    """Neither the activations of all rows nor a copy of the data."""
    model = models.mlp(30, 50, 3)
    data = np.zeros((2, 20_001, 30), np.float32), np.zeros((2, 20_001), np.int32)
    problem = make_problem(model, data)
    x = jnp.zeros(model.dim)
    if name == "evaluate_metrics":
        lowered = jax.jit(evaluate_metrics, static_argnums=2).lower(problem, x, 500)
    else:
        lowered = jax.jit(full_gradient, static_argnums=3).lower(
            problem, x, jnp.asarray(1.0), 100_000
        )
    analysis = lowered.compile().memory_analysis()
    if analysis is None:
        pytest.skip("this backend does not tell its memory")
    assert analysis.temp_size_in_bytes < 2e6  # the features alone take 4.8e6


def test_cells_of_a_sweep(key: jax.Array) -> None:
    problem = ragged(ZOO[0])
    points = jax.random.normal(key, (3, problem.model.dim))
    together = jax.vmap(evaluate_metrics, (None, 0))(problem, points)
    for c in range(3):
        alone = evaluate_metrics(problem, points[c])
        np.testing.assert_allclose(together["loss"][c], alone["loss"], rtol=1e-6)


# --- published anchors ---------------------------------------------------------------------------


def test_a9a_starts_as_published(data_dir: Path) -> None:
    """SoteriaFL's logistic regression: f(x_0) and ||grad f(x_0)||, preprocessing written out."""
    if not (data_dir / "a9a").is_file():
        pytest.skip("no a9a in the data folder")
    lines = [line.split() for line in (data_dir / "a9a").read_text().splitlines()]
    a, y = np.zeros((len(lines), 124)), np.zeros(len(lines), np.int32)
    for row, (label, *entries) in enumerate(lines):
        y[row] = float(label) > 0
        for entry in entries:
            column, value = entry.split(":")
            a[row, int(column) - 1] = float(value)
    a[:, -1] = 1
    a, y = a[:-1], y[:-1]
    order = np.argsort(y, kind="stable")
    a, y = a[order].reshape(10, 3256, 124) / 1.3485619931, y[order].reshape(10, 3256)
    model = models.logistic(124, regularizer=models.nonconvex(0.2))
    x0 = np.random.RandomState(0).randn(124) / 5
    problem = make_problem(model, (a, y), x0)
    assert problem.x0 is not None
    metrics = jax.jit(evaluate_metrics)(problem, problem.x0)
    assert float(metrics["loss"]) == pytest.approx(1.6297258, abs=5e-7)
    assert np.sqrt(metrics["grad_norm_sq"]) == pytest.approx(0.8960451, abs=5e-7)
    assert model.smoothness is not None
    L = model.smoothness(problem.train, problem.count)
    assert pytest.approx(15 / 1.3485619931**2 / 4 + 0.4) == L  # 14 attributes and the constant


def test_mnist_network_starts_as_published(data_dir: Path) -> None:
    """SoteriaFL's network: weights of a (785, 65) and a (65, 10) matrix, one hidden unit constant."""

    def idx(name: str, header: int) -> Any:
        path = data_dir / name
        if not path.is_file():
            pytest.skip(f"no {name} in the data folder")
        return np.frombuffer(gzip.decompress(path.read_bytes())[header:], np.uint8)

    def images(name: str) -> Any:
        raw = idx(name, 16).reshape(-1, 784).astype(np.float32)
        return (raw / np.float32(255) - np.float32(0.1306604763)) / np.float32(0.3081078039)

    train = images("train-images-idx3-ubyte.gz"), idx("train-labels-idx1-ubyte.gz", 8)
    test = images("t10k-images-idx3-ubyte.gz"), idx("t10k-labels-idx1-ubyte.gz", 8)
    stacked = train[0].reshape(10, 6000, 784), train[1].reshape(10, 6000)
    start = np.random.RandomState(0).randn(51_675) / 5
    first, second = start[: 785 * 65].reshape(785, 65), start[785 * 65 :]
    x0 = np.concatenate([first[:, :64].ravel(), second])
    data = ClientData(stacked, np.full(10, 6000, np.int32), test, 10, "mnist")
    problem = make_problem(models.mlp(784, 64, 10), data, x0)
    assert problem.x0 is not None
    metrics = jax.jit(evaluate_metrics)(problem, problem.x0)
    assert float(metrics["loss"]) == pytest.approx(2.74345, abs=6e-6)
    assert float(metrics["grad_norm_sq"]) == pytest.approx(1.81104, abs=6e-6)
    assert float(metrics["test_accuracy"]) == pytest.approx(0.1313, abs=5e-5)
