"""Axes and cells: from the values of a grid to the hyper-parameters of every run.  Host side."""

from __future__ import annotations

import inspect
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from jaxfl.algorithms.probes import probed
from jaxfl.algorithms.registry import PARTS, one_algorithm
from jaxfl.algorithms.resolution import resolve
from jaxfl.algorithms.trial import tried
from jaxfl.core.checks import one_problem
from jaxfl.core.errors import InputError, require, shown, within
from jaxfl.core.params import number, reads, unknown, varies, whole
from jaxfl.core.schedules import Schedule, schedule
from jaxfl.core.types import Algorithm, Problem, ProblemFacts, Source
from jaxfl.data.samples import measured
from jaxfl.engine.stopping import PROTECTED
from jaxfl.privacy.events import Standing
from jaxfl.problems.facts import facts_of
from jaxfl.problems.problem import held_out

__all__ = [
    "TUNED",
    "Axis",
    "Build",
    "Cell",
    "Grid",
    "Problems",
    "Study",
    "lay_out",
    "seeds_of",
    "spans",
    "word",
]

TUNED = ("lr", "shift")  # axes that one tries out rather than studies
MOST = 100_000  # cells of a sweep, and seeds: the host resolves and reports each of them

Build: TypeAlias = str | Algorithm | Sequence[str | Algorithm] | Callable[..., Algorithm]
Problems: TypeAlias = Problem | Mapping[str, Problem] | Callable[..., Problem]


class Axis(NamedTuple):
    """One dimension of the grid; ``labels`` are its coordinates, numbers or texts."""

    name: str
    values: tuple[Any, ...]
    labels: tuple[Any, ...]
    static: bool  # each value has its own program
    posed: bool = False  # and its own problem: results are not comparable along the axis


class Cell(NamedTuple):
    """One setting of a study's hyper-parameters, for all seeds."""

    place: tuple[int | None, ...]  # along the axes of hyper-parameters; None: does not apply
    label: str  # the given values, in words that do not depend on the rest of the grid
    values: dict[str, Any]
    sources: dict[str, Source]
    facts: ProblemFacts  # ``facts.rounds``: for which the run was planned when it began
    rounds: int  # to compute
    given: Mapping[str, Any] = {}  # what is resolved, ``rounds`` left out


class Study(NamedTuple):
    """An algorithm on a problem, and its cells."""

    place: tuple[int, ...]  # along the static axes
    algorithm: Algorithm
    problem: Problem
    measured: Problem  # as rounds read it [:func:`jaxfl.data.samples.measured`]
    held: Problem | None  # on which metrics are taken, where that is another
    cells: tuple[Cell, ...]
    standing: Standing  # what may be said of the privacy of its runs


class Grid(NamedTuple):
    """A grid: static axes, the algorithm's first, then hyper-parameters, then seeds."""

    static: tuple[Axis, ...]
    numbers: tuple[Axis, ...]
    seeds: tuple[int, ...]
    studies: tuple[Study, ...]

    @property
    def runs(self) -> int:
        return sum(len(study.cells) for study in self.studies) * len(self.seeds)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*self.static, *self.numbers)


def spans(given: Mapping[str, Any]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """Divide keywords into axes, which are lists of values, and values for all runs."""
    axes = {name: _values(name, value) for name, value in given.items() if _is_axis(value)}
    return axes, {name: value for name, value in given.items() if name not in axes}


def _is_axis(value: Any) -> bool:
    """Lists, tuples, ranges, iterators, and arrays of one axis; parts are named tuples."""
    if isinstance(value, list | range | Iterator | set | frozenset) or type(value) is tuple:
        return True
    return hasattr(value, "dtype") and getattr(value, "ndim", 0) > 0


def lay_out(
    build: Build,
    problem: Problems,
    axes: Mapping[str, tuple[Any, ...]],
    numbers: Mapping[str, Any],
    seeds: int | Sequence[int],
    noise: str,
    metrics_on: str,
    call: Callable[..., Any] | None = None,
) -> Grid:
    """The grid with every cell resolved, including theory's defaults and calibrated noise.

    Errors about names may mean the options of ``call``.
    """
    given, numbers = dict(axes), dict(numbers)
    cells = math.prod(map(len, given.values()))
    way = "give fewer values, or divide them over several sweeps"
    require(cells <= MOST, lambda: f"The grid has {cells:,} cells, and the most are {MOST:,}", way)
    for name in given.keys() & {"seed", "round"}:
        raise InputError(f"{name!r} is no axis of a grid", f"give {name}s= instead")
    parts = {name: numbers.pop(name) for name in [*numbers] if name in PARTS}
    make, taken = _maker(build, given, parts)
    pose, posing = _poser(problem, given)
    static = [
        Axis(name, values, _labels(values), True, name in posing)
        for name, values in given.items()
        if name in taken | posing
    ]
    left = {name: values for name, values in given.items() if name not in taken | posing}
    static.sort(key=lambda axis: axis.name != "algorithm")
    combined = []
    for place in itertools.product(*(range(len(axis.values)) for axis in static)):
        chosen = {axis.name: axis.values[i] for axis, i in zip(static, place, strict=True)}
        combined.append((place, make(chosen), pose(chosen), chosen))
    algorithms = [algorithm for _, algorithm, *_ in combined]
    names = tuple(dict.fromkeys(algorithm.name for algorithm in algorithms))
    if not static or static[0].name != "algorithm":
        made = f"build makes {', '.join(names)}"
        require(len(names) <= 1, made, "let it take `algorithm`, and span that axis")
        static.insert(0, Axis("algorithm", names, names, True))
        combined = [((0, *place), *rest) for place, *rest in combined]
    everything = {param.name for a in algorithms for param in a.params} | {"rounds"}
    for name in (*left, *numbers):
        if name not in everything:
            kind = f"hyper-parameter of {' or '.join(names)} named"
            raise InputError(unknown(kind, name, everything, call))
    left = {name: tuple(_number(name, value) for value in left[name]) for name in left}
    spanned = [Axis(name, values, _labels(values), False) for name, values in left.items()]
    numbers = {name: schedule(value) if varies(value) else value for name, value in numbers.items()}
    known: dict[int, tuple[ProblemFacts, Problem, Problem | None]] = {}
    studies = []
    for place, algorithm, posed, chosen in combined:
        if id(posed) not in known:
            held = None if metrics_on == PROTECTED else held_out(posed, metrics_on)
            known[id(posed)] = facts_of(posed, None), measured(posed), held
        facts, read, held = known[id(posed)]
        cells_of = tuple(_cells(algorithm, chosen, spanned, facts, numbers, noise))
        tried(algorithm, read, cells_of[0].values, cells_of[0].facts)
        proof = probed(algorithm, posed, [cell.values for cell in cells_of], facts.d)
        studies.append(Study(place, algorithm, posed, read, held, cells_of, proof))
    return Grid(tuple(static), tuple(spanned), seeds_of(seeds), tuple(studies))


def _cells(
    algorithm: Algorithm,
    chosen: Mapping[str, Any],
    spanned: Sequence[Axis],
    facts: ProblemFacts,
    fixed: Mapping[str, Any],
    noise: str,
) -> Iterator[Cell]:
    mine = algorithm.names | {"rounds"}
    fixed = {name: value for name, value in fixed.items() if name in mine}
    spans = [range(len(axis.values)) if axis.name in mine else (None,) for axis in spanned]
    unsaid = {"algorithm", "rounds"} - ({"rounds"} & {axis.name for axis in spanned})
    for place in itertools.product(*spans):
        here = [(axis, i) for axis, i in zip(spanned, place, strict=True) if i is not None]
        given = {**fixed, **{axis.name: axis.values[i] for axis, i in here}}
        named = {**chosen, **given}
        # what is given, in words that do not depend on the rest of the grid
        label = "|".join(f"{name}={word(named[name])}" for name in sorted(named.keys() - unsaid))
        T = given.pop("rounds", None)
        words = label.replace("|", ", ") or "its defaults"
        with within(f"{algorithm.name} with {words}" if spanned else ""):
            values, sources = resolve(algorithm, given, facts._replace(rounds=T), noise)
        rounds = int(values["rounds"])
        there = facts._replace(rounds=rounds)
        yield Cell(place, label, values, sources, there, rounds, given)


# --- static axes --------------------------------------------------------------------------------


Make: TypeAlias = Callable[[Mapping[str, Any]], Any]  # of the values on static axes


def _maker(
    build: Build, given: dict[str, tuple[Any, ...]], parts: dict[str, Any]
) -> tuple[Make, set[str]]:
    """A function from the static values to the algorithm, and the static axes that it takes."""
    if callable(build) and not isinstance(build, str | Algorithm):
        require(not parts, "belongs to algorithms by name", "let build make it", **parts)

        def checked(made: Any) -> Algorithm:
            named = isinstance(made, str | Algorithm)
            require(named, lambda: f"build must return an algorithm, and returned {shown(made)}")
            return one_algorithm(made)

        return _once(build, given, checked)
    one = isinstance(build, str | Algorithm)
    listed: list[Any] = [build] if one else [*build] if isinstance(build, Iterable) else []
    require(
        listed and all(isinstance(a, str | Algorithm) for a in listed),
        "must be algorithms, their names, or a function",
        algorithm=build,
    )
    roles = PARTS & given.keys()  # parts are axes of the algorithms that are named
    if not roles:
        listed = [one_algorithm(a, {**parts}) for a in listed]
    _name_axis("algorithm", listed, given)

    def make(chosen: Mapping[str, Any]) -> Algorithm:
        exchanged = {**parts, **{role: chosen[role] for role in roles}} if roles else {}
        return one_algorithm(chosen["algorithm"], exchanged)

    return make, {"algorithm", *roles}


def _poser(problem: Problems, given: dict[str, tuple[Any, ...]]) -> tuple[Make, set[str]]:
    """A function from the static values to the problem, and the static axes that it takes."""
    if isinstance(problem, Mapping):
        named = {}
        for name, one in problem.items():
            axis = "problems by name are a mapping to Problems, and axes are keywords, as in lr=[0.1, 0.3]"
            require(not _is_axis(one), axis, problem=problem)
            named[name] = one_problem(one)
        _name_axis("problem", [*named], given)
        return (lambda chosen: named[chosen["problem"]]), {"problem"}
    if isinstance(problem, Problem):
        placed = one_problem(problem)
        return (lambda chosen: placed), set()
    require(callable(problem), "must be a Problem, several by name, or a function", problem=problem)
    return _once(problem, given, one_problem)


def _name_axis(name: str, values: list[Any], given: dict[str, tuple[Any, ...]]) -> None:
    several = f"The grid has an axis {name!r}, and {name}= names several"
    require(name not in given, several, "drop it")
    given[name] = _values(name, values)


def _once(
    f: Callable[..., Any], given: Mapping[str, tuple[Any, ...]], check: Callable[[Any], Any]
) -> tuple[Make, set[str]]:
    """``f`` of static values, called once for each combination of those that it takes, and these axes.

    With ``**`` it takes all axes that are not numeric.
    """
    made: dict[tuple[str, ...], Any] = {}
    parameters = inspect.signature(f).parameters
    takes = {name for name in given if name in parameters}
    for name, p in parameters.items():
        optional = p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if name not in given and not optional:
            raise InputError(f"{word(f)} asks for {name}", "give the grid an axis of that name")
        if p.kind is p.VAR_KEYWORD:
            takes |= {name for name in given if not all(map(_is_number, given[name]))}

    def call(chosen: Mapping[str, Any]) -> Any:
        mine = {name: value for name, value in chosen.items() if name in takes}
        key = tuple(map(word, mine.values()))
        if key not in made:
            made[key] = check(f(**mine))
        return made[key]

    return call, takes


# --- values and their labels ---------------------------------------------------------------------


def _values(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    line = hasattr(values, "__iter__") and getattr(values, "ndim", 1) == 1
    line = line and not isinstance(values, str)
    require(line, "must be a list of values, since it is an axis", **{name: values})
    some = itertools.islice(values, MOST + 1)
    out = tuple(v.item() if getattr(v, "ndim", None) == 0 else v for v in some)
    require(
        len(out) <= MOST, lambda: f"The axis {name} has more than {MOST:,} values", "give fewer"
    )
    require(out, lambda: f"The axis {name} has no values", "give at least one, or leave it out")
    for text, times in Counter(map(word, out)).items():
        own = "give it once, or a name of its own, as with jaxfl.parts.schedule(f, 'name')"
        require(times == 1, lambda: f"The axis {name} has {text} twice", own)
    return out


def _is_number(value: Any) -> bool:
    text = isinstance(value, str) and ":" in value
    return text or isinstance(value, int | float | Schedule)


def word(value: Any) -> str:
    """One value in words; parts are given by their names."""
    if isinstance(value, int | float):
        return f"{float(value):.12g}"
    for attribute in ("name", "label", "__name__"):
        value = getattr(value, attribute, value)
    return str(value)


def _labels(values: tuple[Any, ...]) -> tuple[Any, ...]:
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return tuple(map(float if numeric else word, values))


def _number(name: str, value: Any) -> Any:
    """A value of a hyper-parameter on its axis."""
    if (isinstance(value, str) and not reads(value)) or callable(value):
        return schedule(value, word(value))
    if name == "rounds":
        return whole(name, value, 1)
    if not isinstance(value, Schedule):
        number(name, value)
    return value


def seeds_of(seeds: int | Sequence[int]) -> tuple[int, ...]:
    if not isinstance(seeds, Iterable):
        return tuple(range(whole("seeds", seeds, 1, MOST)))
    try:
        out = tuple(map(operator.index, itertools.islice(seeds, MOST + 1)))
    except TypeError:
        raise InputError("must be a number of seeds, or a list", seeds=seeds) from None
    require(len(out) <= MOST, lambda: f"are more than {MOST:,}", "take fewer", seeds=seeds)
    different = out and min(out) >= 0 and max(out) < 2**31 and len(set(out)) == len(out)
    require(different, "must hold different whole numbers from 0 on", seeds=seeds)
    return out
