"""Axes and cells: from the values of a grid to the hyper-parameters of every run.  Host side."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from jaxfl.algorithms.registry import PARTS, one_algorithm
from jaxfl.algorithms.resolution import resolve
from jaxfl.algorithms.standing import standing
from jaxfl.core.checks import one_problem
from jaxfl.core.errors import InputError, require, shown
from jaxfl.core.params import closest, number, reads, varies, whole
from jaxfl.core.schedules import Schedule, schedule
from jaxfl.core.types import Algorithm, Problem, ProblemFacts, Source
from jaxfl.privacy.events import Standing
from jaxfl.problems.facts import facts_of

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
    "with_rounds",
    "within",
    "word",
]

MOST = 100_000  # cells of a sweep, and seeds: the host resolves and reports each of them

Build: TypeAlias = str | Algorithm | Sequence[str | Algorithm] | Callable[..., Algorithm]
Problems: TypeAlias = Problem | Mapping[str, Problem] | Callable[..., Problem]


class Axis(NamedTuple):
    """One dimension of the grid; ``labels`` are its coordinates, numbers or texts."""

    name: str
    values: tuple[Any, ...]
    labels: tuple[Any, ...]
    static: bool  # each value has its own program
    posed: bool = False  # and its own problem, so that results are not comparable along the axis


class Cell(NamedTuple):
    """One setting of a study's hyper-parameters, for all seeds."""

    place: tuple[int | None, ...]  # along the axes of hyper-parameters; None: does not apply
    label: str  # the given values, in words that do not depend on the rest of the grid
    values: dict[str, Any]
    sources: dict[str, Source]
    facts: ProblemFacts
    given: Mapping[str, Any] = {}  # what is resolved, ``rounds`` left out


class Study(NamedTuple):
    """An algorithm on a problem, and its cells."""

    place: tuple[int, ...]  # along the static axes
    algorithm: Algorithm
    problem: Problem
    cells: tuple[Cell, ...]
    standing: Standing = Standing()  # what may be said of the privacy of its runs


class Grid(NamedTuple):
    """A grid: static axes, the algorithm's first, then hyper-parameters, then seeds."""

    static: tuple[Axis, ...]
    numbers: tuple[Axis, ...]
    seeds: tuple[int, ...]
    studies: tuple[Study, ...]

    @property
    def runs(self) -> int:
        return sum(len(study.cells) for study in self.studies) * len(self.seeds)


def lay_out(
    build: Build,
    axes: Mapping[str, Iterable[Any]],
    problem: Problems,
    rounds: int | None,
    seeds: int | Sequence[int],
    numbers: Mapping[str, Any],
    noise: str,
) -> Grid:
    """The grid with every cell resolved, including theory's defaults and calibrated noise."""
    given = {name: _values(name, values) for name, values in axes.items()}
    cells = math.prod(map(len, given.values()))
    way = "give fewer values, or divide them over several sweeps"
    require(cells <= MOST, lambda: f"The grid has {cells:,} cells, and the most are {MOST:,}", way)
    for name in given.keys() & {"seed", "seeds", "round"}:
        raise InputError(f"The grid has an axis {name!r}", "seeds are given as seeds=, rounds run")
    fixed = {**numbers, **({} if rounds is None else {"rounds": rounds})}
    for name in sorted(given.keys() & fixed.keys()):
        raise InputError("is fixed, and an axis too", "give it once", **{name: fixed[name]})
    parts = {name: value for name, value in numbers.items() if name in PARTS}
    numbers = {name: value for name, value in numbers.items() if name not in PARTS}
    numbers = {name: schedule(value) if varies(value) else value for name, value in numbers.items()}
    make, asked = _maker(build, given, parts)
    pose, asked_too = _poser(problem, given)
    taken = asked | asked_too
    static = [_static(n, given[n], n in asked_too) for n in given if n in taken]
    spanned = [_numbers(name, values) for name, values in given.items() if name not in taken]
    static.sort(key=lambda axis: axis.name != "algorithm")

    combined = []
    for place in itertools.product(*(range(len(axis.values)) for axis in static)):
        chosen = {axis.name: axis.values[i] for axis, i in zip(static, place, strict=True)}
        combined.append((place, make(chosen), pose(chosen), chosen))
    if not static or static[0].name != "algorithm":
        names = tuple(dict.fromkeys(algorithm.name for _, algorithm, *_ in combined))
        require(
            len(names) <= 1,
            lambda: f"build makes {', '.join(names)}",
            "let it take `algorithm`, and span that axis",
        )
        static.insert(0, Axis("algorithm", names, names, True))
        combined = [((0, *place), made, posed, chosen) for place, made, posed, chosen in combined]
    _known(spanned, numbers, [algorithm for _, algorithm, *_ in combined])

    facts = functools.cache(lambda i: facts_of(combined[i][2], None))
    first = {id(posed): i for i, (_, _, posed, _) in reversed(list(enumerate(combined)))}
    studies = [
        Study(
            place,
            algorithm,
            posed,
            tuple(
                _cells(algorithm, chosen, spanned, facts(first[id(posed)]), rounds, numbers, noise)
            ),
            standing(algorithm, posed),
        )
        for place, algorithm, posed, chosen in combined
    ]
    return Grid(tuple(static), tuple(spanned), seeds_of(seeds), tuple(studies))


def _cells(
    algorithm: Algorithm,
    chosen: Mapping[str, Any],
    spanned: Sequence[Axis],
    facts: ProblemFacts,
    rounds: int | None,
    fixed: Mapping[str, Any],
    noise: str,
) -> Any:
    mine = algorithm.names | {"rounds"}
    fixed = {name: value for name, value in fixed.items() if name in mine}
    spans = [range(len(axis.values)) if axis.name in mine else (None,) for axis in spanned]
    for place in itertools.product(*spans):
        here = [(axis, i) for axis, i in zip(spanned, place, strict=True) if i is not None]
        given = {**fixed, **{axis.name: axis.values[i] for axis, i in here}}
        named = {**chosen, **given}
        label = "|".join(
            f"{name}={word(named[name])}" for name in sorted(named.keys() - {"algorithm"})
        )
        T = given.pop("rounds", rounds)
        try:
            values, sources = resolve(algorithm, given, facts._replace(rounds=T), noise)
        except InputError as error:
            words = label.replace("|", ", ") or "its defaults"
            raise error.within(f"{algorithm.name} with {words}") from None
        there = facts._replace(rounds=int(values["rounds"]))
        yield Cell(place, label, values, sources, there, given)


def with_rounds(study: Study, cell: Cell, rounds: int, noise: str) -> Cell:
    """The cell with another number of rounds."""
    facts = cell.facts._replace(rounds=rounds)
    values, sources = resolve(study.algorithm, cell.given, facts, noise)
    return cell._replace(values=values, sources=sources, facts=facts)


def within(grid: Grid, labels: Mapping[str, Sequence[Any]]) -> list[tuple[int, list[int]]]:
    """Positions of studies and of their cells at these labels of all axes, in the order of ``labels``."""
    studies = {study.place: i for i, study in enumerate(grid.studies)}
    found = []
    for place in _places(grid.static, labels, [True] * len(grid.static)):
        cells = grid.studies[studies[place]].cells
        places = {cell.place: j for j, cell in enumerate(cells)}
        applies = [i is not None for i in cells[0].place]
        mine = [places[here] for here in _places(grid.numbers, labels, applies)]
        found.append((studies[place], mine))
    return found


def _places(
    axes: Sequence[Axis], labels: Mapping[str, Sequence[Any]], applies: Sequence[bool]
) -> Iterator[Any]:
    order = [name for name in labels if any(axis.name == name for axis in axes)]
    spans = []
    for axis, applied in zip(axes, applies, strict=True):
        words = [word(label) for label in axis.labels]
        spans.append([words.index(word(w)) for w in labels[axis.name]] if applied else [None])
    ranks = [order.index(axis.name) for axis in axes]
    by_order = [span for _, span in sorted(zip(ranks, spans, strict=True), key=lambda p: p[0])]
    for place in itertools.product(*by_order):
        yield tuple(place[rank] for rank in ranks)


# --- static axes --------------------------------------------------------------------------------


def _maker(
    build: Build, given: dict[str, tuple[Any, ...]], parts: dict[str, Any]
) -> tuple[Callable[[dict[str, Any]], Algorithm], set[str]]:
    """A function from the static values to the algorithm, and the static axes that it takes."""
    if isinstance(build, str | Algorithm) or not callable(build):
        _single("algorithm", given, "build")
        one = isinstance(build, str | Algorithm)
        listed: list[Any] = [build] if one else [*build] if isinstance(build, Iterable) else []
        require(
            listed and all(isinstance(a, str | Algorithm) for a in listed),
            "must be algorithms, their names, or a function",
            build=build,
        )
        roles = PARTS & given.keys()
        if roles:  # parts are axes of the algorithms that are named
            given["algorithm"] = _values("algorithm", listed)

            def named(chosen: dict[str, Any]) -> Algorithm:
                exchanged = {role: chosen[role] for role in roles}
                return one_algorithm(chosen["algorithm"], {**parts, **exchanged})

            return named, {"algorithm", *roles}
        made = [one_algorithm(a, {**parts}) for a in listed]
        given["algorithm"] = _values("algorithm", made)
        return (lambda chosen: chosen["algorithm"]), {"algorithm"}
    require(not parts, "belongs to algorithms by name", "let build make it", **parts)
    takes = _takes(build, given)
    called = _once(build, takes)

    def make(chosen: dict[str, Any]) -> Algorithm:
        made = called(chosen)
        named = isinstance(made, str | Algorithm)
        require(named, lambda: f"build must return an algorithm, and returned {shown(made)}")
        return one_algorithm(made)

    return make, takes


def _single(axis: str, given: Mapping[str, Any], argument: str) -> None:
    require(
        axis not in given,
        lambda: f"The grid has an axis {axis!r}, and {argument}= names several",
        "drop it",
    )


def _poser(
    problem: Problems, given: dict[str, tuple[Any, ...]]
) -> tuple[Callable[[dict[str, Any]], Problem], set[str]]:
    if isinstance(problem, Problem):
        one_problem(problem)
        return (lambda chosen: problem), set()
    if isinstance(problem, Mapping):
        _single("problem", given, "problem")
        given["problem"] = _values("problem", [*problem])
        for one in problem.values():
            one_problem(one)
        return (lambda chosen: problem[chosen["problem"]]), {"problem"}
    require(callable(problem), "must be a Problem, several by name, or a function", problem=problem)
    takes = _takes(problem, given)
    called = _once(problem, takes)
    return (lambda chosen: one_problem(called(chosen))), takes


def _once(f: Callable[..., Any], takes: set[str]) -> Callable[[dict[str, Any]], Any]:
    """``f`` of the static values that it takes, called once for each combination."""
    made: dict[tuple[str, ...], Any] = {}

    def call(chosen: dict[str, Any]) -> Any:
        mine = {name: value for name, value in chosen.items() if name in takes}
        key = tuple(map(word, mine.values()))
        if key not in made:
            made[key] = f(**mine)
        return made[key]

    return call


def _takes(f: Callable[..., Any], given: Mapping[str, tuple[Any, ...]]) -> set[str]:
    """The axes that ``f`` takes by name; with ``**`` all that are not numeric."""
    parameters = inspect.signature(f).parameters
    out = {name for name in given if name in parameters}
    for name, p in parameters.items():
        optional = p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if name not in given and not optional:
            raise InputError(f"{word(f)} asks for {name}", "give the grid an axis of that name")
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        out |= {name for name in given if not all(map(_is_number, given[name]))}
    return out


def _known(spanned: list[Axis], fixed: Mapping[str, Any], algorithms: list[Algorithm]) -> None:
    everything = {param.name for a in algorithms for param in a.params} | {"rounds"}
    for name in [*(axis.name for axis in spanned), *fixed]:
        if name not in everything:
            whose = " or ".join(dict.fromkeys(a.name for a in algorithms))
            raise InputError(closest(f"hyper-parameter of {whose} named", name, everything))


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
        own = "give it once, or a name of its own, as with jaxfl.schedule(f, 'name')"
        require(times == 1, lambda: f"The axis {name} has {text} twice", own)
    return out


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (
        isinstance(value, Schedule) or (isinstance(value, str) and ":" in value)
    )


def word(value: Any) -> str:
    """One value in words; parts are given by their names."""
    if isinstance(value, int | float):
        return f"{float(value):.12g}"
    for attribute in ("name", "label", "__name__"):
        value = getattr(value, attribute, value)
    return str(value)


def _static(name: str, values: tuple[Any, ...], posed: bool) -> Axis:
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    labels = tuple(map(float, values)) if numeric else tuple(map(word, values))
    return Axis(name, values, labels, True, posed)


def _numbers(name: str, values: tuple[Any, ...]) -> Axis:
    read: list[Any] = []
    for value in values:
        if (isinstance(value, str) and not reads(value)) or callable(value):
            read.append(schedule(value, word(value)))
        elif name == "rounds":
            read.append(whole(name, value, 1))
        elif isinstance(value, Schedule):
            read.append(value)
        else:
            number(name, value)
            read.append(value)
    plain = not any(isinstance(value, Schedule) for value in read)
    labels = tuple(map(float, read)) if plain else tuple(map(word, read))
    return Axis(name, tuple(read), labels, False)


def seeds_of(seeds: int | Sequence[int]) -> tuple[int, ...]:
    try:
        if isinstance(seeds, bool):
            raise TypeError
        some: Any = seeds
        some = range(operator.index(some)) if hasattr(seeds, "__index__") else some
        listed = tuple(itertools.islice(some, MOST + 1))
        out = tuple(int(seed) for seed in listed)
        if any(seed != given for seed, given in zip(out, listed, strict=True)):
            raise ValueError
    except (TypeError, ValueError):
        raise InputError("must be a number of seeds, or a list", seeds=seeds) from None
    require(len(out) <= MOST, lambda: f"are more than {MOST:,}", "take fewer", seeds=seeds)
    different = out and min(out) >= 0 and max(out) < 2**31 and len(set(out)) == len(out)
    require(different, "must hold different whole numbers from 0 on", seeds=seeds)
    return out


TUNED = ("lr", "shift")  # axes that one tries out rather than studies
