"""Probes of what a client computes: estimators, local procedures, and the gradients of models."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.probes import kernels
from jaxfl.algorithms.probes.canary import canary_problem
from jaxfl.algorithms.probes.given import FACTS, FAST, D, Given, M, hyper
from jaxfl.algorithms.probes.laws import ERRORS, confirm, equal, mean_is
from jaxfl.core.types import Array, Client, Draw, Estimator, Hyper, Key, Local, Problem, Server
from jaxfl.parts import channels, compressors, sampling
from jaxfl.parts.gradients import at_point, evaluated
from jaxfl.parts.mechanisms import noiseless
from jaxfl.privacy.events import Mean
from jaxfl.problems.metrics import full_gradient
from jaxfl.problems.models import logistic
from jaxfl.rounds.blocks import paced, streams
from jaxfl.rounds.federated import Federated
from jaxfl.rounds.transcript import drawn, sensitivity_of

__all__ = ["CHECKS"]

ROUNDS = 3
KEYS, SOME = 200, 1000  # of worst cases, and of means
LENGTH = 1e6  # of an outlier
UNCLIPPED = {"clip": 1e6}


def _problem(factor: float = 1.0) -> Problem:
    """One client with records of norm about ``factor``."""
    rng = np.random.default_rng(3)
    a = jnp.asarray(factor * rng.normal(size=(1, M, D)) / D**0.5, jnp.float32)
    y = jnp.asarray(rng.integers(0, 2, (1, M)), jnp.int32)
    return Problem((a, y), jnp.full(1, M, jnp.int32), None, _start(), logistic(D))


def _start() -> Array:
    return jnp.linspace(-1.0, 1.0, D)


def _same(a: Any, b: Any) -> bool:
    return bool(jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), a, b)))


# --- estimators ----------------------------------------------------------------------------------


def _numbers(part: Estimator, given: Given, **more: Any) -> tuple[dict[str, Any], Hyper]:
    """The hyper-parameters of an estimator and of its sampler."""
    params = (*part.params, *part.sampler.params)
    values = {"batch": M if part.sampler.whole else 4, "clip": 1.0, **given.numbers, **more}
    both = part.sampler._replace(params=params)
    hp = hyper(both, values)
    slots = {"k": D, **hp.caps}  # of a compressor, which an estimator may read
    return {**values, **hp.values}, Hyper(hp.values, tuple(sorted(slots.items())))


def _body(part: Estimator) -> Federated:
    """Rounds of an estimator, whose points do not depend on what clients send."""
    walk = Server(
        "walk",
        init=lambda x, hp: x,
        view=lambda x: x,
        step=lambda key, x, v, project, hp: x + 1 / D,
        output=lambda x: x,
    )
    parts = noiseless(), compressors.identity(), channels.direct(), walk, sampling.everyone()
    return Federated(part, *parts, messages=True)


def _estimates(part: Estimator, key: Key, problem: Problem, hp: Hyper, path: Key) -> Array:
    """The first client's estimate in each round, (rounds, d); ``path`` drew those of earlier rounds."""
    body = _body(part)

    def step(state: Any, _: None) -> tuple[Any, Array]:
        seen = body.view(key, state, problem, hp).estimates[0]
        return body.round(path, state, problem, hp)[0], seen

    state, _ = body.init(path, problem, hp)
    seen: Array = jax.lax.scan(step, state, length=ROUNDS)[1]
    return seen


def _mean(part: Estimator, given: Given) -> None:
    """An estimate is the gradient in the mean, where Assumption 3 of SoteriaFL is declared."""
    if part.assume is None:
        return
    _, hp = _numbers(part, given, **UNCLIPPED)
    problem, path, x0 = _problem(), jax.random.key(1), _start()
    keys = given.keys(SOME)
    found = _drawn(lambda key: _estimates(part, key, problem, hp, path))(keys)
    for t in range(ROUNDS):
        gradient = full_gradient(problem, x0 + t / D, jnp.array(np.inf))[0]
        what = f"The estimate of {part.name!r} in round {t}"
        mean_is(np.asarray(found[:, t], np.float64), np.asarray(gradient, np.float64), what)


def _drawn(one: Callable[[Key], Any]) -> Callable[[Key], Any]:
    """The function over many keys; compilation takes longer than the draws."""
    compiled: Callable[[Key], Any] = jax.jit(jax.vmap(one), compiler_options=FAST)
    return compiled


def _reach(part: Estimator, given: Given) -> None:
    """Replacing one record by a worst one moves no estimate by more than its sensitivity."""
    values, hp = _numbers(part, given)
    reach = sensitivity_of(part, values, D)
    declared = None if reach is None else reach(values)
    if not isinstance(declared, Mean) or part.sampler.scheme is None or part.gradient.unit:
        return
    law = drawn(part.sampler, values, FACTS, M)
    copies = law.b if part.sampler.scheme == "with_replacement" else 1
    allowed = 2 * max(declared.X(law) + (copies - 1) * declared.V(law), declared.Y(law))
    problem = canary_problem(1, M, D, "once")
    ones = jnp.ones((1, M), jnp.float32)

    rows = jnp.zeros((1, M, D)).at[0, 0].set(LENGTH * (-1.0) ** jnp.arange(D) / D**0.5)

    def moved(key: Key) -> Array:
        worlds = (Problem((s * rows, ones), *_rest(problem)) for s in (1, -1))
        a, b = (_estimates(part, key, world, hp, key) for world in worlds)
        norms: Array = jnp.linalg.norm(a - b, axis=1)
        return norms

    found = float(_drawn(moved)(given.keys(KEYS)).max())
    confirm(
        found <= allowed * (1 + 1e-3),
        f"Replacing one record by a worst one moves an estimate of {part.name!r} by {found:.4g}, and its "
        f"sensitivity allows {allowed:.4g}",
    )


def _rest(problem: Problem) -> tuple[Any, ...]:
    return problem.count, problem.test, problem.x0, problem.model


def _counts(part: Estimator, given: Given) -> None:
    """Check the memory's count of gradients: one or more per record if it reads the data, else none."""
    _, hp = _numbers(part, given)
    memory, x, key = part.memory, jnp.ones(D) / 3, jax.random.key(given.seed)
    ways: dict[str, Callable[[Problem], Any]] = {
        "init": lambda p: (
            *memory.init(p, x, hp, False, "exact")[:3],
            memory.init(p, x, hp, False, "exact").gradients,
        )
    }
    start = memory.init(_problem(), x, hp, False, "exact")
    for name in ("begin", "refresh"):
        update = getattr(memory, name)
        if update is not None:
            ways[name] = functools.partial(_update, update, key, start, x + 1, hp)
    for name, way in ways.items():
        (*one, count), (*other, _) = way(_problem()), way(_problem(9.0))
        reads = not _same(one, other)
        confirm(
            int(count) >= M if reads else int(count) == 0,
            f"The {name} of the estimator {part.name!r} {'reads' if reads else 'does not read'} the "
            f"{M} records of a client, and counts {int(count)} gradients",
        )


def _update(
    update: Any, key: Key, start: Any, x: Array, hp: Hyper, problem: Problem
) -> tuple[Any, ...]:
    found: tuple[Any, ...] = update(key, start.shared, start.base, x, problem, hp)
    return found


def _estimator_jit(part: Estimator, given: Given) -> None:
    """Gradients are the same with and without ``jit``, together and alone."""
    (_, hp), problem, keys = _numbers(part, given), _problem(), given.keys(2)
    batch, weight = jax.tree.map(lambda a: a[0], problem.train), jnp.full(M, 1 / M)
    shared = part.memory.init(problem, _start(), hp, False, "exact").shared
    hp = paced(part.pace, streams(keys[0]), jnp.int32(0), hp)

    def one(key: Key) -> Array:
        x = jax.random.normal(key, (D,))
        return evaluated(at_point(part.gradient, problem.model, shared, x, hp), weight, batch, key)[
            0
        ]

    what = f"Gradients of {part.name!r} with jit and vmap, and without"
    equal(_drawn(one)(keys)[0], one(keys[0]), what)


# --- local procedures ----------------------------------------------------------------------------


def _ran(part: Local, given: Given, problem: Problem, **more: Any) -> Callable[[Key], Any]:
    """(g, memory, gradients) of the first client's procedure in its first and second turn, by key."""
    caps = {name: int(given.numbers[name]) for name in ("local_steps",) if name in given.numbers}
    hp = hyper(part, {"clip": 1.0, "batch": 4, "sigma": 0.0, **given.numbers, **more})
    hp = Hyper(hp.values, tuple(sorted({"batch": M, **caps}.items())))
    x = _start()
    shared, memory = part.init(problem, x)

    def take(rows: Draw) -> Any:
        each = (
            (lambda a: a[0])
            if rows.index is None
            else (lambda a: a[0].at[rows.index].get(mode="clip"))
        )
        return jax.tree.map(each, problem.train)

    def one(key: Key) -> Any:
        own, out = jax.tree.map(lambda a: a[0], memory), list[Any]()
        for turn in jax.random.split(key):
            noise, points = jax.random.split(turn)
            client = Client(key, noise, points, problem.count[0], take)
            found = part.run(client, x, shared, own, problem, hp)
            own, out = found[1], [*out, found]
        return out

    return one


def _bound(part: Local, given: Given) -> None:
    """Without its noise, a report of the longest records is no longer than ``message_bound`` says."""
    values = {"clip": 1.0, "batch": 4, "sigma": 0.0, "rounds": 2, "slots": M, **given.numbers}
    bound = part.message_bound(values)
    if bound is None:
        return
    norm, std = bound
    quiet = {} if std == 0 else {"sigma": 0.0}
    zeros = canary_problem(1, M, D, False)
    ones = Problem((jnp.full((1, M, D), LENGTH),), *_rest(zeros))
    one = _ran(part, given, ones, **quiet)
    found = _drawn(one)(given.keys(KEYS))
    longest = max(float(jnp.linalg.norm(g, axis=1).max()) for g, *_ in found)
    said = f"The message_bound of the local procedure {part.name!r}"
    confirm(
        longest <= norm * (1 + 1e-3), f"{said} is {norm:.4g}, and a report has norm {longest:.4g}"
    )
    if std > 0:
        noise = np.asarray(_drawn(_ran(part, given, zeros))(given.keys())[0][0])
        spread = float(noise.std())
        sure = abs(spread / std - 1) < ERRORS / np.sqrt(2 * noise.size)
        confirm(sure, f"{said} has noise of {std:.4g}, and that of a report is {spread:.4g}")


def _local_counts(part: Local, given: Given) -> None:
    """Shapes stay, a report that reads records counts gradients, and ``jit`` changes nothing."""
    keys = given.keys(2)
    (one, far) = (_ran(part, given, _problem(factor)) for factor in (1.0, 9.0))
    first, second = one(keys[0])
    g, _, gradients = first
    said = f"The local procedure {part.name!r}"
    shapes = [jax.tree.map(jnp.shape, turn) for turn in (first, second)]
    confirm(g.shape == (D,) and shapes[0] == shapes[1], f"{said} reports {g.shape} for {(D,)}")
    reads = not np.array_equal(g, far(keys[0])[0][0])
    words = (
        f"{said} {'reads' if reads else 'reads no'} records, and counts {int(gradients)} gradients"
    )
    confirm((int(gradients) > 0) == reads, words)
    together = _drawn(one)(keys)[0][0]
    equal(together[0], g, f"Reports of {part.name!r} with jit and vmap, and without")


def _gradients(problem: Problem, given: Given) -> None:
    """Gradients and clipped sums are those of ``vmap(grad)``."""
    kernels.kernel(problem)


CHECKS: dict[type, dict[str, Callable[[Any, Given], str | None]]] = {
    Estimator: {"mean": _mean, "reach": _reach, "counts": _counts, "jit": _estimator_jit},
    Local: {"bound": _bound, "counts": _local_counts},
    Problem: {"gradients": _gradients},
}
