"""`jaxfl run` and `jaxfl sweep`: compute a :class:`Study` in its folder, and show its result."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxfl.cli import folder as folders
from jaxfl.cli import written
from jaxfl.cli.build import DEMO, choose_algorithm, choose_problem
from jaxfl.cli.folder import PICTURES
from jaxfl.cli.imports import check_begun
from jaxfl.cli.interrupt import Interrupts
from jaxfl.cli.options import Session, Setup, Study, options
from jaxfl.cli.parser import checked, larger, parse
from jaxfl.cli.report import REFUTED, facts, head, print_files, print_json, print_table, summary
from jaxfl.cli.written import suggested
from jaxfl.core.errors import DivergedWarning, InputError, JaxflWarning, assigned, require
from jaxfl.core.foreign import warn
from jaxfl.core.params import closest, known
from jaxfl.core.progress import Bar, plural
from jaxfl.core.types import Algorithm, Problem, Source
from jaxfl.engine import executors, results
from jaxfl.engine.dataset import record_of
from jaxfl.engine.grid import TUNED, Grid, lay_out, word
from jaxfl.engine.plan import KEPT, Options
from jaxfl.engine.progress import Plan, Progress, show
from jaxfl.engine.results import RESULT
from jaxfl.engine.runs import Record
from jaxfl.engine.session import Computed, How, check_names, computed
from jaxfl.engine.simulate import Run, base_key, longer, options_of, simulated
from jaxfl.engine.sweep import swept
from jaxfl.privacy.events import Kind
from jaxfl.views.bounds import bounds, possible
from jaxfl.views.plots import curves, draw
from jaxfl.views.selection import AUTO, CRITERIA, select
from jaxfl.views.tables import table

if TYPE_CHECKING:
    import xarray

__all__ = ["complete", "computing", "ended", "partial", "run"]

ROUNDS = 200


def run(name: str, words: Sequence[str]) -> int:
    """Compute what the words of a command ask for, and show it; returns the exit status."""
    study, session = parse(name, words)
    with Interrupts() as interrupts:
        if (continued := session.resume or session.extend) is not None:
            place, more = Path(continued), study
            study = folders.read(place, name)
            study = study if session.resume else larger(study, more, continued)
        checked(study, name, session.extend)
        _check_criterion(session.choose_by or AUTO, study)
        with computing(study.setup, session.quiet):
            made = _Grid(study)
            if not continued:
                study = made.study = complete(made) if name == "run" else _with_rounds(study)
                place = Path(session.out or _folder(name, study))
            try:
                found = _computed(name, made, place, session, interrupts)
            except InputError as error:
                if continued or session.force or not session.plan:
                    raise
                anew = dataclasses.replace(session, force=True)  # which --plan does not obey
                found = _computed(name, made, place, anew, interrupts)
                warn(JaxflWarning(*error.args, suggested=error.suggested, **error.values))
            except KeyboardInterrupt:
                kept, way = "; what is computed is saved", folders.again(name, place)
                begun = folders.begun(place) and not session.plan
                if session.extend and begun:
                    begun = folders.read(place, name).words == study.words
                words = f"{kept}: continue with {way}." if begun else " before anything was saved."
                raise KeyboardInterrupt(words) from None
    if found is None:
        return 0
    if isinstance(found, Run):
        _show_run(found, place, session)
        return REFUTED * (found.standing.kind == Kind.REFUTED)
    _show_sweep(found, place, session)
    return REFUTED * any(one["kind"] == Kind.REFUTED for one in results.config(found)["proofs"])


class _Planned(Exception):
    """Ends a call with --plan."""


def _computed(
    name: str, made: _Grid, place: Path, session: Session, interrupts: Interrupts
) -> Run | xarray.Dataset | None:
    """The result; None for a plan."""
    study, bar = made.study, Bar(quiet=session.quiet)
    continued = session.resume or session.extend
    fresh = session.plan and (session.force or not place.exists())
    if not continued and not fresh:
        folders.check_free(place, name)
        if session.force:
            made()  # what is wrong with it is found before anything is removed
            folders.cleared(place)
    if session.bound is not None:
        made.check_bound()
    begun = folders.begun(place) and not fresh

    with contextlib.ExitStack() as stack:
        write = stack.enter_context(folders.written(place, name, study))

        def announce(plan: Plan) -> None:
            interrupts.check()
            lines = str(plan).replace("eval_every", "--eval-every").split("\n")
            if name == "run" and not session.plan:
                lines = [head(made.algorithm, made.problem, made().studies[0].cells[0].rounds)]
                if not plan.left:
                    anew = "" if continued else "; --force computes it anew"
                    lines.append(f"{place} holds this run: nothing is left to compute{anew}")
            for line in lines if session.plan else lines[:2]:
                bar.say(line)
            if session.plan:
                if session.json:
                    print_json(plan._asdict())
                raise _Planned
            write()

        def update(now: Progress) -> None:
            interrupts.check()
            show(bar, now)

        executor = None
        if session.on is not None:
            executor = stack.enter_context(executors.read(session.on, session.slurm_option))
            bar.say(f"computing on {session.on}")
        how = How(
            None if fresh else place,
            # the same command again goes on; what was killed before it had a plan begins again
            resume=not continued and begun,
            extend=bool(continued) and begun,
            memory=session.memory,
            devices=made.devices() if executor is None else None,
            executor=executor,
            chunk_seconds=session.chunk_seconds,
            announce=announce,
            progress=update,
            callbacks=[] if session.track is None else [session.track],
            strict=session.strict,
        )
        stack.enter_context(bar)
        base = base_key(None, "", "", made.study.seeded)
        try:
            if name == "run":
                return simulated(made, base, made.options(KEPT), how)
            return swept(made, base, made.options(), how, made.study.fixed)
        except _Planned:
            return None


def partial(place: Path) -> xarray.Dataset:
    """The runs of an unfinished sweep that are there."""
    check_begun(place)
    made = _Grid(folders.read(place, "sweep"))
    with computing(made.study.setup, quiet=True):
        base, how = base_key(None, "", "", True), How(place, only=True)
        return swept(made, base, made.options(), how, made.study.fixed)


def ended(place: Path, where: Sequence[str] = ()) -> Record:
    """The run of a folder, or one of a setting of its sweep: nothing is computed or written there."""
    check_begun(place)
    name = "sweep" if folders.kind_of(place) == "sweep" else "run"
    made = _Grid(folders.read(place, name))
    require(name == "sweep" or not where, "--where is for sweeps", "leave it out")
    way = f"continue it with {folders.again(name, place)}"
    require((place / RESULT).exists(), lambda: f"The {name} of {place} has not ended", way)
    with computing(made.study.setup, quiet=True):
        base = base_key(None, "", "", made.study.seeded or name == "sweep")
        how = How(place, only=True)
        if name == "run":
            return simulated(made, base, made.options(KEPT), how)
        return _of_setting(place, computed(made, base, made.options(), how), where)


def _of_setting(place: Path, done: Computed, where: Sequence[str]) -> Record:
    """The run with the most rounds of the setting that ``where`` names; step sizes cost no privacy."""
    axes, found = done.planned.grid.axes, dict[Any, list[tuple[dict[str, str], Record]]]()
    wanted, names = dict(written.pair("--where", each) for each in where), [a.name for a in axes]
    every = (cell for number in done.found for cell in done.planned.program(number).cells)
    known = {*names, *itertools.chain.from_iterable(cell.values for cell in every)}
    for name in wanted.keys() - known:
        raise InputError(closest("axis or number of these settings named", name, names))
    for number, arrays in done.found.items():
        chunk, cells = done.planned.chunks[number], done.planned.program(number).cells
        for (j, c), i in itertools.product(enumerate(chunk.cells), range(len(chunk.seeds))):
            at = zip(axes, (*done.planned.study(chunk).place, *cells[c].place), strict=True)
            here = {axis.name: word(axis.labels[k]) for axis, k in at if k is not None}
            values = {name: word(value) for name, value in cells[c].values.items()}
            if all(word(value) == (values | here).get(name) for name, value in wanted.items()):
                fixed = tuple((n, v) for n, v in values.items() if n not in TUNED)
                run = record_of(done.planned, chunk, arrays, (i, j))
                study = done.planned.programs[chunk.program].study
                found.setdefault((study, fixed), []).append((here, run))
    none = f"No setting of {place} has {' and '.join(where)}"
    require(found, none, lambda: f"`jaxfl show {place}` lists them")
    first, *others = (own[0][0] for own in found.values())
    free = sorted(n for n in first.keys() - {*TUNED} if any(o.get(n) != first[n] for o in others))
    way = lambda: f"name one, as in --where {' '.join(f'{n}={first[n]}' for n in free)}"  # noqa: E731
    require(not others, lambda: f"{len(found)} settings of {place} are meant", way)
    return max((run for own in found.values() for _, run in own), key=lambda run: run.counted)


# --- what is computed ----------------------------------------------------------------------------


class _Grid:
    """The grid of a study, laid out when it is called for, once."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.grid: Grid | None = None

    @functools.cached_property
    def algorithm(self) -> Algorithm:
        """The algorithm of a single run."""
        return choose_algorithm(self.study.setup)

    @functools.cached_property
    def problem(self) -> Problem:
        """The problem, where there is one."""
        return choose_problem(self.study.setup)

    def options(self, keep: Sequence[str] = ()) -> Options:
        setup, paired = self.study.setup, self.study.paired
        how = (setup.metrics_on, setup.stop, paired, setup.noise, setup.matmul_precision)
        found = options_of(setup.eval_every, None, *how, keep)
        check_names(self.study.axes.keys() - {"algorithm"}, found)
        return found

    def __call__(self) -> Grid:
        setup, study = self.study.setup, self.study

        def build(**chosen: Any) -> Algorithm:
            return choose_algorithm(dataclasses.replace(setup, **chosen))

        def pose(**chosen: Any) -> Problem:
            return choose_problem(dataclasses.replace(setup, **chosen)) if chosen else self.problem

        if self.grid is None:
            grid = lay_out(
                self._with_parameters(build, "algorithm", "algorithm"),
                self._with_parameters(pose, "problem"),
                {name: tuple(values) for name, values in study.axes.items()},
                study.fixed,
                study.seeds,
                setup.noise,
                setup.metrics_on,
            )
            grid = _with_sources(grid, study.assumed)
            self.grid = grid if setup.until is None else longer(grid, setup.until)
        return self.grid

    def _with_parameters(self, f: Callable[..., Any], axis: str, *more: str) -> Callable[..., Any]:
        """``f`` with the axes on which it depends, in the signature that the engine reads."""

        def call(**chosen: Any) -> Any:
            return f(**chosen)

        table = options(Setup)
        names = (*more, *(n for n in self.study.axes if n in table and table[n].axis == axis))
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call

    def devices(self) -> Any:
        """The devices of the kind that is asked for; None: all."""
        import jax

        kind = self.study.setup.device
        return None if kind is None else jax.local_devices(backend=kind)

    def check_bound(self) -> None:
        """Raise unless a convergence bound can be drawn."""
        (study,) = self().studies
        (cell,) = study.cells
        sources = {name: str(source) for name, source in cell.sources.items()}
        made = study.algorithm
        possible(made.name, dict(made.parts), cell.values, cell.facts._asdict(), sources)


def _with_sources(grid: Grid, assumed: Mapping[str, str]) -> Grid:
    """The grid, where the sources of some values are these."""
    said = {name: Source.read(text) for name, text in assumed.items()}
    studies = [
        study._replace(cells=tuple(c._replace(sources={**c.sources, **said}) for c in study.cells))
        for study in grid.studies
    ]
    return grid._replace(studies=tuple(studies))


def complete(made: _Grid) -> Study:
    """A new run with its defaults: rounds, and the numbers of the demonstration.

    The theory's step size is safe, but too small to show any progress.
    """
    study = made.study
    demonstration = not study.algorithms
    if demonstration:
        study = made.study = dataclasses.replace(study, algorithms=[DEMO])
    algorithm, least = made.algorithm, int(made.problem.count.min())
    study = _with_rounds(study)
    numbers, assumed, body = dict(study.numbers), dict(study.assumed), algorithm.body
    if "rounds" in assumed and body is not None and body.estimator.sampler.single_pass:
        most = least // int(numbers.get("batch", [1])[0])
        if 0 < most < ROUNDS:  # the default is more than one pass
            numbers["rounds"], assumed["rounds"] = [most], "default: one pass"
    if demonstration:
        # in a longer run the noise is larger, and so the steps are smaller
        step = 0.6 * min(1.0, ROUNDS / (numbers["rounds"][0] or ROUNDS))
        fitted = {"lr": step, "batch": min(32, least)} | ({} if "k" in numbers else {"omega": 1.0})
        for name in (algorithm.names & fitted.keys()) - numbers.keys():
            numbers[name], assumed[name] = [fitted[name]], "demonstration"
    return dataclasses.replace(study, numbers=numbers, assumed=assumed)


def _with_rounds(study: Study) -> Study:
    if "rounds" in study.numbers:
        return study
    numbers, assumed = {**study.numbers, "rounds": [ROUNDS]}, {**study.assumed, "rounds": "default"}
    return dataclasses.replace(study, numbers=numbers, assumed=assumed)


def _check_criterion(text: str, study: Study) -> None:
    """Raise, before anything is computed, for a criterion by which nothing can be selected."""
    way, colon, name = text.rpartition(":")
    known("criterion named", name, {AUTO: "", **CRITERIA})
    shape = "must read min:NAME or max:NAME, or just NAME"
    test = "would select on the test data, which then no longer measure how well the choice generalises"
    other = "use a training metric, or --validation-share and --choose-by validation_accuracy"
    share = "set test examples aside, as in --validation-share 0.5"
    usable = study.setup.validation_share or not name.startswith("validation_")
    require(not colon or way in ("min", "max"), shape, choose_by=text)
    require(not name.startswith("test_"), test, other, choose_by=text)
    require(usable, "needs validation data", share, choose_by=text)


def _folder(name: str, study: Study) -> Path:
    """The default folder of the result."""
    data = [Path(str(one)).stem for one in study.options.get("data", [Setup().data])]
    names = [*study.algorithms, *data]
    if name == "run":
        return Path("results") / "-".join([*names, f"s{study.seeds[0]}"])
    return Path("results") / "-".join(["sweep", *names])[:100]


# --- what is shown -------------------------------------------------------------------------------


def _show_run(result: Run, place: Path, session: Session) -> None:
    """Draw a run, and print a summary."""
    ds, files = result.dataset(), [place / RESULT]
    if not session.no_plot:
        drawn = [] if session.bound is None else bounds(ds, session.bound or None)
        curves(ds, place / folders.CURVES, bounds=drawn)
        files.append(place / folders.CURVES)
    else:
        (place / folders.CURVES).unlink(missing_ok=True)  # it shows an earlier end
    if session.json:
        print_json(facts(ds, files))
    elif not session.quiet:
        summary(ds, files, claim=False)


def _show_sweep(ds: xarray.Dataset, place: Path, session: Session) -> None:
    """Draw the pictures, and print a table on standard output."""
    files, chosen = [place / RESULT], select(ds, session.choose_by or AUTO).ds
    if not session.no_plot:
        with Bar(quiet=session.quiet) as bar:
            bar.doing("drawing the pictures")
            files += draw(chosen, place / PICTURES, choose_by="none")
    if session.quiet:  # NaN must not be taken for a result
        _warn_of_divergence(ds)
    if session.json:
        print_json({**table(chosen).facts(), "files": files})
    elif not session.quiet:
        print_table(table(chosen))
        print_files(files, "file  ")


def _warn_of_divergence(ds: xarray.Dataset) -> None:
    """Print how many runs diverged, if any; a table names their cells."""
    at = ds["diverged_at"]
    if lost := int(at.count()):
        verb, first = "are" if lost > 1 else "is", f"the first by round {int(at.min())}"
        text = f"jaxfl: {lost} of {plural(at.size, 'run')} diverged, {first}, and {verb} NaN"
        print(f"{text} from there on; take a smaller --lr.", file=sys.stderr)


@contextlib.contextmanager
def computing(setup: Setup, quiet: bool = False) -> Iterator[None]:
    """Set the device and the precision of this call, and print its warnings at the end.

    With ``quiet`` only those of runs that diverged: NaN must not be taken for a result.
    """
    import jax

    with contextlib.ExitStack() as stack:
        stack.callback(_tell, stack.enter_context(warnings.catch_warnings(record=True)), quiet)
        warnings.simplefilter("always", JaxflWarning)
        if setup.device == "cpu" and not getattr(jax.config, "jax_platforms", None):
            # Before any device has started: no memory of a GPU may be taken.
            jax.config.update("jax_platforms", "cpu")
        if setup.device is not None:
            try:
                device = jax.devices(setup.device)[0]
            except RuntimeError:
                none = f"is not available: JAX finds only {jax.default_backend()}"
                way = "leave it out, or install JAX for that device"
                raise InputError(none, way, **{"--device": setup.device}) from None
            stack.enter_context(jax.default_device(device))
        if setup.dtype == "float64":
            stack.enter_context(jax.enable_x64(True))
        yield


def _tell(caught: Sequence[warnings.WarningMessage], quiet: bool) -> None:
    said = list[str]()
    for one in caught:
        if not isinstance(one.message, JaxflWarning):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)
        elif not quiet or isinstance(one.message, DivergedWarning):
            said.append(one.message.sentence(assigned, suggested))
    for text in dict.fromkeys(said):
        print(f"jaxfl: {text}", file=sys.stderr)
