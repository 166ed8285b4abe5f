"""Checks that one part does what its record declares."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.probes import clients, sums
from jaxfl.algorithms.probes.given import DRAWS, D, Given, M, N, hyper
from jaxfl.algorithms.probes.laws import ERRORS, Checked, confirm, equal, mean_is, scattered
from jaxfl.core.calls import watched
from jaxfl.core.errors import InputError, shown
from jaxfl.core.params import check
from jaxfl.core.provenance import own_part
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import (
    Aggregation,
    Array,
    Channel,
    Compressor,
    Draw,
    Estimator,
    Key,
    Mechanism,
    Message,
    Param,
    Participation,
    Sampler,
    Server,
)
from jaxfl.parts.compressors import dense
from jaxfl.parts.graphs import Graph
from jaxfl.parts.mechanisms import noiseless
from jaxfl.privacy.events import Mean
from jaxfl.problems.clipping import clip
from jaxfl.rounds.messages import release
from jaxfl.rounds.transcript import sensitivity_of

__all__ = ["check_part", "check_privacy", "in_full", "read_by_checks"]

SHORT = 1e-3  # the scale of short vectors
FAR = 100.0  # gradients that lead out of a set, over the model
FEW = 1, 2, 4  # coordinates whose messages are counted, too
SLOTS = 1 << 24  # coordinates that are selected together
OMEGA = Param("omega", "variance that a compressor resolves its numbers for")
CLIENTS = Param("clients", "number of clients for which the graph is made", low=1, integer=True)


def check_part(part: Any, *, seed: int = 0, reads: Iterable[str] = (), **numbers: float) -> Checked:
    """Check that a part does what its record declares; return what was checked, and what was not.

    Args:
        part: of any kind; or a problem, for the gradients of its model.
        seed: of the draws.
        reads: names that the part reads and does not declare, as in ``compose``.
        numbers: its hyper-parameters; those that are left out are small.

    Raises:
        CheckFailed: the part does something else, in one sentence with both numbers.

    >>> import jaxfl.testing
    >>> jaxfl.testing.check_part(jaxfl.parts.compressors.random_k(), k=6).done
    ('coordinates', 'mean', 'error', 'bits', 'jit')
    >>> jaxfl.testing.check_part(jaxfl.parts.compressors.sto_sign()).left
    {'coordinates': 'it selects none'}
    """
    checks = next((checks for kind, checks in CHECKS.items() if isinstance(part, kind)), None)
    if checks is None:
        kinds = ", ".join(kind.__name__ for kind in CHECKS)
        what = shown(getattr(part, "name", part))
        raise InputError(f"{what} is no part that can be checked alone", f"pass one of {kinds}")
    omega, count = (OMEGA,) * isinstance(part, Compressor), (CLIENTS,) * isinstance(part, Graph)
    params = (*getattr(part, "params", ()), *omega, *count)
    params += part.sampler.params if isinstance(part, Estimator) else ()
    known = (*params, *(Param(name, "") for name in reads))
    check(known, numbers, part.name)
    if isinstance(part, Compressor) and not numbers and "k" in {p.name for p in part.params}:
        numbers = {"k": D // 3}  # with one coordinate nothing can be sent twice
    if hasattr(part, "_fields") and not own_part(part):
        part = watched(part, jax.ShapeDtypeStruct((D,), jnp.float32))
    given = Given(numbers, seed)
    why = {name: one(part, given) for name, one in checks.items()}
    left = {name: words for name, words in why.items() if words}
    return Checked(tuple(name for name in why if name not in left), left)


def check_privacy(
    part: Any, values: Mapping[str, Any], d: int, unseen: bool = False, **numbers: float
) -> None:
    """Check what a part declares and a proof rests on.

    ``values`` are those of a run on a model of d parameters, with which coordinates are selected;
    ``numbers`` those of the part that other checks take.  ``unseen`` are messages in a sum that may hide
    them, and those that a server noises: then more of what a part declares counts.
    """
    if isinstance(
        part, Aggregation
    ):  # what it settles is for the clients of the check, not of the run
        numbers = {name: v for name, v in numbers.items() if name not in sums.settled(part, {})}
    if isinstance(part, Compressor):
        _distinct(part, values, d, min(500, max(8, SLOTS // d)))
    if isinstance(part, Estimator):
        _reach(part, values, d)
    every = _with_others(values, numbers) if isinstance(part, Mechanism) else [numbers]
    for kind, names in (*PRIVATE.items(), *(UNSEEN.items() if unseen else ())):
        if isinstance(part, kind):
            for name, given in itertools.product(names, every):
                CHECKS[kind][name](part, Given(given, seed=0))


def read_by_checks(part: Any, values: Mapping[str, Any], **numbers: float) -> str:
    """All that :func:`check_privacy` reads of a run: of a mechanism its std, which may read any number."""
    if isinstance(part, Mechanism) and part.std is not None:
        with contextlib.suppress(Exception):  # the check meets it again, and says so
            every = (part.std(hyper(part, given)) for given in _with_others(values, numbers))
            return str([np.asarray(std).tolist() for std in every])
    follows_any = isinstance(part, Mechanism | Compressor | Estimator)
    return in_full(values if follows_any else numbers)


def in_full(values: Mapping[str, Any]) -> str:
    """Numbers in words that are the same only where all numbers are, those of each round included."""
    T = int(values.get("rounds", 0))
    return str(
        {
            name: np.asarray(v.over(T) if isinstance(v, Schedule) else v).tolist()
            for name, v in sorted(values.items())
        }
    )


def _with_others(values: Mapping[str, Any], numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The numbers of a mechanism, and those of other parts, which its std may read.

    They are two where some change from round to round: with the least and the largest of each.
    """
    T = max(1, int(values.get("rounds", 1)))
    changing = {name: v.over(T) for name, v in values.items() if isinstance(v, Schedule)}
    ends = (np.min, np.max) if changing else (np.min,)
    return [
        {**values, **{name: float(end(v)) for name, v in changing.items()}, **numbers}
        for end in ends
    ]


# --- compressors -----------------------------------------------------------------------------------


def _sent(part: Compressor, given: Given, d: int = D) -> tuple[Any, Any]:
    """The hyper-parameters of a compressor, and C(v) by key and vector, as a round makes it."""
    values = {**given.numbers, **part.resolve(given.numbers, d)}
    hp = hyper(part, values, d)

    def one(key: Key, v: Array) -> Array:
        message, *_ = release(noiseless(), part, key, key, v, jnp.int32(0), hp)
        return dense(message, d)

    return values, one


def _vectors() -> Array:
    rng = np.random.default_rng(0)
    few = np.where(np.arange(D) < 2, 3.0, 0.0)
    return jnp.asarray(
        np.stack([rng.normal(size=D), few, np.ones(D), 3.0 * np.eye(D)[-1]]), jnp.float32
    )


def _coordinates(part: Compressor, given: Given) -> str | None:
    """Each coordinate is sent at most once: several noised copies of one value would reveal it."""
    if part.select is None:
        return "it selects none"
    values = {**given.numbers, **part.resolve(given.numbers, D)}
    live = _distinct(part, values, D, 500, given.seed)
    if part.fixed_size:
        confirm(
            (live.sum(1) == values["k"]).all(),
            f"The compressor {part.name!r} has fixed_size, and does not send k coordinates",
        )
    return None


def _distinct(
    part: Compressor, values: Mapping[str, Any], d: int, times: int, seed: int = 0
) -> Any:
    """Raise for a coordinate that is sent twice, or that there is not; the live slots of each draw."""
    if part.select is None:
        return np.ones((1, d), bool)
    hp, select = hyper(part, values, d), part.select
    keys = jax.random.split(jax.random.key(seed), times)
    draw = jax.jit(jax.vmap(lambda key: select(key, d, hp)))(keys)
    index, weight = np.asarray(draw.index), np.asarray(draw.weight)
    live = weight != 0
    confirm(
        ((index >= 0) & (index < d))[live].all(),
        f"The compressor {part.name!r} selects coordinates beyond the {d} that there are",
    )
    alone = np.sort(np.where(live, index, d + np.arange(index.shape[1])))
    twice = int((alone[:, 1:] == alone[:, :-1]).any(axis=1).sum())
    confirm(
        twice == 0,
        f"The compressor {part.name!r} sends a coordinate more than once in {twice} of {times} "
        f"messages of {d} coordinates: each copy has noise of its own, and together they reveal more "
        "than the event counts",
    )
    return live


def _reach(part: Estimator, values: Mapping[str, Any], d: int) -> None:
    """Raise where the terms of an estimator add up to more than its sensitivity."""
    if part.sensitivity is None:
        return
    declared = part.sensitivity(values)
    terms = sensitivity_of(part._replace(sensitivity=None), values, d)
    if terms is None or not isinstance(declared, Mean) or np.isfinite(declared.whole):
        return
    found, allowed = terms(values).clip, declared.clip * declared.over_b
    confirm(
        found <= allowed * (1 + 1e-6),
        f"The terms of the estimator {part.name!r} add up to {found:.4g}, and its sensitivity allows "
        f"{allowed:.4g}",
    )


def _mean(part: Compressor, given: Given) -> str | None:
    """E C(v) = v where it is ``unbiased``."""
    if not part.unbiased:
        return "it does not declare unbiased=True"
    _, one = _sent(part, given)
    draw = jax.jit(jax.vmap(one, (0, None)))
    for v in _vectors():
        drawn = np.asarray(draw(given.keys(), v), np.float64)
        mean_is(drawn, np.asarray(v), f"C(v) of {part.name!r}, which declares unbiased=True,")
    return None


def _error(part: Compressor, given: Given) -> str | None:
    """E|C(v) - v|^2 <= omega |v|^2, for short v too."""
    if part.omega is None or part.absolute:
        return "it declares no omega"
    values, one = _sent(part, given)
    omega, draw = float(part.omega(D, values)), jax.jit(jax.vmap(one, (0, None)))
    for v in (scale * v for v in _vectors() for scale in (1.0, SHORT)):
        x = np.asarray(draw(given.keys(), v), np.float64)
        ratio = ((x - np.asarray(v)) ** 2).sum(1) / float(jnp.sum(v * v))
        allowed = omega * (1 + 1e-5) + ERRORS * ratio.std() / np.sqrt(DRAWS) + 1e-6
        found, said = ratio.mean(), f"The compressor {part.name!r} declares omega = {omega:.4g}"
        confirm(found <= allowed, f"{said}, and its error is {found:.4g} |v|^2")
    return None


def _bits(part: Compressor, given: Given) -> None:
    """Check that bits are two finite numbers, and as many as distinguish the messages of some vectors.

    The draw is the same for all vectors, since both ends may know it: the code of a message is no shorter
    than the entropy of what is sent.  With few coordinates 4,000 vectors have all messages, signs of 0
    among them.
    """
    for d in (D, *FEW):
        k = {"k": min(given.numbers["k"], d)} if "k" in given.numbers else {}
        here = given._replace(numbers={**given.numbers, **k})
        values, one = _sent(part, here, d)
        found = part.bits(d, values)
        confirm(
            len(found) == 2 and np.isfinite(found).all() and min(found) >= 0,
            f"The bits of {part.name!r} are {found}, and should be two numbers of at least 0",
        )
        key, zeros = given.keys(1)[0], jax.random.key(given.seed + 1)
        v = jax.random.normal(jax.random.key(given.seed), (DRAWS, d))
        live = 0
        if part.select is not None:
            live = int((part.select(key, d, hyper(part, values, d)).weight != 0).sum())
        draw, said = jax.jit(jax.vmap(one, (None, 0))), found[0] + live * found[1]
        for vectors in (v, jnp.where(jax.random.bernoulli(zeros, 2 / 3, v.shape), v, 0)):
            _, times = np.unique(np.asarray(draw(key, vectors)), axis=0, return_counts=True)
            least = float(-(times / DRAWS) @ np.log2(times / DRAWS))
            confirm(
                said >= least - 1e-6,
                f"The bits of {part.name!r} are {said:.4g} for a message, and to distinguish its "
                f"messages for {DRAWS} vectors of dimension {d} takes {least:.4g}",
            )


def _compressor_jit(part: Compressor, given: Given) -> None:
    """C(v) is the same with and without ``jit``."""
    _, one = _sent(part, given)
    with jax.disable_jit():
        slow = one(jax.random.key(0), _vectors()[0])
    equal(jax.jit(one)(jax.random.key(0), _vectors()[0]), slow, "results with and without jit")


# --- samplers and participations -------------------------------------------------------------------


def _rows(part: Sampler, given: Given, b: int = 4, T: int = 1) -> Any:
    """Weights of each record in T rounds of each key, (draws, T, M), and b."""
    b = int(given.numbers.get("batch", b))
    values = {"batch": b, **given.numbers}
    hp = hyper(part, values)
    count = jnp.int32(M)
    draw = jax.vmap(lambda key, t: part.draw(key, t, count, M, hp), (0, None))
    each = [scattered(jax.jit(draw)(given.keys(), jnp.int32(t)), M) for t in range(T)]
    return np.stack(each, 1), M if part.whole else b


def _weights(part: Sampler, given: Given) -> None:
    """No record weighs more than 1/b (times the copies of a draw with replacement)."""
    total, b = _rows(part, given)
    times = total[:, 0] * b
    most = float(times.max())
    allowed = b if part.scheme == "with_replacement" else 1
    confirm(
        most <= allowed * (1 + 1e-5) and times.min() >= 0,
        f"The sampler {part.name!r} gives a record the weight {most / b:.4g} in a batch of {b}, and "
        f"the event allows {allowed / b:.4g}",
    )
    mean_is(total[:, 0], 1 / M, f"The weight of a record of {part.name!r}")


def _law(part: Sampler, given: Given) -> None:
    """Draws have the law of the ``scheme``."""
    T, asked = 3 if part.single_pass else 2, given.numbers.get("batch", 4)
    if part.epochs:
        T = M // int(asked) + 1  # an epoch, and the first round of the next
    if part.cycles:
        T = 2 * math.ceil(M / asked)
    total, b = _rows(part, given, T=T)
    drawn = (total > 0).astype(np.float64)
    said = f"of {part.name!r}, whose scheme is {part.scheme},"
    if part.scheme is None:
        return
    if part.whole:
        confirm((drawn == 1).all(), f"A draw {said} leaves out records")
        return
    if part.cycles:
        first, second = np.split(drawn, 2, axis=1)
        confirm(
            (first.sum(1) == 1).all() and (first == second).all(),
            f"Two epochs {said} do not hold every record once, in the same order",
        )
        return
    size = drawn[:, 0].sum(1)
    if part.scheme == "poisson":
        mean_is(
            (size - b) ** 2, b * (1 - b / M), f"The squared spread of the number of records {said}"
        )
    if part.scheme in ("without_replacement", "shuffled", "single_pass"):
        confirm((size == b).all(), f"A draw {said} does not hold {b} records, each once")
    if part.fresh:
        a, c = drawn[:, 0, 0], drawn[:, 0, 1]
        q = b / M
        pairs = {"poisson": q * q, "without_replacement": b * (b - 1) / (M * (M - 1))}
        if part.scheme in pairs:
            mean_is(a * c, pairs[part.scheme], f"The share of draws {said} with two given records")
        share = 1 - (1 - 1 / M) ** b if part.scheme == "with_replacement" else q
        mean_is(a, share, f"A record's share {said}")
        both = drawn[:, 0, 0] * drawn[:, 1, 0]
        mean_is(
            both, a.mean() * drawn[:, 1, 0].mean(), f"The share of a record in two rounds {said}"
        )
    else:
        T -= part.epochs
        most = int(drawn[:, :T].sum(1).max())
        confirm(
            most <= 1,
            f"A record is drawn {most} times in {T} rounds {said}: {T * b} of {M} records",
        )
        if part.epochs:
            again = drawn[:, 0, 0] * drawn[:, T, 0]
            mean_is(
                again,
                (b / M) ** 2,
                f"The share of a record in the first rounds of two epochs {said}",
            )


def _cohorts(part: Participation, given: Given, T: int = 1) -> tuple[Any, dict[str, Any]]:
    """The weight of each client in T rounds of each key, (draws, T, N), and the numbers."""
    r = N if part.everyone else int(given.numbers.get("cohort", 3))
    values = {"cohort": r, "dropout": 0.2, "threshold": 1, **given.numbers}
    hp = hyper(part, values)

    def at(t: Array) -> Draw:
        return jax.vmap(lambda key: part.draw(key, t, N, hp))(given.keys())

    return np.stack([scattered(jax.jit(at)(jnp.int32(t)), N) for t in range(T)], 1), values


def _clients(part: Participation, given: Given) -> None:
    """Weights are at most 1/r, for the r clients that a round calls, and as many take part."""
    total, values = _cohorts(part, given, 2)
    r = values["cohort"]
    live, most = (total[:, 0] > 0).sum(1), float(total.max())
    fewest = int(live[live > 0].min())
    bound = 1 / (fewest if part.least is not None else r)
    confirm(
        most <= bound * (1 + 1e-5) and total.min() >= 0,
        f"The participation {part.name!r} gives a client the weight {most:.4g}, and the event "
        f"allows {bound:.4g}",
    )
    if part.fixed_size or part.everyone:
        confirm(
            (live == r).all(),
            f"The participation {part.name!r} calls {live.min()} to {live.max()} clients, not {r}",
        )
    if part.least is not None:
        least = part.least(N, values)
        confirm(
            fewest >= least,
            f"{part.name!r} declares at least {least} clients a round, and calls {fewest}",
        )
    pairs = {"poisson": (r / N) ** 2, "without_replacement": r * (r - 1) / (N * (N - 1))}
    if part.scheme in pairs:
        took = (total > 0).astype(np.float64)
        said = f"of {part.name!r}, whose scheme is {part.scheme}"
        mean_is(took[:, 0], r / N, f"The share of a client {said}")
        two = (took[:, 0, :1] * took[:, 0, 1:]).ravel()
        mean_is(two, pairs[part.scheme], f"The share of two clients at once {said}")
        again = (took[:, 0] * took[:, 1]).ravel()
        mean_is(again, (r / N) ** 2, f"The share of a client in two rounds {said}")


def _turns(part: Participation, given: Given) -> None:
    """No client takes part in more rounds than ``most`` says."""
    if part.most is None:
        return
    T = 7
    total, values = _cohorts(part, given, T)
    for rounds in (range(T), range(T // 2, T), range(1, T, 2)):
        called = (total[:, np.asarray(rounds)] > 0).sum(1)
        found, allowed = int(called.max()), part.most(rounds, N, values)
        confirm(
            found <= allowed,
            f"The participation {part.name!r} declares at most {allowed} of {len(rounds)} rounds for a "
            f"client, numbers {list(rounds)}, and calls one in {found}",
        )


# --- mechanisms, channels and servers --------------------------------------------------------------


def _noise(part: Mechanism, given: Given) -> tuple[Any, Any]:
    """Noise of each key, (draws, D), and the deviation that is declared; 0 where there is none."""
    if part.std is None:
        return np.zeros((DRAWS, D)), np.zeros(D)
    std, keys = part.std(hyper(part, given.numbers)), given.keys()
    draws = jax.jit(jax.vmap(lambda key, like: part.draw(key, std, like), (0, None)))
    x, other = (
        np.asarray(draws(keys, like)) for like in (jnp.zeros(D), jnp.linspace(-9.0, 9.0, D))
    )
    confirm(
        np.array_equal(x, other, equal_nan=True),
        f"The noise of {part.name!r} depends on the message to which it is added, by up to "
        f"{np.abs(x - other).max():.4g}",
    )
    return x.astype(np.float64), np.broadcast_to(np.asarray(std, np.float64), D)


def _deviation(part: Mechanism, given: Given) -> None:
    """The noise that is drawn has mean 0 and the deviation ``std``, with the tails of a Gaussian."""
    x, std = _noise(part, given)
    noise = f"The noise of {part.name!r}"
    repeated = (DRAWS - len(np.unique(x, axis=0))) * (std.max() > 0)
    same = f"{noise} is the same for every key: draw it with the key that `draw` is passed"
    confirm(repeated < DRAWS - 1 or not x.any(), same)
    if part.event is None:  # of another law draws may be equal
        confirm(
            not repeated, f"{noise} is equal for {repeated} of {DRAWS} keys, or they draw nothing"
        )
    mean_is(x, 0.0, noise)
    if std.max() == 0:
        return
    spread, said = x.std(0), f"{noise} declares std = {std.max():.4g}"
    z = x / np.maximum(std, 1e-30)
    confirm(
        (np.abs(z.std(0) - 1) < ERRORS / np.sqrt(2 * DRAWS)).all(),
        f"{said}, and that of a coordinate is {spread.min():.4g} to {spread.max():.4g}",
    )
    if part.event is not None:
        return
    kurtosis = float((z**4).mean())
    confirm(
        abs(kurtosis - 3) < ERRORS * np.sqrt(96 / z.size) + 0.01,
        f"{said}, and its fourth moment is {kurtosis:.3g}, of a Gaussian 3",
    )


def _independence(part: Mechanism, given: Given) -> None:
    """Coordinates are noised independently."""
    x, _ = _noise(part, given)
    if x.std() == 0:
        return
    worst = float(np.abs(np.corrcoef(x.T) - np.eye(D)).max())
    confirm(
        worst < ERRORS / np.sqrt(DRAWS),
        f"Two coordinates of the noise of {part.name!r} have the correlation {worst:.2g}",
    )


def _linked(part: Channel) -> tuple[Any, Any, Array]:
    """A client's end of a channel, the server's, and a point."""
    x = jnp.linspace(-1.0, 1.0, D)
    links, link = part.init(N, x, False)
    return jax.tree.map(lambda a: a[0] + 0.3, links), link, x


def _expansion(part: Channel, given: Given) -> None:
    """``before`` brings no two gradients further apart: noise comes after it."""
    link, _, _ = _linked(part)
    rng = np.random.default_rng(1)
    pairs = rng.normal(size=(200, 2, D)) * 10.0 ** rng.uniform(-4, 4, (200, 1, 1))
    pairs[100:, 1] = -pairs[100:, 0] * 1e-3

    def before(g: Any) -> Any:
        return jax.vmap(lambda g: part.before(link, g))(jnp.asarray(g, jnp.float32))

    a, b = (np.asarray(before(pairs[:, i]), np.float64) for i in range(2))
    moved, apart = np.linalg.norm(a - b, axis=1), np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)
    worst = float((moved / apart).max())
    confirm(
        worst <= 1 + 1e-3,
        f"The before of the channel {part.name!r} brings gradients {worst:.4g} times as far apart, "
        "and noise comes after it: scale or normalize at the server",
    )


def _linearity(part: Channel, given: Given) -> None:
    """Check that a ``linear`` channel maps the mean of estimates to that of messages, at both ends."""
    if not part.linear:
        return
    x, rng, hp = jnp.linspace(-1.0, 1.0, D), np.random.default_rng(0), _link_hyper(part, given)
    (links, link), (_, alone) = (part.init(N, x, fused) for fused in (False, True))
    for _ in range(3):
        g, noise = (jnp.asarray(rng.normal(size=(N, D)), jnp.float32) for _ in range(2))
        v = jax.vmap(part.before)(links, g) + noise
        whole = part.before(alone, g.mean(0)) + noise.mean(0)
        what = f"The mean of before and before of the mean of {part.name!r}"
        equal(v.mean(0), whole, what, 1e-4)
        links = jax.vmap(lambda link, v: _kept(part, link, v, hp))(links, v)
        link, alone = (
            part.receive(end, mean, jnp.ones(()), hp, None)[1]
            for end, mean in ((link, v.mean(0)), (alone, whole))
        )


def _elementwise(part: Channel, given: Given) -> None:
    """Check that ``elementwise`` channels map some coordinates as they map all, and write no other."""
    if not part.elementwise:
        return
    link, _, _ = _linked(part)
    g, index = jax.random.normal(jax.random.key(0), (D,)), jnp.asarray([D - 1, 0, 2])
    few = jax.tree.map(lambda a: a[index], link)
    some, whole = part.before(few, g[index]), part.before(link, g)[index]
    equal(some, whole, f"Some coordinates and all in before of {part.name!r}")
    if part.residual is None:
        hp = _link_hyper(part, given)
        some = part.after(few, Message(g[index], None), hp)
        put = jax.tree.map(lambda a, v: a.at[index].set(v), link, some)
        whole = part.after(link, Message(g[index], index), hp)
        what = f"Some coordinates and all in after of {part.name!r}, and the others as they were,"
        jax.tree.map(lambda a, b: equal(a, b, what), put, whole)


def _link_hyper(part: Channel, given: Given) -> Any:
    return hyper(part, given.numbers, carry=0.5)


def _kept(part: Channel, link: Any, v: Array, hp: Any) -> Any:
    """A client's memory after a message that arrives uncompressed."""
    return (
        part.residual(link, v, v, hp) if part.residual else part.after(link, Message(v, None), hp)
    )


def _memory(part: Channel, given: Given) -> None:
    """Check that messages change neither end of a channel that does not remember."""
    link, server, x = _linked(part)
    hp = _link_hyper(part, given)
    ends = (
        (link, server),
        (
            _kept(part, link, x, hp),
            part.receive(server, x, jnp.ones(()), hp, None)[1],
        ),
    )
    same = jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), *ends))
    words = f"The channel {part.name!r} declares that it does not remember, and a message changes an end"
    confirm(part.remembers or same, words)


def _shapes(part: Channel, given: Given) -> None:
    """Both ends keep their shapes, and the server's estimate is a vector."""
    link, server, x = _linked(part)
    hp = _link_hyper(part, given)
    kept = _kept(part, link, x, hp)
    v, after = part.receive(server, x, jnp.ones(()), hp, None)
    for old, new, end in ((link, kept, "a client"), (server, after, "the server")):
        same = jax.tree.map(jnp.shape, old) == jax.tree.map(jnp.shape, new)
        words = f"What {end} keeps of {part.name!r} changes its shape"
        confirm(same, words)
    confirm(
        v.shape == x.shape,
        f"The channel {part.name!r} returns an estimate of shape {v.shape}",
    )


def _steps(part: Server, given: Given) -> None:
    """A step keeps the shapes of the state, and starts where clients see x."""
    hp, x = hyper(part, given.numbers), jnp.linspace(-1.0, 1.0, D)
    state = part.init(x, hp)
    equal(part.view(state), x, f"The first point of {part.name!r} and x")
    after = part.step(jax.random.key(0), state, 0.1 * x, None, hp)
    same = jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, after)
    confirm(same, f"A step of {part.name!r} changes the shapes of its state")
    confirm(
        np.isfinite(part.output(after)).all() and part.output(after).shape == x.shape,
        f"The output of {part.name!r} after a step is no finite vector of {D} coordinates",
    )


def _projection(part: Server, given: Given) -> None:
    """Check that steps which lead out of a ball end in it: in what clients see, and in the output."""
    hp, x = hyper(part, given.numbers), jnp.linspace(-1.0, 1.0, D)
    radius = jnp.linalg.norm(x)
    for v in (-FAR * x, FAR * x):
        state = part.init(x, hp)
        for _ in range(3):
            state = part.step(jax.random.key(0), state, v, lambda w: clip(w, radius), hp)
            for what in ("view", "output"):
                length = float(jnp.linalg.norm(getattr(part, what)(state)) / radius)
                confirm(
                    length <= 1 + 1e-4,
                    f"The {what} of the server {part.name!r} after a step is {length:.4g} times as far "
                    "out as the constraint set reaches: where project is not None, apply it in step",
                )


CHECKS: dict[type, dict[str, Callable[[Any, Given], str | None]]] = {
    Compressor: {
        "coordinates": _coordinates,
        "mean": _mean,
        "error": _error,
        "bits": _bits,
        "jit": _compressor_jit,
    },
    Sampler: {"weights": _weights, "law": _law},
    Participation: {"weights": _clients, "turns": _turns},
    Mechanism: {"deviation": _deviation, "independence": _independence},
    Channel: {
        "expansion": _expansion,
        "linearity": _linearity,
        "coordinates": _elementwise,
        "memory": _memory,
        "shapes": _shapes,
    },
    Server: {"steps": _steps, "projection": _projection},
    **clients.CHECKS,
    **sums.CHECKS,
}
# the checks of what proofs rest on
PRIVATE: dict[type, tuple[str, ...]] = {
    Sampler: ("weights", "law"),
    Participation: ("turns",),
    Mechanism: ("deviation", "independence"),
    Channel: ("expansion", "coordinates"),
}
# and those that count too under the noise of a server or in a sum that hides messages
UNSEEN: dict[type, tuple[str, ...]] = {
    Participation: ("weights",),
    Channel: ("linearity", "memory"),
    Aggregation: ("sum",),
}
