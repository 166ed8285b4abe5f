"""Sphinx: the reference from docstrings, the notebooks as they are stored."""

import ast
import contextlib
import dataclasses
import inspect
import io
import itertools
import logging
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

import jaxfl
from jaxfl.cli import COMMANDS, main
from jaxfl.core.equations import BLOCK, latex
from jaxfl.core.records import FIELDS, field_docs

HERE = Path(__file__).parent
PAGES = {
    "overview": "README.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    "security": "SECURITY.md",
}
BAR = "\u2223"  # for |v|, which reStructuredText takes for a substitution
ANSWER, NEXT = "[the field](field.md#the-answer-in-words).", "\n## "
LINK = re.compile(r"\[([^\]]*)\]\(([^)]+)\)")
OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./benchmarks/[^)]*\)")  # of the site
THEIRS = re.compile(r"``((?:flax|jax|optax|xarray)\.[A-Za-z_.]+)``")
H1, JOINT = re.compile(r"<h1>[^<]*"), re.compile(r"(?<=\w)[_.](?=\w)")
CODE = re.compile(r"^(from|import) |\w\.\w+\(|>>> ", re.MULTILINE)
# Notebooks lie beside the package, and Sphinx reads what lies below this folder.
shutil.rmtree(HERE / "notebooks", ignore_errors=True)
shutil.copytree(HERE.parent / "notebooks", HERE / "notebooks")

project, author, release = "jaxfl", "jaxfl developers", jaxfl.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "myst_nb",
]
# Where an inventory cannot be reached, names of that library are plain words.
intersphinx_mapping = {
    "jax": ("https://docs.jax.dev/en/latest/", None),
    "optax": ("https://optax.readthedocs.io/en/latest/", None),
    "flax": ("https://flax.readthedocs.io/en/latest/", None),
    "xarray": ("https://docs.xarray.dev/en/stable/", None),
}
intersphinx_timeout = 5  # seconds
default_role = "code"  # of words in single backticks
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "furo"
html_title = "jaxfl"
html_show_copyright = False
html_static_path, html_css_files = ["_static"], ["wide.css"]
nb_execution_mode = "off"  # the tests run them
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # repository hosts read the same fence
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures are in the source, one link away
autodoc_preserve_defaults = True


def bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the bars of norms outside of literals."""
    text = "\n".join(lines).split("``")
    for i in range(0, len(text), 2):  # outside of literals
        text[i] = re.sub(r"^(?! ).*$", lambda m: m[0].replace("|", BAR), text[i], flags=re.M)
    lines[:] = "``".join(text).split("\n")


def equations(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Typeset the literal blocks that are equations; those of code stay as they are."""
    text = "\n".join(lines) + "\n"
    lines[:] = BLOCK.sub(typeset, text).rstrip("\n").split("\n")


def typeset(found: re.Match[str]) -> str:
    """A block in LaTeX behind a single colon, unless it is code."""
    block = textwrap.dedent(found[1])
    if CODE.search(block):
        return found[0]
    rows = textwrap.indent(latex(block), "   ")
    return f":\n\n.. math::\n   :no-wrap:\n\n   \\[\n{rows}\n   \\]\n\n"


def elsewhere(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Names of the libraries that users meet link to their documentation."""
    lines[:] = [THEIRS.sub(r":py:obj:`\1`", line) for line in lines]


def quiet(record: logging.LogRecord) -> bool:
    """Whether a message of intersphinx is more than that an inventory cannot be reached."""
    return "failed to reach any of the inventories" not in str(record.msg)


def fields(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """The fields of a record are listed below its docstring, as it or comments describe them."""
    if what == "class" and (hasattr(obj, "_fields") or dataclasses.is_dataclass(obj)):
        kind = next(
            base for base in obj.__mro__ if {"_fields", "__dataclass_fields__"} & {*vars(base)}
        )
        text, docs = textwrap.dedent(inspect.getsource(kind)), field_docs(kind)
        (record,) = ast.parse(text).body
        assert isinstance(record, ast.ClassDef)
        rows = [node for node in record.body if isinstance(node, ast.AnnAssign)]
        rest = FIELDS.sub("", "\n".join(lines) + "\n").split("\n")
        listed = (line for node in rows for line in field(node, text.splitlines(), docs))
        lines[:] = [*rest, "", *listed]


def field(node: ast.AnnAssign, source: list[str], docs: dict[str, str]) -> Iterator[str]:
    """One field: its name, type and default, and its text, or else the comment behind or below it."""
    last = node.end_lineno or node.lineno
    behind = source[last - 1][node.end_col_offset :].strip()
    below = itertools.takewhile(lambda line: line.strip().startswith("# "), source[last:])
    words = [line.strip().lstrip("#,) ") for line in (behind, *below)]
    comment = " ".join(re.sub(r"^type: ignore\S*( +# )?", "", word) for word in words if word)
    comment = " ".join(docs.get(ast.unparse(node.target), comment).split())
    declared = ast.unparse(node).replace("dataclasses.", "")
    yield f"* ``{declared}``" + (f" -- {comment}" if comment else "").replace("|", BAR)


def members(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples, which :func:`fields` lists, and names of JAX's own."""
    return True if type(obj).__name__ == "_tuplegetter" or obj is jax.Array else None


def pages(app: Any, name: str, source: list[str]) -> None:
    """Some pages are files of the repository, or are printed by `jaxfl`.

    README's first section replaces the title of the front page.  Links that lead out of the
    site become plain words.
    """
    if name in PAGES:
        source[0] = LINK.sub(link, (HERE.parent / PAGES[name]).read_text("utf-8")) + source[0]
    if name == "index":
        readme = (HERE.parent / "README.md").read_text("utf-8")
        own = source[0].partition("\n")[2]  # without its title
        source[0] = LINK.sub(link, readme.partition("\n## ")[0]) + own
        source[0] = source[0].replace("](#", "](overview.md#")
    if name == "reference/command-line":
        source[0] += "".join(map(manual, [command for command in COMMANDS if command[0] != "-"]))
    if name == "glossary":  # terms that a search finds, in place of a table
        source[0] = re.sub(r"\| word \| meaning \|\n.*\n((?:\|.*\n)+)", glossary, source[0])
    if name == "algorithms":
        field = (HERE / "field.md").read_text("utf-8").partition("\n## The answer in words\n")[2]
        source[0] = source[0].replace(ANSWER, f"{ANSWER}\n\n{field.partition(NEXT)[0]}", 1)
        names = "\n".join(f"algorithms/{path.stem}" for path in sorted((HERE / name).glob("*.md")))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    source[0] = source[0].replace("](../notebooks/", "](notebooks/").replace("](../docs/", "](../")
    source[0] = OUTSIDE.sub(r"\1", source[0])


def breaks(app: Any, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """On narrow screens, a long name in a title goes on in a new line behind ``_`` or a dot."""
    for place in filter(None, (context.get("prev"), context.get("next"))):
        place["title"] = JOINT.sub(r"\g<0><wbr>", place["title"])
    if "body" in context:
        context["body"] = H1.sub(lambda m: JOINT.sub(r"\g<0><wbr>", m[0]), context["body"], 1)


def glossary(found: re.Match[str]) -> str:
    rows = (line.strip("| ").partition(" | ") for line in found[1].splitlines())
    entries = (f"{term}\n  {text}\n".replace("\\|", "|") for term, _, text in rows)
    return "```{glossary}\n" + "\n".join(entries) + "```\n"


def manual(command: str) -> str:
    """The help of a command."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main([command, "--help"])
    return f"\n## jaxfl {command}\n\n```text\n{out.getvalue()}```\n"


def link(found: re.Match[str]) -> str:
    words, target = found.groups()
    here = {file: f"{page}.md" for page, file in PAGES.items()}.get(
        target, target.removeprefix("docs/")
    )
    inside = here != target or target.startswith(("http", "#", "notebooks/"))
    return f"[{words}]({here})" if inside else words


def setup(app: Any) -> None:
    app.set_html_assets_policy(
        "always"
    )  # MathJax also where only a notebook's output has equations
    logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(quiet)
    app.connect("autodoc-process-docstring", equations)
    app.connect("autodoc-process-docstring", elsewhere)
    app.connect("autodoc-process-docstring", fields)
    app.connect("autodoc-process-docstring", bars)
    app.connect("autodoc-skip-member", members)
    app.connect("source-read", pages)
    app.connect("html-page-context", breaks)
