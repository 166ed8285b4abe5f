"""What transcriptions have in common: what a run drew, clipped gradients and a regularizer, in NumPy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.resolution import build
from jaxfl.core.normals import normal
from jaxfl.core.types import Hyper, Problem
from jaxfl.parts import Gossip
from jaxfl.rounds.blocks import client_keys, streams

LAM = 0.2


def shrunk(g: np.ndarray, most: float) -> np.ndarray:
    return g * min(1.0, most / max(np.linalg.norm(g), 1e-300))


def softened(g: np.ndarray, most: float) -> np.ndarray:
    return g * most / (most + np.linalg.norm(g))


def largest(u: np.ndarray, k: int) -> np.ndarray:
    """The k largest entries, zero elsewhere."""
    out = np.zeros_like(u)
    place = np.argsort(-np.abs(u), kind="stable")[:k]
    out[place] = u[place]
    return out


def gradient(problem: Problem, i: int, j: int, x: np.ndarray) -> np.ndarray:
    """Of the logistic loss of one record."""
    rows, labels = (np.asarray(leaf) for leaf in problem.train)  # what JAX remembers of its arrays
    a, s = rows[i, j].astype(float), 2 * float(labels[i, j]) - 1
    return -s * a / (1 + np.exp(s * (a @ x)))


def clipped(problem: Problem, i: int, j: int, x: np.ndarray, G: float) -> np.ndarray:
    return shrunk(gradient(problem, i, j, x), G)


def regularizer(x: np.ndarray) -> np.ndarray:
    return LAM * 2 * x / (1 + x**2) ** 2


class Draws:
    """What the rounds of a run draw: each kind for all rounds and clients by one compiled program,
    when first asked for."""

    def __init__(self, run: Any) -> None:
        self.run, self.p, self.v = run, run.problem, run.values
        self.body, self.keys = run.algorithm.body, streams(run.key)
        self.hp = build(run.algorithm, self.v, run.facts, self.p.x0.dtype)
        self.n, self.d, self.T = self.p.n, self.p.x0.size, int(self.v["rounds"])
        self.x0 = np.asarray(self.p.x0, float)
        self.drawn: dict[Any, Any] = {}

    def grid(self, name: Any, draw: Callable[..., Any], hp: Hyper | None = None, T: int = 0) -> Any:
        """``draw(t, i, hp)`` in all rounds of all clients."""
        if name not in self.drawn:
            t, i = jnp.arange(T or self.T), jnp.arange(self.n)
            every = jax.jit(jax.vmap(jax.vmap(draw, (None, 0, None)), (0, None, None)))
            self.drawn[name] = jax.tree.map(np.asarray, every(t, i, hp or self.hp))
        return self.drawn[name]

    def normal(self, key: jax.Array) -> jax.Array:
        return normal(key, (self.d,), self.p.x0.dtype)

    def weighted_rows(self, t: int, i: int, hp: Hyper | None = None) -> tuple[np.ndarray, Any]:
        """Of a client with local steps, ``t`` counts its batches."""

        def draw(t: jax.Array, i: jax.Array, hp: Hyper) -> tuple[jax.Array, jax.Array]:
            stream, m = jax.random.fold_in(self.keys.rows, i), self.p.m_max
            rows = self.body.estimator.sampler.draw(stream, t, self.p.count[i], m, hp.at(t))
            return (jnp.arange(m) if rows.index is None else rows.index), rows.weight

        name = "rows", None if hp is None else int(hp["batch"])
        index, weight = self.grid(name, draw, hp, self.T * int(self.v.get("local_steps", 1)))
        return index[t, i], weight[t, i]

    def rows(self, t: int, i: int, hp: Hyper | None = None) -> list[int]:
        index, weight = self.weighted_rows(t, i, hp)
        return index[weight > 0].tolist()

    def slope(self, t: int, i: int, x: np.ndarray, most: float = np.inf) -> np.ndarray:
        """The mean of the drawn rows' clipped gradients, by the number that is expected of them."""
        rows = self.rows(t, i)
        total = sum((clipped(self.p, i, j, x, most) for j in rows), 0 * x)
        return total / self.v.get("batch", len(rows))

    def cohort(self, t: int) -> list[int]:
        if "cohorts" not in self.drawn:
            draw = lambda t: self.run.algorithm.cohort(self.run.key, t, self.n, self.hp)  # noqa: E731
            self.drawn["cohorts"] = jax.jit(jax.vmap(draw))(jnp.arange(self.T))
        index, weight = self.drawn["cohorts"]
        if index is None:
            return list(range(self.n))
        return np.asarray(index[t])[np.asarray(weight[t]) > 0].tolist()

    def message(self, t: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Noise, of a server's clients on the chosen coordinates alone, and what multiplies them."""
        select = self.body.compressor.select

        def draw(t: jax.Array, i: jax.Array, hp: Hyper) -> tuple[jax.Array, jax.Array]:
            noise, pick = client_keys([self.keys.noise, self.keys.mask], i[None], t)[:, 0]
            if select is None:
                return self.normal(noise), jnp.ones(self.d)
            chosen = select(pick, self.d, hp)
            place = jnp.zeros(self.d).at[chosen.index]
            xi = self.normal(noise)
            if not isinstance(self.body, Gossip) and self.body.channel.residual is None:
                drawn = normal(noise, chosen.index.shape)
                xi = place.add(drawn, mode="drop")
            return xi, place.add(chosen.weight, mode="drop")

        xi, mask = self.grid("messages", draw)
        return xi[t, i].astype(float), mask[t, i].astype(float)

    def noise(self, t: int, i: int) -> np.ndarray:
        return self.message(t, i)[0]

    def mask(self, t: int, i: int) -> np.ndarray:
        return self.message(t, i)[1]

    def central(self, t: int) -> np.ndarray:
        """The noise of the mean."""

        def draw(t: jax.Array, i: jax.Array, hp: Hyper) -> jax.Array:
            return self.normal(jax.random.fold_in(self.keys.mean_noise, t))

        return self.grid("central", draw)[t, 0].astype(float)

    def coin(self, stream: str, t: int) -> float:
        return float(jax.random.uniform(jax.random.fold_in(getattr(self.keys, stream), t)))
