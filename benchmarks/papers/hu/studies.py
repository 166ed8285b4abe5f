"""The three kinds of figures: their measurements, the paper's statements, and their eps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from papers.courses import chain, courses, epsilons, find, name_of, ordered, ordering
from papers.entry import Epsilons, Job, Numbers, Row
from papers.hu import pictures
from papers.hu.setting import COHORT, DELTA, TRAIN, UNIT, adult, algorithm, attacked, best

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Convergence", "Tradeoff"]

PUBLISHED = {"logistic": (1e-5, 1e-4, 5e-4, 1e-3), "network": (1e-4, 1e-3, 5e-3, 1e-2)}  # sigma
LATE = "mean of the last fifth"
NAMES = {
    "private_local_sgd": "private local SGD, secure aggregation",
    "local_dp_sgd": "DP-SGD",
    "secure_sum": "with secure aggregation",
    "plain_sum": "without",
}
TURN = 5  # rounds in which the loss falls, before noise makes it rise


# --- Figures 3 and 4: noise and local steps -------------------------------------------------------


class Convergence(NamedTuple):
    """Loss or gradient norm, and accuracy, of all noises and numbers of local steps."""

    model: str
    metric: str  # whose final level the paper describes
    taus: tuple[int, ...]
    steps: tuple[float, ...]  # the step sizes to choose from
    opening: str  # the metric that compares speeds, over the first ``rounds`` rounds
    rounds: int
    sign: int  # of its change with tau

    @property
    def sigmas(self) -> tuple[float, ...]:
        return tuple(float(f"{UNIT[self.model] * s:g}") for s in PUBLISHED[self.model])

    def measure(self, job: Job) -> Numbers:
        taus, sigmas = self.taus, self.sigmas
        if job.fast:
            taus, sigmas = (taus[0], taus[2]), (sigmas[0], sigmas[-1])
        grid = {"local_steps": list(taus), "sigma": list(sigmas)}

        def runs(name: str, steps: Sequence[float], every: int, seeds: int) -> xarray.Dataset:
            return job.sweep(
                name,
                algorithm(),
                adult(self.model, job.data),
                rounds=100,
                eval_every=every,
                seeds=seeds,
                lr=steps,
                **{**grid, "clip": 1.0, "batch": 61, "cohort": COHORT, "delta": DELTA},
            )

        lr = self.steps[int(best(runs("steps", self.steps, 0, job.few)))]
        ds = runs("sweep", [lr], 1, job.seeds)
        ds["grad_norm"] = ds["grad_norm_sq"] ** 0.5
        windows = {
            "start": lambda rounds: (rounds >= 1) & (rounds <= self.rounds),
            "turn": lambda rounds: (rounds >= 1) & (rounds <= TURN),
            "floor": lambda rounds: rounds >= 0.8 * rounds[-1],
        }
        return {"cells": courses(ds, (self.metric, "test_accuracy"), windows)}

    def judge(self, numbers: Numbers) -> list[Row]:
        cells = numbers["cells"]
        taus, sigmas = (sorted({c[name] for c in cells}) for name in ("local_steps", "sigma"))
        when = "after round 1" if self.rounds == 1 else f"rounds 1 to {self.rounds}"

        def along(
            metric: str, window: str, sign: int, where: str, axis: str, over: dict[float, Any]
        ) -> Row:
            """Compare the cells of ``over``, by their values on one axis."""
            return ordering(
                f"{name_of(metric)}, {where}, for {axis} = {_list([*over])}",
                f"{'rises' if sign > 0 else 'falls'} with {axis}",
                [cell[f"{metric}@{window}"] for cell in over.values()],
                sign,
            )

        def of_tau(metric: str, window: str, sign: int, says: str) -> list[Row]:
            rows = {
                sigma: {tau: find(cells, sigma=sigma, local_steps=tau) for tau in taus}
                for sigma in sigmas
            }
            return [
                along(metric, window, sign, f"{says}, σ = {sigma:g}", "τ", row)
                for sigma, row in rows.items()
            ]

        def of_sigma(metric: str, sign: int) -> list[Row]:
            rows = {
                tau: {sigma: find(cells, sigma=sigma, local_steps=tau) for sigma in sigmas}
                for tau in taus
            }
            return [
                along(metric, "floor", sign, f"{LATE}, τ = {tau:g}", "σ", row)
                for tau, row in rows.items()
            ]

        return [
            *of_tau(self.opening, "start", self.sign, when),
            *of_tau(self.metric, "floor", 1, LATE),
            *of_sigma(self.metric, 1),
            *of_sigma("test_accuracy", -1),
            *([_again(cells, sigmas[-1], taus[-1])] if self.metric == "loss" else []),
        ]

    def draw(self, numbers: Numbers) -> dict[str, Figure]:
        return pictures.convergence(numbers["cells"], self.metric, UNIT[self.model])

    def privacy(self, numbers: Numbers) -> list[Epsilons]:
        cells = numbers["cells"]
        return [
            epsilons(
                find(cells, sigma=sigma, local_steps=tau),
                f"σ = {sigma:g}, τ = {tau:g}, 100 rounds",
                "by Theorem 1, which assumes whole passes; 63 rounds of a device need not make them",
            )
            for sigma in sorted({c["sigma"] for c in cells})[-1:]
            for tau in sorted({c["local_steps"] for c in cells})
        ]


# --- Figures 5 and 6: compared with DP-SGD --------------------------------------------------------


class Comparison(NamedTuple):
    """The same eps for private local SGD and for the paper's DP-SGD."""

    model: str
    metric: str
    rounds: int
    tau: int
    steps: tuple[float, ...]

    @property
    def batch(self) -> int:
        return TRAIN // self.tau

    def measure(self, job: Job) -> Numbers:
        out: Numbers = {"cells": []}
        steps = self.steps[1::2] if job.fast else self.steps
        windows = {
            "early": lambda rounds: (rounds >= 1) & (rounds <= self.rounds // 4),
            "end": lambda rounds: rounds == rounds[-1],
        }
        for noise in ("paper", "calibrated"):
            ds = job.sweep(
                noise,
                [algorithm("private_local_sgd"), algorithm("local_dp_sgd")],
                adult(self.model, job.data),
                rounds=self.rounds,
                eval_every=1,
                noise=noise,
                lr=steps,
                **{"local_steps": [self.tau], "clip": 1.0, "batch": self.batch},
                **{"cohort": COHORT, "eps": 10.0, "delta": DELTA},
            )
            ds["grad_norm"] = ds["grad_norm_sq"] ** 0.5
            ds = ds.isel(lr=best(ds, ["algorithm"]))
            for cell in courses(ds, (self.metric, "test_accuracy"), windows):
                local = cell["algorithm"] == "private_local_sgd"
                tau, hidden = (self.tau, COHORT) if local else (1, 1)
                cell["audited_eps"] = attacked(job, cell, tau, self.batch, self.rounds, hidden)
                out["cells"].append({**cell, "noise": noise})
        return out

    def judge(self, numbers: Numbers) -> list[Row]:
        rows = []
        for noise, says in (("paper", ""), ("calibrated", "; proven ε = 10")):
            ours, base = (
                find(numbers["cells"], noise=noise, algorithm=name)
                for name in ("private_local_sgd", "local_dp_sgd")
            )
            for metric, window, sign in (
                ("test_accuracy", "early", 1),
                ("test_accuracy", "end", 1),
                (self.metric, "end", -1),
            ):
                when = f"rounds 1 to {self.rounds // 4}" if window == "early" else "at the end"
                values = [base[f"{metric}@{window}"], ours[f"{metric}@{window}"]]
                published = (
                    f"{'higher' if sign > 0 else 'lower'} than DP-SGD's" if not says else "–"
                )
                what = f"{name_of(metric)}, {when}{says}, DP-SGD and private local SGD"
                rows.append(ordering(what, published, values, sign))
        return rows

    def draw(self, numbers: Numbers) -> dict[str, Figure]:
        return pictures.comparison(numbers["cells"], self.metric)

    def privacy(self, numbers: Numbers) -> list[Epsilons]:
        return [_of_noise(cell, NAMES[cell["algorithm"]]) for cell in numbers["cells"]]


# --- Figures 7 and 8: secure aggregation ----------------------------------------------------------


class Tradeoff(NamedTuple):
    """Accuracy at the end against eps, with and without secure aggregation."""

    model: str
    rounds: int
    tau: int
    steps: tuple[float, ...]
    eps: tuple[float, ...]

    def measure(self, job: Job) -> Numbers:
        eps = self.eps[1:4:2] if job.fast else self.eps
        batch, total, out = TRAIN // self.tau, job.rounds(self.rounds), []
        for noise in ("paper", "calibrated"):
            ds = job.sweep(
                noise,
                lambda aggregation: algorithm(aggregation=aggregation),
                adult(self.model, job.data),
                rounds=total,
                eval_every=0,
                noise=noise,
                aggregation=["secure_sum", "plain_sum"],
                **{"eps": eps, "lr": job.some(self.steps), "clip": 1.0, "batch": batch},
                **{"cohort": COHORT, "local_steps": self.tau, "delta": DELTA},
            )
            end = {"end": lambda rounds: rounds == rounds[-1]}
            ds = ds.isel(lr=best(ds, ["aggregation", "eps"]))
            for cell in courses(ds, ("loss", "test_accuracy"), end):
                if cell["eps"] == eps[-1]:
                    hidden = COHORT if cell["aggregation"] == "secure_sum" else 1
                    cell["audited_eps"] = attacked(job, cell, self.tau, batch, total, hidden)
                out.append({**cell, "noise": noise})
        return {"cells": out}

    def judge(self, numbers: Numbers) -> list[Row]:
        cells, rows = numbers["cells"], []
        eps = sorted({c["eps"] for c in cells})
        for noise, published in (("paper", "higher with secure aggregation"), ("calibrated", "–")):
            for e in eps:
                plain, secure = (
                    find(cells, noise=noise, eps=e, aggregation=name)["test_accuracy@end"]
                    for name in ("plain_sum", "secure_sum")
                )
                words = "claimed" if noise == "paper" else "proven"
                what = f"test accuracy, {words} ε = {e:g}, without and with secure aggregation"
                row = ordering(what, published, [plain, secure], 1)
                rows.append(row if noise == "paper" else row._replace(holds=None))
        for name, words in (("secure_sum", "with"), ("plain_sum", "without")):
            each = [find(cells, noise="paper", eps=e, aggregation=name) for e in eps]
            what = f"test accuracy {words} secure aggregation, for claimed ε = {_list(eps)}"
            rows.append(ordering(what, "rises with ε", [c["test_accuracy@end"] for c in each], 1))
        return rows

    def draw(self, numbers: Numbers) -> dict[str, Figure]:
        return pictures.tradeoff(numbers["cells"])

    def privacy(self, numbers: Numbers) -> list[Epsilons]:
        return [
            _of_noise(cell, NAMES[cell["aggregation"]])
            for cell in numbers["cells"]
            if "audited_eps" in cell
        ]


# --- words ---------------------------------------------------------------------------------------


def _again(cells: Sequence[Numbers], sigma: float, tau: float) -> Row:
    """Much noise in many steps: the loss falls at first, and noise then makes it rise."""
    cell = find(cells, sigma=sigma, local_steps=tau)
    what = f"training loss, σ = {sigma:g}, τ = {tau:g}, at the start, rounds 1 to {TURN} and last fifth"
    turn, floor = cell["loss@turn"], cell["loss@floor"]
    start = cell["loss"][:1] * len(turn)  # of all seeds
    holds = ordered([start, turn], -1) and ordered([turn, floor], 1)
    return Row(what, "falls first, then rises", chain([start, turn, floor]), holds)


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _of_noise(cell: Numbers, name: str) -> Epsilons:
    noise = "by the paper's formula" if cell["noise"] == "paper" else "calibrated"
    note = "a sum is attacked where losses are linear" if "secure" in name else ""
    return epsilons(cell, f"{name}, ε = {cell['used_eps']:g}, noise {noise}", note)
