"""Gradients of flax modules, layer by layer, against `jax.grad` of each example."""

import logging
import zlib
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from told import refused
from zoo import close, sums

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.types import Term
from jaxfl.problems import layers
from jaxfl.problems.clipping import evaluate
from jaxfl.problems.flax_models import flax_model
from jaxfl.problems.parameters import by_leaf, raveled

B, SHAPE = 7, (8, 8, 2)


class Convolutions(linen.Module):
    """Every way to call a convolution, and layers of other kinds between."""

    @linen.compact
    def __call__(self, a: Any) -> Any:
        a = linen.relu(linen.Conv(3, (3, 2), strides=2)(a))
        a = linen.GroupNorm(num_groups=1)(linen.Conv(4, (2, 2), padding=1, kernel_dilation=2)(a))
        a = linen.Conv(4, (3, 3), padding=((0, 1), (1, 0)), use_bias=False)(linen.tanh(a))
        a = linen.Conv(4, (1, 1), feature_group_count=2)(a)  # not a plain product
        return linen.Dense(3)(a.reshape(a.shape[0], -1))


class Sequences(linen.Module):
    """Convolutions along one axis, in numbers where others write tuples."""

    @linen.compact
    def __call__(self, a: Any) -> Any:
        a = linen.tanh(linen.Conv(3, 3, strides=2, padding=1)(a.reshape(a.shape[0], 32, 4)))
        a = linen.tanh(linen.Conv(3, 2, kernel_dilation=2, padding=[(1, 0)])(a))
        a = linen.Conv(2, 2, input_dilation=2, padding=0)(a)
        return linen.Dense(3)(a.reshape(a.shape[0], -1))


class NnxSequences(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Conv(4, 3, 3, strides=2, padding=1, kernel_dilation=2, rngs=rngs)
        self.last = nnx.Linear(45, 3, rngs=rngs)

    def __call__(self, a: Any) -> Any:
        a = nnx.tanh(self.first(a.reshape(a.shape[0], 32, 4)))
        return self.last(a.reshape(a.shape[0], -1))


class Positions(linen.Module):
    """Dense layers at many positions and at one; as pairs and as sums."""

    @linen.compact
    def __call__(self, a: Any) -> Any:
        a = linen.tanh(linen.Dense(6)(a.reshape(a.shape[0], 8, 16)))
        a = linen.tanh(linen.Dense(2, use_bias=False)(a)).reshape(a.shape[0], -1)
        return linen.Dense(3)(linen.Dense(20)(a))


class Tied(linen.Module):
    """A layer that is called twice has no single product."""

    @linen.compact
    def __call__(self, a: Any) -> Any:
        again = linen.Dense(8)
        a = a.reshape(a.shape[0], -1)[:, :8]
        return linen.Dense(3)(again(linen.tanh(again(a))))


class Borrowed(linen.Module):
    """Weights of a layer that are used outside of it."""

    @linen.compact
    def __call__(self, a: Any) -> Any:
        layer = linen.Dense(4)
        a = a.reshape(a.shape[0], -1)
        z = linen.tanh(layer(a)) @ layer.variables["params"]["kernel"].T[:, :3]
        return z


class Decoder(linen.Module):
    """A layer's weights once more, where nothing passes for many points: behind a dead ReLU."""

    width: int

    @linen.compact
    def __call__(self, a: Any) -> Any:
        layer = linen.Dense(self.width)
        a = layer_then_transposed(layer, a, lambda: layer.variables["params"]["kernel"])
        return linen.Dense(3)(linen.relu(a))


class NnxDecoder(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs):
        self.layer = nnx.Linear(SHAPE[-1], width, rngs=rngs)
        self.last = nnx.Linear(SHAPE[-1], 3, rngs=rngs)

    def __call__(self, a: Any) -> Any:
        return self.last(nnx.relu(layer_then_transposed(self.layer, a, lambda: self.layer.kernel)))


def layer_then_transposed(layer: Any, a: Any, kernel: Callable[[], Any]) -> Any:
    a = nnx.relu(layer(a[:, 0, 0]))
    return a @ jnp.asarray(kernel()).T


class NnxBefore(nnx.Module):
    """The weights are in what enters their own layer."""

    def __init__(self, rngs: nnx.Rngs):
        self.layer = nnx.Linear(2, 2, rngs=rngs)
        self.last = nnx.Linear(2, 3, rngs=rngs)

    def __call__(self, a: Any) -> Any:
        return self.last(self.layer(nnx.relu(a[:, 0, 0] @ jnp.asarray(self.layer.kernel))))


class Twice(linen.Module):
    """A second call that is not of one example."""

    @linen.compact
    def __call__(self, a: Any) -> Any:
        layer = linen.Dense(2)
        rows = layer(linen.relu(layer(a[:, 0, 0])) * jnp.ones((4, 1)))
        return linen.Dense(3)(linen.relu(rows.sum(axis=0, keepdims=True)))


class Normed(linen.Module):
    """Weights of the layer are computed from the parameters."""

    @linen.compact
    def __call__(self, a: Any) -> Any:
        a = linen.WeightNorm(linen.Dense(1))(a[:, 0, 0])
        return linen.Dense(3)(linen.relu(a))


class Bare(linen.Module):
    @linen.compact
    def __call__(self, a: Any) -> Any:
        w = self.param("w", linen.initializers.normal(), (128, 3))
        return a.reshape(a.shape[0], -1) @ w


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.blocks = nnx.List([nnx.Conv(2, 4, (3, 3), padding="VALID", rngs=rngs)])
        # E[a^2] - E[a]^2, the default, loses the digits that gradients are compared by.
        self.norm = nnx.LayerNorm(4, use_fast_variance=False, rngs=rngs)
        self.last = nnx.Linear(6 * 6 * 4, 3, rngs=rngs)

    def __call__(self, a: Any) -> Any:
        a = nnx.relu(self.norm(self.blocks[0](a)))
        return self.last(a.reshape(a.shape[0], -1))


CASES: dict[str, tuple[Callable[[], Any], bool]] = {
    "convolutions": (Convolutions, True),
    "positions": (Positions, True),
    "sequences": (Sequences, True),
    "nnx sequences": (lambda: NnxSequences(nnx.Rngs(0)), True),
    "tied": (Tied, True),
    "borrowed": (Borrowed, False),
    "bare": (Bare, False),
    "nnx": (lambda: Nnx(nnx.Rngs(0)), True),
}


def batch(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(B, *SHAPE)) * np.exp(rng.normal(size=(B, 1, 1, 1)))
    return jnp.asarray(a, jnp.float32), jnp.asarray(rng.integers(0, 3, B), jnp.int32)


@pytest.mark.parametrize("name", CASES)
def test_layers_give_the_gradients(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, structural = CASES[name]
    with caplog.at_level(logging.WARNING, "jaxfl"):
        model = flax_model(make(), SHAPE, name=name)
    assert (model.kernel.width < model.dim) == structural
    lines = [record.getMessage() for record in caplog.records]
    slow = f"{name}: per-example gradients use the slow vmap(grad)."
    assert lines == ([] if structural else [slow])
    rng, data = np.random.default_rng(1), batch()
    x, w = (jnp.asarray(rng.normal(size=model.dim) / 3, jnp.float32) for _ in range(2))
    weight = jnp.asarray(rng.uniform(size=B), jnp.float32)
    for left, right in sums(model, x, w, weight, data):
        close(left, right, 2e-5)


PARTS: dict[str, Callable[[str], bool]] = {
    "kernels": lambda path: "kernel" in path or "embedding" in path,
    "biases": lambda path: "bias" in path,
    "some": lambda path: zlib.crc32(path.encode()) % 3 > 0,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", [*CASES, "lstm"])
def test_frozen_parameters(
    name: str, part: str, key: jax.Array, caplog: pytest.LogCaptureFixture
) -> None:
    """Gradients are those of the whole model in the trained leaves; the others keep their values."""
    lstm = lambda a: linen.RNN(linen.OptimizedLSTMCell(5))(a[:, :, 0])[:, -1]  # noqa: E731
    make = CASES[name][0] if name in CASES else lambda: Net(lstm)
    trainable = PARTS[part] if name != "bare" else lambda path: path == "w"
    whole = flax_model(make(), SHAPE)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "jaxfl"):
        model = flax_model(make(), SHAPE, trainable=trainable)
    if part == "kernels" and name in CASES and CASES[name][1]:
        assert not caplog.records
    rng, data = np.random.default_rng(1), batch()
    x, w = (jnp.asarray(rng.normal(size=model.dim) / 3, jnp.float32) for _ in range(2))
    weight = jnp.asarray(rng.uniform(size=B), jnp.float32)
    for left, right in sums(model, x, w, weight, data):
        close(left, right, 2e-5)
    start = whole.unravel(whole.init(jax.random.key(0)))
    leaves, treedef = jax.tree.flatten(model.unravel(x))
    held = jax.tree.leaves(by_leaf(model, x), is_leaf=lambda a: a is None)
    for mine, before, one in zip(leaves, jax.tree.leaves(start), held, strict=True):
        assert (mine == (before if one is None else one)).all()
    g = jax.grad(lambda tree: whole.loss(raveled(tree), jax.tree.map(lambda a: a[0], data)))
    g = jax.tree.leaves(g(jax.tree.unflatten(treedef, leaves)))
    mine = jax.grad(model.loss)(x, jax.tree.map(lambda a: a[0], data))
    close(mine, raveled([a for a, one in zip(g, held, strict=True) if one is not None]), 2e-5)


class Adapted(linen.Module):
    """A dense layer with a low-rank adapter [Hu et al., 2022], and a frozen last layer."""

    @linen.compact
    def __call__(self, a: Any) -> Any:
        a = a.reshape(len(a), -1)
        low = linen.Dense(2, use_bias=False, name="lora_a")(a)
        up = linen.Dense(16, use_bias=False, name="lora_b", kernel_init=linen.initializers.zeros)
        return linen.Dense(3)(linen.relu(linen.Dense(16)(a) + up(low)))


def test_low_rank_adapters(key: jax.Array, caplog: pytest.LogCaptureFixture) -> None:
    """Runs learn the adapters alone, clipped by structure; optimizers by leaf see no other leaf."""
    module = Adapted()
    held = module.init(jax.random.key(5), jnp.zeros((1, *SHAPE)))["params"]
    with caplog.at_level(logging.WARNING, "jaxfl"):
        model = flax_model(
            module, SHAPE, init=lambda key: held, trainable=lambda path: "lora" in path
        )
    assert not caplog.records
    assert model.dim == 2 * (128 + 16)
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(3, 20, *SHAPE)).astype("float32"), rng.integers(0, 3, (3, 20))
    problem = jaxfl.make_problem(model, (a, y))
    rates = {"lora_a": 0.0, "lora_b": 1.0}

    def label(tree: Any) -> Any:
        assert len(jax.tree.leaves(tree)) == 2
        return {name: name if name in rates else "lora_a" for name in tree}

    server = jaxfl.servers.optimizer(
        lambda hp: optax.multi_transform(
            {name: optax.sgd(rate * hp["lr"]) for name, rate in rates.items()}, label
        ),
        model=model,
    )
    run = jaxfl.simulate(
        jaxfl.algorithm("ldp_sgd", server=server),
        problem,
        key,
        5,
        clip=1.0,
        sigma=0.01,
        batch=5,
        lr=0.5,
    )
    for name in ("Dense_0", "Dense_1", "lora_a"):
        chex.assert_trees_all_equal(run.params[name], held[name])
    assert run.metrics["loss"][-1] < run.metrics["loss"][0]
    again = jaxfl.make_problem(model, (a, y), by_leaf(model, jnp.asarray(run.x)))
    assert (again.x0 == run.x).all()


def test_what_cannot_be_frozen() -> None:
    refused(
        lambda: flax_model(Adapted(), SHAPE, trainable=lambda path: False),
        "leaves nothing to learn",
    )
    refused(lambda: flax_model(Adapted(), SHAPE, trainable="lora"), "'lora' is no function")
    refused(
        lambda: flax_model(Adapted(), SHAPE, trainable=lambda path: None),
        "returns None for 'Dense_0/bias'",
    )
    few = {"w": np.zeros(3), "b": np.zeros(2)}
    loss = lambda p, e: ((p["w"] - e) ** 2).sum() + p["b"].sum()  # noqa: E731
    model = jaxfl.models.custom(few, loss, trainable=lambda path: path == "w")
    assert model.dim == 3
    refused(
        lambda: jaxfl.models.custom(few, loss, trainable=lambda path: path == "v"),
        "True for one of 'b', 'w'",
    )


class Net(linen.Module):
    """A module of a function that makes its layers."""

    build: Callable[..., Any]

    @linen.compact
    def __call__(self, a: Any) -> Any:
        return self.build(a)


class NnxNet(nnx.Module):
    def __init__(self, build: Callable[..., Any], **layers: Any):
        self.build = nnx.static(build)
        for name, make in layers.items():
            setattr(self, name, make(rngs=nnx.Rngs(0)))

    def __call__(self, a: Any) -> Any:
        return self.build(self, a)


def pooled(pool: Any) -> Any:
    return lambda a: linen.Dense(3)(
        pool(linen.Conv(4, (3, 3))(a), (4, 4), strides=(4, 4)).reshape(1, -1)
    )


def residual(a: Any) -> Any:
    b = linen.Conv(2, (3, 3), use_bias=False)(linen.tanh(linen.GroupNorm(1)(a)))
    return linen.Dense(3)((a + b).mean(axis=(1, 2)))


def tied(tokens: Any) -> Any:
    """Logits of the tokens, by the embedding itself."""
    embed = linen.Embed(V, 20)
    return embed.attend(linen.tanh(embed(tokens)).mean(axis=1)) + embed.attend(embed(tokens)[:, 0])


def twice(a: Any) -> Any:
    layer = linen.Dense(30)
    return linen.Dense(3)(layer(linen.tanh(layer(a.reshape(1, -1)[:, :30]))))


def linen_rnn(cell: Any, **options: Any) -> Any:
    return lambda a: linen.Dense(3)(linen.RNN(cell(20), **options)(a)[:, -1])


def nnx_rnn(cell: Any, **options: Any) -> Any:
    return NnxNet(
        lambda self, a: self.last(self.rnn(a)[:, -1]),
        rnn=lambda rngs: nnx.RNN(cell(4, 20, rngs=rngs), **options),
        last=lambda rngs: nnx.Linear(20, 3, rngs=rngs),
    )


def both_ways(a: Any) -> Any:
    z = linen.Bidirectional(linen.RNN(linen.LSTMCell(20)), linen.RNN(linen.GRUCell(20)))(a)
    return linen.Dense(3)(z[:, 2])


def stacked(tokens: Any) -> Any:
    a = linen.RNN(linen.OptimizedLSTMCell(20))(linen.Embed(V, 4)(tokens))
    return linen.Dense(V)(linen.RNN(linen.OptimizedLSTMCell(20))(a)[:, -1])


V, T = 61, 5
IMAGE, SERIES, TOKENS = SHAPE, (T, 4), jax.ShapeDtypeStruct((T,), "int32")
LSTM, GRU = T * (25 + 80), 3 * 5 * 20 + T * (2 * (20 + 20) + 21 + 20)
DENSE = 21 + 3  # after 20 units
# what one example's gradient takes: the factors of products, and all of other parameters
LAYERS: dict[str, tuple[Any, Any, int]] = {
    "dense": (Net(lambda a: linen.Dense(3)(linen.Dense(20)(a.reshape(1, -1)))), IMAGE, 149 + DENSE),
    "dense without bias": (
        Net(lambda a: linen.Dense(3, use_bias=False)(linen.tanh(a.reshape(1, -1)))),
        IMAGE,
        128 + 3,
    ),
    "convolution": (
        Net(lambda a: linen.Conv(9, (8, 6), 2, padding="VALID")(a).reshape(1, -1)[:, :3]),
        IMAGE,
        2 * (97 + 9),
    ),
    "group norm": (
        Net(lambda a: linen.Dense(3)(linen.GroupNorm(4)(linen.Dense(20)(a.reshape(1, -1))))),
        IMAGE,
        149 + 40 + DENSE,
    ),
    "layer norm": (
        Net(lambda a: linen.Dense(3)(linen.LayerNorm()(linen.Dense(20)(a.reshape(1, -1))))),
        IMAGE,
        149 + 40 + DENSE,
    ),
    "average pool": (Net(pooled(linen.avg_pool)), IMAGE, 19 * 4 + 17 + 3),
    "max pool": (Net(pooled(linen.max_pool)), IMAGE, 19 * 4 + 17 + 3),
    "residual": (Net(residual), IMAGE, 18 * 2 + 4 + 6),
    "embedding": (
        Net(lambda a: linen.Dense(3)(linen.tanh(linen.Embed(V, 20)(a)).mean(axis=1))),
        TOKENS,
        T * (1 + 20) + DENSE,
    ),
    "small embedding": (
        Net(lambda a: linen.Dense(3)(linen.tanh(linen.Embed(4, 20)(a)).mean(axis=1))),
        TOKENS,
        4 * 20 + DENSE,
    ),
    "nnx embedding": (
        NnxNet(
            lambda self, a: self.e.attend(nnx.tanh(self.e(a)).mean(axis=1)),
            e=lambda rngs: nnx.Embed(V, 20, rngs=rngs),
        ),
        TOKENS,
        (T + 1) * (V + 20),
    ),
    "tied": (Net(tied), TOKENS, (2 * T + 2) * (V + 20)),
    "twice": (Net(twice), IMAGE, 2 * (31 + 30) + 31 + 3),
    "LSTM": (Net(linen_rnn(linen.LSTMCell)), SERIES, LSTM + DENSE),
    "LSTM, both ways": (Net(both_ways), SERIES, LSTM + GRU + 41 + 3),
    "characters": (
        Net(stacked),
        TOKENS,
        T * (1 + 4) + LSTM + T * (41 + 80) + 21 + V,
    ),
    "GRU": (Net(linen_rnn(linen.GRUCell)), SERIES, GRU + DENSE),
    "nnx LSTM": (nnx_rnn(nnx.OptimizedLSTMCell), SERIES, 4 * 80 + T * (21 + 80) + DENSE),
    "nnx GRU": (nnx_rnn(nnx.GRUCell, reverse=True), SERIES, 5 * 60 + T * (20 + 60) + DENSE),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_each_layer(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Factors, norms and clipped sums are those of `jax.grad`, and the layer is not the fallback's."""
    module, sample, width = LAYERS[name]
    with caplog.at_level(logging.WARNING, "jaxfl"):
        model = flax_model(module, sample, name=name)
    assert not caplog.records
    assert model.kernel.width == width
    rng, tokens = np.random.default_rng(1), sample is TOKENS
    a = rng.integers(0, 4, (B, T)) if tokens else rng.normal(size=(B, *sample))
    examples = jnp.asarray(a, "int32" if tokens else "float32"), jnp.asarray(rng.integers(0, 3, B))
    x, w = (jnp.asarray(rng.normal(size=model.dim) / 3, jnp.float32) for _ in range(2))
    weight = jnp.asarray(rng.uniform(size=B), jnp.float32)

    @jax.jit
    def both() -> Any:
        g = 3 * jax.vmap(jax.grad(model.loss), (None, 0))(x, examples)
        g = g - 2 * jax.vmap(jax.grad(model.loss), (None, 0))(w, examples)
        norms = jnp.linalg.norm(g, axis=1)
        G = jnp.median(norms)
        F = model.kernel.combine((3, -2), [model.kernel.factors(p, examples) for p in (x, w)])
        square = model.kernel.inner(F, F, examples)
        total = evaluate(model.kernel, (Term(1.0, (x, w), (3, -2), G),), weight, examples)[0]
        return (square, norms**2), (total, (weight * jnp.minimum(1, G / norms)) @ g)

    for left, right in both():
        close(left, right, 2e-5)


OTHER_USES: dict[str, Callable[[], Any]] = {
    **{f"linen {width}": lambda width=width: Decoder(width) for width in (1, 16, 64)},
    **{f"nnx {width}": lambda width=width: NnxDecoder(width, nnx.Rngs(0)) for width in (1, 64)},
    "borrowed": Borrowed,
    "before": lambda: NnxBefore(nnx.Rngs(0)),
    "twice": Twice,
    "normed": Normed,
}


@pytest.mark.parametrize("name", OTHER_USES)
def test_other_uses_are_seen_without_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """These may be zero, or small, at the points of a comparison."""
    monkeypatch.setattr(layers, "_agrees", lambda *_: True)
    model = flax_model(OTHER_USES[name](), SHAPE, name=f"{name} without gradients")
    assert model.kernel.width == model.dim


def test_gradients_are_compared_at_several_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a single unit, shut at half of the points, whose weights are computed."""
    monkeypatch.setattr(layers, "_products", lambda *_: True)
    model = flax_model(Normed(), SHAPE, name="by gradients")
    assert model.kernel.width == model.dim


@pytest.mark.once
def test_examples_of_a_batch_do_not_meet() -> None:
    """A module that looks across its batch sees one example at a time, in gradients too."""

    class Across(linen.Module):
        @linen.compact
        def __call__(self, a: Any) -> Any:
            a = a.reshape(a.shape[0], -1)
            return linen.Dense(3)(a - a.mean(axis=0, keepdims=True) + 1.0)

    model = flax_model(Across(), SHAPE)
    (a, y), x = batch(), model.init(jax.random.key(0))
    both = model.kernel.factors(x, (a, y))
    alone = model.kernel.factors(x, (a[:1], y[:1]))
    first = jax.tree.map(lambda a: a[:1], both)
    chex.assert_trees_all_close(first, alone, rtol=1e-6)


NUMBERS = {"batch": 3, "sigma": 0.01, "lr": 0.1, "clip": 1.0, "omega": 1}


class Bag(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Embed(11, 20, rngs=rngs)
        self.last = nnx.Linear(20, 3, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        return self.last(nnx.tanh(self.embed(tokens).mean(axis=1)))


def test_integers_are_features() -> None:
    """Token ids stay integers from the sample to the gradients, clipped ones among them."""
    rng = np.random.default_rng(0)
    parts = [(rng.integers(0, 11, (m, 6)), rng.integers(0, 3, m)) for m in (7, 9)]
    model = flax_model(Bag(nnx.Rngs(0)), parts[0][0][0])
    assert model.kernel.width < model.dim
    problem = jaxfl.make_problem(model, jaxfl.data.from_clients(parts, classes=3))
    assert problem.train[0].dtype == jnp.int32
    x, one = model.init(jax.random.key(0)), jax.tree.map(lambda a: a[1], problem.train)
    g = jax.vmap(jax.grad(model.loss), (None, 0))(x, one)
    term = Term(1.0, (x,), (1.0,), jnp.float32(0.5))
    found = evaluate(model.kernel, (term,), jnp.ones(9), one)[0]
    short = np.minimum(1, 0.5 / np.linalg.norm(g, axis=1)) @ np.asarray(g)
    np.testing.assert_allclose(found, short, rtol=1e-4, atol=1e-6)
    run = jaxfl.simulate("soteriafl_saga", problem, jax.random.key(0), 5, **NUMBERS)
    assert run.metrics["loss"][-1] < run.metrics["loss"][0]
    table = sum(a.size for a in jax.tree.leaves(run.state.local))  # what the layers keep
    assert table == 2 * 9 * model.kernel.width
    floats = [(a.astype(np.float32), y) for a, y in parts]
    with pytest.raises(InputError, match="the model takes integers"):
        jaxfl.make_problem(model, jaxfl.data.from_clients(floats, classes=3))


class Halved(linen.Module):
    """Computes in bfloat16: what enters some layers, or all of it, or keeps its weights so too."""

    enter: Any = jnp.float32
    inside: Any = jnp.float32
    held: Any = jnp.float32

    @linen.compact
    def __call__(self, a: Any) -> Any:
        kinds = {"dtype": self.inside, "param_dtype": self.held}
        a = a.reshape(a.shape[0], -1)[:, :30].astype(self.enter)
        a = linen.tanh(linen.Dense(20, **kinds)(a)).astype(self.enter)
        return linen.Dense(3, **kinds)(a)


HALF = jnp.bfloat16


@pytest.mark.parametrize(
    ("kinds", "structural"),
    [((HALF,), True), ((HALF, HALF), False), ((jnp.float32, HALF, HALF), False)],
)
def test_clipping_is_exact_where_modules_are_not(kinds: tuple[Any, ...], structural: bool) -> None:
    """What is clipped are the gradients as they came out, with norms in float32."""
    model, G = flax_model(Halved(*kinds), SHAPE), 0.01
    assert (model.kernel.width < model.dim) == structural
    x, (a, y) = model.init(jax.random.key(0)), batch()
    assert x.dtype == jnp.float32
    term = Term(1.0, (x,), (1.0,), jnp.float32(G))

    def clipped(a: jax.Array, y: jax.Array) -> jax.Array:
        return evaluate(model.kernel, (term,), jnp.ones(1), (a[None], y[None]))[0]

    g = np.asarray([jax.jit(clipped)(*each) for each in zip(a, y, strict=True)], np.float64)
    norms = np.linalg.norm(g, axis=1)
    np.testing.assert_allclose(norms, G, rtol=1e-5)  # all are longer than G
    true = np.asarray(jax.vmap(jax.grad(model.loss), (None, 0))(x, (a, y)), np.float64)
    true *= (G / np.linalg.norm(true, axis=1))[:, None]
    assert np.linalg.norm(g - true, axis=1).max() < 0.01 * G
