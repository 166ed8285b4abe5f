"""`jaxfl account`, `jaxfl calibrate` and `jaxfl audit`: privacy by the name of an algorithm."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxfl.algorithms.registry import algorithm
from jaxfl.audit import questions
from jaxfl.audit.attack import audit
from jaxfl.core import params
from jaxfl.core.errors import InputError
from jaxfl.parts import compressors, sampling

__all__ = ["run_question"]

# Options that are words; all others are numbers, or flags without a value.
TEXTS = (
    "adjacency", "clip_mode", "clip_what", "compressor", "find", "method", "noise", "sampler",
    "sampling", "seen",
)  # fmt: skip
# what jaxfl.audit.attack.audit takes, and a line of words cannot say or says otherwise
NOT_ASKED = {
    "algorithm": "it is the first word",
    "m": "say --samples",
    "key": "say --seed",
    "event": "in Python give it to jaxfl.audit.attack.audit",
    "chunk": "in Python give it to jaxfl.audit.attack.audit",
}
# what jaxfl.privacy.accountants means by its letters
STATUS = {
    "E": "established: by published accountants",
    "D": "derived: by an elementary derivation of ours",
    "N": "new: its proof is sketched and checked numerically, not reviewed",
}
FLAGS = (
    "none: what is proven is no more than what the paper claims",
    "the noise proves less privacy than the paper claims for it",
)
HELP = {
    "account": """\
usage: jaxfl account NAME --sigma S (--delta D | --eps E) [--NUMBER VALUE ...] [--json]
       [--runs K [--seen all|winner]]

What the noise proves: eps at delta, or delta at eps; beside it what the paper's formula claims.
With --runs K also what is proven once the best of K runs, each with its own noise, was chosen on the
private data: everybody sees all of them (the default), or --seen winner: a trusted party draws their
number (K on average) and shows the best alone.

  jaxfl account soteriafl_sgd --samples 3256 --batch 51 --rounds 100 --clip 0.5 \\
        --sigma 0.01 --delta 1e-3
  jaxfl account event --samples 3256 --batch 51 --rounds 100 --clip 1 --noise-multiplier 1 --delta 1e-3
""",
    "audit": """\
usage: jaxfl audit ALGORITHM [--samples M] [--rounds T] [--runs R] [--NUMBER VALUE ...] [--json]

A lower bound on eps by attack: R runs in each of two worlds that differ in one record, told apart
by what the server sees.  --sampler, --compressor and --clip-mode exchange parts, --noise paper takes
the paper's noise, --claimed E sets a claim to refute, --confidence, --seed, --delta; the others are the
algorithm's own numbers.

  jaxfl audit ldp_sgd --samples 1000 --rounds 100 --runs 10000 --batch 50 --eps 5
  jaxfl audit ldp_sgd --samples 1000 --rounds 20 --runs 4000 --batch 100 --clip-mode batch \\
        --noise paper --eps 5
""",
    "calibrate": """\
usage: jaxfl calibrate NAME --eps E --delta D [--NUMBER VALUE ...] [--json]

The least noise for (eps, delta); beside it the paper's.  With --sigma and --find rounds or
--find batch: the most rounds, or the smallest batch, instead.

  jaxfl calibrate soteriafl_gd --samples 3256 --rounds 100 --clip 0.5 --eps 5 --delta 1e-3 --json
""",
}

PARAMETERS = """\
Of an algorithm: its hyper-parameters (jaxfl run NAME --help), --samples, --rounds, --clients (or
--devices, --machines), --sampling, --dimension; --fresh and --convex of local SGD; --epochs and --inner
instead of --rounds.  Of an event: --samples, --rounds, --clip, --batch, --sampling, --slots,
--adjacency, --record-norm, --noise-multiplier.  What is not given is the algorithm's own default, and is
shown as assumed where it matters."""


def run_question(command: str, words: Sequence[str]) -> None:
    """Answer on standard output: a line per number, or one JSON object."""

    if not words or "-h" in words or "--help" in words:
        print(HELP[command])
        if command == "audit":
            return
        print("NAME is one of:", ", ".join(questions.names()))
        print(PARAMETERS)
        return
    name = words[0]
    if name.startswith("-"):
        raise InputError(
            f"jaxfl {command} begins with a {HELP[command].split()[3]}, not with {name}."
        )
    options = _pairs(words[1:])
    for option in set(options) & set(NOT_ASKED if command == "audit" else ()):
        way = NOT_ASKED[option]
        raise InputError(f"jaxfl {command} takes no --{option} {options[option]}: {way}.")
    as_json = options.pop("json", False)
    asks: dict[str, Callable[..., dict[str, Any]]] = {
        "account": questions.account,
        "calibrate": questions.calibrate,
        "audit": _audit,
    }
    answer = asks[command](name, **options)
    if as_json:
        print(json.dumps({name: _plain(value) for name, value in answer.items()}))
        return
    rows = _rows(answer)
    width = max(len(name) for name, _ in rows)
    for name, words in rows:
        print(f"{name:{width}}  {words}")


def _rows(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """An answer in words; what is empty is left out."""
    out = []
    for name, value in answer.items():
        if name == "paper_conditions":
            out += [("paper_condition", _condition(**condition)) for condition in value]
        elif name.startswith("status"):
            out.append((name, STATUS.get(value, "nothing is proven")))
        elif isinstance(value, dict):
            out.append((name, ", ".join(f"{each} = {_shown(v)}" for each, v in value.items())))
        elif name == "flag":
            out.append((name, FLAGS[bool(value)]))
        elif value is not None and value != "":
            out.append((name, _shown(value)))
    return out


def _condition(text: str, holds: bool | None, needed: bool) -> str:
    judged = {True: "holds", False: "does not hold", None: "may hold or not"}[holds]
    return judged + ", and the formula needs it" * (needed and holds is False) + f": {text}"


def _audit(
    name: str,
    /,
    *,
    samples: int = 1000,
    rounds: int = 100,
    runs: int = 10_000,
    seed: int = 0,
    clip_mode: str = "example",
    sampler: str | None = None,
    compressor: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    import jax

    if options.get("eps") == math.inf:
        raise InputError("--eps inf has to be finite: for no noise give --sigma 0.")
    parts: dict[str, Any] = {"clip": clip_mode}
    if sampler is not None:
        parts["sampler"] = sampling.sampler(sampler)
    if compressor is not None:
        parts["compressor"] = compressors.compressor(compressor)
    whole = params.whole
    found = audit(
        algorithm(name, **parts),
        rounds=whole("rounds", rounds, 1),
        key=jax.random.key(whole("seed", seed, 0)),
        m=whole("samples", samples, 1),
        runs=whole("runs", runs, 20),
        **options,
    )
    return {**found._asdict(), "refuted": found.refuted, "exposed": found.exposed}


def _pairs(words: Sequence[str]) -> dict[str, Any]:
    """``--name value`` and ``--name=value``; an option without a value is a flag that is set."""
    out: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise InputError(f"{word!r} is not an option: write --name value.")
        flag, given, value = word[2:].partition("=")
        if not given:
            has_value = bool(left) and (not left[0].startswith("--"))
            value = left.pop(0) if has_value else "true"
        name = flag.replace("-", "_")
        if name in out:
            raise InputError(f"Option --{flag} is given twice, the second time as {value}.")
        out[name] = _value(value)
        if isinstance(out[name], str) and name not in TEXTS:
            raise InputError(f"--{flag} {value} has to be a number.")
    return out


def _value(text: str) -> Any:
    """A number, true or false, else the text."""
    readers: tuple[Callable[[str], Any], ...] = (int, float)
    for read in readers:
        try:
            return read(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def _plain(value: Any) -> Any:
    """JSON has no infinity: such a number becomes a string."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    return value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.8g}" if isinstance(value, float) else str(value)
