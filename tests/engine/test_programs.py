"""Compiled programs outlive the process that made them, and suit every platform."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import export
from rows import ROWS, Row

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.data.samples import measured
from jaxfl.engine.loop import advance, initial, measure
from jaxfl.engine.record import dtype
from jaxfl.problems.facts import facts_of

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


@pytest.mark.once
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=() if row.quick else pytest.mark.slow) for row in ROWS],
)
def test_accelerators_can_compile_all_of_a_run(row: Row) -> None:
    """Its start, its rounds and its evaluation: no call of a host's library, no float64, no callback."""
    algorithm, problem = jaxfl.algorithm(row.name), row.problem
    facts = facts_of(problem, 5)
    values = jaxfl.algorithms.resolve(algorithm, row.numbers, facts).values
    hp = build(algorithm, values, facts, dtype(problem))
    key, samples = jax.random.key(0), measured(problem)
    state, _ = jax.eval_shape(algorithm.init, key, samples, hp)

    def run(key, state, samples, problem, hp):
        begun = initial(algorithm, key, samples, hp)
        end = advance(algorithm, key, state, state.t + 5, samples, hp)
        return begun, end, measure(algorithm, (), state, problem)

    lowered = export.export(jax.jit(run), platforms=("cuda", "tpu"))(
        key, state, samples, problem, hp
    )
    text = lowered.mlir_module()
    assert not re.findall(r"custom_call @(?!Sharding|shape_assertion)\w+|\bf64\b|callback", text)
