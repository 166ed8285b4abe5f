"""Run notebooks and store their output: ``python notebooks/execute.py [NAME.ipynb ...]``.

The tests run all of them, and check what their text says.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["NOTEBOOKS", "execute"]

NOTEBOOKS = sorted(Path(__file__).parent.glob("*.ipynb"))
SECONDS = 600  # that one cell may take on a machine that others use too


def execute(path: Path, folder: Path, checks: str = "") -> Any:
    """The notebook with the output of a fresh kernel in ``folder``; a cell that fails raises.

    ``checks`` is code that runs after the last cell, in the same kernel.
    """
    import nbformat
    from nbclient import NotebookClient

    import jaxfl

    notebook = nbformat.read(path, as_version=4)
    cells = list(notebook.cells)
    notebook.cells.append(nbformat.v4.new_code_cell(checks))
    here = Path(jaxfl.__file__).parents[1]  # the kernel finds the jaxfl that this process has
    NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,  # which would change with every run
        resources={"metadata": {"path": str(folder)}},
    ).execute(env=os.environ | {"PYTHONPATH": str(here), "IPYTHONDIR": str(folder)})
    for cell in cells:  # nothing is left of a progress bar
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("data") != {"text/plain": ""}]
    notebook.cells = cells
    notebook.metadata.pop("language_info", None)  # names the version of this Python
    return notebook


if __name__ == "__main__":
    import nbformat

    for path in [Path(name) for name in sys.argv[1:]] or NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, Path(folder)), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
