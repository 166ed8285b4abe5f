"""Kill runs and sweeps at random instants, continue them, and compare the result with an uninterrupted one.

    python tests/engine/kills.py runs --times 20 --seed 0
    python tests/engine/kills.py sweeps
    python tests/engine/kills.py executors
    python tests/engine/kills.py extend

Each trial prints one line. Trial i has the seed ``--seed`` + i; `--times 1 --seed S` repeats the trial of
seed S, as far as the speed of the machine is the same. The exit status is 1 if a trial is wrong.

Half of the instants are drawn over the whole duration; the others follow a change of the folder by some
hundredths of a second, because files are written in a small part of the time.  In half of the trials
checkpoints are written as often as can be.  A trial is right if every process ends as its signal asks or
refuses in one sentence, and the result is that of an uninterrupted one: bit for bit, of larger grids in
draws and counts, with other numbers up to rounding.  A call begins again if its continuation is refused.
"""

import argparse
import contextlib
import itertools
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
GRID = {"sigma": [0.1, 0.2], "lr": [0.1, 0.2], "seeds": 4, "runs_at_once": 4, "omega": 1}
# eight chunks of two programs
SWEEP: Job = {"call": "sweep", "algorithm": ["ldp_sgd", "soteriafl_gd"], **NUMBERS, **GRID}
# few rounds, since numbers agree up to rounding
LARGE: Job = {**SWEEP, "seeds": [3, 0, 1], "rounds": 35, "eval_every": 8}
SMALL: Job = {**LARGE, "sigma": [0.2], "seeds": [0, 1], "rounds": 20}
# What trials choose from: the calls of one folder, each of which extends the one before.
TRIALS: dict[str, list[list[Job]]] = {
    "runs": [
        [{"call": "simulate", "algorithm": "soteriafl_sgd", "omega": 1, **NUMBERS}],
        [{"call": "simulate", "algorithm": "ldp_svrg", **NUMBERS}],
        [{"call": "simulate", "algorithm": "fedavg", "local_steps": 3, **PLAIN}],
    ],
    "sweeps": [[{**SWEEP, "most": 3}]],  # runs that fit into a chunk: each of four is halved
    "executors": [[{**SWEEP, "executor": "processes:2"}]],
    "extend": [[SMALL, LARGE]],
}
COUNTS = ["messages", "coordinates", "gradients", "uplink_bits", "downlink_bits"]
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
    killed: str  # what was killed, and when; empty if the process ended before
    fault: str


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Names, times and sizes of all files; one that is just being replaced may be missing."""
    found = []
    for place, _, names in os.walk(folder):
        for path in (os.path.join(place, name) for name in names):
            with contextlib.suppress(OSError):
                found.append((path, (stat := os.stat(path)).st_mtime_ns, stat.st_size))
    return sorted(found)


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def strike(process: subprocess.Popen[str], kill: Kill) -> str:
    """Kill a process or its worker; what was killed, empty if there is no worker yet."""
    if kill.worker:
        for child in (family := children(process))[-1:]:
            child.kill()
        return "a worker" if family else ""
    with contextlib.suppress(ProcessLookupError):
        if kill.signal == signal.SIGINT:  # a terminal sends it to the whole group
            os.killpg(process.pid, kill.signal)
        else:
            process.send_signal(kill.signal)
    return kill.signal.name


def launch(job: Job, folder: Path, how: str = "", kill: Kill | None = None) -> Ended:
    """Begin, resume or extend a call in a process, kill it, and wait for its end."""
    given = {**job, "out": str(folder), **({how: True} if how else {})}
    words = [sys.executable, __file__, "child", json.dumps(given)]
    with tempfile.TemporaryFile("w+") as out:
        where: Any = {"stdout": out, "stderr": out, "cwd": ROOT, "start_new_session": True}
        process = subprocess.Popen(words, text=True, **where)
        try:
            changes, killed, late, family = watched(process, folder, kill)
        finally:  # this process may be interrupted
            hung = process.poll() is None
            process.kill()
        status = process.wait()
        _, left = psutil.wait_procs(family, timeout=PATIENCE)
        for one in left:
            one.kill()
        out.seek(0)
        text = out.read().strip()
    frames = re.findall(f'File "{re.escape(str(ROOT))}/(jaxfl/[^"]*)", line', text)
    number = kill.signal if kill and killed and not kill.worker else 0
    sentence = re.fullmatch(r"jaxfl: error: .*[.?]", text.split("\n")[-1])
    faults = {
        "does not end": hung,
        "has a traceback": bool(frames),  # without frames Python had not begun the package
        "leaves processes behind": bool(left),
        "refuses without a sentence": status == 2 and not sentence,
        f"ends with status {status}": status not in (0, 2, -number, 128 + number),
        "goes on after the signal": status == 0 and bool(number) and late > PATIENCE / 3,
    }
    fault = next((words for words, holds in faults.items() if holds), "")
    return Ended(status, text, changes[1], int(changes[0]), killed, fault)


def watched(process: Any, folder: Path, kill: Kill | None) -> tuple[Any, str, float, set[Any]]:
    """Kill a process at its instant and wait for its end: changes and seconds, what was killed, the
    seconds from then on, and the processes that it started."""
    killed, changes, since, when, limit = "", 0, 0.0, 0.0, LIMIT
    family, before, begun = set[psutil.Process](), listing(folder), time.monotonic()
    for turn in itertools.count():
        now = time.monotonic() - begun
        if process.poll() is not None or now > limit:
            return (changes, now), killed, now - when, family
        if (state := listing(folder)) != before:
            before, changes = state, changes + 1
            since = now if kill and changes == kill.change else since
        if turn % 100 == 0:  # reads all processes of the machine
            family.update(children(process))
        due = kill and not killed and changes >= kill.change and now >= since + kill.seconds
        if kill and due and (what := strike(process, kill)):
            killed, when = f"{what} at {now:.2f} s, change {changes}", now
            limit = limit if kill.worker else now + PATIENCE
        time.sleep(0.005)


def difference(folder: Path, whole: Any, exact: bool) -> str:
    """What differs from the right data set, in the rounds that both evaluated."""
    import xarray

    import jaxfl

    try:
        found = jaxfl.load(folder).drop_attrs()
        if exact:
            xarray.testing.assert_equal(found, whole)
            return ""
        common = np.intersect1d(found["round"], whole["round"])
        found, whole = found.sel(round=common), whole.sel(round=common)
        xarray.testing.assert_allclose(found, whole, 1e-5, 1e-7)
        xarray.testing.assert_equal(found[COUNTS], whole[COUNTS])
        return "" if found["round"][-1] == whole["round"][-1] else "ends too soon"
    except (AssertionError, jaxfl.InputError) as error:
        return f"another result: {error}"


def drawn(rng: np.random.Generator, usual: Ended, workers: bool) -> Kill:
    """A signal at an instant of a command that takes as long, and changes its folder as often."""
    number, worker = SIGNALS[rng.integers(len(SIGNALS))], workers and rng.random() < 0.5
    if rng.random() < 0.5:
        return Kill(number, rng.uniform(0, usual.seconds), worker=worker)
    change = int(rng.integers(1, max(usual.changes, 1) + 1))
    return Kill(number, rng.exponential(0.03), change, worker)


def trial(seed: int, steps: list[Job], whole: Any, usual: Ended, folder: Path) -> list[str]:
    """Kill each of these calls up to three times, continue it, and compare the result of the last."""
    rng = np.random.default_rng(seed)
    story, wrong, often = list[str](), list[str](), bool(rng.random() < 0.5)
    for number, job in enumerate(steps):
        how = begins = "extend" if number else ""
        for attempt in range(9):
            again = attempt == 0 or (attempt < 3 and rng.random() < 0.4)
            kill = drawn(rng, usual, "executor" in job) if again else None
            ended = launch({**job, "often": often}, folder, how, kill)
            story.append(f"{how or 'began'} ({ended.killed or 'no kill'}, status {ended.status})")
            if ended.fault:
                wrong.append(ended.fault)
                print(f"seed {seed}: {ended.fault}:\n{ended.text}", file=sys.stderr, flush=True)
            if ended.status == 0:
                break
            how = begins if ended.status == 2 else "resume"
    wrong += filter(None, [difference(folder, whole, exact=len(steps) == 1)])
    verdict = f"WRONG: {'; '.join(dict.fromkeys(wrong))}" if wrong else "right"
    print(f"seed {seed}: {'; '.join(story)}: {verdict}", flush=True)
    return wrong


def child(call: str, often: bool = False, most: int | None = None, **given: Any) -> int:
    """Make a call in this process."""
    try:
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
        rng = np.random.default_rng(0)
        a = rng.normal(size=(5, 12, 8)).astype(np.float32)
        y = (a.sum(2) > rng.normal(size=(5, 12))).astype(np.int32)
        data = jaxfl.data.from_clients((a, y), classes=2, stacked=True)
        problem = jaxfl.make_problem(jaxfl.models.logistic(8), data)
        getattr(jaxfl, call)(problem=problem, **given)
    except KeyboardInterrupt:
        os._exit(130)  # a thread of JAX may still be compiling
    except jaxfl.InputError as error:
        print(f"jaxfl: error: {error}")
        return 2
    return 0


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        return child(**json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("command", choices=TRIALS)
    parser.add_argument("--times", type=int, default=20, help="number of trials")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first")
    args, wrong = parser.parse_args(), 0
    # children would ignore Ctrl-C as this process does where a shell has put it in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path.insert(0, str(ROOT))
    import jaxfl

    with tempfile.TemporaryDirectory(prefix="jaxfl-kills-", ignore_cleanup_errors=True) as name:
        os.environ |= ENVIRONMENT | {"JAX_COMPILATION_CACHE_DIR": f"{name}/programs"}
        known: dict[int, tuple[Any, Ended]] = {}
        for seed in range(args.seed, args.seed + args.times):
            which = seed % len(TRIALS[args.command])
            steps = TRIALS[args.command][which]
            if which not in known:
                place = Path(name) / f"whole-{which}"
                if (ended := launch(steps[-1], place)).status:
                    raise SystemExit(f"{steps[-1]} fails without a kill:\n{ended.text}")
                known[which] = jaxfl.load(place).drop_attrs(), ended
            wrong += bool(trial(seed, steps, *known[which], Path(name) / str(seed)))
    print(f"{args.times - wrong} right, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
