"""The parts of a published figure or table: values that are measured once, then judged and drawn.

Only :attr:`Entry.measure` runs algorithms.  Its result is stored as JSON next to the picture; the verdicts
and the picture are functions of that record alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from jaxfl import audit, sweep
from jaxfl.engine.progress import Progress
from jaxfl.views import words
from jaxfl.views.tables import Estimate

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

__all__ = [
    "ATTACKS",
    "FEW",
    "SEEDS",
    "Entry",
    "Epsilons",
    "Job",
    "Numbers",
    "Row",
    "estimate",
    "in_words",
    "most",
]

T = TypeVar("T")
Numbers: TypeAlias = dict[str, Any]  # as strict JSON holds them
SEEDS, FEW = 5, 3
ATTACKS, FEW_ATTACKS = 1000, 200  # runs of an audit in each of its two worlds
CONFIDENCE = 0.95  # of the bound
ROUNDING = 0.01  # of eps


class Row(NamedTuple):
    """One line of the table: what was published, what came out, and whether the two agree."""

    what: str
    published: str
    ours: Estimate | str
    holds: bool | None  # within the band, or the ordering holds; None: nothing to agree with
    band: str = ""
    verdict: str = ""  # in words, where there are more than yes and no


class Epsilons(NamedTuple):
    """The three eps of one setting; None where there is none."""

    what: str
    claimed: float | None
    proven: float  # infinite: nothing is proven
    audited: float | None
    delta: float
    note: str = ""

    @property
    def flagged(self) -> bool:
        """Whether the claimed eps is below the proven one, by more than rounding."""
        return self.claimed is not None and self.proven > self.claimed * (1 + ROUNDING)


class Job(NamedTuple):
    """The folder and the options of a run of an entry."""

    folder: Path
    fast: bool = False  # fewer seeds, rounds and settings
    data: str | None = None  # folder of the data files; None: JAXFL_DATA, or the user's cache
    say: Callable[[str], None] = lambda line: None
    few: int = FEW  # seeds of the fast variant
    full: int = SEEDS  # seeds of the whole

    @property
    def seeds(self) -> int:
        return self.few if self.fast else self.full

    def some(self, values: Sequence[T]) -> Sequence[T]:
        """All of these values, or every second one in the fast variant."""
        return values[::2] if self.fast else values

    def rounds(self, whole: int) -> int:
        """This many rounds, or half of them in the fast variant."""
        return whole // 2 if self.fast else whole

    @property
    def attacks(self) -> int:
        return FEW_ATTACKS if self.fast else ATTACKS

    def sweep(self, name: str, *args: Any, **options: Any) -> xarray.Dataset:
        """:func:`jaxfl.sweep` into a folder of that name; resume it if it exists."""
        out = self.folder / name
        self.say(f"{out}:")
        resume = (out / "planned.jsonl").exists()
        given: dict[str, Any] = {"seeds": self.seeds, "progress": self._tell, **options}
        return sweep(*args, out=out, resume=resume, **given)

    def _tell(self, now: Progress) -> None:
        if now.doing:
            self.say(now.doing)

    def audit(self, algorithm: Any, **options: Any) -> float:
        """A lower bound on eps, by attack on canaries [:func:`jaxfl.audit`]."""
        import jax

        self.say(f"attacking {getattr(algorithm, 'name', algorithm)}, {self.attacks} runs")
        given: dict[str, Any] = {"runs": self.attacks, "confidence": CONFIDENCE, **options}
        return audit(algorithm, key=jax.random.key(0), **given).lower


class Entry(NamedTuple):
    """One figure or table of a paper."""

    name: str  # as in `python benchmarks/papers.py run NAME`
    paper: str
    what: str
    measure: Callable[[Job], Numbers]
    judge: Callable[[Numbers], Sequence[Row]]
    draw: Callable[[Numbers], Mapping[str, Figure]]  # pictures by the ends of their names
    choices: tuple[str, ...] = ()  # our choices where the paper prints none
    privacy: Callable[[Numbers], Sequence[Epsilons]] = lambda numbers: ()
    notes: tuple[str, ...] = ()  # where ours differs from the published
    why: tuple[str, ...] = ()  # some published values are not met
    few: int = FEW  # seeds of the fast variant
    seeds: int = SEEDS


def most(runs: int, delta: float) -> float:
    """The largest eps that an attack can certify: it is always right, and nothing is known of the noise.

    Half of the runs choose its rule, the others bound eps.
    """
    low = ((1 - CONFIDENCE) / 2) ** (1 / (runs // 2))  # of its success [Clopper and Pearson, 1934]
    return math.log((low - delta) / (1 - low))


def estimate(values: Any) -> Estimate:
    """Mean over seeds with its standard error, of one number per seed.

    The error is NaN for a single seed.  Both are NaN if a seed diverged: the mean of the others would be
    biased.  Equal seeds have the error 0, without rounding.
    """
    each = np.asarray(values, np.float64)
    if len(each) == 1 or (each == each[0]).all():
        return Estimate(float(each[0]), 0.0 if len(each) > 1 else math.nan)
    return Estimate(float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5))


def in_words(value: Estimate, digits: int = 4) -> str:
    """A mean and its standard error, where there is one."""
    return " ± ".join(filter(None, words.estimate(*value, digits=digits)))
