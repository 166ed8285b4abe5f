"""`jaxfl show`, `jaxfl compare` and `jaxfl plot`: what a folder of results holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from jaxfl.cli.folder import Folder
from jaxfl.cli.parser import Once, Parser, closest_option
from jaxfl.cli.readers import real, text
from jaxfl.cli.report import console, summary
from jaxfl.cli.sweeping import NO_FRONT
from jaxfl.cli.written import flag
from jaxfl.core.errors import InputError
from jaxfl.core.files import replace
from jaxfl.engine.results import config, load
from jaxfl.engine.sweeps.grid import TUNED
from jaxfl.views.cells import axes, restrict
from jaxfl.views.compare import as_sweep, compare
from jaxfl.views.pictures import draw
from jaxfl.views.plots import curves
from jaxfl.views.rows import table
from jaxfl.views.selection import select
from jaxfl.views.tables import Table
from jaxfl.views.targets import Links, to_target

if TYPE_CHECKING:
    import xarray

__all__ = ["run_look"]

USAGE = {
    "show": "usage: jaxfl show DIR [--OPTION VALUE ...]",
    "compare": "usage: jaxfl compare DIR_A DIR_B [--OPTION VALUE ...]",
    "plot": "usage: jaxfl plot DIR [--OPTION VALUE ...]",
}
ABOUT = {
    "show": """\
The result of a sweep as a table, or that of a run.  Of every setting the best step size is shown,
and said to be chosen; means over seeds come with standard errors.

  jaxfl show results/sweep --where eps=1,5 --metric loss utility --csv table.csv
  jaxfl show results/sweep --target-loss 0.65 --bandwidth lognormal:1e6,0.8 --latency 0.05""",
    "compare": """\
Two sweeps, or two runs, where they have the same settings: values, differences, standard errors.

  jaxfl compare results/old results/new --metric loss""",
    "plot": """\
Curves with bands over seeds, heat maps, and utility against bits; of a run its curves.

  jaxfl plot results/sweep --where eps=1,5 --format pdf svg""",
}
# option: (what follows it, what it says, the commands that have it)
ALL, TABLES = ("show", "compare", "plot"), ("show", "compare")
OPTIONS = {
    "select": (
        "CRITERION",
        "what the best step size is best in: utility (default), loss, accuracy, min:NAME, max:NAME; "
        "none shows all",
        ALL,
    ),
    "over": ("AXIS ...", "the axes to choose on (default: lr, shift)", ALL),
    "where": ("AXIS=V,V ...", "only these values of these axes", ALL),
    "metric": ("NAME ...", "the metrics to show (default: utility, loss, accuracies)", TABLES),
    "csv": ("FILE", "write the table there too, with all digits", TABLES),
    "latex": ("FILE", "and there, for the package booktabs", TABLES),
    "target_loss": ("X", "what it takes to reach this training loss", ("show",)),
    "bandwidth": ("B", "of clients in bit/s, for times: B, B1,B2,... or lognormal:MEDIAN,SIGMA", ("show",)),
    "latency": ("S", "of a round, in seconds", ("show",)),
    "out": ("DIR", "folder of the pictures (default: DIR/pictures)", ("plot",)),
    "format": ("KIND ...", "png, pdf, svg (default: png pdf)", ("plot",)),
}  # fmt: skip
SEVERAL = ("over", "where", "metric", "format")
OF_SWEEPS = ("select", "over", "where", "allow_test")


def run_look(command: str, words: Sequence[str]) -> None:
    """Answer one of the three commands."""
    parser = _parser(command)
    found, rest = parser.parse_known_args(list(words))
    given = {name: value for name, value in vars(found).items() if value not in (None, False)}
    if "help" in given or not words:
        print(_help(command))
        return
    if rest:
        if not rest[0].startswith("-"):
            raise InputError(f"{rest[0]!r} is one word too many: {USAGE[command][7:]}.")
        raise InputError(closest_option(rest[0], parser, f"`jaxfl {command} --help` lists them"))
    for name in set(given) & set(OPTIONS) - set(SEVERAL):
        text(flag(name), given[name])
    folders = given.pop("folders", [])
    wanted = 2 if command == "compare" else 1
    if len(folders) != wanted:
        raise InputError(
            f"jaxfl {command} takes {'two folders' if wanted == 2 else 'one folder'}, "
            f"not {len(folders)}: {USAGE[command][7:]}."
        )
    answers: dict[str, Callable[..., None]]
    answers = {"show": _show, "compare": _compare, "plot": _plot}
    answers[command](given, *map(Path, folders))


# --- the commands --------------------------------------------------------------------------------


def _show(given: dict[str, Any], folder: Path) -> None:
    ds, links = _load(folder, given), _links(given)
    if not _is_sweep(ds):
        summary(ds, [])
        ds = as_sweep(ds).assign_coords(algorithm=[config(ds)["settings"]["algorithm"]])
        if not {"csv", "latex", "target_loss", "metric"} & set(given):
            return
        print()
    ds = _selected(ds, given)
    targets = None
    if "target_loss" in given:
        value = real()("--target-loss", given["target_loss"])
        targets = to_target(ds, "loss", target=value, links=links)
    _print(table(ds, metrics=given.get("metric"), targets=targets), given)


def _compare(given: dict[str, Any], *folders: Path) -> None:
    both = [_load(folder, given) for folder in folders]
    spans = [set(axes(ds)) if _is_sweep(ds) else set() for ds in both]
    for i, ds in enumerate(both):
        if spans[i]:
            # what is asked of an axis that the other sweep alone has says nothing of this one
            both[i] = _selected(ds, given, spans[1 - i] - spans[i])
    a, b = folders
    short = (a.name, b.name) if a.name != b.name else (str(a), str(b))
    _print(compare(*both, names=short, metrics=given.get("metric")), given)


def _plot(given: dict[str, Any], folder: Path) -> None:
    ds = _load(folder, given)
    home = folder if folder.is_dir() else folder.parent
    place = Path(given["out"]) if "out" in given else home / "pictures"
    formats = given.get("format", ["png", "pdf"])
    if _is_sweep(ds):
        files = draw(_selected(ds, given), place, formats=formats, criterion=None)
        if not any(file.name.startswith("front-") for file in files):
            print(NO_FRONT, file=sys.stderr)
    else:
        files = [place / f"curves.{kind}" for kind in formats]
        curves(ds, files)
    for file in files:
        print(file)


# --- options -------------------------------------------------------------------------------------


def _parser(command: str) -> Parser:
    parser = Parser()
    parser.add_argument("folders", nargs="*")
    for name, (_, _, commands) in OPTIONS.items():
        if command in commands:
            more: dict[str, Any] = {"nargs": "+", "action": "extend"}
            how = more if name in SEVERAL else {"action": Once}
            parser.add_argument(flag(name), dest=name, **how)
    parser.add_argument("--allow-test", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    return parser


def _help(command: str) -> str:
    lines = [USAGE[command], "", ABOUT[command], ""]
    for name, (value, words, commands) in OPTIONS.items():
        if command in commands:
            lines.append(f"  {flag(name) + ' ' + value:<24}  {words}")
    lines.append(f"  {'--allow-test':<24}  let --select choose on test data, and say so")
    return "\n".join(lines)


def _where(words: Sequence[str]) -> dict[str, list[str]]:
    """AXIS=V,V; several of one axis add up."""
    out: dict[str, list[str]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not (name and equals and values.strip(",")):
            raise InputError(
                f"--where {word} has to read AXIS=VALUE,VALUE; the folder comes before the options."
            )
        out.setdefault(name, []).extend(value for value in values.split(",") if value)
    return out


def _links(given: dict[str, Any]) -> Links | None:
    if "bandwidth" not in given:
        if "latency" in given:
            raise InputError(
                f"--latency {given['latency']} needs --bandwidth too, for the time of a round."
            )
        return None
    if "target_loss" not in given:
        raise InputError(
            f"--bandwidth {given['bandwidth']} needs --target-loss: shown is the time to reach it."
        )
    speed: Any = given["bandwidth"]
    if not speed.startswith("lognormal"):
        values = [real(above=0)("--bandwidth", value) for value in speed.split(",")]
        speed = values[0] if len(values) == 1 else values
    return Links(speed, real()("--latency", given.get("latency", "0")))


# --- results -------------------------------------------------------------------------------------


def _load(path: Path, given: dict[str, Any]) -> xarray.Dataset:
    """The result in a folder, or in a file; one sentence where there is none yet."""
    file = path / "result.nc" if path.is_dir() else path
    if not path.exists():
        raise InputError(f"There is no folder {path}.")
    if not file.exists():
        _missing(path)
    try:
        ds = load(file)
    except InputError as error:
        folder, way = file.parent, ""
        if (folder / "sweep.json").exists():
            way = f"`jaxfl sweep --resume {folder}` writes it again"
        elif _ended(folder):
            way = f"remove it, and `jaxfl run --resume {folder}` writes it again"
        if "damaged" not in str(error) or not way:
            raise
        raise InputError(f"{file} is damaged or cut short: {way}.") from None
    for name in () if _is_sweep(ds) else OF_SWEEPS:
        if name in given:
            raise InputError(
                f"{flag(name)} is for sweeps, and {path} holds a single run: leave it out."
            )
    return ds


def _missing(folder: Path) -> NoReturn:
    if (folder / "sweep.json").exists():
        raise InputError(f"{folder} is unfinished: go on with `jaxfl sweep --resume {folder}`.")
    if _ended(folder):
        raise InputError(
            f"{folder} has lost its result.nc: `jaxfl run --resume {folder}` writes it again."
        )
    if (folder / "config.json").exists():
        raise InputError(f"{folder} is unfinished: go on with `jaxfl run --resume {folder}`.")
    raise InputError(f"{folder} holds no result.nc, so it is no result of jaxfl.")


def _ended(folder: Path) -> bool:
    """Whether a run that ended there has left what its result can be written from."""
    if not ((folder / "config.json").exists() and (folder / "checkpoint.npz").exists()):
        return False
    return Folder.read(folder).reached is not None


def _is_sweep(ds: xarray.Dataset) -> bool:
    return config(ds).get("kind") == "sweep"


def _selected(
    ds: xarray.Dataset, given: dict[str, Any], elsewhere: AbstractSet[str] = frozenset()
) -> xarray.Dataset:
    """The part that is asked for, with its best step sizes; of axes ``elsewhere`` nothing is."""
    where = _where(given.get("where", []))
    ds = restrict(ds, {name: values for name, values in where.items() if name not in elsewhere})
    criterion = given.get("select", "utility")
    over = given.get("over")
    over = over and [name for name in over if name not in elsewhere]
    if criterion == "none":
        if over:
            raise InputError(f"--over {over[0]} does not go with --select none: leave one out.")
        return ds
    if over is None and "select" not in given and not set(TUNED) & set(axes(ds)):
        return ds
    return select(ds, criterion, over=over, allow_test=given.get("allow_test", False)).ds


def _print(shown: Table, given: dict[str, Any]) -> None:
    """On standard output, and to the files that are asked for."""
    if sys.stdout.isatty():
        shown.show(console())
    else:
        print(shown.text(), end="")
    for name, content in (("csv", shown.csv), ("latex", shown.latex)):
        if name not in given:
            continue
        path = Path(given[name])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, lambda file, content=content: file.write(content().encode()))
        except OSError as error:
            raise InputError(f"Cannot write {path}: {error.strerror or error}.") from None
