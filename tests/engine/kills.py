"""Kill commands at random instants, continue them, and compare the result with an uninterrupted one.

    python tests/engine/kills.py runs --times 20 --seed 0
    python tests/engine/kills.py sweeps
    python tests/engine/kills.py executors --on processes
    python tests/engine/kills.py extend

Each trial prints one line. Trial i has the seed ``--seed`` + i; `--times 1 --seed S` repeats the trial of
seed S, as far as the speed of the machine is the same. The exit status is 1 if a trial is wrong.

Half of the instants are drawn over the whole duration; the others follow a change of the folder by some
hundredths of a second, because files are written in a small part of the time. A trial is right if every
process ends as its signal asks or refuses in one sentence, and the result is that of an uninterrupted
command: of runs and sweeps bit for bit, of executors and larger grids in draws and counts, with other
numbers up to rounding. A command may begin again if its continuation is refused. Tracebacks, other
statuses, processes that do not end or stay behind, and other numbers are wrong.

The command `jaxfl`, `jaxfl.sweep` and `jaxfl.load` are called in :data:`RUNS`, :data:`SWEEP`,
:func:`continued`, :func:`grow` and :func:`differences`, and nothing else of the package is.
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
JAXFL = [sys.executable, "-m", "jaxfl"]
COMMON = "--rounds 2000 --eval-every 50 --batch 16 --lr 0.1"
RUNS = [
    f"run soteriafl_sgd --omega 4 --sigma 0.1 {COMMON}",
    f"run ldp_svrg --sigma 0.1 {COMMON} --no-plot",
    f"run fedavg --local-steps 3 {COMMON} --no-plot",
]
SWEEP = (  # nine chunks of two programs
    "sweep ldp_sgd soteriafl_gd --clients 5 --rounds 200 --eval-every 20 --batch 16 --omega 4 "
    "--sigma 0.1 0.2 --lr 0.1 0.2 --seeds 3 --memory 2000000 --no-plot"
)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 30.0  # seconds from a signal to the end of the process, and of those it started
LIMIT = 240.0  # seconds of any command
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
    """An uninterrupted command: its words, its data set, and what it takes."""

    words: list[str]
    ds: Any
    cold: Ended  # without compiled programs
    warm: Ended


def uninterrupted(words: str, folder: Path, on: tuple[str, ...] = ()) -> Whole:
    """Run a command twice, the second time with compiled programs in the cache."""
    import jaxfl

    command, ends = [*JAXFL, *words.split()], []
    for place in (folder / "cold", folder / "warm"):
        ends.append(launch([*command, *on, "--out", str(place)], place))
        if fault(ends[-1]) or ends[-1].status:
            raise SystemExit(f"{words} fails without a kill:\n{ends[-1].text}")
    ds = jaxfl.load(folder / "cold")
    for cause in differences(folder / "warm", ds, exact=not on):
        raise SystemExit(f"{words} differs when it is repeated: {cause}")
    return Whole(command, ds, *ends)


def continued(
    trial: Trial, whole: Whole, folder: Path, on: tuple[str, ...] = (), **options: Any
) -> None:
    """Kill a command up to three times, continue it, and compare its result."""
    rng, exact, begun = trial.rng, not on, False
    begin = [*whole.words, "--out", str(folder)]
    plot = [word for word in whole.words if word == "--no-plot"]
    resume = [*JAXFL, whole.words[len(JAXFL)], "--resume", str(folder), *plot]
    usual = whole.warm
    if exact and rng.random() < 0.2:
        options["JAX_ENABLE_COMPILATION_CACHE"], usual = "0", whole.cold
        trial.story.append("without cache")
    for attempt in range(9):
        kill = None
        if attempt == 0 or (attempt < 3 and rng.random() < 0.4):
            kill = trial.kill(usual.seconds, usual.changes)
            kill = kill._replace(worker=bool(on) and rng.random() < 0.5)
        where = on if attempt == 0 or rng.random() < 0.7 else ()
        what = "resumed" if begun else ("began again" if attempt else "began")
        what += " without workers" if on and not where else ""
        words = [*(resume if begun else begin), *where]
        ended = trial.launch(what, words, folder, kill, **options)
        if ended.status == 0 or (ended.hung and not kill):
            break
        if ended.status == 2 and not begun:
            trial.wrong.append("does not begin again")
            break
        if ended.status == 2 and not differences(folder, whole.ds, exact):  # it had ended
            break
        begun = ended.status != 2
    trial.wrong += differences(folder, whole.ds, exact)


def runs(trials: Iterator[Trial], folder: Path, on: str) -> None:
    made: dict[str, Whole] = {}
    for trial in trials:
        words = RUNS[trial.rng.integers(len(RUNS))]
        if words not in made:
            made[words] = uninterrupted(words, folder / f"whole-{len(made)}")
        continued(trial, made[words], folder / str(trial.seed))


def sweeps(trials: Iterator[Trial], folder: Path, on: str) -> None:
    whole = uninterrupted(SWEEP, folder / "whole")
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
        where = ("--on", nodes.on if nodes else "processes:2")

        def lose(process: Process) -> bool:
            if nodes is None:
                return lose_child(process)
            nodes.kill(0)
            nodes.add()
            return True

        whole = uninterrupted(SWEEP, folder / "on", where)._replace(ds=here)
        for trial in trials:
            continued(trial, whole, folder / str(trial.seed), where, lose=lose)


# --- grids that grow -----------------------------------------------------------------------------

POOL: dict[str, list[Any]] = {  # the second value of each is the first of a grid
    "algorithms": ["ldp_sgd", "soteriafl_sgd", "cdp_sgd", "soteriafl_gd"],
    "lr": [0.05, 0.1, 0.2, 0.3],
    "sigma": [0.02, 0.05, 0.1],
    "eps": [1.0, 2.0, 5.0],
    "seeds": [0, 1, 2, 3, 4],
}
Grid = dict[str, Any]  # algorithms, seeds, rounds, and the values of lr and of sigma or eps


def grow(how: str, grid: Grid, out: str) -> int:
    """Compute a grid in this process, and compare what callbacks receive with the result."""
    try:
        import jax

        import jaxfl
    except BaseException:  # a signal may end in an ImportError
        os._exit(130)
    try:
        rng, seen = np.random.default_rng(0), list[Any]()
        a = rng.normal(size=(5, 12, 8)).astype(np.float32)
        y = (a.sum(2) > rng.normal(size=(5, 12))).astype(np.int32)
        data = jaxfl.data.from_clients((a, y), classes=2, stacked=True)
        ds = jaxfl.sweep(
            grid["algorithms"],
            {name: grid[name] for name in ("lr", "sigma", "eps") if name in grid},
            jaxfl.make_problem(jaxfl.models.logistic(8), data),
            jax.random.key(0),
            grid["rounds"],
            seeds=grid["seeds"],
            numbers={"clip": 2.0, "batch": 4, "omega": 1},
            eval_every=8,
            out=out,
            callbacks=[seen.append],
            **({how: True} if how else {}),
        )
    except KeyboardInterrupt:
        os._exit(130)  # a thread of JAX may still be compiling
    except jaxfl.InputError as error:
        print(f"jaxfl: error: {error}")
        return 2
    for now in seen:
        at = {"algorithm": now.run.algorithm, **now.run.labels, "seed": now.run.seed}
        if now.round in ds["round"]:
            held = ds["loss"].sel({**at, "round": now.round}).item()
            if not np.isclose(held, now.metrics["loss"], 1e-6, equal_nan=True):
                print(f"callbacks: {at}, round {now.round}: {now.metrics['loss']}, not {held}")
    return 0


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


def grown(how: str, grid: Grid, out: Path) -> list[str]:
    return [sys.executable, __file__, "grow", how, json.dumps(grid), str(out)]


def stepped(trial: Trial, grid: Grid, how: str, out: Path, seconds: float) -> tuple[Grid, Ended]:
    """Begin or extend a grid; after a kill resume it or extend it more."""

    def child(how: str, goal: Grid, said: str, kill: Kill | None = None) -> Ended:
        ended = trial.launch(f"{how or 'began'} {said}".strip(), grown(how, goal, out), out, kill)
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
        grid: Grid = {name: POOL[name][1:2] for name in ("algorithms", "lr", noise)}
        grid |= {"seeds": [0, 1], "rounds": 20}
        for step in range(trial.rng.integers(2, 5)):
            how = "extend" if step else ""
            grid, ended = stepped(trial, grid, how, out, seconds)
            seconds = ended.seconds
        if (ended := launch(grown("", grid, whole), whole)).status:
            raise SystemExit(f"{grid} cannot be computed at once:\n{ended.text}")
        trial.wrong += differences(out, jaxfl.load(whole), exact=False)


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
    if sys.argv[1:2] == ["grow"]:
        return grow(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
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
