"""`jaxfl show`, `jaxfl compare` and `jaxfl plot`: tables and pictures of results."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxfl.cli.compute import ended, partial
from jaxfl.cli.folder import PICTURES, again, begun, extended, kind_of
from jaxfl.cli.options import help_of
from jaxfl.cli.parser import Parser, documented
from jaxfl.cli.report import facts, print_files, print_json, print_table, summary
from jaxfl.cli.written import flag, real, text
from jaxfl.core.errors import InputError, one_line, printable, require
from jaxfl.core.files import replace
from jaxfl.core.links import Links
from jaxfl.core.params import choice
from jaxfl.engine.grid import TUNED
from jaxfl.engine.results import RESULT, load
from jaxfl.views.cells import Grid, is_sweep, restrict
from jaxfl.views.ink import MEDIA, Look
from jaxfl.views.plots import draw
from jaxfl.views.selection import AUTO, select
from jaxfl.views.tables import Table, compare, table, to_target

if TYPE_CHECKING:
    import xarray

    from jaxfl.privacy.statements import Card

__all__ = ["look_options", "look_parser", "run_compare", "run_plot", "run_show"]

OF_SWEEPS = ("choose_by", "over", "where", "allow_test")


def run_show(words: Sequence[str]) -> None:
    """usage: jaxfl show DIR [--OPTION VALUE ...]

    Print the result of a sweep as a table, or the summary of a run, with what its paper claims.  A row of
    the table is the best setting along the axes of --over, with means over seeds and their standard errors.

      jaxfl show grid
      jaxfl show grid --where eps=1,4 --metric loss utility --csv table.csv
      jaxfl show grid --target-loss 0.65 --bandwidth lognormal:1e6,0.8 --latency 0.05

      --metric NAME ...         show these metrics (default: loss and accuracies; utility is the
                                running mean of |grad f|^2)
      --label OLD=NEW ...       write NEW for algorithms, axes and metrics named OLD
      --card                    also show mu of Gaussian differential privacy and the largest true positive
                                rates of attacks; of a run the whole card, of a sweep not for algorithms for
                                which these take long
      --columns NAME ...        show these columns alone, in this order, by their names in CSV: axes,
                                metrics, chosen_lr, used_lr, used_k, used_omega, uplink_bits, claimed_eps,
                                proven_eps, protects, flag, state and more; one that is not there lists all
      --csv FILE                also write the table to FILE, with all digits
      --latex FILE              also write the table to FILE in LaTeX, for the package booktabs; unless
                                --columns names them, columns with equal rows, and details such as
                                claimed eps and states, are a comment in it, and where each row has proven
                                the eps of the axis, one column has both
      --target-loss X           also show the first evaluated round at which the mean training loss over
                                seeds is X or less, and its bits and gradients
      --bandwidth B             with --target-loss: the clients' bandwidth in bit/s, from which the time
                                follows: B, B1,B2,... or lognormal:MEDIAN,SIGMA
      --latency S               with --bandwidth: seconds of latency per round (default: 0)
    """
    given, folder = _given("show", words)
    with _shown(folder):
        ds, links = _load(folder, given), _links(given)
        if is_sweep(ds):
            ds = _selected(ds, given)
        else:
            alone = not {"csv", "latex", "target_loss", "metric", "label"} & set(given)
            found = _card(folder, given, alone) if "card" in given else None
            if not given.get("json"):
                summary(ds, [], claim=True)
                print(f"\n{found}\n" if found else "", end="\n" * (not alone))
            elif alone:
                files = [folder / RESULT if folder.is_dir() else folder]
                print_json(facts(ds, files) | ({"card": found.facts()} if found else {}))
            if alone:
                return
        targets = None
        if "target_loss" in given:
            value = real()("--target-loss", given["target_loss"])
            targets = to_target(ds, "loss", target=value, links=links)
        labels = dict(_pairs("label", "OLD=NEW", given))
        more: Any = {"targets": targets, "labels": labels, "card": "card" in given}
        shown = table(ds, metrics=given.get("metric"), **more)
        _print(shown, given)


def run_compare(words: Sequence[str]) -> None:
    """usage: jaxfl compare DIR_A DIR_B [--OPTION VALUE ...]

    Print two sweeps, or two runs, side by side: the values at their common settings, the differences,
    and standard errors.

      jaxfl compare old new --metric loss

      --metric NAME ...         show these metrics (default: loss and accuracies; utility is the
                                running mean of |grad f|^2)
      --columns NAME ...        show these columns alone, in this order, by their names in CSV: axes,
                                metric, "a DIR_A", "b DIR_B" and difference; one that is not there lists all
      --csv FILE                also write the table to FILE, with all digits
      --latex FILE              also write the table to FILE in LaTeX, for the package booktabs; unless
                                --columns names them, columns with equal rows, and details such as
                                claimed eps and states, are a comment in it
    """
    given, *folders = _given("compare", words, 2)
    with _shown(*folders):
        both = [_load(folder, given) for folder in folders]
        spans = [set(Grid.of(ds).axes) for ds in both]
        for i, ds in enumerate(both):
            if is_sweep(ds):
                # options for an axis of the other sweep alone do not apply to this one
                both[i] = _selected(ds, given, spans[1 - i] - spans[i])
        a, b = folders
        short = (a.name, b.name) if a.name != b.name else (str(a), str(b))
        _print(compare(*both, names=short, metrics=given.get("metric")), given)


def run_plot(words: Sequence[str]) -> None:
    """usage: jaxfl plot DIR [--OPTION VALUE ...]

    Draw pictures of a sweep, the most important first: values against bits, heat maps, and curves with
    bands over seeds; by default six or fewer, with --metric three or fewer for each metric.  A text
    beside each picture describes it: what it shows, how its settings were chosen, which have no value,
    and which eps is proven.  For a single run, draw the curves.  By default a picture fits one column of
    a paper, 3.3 inches wide, without a title.

      jaxfl plot grid --where eps=1,4 --format pdf
      jaxfl plot grid --only front-loss --no-note
      jaxfl plot grid --for slides --out talk
      jaxfl plot grid --choose-by validation_accuracy --metric test_accuracy
      jaxfl plot grid --title "Adult" --label soteriafl_sgd=SoteriaFL loss="training loss"

      --metric NAME ...         draw these metrics, three pictures or fewer for each (default: two, that
                                of --choose-by, on test data if it chose on validation data, and an
                                accuracy, or the loss if the first is an accuracy)
      --only NAME ...           draw these pictures alone, such as front-loss, map-loss or curves-loss
      --for MEDIUM              paper (default), slides or notebook: their widths differ, and the last two
                                have a title
      --width INCHES            width of the pictures; their type stays as large
      --title TEXT              title of the pictures, "" for none; the setting then stands in the note
      --no-note                 write nothing under the pictures; texts beside them have their notes
      --label OLD=NEW ...       write NEW for algorithms, axes and metrics named OLD
      --out DIR                 folder for the pictures (default: DIR/pictures)
      --format KIND ...         png (default), pdf or svg
    """
    given, folder = _given("plot", words)
    with _shown(folder):
        ds = _load(folder, given)
        home = folder if folder.is_dir() else folder.parent
        place = Path(given["out"]) if "out" in given else home / PICTURES
        safe = "out" in given or not place.is_symlink()
        linked = lambda: f"{place} is a link to another folder"  # noqa: E731
        require(safe, linked, "name that folder with --out")
        files = draw(
            _selected(ds, given) if is_sweep(ds) else ds,
            place,
            formats=given.get("format", ["png"]),
            choose_by="none",
            metrics=given.get("metric"),
            only=given.get("only"),
            labels=dict(_pairs("label", "OLD=NEW", given)),
            **_sheet(given),
        )
        if given.get("json"):
            print_json({"files": files})
            return
        print_files(files)


def _sheet(given: dict[str, Any]) -> Look:
    """The medium, width, title and notes of pictures."""
    out: Look = {"note": "no_note" not in given, "title": given.get("title")}
    if "for" in given:
        choice("--for", given["for"], MEDIA)
        out["medium"] = given["for"]
    if "width" in given:
        out["width"] = real()("--width", given["width"])
    return out


# --- options -------------------------------------------------------------------------------------


def look_options(words: Sequence[str]) -> str:
    """The options that all three have.

    options of `show`, `compare` and `plot`:

      --choose-by CRITERION     the metric after the last round by which the best setting is chosen: auto
                                (default: accuracy, else loss, on validation data; without them the
                                training loss), a metric, min:NAME or max:NAME; none: keep all settings
      --over AXIS ...           choose the best setting along these axes (default: lr, shift), along which
                                neither eps nor what it protects may differ
      --where AXIS=V,V ...      show only these values of these axes
      --allow-test              allow --choose-by to choose on test data, and say so in the notes
      --unchecked               read a result although it is damaged or has no digest (a checksum)
    """
    return help_of(look_options)


def look_parser(command: str) -> Parser:
    """All that one of the commands takes."""
    answer = {"show": run_show, "compare": run_compare, "plot": run_plot}[command]
    parser = documented(f"{inspect.getdoc(answer)}\n{look_options([])}")
    parser.add_argument("folders", nargs="*", metavar="DIR")
    parser.add_argument("--json", action="store_true")
    return parser


def _given(command: str, words: Sequence[str], wanted: int = 1) -> tuple[Any, ...]:
    """The options that are given, by name, and the folders."""
    parser = look_parser(command)
    found, rest = parser.parse_known_args(words)
    given = {name: value for name, value in vars(found).items() if value not in (None, False)}
    parser.finish(rest, str(parser.usage), f"`jaxfl {command} --help` lists them")
    folders = given.pop("folders", [])
    for name, value in given.items():
        if isinstance(value, str) and name != "title":
            text(flag(name), value)
    takes = f"jaxfl {command} takes {('one folder', 'two folders')[wanted - 1]}, not {len(folders)}"
    require(len(folders) == wanted, takes, str(parser.usage))
    return given, *map(Path, folders)


@contextlib.contextmanager
def _shown(*folders: Path) -> Iterator[None]:
    """Turn what a strange file makes of a command into one sentence."""
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:  # a digest is no proof of where a file comes from
        names = " or ".join(map(str, folders))
        why = f"{names} cannot be shown ({one_line(error)})"
        way = "give --traceback to see where, or write it again if another program made it"
        raise InputError(why, way) from error


def _pairs(name: str, reads: str, given: dict[str, Any]) -> list[list[str]]:
    """The words of an option that read LEFT=RIGHT, in two."""
    words = given.get(name, [])
    for word in words:
        must = f"--{name} {word} must read {reads}; the folder comes before the options"
        require("=" in word[1:], must)
    return [word.split("=", 1) for word in words]


def _links(given: dict[str, Any]) -> Links | None:
    for name, other in (("latency", "bandwidth"), ("bandwidth", "target_loss")):
        alone = f"--{name} {given.get(name)} needs {flag(other)} too"
        require(name not in given or other in given, alone)
    if "bandwidth" not in given:
        return None
    speed: Any = given["bandwidth"]
    if not speed.startswith("lognormal"):
        values = [real(above=0)("--bandwidth", value) for value in speed.split(",")]
        speed = values[0] if len(values) == 1 else values
    return Links(speed, real()("--latency", given.get("latency", "0")))


# --- results -------------------------------------------------------------------------------------


def _load(path: Path, given: dict[str, Any]) -> xarray.Dataset:
    """The result in a folder or a file; of an unfinished sweep, as far as it is there."""
    require(path.exists(), lambda: f"There is no folder {path}")
    folder, file = (path, path / RESULT) if path.is_dir() else (path.parent, path)
    kind = kind_of(folder)
    way = again(kind, folder)
    if file.exists():
        try:
            ds = load(file, unchecked=given.get("unchecked", False))
        except InputError as error:
            other = ", or read it as it is with --unchecked" * bool(error.suggested)
            if not kind:
                raise
            raise InputError(error.problem, f"{way} writes it again{other}") from None
        if kind == "sweep" and path.is_dir() and extended(folder, ds.sizes):
            ds, lacks = partial(folder), f"{folder} has an unfinished extension"
            print(printable(f"{lacks}: {way} computes what is not shown."), file=sys.stderr)
    else:
        way_on = "repeat the call of Python that began it, with resume=True"
        require(kind or not begun(folder), lambda: f"The sweep of {folder} has not ended", way_on)
        require(kind, lambda: f"{folder} holds no {RESULT}, so it is no result of jaxfl")
        lost = f"{folder} is unfinished, or has lost its {RESULT}"
        require(kind == "sweep" and begun(folder), lost, lambda: f"continue with {way}")
        ds = partial(folder)
        print(printable(f"{lost}: {way} computes what is not shown."), file=sys.stderr)
    for name in set(OF_SWEEPS) & set(given):
        single = f"{flag(name)} is for sweeps, and {path} holds a single run"
        require(is_sweep(ds), single, "leave it out")
    return ds


def _card(folder: Path, given: dict[str, Any], alone: bool) -> Card:
    """The card of a run, whose folder says what its event is."""
    require(folder.is_dir(), lambda: f"--card needs the folder of a run, and {folder} is a file")
    several = "--card --json of a run takes no option of its table"
    require(alone or not given.get("json"), several, "leave one out")
    return ended(folder).privacy().card()


def _selected(
    ds: xarray.Dataset, given: dict[str, Any], elsewhere: AbstractSet[str] = frozenset()
) -> xarray.Dataset:
    """The cells that the options select; options for axes ``elsewhere`` are ignored."""
    where: dict[str, list[str]] = {}  # several of one axis add up
    for name, values in _pairs("where", "AXIS=VALUE", given):
        if name not in elsewhere:
            where.setdefault(name, []).extend(filter(None, values.split(",")))
    ds = restrict(ds, where)
    criterion, over = given.get("choose_by", AUTO), given.get("over")
    over = over and [name for name in over if name not in elsewhere]
    if criterion == "none":
        alone = f"--over {over and over[0]} does not go with --choose-by none"
        require(not over, alone, "leave one out")
        return ds
    if over is None and "choose_by" not in given and not set(TUNED) & set(Grid.of(ds).axes):
        return ds
    return select(ds, criterion, over=over, allow_test=given.get("allow_test", False)).ds


def _print(shown: Table, given: dict[str, Any]) -> None:
    """Print a table, or its --columns, and write it to the files of --csv and --latex."""
    columns = given.get("columns")
    shown = shown.only(columns) if columns else shown
    if given.get("json"):
        print_json(shown.facts())
    else:
        print_table(shown)
    for name in {"csv", "latex"} & given.keys():
        words = shown.csv() if name == "csv" else shown.latex(columns)
        path, content = Path(given[name]), words.encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, lambda file, content=content: file.write(content))
