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
from jaxfl.core.types import Term
from jaxfl.problems import layers
from jaxfl.problems.clipping import evaluate
from jaxfl.problems.flax_models import flax_model
from jaxfl.problems.parameters import by_leaf, raveled

B, V, T = 7, 61, 5
IMAGE, SERIES, TOKENS = (8, 8, 2), (T, 4), jax.ShapeDtypeStruct((T,), "int32")


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


def flat(a: Any) -> Any:
    return a.reshape(len(a), -1)


def dense(a: Any) -> Any:
    return linen.Dense(3)(linen.GroupNorm(4)(linen.Dense(20)(flat(a))))


def convolution(a: Any) -> Any:
    return flat(linen.Conv(9, (8, 6), 2, padding="VALID")(a))[:, :3]


def convolutions(a: Any) -> Any:
    """Every way to call a convolution, and layers of other kinds between."""
    a = linen.relu(linen.Conv(3, (3, 2), strides=2)(a))
    a = linen.GroupNorm(num_groups=1)(linen.Conv(4, (2, 2), padding=1, kernel_dilation=2)(a))
    a = linen.Conv(4, (3, 3), padding=((0, 1), (1, 0)), use_bias=False)(linen.tanh(a))
    a = linen.Conv(4, (1, 1), feature_group_count=2)(a)  # not a plain product
    return linen.Dense(3)(flat(a))


def sequences(a: Any) -> Any:
    """Convolutions along one axis, in numbers where others write tuples."""
    a = linen.tanh(linen.Conv(3, 3, strides=2, padding=1)(a.reshape(len(a), 32, 4)))
    a = linen.tanh(linen.Conv(3, 2, kernel_dilation=2, padding=[(1, 0)])(a))
    return linen.Dense(3)(flat(linen.Conv(2, 2, input_dilation=2, padding=0)(a)))


def positions(a: Any) -> Any:
    """Dense layers at many positions and at one; as pairs and as sums."""
    a = linen.tanh(linen.Dense(6)(a.reshape(len(a), 8, 16)))
    a = linen.tanh(linen.Dense(2, use_bias=False)(a))
    return linen.Dense(3)(linen.Dense(20)(flat(a)))


def borrowed(a: Any) -> Any:
    """Weights of a layer that are used outside of it."""
    layer = linen.Dense(4)
    return linen.tanh(layer(flat(a))) @ layer.variables["params"]["kernel"].T[:, :3]


def then_transposed(a: Any) -> Any:
    """A layer's weights once more, where nothing passes for many points: behind a dead ReLU."""
    layer = linen.Dense(16)
    a = linen.relu(layer(a[:, 0, 0])) @ layer.variables["params"]["kernel"].T
    return linen.Dense(3)(linen.relu(a))


def linear(rows: int, columns: int) -> Any:
    return lambda rngs: nnx.Linear(rows, columns, rngs=rngs)


def twice_as_rows(a: Any) -> Any:
    """A second call that is not of one example."""
    layer = linen.Dense(2)
    rows = layer(linen.relu(layer(a[:, 0, 0])) * jnp.ones((4, 1)))
    return linen.Dense(3)(linen.relu(rows.sum(axis=0, keepdims=True)))


def normed(a: Any) -> Any:
    """Weights of the layer are computed from the parameters."""
    return linen.Dense(3)(linen.relu(linen.WeightNorm(linen.Dense(1))(a[:, 0, 0])))


class Bare(linen.Module):
    @linen.compact
    def __call__(self, a: Any) -> Any:
        return flat(a) @ self.param("w", linen.initializers.normal(), (128, 3))


def embedded(tokens: int) -> Any:
    return lambda a: linen.Dense(3)(linen.tanh(linen.Embed(tokens, 20)(a)).mean(axis=1))


def tied(tokens: Any) -> Any:
    """Logits of the tokens, by the embedding itself."""
    embed = linen.Embed(V, 20)
    return embed.attend(linen.tanh(embed(tokens)).mean(axis=1)) + embed.attend(embed(tokens)[:, 0])


def twice(a: Any) -> Any:
    layer = linen.Dense(30)
    return linen.Dense(3)(layer(linen.tanh(layer(flat(a)[:, :30]))))


def linen_rnn(cell: Any) -> Any:
    return lambda a: linen.Dense(3)(linen.RNN(cell(20))(a)[:, -1])


NNX_RNN = NnxNet(
    lambda self, a: self.last(self.rnn(a)[:, -1]),
    rnn=lambda rngs: nnx.RNN(nnx.OptimizedLSTMCell(4, 20, rngs=rngs), reverse=True),
    last=linear(20, 3),
)


def stacked(tokens: Any) -> Any:
    a = linen.RNN(linen.OptimizedLSTMCell(20))(linen.Embed(V, 4)(tokens))
    return linen.Dense(V)(linen.RNN(linen.OptimizedLSTMCell(20))(a)[:, -1])


# E[a^2] - E[a]^2, the default of LayerNorm, loses the digits that gradients are compared by.
NNX_NORMED = NnxNet(
    lambda self, a: self.last(flat(nnx.relu(self.norm(self.blocks[0](a))))),
    blocks=lambda rngs: nnx.List([nnx.Conv(2, 4, (3, 3), padding="VALID", rngs=rngs)]),
    norm=lambda rngs: nnx.LayerNorm(4, use_fast_variance=False, rngs=rngs),
    last=linear(6 * 6 * 4, 3),
)
LSTM, GRU = T * (25 + 80), 3 * 5 * 20 + T * (2 * (20 + 20) + 21 + 20)
DENSE = 21 + 3  # after 20 units
# What one example's gradient takes: the factors of products, and all of other parameters; None
# where `vmap(grad)` takes all.
LAYERS: dict[str, tuple[Any, Any, int | None]] = {
    "embedding": (Net(embedded(V)), TOKENS, T * (1 + 20) + DENSE),
    "dense": (Net(dense), IMAGE, 149 + 40 + DENSE),
    "small embedding": (Net(embedded(4)), TOKENS, 4 * 20 + DENSE),
    "convolution": (Net(convolution), IMAGE, 2 * (97 + 9)),
    "convolutions": (Net(convolutions), IMAGE, 295),
    "positions": (Net(positions), IMAGE, 175),
    "sequences": (Net(sequences), IMAGE, 134),
    "borrowed": (Net(borrowed), IMAGE, None),
    "bare": (Bare(), IMAGE, None),
    "nnx": (NNX_NORMED, IMAGE, 232),
    "tied": (Net(tied), TOKENS, (2 * T + 2) * (V + 20)),
    "twice": (Net(twice), IMAGE, 2 * (31 + 30) + 31 + 3),
    "LSTM": (Net(linen_rnn(linen.LSTMCell)), SERIES, LSTM + DENSE),
    "characters": (Net(stacked), TOKENS, T * (1 + 4) + LSTM + T * (41 + 80) + 21 + V),
    "GRU": (Net(linen_rnn(linen.GRUCell)), SERIES, GRU + DENSE),
    "nnx LSTM": (NNX_RNN, SERIES, 4 * 80 + T * (21 + 80) + DENSE),
}


def batch(sample: Any = IMAGE) -> Any:
    rng = np.random.default_rng(0)
    y = jnp.asarray(rng.integers(0, 3, B), jnp.int32)
    if sample is TOKENS:
        return jnp.asarray(rng.integers(0, 4, (B, T)), jnp.int32), y
    a = rng.normal(size=(B, *sample)) * np.exp(rng.normal(size=(B, *[1] * len(sample))))
    return jnp.asarray(a, jnp.float32), y


def check(model: Any, data: Any) -> jax.Array:
    """Factors, norms and clipped sums are those of `jax.grad`, at the point returned and another."""
    rng = np.random.default_rng(1)
    x, w = (jnp.asarray(rng.normal(size=model.dim) / 3, jnp.float32) for _ in range(2))
    for left, right in sums(model, x, w, jnp.asarray(rng.uniform(size=B), jnp.float32), data):
        close(left, right, 2e-5)
    return x


PLAIN = ("embedding", "convolution", "borrowed")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.plain] * (name in PLAIN)) for name in LAYERS]
)
def test_gradients_of_each_layer(name, caplog):
    """And the layer is not the fallback's, of which a line tells."""
    module, sample, width = LAYERS[name]
    with caplog.at_level(logging.WARNING, "jaxfl"):
        model = flax_model(module, sample, name=name)
    lines = [record.getMessage() for record in caplog.records]
    slow = f"{name}: per-example gradients use the slow vmap(grad)."
    assert lines == ([slow] if width is None else [])
    assert model.kernel.width == (model.dim if width is None else width)
    check(model, batch(sample))


PARTS: dict[str, Callable[[str], bool]] = {
    "kernels": lambda path: "kernel" in path or "embedding" in path,
    "biases": lambda path: "bias" in path,
    "some": lambda path: zlib.crc32(path.encode()) % 3 > 0,
}
FROZEN = ("twice", "convolutions", "positions", "sequences", "borrowed")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["bare", *FROZEN, "nnx", "LSTM"])
def test_frozen_parameters(name, part, caplog):
    """Gradients are those of the whole model in the trained leaves; the others keep their values."""
    module, sample, width = LAYERS[name]
    whole = flax_model(module, sample)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "jaxfl"):
        model = flax_model(
            module, sample, trainable=PARTS[part] if name != "bare" else lambda path: path == "w"
        )
    if part == "kernels" and width is not None:
        assert not caplog.records
    data = batch(sample)
    x = check(model, data)
    start = whole.unravel(whole.init(jax.random.key(0)))
    leaves, treedef = jax.tree.flatten(model.unravel(x))
    held = jax.tree.leaves(by_leaf(model, x), is_leaf=lambda a: a is None)
    for mine, before, one in zip(leaves, jax.tree.leaves(start), held, strict=True):
        assert (mine == (before if one is None else one)).all()
    g = jax.grad(lambda tree: whole.loss(raveled(tree), jax.tree.map(lambda a: a[0], data)))
    g = jax.tree.leaves(g(jax.tree.unflatten(treedef, leaves)))
    mine = jax.grad(model.loss)(x, jax.tree.map(lambda a: a[0], data))
    close(mine, raveled([a for a, one in zip(g, held, strict=True) if one is not None]), 2e-5)


def adapted(a: Any) -> Any:
    """A dense layer with a low-rank adapter [Hu et al., 2022], and a frozen last layer."""
    low = linen.Dense(2, use_bias=False, name="lora_a")(flat(a))
    up = linen.Dense(16, use_bias=False, name="lora_b", kernel_init=linen.initializers.zeros)
    return linen.Dense(3)(linen.relu(linen.Dense(16)(flat(a)) + up(low)))


@pytest.mark.full
def test_low_rank_adapters(key, caplog):
    """Runs learn the adapters alone, clipped by structure; optimizers by leaf see no other leaf."""
    module = Net(adapted)
    held = module.init(jax.random.key(5), jnp.zeros((1, *IMAGE)))["params"]
    model = flax_model(module, IMAGE, init=lambda key: held, trainable=lambda path: "lora" in path)
    assert not caplog.records
    assert model.dim == 2 * (128 + 16)
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(3, 20, *IMAGE)).astype("float32"), rng.integers(0, 3, (3, 20))
    rates = {"lora_a": 0.0, "lora_b": 1.0}

    def label(tree: Any) -> Any:
        assert len(jax.tree.leaves(tree)) == 2
        return {name: name if name in rates else "lora_a" for name in tree}

    def make(hp: Any) -> Any:
        steps = {name: optax.sgd(rate * hp["lr"]) for name, rate in rates.items()}
        return optax.multi_transform(steps, label)

    algorithm = jaxfl.algorithm("ldp_sgd", server=jaxfl.parts.servers.optimizer(make, model=model))
    given = {"clip": 1.0, "sigma": 0.01, "batch": 5, "lr": 0.5}
    run = jaxfl.simulate(algorithm, jaxfl.Problem(model, (a, y)), key, 5, **given)
    for name in ("Dense_0", "Dense_1", "lora_a"):
        chex.assert_trees_all_equal(run.params[name], held[name])
    assert run.metrics["loss"][-1] < run.metrics["loss"][0]


def test_what_cannot_be_frozen():
    def frozen(trainable: Any) -> Any:
        return lambda: flax_model(Net(dense), IMAGE, trainable=trainable)

    def custom(of: str) -> Any:
        few = {"w": np.zeros(3), "b": np.zeros(2)}
        loss = lambda p, e: ((p["w"] - e) ** 2).sum() + p["b"].sum()  # noqa: E731
        return jaxfl.models.custom(few, loss, trainable=lambda path: path == of)

    refused(frozen(lambda path: False), "leaves nothing to learn")
    refused(frozen("lora"), "'lora' is no function")
    refused(frozen(lambda path: None), "returns None for 'Dense_0/bias'")
    assert custom("w").dim == 3


BEFORE = NnxNet(  # the weights are in what enters their own layer
    lambda self, a: self.last(self.layer(nnx.relu(a[:, 0, 0] @ jnp.asarray(self.layer.kernel)))),
    layer=linear(2, 2),
    last=linear(2, 3),
)
OTHER_USES: dict[str, Any] = {
    "then transposed": Net(then_transposed),
    "borrowed": Net(borrowed),
    "before": BEFORE,
    "twice": Net(twice_as_rows),
    "normed": Net(normed),
}


@pytest.mark.parametrize("name", OTHER_USES)
def test_other_uses_are_seen_without_gradients(name, monkeypatch):
    """These may be zero, or small, at the points of a comparison."""
    monkeypatch.setattr(layers, "_agrees", lambda *_: True)
    model = flax_model(OTHER_USES[name], IMAGE, name=f"{name} without gradients")
    assert model.kernel.width == model.dim


def test_gradients_are_compared_at_several_points(monkeypatch):
    """Of a single unit, shut at half of the points, whose weights are computed."""
    monkeypatch.setattr(layers, "_products", lambda *_: True)
    model = flax_model(Net(normed), IMAGE, name="by gradients")
    assert model.kernel.width == model.dim


@pytest.mark.once
def test_examples_of_a_batch_do_not_meet():
    """A module that looks across its batch sees one example at a time, in gradients too."""
    across = lambda a: linen.Dense(3)(flat(a) - flat(a).mean(axis=0, keepdims=True) + 1)  # noqa: E731
    model = flax_model(Net(across), IMAGE)
    (a, y), x = batch(), model.init(jax.random.key(0))
    factors = jax.jit(model.kernel.factors)
    first = jax.tree.map(lambda a: a[:1], factors(x, (a, y)))
    chex.assert_trees_all_close(first, factors(x, (a[:1], y[:1])), rtol=1e-6)


def halved(enter: Any, inside: Any = jnp.float32, held: Any = jnp.float32) -> Any:
    """Computes in bfloat16: what enters some layers, or all of it, or keeps its weights so too."""
    kinds = {"dtype": inside, "param_dtype": held}

    def build(a: Any) -> Any:
        a = flat(a)[:, :30].astype(enter)
        return linen.Dense(3, **kinds)(linen.tanh(linen.Dense(20, **kinds)(a)).astype(enter))

    return Net(build)


HALF = jnp.bfloat16


@pytest.mark.parametrize(
    ("kinds", "structural"),
    [((HALF,), True), ((HALF, HALF), False), ((jnp.float32, HALF, HALF), False)],
)
def test_clipping_is_exact_where_modules_are_not(kinds, structural):
    """What is clipped are the gradients as they came out, with norms in float32."""
    model, G = flax_model(halved(*kinds), IMAGE), 0.01
    assert (model.kernel.width < model.dim) == structural
    x, (a, y) = model.init(jax.random.key(0)), batch()
    assert x.dtype == jnp.float32
    term = Term(1.0, (x,), (1.0,), jnp.float32(G))

    def clipped(a: jax.Array, y: jax.Array) -> jax.Array:
        return evaluate(model.kernel, (term,), jnp.ones(1), (a[None], y[None]))[0]

    g = np.asarray([jax.jit(clipped)(*each) for each in zip(a, y, strict=True)], np.float64)
    np.testing.assert_allclose(np.linalg.norm(g, axis=1), G, rtol=1e-5)  # all are longer than G
    true = np.asarray(jax.vmap(jax.grad(model.loss), (None, 0))(x, (a, y)), np.float64)
    true *= (G / np.linalg.norm(true, axis=1))[:, None]
    assert np.linalg.norm(g - true, axis=1).max() < 0.01 * G
