"""The record of a run: state, history, privacy, and the settings that reproduce it."""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfl.algorithms.numbers import usual_delta
from jaxfl.algorithms.resolution import rests_on_smoothness
from jaxfl.core import display
from jaxfl.core.errors import DivergedWarning, JaxflWarning
from jaxfl.core.hosts import on_host
from jaxfl.core.params import whole
from jaxfl.core.schedules import Pieces
from jaxfl.core.secret import salted
from jaxfl.core.types import (
    Algorithm,
    Cost,
    Key,
    Origin,
    Problem,
    ProblemFacts,
    Source,
    State,
)
from jaxfl.core.version import __version__
from jaxfl.engine import stopping
from jaxfl.engine.log import Log
from jaxfl.parts.aggregations import COLLUDING
from jaxfl.privacy import reports
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.claims import above, understates
from jaxfl.privacy.events import AnyEvent, Kind, NoClaim, Standing, plain_events, released, until
from jaxfl.privacy.losses import SHARE, cheap, checked
from jaxfl.privacy.releases import counted
from jaxfl.privacy.reports import Report
from jaxfl.problems.identity import dtype, fingerprint, largest_gradient, objective
from jaxfl.problems.problem import SCALING, unscaled
from jaxfl.rounds.transcript import others

__all__ = [
    "DONE",
    "LOST",
    "ROUNDING",
    "Reached",
    "Record",
    "device_name",
    "honest",
    "noisy",
    "of_delta",
    "published",
    "settings",
    "totals",
]

ROUNDING = 1e-5  # of a norm in float32
BOUNDS = ("update_clip", "quantile")  # of models' changes: noise follows from these, not from lr
# how runs end
DONE = "finished"
LOST = "diverged: the loss is not finite from round {} on"
SMOOTHNESS = "; that the smoothness L, which is computed from the data, is public"
WEIGHTS = "; that the weights of the clients are public"
SEEDED = "; here the noise follows from seed {} alone: who guesses it can subtract the noise"
UNCOVERED = "; that nothing of the {} records, whose loss may end the run, is protected"
# what a limit of a stopping rule reads
EXACT = {"loss": "exact loss", "gradients": "number of gradients", "bits": "number of bits"}
NOISY = (
    "give it noise (bound and sigma of stop, or --loss-bound and --loss-sigma), or read the loss of data "
    "that are not protected (metrics_on, or --metrics-on)"
)
CALMER = (
    "check less often (eval_every, or --eval-every), lower sigma or bound, or read the loss of data "
    "that are not protected (metrics_on, or --metrics-on)"
)


class _Same:
    """An object that equals itself alone; what is cached for it does not keep it."""

    def __init__(self, value: Any) -> None:
        self.found, self.hash = weakref.ref(value), id(value)

    @property
    def value(self) -> Any:
        return self.found()

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is not None and self.value is other.value


class Reached(NamedTuple):
    """The state of a run of which only the number of its rounds is known."""

    t: Any


@dataclasses.dataclass
class Record:
    """The record of one run: values, history, privacy."""

    algorithm: Algorithm
    problem: Problem
    key: Key
    values: dict[str, Any]  # all hyper-parameters
    sources: dict[str, Source]  # of each value
    facts: ProblemFacts
    state: State
    log: Log
    settings: dict[str, Any]
    seconds: float = 0.0
    compile_seconds: float = 0.0  # until the first round: resolution and compilation
    ended: str = "finished"  # or why it ended early
    points: tuple[tuple[int, Any], ...] = ()  # models at which gradients are measured, by round
    seed: int | None = None  # from which the key follows, where nothing about it is secret

    def __repr__(self) -> str:
        return f"Run({', '.join(self._said().values())})"

    def _said(self) -> dict[str, str]:
        """No accountant runs: eps is what sigma was calibrated for, or what a formula claims."""
        f, v, m = self.facts, self.values, display.between(self.facts.m, self.facts.m_max)
        said = {"run": f"{self.algorithm.name!r} on {self.problem.name!r}, n={f.n}, m={m}, d={f.d}"}
        t, planned = self.log.rounds[-1] if self.log.rounds else 0, int(v["rounds"])
        priced = stopping.checks(self.settings, planned)  # what a rule may read costs more than eps
        said["round"] = f"round {t} of {max(t, planned)}"
        if self.log.rounds:
            said["loss"] = f"loss {float(self.log.metrics[-1]['loss']):.5g}"
        if not self.standing.claims and "sigma" in v:
            said["privacy"] = "no eps proven"
        elif {"eps", "delta"} <= v.keys() and t <= planned and not self._exposed() and not priced:
            kind = "calibrated" if self.sources["sigma"].origin is Origin.CALIBRATED else "claimed"
            parts = "user's parts, " * (self.standing.kind == Kind.PROBED)
            kind = ("user's event, " if self.standing.stated else parts) + kind
            said["privacy"] = f"{kind} eps={v['eps']:.4g} at delta={v['delta']:.3g}"
        return said | {"end": self.ended.split(":")[0]}

    def _repr_html_(self) -> str:
        """The words of the text, the curve of the loss, and the equation."""
        rows = [(k, display.greek(w.removeprefix(f"{k} "))) for k, w in self._said().items()]
        if self.log.rounds:
            curve = display.sparkline(self.metrics["loss"], "loss against rounds")
            sure = self.settings.get("parts", {}).get("bits", "")
            rows[3:3] = ("", curve), ("uplink", f"{self.totals['uplink_bits']:,.0f} bits {sure}")
        return display.table("Run", rows, above=display.equation(self.algorithm.name))

    @property
    def warnings(self) -> list[str]:
        """Sentences about a run that diverged, or did not learn, and about a delta that is too large."""
        return [str(one) for one in self.advice()]

    def advice(self) -> list[JaxflWarning]:
        """The warnings that a run issues at its end."""
        delta = of_delta(self.algorithm, self.values, self.facts, self.standing)
        return [*delta, *self._of_loss()]

    def _of_loss(self) -> list[JaxflWarning]:
        who = f"{self.algorithm.name} on {self.problem.name}"
        names = dict.fromkeys(("lr", "batch", "sigma", "eps", "server_lr", *BOUNDS))
        if self.ended.startswith("diverged"):
            way = f"{self._scaling()}take a smaller {{lr}}"
            return [DivergedWarning(f"{who} {self.ended}", way, suggested=names)]
        loss = self.metrics["loss"] if len(self.log.rounds) > 1 else np.zeros(1)
        if loss[-1] <= loss[0]:
            return []
        step, batch = self.values.get("lr"), self.values.get("batch", self.facts.m)
        ways = ["a smaller {lr}" + (f" than {step:.3g}" if isinstance(step, int | float) else "")]
        ways += ["a larger {batch}"] if batch < self.facts.m else []
        if bounds := self.values.keys() & {*BOUNDS}:
            ways = [f"a smaller {{{name}}}" for name in ("server_lr", *bounds)]
        if noise := self.sources.get("sigma"):
            ways += ["a smaller {sigma}" if noise.origin is Origin.GIVEN else "a larger {eps}"]
        both = f"The last loss of {who}, {loss[-1]:.4g}, is above that of round 0, {loss[0]:.4g}"
        way = f"{self._scaling()}take {' or '.join(ways)}"
        return [JaxflWarning(both, way, suggested=names)]

    def _scaling(self) -> str:
        """The first way out where features are unscaled."""
        raw = unscaled(self.problem.train, on_host(self.problem.count), self.problem.name)
        return f"standardise the features with {SCALING}; or " * bool(raw)

    @property
    def rounds(self) -> np.ndarray:
        """The rounds at which metrics were computed."""
        return np.asarray(self.log.rounds)

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Each metric against :attr:`rounds`."""
        return self.log.series()

    @property
    def standing(self) -> Standing:
        """The standing of the privacy of all rounds, whatever code ran them."""
        return Standing(*self.settings["proof"])

    @property
    def cost(self) -> Cost:
        return self.algorithm.cost(self.values, self.facts)

    @property
    def totals(self) -> dict[str, float]:
        """Messages, gradients, uplink and downlink bits of the whole run."""
        return totals(self.cost, self.log.last.counts)

    @property
    def clamped(self) -> int:
        """Coordinates that a secure sum has clamped."""
        entries = self.log.entries
        return entries[-1].counts["clamped"] if entries else 0

    @property
    def counted(self) -> int:
        """The rounds that :meth:`privacy` accounts for: those that ran, or all that were planned.

        All count where what a run releases may end it [:mod:`jaxfl.engine.stopping`].
        """
        return stopping.planned(self.settings, max(1, int(self.state.t)))

    def privacy(
        self, delta: float | None = None, method: str | None = None, *, rounds: int | None = None
    ) -> Report:
        """``claimed | proven | delta at the claimed eps`` for the rounds that ran, or for ``rounds``.

        A :class:`~jaxfl.privacy.reports.Report`.  eps is infinite for an algorithm without an event, and
        for a run that an exact value of its training data may have stopped, whose note says so.
        """
        rounds = whole("rounds", self.counted if rounds is None else rounds, 1)
        notes, facts = [], self.facts
        delta = self.delta if delta is None else delta
        at = {"delta": delta} if "delta" in self.values else {}
        claim = self.algorithm.claim({**self.values, "rounds": rounds, **at}, facts)
        report = _report(self.event(rounds), claim, delta, method)

        def release(more: Mapping[str, Any], rounds: int = rounds) -> AnyEvent:
            return self._released(rounds, more, facts)

        trusted = honest(self.algorithm, self.values, facts, release)
        words = report.method + f", if {trusted}" * bool(trusted and math.isfinite(report.proven))
        words += f", with {self.standing.why}" * (self.standing.kind == Kind.PROBED)
        times = sum(stopping.checks(self.settings, rounds).values())
        words += f", with {times} noisy losses that the stopping rule may read" * bool(times)
        if why := self._exposed():
            alone = epsilon(release({}), delta, method).eps
            proves = f"; {rounds} rounds without that rule would prove eps = {alone:.4g}"
            notes.append(why + proves * math.isfinite(alone))
        for t, norm in self.broken()[:1]:
            notes.append(
                f"gradient_bound = {float(self.values['gradient_bound']):.4g} does not hold on these "
                f"data: an example's gradient has norm {norm:.4g} at round {t}, and eps holds because "
                "such are clipped to it"
            )
        if (asked := self._asked(delta)) < report.proven < math.inf:
            least = epsilon(release({}, int(self.values["rounds"])), delta, method).eps
            if not math.isinf(least) and understates(asked, least):
                notes += [f"eps = {asked:.4g} was asked for, and this noise proves {least:.4g}"]
            alone = epsilon(release({}), delta, method).eps if times else math.inf
            if understates(alone, report.proven):
                costly = report.proven > (1 + SHARE) * alone
                way = costly and cheap(release({}), times, facts, delta)
                notes.append(
                    f"eps = {asked:.4g} was asked for, which is that of rounds without checks: the "
                    f"{rounds} rounds have {alone:.4g}, and {above(report.proven):.4g} with the {times} "
                    "noisy losses of the stopping rule; evaluate less often, or give the rule more "
                    f"noise ({way or 'a larger sigma'})"
                )
        assumed = f"; that {trusted}" * bool(trusted) + self._assumed()
        report = report._replace(method=words, assumes=report.assumes + assumed)
        return report._replace(flag=True, note="; ".join(notes)) if notes else report

    def spent(self, rounds: np.typing.ArrayLike, delta: float | None = None) -> np.ndarray:
        """Proven eps after each of these numbers of rounds; at the last one that of :meth:`privacy`."""
        delta = self.delta if delta is None else delta
        # Each has its own event: rounds are not releases where clients take turns.
        return np.array([epsilon(self.event(int(t)), delta).eps for t in np.ravel(rounds)])

    @property
    def delta(self) -> float:
        """That of the run's noise, or else min(0.001, 0.1/m): of m records, or of n clients."""
        clients = any(each.unit == "client" for each in plain_events(self.event_of(1)))
        usual = usual_delta(self.facts.n if clients else self.facts.m_max)
        return float(self.values.get("delta", usual))

    def event_of(self, rounds: int, facts: ProblemFacts | None = None, **values: Any) -> AnyEvent:
        """The event of this number of rounds, with the losses that stopping rules read.

        ``facts`` and ``values`` replace those of the run.
        """
        facts = self.facts if facts is None else facts
        if not rounds:
            return until(self.event_of(1, facts, **values), 0)
        if why := self._exposed():
            return NoClaim(why)
        event = self._released(rounds, values, facts)
        if values.get("turns") == 0 and not any(e.unit == "client" for e in plain_events(event)):
            event = until(event, 0)
        return checked(event, stopping.checks(self.settings, rounds), facts)

    def _exposed(self) -> str:
        """Why the number of rounds reveals data without noise; "" where it does not."""
        event = self._released(1, {}, self.facts)
        if isinstance(event, NoClaim):
            return ""
        if self.ended.startswith("diverged"):
            return "the run is not finite, and a gradient that is not a number passes clipping"
        limit = stopping.exposed(self.settings, self.algorithm, event)
        way = f": {NOISY}" * (limit == "loss")
        return (
            limit and f"the {EXACT[limit]} of protected data may end the run, and has no noise{way}"
        )

    def _assumed(self) -> str:
        """What the statement takes for granted because of values, of the stopping rule and of the seed."""
        resolved = self.algorithm, self.values, self.sources, self.facts
        other, computed = stopping.uncovered(self.settings), rests_on_smoothness(*resolved)
        out = SMOOTHNESS * computed + WEIGHTS * bool(self.facts.groups)
        seeded = "" if self.seed is None else SEEDED.format(self.seed)
        return out + UNCOVERED.format(other) * bool(other) + seeded

    def event(self, rounds: int | None = None) -> AnyEvent:
        """The event of the first rounds, by default of all that ran; after the last phase nothing follows.

        If what a run releases may end it, all that ran are all that were planned.
        """
        if rounds is None or rounds >= int(self.state.t):
            rounds = max(rounds or 0, self.counted)
        rule = getattr(self.values.get("level_t"), "rule", None)
        rounds = min(rounds, sum(rule.lengths)) if isinstance(rule, Pieces) else rounds
        return self.event_of(rounds)

    def _released(self, rounds: int, values: Mapping[str, Any], facts: ProblemFacts) -> AnyEvent:
        # The facts of the plan determine the slots of a batch.
        values = {**self.values, "rounds": int(rounds), "clamped": self.clamped, **values}
        return released(self.algorithm, values, facts, self.standing)

    def _asked(self, delta: float) -> float:
        """The eps that was asked for at this delta, or infinity."""
        source = self.sources.get("eps")
        asked = source is not None and source.origin in (Origin.GIVEN, Origin.DEFAULT)
        here = asked and delta == self.values.get("delta")
        return self.values.get("eps", math.inf) if here else math.inf

    def broken(self) -> list[tuple[int, float]]:
        """Rounds and norms of examples' gradients that violate a stated ``gradient_bound``."""
        if "gradient_bound" not in self.values:
            return []
        most = float(self.values["gradient_bound"]) * (1 + ROUNDING)
        norms = [(t, _largest(_Same(self.problem), _Same(x))) for t, x in self.points]
        return [(t, norm) for t, norm in norms if not norm <= most]


_report = functools.lru_cache(maxsize=4096)(reports.report)  # runs differ in the step size alone


@functools.lru_cache(maxsize=256)
def _largest(problem: _Same, x: _Same) -> float:
    return float(largest_gradient(problem.value, x.value))


def honest(
    algorithm: Algorithm,
    values: Mapping[str, Any],
    facts: ProblemFacts,
    release: Callable[[Mapping[str, Any]], AnyEvent],
) -> str:
    """What a proof assumes of the clients whose noise in a sum it counts; "" where it counts none.

    ``release`` returns the event in which these values replace those of the algorithm.
    """
    if COLLUDING not in algorithm.params or algorithm.body is None:
        return ""
    most, do = others(algorithm.body, values, facts)
    proofs = [
        [counted(event) for event in plain_events(release(more))]
        for more in ({}, {"colluding": most})
    ]
    if proofs[0] == proofs[1]:
        return ""
    colluding = int(values.get("colluding", 0))
    return f"at most {colluding} of the {most + 1} clients {do}"


def totals(cost: Cost, counts: Mapping[str, int]) -> dict[str, float]:
    """Counts, and the bits that they amount to, as Python integers, which do not overflow."""
    up = cost.per_message * counts["clients"] + cost.per_coordinate * counts["coordinates"]
    sent = counts["coordinates"] + cost.coordinates * counts["clients"]
    down = cost.downlink * counts["clients"]
    return {**counts, "coordinates": sent, "uplink_bits": up, "downlink_bits": down}


def of_delta(
    algorithm: Algorithm, values: Mapping[str, Any], facts: ProblemFacts, standing: Standing
) -> list[JaxflWarning]:
    """One for a delta at which a mechanism may publish a record, or a client, drawn at random."""
    one = {**values, "rounds": 1, "clamped": 0}
    first = next(plain_events(released(algorithm, one, facts, standing)), None)
    delta = values.get("delta")
    if first is None or delta is None or not noisy(algorithm, values):
        return []
    clients = first.unit == "client"
    size, of = (facts.n, "n") if clients else (facts.m_max, "m")
    if delta < 1 / size:
        return []
    what = "clients" if clients else "records of the largest client"
    release = f"which allows the release of one of the {size} {what}, drawn at random"
    words = f"is at least 1/{of} = {1 / size:.4g}, {release}"
    way = "take a {delta} well below it"
    return [JaxflWarning(words, way, suggested={"delta": None}, delta=delta)]


def noisy(algorithm: Algorithm, values: Mapping[str, Any]) -> bool:
    """Whether runs with these values add noise."""
    body = algorithm.body
    return (body is None or body.mechanism.std is not None) and values.get("sigma") != 0


def settings(algorithm: Algorithm, problem: Problem, proof: Standing) -> dict[str, Any]:
    """The settings that identify the runs of an algorithm on a problem, and their environment."""
    return {
        "algorithm": algorithm.name,
        "parts": dict(algorithm.parts),
        "per_record": algorithm.per_record,
        **_of_problem(_Same(problem)),
        "proof": list(proof),
        "versions": {"jaxfl": __version__, "jax": jax.__version__, "numpy": np.__version__},
    }


def published(about: Mapping[str, Any], key: Key) -> dict[str, Any]:
    """Settings as results hold them, with digests of the data and of the run's key that reveal nothing.

    Labels follow from a key, from a checksum without salt, and from the loss of a record.
    """
    terms = about.get("objective", "").split()[1:]
    hidden = {"data": about.get("data"), "key": jax.random.key_data(key).tolist()}
    return {
        **about,
        "objective": " ".join(["-", *terms]),
        **{name: salted(str(value)) for name, value in hidden.items()},
    }


@functools.lru_cache(maxsize=64)
def _of_problem(same: _Same) -> dict[str, Any]:
    """The settings of a problem, whose data are read once."""
    problem: Problem = same.value
    (device, *_) = sorted(problem.count.devices(), key=lambda d: d.id)
    return {
        "problem": problem.name,
        "partition": problem.clients.partition,
        "model": problem.model.name,
        "objective": objective(problem),
        "data": fingerprint(problem),
        "eval_records": str(problem.evaluated or "all"),
        "weights": "equal" if problem.weights is None else "given",
        "dtype": str(dtype(problem)),
        "device": device_name(device),
    }


def device_name(device: jax.Device) -> str:
    """The kind of a device: "CPU", or as in "NVIDIA H200 (GPU)"."""
    platform, kind = device.platform.upper(), device.device_kind
    return platform if kind.upper() == platform else f"{kind} ({platform})"
