"""The documentation is that of the code: generated pages, and what docstrings and README say runs."""

import ast
import doctest
import importlib
import json
import logging
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas
import pytest
from matplotlib.mathtext import MathTextParser
from scripts import ROOT, load

import jaxfl
from jaxfl.cli.build import choose_algorithm
from jaxfl.cli.parser import parse
from jaxfl.core.equations import rows

pytestmark = pytest.mark.once

LINKS = re.compile(r"\]\(([^)#]+)\)")
# Modules with examples in their docstrings.
DOCTESTED = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted((ROOT / "jaxfl").rglob("*.py"))
    if re.search(r"^ *>>> ", file.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load("docs/algorithms")


@pytest.fixture(scope="module")
def made(generator: ModuleType) -> dict[Path, str]:
    found: dict[Path, str] = generator.pages()
    return found


def test_the_pages_of_algorithms_are_generated(
    generator: ModuleType, made: dict[Path, str]
) -> None:
    stored = {generator.INDEX, *generator.FOLDER.glob("*.md")}
    assert made.keys() == stored
    for file, text in made.items():
        assert file.read_text("utf-8") == text, "write it again with python docs/algorithms.py"
    index = made[generator.INDEX]
    for i, name in enumerate(jaxfl.ALGORITHMS):
        page = made[generator.FOLDER / f"{name}.md"]
        # an option in code: elsewhere the site makes one dash of the two
        assert " --" not in re.sub(r"`[^`]*`", "", page.removeprefix(generator.WRITTEN))
        assert f'<a id="{name}"></a>' in index  # where older links lead
        (command,) = re.findall(r"`jaxfl run ([a-z0-9_]+.*)`$", page, re.MULTILINE)
        if i % 4 == 0:
            study, _ = parse("run", command.split())
            assert choose_algorithm(study.setup).name == name


@pytest.mark.parametrize(
    ("name", "seen", "whose", "column"),
    [
        ("soteriafl_sgd", "every message of every client", "one record", 1),
        ("skellam_fedavg", "only the sum of the clients' messages", "one client", 2),
        ("alpha_normec", "every message of every client", "one client", 0),
        ("dp_dsgd", "every message of every client, without a server", "one record", 0),
        ("ef21", "nothing is private", "", 1),
    ],
)
def test_which_algorithm(
    generator: ModuleType, made: dict[Path, str], name: str, seen: str, whose: str, column: int
) -> None:
    """An algorithm stands in the one place of the table where its event and parts put it."""
    lines = made[generator.INDEX].split("\n## ")[1].splitlines()
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "algorithms/" in line
    ]
    (found,) = [
        (a, b, i) for a, b, *cells in table for i, c in enumerate(cells) if f"[{name}]" in c
    ]
    assert found == (seen, whose, column)


@pytest.fixture(scope="module")
def conf() -> ModuleType:
    return load("docs/conf")


def test_blocks_of_docstrings_are_equations_or_code(conf: ModuleType) -> None:
    """No equation of a page is left in plain characters because it cannot be read."""
    parser, typeset = MathTextParser("path"), 0
    for file in sorted((ROOT / "jaxfl").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for found in conf.BLOCK.finditer((ast.get_docstring(node) or "") + "\n"):
                    if not conf.CODE.search(found[1]):
                        typeset += 1
                        for row in rows(found[1]):
                            parser.parse(f"${row}$")
    assert typeset > 100


def test_docstrings_of_pages(conf: ModuleType) -> None:
    """Equations are typeset, code is not, and names of other libraries lead there."""
    told = ["Steps::", "", "    x <- x - eta g_i", "", "Code::", "", "    x = jaxfl.run(y)", ""]
    told += ["Returns an ``xarray.Dataset``, not ``xarray.Dataset(x)``."]
    conf.equations(None, "function", "f", None, None, told)
    conf.elsewhere(None, "function", "f", None, None, told)
    assert told[0] == "Steps:"
    assert told[2] == ".. math::"
    assert told[6].strip() == r"x \leftarrow x - \eta g_{i}"
    assert told[-5:-1] == ["Code::", "", "    x = jaxfl.run(y)", ""]
    assert told[-1] == "Returns an :py:obj:`xarray.Dataset`, not ``xarray.Dataset(x)``."


def test_names_in_titles_break_at_their_joints(conf: ModuleType) -> None:
    """The title of the page and of its neighbours, and nothing below it."""
    context: dict[str, Any] = {"body": "<h1>dp_sgd<a>#</a></h1><p>a_b</p>", "prev": None}
    context["next"] = {"title": "jaxfl.parts of _x"}
    conf.breaks(None, "dp_sgd", "page.html", context, None)
    assert context["body"] == "<h1>dp_<wbr>sgd<a>#</a></h1><p>a_b</p>"
    assert context["next"]["title"] == "jaxfl.<wbr>parts of _x"
    bare: dict[str, Any] = {}
    conf.breaks(None, "search", "search.html", bare, None)
    assert not bare


@pytest.mark.parametrize(
    ("message", "kept"),
    [("failed to reach any of the inventories with:\n%s", False), ("no such object: %s", True)],
)
def test_only_inventories_that_cannot_be_reached_pass_in_silence(
    conf: ModuleType, message: str, kept: bool
) -> None:
    record = logging.LogRecord("s", logging.WARNING, "f", 1, message, ("x",), None)
    assert conf.quiet(record) == kept


def test_the_glossary_has_what_readers_look_for(conf: ModuleType) -> None:
    """On the site its rows are terms, which a search finds; the site's own check asks its index."""
    rows = (ROOT / "docs/glossary.md").read_text("utf-8")
    wanted = [query for query, page in load(".ci/finds").QUERIES.items() if page == "glossary"]
    assert wanted
    assert [query for query in wanted if f"\n| {query} |" not in rows] == []
    source = [rows]
    conf.pages(None, "glossary", source)
    assert all(f"\n{query}\n  " in source[0] for query in wanted)
    assert "|C(v) - v|" in source[0]
    assert "\n| " not in source[0].partition("```\n")[0]


@pytest.mark.full
@pytest.mark.parametrize("name", DOCTESTED)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.attempted > 0, f"{name} has no example"
    assert found.failed == 0


def test_the_table_of_algorithms_in_the_readme_is_whole() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9_]+)`", readme))
    short = {f"{a}_{b}" for a in ("soteriafl", "cdp", "ldp", "mu2") for b in ("gd", "sgd")}
    assert f"jaxfl has {len(jaxfl.ALGORITHMS)}: all" in readme
    assert jaxfl.ALGORITHMS.keys() - short <= named, sorted(jaxfl.ALGORITHMS.keys() - short - named)


def test_links_of_the_readme_lead_somewhere() -> None:
    """In the checkout, and as the package's metadata has them: absolute."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = [link for link in LINKS.findall(readme) if not link.startswith("http")]
    assert relative
    for link in relative:
        assert (ROOT / link).exists(), link
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    metadata = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for change in metadata["substitutions"]:
        readme = re.sub(change["pattern"], change["replacement"], readme)
    absolute = [link for link in LINKS.findall(readme) if link.startswith("https://")]
    assert absolute == LINKS.findall(readme)
    assert {link.partition("/main/")[2] for link in absolute} >= {*relative}


REFERENCE = (
    f"docs/reference/{name}.md"
    for name in ("algorithms", "parts", "privacy", "results", "runs", "testing")
)
GUIDES = (f"docs/{name}.md" for name in ("index", "your-data", "your-own", "coming-from"))
PAGES = ("README.md", *GUIDES, *REFERENCE)


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_pages(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their Python, in one session from top to bottom."""
    if page.endswith("coming-from.md"):
        pytest.importorskip("equinox", reason="needs equinox: pip install '.[test]'")
    frame = pandas.DataFrame({"hospital": ["a", "b"], "age": [0.1, 0.2], "outcome": [0, 1]})
    scope: dict[str, Any] = {"frame": frame}
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    (writers := tmp_path / "leaf/data/femnist/data/train").mkdir(parents=True)
    one = {"users": ["f"], "num_samples": [1], "user_data": {"f": {"x": [[0.5] * 784], "y": [3]}}}
    (writers / "a.json").write_text(json.dumps(one))
    for block in blocks:
        exec(compile(block, page, "exec"), scope)


TYPED = """
from typing import assert_type
import jaxfl, numpy, xarray
from jaxfl.privacy.reports import Report

def look(run: jaxfl.Run, problem: jaxfl.Problem) -> None:
    assert_type(run.privacy(), Report)
    assert_type(jaxfl.load("run.nc"), xarray.Dataset)
    assert_type(jaxfl.privacy.epsilon(jaxfl.privacy.NoClaim("none"), 1e-5).eps, float)
    jaxfl.sweep("cdp_sgd", problem, lr=numpy.array([0.1]), k=range(3))
"""


@pytest.mark.full  # mypy reads the package anew
def test_types_of_what_users_call(tmp_path: Path) -> None:
    """Checked as a user's own file is."""
    file = tmp_path / "user.py"
    file.write_text(TYPED)
    options = ["--config-file", str(ROOT / "pyproject.toml"), str(file)]
    out = subprocess.run([sys.executable, "-m", "mypy", *options], capture_output=True, text=True)
    assert out.returncode == 0, out.stdout
