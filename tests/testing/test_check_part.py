"""`jaxfl.testing.check_part`: it passes every part of jaxfl, and finds out parts that lie."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from told import refusals

from jaxfl.core.types import Draw
from jaxfl.parts import channels, compressors, iterates, mechanisms, sampling, servers
from jaxfl.testing import CheckFailed, check_algorithm, check_part

CODES: dict[str, dict[str, float]] = {
    "identity": {},
    "random_k": {"k": 6},
    "stratified_k": {"k": 5},
    "bernoulli": {"k": 6},
    "qsgd": {"levels": 4},
    "natural": {},
    "lazy": {"keep": 0.25},
    "terngrad": {},
    "natural_dithering": {"levels": 3},
    "sto_sign": {},
    "top_k": {"k": 4},
    "qsgd+random_k": {"k": 9, "levels": 4},
    "natural+stratified_k": {"k": 6},
    "count_sketch": {"sketch_rows": 3, "sketch_columns": 7},
}
LINKS = (
    *(channels.direct, channels.shifted, channels.learned, channels.recursion),
    channels.error_feedback,
)
HONEST: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: (compressors.compressor(name), numbers) for name, numbers in CODES.items()},
    **{name: (sampling.sampler(name), {}) for name in sampling.SAMPLERS},
    **{f"{name} clients": (sampling.participation(name), {}) for name in sampling.PARTICIPATIONS},
    **{f"{make.__name__} channel": (make(), {}) for make in LINKS},
    "gaussian": (mechanisms.gaussian(), {"sigma": 0.3}),
    "central": (mechanisms.central(), {"sigma": 2.0}),
    "noiseless": (mechanisms.noiseless(), {}),
    "descent": (servers.descent(), {}),
    "averaged": (servers.averaging(), {}),
    "normalized": (servers.normalized(), {}),
    "anytime": (iterates.anytime(), {"diameter": 2.0, "reads": ("diameter",)}),
}

random_k, qsgd = compressors.random_k(), compressors.qsgd()
poisson, fixed = sampling.poisson(), sampling.without_replacement()
uniform, balanced, chance = sampling.uniform(), sampling.balanced(), sampling.poisson_clients()
gaussian, direct = mechanisms.gaussian(), channels.direct()
with_replacement = sampling.with_replacement()


def selects(change: Callable[[Draw, int], Draw]) -> Any:
    select = random_k.select
    assert select is not None
    return random_k._replace(name="mine", select=lambda key, d, hp: change(select(key, d, hp), d))


def codes(code: Callable[..., Any], **fields: Any) -> Any:
    return qsgd._replace(name="mine", code=code, resolve=lambda given, d: {}, params=(), **fields)


def noise(draw: Callable[..., Any]) -> Any:
    return gaussian._replace(name="mine", draw=draw)


def weighs(part: Any, factor: float) -> Any:
    def draw(*given: Any) -> Draw:
        found = part.draw(*given)
        return Draw(found.index, factor * found.weight)

    return part._replace(name="mine", draw=draw)


def same_key(part: Any) -> Any:
    """Every round draws what the first one drew."""
    return part._replace(name="mine", draw=lambda key, t, *rest: part.draw(key, 0 * t, *rest))


def of_the_first(key: Any, t: Any, count: Any, m: int, hp: Any) -> Draw:
    """The same records, whoever asks."""
    b = hp.caps["batch"]
    live = jnp.arange(b) < hp["batch"]
    return Draw(jnp.where(live, jnp.arange(b), m), jnp.where(live, 1 / hp["batch"], 0.0))


def everyone_at_once(key: Any, t: Any, n: int, hp: Any) -> Draw:
    return Draw(jnp.arange(n), jnp.full(n, 1 / hp["cohort"]))


def all_or_none(key: Any, t: Any, count: Any, m: int, hp: Any) -> Draw:
    """Each record with probability q, all with one coin."""
    q, slots = hp["batch"] / count, hp.caps["batch"]
    live = (jax.random.uniform(jax.random.fold_in(key, t)) < q) & (jnp.arange(slots) < count)
    return Draw(jnp.where(live, jnp.arange(slots), m), jnp.where(live, 1 / hp["batch"], 0.0))


def normal(key: Any, like: Any) -> Any:
    return jax.random.normal(key, like.shape, like.dtype)


def half(draw: Draw, d: int) -> Draw:
    return Draw(draw.index, jnp.where(draw.index < d // 2, draw.weight, 0))


def uniform_noise(key: Any, std: Any, like: Any) -> Any:
    return std * 12**0.5 * (jax.random.uniform(key, like.shape) - 0.5)


def sends(before: Callable[..., Any], channel: Any = direct) -> Any:
    return channel._replace(name="mine", before=before)


def mine(part: Any, **fields: Any) -> Any:
    return part._replace(name="mine", **fields)


NUMBERS = {"k": 6, "sigma": 1.0}
# name: a part that lies, and a word of the sentence that finds it out
LYING: dict[str, tuple[Any, str]] = {
    # compressors
    "with replacement": (
        selects(lambda draw, d: Draw(draw.index // 2, draw.weight)),
        "more than once",
    ),
    "beyond the end": (selects(lambda draw, d: Draw(draw.index + d, draw.weight)), "beyond"),
    "unscaled": (selects(lambda draw, d: Draw(draw.index, (draw.weight > 0) * 1.0)), "should be"),
    "the first half alone": (selects(half), "k coordinates"),
    "omega of another k": (mine(random_k, omega=lambda d, v: d / v["k"] - 1.5), "omega"),
    "a bias of 1 %": (codes(lambda key, v, hp: 1.01 * v, omega=lambda d, v: 1.0), "should be"),
    "a bias that is declared, and too large": (
        codes(lambda key, v, hp: 0.5 * v, omega=lambda d, v: 0.1, unbiased=False),
        "error",
    ),
    "negative bits": (mine(random_k, bits=lambda d, v: (-1.0, 32.0)), "bits"),
    # samplers
    "weights 1.01 times": (weighs(poisson, 1.01), "weight"),
    "always the first records": (mine(fixed, draw=of_the_first), "should be"),
    "one coin for all records": (mine(poisson, draw=all_or_none), "two given|spread"),
    "with as Poisson": (mine(with_replacement, scheme="poisson"), "weight"),
    "fixed size as Poisson": (mine(fixed, scheme="poisson"), "two given|spread"),
    "the same rows in every round": (same_key(poisson), "two rounds"),
    "fresh rows as an epoch": (mine(fixed, scheme="shuffled"), "rounds"),
    "an epoch that repeats": (same_key(sampling.shuffled()), "rounds"),
    # participations
    "clients 100 times": (weighs(uniform, 100.0), "weight"),
    "everyone as chance": (mine(chance, draw=everyone_at_once), "share"),
    "as many turns as rounds": (same_key(balanced), "rounds for a client"),
    "fewer turns than it takes": (mine(uniform, most=lambda T, n, v: 1), "rounds for a client"),
    "a random number as fixed": (mine(chance, fixed_size=True), "calls"),
    "more clients than there are": (mine(uniform, least=lambda n, v: 5), "at least 5"),
    # mechanisms
    "nine tenths": (noise(lambda key, std, like: 0.9 * std * normal(key, like)), "declares"),
    "pairs of coordinates": (
        noise(lambda key, std, like: std * jnp.repeat(normal(key, like[::2]), 2)),
        "correlation",
    ),
    "cut off": (noise(lambda key, std, like: std * normal(key, like).clip(-2, 2)), "declares"),
    "uniform": (noise(uniform_noise), "fourth moment"),
    "one key for ever": (
        noise(lambda key, std, like: std * normal(jax.random.key(0), like)),
        "noise",
    ),
    "a mean": (noise(lambda key, std, like: std * (normal(key, like) + 0.5)), "noise"),
    # channels
    "messages 1.1 times": (sends(lambda link, g: 1.1 * g), "apart"),
    "one coordinate longer": (sends(lambda link, g: g.at[3].multiply(2.0)), "apart"),
    "linear only in name": (sends(lambda link, g: jnp.clip(g, -0.5, 0.5)), "mean of before"),
    "a shift that grows": (sends(lambda s, g: 2 * g - s, channels.shifted()), "apart"),
    # servers
    "another first point": (mine(servers.descent(), view=lambda s: s[0] + 1), "first"),
}


@pytest.mark.parametrize("name", HONEST)
def test_every_part_of_jaxfl_is_what_it_declares(name: str) -> None:
    part, numbers = HONEST[name]
    assert check_part(part, **numbers)


@pytest.mark.parametrize("name", LYING)
def test_a_part_that_lies_is_found_out(name: str) -> None:
    part, word = LYING[name]
    numbers = {p.name: NUMBERS[p.name] for p in part.params if p.name in NUMBERS}
    with pytest.raises(CheckFailed, match=word):
        check_part(part, **numbers)


test_what_cannot_be_checked = refusals(
    (lambda: check_part(3), "3 is no part that can be checked alone"),
    (lambda: check_part(compressors.random_k(), kk=6), "kk"),
    (lambda: check_part(mechanisms.gaussian(), sigma=-1), "sigma = -1"),
    (lambda: check_algorithm("ldp_gd", None, leave_out=("descnt",)), "did you mean 'descent'"),
)
