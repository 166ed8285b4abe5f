"""What is shown while a run goes on, and of its result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl.progress import Bar
from jaxfl.types import Origin, Source

if TYPE_CHECKING:
    import xarray
    from rich.console import Console

    from jaxfl.run import Progress
    from jaxfl.types import Problem

__all__ = ["Display", "amount", "console", "summary"]

WIDTH = 10_000  # of what goes to a file: no line is broken


class Display(Bar):
    """The progress of one run."""

    def __init__(self, name: str, problem: Problem, rounds: int, *, quiet: bool) -> None:
        super().__init__(
            f"{name} on {problem.name}: {problem.n} clients, {problem.model.name} with "
            f"{problem.model.dim} parameters, {rounds} rounds",
            quiet=quiet,
        )

    def show(self, now: Progress) -> None:
        words = f"{now.rounds_per_second:,.0f} rounds/s, loss {now.loss:.5g}"
        self.update(now.round, now.rounds, words)


def console() -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)


def summary(ds: xarray.Dataset, files: Sequence[Path]) -> None:
    """The numbers that were used and what came out, on standard output."""
    from rich.table import Table

    from jaxfl import results

    about = results.config(ds)
    settings = about["settings"]
    used = Table("number", "value", "from", box=None, pad_edge=False)
    for row in _used(about, int(ds["round"].values[-1])):
        used.add_row(*row)
    out = Table.grid(padding=(0, 2))
    for name, words in _outcome(ds, about):
        out.add_row(name, words)
    for file in files:
        out.add_row("file", str(file))
    shown = console()
    shown.print(f"{settings['algorithm']} on {settings['problem']}: {about['ended']}", style="bold")
    shown.print(used)
    shown.print()
    shown.print(out)


def _used(about: dict[str, Any], reached: int) -> list[tuple[str, str, str]]:
    """Numbers with their sources; of an extended run, those that its first plan was made from."""
    values, sources = about["values"], about["sources"]
    rows = {name: [_number(values[name]), sources.get(name, "")] for name in values}
    planned = int(values["rounds"])
    if reached > planned:
        rows["rounds"][0] += f", extended to {reached}"
        if "eps" in rows:
            fitted = Source.read(sources.get("sigma", "")).origin is Origin.CALIBRATED
            rows["eps"][1] += (
                f"; {'sigma was calibrated for it and' if fitted else 'of'} {planned} rounds"
            )
    return [(name, *rows[name]) for name in sorted(rows, key=str)]


def _outcome(ds: xarray.Dataset, about: dict[str, Any]) -> list[tuple[str, str]]:
    from jaxfl import results

    last, rounds = ds.isel(round=-1), int(ds["round"].values[-1])
    final = {str(name): float(v) for name, v in last.data_vars.items() if v.ndim == 0}
    planned = int(about["values"]["rounds"])
    rows = [("rounds", f"{rounds}" + (f" of {planned}" if rounds < planned else ""))]

    loss = ds["loss"].values
    best = int(loss.argmin()) if np.isfinite(loss).all() else None
    where = "" if best is None else f", best {loss[best]:.5g} at round {int(ds['round'][best])}"
    rows.append(("loss", f"{final['loss']:.5g}, from {loss[0]:.5g}{where}"))
    rows.append(("worst client's loss", f"{final['worst_client_loss']:.5g}"))
    if "test_loss" in final:
        rows.append(("test loss", f"{final['test_loss']:.5g}"))
    rows.append(
        (
            "squared gradient norm",
            f"{final['grad_norm_sq']:.4g}, running average {final['utility']:.4g}",
        )
    )
    if "accuracy" in final:
        words = f"{final['accuracy']:.1%}, worst client {final['worst_client_accuracy']:.1%}"
        if "test_accuracy" in final:
            words += f", test {final['test_accuracy']:.1%}"
        rows.append(("accuracy", words))
    rows += [
        ("uplink", amount(final["uplink_bits"])),
        ("downlink", amount(final["downlink_bits"])),
        ("gradients", f"{final['gradients']:,.0f} per-example"),
        ("privacy", results.privacy(about)),
        *([("clients' privacy", _devices(ds))] if "client_eps" in ds else []),
        ("time", _time(about, rounds)),
    ]
    return rows


def _devices(ds: xarray.Dataset) -> str:
    """What clients spent, where they differ: the spread and the worst."""
    from jaxfl.privacy.ledger import between

    rounds, eps = (ds[name].values for name in ("client_rounds", "client_eps"))
    i = int(eps.argmax())
    claim = ""
    if "client_eps_claimed" in ds:
        claim = f", claimed {ds['client_eps_claimed'].values[i]:.4g}"
    low, middle, high = sorted(eps)[0], sorted(eps)[len(eps) // 2], eps[i]
    return (
        f"in {between(rounds)} each: eps {low:.4g} to {high:.4g} proven, median {middle:.4g}; the "
        f"worst is client {i} with {rounds[i]} rounds{claim}"
    )


def _time(about: dict[str, Any], rounds: int) -> str:
    compiled, total = about["compile_seconds"], about["seconds"]
    ran = max(total - compiled, 1e-9)
    device = about["settings"]["device"]
    speed = f"{ran:.2f} s running, {rounds / ran:,.0f} rounds/s on {device}"
    return f"{compiled:.1f} s until the first round, {speed}"


def amount(bits: float) -> str:
    """Bits in a unit that a person reads, and in bytes."""

    def scaled(value: float, unit: str) -> str:
        for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
            if value >= 10**power:
                return f"{value / 10**power:.3g} {prefix}{unit}"
        return f"{value:g} {unit}"

    return f"{scaled(bits, 'bit')} ({scaled(bits / 8, 'B')})"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
