"""`jaxfl.testing.check_part`: it passes every part of jaxfl, and finds out parts that lie."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from told import mistakes, refused

from jaxfl.core.types import Draw
from jaxfl.parts import channels, compressors, iterates, mechanisms, sampling, servers
from jaxfl.testing import CheckFailed, check_algorithm, check_part

HONEST: dict[str, tuple[Any, dict[str, Any]]] = {
    **{
        name: (compressors.compressor(name), numbers)
        for name, numbers in (
            *(
                ("identity", {}),
                ("random_k", {"k": 6}),
                ("stratified_k", {"k": 5}),
                ("bernoulli", {"k": 6}),
            ),
            *(("qsgd", {"levels": 4}), ("natural", {}), ("lazy", {"keep": 0.25}), ("terngrad", {})),
            *(("natural_dithering", {"levels": 3}), ("sto_sign", {}), ("top_k", {"k": 4})),
            *(("qsgd+random_k", {"k": 9, "levels": 4}), ("natural+stratified_k", {"k": 6})),
            ("count_sketch", {"sketch_rows": 3, "sketch_columns": 7}),
        )
    },
    **{name: (sampling.sampler(name), {}) for name in sampling.SAMPLERS},
    **{f"{name} clients": (sampling.participation(name), {}) for name in sampling.PARTICIPATIONS},
    "gaussian": (mechanisms.gaussian(), {"sigma": 0.3}),
    "central": (mechanisms.central(), {"sigma": 2.0}),
    "noiseless": (mechanisms.noiseless(), {}),
    **{
        f"{make.__name__} channel": (make(), {})
        for make in (
            channels.direct,
            channels.shifted,
            channels.learned,
            channels.recursion,
            channels.error_feedback,
        )
    },
    "descent": (servers.descent(), {}),
    "averaged": (servers.averaging(), {}),
    "anytime": (iterates.anytime(), {"diameter": 2.0, "reads": ("diameter",)}),
}

random_k, qsgd = compressors.random_k(), compressors.qsgd()
poisson, fixed = sampling.poisson(), sampling.without_replacement()
uniform, balanced, chance = sampling.uniform(), sampling.balanced(), sampling.poisson_clients()
gaussian, direct, shifted = mechanisms.gaussian(), channels.direct(), channels.shifted()


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


def loud(factor: float) -> Any:
    return noise(lambda key, std, like: factor * std * normal(key, like))


# name: a part that lies, its numbers, and a word of the sentence that finds it out
LYING: dict[str, tuple[Any, dict[str, float], str]] = {
    # compressors
    "one coordinate in every slot": (
        selects(lambda draw, d: Draw(0 * draw.index, draw.weight)),
        {"k": 6},
        "times in one message",
    ),
    "with replacement": (
        selects(lambda draw, d: Draw(draw.index // 2, draw.weight)),
        {"k": 6},
        "times in one message",
    ),
    "beyond the end": (
        selects(lambda draw, d: Draw(draw.index + d, draw.weight)),
        {"k": 6},
        "beyond",
    ),
    "unscaled": (
        selects(lambda draw, d: Draw(draw.index, (draw.weight > 0) * 1.0)),
        {"k": 6},
        "should be",
    ),
    "the first half alone": (
        selects(lambda draw, d: Draw(draw.index, jnp.where(draw.index < d // 2, draw.weight, 0))),
        {"k": 6},
        "k coordinates",
    ),
    "a smaller omega": (
        random_k._replace(name="mine", omega=lambda d, v: 1.0),
        {"k": 6},
        "omega = 1",
    ),
    "omega of another k": (
        random_k._replace(name="mine", omega=lambda d, v: d / v["k"] - 1.5),
        {"k": 6},
        "omega",
    ),
    "a biased sign": (
        codes(lambda key, v, hp: jnp.sign(v), omega=lambda d, v: 30.0),
        {},
        "should be",
    ),
    "a bias of one in a hundred": (
        codes(lambda key, v, hp: 1.01 * v, omega=lambda d, v: 1.0),
        {},
        "should be",
    ),
    "a bias that is declared, and too large": (
        codes(lambda key, v, hp: 0.5 * v, omega=lambda d, v: 0.1, unbiased=False),
        {},
        "error",
    ),
    "negative bits": (
        random_k._replace(name="mine", bits=lambda d, v: (-1.0, 32.0)),
        {"k": 6},
        "bits",
    ),
    "bits that are not a number": (
        random_k._replace(name="mine", bits=lambda d, v: (0.0, float("nan"))),
        {"k": 6},
        "bits",
    ),
    # samplers
    "weights 100 times": (weighs(poisson, 100.0), {}, "weight"),
    "weights 1.01 times": (weighs(poisson, 1.01), {}, "weight"),
    "negative weights": (weighs(fixed, -1.0), {}, "weight"),
    "always the first records": (fixed._replace(name="mine", draw=of_the_first), {}, "should be"),
    "one coin for all records": (
        poisson._replace(name="mine", draw=all_or_none),
        {},
        "two given|spread",
    ),
    "without as with replacement": (
        fixed._replace(name="mine", draw=sampling.with_replacement().draw),
        {},
        "weight",
    ),
    "with as Poisson": (
        sampling.with_replacement()._replace(name="mine", scheme="poisson"),
        {},
        "weight",
    ),
    "fixed size as Poisson": (
        fixed._replace(name="mine", scheme="poisson"),
        {},
        "two given|spread",
    ),
    "the same rows in every round": (same_key(poisson), {}, "two rounds"),
    "fresh rows as an epoch": (fixed._replace(name="mine", scheme="shuffled"), {}, "rounds"),
    "a batch as all": (fixed._replace(name="mine", scheme="full"), {}, "weight|leaves out"),
    "an epoch that repeats": (same_key(sampling.shuffled()), {}, "rounds"),
    # participations
    "clients 100 times": (weighs(uniform, 100.0), {}, "weight"),
    "everyone as chance": (chance._replace(name="mine", draw=everyone_at_once), {}, "share"),
    "as many turns as rounds": (same_key(balanced), {}, "rounds for a client"),
    "fewer turns than it takes": (
        uniform._replace(name="mine", most=lambda T, n, v: 1),
        {},
        "rounds for a client",
    ),
    "a random number as fixed": (chance._replace(name="mine", fixed_size=True), {}, "calls"),
    "more clients than there are": (
        uniform._replace(name="mine", least=lambda n, v: 5),
        {},
        "at least 5",
    ),
    # mechanisms
    "a hundredth": (
        noise(lambda key, std, like: std / 100 * normal(key, like)),
        {"sigma": 1.0},
        "declares",
    ),
    "nine tenths": (
        noise(lambda key, std, like: 0.9 * std * normal(key, like)),
        {"sigma": 1.0},
        "declares",
    ),
    "none": (noise(lambda key, std, like: 0 * like), {"sigma": 1.0}, "declares"),
    "one draw for all coordinates": (
        noise(lambda key, std, like: std * normal(key, like[:1]) + 0 * like),
        {"sigma": 1.0},
        "correlation",
    ),
    "pairs of coordinates": (
        noise(lambda key, std, like: std * jnp.repeat(normal(key, like[::2]), 2)),
        {"sigma": 1.0},
        "correlation",
    ),
    "half of the coordinates": (
        noise(lambda key, std, like: std * normal(key, like) * (jnp.arange(like.size) % 2)),
        {"sigma": 1.0},
        "declares",
    ),
    "cut off": (
        noise(lambda key, std, like: std * normal(key, like).clip(-2, 2)),
        {"sigma": 1.0},
        "declares",
    ),
    "uniform": (
        noise(lambda key, std, like: std * 12**0.5 * (jax.random.uniform(key, like.shape) - 0.5)),
        {"sigma": 1.0},
        "fourth moment",
    ),
    "one key for ever": (
        noise(lambda key, std, like: std * normal(jax.random.key(0), like)),
        {"sigma": 1.0},
        "noise",
    ),
    "a mean": (
        noise(lambda key, std, like: std * (normal(key, like) + 0.5)),
        {"sigma": 1.0},
        "noise",
    ),
    # channels
    "messages 100 times": (
        direct._replace(name="mine", before=lambda link, g: 100 * g),
        {},
        "apart",
    ),
    "messages 1.1 times": (
        direct._replace(name="mine", before=lambda link, g: 1.1 * g),
        {},
        "apart",
    ),
    "one coordinate longer": (
        direct._replace(name="mine", before=lambda link, g: g.at[3].multiply(2.0)),
        {},
        "apart",
    ),
    "normalized": (
        direct._replace(name="mine", before=lambda link, g: g / (1e-2 + jnp.abs(g))),
        {},
        "apart",
    ),
    "of unit length": (
        direct._replace(name="mine", before=lambda link, g: g / jnp.linalg.norm(g)),
        {},
        "apart",
    ),
    "linear only in name": (
        direct._replace(name="mine", before=lambda link, g: jnp.clip(g, -0.5, 0.5)),
        {},
        "mean of before",
    ),
    "a shift that grows": (
        shifted._replace(name="mine", before=lambda s, g: 2 * g - s),
        {},
        "apart",
    ),
    # servers
    "another first point": (
        servers.descent()._replace(name="mine", view=lambda s: s[0] + 1),
        {},
        "first",
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_every_part_of_jaxfl_is_what_it_declares(name: str) -> None:
    part, numbers = HONEST[name]
    assert check_part(part, **numbers)


@pytest.mark.parametrize("name", LYING)
def test_a_part_that_lies_is_found_out(name: str) -> None:
    part, numbers, word = LYING[name]
    with pytest.raises(CheckFailed, match=word):
        check_part(part, **numbers)


@mistakes(
    (lambda: check_part(3), "3 is no part that can be checked alone"),
    (lambda: check_part(compressors.random_k(), kk=6), "kk"),
    (lambda: check_part(mechanisms.gaussian(), sigma=-1), "sigma = -1"),
    (lambda: check_algorithm("ldp_gd", None, leave_out=("descnt",)), "did you mean 'descent'"),
)
def test_what_cannot_be_checked(call: Any, words: str) -> None:
    refused(call, words)
