"""Kill runs and sweeps at random instants, continue them, and compare the result with an uninterrupted one.

    python tests/engine/kills.py runs --times 20 --seed 0
    python tests/engine/kills.py sweeps
    python tests/engine/kills.py executors --on processes
    python tests/engine/kills.py extend

Each trial prints one line. Trial i has the seed ``--seed`` + i; `--times 1 --seed S` repeats the trial of
seed S, as far as the speed of the machine is the same. The exit status is 1 if a trial is wrong.

Half of the instants are drawn over the whole duration; the others follow a change of the folder by some
hundredths of a second, because files are written in a small part of the time.  In half of the trials
checkpoints are written as often as can be.  A trial is right if every process ends as its signal asks or
refuses in one sentence, and the result is that of an uninterrupted one: bit for bit, of larger grids in
draws and counts, with other numbers up to rounding.  A call may begin again if its continuation is
refused.  Tracebacks, other statuses, processes that do not end or stay behind, and other numbers are
wrong.

The package is called in :func:`child` and :func:`differences`.
"""

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
TIMED = re.compile("seconds|time")  # variables that differ between equal runs
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "JAX_PLATFORMS": "cpu",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # of compilation, for speed
    "JAX_ENABLE_COMPILATION_CACHE": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "MPLBACKEND": "Agg",
}
Process = subprocess.Popen[Any]
Lose = Callable[[Process], bool]  # kills a worker, if there is any


# --- processes -----------------------------------------------------------------------------------


class Kill(NamedTuple):
    """A signal, and the seconds from the start, or from a change of the folder, to its instant."""

    signal: signal.Signals
    seconds: float
    change: int = 0
    worker: bool = False  # whether it ends a worker, not the driver


class Ended(NamedTuple):
    """A process that has ended."""

    status: int
    text: str
    seconds: float
    changes: int  # of its folder
    killed: str  # signal and instant; empty if the process ended before
    left: int  # processes that it left behind
    hung: bool
    when: float  # seconds at the kill


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Names, times and sizes of all files; one that is just being replaced may be missing."""
    found = []
    for place, _, names in os.walk(folder):
        for path in (os.path.join(place, name) for name in names):
            with contextlib.suppress(OSError):
                found.append((path, (stat := os.stat(path)).st_mtime_ns, stat.st_size))
    return sorted(found)


def children(process: Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def remaining(family: set[psutil.Process]) -> int:
    """The number of those that do not end by themselves, which are killed."""
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    for one in alive:
        with contextlib.suppress(psutil.Error):
            one.kill()
    return len(alive)


def lose_child(process: Process) -> bool:
    """Kill a process that this one has started, if there is any."""
    family = children(process)
    for child in family[-1:]:
        child.kill()
    return bool(family)


def strike(process: Process, kill: Kill, lose: Lose) -> str:
    """Kill a process or its worker; what was killed, empty if there is no worker yet."""
    if kill.worker:
        return "a worker lost" if lose(process) else ""
    with contextlib.suppress(ProcessLookupError):
        if kill.signal == signal.SIGINT:  # a terminal sends it to the whole group
            os.killpg(process.pid, kill.signal)
        else:
            process.send_signal(kill.signal)
    return kill.signal.name


def watch(process: Process, folder: Path, kill: Kill | None, lose: Lose) -> dict[str, Any]:
    """Kill a process at its instant and wait for its end; the last fields of :class:`Ended`."""
    killed, changes, since, when, limit = "", 0, 0.0, 0.0, LIMIT
    family, before, begun = set[psutil.Process](), listing(folder), time.monotonic()
    for turn in itertools.count():
        now = time.monotonic() - begun
        if process.poll() is not None or now > limit:
            break
        if (state := listing(folder)) != before:
            before, changes = state, changes + 1
            since = now if kill and changes == kill.change else since
        if turn % 100 == 0:  # reads all processes of the machine
            family.update(children(process))
        due = kill and not killed and changes >= kill.change and now >= since + kill.seconds
        if kill and due and (what := strike(process, kill, lose)):
            killed = f"{what} at {now:.2f} s" + f", change {kill.change}" * (kill.change > 0)
            when, limit = now, limit if kill.worker else now + PATIENCE
        time.sleep(0.005)
    if hung := process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    found = {"changes": changes, "killed": killed, "hung": hung, "when": when}
    return {**found, "left": remaining(family)}


def launch(
    words: list[str], folder: Path, kill: Kill | None = None, lose: Lose = lose_child, **env: str
) -> Ended:
    """Start a command that writes to a folder, kill it, and wait for its end."""
    every, begun = {**os.environ, **env}, time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        where: Any = {"stdout": out, "stderr": out, "cwd": ROOT, "start_new_session": True}
        process = subprocess.Popen(words, env=every, **where)
        try:
            how = watch(process, folder, kill, lose)
        finally:  # this process may be interrupted
            process.kill()
        status, seconds = process.wait(), time.monotonic() - begun
        out.seek(0)
        return Ended(status, out.read().strip(), seconds, **how)


def fault(ended: Ended) -> str:
    """What is wrong with the end of a process; equal texts for equal causes."""
    if ended.hung:
        return "does not end"
    frames = re.findall(f'File "{re.escape(str(ROOT))}/(jaxfl/[^"]*)", line', ended.text)
    if frames:  # a traceback; without frames Python had not begun the package
        error = re.findall(r"^(?:\w+\.)*\w*(?:Error|Interrupt|Exception)\b", ended.text, re.M)
        return f"traceback in {frames[-1]}: {error[-1] if error else '?'}"
    if ended.left:
        return "leaves processes behind"
    if ended.status == 2:
        one = re.fullmatch(r"jaxfl: error: .*[.?]", ended.text.split("\n")[-1])
        return "" if one else "refuses without a sentence"
    number = signal.__dict__.get(ended.killed.split(" ")[0], 0)
    if ended.status not in (0, -number, 128 + number):
        return f"ends with status {ended.status}"
    late = ended.status == 0 and number and ended.seconds - ended.when > PATIENCE / 3
    return "goes on after the signal" if late else ""


# --- results -------------------------------------------------------------------------------------


def unequal(a: Any, b: Any, exact: bool) -> str:
    """How an array differs from the right one; empty if it does not."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f" ({a.dtype}{a.shape}, not {b.dtype}{b.shape})"
    number = b.dtype.kind == "f"
    if exact and number:
        return "" if a.tobytes() == b.tobytes() else " (other bits)"
    if not number or bool(np.all(b[np.isfinite(b)] % 1 == 0)):  # labels and counts
        return "" if np.array_equal(a, b, equal_nan=number) else " (another count or label)"
    if np.allclose(a, b, 1e-5, 1e-7, equal_nan=True):
        return ""
    return f" (by {np.nanmax(np.abs(a - b) / np.maximum(np.abs(b), 1e-30)):.1g})"


def differences(folder: Path, whole: Any, exact: bool) -> list[str]:
    """What differs from the right data set, in the rounds that both evaluated."""
    import jaxfl

    try:
        found = jaxfl.load(folder)
    except Exception as error:
        return [f"no result: {type(error).__name__}: {str(error).replace(str(folder), 'X')}"]
    if not exact:
        common = np.intersect1d(found["round"], whole["round"])
        if whole["round"].values[-1] not in common:
            return [f"ends at round {int(found['round'][-1])}, not {int(whole['round'][-1])}"]
        found, whole = found.sel(round=common), whole.sel(round=common)
    if others := set(found.variables) ^ set(whole.variables):
        return [f"other variables: {', '.join(sorted(map(str, others)))}"]
    names = [name for name in sorted(map(str, whole.variables)) if not TIMED.search(name)]
    how = {name: unequal(found[name].values, whole[name].values, exact) for name in names}
    wrong = [name + words for name, words in how.items() if words]
    more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    return [f"wrong numbers: {', '.join(wrong[:4])}{more}"] if wrong else []


class Trial:
    """What happened in one trial, and what was wrong."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.story: list[str] = []
        self.wrong: list[str] = []

    def launch(
        self, what: str, words: list[str], folder: Path, *args: Any, **options: Any
    ) -> Ended:
        ended = launch(words, folder, *args, **options)
        how = f"{ended.killed or 'no kill'}, status {ended.status} after {ended.seconds:.1f} s"
        self.story.append(f"{what} ({how})")
        if ended.status == 2:
            said = ended.text.split("\n")[-1].removeprefix("jaxfl: error: ")
            self.story.append(f'"{said.replace(str(folder), "X")}"')
        if cause := fault(ended):
            self.wrong.append(cause)
            print(f"seed {self.seed}: {cause}:\n{ended.text}", file=sys.stderr, flush=True)
        return ended

    def kill(self, seconds: float, changes: int) -> Kill:
        """A signal at an instant of a command that takes so long and changes its folder so often."""
        number = SIGNALS[self.rng.integers(len(SIGNALS))]
        if self.rng.random() < 0.5:
            return Kill(number, self.rng.uniform(0, seconds))
        change = int(self.rng.integers(1, max(changes, 1) + 1))
        return Kill(number, self.rng.exponential(0.03), change)


# --- runs and sweeps -----------------------------------------------------------------------------


class Whole(NamedTuple):
    """An uninterrupted call, its data set, and what it takes."""

    job: Job
    ds: Any
    cold: Ended  # without compiled programs
    warm: Ended


def words_of(job: Job, folder: Path, how: str = "", **more: Any) -> list[str]:
    """The command that begins a call, or resumes or extends what is in the folder."""
    given = {**job, **more, "out": str(folder), **({how: True} if how else {})}
    return [sys.executable, __file__, "child", json.dumps(given)]


def uninterrupted(job: Job, folder: Path, **on: Any) -> Whole:
    """Make a call twice, the second time with compiled programs in the cache."""
    import jaxfl

    ends = []
    for place in (folder / "cold", folder / "warm"):
        ends.append(launch(words_of(job, place, **on), place))
        if fault(ends[-1]) or ends[-1].status:
            raise SystemExit(f"{job} fails without a kill:\n{ends[-1].text}")
    ds = jaxfl.load(folder / "cold")
    for cause in differences(folder / "warm", ds, exact=True):
        raise SystemExit(f"{job} differs when it is repeated: {cause}")
    return Whole(job, ds, *ends)


def continued(trial: Trial, whole: Whole, folder: Path, lose: Lose = lose_child, **on: Any) -> None:
    """Kill a call up to three times, continue it, and compare its result."""
    rng, begun, env = trial.rng, False, {}
    usual, job = whole.warm, {**whole.job, "often": bool(rng.random() < 0.5)}
    if not on and rng.random() < 0.2:
        env, usual = {"JAX_ENABLE_COMPILATION_CACHE": "0"}, whole.cold
        trial.story.append("without cache")
    for attempt in range(9):
        kill = None
        if attempt == 0 or (attempt < 3 and rng.random() < 0.4):
            kill = trial.kill(usual.seconds, usual.changes)
            kill = kill._replace(worker=bool(on) and rng.random() < 0.5)
        where = on if attempt == 0 or rng.random() < 0.7 else {}
        what = "resumed" if begun else ("began again" if attempt else "began")
        what += " without workers" if on and not where else ""
        words = words_of(job, folder, "resume" if begun else "", **where)
        ended = trial.launch(what, words, folder, kill, lose, **env)
        if ended.status == 0 or (ended.hung and not kill):
            break
        if ended.status == 2 and not begun:
            trial.wrong.append("does not begin again")
            break
        if ended.status == 2 and not differences(folder, whole.ds, exact=True):  # it had ended
            break
        begun = ended.status != 2
    trial.wrong += differences(folder, whole.ds, exact=True)


def runs(trials: Iterator[Trial], folder: Path, on: str) -> None:
    made: dict[str, Whole] = {}
    for trial in trials:
        job = RUNS[trial.rng.integers(len(RUNS))]
        name = job["algorithm"]
        if name not in made:
            made[name] = uninterrupted(job, folder / f"whole-{name}")
        continued(trial, made[name], folder / str(trial.seed))


def sweeps(trials: Iterator[Trial], folder: Path, on: str) -> None:
    whole = uninterrupted({**SWEEP, **HALVED}, folder / "whole")
    for trial in trials:
        continued(trial, whole, folder / str(trial.seed))


def executors(trials: Iterator[Trial], folder: Path, on: str) -> None:
    """Workers are the processes of the driver, or the nodes of a cluster, which are replaced."""
    package = {"ray": "ray", "dask": "distributed"}.get(on, "jaxfl")
    if importlib.util.find_spec(package) is None:
        print(f"skipped: {package} is not installed")
        return
    from clusters import cluster

    here = uninterrupted(SWEEP, folder / "here").ds
    with contextlib.ExitStack() as stack:
        nodes = None if on == "processes" else stack.enter_context(cluster(on, 2))
        where = {"executor": nodes.on if nodes else "processes:2"}

        def lose(process: Process) -> bool:
            if nodes is None:
                return lose_child(process)
            nodes.kill(0)
            nodes.add()
            return True

        whole = uninterrupted(SWEEP, folder / "on", **where)
        for cause in differences(folder / "on" / "cold", here, exact=False):
            raise SystemExit(f"{where} differs from this process: {cause}")
        for trial in trials:
            continued(trial, whole, folder / str(trial.seed), lose, **where)


# --- grids that grow -----------------------------------------------------------------------------

POOL: dict[str, list[Any]] = {  # the second value of each is the first of a grid
    "algorithm": ["ldp_sgd", "soteriafl_sgd", "cdp_sgd", "soteriafl_gd"],
    "lr": [0.05, 0.1, 0.2, 0.3],
    "sigma": [0.02, 0.05, 0.1],
    "eps": [1.0, 2.0, 5.0],
    "seeds": [0, 1, 2, 3, 4],
}
GROWN: Job = {"call": "sweep", "clip": 2.0, "batch": 4, "omega": 1, "eval_every": 8}
Grid = dict[str, Any]  # algorithms, seeds, rounds, and the values of lr and of sigma or eps


def larger(grid: Grid, rng: np.random.Generator) -> tuple[Grid, str]:
    """A grid with more of one or two things, at any place among the others, and what it has more."""
    grid, said = json.loads(json.dumps(grid)), []
    for name in rng.permutation([*grid])[: rng.integers(1, 3)]:
        if name == "rounds":
            grid[name] += int(rng.integers(5, 15))
            said.append(f"rounds {grid[name]}")
        elif rest := [value for value in POOL[name] if value not in grid[name]]:
            value = rest[rng.integers(len(rest))]
            grid[name].insert(rng.integers(len(grid[name]) + 1), value)
            said.append(f"{name} {value}")
    return grid, ", ".join(said) or "nothing"


def stepped(trial: Trial, grid: Grid, how: str, out: Path, seconds: float) -> tuple[Grid, Ended]:
    """Begin or extend a grid; after a kill resume it or extend it more."""

    def child(how: str, goal: Grid, said: str, kill: Kill | None = None) -> Ended:
        ended = trial.launch(
            f"{how or 'began'} {said}".strip(), words_of({**GROWN, **goal}, out, how), out, kill
        )
        if "callbacks: " in ended.text:
            trial.wrong.append("callbacks name other runs than the result")
        return ended

    goal, said = larger(grid, trial.rng) if how else (grid, "")
    kill = trial.kill(seconds, 8) if trial.rng.random() < 0.5 else None
    ended = child(how, goal, said, kill)
    if ended.status not in (0, 2):
        then, said = "resume", ""
        if trial.rng.random() < 0.3:
            then, (goal, said) = "extend", larger(goal, trial.rng)
        ended = child(then, goal, said)
        if ended.status == 2:  # it was killed before its plan was written
            ended = child(how, goal, said)
    if ended.status == 2 and not how:
        trial.wrong.append("does not begin again")
    return (goal if ended.status == 0 else grid), ended


def extend(trials: Iterator[Trial], folder: Path, on: str) -> None:
    import jaxfl

    for trial in trials:
        out, whole, seconds = folder / str(trial.seed), folder / f"{trial.seed}-whole", 8.0
        noise = str(trial.rng.choice(["sigma", "eps"]))
        grid: Grid = {name: POOL[name][1:2] for name in ("algorithm", "lr", noise)}
        grid |= {"seeds": [0, 1], "rounds": 20}
        for step in range(trial.rng.integers(2, 5)):
            how = "extend" if step else ""
            grid, ended = stepped(trial, grid, how, out, seconds)
            seconds = ended.seconds
        if (ended := launch(words_of({**GROWN, **grid}, whole), whole)).status:
            raise SystemExit(f"{grid} cannot be computed at once:\n{ended.text}")
        trial.wrong += differences(out, jaxfl.load(whole), exact=False)


# --- what is killed ------------------------------------------------------------------------------


def child(call: str, often: bool = False, most: int | None = None, **given: Any) -> int:
    """Make a call in this process, and compare what callbacks receive with the result."""
    try:
        import jax

        import jaxfl
        from jaxfl.engine import compute
    except BaseException:  # a signal may end in an ImportError
        os._exit(130)
    try:
        if often:
            compute.SAVE_EVERY, compute.SHARE = 0.0, 1e9
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
        problem = jaxfl.Problem(jaxfl.models.logistic(8), data)
        given |= {"problem": problem, "callbacks": [seen.append], "key": jax.random.key(0)}
        found = getattr(jaxfl, call)(**given)
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


def trials_of(args: argparse.Namespace, folder: Path, done: list[Trial]) -> Iterator[Trial]:
    """Trials one after the other; each is printed once the next one is asked for."""
    for seed in range(args.seed, args.seed + args.times):
        yield (trial := Trial(seed))
        done.append(trial)
        trial.wrong = list(dict.fromkeys(trial.wrong))
        verdict = f"WRONG: {'; '.join(trial.wrong)}" if trial.wrong else "right"
        print(f"seed {seed}: {'; '.join(trial.story)}: {verdict}", flush=True)
        for place in (folder / str(seed), folder / f"{seed}-whole"):
            shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        return child(**json.loads(sys.argv[2]))
    commands = {"runs": runs, "sweeps": sweeps, "executors": executors, "extend": extend}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("command", choices=commands)
    parser.add_argument("--times", type=int, default=20, help="number of trials")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first")
    parser.add_argument("--on", choices=["processes", "ray", "dask"], default="processes")
    args, done, began = parser.parse_args(), list[Trial](), time.monotonic()
    # children would ignore Ctrl-C as this process does where a shell has put it in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    with tempfile.TemporaryDirectory(prefix="jaxfl-kills-", ignore_cleanup_errors=True) as name:
        os.environ |= ENVIRONMENT | {"JAX_COMPILATION_CACHE_DIR": f"{name}/programs"}
        commands[args.command](trials_of(args, Path(name), done), Path(name), args.on)
    wrong = [trial for trial in done if trial.wrong]
    seconds = time.monotonic() - began
    print(f"{len(done) - len(wrong)} right, {len(wrong)} wrong, in {seconds:.0f} s")
    for cause in sorted({cause for trial in wrong for cause in trial.wrong}):
        print(f"seeds {[trial.seed for trial in wrong if cause in trial.wrong]}: {cause}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
