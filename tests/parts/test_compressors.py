"""Compressors: one row each in a table; bias, variance and bits as declared."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_problem
from told import refusals

import jaxfl
from jaxfl.core.subsets import coin_tail
from jaxfl.core.types import Compressor, Draw, Hyper, ProblemFacts
from jaxfl.parts import compressors as cs
from jaxfl.parts.mechanisms import noiseless
from jaxfl.rounds.messages import release

D, N = 64, 5_000
KEY, BOTH = jax.random.key(0), cs.compressor("qsgd+random_k")
FACTS = ProblemFacts(n=10, m=5, m_max=5, d=D, rounds=1000, smoothness=None)

# name, what the user gives, whether |C(v) - v|^2 is omega |v|^2 on average for every v,
# omega, and the bits of a message of d = 64 (its mean, where the number of coordinates is random)
TABLE = [
    ("identity", {}, True, 0, 32 * 64),
    ("random_k", {"k": 6}, True, 64 / 6 - 1, 6 * (32 + 6)),
    ("random_k", {"omega": 3.0}, True, 3.0, 16 * (32 + 6)),
    ("stratified_k", {"k": 6}, True, 64 / 6 - 1, 6 * (32 + 6)),
    ("bernoulli", {"k": 6}, True, 64 / 6 - 1, 6 * (32 + 6)),
    ("qsgd", {"levels": 16}, False, 64 / 16**2, 32 + 64 * (1 + 5)),
    ("qsgd", {"levels": 1}, False, 8.0, 32 + 64 * (1 + 1)),
    ("natural", {}, False, 1 / 8, 9 * 64),
    ("lazy", {"keep": 0.25}, True, 3.0, 1),
    ("natural_dithering", {"levels": 8}, False, 1 / 8 + 2.0**-8, 32 + 64 * (1 + 4)),
    ("terngrad", {}, False, 3.5, 32 + 2 * 64),
    ("sto_sign", {}, True, 63.0, 32 + 64),
    ("count_sketch", {"sketch_rows": 3, "sketch_columns": 7}, True, 3.0, 32 * 21),
    ("qsgd+random_k", {"k": 9, "levels": 4}, False, 64 / 9 * (1 + 9 / 16) - 1, 32 + 9 * (4 + 6)),
    ("qsgd+bernoulli", {"k": 9, "levels": 4}, False, 64 / 9 * (1 + 10 / 16) - 1, 32 + 9 * (4 + 6)),
    ("natural+stratified_k", {"k": 6}, False, 64 / 6 * 9 / 8 - 1, 6 * (9 + 6)),
    ("natural+qsgd+random_k", {"k": 8, "levels": 3}, False, 9 * (1 + 8 / 9) - 1, 8 * (9 + 6)),
]
PLAIN = ("random_k", "qsgd", "qsgd+bernoulli")
rows = pytest.mark.parametrize(
    ("name", "given", "exact", "omega", "bits"),
    [pytest.param(*row, marks=[pytest.mark.plain] * (row[0] in PLAIN)) for row in TABLE],
    ids=lambda x: str(x).replace(" ", ""),
)


def vectors():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=D)
    few = np.where(np.arange(D) < 3, 2.5, 0.0)
    powers = (4 / 3) * 2.0 ** rng.integers(-2, 2, D) * rng.choice([-1, 1], D)
    return np.stack([normal, np.ones(D), few, powers]).astype(np.float32)


def hyper(compressor, given, d=D, slots=D):
    """As many slots for every k: tests then share their compiled programs."""
    values = compressor.resolve(given, d)
    caps = (("k", slots),) if "k" in values else ()
    if "sketch_columns" in values:
        caps += (("sketch_columns", slots),)
    whole = {name: isinstance(value, int | np.ndarray) for name, value in values.items()}
    kind = {True: jnp.int32, False: jnp.float32}
    return Hyper({name: kind[whole[name]](value) for name, value in values.items()}, caps)


def send(compressor, key, v, hp):
    """C(v) of one client, as a round makes it."""
    return release(noiseless(), compressor, key, key, jnp.asarray(v), jnp.int32(0), hp)[0]


def once(compressor, key, v, hp):
    """C(v) as a vector."""
    return cs.dense(send(compressor, key, v, hp), v.shape[0])


alone = jax.jit(once, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def many(compressor, keys, vs, hp):
    """C(v), shape (vectors, keys, d)."""
    return jax.vmap(lambda v: jax.vmap(lambda key: once(compressor, key, v, hp))(keys))(vs)


def sample(compressor, given):
    keys = jax.random.split(jax.random.key(1), N)
    return np.asarray(many(compressor, keys, vectors(), hyper(compressor, given)), np.float64)


@rows
def test_as_declared(name, given, exact, omega, bits):
    """Unbiased, of variance omega, both within 5 standard errors; and the bits."""
    compressor = cs.compressor(name)
    values = compressor.resolve(given, D)
    assert all(values.get(each, value) == value for each, value in given.items() if each != "omega")
    assert compressor.omega(D, values) == pytest.approx(omega)
    per_message, per_coordinate = compressor.bits(D, values)
    assert per_message + per_coordinate * values.get("k", 0) == bits
    assert (compressor.select is None) == (per_coordinate == 0)
    assert compressor.unbiased
    assert compressor.name == name
    assert set(given) <= {param.name for param in compressor.params} | {"omega"}
    x, vs = sample(compressor, given), vectors().astype(np.float64)
    error = np.abs(x.mean(1) - vs)
    assert (error <= 5 * x.std(1) / np.sqrt(N) + 2e-6 * np.abs(vs)).all()
    ratio = ((x - vs[:, None]) ** 2).sum(-1) / (vs**2).sum(-1)[:, None]
    allowed = 5 * ratio.std(1) / np.sqrt(N) + 1e-6
    excess = ratio.mean(1) - omega
    assert (excess <= allowed).all()
    assert not exact or (excess >= -allowed).all()


@pytest.mark.parametrize("name", ["random_k", "stratified_k", "bernoulli", "qsgd+random_k"])
def test_k_is_traced(name):
    """Cells of a sweep with their own k agree with runs of that k alone."""
    compressor, ks = cs.compressor(name), np.array([3, 17, 64])
    given = {"levels": 4} if "qsgd" in name else {}
    hp = hyper(compressor, given | {"k": ks})
    key, v = jax.random.key(4), vectors()[0]
    axes = Hyper({x: 0 if x == "k" else None for x in hp.values}, hp.capacity)
    swept = jax.jit(jax.vmap(lambda hp: send(compressor, key, v, hp), (axes,)))(hp)
    value, index = np.asarray(swept.value), np.asarray(swept.index)
    for i, k in enumerate(ks):
        one = alone(compressor, key, v, Hyper(hp.values | {"k": jnp.int32(k)}, hp.capacity))
        again = np.zeros(D + 1)
        np.add.at(again, index[i], value[i])
        np.testing.assert_allclose(again[:D], one, rtol=1e-5)
        assert (value[i][index[i] == D] == 0).all()
        live = index[i][index[i] < D]
        assert len(set(live.tolist())) == len(live)
        if name != "bernoulli":
            assert len(live) == k


def test_large_dimensions():
    """Nothing multiplies k by d in 32 bits."""
    d = 2**31 - 1
    for name in ("random_k", "stratified_k", "bernoulli"):
        compressor = cs.compressor(name)
        hp = hyper(compressor, {"k": 3000}, d, slots=4000)
        draw = jax.jit(lambda key, c=compressor, hp=hp: c.select(key, d, hp))(jax.random.key(0))
        live = np.asarray(draw.weight) > 0
        x = np.asarray(draw.index)[live].astype(np.int64)
        assert len(set(x.tolist())) == len(x)
        assert abs(len(x) - 3000) < 5 * 55
        assert abs(x.mean() / d - 0.5) < 5 / np.sqrt(12 * 3000)
        np.testing.assert_allclose(np.asarray(draw.weight)[live], d / 3000, rtol=1e-6)


@pytest.mark.plain
@pytest.mark.parametrize("scale", [1.0, 0.0, 1e-30, 1e-25, 1e-15, 1e15, 1e25, 1e36])
def test_norms_of_one_pass_neither_vanish_nor_overflow(scale):
    """As accelerators compute them."""
    v = np.float32(scale) * np.random.default_rng(0).uniform(-1, 1, 200).astype(np.float32)
    top, norm, u = cs._in_one_pass(jnp.asarray(v))
    exact = np.linalg.norm(v.astype(float)) or 1.0
    assert float(top) * float(norm) / exact == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(u, v / exact, rtol=1e-5)


def test_qsgd_rounds_to_levels_at_random():
    """sum f (1 - f) / s^2 |v|^2, and never above the bound of the paper or d/(4 s^2)."""
    levels, vs = 3, vectors().astype(np.float64)
    x = sample(cs.qsgd(), {"levels": levels})
    error = ((x - vs[:, None]) ** 2).sum(-1)
    norm = np.linalg.norm(vs, axis=1, keepdims=True)
    f = levels * np.abs(vs) / norm % 1
    expected = (f * (1 - f)).sum(1) / levels**2 * norm[:, 0] ** 2
    assert (np.abs(error.mean(1) - expected) <= 5 * error.std(1) / np.sqrt(N) + 1e-4).all()
    bound = min(cs.qsgd().omega(D, {"levels": levels}), D / (4 * levels**2))
    assert (expected <= bound * norm[:, 0] ** 2 * (1 + 1e-6)).all()
    steps = np.abs(x) / (norm[:, None] / levels)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    assert steps.max() <= levels + 1e-4


def test_codes_of_a_composition_draw_apart(key):
    """Each multiplies by 0 or 2: right in the mean with coins of their own, twice as much with one."""

    def code(key, v, hp):
        return v * (1 + jax.random.rademacher(key, v.shape, v.dtype))

    a, b = (
        Compressor(
            name, omega=lambda d, v: 1.0, bits=lambda d, v: (0.0, 32.0), code=code, unbiased=True
        )
        for name in "ab"
    )
    both = jax.vmap(lambda key: cs.compose(a, b).code(key, jnp.ones(4), Hyper({})))
    assert abs(float(both(jax.random.split(key, 4000)).mean()) - 1) < 0.1


@pytest.mark.parametrize("name", ["qsgd", "natural"])
def test_codes_at_extreme_scales(name):
    """What is not a number is passed on: a run that diverged must not look well again."""
    compressor = cs.compressor(name)
    code = partial(alone, compressor, jax.random.key(0), hp=hyper(compressor, {}))
    for scale in (1e-30, 1e30):
        v = np.float32(scale) * vectors()[0]
        x = np.asarray(code(v))
        assert np.isfinite(x).all()
        assert np.linalg.norm((x - v) / scale) < np.linalg.norm(v / scale)
    np.testing.assert_array_equal(code(np.zeros(D, np.float32)), 0)
    assert np.isnan(code(np.where(np.arange(D) == 5, np.nan, 1).astype(np.float32))[5])


def test_resolve():
    resolve = cs.random_k().resolve
    for given, d, k in (({}, 64, 3), ({}, 7, 1), ({"omega": 2}, 62, 21), ({"omega": 63}, 64, 1)):
        assert resolve(given, d) == {"k": k}
    assert resolve({"omega": 19, "batch": 7}, 50890) == {"k": 2544}  # 2544.5, to even
    np.testing.assert_array_equal(resolve({"omega": np.array([0, 1, 3])}, 64)["k"], [64, 32, 16])
    assert cs.qsgd().resolve({}, 64) == {"levels": 16}
    assert cs.compressor("qsgd+random_k").resolve({"k": 5}, 64) == {"k": 5, "levels": 16}


SIZED = {
    "k": ("random_k", "top_k", "bernoulli", "qsgd+random_k"),
    "levels": ("qsgd", "natural_dithering"),
    "sketch_columns": ("count_sketch",),
}


@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for size, names in SIZED.items() for name in names]
)
def test_a_share_of_the_bits_sets_the_size(name, size):
    """The largest whose message has no more bits than that share of 32 d, by counting up."""
    made = cs.compressor(name)
    usual = made.resolve({}, D)
    most = {"qsgd": 2**16}.get(name, 64)

    def bits(n):
        message, each = made.bits(D, {**usual, size: n})
        return message + each * (n if made.select else 0)

    for share in (0.15, 0.3, 1.0):
        fit = [n for n in range(1, most + 1) if bits(n) <= share * 32 * D]
        assert made.resolve({"share": share}, D) == {**usual, size: fit[-1]}
    both = made.resolve({"share": np.array([0.15, 1.0])}, D)[size]
    assert both.tolist() == [made.resolve({"share": s}, D)[size] for s in (0.15, 1.0)]


@pytest.mark.plain
def test_algorithms_of_one_share_send_as_many_bits():
    """With a biased compressor, or two messages a round, too."""
    problem = a_problem(d=40)
    shares = {}
    for made in ("soteriafl_sgd", "ef21", "porter_dp"):
        given = {"sigma": 0.1, "batch": 4} if made in ("soteriafl_sgd", "porter_dp") else {}
        run = jaxfl.simulate(made, problem, KEY, 4, share=0.5, lr=0.1, **given)
        dense = 32 * problem.model.dim * problem.n * 4
        shares[run.algorithm.name] = run.totals["uplink_bits"] / dense
        assert run.sources["k"] == "from the given share"
    assert all(0.4 < share <= 0.5 for share in shares.values()), shares


def resolved(name, **given):
    return lambda: cs.compressor(name).resolve(given, 64)


def named(name, **given):
    return lambda: cs.compressor(name, **given)


def mine(**changes):
    algorithm = jaxfl.algorithm("cdp_sgd", compressor=cs.qsgd()._replace(name="mine", **changes))
    return lambda: jaxfl.simulate(algorithm, a_problem(), KEY, 2, sigma=0.1, lr=0.1)


test_mistakes = refusals(
    (resolved("random_k", k=65), "k = 65 must be at least 1 and at most 64"),
    (resolved("bernoulli", k=2.5), "whole number"),
    (resolved("random_k", k=2, omega=3), "both given"),
    (resolved("top_k", k=2, share=0.3), "share = 0.3 and k = 2 are both given"),
    (resolved("random_k", omega=2, share=0.3), "share = 0.3 and omega = 2 are both given"),
    (
        resolved("qsgd", share=0.01),
        "share = 0.01 is less than 0.07812, the least of qsgd with d = 64",
    ),
    (resolved("random_k", share=1.1), "share = 1.1 must be above 0 and at most 1"),
    (named("rand_k"), "did you mean 'random_k'"),
    (named("random_k", k=3), "^k = 3 is a hyper-parameter of random_k: give it"),
    (named("random_k+qsgd"), "write qsgd.random_k"),
    (named("random_k+bernoulli"), "take one of them"),
    (lambda: cs.compose(cs.natural(), BOTH), "compose the codes first"),
    (mine(code=lambda key, v, hp: v[:1]), r"code of the compressor 'mine' returns float32\[1"),
    (mine(code=lambda key, v, hp: v.astype("f2")), r"returns float16\[8\]: return float32"),
    (mine(select=lambda key, d, hp: None), "select of the compressor 'mine' returns None"),
    (mine(select=lambda *_: Draw(jnp.arange(3), jnp.ones(2))), "as many weights"),
    (mine(omega=lambda d, values: -1.0), "returns -1.0: return a finite"),
)


def test_composition_with_identity_and_names():
    identity, qsgd, random_k = cs.identity(), cs.qsgd(), cs.random_k()
    assert cs.compose(identity, random_k) is cs.compose(random_k, identity) is random_k
    assert cs.compose(qsgd, random_k) is BOTH
    for name, make in cs.COMPRESSORS.items():
        assert make() is make()
        assert make().name == name


def test_shared_seeds_send_no_positions():
    for name in ("random_k", "stratified_k", "bernoulli"):
        assert cs.compressor(name, indices=False).bits(64, {"k": 6}) == (0, 32)
    both = cs.compressor("qsgd+random_k", indices=False)
    assert both.bits(64, {"k": 6, "levels": 16}) == (32, 1 + 5)


def test_slots():
    assert cs.random_k().capacity({"k": np.array([3, 9])}, FACTS) == {"k": 9}
    assert BOTH.capacity({"k": 5, "levels": 5}, FACTS) == {"k": 5}
    assert cs.bernoulli().capacity({"k": 64}, FACTS) == {"k": 64}
    many = FACTS._replace(n=10**6, d=10**4)  # of all clients' messages in all rounds
    slots = cs.bernoulli().capacity({"k": 100}, many)["k"]
    assert 1e9 * coin_tail(100, 10**4, slots) < 1e-12 <= 1e9 * coin_tail(100, 10**4, slots - 1)


@pytest.mark.parametrize("name", ["random_k", "stratified_k", "bernoulli", "top_k"])
def test_a_message_of_all_coordinates_has_no_positions(name):
    for k, position in ((D, 0), (D - 1, 6)):
        per_message, per_coordinate = cs.compressor(name).bits(D, {"k": k})
        assert per_message + k * per_coordinate == k * (32 + position)


@pytest.mark.plain
def test_omega_0_sends_what_no_compression_sends():
    given = {"problem": a_problem(), "rounds": 3, "sigma": 0.1, "clip": 1.0, "lr": 0.1, "seed": 0}
    runs = [jaxfl.simulate("cdp_gd", omega=0, **given), jaxfl.simulate("ldp_gd", **given)]
    bits = [run.totals["uplink_bits"] for run in runs]
    assert bits[0] == bits[1] == 3 * 5 * 8 * 32
