"""The data set of the benchmark, and what follows from it: ranks, leaders, and verdicts on claims.

Only equals compete: algorithms whose eps protects the same from the same adversary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas
import xarray
from papers.entry import estimate as over_seeds
from scipy.stats import rankdata

from field.contenders import Contender
from field.tuning import Tuned, axes_of
from jaxfl import InputError
from jaxfl.views.tables import Estimate

__all__ = [
    "CLAIMS", "ERRORS", "LEADERS", "Claim", "Verdict", "best_of", "collected", "estimate", "groups",
    "judged", "leaders", "load", "merged", "ranks", "save",
]  # fmt: skip

ERRORS = 2.0  # standard errors that a difference must exceed
LEADERS = 6
VALUES = ("accuracy", "loss", "worst", "validation_accuracy", "bits", "gradients")  # of each seed
OF_CELL = ("proven_eps", "rounds", "step")
COUNTS = ("tried", "added", "open", "bound", "seconds")


class Claim(NamedTuple):
    """What a paper says of two algorithms, written down before the runs."""

    ahead: str
    behind: str
    setting: str
    paper: str


SOTERIAFL = "[Li, Zhao, Li, Chi, NeurIPS 2022]"
CLAIMS = tuple(
    Claim(ahead, behind, "a9a-label", paper)
    for ahead, behind, paper in (
        ("soteriafl_sgd", "cdp_sgd", f"shifts help compression where clients differ {SOTERIAFL}"),
        ("soteriafl_sgd", "ldp_sgd", f"the accuracy of LDP-SGD takes fewer bits {SOTERIAFL}"),
        (
            "dp_scaffold",
            "local_sgd",
            "control variates help noised local steps where clients differ "
            "[Noble, Bellet, Dieuleveut, AISTATS 2022]",
        ),
        (
            "dice_sgd",
            "ldp_sgd",
            "error feedback makes up for clipping [Zhang et al., 2024]",
        ),
        (
            "localized_mbsgd",
            "one_pass_mbsgd",
            "localization is ahead of one pass [Gao, Lowy, Zhou, Wright, ICML 2024]",
        ),
    )
)


class Verdict(NamedTuple):
    """A claim judged by the mean margin of accuracy over all pairs of eps and budget."""

    claim: Claim
    margin: Estimate = Estimate(np.nan, np.nan)
    ahead: int = 0  # pairs in which the first is ahead by the standard errors
    behind: int = 0
    pairs: int = 0

    @property
    def word(self) -> str:
        room = ERRORS * self.margin.error
        sides = (
            ("held", self.margin.mean > room),
            ("not held", self.margin.mean < -room),
            ("undecided", self.pairs > 0),
        )
        return next((word for word, is_so in sides if is_so), "not run")


# --- the data set ----------------------------------------------------------------------------------


def collected(
    found: Mapping[tuple[str, str], Tuned], contenders: Sequence[Contender], **about: str
) -> xarray.Dataset:
    """One data set of what became of each (setting, algorithm)."""
    keys = ["setting", "algorithm"]
    frames, facts = [], []
    for place, tuned in found.items():
        each = tuned.finals
        about_each = {name: getattr(tuned, name) for name in (*COUNTS, "left_out")}
        protects = each["protects"].iloc[0] if len(each) else ""
        facts.append({**dict(zip(keys, place, strict=True)), **about_each, "protects": protects})
        axes = [axis for axis in axes_of(each) if axis not in OF_CELL]
        rows = each[axes].to_dict("records") if len(each) else []
        others = [" ".join(f"{name}={value:g}" for name, value in row.items()) for row in rows]
        frames.append(each.assign(setting=place[0], algorithm=place[1], others=others))
    every = pandas.concat(frames, ignore_index=True)
    ds = every.set_index([*keys, "eps", "budget", "seed"])[
        [*VALUES, *OF_CELL, "others"]
    ].to_xarray()
    ds = ds.assign({name: ds[name].max("seed") for name in OF_CELL})
    ds["others"] = ds["others"].isel(seed=0)
    ds = ds.merge(pandas.DataFrame(facts).set_index(keys).to_xarray())
    kinds = {c.name: float(c.compressed) for c in contenders}
    ds["compressed"] = "algorithm", [kinds[name] for name in ds["algorithm"].values.tolist()]
    order = {key: list(dict.fromkeys(k[i] for k in found)) for i, key in enumerate(keys)}
    return _plain(ds.reindex(order)).assign_attrs(about)


def merged(old: xarray.Dataset | None, new: xarray.Dataset) -> xarray.Dataset:
    """Both, the new where both have a value, in the order of the old."""
    if old is None:
        return new
    order = {
        dim: list(dict.fromkeys([*old[dim].values.tolist(), *new[dim].values.tolist()]))
        for dim in ("setting", "algorithm")
    }
    return _plain(new.combine_first(old).reindex(order)).assign_attrs(new.attrs)


def _plain(ds: xarray.Dataset) -> xarray.Dataset:
    """Single precision, and texts without missing ones."""
    texts = ("others", "left_out", "protects")
    out = {name: ds[name].astype(np.float32) for name in ds.data_vars if name not in texts}
    out |= {name: ds[name].fillna("").astype(str) for name in texts}
    return ds.assign(out)


def save(ds: xarray.Dataset, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    ds.to_netcdf(partial, engine="scipy")
    partial.replace(path)


def load(path: Path) -> xarray.Dataset:
    if not path.exists():
        raise InputError(f"There is no data set {path}", "name another, or run the benchmark first")
    ds = xarray.load_dataset(path, engine="scipy")
    return ds.assign_coords({name: ds[name].astype(str) for name in ("setting", "algorithm")})


# --- comparisons -----------------------------------------------------------------------------------


def estimate(values: xarray.DataArray) -> Estimate:
    """The mean over seeds with its standard error; both NaN if a seed is missing."""
    return over_seeds(values.values.ravel())


def groups(ds: xarray.Dataset) -> dict[str, list[str]]:
    """The algorithms by what their eps protects, in the order of the data set."""
    out: dict[str, list[str]] = {}
    for name in ds["algorithm"].values.tolist():
        said = [words for words in ds["protects"].sel(algorithm=name).values.tolist() if words]
        if said:
            out.setdefault(said[0], []).append(name)
    return out


def ranks(
    ds: xarray.Dataset, names: Sequence[str], *, largest: bool = False
) -> dict[tuple[str, str], Estimate]:
    """The mean rank of each of these algorithms in each setting, over eps, budgets and seeds.

    1 is the best test accuracy of a seed.  An algorithm without a cell at a budget ranks last.  The
    standard error is that of the means of the seeds.  ``largest``: at the largest budget alone.
    """
    out, dims, last = {}, [["algorithm"]], {"axis": -1}
    for setting in ds["setting"].values.tolist():
        here = ds["accuracy"].sel(setting=setting, algorithm=list(names))
        here = here.dropna("algorithm", how="all").dropna("budget", how="all")
        here = here.isel(budget=slice(-1, None)) if largest else here
        asked = here.notnull().any(("algorithm", "seed"))
        order = xarray.apply_ufunc(
            rankdata, -here.fillna(-1.0), input_core_dims=dims, output_core_dims=dims, kwargs=last
        )
        order = order.where(asked).mean(("eps", "budget"))
        for name in here["algorithm"].values.tolist():
            out[setting, name] = estimate(order.sel(algorithm=name))
    return out


def leaders(
    ds: xarray.Dataset, setting: str, names: Sequence[str] = (), number: int = LEADERS
) -> list[str]:
    """The best ranks over all budgets and at the largest, in turn, of the group with most members."""
    names = names or max(groups(ds).values(), key=len)
    lists = []
    for largest in (False, True):
        found = ranks(ds, names, largest=largest)
        mean = {name: rank.mean for (of, name), rank in found.items() if of == setting}
        lists.append(sorted(mean, key=lambda name: mean[name]))
    both = [name for pair in zip(*lists, strict=True) for name in pair]
    return list(dict.fromkeys(both))[:number]


def best_of(cell: xarray.Dataset, names: Sequence[str]) -> str | None:
    """The algorithm with the highest validation accuracy, a mean over seeds; None if none ran."""
    mean = cell["validation_accuracy"].sel(algorithm=list(names)).mean("seed", skipna=False)
    mean = mean.dropna("algorithm")
    return str(mean["algorithm"].values[int(np.argmax(mean.values))]) if mean.size else None


def judged(ds: xarray.Dataset, claim: Claim) -> Verdict:
    known = {*ds["algorithm"].values.tolist()}
    if claim.setting not in ds["setting"] or not {claim.ahead, claim.behind} <= known:
        return Verdict(claim)
    accuracy = ds["accuracy"].sel(setting=claim.setting)
    margins = accuracy.sel(algorithm=claim.ahead) - accuracy.sel(algorithm=claim.behind)
    pairs = margins.stack(pair=("eps", "budget"), create_index=False).dropna("pair")
    each = [estimate(pairs.isel(pair=i)) for i in range(pairs.sizes["pair"])]
    if not each:
        return Verdict(claim)
    ahead = sum(e.mean > ERRORS * e.error for e in each)
    behind = sum(e.mean < -ERRORS * e.error for e in each)
    return Verdict(claim, estimate(pairs.mean("pair")), ahead, behind, len(each))
