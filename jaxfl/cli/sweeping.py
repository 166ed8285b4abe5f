"""`jaxfl sweep`: from a :class:`Spans` to the files of a grid."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxfl.algorithms.registry import ALGORITHMS
from jaxfl.cli.build import choose_algorithm, choose_problem
from jaxfl.cli.interrupt import Interrupts
from jaxfl.cli.options import Setup, told
from jaxfl.cli.report import console
from jaxfl.cli.sweep_parser import OF_ALGORITHM, OF_PROBLEM, Session, Spans
from jaxfl.cli.work import absolute, computing
from jaxfl.core.errors import InputError, require
from jaxfl.core.files import reading, replace, writable
from jaxfl.core.params import known
from jaxfl.core.progress import Bar
from jaxfl.core.types import Algorithm, Problem
from jaxfl.core.version import __version__
from jaxfl.engine.sweeps import sweep
from jaxfl.engine.sweeps.look import Plan, Progress, words
from jaxfl.views.pictures import draw
from jaxfl.views.rows import table
from jaxfl.views.selection import CRITERIA, select

if TYPE_CHECKING:
    import xarray


__all__ = ["run_sweep"]

CONFIG = "config.json"
ROUNDS = 200
NO_FRONT = "no picture of a front: no setting ended with a value"
MANY = 10_000  # runs whose numbers take more than a blink


def run_sweep(spans: Spans | None, session: Session) -> None:
    """Run a grid, or what is left of one, and write its files."""
    if session.coordinator is not None or session.process is not None:
        import jax

        jax.distributed.initialize(session.coordinator, session.processes, session.process)
    _criterion(session.select, spans)
    with Interrupts() as interrupts:
        if spans is not None:
            spans = dataclasses.replace(spans, setup=absolute(spans.setup))
            folder = Path(session.out) if session.out is not None else _folder(spans)
        else:
            folder = Path(session.resume or "")
            spans = _read(folder)
            _criterion(session.select, spans)
        setup = Setup(**{**spans.setup, "rounds": None})
        with computing(setup):
            try:
                ds = _compute(spans, setup, folder, session, interrupts)
            except KeyboardInterrupt:
                if (folder / "sweep.json").exists():
                    raise KeyboardInterrupt(
                        f"; finished chunks are kept: go on with `jaxfl sweep --resume {folder}`."
                    ) from None
                raise KeyboardInterrupt(" before anything was saved.") from None
    if ds is not None:
        _show(ds, folder, session)


def _compute(
    spans: Spans, setup: Setup, folder: Path, session: Session, interrupts: Interrupts
) -> xarray.Dataset | None:

    bar = Bar(quiet=session.quiet)

    def announce(plan: Plan) -> None:
        bar.say(
            f"{_count(plan.runs, 'run')} in {_count(plan.compilations, 'compilation')} "
            f"({plan.compile_seconds:.1f} s), {_count(plan.chunks, 'chunk')} of at most "
            f"{plan.bytes / 2**20:,.0f} MiB ({plan.available / 2**20:,.0f} are free)"
            + (f"; {plan.done} of the chunks are done already" if plan.done else "")
        )
        if session.plan:
            raise _Planned

    def update(now: Progress) -> None:
        interrupts.check()
        bar.update(now.done, now.total, words(now), "cell-round")

    axes, numbers = dict(spans.static), {}
    for name, values in spans.numbers.items():
        if len(values) > 1:
            axes[name] = values
        else:
            numbers[name] = values[0]
    rounds = None if "rounds" in axes else numbers.pop("rounds", ROUNDS)
    if spans.runs >= MANY:  # they are resolved one by one, for a minute per million
        bar.say(f"{spans.runs:,} runs at most; their numbers are found first")
    with bar, _config(folder, spans, session):
        try:
            return sweep(
                _signed(_algorithm(setup), ("algorithm", *_those(spans, OF_ALGORITHM))),
                {"algorithm": spans.algorithms, **axes},
                _signed(_problem(setup), _those(spans, OF_PROBLEM)),
                None,
                rounds,
                seeds=spans.seeds,
                numbers=numbers,
                eval_every=setup.eval_every,
                noise=setup.noise,
                paired=spans.paired,
                out=None if session.plan and session.resume is None else folder,
                resume=session.resume is not None,
                memory=session.memory,
                say=bar.say,
                announce=announce,
                progress=update,
            )
        except _Planned:
            return None


def _criterion(text: str, spans: Spans | None) -> None:
    """Refuse what nothing could be chosen by, before anything is computed."""

    way, colon, name = text.rpartition(":")
    which = {"select": text}
    read = not colon or way in ("min", "max")
    require(read, "must read min:NAME or max:NAME, or just NAME", **which)
    known("criterion named", name, CRITERIA)
    require(
        not name.startswith("test_"),
        "would choose on the test data, which then test no more",
        "use a training metric, or --validation-share and --select validation_accuracy",
        **which,
    )
    share = spans is None or spans.setup.get("validation_share")
    require(
        share or not name.startswith("validation_"),
        "needs validation data",
        "set some test examples aside with --validation-share, as in --validation-share 0.5",
        **which,
    )


class _Planned(Exception):
    """The plan was all that was asked for."""


def _show(ds: xarray.Dataset, folder: Path, session: Session) -> None:
    """Pictures, and a table on standard output."""
    import jax

    if jax.process_index() != 0:
        return
    files = [folder / "result.nc"]
    if session.plot:
        drawn = draw(ds, folder, criterion=session.select)
        files += drawn
        if not session.quiet and not any(file.name.startswith("front-") for file in drawn):
            print(NO_FRONT, file=sys.stderr)
    if session.quiet:  # who asks for it must not take NaN for a result
        if words := _lost(ds):
            print(words, file=sys.stderr)
        return
    chosen, shown = select(ds, session.select), console()
    table(chosen.ds).show(shown)
    for file in files:
        shown.print(f"file  {file}", soft_wrap=True)


def _lost(ds: xarray.Dataset) -> str:
    """How many runs diverged; a table names their cells."""
    import numpy as np

    first = ds["diverged_at"].values
    lost = int(np.isfinite(first).sum())
    if not lost:
        return ""
    have = "are" if lost > 1 else "is"
    return (
        f"jaxfl: {lost} of {_count(first.size, 'run')} diverged, the first by round "
        f"{np.nanmin(first):.0f}, and {have} NaN from there on; take a smaller --lr."
    )


# --- what is run ---------------------------------------------------------------------------------


def _those(spans: Spans, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name in spans.static)


def _signed(f: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    """``f`` with these parameters and no others, as :func:`sweep` reads them."""

    def call(**chosen: Any) -> Any:
        return f(**chosen)

    kind = inspect.Parameter.KEYWORD_ONLY
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    return call


def _algorithm(setup: Setup) -> Callable[..., Algorithm]:
    def build(algorithm: str, **chosen: Any) -> Algorithm:
        of = dataclasses.replace(setup, **chosen)
        return choose_algorithm(
            algorithm,
            compressor=of.compressor,
            sampler=of.sampler,
            participation=of.participation,
            aggregation=of.aggregation,
            graph=of.graph,
            clip_mode=None if of.clip_mode == "example" else of.clip_mode,
            noise_draw=None if of.noise_draw == "fused" else of.noise_draw,
            storage=of.storage,
        )

    return build


def _problem(setup: Setup) -> Callable[..., Problem]:
    return lambda **chosen: choose_problem(dataclasses.replace(setup, **chosen))


# --- its folder ----------------------------------------------------------------------------------


def _folder(spans: Spans) -> Path:

    for name in spans.algorithms:
        known("algorithm", name, ALGORITHMS)
    data = spans.static.get("data") or [spans.setup.get("data", "digits")]
    names = [*spans.algorithms, *(Path(str(name)).stem for name in data)]
    return Path("results") / "-".join(["sweep", *names])[:100]


@contextlib.contextmanager
def _config(folder: Path, spans: Spans, session: Session) -> Iterator[None]:
    """What --resume reads lies there before the sweep does, and goes if there will be none."""
    import jax

    if session.plan or session.resume is not None or jax.process_index() != 0:
        yield
        return
    require(
        not (folder / "sweep.json").exists(),
        f"{folder} holds a sweep already",
        f"finish it with `jaxfl sweep --resume {folder}`, look at it with `jaxfl show`, "
        "or name another folder with --out",
    )
    for name in ("result.nc", CONFIG):
        require(not (folder / name).exists(), *_taken(folder, name))
    fresh = [place for place in (folder, *folder.parents) if not place.exists()]
    writable(folder / CONFIG, "config.json")
    about = {"jaxfl": __version__, "sweep": dataclasses.asdict(spans)}
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    try:
        replace(folder / CONFIG, lambda file: file.write(text.encode()), new=True)
    except FileExistsError:  # another process begins here at the same time
        raise InputError(*_taken(folder, CONFIG)) from None
    try:
        yield
    finally:
        if not (folder / "sweep.json").exists():
            (folder / CONFIG).unlink(missing_ok=True)
            for place in (folder / "chunks", *fresh):
                with contextlib.suppress(OSError):  # other files are in it, or it is not there
                    place.rmdir()


def _taken(folder: Path, name: str) -> tuple[str, str]:
    return f"{folder} holds a {name} already", "name another folder with --out"


def _read(folder: Path) -> Spans:
    file = folder / CONFIG
    with reading(file, "sweep", "name the folder of a `jaxfl sweep`"):
        spans = Spans(**json.loads(file.read_text("utf-8"))["sweep"])
        told((*spans.setup, *spans.static), file)
    return spans


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)
