"""Test accuracy of deep models beside an independent loop in flax and optax, without privacy.

    python benchmarks/deep.py [images] [characters] [--rounds 150] [--seeds 3]

``images`` is MNIST, split over 10 clients by a Dirichlet distribution, with ``cnn``.  ``characters`` are
the docstrings of ten modules of Python's library, one client each, written in LEAF's layout and read
again, with ``char_lstm``.  The loops share the data, the start's distribution and the batch's size; their
networks, draws and accuracies are written anew.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import jaxfl

MODULES = (
    "argparse",
    "datetime",
    "doctest",
    "email.message",
    "logging",
    "random",
    "statistics",
    "subprocess",
    "typing",
    "unittest.case",
)
LETTERS, WINDOW, HIDDEN, LEAST = 80, 80, 128, 1200


class Study(NamedTuple):
    data: Any
    model: jaxfl.parts.Model
    network: nn.Module
    lr: float
    batch: int


class Images(nn.Module):
    @nn.compact
    def __call__(self, a: jax.Array) -> Any:
        z = a.reshape(-1, 28, 28, 1)
        for channels in (32, 64):
            z = nn.relu(nn.Conv(channels, kernel_size=(5, 5))(z))
            z = nn.max_pool(z, (2, 2), (2, 2))
        z = nn.relu(nn.Dense(2048)(z.reshape(z.shape[0], -1)))
        return nn.Dense(10)(z)


class Characters(nn.Module):
    @nn.compact
    def __call__(self, tokens: jax.Array) -> Any:
        z = nn.RNN(nn.LSTMCell(HIDDEN))(nn.Embed(LETTERS, 8)(tokens))
        return nn.Dense(LETTERS)(z[:, -1])


def images() -> Study:
    data = jaxfl.data.split("mnist", 10, "dirichlet", alpha=0.3)
    return Study(data, jaxfl.models.cnn(784, 10), Images(), 0.1, 32)


def characters() -> Study:
    with tempfile.TemporaryDirectory() as folder:
        for part in ("train", "test"):
            (Path(folder) / part).mkdir()
        users: dict[str, dict[str, Any]] = {"train": {}, "test": {}}
        for name in MODULES:
            text = docstrings(name)
            cut = len(text) * 4 // 5
            for part, piece in (("train", text[:cut]), ("test", text[cut:])):
                starts = range(0, len(piece) - WINDOW, 3)
                x, y = (
                    [piece[i : i + WINDOW] for i in starts],
                    [piece[i + WINDOW] for i in starts],
                )
                users[part][name] = {"x": x[:LEAST], "y": y[:LEAST]}
        for part, found in users.items():
            sizes = [len(one["y"]) for one in found.values()]
            whole = {"users": list(found), "num_samples": sizes, "user_data": found}
            (Path(folder) / part / "all.json").write_text(json.dumps(whole))
        data = jaxfl.data.leaf(folder)
    model = jaxfl.models.char_lstm(WINDOW, LETTERS, hidden=HIDDEN)
    return Study(data, model, Characters(), 2.0, 32)


def docstrings(name: str) -> str:
    """The docstrings of a module, its spaces and line ends made one space each."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return " ".join(" ".join(filter(None, found)).split())


def ours(study: Study, seed: int, rounds: int) -> float:
    problem = jaxfl.Problem(study.model, study.data)
    run = jaxfl.simulate(
        "fedsgd",
        problem,
        jax.random.key(seed),
        rounds,
        eval_every=rounds,
        lr=study.lr,
        batch=study.batch,
    )
    return float(run.metrics["test_accuracy"][-1])


def theirs(study: Study, seed: int, rounds: int) -> float:
    """The mean of the clients' gradients of a batch each, by hand."""
    (a, y), count = study.data.train, study.data.count
    clients = [(a[i, :m], y[i, :m]) for i, m in enumerate(count)]
    rng, test = np.random.default_rng(seed), study.data.test
    params = study.network.init(jax.random.key(1000 + seed), jnp.asarray(clients[0][0][:1]))
    optimizer = optax.sgd(study.lr)
    held = optimizer.init(params)

    def loss(params: Any, a: Any, y: Any) -> Any:
        z = study.network.apply(params, a)
        return optax.softmax_cross_entropy_with_integer_labels(z, y).mean()

    @jax.jit
    def step(params: Any, held: Any, a: Any, y: Any) -> Any:
        each = jax.vmap(jax.grad(loss), (None, 0, 0))(params, a, y)
        updates, held = optimizer.update(jax.tree.map(lambda g: g.mean(0), each), held)
        return optax.apply_updates(params, updates), held

    @jax.jit
    def right(params: Any, a: Any, y: Any) -> Any:
        return (study.network.apply(params, a).argmax(-1) == y).sum()

    for _ in range(rounds):
        rows = [rng.choice(len(y), study.batch, replace=False) for _, y in clients]
        a = np.stack([a[r] for (a, _), r in zip(clients, rows, strict=True)])
        y = np.stack([y[r] for (_, y), r in zip(clients, rows, strict=True)])
        params, held = step(params, held, a, y)
    parts = range(0, len(test[1]), 500)
    return sum(int(right(params, test[0][i : i + 500], test[1][i : i + 500])) for i in parts) / len(
        test[1]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "studies", nargs="*", default=["images", "characters"], choices=["images", "characters"]
    )
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    for name in asked.studies:
        study = {"images": images, "characters": characters}[name]()
        for who, loop in (("jaxfl", ours), ("flax", theirs)):
            began = time.perf_counter()
            found = [loop(study, seed, asked.rounds) for seed in range(asked.seeds)]
            error = statistics.stdev(found) / math.sqrt(asked.seeds)
            took = time.perf_counter() - began
            print(
                f"{name} {who}: {statistics.mean(found):.4f} +- {error:.4f} in {took:.0f} s {found}",
                flush=True,
            )


if __name__ == "__main__":
    main()
