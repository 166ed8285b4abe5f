"""Print the results of runs: their first line and summary, tables, JSON, names of files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl.core.display import between
from jaxfl.core.errors import printable
from jaxfl.core.foreign import output
from jaxfl.core.progress import plural
from jaxfl.core.types import Algorithm, Clients, Origin, Problem, Source
from jaxfl.engine import results, stopping
from jaxfl.engine.ledger import spread
from jaxfl.privacy.claims import Condition
from jaxfl.views.tables import Table, by_rows
from jaxfl.views.words import in_units

if TYPE_CHECKING:
    import xarray

__all__ = ["REFUTED", "facts", "head", "print_files", "print_json", "print_table", "summary"]

REFUTED = 3  # the exit status where a probe or an attack refutes an eps

TIMED = 1.0  # seconds after the first call of a program, from which a rate says something


def head(algorithm: Algorithm, problem: Problem, rounds: int) -> str:
    """Describe a run in one line: algorithm, problem, model, rounds."""
    return (
        f"{algorithm.name} on {problem.name}: {plural(problem.n, 'client')}, {problem.model.name} with "
        f"{problem.model.dim} parameters, {rounds} rounds"
    )


def print_table(table: Table) -> None:
    """With colours and broken lines on a terminal; elsewhere one line per row."""
    from rich.console import Console

    if sys.stdout.isatty():
        table.show(Console(highlight=False, markup=False, emoji=False))
    else:
        print(table.text(), end="")


def print_json(value: Any) -> None:
    """Print a result of ``--json``: numbers that are not finite are "nan", "inf" and "-inf"."""
    text = json.dumps(results.plain(value), indent=2, ensure_ascii=False, default=str)
    print(text, file=output())


def print_files(files: Sequence[Path], before: str = "") -> None:
    """Print the names of files, one per line, without the texts that lie beside pictures."""
    for file in files:
        if file.suffix != ".txt":
            print(printable(f"{before}{file}"))


def facts(ds: xarray.Dataset, files: Sequence[Path] = ()) -> dict[str, Any]:
    """The facts of a run that `--json` prints."""
    about = results.config(ds)
    last = ds.isel(round=-1)
    return {
        "algorithm": about["settings"]["algorithm"],
        "problem": about["settings"]["problem"],
        "parts": about["settings"]["parts"],
        "ended": about["ended"],
        "rounds": int(last["round"]),
        "hyper_parameters": about["values"],
        "sources": about["sources"],
        "metrics": {str(name): v.item() for name, v in last.data_vars.items() if not v.ndim},
        "best_loss": float(ds["loss"].min()),
        "privacy": about["privacy"],
        "seconds": about["seconds"],
        "compile_seconds": about["compile_seconds"],
        "files": files,
    }


def summary(ds: xarray.Dataset, files: Sequence[Path], *, claim: bool) -> None:
    """Print hyper-parameters with their sources, what came out, and what the paper claims."""
    about = results.config(ds)
    settings = about["settings"]
    head = f"{settings['algorithm']} on {settings['problem']}: {about['ended']}"
    names = ("hyper-parameter", "value", "source")
    used = _used(about, int(ds["round"].values[-1]))
    out = [*_outcome(ds, about, claim).items(), *(("file", str(file)) for file in files)]
    print_table(Table(head, by_rows(dict(zip(names, names, strict=True)), used)))
    print()
    print_table(Table("", by_rows({"name": "", "words": ""}, out)))


def _used(about: dict[str, Any], reached: int) -> list[tuple[str, str, str]]:
    """Values with their sources; of an extended run, those that its first plan was made from."""
    values, sources = about["values"], about["sources"]
    rows = {name: [_number(values[name]), sources.get(name, "")] for name in values}
    planned = int(values["rounds"])
    if "k" in rows:
        rows["k"][0] += f" of {about['facts']['d']} coordinates"
    if reached > planned:
        rows["rounds"][0] += f", extended to {reached}"
        if "eps" in rows:
            fitted = Source.read(sources.get("sigma", "")).origin is Origin.CALIBRATED
            of = "sigma was calibrated for it and" if fitted else "of"
            rows["eps"][1] += f"; {of} {planned} rounds"
    if "eps" in rows and Source.read(sources.get("eps", "")).origin is None:
        rows["claimed eps"] = rows.pop("eps")  # nobody asked for it: a formula has it from sigma
    return [(name, *rows[name]) for name in sorted(rows, key=str)]


def _outcome(ds: xarray.Dataset, about: dict[str, Any], claim: bool) -> dict[str, str]:
    rounds, planned = int(ds["round"].values[-1]), int(about["values"]["rounds"])
    final = {str(name): float(v) for name, v in ds.isel(round=-1).data_vars.items() if not v.ndim}
    loss, parts = ds["loss"], about["settings"]["parts"]
    said = f"{final['loss']:.5g}, from {float(loss[0]):.5g}"
    if np.isfinite(loss).all():
        said += f", best {float(loss.min()):.5g} at round {int(loss.idxmin())}"
    conditions = [Condition(*one) for one in (about["privacy"] or {}).get("conditions", ())]
    failed = [str(condition) for condition in conditions if condition.holds is False]
    facts, on = about["facts"], results.measured_on(about)
    several = facts["n"] > 1
    z = (about["privacy"] or {}).get("noise_multiplier") or 0.0  # older files have none
    tested = "test_loss" in final and on != "test"
    worst = several and "worst_client_loss" in final  # held-out examples may have no owners
    norm = f"{final['grad_norm_sq']:.4g}, running mean (utility) {final['utility']:.4g}"
    rows = {
        "clients": f"{facts['n']} of {between(facts['m'], facts.get('m_max', facts['m']))} records",
        "rounds": f"{rounds}" + (f" of {planned}" if rounds < planned else ""),
        f"{on} metrics": ds["loss"].attrs.get("comment", ""),
        f"{on} loss": said,
        "worst client's loss": f"{final['worst_client_loss']:.5g}" if worst else "",
        **({"test loss": f"{final['test_loss']:.5g}"} if tested else {}),
        "squared gradient norm": norm,
        f"{on} accuracy": _accuracies(final, worst, on),
        "uplink": f"{amount(final['uplink_bits'])} {parts.get('bits', '')}".rstrip() * several,
        "downlink": amount(final["downlink_bits"]) * several,
        "gradients": f"{final['gradients']:,.0f} per-example",
        "noise multiplier": f"{z:.4g}: sigma divided by the largest contribution of one record or client"
        * bool(z),
        "privacy": results.privacy(about, claim=claim),
        "privacy assumes": results.assumed(about),
        "paper's theorem": "; ".join(failed) * claim,
        "clients' privacy": _clients(ds, about) if several and "client_eps" in ds else "",
        "time": _time(about, rounds),
    }
    return {name: words for name, words in rows.items() if words}


def _accuracies(final: dict[str, float], worst: bool, on: str) -> str:
    if "accuracy" not in final:
        return ""
    words = f"{final['accuracy']:.1%}"
    words += f", worst client {final['worst_client_accuracy']:.1%}" if worst else ""
    tested = "test_accuracy" in final and on != "test"
    return words + (f", test {final['test_accuracy']:.1%}" if tested else "")


def _clients(ds: xarray.Dataset, about: dict[str, Any]) -> str:
    claimed = ds["client_eps_claimed"].values if "client_eps_claimed" in ds else None
    named = ds["client"].dtype.kind not in "iu"
    clients = Clients(tuple(map(str, ds["client"].values))) if named else Clients()
    ran = int(ds["round"].values[-1])
    counted = stopping.planned(about["settings"], ran)
    of = counted if counted > ran else None
    return spread(ds["client_rounds"].values, ds["client_eps"].values, claimed, clients, of)


def _time(about: dict[str, Any], rounds: int) -> str:
    compiled, total = about["compile_seconds"], about["seconds"]
    ran = max(total - compiled, 1e-9)
    device = about["settings"]["device"]
    if ran < TIMED:  # most rounds were in the first call
        return f"{total:.1f} s on {device}, most of them compiling and in the first call"
    speed = f"{ran:.2f} s running, {rounds / ran:,.0f} rounds/s on {device}"
    return f"{compiled:.1f} s compiling and before the first round, {speed}"


def amount(bits: float) -> str:
    """Bits in a unit that a person reads, and in bytes."""
    return f"{in_units(bits, 'bit')} ({in_units(bits / 8, 'B')})"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
