"""`jaxfl sweep`: compute the grid of a :class:`Spans` and write its files."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxfl.algorithms.registry import ALGORITHMS
from jaxfl.cli.build import choose_algorithm, choose_problem
from jaxfl.cli.folder import CONFIG, of_sweep, write_config
from jaxfl.cli.interrupt import Interrupts
from jaxfl.cli.options import Setup, check_options
from jaxfl.cli.report import print_json, print_table
from jaxfl.cli.sweep_parser import OF_ALGORITHM, OF_PROBLEM, Session, Spans, larger
from jaxfl.cli.work import absolute, computing
from jaxfl.cli.written import command
from jaxfl.core.checks import conforms
from jaxfl.core.errors import InputError, printable, require
from jaxfl.core.files import reading, replace, writable
from jaxfl.core.params import known
from jaxfl.core.progress import Bar, duration, plural
from jaxfl.core.types import Algorithm, Problem
from jaxfl.engine import trackers
from jaxfl.engine.executors import read
from jaxfl.engine.results import RESULT
from jaxfl.engine.sweeps import sweep
from jaxfl.engine.sweeps.look import Plan, Progress, show
from jaxfl.engine.sweeps.store import MANIFEST
from jaxfl.views.pictures import draw
from jaxfl.views.rows import table
from jaxfl.views.selection import AUTO, CRITERIA, select

if TYPE_CHECKING:
    import xarray


__all__ = ["NO_FRONT", "PICTURES", "has_front", "run_sweep"]

ROUNDS = 200
FIELDS = {
    "algorithms": [str],
    "setup": dict,
    "static": {str: list},
    "numbers": {str: [int | float | str | None]},
    "seeds": [int],
    "paired": bool,
}
PICTURES = "pictures"  # the folder in that of a result
NO_FRONT = "no picture of a front: no setting ended with a value"
MANY = 10_000  # runs whose hyper-parameters take seconds to resolve


def run_sweep(spans: Spans | None, session: Session) -> None:
    """Run a grid, or finish one, and write its files."""
    _check_criterion(session.choose_by, spans if session.extend is None else None)
    with Interrupts() as interrupts:
        if spans is not None:
            spans = dataclasses.replace(spans, setup=absolute(spans.setup))
        begun = session.resume or session.extend
        if begun is not None:
            folder, more = Path(begun), spans
            spans = _read(folder)
            spans = spans if more is None else larger(spans, more, begun)
            _check_criterion(session.choose_by, spans)
        else:
            assert spans is not None
            folder = Path(session.out) if session.out is not None else _folder(spans)
        setup = Setup(**{**spans.setup, "rounds": None})
        with computing(setup, session.quiet):
            try:
                ds = _compute(spans, setup, folder, session, interrupts)
            except KeyboardInterrupt:
                if (folder / MANIFEST).exists():
                    way = command("sweep", "--resume", folder)
                    saved = any((folder / "chunks").glob("*.checkpoint.npz"))
                    what = "finished chunks" + " and the rounds of the one in progress" * saved
                    kept = f"; {what} are saved: continue with {way}."
                    raise KeyboardInterrupt(kept) from None
                raise KeyboardInterrupt(" before anything was saved.") from None
    if ds is not None:
        _show(ds, folder, session)


def _compute(
    spans: Spans, setup: Setup, folder: Path, session: Session, interrupts: Interrupts
) -> xarray.Dataset | None:
    """The result; None for a plan."""
    bar, planned = Bar(quiet=session.quiet), session.plan or session.plan_time
    begun = session.resume is not None or session.extend is not None

    def announce(plan: Plan) -> None:
        lines = str(plan).split("\n")
        for line in lines if planned else lines[:2]:
            bar.say(line.replace("eval_every", "--eval-every"))
        if not planned:
            if session.extend is not None:  # from here on --resume finishes the larger one
                write_config(folder / CONFIG, {"sweep": dataclasses.asdict(spans)})
            return
        seconds = None
        if session.plan_time:
            bar.doing("compiling and timing one program")
            seconds = plan.time()
            where = ", of one worker" if session.on is not None else ""
            what = " for what is left" if plan.done else ""
            bar.say(f"estimated time{what}: {duration(seconds)}, compilation included{where}")
        elif plan.left:
            bar.say("--plan-time compiles and times one of these programs, to estimate the time")
        if session.json:
            print_json(plan._asdict() | {"time": seconds})
        raise _Planned

    def update(now: Progress) -> None:
        interrupts.check()
        show(bar, now)

    axes = {name: values for name, values in spans.numbers.items() if len(values) > 1}
    numbers = {name: values[0] for name, values in spans.numbers.items() if len(values) == 1}
    rounds = None if "rounds" in axes else numbers.pop("rounds", ROUNDS)
    if spans.runs >= MANY:  # they are resolved one by one, which takes time
        bar.say(f"{spans.runs:,} runs at most; resolving their hyper-parameters")

    def build(**chosen: Any) -> Algorithm:
        return choose_algorithm(dataclasses.replace(setup, **chosen))

    def pose(**chosen: Any) -> Problem:
        return choose_problem(dataclasses.replace(setup, **chosen))

    with contextlib.ExitStack() as stack:
        tracker = [] if session.track is None or planned else [trackers.read(session.track)]
        executor = None
        if session.on is not None:
            executor = stack.enter_context(read(session.on, session.slurm_option))
            bar.say(f"computing on {session.on}")
        stack.enter_context(bar)
        stack.enter_context(_config(folder, spans, session))
        try:
            return sweep(
                _with_parameters(build, ("algorithm", *OF_ALGORITHM), spans),
                {"algorithm": spans.algorithms, **spans.static, **axes},
                _with_parameters(pose, OF_PROBLEM, spans),
                None,
                rounds,
                seeds=spans.seeds,
                numbers=numbers,
                eval_every=setup.eval_every,
                noise=setup.noise,
                paired=spans.paired,
                out=None if planned and not begun else folder,
                # killed before it had a manifest, a sweep begins again; before it was extended, it is
                extend=begun and (folder / MANIFEST).exists(),
                memory=session.memory,
                executor=executor,
                chunk_seconds=session.chunk_seconds,
                announce=announce,
                progress=update,
                callbacks=tracker,
                matmul_precision=setup.matmul_precision,
            )
        except _Planned:
            return None


def _check_criterion(text: str, spans: Spans | None) -> None:
    """Raise, before anything is computed, for a criterion by which nothing can be selected."""
    way, colon, name = text.rpartition(":")
    valid = not colon or way in ("min", "max")
    require(valid, "must read min:NAME or max:NAME, or just NAME", choose_by=text)
    known("criterion named", name, {AUTO: "", **CRITERIA})
    require(
        not name.startswith("test_"),
        "would select on the test data, which then no longer measure how well the choice generalises",
        "use a training metric, or --validation-share and --choose-by validation_accuracy",
        choose_by=text,
    )
    has_validation = spans is None or spans.setup.get("validation_share")
    require(
        has_validation or not name.startswith("validation_"),
        "needs validation data",
        "set test examples aside, as in --validation-share 0.5",
        choose_by=text,
    )


class _Planned(Exception):
    """Ends a call with --plan."""


def _show(ds: xarray.Dataset, folder: Path, session: Session) -> None:
    """Draw the pictures, and print a table on standard output."""
    files = [folder / RESULT]
    if not session.no_plot:
        with Bar(quiet=session.quiet) as bar:
            bar.doing("drawing the pictures")
            files += draw(ds, folder / PICTURES, choose_by=session.choose_by)
        if not session.quiet and not has_front(files):
            print(NO_FRONT, file=sys.stderr)
    if session.quiet:  # NaN must not be taken for a result
        _warn_of_divergence(ds)
    if session.quiet and not session.json:
        return
    chosen = table(select(ds, session.choose_by).ds)
    if session.json:
        print_json({**chosen.facts(), "files": files})
        return
    print_table(chosen)
    for file in files:
        print(printable(f"file  {file}"))


def has_front(files: Sequence[Path]) -> bool:
    """Whether a picture of a front is among the files."""
    return any("-front-" in file.name for file in files)


def _warn_of_divergence(ds: xarray.Dataset) -> None:
    """Print how many runs diverged, if any; a table names their cells."""
    import numpy as np

    first = ds["diverged_at"].values
    diverged = int(np.isfinite(first).sum())
    if diverged:
        print(
            f"jaxfl: {diverged} of {plural(first.size, 'run')} diverged, the first by round "
            f"{np.nanmin(first):.0f}, and {'are' if diverged > 1 else 'is'} NaN from there on; take "
            "a smaller --lr.",
            file=sys.stderr,
        )


# --- what is run ---------------------------------------------------------------------------------


def _with_parameters(
    f: Callable[..., Any], names: tuple[str, ...], spans: Spans
) -> Callable[..., Any]:
    """``f`` with those of the named parameters that are axes, in the signature that :func:`sweep` reads."""

    def call(**chosen: Any) -> Any:
        return f(**chosen)

    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            for name in names
            if name == "algorithm" or name in spans.static
        ]
    )
    return call


# --- its folder ----------------------------------------------------------------------------------


def _folder(spans: Spans) -> Path:
    """The default folder of the result."""
    for name in spans.algorithms:
        known("algorithm", name, ALGORITHMS)
    data = spans.static.get("data") or [spans.setup.get("data", "digits")]
    names = [*spans.algorithms, *(Path(str(name)).stem for name in data)]
    return Path("results") / "-".join(["sweep", *names])[:100]


@contextlib.contextmanager
def _config(folder: Path, spans: Spans, session: Session) -> Iterator[None]:
    """Write what --resume reads before the sweep starts; remove it if nothing of the sweep is saved."""
    if session.extend is not None and (folder / MANIFEST).exists():
        before, manifest = ((folder / name).read_bytes() for name in (CONFIG, MANIFEST))
        try:
            yield
        except BaseException:
            if (folder / MANIFEST).read_bytes() == manifest:
                replace(folder / CONFIG, lambda file: file.write(before))
            raise
        return
    if session.plan or session.plan_time or session.resume is not None:
        yield
        return
    require(
        not of_sweep(folder),
        lambda: f"{folder} holds a sweep already",
        lambda: (
            f"finish it with {command('sweep', '--resume', folder)}, show it with `jaxfl show`, "
            "or name another folder with --out"
        ),
    )
    other = "name another folder with --out"
    for name in (RESULT, CONFIG):
        require(not (folder / name).exists(), lambda: f"{folder} holds a {name} already", other)
    fresh = [place for place in (folder, *folder.parents) if not place.exists()]
    writable(folder / CONFIG, "config.json")
    try:
        write_config(folder / CONFIG, {"sweep": dataclasses.asdict(spans)}, new=True)
    except FileExistsError:  # another process starts here at the same time
        raise InputError(f"{folder} holds a {CONFIG} already", other) from None
    try:
        yield
    finally:
        if not (folder / MANIFEST).exists():
            (folder / CONFIG).unlink(missing_ok=True)
            for place in (folder / "chunks", *fresh):
                with contextlib.suppress(OSError):  # other files are in it, or it is not there
                    place.rmdir()


def _read(folder: Path) -> Spans:
    """The sweep that ``config.json`` describes."""
    file = folder / CONFIG
    with reading(file, "sweep", "name the folder of a `jaxfl sweep`"):
        about = json.loads(file.read_text("utf-8"))
        of_run = isinstance(about, dict) and "sweep" not in about and "setup" in about
        way = f"continue with {command('run', '--resume', folder)}"
        require(not of_run, lambda: f"{folder} holds a run, and no sweep", way)
        conforms(CONFIG, about, {"sweep": FIELDS})
        spans = Spans(**about["sweep"])
        several = ((name, value) for name, values in spans.static.items() for value in values)
        check_options((*spans.setup.items(), *several), file)
    return spans
