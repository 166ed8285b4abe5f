"""Kill runs and sweeps at random instants, continue them, and compare the result with an uninterrupted one.

    python tests/engine/kills.py runs --times 20 --seed 0
    python tests/engine/kills.py sweeps
    python tests/engine/kills.py executors
    python tests/engine/kills.py extend

Each trial prints its steps. Trial i has the seed ``--seed`` + i; `--times 1 --seed S` repeats the trial of
seed S, as far as the speed of the machine is the same. The exit status is 1 if a trial is wrong.

Half of the instants are drawn over the whole duration; the others follow a change of the folder by some
hundredths of a second, because files are written in a small part of the time.  In half of the trials
checkpoints are written as often as can be.  A trial is right if every process ends as its signal asks or
refuses in one sentence, and the result is that of an uninterrupted one: bit for bit, of larger grids in
draws and counts, with other numbers up to rounding.
"""

import argparse
import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parents[2]
Job = dict[str, Any]  # the arguments of a call, less the folder; "call" is its function
PLAIN = {"clip": 2.0, "batch": 4, "lr": 0.1, "rounds": 4000, "eval_every": 50}
NUMBERS = {**PLAIN, "sigma": 0.1}
RUNS: list[Job] = [
    {"call": "simulate", "algorithm": "soteriafl_sgd", "omega": 1, **NUMBERS},
    {"call": "simulate", "algorithm": "ldp_svrg", **NUMBERS},
    {"call": "simulate", "algorithm": "fedavg", "local_steps": 3, **PLAIN},
]
SWEEP: Job = {  # eight chunks of two programs
    **NUMBERS,
    "call": "sweep",
    "algorithm": ["ldp_sgd", "soteriafl_gd"],
    "omega": 1,
    "sigma": [0.1, 0.2],
    "lr": [0.1, 0.2],
    "seeds": 4,
    "runs_at_once": 4,
}
HALVED = {"most": 3}  # runs that fit into a chunk: each of four is halved
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 30.0  # seconds from a signal to the end of the process, and of those it started
LIMIT = 900.0  # seconds of any command; machines may be busy
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "JAX_PLATFORMS": "cpu",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # of compilation, for speed
    "JAX_ENABLE_COMPILATION_CACHE": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "MPLBACKEND": "Agg",
}


# --- processes -----------------------------------------------------------------------------------


class Wrong(Exception):
    """A trial is wrong."""


class Kill(NamedTuple):
    """A signal, and the seconds from the start, or from a change of the folder, to its instant."""

    signal: signal.Signals
    seconds: float
    change: int = 0
    worker: bool = False  # whether it ends a worker, not the driver


def drawn(rng: np.random.Generator, seconds: float, changes: int = 8) -> Kill:
    """A kill of a command that takes so long and changes its folder so often."""
    number = SIGNALS[rng.integers(len(SIGNALS))]
    if rng.random() < 0.5:
        return Kill(number, rng.uniform(0, seconds))
    return Kill(number, rng.exponential(0.03), int(rng.integers(1, changes + 1)))


def listing(folder: Path) -> list[tuple[Path, int]]:
    """All files and their times; one that is just being replaced may be missing."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            found.append((path, path.stat().st_mtime_ns))
    return sorted(found)


def strike(process: subprocess.Popen[Any], folder: Path, kill: Kill) -> str:
    """Kill a process or its worker at its instant; what was killed, if it has not ended before."""
    changes, before, since, begun = 0, listing(folder), 0.0, time.monotonic()
    family: list[psutil.Process] = []
    while process.poll() is None:
        now = time.monotonic() - begun
        if (state := listing(folder)) != before:
            before, changes = state, changes + 1
            since = now if changes == kill.change else since
        if changes >= kill.change and now >= since + kill.seconds:
            with contextlib.suppress(psutil.Error):
                family = psutil.Process(process.pid).children(recursive=True)
            if kill.worker and family:
                family[-1].kill()
                return f"a worker lost at {now:.2f} s"
            if not kill.worker:
                group = kill.signal == signal.SIGINT  # as a terminal sends it
                (os.killpg if group else os.kill)(process.pid, kill.signal)
                process.wait(PATIENCE)
                if psutil.wait_procs(family, PATIENCE)[1]:
                    raise Wrong("leaves processes behind")
                return f"{kill.signal.name} at {now:.2f} s, change {kill.change}"
        time.sleep(0.005)
    return ""


def launch(job: Job, folder: Path, how: str = "", kill: Kill | None = None) -> tuple[int, str]:
    """Begin a call, or resume or extend what is in the folder, kill it, and wait for its end."""
    given = {**job, "out": str(folder), **({how: True} if how else {})}
    words = [sys.executable, __file__, "child", json.dumps(given)]
    with tempfile.TemporaryFile("w+") as out:
        where: Any = {"stdout": out, "stderr": out, "cwd": ROOT, "start_new_session": True}
        with subprocess.Popen(words, **where) as process:
            try:
                killed = strike(process, folder, kill) if kill else ""
                status = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                raise Wrong("does not end") from None
            finally:
                process.kill()
        out.seek(0)
        text = out.read().strip()
    print(f"  {how or 'began'}: {killed or 'no kill'}, status {status}", flush=True)
    if re.search(f'File "{re.escape(str(ROOT))}/(jaxfl/[^"]*)", line', text):
        raise Wrong(f"a traceback:\n{text}")  # without frames Python had not begun the package
    if status == 2 and not re.fullmatch(r"jaxfl: error: .*[.?]", text.split("\n")[-1]):
        raise Wrong(f"refuses without a sentence:\n{text}")
    if "callbacks: " in text:
        raise Wrong(f"callbacks name other runs than the result:\n{text}")
    number = signal.__dict__.get(killed.split(" ")[0], 0)
    if status not in (0, 2, -number, 128 + number):
        raise Wrong(f"ends with status {status}")
    return status, text


# --- results -------------------------------------------------------------------------------------


def differs(a: Any, b: Any, exact: bool) -> bool:
    """Whether an array differs from the right one, labels and counts in any bit."""
    number = b.dtype.kind == "f"
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if number and not exact and bool(np.any(b[np.isfinite(b)] % 1)):
        return not np.allclose(a, b, 1e-5, 1e-7, equal_nan=True)
    return bool(a.tobytes() != b.tobytes() if number else np.any(a != b))


def check(folder: Path, whole: Any, exact: bool) -> None:
    """The result is the right data set; if not exactly, in the rounds that both evaluated."""
    import jaxfl

    found = jaxfl.load(folder)
    if not exact:
        common = np.intersect1d(found["round"], whole["round"])
        if whole["round"].values[-1] not in common:
            raise Wrong(f"ends at round {int(found['round'][-1])}")
        found, whole = found.sel(round=common), whole.sel(round=common)
    if others := set(found.variables) ^ set(whole.variables):
        raise Wrong(f"other variables: {others}")
    names = [name for name in map(str, whole.variables) if not re.search("seconds|time", name)]
    wrong = [name for name in names if differs(found[name].values, whole[name].values, exact)]
    if wrong:
        raise Wrong(f"wrong numbers: {', '.join(sorted(wrong))}")


# --- runs and sweeps -----------------------------------------------------------------------------


class Whole(NamedTuple):
    """The data set of an uninterrupted call, and its seconds with compiled programs in the cache."""

    ds: Any
    seconds: float


@functools.cache
def uninterrupted(text: str, home: Path) -> Whole:
    """A call, in JSON, made twice."""
    import jaxfl

    job, folder = json.loads(text), Path(tempfile.mkdtemp(dir=home))
    for place in (folder / "cold", folder / "warm"):
        begun = time.monotonic()
        if launch(job, place)[0]:
            raise Wrong("fails without a kill")
    seconds, ds = time.monotonic() - begun, jaxfl.load(folder / "cold")
    check(folder / "warm", ds, exact=True)
    return Whole(ds, seconds)


def continued(rng: np.random.Generator, job: Job, folder: Path) -> None:
    """Kill a call up to three times, continue it, and compare its result."""
    whole = uninterrupted(json.dumps(job), folder.parent)
    begun, job = "", {**job, "often": bool(rng.random() < 0.5)}
    for attempt in range(9):
        kill, here = None, job
        if attempt == 0 or (attempt < 3 and rng.random() < 0.4):
            kill = drawn(rng, whole.seconds)
        if "executor" in job and attempt and rng.random() < 0.3:
            here = {name: value for name, value in job.items() if name != "executor"}
        if kill and "executor" in here and rng.random() < 0.5:
            kill = kill._replace(worker=True)
        status, _ = launch(here, folder, begun, kill)
        if status == 0 or (status == 2 and (folder / "result.nc").exists()):  # it had ended
            break
        if status == 2 and not begun:
            raise Wrong("does not begin again")
        begun = "" if status == 2 else "resume"
    check(folder, whole.ds, exact=True)


def runs(rng: np.random.Generator, folder: Path) -> None:
    continued(rng, RUNS[rng.integers(len(RUNS))], folder)


def sweeps(rng: np.random.Generator, folder: Path) -> None:
    continued(rng, {**SWEEP, **HALVED}, folder)


def executors(rng: np.random.Generator, folder: Path) -> None:
    """Workers are processes of the driver; the result is that of this process up to rounding."""
    here, job = (
        uninterrupted(json.dumps(SWEEP), folder.parent),
        {**SWEEP, "executor": "processes:2"},
    )
    continued(rng, job, folder)
    check(folder, here.ds, exact=False)


# --- grids that grow -----------------------------------------------------------------------------

POOL: dict[str, list[Any]] = {  # the second value of each is the first of a grid
    "algorithm": ["ldp_sgd", "soteriafl_sgd", "cdp_sgd", "soteriafl_gd"],
    "lr": [0.05, 0.1, 0.2, 0.3],
    "sigma": [0.02, 0.05, 0.1],
    "eps": [1.0, 2.0, 5.0],
    "seeds": [0, 1, 2, 3, 4],
}
GROWN: Job = {"call": "sweep", "clip": 2.0, "batch": 4, "omega": 1, "eval_every": 8}


def larger(grid: Job, rng: np.random.Generator) -> Job:
    """A grid with more of one or two things, at any place among the others."""
    grid = json.loads(json.dumps(grid))
    for name in rng.permutation([*grid])[: rng.integers(1, 3)]:
        if name == "rounds":
            grid[name] += int(rng.integers(5, 15))
        elif rest := [value for value in POOL[name] if value not in grid[name]]:
            value = rest[rng.integers(len(rest))]
            grid[name].insert(rng.integers(len(grid[name]) + 1), value)
    return grid


def stepped(rng: np.random.Generator, grid: Job, how: str, out: Path, seconds: float) -> Job:
    """Begin or extend a grid; after a kill resume it or extend it more."""
    goal = larger(grid, rng) if how else grid
    kill = drawn(rng, seconds) if rng.random() < 0.5 else None
    status, _ = launch({**GROWN, **goal}, out, how, kill)
    if status not in (0, 2):
        then = "resume"
        if rng.random() < 0.3:
            then, goal = "extend", larger(goal, rng)
        status, _ = launch({**GROWN, **goal}, out, then)
        if status == 2:  # it was killed before its plan was written
            status, _ = launch({**GROWN, **goal}, out, how)
    if status == 2 and not how:
        raise Wrong("does not begin again")
    return goal if status == 0 else grid


def extend(rng: np.random.Generator, folder: Path) -> None:
    import jaxfl

    noise, seconds = str(rng.choice(["sigma", "eps"])), 8.0
    grid: Job = {name: POOL[name][1:2] for name in ("algorithm", "lr", noise)}
    grid |= {"seeds": [0, 1], "rounds": 20}
    for step in range(rng.integers(2, 5)):
        begun = time.monotonic()
        grid = stepped(rng, grid, "extend" if step else "", folder, seconds)
        seconds = time.monotonic() - begun
    whole = folder.with_name(f"{folder.name}-whole")
    if launch({**GROWN, **grid}, whole)[0]:
        raise Wrong(f"{grid} cannot be computed at once")
    check(folder, jaxfl.load(whole), exact=False)


# --- what is killed ------------------------------------------------------------------------------


def child(call: str, often: bool = False, most: int | None = None, **given: Any) -> int:
    """Make a call in this process, and compare what callbacks receive with the result."""
    try:
        import jaxfl
        from jaxfl.engine import compute, driver
    except BaseException:  # a signal may end in an ImportError
        os._exit(130)
    try:
        if often:
            for module in (compute, driver):
                module.SAVE_EVERY, module.SHARE = 0.0, 1e9
        honest = compute.Machine.compiled

        def compiled(self: Any, program: Any, chunk: Any, *rest: Any) -> Any:
            if most is not None and chunk.runs > most:
                raise compute.TooLarge("it does not fit")
            return honest(self, program, chunk, *rest)

        compute.Machine.compiled = compiled
        rng, seen = np.random.default_rng(0), list[Any]()
        a = rng.normal(size=(5, 12, 8)).astype(np.float32)
        y = (a.sum(2) > rng.normal(size=(5, 12))).astype(np.int32)
        data = jaxfl.data.from_clients((a, y), classes=2, stacked=True)
        problem = jaxfl.make_problem(jaxfl.models.logistic(8), data)
        found = getattr(jaxfl, call)(problem=problem, callbacks=[seen.append], **given)
    except KeyboardInterrupt:
        os._exit(130)  # a thread of JAX may still be compiling
    except jaxfl.InputError as error:
        print(f"jaxfl: error: {error}")
        return 2
    for now in seen if call == "sweep" else ():
        at = {"algorithm": now.run.algorithm, **now.run.labels, "seed": now.run.seed}
        if now.round in found["round"]:
            held = found["loss"].sel({k: v for k, v in at.items() if k in found.dims})
            held = held.sel(round=now.round).item()
            if not np.isclose(held, now.metrics["loss"], 1e-6, equal_nan=True):
                print(f"callbacks: {at}, round {now.round}: {now.metrics['loss']}, not {held}")
    return 0


# --- the command ---------------------------------------------------------------------------------


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        return child(**json.loads(sys.argv[2]))
    commands = {"runs": runs, "sweeps": sweeps, "executors": executors, "extend": extend}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("command", choices=commands)
    parser.add_argument("--times", type=int, default=20, help="number of trials")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first")
    args, wrong = parser.parse_args(), []
    # children would ignore Ctrl-C as this process does where a shell has put it in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[:0] = [str(ROOT)]
    with tempfile.TemporaryDirectory(prefix="jaxfl-kills-", ignore_cleanup_errors=True) as name:
        os.environ |= ENVIRONMENT | {"JAX_COMPILATION_CACHE_DIR": f"{name}/programs"}
        for seed in range(args.seed, args.seed + args.times):
            print(f"seed {seed}", flush=True)
            try:
                commands[args.command](np.random.default_rng(seed), Path(name, str(seed)))
            except Wrong as cause:
                wrong.append(seed)
                print(f"WRONG: {cause}", flush=True)
    print(f"{args.times - len(wrong)} right, wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
