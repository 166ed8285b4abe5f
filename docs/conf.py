"""Sphinx: the reference from docstrings, the notebooks as they are stored."""

import inspect
import pydoc
import re
import shutil
from pathlib import Path
from typing import Any

import jaxfl

HERE = Path(__file__).parent
PAGES = {"index": "README.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
FIELD = re.compile(r"^    (\w+): [^\n#]*(?:  |\n    )# (.*)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\(([^)]+)\)")
# Notebooks lie beside the package, and Sphinx reads what lies below this folder.
shutil.rmtree(HERE / "notebooks", ignore_errors=True)
shutil.copytree(HERE.parent / "notebooks", HERE / "notebooks")

project, author, release = "jaxfl", "the jaxfl authors", jaxfl.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode", "myst_nb"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "jaxfl"
nb_execution_mode = "off"  # the tests run them
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures are in the source, one link away
autodoc_preserve_defaults = True


def bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Norms are written |v| in docstrings, which reStructuredText takes for substitutions."""
    text = "\n".join(lines).split("``")
    for i in range(0, len(text), 2):  # outside of literals
        text[i] = re.sub(r"^(?! ).*$", lambda m: m[0].replace("|", "\u2223"), text[i], flags=re.M)
    lines[:] = "``".join(text).split("\n")


def fields(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """The fields of a named tuple are described by the comments behind them."""
    if lines and lines[0].startswith("Alias for field number"):
        record, _, field = name.rpartition(".")
        source = inspect.getsource(pydoc.locate(record))  # type: ignore[arg-type]
        comment = dict(FIELD.findall(source)).get(field, "")
        lines[:] = [re.sub(r"^type: ignore\[\S+\](  # )?", "", comment)]


def pages(app: Any, name: str, source: list[str]) -> None:
    """README is the first page, and links that lead out of the site become plain words."""
    if name in PAGES:
        source[0] = LINK.sub(link, (HERE.parent / PAGES[name]).read_text("utf-8")) + source[0]
    source[0] = source[0].replace("](../notebooks/", "](notebooks/")


def link(found: re.Match[str]) -> str:
    words, target = found.groups()
    here = {file: f"{page}.md" for page, file in PAGES.items()}.get(
        target, target.removeprefix("docs/")
    )
    inside = here != target or target.startswith(("http", "#", "notebooks/"))
    return f"[{words}]({here})" if inside else words


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", fields)
    app.connect("autodoc-process-docstring", bars)
    app.connect("source-read", pages)
