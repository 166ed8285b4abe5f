"""Every algorithm as its record and its docstring describe it: the page ``algorithms.md``.

``python docs/algorithms.py > docs/algorithms.md`` writes the page.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxfl.algorithms.registry import PAPERS
from jaxfl.algorithms.resolution import resolve
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, ProblemFacts
from jaxfl.privacy.events import (
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

__all__ = ["PAGE", "equation", "page"]

PAGE = Path(__file__).with_name("algorithms.md")
CLIENTS, RECORDS, SIZE, ROUNDS, SMOOTHNESS, DIAMETER = 10, 1000, 100, 100, 1.0, 10.0
ALONE = ("dp_gd", "dp_sgd", "dp_srm", "noisy_mu2", "rrpsgd")  # one node holds all data
QUIET = ("none", "plain_sum")  # parts that are not there
SCHEMES = {
    "full": "all m records",
    "poisson": "a Poisson batch, every record with probability b/m",
    "without_replacement": "b of m records",
    "with_replacement": "b of m records, drawn with replacement",
    "shuffled": "shuffled epochs in batches of b",
    "cyclic": "batches of b in a fixed order",
    "single_pass": "b new records, each used once",
}


def page() -> str:
    """The page, from what the folders of :mod:`jaxfl.algorithms` declare."""
    lines = [
        "<!-- Written by `python docs/algorithms.py`; do not edit by hand. -->",
        "",
        "# Algorithms",
        "",
        f"Defaults are those of n = {CLIENTS} clients with m = {RECORDS:,} records each, d = {SIZE} "
        f"parameters, T = {ROUNDS} rounds, smoothness L = {SMOOTHNESS:g} and, where the losses have to "
        f"be convex on a bounded set, its diameter {DIAMETER:g}; where one node holds all data, n = 1. "
        "Beside each is where it comes from. `jaxfl run NAME --help` prints defaults and their sources, "
        "and `run.sources` has the sources of a run's values.",
        "",
        "*Released* is what the privacy event says: what an adversary sees, how often, from which "
        "draws, and how much one record weighs in it. Accountants prove an eps from that alone.",
    ]
    for paper in PAPERS:
        lines += ["", f"## {paper.title}"]
        for make in paper.algorithms:
            lines += ["", *_entry(make.__name__, make)]
    return "\n".join(lines) + "\n"


def equation(make: Callable[..., Algorithm]) -> str:
    """The first literal block of the docstring."""
    found = re.search(r"::\n\n((?:[ ]+.*\n?|\n)+)", inspect.getdoc(make) or "")
    return inspect.cleandoc("\n" + found[1]).rstrip() if found else ""


def _entry(name: str, make: Callable[..., Algorithm]) -> list[str]:
    algorithm = make()
    n = 1 if name in ALONE else CLIENTS
    facts = ProblemFacts(
        n, RECORDS, RECORDS, SIZE, ROUNDS, SMOOTHNESS, (RECORDS,), DIAMETER, True, True
    )
    values, sources = resolve(algorithm, {}, facts)
    event = algorithm.event(values, facts) if algorithm.event else NoClaim("it has no event")
    claim = algorithm.claim(values, facts)
    command = f"jaxfl run {name}" + " --clients 1" * (name in ALONE)
    parts = [f"{role} {what}" for role, what in algorithm.parts if what not in QUIET]
    lines = [f"### {name}", "", f"{algorithm.summary}. *{algorithm.paper}.*", "", "```text"]
    lines += [*equation(make).split("\n"), "```", ""]
    for paragraph in _prose(make):
        lines += [paragraph, ""]
    lines += [f"- Parts: {', '.join(parts)}.", f"- Released: {_released(event)}"]
    if claim is not None:
        unsure = "" if claim.verified else " (constant not verified)"
        lines += [f"- Claimed: `{claim.formula}` [{claim.source}]{unsure}."]
    lines += [f"- Command: `{command}`", ""]
    lines += ["| hyper-parameter | meaning | default | from |", "|---|---|---|---|"]
    for param in algorithm.params:
        value = values.get(param.name)
        shown = "" if value is None else _number(value)
        source = sources.get(param.name, "").replace("given", "not set: here T = 100")
        if param.name == "sigma" and source.startswith("calibrated"):
            source = "calibrated: the least that is proven for eps"
        lines += [f"| `{param.name}` | {_cell(param.doc)} | {shown} | {_cell(source)} |"]
    return lines


def _prose(make: Callable[..., Algorithm]) -> list[str]:
    """What the docstring says beside name and equation."""
    text = re.sub(r"::\n\n((?:[ ]+.*\n?|\n)+)", "\n\n", (inspect.getdoc(make) or "") + "\n")
    first, *rest = [" ".join(part.split()) for part in text.split("\n\n") if part.strip(": \n")]
    about = first.rstrip(":").partition(":")[2].strip()  # after the name
    rest = [about[0].upper() + about[1:].rstrip(".") + ".", *rest] if about else rest
    return [_markdown(part) for part in rest]


def _markdown(text: str) -> str:
    text = re.sub(r":[a-z]+:`([^`]+)`", r"`\1`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)


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
    print(page(), end="")
