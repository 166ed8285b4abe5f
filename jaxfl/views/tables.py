"""Tables of results, as text, data frames, CSV, LaTeX and Markdown.

One row per cell, two results side by side, and what reaching a target takes.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from jaxfl.core import display
from jaxfl.core.display import between, greek, plain
from jaxfl.core.errors import printable, require
from jaxfl.core.links import Links
from jaxfl.core.params import choice
from jaxfl.core.params import number as in_range
from jaxfl.core.progress import plural
from jaxfl.privacy.claims import above, understates
from jaxfl.views.cells import IN_SHORT, WORTH, Array, Grid, is_sweep, over_seeds, relabelled
from jaxfl.views.selection import Criterion, criterion_of, publishing
from jaxfl.views.words import estimate, listed, number, prefix, span

if TYPE_CHECKING:
    import pandas
    import xarray
    from rich.console import Console

__all__ = ["Column", "Estimate", "Table", "by_rows", "compare", "remarks", "table", "to_target"]

IN_CARD = {"mu": "μ", "tpr_at_0.01": "TPR at 1 % FPR", "tpr_at_0.001": "TPR at 0.1 % FPR"}
COLUMN = 53  # characters of a column of a paper; between two columns of a table are three
WIDE = (
    r"Wider than a column: name fewer columns, or use table* or \resizebox{\columnwidth}{!}{...}."
)
MU = "μ bounds nothing below δ. It is left out where an attacker's error rates are off by more than 0.01."
WIDTH = 10_000  # of a table in a file: no line is broken
SHOWN = ("loss", "accuracy", "test_accuracy")  # where a sweep has them
FLAG = "claim < proven"
RULE = "the proven eps exceeds that of the paper's formula by more than 1 %"
WARNED = {"at_end": "best at an end of its grid", "idle": "loss did not fall"}
UNPROVEN = "none proven"
BROKEN = "bound broken"
ABOVE = "proven > asked"
FLAGS = FLAG, UNPROVEN, BROKEN, ABOVE  # notes on them begin so
SPENT = ("messages", "uplink_bits", "downlink_bits", "gradients")
LEFT_OUT = ("eps", "delta", "noise_constant")  # the proven eps follows from them
SAME = {"protects": "protection", "delta_of_eps": "δ", "level": "ε"}
ROWS = 200  # that a notebook shows


class Estimate(NamedTuple):
    """A mean over seeds with its standard error, NaN for a single seed."""

    mean: float
    error: float


Value: TypeAlias = str | float | Estimate | None  # None: does not apply


def estimates(values: xarray.DataArray) -> list[Estimate]:
    """The mean of each cell."""
    return list(map(Estimate, *(side.values.tolist() for side in over_seeds(values))))


WORD_OF = {1: "stated", 2: "declared"}


def eps_words(noisy: bool, eps: float, stated: int = 0) -> Value:
    """A proven eps, or that it is the user's or a part's word, or the reason why there is none."""
    if not noisy or math.isinf(eps):
        return "none" if noisy else "no noise"
    return f"{number(above(eps))} ({WORD_OF[stated]})" if stated else float(eps)


class Column(NamedTuple):
    """``name`` is the header in CSV, where values are not scaled and keep all digits."""

    name: str
    heading: str
    values: Sequence[Value]
    scale: float = 1.0  # shown is value / scale, in the unit that the heading names
    alarm: bool = False  # its words are in red
    bound: bool = False  # its numbers are upper bounds, shown rounded up
    aside: bool = False  # LaTeX leaves it to a comment, unless it is named

    def words(self) -> list[str]:
        return [self._word(value) for value in self.values]

    def _word(self, value: Value) -> str:
        if isinstance(value, str | None):
            return "–" if value is None else printable(value)
        if not isinstance(value, Estimate):
            return number((above if self.bound else float)(value / self.scale))
        mean, error = (each / self.scale for each in value)
        return " ± ".join(filter(None, estimate(mean, error)))

    @property
    def side(self) -> Any:
        """The alignment: left for texts, right for numbers."""
        return "left" if all(isinstance(value, str | None) for value in self.values) else "right"


class Table(NamedTuple):
    """Columns, with ``notes`` below.  The ``best`` rows are bold, with a star; in CSV they are a column.

    A notebook shows it as HTML, with the ``curves`` of the loss, one for each row.
    """

    title: str
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    best: frozenset[int] = frozenset()
    curves: tuple[Sequence[float], ...] = ()

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Plain text without colours, one line per row."""
        from rich.console import Console

        file = io.StringIO()
        options: Any = {"color_system": None, "highlight": False, "force_jupyter": False}
        self.show(Console(file=file, width=WIDTH, **options))
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"

    def show(self, console: Console) -> None:
        """Print to a terminal, the best rows bold and alarms red."""
        from rich.table import Table as Rows
        from rich.text import Text

        columns, named = self._starred(), any(column.heading for column in self.columns)
        grid = Rows(box=None, pad_edge=False, header_style="bold", show_header=named)
        for column in columns:
            heading, style = Text(plain(column.heading)), "red" * column.alarm
            grid.add_column(heading, justify=column.side, style=style)
        for i, words in enumerate(_rows(columns)):
            grid.add_row(*map(Text, words), style="bold" * (i in self.best))
        if self.title:
            console.print(Text(plain(self.title), "bold"))
        narrow, options = console.width, console.options.update(width=WIDTH)
        # Columns are not squeezed: a terminal that is too narrow breaks the lines.
        console.width = max(narrow, console.measure(grid, options=options).maximum)
        console.print(grid)
        console.width = narrow
        for note in self.notes:
            console.print(Text(plain(note)))

    def facts(self) -> dict[str, Any]:
        """``rows`` as dicts with the columns of :meth:`csv`, ``title`` and ``notes``."""
        columns = self._columns()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {"title": plain(self.title), "rows": rows, "notes": [*map(plain, self.notes)]}

    def to_pandas(self) -> pandas.DataFrame:
        """All digits; an estimate takes two columns, the second ending in ``_se``, ``best`` one of bools.

        Texts and numbers that do not apply are missing.
        """
        import pandas

        return pandas.DataFrame(self._columns())

    def csv(self) -> str:
        """The table of :meth:`to_pandas`; whole numbers have no point."""
        import pandas

        columns = {name: [*map(_whole, values)] for name, values in self._columns().items()}
        frame = pandas.DataFrame(columns, dtype=object)
        return str(frame.to_csv(index=False, lineterminator="\n"))

    def only(self, names: Sequence[str]) -> Table:
        """The columns with these names, which are those in CSV, in this order.

        Notes on flags are left out with their column.
        """
        rows = [""] * max((len(column.values) for column in self.columns), default=0)
        known = {column.name: column for column in self.columns}
        known.setdefault("state", Column("state", "state", rows))  # where there is nothing to say
        for name in names:
            choice("columns", name, known)
        notes = tuple(n for n in self.notes if "flag" in names or not n.startswith(FLAGS))
        return self._replace(columns=tuple(known[n] for n in dict.fromkeys(names)), notes=notes)

    def latex(self, columns: Sequence[str] | None = None) -> str:
        """A ``tabular`` for the package booktabs; names of the best rows are bold, notes are comments.

        ``columns`` are names as in CSV; by default a comment has those whose rows are equal, and the names
        of details, such as claimed eps and states, and where each row has proven the eps of the axis, one
        column has both.
        """
        base = self.only(columns) if columns else self._one_eps()
        equal = {c.name: len(c.values) > 1 == len({*c.words()}) for c in base.columns}
        left = [c for c in base.columns if columns is None and (c.aside or equal[c.name])]
        left *= len(left) < len(base.columns) - 1  # else names alone would be shown
        shown = [column for column in base.columns if column not in left]
        same = ", ".join(f"{c.heading} = {c.words()[0]}" for c in left if equal[c.name])
        named = ", ".join(c.name for c in left if not equal[c.name])
        held = [f"In all rows: {same}."] * bool(same)
        held += [f"Left out, unless columns are named: {named}."] * bool(named)
        width = sum(3 + max(map(len, [c.heading, *c.words()])) for c in shown)
        held += [WIDE] * (width > COLUMN)
        sides = "".join(column.side[0] for column in shown)
        head = " & ".join(_latex(column.heading) for column in shown) + r" \\"
        lines = [f"% {plain(note)}" for note in (self.title, *held, *base.notes) if note]
        lines += [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule"]
        for i, words in enumerate(_rows(shown)):
            cells = [_latex(greek(word)) for word in words]
            if i in self.best:  # a name alone: a bold number would be the best of its column
                name = next((cell for cell in cells if cell[:1].isalpha()), "")
                cells = [rf"\textbf{{{cell}}}" if cell is name else cell for cell in cells]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def _one_eps(self) -> Table:
        """Replace the axis eps by the proven eps, if each row proves the eps that it asked for."""
        known: dict[str, Any] = {column.name: column for column in self.columns}
        asked, proven = (known[n].values if n in known else () for n in ("eps", "proven_eps"))
        pairs = [*zip(asked, proven, strict=False)]
        met = [a is None if isinstance(p, str) else 0 <= (a or 0) - p < p / 100 for a, p in pairs]
        if not (met and all(met)):
            return self
        values, head = [p if a is None else a for a, p in pairs], f"proven {known['eps'].heading}"
        known["eps"] = known["eps"]._replace(heading=head, values=values, bound=True)
        return self._replace(columns=tuple(c for n, c in known.items() if n != "proven_eps"))

    def _repr_html_(self) -> str:
        columns, last = self._starred(), "loss against rounds"
        heads = [*(column.heading for column in columns), *[last] * bool(self.curves)]
        rows = [[*map(greek, words)] for words in _rows(columns)]
        for row, curve in zip(rows[:ROWS], self.curves, strict=False):
            row.append(display.sparkline(curve, last))
        more = len(rows) - ROWS
        left = [f"{plural(more, 'more row')}: see to_pandas()."] * (more > 0)
        notes = [*left, *map(greek, self.notes)]
        return display.table(self.title, rows[:ROWS], heads, notes=notes, bold=self.best)

    def markdown(self) -> str:
        """The rows alone."""
        heads = [printable(column.heading) for column in self.columns]
        lines = [heads, ["---"] * len(heads), *_rows(self.columns)]
        cells = [[word.replace("|", "\\|") for word in line] for line in lines]
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)

    def _starred(self) -> tuple[Column, ...]:
        if not self.best:
            return self.columns
        stars = ["*" * (i in self.best) for i in range(len(self.columns[0].values))]
        return Column("", "", stars), *self.columns

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {}
        for name, _, values, *_ in self.columns:
            pairs = [value if isinstance(value, Estimate) else (value, None) for value in values]
            columns[name] = [mean for mean, _ in pairs]
            if any(isinstance(value, Estimate) for value in values):
                columns[f"{name}_se"] = [error for _, error in pairs]
        if self.best:
            columns["best"] = [i in self.best for i in range(len(self.columns[0].values))]
        return columns


def _rows(columns: Sequence[Column]) -> list[tuple[str, ...]]:
    return list(zip(*(column.words() for column in columns), strict=True))


def by_rows(heads: Mapping[str, str], rows: Sequence[Sequence[Value]]) -> tuple[Column, ...]:
    """Columns with these names and headings from their values row by row."""
    each = zip(*rows, strict=True) if rows else [()] * len(heads)
    return tuple(Column(*head, values) for head, values in zip(heads.items(), each, strict=True))


def _whole(value: Any) -> object:
    """Whole numbers without a point."""
    whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return int(value) if whole else value


MATH = {
    "<": "<", ">": ">", "≤": r"\le", "≥": r"\ge", "±": r"\pm", "−": "-", "‖": r"\|", "²": "^2",
    "ε": r"\varepsilon", "ω": r"\omega", "δ": r"\delta", "σ": r"\sigma", "γ": r"\gamma", "μ": r"\mu",
    "∇": r"\nabla", "∞": r"\infty",
}  # fmt: skip
ESCAPES: dict[str, Any] = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {"–": "--"}
ESCAPES |= {sign: f"${math}$" for sign, math in MATH.items()}
NAMED = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum"}
ESCAPES |= {sign: rf"\text{name}{{}}" for sign, name in NAMED.items()}
QUANTITY = re.compile(r"-?[\d.]+(e-?\d+)?( ± -?[\d.]+(e-?\d+)?)?")


def _latex(text: str) -> str:
    """Numbers in math mode, exponents as powers of ten."""
    if not QUANTITY.fullmatch(text):
        return printable(text).translate(str.maketrans(ESCAPES))
    powers = re.sub(r"e(-?\d+)", r" \\cdot 10^{\1}", text)
    return "$" + powers.replace("±", r"\pm") + "$"


# --- one row per cell ------------------------------------------------------------------------------


def table(
    ds: xarray.Dataset,
    *,
    metrics: Sequence[str] | None = None,
    targets: xarray.Dataset | None = None,
    labels: dict[str, str] | None = None,
    card: bool = False,
) -> Table:
    """A row for every cell of a sweep, or of its selection, at its last round.  A run has one row.

    Axes with one value are in the title; ``metrics`` default to loss and accuracies, and are means
    over seeds with standard errors.  The metric on validation data that a selection chose by is always
    there.  Then the uplink of all clients, ``claimed | proven``
    eps with a red flag where the proven one is larger, and seeds that diverged.  ``targets`` from
    :func:`to_target` adds what reaching the target took.  Marked is the best row for each problem
    and eps, by the criterion of :func:`~jaxfl.views.select`.  ``labels`` renames algorithms, axes, their
    values, and metrics.  ``card`` adds mu and the power of attacks [:class:`.privacy.statements.Card`].
    In a notebook a curve of the loss ends each row.
    """
    grid = Grid.of(relabelled(ds, labels or {}))
    groups, reached = grid.groups(), {} if targets is None else targets.data_vars
    grid = Grid.of(grid.ds.assign(reached).transpose(*groups, ...))
    # rows of one group follow each other; rows without the axis come last
    cells = grid.cells.sort_values(groups, key=lambda labels: labels.isna(), kind="stable")
    grid = dataclasses.replace(grid, cells=cells)
    rule, shown = criterion_of(grid), shown_metrics(grid, metrics)
    columns = [*_axes(grid), *_metrics(grid, shown, rule), *_privacy(grid, card)]
    columns += [*_targets(grid, reached), *_fates(grid)]
    best, rivals = _best(grid, rule)
    notes = [f"* {rule.words} of {rivals}."] * bool(best) + remarks(grid)
    notes += [f"Uplink of {words}" for words in grid.said("bits")]
    notes += ["± standard error over seeds."] * (grid.ds.sizes["seed"] > 1)
    notes += [MU] * (card and "mu" in grid.cells and bool(grid.cells["mu"].notna().any()))
    curves = grid.flat(grid.ds[["loss"]])["loss"].mean("seed").values
    return Table(grid.heading(), tuple(columns), tuple(filter(None, notes)), best, tuple(curves))


def shown_metrics(grid: Grid, names: Sequence[str] | None) -> list[str]:
    """These metrics, each of them known, or by default those that most readers want; and that on
    validation data, if it chooses."""
    grid.check(*(names or ()))
    rule = criterion_of(grid).metric
    default = [name for name in grid.besides(SHOWN) if rule != f"{grid.on}_{name}"]
    default += [rule] * (rule in grid.ds)
    return list(dict.fromkeys([*(names or default), *[rule] * rule.startswith("validation_")]))


# --- columns -------------------------------------------------------------------------------------


def _axes(grid: Grid) -> list[Column]:
    """The axes, what was chosen, and what is no axis: step size, unequal work, what compressors keep."""
    cells, several = grid.cells, ["algorithm", *grid.several()]
    heads = {name: grid.short(name) for name in grid.axes if name in several}
    chosen = [name.removeprefix("chosen_") for name in cells if name.startswith("chosen_")]
    best = "best " * bool(chosen and cells["candidates"].max() > 1)
    heads |= {f"chosen_{name}": f"{best}{grid.short(name)}" for name in chosen}
    rates = grid.used.filter([] if "lr" in grid.swept else ["lr"])
    sizes, d = grid.sizes(), grid.about["facts"].get("d", "d")
    each = rates.dropna(axis="columns", how="all").join([grid.work(), sizes])
    heads |= {f"used_{n}": grid.short(str(n)) + f" of {d}" * (n == "k") for n in each}
    cells = cells.assign(**each.add_prefix("used_"))
    # where a row has k or levels, omega follows from them
    left = {"used_omega"} - {"used_omega" for count in sizes.count(axis="columns") if count == 1}
    return [Column(n, head, _known(cells[n]), aside=n in left) for n, head in heads.items()]


def _known(values: pandas.Series) -> list[Value]:
    return [None if v != v or v == "" else v for v in values.tolist()]


def _metrics(grid: Grid, shown: Sequence[str], rule: Criterion) -> list[Column]:
    """The metrics, and the uplink of all clients."""
    heads = {name: grid.short(name) for name in shown}
    if "selection" in grid.about and rule.metric.startswith("validation_"):
        heads[rule.metric] += " (chosen by)"
    totals = estimates(grid.ends("uplink_bits"))
    means = [value.mean for value in totals]
    scale, unit = prefix(means, "bit")
    uplink = grid.about.get("labels", {}).get("uplink_bits") or "uplink"
    differ = any(value.error > 0 for value in totals)
    bits = Column("uplink_bits", f"{uplink} ({unit})", totals if differ else means, scale)
    out = [Column(name, head, estimates(grid.ends(name))) for name, head in heads.items()]
    return [*out, *[bits] * bool(grid.cells["n"].max() > 1)]  # one client sends nothing


def _privacy(grid: Grid, card: bool) -> list[Column]:
    cells = grid.cells
    if not cells["noisy"].any():
        return []
    kept = list(map(eps_words, cells["noisy"], cells["proven_eps"], cells["stated"]))
    claimed = _known(cells["claimed_eps"].where(cells["noisy"]))
    out = [Column("claimed_eps", "claimed ε", claimed, aside=True)]
    out.append(Column("proven_eps", "proven ε", kept, bound=True))
    if grid.about.get("selection", {}).get("priced"):  # of all runs among which one was chosen
        every = _known(cells["eps_of_choice"])
        out.append(Column("eps_of_choice", "ε of all runs", every, bound=True))
    stated = [name for name in IN_CARD if card and name in cells]
    out += [Column(name, IN_CARD[name], _known(cells[name]), bound=True) for name in stated]
    out.append(Column("protects", "protects", _protected(cells), aside=True))
    if cells["flag"].any():
        alarms = [(name, held) for name, (held, _) in _alarms(cells).items()]
        red = [", ".join(name for name, held in alarms if held[i]) for i in range(len(cells))]
        out.append(Column("flag", "flag", red, alarm=True, aside=True))
    if cells["delta_of_eps"].nunique() > 1 and "delta" not in grid.axes:
        out.append(Column("delta", "δ", cells["delta_of_eps"].tolist(), bound=True, aside=True))
    return out


def _protected(cells: pandas.DataFrame) -> list[str | None]:
    """The unit that the eps of each cell protects, in short."""
    return [IN_SHORT[what] or None for what in cells["protects"]]


def _alarms(cells: pandas.DataFrame) -> dict[str, tuple[Array, str]]:
    """The flags: the cells where each holds, and the note that explains it."""

    def read(held: Array) -> str:
        losses = [each for each in cells["noisy_losses"][held] if each]
        many = span(losses) if losses else ""
        return f", with {many} noisy losses that the stopping rule may read" * bool(many)

    proven, broken = cells["proven_eps"].to_numpy(), cells["broken"].notna().to_numpy()
    less = np.asarray(understates(cells["claimed_eps"].to_numpy(), proven))
    none, norm = np.isinf(proven), cells["broken"].max()
    above = cells["flag"].to_numpy() & ~less & ~broken
    longest = f"an example's gradient has norm {norm:.4g} at x0, above gradient_bound"
    return {
        FLAG: (less & ~none, RULE + read(less & ~none)),
        UNPROVEN: (less & none, "do not rely on the claimed eps, which nothing proves"),
        ABOVE: (above, f"the proven eps exceeds the one that was asked for{read(above)}"),
        BROKEN: (broken, f"{longest}, to which it is clipped: the proven eps holds"),
    }


def _targets(grid: Grid, reached: Mapping[Any, xarray.DataArray]) -> Iterator[Column]:
    for name, values in reached.items():
        here, unit = grid.cells[name], values.attrs["units"]
        scale, unit = prefix(here, unit) if unit == "bit" else (1.0, unit * (unit == "s"))
        head = values.attrs["long_name"] + f" ({unit})" * bool(unit)
        yield Column(str(name), head, _known(here), scale)


def _fates(grid: Grid) -> list[Column]:
    """Seeds that diverged, cells that have not run, and warnings of a choice; no column without any."""

    def fate(cell: dict[str, Any]) -> str:
        tried = cell.get("candidates", 1)
        if not cell.get("found", True) and tried:
            return f"all {tried} settings diverged" if tried > 1 else "diverged"
        if not tried or not cell["ran"]:
            return "not run yet"
        if cell["ran"] < seeds:
            return "unfinished"
        if cell["lost"]:
            return f"{cell['lost']} of {seeds} seeds diverged" if seeds > 1 else "diverged"
        return ", ".join(words for name, words in WARNED.items() if cell.get(name, 0) > 0)

    seeds, idle = grid.ds.sizes["seed"], grid.cells.index.isin(grid.idle().index)
    words = [fate(cell) for cell in grid.cells.assign(idle=idle).to_dict("records")]
    return [Column("state", "state", words, alarm=True, aside=True)] if any(words) else []


# --- the best, and notes -------------------------------------------------------------------------


def _best(grid: Grid, rule: Criterion) -> tuple[frozenset[int], str]:
    """The best row of each group that has a choice, or all that equal it, and what the groups are."""
    # the same eps is worth more against one who sees more, and with a smaller delta
    cells, groups = grid.cells.reset_index(drop=True), [*grid.groups(), *WORTH]
    means = [value.mean * rule.sign for value in estimates(grid.ends(rule.metric))]
    judged = cells.assign(judged=means)[cells["competes"]].dropna(subset="judged")
    apart = judged.groupby(groups, dropna=False, sort=False)["judged"]
    best = frozenset(i for _, own in apart if len(own) > 1 for i in own.index[own == own.min()])
    differ = (n for n in groups if cells[n].nunique(n in WORTH) > 1)
    same = " and ".join(dict.fromkeys(SAME.get(name) or grid.short(name) for name in differ))
    return best, f"the rows with the same {same}" if same else "all rows"


def remarks(grid: Grid) -> list[str]:
    """Notes on the choice of settings, the coverage of the proven eps, missing proofs, and flags."""
    chosen, (alone, several) = grid.about.get("selection", {}), publishing(grid)
    notes = [chosen.get("warning", ""), chosen.get("note", "")]
    if not grid.cells["noisy"].any():
        return [*notes, "Not private, no noise."]
    notes += [*grid.protections(), alone, several * (several not in notes[1]), *grid.said("proofs")]
    flags = _alarms(grid.cells).items() if grid.cells["flag"].any() else ()
    return notes + [f"{name}: {why}." for name, (held, why) in flags if held.any()]


# --- targets ---------------------------------------------------------------------------------------


def to_target(
    ds: xarray.Dataset, metric: str = "loss", *, target: float, links: Links | None = None
) -> xarray.Dataset:
    """Rounds, uplink bits, gradients and seconds until ``metric`` first reaches ``target``, as
    ``rounds_to_target`` and so on.

    Looked at are the evaluated rounds of the mean over seeds, where a run that a rule stopped keeps
    its last value; NaN where the target is never reached.  ``metric`` is read as in :func:`select`:
    at most the target where the smallest is best, else at least.  Seconds are there with ``links``:
    the expected time of the rounds, computation left out.
    """
    import xarray

    grid = Grid.of(ds)
    ds, rule = grid.ds, criterion_of(grid, metric)
    target = in_range("target", target, above=-math.inf, below=math.inf)
    names = (rule.metric, *SPENT)
    series = grid.kept(names)[[*names]].astype(np.float64).mean("seed", skipna=False)
    reached = rule.sign * series[rule.metric] <= rule.sign * target  # False for NaN
    spent = series.isel(round=reached.argmax("round")).where(reached.any("round"))
    rounds = spent["round"].where(reached.any("round"))
    costs = {"rounds": rounds, **{name: spent[name] for name in ("uplink_bits", "gradients")}}
    named = {"uplink_bits": ("uplink", "bit"), "seconds": ("time", "s")}
    if links is not None:
        costs["seconds"] = _seconds(series.where(ds["round"] <= rounds), ds["n"], links)
    words = f"{rule.metric.replace('_', ' ')} {'≤' if rule.sign > 0 else '≥'} {target:.4g}"
    out = xarray.Dataset(coords={axis: ds[axis] for axis in grid.axes})
    for name, values in costs.items():
        what, unit = named.get(name, (name, name.removesuffix("s")))
        values = values.drop_vars("round", errors="ignore").transpose(*grid.axes)
        out[f"{name}_to_target"] = values.assign_attrs(units=unit, long_name=f"{what} to {words}")
    return out


def _seconds(series: xarray.Dataset, clients: xarray.DataArray, links: Links) -> xarray.DataArray:
    """The time of these rounds; between two evaluations all messages are taken to be equal."""
    import xarray

    length = functools.cache(links.round_seconds)  # most rounds of a sweep are equal

    def total(rounds: Array, n: Array, messages: Array, *bits: Array) -> float:
        def some(step: float, sent: float, *sizes: float) -> float:
            return step * length(int(n), sent / step, *(b / sent if sent else 0.0 for b in sizes))

        seen = ~np.isnan(messages)
        steps = (np.diff(values[seen]) for values in (rounds, messages, *bits))
        return sum(map(some, *steps), 0.0) if seen.any() else math.nan

    given = (series["round"], clients, *(series[name] for name in SPENT[:3]))
    dims = [["round"], [], *[["round"]] * 3]
    out: xarray.DataArray = xarray.apply_ufunc(total, *given, input_core_dims=dims, vectorize=True)
    return out


# --- two results -----------------------------------------------------------------------------------


def compare(
    a: xarray.Dataset,
    b: xarray.Dataset,
    *,
    names: tuple[str, str] = ("A", "B"),
    metrics: Sequence[str] | None = None,
) -> Table:
    """Final values where two results have the same settings, and ``b - a``.

    The difference has a standard error: of the differences per seed where both sweeps share their
    draws and have the same seeds, else from the errors of both.  An axis that only one has may
    hold one value.  Two runs are compared whatever their algorithms are.  Notes below list settings of
    one side alone, and what else differs.
    """
    alone = not (is_sweep(a) or is_sweep(b))
    both = [Grid.of(ds, "run" * alone) for ds in (a, b)]
    common = [axis for axis in both[0].axes if axis in both[1].axes]
    shown = [n for n in shown_metrics(both[0], metrics) if n in shown_metrics(both[1], metrics)]
    pairs = _keys(both[0], common).merge(_keys(both[1], common), on="key")
    sides = list(zip(both, names, (pairs["index_x"], pairs["index_y"]), strict=True))
    notes = [note for grid, name, _ in sides for note in _alone(grid, common, name)]
    none = f"{names[0]} and {names[1]} have no setting in common"
    require(len(pairs), none, lambda: f"their values of {', '.join(common)} differ")
    for grid, name, places in sides:
        if len(left := grid.cells.drop(places)):
            notes.append(f"Only in {name}: {grid.listed(left[common])}.")
    one, two = (dataclasses.replace(g, cells=g.cells.loc[places]) for g, _, places in sides)
    varied = [axis for axis in common if one.cells[axis].nunique(dropna=False) > 1]
    heads = {axis: one.short(axis) for axis in varied} | {"metric": "metric"}
    heads |= {f"a {names[0]}": names[0], f"b {names[1]}": names[1], "difference": "difference"}
    # both sides share the draws of each seed
    draws = [(g.about["paired"], g.about["settings"]["key"], [*g.ds["seed"].values]) for g in both]
    paired = bool(draws[0][0] and draws[0] == draws[1])
    lines = [_measured(one, two, name, paired) for name in [*shown, "uplink_bits"]]
    lines += _guarantees(one.cells, two.cells)
    places = one.cells[varied].itertuples(index=False, name=None)
    each = zip(places, zip(*lines, strict=True), strict=True)
    rows = [(*place, *line) for place, cell in each for line in cell if line]
    notes += _lost(one, names[0]) + _lost(two, names[1])
    for what, *values in (*_settings(*both), *_values(one, two, common)):
        said = [f"{value} in {name}" for value, name in zip(values, names, strict=False)]
        notes.append(f"Different {': '.join(filter(None, [what, ', '.join(said)]))}.")
    if max(grid.ds.sizes["seed"] for grid in both) > 1:
        how = "paired by seed" if paired else "of unpaired seeds"
        notes.append(f"± standard error over seeds; differences are {how}.")
    notes += [f"A difference is {names[1]} minus {names[0]}.", *_protections(one, two, names)]
    shared = f": {plural(len(pairs), 'common setting')}" * (not alone)
    # all numbers of the sides are estimates, or upper bounds
    columns = tuple(c._replace(bound=c.name[:2] in ("a ", "b ")) for c in by_rows(heads, rows))
    return Table(f"{names[0]} and {names[1]}{shared}", columns, tuple(notes))


# --- pieces of a comparison -------------------------------------------------------------------------


def _alone(grid: Grid, common: list[str], name: str) -> Iterator[str]:
    """Notes on axes of one side alone; raises if one varies."""
    for axis in (axis for axis in grid.axes if axis not in common):
        values = grid.ds[axis].values.tolist()
        alone = f"Only {name} has the axis {axis}, with {len(values)} values"
        way = f"keep one of them, as with --where {axis}={values[0]}, or choose over it"
        require(len(values) == 1, alone, way)
        yield f"{grid.label(axis, values[0])} in {name}."


def _keys(grid: Grid, common: list[str]) -> pandas.DataFrame:
    """Cells by their labels on the common axes; numbers are rounded."""
    labels = grid.cells[common].map(lambda v: f"{v:.9g}" if isinstance(v, int | float) else str(v))
    return labels.agg("; ".join, axis="columns").rename("key").reset_index()


def _measured(a: Grid, b: Grid, name: str, paired: bool) -> list[tuple[Value, ...]]:
    """Of every cell the metric's name, both sides and the difference."""
    words, by = name.replace("_", " "), 1.0
    first, second = a.ends(name), b.ends(name)
    if name == "uplink_bits":
        by, unit = prefix([first.max(), second.max()], "bit")
        words = f"uplink ({unit})"
    one, two = estimates(first / by), estimates(second / by)
    pairs = zip(one, two, strict=True)
    differ = [Estimate(y.mean - x.mean, math.hypot(x.error, y.error)) for x, y in pairs]
    if paired:
        differ = estimates((second - first.values) / by)
    return [(words, *line) for line in zip(one, two, differ, strict=True)]


def _guarantees(a: pandas.DataFrame, b: pandas.DataFrame) -> list[list[tuple[Value, ...]]]:
    """Of every cell the proven eps, and where the sides differ in them its delta and what it protects.

    Nothing where neither side has noise.  Two eps have a difference only where they protect the same,
    at one delta.
    """
    noise = (a["noisy"].to_numpy() | b["noisy"].to_numpy()).tolist()
    eps = [[*map(eps_words, c["noisy"], c["proven_eps"], c["stated"])] for c in (a, b)]
    deltas, whose = [_known(c["delta_of_eps"]) for c in (a, b)], [*map(_protected, (a, b))]
    margins = list[Value]()
    for x, y, d, e, p, q in zip(*eps, *deltas, *whose, strict=True):
        known = isinstance(x, float) and isinstance(y, float) and (d, p) == (e, q)
        margins.append(y - x if known else None)
    lines: dict[str, Any] = {"proven eps": (*eps, margins)}
    for name, of in (("delta", deltas), ("protects", whose)):
        lines |= {name: (*of, [None] * len(noise))} if of[0] != of[1] else {}
    each = {name: zip(noise, *of, strict=True) for name, of in lines.items()}
    return [[(name, *line) if noisy else () for noisy, *line in of] for name, of in each.items()]


def _protections(a: Grid, b: Grid, names: tuple[str, str]) -> list[str]:
    """Notes on what the eps of both protects."""
    said = dict(zip(names, (a.protections(), b.protections()), strict=True))
    if (a.cells["protects"].to_numpy() == b.cells["protects"].to_numpy()).all():
        return said[names[0]]
    each = [f"In {name}, {what}" for name, own in said.items() for what in own]
    return [*each, "Where eps protects something else, neither side is the better one."]


def _settings(a: Grid, b: Grid) -> Iterator[tuple[str, ...]]:
    """The settings that differ, with their values or words for both."""
    salts = {str(g.about["settings"].get("data")).rpartition(":")[0] for g in (a, b)}
    one, two = (_named(grid, len(salts) == 1) for grid in (a, b))
    differ = [name for name, x in one.items() if x and two[name] and x != two[name]]
    if "data" in differ:  # others have another objective
        differ = differ[: differ.index("data") + 1]
    yield from ((name, one[name], two[name]) for name in differ)


def _named(grid: Grid, checked: bool) -> dict[str, str]:
    """Settings by their words; data with a checksum where the other's has the same salt, and how they are
    split."""
    named, facts = grid.about["settings"], grid.about["facts"]
    records = f"{between(facts['m'], facts['m_max'])} records each" if "m_max" in facts else ""
    checksum = f"checksum {named.get('data')}" * checked
    split = (named.get("partition"), f"{listed(grid.cells['n'])} clients", records, checksum)
    return {
        **{name: named.get(name) for name in ("algorithm", "problem", "model", "dtype")},
        "noise": grid.about.get("noise"),
        "data": f"{named['problem']} ({', '.join(filter(None, split))})",
        "objective (regularizer, constraint or size)": named.get("objective", "").partition(" ")[2],
    }


def _values(a: Grid, b: Grid, common: list[str]) -> Iterator[tuple[str, ...]]:
    """The hyper-parameters of the common cells that differ, with both values where all differ alike."""
    first, second = a.used, b.used
    for what in [name for name in first if name in second and name not in {*common, *LEFT_OUT}]:
        x, y = (cells[what].to_numpy(np.float64) for cells in (first, second))
        unlike = ~np.isclose(x, y, 1e-6, 0, equal_nan=True)
        pairs = {*zip(x[unlike].tolist(), y[unlike].tolist(), strict=True)}
        if pairs:
            values = map(number, pairs.pop()) if len(pairs) == 1 else ()
            yield f"{what} in {unlike.sum()} of {unlike.size} settings", *values


def _lost(grid: Grid, name: str) -> list[str]:
    """The reasons why compared values are missing."""
    missing = (grid.cells["ran"] < grid.ds.sizes["seed"]).sum()
    counts = {"did not run": missing, "diverged": (grid.cells["lost"] > 0).sum()}
    of = f"of {plural(len(grid.cells), 'compared setting')}"
    return [f"In {name} {count} {of} {what}." for what, count in counts.items() if count]
