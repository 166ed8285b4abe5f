"""Noise that is correlated over rounds, beside independent noise, at equal proven eps.

    python benchmarks/correlated.py run [WORD ...]  # rows whose names hold all words, by default all
    python benchmarks/correlated.py speed           # rounds per second, with and without correlation
    python benchmarks/correlated.py page            # docs/correlated.md and its picture, from the record

`run` adds to benchmarks/results/correlated.json after each row, and leaves out the rows that it holds.  In
each cell the step size is the best of one grid, by the mean of the final training loss over 5 seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxfl
from jaxfl import data, models
from jaxfl.parts import mechanisms
from jaxfl.privacy import Event, Mean, Sampling
from jaxfl.privacy.calibration import sigma_for
from jaxfl.privacy.releases import shown_norm, strategy_norm

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks/results/correlated.json"
PAGE = ROOT / "docs/correlated.md"
CLIENTS, DELTA, CLIP, SEEDS = 10, 1e-5, 1.0, tuple(range(5))
EPS = (1.0, 4.0, 16.0)
ALGORITHMS = {
    "central": "dp_sgd",
    "local": "ldp_sgd",
    "random-k": "cdp_sgd",
    "shifted": "soteriafl_sgd",
}
SPARSE = ("random-k", "shifted")


class Setting(NamedTuple):
    """A problem, the batch of a client, the share of coordinates that a sparsifier keeps, and steps."""

    name: str
    words: str
    make: Callable[[], Any]
    batch: int
    keep: float
    steps: tuple[float, ...]
    bands: tuple[int, ...]
    epochs: tuple[int, ...]
    ways: tuple[str, ...] = tuple(ALGORITHMS)


def _a9a() -> Any:
    return jaxfl.Problem(models.logistic(123), data.split("a9a", CLIENTS))


def _mnist() -> Any:
    return jaxfl.Problem(models.mlp(784, 10, hidden=(16,)), data.split(_first(300), CLIENTS))


SETTINGS = (
    Setting(
        "a9a",
        "logistic loss, 10 clients with 3,256 records, batches of 64, 51 rounds an epoch",
        _a9a,
        64,
        0.1,
        (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
        (2, 8, 32),
        (1, 4, 20),
    ),
    Setting(
        "a9a-256",
        "the same in batches of 256, 13 rounds an epoch",
        _a9a,
        256,
        0.1,
        (0.3, 1.0, 3.0, 10.0),
        (8,),
        (1, 4, 20),
        ("central", "local"),
    ),
    Setting(
        "mnist",
        "3,000 images of MNIST, 16 hidden units, 10 clients, batches of 10, 30 rounds an epoch",
        _mnist,
        10,
        0.05,
        (0.03, 0.1, 0.3, 1.0, 3.0),
        (2, 8),
        (1, 4),
    ),
)


class Noise(NamedTuple):
    """Independent (one band) or banded noise, of Poisson or cyclic batches."""

    sampler: str
    bands: int = 1
    shows: bool = False

    @property
    def name(self) -> str:
        if self.bands == 1:
            return f"independent, {self.sampler}"
        return f"{self.bands} bands" + (" by shows" if self.shows else "")

    def mechanism(self, central: bool) -> Any:
        if self.bands == 1:
            return mechanisms.central() if central else mechanisms.gaussian()
        return mechanisms.banded(self.bands, central, self.shows)


def rows() -> Iterator[tuple[Setting, str, Noise]]:
    for setting in SETTINGS:
        for way in setting.ways:
            clocks = (False, True) if way in SPARSE else (False,)
            bands = (8,) if way in SPARSE else setting.bands
            yield setting, way, Noise("poisson")
            yield setting, way, Noise("cyclic")
            for p in bands:
                yield from ((setting, way, Noise("cyclic", p, shows)) for shows in clocks)


def measured(setting: Setting, problem: Any, way: str, noise: Noise) -> dict[str, Any]:
    """Final losses of all epochs and eps, each with the best step size."""
    mechanism = noise.mechanism(way == "central")
    algorithm = jaxfl.algorithm(ALGORITHMS[way], mechanism=mechanism, sampler=noise.sampler)
    k = {"k": round(setting.keep * problem.model.dim)} if way in SPARSE else {}
    found: dict[str, Any] = {}
    for epochs in setting.epochs:
        rounds = epochs * math.ceil(int(problem.count.min()) / setting.batch)
        if noise.bands > rounds:
            continue
        ds = jaxfl.sweep(
            algorithm,
            problem,
            rounds=rounds,
            eps=list(EPS),
            lr=list(setting.steps),
            batch=setting.batch,
            clip=CLIP,
            delta=DELTA,
            seeds=list(SEEDS),
            eval_every=rounds,
            progress=False,
            **k,
        )
        loss = ds["loss"].isel(round=-1).squeeze().transpose("eps", "lr", "seed").values
        loss = np.where(np.isfinite(loss), loss, np.inf)
        best = loss.mean(-1).argmin(-1)
        each = loss[np.arange(len(EPS)), best]
        found[str(epochs)] = {
            "loss": each.mean(-1).round(5).tolist(),
            "error": (each.std(-1, ddof=1) / len(SEEDS) ** 0.5).round(5).tolist(),
            "lr": [setting.steps[i] for i in best],
        }
    return found


def run(words: Sequence[str]) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    problems: dict[str, Any] = {}
    for setting, way, noise in rows():
        name = f"{setting.name}/{way}/{noise.name}"
        if name in record.get("rows", {}) or not all(word in name for word in words):
            continue
        if setting.name not in problems:
            problems[setting.name] = setting.make()
        start = time.perf_counter()
        found = measured(setting, problems[setting.name], way, noise)
        record.setdefault("rows", {})[name] = found
        _write(rows=record["rows"])
        print(f"{time.perf_counter() - start:6.1f} s  {name}", flush=True)
    _write(sums={str(epochs): _sums(epochs) for epochs in SETTINGS[0].epochs})


def _sums(epochs: int) -> dict[str, list[float]]:
    """The variance of noise in the sum of a9a's rounds, by bands, as a multiple of Poisson batches'."""
    m, b, found = 3256, SETTINGS[0].batch, {}
    T = epochs * math.ceil(m / b)
    poisson = Event(Sampling("poisson", m, b), Mean(CLIP), 1.0, T)
    for bands in (1, *SETTINGS[0].bands):
        w = np.cumsum(mechanisms.banded(bands).weights)
        event = Event(
            Sampling("cyclic", m, b), Mean(CLIP), 1.0, T, correlation=(*np.diff(w, prepend=0),)
        )
        kept = np.sum(w[np.minimum(np.arange(T), bands - 1)] ** 2) / T
        found[str(bands)] = [
            round(
                kept
                * (sigma_for(event, eps, DELTA).sigma / sigma_for(poisson, eps, DELTA).sigma) ** 2,
                3,
            )
            for eps in (*EPS, 64.0)
        ]
    return found


# --- speed -----------------------------------------------------------------------------------------

FEW, TIMES, BANDS = 20, 25, 8


def speed() -> None:
    """Rounds per second with 8 bands, drawn anew or stored; alternating with independent noise."""
    problem = jaxfl.Problem(models.mlp(784, 10, hidden=(64,)), data.split(_first(300), CLIENTS))
    d = problem.model.dim
    cases: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "uncompressed, one draw of the mean's noise": ("ldp_sgd", {}, {}),
        "uncompressed, noise of each client": ("ldp_sgd", {"noise": "per_client"}, {}),
        **{
            f"random-k, k = d/{part}": ("cdp_sgd", {}, {"k": d // part}) for part in (100, 20, 5, 2)
        },
    }
    found = {}
    for words, (name, parts, numbers) in cases.items():
        clocks = {
            f"by {clock}" + ", stored" * stored: {"shows": clock == "shows", "stored": stored}
            for clock in ("rounds", "shows")[: 2 if "k" in numbers else 1]
            for stored in (False, True)
        }
        made = {"independent": mechanisms.gaussian()}
        made |= {clock: mechanisms.banded(BANDS, **how) for clock, how in clocks.items()}
        numbers |= {"sigma": 0.01, "clip": CLIP, "lr": 0.1, "batch": 10}
        runs: dict[str, tuple[Any, Any]] = {}
        for clock, mechanism in made.items():
            algorithm = jaxfl.algorithm(name, mechanism=mechanism, sampler="cyclic", **parts)
            f = jaxfl.functions(algorithm, problem, rounds=FEW, **numbers)
            state = f.init(jax.random.key(0))
            go = jax.jit(lambda state, f=f: jax.lax.scan(f.round, state, length=FEW)[0])
            runs[clock] = go.lower(state).compile(), state
        seconds: dict[str, list[float]] = {clock: [] for clock in runs}
        for _ in range(TIMES):
            for clock, (compiled, state) in runs.items():
                start = time.perf_counter()
                jax.block_until_ready(compiled(state))
                seconds[clock].append(time.perf_counter() - start)
        best = {clock: min(all_of) / FEW for clock, all_of in seconds.items()}
        for clock in clocks:
            found[f"{words}, {clock}"] = {
                "ms": round(1e3 * best[clock], 2),
                "independent_ms": round(1e3 * best["independent"], 2),
                "ratio": round(best["independent"] / best[clock], 3),
            }
            print(f"{words}, {clock}: {found[f'{words}, {clock}']}", flush=True)
    _write(speed={"d": d, "clients": CLIENTS, "bands": BANDS, "rows": found})


# --- the page --------------------------------------------------------------------------------------


def page() -> None:
    """docs/correlated.md and its picture."""
    record = json.loads(RECORD.read_text())
    made = [(setting, way) for setting in SETTINGS for way in setting.ways]
    made = [pair for pair in made if _of(record, *pair)]
    lines = [
        HEAD,
        "| setting | noise of | epochs | " + " | ".join(f"eps = {e:g}" for e in EPS) + " |",
    ]
    lines.append("|---|---|---|" + "---|" * len(EPS))
    for setting, way in made:
        for epochs in setting.epochs:
            cells = [_cell(_of(record, setting, way), epochs, i) for i in range(len(EPS))]
            lines.append(f"| {setting.name} | {way} | {epochs} | " + " | ".join(cells) + " |")
    lines += ["", *(f"- `{setting.name}`: {setting.words}." for setting in SETTINGS), "", PICTURE]
    steps = [
        (setting, row["lr"])
        for setting, way in made
        for rows in _of(record, setting, way).values()
        for row in rows.values()
    ]
    low, high = (
        sum(lr == setting.steps[end] for setting, all_of in steps for lr in all_of)
        for end in (0, -1)
    )
    number = sum(len(all_of) for _, all_of in steps)
    lines += [
        "",
        f"Of {number} best step sizes {low} are the smallest of their grid, and {high} the largest.",
    ]
    lines += ["", *_clocks()]
    lines += ["", *_variances(record["sums"])]
    if "speed" in record:
        lines += ["", *_speeds(record["speed"])]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    _draw(record, [pair for pair in made if pair[0].name == SETTINGS[0].name])


def _of(record: Any, setting: Setting, way: str) -> dict[str, Any]:
    """The rows of a setting by the name of their noise."""
    start = f"{setting.name}/{way}/"
    return {k.removeprefix(start): v for k, v in record["rows"].items() if k.startswith(start)}


def _cell(found: dict[str, Any], epochs: int, i: int) -> str:
    """Poisson, cyclic, and the best correlated noise; in bold what is least by two standard errors."""
    here = {name: row[str(epochs)] for name, row in found.items() if str(epochs) in row}
    banded = [name for name in here if "bands" in name]
    best = min(banded, key=lambda name: here[name]["loss"][i])
    names = ["independent, poisson", "independent, cyclic", best]
    least, second = sorted(names, key=lambda name: here[name]["loss"][i])[:2]
    apart = here[second]["loss"][i] - here[least]["loss"][i]
    decided = apart > 2 * math.hypot(here[least]["error"][i], here[second]["error"][i])
    texts = [f"{here[name]['loss'][i]:.4f}" for name in names]
    if decided:
        texts[names.index(least)] = f"**{texts[names.index(least)]}**"
    return " / ".join(texts) + f" ({best.replace(' bands', '')})"


def _draw(record: Any, pairs: Sequence[tuple[Setting, str]]) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    fig, axes = plt.subplots(1, len(pairs), figsize=(3.1 * len(pairs), 3.2), layout="constrained")
    for ax, (setting, way) in zip(axes, pairs, strict=True):
        found = _of(record, setting, way)
        for n, epochs in enumerate(setting.epochs):
            best = [
                min(
                    r[str(epochs)]["loss"][i]
                    for k, r in found.items()
                    if "bands" in k and str(epochs) in r
                )
                for i in range(len(EPS))
            ]
            lines = [
                found[f"independent, {name}"][str(epochs)]["loss"] for name in ("poisson", "cyclic")
            ]
            for values, style in zip((*lines, best), ("--", ":", "-"), strict=True):
                ax.plot(EPS, values, style, color=f"C{n}", marker="o", markersize=3)
        ax.set(
            title=way,
            xlabel="proven eps",
            xscale="log",
            xticks=EPS,
            xticklabels=[f"{e:g}" for e in EPS],
        )
        ax.minorticks_off()
    axes[0].set_ylabel("final training loss")
    names = [f"{epochs} epoch{'s' * (epochs > 1)}" for epochs in pairs[0][0].epochs]
    handles = [Line2D([], [], color=f"C{n}") for n in range(len(names))]
    styles: dict[Any, str] = {
        "--": "independent, Poisson",
        ":": "independent, cyclic",
        "-": "correlated, cyclic",
    }
    handles += [Line2D([], [], color="black", linestyle=style) for style in styles]
    names += styles.values()
    fig.legend(handles, names, loc="outside lower center", ncols=6, frameon=False)
    fig.savefig(PAGE.with_suffix(".png"), dpi=120)


def _clocks() -> Iterator[str]:
    """What both clocks cost and save, by :func:`strategy_norm` and :func:`shown_norm`."""
    apart, q = 51, 0.1
    w = np.array(mechanisms.banded(8).weights)
    total, each = w.sum() ** 2, (w**2).sum()
    yield "## Two clocks\n"
    yield f"With 8 bands, {apart} rounds from one use of a record to the next, and a share of {q:g} of the"
    yield "coordinates sent: the squared sensitivity, as a multiple of that of independent noise with"
    yield "`cyclic` batches, and the variance of the noise in a long sum of what is sent of a coordinate,"
    yield "at one proven eps.\n"
    yield "| uses of a record | sensitivity by rounds | by shows | noise in sums by rounds | by shows |"
    yield "|---|---|---|---|---|"
    for uses in (1, 4, 20):
        norms = [
            norm(tuple(w), uses * apart, apart) ** 2 / uses for norm in (strategy_norm, shown_norm)
        ]
        sums = norms[0] * ((1 - q) * each + q * total), norms[1] * total
        yield f"| {uses} | " + " | ".join(f"{v:.2f}" for v in (*norms, *sums)) + " |"


def _variances(found: dict[str, Any]) -> Iterator[str]:
    yield "## Noise in sums, as it follows from the proofs\n"
    yield "The variance of the noise in the sum of all estimates of `a9a`, as a multiple of that of"
    yield "independent noise with Poisson batches, at one proven eps; with 1 band noise is independent.\n"
    yield "| epochs | bands | " + " | ".join(f"eps = {e:g}" for e in (*EPS, 64)) + " |"
    yield "|---|---|" + "---|" * (len(EPS) + 1)
    for epochs, rows in found.items():
        for bands, values in rows.items():
            yield f"| {epochs} | {bands} | " + " | ".join(f"{v:.2f}" for v in values) + " |"


def _speeds(found: dict[str, Any]) -> Iterator[str]:
    yield "## Speed\n"
    yield f"Rounds of {found['clients']} clients and d = {found['d']:,} coordinates on one core of a"
    yield f"busy machine, with {found['bands']} bands and with independent noise, alternating in a process"
    yield "(`taskset -c 1 python benchmarks/correlated.py speed`, the fastest of 25 calls). Stored noise"
    yield "is much faster where one noise of the mean is drawn, and bound by memory where each client has"
    yield "its own vectors. Under random-k counters are as fast, or faster: a draw takes about 5 ns, and a"
    yield "stored number at a random place as long. By rounds stored noise draws all coordinates.\n"
    yield "| rounds | ms, correlated | ms, independent | rounds per second, as a share |"
    yield "|---|---|---|---|"
    for words, row in found["rows"].items():
        yield f"| {words} | {row['ms']} | {row['independent_ms']} | {row['ratio']:.2f} |"


def _first(records: int) -> Any:
    """The first images of MNIST, so many for each client."""
    rows = data.load("mnist")
    return rows._replace(train=tuple(part[: records * CLIENTS] for part in rows.train))


def _write(**more: Any) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    RECORD.write_text(json.dumps({**record, **more}, indent=1) + "\n", encoding="utf-8")


HEAD = """# Noise that is correlated over rounds

When does [noise that is correlated over rounds](privacy.md#noise-that-is-correlated-over-rounds) pay?

- Without compression, and with the same `cyclic` batches, correlated noise pays wherever noise decides:
  local noise at eps = 1 leaves a9a after 20 epochs at 0.373 in place of 0.417.
- Poisson batches need less noise still, as a record that is drawn by chance is hidden better. By the proofs
  correlated noise leaves less in the sum of all rounds from about eps = 16 on (last table). At eps = 16
  losses of a9a are equal within their errors, and the network is still better with Poisson batches, since
  single steps have more noise. At eps = 1 and 4 Poisson batches win.
- Under random-k correlation by rounds costs more than it saves, since masks tear apart what should cancel.
  By shows it saves where a coordinate is sent often (a9a: 5 to 100 times), never down to what Poisson
  batches reach, and loses where it is sent 1.5 to 6 times (MNIST). Under shifts, which keep the noise of
  earlier messages, neither clock pays.

A cell holds three final training losses: under independent noise with Poisson batches, under
independent noise with `cyclic` batches, and under the best correlated noise with `cyclic` batches,
whose bands stand in parentheses. All have the same proven eps at delta = 1e-5, for one record that
is replaced by another. Losses are means over 5 seeds, each at the best step size of one grid. Bold:
the least, where it is lower than the others by two standard errors of the difference. A trusted
server's noise does not cover compression: compressed rows have local noise, and send a tenth of the
coordinates of a9a and a twentieth of MNIST's network. Not run: 20 epochs of MNIST, other shares of
coordinates, more bands under compression, and batches tuned for each noise. `python
benchmarks/correlated.py run` measures rows that are missing, and `page` writes this page from
`benchmarks/results/correlated.json`.
"""
PICTURE = "![Final losses of a9a at three values of eps](correlated.png)"


def main(argv: Sequence[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("what", choices=("run", "speed", "page"))
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args(argv)
    if asked.what == "run":
        run(asked.words)
    elif asked.what == "speed":
        speed()
    else:
        page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
