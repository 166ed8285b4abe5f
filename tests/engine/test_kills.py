"""A few trials of each command of `kills.py`, which has more of them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kills.py")
TRIALS = ["runs --times 3", "sweeps --times 2", "executors --times 1", "extend --times 1"]


@pytest.mark.slow  # each starts a dozen processes, which import JAX and compile
@pytest.mark.once
@pytest.mark.parametrize("words", TRIALS)
def test_killed_commands_continue(words: str) -> None:
    command = [sys.executable, str(SCRIPT), *words.split(), "--seed", "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
