"""Tune each contender on validation data, then run the winners with five other seeds.

Each number of rounds is a sweep with a folder of its own.  What is computed follows from the results of
earlier sweeps alone: the same call continues an interrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import xarray

import jaxfl
from field.contenders import Contender, knobs
from field.settings import DELTA, EPS, Setting, posed
from jaxfl import InputError
from jaxfl.views.cells import Grid

__all__ = [
    "LEAST",
    "SEEDS",
    "TUNING",
    "Job",
    "Tuned",
    "at_ends",
    "better_half",
    "beyond",
    "tune",
    "winners",
]

TUNING, SEEDS = (0, 6, 7), (1, 2, 3, 4, 5)  # networks are tuned on the first alone
FACTOR, MOST = 10**0.5, 2  # of step sizes that are added at an end, and how often
LEAST = 3  # step sizes: of fewer the best is always at an end
SHAPES = ("batch", "local_steps")  # axes whose values have programs of their own
METRICS = {
    "accuracy": "test_accuracy",
    "loss": "test_loss",
    "worst": "worst_client_test_accuracy",
    "validation_loss": "validation_loss",
    "validation_accuracy": "validation_accuracy",
    "bits": "uplink_bits",
    "gradients": "gradients",
}
KNOWN = {*METRICS, "algorithm", "eps", "seed", "budget", "proven_eps", "protects", "seconds"}


class Job(NamedTuple):
    """Where results are kept, and how many seeds winners have."""

    folder: Path
    seeds: Sequence[int] = SEEDS
    say: Callable[[str], None] = lambda line: None


class Tuned(NamedTuple):
    """What became of a contender in a setting."""

    finals: pandas.DataFrame  # a row for each eps, budget and seed
    tried: int  # cells, those of added step sizes left out
    added: int  # sweeps of added step sizes
    open: int  # winners that are still at an end of the step sizes
    bound: int  # winners at an end of another axis
    left_out: str  # the numbers of rounds without cells, and why
    seconds: float


def tune(job: Job, setting: Setting, contender: Contender) -> Tuned:
    """All cells, more step sizes where a winner is at their end, and then the winners."""
    folder = job.folder / setting.name / contender.name
    budgets = setting.budgets(posed(setting, contender.pooled).model.dim)
    frames, sizes, left_out, cells, added = [pandas.DataFrame()], dict[int, int](), [], 0, 0
    steps = [contender.scale * step for step in setting.steps]

    def tried(name: str, rounds: int, steps: Iterable[float]) -> int:
        axes = {**knobs(contender, setting, rounds), contender.step: sorted(steps)}
        seeds = TUNING[:1] if setting.halved else TUNING
        found = _cells(job, setting, contender, name, rounds, EPS, axes, seeds)
        frames.append(averaged(found, len(seeds)))
        return len(EPS) * math.prod(map(len, axes.values()))

    for rounds in setting.rounds:
        sizes[rounds] = len(steps)
        try:
            cells += tried(f"{rounds}", rounds, steps)
        except InputError as error:
            if (folder / f"{rounds}/planned.jsonl").exists():
                raise  # the folder is of another grid
            left_out.append(f"{rounds} rounds: {error}")
            continue
        if setting.halved:
            steps = better_half(frames[-1])
    every = pandas.concat(frames, ignore_index=True)
    for again in range(MOST if len(every) and not setting.small else 0):
        for rounds, new in beyond(every, winners(every, budgets), sizes).items():
            tried(f"{rounds}-more-{again}", rounds, new)
            added += 1
        every = pandas.concat(frames, ignore_index=True)
    best = winners(every, budgets)
    finals = _finals(job, setting, contender, best)
    open_, bound = at_ends(every, best)
    why = "; ".join(left_out)
    return Tuned(finals, cells, added, open_, bound, why, _seconds(folder))


def _cells(
    job: Job,
    setting: Setting,
    contender: Contender,
    name: str,
    rounds: int,
    eps: Sequence[float],
    axes: Mapping[str, Sequence[float]],
    seeds: Sequence[int],
) -> pandas.DataFrame:
    """The last values of a sweep in a folder of this name: computed, resumed, or read if it is whole."""
    out = job.folder / setting.name / contender.name / name
    grid: dict[str, Any] = {"eps": list(eps)}
    grid |= {axis: list(values) for axis, values in axes.items()}
    if (out / "result.nc").exists():
        ds = jaxfl.load(out / "result.nc")
        if _whole(ds, {**grid, "seed": list(seeds)}):
            return _frame(ds, contender)
    job.say(f"{setting.name}: {contender.name}, {name}")
    ds = jaxfl.sweep(
        contender.make(),
        posed(setting, contender.pooled),
        rounds=rounds,
        eval_every=0,
        seeds=list(seeds),
        out=out,
        resume=(out / "planned.jsonl").exists(),
        progress=False,
        delta=DELTA,
        **grid,
        **contender.fixed,
    )
    return _frame(ds, contender)


def _whole(ds: xarray.Dataset, grid: Mapping[str, Sequence[float]]) -> bool:
    """Whether a result has these axes, and all of its runs."""
    same = all(
        axis in ds.dims and ds[axis].values.tolist() == list(values)
        for axis, values in grid.items()
    )
    return same and bool((ds["complete"] > 0).all())


def _frame(ds: xarray.Dataset, contender: Contender) -> pandas.DataFrame:
    """A row for each cell and seed that ended with a value, and whose eps is proven."""
    found = {name: Grid.of(ds).final(of) for name, of in METRICS.items() if of in ds}
    facts = {name: ds[name] for name in ("proven_eps", "protects")}
    rounds = ds["last_round"].isel(seed=0, drop=True)
    frame = xarray.Dataset({**found, **facts, "rounds": rounds}).to_dataframe().reset_index()
    frame = frame.rename(columns={contender.step: "step"})
    frame["worst"] = frame.get("worst", np.nan)
    meanings = str(ds["protects"].attrs["flag_meanings"]).split("; ")
    frame["protects"] = [meanings[int(code)] for code in frame["protects"]]
    proven = frame["proven_eps"] <= frame["eps"] * (1 + 1e-3)
    return frame[proven & frame["validation_loss"].notna()]


def _seconds(folder: Path) -> float:
    """From the plans of the sweeps in a folder to their results."""
    results = [*folder.glob("*/result.nc")]
    began = [(result.parent / "planned.jsonl").stat().st_mtime for result in results]
    return sum(max(r.stat().st_mtime - b, 0.0) for r, b in zip(results, began, strict=True))


# --- the choice ------------------------------------------------------------------------------------


def axes_of(frame: pandas.DataFrame) -> list[str]:
    """What tells the cells of one contender and eps apart."""
    return [name for name in frame if name not in KNOWN]


def averaged(frame: pandas.DataFrame, seeds: int) -> pandas.DataFrame:
    """The means of the cells over their seeds, without those of which a seed diverged."""
    each = frame.groupby(["eps", *axes_of(frame)], as_index=False)
    return each.mean(numeric_only=True)[each.size()["size"] == seeds]


def winners(frame: pandas.DataFrame, budgets: Mapping[float, float]) -> pandas.DataFrame:
    """For each eps and budget (its name and its bits) the cell with the lowest validation loss.

    Of equal ones the first, which has the fewest rounds.
    """
    rows = []
    for _, own in frame.groupby("eps") if len(frame) else ():
        for budget, bits in budgets.items():
            fit = own[own["bits"] <= bits]
            if len(fit):
                rows.append(
                    {**fit.loc[fit["validation_loss"].idxmin()].to_dict(), "budget": budget}
                )
    return pandas.DataFrame(rows)


def better_half(frame: pandas.DataFrame) -> list[float]:
    """The half of the step sizes with the lowest validation loss, summed over eps; at least three."""
    best = frame.groupby(["step", "eps"])["validation_loss"].min().groupby("step").sum()
    return sorted(best.nsmallest(max(LEAST, (len(best) + 1) // 2)).index.tolist())


def beyond(
    frame: pandas.DataFrame, best: pandas.DataFrame, sizes: Mapping[int, int]
) -> dict[int, list[float]]:
    """For each number of rounds the step sizes to add, where a winner has the least or the largest.

    As many as were tried there first: sweeps of one shape share a program.
    """
    out: dict[int, list[float]] = {}
    for winner in best.to_dict("records"):
        rounds, step = int(winner["rounds"]), winner["step"]
        tried = frame[frame["rounds"] == rounds]["step"]
        new = range(1, sizes[rounds] + 1)
        if step == tried.max():
            out[rounds] = [float(f"{step * FACTOR**i:.3g}") for i in new]
        elif step == tried.min():
            out.setdefault(rounds, [float(f"{step / FACTOR**i:.3g}") for i in new])
    return {rounds: sorted(steps) for rounds, steps in out.items()}


def at_ends(frame: pandas.DataFrame, best: pandas.DataFrame) -> tuple[int, int]:
    """How many winners are at an end of the step sizes, and at an end of another axis."""
    others = [axis for axis in axes_of(frame) if axis != "step" and frame[axis].nunique() > 1]
    low, high = frame[others].min(), frame[others].max()
    open_ = bound = 0
    for winner in best.to_dict("records"):
        tried = frame[frame["rounds"] == winner["rounds"]]["step"]
        open_ += winner["step"] in (tried.min(), tried.max())
        bound += any(winner[axis] in (low[axis], high[axis]) for axis in others)
    return open_, bound


def _finals(
    job: Job, setting: Setting, contender: Contender, best: pandas.DataFrame
) -> pandas.DataFrame:
    """The winners with their other seeds, in a sweep for each number of rounds and each shape of arrays.

    It has every combination of the winners' values, which share a program.  Where runs are slow, the
    values of a winner are combined with other eps and step sizes alone.
    """
    out = []
    axes = [axis for axis in axes_of(best) if axis != "rounds"] if len(best) else []
    apart = [axis for axis in axes if axis != "step" and (setting.leaders or axis in SHAPES)]
    for values, own in best.groupby(["rounds", *apart]) if len(best) else ():
        rounds, *rest = values
        grid = {axis: sorted(own[axis].unique().tolist()) for axis in axes}
        grid[contender.step] = grid.pop("step")
        eps = sorted(own["eps"].unique().tolist())
        of = [f"{axis}={value:g}" for axis, value in zip(apart, rest, strict=True)]
        name = "-".join([f"{int(rounds)}-winners", *of])
        cells = _cells(job, setting, contender, name, int(rounds), eps, grid, job.seeds)
        keys = [*axes, "rounds", "eps"]
        out.append(own[[*keys, "budget"]].merge(cells, on=keys, how="left"))
    return pandas.concat(out or [pandas.DataFrame()], ignore_index=True)
