"""Fill in where the project is hosted: python .ci/address.py OWNER/NAME.

`Repository` in pyproject.toml is the address; every other tracked file that has it follows.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

__all__ = ["address", "moved"]

ROOT = Path(__file__).resolve().parents[1]


def address() -> str:
    """OWNER/NAME in the project's metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"]).removeprefix("https://github.com/")


def moved(text: str, old: str, new: str) -> str:
    """A file with the new address."""
    hosts = r"(github\.com/|githubusercontent\.com/|colab\.research\.google\.com/github/)"
    return re.sub(hosts + re.escape(old) + r"(?![\w-])", rf"\g<1>{new}", text)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not re.fullmatch(r"[\w-]+/[\w.-]+", sys.argv[1]):
        sys.exit("usage: python .ci/address.py OWNER/NAME")
    before = address()
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        file = ROOT / name
        try:
            content = file.read_text(encoding="utf-8")
        except (UnicodeDecodeError, IsADirectoryError):
            continue
        if (after := moved(content, before, sys.argv[1])) != content:
            file.write_text(after, encoding="utf-8")
            print(name)
