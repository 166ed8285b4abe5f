"""Structural per-example gradients beside ``vmap(grad)``: time, memory and deviation, layer by layer.

    python benchmarks/layers.py [WORD ...]

Each row is a clipped sum of the gradients of 32 examples, compiled for the default device.  Words choose
the layers whose names contain one of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxfl.core.types import Array, Kernel, Model, Term
from jaxfl.problems import models
from jaxfl.problems.clipping import evaluate
from jaxfl.problems.flax_models import flax_model
from jaxfl.problems.kernels import generic_kernel

BATCH, REPEATS, CLASSES, CHARACTERS = 32, 5, 10, 90
IMAGE, TEXT = (28, 28, 1), jax.ShapeDtypeStruct((80,), jnp.int32)


class Net(nn.Module):
    """A network of a function that makes its layers, with a dense layer behind."""

    build: Callable[[Array], Array]

    @nn.compact
    def __call__(self, a: Array) -> Any:
        z = self.build(a)
        return nn.Dense(CLASSES)(z.reshape(len(z), -1))


def normed(norm: Callable[[], Any]) -> Callable[[Array], Array]:
    return lambda a: nn.relu(norm()(nn.Conv(16, (3, 3), strides=2, use_bias=False)(a)))


def residual(a: Array) -> Array:
    a = nn.Conv(16, (3, 3), strides=2)(a)
    return a + nn.Conv(16, (3, 3))(nn.relu(nn.Conv(16, (3, 3))(a)))


def tied(tokens: Array) -> Array:
    embed = nn.Embed(CHARACTERS, 64)
    return embed.attend(nn.tanh(embed(tokens)).mean(axis=1))


def twice(a: Array) -> Array:
    layer = nn.Dense(784)
    return layer(nn.relu(layer(a.reshape(len(a), -1))))


def recurrent(cell: Any) -> Callable[[Array], Array]:
    return lambda tokens: nn.RNN(cell(128))(nn.Embed(CHARACTERS, 8)(tokens))[:, -1]


LAYERS: dict[str, tuple[Callable[[Array], Array], Any]] = {
    "dense": (lambda a: nn.relu(nn.Dense(512)(a.reshape(len(a), -1))), IMAGE),
    "dense without bias": (lambda a: nn.Dense(512, use_bias=False)(a.reshape(len(a), -1)), IMAGE),
    "convolution": (lambda a: nn.relu(nn.Conv(32, (5, 5), strides=2)(a)), IMAGE),
    "group norm": (normed(lambda: nn.GroupNorm(4)), IMAGE),
    "layer norm": (normed(nn.LayerNorm), IMAGE),
    "average pool": (lambda a: nn.avg_pool(nn.Conv(16, (5, 5))(a), (2, 2), strides=(2, 2)), IMAGE),
    "max pool": (lambda a: nn.max_pool(nn.Conv(16, (5, 5))(a), (2, 2), strides=(2, 2)), IMAGE),
    "residual": (residual, IMAGE),
    "embedding": (lambda a: nn.tanh(nn.Embed(10_000, 64)(a)).mean(axis=1), TEXT),
    "tied": (tied, TEXT),
    "called twice": (twice, IMAGE),
    "LSTM": (recurrent(nn.OptimizedLSTMCell), TEXT),
    "GRU": (recurrent(nn.GRUCell), TEXT),
}
MODELS: dict[str, tuple[Callable[[], Model], Any]] = {
    "cnn (FEMNIST)": (lambda: models.cnn(IMAGE, 62), IMAGE),
    "cnn (CIFAR)": (lambda: models.cnn((24, 24, 3), 10), (24, 24, 3)),
    "resnet_gn": (lambda: models.resnet_gn(IMAGE, 10), IMAGE),
    "char_lstm": (lambda: models.char_lstm(80, CHARACTERS), TEXT),
}


def measured(kernel: Kernel, x: Array, batch: Any) -> tuple[Array, float, float]:
    """A clipped sum, its seconds and the MiB that it needs beside what enters and comes out."""

    def clipped(x: Array, batch: Any) -> Array:
        term = Term(1.0, (x,), (1.0,), jnp.float32(0.1))
        return evaluate(kernel, (term,), jnp.ones(BATCH), batch)[0]

    program: Any = jax.jit(clipped).lower(x, batch).compile()
    seconds = []
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        out = jax.block_until_ready(program(x, batch))
        seconds.append(time.perf_counter() - began)
    return out, min(seconds[1:]), program.memory_analysis().temp_size_in_bytes / 2**20


def row(name: str, model: Model, sample: Any) -> str:
    rng, text = np.random.default_rng(0), sample is TEXT
    a = rng.integers(0, CHARACTERS, (BATCH, 80)) if text else rng.normal(size=(BATCH, *sample))
    kind = jnp.int32 if text else jnp.float32
    batch = jnp.asarray(a, kind), jnp.asarray(rng.integers(0, 10, BATCH), jnp.int32)
    x = model.init(jax.random.key(0))
    mine, fast, small = measured(model.kernel, x, batch)
    plain, slow, large = measured(generic_kernel(model.loss, model.dim), x, batch)
    apart = float(jnp.linalg.norm(mine - plain) / jnp.linalg.norm(plain))
    return (
        f"| {name} | {model.dim:,} | {model.kernel.width:,} | {1e3 * fast:.1f} | {1e3 * slow:.1f} "
        f"| {slow / fast:.1f} | {small:.1f} | {large:.1f} | {apart:.0e} |"
    )


def main(words: list[str]) -> None:
    print(
        "| layer | d | numbers kept | ms | ms, vmap(grad) | times faster | MiB | MiB, vmap(grad) "
        "| deviation |\n|---|---|---|---|---|---|---|---|---|"
    )
    for name, (build, sample) in LAYERS.items():
        if not words or any(word in name for word in words):
            print(row(name, flax_model(Net(build), sample, name=name), sample), flush=True)
    for name, (make, sample) in MODELS.items():
        if not words or any(word in name for word in words):
            print(row(name, make(), sample), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
