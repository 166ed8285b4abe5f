"""Clip21 and clipped gradient descent: error feedback removes the bias of clipping.

S. Khirirat, E. Gorbunov, S. Horvath, R. Islamov, F. Karray, P. Richtarik: Clip21: Error Feedback for
Gradient Clipping.  2023.  R. Islamov, S. Horvath, A. Lucchi, P. Richtarik, E. Gorbunov: Double Momentum
and Error Feedback for Clipping with Fast Rates and Differential Privacy.  2025.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl import algorithm
from jaxfl.parts import Algorithm, sampling
from jaxfl.views.ink import Line, Panel, picture
from papers.census import census
from papers.courses import ahead, best_of, courses, epsilons, find, name_of, ordering
from papers.entry import Entry, Epsilons, Job, Numbers, Row, estimate

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

__all__ = ["ENTRIES"]

EPS, DELTA = 10.0, 1e-3
ROUNDS = {"none": 500, "calibrated": 100}
BOUNDS = (0.01, 0.1, 1.0)  # tau
SHIFTS = (1.0, 0.3, 0.1, 0.03)  # gamma, tuned where there is noise
STEPS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
METHODS = {"ldp_gd": "clipped gradient descent", "clip21_sgd2m": "Clip21"}
NORM, LOSS = "grad_norm@late", "loss@late"


def _method(name: str) -> Algorithm:
    if name == "ldp_gd":
        return algorithm(name, clip="batch")
    return algorithm(name, sampler=sampling.full())


def measure(job: Job) -> Numbers:
    cells = []
    for noise in ROUNDS:
        rounds = job.rounds(ROUNDS[noise])
        for bound in job.some(BOUNDS):
            sigma = 0.0
            for name in reversed(METHODS):  # the noise of Clip21 is that of both
                fed = name == "clip21_sgd2m"
                shifts = SHIFTS if noise != "none" else SHIFTS[:1]
                given: dict[str, Any] = {"clip": bound, "delta": DELTA, "sigma": sigma}
                if fed:
                    given |= {"momentum": 1.0}
                if fed and noise != "none":
                    given["eps"] = EPS
                    del given["sigma"]
                ds = job.sweep(
                    f"{noise}-{bound:g}-{name}",
                    _method(name),
                    census("by_label", job.data),
                    rounds=rounds,
                    eval_every=rounds // 50,
                    lr=job.some(STEPS),
                    **({"shift": shifts} if fed else {}),
                    **given,
                )
                cell = _best(ds, "grad_norm" if noise == "none" else "loss")
                sigma = cell.get("used_sigma", 0.0)
                cells.append({**cell, "noise": noise, "clip": bound, "delta": DELTA})
                if given.get("eps") and bound == BOUNDS[-1]:
                    cells[-1]["audited_eps"] = job.audit(
                        _method(name), m=50, rounds=rounds, delta=DELTA, momentum=1.0,
                        clip=bound, eps=EPS, shift=cell["shift"], lr=cell["lr"],
                    )  # fmt: skip
    return {"cells": cells}


def _best(ds: xarray.Dataset, metric: str) -> Numbers:
    """The cell where the mean of a metric over the last fifth of the rounds is the least."""
    ds["grad_norm"] = ds["grad_norm_sq"] ** 0.5
    late = {"late": lambda rounds: rounds >= 0.8 * rounds[-1]}
    last = ds[metric].isel(round=late["late"](ds["round"].values))
    last = last.mean(["round", "seed"], skipna=False).fillna(np.inf)
    place = {name: [int(i)] for name, i in last.argmin([*last.dims]).items()}
    chosen = ds.isel(place)
    (cell,) = courses(chosen, ("loss", "grad_norm"), late)
    return {**cell, **{name: chosen[name].item() for name in place if name in ("lr", "shift")}}


def judge(numbers: Numbers) -> list[Row]:
    cells, rows = numbers["cells"], []
    bounds = sorted({cell["clip"] for cell in cells})
    for bound in bounds:
        both = [find(cells, noise="none", clip=bound, algorithm=name)[NORM] for name in METHODS]
        both_words = " and ".join(METHODS.values())
        what = f"gradient norm, last fifth of the rounds, no noise, τ = {bound:g}, {both_words}"
        rows.append(ordering(what, "shorter with Clip21", both, -1))
    for bound in bounds:
        plain, fed = (
            find(cells, noise="calibrated", clip=bound, algorithm=name)[LOSS] for name in METHODS
        )
        margins = {f"τ = {bound:g}": np.subtract(plain, fed).tolist()}
        what = f"Clip21 ahead in the loss of the last fifth at ε = {EPS:g} of a client"
        rows.append(ahead(what, "–", margins))
    return rows


def draw(numbers: Numbers) -> dict[str, Figure]:
    cells = numbers["cells"]
    bounds = sorted({cell["clip"] for cell in cells})
    panels = []
    for bound in bounds:
        lines = []
        for color, (name, words) in enumerate(METHODS.items()):
            cell = find(cells, noise="none", clip=bound, algorithm=name)
            curve = cell["round"], cell["grad_norm"], cell["grad_norm_error"]
            lines.append(Line(words, *curve, color))
        panels.append(Panel(f"no noise, τ = {bound:g}", "round", name_of("grad_norm"), lines))
    lines = []
    for color, (name, words) in enumerate(METHODS.items()):
        here = [find(cells, noise="calibrated", clip=bound, algorithm=name) for bound in bounds]
        ends = [estimate(cell[LOSS]) for cell in here]
        y, errors = [end.mean for end in ends], [end.error for end in ends]
        lines.append(Line(words, bounds, y, errors, color, marker="o"))
    words = f"ε = {EPS:g} of a client"
    panels.append(Panel(words, "τ", name_of("loss"), lines, logarithmic=True))
    note = "Each curve and point has its own best step size.  Points: mean of the last fifth of the rounds."
    return {"": picture("a9a, split by label: clipping with error feedback", [panels], [note])}


def privacy(numbers: Numbers) -> list[Epsilons]:
    note = "all records of a client together; the paper gives no constants"
    return [
        epsilons(cell, f"Clip21-SGD2M, τ = {cell['clip']:g}", note)
        for cell in numbers["cells"]
        if "audited_eps" in cell
    ]


ENTRIES = (
    Entry(
        "clip21-clipping",
        "S. Khirirat and others, 2023; R. Islamov and others, 2025",
        "Clip21 beside clipped gradient descent, logistic regression on a9a",
        measure,
        judge,
        draw,
        choices=(
            "The papers have no such figure.  Logistic regression without a regularizer, features as in "
            "the file with a constant 1, from 0; 10 clients, split by label; each client clips the "
            "gradient of all its records, or what Clip21 makes of it, to τ.  Momentum β = 1.",
            best_of(
                STEPS, "the gradient norm in the last fifth of the rounds, with noise by the loss"
            ),
            f"With noise γ is the best of {', '.join(f'{shift:g}' for shift in SHIFTS)}, without it is 1.",
        ),
        privacy=privacy,
        why=(
            "With noise Clip21's memory of the gradient adds up the noise of all rounds, which costs as "
            "much as the bias of clipping, or more.",
        ),
        notes=(
            "With noise both methods send messages that two data sets of a client move by at most 2 τ, and "
            "have the same noise, so that both protect a client alike.",
        ),
    ),
)
