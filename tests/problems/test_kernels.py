"""Structural per-example gradients against `vmap(grad)`, and what clipping promises."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import primitives
from told import refused
from zoo import FEATURES, ZOO, Entry, close, examples, point, shortened, sums

from jaxfl.core import products
from jaxfl.core.types import Array, Model, Problem, Term
from jaxfl.parts.storage import recalled
from jaxfl.problems import models
from jaxfl.problems.clipping import clip, clipped_as, evaluate

B = 12


def table(*names: str, plain: tuple[str, ...] = ()) -> Any:
    """The models of these names, or all."""
    chosen = [entry for entry in ZOO if not names or entry.name in names]
    rows = [pytest.param(e, marks=[pytest.mark.plain] * (e.name in plain)) for e in chosen]
    return pytest.mark.parametrize("entry", rows, ids=lambda entry: entry.name)


def at(x: Array, bound: Any = jnp.inf, scale: float = 1.0) -> Term:
    return Term(scale, (x,), (1.0,), jnp.asarray(bound, x.dtype))


def setup(entry: Entry, dtype: Any = np.float32) -> tuple[Model, Array, Array, Any, Array]:
    """A model, two points, a batch and weights, some of them zero."""
    model = entry.build()
    batch = jax.tree.map(jnp.asarray, examples(entry, B, dtype=dtype))
    weight = np.random.default_rng(3).uniform(0.5, 1, B)
    weight[[2, 5]] = 0
    return model, point(model, 1, dtype), point(model, 2, dtype), batch, jnp.asarray(weight, dtype)


@lru_cache
def compiled(entry: Entry) -> Callable[..., tuple[Array, Any]]:
    """(x, bound, weight, batch) -> the clipped sum and its factors."""
    kernel = entry.build().kernel
    return jax.jit(lambda x, bound, w, batch: evaluate(kernel, (at(x, bound),), w, batch))


def lengths(entry: Entry, x: Array, bound: float, batch: Any) -> np.ndarray:
    """Norms of the clipped gradients, summed with one weight at a time: no formula for norms."""
    each = [compiled(entry)(x, bound, w, batch)[0] for w in jnp.eye(B)]
    return np.linalg.norm(np.stack(each), axis=1)


@table(plain=("mlp_sigmoid",))
def test_layers_are_clipped_one_by_one(entry):
    """As NumPy does on each `jax.grad`; the whole stays within the bound, and reaches it."""
    model, x, w, batch, weight = setup(entry)
    if model.kernel.split is None:
        refused(lambda: models.by_layer(model), "has one layer")
        return
    kernel = models.by_layer(model).kernel
    tree = model.unravel(x)
    scales = lambda node: isinstance(node, dict) and "scale" in node  # noqa: E731
    parts = jax.tree.leaves(tree, is_leaf=lambda node: node is not tree and not scales(node))
    ends = np.cumsum([sum(leaf.size for leaf in jax.tree.leaves(part)) for part in parts])
    assert kernel.layers == len(ends) > 1
    assert ends[-1] == model.dim
    for left, right in sums(models.by_layer(model), x, w, weight, batch, ends[:-1]):
        close(left, right, 2e-5)
    g = np.asarray(jax.vmap(jax.grad(model.loss), (None, 0))(x, batch), np.float64)
    G = jnp.float32(1e-3 * np.median(np.linalg.norm(g, axis=1)))
    one = lambda e: evaluate(kernel, (at(x, G),), e, batch)[0]  # noqa: E731
    lengths = np.linalg.norm(jax.jit(jax.vmap(one))(jnp.eye(B, dtype=x.dtype)), axis=1)
    short = shortened(g, float(G), ends[:-1])
    np.testing.assert_allclose(lengths, np.linalg.norm(short, axis=1), rtol=2e-4)
    assert np.max(lengths) == pytest.approx(float(G), rel=2e-4)
    again = recalled(kernel, G, kernel.factors(x, batch), batch)
    close(kernel.contract(weight, again, batch), np.asarray(weight) @ short, 2e-5)


@pytest.mark.parametrize("platform", ["cpu", "tpu", "default"])
@table(plain=("mlp_sigmoid",))
def test_some_coordinates_are_those_of_all(entry, platform, monkeypatch):
    """Few, so that large layers are read and small ones computed; the same twice, and past the last."""
    use = lambda *args, **ways: ways.get(platform, ways.get("default"))(*args)  # noqa: E731
    monkeypatch.setattr(jax.lax, "platform_dependent", use)
    monkeypatch.setattr(products, "UNROLLED", 5)
    model, x, _, batch, weight = setup(entry)
    if model.kernel.coordinates is None:
        return
    F = model.kernel.factors(x, batch)
    whole = np.asarray(model.kernel.contract(weight, F, batch))
    for sparse, many in ((0, model.dim), (1, 3), (12, 2)):
        monkeypatch.setattr(products, "SPARSE", sparse)
        index = jax.random.permutation(jax.random.key(many), model.dim)[:many]
        index = jnp.append(index, jnp.asarray([index[0], model.dim]))
        found = model.kernel.coordinates(weight, F, batch, index)
        close(found, whole[np.minimum(index, model.dim - 1)], 2e-6)


@pytest.mark.parametrize("rows", [12, 96, 128, 256, 300])
def test_sums_in_parts_are_sums(rows):
    rng = np.random.default_rng(rows)
    w, a = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((rows,), (rows, 7)))
    close(products.in_parts(w, a), np.asarray(w, float) @ np.asarray(a, float), 2e-6)


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@table(plain=("mlp_sigmoid",))
def test_sums_are_those_written_out(entry, double):
    """Factors, and clipped sums of one and two points, against NumPy on every `jax.grad`."""
    if double and entry.name in ("linen", "nnx"):
        pytest.skip("their modules compute in float32")
    with jax.enable_x64(double):
        dtype, tolerance = (np.float64, 1e-12) if double else (np.float32, 1e-5)
        model, x, w, batch, weight = setup(entry, dtype)
        for left, right in sums(model, x, w, weight, batch):
            assert left.dtype == dtype
            close(left, right, tolerance)


@table("logistic", "mlp_sigmoid", "custom", plain=("mlp_sigmoid",))
def test_smooth_sums_are_those_written_out(entry):
    """As hard ones are, and by layer; nothing reaches the bound, and at 0 there is a derivative."""
    model, x, w, batch, weight = setup(entry)
    soft = clipped_as(Problem(None, np.ones(1), None, None, model), "smooth").model
    for left, right in sums(soft, x, w, weight, batch):
        close(left, right, 1e-5)
    if soft.kernel.split is not None:
        layers = soft._replace(kernel=soft.kernel.split()._replace(smooth=True))
        first = {"mlp_sigmoid": 4 * (FEATURES + 1), "custom": 1}[entry.name]
        for left, right in sums(layers, x, w, weight, batch, [first]):
            close(left, right, 2e-5)
    step = lambda v, G: clip(v, G, smooth=True)  # noqa: E731
    ways = jax.jacobian(step)(jnp.zeros(3), jnp.float32(2.0)), jax.jacobian(step, 1)
    np.testing.assert_array_equal(ways[0], np.eye(3))
    for v, G, expected in ((jnp.zeros(3), 0.0, 0.0), (jnp.ones(3), jnp.inf, 1.0)):
        np.testing.assert_array_equal(step(v, jnp.float32(G)), expected)
        np.testing.assert_array_equal(ways[1](v, jnp.float32(G)), 0.0)
    assert np.isnan(step(jnp.full(3, jnp.nan), 1.0)).all()


@pytest.mark.plain
def test_smooth_clipping_is_what_proofs_need(x64):
    """Below the bound, and no two vectors apart; vectors far apart move a mean by almost 2G/b."""
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, 10_000, 3)) * np.exp(rng.normal(size=(2, 10_000, 1)) * 4)
    v[::2] = u[::2] + 1e-3 * v[::2]
    one = jax.vmap(lambda g: clip(g, 0.7, smooth=True))
    cu, cv = np.asarray(one(u)), np.asarray(one(v))
    assert np.linalg.norm(cu, axis=1).max() < 0.7
    moved, apart = (np.linalg.norm(a - b, axis=1) for a, b in ((cu, cv), (u, v)))
    assert (moved <= apart * (1 + 1e-12)).all()
    assert 1.39 < np.linalg.norm(one(1e3 * u) - one(-1e3 * u), axis=1).max() < 1.4


@pytest.fixture(scope="module", params=[None, 10, 7], ids=["exact", "TF32", "bfloat16"])
def rounded(request: Any) -> Iterator[int | None]:
    """Round the inputs of products to ``bits`` bits, as accelerators do below the highest precision."""
    bits, exact = request.param, jax.lax.Precision.HIGHEST

    def rounds(bind: Any) -> Any:
        def product(a: Array, b: Array, *, precision: Any, **options: Any) -> Array:
            if precision is None or exact not in precision:
                a, b = (jax.lax.reduce_precision(v, 8, bits) for v in (a, b))
            return bind(a, b, precision=precision, **options)

        return product

    with pytest.MonkeyPatch.context() as patch:
        for primitive in (primitives.dot_general_p, primitives.conv_general_dilated_p):
            if bits:
                patch.setattr(primitive, "bind", rounds(primitive.bind))
        compiled.cache_clear()
        jax.clear_caches()
        yield bits
    compiled.cache_clear()
    jax.clear_caches()


@table(plain=("logistic", "softmax"))
def test_clipping(entry, rounded):
    """At any precision no clipped gradient is longer than the bound, and shorter ones are left
    alone: norms and sums are of highest precision.  Nothing hides a NaN."""
    _, x, _, (a, y), weight = setup(entry)
    product = jax.random.normal(jax.random.key(0), (16, 16))
    off = product @ product - jnp.matmul(product, product, precision=jax.lax.Precision.HIGHEST)
    assert rounded is None or jnp.abs(off).max() > 2.0 ** -(rounded + 2)
    size = lengths(entry, x, np.inf, (a, y))
    bound = float(np.median(size))
    short = lengths(entry, x, bound, (a, y))
    assert short.max() <= bound * (1 + 1e-5)
    np.testing.assert_allclose(short, np.minimum(size, bound), rtol=1e-4)
    for G in (0.1, np.inf):
        assert np.any(np.isnan(compiled(entry)(x, G, weight, (a.at[1].set(np.nan), y))[0]))
        if entry.name not in ("hinge", "absolute"):  # whose slope takes a sign only
            assert np.all(np.isnan(compiled(entry)(x * np.nan, G, weight, (a, y))[0]))


@table("logistic", "mlp_sigmoid", "custom")
def test_a_point_for_each_example(entry):
    model, x, w, batch, weight = setup(entry)
    early = jnp.arange(B) < 6
    mixed = jnp.where(early[:, None], x[None], w[None])
    total = jax.jit(lambda: evaluate(model.kernel, (at(mixed, 0.5),), weight, batch)[0])()
    first = compiled(entry)(x, 0.5, jnp.where(early, weight, 0), batch)[0]
    second = compiled(entry)(w, 0.5, jnp.where(early, 0, weight), batch)[0]
    close(total, first + second, 1e-5)


@table("logistic", "mlp_sigmoid")
def test_differences_at_close_points_keep_their_digits(entry):
    """``g(x) + (t-1) (g(x) - g(w))`` for large t: a sum of products of whole norms would cancel."""
    t, sizes = 1e4, []
    for double in (True, False):
        with jax.enable_x64(double):
            dtype = np.float64 if double else np.float32
            model, x, _, batch, weight = setup(entry, dtype)
            step = np.random.default_rng(5).integers(-9, 10, x.size) * 2.0**-18
            w = x + jnp.asarray(step, dtype)
            term = Term(1.0, (x, w), (t, 1 - t), jnp.asarray(0.1, dtype))

            @jax.jit
            def run(kernel=model.kernel, x=x, w=w, batch=batch, weight=weight, term=term):
                g = kernel.combine((t, 1 - t), [kernel.factors(p, batch) for p in (x, w)])
                return kernel.inner(g, g, batch), evaluate(kernel, (term,), weight, batch)[0]

            square, total = run()
            sizes.append(np.sqrt(np.asarray(square)))
            assert np.linalg.norm(total) <= 0.1 * np.sum(weight)
    np.testing.assert_allclose(sizes[1], sizes[0], rtol=0.02)


def test_clip():
    """Short ones stay, also where squares overflow; no 0/0 at zero, whatever the bound; NaN is NaN."""
    g = jnp.asarray([3.0, 4.0])
    np.testing.assert_allclose(clip(g, jnp.asarray(1.0)), [0.6, 0.8], rtol=1e-6)
    for whole, bound in ((g, 5.0), (g, np.inf), (1e25 * g, np.inf)):
        np.testing.assert_array_equal(clip(whole, jnp.asarray(bound)), whole)
    for bound in (0.0, 1.0, np.inf):
        np.testing.assert_array_equal(clip(0 * g, jnp.asarray(bound)), 0 * g)
        assert np.all(np.isnan(clip(g * jnp.nan, jnp.asarray(bound))))
    (entry,) = (entry for entry in ZOO if entry.name == "hinge")
    batch = 2 * jnp.ones((B, FEATURES)), jnp.ones(B, jnp.int32)  # of a large margin
    for bound in (0.0, 1.0, np.inf):
        for found in compiled(entry)(jnp.ones(FEATURES), bound, jnp.ones(B), batch):
            assert np.all(found == 0)


def test_an_activation_sees_one_example():
    """A user's activation that mixes what it is given moves no other example's gradient."""
    model = models.mlp(3, 2, hidden=(4,), activation=lambda z: jnp.tanh(z - z.mean(0)))
    rng, second = np.random.default_rng(0), jnp.eye(B)[1]
    a, y = jnp.asarray(rng.normal(size=(B, 3)), jnp.float32), jnp.asarray(rng.integers(0, 2, B))
    x = jnp.asarray(rng.normal(size=model.dim), jnp.float32)

    def gradient(a: Array) -> Array:
        return model.kernel.contract(second, model.kernel.factors(x, (a, y)), (a, y))

    np.testing.assert_allclose(gradient(a), gradient(a * second[:, None]), rtol=1e-5, atol=1e-8)


def test_gradients_of_features_whose_squares_vanish_are_clipped():
    """|a|^2 is 0 in 32 bits, and the gradient (a . x - y) a is long; so is a difference of two."""
    model, one = models.least_squares(2), jnp.ones(1)
    batch = jnp.asarray([[1e-20, 0.0]]), jnp.asarray([1e30])
    x, w, G = jnp.zeros(2), jnp.full(2, 1e38), 1e-3
    for term in (at(x, G), Term(1.0, (w, x), (1.0, -1.0), jnp.float32(G))):
        data = batch if len(term.points) == 1 else (batch[0], 0 * batch[1])
        total, _ = evaluate(model.kernel, (term,), one, data)
        assert np.linalg.norm(total) <= G * (1 + 1e-5)
