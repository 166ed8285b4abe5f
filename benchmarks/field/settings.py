"""Data, model, and grid of each setting; ``miniature`` makes a small one of each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxfl import InputError, Problem, data, models
from jaxfl.data.records import ClientData
from jaxfl.parts import Model

__all__ = ["CLIENTS", "DELTA", "EPS", "SETTINGS", "Setting", "miniature", "named", "posed"]

CLIENTS = 10
EPS = (1.0, 4.0, 16.0)
DELTA = 1e-5  # of every algorithm: an eps at another delta is another statement
TEST, VALIDATION = 0.2, 0.5  # of each client's records; of these
TEXT = "CHANGELOG.md", "docs/privacy.md", "docs/developing.md", "docs/your-data.md", "docs/scale.md"
LETTERS, WINDOW, STRIDE = 96, 20, 5  # printable ASCII; characters read; between two examples


class Setting(NamedTuple):
    """One problem, and the grid that all algorithms are tuned on."""

    name: str
    words: str
    make: Callable[[int | None], ClientData]  # of this many records of each client, or of all
    model: Callable[[bool], Model]  # or its miniature
    rounds: tuple[int, ...]  # an axis: each number calibrates its own noise
    batches: tuple[int, int, int]
    steps: tuple[float, ...]
    record_us: (
        float  # processor time of a record's gradient in microseconds, as measured, to plan with
    )
    local_us: float  # the same in local steps
    program_s: float  # processor time to compile a program, in seconds
    convex: bool = False
    leaders: bool = False  # only the six leaders of MNIST's mlp
    halved: bool = False  # half of the step sizes, at least three, go on to more rounds
    records: int | None = None
    small: bool = False
    every: int = 1  # the first, the seventh and so on of the algorithms, where it is 6

    def budgets(self, d: int) -> dict[float, float]:
        """Bits that all clients send, after the number of rounds without compression that they suffice for.

        Each is four times the one before; d is the number of parameters.
        """
        most = 1.28 * self.rounds[-1]
        times = [float(f"{most / 4**i:.3g}") for i in range(len(self.rounds) + 2, -1, -1)]
        return {each: 32.0 * d * CLIENTS * each for each in times}


def _split(name: str, how: str, records: int | None, **options: Any) -> ClientData:
    rows = data.load(name)
    if records is not None:
        first = CLIENTS * records
        rows = rows._replace(train=tuple(part[:first] for part in rows.train))
    return data.split(rows, CLIENTS, how, test_share=TEST, **options)


def _characters(records: int | None) -> ClientData:
    """Windows of pages of this repository, in ten consecutive parts, and the character after each."""
    root = Path(__file__).resolve().parents[2]
    text = " ".join(" ".join((root / page).read_text("utf-8").split()) for page in TEXT)
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32) - 32
    codes = np.clip(codes, 0, LETTERS - 1)
    starts = np.arange(0, len(codes) - WINDOW - 1, STRIDE)
    x, y = codes[starts[:, None] + np.arange(WINDOW)], codes[starts + WINDOW]
    parts = np.array_split(np.arange(len(starts)), CLIENTS)
    clients, tests = [], []
    for part in parts:
        part = part[:records]
        cut = round(len(part) * (1 - TEST))
        clients.append((x[part[:cut]], y[part[:cut]]))
        tests.append((x[part[cut:]], y[part[cut:]]))
    return data.from_clients(clients, test=tests, classes=LETTERS)


def _lstm(small: bool) -> Model:
    return models.char_lstm(WINDOW, LETTERS, hidden=8 if small else 32)


def _cnn(small: bool) -> Model:
    if small:
        return models.cnn(784, 10, channels=(2, 4), hidden=8)
    return models.cnn(784, 10, channels=(4, 8), hidden=32)


def _logistic(small: bool) -> Model:
    return models.logistic(123)


def _mlp(small: bool) -> Model:
    return models.mlp(784, 10, hidden=16 if small else 64)


MOST = "a9a-label"  # the setting that has most algorithms in miniature
STEPS = 0.1, 0.3, 1.0, 3.0, 10.0, 30.0
ROUNDS, BATCHES = (5, 20, 80, 320), (128, 256, 1024)
FEW, SMALL, TINY = (10, 40, 160), (64, 128, 512), (32, 48, 80)
_mnist = functools.partial(_split, "mnist", "dirichlet", alpha=0.3)
SETTINGS = (
    Setting(
        "a9a-iid",
        "a9a, logistic regression, 10 equal clients",
        functools.partial(_split, "a9a", "iid"),
        _logistic, ROUNDS, BATCHES, STEPS, 0.1, 0.1, 7.0, convex=True,
    ),
    Setting(
        "a9a-label",
        "a9a, logistic regression, 10 clients with records sorted by label",
        functools.partial(_split, "a9a", "by_label"),
        _logistic, ROUNDS, BATCHES, STEPS, 0.1, 0.1, 7.0, convex=True,
    ),
    Setting(
        "mnist-mlp",
        "MNIST, a network of 50,890 parameters, 10 clients, Dirichlet 0.3",
        _mnist, _mlp, FEW, SMALL, STEPS, 3.0, 12.5, 12.0, halved=True,
    ),
    Setting(
        "mnist-cnn",
        "MNIST, a convolutional network, 10 clients, Dirichlet 0.3",
        _mnist, _cnn, FEW, TINY, STEPS, 314.0, 314.0, 45.0, leaders=True, halved=True,
    ),
    Setting(
        "characters",
        "the next character of pages of this repository, an LSTM, 10 clients with a part each",
        _characters, _lstm, FEW, SMALL, STEPS, 40.0, 40.0, 22.0, leaders=True, halved=True,
    ),
)  # fmt: skip


def miniature(setting: Setting) -> Setting:
    """The same in minutes: few records and rounds, two step sizes, one batch, no step sizes to add.

    One setting has half of the algorithms, the slow networks have the first leader, others a sixth.
    """
    return setting._replace(
        rounds=(8,),
        batches=(16, 16, 16),
        steps=(0.3, 3.0),
        program_s=min(setting.program_s, 7.0),
        records=200,
        small=True,
        every=2 if setting.name == MOST else 6,
    )


def named(names: list[str]) -> list[Setting]:
    """The settings with these names, or all."""
    known = {setting.name: setting for setting in SETTINGS}
    for name in names:
        if name not in known and name != "all":
            raise InputError(f"There is no setting {name!r}", f"the names are {', '.join(known)}")
    return [s for s in SETTINGS if s.name in names or "all" in names or not names]


@functools.cache
def posed(setting: Setting, pooled: bool) -> Problem:
    """The problem of the clients, or of one node that holds all of their records."""
    clients = setting.make(setting.records)
    if pooled:
        rows = [np.concatenate([np.asarray(part[i, :m]) for i, m in enumerate(clients.count)])
                for part in clients.train]  # fmt: skip
        clients = data.from_clients([tuple(rows)], test=clients.test, classes=clients.classes)
    return Problem(
        setting.model(setting.small), clients, name=setting.name, validation_share=VALIDATION
    )
