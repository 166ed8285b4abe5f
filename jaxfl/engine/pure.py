"""Rounds as pure functions, for a loop of one's own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxfl.algorithms.composition import by_messages
from jaxfl.algorithms.registry import one_algorithm
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.core.checks import one_key, one_problem
from jaxfl.core.errors import InputError, shown
from jaxfl.core.params import whole
from jaxfl.core.types import Algorithm, Array, Hyper, Info, Key, Problem, State
from jaxfl.data import samples
from jaxfl.engine.memory import check_room
from jaxfl.engine.record import dtype
from jaxfl.problems.facts import facts_of
from jaxfl.rounds.federated import Federated
from jaxfl.rounds.messages import Seen

__all__ = ["Course", "Functions", "functions"]


class Course(NamedTuple):
    """A run on its way: what the next round needs."""

    key: Key  # the run's, the same in every round
    state: State


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    """What :func:`functions` returns.

    It is a pytree of data and numbers: a jitted function that takes it as an argument is compiled
    without the data in its program, and ``hp`` may be mapped over.
    """

    algorithm: Algorithm = dataclasses.field(metadata={"static": True})
    problem: Problem
    hp: Hyper  # the numbers that rounds read

    def init(self, key: Key) -> Course:
        """The run with this key, before its first round."""
        key = one_key(key, "a run", "and vmap(init) an array of them")
        state, _ = _compiled(self.algorithm.init, key, self.problem, self.hp)
        return Course(key, state)

    def round(self, course: Course, nothing: None = None) -> tuple[Course, Info]:
        """The next round, and what it counted; ``lax.scan`` takes it as it is.

        A round takes no key: each of its draws follows from the run's key and its own number.
        """
        if nothing is not None:
            raise InputError(
                "A round takes no key and no other input: its draws follow from the key that init was "
                "given. Leave it out, as in jax.lax.scan(f.round, f.init(key), length=rounds)."
            )
        course = _one_course(course)
        state, info = _compiled(
            self.algorithm.round, course.key, course.state, self.problem, self.hp
        )
        return Course(course.key, state), info

    def output(self, course: Course) -> Array:
        """The model, a vector; ``problem.model.unravel`` makes parameters of it."""
        x: Array = _compiled(self.algorithm.output, _one_course(course).state)
        return x

    def view(self, course: Course) -> Seen:
        """What clients send in the round that comes next, and what it is made of."""
        course, body = _one_course(course), self.algorithm.body
        if not isinstance(body, Federated):
            raise InputError(f"{self.algorithm.name} has no server that sees messages.")
        if body.fused:
            raise InputError(
                f"A round of {self.algorithm.name} adds up what clients compute without their messages: "
                "make the functions with messages=True."
            )
        seen: Seen = _compiled(body.view, course.key, course.state, self.problem, self.hp)
        return seen


def functions(
    algorithm: Algorithm | str,
    problem: Problem,
    rounds: int | None = None,
    *,
    noise: str = "calibrated",
    messages: bool = False,
    **numbers: Any,
) -> Functions:
    """The rounds of :func:`jaxfl.simulate` as functions, for one's own ``jit``, ``vmap`` or ``scan``.

    Arguments are those of ``simulate``: ``rounds`` is what noise and schedules are planned for.  The
    key that ``init`` takes is the run's: each draw follows from it, its purpose, its client and the
    number of the round.  Nothing is to be split, and a loop gives the numbers of ``simulate``.
    With ``messages`` clients send one by one also where only the mean matters, so that
    ``view`` has something to see; such rounds draw each client's noise, and take longer.

    >>> import jax, jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> f = jaxfl.functions("soteriafl_gd", problem, rounds=10, eps=8, omega=3, lr=0.5)
    >>> end, counts = jax.lax.scan(f.round, f.init(jax.random.key(0)), length=10)
    >>> run = jaxfl.simulate("soteriafl_gd", problem, jax.random.key(0), 10, eps=8, omega=3, lr=0.5)
    >>> bool((f.output(end) == run.x).all()), f.view(end).messages.shape
    (True, (5, 650))
    """
    algorithm, problem = one_algorithm(algorithm), one_problem(problem)
    if messages:
        algorithm = by_messages(algorithm)
    facts = facts_of(problem, None if rounds is None else whole("rounds", rounds, 1))
    values = resolve(algorithm, numbers, facts, noise).values
    facts = facts._replace(rounds=int(values["rounds"]))
    hp = build(algorithm, values, facts, dtype(problem))
    check_room(algorithm, problem, hp)
    return Functions(algorithm, samples.measured(problem), hp)


@functools.partial(jax.jit, static_argnums=0)
def _compiled(f: Callable[..., Any], *args: Any) -> Any:
    return f(*args)


def _one_course(value: Any) -> Course:
    if not isinstance(value, Course):
        raise InputError(
            f"{shown(value)} is not on its way: a round takes what init, or the round before, returned."
        )
    return value
