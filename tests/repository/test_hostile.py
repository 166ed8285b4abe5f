"""Hostile input, drawn with a fixed seed: one sentence or a result, never a traceback."""

import contextlib
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError

pytestmark = pytest.mark.once

LONGEST = 60  # seconds

# --- calls ---------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "None": None, "nan": np.nan, "inf": np.inf, "-inf": -np.inf, "-1": -1, "2**70": 2**70,
    "1.5": 1.5, "empty text": "", "text": "x", "digit": "3", "list": [], "dict": {}, "true": True,
    "1j": 1j, "object": object(), "nan array": np.array([np.nan]), "empty array": np.zeros(0),
    "complex": np.ones(3) * 1j, "masked": np.ma.masked_equal(np.arange(4.0), 2),
    "frame": pandas.DataFrame(np.ones((3, 2))), "bytes": b"x", "set": {1, 2}, "nul": "a\0b",
    "long": "x" * 10_000, "ragged": [[1], [1, 2]], "words": np.array(["a", "b"]), "huge": [10**30],
}  # fmt: skip
ROWS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32), np.arange(12) % 2
FRAME = pandas.DataFrame({"c": ["x", "z", "x"], "a": [1.0, 2.0, 3.0], "y": [0, 1, 1]})
DATA = jaxfl.data.from_clients([ROWS, ROWS], classes=2)
PROBLEM = jaxfl.make_problem(jaxfl.models.logistic(4), DATA)
GIVEN = {"delta": 1e-3, "clip": 1.0, "samples": 100, "batch": 10, "rounds": 5}


def posed(**given: Any) -> jaxfl.Problem:
    return jaxfl.make_problem(jaxfl.models.logistic(4), jaxfl.data.generated(**given))


def make(source: Any, i: Any, j: Any) -> Any:
    return jnp.zeros(4), jnp.int32(0)


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "simulate": (
        lambda **given: jaxfl.simulate("cdp_sgd", **given),
        {"problem": PROBLEM, "key": jax.random.key(0), "rounds": 2, "sigma": 0.5, "lr": 0.1,
         "batch": 2, "clip": 1.0, "delta": 1e-3, "eval_every": 1, "chunk": 4, "metrics": None,
         "stop": None, "noise": None, "checkpoint": None, "resume": None},
    ),
    "sweep": (
        lambda **given: jaxfl.sweep(**given),
        {"build": "ldp_sgd", "grid": {"lr": [0.1]}, "problem": PROBLEM, "rounds": 2, "seeds": 1,
         "numbers": {"sigma": 0.1, "batch": 2}, "eval_every": 1, "noise": "calibrated",
         "memory": 2**30, "runs_at_once": 2, "devices": None, "out": None, "key": None},
    ),
    "make_problem": (
        jaxfl.make_problem,
        {"model": jaxfl.models.logistic(4), "data": DATA, "x0": np.zeros(4), "name": "n",
         "dtype": "float32", "validation_share": 0.0},
    ),
    "from_clients": (
        jaxfl.data.from_clients,
        {"arrays": [ROWS], "test": None, "count": None, "classes": 2, "name": "n", "dtype": None,
         "stacked": False, "test_owner": None},
    ),
    "from_examples": (
        jaxfl.data.from_examples,
        {"dataset": [{"a": 1.0, "y": 0}] * 6, "test": None, "features": "a", "label": "y", "clients": 2,
         "client": None, "how": "iid", "seed": 0, "test_share": 0.5, "classes": 2, "name": "n"},
    ),
    "leaf": (
        jaxfl.data.leaf,
        {"folder": "/nope", "flat": False, "clients": None, "classes": None, "images": None},
    ),
    "heterogeneity": (jaxfl.data.heterogeneity, {"data": DATA}),
    "from_frame": (
        jaxfl.data.from_clients,
        {"arrays": FRAME, "client": "c", "label": "y", "features": ["a"], "test": FRAME},
    ),
    "split": (
        jaxfl.data.split,
        {"dataset": jaxfl.data.Dataset("d", ROWS, None, 2), "clients": 2, "how": "iid", "seed": 0,
         "labels": None, "test_share": 0.2},
    ),
    "dirichlet": (
        jaxfl.data.dirichlet,
        {"labels": ROWS[1], "clients": 2, "seed": 0, "alpha": 0.5, "min_size": 1, "tries": 9},
    ),
    "class_pairs": (
        jaxfl.data.class_pairs,
        {"labels": ROWS[1], "clients": 1, "seed": 0, "pairs": None, "per_class": None},
    ),
    "holdout": (jaxfl.data.holdout, {"parts": [np.arange(6)], "share": 0.5, "seed": 0}),
    "gather": (
        jaxfl.data.gather,
        {"dataset": jaxfl.data.Dataset("d", ROWS, None, 2), "parts": [[0, 1]]},
    ),
    "synthetic": (
        jaxfl.data.synthetic,
        {"n": 2, "m": 3, "d": 4, "alpha": 1.0, "beta": 1.0, "classes": 2, "seed": 0, "spread": 1.0,
         "unequal": None, "test": 0, "noise": 0.1, "variant": "fedprox"},
    ),
    "generated": (posed, {"make": make, "clients": 3, "samples": 3, "classes": 2, "source": ()}),
    "load": (jaxfl.data.load, {"name": "digits", "directory": None}),
    "load_libsvm": (jaxfl.data.load_libsvm, {"path": "/nope", "features": None}),
    "mlp": (
        jaxfl.models.mlp,
        {"features": 4, "hidden": (3,), "classes": 3, "activation": "tanh", "loss": None,
         "init": None, "regularizer": None, "constraint": None},
    ),
    "account": (lambda **given: jaxfl.account("ldp_sgd", **given), {**GIVEN, "sigma": 1.0}),
    "calibrate": (lambda **given: jaxfl.calibrate("ldp_sgd", **given), {**GIVEN, "eps": 1.0}),
    "algorithm": (
        jaxfl.algorithm,
        {"name": "cdp_sgd", "compressor": None, "sampler": None, "storage": "exact"},
    ),
    "compressor": (jaxfl.compressors.compressor, {"name": "random_k"}),
    "graph": (jaxfl.graphs.graph, {"name": "ring"}),
    "erdos_renyi": (jaxfl.graphs.erdos_renyi, {"p": 0.9, "seed": 0}),
    "mixing": (jaxfl.graphs.mixing, {"W": np.eye(3)}),
    "enrol": (jaxfl.dropouts.enrol, {"clients": [0, 1], "threshold": 1, "seed": 0}),
    "read": (jaxfl.load, {"path": "/nope"}),
}  # fmt: skip


def drawn(kind: str, count: int) -> list[Any]:
    """Return this many distinct calls or command lines."""
    rng = np.random.default_rng(20)
    if kind == "calls":
        every: list[Any] = [
            (f, given, v) for f, (_, taken) in CALLS.items() for given in taken for v in VALUES
        ]
    else:
        every = [(command, o, v) for command in LINES for o in OPTIONS[command[0]] for v in WORDS]
    return [every[i] for i in rng.permutation(len(every))[:count]]


@pytest.mark.parametrize("count", [40, pytest.param(350, marks=pytest.mark.full)])  # some compile
def test_a_call_ends_in_a_result_or_in_one_sentence(count: int, tmp_path: Path) -> None:
    wrong = []
    for name, argument, value in drawn("calls", count):
        call, given = CALLS[name]
        began = time.perf_counter()
        problem = ""
        with contextlib.chdir(tmp_path):
            try:
                call(**{**given, argument: VALUES[value]})
            except InputError as error:
                text = str(error)
                problem = "" if text.endswith((".", "?")) and "\n" not in text else text
            except BaseException as error:
                problem = repr(error)
        if time.perf_counter() - began > LONGEST:
            problem += " too slow"
        if problem:
            wrong.append(f"{name}({argument}={value}): {problem}")
    assert not wrong, "\n".join(wrong)


# --- command lines -------------------------------------------------------------------------------

WORDS = ("", "x", "nan", "-inf", "-1", "1e999", "0x10", "²", "1,5", "[1]", "None", "--", "a/b\nc",
         "9" * 400, "/", "/dev/null", "/proc/x/y", "[/b]", "1:2:3", "cosine:", "cosine:nan",
         "random_k+", "ball:-1", "erdos_renyi:0.5,-1", "\x1b[31m", "..")  # fmt: skip
SHORT = ("--rounds", "2", "--clients", "3", "--batch", "2", "--sigma", "1", "--lr", "0.1")
SHORT += ("--quiet", "--no-plot", "--out", "out")
QUESTION = ("--sigma", "1", "--delta", "1e-3", "--samples", "100", "--batch", "10", "--rounds", "5")
LINES = (
    ("run", "cdp_sgd", *SHORT),
    ("sweep", "ldp_sgd", *SHORT),
    ("account", "ldp_sgd", *QUESTION, "--clip", "1"),
    ("show", "/nope"),
    ("plot", "/nope"),
    ("compare", "/nope", "/nope"),
)
COMMON = ("--rounds", "--clients", "--batch", "--sigma", "--lr", "--clip", "--delta", "--data")
COMMON += ("--partition", "--model", "--compressor", "--sampler", "--participation", "--eval-every")
COMMON += ("--data-dir", "--seeds", "--test-share", "--unknown", "--device", "--dtype", "--alpha")
LOOK = ("--where", "--choose-by", "--over", "--out", "--unknown")
OPTIONS = {
    "run": (*COMMON, "--resume", "--seed", "--graph", "--eval-every", "--noise", "--eps"),
    "sweep": (*COMMON, "--resume", "--memory", "--eps"),
    "account": ("--sigma", "--delta", "--samples", "--batch", "--rounds", "--clip", "--method"),
    **dict.fromkeys(("show", "plot", "compare"), LOOK),
}


@pytest.mark.parametrize("count", [60, pytest.param(450, marks=pytest.mark.full)])  # some compile
def test_a_command_line_ends_in_a_result_or_in_one_sentence(count: int, tmp_path: Path) -> None:
    wrong = []
    for i, (command, option, value) in enumerate(drawn("lines", count)):
        (folder := tmp_path / str(i)).mkdir()
        line = [*command, option, value]
        if option in command:  # in its place
            line = [*command]
            line[line.index(option) + 1] = value
        began, problem, status = time.perf_counter(), "", 0
        out, error = io.StringIO(), io.StringIO()
        with contextlib.chdir(folder):
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
                    status = main(line)
            except BaseException as raised:
                problem = repr(raised)
        *_, last = ["", *error.getvalue().strip().split("\n")]
        if status == 2 and not (last.startswith("jaxfl: error: ") and last.endswith((".", "?"))):
            problem = f"says {error.getvalue()!r}"
        if status not in (0, 2) or "Traceback" in error.getvalue():
            problem = f"status {status}"
        if time.perf_counter() - began > LONGEST:
            problem += " too slow"
        if problem:
            wrong.append(f"{command[0]} {option} {value!r}: {problem}")
    assert not wrong, "\n".join(wrong)
