"""The page of the benchmark and its pictures, generated from the data set alone."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, PngImagePlugin

from field.contenders import CONTENDERS, chosen
from field.results import CLAIMS, ERRORS, LEADERS, best_of, estimate, groups, judged, leaders, ranks
from field.settings import DELTA, SETTINGS
from jaxfl.views import words
from jaxfl.views.ink import Line, Panel, picture, save
from jaxfl.views.tables import Estimate

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

__all__ = ["KEY", "abstract", "digest", "front", "page", "readme", "write"]

STYLES: dict[str, Any] = {
    "solid": "solid",
    "dashed": (0, (5, 1.5)),
    "dotted": (0, (1.5, 1.2)),
    "dash-dotted": (0, (5, 1.2, 1.5, 1.2)),
    "long dashes": (0, (9, 2)),
    "sparse dots": (0, (1.5, 3)),
}
PALE = "#CCCCCC"
FOOT = 0.1  # of the height of the lines, below them
NAMES = {setting.name: setting.words for setting in SETTINGS}
KEY = "Contents"  # of the digest in a picture's metadata
README, BLOCK = "a9a-label", "<!-- field -->\n{}<!-- /field -->"  # the setting of the README
HEAD = """\
<!-- Written by `python benchmarks/field.py page`; do not edit by hand. -->

# The field

Which algorithm at which eps, bits and heterogeneity? All private algorithms of jaxfl, at equal *proven*
eps and delta = {delta:g}, tuned alike.

- **Rounds are an axis.** Each number of rounds has noise of its own; nothing is read off a longer curve.
- **Equal effort.** At each eps and number of rounds an algorithm has six combinations of compression or
  clip with batch or local steps, and six step sizes. Where a winner has the smallest or the largest step
  size, more are tried. Networks keep the better half of the step sizes, at least three, as rounds grow.
- **Choice on validation data, numbers on test data.** At each budget of bits an algorithm shows the cell
  with the lowest validation loss of those that send no more, a mean over three seeds (networks: of one).
  {seeds} other seeds give the test accuracy, with standard errors (±), and the validation accuracy
  that says who leads. Half of the held-out fifth of the records validates.
- **A budget** is what all clients send together, as the number of uncompressed rounds that it pays for.
- **Only equals compete.** Leaders and ranks are among algorithms whose eps protects the same from the same
  adversary. Others stand in the same pictures.

`python benchmarks/field.py run` computes the runs, and `python benchmarks/field.py page` writes this page
and its pictures from `benchmarks/results/field/field.nc`. No eps covers these choices
([privacy](privacy.md#the-best-of-several-runs)).
"""
MINIATURE = "\n**A miniature, which shows that the benchmark works: its numbers say nothing.**\n"


def write(ds: xarray.Dataset, file: Path) -> list[Path]:
    """The page in ``file``, and a picture for each setting beside it."""
    files = [file]
    for setting in ds["setting"].values.tolist():
        figure = front(ds, setting)
        about = PngImagePlugin.PngInfo()
        about.add_text(KEY, digest(figure))
        for drawn in save(figure, file.parent, f"{file.stem}-{setting}", ("png",)):
            Image.open(drawn).save(drawn, pnginfo=about)
            files.append(drawn)
    file.write_text(page(ds, file.stem), "utf-8")
    return files


def digest(figure: Figure) -> str:
    """Of what a picture says and shows; another version of a font does not change it."""
    texts = [text.get_text() for text in figure.texts]
    texts += [text.get_text() for key in figure.legends for text in key.get_texts()]
    panels = [
        [ax.get_title(), ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()]
        + [f"{ax.get_ylim()[0]:.2g}"]
        + [
            [line.get_color(), line.get_marker(), *np.char.mod("%.5g", line.get_xydata()).ravel()]
            for line in ax.get_lines()
        ]
        for ax in figure.axes
    ]
    return hashlib.sha256(json.dumps([texts, panels]).encode()).hexdigest()


def readme(ds: xarray.Dataset, file: Path) -> Path:
    """The README with the picture and the sentences of this data set."""
    text = file.read_text("utf-8")
    new = BLOCK.format(abstract(ds))
    file.write_text(re.sub(BLOCK.format(".*?"), lambda _: new, text, flags=re.DOTALL), "utf-8")
    return file


def abstract(ds: xarray.Dataset) -> str:
    """Picture and sentences about one setting: where compression gains and loses."""
    names, here = _largest(ds), ds.sel(setting=README)
    each = {eps: _sides(here.sel(eps=eps), names) for eps in ds["eps"].values.tolist()}
    at_eps, said = _and(each), list[str]()
    alone = set.intersection(*({*sides["alone"]} for sides in each.values()))
    if alone:
        few, most = (
            _and(_best_accuracy(here.sel(eps=eps, budget=budget), names) for eps in each)
            for budget in (max(alone), float(ds["budget"].max()))
        )
        said.append(
            f"**With the bits of {max(alone):g} uncompressed rounds** nothing else fits: there the best "
            f"compressed algorithms reach a test accuracy of {few} at eps = {at_eps}. With most bits "
            f"the best reach {most}."
        )
    count = {name: sum(len(sides[name]) for sides in each.values()) for name in each[min(each)]}
    lost = _and(
        f"{-margin.mean:.3f} at eps = {eps:g} with {budget:g} rounds"
        for eps, sides in each.items()
        for budget, margin in sides["behind"].items()
    )
    said.append(
        f"**With more bits** the best compressed algorithm is ahead of the best other in {count['ahead']} "
        f"of {sum(count.values()) - count['alone']} pairs of eps and bits, even in {count['even']}, and "
        f"behind in {count['behind']}" + f": by {lost}." * bool(lost) + "." * (not lost)
    )
    ran = int((here["tried"] > 0).sum())
    small = [f"`{n}`" for n in _drawn(ds, README) if n in _compressed(ds)]
    said.append(
        f"In colour: `ldp_sgd` and the leaders of each privacy guarantee, of which {_and(small)} compress. "
        f"{ran} of {len(CONTENDERS)} algorithms are recorded; [the field](docs/field.md) has them all."
    )
    fill = functools.partial(
        textwrap.fill, width=140, break_long_words=False, subsequent_indent="  "
    )
    text = f"![Test accuracy against bits of all clients at eps {at_eps}](docs/field-{README}.png)"
    return "\n".join([text, "", *(fill(f"- {words}") for words in said), ""])


def _compressed(ds: xarray.Dataset) -> list[str]:
    names: list[str] = ds["algorithm"].values[ds["compressed"].values > 0].tolist()
    return names


def _and(words: Iterable[str | float]) -> str:
    *first, last = [word if isinstance(word, str) else f"{word:g}" for word in words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _best_accuracy(cell: xarray.Dataset, names: Sequence[str]) -> str:
    name = best_of(cell, names)
    return "–" if name is None else f"{estimate(cell['accuracy'].sel(algorithm=name)).mean:.3f}"


def page(ds: xarray.Dataset, stem: str = "field") -> str:
    parts = [HEAD.format(delta=DELTA, seeds=ds.sizes["seed"])]
    parts += [MINIATURE] * (ds.attrs.get("miniature") == "yes")
    parts += _missing(ds)
    parts += ["\n## The answer in words\n\n", *_answers(ds)]
    parts += ["\n## Claims of papers about each other\n\n", _claims(ds)]
    for setting in ds["setting"].values.tolist():
        text = f"![Test accuracy against bits at each eps]({stem}-{setting}.png)"
        parts += [f"\n## {setting}\n\nSetting: {NAMES.get(setting, setting)}.\n\n{text}\n\n"]
        parts += [_leaders(ds, setting), *_outcomes(ds, setting)]
    parts += ["\n## Ranks\n\n", *_ranks(ds), "\n## Effort\n\n", *_effort(ds)]
    return "".join(parts)


def _missing(ds: xarray.Dataset) -> Iterator[str]:
    """What the data set does not hold yet."""
    left = []
    for setting in SETTINGS:
        most = LEADERS if setting.leaders else len(chosen(setting, CONTENDERS, ()))
        known = setting.name in ds["setting"].values
        ran = int((ds["tried"].sel(setting=setting.name) > 0).sum()) if known else 0
        left += [f"{setting.name} has {ran} of {most} algorithms"] * (ran < most)
    if left:
        yield f"\n**Not all is recorded yet:** {'; '.join(left)}. What follows is about those.\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _words(value: Estimate, digits: int = 3) -> str:
    return " ± ".join(filter(None, words.estimate(*value, digits=digits)))


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _largest(ds: xarray.Dataset) -> list[str]:
    """The algorithms of the group with most members."""
    return max(groups(ds).values(), key=len)


# --- pictures --------------------------------------------------------------------------------------


def front(ds: xarray.Dataset, setting: str) -> Figure:
    """Test accuracy against bits, a panel for each eps, a line style for each group.

    The axis begins below the lines in colour of the largest group.
    """
    drawn, panels, styles = _drawn(ds, setting), [], dict(zip(groups(ds), STYLES, strict=False))
    least, coloured = math.inf, list[Line]()
    for eps in ds["eps"].values:
        pale, lines = [], []
        for what, names in groups(ds).items():
            style = STYLES[styles[what]]
            for name in names:
                x, y, error = _points(ds.sel(setting=setting, algorithm=name, eps=eps))
                if name in drawn:
                    band = np.array([error, error])
                    lines.append(Line(name, x, y, band, drawn.index(name), style))
                    least = min([least, *y]) if name in _largest(ds) else least
                else:
                    pale.append(Line("", x, y, None, PALE, style, width=0.6))
        across = "uplink of all clients (Mbit)"
        coloured += lines
        panels.append(Panel(f"ε = {eps:g}", across, "test accuracy", pale + lines, True, False))
    shown = [(style, what.split(", from an adversary who sees ")) for what, style in styles.items()]
    notes = [f"{style.capitalize()}: ε of {whose}; seen: {seen}." for style, (whose, seen) in shown]
    notes.append("A point: the best cell that sends no more. Bands: standard error. Grey: others.")
    low = least - FOOT * (max(max(line.y, default=least) for line in coloured) - least)
    below = sorted({line.label for line in coloured if min(line.y, default=low) < low})
    notes += [f"Partly below the axis: {', '.join(below)}."] * bool(below)
    figure = picture(NAMES.get(setting, setting), [panels], notes)
    for ax in figure.axes if math.isfinite(low) else ():
        ax.set_ylim(bottom=low)
    return figure


def _drawn(ds: xarray.Dataset, setting: str) -> list[str]:
    """The algorithms in colour: the leaders of the largest group, the best of each other, and the added."""
    out = ["ldp_sgd", *leaders(ds, setting)]
    for names in groups(ds).values():
        out += leaders(ds, setting, names, 1) if names != _largest(ds) else []
    return list(dict.fromkeys([*out, *str(ds.attrs.get("added", "")).split()]))


def _points(one: xarray.Dataset) -> tuple[list[float], list[float], list[float]]:
    """Bits, mean and standard error at each budget; budgets with one winner give one point."""
    points = {}
    for budget in one["budget"].values:
        cell = one.sel(budget=budget)
        bits, value = float(cell["bits"].mean()) / 1e6, estimate(cell["accuracy"])
        if np.isfinite(bits) and np.isfinite(value.mean):
            points[bits] = value
    x = sorted(points)
    return x, [points[bits].mean for bits in x], [points[bits].error for bits in x]


# --- words and tables ------------------------------------------------------------------------------


def _answers(ds: xarray.Dataset) -> Iterator[str]:
    """Who leads at which bits, and where compression gains and loses, by rules."""
    names = _largest(ds)
    yield f"Of {len(names)} algorithms whose messages are all seen, at each budget:\n\n"
    for setting in ds["setting"].values.tolist():
        for eps in ds["eps"].values.tolist():
            here, led = ds.sel(setting=setting, eps=eps), dict[str, list[float]]()
            for budget in ds["budget"].values.tolist():
                name = best_of(here.sel(budget=budget), names)
                if name is not None:
                    led.setdefault(name, []).append(budget)
            said = "; ".join(f"`{name}` at {_listed(at)}" for name, at in led.items())
            if led:
                yield f"- **{setting}, ε = {eps:g}.** Best: {said}. {_compression(here, names)}\n"
    yield f"\nAhead and behind: by more than {ERRORS:g} standard errors of the paired difference.\n"


def _sides(here: xarray.Dataset, names: Sequence[str]) -> dict[str, dict[float, Estimate]]:
    """At which budgets the best compressed algorithm is ahead of the best other, and by how much.

    ``alone`` has those at which there is no other, ``even`` those without a clear difference.
    """
    small = [n for n in names if n in _compressed(here)]
    sides: dict[str, dict[float, Estimate]] = {
        name: {} for name in ("ahead", "even", "behind", "alone")
    }
    for budget in here["budget"].values.tolist():
        cell = here.sel(budget=budget)
        one, other = (best_of(cell, some) for some in (small, [n for n in names if n not in small]))
        if one is None or other is None:
            sides["alone"] |= {budget: Estimate(np.nan, np.nan)} if one is not None else {}
            continue
        accuracy = cell["accuracy"]
        margin = estimate(accuracy.sel(algorithm=one) - accuracy.sel(algorithm=other))
        clear = abs(margin.mean) > ERRORS * margin.error
        side = ("ahead" if margin.mean > 0 else "behind") if clear else "even"
        sides[side][budget] = margin
    return sides


def _compression(here: xarray.Dataset, names: Sequence[str]) -> str:
    """At which budgets the best compressed algorithm is ahead of the best other, and at which behind."""
    sides = _sides(here, names)
    alone = [*sides.pop("alone")]
    said = [f"{side} at {_listed([*budgets])}" for side, budgets in sides.items() if budgets]
    words = f"Compression is {', '.join(said)}." if said else ""
    return words + f" Nothing else fits into {_listed(alone)}." * bool(alone)


def _claims(ds: xarray.Dataset) -> str:
    heads = "claim", "setting", "margin of accuracy", "ahead, behind, of", "verdict"
    rows = []
    for claim in CLAIMS:
        found = judged(ds, claim)
        what = f"`{claim.ahead}` ahead of `{claim.behind}`: {claim.paper}"
        counts = f"{found.ahead}, {found.behind}, {found.pairs}"
        rows.append([what, claim.setting, _words(found.margin), counts, found.word])
    note = "Named before the runs. Margins are means over all pairs of eps and budget at which both ran."
    return f"{_table(heads, rows)}\n{note}\n"


def _leaders(ds: xarray.Dataset, setting: str) -> str:
    """The leader at each budget and eps, and how many are not told apart from it."""
    names, rows = _largest(ds), []
    for budget in ds["budget"].values.tolist():
        row = []
        for eps in ds["eps"].values.tolist():
            cell = ds.sel(setting=setting, eps=eps, budget=budget)
            row.append(_leader(cell["accuracy"], best_of(cell, names), names))
        rows += [[f"{budget:g}", *row]] * any(row)
    heads = ["budget", *(f"ε = {eps:g}" for eps in ds["eps"].values)]
    return f"Leaders, with the number of those that are not told apart:\n\n{_table(heads, rows)}"


def _leader(accuracy: xarray.DataArray, name: str | None, names: Sequence[str]) -> str:
    if name is None:
        return ""
    mine = accuracy.sel(algorithm=name)
    margins = [estimate(mine - accuracy.sel(algorithm=other)) for other in names if other != name]
    near = sum(margin.mean <= ERRORS * margin.error for margin in margins)
    return f"`{name}` {_words(estimate(mine))}" + f" (+{near})" * bool(near)


def _outcomes(ds: xarray.Dataset, setting: str) -> Iterator[str]:
    """All that is known of each algorithm at its largest budget and the middle eps."""
    heads = ["algorithm", "test accuracy", "test loss", "worst client", "Mbit", "gradients"]
    heads += ["proven ε", "rounds", "step", "chosen", "seconds"]
    eps = ds["eps"].values[ds.sizes["eps"] // 2]
    yield f"\nEach algorithm at its largest budget, ε = {eps:g}. The worst tenth is one client of ten.\n"
    for what, names in groups(ds).items():
        rows = []
        for name in names:
            one = ds.sel(setting=setting, algorithm=name, eps=eps)
            cell = one.isel(budget=np.flatnonzero(one["bits"].notnull().any("seed"))[-1:])
            if cell.sizes["budget"]:
                means = [_words(estimate(cell[v])) for v in ("accuracy", "loss", "worst")]
                totals = (float(cell["bits"].mean()) / 1e6, float(cell["gradients"].mean()))
                facts = [float(cell[v].squeeze()) for v in ("proven_eps", "rounds", "step")]
                numbers = [f"{value:.3g}" for value in (*totals, *facts)]
                rest = [str(cell["others"].squeeze().item()), f"{float(one['seconds']):.0f}"]
                rows.append([f"`{name}`", *means, *numbers, *rest])
        if rows:
            yield f"\nε protects {what}:\n\n{_table(heads, rows)}"


def _ranks(ds: xarray.Dataset) -> Iterator[str]:
    yield "Mean rank by test accuracy over eps, budgets and seeds, and over eps and seeds at the largest "
    yield "budget; 1 is the best. An algorithm whose cheapest cell exceeds a budget ranks last there.\n"
    settings = ds["setting"].values.tolist()
    heads = ["algorithm"] + [f"{s}, {of}" for s in settings for of in ("all budgets", "largest")]
    for what, names in groups(ds).items():
        each = [ranks(ds, names, largest=largest) for largest in (False, True)]
        mean = {n: np.mean([r.mean for (_, of), r in each[0].items() if of == n]) for n in names}
        rows = []
        for name in sorted(names, key=lambda n: float(mean[n])):
            found = [ranked.get((setting, name)) for setting in settings for ranked in each]
            rows.append([f"`{name}`", *("" if rank is None else _words(rank) for rank in found)])
        yield f"\nε protects {what}:\n\n{_table(heads, rows)}" if len(names) > 1 else ""


def _effort(ds: xarray.Dataset) -> Iterator[str]:
    heads = (
        "setting",
        "algorithms",
        "cells",
        "sweeps of added step sizes",
        "winners at an end of them",
    )
    rows, left = [], []
    for setting in ds["setting"].values.tolist():
        here = ds.sel(setting=setting)
        tried = sorted({int(n) for n in here["tried"].values if n > 0})
        row = [
            setting,
            f"{int((here['tried'] > 0).sum())}",
            " to ".join(map(str, tried[:1] + tried[1:][-1:])),
        ]
        row += [f"{float(here[name].sum()):.0f}" for name in ("added", "open", "bound")]
        rows.append([*row, f"{float(here['seconds'].sum()) / 3600:.2f}"])
        for name in here["algorithm"].values.tolist():
            why = str(here["left_out"].sel(algorithm=name).item())
            left += [f"- {setting}, `{name}`, {why}\n"] * bool(why)
    yield _table((*heads, "at an end of other axes", "hours"), rows)
    if left:
        yield "\nWithout cells:\n\n" + "".join(left)
