"""Compiled programs outlive the process that made them, and suit every platform."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from rows import ROWS, Row, a_problem
from told import refused

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.data.samples import measured
from jaxfl.engine.loop import advance, initial, measure
from jaxfl.engine.results import config
from jaxfl.problems.facts import facts_of
from jaxfl.problems.identity import dtype

WORDS = "run ldp_sgd --batch 8 --sigma 0.1 --lr 0.1 --rounds 3 --no-plot --quiet --out"


@pytest.mark.full  # two processes that import JAX and compile
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
    large = ["jit_alone"]
    assert set(large) <= {name.split("-")[0] for name in first}
    assert first.items() <= second.items()
    assert [name.split("-")[0] for name in sorted(second) if name.startswith(tuple(large))] == large
    losses = [jaxfl.load(out / "result.nc")["loss"] for out in outs]
    np.testing.assert_array_equal(*losses)


@pytest.mark.once
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=() if row.quick else pytest.mark.full) for row in ROWS],
)
def test_accelerators_can_compile_all_of_a_run(row: Row) -> None:
    """Its start, its rounds and its evaluation: no call of a host's library, no float64, no callback."""
    algorithm, problem = jaxfl.algorithm(row.name), row.problem
    facts = facts_of(problem, 5)
    values = jaxfl.algorithms.resolution.resolve(algorithm, row.numbers, facts).values
    hp = build(algorithm, values, facts, dtype(problem))
    key, samples = jax.random.key(0), measured(problem)
    state, _ = jax.eval_shape(algorithm.init, key, samples, hp)

    def run(key, state, samples, problem, hp):
        begun = initial(algorithm, key, samples, hp)
        end = advance(algorithm, key, state, state.t + 5, samples, hp)
        return begun, end, measure(algorithm, (), state, problem)

    exported = export.export(jax.jit(run), platforms=("cuda", "tpu"))
    text = exported(key, state, samples, problem, hp).mlir_module()
    assert not re.findall(r"custom_call @(?!Sharding|shape_assertion)\w+|\bf64\b|callback", text)


def products(jaxpr: Any) -> Iterator[Any]:
    """All matrix products of a program."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            yield eqn
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=is_program):
            if is_program(inner):
                yield from products(getattr(inner, "jaxpr", inner))


def is_program(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


@pytest.mark.parametrize(
    ("name", "parts", "numbers"),
    [
        ("cdp_sgd", {"compressor": "qsgd"}, {"levels": 4}),
        ("ldp_sgd", {"noise": "per_client"}, {}),
        ("soteriafl_svrg", {"storage": "bfloat16"}, {"k": 6, "refresh": 0.2}),
        ("dp_dsgd", {}, {}),
        ("q_dpsgd_1", {}, {}),
        ("sdm_dsgd", {}, {"k": 6}),
        ("porter_gc", {}, {"k": 6}),
    ],
)
def test_what_rounds_iterate_is_multiplied_exactly(
    name: str, parts: dict[str, str], numbers: dict[str, Any]
) -> None:
    """Accelerators round the inputs of other products: means over clients, and gossip, would drift."""
    n, algorithm = 7, jaxfl.algorithm(name, **parts)
    problem = a_problem(n=n)
    given = {"lr": 0.1, "clip": 1.0, "sigma": 0.1, "batch": 4, **numbers}
    given = {key: value for key, value in given.items() if key in algorithm.names}
    facts = facts_of(problem, 5)
    values = jaxfl.algorithms.resolution.resolve(algorithm, given, facts).values
    hp = build(algorithm, values, facts, dtype(problem))
    state, _ = jax.eval_shape(algorithm.init, jax.random.key(0), problem, hp)
    traced = jax.make_jaxpr(algorithm.round)(jax.random.key(0), state, problem, hp)
    over_clients = [
        eqn.params["precision"]
        for eqn in products(traced.jaxpr)
        if eqn.invars[0].aval.shape in ((n,), (n, n))
    ]
    assert over_clients
    assert all(found is not None and jax.lax.Precision.HIGHEST in found for found in over_clients)


@pytest.mark.full
def test_the_precision_of_products_is_chosen_and_recorded(tmp_path: Path) -> None:
    """JAX's own setting decides where none is given; a run keeps its precision, and so does a sweep."""
    seen = []

    def mine(problem: Any, x: Any) -> Any:
        seen.append(jax.config.jax_default_matmul_precision)
        return jnp.sum(x)

    def ran(precision: str | None, what: Any = jaxfl.simulate, **options: Any) -> Any:
        options |= {"rounds": 2, "matmul_precision": precision, **given}
        return what("ldp_gd", problem, **options)

    problem, given = a_problem(), {"lr": 0.1, "clip": 1.0, "sigma": 0.1, "metrics": {"mine": mine}}
    run, ds = ran("highest", out=tmp_path), ran("highest", jaxfl.sweep)
    assert config(run.dataset())["settings"]["matmul_precision"] == "highest"
    assert config(ds)["matmul_precision"] == "highest"
    assert run.extend(3).settings["matmul_precision"] == "highest"
    assert set(seen) == {"highest"}
    refused(lambda: ran("tf32"), "one of default, highest")
    with jax.default_matmul_precision("tensorfloat32"):
        assert ran(None).settings["matmul_precision"] == "tensorfloat32"
    words = 'precision is "highest", this one\'s "default"'
    refused(lambda: ran(None, out=tmp_path, resume=True), words)
