"""The record of numbers: what every algorithm computes, draws, counts and proves.

python tests/record.py compare [WORD ...]   the differences between the record and this code; exit 1 if any
python tests/record.py write [WORD ...]     record again the cases whose names hold a word, or all
python tests/record.py show WORD            what is recorded

``--optimized`` compiles as users do, else as cheaply as tests do; ``--jobs N`` takes N processes (2).

`cases.py` lists what is run.  Counts, bits, draws and words are equal exactly, numbers of the host
(noise, eps) to :data:`HOST`, and what rounds compute to :data:`SINGLE` or :data:`DOUBLE`, relative to the
largest entry of an array.  What this code has and the record has not is no difference.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gzip
import hashlib
import itertools
import json
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cases import DRAWN, EVERY, HALF, KEY, SEEDS, Case, cases, problem_of
from loops import Draws
from shorter import flags

import jaxfl
from jaxfl.algorithms.composition import by_messages
from jaxfl.algorithms.registry import ALGORITHMS
from jaxfl.core.errors import InputError
from jaxfl.engine import results

FILE = Path(__file__).with_name("record.json.gz")
SHOWN = 4  # differences of one run
GROUP = 20  # cases that one process computes before it forgets their programs
HOST, SINGLE, DOUBLE = 1e-11, 2e-6, 1e-11
TOTALS = ("messages", "coordinates", "gradients", "clamped", "uplink_bits", "downlink_bits")
EXACT = (*TOTALS, "client_rounds", "last_round", "diverged_at", "flag", "noisy", "n", "complete")
ON_HOST = ("eps_spent", "client_eps", "client_eps_claimed", "tried", "eps_of_choice", "broken")
DRAWING = {"participation", "sampler", "compressor"}  # parts whose draws differ
REPORT = {"proven_eps": "proven", "claimed_eps": "claimed"}  # names in sweeps and of reports
REPORTED = ("proven", "claimed", "delta", "delta_at_claimed")
POINT = {  # of the model, which sweeps do not return
    "norm": lambda problem, x: jnp.linalg.norm(x),
    "projection": lambda problem, x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)) @ x,
}

Found = dict[str, Any]  # of one run: kind -> name -> value
Runs = dict[str, Found]  # of a case: label -> run


# --- what is kept of a run -----------------------------------------------------------------------


def number(value: Any, double: bool = True) -> Any:
    """As few decimals as give the number back, in double precision or in single."""
    value = np.asarray(value)
    if value.ndim:
        return [number(one, double) for one in value]
    if value.dtype.kind in "iub":
        return int(value)
    return float(value) if double else float(str(np.float32(value)))


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def add(found: Found, kind: str, name: str, value: Any) -> None:
    found.setdefault(kind, {})[name] = value


def add_plain(found: Found, prefix: str, values: Mapping[str, Any]) -> None:
    """Numbers of the host, and words."""
    for name, value in values.items():
        real = isinstance(value, int | float) and not isinstance(value, bool)
        add(found, "host" if real else "exact", f"{prefix}.{name}", value)


def add_variable(found: Found, name: str, values: np.ndarray, double: bool) -> None:
    """A series or the last of several, by what its name tells of its kind."""
    if name in EXACT:
        add(found, "exact", name, number(values))
    elif name in ON_HOST:
        add(found, "host", name, number(values))
    else:
        last = values if values.ndim < 2 else values[-1]
        add(found, "single", name, number(last, double))


def add_state(found: Found, state: Any, double: bool) -> None:
    """Whole numbers exactly; of others the norm and one projection, and a digest of all bits."""
    bits = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name, values = f"state{jax.tree_util.keystr(path)}", np.asarray(leaf)
        bits.update(values.tobytes())
        if values.dtype.kind in "iub":
            add(found, "exact", name, digest(values.tolist()))
        else:
            add(found, "single", name, number(summary(values), double))
    found["bits"] = bits.hexdigest()[:16]


def summary(values: Any) -> np.ndarray:
    """The norm, and a projection that tells the entries apart."""
    flat = np.ravel(np.asarray(values)).astype(np.float64)
    return np.array([np.linalg.norm(flat), flat @ np.cos(np.arange(flat.size))])


def words(key: jax.Array) -> list[int]:
    return [int(word) for word in np.ravel(jax.random.key_data(key))]


def key_of(key: Sequence[int]) -> jax.Array:
    return jax.random.wrap_key_data(np.asarray(key, np.uint32))


def add_draws(found: Found, run: jaxfl.Run) -> None:
    """Cohorts, rows and coordinates, slot by slot, and the noise that clients would draw."""
    draws = Draws(run)
    T, n = draws.T, draws.n
    add(found, "exact", "draws.cohorts", digest([draws.cohort(t) for t in range(T)]))
    steps = T * int(run.values.get("local_steps", 1))
    rows = [draws.rows(t, i) for t in range(steps) for i in range(n)]
    add(found, "exact", "draws.rows", digest(rows))
    pairs = [draws.message(t, i) for t in range(T) for i in range(n)]
    places = [np.flatnonzero(mask).tolist() for _, mask in pairs]
    add(found, "exact", "draws.masks", digest(places))
    add(found, "single", "draws.noise", number(summary([xi for xi, _ in pairs]), False))


def add_report(found: Found, report: Mapping[str, Any]) -> None:
    """What is claimed and proven, in numbers and in words."""
    for name in REPORTED:
        if report[name] is not None:
            add(found, "host", name, float(report[name]))
    add(found, "exact", "flag", int(report["flag"]))
    for name in ("method", "status", "source", "note", "conditions"):
        add(found, "exact", f"privacy.{name}", results.plain(report[name]))


def of_run(run: jaxfl.Run, case: Case, drawn: bool = False) -> Runs:
    """A run: its data set, what that says of itself, its state and its draws."""
    ds, found = run.dataset(), {"key": words(run.key)}
    about = results.config(ds)
    for name, variable in ds.data_vars.items():
        add_variable(found, str(name), variable.values, case.double)
    add(found, "exact", "rounds", ds["round"].values.tolist())
    add(found, "exact", "ended", about["ended"])
    add_plain(found, "values", about["values"])
    add_plain(found, "facts", about["facts"])
    add(found, "exact", "sources", about["sources"])
    add(found, "exact", "parts", about["settings"]["parts"])
    add_report(found, run.privacy()._asdict())
    add_state(found, run.state, case.double)
    if drawn:
        add_draws(found, run)
    return {"": found}


# --- ways to run ---------------------------------------------------------------------------------


def algorithm_of(case: Case) -> jaxfl.parts.Algorithm:
    return jaxfl.algorithm(case.algorithm, **case.parts)


def simulated(case: Case, key: Any, rounds: int | None, **more: Any) -> jaxfl.Run:
    """A run from its beginning, as the case asks for it."""
    options = {"eval_every": EVERY, "metrics": POINT, **case.options, **more}
    problem = problem_of(case.problem)
    return jaxfl.simulate(algorithm_of(case), problem, key, rounds, **options, **case.numbers)


def run(case: Case, key: Any) -> Runs:
    usual = case.algorithm in DRAWN and case.name == f"{case.algorithm}/run"
    drawn = usual or bool(DRAWING & case.parts.keys())
    return of_run(simulated(case, key, case.rounds), case, drawn)


def resumed(case: Case, key: Any) -> Runs:
    """From the folder that an interrupt in the middle leaves, and from the end to more rounds."""

    def interrupt(now: jaxfl.engine.callbacks.Evaluation) -> None:
        if now.round >= HALF - 1:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        try:
            simulated(case, key, case.rounds, out=out, callbacks=[interrupt])
        except KeyboardInterrupt:
            assert not (out / "result.nc").exists()
        middle = simulated(case, key, case.rounds, out=out, resume=True)
        return {
            "middle": of_run(middle, case)[""],
            "end": of_run(middle.extend(case.rounds + 1), case)[""],
        }


def extended(case: Case, key: Any) -> Runs:
    half = simulated(case, key, HALF)
    return of_run(half.extend(case.rounds), case)


def functions(case: Case, key: Any, messages: bool = False) -> Runs:
    """The rounds as pure functions in one scan; with ``messages`` what clients send after them."""
    algorithm, problem = algorithm_of(case), problem_of(case.problem)
    f = jaxfl.functions(algorithm, problem, case.rounds, messages=messages, **case.numbers)
    scan = jax.jit(lambda f, run: jax.lax.scan(f.round, run, length=case.rounds))
    end, counts = scan(f, f.init(key))
    found: Found = {"key": words(end.key)}
    add(found, "single", "x", number(f.output(end), False))
    for name, values in counts._asdict().items():
        add(found, "exact", f"counts.{name}", number(values))
    add_state(found, end.state, False)
    if messages:
        for name, values in f.view(end)._asdict().items():
            if name in ("clients", "words"):
                add(found, "exact", f"view.{name}", digest(np.asarray(values).tolist()))
            else:
                add(found, "single", f"view.{name}", number(summary(values), False))
    return {"": found}


def messages(case: Case, key: Any) -> Runs:
    """Every message computed: also the run as such."""
    made = by_messages(algorithm_of(case))
    options = {"eval_every": EVERY, "metrics": POINT, **case.numbers}
    whole = jaxfl.simulate(made, problem_of(case.problem), key, case.rounds, **options)
    return {"run": of_run(whole, case)[""], "view": functions(case, key, True)[""]}


# --- sweeps --------------------------------------------------------------------------------------


def swept(case: Case, key: Any, grid: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """The grid of a case, or another, as a data set."""
    options = {"seeds": SEEDS, "eval_every": EVERY, "metrics": POINT, **case.options, **more}
    grid = dict(case.grid if grid is None else grid)
    build: Any = grid.pop("algorithm", case.algorithm)
    names = case.problem.split("+")
    problem: Any = {name: problem_of(name) for name in names}
    problem = problem if len(names) > 1 else problem[case.problem]
    rounds = grid.pop("rounds", None) or options.pop("rounds", case.rounds)
    return jaxfl.sweep(build, problem, key, rounds, **options, **case.numbers, **grid)


def sweep(case: Case, key: Any) -> Runs:
    return of_sweep(swept(case, key), case)


def sweep_resumed(case: Case, key: Any) -> Runs:
    """From the folder that an interrupt after the first of two chunks leaves."""

    def interrupt(now: jaxfl.engine.progress.Progress) -> None:
        if now.chunk == 2:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "sweep"
        try:
            swept(case, key, out=out, runs_at_once=2, progress=interrupt)
        except KeyboardInterrupt:
            assert not (out / "result.nc").exists()
        return of_sweep(swept(case, key, out=out, resume=True, runs_at_once=2), case)


def sweep_extended(case: Case, key: Any) -> Runs:
    """One seed of one setting and half the rounds, then all."""
    few = {name: values[:1] for name, values in case.grid.items()}
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "sweep"
        swept(case, key, few, out=out, seeds=SEEDS[:1])
        ds = swept(case, key, out=out, extend=True)
        longer = swept(case, key, out=out, extend=True, rounds=case.rounds + 2)
    found = of_sweep(ds, case)
    more = of_sweep(longer, case)
    return {**found, **{f"{label},longer": one for label, one in more.items()}}


def of_sweep(ds: Any, case: Case) -> Runs:
    """Each run of a sweep, by its setting."""
    found: Runs = {}
    axes = [str(name) for name in results.config(ds)["axes"]]
    for place in itertools.product(*(range(ds.sizes[axis]) for axis in axes)):
        cell = ds.isel(dict(zip(axes, place, strict=True)))
        setting = {}
        for axis in axes:
            value = cell[axis].item()  # a text beside schedules
            text = isinstance(value, str) and not value.replace(".", "").isdigit()
            setting[axis] = value if text else float(value)
        for seed in ds["seed"].values.tolist():
            label = ",".join(f"{k}={v}" for k, v in {**setting, "seed": seed}.items())
            found[label] = of_cell(cell.sel(seed=seed), case)
    return found


def of_cell(ds: Any, case: Case) -> Found:
    """One run of a sweep, by the names that a run of its own has."""
    found: Found = {}
    seen = np.isfinite(ds["messages"].values)
    add(found, "exact", "rounds", ds["round"].values[seen].tolist())
    for name, variable in ds.data_vars.items():
        name, values = REPORT.get(str(name), str(name)), variable.values
        name += "/deciles" if "quantile" in variable.dims else ""
        if "round" in variable.dims:
            add_variable(found, name, values[seen], case.double)
        elif name.startswith("used_"):
            if np.isfinite(values):
                add(found, "host", name.replace("used_", "values."), number(values))
        elif name in REPORTED:
            if not np.isnan(values):
                add(found, "host", name, number(values))
        elif not name.startswith("applies_"):
            add_variable(found, name, values, case.double)
    return found


WAYS: dict[str, Callable[[Case, Any], Runs]] = {
    "run": run,
    "resumed": resumed,
    "extended": extended,
    "functions": functions,
    "messages": messages,
    "sweep": sweep,
    "sweep resumed": sweep_resumed,
    "sweep extended": sweep_extended,
}


def observed(name: str) -> Runs:
    """What a case computes now; that it is refused is an observation too."""
    case = cases()[name]
    with warnings.catch_warnings(), jax.enable_x64(case.double):
        warnings.simplefilter("ignore")
        try:
            return WAYS[case.how](case, key_of(KEY))
        except InputError as error:
            return {"": {"exact": {"refused": True}, "words": str(error)}}


# --- comparing -----------------------------------------------------------------------------------


def equal(a: Any, b: Any) -> bool:
    """Whether words and counts are the same; what is not a number equals itself."""
    return bool(a == b) or json.dumps(a) == json.dumps(b)


def close(a: Any, b: Any, most: float) -> bool:
    """Whether numbers, or arrays of them, are equal to ``most`` of the largest entry."""
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
        return bool(a == b)
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        return False
    finite = np.abs(a[np.isfinite(a)])
    scale = float(np.max(finite, initial=0.0))
    return bool(np.allclose(a, b, rtol=0.0, atol=most * scale, equal_nan=True))


def differences(name: str, recorded: Runs, now: Runs) -> Iterator[str]:
    """One line for each."""
    single = DOUBLE if name in cases() and cases()[name].double else SINGLE
    limits = {"exact": 0.0, "host": HOST, "single": single}
    for label, old in recorded.items():
        where = f"{name} [{label}]" if label else name
        if label not in now:
            yield f"{where}: it is not there any more"
            continue
        new = now[label]
        if "key" in new and old.get("key") != new["key"]:
            yield f"{where}: key {old.get('key')}, now {new.get('key')}"
        for kind, most in limits.items():
            for key, was in old.get(kind, {}).items():
                here = new.get(kind, {})
                if key not in here:
                    yield f"{where}: {kind} {key} is missing"
                    continue
                same = equal(was, here[key]) if kind == "exact" else close(was, here[key], most)
                if not same:
                    yield f"{where}: {kind} {key}: {short(was)}, now {short(here[key])}"


def short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


# --- the file ------------------------------------------------------------------------------------


def read() -> dict[str, Runs]:
    content: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    found: dict[str, Runs] = content["cases"]
    return found


def write(found: Mapping[str, Runs]) -> None:
    """Sorted, and with no time in it, so that equal numbers are equal files."""
    versions = {"jaxfl": jaxfl.__version__, "jax": jax.__version__, "numpy": np.__version__}
    content = {"versions": versions, "cases": dict(sorted(found.items()))}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


# --- the command line ----------------------------------------------------------------------------


def work(names: Sequence[str], cheap: bool) -> dict[str, Any]:
    """In a process of its own: what these cases compute, and CPU seconds."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_disable_most_optimizations", cheap)
    found = {}
    for name in names:
        began = time.process_time()
        try:
            made = observed(name)
        except Exception as error:  # of one case: the others are still told
            made = {"": {"exact": {"error": f"{type(error).__name__}: {error}"}}}
        found[name] = json.loads(json.dumps(made)), time.process_time() - began
    jax.clear_caches()
    return found


def groups_of(names: Sequence[str]) -> list[list[str]]:
    """The cases of an algorithm, which share compiled programs, in groups of bounded size."""
    groups = [list(group) for _, group in itertools.groupby(names, lambda n: n.split("/")[0])]
    return [group[i : i + GROUP] for group in groups for i in range(0, len(group), GROUP)]


def all_of(names: Sequence[str], jobs: int, cheap: bool) -> Iterator[dict[str, Runs]]:
    """The cases, group by group as processes finish them."""
    if cheap:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags()}"
    context, total = multiprocessing.get_context("spawn"), 0.0
    with concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
        parts = [pool.submit(work, group, cheap) for group in groups_of(names)]
        for part in concurrent.futures.as_completed(parts):
            found = part.result()
            for name, (_, seconds) in found.items():
                total += seconds
                print(f"{seconds:6.1f} s  {name}", file=sys.stderr, flush=True)
            yield {name: runs for name, (runs, _) in found.items()}
    print(f"{total:.0f} seconds of processors", file=sys.stderr)


def compared(recorded: Mapping[str, Runs], now: Mapping[str, Runs]) -> int:
    """Print the differences, a few of each run, and return their number."""
    lines = [d for name in now for d in differences(name, recorded[name], now[name])]
    for where, group in itertools.groupby(lines, lambda line: line.split(": ")[0]):
        here = list(group)
        more = [f"{where}: and {len(here) - SHOWN} more"] if len(here) > SHOWN else []
        print("\n".join([*here[:SHOWN], *more]))
    alike = []
    for name, runs in now.items():
        for label, one in runs.items():
            old = recorded[name].get(label, {})
            alike += [one["bits"] == old["bits"]] if "bits" in one and "bits" in old else []
    states = f"{sum(alike)} of {len(alike)} final states are equal bit for bit"
    print(f"{len(now)} cases, {len(lines)} differences; {states}")
    return len(lines)


def error_of(runs: Runs) -> str:
    error: str = runs.get("", {}).get("exact", {}).get("error", "")
    return error


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("compare", "write", "show"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--optimized", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_intermixed_args()


def recorded_again(
    chosen: Sequence[str], recorded: Mapping[str, Runs], given: argparse.Namespace
) -> int:
    """Write what is computed as it comes; a case that fails keeps what it had."""
    kept, failed = {n: runs for n, runs in recorded.items() if n in cases()}, 0
    for part in all_of(chosen, given.jobs, not given.optimized):
        for name, runs in part.items():
            if error := error_of(runs):
                print(f"{name}: {error}")
                failed += 1
            else:
                kept[name] = runs
        write(kept)
    print(f"{len(chosen)} cases, {failed} failed; {FILE.stat().st_size:,} bytes")
    return int(failed > 0)


def main() -> int:
    given = parsed()
    recorded = read() if FILE.exists() else {}
    chosen = [n for n in cases() if not given.words or any(word in n for word in given.words)]
    if given.command == "show":
        print(json.dumps({n: recorded[n] for n in chosen if n in recorded}, indent=1))
        return 0
    if given.command == "write":
        return recorded_again(chosen, recorded, given)
    absent = [n for n in chosen if n not in recorded]
    absent += [name for name in ALGORITHMS if not any(n.startswith(f"{name}/") for n in recorded)]
    for name in absent:
        print(f"{name}: it is not recorded")
    chosen = [n for n in chosen if n in recorded]
    now: dict[str, Runs] = {}
    for part in all_of(chosen, given.jobs, not given.optimized):
        now |= part
    return int(compared(recorded, now) + len(absent) > 0)


if __name__ == "__main__":
    sys.exit(main())
