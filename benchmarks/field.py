"""All private algorithms at equal proven eps: which one at which eps, bits and heterogeneity?

    python benchmarks/field.py plan [SETTING ...]
    python benchmarks/field.py run [SETTING ...] [--quick] [--import FILE --add NAME]
    python benchmarks/field.py page [--data-set FILE] [--to FILE]

`plan` prints what a run would take.  `run` tunes every algorithm on validation data, runs the winners with
five other seeds, and writes the data set, the page and its pictures to results/field; the same command
continues an interrupted one.  With `--add` it runs those algorithms alone, and draws them beside the
recorded ones.  `page` writes docs/field.md, its pictures and the sentences of README.md from the recorded
data set.

    python benchmarks/field.py run --quick                                 # everything in miniature
    python benchmarks/field.py run a9a-label --import mine.py --add mine   # an algorithm of yours
    python benchmarks/field.py run a9a-label --import mine.py --add mine --set decay=0.9
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
from field.contenders import CONTENDERS, Contender, added, chosen, knobs
from field.page import readme, write
from field.results import LEADERS, collected, leaders, load, merged, save
from field.settings import CLIENTS, EPS, SETTINGS, Setting, miniature, named
from field.tuning import LEAST, SEEDS, TUNING, Job, Tuned, tune
from xarray import Dataset

from jaxfl import InputError

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "benchmarks/results/field/field.nc"
PAGE, README = ROOT / "docs/field.md", ROOT / "README.md"
LEADING = "mnist-mlp"  # the setting whose leaders run on slower networks
ADDED, FINALS = (
    0.25,
    0.06,
)  # cells of added step sizes and of winners, of those of the tuning: as recorded
RECORDS = 3000  # of a client, where all of them are in a round


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 for a mistake, 130 when interrupted."""
    parser = _parser()
    asked = parser.parse_args(argv)
    try:
        if asked.command == "page":
            files = write(ds := load(asked.data_set), asked.to)
            print(*files, *([readme(ds, README)] if asked.to == PAGE else []), sep="\n")
        elif asked.command == "plan":
            _plan(asked)
        else:
            _run(asked)
    except InputError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("interrupted; give the command again to resume.", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan", help="print what a run would take")
    run = commands.add_parser("run", help="compute, or continue")
    for each in (plan, run):
        each.add_argument("settings", nargs="*", help=", ".join(s.name for s in SETTINGS))
        each.add_argument("--quick", action="store_true", help="everything in miniature")
        each.add_argument("--only", nargs="+", default=[], metavar="NAME", help="algorithms")
        each.add_argument("--import", dest="files", action="append", default=[], metavar="FILE")
        each.add_argument("--add", nargs="+", default=[], metavar="NAME", help="algorithms to add")
        each.add_argument(
            "--set", nargs="+", default=[], metavar="NAME=VALUE", help="numbers of these"
        )
        each.add_argument("--data-dir", metavar="DIR", help="folder of data files")
    run.add_argument("--out", type=Path, default=Path("results/field"), metavar="DIR")
    page = commands.add_parser("page", help="write the page and its pictures")
    page.add_argument("--data-set", type=Path, default=RECORDED, metavar="FILE")
    page.add_argument("--to", type=Path, default=PAGE, metavar="FILE")
    return parser


def _asked(asked: argparse.Namespace) -> tuple[list[Setting], tuple[Contender, ...]]:
    """The settings, and the algorithms: all, or those that are added."""
    for number, file in enumerate(asked.files):
        spec = importlib.util.spec_from_file_location(f"added_{number}", file)
        if spec is None or spec.loader is None or not Path(file).exists():
            raise InputError(f"{file} is no Python file", "name another one with --import")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    if asked.data_dir is not None:
        os.environ["JAXFL_DATA"] = asked.data_dir
    settings = [miniature(s) if asked.quick else s for s in named(asked.settings)]
    among = tuple(added(name, asked.set) for name in asked.add) or CONTENDERS
    known = [contender.name for contender in among]
    for name in asked.only:
        if name not in known:
            raise InputError(
                f"There is no algorithm {name!r} here", f"the names are {', '.join(known)}"
            )
    return settings, among


def _plan(asked: argparse.Namespace) -> None:
    settings, among = _asked(asked)
    whole = 0.0
    for setting in settings:
        some = chosen(setting, among, asked.only)
        alike = [contender for contender in some if not (setting.leaders and contender.pooled)]
        each = [_seconds(setting, contender) for contender in alike]
        count = min(LEADERS // setting.every, len(some)) if setting.leaders else len(some)
        hours = count * sum(each) / max(len(each), 1) / 3600
        cells = len(setting.rounds) * len(EPS) * 6 * len(setting.steps)
        print(f"{setting.name:12} {count:3} algorithms of "
              f"{cells} cells or fewer, about {hours:.2f} processor hours")  # fmt: skip
        whole += hours
    print(
        f"{'together':12} about {whole:.2f} processor hours, of which two cores take a half or more"
    )


def _seconds(setting: Setting, contender: Contender) -> float:
    """Processor seconds of all cells of a contender, by their rounds and records, and of its programs."""
    total, steps = 0.0, len(setting.steps)
    rate = setting.local_us if "local_steps" in contender.make().names else setting.record_us
    seeds = TUNING[:1] if setting.halved else TUNING
    runs = (1 + ADDED) * len(seeds) + FINALS * len(SEEDS)
    for rounds in setting.rounds:
        axes = knobs(contender, setting, rounds)
        batch, local = (axes.get(name, (1,)) for name in ("batch", "local_steps"))
        batch = batch if "batch" in axes else (setting.records or RECORDS,)
        records = CLIENTS * rounds * sum(batch) / len(batch) * sum(local) / len(local)
        cells = math.prod(map(len, axes.values())) * len(EPS) * steps
        total += 2 * len(batch) * len(local) * setting.program_s  # of the tuning and of the winners
        total += runs * cells * records * rate * 1e-6
        steps = max(LEAST, math.ceil(steps / 2)) if setting.halved else steps
    return total


def _run(asked: argparse.Namespace) -> None:
    settings, among = _asked(asked)
    if asked.quick:
        jax.config.update("jax_disable_most_optimizations", True)  # its time is compilation
    folder = asked.out.with_name(f"{asked.out.name}-quick") if asked.quick else asked.out
    job = Job(folder, SEEDS[:2] if asked.quick else SEEDS, lambda line: print(line, flush=True))
    file = folder / "field.nc"
    base = RECORDED if asked.add and RECORDED.exists() and not asked.quick else file
    ds = load(base) if base.exists() else None
    about = {"miniature": "yes" if asked.quick else "no", "added": " ".join(asked.add)}
    _plan(asked)
    found: dict[tuple[str, str], Tuned] = {}

    def compute(setting: Setting, contender: Contender) -> None:
        nonlocal ds
        found[setting.name, contender.name] = tuned = tune(job, setting, contender)
        if asked.add and not tuned.tried:
            why = tuned.left_out.split("; ")[0].rstrip(".")
            raise InputError(
                f"{contender.name} has no cell: {why}", "--set NAME=VALUE sets numbers"
            )
        ds = merged(ds, collected(found, among, **about))
        save(ds, file)

    # settings of one model share the programs of an algorithm, which are forgotten after a while
    fast = [
        (setting, chosen(setting, among, asked.only)) for setting in settings if not setting.leaders
    ]
    for contender in among:
        for setting, some in fast:
            if contender in some:
                compute(setting, contender)
    for setting in settings:
        for contender in _leading(setting, among, asked, ds) if setting.leaders else ():
            compute(setting, contender)
    if ds is not None:
        print(*write(ds, folder / "field.md"), sep="\n")


def _leading(
    setting: Setting, among: Sequence[Contender], asked: argparse.Namespace, ds: Dataset | None
) -> list[Contender]:
    """The leaders of the faster network, or those that are added."""
    if asked.add:
        return chosen(setting, among, asked.only)
    if ds is None or LEADING not in ds["setting"]:
        raise InputError(f"{setting.name} takes the leaders of {LEADING}", f"run {LEADING} first")
    best = leaders(ds, LEADING, number=LEADERS // setting.every)
    return [contender for contender in among if contender.name in best]


if __name__ == "__main__":
    sys.exit(main())
