"""`jaxfl account`, `jaxfl calibrate` and `jaxfl audit`: privacy by the name of an algorithm."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from jaxfl.algorithms.registry import algorithm
from jaxfl.audit import questions
from jaxfl.audit.attack import audit
from jaxfl.audit.ranges import FLAGS, NUMBERS, WORDS
from jaxfl.cli.parser import Parser, hyper_parameters
from jaxfl.cli.written import flag
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import reads, whole
from jaxfl.engine.results import plain
from jaxfl.parts import compressors, sampling

__all__ = ["parameters", "question_parser", "run_account", "run_audit", "run_calibrate"]

# Options whose values are words; all others take numbers, or are flags.
TEXTS = (
    "adjacency", "as", "clip_mode", "clip_what", "compressor", "find", "method", "noise", "sampler",
    "sampling", "seen",
)  # fmt: skip
# Parameters of jaxfl.audit.attack.audit that are no options.
NO_OPTIONS = {
    "algorithm": "it is the first word",
    "m": "use --samples",
    "key": "use --seed",
    "event": "in Python give it to jaxfl.audit.attack.audit",
    "chunk": "in Python give it to jaxfl.audit.attack.audit",
}
# Statuses of jaxfl.privacy.accountants.
STATUS = {
    "E": "established: by published accountants",
    "D": "derived: by an elementary derivation of ours",
    "N": "new: its proof is sketched and checked numerically, not reviewed",
}
FLAGGED = (
    "none: what is proven is no more than what the paper claims",
    "the noise proves less privacy than the paper claims for it",
)


def run_account(words: Sequence[str]) -> None:
    r"""usage: jaxfl account NAME --sigma S (--delta D | --eps E) [--PARAMETER VALUE ...] [--json]
           [--runs K [--seen all|winner]] [--as dp-event]

    The proven eps at delta, or delta at eps, and the claim of the paper's formula.  With --runs K also
    the proven eps of selecting the best of K runs, each with its own noise, on the private data: all of
    them are seen (the default), or with --seen winner only the best, of a random number of runs (K on
    average) that a trusted party draws.  With --as dp-event also the event as a DpEvent of dp_accounting,
    and the accountant there that takes it.

      jaxfl account soteriafl_sgd --samples 3256 --batch 51 --rounds 100 --clip 0.5 \
            --sigma 0.01 --delta 1e-3
      jaxfl account event --samples 3256 --batch 51 --rounds 100 --clip 1 --noise-multiplier 1 --delta 1e-3
    """
    _answer("account", "NAME", questions.account, words)


def run_calibrate(words: Sequence[str]) -> None:
    """usage: jaxfl calibrate NAME --eps E --delta D [--PARAMETER VALUE ...] [--json]

    The least noise for (eps, delta), and the paper's.  With --sigma and --find rounds or --find batch:
    the most rounds, or the smallest batch, instead.

      jaxfl calibrate soteriafl_gd --samples 3256 --rounds 100 --clip 0.5 --eps 5 --delta 1e-3 --json
    """
    _answer("calibrate", "NAME", questions.calibrate, words)


def run_audit(words: Sequence[str]) -> None:
    r"""usage: jaxfl audit ALGORITHM [--samples M] [--rounds T] [--runs R] [--PARAMETER VALUE ...] [--json]

    A lower bound on eps by attack: R runs on each of two data sets that differ in one record, told apart
    by what the server sees.  --sampler, --compressor and --clip-mode exchange parts, --noise paper uses
    the paper's noise, --claimed E sets a claim to refute, --clients N has as many clients, one of whom
    holds the record, --turning E turns its sign in every E-th round; further --confidence, --seed, --delta
    and the algorithm's hyper-parameters.

      jaxfl audit ldp_sgd --samples 1000 --rounds 100 --runs 10000 --batch 50 --eps 5
      jaxfl audit ldp_sgd --samples 1000 --rounds 20 --runs 4000 --batch 100 --clip-mode batch \
            --noise paper --eps 5
    """
    _answer("audit", "ALGORITHM", _audit, words)


def parameters(words: Sequence[str]) -> str:
    """Of an algorithm: its hyper-parameters (jaxfl run NAME --help), --samples, --rounds, --clients (or
    --devices, --machines), --sampling, --dimension; --fresh and --convex of local SGD; --epochs and --inner
    instead of --rounds.  Of an event: --samples, --rounds, --clip, --batch, --sampling, --slots,
    --adjacency, --record-norm, --noise-multiplier.  Others take the algorithm's defaults, and are
    listed as assumed where they matter.
    """
    return f"NAME is one of: {', '.join(questions.names())}\n{inspect.getdoc(parameters)}"


def question_parser(command: str) -> Parser:
    """All that `jaxfl account`, `jaxfl calibrate` or `jaxfl audit` takes."""
    parser = Parser()
    first = "algorithm" if command == "audit" else "name"
    parser.add_argument(first, nargs="?", metavar=first.upper())
    asked = {**signature(_audit if command == "audit" else getattr(questions, command)).parameters}
    names = {*asked, *hyper_parameters()} - {"name", "params", "options"}
    if command == "audit":
        names |= {*signature(audit).parameters} - {"numbers", *NO_OPTIONS}
    else:
        names |= {*NUMBERS, *FLAGS, *WORDS, "sampling", "adjacency", "as"}
    for name in sorted(names - {"json"}):
        parser.add_argument(flag(name), nargs="?", const="true")
    parser.add_argument("--json", action="store_true")
    return parser


def _answer(
    command: str, first: str, ask: Callable[..., dict[str, Any]], words: Sequence[str]
) -> None:
    """Print the answer: one line per value, or one JSON object."""
    name = words[0]
    require(not name.startswith("-"), f"jaxfl {command} begins with a {first}, not with {name}")
    options = _pairs(words[1:])
    for option in set(options) & set(NO_OPTIONS if command == "audit" else ()):
        unknown = f"jaxfl {command} takes no --{option} {options[option]}"
        raise InputError(unknown, NO_OPTIONS[option])
    as_json = options.pop("json", False)
    answer = ask(name, **options)
    if as_json:
        print(json.dumps(plain(answer)))
        return
    rows = _rows(answer)
    width = max(len(name) for name, _ in rows)
    for name, said in rows:
        print(f"{name:{width}}  {said}")


def _rows(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """An answer in words, without empty values."""
    out = []
    for name, value in answer.items():
        if name == "paper_conditions":
            out += [("paper_condition", _condition(**condition)) for condition in value]
        elif name.startswith("status"):
            out.append((name, STATUS.get(value, "nothing is proven")))
        elif isinstance(value, dict):
            out.append((name, ", ".join(f"{each} = {_shown(v)}" for each, v in value.items())))
        elif name == "flag":
            out.append((name, FLAGGED[bool(value)]))
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

    finite = options.get("eps") != math.inf
    require(finite, "--eps inf must be finite", "for no noise give --sigma 0")
    parts: dict[str, Any] = {"clip": clip_mode}
    if sampler is not None:
        parts["sampler"] = sampling.sampler(sampler)
    if compressor is not None:
        parts["compressor"] = compressors.compressor(compressor)
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
    """Values of ``--name value`` and ``--name=value``; True for ``--name`` alone."""
    out: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        is_option = word.startswith("--") and len(word) > 2
        require(is_option, f"{word!r} is not an option", "write --name value")
        flag, given, value = word[2:].partition("=")
        if not given:
            value = left.pop(0) if left and not left[0].startswith("--") else "true"
        name = flag.replace("-", "_")
        require(name not in out, f"Option --{flag} is given twice, the second time as {value}")
        out[name] = _value(value)
        is_number = not isinstance(out[name], str)
        require(is_number or name in TEXTS, f"--{flag} {value} must be a number")
    return out


def _value(text: str) -> Any:
    """A number, true or false, else the text."""
    if reads(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.8g}" if isinstance(value, float) else str(value)
