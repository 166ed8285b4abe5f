"""Lower bounds on eps by attack, for any algorithm.

:func:`audit` runs an algorithm many times in two worlds that differ in one record, and guesses the
world from the trajectories [Jagielski, Ullman, Oprea, 2020; Nasr et al., 2021 and 2023].
:func:`jaxfl.audits.checks.sensitivity` looks at single rounds with the noise off;
:func:`jaxfl.audits.checks.one_run_audit` needs a single run.

The attack reads only the trajectory of an algorithm.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from jaxfl.algorithms.probes.canary import observed
from jaxfl.algorithms.registry import one_algorithm
from jaxfl.audits.canary import EventLike, Setup, dense, prepare, takes, unseen
from jaxfl.audits.ranges import checked
from jaxfl.core.errors import require
from jaxfl.core.params import only, whole
from jaxfl.core.progress import watching
from jaxfl.core.types import Algorithm, Array, Hyper, Key, Problem
from jaxfl.privacy.accountants import Guarantee, epsilon
from jaxfl.privacy.decisions import certify, family, reached
from jaxfl.privacy.events import AnyEvent, LocalSteps, Mean, Stated, Status, Unproven, plain_events
from jaxfl.privacy.gaussian import check_delta

__all__ = ["AuditResult", "audit"]

Report: TypeAlias = Callable[[tuple[int, int]], None]  # of rounds: those done, and all
Floats: TypeAlias = npt.NDArray[np.float64]
STATISTICS = ("sum", "likelihood ratio", "extremes", "spread", "contrast", "innovations", "learned")
NAMES = {"PROOF": "proven eps", "GIVEN EVENT": "eps of the given event", "CLAIM": "claimed eps"}
EXCEEDS = "does not exceed", "exceeds"
FITTED = 4096  # the most runs that fit statistics
NUMBERS_AT_ONCE = 1 << 17  # drawn records that are held together, over all runs of a chunk


class AuditResult(NamedTuple):
    """Lower bounds on eps at ``delta``, and the proven and claimed eps.

    ``proven`` is what the accountant answers; of an event that was passed to :func:`audit`, ``status`` is
    "U", since nobody checked that event.

    ``plain`` assumes nothing; ``curve`` uses the trade-off curve of the event (None without one), and
    bounds eps if only the amount of noise may be wrong; otherwise it tests the event.  ``needed`` is the
    one that was larger on the runs that choose the test; each holds with the stated confidence by itself.
    ``lower`` is ``needed`` where the event is proven, and ``plain`` where it is stated or described: its
    curve then may not be that of what runs.  Where an event is described and nothing is proven,
    ``described`` is the eps that it would prove.
    """

    algorithm: str
    lower: float
    proven: float  # infinite: no privacy claim can be proven
    claimed: float | None  # by the paper's formula, or by the caller; None: by neither
    delta: float
    plain: float
    curve: float | None
    needed: float  # the eps with which such an event would allow what the attack reached
    confidence: float
    runs: int  # in each of the two worlds
    rounds: int
    statistic: str  # which the bound uses, chosen on half of the runs
    method: str  # of the proof
    status: str
    seconds: float
    described: float | None = None  # of an event on which no proof rests
    unseen: tuple[str, ...] = ()  # what the attack does not look at, where nothing is proven
    power: Mapping[float, float] = {}  # true positive rates, at least, by the false positive rate

    @property
    def refutes_proof(self) -> bool:
        """Whether the attack succeeds more often than the proof allows: something is wrong."""
        return self.needed > self.proven

    @property
    def refutes_claim(self) -> bool:
        """Whether the attack succeeds more often than the claim allows."""
        return self.claimed is not None and self.lower > self.claimed

    @property
    def refutes_described(self) -> bool:
        """Whether the attack succeeds more often than the described event allows."""
        return self.described is not None and self.needed > self.described

    @property
    def verdict(self) -> str:
        """What the attack refutes, in words: which bound exceeds which eps."""
        if self.described is None:
            return self._compared()
        better = f" ({self.needed:.4g} if only the amount of noise differs)"
        return (
            f"{'' if self.refutes_described else 'not '}refuted: at {100 * self.confidence:g} % "
            f"confidence the true eps is at least {self.plain:.4g}{better * (self.needed > self.plain)}, "
            f"and the event that this algorithm describes has eps {self.described:.4g}"
        )

    def _compared(self) -> str:
        """The lower bounds, each beside the eps that it would refute."""
        proof = "GIVEN EVENT" if self.status == Status.STATED else "PROOF"
        pairs = {proof: (self.needed, self.proven), "CLAIM": (self.lower, self.claimed)}
        sides = [(what, *pair) for what, pair in pairs.items() if pair[1] not in (None, math.inf)]
        wrong = [what for what, bound, eps in sides if eps is not None and bound > eps]
        said = (
            f"{bound:.4g} {EXCEEDS[what in wrong]} the {NAMES[what]} {eps:.4g}"
            for what, bound, eps in sorted(sides, key=lambda side: side[0] not in wrong)
        )
        head = f"REFUTES THE {' AND THE '.join(wrong)}" if wrong else "refutes nothing"
        words = f"the lower bound {', and '.join(said)}" if sides else "no eps is proven or claimed"
        return f"{head}: {words}"

    def __str__(self) -> str:
        runs = f"2 x {self.runs} runs of {self.rounds} rounds in {self.seconds:.1f} s"
        unseen = f". It did not look at {'; '.join(self.unseen)}" if self.unseen else ""
        proven = f"{self.proven:.4g}" if math.isfinite(self.proven) else f"none ({self.method})"
        claim = "" if self.claimed is None else f", claimed {self.claimed:.4g}"
        how = "by the given event" if self.status == Status.STATED else "proven"
        given_noise = ", if only the amount of noise differs" * (self.lower > self.plain)
        sure = f" ({100 * self.confidence:g} % confidence{given_noise})"
        bound, said = f"eps >= {self.lower:.4g}", f"; it {self._compared()}"
        if self.described is not None:
            bound, sure, said = self.verdict, "", said * self.refutes_claim
        return (
            f"{self.algorithm}: {bound} at delta = {self.delta:g}{sure}, {how} {proven}{claim}; "
            f"{runs}{said}{unseen}"
        )

    def __repr__(self) -> str:
        return str(self)


def audit(
    algorithm: Algorithm | str,
    *,
    rounds: int,
    key: Key | None = None,
    m: int = 1000,
    runs: int = 10_000,
    delta: float | None = None,
    event: EventLike | None = None,
    claimed: float | None = None,
    confidence: float = 0.95,
    dim: int = 1,
    turning: bool | int = False,
    clients: int = 1,
    canary: float = 1e6,
    chunk: int | None = None,
    noise: str = "calibrated",
    progress: bool | Report | None = None,
    **numbers: Any,
) -> AuditResult:
    """Attack ``runs`` runs in each of two worlds: one record is +C e_1 in the first, -C e_1 in the second.

    It is the first of the m records of the first of ``clients`` clients, and ``C = canary * clip``; the
    model has ``dim`` coordinates.  If draws have a
    fixed size, the other records of that client are -C e_1: a round shows whether it drew the
    canary.  All other records are zero.  With an event for adjacency by addition or removal the record is
    zero in the second world; where a client is protected, all of its records are canaries.
    ``turning`` makes their sign depend on x (see :mod:`jaxfl.algorithms.probes.canary`).  ``numbers`` are
    the algorithm's hyper-parameters.  A quarter of the runs fits statistics (see
    :class:`Reader`), a quarter chooses a statistic and a threshold, and half bound how often that test
    succeeds, at the ``confidence``.  ``key`` is that of all draws, key(0) by default; an audit keeps
    nothing secret.  ``chunk`` runs are computed at once.  ``progress`` is that of
    :func:`jaxfl.simulate`; a function is called with the rounds of all runs, those done and all.

    ``event`` describes the mechanism (or is a function of resolved values and facts); the default is
    the algorithm's own, if it has one.  ``claimed`` defaults to what its paper's formula
    says; ``noise="paper"`` takes the noise from there.  The worlds share their draws: each world's
    bound holds by itself, and so do both.  Messages that are not finite, or never differ, test nothing:
    they raise an :class:`~jaxfl.core.errors.InputError`.

    >>> found = audit("ldp_gd", rounds=5, m=4, runs=1000, eps=4.0, delta=1e-3)
    >>> 2 < found.lower <= found.proven, round(found.proven, 3), found.refutes_proof
    (True, 4.0, False)
    """
    began, runs = time.perf_counter(), whole("runs", runs, 20)
    asked = {"confidence": confidence, "canary": canary, "chunk": chunk, "claimed": claimed}
    chunk = checked({**asked, "delta": delta}).get("chunk")
    algorithm = one_algorithm(algorithm, numbers)
    require(
        takes(algorithm, "sigma") or event is not None or not _silent(algorithm),
        lambda: f"{algorithm.name} adds no noise, and no eps holds for it",
        "audit a private algorithm",
    )
    only(numbers, algorithm.names, algorithm.name, audit)
    if delta is not None and takes(algorithm, "delta"):
        numbers["delta"] = delta
    setup = prepare(algorithm, m, dim, rounds, turning, event, numbers, noise, clients)
    delta = check_delta(setup.values.get("delta", 1e-3) if delta is None else delta)

    rounds, key = int(rounds), jax.random.key(0) if key is None else key
    words = f"attack on {algorithm.name}"
    with watching(progress, lambda bar, now: bar.update(*now, words)) as report:
        P, Q = _attack(setup, rounds, runs, key, canary, chunk, turning, report)
    begin, half = min(FITTED, runs // 4), runs // 2
    chosen, bounding = (P[begin:half], Q[begin:half]), (P[half:], Q[half:])
    bound = certify(chosen, bounding, family(setup.event), delta, confidence)

    proof, described = _accounted(setup, delta, given=event is not None)
    sure = described is None and proof.status != Status.STATED
    if claimed is None and (claim := setup.algorithm.claim(setup.values, setup.facts)) is not None:
        claimed = float(claim.eps)
    return AuditResult(
        algorithm=algorithm.name,
        lower=bound.lower if sure else bound.plain,
        proven=proof.eps,
        claimed=claimed,
        delta=delta,
        plain=bound.plain,
        curve=bound.curve,
        needed=bound.lower,
        confidence=confidence,
        runs=runs,
        rounds=rounds,
        statistic=STATISTICS[bound.rule.statistic],
        method=proof.method,
        status=proof.status,
        seconds=time.perf_counter() - began,
        described=described,
        unseen=(*(() if setup.proven else unseen(setup, turning)), *dense(setup)),
        power=reached(chosen, bounding, confidence),
    )


def _silent(algorithm: Algorithm) -> bool:
    """Whether no part adds noise, as far as parts are known."""
    body = algorithm.body
    return body is not None and body.mechanism.std is None and body.local is None


def _accounted(setup: Setup, delta: float, given: bool) -> tuple[Guarantee, float | None]:
    """The proven guarantee, or that of a given event; and the eps of an event on which no proof rests."""
    if setup.released is None or setup.event is None:
        return Guarantee(math.inf, delta, "the algorithm has no event", Status.NONE), None
    proof = epsilon(setup.released, delta)
    if isinstance(setup.released, Unproven | Stated):
        said = "stated by the user: " if isinstance(setup.released, Stated) else ""
        method = said + proof.method
        none = proof._replace(eps=math.inf, method=method, status=Status.NONE)
        return none, epsilon(setup.event, delta).eps
    return (proof._replace(status=Status.STATED) if given and proof.status else proof), None


def _attack(
    setup: Setup,
    rounds: int,
    runs: int,
    key: Key,
    canary: float,
    chunk: int | None,
    turning: bool | int,
    report: Report | None,
) -> tuple[Floats, Floats]:
    """The statistics of all runs in both worlds, (runs, statistics) each."""
    problem, sight = setup.problem, _sight(setup.event)
    worlds, turns = _worlds(setup, canary, sight.background)
    if chunk is None:
        width = max(setup.hp.caps.get("batch", problem.m_max), problem.model.dim, rounds)
        chunk = max(1, min(runs, 4096, NUMBERS_AT_ONCE // (width * problem.n)))
    fitted, reader = min(FITTED, runs // 4), None
    waiting: list[tuple[Array, Array]] = []
    read: list[Floats] = []
    name, ends = setup.algorithm.name, []
    for first in range(0, runs, chunk):
        # the last piece is as long as the others: one program serves all
        args = (key, first, worlds, turns, problem, setup.hp, setup.unit)
        how = setup.algorithm, rounds, setup.sign, chunk, setup.listens
        waiting.append(_seen(*how, *args))
        if first + chunk < fitted:
            continue
        last = first + chunk >= runs
        if reader is None:
            v, s = (np.concatenate(part, axis=1) for part in zip(*waiting, strict=True))
            _check_finite(v, name)
            _check_clock(s, turning, name)
            reader = Reader.fit(v[:, :fitted], s[:, :fitted], sight)
        # two at a time: one program seldom fills all cores
        while len(waiting) > (0 if last else 1):
            v, s = map(np.asarray, waiting.pop(0))
            _check_finite(v, name)
            ends += [v.min(axis=(0, 1)), v.max(axis=(0, 1))]
            read.append(reader(v, s))
            if report is not None:
                report((rounds * min(len(read) * chunk, runs), rounds * runs))
    require(
        bool(np.ptp(ends, axis=0).any()),
        lambda: (
            f"The messages of {name} are the same in all runs of both worlds, and nothing was tested"
        ),
        "audit more rounds, or rounds whose messages reach the adversary",
    )
    S = np.nan_to_num(np.concatenate(read, axis=1)[:, :runs])
    return S[0], S[1]


def _check_finite(v: npt.NDArray[Any], name: str) -> None:
    require(
        bool(np.isfinite(v).all()),
        lambda: f"The messages of {name} are not finite, and nothing was tested",
        "take numbers with which its rounds stay finite",
    )


def _check_clock(s: npt.NDArray[Any], turning: bool | int, name: str) -> None:
    """Raise unless signs turn in the rounds 0, E, 2E, ...: the clock counts steps of ``x - lr v``."""
    if isinstance(turning, bool):
        return
    expected = np.where(np.arange(s.shape[-1]) % turning == 0, -1.0, 1.0)
    why = f"counts rounds by the server's steps, and {name} takes steps of another length"
    require(bool((s == expected).all()), why, "pass turning=True", turning=turning)


def _worlds(setup: Setup, canary: float, background: bool) -> tuple[np.ndarray, np.ndarray]:
    """The records of both worlds, and which of them turn."""
    problem, events = setup.problem, list(plain_events(setup.event))
    removed = any(event.adjacency != "replace_one" for event in events)
    planted = slice(None) if any(event.unit == "client" for event in events) else slice(1)
    length = canary * (setup.clip if math.isfinite(setup.clip) else 1.0)
    worlds = np.zeros((2, problem.n, problem.m_max, problem.model.dim), np.float32)
    if background:
        worlds[:, 0, :, 0] = -length
    worlds[:, 0, planted, 0] = np.array([[length], [0.0 if removed else -length]])
    return worlds, (worlds[0, :, :, 0] != 0).astype(np.float32)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _seen(
    algorithm: Algorithm,
    rounds: int,
    sign: Callable[[Array], Array],
    runs: int,
    listens: bool,
    key: Key,
    first: ArrayLike,
    worlds: ArrayLike,
    turns: ArrayLike,
    problem: Problem,
    hp: Hyper,
    step: ArrayLike,
) -> tuple[Array, Array]:
    """Messages v_t along the canary, (worlds, runs, T, nodes), and its signs s_t, (worlds, runs, T).

    Samplers do not look at data: both worlds share their work.
    """

    def one(key: Key, rows: Array) -> tuple[Array, Array]:
        train = (rows, turns)[: len(problem.train)]
        here = dataclasses.replace(problem, train=train)
        x, sent = observed(algorithm, rounds, key, here, hp, listens=listens)
        v = (sent if listens else x[:-1] - x[1:])[..., 0] / jnp.asarray(step)[:, None]
        return v, jax.vmap(sign)(x[:-1, 0])

    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, first + jnp.arange(runs))
    return jax.vmap(lambda rows: jax.vmap(lambda key: one(key, rows))(keys))(worlds)


class Sight(NamedTuple):
    """The law of one message by its event: ``sum_k w_k N(p_k, 1)`` in world P, q_k for p_k in Q.

    In units of the noise, minus the mean of world Q.  ``background``: the client's other records are
    those of world Q.
    """

    w: Floats
    p: Floats
    q: Floats
    sigma: float = 1.0
    background: bool = False

    def ratio(self, z: Floats) -> Floats:
        """The logarithm of the likelihood ratio of each message."""
        up, down = -np.inf, -np.inf
        for w, p, q in zip(np.log(self.w), self.p, self.q, strict=True):
            up = np.logaddexp(up, w + p * z - p * p / 2)
            down = np.logaddexp(down, w + q * z - q * q / 2)
        return np.asarray(up - down)


def _sight(event: AnyEvent | None) -> Sight:
    """The sight that the plain event with the most releases gives."""
    shifted = Sight(np.ones(1), 2 * np.ones(1), np.zeros(1))
    one = max(plain_events(event), key=lambda event: event.releases, default=None)
    if one is None or one.sigma <= 0 or not math.isfinite(one.sensitivity.clip):
        return shifted
    how, sensitivity, sigma = one.sampling, one.sensitivity, one.sigma
    whole = how.q >= 1 or how.scheme in ("full", "single_pass")
    background = not whole and how.scheme in ("without_replacement", "with_replacement")
    if isinstance(sensitivity, Mean):
        X, Y = sensitivity.X(how) / sigma, sensitivity.Y(how) / sigma
        # next to a snapshot of the other sign
        Y = -Y if sensitivity.over_m < 0 else Y
    elif isinstance(sensitivity, LocalSteps):
        X, Y = sensitivity.clip / how.b / sigma / math.sqrt(sensitivity.devices), 0.0
    else:
        return shifted._replace(sigma=sigma)
    w, a = np.array([1 - how.q, how.q]), np.array([Y, X])
    if whole:
        w, a = np.ones(1), np.array([X])
    elif how.scheme == "with_replacement":
        from scipy.stats import binom

        k = np.arange(min(int(how.b), 12) + 1)
        w, a = binom.pmf(k, int(how.b), 1 / how.m), np.asarray(k * X)
    w = np.maximum(w, 1e-30)
    if background:
        return Sight(w, 2 * (a - Y), 0 * a, sigma, True)
    center = float(w @ a)
    return Sight(w, a + center, center - a, sigma)


class Reader(NamedTuple):
    """Statistics of one run, (runs, statistics), from its messages v_t and the canary's signs s_t.

    ======================  ======================================================================
    sum                     ``sum_t s_t v_t``
    likelihood ratio        ``sum_t`` of the ratio that the event says of ``s_t v_t``
    extremes                ``max_t s_t v_t + min_t s_t v_t``
    spread                  ``max_t v_t + min_t v_t - 2 mean v``: repeated noise cancels
    contrast                ``sum_t (s_t - mean s) v_t``: likewise, for turning canaries
    innovations             the same ratio of ``e_t = (v_t - E[v_t | v_1 ... v_{t-1}])/std``, which turns
                            momenta, recursions and averages back into messages, over the rounds in
                            which it distinguishes the worlds
    learned                 the linear discriminant of all e_t and their ratios
    ======================  ======================================================================
    """

    sight: Sight
    mean: Floats  # of s_t v_t in world Q
    whiten: Floats
    center: Floats
    telling: Floats  # 1 for messages whose ratios differ between the worlds, else 0
    weights: Floats

    @classmethod
    def fit(cls, v: Floats, s: Floats, sight: Sight) -> Reader:
        """Fit to runs that do not enter the bound, (worlds, runs, ...)."""
        k, F = v.shape[1], v[0, 0].size
        none = np.zeros(F)
        mean = _rows(s[..., None] * v)[1].mean(axis=0)
        new = cls(sight, mean, np.eye(F), none, none, np.zeros(2 * F))
        # world Q has less randomness besides the noise
        cov = np.atleast_2d(np.cov(new.residuals(v, s)[1], rowvar=False))
        if k < 2 * F or not np.isfinite(cov).all():
            cov = np.diag(np.nan_to_num(np.diag(cov)))
        scale = np.sqrt(np.diag(cov)) + 1e-12
        cov = cov / scale / scale[:, None] + 1e-6 * np.eye(F)
        new = new._replace(whiten=np.linalg.inv(np.linalg.cholesky(cov)) / scale)
        new = new._replace(center=new.features(v, s)[1, :, :F].mean(axis=0))
        both = np.nan_to_num(new.features(v, s))
        gap = both[0].mean(axis=0) - both[1].mean(axis=0)
        telling = gap > 2 * np.sqrt(both.var(axis=1).sum(axis=0) / k)
        scale = both.std(axis=(0, 1)) + 1e-12
        within = sum(np.atleast_2d(np.cov(each / scale, rowvar=False)) for each in both)
        ridge = (2 * F / k + 1e-3) * np.eye(2 * F)
        weights = np.linalg.solve(within + ridge, gap / scale) / scale
        return new._replace(telling=telling[F:].astype(np.float64), weights=weights)

    def residuals(self, v: Floats, s: Floats) -> Floats:
        """Return the messages minus their mean in world Q."""
        return _rows(v) - self.mean * np.repeat(s, v.shape[-1], axis=-1)

    def features(self, v: Floats, s: Floats) -> Floats:
        """All s_t e_t, and the ratio of each."""
        e = self.residuals(v, s) @ self.whiten.T * np.repeat(s, v.shape[-1], axis=-1) - self.center
        return np.concatenate([e, self.sight.ratio(e)], axis=-1)

    def __call__(self, v: Floats, s: Floats) -> Floats:
        features = self.features(v, s)
        center = self.mean.reshape(v.shape[2:])[:, 0]
        v = v[..., 0].astype(np.float64)
        u = s * v
        ratio = self.sight.ratio((u - center) / self.sight.sigma)
        tilt = s - s.mean(axis=-1, keepdims=True)
        statistics = (
            u.sum(axis=-1),
            ratio.sum(axis=-1),
            u.max(axis=-1) + u.min(axis=-1),
            v.max(axis=-1) + v.min(axis=-1) - 2 * v.mean(axis=-1),
            (tilt * v).sum(axis=-1),
            features[..., features.shape[-1] // 2 :] @ self.telling,
            features @ self.weights,
        )
        return np.stack(statistics, axis=-1)


def _rows(v: Floats) -> Floats:
    """(worlds, runs, T nodes)."""
    return np.asarray(v, np.float64).reshape(*v.shape[:2], -1)
