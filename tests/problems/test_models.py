"""Losses, smoothness, constraint sets, and what bad input is told."""

import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from told import refusals, refused
from zoo import FEATURES, ZOO, Entry, examples, point

import jaxfl
from jaxfl import Problem
from jaxfl.cli.build import choose_problem
from jaxfl.cli.options import Setup
from jaxfl.core.errors import InputError
from jaxfl.core.types import Model
from jaxfl.data.records import ClientData
from jaxfl.problems import flax_models, models
from jaxfl.problems.custom import custom
from jaxfl.problems.flax_models import flax_model
from jaxfl.problems.metrics import evaluate_metrics
from jaxfl.problems.public import ball, box, l2, nonconvex

A = np.asarray([0.5, -1.0, 2.0, 0.0, 1.5])
X = np.asarray([1.0, 0.5, 0.25, -1.0, 2.0])
Z = float(A @ X)  # 3.5


def row(name: str) -> Entry:
    return next(entry for entry in ZOO if entry.name == name)


@pytest.mark.parametrize(
    ("model", "y", "expected"),
    [
        (models.logistic(5), 1, np.log1p(np.exp(-Z))),
        (models.logistic(5), 0, np.log1p(np.exp(Z))),
        (models.hinge(5), 1, 0.0),
        (models.hinge(5), 0, 1 + Z),
        (models.least_squares(5), 1.25, (Z - 1.25) ** 2 / 2),
        (models.absolute(5), 4.25, 0.75),
    ],
)
def test_scalar_losses(model, y, expected):
    x, a = jnp.asarray(X, jnp.float32), jnp.asarray(A, jnp.float32)
    np.testing.assert_allclose(model.loss(x, (a, y)), expected, rtol=1e-6, atol=1e-6)
    h, one = 1e-2, lambda t: model.loss((1 + t) * x, (a, y))
    slope = (one(h) - one(-h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(one)(0.0), slope, rtol=1e-2, atol=1e-3)
    for scale in (-1e4, 1e4):  # large margins stay finite
        value, grad = jax.value_and_grad(model.loss)(scale * x, (a, y))
        assert np.isfinite(value)
        assert np.all(np.isfinite(grad))


def test_network_is_the_one_described():
    """Layout of the flat vector and the loss, with every step written out in NumPy."""
    model = models.mlp(3, 4, hidden=2, activation="tanh")
    rng = np.random.default_rng(0)
    W, b, V, c = (rng.normal(size=s) for s in ((3, 2), (2,), (2, 4), (4,)))
    x = np.concatenate([W.ravel(), b, V.ravel(), c])
    a, y = rng.normal(size=3), 2
    z = np.tanh(a @ W + b) @ V + c
    expected = np.log(np.sum(np.exp(z))) - z[y]
    np.testing.assert_allclose(model.loss(jnp.asarray(x, jnp.float32), (a, y)), expected, rtol=1e-5)


def curvature(model: Model, train: Any, count: Any) -> Callable[[Any], float]:
    """x -> the largest Hessian norm over clients' real examples, regularizer included."""

    def loss(x: Any, example: Any) -> Any:
        return model.loss(x, example) + model.regularizer(x)

    each = jax.jit(jax.vmap(jax.hessian(loss), (None, 0)))
    live = np.arange(train[0].shape[1]) < np.asarray(count)[:, None]
    rows = jax.tree.map(lambda a: a[live], train)
    return lambda x: float(np.max(np.abs(np.linalg.eigvalsh(each(x, rows)))))


@pytest.mark.parametrize(
    ("name", "worst"),
    [("logistic", 0.0), ("logistic_bias", 0.0), ("least_squares", 0.0), ("softmax", None),
     ("softmax_no_bias", None)],
)  # fmt: skip
def test_smoothness_is_a_bound_and_is_attained(name, worst, x64):
    """No Hessian exceeds L, a bad point reaches it (so L/2 is refused), padding does not count."""
    model = row(name).build()
    a, y = examples(row(name), 24, dtype=np.float64)
    a, y = a.reshape(2, 12, -1), y.reshape(2, 12)
    count = np.asarray([12, 7])
    a[1, 7:] = 1e3
    assert model.smoothness is not None
    L, measured = model.smoothness((a, y), count), curvature(model, (a, y), count)
    for seed in range(3):
        assert measured(point(model, seed, np.float64)) <= L * (1 + 1e-12)
    bad = np.zeros(model.dim)
    if worst is None:  # two classes share the mass of the largest example, the third has none
        squares = np.where(np.arange(12) < count[:, None], np.sum(a**2, axis=2), 0)
        i, j = np.unravel_index(np.argmax(squares), squares.shape)
        bad[2 : FEATURES * 3 : 3] = -100 * a[i, j]
    assert 0.999 * L <= measured(bad) <= L * (1 + 1e-12)


def test_regularizers():
    x = jnp.asarray([1.0, -2.0, 0.0])
    np.testing.assert_allclose(nonconvex(0.2).value(x), 0.2 * (1 / 2 + 4 / 5), rtol=1e-6)
    np.testing.assert_allclose(l2(0.2).value(x), 0.1 * 5, rtol=1e-6)
    np.testing.assert_array_equal(jax.grad(models.logistic(3).regularizer)(x), 0 * x)
    for reg in (nonconvex(0.2), l2(0.2)):
        points = jnp.linspace(-3, 3, 301)
        second = jax.vmap(jax.grad(jax.grad(lambda t, reg=reg: reg.value(t[None]))))(points)
        np.testing.assert_allclose(np.max(np.abs(second)), reg.smoothness, rtol=1e-5)


SETS = {
    "ball": ball(0.7),
    "ball_centre": ball(0.7, [0.5, 0.0, -1.0]),
    "box": box(-0.3, 0.5),
    "box_each": box([-1.0, 0.0, 0.2], [0.0, 0.1, 2.0]),
}


@pytest.mark.parametrize("within", SETS.values(), ids=SETS)
def test_projection(within):
    """The projection p of x on a convex W: p in W, and (x - p).(q - p) <= 0 for every q in W."""
    model = models.logistic(3, constraint=within)
    rng = np.random.default_rng(0)
    x = jnp.asarray(2 * rng.normal(size=(200, 3)), jnp.float32)
    p = np.asarray(jax.vmap(model.project)(x))
    np.testing.assert_allclose(jax.vmap(model.project)(jnp.asarray(p)), p, atol=1e-6)
    products = np.einsum("ik,ijk->ij", x - p, p[None] - p[:, None])
    assert products.max() <= 1e-5
    assert np.any(np.abs(np.asarray(x) - p) > 0.1)
    far = np.linalg.norm(p[None] - p[:, None], axis=2).max()
    assert 0.9 * model.diameter <= far <= model.diameter * (1 + 1e-6)
    assert np.all(np.isnan(model.project(x[0] * jnp.nan)))


def test_equal_calls_give_the_same_model():
    """By functions, by name, by what the data ask for; and so do equal calls of `Problem`."""
    named = models.model("logistic", 5, 2, regularizer="nonconvex:0.2")
    assert named is models.logistic(5, regularizer=nonconvex(0.2))
    assert models.mlp(5, 3, hidden=[4], constraint="ball:1") is models.mlp(
        5, 3, hidden=4, constraint=ball(1)
    )
    kinds = models.least_squares(5), None, models.logistic(5), models.softmax_regression(5, 3)
    assert all(models.default_model(classes, 5) is kinds[classes] for classes in (0, 2, 3))
    assert flax_model(linen.Dense(3), (5,)) is flax_model(linen.Dense(3), (5,))
    left, right = (Problem(models.logistic(FEATURES), client_data()) for _ in range(2))
    assert jax.tree.structure(left) == jax.tree.structure(right)


def test_an_intercept_learns_how_frequent_a_class_is(key):
    """Of centred features that say nothing, with three labels of four 1: the loss is the entropy."""
    rows = np.zeros((8, FEATURES)), np.array([0, 1, 1, 1] * 2)
    data = jaxfl.data.from_clients([rows, rows], classes=2)
    given: Any = {"rounds": 60, "lr": 1.0, "clip": 10.0}
    for bias, loss in ((False, np.log(2)), (True, 2 * np.log(2) - 0.75 * np.log(3))):
        model = models.logistic(FEATURES, bias=bias)
        assert model.dim == FEATURES + bias
        run = jaxfl.simulate("ldp_gd", Problem(model, data), key, sigma=0.0, **given)
        assert run.metrics["loss"][-1] == pytest.approx(loss, rel=1e-3)


def test_linear_models_of_data_of_ones_own_have_an_intercept(tmp_path):
    """By default on the command line; other data and models are as papers have them."""
    (file := tmp_path / "mine.libsvm").write_text("\n".join(f"{i % 2} 1:{i} 4:2" for i in range(8)))
    for dim, given in (
        (5, {"data": str(file)}),
        (5, {"data": str(file), "model": "hinge"}),
        (4, {"data": str(file), "bias": "off"}),
        (60, {"data": "synthetic", "data_option": {"classes": 2}}),
        (61, {"data": "synthetic", "data_option": {"classes": 2}, "bias": "on"}),
        (640, {"data": "digits", "bias": "off"}),
    ):
        assert choose_problem(Setup(clients=2, **given)).model.dim == dim
    with pytest.raises(InputError, match="bias"):
        choose_problem(Setup(data="digits", model="char_lstm", bias="on"))


def test_initial_points(key):
    fifth = models.mlp(30, 3, hidden=20, init="normal/5").init(key)
    assert np.std(fifth) == pytest.approx(0.2, rel=0.1)
    first, second = models.mlp(400, 3, hidden=50).unravel(models.mlp(400, 3, hidden=50).init(key))
    assert np.std(first.weight) == pytest.approx(1 / 20, rel=0.05)
    assert np.std(second.weight) == pytest.approx(1 / np.sqrt(50), rel=0.2)
    assert np.all(first.bias == 0)
    layer = models.Layer(jnp.eye(2), jnp.full(2, 7.0))
    tree = models.softmax_regression(2, 2, init=lambda key: (layer,))
    np.testing.assert_array_equal(tree.init(key), [1, 0, 0, 1, 7, 7])
    bad = models.logistic(3, init=lambda key: jnp.zeros(2))
    refused(lambda: bad.init(key), "one vector of 3 numbers")
    params = linen.Dense(3).init(key, jnp.zeros((1, 5)))["params"]
    model = flax_model(linen.Dense(3), (5,))
    chex.assert_trees_all_equal(model.unravel(model.init(key)), params)
    held, other = nnx.Linear(5, 3, rngs=nnx.Rngs(4)), jax.random.key(1)
    start = flax_model(held, (5,))
    np.testing.assert_array_equal(start.unravel(start.init(key))["kernel"][...], held.kernel[...])
    drawn = flax_model(lambda rngs: nnx.Linear(5, 3, rngs=rngs), (5,))
    assert drawn.name == "flax-Linear"
    assert not np.array_equal(drawn.init(key), drawn.init(other))


DEEP: dict[str, tuple[Callable[[], Model], Any]] = {
    "cnn": (lambda: models.cnn(64, 3, channels=[2, 3], hidden=4), (64,)),
    "cnn, colors": (lambda: models.cnn((6, 5, 3), 3, channels=2, hidden=(5, 4)), (6, 5, 3)),
    "resnet_gn": (lambda: models.resnet_gn((8, 8), 3, channels=(2, 4), groups=2), (8, 8)),
    "char_lstm": (lambda: models.char_lstm(6, 20, embedding=4, hidden=(10, 11)), (6,)),
}


@pytest.mark.full
@pytest.mark.parametrize("name", DEEP)
def test_deep_networks(name, caplog):
    """Structural gradients without a notice, kernels that go to workers (no layer, with parameters
    that are being traced, hides in a closure), data of the shape given, and descent."""
    make, shape = DEEP[name]
    model = make()
    assert model is make()
    assert not caplog.records
    assert cloudpickle.loads(cloudpickle.dumps(model.kernel)).width == model.kernel.width
    rng, text = np.random.default_rng(0), name == "char_lstm"
    parts = []
    for _ in range(2):
        y = rng.integers(0, 3, 30)
        a = np.ones((30, *shape), int) + y.reshape(-1, *(1,) * len(shape))
        parts.append((a if text else 0.3 * a + rng.normal(size=a.shape) / 9, y))
    problem = Problem(model, jaxfl.data.from_clients(parts, classes=20 if text else 3))
    run = jaxfl.simulate("fedsgd", problem, jax.random.key(0), 60, lr=0.3, batch=10, clip=1.0)
    assert run.metrics["loss"][-1] < 0.9 * run.metrics["loss"][0]


def test_sizes_of_published_networks(monkeypatch):
    """Of LEAF's FEMNIST and Shakespeare, and about a million on CIFAR images cropped to 24x24."""
    monkeypatch.setattr(flax_models, "layered_kernel", lambda module: None)
    alone = {"regularizer": "l2:0.123"}  # models that no other test finds again
    assert models.cnn(28 * 28, 62, **alone).dim == 6_603_710
    assert models.cnn((24, 24, 3), 10, **alone).dim == 1_068_298
    assert models.char_lstm(80, 90, **alone).dim == 820_522
    flat = models.cnn(3072, 10, **alone), models.cnn((32, 32, 3), 10, **alone)
    assert flat[0].dim == flat[1].dim


def test_cnn_is_the_one_described(monkeypatch):
    """Convolutions and overlapping pools written out in NumPy."""
    monkeypatch.setattr(flax_models, "layered_kernel", lambda module: None)
    model = models.cnn((5, 4, 2), 3, channels=2, hidden=3, regularizer="l2:0.123")
    x = model.init(jax.random.key(0))
    p = jax.tree.map(np.asarray, model.unravel(x))
    a = np.random.default_rng(0).normal(size=(5, 4, 2))
    wide = np.pad(a, ((2, 2), (2, 2), (0, 0)))
    K = p["Conv_0"]["kernel"]
    z = [[np.tensordot(wide[i : i + 5, j : j + 5], K, 3) for j in range(4)] for i in range(5)]
    z = np.maximum(np.asarray(z) + p["Conv_0"]["bias"], 0)
    # windows of 3x3 every 2 pixels, with one row of padding above and below, and a column at the right
    z = np.pad(z, ((1, 1), (0, 1), (0, 0)))
    u = [[z[i : i + 3, j : j + 3].max((0, 1)) for j in (0, 2)] for i in (0, 2, 4)]
    u = np.maximum(np.ravel(u) @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"], 0)
    z = u @ p["Dense_1"]["kernel"] + p["Dense_1"]["bias"]
    expected = np.log(np.sum(np.exp(z))) - z[1]
    np.testing.assert_allclose(model.loss(x, (jnp.asarray(a, "float32"), 1)), expected, rtol=1e-5)


def client_data(**changes: Any) -> Any:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 4, FEATURES))
    y = rng.integers(0, 2, (3, 4))
    fields = {"train": (a, y), "count": np.asarray([4, 2, 3]), "test": (a[0], y[0])}
    return ClientData(**{**fields, "classes": 2, "name": "toy", **changes})


def test_problem():
    problem = Problem(models.logistic(FEATURES), client_data(), x0=np.ones(FEATURES))
    assert (problem.n, problem.m_max, problem.name) == (3, 4, "toy")
    assert [leaf.dtype for leaf in problem.train] == [jnp.float32, jnp.int32]
    softmax = models.softmax_regression(FEATURES, 2)
    tree = (models.Layer(np.ones((FEATURES, 2)), np.zeros(2)),)
    start = Problem(softmax, client_data(), x0=tree).x0
    np.testing.assert_array_equal(start, [1] * 2 * FEATURES + [0, 0])
    np.testing.assert_array_equal(posed({"w": np.ones(5)}).x0, np.ones(5))
    plain = Problem(models.logistic(FEATURES), client_data().train, name="plain")
    np.testing.assert_array_equal(plain.count, [4, 4, 4])


def test_the_users_arrays_are_copied():
    """JAX shares the memory of NumPy arrays that are aligned well, as this one is."""
    room = np.zeros(3 * 4 * FEATURES + 64, np.float32)
    start = -room.ctypes.data % 256 // 4
    a = room[start : start + 3 * 4 * FEATURES].reshape(3, 4, FEATURES)
    problem = Problem(models.logistic(FEATURES), client_data(train=(a, np.ones((3, 4), int))))
    a[:] = 5
    assert np.all(problem.train[0] == 0)


def test_double_precision_on_request(key):
    with jax.enable_x64(True):
        model = models.logistic(FEATURES, init="normal/5")
        problem = Problem(model, client_data(), dtype="float64")
        assert problem.train[0].dtype == jnp.float64
        assert problem.model.init(key).dtype == jnp.float64
        again = Problem(model, client_data(), dtype="float64")
        assert (again.model, hash(again.model)) == (problem.model, hash(problem.model))
        assert Problem(model, client_data()).model.init(key).dtype == jnp.float32


def test_a_loss_without_a_hash_serves(key):
    """As a data class with fields to compare is: it is only not known again."""

    @dataclasses.dataclass
    class Loss:
        scale: float

        def __call__(self, p: Any, e: Any) -> Any:
            return self.scale * (p["w"] @ e[0] - e[1]) ** 2

    problem = Problem(custom({"w": np.ones(FEATURES)}, Loss(0.5)), client_data())
    run = jaxfl.simulate("fedsgd", problem, key, 3, lr=0.01, batch=2)
    assert np.isfinite(run.metrics["loss"]).all()


@pytest.mark.full
@pytest.mark.optimized
def test_losses_of_many_cells_and_seeds_are_those_of_one():
    """Evaluated as a sweep does, at more than 65,536 outputs of each seed."""
    problem = Problem(models.softmax_regression(64, 10), jaxfl.data.split("digits", clients=5))
    x = 0.1 * jax.random.normal(jax.random.key(0), (2, 36, problem.model.dim))
    loss = lambda x: evaluate_metrics(problem, x)["loss"]  # noqa: E731
    together = jax.jit(jax.vmap(jax.vmap(loss)))(x)
    each = jax.lax.map(loss, x.reshape(72, -1)).reshape(2, 36)
    np.testing.assert_allclose(together, each, rtol=1e-5)


normed = linen.Sequential([linen.Dense(4), linen.BatchNorm(use_running_average=True)])


def dropping(rngs: nnx.Rngs) -> Any:
    return nnx.Sequential(nnx.Linear(5, 4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs))


def failing(rngs: nnx.Rngs) -> Any:
    raise AttributeError


def flax(module: Any, sample: Any = (5,), **given: Any) -> Any:
    return lambda: flax_model(module, sample, **given)


def own(loss: Any, params: Any = None, **given: Any) -> Any:
    params = {"w": np.zeros(3)} if params is None else params
    return lambda: custom(params, loss, **given)


def posed(*x0: Any, **more: Any) -> jaxfl.Problem:
    return Problem(models.logistic(5), client_data(), *x0, **more)


def of(**changes: Any) -> Any:
    return lambda: Problem(models.logistic(FEATURES), client_data(**changes))


def spoilt(leaf: int, value: Any) -> Any:
    train = [np.array(a) for a in client_data().train]
    train[leaf][0, 0] = value
    return of(train=(train[0], train[1]))


def lossy(loss: Any, **changes: Any) -> Any:
    return lambda: Problem(custom({"w": np.zeros(FEATURES)}, loss), client_data(**changes))


def raising(error: BaseException) -> Callable[[Any, Any], Any]:
    def loss(p: Any, e: Any) -> Any:
        raise error

    return loss


NOTHING, LABELS = np.zeros((3, 4, FEATURES)), np.zeros((3, 4), int)
PADDED = np.array([[1, 2, 1, 2], [1, 0, 0, 0], [2, 1, 2, 0]])
LINEAR, CONV = nnx.Linear(5, 3, rngs=nnx.Rngs(0)), linen.Conv(3, (3, 3))
test_mistakes_get_one_sentence = refusals(
    (
        lambda: models.mlp(64, **{"hiden": (3,)}),
        "^Model 'mlp' has no option 'hiden': did you mean 'hidden'",
    ),
    (
        lambda: models.mlp(64, 10, **{"classes": 3}),
        "^Model 'mlp' has 'classes' twice: 10, without its name, and 3: give one of them",
    ),
    (
        lambda: models.mlp(*(64, 32, 10)),
        "takes features and classes without a name, and 3 values have none: name the others: hidden, ",
    ),
    (
        lambda: models.custom({}, len, **{"nme": "a"}),
        "'custom' has no option 'nme': did you mean 'name'",
    ),
    (flax(normed), "batch norm by [^,]*norm.$"),
    (flax(dropping), "only: leave out dropout.$"),
    (flax(linen.Dense(1)), "one for each class"),
    (flax(linen.Dense(3), loss="logistic"), "loss takes one: give its last layer as many"),
    (flax(linen.Dense, (4,)), r"module = Dense must be a linen .*: pass Dense\(...\)"),
    (flax(failing, (4,)), "failing makes no module of nnx.Rngs .AttributeError"),
    (flax(LINEAR, (4,)), r"example of shape \(4,\), float32 of shape \(1, 4\)"),
    (flax(CONV, 64), r"sample is one number: .* give a tuple, such as \(64,\)"),
    (flax(linen.Embed(5, 3)), "float32 .* integer"),
    (lambda: models.model("logistic", 5, 3), "does not serve 3 classes"),
    (lambda: models.cnn(54, 3), r"features = 54 .* such as \(28, 28, 1\)"),
    (lambda: models.resnet_gn(64, 3, groups=5), "groups = 5 does not divide"),
    (lambda: models.default_model(3, (8, 8, 1)), "softmax' takes flat features: take 'cnn'"),
    (lambda: models.logistic(5, regularizer="l2"), "nonconvex:0.2"),
    (lambda: models.logistic(5, constraint=ball(1, [0, 0])), "has 2 coordinates"),
    (lambda: models.logistic(5, init=np.zeros(5)), "goes to Problem as x0"),
    (own(max, {"w": np.arange(3)}), "real numbers"),
    (own(max, {"w": np.full(3, np.nan)}), "init is not fi"),
    (spoilt(0, np.nan), "is not finite .* NaN and infinity"),
    (spoilt(0, 1e20), r"of size 1e\+20"),
    (of(train=(NOTHING + 1e60, LABELS)), "exceeds float32"),
    (spoilt(1, -1), "Labels hold -1, .*labels > 0"),
    (of(test=NOTHING[0, :2]), "same structure"),
    (of(train=(NOTHING[..., None], LABELS)), r"5, 1\) .*: reshape .*x.shape\[:-2\] \+ \(5,\)"),
    (
        of(train=(NOTHING, PADDED), count=np.asarray([4, 1, 3])),
        "hold 2, .* labels - 1 if they are 1",
    ),
    (of(train=(NOTHING.astype(int), LABELS)), "takes floats: convert"),
    (lambda: posed(np.zeros(4)), "one vector of 5 numbers"),
    (lambda: posed(dtype="float64"), "JAX_ENABLE_X64"),
    (lambda: Problem(client_data(), models.logistic(4)), "the model comes first"),  # type: ignore[arg-type]
    (lossy(lambda p, e: jnp.dot(p["w"][:3], e[0])), "for one example of these data, raises"),
    (
        lossy(lambda p, e: p["w"][e[1]], train=(NOTHING, LABELS * 1.0)),
        "float32: make integers of labels that are class numbers, as with classes=2",
    ),
    (lossy(lambda p, e: p["w"][e[1]], train=(NOTHING, LABELS + 0.5)), r"(?m)type float32\.$"),
    (lossy(lambda p, e: p["w"][0] if e[0][0] > 0 else p["w"][1]), "choose by jnp.where"),
    (lossy(lambda p, e: p["w"] * e[0]), r"returns .* one real number"),
    (lossy(lambda p, e: p["w"] @ e[0] > 0), "returns bool"),
    (lossy(raising(RuntimeError("one\ntwo"))), r"(?m)RuntimeError: one\.$"),
)
