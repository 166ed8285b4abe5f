"""Rounds per second of jaxfl beside what a user would pick instead, everything in one run.

    python benchmarks/rounds.py [W1 ... W5 scale start] [--peers all|none|NAME ...] [--out FILE]

Every library has a process of its own.  Turns interleave, so that a machine whose speed drifts is
the same for all: a figure is the median of turns, a ratio the median of the ratios within a turn.
Steady rounds, compilation with the first round, and memory are told apart.  See README.md here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import start
import tables
from peers import PEERS, folder, interpreter
from protocol import Failed, Worker
from workloads import GROUPS, TINY, WORKLOADS

HERE = Path(__file__).resolve().parent
PAUSE = 0.2  # seconds in which the threads of the contender before fall asleep
SLOW = 10.0  # seconds of one turn from which a contender has only that one
HOPELESS = 15.0  # seconds of a first round after which no look decides the length of a turn
LEAST = 3  # turns of all others, then as many as fit


class Contest:
    """Contenders that take turns, their rows of figures, and why some do not take part."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.rows: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        self.versions: dict[str, Any] = {}
        self.workers: list[Worker] = []
        self.ready: dict[str, tuple[Worker, int]] = {}

    def enter(self, who: str, command: list[str], only: str = "") -> Worker | None:
        """Start a process and prepare its contenders."""
        print(f"  preparing {who}", file=sys.stderr, flush=True)
        try:
            beside = command[0] == sys.executable  # other interpreters have packages of their own
            path = os.pathsep.join([str(HERE), *filter(None, sys.path)]) if beside else ""
            worker = Worker(command, {"PYTHONPATH": path})
        except Failed as why:
            self.skipped[who] = str(why)
            return None
        self.workers.append(worker)
        self.versions[who] = worker.versions
        for name in worker.names:
            if only not in name:
                continue
            try:
                self.rows[name] = worker.ask(name, 0, 300.0)
                self.ready[name] = worker, self.fitting(worker, name)
            except Failed as why:
                self.rows.pop(name, None)
                self.skipped[name] = str(why)
                continue
        return worker

    def fitting(self, worker: Worker, name: str) -> int:
        """The rounds that take about a turn, from the quickest of a few looks."""
        once = self.rows[name]["first_round_s"]
        compiled = "compile_s" in self.rows[name]  # else the first round may have been slower
        for look in range(4):
            if once > 4 * self.seconds and (compiled or look or once > HOPELESS):
                break
            few = max(1, int(self.seconds / 4 / max(once, 1e-6)))
            once = min(once, worker.ask(name, few)["seconds"] / few)
        return max(1, int(self.seconds / max(once, 1e-6)))

    def turns(self, count: int, names: Iterable[str], suffix: str = "") -> None:
        names = [name for name in names if name in self.ready]
        spent = dict.fromkeys(names, 0.0)
        before: Worker | None = None
        for turn in range(count):
            for name in names:
                rates = self.rows.setdefault(name + suffix, {}).setdefault("rates", [])
                worker, rounds = self.ready[name]
                slow = turn >= 1 and spent[name] > SLOW * turn
                tired = turn >= LEAST and spent[name] > 2 * count * self.seconds
                if slow or tired or name in self.skipped:
                    rates.append(None)
                    continue
                try:
                    if worker is not before:
                        time.sleep(PAUSE)
                        worker.ask(name, rounds)  # whose pages may be away after minutes unused
                    before = worker
                    told = worker.ask(name, rounds)
                except Failed as why:
                    self.skipped[name] = str(why)
                    rates.append(None)
                    continue
                spent[name] += told["seconds"]
                per_call = self.rows[name].get("rounds_per_call", 1)
                rates.append(rounds * per_call / told["seconds"])
                row = self.rows[name + suffix]
                row["peak_mib"] = max(row.get("peak_mib", 0.0), told["peak_mib"])

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def result(self) -> dict[str, Any]:
        rows = {}
        for name, row in self.rows.items():
            seen = [rate for rate in row.get("rates", []) if rate is not None]
            if seen:
                rows[name] = {**row, "rounds_per_s": statistics.median(seen)}
        return {"contenders": rows, "skipped": self.skipped, "versions": self.versions}


def measure(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """One workload, all its contenders."""
    contest = Contest(asked.seconds)
    load = os.getloadavg()[0]
    try:
        script = "scale.py" if name == "scale" else "ours.py"
        contest.enter("jaxfl", [sys.executable, str(HERE / script), name], asked.only)
        crowded = []
        for peer, made in PEERS.items():
            if peer not in asked.peers or not made.enters(name):
                continue
            python = asked.python.get(peer) or interpreter(peer, asked.environments)
            if python is None:
                contest.skipped[peer] = "not installed: `python benchmarks/peers.py install`"
            elif made.alone:
                crowded.append((peer, [python, str(HERE / "peers" / made.script), name]))
            else:
                contest.enter(peer, [python, str(HERE / "peers" / made.script), name])
        contest.turns(asked.turns, list(contest.ready))
        for peer, command in crowded:  # its idle processes would slow all others
            earlier = set(contest.ready)
            worker = contest.enter(peer, command)
            new = [who for who in contest.ready if who not in earlier]
            if new:
                contest.turns(min(asked.turns, LEAST), [tables.OURS], f" (beside {peer})")
                contest.turns(min(asked.turns, LEAST), new)
            if worker:
                worker.close()
    finally:
        contest.close()
    return {**contest.result(), "load": [load, os.getloadavg()[0]]}


def machine() -> dict[str, Any]:
    told: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        told["cpu"] = next(line.split(":")[1].strip() for line in lines if "model name" in line)
        memory = Path("/proc/meminfo").read_text().split()[1]
        told["memory_gib"] = round(int(memory) / 2**20, 1)
    except (OSError, StopIteration):
        pass
    return told


def read_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    groups = {**GROUPS, **{name: [name] for name in TINY}, "scale": ["scale"], "start": ["start"]}
    usual = [name for name in groups if name not in TINY]
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(usual))
    parser.add_argument(
        "--peers", nargs="+", default=["all"], help=f"all, none, {', '.join(PEERS)}"
    )
    parser.add_argument("--python", nargs="+", default=[], metavar="NAME=PATH", help="interpreters")
    parser.add_argument("--environments", type=Path, default=folder(), help="folder of peers.py")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one turn of a contender")
    parser.add_argument("--only", default="", help="of jaxfl, contenders with these words only")
    parser.add_argument("--out", type=Path, help="where results go, as JSON")
    asked = parser.parse_args(argv)
    if unknown := set(asked.workloads) - set(groups):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; take {', '.join(usual)}")
    asked.workloads = [w for group in asked.workloads or usual for w in groups[group]]
    if unknown := set(asked.peers) - {"all", "none", *PEERS}:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    if "all" in asked.peers:
        asked.peers = list(PEERS)
    asked.python = dict(pair.split("=", 1) for pair in asked.python)
    return asked


def main(argv: list[str] | None = None) -> dict[str, Any]:
    asked = read_arguments(argv)
    result = {
        "machine": machine(),
        "settings": {"turns": asked.turns, "seconds": asked.seconds},
        "workloads": {},
    }
    print(json.dumps(result["machine"]))
    for name in asked.workloads:
        began = time.perf_counter()
        if name == "start":
            found = start.measure()
        else:
            found = measure(name, asked)
            tables.derive(name, WORKLOADS.get(name), found)
        found["took_s"] = time.perf_counter() - began
        result["workloads"][name] = found
        tables.show(name, WORKLOADS.get(name), found)
        if asked.out:  # what has been measured stays, whatever happens later
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text(json.dumps(result, indent=1) + "\n")
    return result


if __name__ == "__main__":
    main()
