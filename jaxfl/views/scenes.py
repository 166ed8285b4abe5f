"""Which axis of a sweep becomes panels, lines and pictures; and what has to be said of it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxfl import results
from jaxfl.errors import InputError
from jaxfl.plots import PALETTE
from jaxfl.views.cells import applying, axes, cells, deltas, final, over_seeds
from jaxfl.views.words import label, name_of, number

if TYPE_CHECKING:
    import xarray

__all__ = ["Page", "Scene", "free", "notes", "pages", "panel_words", "panels_of", "scene", "titled"]

PANELS = 12  # in one picture
LINES = 12  # in one panel
STYLED = 4  # values that line styles tell apart
SHADED = 8  # values that colours tell apart where there is one algorithm
PICTURES = 40  # of one kind


class Scene(NamedTuple):
    """The parts that the axes play; those with one value play none."""

    panel: str | None  # one panel for each value
    line: str | None  # lines of one algorithm differ in it
    pages: tuple[str, ...]  # one picture for each value


class Page(NamedTuple):
    """One picture's part of a sweep."""

    suffix: str  # of its file name
    ds: xarray.Dataset


def free(ds: xarray.Dataset) -> list[str]:
    """Axes with more than one value that some algorithm has, eps and omega first."""
    first = ("eps", "omega")
    names = [
        name
        for name in axes(ds)
        if name != "algorithm" and ds.sizes[name] > 1 and applying(ds, name).any()
    ]
    numeric = {name: ds[name].dtype.kind in "iuf" for name in names}
    return sorted(
        names, key=lambda n: (first.index(n) if n in first else len(first), not numeric[n])
    )


def scene(ds: xarray.Dataset, *, shaded: bool = True) -> Scene:
    """Panels by eps, lines by algorithm and omega, or by what there is instead.

    Where lines would be too many to be told apart, there is one picture for each algorithm (if
    ``shaded``, with colours for the second axis), or else for each value of the second axis.
    Problems of different names have a picture each; unless ``shaded``, so have all problems.
    """
    everything, spans = free(ds), results.config(ds)["axes"]
    apart = [
        name
        for name in everything
        if spans[name].get("problem") and not (shaded and ds[name].dtype.kind in "iuf")
    ]
    rest = [name for name in everything if name not in apart]
    panel = "eps" if "eps" in rest else None
    lines = [name for name in rest if name != panel]
    line = lines[0] if lines else None
    if panel is None and len(lines) > 1:
        panel = next((name for name in lines if name != line), None)
    if panel is not None and ds.sizes[panel] > PANELS:
        some = ",".join(
            v if isinstance(v, str) else f"{v:g}" for v in ds[panel].values.tolist()[:3]
        )
        raise InputError(
            f"{panel} has {ds.sizes[panel]} values, and a picture has room for {PANELS} panels: keep "
            f"fewer, as with --where {panel}={some}."
        )
    others = (*apart, *(name for name in rest if name not in (panel, line)))
    many = ds.sizes["algorithm"]
    if line is not None and shaded:
        crowded = ds.sizes[line] > STYLED or _lines(ds, line) > LINES
        if ds.sizes[line] > SHADED:
            others, line = (*others, line), None
        elif crowded and many > 1:
            return _counted(ds, Scene(panel, line, ("algorithm", *others)))
    if many > len(PALETTE):
        raise InputError(
            f"{many} algorithms are more than a picture has colours, {len(PALETTE)}: keep fewer, as "
            "with --where algorithm=NAME,NAME."
        )
    return _counted(ds, Scene(panel, line, others))


def pages(ds: xarray.Dataset, names: tuple[str, ...]) -> Iterator[Page]:
    """The part of every picture, named after the values that it holds."""
    for place in itertools.product(*(range(ds.sizes[name]) for name in names)):
        part = ds.isel({name: [i] for name, i in zip(names, place, strict=True)})
        if not cells(part):
            continue
        words = [
            f"-{v}" if isinstance(v, str) else f"-{name}-{number(v)}"
            for name in names
            for v in part[name].values.tolist()
        ]
        yield Page(re.sub(r"[^A-Za-z0-9._+-]+", "_", "".join(words)), part)


def panels_of(ds: xarray.Dataset, name: str | None) -> list[xarray.Dataset]:
    """The part of every panel."""
    if name is None:
        return [ds]
    return [ds.isel({name: [i]}) for i in range(ds.sizes[name])]


def titled(ds: xarray.Dataset) -> list[str]:
    """The algorithms, and which of them add no noise."""
    noisy = ds["noisy"].any([name for name in axes(ds) if name != "algorithm"]).values
    names = ds["algorithm"].values.tolist()
    return [n if some else f"{n} (no noise)" for n, some in zip(names, noisy, strict=True)]


def panel_words(ds: xarray.Dataset, name: str | None) -> str:
    """The title of a panel; an eps that is not proven is only claimed."""
    if name is None:
        return ""
    words = label(name, ds[name].values.tolist()[0])
    return words + " (claimed)" * bool(name == "eps" and not _meets(ds))


def _meets(ds: xarray.Dataset) -> bool:
    """Whether every eps on the axis is proven for the noise that was made for it."""
    short = ds["proven_eps"] > ds["eps"].astype(float) * (1 + 1e-6)
    return not bool((short & (ds["noisy"] > 0)).any())


def notes(ds: xarray.Dataset) -> list[str]:
    """How lines end, what was chosen, and what the privacy of each algorithm is worth."""
    out = []
    found = results.config(ds).get("selection")
    if found and found["note"]:
        out.append(found["note"].replace(" eps ", " ε "))
    values = over_seeds(final(ds, "uplink_bits").values)[0]
    lost = sum(bool(np.isnan(values[cell.at])) for cell in cells(ds))
    if lost:
        what = "1 setting that" if lost == 1 else f"{lost} settings that"
        out.append(f"No final value: {what} diverged or {'has' if lost == 1 else 'have'} not run.")
    worth: dict[str, list[str]] = {}
    for name in ds["algorithm"].values.tolist():
        worth.setdefault(_worth(ds.sel(algorithm=name), "eps" in axes(ds)), []).append(name)
    everyone = ds.sizes["algorithm"]
    for words, who in worth.items():
        if words:
            out.append(f"{words}." if len(who) == everyone > 1 else f"{', '.join(who)}: {words}.")
    name = deltas(ds)
    kept = np.ravel(ds[name].where(ds["noisy"] > 0)) if name in ds else ()
    each = {float(d) for d in kept if d == d}
    if len(each) == 1:
        out.append(f"δ = {number(each.pop())}.")
    return out


# --- pieces --------------------------------------------------------------------------------------


def _lines(ds: xarray.Dataset, line: str) -> int:
    places = axes(ds).index(line), axes(ds).index("algorithm")
    return len({tuple(cell.at[i] for i in places) for cell in cells(ds)})


def _counted(ds: xarray.Dataset, found: Scene) -> Scene:
    count = math.prod(ds.sizes[name] for name in found.pages)
    if count > PICTURES:
        widest = max(found.pages, key=lambda name: ds.sizes[name])
        raise InputError(
            f"This sweep would take {count} pictures, one for each value of "
            f"{' and '.join(map(name_of, found.pages))}: keep fewer values of {widest} with --where."
        )
    return found


def _worth(ds: xarray.Dataset, by_eps: bool) -> str:
    """The privacy of one algorithm in words; empty where it is what the panel says."""
    noisy = np.ravel(ds["noisy"].values).astype(bool)
    proven = np.ravel(ds["proven_eps"].values)[noisy]
    # where no algorithm's paper claims anything, no such number is kept
    told = ds["claimed_eps"].values if "claimed_eps" in ds else np.full(noisy.shape, np.nan)
    claimed = np.ravel(told)[noisy]
    flag = np.ravel(ds["flag"].values)[noisy].astype(bool)
    if not noisy.any():
        return "not private, no noise"
    known = proven[np.isfinite(proven)]
    if np.isinf(proven).any():
        said = claimed[np.isfinite(claimed)]
        return "no ε proven" + (f", where its paper claims {_span(said)}" if said.size else "")
    if by_eps and _meets(ds):
        if not flag.any():
            return ""
        return f"for the noise of ε = {_span(proven[flag])} its paper claims {_span(claimed[flag])}"
    if flag.any():
        return f"proven is ε = {_span(proven[flag])}, where its paper claims {_span(claimed[flag])}"
    return "" if by_eps or not known.size else f"ε = {_span(known)} proven"


def _span(values: np.ndarray) -> str:
    low, high = number(values.min(), 3), number(values.max(), 3)
    return low if low == high else f"{low} to {high}"
