"""A result as all views read it: a grid of cells, of which a single run has one.

A cell is one setting with all its seeds.  Along an axis that an algorithm does not have, its runs are
copies of each other: only the first is read.  No other module of views knows how a result is stored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.display import between
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import closest
from jaxfl.core.progress import plural
from jaxfl.engine import results, stopping
from jaxfl.privacy.events import OBSERVED, PROTECTED, RELATIONS
from jaxfl.views.words import NAMES, SYMBOLS, number, span

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["IN_SHORT", "Array", "Grid", "at", "is_sweep", "over_seeds", "relabelled", "restrict"]

Array: TypeAlias = npt.NDArray[Any]

WORTH = ["protects", "delta_of_eps", "level"]  # what settings share whose eps are worth the same
PER_CLIENT = ("client", "quantile")  # dimensions of metrics of each client, or of their deciles
NAN = math.nan
ABSENT = {"claimed_eps": NAN, "broken": NAN, "stated": 0, "noisy_losses": 0.0, "protects": 0}
LISTED = 4  # cells that a note names
SIZES = ("k", "levels", "omega")  # that set the size of a message
WORK = ("batch", "local_steps")  # that set the work of a round
TOTALS = ("messages", "coordinates", "gradients", "clamped", "uplink_bits", "downlink_bits")
# of each protection the unit, how neighbouring data differ, if not in a replaced one, and what is seen
RELATION = {"replace_one": "", "add_remove": " added or removed", "zero_out": " zeroed"}
KINDS = ("messages", "sums", "models", "its node's models", "messages without seeds")
SEEN = dict(zip(OBSERVED, KINDS, strict=True))
SHORT = [f"{unit}{RELATION[relation]}, {SEEN[seen]}" for (unit, relation), seen in RELATIONS]
IN_SHORT = dict(zip(PROTECTED, ["", *SHORT], strict=True))


# --- where a result enters -----------------------------------------------------------------------


def is_sweep(ds: xarray.Dataset) -> bool:
    """Whether a result is of a sweep, and not of a single run."""
    return results.config(ds).get("kind") == "sweep"


def _as_sweep(ds: xarray.Dataset, called: str) -> xarray.Dataset:
    """A single run as a sweep with one cell, its algorithm or another name, and one seed."""
    about = results.config(ds)
    called = called or about["settings"]["algorithm"]
    report = about["privacy"] or {"proven": "inf", "delta": "nan", "flag": False}
    claimed, last = report.get("claimed"), int(ds["round"].values[-1])
    losses = stopping.checks(about["settings"], stopping.planned(about["settings"], last))
    code = next((i for i, what in enumerate(PROTECTED) if what == report.get("protects")), 0)
    facts = {
        "proven_eps": float(report["proven"]),
        "claimed_eps": math.nan if claimed is None else float(claimed),
        "delta": float(report["delta"]),
        "flag": np.int8(report["flag"]),
        "noisy": np.int8(about["privacy"] is not None),
        "stated": np.int8({"U": 1, "P": 2}.get(str(report.get("status")), 0)),
        "protects": np.int32(code),  # older files do not say it
        "n": np.int32(about["facts"]["n"]),
        "noisy_losses": sum(losses.values()),
    }
    for name, value in about["values"].items():
        with contextlib.suppress(TypeError, ValueError):  # a schedule is no number
            facts[f"used_{name}"] = float(value)
    series = [name for name, v in ds.items() if v.dims in (("round",), ("round", "client"))]
    lost = ds["round"].where(~np.isfinite(ds["loss"])).min().item()  # NaN where it never is
    each = {"last_round": last, "diverged_at": lost, "complete": np.int8(1)}
    out = ds[series].assign(each).expand_dims(algorithm=[called], seed=np.zeros(1, np.int32))
    kind, why, *_ = about["settings"].get("proof", ("proven", ""))
    why = why or results.unproven(float(report["proven"]), report.get("method", ""))
    about["proofs"] = [{"place": [0], "kind": kind, "why": why}] if why else []
    bits = about["settings"].get("parts", {}).get("bits")
    about["bits"] = [{"place": [0], "why": bits}] if bits else []
    axes = {"algorithm": {"values": [called], "static": True}}
    about |= {"kind": "sweep", "paired": False, "axes": axes}
    out = out.assign({name: ("algorithm", [value]) for name, value in facts.items()})
    return out.assign_attrs(config=json.dumps(about, ensure_ascii=False))


@dataclasses.dataclass(frozen=True)
class Grid:
    """The parts of a result that views read.

    ``cells`` has a row for each different setting, in the order of the axes: its labels (None along an
    axis that does not apply), all that is known once for it, and how many of its seeds are ``lost``
    (diverged) and ``ran``.  ``level`` is the eps that was asked for, if that is proven, or the proven one.
    ``proven``: it has noise and an eps.  Where some settings have one, others with noise have ``competes``
    False.
    """

    ds: xarray.Dataset
    about: dict[str, Any]
    axes: tuple[str, ...]  # all but seeds and rounds
    cells: pandas.DataFrame

    @staticmethod
    def of(ds: xarray.Dataset, called: str = "") -> Grid:
        """The grid of a sweep, or of a run, whose one cell has the name of its algorithm or this one."""
        ds = ds if is_sweep(ds) else _as_sweep(ds, called)
        axes = tuple(str(dim) for dim in ds["last_round"].dims if dim != "seed")
        ds = ds.sortby([n for n in axes if ds[n].dtype.kind in "iuf"])  # some were added later
        once = ds[[name for name, v in ds.items() if {*v.dims} <= {*axes}]].assign(
            lost=ds["diverged_at"].notnull().sum("seed"),
            ran=(ds["complete"] > 0).sum("seed"),
            last_round=ds["last_round"].isel(seed=0, drop=True),
        )
        cells = once.to_dataframe(dim_order=axes).reset_index()
        for axis in axes:
            applies = cells.get(f"applies_{axis}", 1) == np.ones(len(cells))
            cells[axis] = cells[axis].astype(object).where(applies, None)
        cells = cells[~cells.duplicated([*axes])]
        cells = cells.assign(**{name: v for name, v in ABSENT.items() if name not in cells})
        delta = cells.get("delta_of_eps", cells.get("delta", math.nan))  # delta may be an axis
        noisy, asked = cells["noisy"] > 0, cells.get("used_eps", math.nan)
        proven = noisy & np.isfinite(cells["proven_eps"])
        level = cells["proven_eps"].mask(cells["proven_eps"] <= asked * (1 + 1e-6), asked)
        cells = cells.assign(
            noisy=noisy,
            proven=proven,
            competes=proven | ~noisy | (not proven.any()),
            flag=cells["flag"] > 0,
            protects=[PROTECTED[int(code)] for code in cells["protects"]],
            delta_of_eps=(delta * noisy.where(noisy)).astype(float),
            level=level.map("eps = {:.6g}".format).where(noisy, "no noise"),
        )
        return Grid(ds, results.config(ds), axes, cells)

    def described(self, ds: xarray.Dataset, **more: Any) -> xarray.Dataset:
        """Other arrays with this grid's account of them, and more."""
        return ds.assign_attrs(config=json.dumps({**self.about, **more}, ensure_ascii=False))

    def flat(self, data: xarray.Dataset) -> xarray.Dataset:
        """``data`` along one dimension ``cell``, as the rows of ``cells``."""
        stacked = data.stack(cell=self.axes, create_index=False).drop_vars(self.axes)
        out = stacked.isel(cell=self.cells.index.to_numpy())
        return out.transpose("cell", "seed", "round", ..., missing_dims="ignore")

    @property
    def ended(self) -> xarray.DataArray:
        """The round at which each cell and seed ends: where a rule stopped it, or its last one."""
        last = self.ds["last_round"]
        return self.ds["stopped_at"].fillna(last) if "stopped_at" in self.ds else last

    def kept(self, names: Iterable[str]) -> xarray.Dataset:
        """The data, in which runs that a rule stopped keep their last values of these names."""
        if "stopped_at" not in self.ds:
            return self.ds
        rounds, held = self.ds["round"], {}
        for name in names:
            last = self.ds[name].where(rounds == self.ended).max("round")
            held[name] = self.ds[name].where(rounds <= self.ended, last)
        return self.ds.assign(held)

    def final(self, name: str) -> xarray.DataArray:
        """The value of each cell and seed where it :attr:`ended`; NaN if it diverged or has not run."""
        if name not in self.ds or name not in TOTALS:
            self.check(name)
        last = (self.ds["round"] == self.ended) & self.ds["diverged_at"].isnull()
        values = self.ds[name].astype(np.float64).where(last).max("round", keep_attrs=True)
        return values.where(np.isfinite(values)).transpose(*self.axes, "seed")

    def ends(self, name: str) -> xarray.DataArray:
        """The values of :meth:`final`, as the rows of ``cells``."""
        return self.flat(self.final(name).to_dataset(name=name))[name]

    def metrics(self) -> list[str]:
        """The measured metrics of all clients together, without totals of messages and bits."""
        series = [str(name) for name, v in self.ds.items() if "round" in v.dims]
        return [name for name in series if name not in TOTALS and not self.per_client(name)]

    @property
    def used(self) -> pandas.DataFrame:
        """The rounds and the hyper-parameters of the cells, by their names."""
        found = self.cells.filter(regex="^used_").rename(columns=lambda n: n.removeprefix("used_"))
        return found.assign(rounds=self.cells["last_round"])

    @property
    def swept(self) -> set[str]:
        """The axes, and those that were chosen over."""
        return {*self.axes, *self.about.get("selection", {}).get("over", ())}

    def sizes(self) -> pandas.DataFrame:
        """What sets the size of messages, where no axis does; an omega of 0 is that of no compressor."""
        found = self.used.filter([] if self.swept & {*SIZES, "share"} else SIZES)
        return found.where(found > 0).dropna(axis="columns", how="all")

    def work(self) -> pandas.DataFrame:
        """What sets the work of a round, where no axis does and settings that ran differ in it."""
        found = self.used.filter([name for name in WORK if name not in self.swept])
        ran = self.cells.get("found", self.cells["ran"]) > 0
        return found.loc[:, found[ran].nunique(dropna=False) > 1]

    def fall(self) -> xarray.DataArray:
        """How much lower the mean of the loss ends than it began; NaN where it has no end."""
        first = over_seeds(self.ds["loss"].isel(round=0, drop=True))[0]
        return first - over_seeds(self.final("loss"))[0]

    def idle(self) -> pandas.DataFrame:
        """The cells whose loss did not fall."""
        fall = self.flat(self.fall().to_dataset(name="fall"))["fall"]
        return self.cells[fall.to_numpy() <= 0]

    def per_client(self, name: str) -> bool:
        """Whether the metric has a value for each client."""
        return name in self.ds and not {*PER_CLIENT}.isdisjoint(self.ds[name].dims)

    def check(self, *names: str, clients: bool = False) -> None:
        """Raise unless each is a metric of all clients together, or also of each of the ``clients``."""
        known = self.metrics()
        require(known, "Nothing of this result is computed yet", "compute some of it first")
        for name in names:
            each = self.per_client(name)
            way = "draw it, or read it from the data set, as in ds['client_accuracy']"
            require(clients or not each, "has a value for each client", way, metric=name)
            fine = name in known or each
            require(fine, lambda: closest("metric in this result named", name, known))

    def check_axis(self, name: str, *more: str) -> None:
        """Raise unless it is an axis, or one of more names."""
        known = (*self.axes, *more)
        require(name in known, lambda: closest("axis in this sweep named", name, known))

    def numeric(self, name: str) -> bool:
        """Whether the values of an axis are numbers."""
        return self.ds[name].dtype.kind in "iuf"

    def several(self) -> list[str]:
        """The axes with more than one value that some algorithm has."""
        return [name for name in self.axes if self.cells[name].nunique() > 1]

    def groups(self) -> list[str]:
        """Axes whose values are not compared with each other: those of the problem, and eps."""
        return [n for n in self.axes if n == "eps" or self.about["axes"][n].get("problem")]

    def protections(self) -> list[str]:
        """Sentences about what the eps of each algorithm protects."""
        found: dict[str, list[str]] = {}
        for (name, what), own in self.cells.groupby(["algorithm", "protects"], sort=False):
            every = self.cells[self.cells["algorithm"] == name]
            here = [n for n in self.axes if own[n].nunique() == 1 < every[n].nunique()]
            where = self.labels(own, here if len(own) < len(every) else ())
            found.setdefault(what, []).append(" with ".join([name, *where]))
        said = ((", ".join(of), what) for what, of in found.items() if what)
        return [f"{who}: " * (len(found) > 1) + f"ε protects {what}." for who, what in said]

    def said(self, what: str) -> list[str]:
        """Sentences that the algorithms have: ``proofs`` say why nothing is proven of some runs, and whose
        word an eps is; ``bits`` whose word those of messages are, where nothing checks them."""
        names = self.about["axes"]["algorithm"]["values"]
        found = (f"{names[one['place'][0]]}: {one['why']}." for one in self.about.get(what, ()))
        return list(dict.fromkeys(found))

    def listed(self, cells: pandas.DataFrame) -> str:
        """Some cells by their labels on the axes that these columns are; of many the first."""
        each = [", ".join(self.labels(cells[i : i + 1], cells)) for i in range(len(cells))]
        more = [f"and {len(cells) - LISTED} more"] * (len(cells) > LISTED)
        return "; ".join([*each[:LISTED], *more])

    def setting(self) -> list[str]:
        """The problem, and the axes that have one value, in words."""
        named, spans = self.about["settings"], {*self.axes}
        problem, clients = named.get("problem"), self.cells["n"].unique().tolist()
        known = isinstance(problem, str) and not {"problem", "data"} & spans
        model = [named["model"]] if "model" in named and "model" not in spans else []
        m = [self.about["facts"][name] for name in ("m", "m_max") if name in self.about["facts"]]
        sizes = f" of {between(*m)} records" if len(m) == 2 else ""
        split = not {"problem", "partition", "alpha"} & spans and named.get("partition")
        fixed = [name for name in self.axes if self.ds.sizes[name] == 1 and name != "algorithm"]
        words = [
            " ".join([*model, *[f"on {problem}"] * known]),
            (plural(clients[0], "client") + sizes) * (len(clients) == 1 and "clients" not in spans),
            split or "",
            "weighted clients" * (named.get("weights", "equal") != "equal"),
            *self.labels(self.cells, fixed),
        ]
        return [said for said in words if said]

    @property
    def on(self) -> str:
        """The data of ``loss`` and ``accuracy``: "training", or what ``metrics_on`` names."""
        return results.measured_on(self.about)

    def besides(self, names: Iterable[str]) -> list[str]:
        """Metrics that the result has; those on held-out data once, as ``loss`` and ``accuracy``."""
        return [n for n in names if n in self.ds and not n.startswith(f"{self.on}_")]

    def heading(self) -> str:
        """The setting, and how many seeds there are."""
        return ", ".join([*self.setting(), plural(self.ds.sizes["seed"], "seed")])

    def short(self, axis: str) -> str:
        """The letter or the plain name of an axis or a metric, or the user's name of it."""
        labels = self.about.get("labels", {})
        if self.on != "training" and "training" in NAMES.get(axis, ""):
            return self.name(axis)
        return str(labels.get(axis) or SYMBOLS.get(axis) or axis.replace("_", " "))

    def name(self, axis: str) -> str:
        """The letter or the words for an axis or a metric, or the user's name of it."""
        words = {name: text.replace("training", self.on) for name, text in NAMES.items()}
        known = {**words, **SYMBOLS, **self.about.get("labels", {})}
        if axis == "eps_spent" and (self.cells["stated"] == 1).any():
            return "stated ε"
        return known.get(axis) or axis.replace("_", " ")

    def labels(self, cells: pandas.DataFrame, axes: Iterable[str]) -> list[str]:
        """The labels of cells on these axes; of an eps that is not met with the one that is proven."""
        each = ((n, value, cells[n] == value) for n in axes for value in cells[n].dropna().unique())
        return [self.label(n, v) + self.unmet(cells[own]) * (n == "eps") for n, v, own in each]

    def unmet(self, cells: pandas.DataFrame) -> str:
        """What is proven of these cells, where it is more than was asked for; else nothing."""
        own = self.cells.loc[cells.index].query("noisy").dropna(subset="proven_eps")
        eps, how = own["proven_eps"], "stated" if (own["stated"] == 1).any() else "proven"
        if not (eps > np.asarray(own.get("eps", NAN), float) * (1 + 1e-6)).any():
            return ""
        known = eps[own["proven"]]
        said = f"{span(known, bounds=True)} {how}" if len(known) else "none proven"
        return f" (asked for; {said}{', or none' * (0 < len(known) < len(eps))})"

    def label(self, axis: str, value: Any) -> str:
        """``ε = 5``; a word stands for itself, but for a schedule."""
        if isinstance(value, str):
            return f"{self.name(axis)} {value}" if axis in (*NAMES, *SYMBOLS) else value
        return f"{self.name(axis)} = {number(value)}"


# --- parts and values ----------------------------------------------------------------------------


def at(cells: pandas.DataFrame, axis: str | None, value: Any) -> pandas.DataFrame:
    """The cells with this value, and those without the axis."""
    return cells if axis is None else cells[(cells[axis] == value) | cells[axis].isna()]


def relabelled(ds: xarray.Dataset, labels: Mapping[str, str]) -> xarray.Dataset:
    """The result with other names of algorithms, axes and metrics, and other texts on axes."""
    grid = Grid.of(ds)
    texts = {n: [*map(str, grid.ds[n].values)] for n in grid.axes if not grid.numeric(n)}
    known = [*itertools.chain(*texts.values()), *grid.axes, *grid.metrics(), "uplink_bits"]
    known += [n.split("_", 1)[1] for n in grid.cells if n.startswith(("chosen_", "used_"))]
    for old in labels:
        require(old in known, closest("algorithm, axis or metric in this sweep named", old, known))
    new = {name: [labels.get(v, v) for v in values] for name, values in texts.items()}
    for name, values in new.items():
        alike = f"Two values of {name} cannot have one label"
        require(len({*values}) == len(values), alike, "give each one of its own")
    chosen = dict(grid.about.get("selection") or {})
    for old, text in itertools.product({*labels} & {*chosen.get("over", ())}, ("note", "warning")):
        name = rf"\b{re.escape(old)}\b( \(step size\))?"
        chosen[text] = re.sub(name, labels[old].replace("\\", r"\\"), chosen[text])
    more = {"labels": dict(labels)} | ({"selection": chosen} if chosen else {})
    return grid.described(grid.ds.assign_coords(new), **more)


def restrict(ds: xarray.Dataset, where: Mapping[str, Sequence[Any] | Any]) -> xarray.Dataset:
    """The part of a sweep with these values on these axes, in the sweep's order."""
    grid = Grid.of(ds)
    ds = grid.ds
    for name, wanted in where.items():
        grid.check_axis(name, "seed")
        known = ds[name].values.tolist()
        each = np.ravel(np.asarray(wanted, object))
        places = sorted({_place(name, known, value) for value in each})
        require(places, lambda: f"There are no values of {name}", "name at least one")
        ds = ds.isel({name: places})
    return ds


def _place(name: str, known: Sequence[Any], value: Any) -> int:
    if str(value) in (texts := [str(other) for other in known]):
        return texts.index(str(value))
    with contextlib.suppress(TypeError, ValueError):
        near = np.isclose(np.asarray(known, np.float64), float(value), 1e-9, 0)
        if near.any():
            return int(near.argmax())
    listed = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in known)
    raise InputError(f"{name} = {value} is not in this sweep, where {name} is one of {listed}")


def over_seeds(values: xarray.DataArray) -> tuple[xarray.DataArray, xarray.DataArray]:
    """Mean over seeds and its standard error, NaN for a single seed.

    Both are NaN if a seed diverged: the mean of the others would be biased.  Equal seeds have the error
    0, without rounding.
    """
    first, count = values.isel(seed=0, drop=True), values.sizes["seed"]
    if count == 1:
        return first, first * np.nan
    mean = values.mean("seed", skipna=False)
    error = values.std("seed", ddof=1, skipna=False) / np.sqrt(count)
    differ = values.max("seed", skipna=False) != values.min("seed", skipna=False)
    return mean.where(differ, first), error.where(differ, 0.0)
