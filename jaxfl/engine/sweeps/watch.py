"""Hand the evaluations of the runs of a sweep to callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxfl.core.types import Info, Key
from jaxfl.engine import results
from jaxfl.engine.callbacks import DONE, LOST, Callbacks, Evaluation, RunInfo, Spent
from jaxfl.engine.log import Entry, Log
from jaxfl.engine.record import Record, settings, totals
from jaxfl.engine.sweeps.gather import finish
from jaxfl.engine.sweeps.grid import Cell, Grid, Study
from jaxfl.engine.sweeps.plan import Chunk, Program
from jaxfl.engine.sweeps.store import Arrays

__all__ = ["Watch"]


class Watch:
    """Follows chunks: :meth:`read` while one is computed here, :meth:`finished` with its arrays.

    A run is followed from its first evaluation to its last, or to the one at which it diverged.
    """

    def __init__(
        self, callbacks: Callbacks, grid: Grid, programs: Sequence[Program], keys: Sequence[Key]
    ) -> None:
        self.callbacks, self.grid, self.programs, self.keys = callbacks, grid, programs, keys
        self.chunk: Chunk | None = None  # in progress
        self.count = 0  # its evaluations that were handed over
        self.runs: dict[tuple[int, int], RunInfo] = {}  # that have not ended, by seed and cell
        self.spent: dict[int, Spent] = {}  # by cell
        self.known: dict[int, dict[str, Any]] = {}  # settings, by problem

    def read(self, chunk: Chunk, planned: Sequence[int], entries: Sequence[Entry]) -> None:
        """Hand over the new evaluations of a chunk in progress, of those ``planned``."""
        if chunk is not self.chunk:
            self._begin(chunk, planned)
        if new := entries[self.count :]:
            rounds, metrics, counts = zip(*new, strict=True)
            self._hand_over(chunk, finish(chunk, rounds, Log(rounds, metrics, counts)), 0)
            self.count = len(entries)

    def finished(self, chunk: Chunk, arrays: Arrays) -> None:
        """Hand over the rest of a chunk, and end its runs."""
        if chunk is not self.chunk:
            self._begin(chunk, arrays["rounds"].tolist())
        self._hand_over(chunk, arrays, self.count)
        for run in self.runs.values():
            self.callbacks.end(run, DONE)
        self.chunk = None

    def _begin(self, chunk: Chunk, planned: Sequence[int]) -> None:
        program = self.programs[chunk.program]
        study = self.grid.studies[program.study]
        self.chunk, self.count, self.runs = chunk, 0, {}
        about = self._settings(study)
        blank: Any = None  # nothing is read of the state
        for c in chunk.cells:
            cell = program.cells[c]
            record = Record(
                program.algorithm,
                study.problem,
                self.keys[chunk.seeds[0]],
                cell.values,
                cell.sources,
                cell.facts,
                blank,
                Log(),
                {"proof": list(study.standing)},
            )
            self.spent[c] = Spent(record, planned)
            for s in chunk.seeds:
                self.runs[s, c] = RunInfo(
                    program.algorithm.name,
                    study.problem.name,
                    self._labels(study, cell),
                    self.grid.seeds[s],
                    planned[-1],
                    cell.values,
                    cell.sources,
                    about,
                )

    def _hand_over(self, chunk: Chunk, arrays: Arrays, first: int) -> None:
        """Call the callbacks with the evaluations from the ``first`` on, run by run."""
        program, skip = self.programs[chunk.program], {"rounds", "diverged_at", *Info._fields}
        rounds = arrays["rounds"].tolist()
        metrics = {name: a.tolist() for name, a in arrays.items() if name not in skip}
        for j, c in enumerate(chunk.cells):
            cell = program.cells[c]
            counts: Any = {name: arrays[name][:, j] for name in Info._fields}
            spent = results.labelled(
                totals(program.algorithm.cost(cell.values, cell.facts), counts)
            )
            for i, s in enumerate(chunk.seeds):
                for k in range(first, len(rounds) if (s, c) in self.runs else 0):
                    run, now = self.runs[s, c], rounds[k]
                    seen = {name: rows[i][j][k] for name, rows in metrics.items()}
                    used = {name: rows[i, k].item() for name, rows in spent.items()}
                    self.callbacks.call(Evaluation(run, now, seen, used, self.spent[c]))
                    if now == arrays["diverged_at"][i, j]:
                        self.callbacks.end(self.runs.pop((s, c)), LOST.format(now))
                        break

    def _labels(self, study: Study, cell: Cell) -> dict[str, Any]:
        """The cell's value on each axis that applies to it."""
        axes = (*self.grid.static, *self.grid.numbers)
        places = zip(axes, (*study.place, *cell.place), strict=True)
        return {axis.name: axis.labels[i] for axis, i in places if i is not None}

    def _settings(self, study: Study) -> dict[str, Any]:
        """The settings that the runs of a study share; those of a problem are computed once."""
        algorithm, problem = study.algorithm, study.problem
        if id(problem) not in self.known:
            self.known[id(problem)] = settings(algorithm, problem, self.keys[0])
            del self.known[id(problem)]["key"]
        own: dict[str, Any] = {"algorithm": algorithm.name, "parts": dict(algorithm.parts)}
        own["proof"] = list(study.standing)
        return {**self.known[id(problem)], **own, "per_record": algorithm.per_record}
