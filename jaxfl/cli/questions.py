"""`jaxfl account`, `jaxfl calibrate` and `jaxfl audit`: privacy by the name of an algorithm."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from jaxfl.algorithms.registry import ALGORITHMS, algorithm, of_a_file
from jaxfl.audits import questions
from jaxfl.audits.attack import audit
from jaxfl.audits.calculators import CALCULATORS
from jaxfl.audits.ranges import FLAGS, NUMBERS
from jaxfl.cli.compute import ended
from jaxfl.cli.parser import Once, Parser, hyper_parameters
from jaxfl.cli.report import REFUTED, print_json
from jaxfl.cli.written import flag
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import closest, known, reads, whole
from jaxfl.privacy.accountants import STATUS
from jaxfl.privacy.claims import Condition
from jaxfl.privacy.events import protects
from jaxfl.privacy.gaussian import check_delta

__all__ = ["parameters", "question_parser", "run_account", "run_audit", "run_calibrate"]

# Options whose values are words; all others take numbers, or are flags.
TEXTS = (
    "adjacency", "algorithm", "as", "clip_mode", "clipping", "compressor", "find", "method",
    "name", "noise", "sampler", "seen", "where",
)  # fmt: skip
# Options of `jaxfl audit` that jaxfl.audits.attack.audit has not: parts, and counts with default and least
EXCHANGED = {"clip_mode": "clip", **{r: r for r in ("clipping", "sampler", "compressor")}}
REFUTES = {"refutes_proof": "proven", "refutes_claim": "claimed", "refutes_described": "described"}
COUNTS = {"samples": (1000, 1), "rounds": (100, 1), "runs": (10_000, 20), "seed": (0, 0)}
# Parameters of jaxfl.audits.attack.audit that are no options.
NO_OPTIONS = {
    "algorithm": "it is the first word",
    "m": "use --samples",
    "key": "use --seed",
    **dict.fromkeys(("event", "chunk", "progress"), "in Python give it to jaxfl.audit"),
}
NO_DATA = dict.fromkeys(
    ("data", "model"), "no data are read; give what the proof needs of them, such as --samples"
)
UNFLAGGED = "none"
FLAGGED = "the proven eps is above the paper's by more than 1 %", "no eps is proven"
CHECKED = "no: its constant could not be checked", "yes: compared with the text of the paper"


def run_account(words: Sequence[str]) -> None:
    r"""usage: jaxfl account NAME (--delta D | --eps E) [--PARAMETER VALUE ...]
       jaxfl account DIR [--where AXIS=V ...] [--rounds T] [--delta D]

    Compute the eps that is proven for a given noise at delta, or the delta at eps, and
    print what the paper's formula claims for the same noise.  `eps` is the proven one, and the lines
    on the paper say how far its formula applies.  No data are read.  Of a run in DIR, or of the setting of
    a sweep that --where names: the same after T rounds in all with the same noise, fewer or more than it
    has.

      jaxfl account results/ldp_sgd --rounds 500
      jaxfl account grid --where algorithm=ldp_sgd eps=1 --rounds 500
      jaxfl account soteriafl_sgd --samples 3256 --batch 51 --rounds 100 --clip 0.5 \
            --sigma 0.01 --delta 1e-3
      jaxfl account event --samples 3256 --batch 51 --rounds 100 --clip 1 --noise-multiplier 1 --delta 1e-3
      jaxfl account ldp_sgd --samples 100 --batch 10 --rounds 20 --clip 1 --sigma 0.3 --delta 1e-5 --runs 8

      --sigma S                 standard deviation of the noise on a coordinate of a client's estimate;
                                needed by algorithms (`event` also takes --noise-multiplier)
      --delta D, --eps E        give one of them; the other is computed
      --runs K                  also compute the eps of the best of K runs, each with its own noise, that
                                is chosen on the private data
      --seen all|winner         all (default): all runs are published; winner: only the best run is
                                published, and a trusted party draws the number of runs, K on average
      --as dp-event             also print the event (what a run releases about one record) as a DpEvent
                                of dp_accounting, and name the accountant there that supports it
      --as card                 also print mu of Gaussian differential privacy, valid wherever delta is at
                                least the given one, its regret, the largest true positive rates of an
                                attack at false positive rates of 1 % and 0.1 %, and with --json the
                                privacy profile
      --method NAME             another proof.  For SVRG and SAGA: chain, reveal (default: the better of
                                them) or theorem_k (new, not reviewed).  For shuffled epochs: ceil,
                                which counts a partial pass as a whole one
    """
    _answer("account", "NAME", _account, words)


def run_calibrate(words: Sequence[str]) -> None:
    r"""usage: jaxfl calibrate NAME --eps E --delta D [--PARAMETER VALUE ...]

    Compute the least noise for which (eps, delta) is proven, and print the noise of the paper's
    formula too.  `eps` is the proven one, and the lines on the paper say how far its formula
    applies.  No data are read.

      jaxfl calibrate soteriafl_gd --samples 3256 --rounds 100 --clip 0.5 --eps 5 --delta 1e-3
      jaxfl calibrate ldp_sgd --samples 3256 --batch 51 --clip 1 --sigma 0.01 --eps 5 --delta 1e-3 \
            --find rounds

      --find rounds|batch       with --sigma: compute the most rounds, or the smallest batch, instead
      --method NAME             another proof.  For SVRG and SAGA: chain, reveal (default: the better of
                                them) or theorem_k (new, not reviewed).  For shuffled epochs: ceil,
                                which counts a partial pass as a whole one
    """
    _answer("calibrate", "NAME", questions.calibrate, words)


def run_audit(words: Sequence[str]) -> int:
    r"""usage: jaxfl audit ALGORITHM [--runs R] [--PARAMETER VALUE ...]

    Measure a lower bound on eps by an attack: run the algorithm R times on each of two data sets that
    differ in one record, and distinguish the data sets by the points at which gradients are evaluated, of
    the server or of each node; where a proof rests on parts of your own, by the messages of the client that
    holds the record.  There are two bounds, each at the stated confidence.  `plain` assumes nothing: the
    true eps is at least that.  `curve` holds if only the amount of noise differs from what the accountant
    assumes, and refutes the proof where it exceeds `proven`.  `needed` is one of the two, chosen on
    separate runs; `lower` is `needed` where the event is proven, and else `plain`.  `refutes_claim` says
    whether the claimed eps is below `lower`, and `refutes_proof` whether the proven one is below
    `needed`.  `statistic` is the number that distinguishes runs.  `power` is, for false positive rates of
    1 % and 0.1 %, a true positive rate above these that the attack reaches; few runs certify none.

    Where a proof rests on parts of your own (--import FILE) an audit proves nothing: the eps of a run holds
    if they are as they declare, which the run probes and an audit does not.  `described` is then the eps
    of the event that it describes, `refutes_described` whether that is below `needed`, and
    `did_not_look_at` what the attack cannot see.  `verdict` has in words which number refutes which.  The
    exit status is 3 if any of them is refuted.

      jaxfl audit ldp_sgd --samples 1000 --rounds 100 --runs 10000 --batch 50 --eps 5
      jaxfl audit ldp_sgd --samples 1000 --rounds 20 --runs 4000 --batch 100 --clip-mode batch \
            --noise paper --eps 5

      --samples M               records of a client (default: 1000)
      --rounds T                rounds of each run (default: 100)
      --runs R                  runs on each data set (default: 10000)
      --clients N               number of clients, one of whom holds the record (default: 1)
      --dim D                   coordinates of the model (default: 1)
      --eps E                   eps that the noise is chosen for (default: 5)
      --claimed E               the claimed eps (default: that of the paper's formula)
      --noise HOW               calibrated (default) or paper: the noise of the paper's formula
      --sampler NAME            replace the algorithm's sampler
      --compressor NAME         replace the algorithm's compressor
      --clip-mode HOW           example (default), client or batch
      --clipping HOW            hard or smooth (default: that of the algorithm)
      --turning E               let the adversary flip the sign of the record's gradient in every E-th
                                round, as SVRG and SPIDER need, whose differences otherwise cancel it
      --confidence P            confidence of the bound (default: 0.95)
      --delta D                 delta of the bound (default: that of the algorithm)
      --seed S                  seed of all random draws (default: 0)

    Other options are hyper-parameters of the algorithm (`jaxfl run ALGORITHM --help`).
    """
    answer = _answer("audit", "ALGORITHM", _audit, words)
    return REFUTED * any(answer[name] for name in REFUTES)


def parameters(command: str, words: Sequence[str]) -> str:
    """parameters of an algorithm:
      its hyper-parameters (`jaxfl run NAME --help`), and
      --samples M               records of a client; where clients have different numbers, the smallest
      --rounds T                number of rounds; for some algorithms --epochs and --inner instead
      --clients N               number of clients (--devices and --machines are the papers' words)
      --sampler NAME            how a client draws its batch: a name of `jaxfl list samplers`
      --dimension D             coordinates of the model
      --fresh                   with local steps: clients shuffle their records anew in every round
      --convex                  with local steps: every example's loss is convex

    parameters of `event`, a noised mean of clipped gradients that is released once per round:
      --samples, --rounds, --clip, --batch, --sampler, --sigma: as of an algorithm
      --adjacency HOW           how neighbouring data sets differ: replace_one (default), add_remove or
                                zero_out
      --noise-multiplier Z      noise in units of clip/b, instead of --sigma
      --slots K                 most records that a Poisson batch can hold; the rest of a draw is lost
      --record-norm X           norm of what one record adds to the sum, where it exceeds --clip

    Give samples, rounds and batch.  Other parameters that are not given take the algorithm's defaults;
    those that affect the result are listed under `assumed`.  The docstring of jaxfl.privacy.accountants
    explains the methods.
    """
    names = sorted(set(questions.names()) - {*CALCULATORS, "event"})
    said = ["NAME is an algorithm:", textwrap.indent(textwrap.fill(", ".join(names), 98), "  ")]
    said += ["or event, any mean of clipped gradients (a subsampled Gaussian mechanism)."]
    if command == "account":
        said += ["", "NAME is also a calculator (without values it says which it needs):"]
        about = {name: str(make.__doc__).splitlines()[0] for name, make in CALCULATORS.items()}
        said += [f"  {name:<18}  {what}" for name, what in about.items()]
    return "\n".join([*said, "", str(inspect.getdoc(parameters))])


def question_parser(command: str) -> Parser:
    """All that `jaxfl account`, `jaxfl calibrate` or `jaxfl audit` takes."""
    parser = Parser()
    first = "algorithm" if command == "audit" else "name"
    parser.add_argument(first, nargs="?", metavar=first.upper())
    asked = audit if command == "audit" else getattr(questions, command)
    names = {*signature(asked).parameters, *hyper_parameters()}
    names -= {"name", "params", "options", "numbers", *NO_OPTIONS}
    if command == "audit":
        names |= {*EXCHANGED, *COUNTS}
    else:
        names |= {*NUMBERS, *FLAGS, "sampler", "adjacency", "as"}
    for name in sorted(names - {"json"}):
        parser.add_argument(flag(name), nargs="?", const="true", action=Once)
    if command == "account":
        parser.add_argument("--where", nargs="+", action="extend")
    parser.add_argument("--json", action="store_true")
    return parser


def _answer(
    command: str, first: str, ask: Callable[..., dict[str, Any]], words: Sequence[str]
) -> dict[str, Any]:
    """Print the answer: one line per value, or one JSON object."""
    begins = f"jaxfl {command} begins with a {first}, not with {words[0]}"
    require(not words[0].startswith("-"), begins)
    others = NO_DATA | (NO_OPTIONS if command == "audit" else {})
    for name in (word[2:].partition("=")[0] for word in words if word.startswith("--")):
        takes = lambda: f"jaxfl {command} takes no --{name}"  # noqa: E731
        require(name not in others, takes, others.get(name, ""))
    parser = question_parser(command)
    found, rest = parser.parse_known_args(words)
    parser.finish(rest, "write --name value", f"`jaxfl {command} --help` explains the options")
    given = {name: _value(name, text) for name, text in vars(found).items() if text is not None}
    as_json, name = given.pop("json"), given.pop(first.lower())
    answer = ask(name, **given)
    if as_json:
        print_json(answer)
        return answer
    rows = _rows(answer)
    width = max(len(name) for name, _ in rows)
    for name, said in rows:
        print(f"{name:{width}}  {said}")
    return answer


def _rows(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """An answer in words, without empty values."""
    out = []
    for name, value in answer.items():
        if name == "paper_conditions":
            out += [("paper_condition", str(Condition(**condition))) for condition in value]
        elif name == "formula_checked":
            out.append((name, CHECKED[bool(value)]))
        elif name == "unseen":
            asked = re.compile(r"ask for (\w+) = ")
            out += [("did_not_look_at", asked.sub(r"give --\1 ", what)) for what in value]
        elif name.startswith("status"):
            out.append((name, STATUS.get(value, "nothing is proven")))
        elif isinstance(value, dict) and name != "profile":
            pairs = ", ".join(f"{each} = {_shown(v)}" for each, v in value.items())
            out.append((name, pairs or "nothing certified" * (name == "power")))
        elif name == "flag":
            unproven = answer.get("eps") in (None, math.inf)
            out.append((name, FLAGGED[unproven] if value else UNFLAGGED))
        elif value is not None and value != "" and name != "profile":
            out.append((name, _shown(value)))
    return out


def _account(name: str, **given: Any) -> dict[str, Any]:
    if not Path(name).is_dir():
        alone = f"--where is for the folder of a sweep, and there is no folder {name}"
        require("where" not in given, alone)
        if name.replace("-", "_").lower() not in (*questions.names(), *ALGORITHMS):
            words = closest("algorithm or question", name, questions.names(), of_a_file())
            raise InputError(f"There is no folder {name}, and {words[0].lower()}{words[1:]}")
        return questions.account(name, **given)
    others = ", ".join(flag(each) for each in sorted(given.keys() - {"rounds", "delta", "where"}))
    takes = f"jaxfl account {name} is about runs, and takes no {others}"
    require(not others, takes, "give --rounds and --delta, of a sweep --where")
    run = ended(Path(name), given.get("where", ()))
    rounds = whole("rounds", given.get("rounds", run.counted), 1)
    delta = check_delta(given.get("delta", run.delta))
    report, now = run.privacy(delta, rounds=rounds), run.spent([run.counted], delta).item()
    whose = "given" if "delta" in given else f"of the run, {run.sources.get('delta', 'default')}"
    out = {"kind": run.algorithm.name, "rounds": rounds, "sigma": run.values.get("sigma")}
    out |= {"delta": delta, "delta_from": whose, "eps": report.proven, "eps_so_far": now}
    out |= {"method": report.method, "status": report.status, "protects": protects(report.event)}
    if report.claimed is not None:
        out |= {"claimed_eps": report.claimed, "delta_at_claimed_eps": report.delta_at_claimed}
        out |= {"flag": report.flag, "paper": report.source}
    return out


def _audit(name: str, **given: Any) -> dict[str, Any]:
    import jax

    finite = given.get("eps") != math.inf
    require(finite, "--eps inf must be finite", "for no noise give --sigma 0")
    known("algorithm", name, ALGORITHMS, of_a_file())
    parts = {role: given.pop(name) for name, role in EXCHANGED.items() if name in given}
    given |= {n: whole(n, given.get(n, usual), least) for n, (usual, least) in COUNTS.items()}
    key, m = jax.random.key(given.pop("seed")), given.pop("samples")
    found = audit(algorithm(name, **parts), key=key, m=m, **given)
    facts = found._asdict()
    said = {n: None if facts[eps] is None else getattr(found, n) for n, eps in REFUTES.items()}
    return {**facts, **said, "verdict": found.verdict}


def _value(name: str, text: Any) -> Any:
    """A number, true or false, or a text where the option takes one."""
    if isinstance(text, str) and reads(text):
        way = f"write {text[1:]}, or the total of rounds"  # a plus could mean more
        require(text[:1] != "+", "must have no plus sign", way, **{flag(name): text})
        return int(text) if text.lstrip("-").isdigit() else float(text)
    found = {"true": True, "false": False}.get(str(text).lower(), text)
    require(name in TEXTS or isinstance(found, bool), "must be a number", **{flag(name): text})
    return found


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.8g}" if isinstance(value, float) else str(value)
