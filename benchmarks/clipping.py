"""Rounds of DP-SGD on a small convolutional network, in turns with Opacus.

    python benchmarks/peers.py install opacus
    python benchmarks/clipping.py [--turns 7] [--rounds 10]

The network is that of Opacus' example on MNIST (d = 26,010), the data 60,000 random images, of which
Poisson batches of 240 are drawn, clipped at 1.5 and noised.  Prints the seconds of a round of both, and
how many times as fast jaxfl is: the median over turns, with the least and the largest.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from peers import interpreter
from protocol import Worker, serve

IMAGES, BATCH, CLIP, NOISE, LR = 60_000, 240, 1.5, 1.3, 0.25


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.random((IMAGES, 28, 28), dtype=np.float32)
    return a, rng.integers(0, 10, IMAGES).astype(np.int32)


def ours() -> Callable[[int], float]:
    import jax
    from flax import linen as nn
    from outside.images import TORCH, Net

    import jaxfl

    model = jaxfl.models.flax_model(Net(nn.relu, 3, TORCH, True), (28, 28, 1))
    a, y = data()
    clients = jaxfl.data.from_clients((a[None, ..., None], y[None]), classes=10, stacked=True)
    numbers = {"lr": LR, "clip": CLIP, "sigma": NOISE * CLIP / BATCH, "batch": BATCH}
    made = jaxfl.algorithm("dp_sgd")
    f = jaxfl.functions(made, jaxfl.Problem(model, clients), 1000, **numbers)
    state, step = f.init(jax.random.key(0)), jax.jit(lambda state: f.round(state, None)[0])

    def run(rounds: int) -> float:
        nonlocal state
        for _ in range(rounds):
            state = step(state)
        return float(f.output(state).sum())

    return run


def theirs() -> Callable[[int], float]:
    torch, opacus, optimizers = (
        importlib.import_module(name) for name in ("torch", "opacus", "opacus.optimizers")
    )
    nn = torch.nn
    layers = [nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)]
    layers += [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
    layers += [nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)]
    model = opacus.GradSampleModule(nn.Sequential(*layers))
    chosen = optimizers.DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=LR),
        noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=BATCH,
    )  # fmt: skip
    a, y = map(torch.as_tensor, data())
    a, y, loss = a[:, None], y.long(), nn.CrossEntropyLoss()

    def run(rounds: int) -> float:
        for _ in range(rounds):
            drawn = torch.nonzero(torch.rand(IMAGES) < BATCH / IMAGES).squeeze(1)
            chosen.zero_grad()
            loss(model(a[drawn]), y[drawn]).backward()
            chosen.step()
        return float(sum(p.sum() for p in model.parameters()))

    return run


SIDES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "jaxfl": (ours, ("jaxfl", "jax")),
    "opacus": (theirs, ("opacus", "torch")),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=10, help="of a turn")
    parser.add_argument("--serve", choices=list(SIDES), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        make, packages = SIDES[asked.serve]
        serve({asked.serve: make}, {name: version(name) for name in packages})
        return 0
    python = interpreter("opacus")
    if python is None:
        print("Opacus is not installed: python benchmarks/peers.py install opacus")
        return 1
    commands = {"jaxfl": sys.executable, "opacus": python}
    workers = {name: Worker([each, __file__, "--serve", name]) for name, each in commands.items()}
    for name, worker in workers.items():
        worker.ask(name, 0)
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(asked.turns):
        for name, worker in workers.items():
            told = worker.ask(name, asked.rounds)
            seconds[name].append(told["seconds"] / asked.rounds)
    for name, worker in workers.items():
        print(f"{name}: {statistics.median(seconds[name]):.4f} s a round, {worker.versions}")
        worker.close()
    ratios = [b / a for a, b in zip(seconds["jaxfl"], seconds["opacus"], strict=True)]
    print(
        f"jaxfl is {statistics.median(ratios):.2f} times as fast as Opacus "
        f"({min(ratios):.2f} to {max(ratios):.2f})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
