"""Plants each bug of ``bugs.toml`` in a copy of the package, and runs the tests that should catch it.

python tests/planted/run.py [WORD ...]      the bugs whose names hold one of the words, or all
python tests/planted/run.py --check         only that each bug has its place and its tests

Tests of the plain tier alone are run: by them each bug has to be caught.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BUGS = Path(__file__).with_name("bugs.toml")
LIMIT = 600  # seconds of one bug

# Inside the process of the tests: the copy is what they import.
INSIDE = """
import importlib.util, sys
sys.path.insert(0, sys.argv[1])
found = importlib.util.find_spec("jaxfl").origin
assert found.startswith(sys.argv[1]), f"tests would import {found}"
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


class Bug(NamedTuple):
    name: str
    wrong: str  # one sentence
    old: str
    new: str
    caught_by: str  # as ``pytest -k`` takes it


class Outcome(NamedTuple):
    """``caught``: a test failed. Neither caught nor escaped: nothing could be said."""

    caught: bool
    escaped: bool
    seconds: float
    output: str


def bugs() -> list[Bug]:
    return [Bug(name, **told) for name, told in tomllib.loads(BUGS.read_text()).items()]


@functools.cache
def texts(folder: str, pattern: str) -> dict[Path, str]:
    """What the files say, by their paths in the repository."""
    paths = sorted((ROOT / folder).rglob(pattern))
    return {path.relative_to(ROOT): path.read_text() for path in paths}


def place(bug: Bug) -> Path:
    """The one file that holds the bug's ``old`` text, once."""
    package = texts("jaxfl", "*.py")
    found = {path: text.count(bug.old) for path, text in package.items() if bug.old in text}
    if sum(found.values()) != 1:
        where = ", ".join(f"{path} ({k})" for path, k in found.items())
        raise LookupError(f"{bug.name}: {bug.old!r} is in {where or 'no file'}, not in one place")
    return next(iter(found))


def files_of(bug: Bug) -> list[Path]:
    """The test files that define a test that the bug names; each name has to be defined."""
    files: set[Path] = set()
    for name in re.findall(r"test_\w+", bug.caught_by):
        tests = texts("tests", "test_*.py")
        here = {ROOT / path for path, text in tests.items() if f"def {name}(" in text}
        if not here:
            raise LookupError(f"{bug.name}: there is no test {name}")
        files |= here
    return sorted(files)


def tried(bug: Bug) -> Outcome:
    """The bug planted in a copy of the package, and its tests run on that."""
    files, began = files_of(bug), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve()
        shutil.copytree(
            ROOT / "jaxfl", copy / "jaxfl", ignore=shutil.ignore_patterns("__pycache__")
        )
        path = copy / place(bug)
        path.write_text(path.read_text().replace(bug.old, bug.new))
        options = ["-n", "0", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=line"]
        config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
        done = subprocess.run(
            [sys.executable, "-c", INSIDE, str(copy), *options, *config,
             "-k", bug.caught_by, *map(str, files)],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )  # fmt: skip
    took = time.perf_counter() - began
    return Outcome(done.returncode == 1, done.returncode == 0, took, done.stdout + done.stderr)


def main(words: list[str]) -> int:
    if words == ["--check"]:
        for bug in bugs():
            place(bug)
            files_of(bug)
        return 0
    chosen = [bug for bug in bugs() if not words or any(word in bug.name for word in words)]
    lost = 0
    for bug in chosen:
        outcome = tried(bug)
        verdict = "caught" if outcome.caught else "ESCAPED" if outcome.escaped else "BROKEN"
        print(f"{verdict:8}{outcome.seconds:6.1f} s  {bug.name}", flush=True)
        if not outcome.caught:
            lost += 1
            print(outcome.output.strip(), flush=True)
    print(f"{len(chosen) - lost} of {len(chosen)} bugs are caught")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
