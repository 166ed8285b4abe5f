"""Networks of others on MNIST, trained by DP-SGD with their values: the accuracy on the test set."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import optax
from flax import linen as nn

from jaxfl import Problem, algorithm, models, simulate
from jaxfl.data import load, map_features, split
from jaxfl.parts import sampling, servers
from outside.accounting import DELTA, IMAGES
from outside.row import Measure

__all__ = ["MEASURES", "TRAININGS", "Net", "Training"]

PIXELS = 0.1307, 0.3081  # mean and deviation, as Opacus prints them
TORCH = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")  # U(-1, 1)/sqrt(fan in)
HE = nn.initializers.he_normal()


def _identity(a: Any) -> Any:
    return a


class Net(nn.Module):
    """Two convolutions, each before max pooling of stride 1, and two dense layers; d = 26,010.

    Fields:
        act: the nonlinearity between layers.
        padding: of the first convolution, at each side.
        kernel: how weights are drawn.
        torch: whether biases are drawn like weights; False: they are 0.
    """

    act: Callable[[Any], Any]
    padding: int
    kernel: Any
    torch: bool

    @nn.compact
    def __call__(self, a: Any) -> Any:
        for features, size, padding in ((16, 8, self.padding), (32, 4, 0)):
            draws = self._draws(size * size * a.shape[-1])
            a = nn.Conv(features, (size, size), strides=2, padding=padding, **draws)(a)
            a = nn.max_pool(self.act(a), (2, 2))  # type: ignore[no-untyped-call]
        a = a.reshape(len(a), -1)
        a = self.act(nn.Dense(32, **self._draws(a.shape[-1]))(a))
        return nn.Dense(10, **self._draws(32))(a)

    def _draws(self, fan: int) -> dict[str, Any]:
        def uniform(key: jax.Array, shape: Any, dtype: Any) -> jax.Array:
            return jax.random.uniform(key, shape, dtype, -(fan**-0.5), fan**-0.5)

        bias = uniform if self.torch else nn.initializers.zeros
        return {"kernel_init": self.kernel, "bias_init": bias}


class Training(NamedTuple):
    """One setting; ``sigma`` is the noise multiplier, 0 for no privacy."""

    net: Net
    batch: int
    lr: float
    epochs: int
    sigma: float = 0.0
    clip: float = 1.0
    momentum: float = 0.0
    scaled: bool = False  # pixels have mean 0 and deviation 1

    def measure(self, data: str | None, seed: int) -> Mapping[str, float]:
        """The accuracy on the test set after the last round, in percent."""
        given: dict[str, Any] = {"batch": self.batch, "lr": self.lr}
        parts: dict[str, Any] = {}
        if self.sigma:
            sigma = self.sigma * self.clip / self.batch
            given |= {"clip": self.clip, "sigma": sigma, "delta": DELTA}
        else:
            parts["sampler"] = sampling.poisson()
        if self.momentum:
            make = functools.partial(_heavy_ball, self.momentum)
            parts["server"] = servers.optimizer(make, name="heavy_ball")
        run = simulate(
            algorithm("dp_sgd" if self.sigma else "fedsgd", **parts),
            _problem(self.net, self.scaled, data),
            rounds=self.epochs * IMAGES // self.batch,
            seed=seed,
            eval_every=0,
            metrics_on="test",
            **given,
        )
        return {"accuracy": 100 * float(run.metrics["accuracy"][-1])}


def _heavy_ball(momentum: float, hp: Any) -> optax.GradientTransformation:
    return optax.sgd(hp["lr"], momentum)


@functools.cache
def _problem(net: Net, scaled: bool, data: str | None) -> Problem:
    rows = load("mnist", directory=data, flat=False)
    if scaled:
        mean, deviation = PIXELS
        rows = map_features(rows, lambda pixels: (pixels - mean) / deviation)
    return Problem(models.flax_model(net, (28, 28, 1)), split(rows, 1))


_opacus = functools.partial(Training, Net(nn.relu, 3, TORCH, True), 240, scaled=True)
# 28 pixels, a window of 8 and stride 2: "same" pads 3 at each side
_tensorflow = functools.partial(Training, Net(_identity, 3, HE, False), 256)
_handcrafted = functools.partial(Training, Net(nn.tanh, 2, TORCH, True), 512)

TRAININGS = {
    "opacus-1.3": _opacus(0.25, 15, 1.3, 1.5),
    "opacus-1.1": _opacus(0.15, 60, 1.1, 1.0),
    "opacus-0.7": _opacus(0.25, 45, 0.7, 1.5),
    "opacus-none": _opacus(0.1, 20),
    "tensorflow-1.2": _tensorflow(0.32, 10, 1.2),
    "tensorflow-0.6": _tensorflow(0.4, 30, 0.6),
    "tensorflow-1.12": _tensorflow(0.08, 60, 1.12),
    "handcrafted": _handcrafted(0.5, 40, 1.23, 0.1, 0.9),
}
MEASURES: dict[str, Measure] = {name: each.measure for name, each in TRAININGS.items()}
