"""Programs: those beside the package, as modules, and those that tests start."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from shorter import flags

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
PLACES = [str(TESTS), *(str(place) for place in sorted(TESTS.iterdir()) if place.is_dir())]
PRELUDE = f"""
import sys; sys.path[:0] = {PLACES!r}
import jax, jaxfl
import jax.numpy as jnp
import numpy as np
from test_durable import *
"""
# Cheap compilation: runs are compared that were compiled alike.
EIGHT = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"


def load(place: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(place.replace("/", "_"), ROOT / f"{place}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(code: str, first: str = "", **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", first + PRELUDE + textwrap.dedent(code)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str], seconds: float = 240) -> str:
    text, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0, text
    return text


def eight() -> str:
    """Flags of a process with eight devices."""
    return f"{EIGHT} {flags()}"
