"""Noise that cancels between neighbours, and noise that is correlated over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl import InputError, Problem, algorithm, functions, models, sweep
from jaxfl.data import from_clients, load, split
from jaxfl.parts import mechanisms
from jaxfl.privacy.gaussian import gdp_mu
from jaxfl.privacy.releases import strategy_norm
from outside.row import Measure

__all__ = ["MEASURES"]

NODES, DELTA = 16, 1e-5
PRINTED = {  # sigma and sigma_c of a graph
    "ring": (22.96953176771683, 94.0),
    "complete": (17.827099282407094, 32.0),
}
ROUNDS, STEPS = 5000, [0.0001, 0.0003, 0.001, 0.003]


def _accountant(data: str | None, seed: int) -> Mapping[str, float]:
    """DECOR, whole clients, whose messages have norm 1: the formula of the paper, and what is proven."""
    rows = [(np.zeros((1, 1), np.float32), np.zeros(1, np.int32))] * NODES
    problem = Problem(models.logistic(1), from_clients(rows, classes=2))
    found: dict[str, float] = {}
    for graph, (sigma, shared) in PRINTED.items():
        made = algorithm("decor", graph=graph, clip="client")
        given: dict[str, Any] = {
            "clip": 1.0,
            "batch": 1,
            "sigma": sigma,
            "coupling": shared / sigma,
        }
        report = functions(made, problem, rounds=3500, delta=DELTA, **given).privacy(3500)
        found |= {f"claimed-{graph}": float(report.claimed or 0), f"proven-{graph}": report.proven}
    return found


def _between(data: str | None, seed: int) -> Mapping[str, float]:
    """Losses after 5,000 rounds: local noise above DECOR's, and DECOR's above that of a trusted server."""
    model = models.logistic(123, regularizer=models.l2(1e-3))
    problem = Problem(model, split(load("a9a", directory=data), NODES))
    given: dict[str, Any] = {"clip": 1.0, "batch": 64, "delta": DELTA, "lr": STEPS, "seeds": [seed]}

    def loss(name: str, parts: Mapping[str, Any], **noise: Any) -> float:
        made = algorithm(name, clip="client", **parts)
        ds = sweep(made, problem, rounds=ROUNDS, eval_every=ROUNDS, **given, **noise)
        return float(np.nanmin(ds["loss"].isel(round=-1).values))

    found: dict[str, float] = {}
    for eps in (3.0, 40.0):
        central = 2 * math.sqrt(ROUNDS) / NODES / gdp_mu(eps, DELTA)
        server = loss("dp_sgd", {}, sigma=central)
        for graph in PRINTED:
            decor = loss("decor", {"graph": graph}, eps=eps)
            local = loss("dp_dsgd", {"graph": graph}, eps=eps)
            found |= {f"local-{graph}-{eps:g}": local - decor}
            found |= {f"server-{graph}-{eps:g}": decor - server}
    return found


def _strategies(data: str | None, seed: int) -> Mapping[str, float]:
    """Squared norms of 64 rounds, and uses 10 apart, over those of jax_privacy."""
    try:
        from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz
    except ImportError:
        raise InputError("jax_privacy is not installed", "pip install 'jaxfl[mf]'") from None

    n, apart = 64, 10
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        blt = buffered_toeplitz.optimize(n=n, min_sep=apart, max_participations=6)
        made = {
            "inverse": mechanisms.banded(8, stored=True),
            "bands": mechanisms.strategy(toeplitz.optimize_banded_toeplitz(n, 8), n, stored=True),
            "buffers": mechanisms.buffered(blt.buf_decay, blt.output_scale, n),
        }
        columns = {
            "inverse": toeplitz.inverse_coef(jnp.asarray(made["inverse"].weights), n=n),
            "bands": toeplitz.optimize_banded_toeplitz(n, 8),
            "buffers": blt.toeplitz_coefs(n),
        }
        found: dict[str, float] = {}
        for name, column in columns.items():
            column = column / column[0]
            theirs = float(toeplitz.minsep_sensitivity_squared(column, apart, n=n))
            found[name] = strategy_norm(made[name].weights, n, apart) ** 2 / theirs
    return found


MEASURES: dict[str, Measure] = {
    "decor-eps": _accountant,
    "decor-a9a": _between,
    "correlated-noise": _strategies,
}
