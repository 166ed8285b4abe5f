"""Every algorithm as its record and its docstring describe it: ``algorithms.md``, and a page for each.

``python docs/algorithms.py`` writes the pages.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxfl.algorithms.registry import ALGORITHMS, PAPERS
from jaxfl.algorithms.resolution import resolve
from jaxfl.core.equations import equation_of, latex
from jaxfl.core.errors import InputError
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Param, ProblemFacts
from jaxfl.privacy.events import (
    NEIGHBOURS,
    OBSERVED,
    Event,
    Increments,
    LocalSteps,
    Mean,
    NoClaim,
    OnRing,
    Phases,
    Sampling,
    Sequence,
)

__all__ = ["FOLDER", "INDEX", "pages"]

INDEX = Path(__file__).with_name("algorithms.md")
FOLDER = Path(__file__).with_name("algorithms")
WRITTEN = "<!-- Written by `python docs/algorithms.py`; do not edit by hand. -->"
CLIENTS, RECORDS, SIZE, ROUNDS, SMOOTHNESS, DIAMETER = 10, 1000, 100, 100, 1.0, 10.0
ALONE = ("dp_gd", "dp_sgd", "dp_srm", "noisy_mu2", "rrpsgd")  # one node holds all data
SEVERAL = (  # of an algorithm that one node runs by default
    "- Several clients: each sends the estimate of its own draw, clipped and without noise, to a server "
    "that they trust. The server adds the noise once, to the mean of the n estimates, where a record "
    "weighs 1/n of that. Protected is a record from all who see the models, and not from the server."
)
OPTION = re.compile(r"--[a-z][a-z-]* \w+")  # of a command, with its value
QUIET = ("none", "plain_sum")  # parts that are not there
FIELD = "Who leads at which eps and budget of bits is measured: [the field](field.md#the-answer-in-words)."
DEFAULTS = (
    f"Defaults are those of n = {CLIENTS} clients with m = {RECORDS:,} records each, d = {SIZE} "
    f"parameters, T = {ROUNDS} rounds, smoothness L = {SMOOTHNESS:g} and, where the losses have to be "
    f"convex on a bounded set, its diameter {DIAMETER:g}; where one node holds all data, n = 1. *From* "
    "is where a default comes from; `jaxfl run NAME --help` prints it, and `run.sources` has it for a "
    "run's values.\n\n*Released* is what the privacy event says: what an adversary sees, how often, from "
    "which draws, and how much one record weighs in it. Accountants prove an eps from that alone. "
    "[All algorithms](../algorithms.md)"
)
SCHEMES = {
    "full": "all m records",
    "poisson": "a Poisson batch, every record with probability b/m",
    "without_replacement": "b of m records",
    "with_replacement": "b of m records, drawn with replacement",
    "shuffled": "shuffled epochs in batches of b",
    "cyclic": "batches of b in a fixed order",
    "single_pass": "b new records, each used once",
}


def pages() -> dict[Path, str]:
    """The text of each page, from what the folders of :mod:`jaxfl.algorithms` declare."""
    made = {make.__name__: Page(make) for paper in PAPERS for make in paper.algorithms}
    lines = [
        WRITTEN,
        "",
        "# Algorithms",
        "",
        f"{len(made)} algorithms, each with a page: its equation, citation and parts, what it releases, "
        "its hyper-parameters with defaults, and the command that runs it.",
        "",
        "## Which algorithm for which trust and budget",
        "",
        "Find the row of what an adversary may see and of whose data has to be protected. The fewer are "
        "trusted, the more noise the same eps takes.",
        "",
        *_choice(made),
        "",
        "*Compressed*: a message holds fewer bits than the model. *Local steps*: a client takes several "
        "steps between two messages. *Several clients*: one node holds all data of these by default; "
        "several clients send clipped means without noise to a server that they trust, which adds the "
        "noise. Another `compressor=` or `aggregation=` moves an algorithm to another "
        "column or row, where its parts allow that: its page names them, and `run.privacy()` says what is "
        "proven then.",
        "",
        FIELD,
    ]
    for paper in PAPERS:
        heads = ("algorithm", "what it is", "adversary sees", "protects", "compressor")
        lines += ["", f"## {paper.title}", "", *_table(heads, _rows(paper.algorithms, made))]
    out = {INDEX: "\n".join(lines) + "\n"}
    return out | {FOLDER / f"{name}.md": page.text() for name, page in made.items()}


def _choice(made: Mapping[str, Page]) -> list[str]:
    """Algorithms by what the adversary sees, what is protected, and how they spare bits."""
    places: dict[tuple[str, str, bool], list[list[str]]] = {}
    several = []  # of those that one node runs by default
    for name in ALONE:
        with contextlib.suppress(InputError):
            several.append((name, Page(made[name].make, CLIENTS), " (several clients)"))
    for name, page, how in [*((name, page, "") for name, page in made.items()), *several]:
        trust, unit = page.seen
        column = 2 if page.local else int(page.compressor != "–")
        row = places.setdefault((trust, unit, page.network), [[], [], []])
        both = " (compressed)" * (page.local and page.compressor != "–")
        row[column].append(f"[{name}](algorithms/{name}.md){both}{how}")
    order = [*OBSERVED, ""]
    ranked = sorted(places, key=lambda at: (order.index(at[0]), at[1] != "record", at[2]))
    rows = [
        (
            (OBSERVED[trust] if trust else "nothing is private") + ", without a server" * network,
            f"one {unit}" * bool(trust),
            *(", ".join(names) or "–" for names in places[trust, unit, network]),
        )
        for trust, unit, network in ranked
    ]
    heads = ("adversary sees", "protects", "whole messages", "compressed", "local steps")
    return _table(heads, rows)


def _rows(makes: tuple[Callable[..., Algorithm], ...], made: Mapping[str, Page]) -> list[Any]:
    out = []
    for name in (make.__name__ for make in makes):
        page = made[name]
        trust, unit = page.seen
        first = f'<a id="{name}"></a>[{name}](algorithms/{name}.md)'  # where older links lead
        sees = OBSERVED.get(trust, "not private")
        out.append((first, page.algorithm.summary, sees, unit or "–", page.compressor))
    return out


def _table(heads: tuple[str, ...], rows: list[Any]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return lines + [f"| {' | '.join(map(_cell, row))} |" for row in rows]


class Page:
    """An algorithm and its values on the problem of the defaults."""

    def __init__(self, make: Callable[..., Algorithm], clients: int | None = None) -> None:
        self.make, self.name, self.algorithm = make, make.__name__, make()
        n = clients or (1 if self.name in ALONE else CLIENTS)
        self.facts = ProblemFacts(
            n, RECORDS, RECORDS, SIZE, ROUNDS, SMOOTHNESS, (RECORDS,), DIAMETER, True, True
        )
        self.values, self.sources = resolve(self.algorithm, {}, self.facts)
        event = self.algorithm.event
        self.event = event(self.values, self.facts) if event else NoClaim("it has no event")
        self.parts = dict(self.algorithm.parts)
        self.network = "rule" in self.parts
        self.local = "local_steps" in self.values or self.parts.get("local", "").startswith("sgd")
        found = self.parts.get("compressor", "identity")
        self.compressor = "–" if found == "identity" else found

        first = self.event
        while isinstance(first, Phases | Sequence):
            first = first.events[0]
        self.seen, self.adjacency = ("", ""), ""  # trust and unit; empty where nothing is private
        if isinstance(first, Event):
            self.seen, self.adjacency = (first.trust, first.unit), str(first.adjacency)

    def text(self) -> str:
        algorithm, name = self.algorithm, self.name
        claim = algorithm.claim(self.values, self.facts)
        command = f"jaxfl run {name}" + " --clients 1" * (name in ALONE)
        parts = [f"{role} {what}" for role, what in algorithm.parts if what not in QUIET]
        about = f"{algorithm.summary}. *{algorithm.paper}.*"
        math = latex(equation_of(inspect.getdoc(self.make) or ""))
        lines = [WRITTEN, "", f"# {name}", "", about, "", "```math", math, "```", ""]
        for paragraph in _prose(self.make):
            lines += [paragraph, ""]
        lines += [f"- Parts: {', '.join(parts)}.", f"- Released: {_released(self.event)}"]
        trust, unit = self.seen
        if trust:
            lines += [f"- Protects {NEIGHBOURS[unit, self.adjacency]}."]
        if claim is not None:
            unsure = "" if claim.verified else " (constant not verified)"
            formula = ", ".join(f"${latex(part)}$" for part in claim.formula.split(", "))
            lines += [f"- Claimed: {formula} [{claim.source}]{unsure}."]
        if trust == "single_node":
            lines += [SEVERAL]
        lines += [f"- Command: `{command}`", "", "## Hyper-parameters and defaults", ""]
        heads = ("hyper-parameter", "meaning", "default", "from")
        lines += [*_table(heads, [self._row(param) for param in algorithm.params]), "", DEFAULTS]
        return "\n".join(lines) + "\n"

    def _row(self, param: Param) -> tuple[str, str, str, str]:
        value = self.values.get(param.name)
        shown = "" if value is None else _number(value)
        source = self.sources.get(param.name, "").replace("given", "not set: here T = 100")
        if param.name == "sigma" and source.startswith("calibrated"):
            source = "calibrated: the least that is proven for eps"
        doc = OPTION.sub(r"`\g<0>`", param.doc)
        return f"`{param.name}`", doc, shown, source


def _prose(make: Callable[..., Algorithm]) -> list[str]:
    """What the docstring says beside name and equation."""
    text = re.sub(r"::\n\n((?:[ ]+.*\n?|\n)+)", "\n\n", (inspect.getdoc(make) or "") + "\n")
    first, *rest = [" ".join(part.split()) for part in text.split("\n\n") if part.strip(": \n")]
    about = first.rstrip(":").partition(":")[2].strip()  # after the name
    rest = [about[0].upper() + about[1:].rstrip(".") + ".", *rest] if about else rest
    return [_markdown(part) for part in rest]


def _markdown(text: str) -> str:
    text = re.sub(r":[a-z]+:`([^`]+)`", _linked, text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def _linked(found: re.Match[str]) -> str:
    name = found[1]
    return f"[`{name}`]({name}.md)" if name in ALGORITHMS else f"`{name}`"


def _released(event: Any) -> str:
    if isinstance(event, NoClaim):
        return f"not private, {event.reason}."
    if isinstance(event, Phases):
        return (
            f"in {len(event.events)} phases on disjoint records, of which the worst counts. The first: "
            + _released(event.events[0])
        )
    if isinstance(event, Sequence):
        return " And ".join(_released(each) for each in event.events)
    assert isinstance(event, Event)
    drawn = _drawn(event.sampling) if event.unit == "record" else "all clients"
    if event.unit == "record" and event.sampling.m == 1:  # no draw protects
        drawn = "whatever records are drawn"
    whose = "" if event.unit == "record" else "; protected are all records of a client"
    times = f"{event.releases} times" if event.releases > 1 else "once"
    return f"{OBSERVED[event.trust]}, {times}, from {drawn}; {_weight(event)}{whose}."


def _drawn(sampling: Sampling) -> str:
    return f"{SCHEMES[sampling.scheme]} (b = {sampling.b:g}, m = {sampling.m:,})"


def _weight(event: Event) -> str:
    s = event.sensitivity
    if isinstance(s, LocalSteps):
        steps = f"{s.tau} noisy steps" if s.tau > 1 else "one noisy step"
        return f"{steps} of a client a round, with clipped gradients of mean weight 1/b"
    if isinstance(s, Increments):
        return "a record is used once and shifts every release from then on"
    if isinstance(s, OnRing):
        return "a client's rounded update is an integer vector of bounded norm"
    assert isinstance(s, Mean)
    if math.isfinite(s.whole) and event.unit == "record":
        return f"a record moves a message by up to {2 * s.whole:.3g}, be it drawn or not"
    if math.isfinite(s.whole):
        most = f"has norm at most {s.whole:.3g}, and so moves by at most {2 * s.whole:.3g}"
        return f"a message without its noise {most}"
    if event.unit == "client":
        return "a client's clipped update weighs 1/r"
    drawn = " + ".join(
        f"{c:g}/{letter}" for c, letter in ((s.over_b, "b"), (s.over_m, "m")) if c
    ).replace("+ -", "- ")
    other = f", and {s.undrawn:g}/m where it is not" if s.undrawn else ""
    hidden = "; what the clients remember is private too" if s.hidden else ""
    return f"the clipped gradient of a record weighs {drawn} where it is drawn{other}{hidden}"


def _number(value: Any) -> str:
    if isinstance(value, Schedule):
        return "schedule"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
