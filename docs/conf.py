"""Sphinx: the reference from docstrings, the notebooks as they are stored."""

import re
import shutil
from pathlib import Path
from typing import Any

import jaxfl

HERE = Path(__file__).parent
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
suppress_warnings = ["myst.xref_missing"]  # README links to files of the repository


def bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Norms are written |v| in docstrings, which reStructuredText takes for substitutions."""
    text = "\n".join(lines).split("``")
    for i in range(0, len(text), 2):  # outside of literals
        text[i] = re.sub(r"^(?! ).*$", lambda m: m[0].replace("|", "\u2223"), text[i], flags=re.M)
    lines[:] = "``".join(text).split("\n")


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", bars)
