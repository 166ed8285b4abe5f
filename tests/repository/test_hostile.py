"""Hostile input, drawn with a fixed seed: one sentence or a result, never a traceback."""

import contextlib
import functools
import inspect
import io
import operator
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
PROBLEM = jaxfl.Problem(jaxfl.models.logistic(4), DATA)
GIVEN = {"delta": 1e-3, "clip": 1.0, "batch": 10, "rounds": 5}


def make(source: Any, i: Any, j: Any) -> Any:
    return jnp.zeros(4), jnp.int32(0)


SET = jaxfl.data.Dataset("d", ROWS, None, 2)
FEW = [{"a": 1.0, "y": 0}] * 6
RUN = {**GIVEN, "rounds": 2, "sigma": 0.5, "lr": 0.1, "batch": 2, "resume": False}
SWEPT = {"rounds": 2, "seeds": 1, "sigma": 0.1, "batch": 2, "eval_every": 1}
# What functions have to be given; all other arguments may be hostile too.
CALLS: dict[str, dict[str, Any]] = {
    "simulate": {"algorithm": "cdp_sgd", "problem": PROBLEM, "key": jax.random.key(0), **RUN},
    "sweep": {"algorithm": "ldp_sgd", "lr": [0.1], "problem": PROBLEM, **SWEPT},
    "Problem": {"model": jaxfl.models.logistic(4), "data": DATA},
    "data.from_clients": {"arrays": [ROWS], "classes": 2},
    "data.from_clients of a frame": {"arrays": FRAME, "client": "c", "label": "y"},
    "data.from_examples": {"dataset": FEW, "features": "a", "label": "y", "clients": 2},
    "data.leaf": {"folder": "/nope"},
    "data.heterogeneity": {"data": DATA},
    "data.split": {"dataset": SET, "clients": 2},
    "data.partition.dirichlet": {"labels": ROWS[1], "clients": 2},
    "data.partition.class_pairs": {"labels": ROWS[1], "clients": 1},
    "data.splits.holdout": {"parts": [np.arange(6)], "share": 0.5},
    "data.records.gather": {"dataset": SET, "parts": [[0, 1]]},
    "data.synthetic": {"n": 2, "m": 3, "d": 4, "classes": 2},
    "data.generated": {"make": make, "clients": 3, "samples": 3, "classes": 2, "source": ()},
    "data.load": {"name": "digits"},
    "load": {"path": "/nope"},
    "data.loaders.load_libsvm": {"path": "/nope"},
    "models.mlp": {"features": 4, "hidden": (3,), "classes": 3},
    "account": {"samples": 100, **GIVEN, "sigma": 1.0},
    "calibrate": {"samples": 100, **GIVEN, "eps": 1.0},
    "algorithm": {"name": "cdp_sgd", "compressor": None, "sampler": None, "storage": "exact"},
    "parts.compressors.compressor": {"name": "random_k"},
    "parts.graphs.graph": {"name": "ring"},
    "parts.graphs.erdos_renyi": {"p": 0.9, "seed": 0},
    "parts.graphs.mixing": {"W": np.eye(3)},
    "parts.dropouts.enrol": {"clients": [0, 1], "threshold": 1, "seed": 0},
}


# Flags and words whose kinds nobody looks at.
UNSEEN = {"say", "announce", "paired", "resume", "extend"}
UNSEEN |= {"indices", "eval_records", "reuse", "method"}


def function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = operator.attrgetter(name.split()[0])(jaxfl)
    return functools.partial(found, "ldp_sgd") if name in ("account", "calibrate") else found


def arguments(name: str) -> list[str]:
    taken = inspect.signature(function(name)).parameters.values()
    named = [p.name for p in taken if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    others = [other for other in named if other not in {*CALLS[name], *UNSEEN}]
    return [*CALLS[name], *(others if name != "parts.graphs.mixing" else [])]


def sample(every: list[Any], count: int) -> list[Any]:
    """This many of them, distinct."""
    return [every[i] for i in np.random.default_rng(20).permutation(len(every))[:count]]


def ended(call: Callable[[], Any]) -> str:
    """How a call ended, if not as it should: in a result or in one sentence, soon."""
    began, problem = time.perf_counter(), ""
    try:
        problem = call() or ""
    except BaseException as raised:
        problem = repr(raised)
    return problem + " too slow" * (time.perf_counter() - began > LONGEST)


COUNT = pytest.mark.parametrize("count", [12, pytest.param(350, marks=pytest.mark.full)])


@COUNT  # some compile
def test_a_call_ends_in_a_result_or_in_one_sentence(count: int, tmp_path: Path) -> None:
    def called(name: str, argument: str, value: str) -> str:
        try:
            function(name)(**{**CALLS[name], argument: VALUES[value]})
        except InputError as error:
            text = str(error)
            return "" if text.endswith((".", "?")) and "\n" not in text else text
        return ""

    every = [(f, a, v) for f in CALLS for a in arguments(f) for v in VALUES]
    with contextlib.chdir(tmp_path):
        found = {one: ended(functools.partial(called, *one)) for one in sample(every, count)}
    assert not {one: problem for one, problem in found.items() if problem}


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


@COUNT
def test_a_command_line_ends_in_a_result_or_in_one_sentence(count: int, tmp_path: Path) -> None:
    def called(line: list[str]) -> str:
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = main(line)
        *_, last = ["", *error.getvalue().strip().split("\n")]
        if status == 2 and not (last.startswith("jaxfl: error: ") and last.endswith((".", "?"))):
            return f"says {error.getvalue()!r}"
        bad = status not in (0, 2) or "Traceback" in error.getvalue()
        return f"status {status}" if bad else ""

    wrong = {}
    every = [(command, o, v) for command in LINES for o in OPTIONS[command[0]] for v in WORDS]
    for i, (command, option, value) in enumerate(sample(every, count)):
        (folder := tmp_path / str(i)).mkdir()
        line = [*command, option, value]
        if option in command:  # in its place
            line = [*command]
            line[line.index(option) + 1] = value
        with contextlib.chdir(folder):
            wrong[command[0], option, value] = ended(functools.partial(called, line))
    assert not {one: problem for one, problem in wrong.items() if problem}
