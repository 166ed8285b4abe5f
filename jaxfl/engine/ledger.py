"""The privacy cost of each client of a run: the rounds in which it took part, and its eps.

Participation depends on the run's key alone, and can be drawn again.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.algorithms.resolution import build
from jaxfl.core.errors import InputError
from jaxfl.core.hosts import on_host
from jaxfl.core.types import Clients
from jaxfl.engine.runs import Record
from jaxfl.privacy.accountants import STATUS, epsilon
from jaxfl.privacy.claims import above
from jaxfl.privacy.events import Stated, Status, Unproven, plain_events
from jaxfl.privacy.gaussian import Floats, check_delta
from jaxfl.problems.identity import dtype

__all__ = ["Ledger", "differing", "ledger", "spread", "turns"]

Ints: TypeAlias = npt.NDArray[np.int64]
AT_ONCE = 1024  # rounds whose cohorts are drawn together
PUBLISH = "; publish this largest eps, which holds for every client"
KNOWN = " (the rounds of a client count as known: drawing clients at random amplifies nothing)"
KINDS = 64  # of clients, by rounds and samples: each needs an accountant


class Ledger(NamedTuple):
    """One value per client; infinite where nothing is proven."""

    turns: Ints  # C_i, the rounds in which client i took part
    proven: Floats  # its eps by the accountant
    claimed: Floats | None  # by the paper's formula, for C_i where the formula has it
    delta: float
    method: str  # of the proof for the worst client
    status: str
    clients: Clients = Clients()
    planned: int | None = None  # rounds that eps counts, where a release ended the run before them

    @property
    def worst(self) -> int:
        """The client with the largest proven eps."""
        return int(np.argmax(self.proven))

    @property
    def alike(self) -> bool:
        """Whether all clients spent the same."""
        low, high = self.proven.min(), self.proven.max()
        return bool(low == high or high - low <= 1e-9 * high)

    def __str__(self) -> str:
        shares = spread(self.turns, self.proven, self.claimed, self.clients, self.planned)
        how = f"{self.method} ({STATUS[self.status]})" if self.status else self.method
        return f"{self.turns.size} clients, {shares}; delta = {above(self.delta):.4g}, {how}"


def spread(
    turns: Ints,
    proven: Floats,
    claimed: Floats | None,
    clients: Clients,
    planned: int | None = None,
) -> str:
    """Describe what clients spent: the range of rounds and of eps, and the worst client.

    ``planned`` rounds count for eps, where a release ended the run before them.
    """
    i = int(np.argmax(proven))
    apart = bool(proven.min() < proven.max())
    low, middle, high = map(above, (proven.min(), float(np.median(proven)), proven.max()))
    of = "" if planned is None else f" of all {planned} planned rounds"
    claim = "" if claimed is None else f", claimed {claimed[i]:.4g}"
    return (
        f"in {between(turns)} each: proven eps{of} {low:.4g} to {high:.4g}, median {middle:.4g}; "
        f"the worst is client {clients.name(i)} with {int(turns[i])} rounds{claim}"
        + PUBLISH * apart
        + KNOWN * bool(apart and np.ptp(turns) > 0)
    )


def between(turns: Ints) -> str:
    """The range of the numbers of rounds, in words."""
    low, high = int(turns.min()), int(turns.max())
    return f"{low} to {high} rounds" if low < high else f"{low} round" + "s" * (low != 1)


def turns(run: Record, rounds: int | None = None) -> Ints:
    """The number of the rounds (default: those that ran) in which each client takes part, exactly."""
    algorithm, n = run.algorithm, run.facts.n
    draw = algorithm.cohort
    unknown = f"{algorithm.name} does not say who takes part in a round"
    if draw is None:
        raise InputError(unknown, "compose it of parts")
    hp = build(algorithm, run.values, run.facts, dtype(run.problem))

    @jax.jit
    def count(first: jax.Array, T: jax.Array) -> jax.Array:
        def one(t: jax.Array) -> jax.Array:
            cohort = draw(run.key, t, n, hp.at(t))
            live = ((cohort.weight > 0) & (t < T)).astype(jnp.int32)
            if cohort.index is None:
                return live
            return jnp.zeros(n, jnp.int32).at[cohort.index].add(live, mode="drop")

        return jnp.sum(jax.lax.map(one, first + jnp.arange(AT_ONCE)), axis=0)

    T = int(run.state.t) if rounds is None else rounds
    total = np.zeros(n, np.int64)
    for first in range(0, T, AT_ONCE):
        total += np.asarray(count(jnp.int32(first), jnp.int32(T)), np.int64)
    return total


def multiples(run: Record) -> tuple[float, ...]:
    """The multiple of each client's noise."""
    body = run.algorithm.body
    return (() if body is None else body.mechanism.multiples) or (1.0,) * run.facts.n


def ledger(run: Record, delta: float | None = None, method: str | None = None) -> Ledger:
    """eps_i of each client for its C_i and its number of samples, for the rounds that count."""
    delta = check_delta(run.delta if delta is None else delta)
    counted = turns(run, run.counted)
    kind = functools.cache(functools.partial(_of_one, run, delta, method))
    found = list(map(kind, counted.tolist(), on_host(run.problem.count).tolist(), multiples(run)))
    proven, claimed = (np.array([one[i] for one in found]) for i in (0, 3))
    _, how, status, _ = found[int(np.argmax(proven))]
    has_claim = run.algorithm.cited and not np.isnan(claimed).any()
    whole = run.counted == int(run.state.t)
    took_part, planned = (counted, None) if whole else (turns(run), run.counted)
    said = claimed if has_claim else None
    return Ledger(took_part, proven, said, delta, how, status, run.problem.clients, planned)


def differing(run: Record) -> Ledger | None:
    """The ledger, if clients spent differently and it is cheap to compute.

    None if all clients took part in every round with the same number of samples, if the unit of
    privacy is a client, and for more than :data:`KINDS` kinds of clients: then use :func:`ledger`.
    """
    body = run.algorithm.body
    everyone = body is not None and body.participation.everyone
    own = len({*multiples(run)}) > 1
    if run.algorithm.cohort is None or (everyone and len(run.facts.sizes) == 1 and not own):
        return None
    event = run.algorithm.event(run.values, run.facts) if run.algorithm.event else None
    if getattr(event, "unit", "record") == "client" and not own:
        return None
    counts = turns(run, run.counted).tolist(), on_host(run.problem.count).tolist(), multiples(run)
    if len(set(zip(*counts, strict=True))) > KINDS:
        return None
    found = ledger(run)
    return None if found.alike else found


def _of_one(
    run: Record, delta: float, method: str | None, C: int, m: int, multiple: float
) -> tuple[float, str, str, float]:
    """The eps of a client with m records in C rounds, its proof and status, and the eps that is claimed."""
    facts = run.facts._replace(m=m, sizes=(m,))
    values = {**run.values, "rounds": run.counted, "turns": C, "delta": delta}
    event = run.event_of(run.counted, facts, turns=C, delta=delta, multiple=multiple)
    hidden = any(one.unit == "client" for one in plain_events(event))
    counts = isinstance(event, Unproven) or hidden or run.settings.get("stop")
    if C == 0 and not counts:
        # Where whole clients are protected, participation is too: these are counted below.
        status = event.status if isinstance(event, Stated) else Status.ESTABLISHED
        return 0.0, "never took part", status, 0.0
    proof = epsilon(event, delta, method)
    claim = run.algorithm.claim(values, facts)
    return proof.eps, proof.method, proof.status, math.nan if claim is None else float(claim.eps)
