"""Exact evaluation against sums written out client by client."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from told import refused
from zoo import FEATURES, ZOO, Entry, examples, point

import jaxfl
from jaxfl import Problem
from jaxfl.data.records import ClientData, from_clients
from jaxfl.problems import metrics, models
from jaxfl.problems.facts import multiplications
from jaxfl.problems.metrics import evaluate_metrics, even, full_gradient, mean_gradient
from jaxfl.problems.problem import held_out

COUNT = np.asarray([7, 3, 5], np.int32)
NAMED = [e for e in ZOO if e.name in ("logistic", "mlp_sigmoid", "custom", "linen")]
ENTRY = pytest.mark.parametrize("entry", NAMED, ids=lambda entry: entry.name)


def ragged(entry: Entry) -> Problem:
    """Three clients of unequal size, whose padding holds huge examples."""
    a, y = examples(entry, 21)
    a, y = a.reshape(3, 7, -1), y.reshape(3, 7)
    for i, m in enumerate(COUNT):
        a[i, m:] = 1e4
    data = ClientData((a, y), COUNT, examples(entry, 11, seed=4))
    return Problem(entry.build(), data)


def by_client(rows: Any) -> list[np.ndarray]:
    """Values of the rows (21, ...) that clients really have."""
    return [np.asarray(rows, np.float64)[7 * i : 7 * i + m] for i, m in enumerate(COUNT)]


@ENTRY
def test_metrics_are_means_over_clients_of_their_real_examples(entry):
    problem = ragged(entry)
    model, x = problem.model, point(problem.model, 1)
    rows = jax.tree.map(
        lambda a, b: np.concatenate([a.reshape(21, *a.shape[2:]), b]), problem.train, problem.test
    )

    @jax.jit
    def each(x: Any) -> Any:
        losses, grads = jax.vmap(jax.value_and_grad(model.loss), (None, 0))(x, rows)
        right = None if model.correct is None else jax.vmap(model.correct, (None, 0))(x, rows)
        return losses, grads, right, *jax.value_and_grad(model.regularizer)(x)

    losses, grads, right, r, grad_r = each(x)
    client = np.asarray([values.mean() for values in by_client(losses)]) + r
    grad = np.mean([values.mean(axis=0) for values in by_client(grads)], axis=0) + grad_r
    expected = {
        "loss": client.mean(),
        "grad_norm_sq": grad @ grad,
        "client_loss": client,
        "worst_client_loss": client.max(),
        "test_loss": losses[21:].mean(),
    }
    if right is not None:
        client = np.asarray([values.mean() for values in by_client(right)])
        expected |= {
            "accuracy": client.mean(),
            "client_accuracy": client,
            "worst_client_accuracy": client.min(),
            "accuracy_deviation": client.std(),
            "test_accuracy": np.mean(right[21:]),
        }
    # Blocks of 4 rows overlap at the end of 21 and of 11.
    got = jax.jit(evaluate_metrics, static_argnums=2)(problem, x, 4)
    assert got.keys() == expected.keys()
    for name, number in expected.items():
        np.testing.assert_allclose(got[name], number, rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("rows", [4, 100])
def test_metrics_of_each_client_on_its_own_test_records(rows):
    """Two records of client 0, one of nobody, none of client 1, the others of clients 2 to 24."""
    rng = np.random.default_rng(0)
    owner = np.array([0, 0, -1, *rng.integers(2, 25, 60)])
    clients = [(rng.normal(size=(2, 3)), rng.integers(0, 2, 2)) for _ in range(25)]
    test = rng.normal(size=(63, 3)), rng.integers(0, 2, 63)
    data = from_clients(clients, test=test, test_owner=owner, classes=2)
    problem, x = Problem(models.logistic(3), data), np.array([1.0, -2.0, 0.5])
    got = jax.jit(evaluate_metrics, static_argnums=2)(problem, jnp.asarray(x, jnp.float32), rows)
    z = (2 * test[1] - 1) * (test[0] @ x)
    for name, each in (("test_loss", np.log1p(np.exp(-z))), ("test_accuracy", z > 0)):
        mine = [each[owner == i].mean() if i in owner else np.nan for i in range(25)]
        np.testing.assert_allclose(got[f"client_{name}"], mine, rtol=1e-4)
        np.testing.assert_allclose(got[name], each.mean(), rtol=1e-4)
        sign = -1 if name == "test_loss" else 1
        worst = np.sort(sign * np.array(mine)[~np.isnan(mine)])
        tenth = sign * worst[: len(worst) // 10].mean()
        np.testing.assert_allclose(got[f"worst_client_{name}"], sign * worst[0], rtol=1e-4)
        np.testing.assert_allclose(got[f"worst_tenth_{name}"], tenth, rtol=1e-4)
    np.testing.assert_allclose(got["test_accuracy_deviation"], np.nanstd(mine), rtol=1e-4)
    on = Problem(models.logistic(3, regularizer="l2:0.5"), data)
    added = {"loss": float(on.model.regularizer(jnp.asarray(x))), "accuracy": 0, "deviation": 0}
    on = jax.jit(evaluate_metrics, static_argnums=2)(held_out(on, "test"), jnp.float32(x), rows)
    named = {name.replace("test_", ""): name for name in got if "test_" in name}
    assert on.keys() == {*named, *named.values(), "grad_norm_sq"}
    for name, own in named.items():
        value = got[own] + added[name.split("_")[-1]]
        np.testing.assert_allclose(on[name], value, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("y", [0, 1])
def test_accuracy_counts_the_right_ones(y):
    """Signs and classes by hand: predicted 1, 0, 1, and a tie that counts as 0."""
    data = np.asarray([[[2.0], [-1.0], [0.5], [0.0]]]), np.full((1, 4), y)
    softmax = models.softmax_regression(1, 2, bias=False)
    for model, x in ((models.logistic(1), [1]), (models.hinge(1), [1]), (softmax, [0, 1])):
        problem = Problem(model, data, x0=np.asarray(x, float))
        assert jax.jit(evaluate_metrics)(problem, problem.x0)["accuracy"] == 0.5


@ENTRY
def test_full_gradient_is_the_clipped_mean_of_each_client(entry):
    problem = ragged(entry)
    model, x = problem.model, point(problem.model, 1)
    rows = jax.tree.map(lambda a: a.reshape(21, *a.shape[2:]), problem.train)
    grads = by_client(jax.jit(jax.vmap(jax.grad(model.loss), (None, 0)))(x, rows))
    size = [np.linalg.norm(g, axis=1, keepdims=True) for g in grads]
    for bound in (float(np.median(np.concatenate(size))), np.inf):
        each = zip(grads, size, strict=True)
        expected = [(g * np.minimum(1, bound / s)).mean(axis=0) for g, s in each]
        for numbers in (3 * (model.kernel.width + FEATURES + 1), 1 << 22):
            for f, right in ((full_gradient, expected), (mean_gradient, np.mean(expected, 0))):
                found = jax.jit(f, static_argnums=3)(problem, x, jnp.asarray(bound), numbers)
                np.testing.assert_allclose(found, right, rtol=2e-5, atol=1e-6)


def test_blocks():
    assert [even(6000, 4539), even(10, 3), even(7, 7), even(5, 100)] == [3000, 3, 7, 5]


@pytest.mark.parametrize("of", [evaluate_metrics, full_gradient, mean_gradient])
def test_memory_is_that_of_a_block(of):
    """Neither the activations of all rows nor a copy of the data."""
    model = models.mlp(30, 3, hidden=50)
    data = np.zeros((2, 20_001, 30), np.float32), np.zeros((2, 20_001), np.int32)
    problem, x = Problem(model, data), jnp.zeros(model.dim)
    more = (500,) if of is evaluate_metrics else (jnp.asarray(1.0), 100_000)
    program = jax.jit(of, static_argnums=1 + len(more)).lower(problem, x, *more).compile()
    analysis = program.memory_analysis()
    if analysis is None:
        pytest.skip("this backend does not tell its memory")
    assert analysis.temp_size_in_bytes < 2e6  # the features alone take 4.8e6


def test_validation_examples_are_set_aside_from_the_test():
    """Disjoint, complete, and measured like test examples."""
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(3, 4, 5)).astype(np.float32), rng.integers(0, 2, (3, 4))
    test = rng.normal(size=(10, 5)).astype(np.float32), rng.integers(0, 2, 10)
    data = jaxfl.data.from_clients((a, y), test=test, classes=2, stacked=True)
    model = jaxfl.models.logistic(5)
    problem = Problem(model, data, validation_share=0.3)
    rows = np.concatenate([problem.validation[0], problem.test[0]])
    assert len(problem.validation[1]) == 3
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, test[0].tolist()))
    x = jnp.asarray(rng.normal(size=model.dim), jnp.float32)
    losses = jax.vmap(model.loss, (None, 0))(x, problem.validation)
    found = jax.jit(evaluate_metrics)(problem, x)["validation_loss"]
    np.testing.assert_allclose(found, losses.mean(), rtol=1e-6)
    split = r"validation_share = .* on one side"
    refused(lambda: Problem(model, data, validation_share=0.01), split)


def test_metrics_on_some_records_are_those_of_a_problem_of_them():
    """Evenly spaced: 4 of 7 records are 0, 1, 3, 5; a client with fewer records has all of them."""
    entry = next(e for e in ZOO if e.name == "logistic")
    a, y = examples(entry, 21)
    rows = a.reshape(3, 7, -1), y.reshape(3, 7)
    test, model = examples(entry, 11, seed=4), entry.build()
    some = Problem(model, ClientData(rows, COUNT, test), eval_records=4)
    chosen = [[0, 1, 3, 5], [0, 1, 2, 2], [0, 1, 2, 3]]
    few = tuple(np.stack([leaf[i, j] for i, j in enumerate(chosen)]) for leaf in rows)
    alone = Problem(model, ClientData(few, np.minimum(COUNT, 4), test))
    assert (some.evaluated, alone.evaluated) == (4, None)
    found, expected = (jax.jit(evaluate_metrics)(of, point(model, 1)) for of in (some, alone))
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, err_msg=name)


def test_the_number_of_evaluated_records_follows_from_the_work():
    """All where an evaluation is short, else as many as two billion multiplications allow, or 512."""

    def evaluated(width: int, m: int = 2000, tests: int = 0, **given: Any) -> int | None:
        rows = np.zeros((2, m, 30), np.float32), np.zeros((2, m), np.int32)
        test = (rows[0][0, :tests], rows[1][0, :tests]) if tests else None
        data = ClientData(rows, np.full(2, m, np.int32), test)
        return Problem(models.mlp(30, 2, hidden=width), data, **given).evaluated

    vector = jax.ShapeDtypeStruct((30,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    d = models.mlp(30, 2, hidden=8000).dim
    assert multiplications(models.mlp(30, 2, hidden=8000), vector) == d
    assert evaluated(100) is None
    assert evaluated(8000, tests=1000) == (2**31 // d - 1000) // 6
    assert evaluated(50_000) == 512
    assert evaluated(50_000, eval_records="all") is None
    assert evaluated(100, eval_records=7) == 7
    refused(lambda: evaluated(100, eval_records=0), "eval_records = 0 must be at least 1")


@pytest.mark.full
@pytest.mark.parametrize("numbers", [64, 1 << 20])
def test_gradients_of_convolutions(monkeypatch, numbers):
    """Made of factors, in blocks of any size, where XLA is slow; equal to the gradient of the mean."""
    monkeypatch.setattr(metrics, "NUMBERS", numbers)
    model = models.cnn((4, 4, 1), 3, channels=2, hidden=4)
    assert model.kernel.convolves
    assert not models.mlp(4, 2, hidden=(3,)).kernel.convolves
    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 7, 4, 4, 1)), rng.integers(0, 3, (3, 7))
    problem, x = Problem(model, ClientData(data, COUNT)), point(model, 1)

    def f(x: Any) -> Any:
        each = jax.vmap(jax.vmap(model.loss, (None, 0)), (None, 0))(x, problem.train)
        live = np.arange(7) < COUNT[:, None]
        return jnp.mean(jnp.sum(each * live, axis=1) / COUNT)

    value, gradient = jax.value_and_grad(f)(x)
    found = jax.jit(evaluate_metrics)(problem, x)
    np.testing.assert_allclose(found["loss"], value, 1e-5)
    np.testing.assert_allclose(found["grad_norm_sq"], jnp.sum(gradient**2), 1e-4)
