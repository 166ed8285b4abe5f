"""Compressed descent on a9a and mushrooms: orderings of published figures, and the rates of theorems."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flax import linen as nn

from jaxfl import Problem, algorithm, models, simulate, sweep, theory
from jaxfl.data import load, split
from jaxfl.parts import sampling
from outside.row import Measure

__all__ = ["MEASURES"]

LAMBDA, CLIENTS = 0.1, 20  # of the regularizer lambda sum_j x_j^2/(1 + x_j^2)


class Setting(NamedTuple):
    """Logistic regression with the nonconvex regularizer, from 0, and what theorems ask of it.

    Fields:
        problem: rows in the order of the file, 20 clients.
        L: smoothness of f.
        each: root mean square of the smoothness of the f_i.
        slopes: the gradients of the f_i at 0.
    """

    problem: Problem
    L: float
    each: float
    slopes: Any

    @property
    def d(self) -> int:
        return int(self.slopes.shape[1])

    @property
    def ef21(self) -> tuple[float, float]:
        """theta of EF21's Theorem 1 for top-1, and its step ``1/(L + each sqrt(beta/theta))``."""
        alpha = 1 / self.d
        theta = 1 - (1 - alpha) ** 0.5
        beta = (1 - alpha) / theta
        return theta, 1 / (self.L + self.each * (beta / theta) ** 0.5)


@functools.cache
def _setting(name: str, data: str | None) -> Setting:
    rows = load(name, directory=data)
    model = models.logistic(rows.train[0].shape[1], regularizer=models.nonconvex(LAMBDA))
    problem = Problem(model, split(rows, CLIENTS, "contiguous"), eval_records="all")
    a, y = (np.asarray(leaf, np.float64) for leaf in problem.train)
    m = a.shape[1]  # the same for all clients: a rest of the rows is dropped
    hessians = [client.T @ client / (4 * m) for client in a]  # bounds, of the logistic losses
    L = np.linalg.norm(np.mean(hessians, axis=0), 2) + 2 * LAMBDA
    each = np.mean([(np.linalg.norm(h, 2) + 2 * LAMBDA) ** 2 for h in hessians]) ** 0.5
    return Setting(problem, float(L), float(each), np.einsum("im,imd->id", 0.5 - y, a) / m)


def _rates(name: str, data: str | None, seed: int) -> Mapping[str, float]:
    """The theorems' bounds on the mean of ``|grad f(x_t)|^2``, t < T, over what runs have.

    What a run gained stands for f(x_0) - f*, which is larger.
    """
    s = _setting(name, data)
    k, (theta, step) = s.d // 10, s.ef21
    squares = np.sort(s.slopes**2, axis=1)
    first, left = squares.sum(axis=1).mean(), squares[:, :-1].sum(axis=1).mean()

    def ratio(method: str, T: int, lr: float, bound: Any, **given: Any) -> float:
        made = algorithm(method, sampler=sampling.full())
        run = simulate(made, s.problem, rounds=T, seed=seed, eval_every=1, lr=lr, **given)
        loss, square = run.metrics["loss"], np.mean(run.metrics["grad_norm_sq"][:T])
        return float(bound(float(loss[0] - loss[-1]), T) / square)

    omega = s.d / k - 1
    dasha = theory.compressed.dasha_step(s.L, s.each, omega, CLIENTS)
    sgdm = theory.compressed.sgdm_step(s.L, s.each, k / s.d, 0.3)
    return {
        "ef21": ratio(
            "ef21", 2000, step, lambda gap, T: (2 * gap / step + left / theta) / T, k=1
        ),
        "dasha": ratio(
            "dasha", 1000, dasha,
            lambda gap, T: theory.compressed.dasha_rate(gap, first, dasha, T, omega, CLIENTS), k=k,
        ),
        "ef21_sgdm": ratio(
            "ef21_sgdm", 1000, sgdm,
            lambda gap, T: theory.compressed.sgdm_rate(gap, first, sgdm, T, k / s.d), k=k, momentum=0.3,
        ),
    }  # fmt: skip


POWERS = tuple(2**j for j in range(11))


def _feedback(name: str, data: str | None, seed: int) -> Mapping[str, float]:
    """EF21 and EF with multiples of the theorem's step: ``log10 |grad f|^2`` in the end."""
    s, rounds, ends = _setting(name, data), 3000, []
    for method in ("ef21", "ef_sgd"):
        ds = sweep(
            algorithm(method, sampler=sampling.full()), s.problem, rounds=rounds, seeds=[seed],
            eval_every=rounds // 100, k=1, lr=[power * s.ef21[1] for power in POWERS],
        )  # fmt: skip
        late = ds["grad_norm_sq"].squeeze().isel(round=slice(-10, None)).mean("round", skipna=False)
        ends.append(np.nan_to_num(np.log10(late.values), nan=np.inf))
    ef21, ef = ends
    return {
        "best": float(ef.min() - ef21.min()),
        "larger": float(ef21[0] - ef21[2]),
        "multiple": float(POWERS[int(ef21.argmin())]),
        **{f"ef21-{power}": float(end) for power, end in zip(POWERS, ef21, strict=True)},
        **{f"ef-{power}": float(end) for power, end in zip(POWERS, ef, strict=True)},
    }


def _loss(z: Any, y: Any) -> Any:
    """``(1 - 1/(1 + exp(-s z)))^2``, s = 2 y - 1."""
    return (1 - nn.sigmoid((2 * y - 1) * z[0])) ** 2


@functools.cache
def _mushrooms(data: str | None) -> Problem:
    rows = load("mushrooms", directory=data)
    zeros = nn.initializers.zeros
    net = nn.Dense(1, kernel_init=zeros, bias_init=zeros)
    model = models.flax_model(net, (rows.train[0].shape[1],), loss=_loss)
    return Problem(model, split(rows, 5, "iid"), eval_records="all")


def _recursions(data: str | None, seed: int) -> Mapping[str, float]:
    """``log10 |grad f|^2`` of DASHA in the end, and of MARINA after as many bits."""
    steps, rounds, found = (0.25, 0.5, 1.0), 10_000, {}
    for method in ("dasha", "marina"):
        found[method] = sweep(
            method, _mushrooms(data), rounds=rounds, seeds=[seed], eval_every=rounds // 100,
            k=10, lr=list(steps),
        ).squeeze()  # fmt: skip
    out: dict[str, float] = {}
    for step in steps:
        dasha, marina = (found[method].sel(lr=step) for method in ("dasha", "marina"))
        end, sent = np.log10(dasha["grad_norm_sq"].values[-1]), dasha["coordinates"].values[-1]
        course = np.log10(marina["grad_norm_sq"].values)
        there = np.interp(sent, marina["coordinates"].values, course)
        out[f"end-{step:g}"], out[f"marina-{step:g}"] = float(end), float(there)
        out[f"ahead-{step:g}"] = float(there - end)
    out["steps"] = min(out["end-0.25"] - out["end-0.5"], out["end-0.5"] - out["end-1"])
    return out


MEASURES: dict[str, Measure] = {
    **{f"ef21-{name}": functools.partial(_feedback, name) for name in ("a9a", "mushrooms")},
    **{f"rates-{name}": functools.partial(_rates, name) for name in ("a9a", "mushrooms")},
    "dasha-marina": _recursions,
}
