"""Rounds as pure functions, for the user's own loop."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.composition import by_messages, in_plain
from jaxfl.algorithms.probes import probed
from jaxfl.algorithms.registry import one_algorithm
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.algorithms.traced import split, traced_values
from jaxfl.algorithms.trial import tried
from jaxfl.core.calls import alike
from jaxfl.core.checks import one_key, one_path, one_problem, untraced
from jaxfl.core.errors import InputError, require, shown
from jaxfl.core.files import arrays, reading, replace
from jaxfl.core.foreign import CALM
from jaxfl.core.hosts import on_host
from jaxfl.core.meshes import own_settings
from jaxfl.core.params import only, whole
from jaxfl.core.types import (
    Algorithm,
    Array,
    Hyper,
    Info,
    Key,
    Problem,
    ProblemFacts,
    Source,
    State,
)
from jaxfl.data import samples
from jaxfl.engine.checkpoint import plain_array
from jaxfl.engine.log import Entry, Log
from jaxfl.engine.memory import check_room
from jaxfl.engine.program import home_of, of_clients
from jaxfl.engine.runs import Reached, Record
from jaxfl.privacy.reports import Report
from jaxfl.problems.facts import facts_of
from jaxfl.problems.identity import dtype
from jaxfl.rounds.messages import Seen

ROOM = 1 << 20  # bytes of names and headers, at most

__all__ = ["Functions", "RunState", "functions"]


class RunState(NamedTuple):
    """The state of a run between rounds, with its key."""

    key: Key  # of the run, the same in every round
    state: State


class _About(NamedTuple):
    """The values that statements of privacy read; programs do not depend on them."""

    values: dict[str, Any]
    sources: dict[str, Source]
    facts: ProblemFacts

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _About)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    """The rounds of an algorithm on a problem as pure functions, which :func:`functions` returns.

    It is a pytree of data and hyper-parameters: a jitted function that takes it as an argument does
    not hold the data as constants, and ``hp`` may be mapped over.
    """

    algorithm: Algorithm = dataclasses.field(metadata={"static": True})
    problem: Problem
    hp: Hyper  # the hyper-parameters that rounds read
    about: _About = dataclasses.field(metadata={"static": True}, repr=False)
    traced: tuple[str, ...] = dataclasses.field(default=(), metadata={"static": True})

    def init(self, key: Key, seed: int = 0) -> RunState:
        """The state before the first round of the run that ``simulate`` makes with this key and seed."""
        key = one_key(key, "a run", "and vmap(init) an array of them")
        home = home_of(self.problem)
        with own_settings(self.problem, self.hp) as put:
            key = jax.random.fold_in(put(key), seed)
            arguments = key, self.problem, self.hp
            if home is None:
                state, _ = jax.jit(self.algorithm.init)(*arguments)
            else:  # what clients remember lies where their data do
                shape, _ = jax.eval_shape(self.algorithm.init, *arguments)
                where = of_clients(home, shape), None
                state, _ = jax.jit(self.algorithm.init, out_shardings=where)(*arguments)
        return RunState(key, state)

    def privacy(
        self, rounds: int, delta: float | None = None, *, clamped: int | None = None
    ) -> Report:
        """Report the claimed and the proven eps of the first ``rounds`` rounds, if they are finite.

        Under a secure sum ``clamped`` is the sum of ``counts.clamped`` over these rounds.  Without it
        nothing is assumed of it, and the proof is that of a plain sum.
        """
        untraced("f.privacy", self, way="state it for numbers, outside of the program")
        require(
            not self.traced,
            lambda: f"{' and '.join(self.traced)} had no value when these functions were made",
            "make functions of numbers, and state their privacy",
        )
        known, t = self.about, whole("rounds", rounds, 1)
        made = build(self.algorithm, known.values, known.facts, dtype(self.problem))
        now = self.hp.values
        other = [n for n, a in made.values.items() if not np.array_equal(a, now.get(n, ()))]
        require(
            not other,
            lambda: f"hp holds another {' and '.join(other)} than these functions were made with",
            "make functions of the numbers that rounds read",
        )
        aggregation = getattr(self.algorithm.body, "aggregation", None)
        if clamped is None:  # a sum hides its messages as long as no coordinate is clamped
            clamped = int(aggregation is not None and bool(aggregation.hides))
        clamped = whole("clamped", clamped, 0)
        state = Reached(jnp.int32(t))
        proof = probed(self.algorithm, self.problem, [known.values], known.facts.d)
        settings = {"proof": list(proof)}
        log, key = Log([Entry(t, {}, {"clamped": clamped})]), jax.random.key(0)
        record = Record(
            self.algorithm, self.problem, key, *known, state=state, log=log, settings=settings
        )
        return record.privacy(delta)

    def save(self, run: RunState, path: str | Path) -> None:
        """Write the state to one file; of several processes all call this, and the first one writes."""
        run = _check_run_state(run)
        leaves = [jax.random.key_data(run.key), *jax.tree.leaves(run.state)]
        found = {f"state{i}": plain_array(on_host(leaf)) for i, leaf in enumerate(leaves)}
        if jax.process_index() == 0:
            replace(
                one_path("path", path), lambda file: np.savez(file, allow_pickle=False, **found)
            )

    def load(self, path: str | Path, like: RunState) -> RunState:
        """Read a state that :meth:`save` wrote, placed ``like`` that of :meth:`init`."""
        like, path = _check_run_state(like), one_path("path", path)
        with reading(path, "state of a run", "write it with save"):
            found = arrays(path, 2 * sum(a.nbytes for a in jax.tree.leaves(like)) + ROOM)
            leaves, tree = jax.tree.flatten((jax.random.key_data(like.key), like.state))
            saved = [found[f"state{i}"] for i in range(len(found))]
            kinds = [[(a.shape, a.dtype) for a in map(_stored, side)] for side in (saved, leaves)]
            way = "pass the state of the same algorithm and problem"
            require(kinds[0] == kinds[1], lambda: f"{path} holds another state", way)
            saved = [a.view(leaf.dtype) for a, leaf in zip(saved, leaves, strict=True)]
        placed = [_placed(a, leaf) for a, leaf in zip(saved, leaves, strict=True)]
        words, state = jax.tree.unflatten(tree, placed)
        return RunState(jax.random.wrap_key_data(words, impl=jax.random.key_impl(like.key)), state)

    def round(self, run: RunState, nothing: None = None) -> tuple[RunState, Info]:
        """Compute the next round; return the state and the round's counts, as ``lax.scan`` expects.

        A round takes no key: its draws follow from the run's key and the number of the round.
        """
        require(
            nothing is None,
            "A round takes no key and no other input, since its draws follow from the key given to init",
            "leave it out, as in jax.lax.scan(f.round, f.init(key), length=rounds)",
        )
        state, info = self._at(run, self.algorithm.round)
        return RunState(run.key, state), info

    def output(self, run: RunState) -> Array:
        """The model, a vector; ``problem.model.unravel`` makes parameters of it."""
        x: Array = self._at(run, self.algorithm.output)
        return x

    def view(self, run: RunState) -> Seen:
        """The messages that clients send in the next round, and the values they are computed from."""
        body = self.algorithm.body
        if body is None:
            raise InputError(f"Of the rounds of {self.algorithm.name} no messages are known.")
        require(
            not body.fused,
            lambda: (
                f"A round of {self.algorithm.name} computes the mean of the messages without them"
            ),
            "make the functions with messages=True",
        )
        seen: Seen = self._at(run, body.view)
        return seen

    def _at(self, run: RunState, f: Callable[..., Any]) -> Any:
        run = _check_run_state(run)
        with own_settings(run, self.problem, self.hp):
            return _of_state(f, self.algorithm, run, self.problem, self.hp)


@CALM
def functions(
    algorithm: Algorithm | str,
    problem: Problem,
    rounds: int | None = None,
    *,
    noise: str = "calibrated",
    messages: bool = False,
    plain: bool = False,
    **numbers: Any,
) -> Functions:
    """The rounds of :func:`jaxfl.simulate` as functions, for the user's own ``jit``, ``vmap`` or ``scan``.

    The arguments are those of ``simulate``; noise and schedules are planned for ``rounds``.  ``init``
    takes the key that ``simulate`` takes, and each draw follows from it, the seed, the purpose, the client
    and the number of the round.  Do not split the key; a loop then gives the results of ``simulate``.
    ``f.privacy(t)`` states what is proven of t rounds; of more than ``rounds`` it proves a larger eps than
    was asked for, and a loop gets no warning.  With ``messages`` each client's message is computed, for
    :meth:`Functions.view`, also where only their mean matters; such rounds draw each client's noise, and
    take longer.  ``plain`` rounds compute the same as the papers write it, one client at a time
    [:mod:`jaxfl.rounds.plain`]: read, print and change them.

    The key, and hyper-parameters that are no whole numbers, such as eps, sigma, lr or clip, may be traced
    by the user's ``jit``, ``vmap`` or ``grad``, around ``functions`` too; what shapes follow from may not.
    What follows from them, such as sigma from eps, is computed by a callback to the host: the sigma
    of ``simulate``, rounded up, with derivatives by differences.  A float32 is read as the shortest decimal
    that it stands for.  Values that ``simulate`` refuses make the run NaN, with a warning.  Rounds have
    derivatives in both modes; where they round messages a sentence says so.

    For a grid take :func:`jaxfl.sweep`: its cells share their draws.  A ``vmap`` over ``functions`` draws
    for every cell, and takes several times as long.

    >>> import jax, jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> f = jaxfl.functions("soteriafl_gd", problem, rounds=10, eps=8, omega=3, lr=0.5)
    >>> end, counts = jax.lax.scan(f.round, f.init(jax.random.key(0)), length=10)
    >>> run = jaxfl.simulate("soteriafl_gd", problem, jax.random.key(0), 10, eps=8, omega=3, lr=0.5)
    >>> bool((f.output(end) == run.x).all()), f.view(end).messages.shape
    (True, (5, 650))
    >>> def loss(lr):
    ...     f = jaxfl.functions("soteriafl_gd", problem, rounds=10, eps=8, omega=3, lr=lr)
    ...     end, counts = jax.lax.scan(f.round, f.init(jax.random.key(0)), length=10)
    ...     return (f.output(end) ** 2).sum()
    >>> bool(jax.grad(loss)(0.5) > 0)
    True
    """
    algorithm, problem = one_algorithm(algorithm, numbers), one_problem(problem)
    only(numbers, algorithm.names, algorithm.name, functions)
    if messages:
        algorithm = by_messages(algorithm)
    if plain:
        algorithm = in_plain(algorithm)
    way = "make functions before, and pass them to your program, which may trace their problem"
    untraced("functions", problem, within=False, way=way)
    traced, known = split(algorithm, numbers)
    with own_settings(problem):
        with jax.ensure_compile_time_eval():  # within the user's jit, too
            facts = facts_of(problem, None if rounds is None else whole("rounds", rounds, 1))
            kind, measured = dtype(problem), samples.measured(problem)
            if not traced:
                values, sources = resolve(algorithm, numbers, facts, noise)
                planned = facts._replace(rounds=int(values["rounds"]))
                hp = build(algorithm, values, planned, kind)
                tried(algorithm, measured, values, planned)
        if traced:
            (values, sources), hp = traced_values(algorithm, known, traced, facts, noise, kind)
        facts = facts._replace(rounds=int(values["rounds"]))
        if "local_steps" in hp.values:  # so that a loop of local steps has a derivative
            hp = Hyper(hp.values, (*hp.capacity, ("local_steps", int(values["local_steps"]))))
        check_room(algorithm, problem, hp)
    return Functions(algorithm, measured, hp, _About(values, sources, facts), tuple(traced))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _of_state(
    f: Callable[..., Any], algorithm: Algorithm, run: RunState, problem: Problem, hp: Hyper
) -> Any:
    """A function of a state; raise, while it is traced, for the state of another algorithm."""
    wanted, _ = jax.eval_shape(algorithm.init, run.key, problem, hp)
    require(
        alike(run.state, wanted),
        lambda: f"The state is not that of a run of {algorithm.name} on this problem",
        "begin with f.init(key) of the same functions, and pass on what f.round returns",
    )
    alone = f is algorithm.output
    return f(run.state) if alone else f(run.key, run.state, problem, hp)


def _stored(leaf: Any) -> Any:
    """The shape and type in which files hold a leaf."""
    return jax.ShapeDtypeStruct(leaf.shape, np.uint16 if leaf.dtype == jnp.bfloat16 else leaf.dtype)


def _placed(a: np.ndarray, like: Array) -> Array:
    """An array where ``like`` is; anywhere if that may be moved, as keys are to the devices of the data."""
    if not like.committed:
        return jnp.asarray(a)
    return jax.make_array_from_callback(like.shape, like.sharding, a.__getitem__)


def _check_run_state(value: Any) -> RunState:
    made = "pass what init, or the round before, returned"
    require(isinstance(value, RunState), lambda: f"{shown(value)} is not the state of a run", made)
    return value  # type: ignore[no-any-return]
