"""Every system of the four papers, and the command that runs it: the page ``systems.md``.

``python docs/systems.py > docs/systems.md`` writes the page.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from jaxfl.algorithms.registry import ALGORITHMS, PAPERS

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).with_name("systems.md")


def page() -> str:
    """The page, from what the papers' folders declare and the algorithms' own docstrings."""
    lines = [
        "<!-- Written by `python docs/systems.py`; do not edit by hand. -->",
        "",
        "# Every system of the four papers, and the command that runs it",
        "",
        "All of them run on the same data, models and clients, with the same evaluation and accounting.",
        "`jaxfl run NAME --help` lists the hyper-parameters of each, any of which `jaxfl sweep` varies.",
    ]
    for paper in PAPERS:
        if paper.systems:
            lines += ["", f"## {paper.title}", "", "| system | where | command |", "|---|---|---|"]
            lines += [f"| {s.name} | {s.where} | `{s.command}` |" for s in paper.systems]
    named = {s.algorithm for paper in PAPERS for s in paper.systems}
    lines += ["", "## Other algorithms", "", "| algorithm | what it is |", "|---|---|"]
    for name, make in ALGORITHMS.items():
        if name not in named:
            about = " ".join((inspect.getdoc(make) or "").split("\n\n")[0].split())
            lines.append(
                f"| `jaxfl run {name}` | {about.rstrip(':').replace('|', chr(92) + '|')} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
