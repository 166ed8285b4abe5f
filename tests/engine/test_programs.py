"""Compiled programs outlive the process that made them, and change no number."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxfl

CODE = "import sys; from jaxfl.cli import main; sys.exit(main())"
WORDS = "run ldp_sgd --batch 8 --sigma 0.1 --lr 0.1 --rounds 3 --no-plot --quiet --out"


def call(out: Path, **env: str) -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **env}
    subprocess.run(
        [sys.executable, "-c", CODE, *WORDS.split(), str(out)], env=environment, check=True
    )


@pytest.mark.once
def test_programs_are_kept_and_found_again(tmp_path: Path) -> None:
    """On a busy machine a small program may be slow enough to be kept by the second run only."""

    def kept() -> dict[str, int]:
        return {file.name: file.stat().st_size for file in tmp_path.rglob("*-cache")}

    home = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_ENABLE_COMPILATION_CACHE": "1"}
    call(tmp_path / "one", **home)
    first = kept()
    large = ["jit_advance", "jit_measure"]
    assert set(large) <= {name.split("-")[0] for name in first}
    call(tmp_path / "two", **home)
    second = kept()
    assert first.items() <= second.items()
    assert [name.split("-")[0] for name in sorted(second) if name.startswith(tuple(large))] == large
    call(tmp_path / "three", **{**home, "XDG_CACHE_HOME": "", "JAX_ENABLE_COMPILATION_CACHE": "0"})
    runs = [jaxfl.load(tmp_path / name / "result.nc") for name in ("one", "two", "three")]
    for other in runs[1:]:
        np.testing.assert_array_equal(other["loss"], runs[0]["loss"])
    assert kept() == second
