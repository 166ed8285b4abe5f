"""Compiled programs outlive the process that made them, and change no number."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxfl

WORDS = "run ldp_sgd --batch 8 --sigma 0.1 --lr 0.1 --rounds 3 --no-plot --quiet --out"


@pytest.mark.once
def test_programs_are_kept_and_found_again(tmp_path: Path) -> None:
    """On a busy machine a small program may be slow enough to be kept by the second run only."""

    def kept(out: Path) -> dict[str, int]:
        home = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_ENABLE_COMPILATION_CACHE": "1"}
        words = [sys.executable, "-m", "jaxfl", *WORDS.split(), str(out)]
        subprocess.run(words, env={**os.environ, "JAX_PLATFORMS": "cpu", **home}, check=True)
        return {file.name: file.stat().st_size for file in tmp_path.rglob("*-cache")}

    outs = tmp_path / "one", tmp_path / "two"
    first, second = map(kept, outs)
    large = ["jit_advance", "jit_measure"]
    assert set(large) <= {name.split("-")[0] for name in first}
    assert first.items() <= second.items()
    assert [name.split("-")[0] for name in sorted(second) if name.startswith(tuple(large))] == large
    losses = [jaxfl.load(out / "result.nc")["loss"] for out in outs]
    np.testing.assert_array_equal(*losses)
