#!/usr/bin/env python3
"""Count what the architecture of jaxfl promises, from the source alone.

    python .ci/house.py

Prints one line per promise and exits with 1 if one is broken. Imports inside functions and under
TYPE_CHECKING count like all others. docs/developing.md says why each promise is made.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jaxfl"
ROOMS = (  # each imports only from itself and from the rooms before it
    "core", "data", "problems", "privacy", "parts", "rounds",
    "algorithms", "engine", "audits", "testing", "views", "cli",
)  # fmt: skip
PARTS = (
    r"(estimator|mechanism|compressor|channel|server|participation|sampler|aggregation|local|body)"
)
MOST_AT_THE_TOP, MOST_RAISES = 4, 300
LONGEST, LONGER = 80, 0  # lines of a function, and the functions that have more
# Code lines as they were reached: rooms of the host side, which grow by a tenth at most, and tests.
SIZES = {"engine": 5085, "cli": 2156, "views": 2191}
MOST_TESTS = 32194


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> int:
    """The position of a module's room; -1 for the package itself."""
    name = [*module.split("."), ""][1]
    return ROOMS.index(name) if name in ROOMS else -1


def imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found = full if full in modules else node.module
                if found in modules:
                    yield found


def circles(graph: dict[str, set[str]]) -> set[str]:
    """Modules that import each other: what remains when leaves and roots are taken away again and again."""
    left = {module: set(targets) for module, targets in graph.items()}
    while True:
        targets = set().union(*left.values()) if left else set()
        ends = {m for m in left if not left[m] & left.keys() or m not in targets}
        if not ends:
            return set(left)
        left = {m: left[m] - ends for m in left if m not in ends}


def docstrings(tree: ast.AST) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def by_name(tree: ast.AST) -> Iterator[int]:
    """Lines that compare the name of a part."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if re.search(rf"{PARTS}\w*\.(name|law)$", ast.unparse(side)):
                    yield node.lineno


def late_imports(tree: ast.AST) -> Iterator[int]:
    """Lines inside functions that import from jaxfl."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxfl"):
                    yield node.lineno


def code_lines(path: Path, tree: ast.AST) -> int:
    """Lines without blanks, comments and docstrings."""
    skipped = docstrings(tree)
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    texts = ((number, line.strip()) for number, line in lines)
    return sum(bool(t) and not t.startswith("#") and n not in skipped for n, t in texts)


def long_functions(path: Path, tree: ast.AST) -> Iterator[str]:
    """Functions of too many lines, their docstrings left out."""
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if sum(line not in skipped for line in body) > LONGEST:
                yield f"{path.relative_to(ROOT)}:{node.name}"


def main() -> int:
    paths = sorted(PACKAGE.rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    modules = {module_of(path) for path in paths}
    graph = {module_of(p): set(imported(t, modules)) - {module_of(p)} for p, t in trees.items()}
    upward = {f"{a} -> {b}" for a in graph for b in graph[a] if -1 < room_of(a) < room_of(b)}
    named = [f"{p.relative_to(ROOT)}:{n}" for p, t in trees.items() for n in by_name(t)]
    late = [f"{p.relative_to(ROOT)}:{n}" for p, t in trees.items() for n in late_imports(t)]
    raises = sum(
        isinstance(node, ast.Raise) and "InputError" in ast.unparse(node)
        for tree in trees.values()
        for node in ast.walk(tree)
    )
    lines = {path: code_lines(path, tree) for path, tree in trees.items()}
    rooms = {
        room: sum(n for path, n in lines.items() if path.relative_to(PACKAGE).parts[0] == room)
        for room in SIZES
    }
    long = [place for path, tree in trees.items() for place in long_functions(path, tree)]
    tests = sum(
        len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / "tests").rglob("*.py")
    )
    top = [path.name for path in PACKAGE.glob("*.py")]
    within = circles(graph)
    checks = (
        ("files at the top of jaxfl/", len(top), MOST_AT_THE_TOP, top),
        ("modules in import circles", len(within), 0, sorted(within)),
        ("imports that run upward", len(upward), 0, sorted(upward)),
        ("comparisons of a part's name", len(named), 0, named),
        ("imports from jaxfl inside functions", len(late), 0, late),
        ("raise InputError", raises, MOST_RAISES, []),
        (f"functions of more than {LONGEST} lines", len(long), LONGER, long),
        *((f"code lines of {room}", rooms[room], most, []) for room, most in SIZES.items()),
        ("lines of tests", tests, MOST_TESTS, []),
    )
    for title, count, most, where in checks:
        print(f"{title:38} {count:6}  (at most {most})" + f": {where[:5]}" * (count > most))
    print(f"{'code lines of jaxfl/':38} {sum(lines.values()):6}")
    return int(any(count > most for _, count, most, _ in checks))


if __name__ == "__main__":
    sys.exit(main())
