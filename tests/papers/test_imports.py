"""Published figures use what the reference lists as public, and know nothing of each other."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import papers
import pytest
from scripts import ROOT

pytestmark = pytest.mark.once

FILES = [
    file
    for name in ("field", "outside", "papers")
    for file in (
        ROOT / f"benchmarks/{name}.py",
        *sorted((ROOT / f"benchmarks/{name}").rglob("*.py")),
    )
]
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:   :.*\n)*)", re.MULTILINE)


def found(name: str) -> Any:
    """The module or the object of this name; where both have it, the object."""
    place, _, last = name.rpartition(".")
    of = found(place) if place else None
    return getattr(of, last) if hasattr(of, last) else importlib.import_module(name)


def public(module: ModuleType) -> list[str]:
    """The names of a module that others may use."""
    return getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])


def listed() -> list[Any]:
    """The modules, functions and classes that the pages of the reference list."""
    out: list[Any] = [importlib.import_module("jaxfl")]
    for page in sorted((ROOT / "docs/reference").glob("*.md")):
        for kind, name, options in DIRECTIVE.findall(page.read_text("utf-8")):
            out.append(importlib.import_module(name) if kind == "module" else found(name))
            members = re.search(r":members:(.*)", options)
            if kind == "module" and members:
                names = re.findall(r"\w+", members[1]) or public(out[-1])
                out += [getattr(out[-1], each) for each in names]
    return out


def used(text: str) -> Iterator[tuple[str, Any]]:
    """The names of jaxfl that a module imports, and those that it reads from imported modules."""
    tree = ast.parse(text)
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = f"{module}{alias.name}"
                if name.partition(".")[0] == "jaxfl":
                    yield name, found(name)
                    here = alias.asname or alias.name.partition(".")[0]
                    known[here] = found(name if module or alias.asname else here)

    def meant(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return known.get(node.id)
        of = meant(node.value) if isinstance(node, ast.Attribute) else None
        return getattr(of, node.attr) if isinstance(of, ModuleType) else None

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (what := meant(node)) is not None:
            yield ast.unparse(node), what


def private(text: str) -> list[str]:
    public = {id(each) for each in listed()}
    return [name for name, what in used(text) if id(what) not in public]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_figures_use_what_the_reference_lists(file: Path) -> None:
    assert private(file.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from jaxfl.core.files import replace", "jaxfl.core.files.replace"),
        ("from jaxfl.views.tables import by_rows", "jaxfl.views.tables.by_rows"),
        ("from jaxfl.views import ink\nink.frame", "ink.frame"),
        ("import jaxfl.engine.loop", "jaxfl.engine.loop"),
        ("import jaxfl\njaxfl.views.cells", "jaxfl.views.cells"),
    ],
)
def test_another_name_is_found(text: str, name: str) -> None:
    assert private(text) == [name]


def test_figures_of_different_papers_do_not_know_each_other() -> None:
    folder = ROOT / "benchmarks/papers"
    assert {path.name for path in folder.iterdir() if (path / "__init__.py").exists()} == {
        *papers.MODULES
    }
    for file in sorted(folder.rglob("*.py")):
        own = file.relative_to(folder).parts[0]
        imports = re.findall(r"^\s*(?:from|import) papers\.(\w+)", file.read_text("utf-8"), re.M)
        assert not {*imports} & ({*papers.MODULES} - {own}), file
