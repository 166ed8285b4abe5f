"""Bugs that change a privacy guarantee without changing a curve, each planted and each caught.

A check returns whether the algorithm passes.  It has to pass without the bug and fail with it.
Bugs of a single client's release are planted in ``test_audit.py`` (noise before clipping, clipping after
averaging, the realised batch size as normaliser, a bound of G for 2G, one key for all rounds).
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_problem
from test_rounds import scale_is, steps

import jaxfl
from jaxfl import messages, rounds
from jaxfl.algorithms import soteriafl
from jaxfl.blocks import streams
from jaxfl.sampling import participation
from jaxfl.types import Draw

Check = Callable[[], bool]
SIGMA, LR = 0.7, 0.5
FRESH = itertools.count(700)  # another chunk is another program: nothing compiled is found again


def noise(name: str, keys: int = 500, **numbers: float) -> np.ndarray:
    """The noise of one step over many seeds, on every coordinate."""
    problem, algorithm = a_problem(), jaxfl.algorithm(name)
    seeds = jax.random.split(jax.random.key(3), keys)
    numbers = {"lr": LR, "clip": 1.0, **numbers}
    noisy = steps(algorithm, problem, seeds, sigma=SIGMA, **numbers)
    return noisy - steps(algorithm, problem, seeds, sigma=0.0, **numbers)


def noise_of_the_mean() -> bool:
    return scale_is(noise("ldp_gd"), LR * SIGMA / np.sqrt(5))


def noise_of_messages() -> bool:
    return scale_is(noise("cdp_gd", k=8), LR * SIGMA / np.sqrt(5))


def compression_is_unbiased() -> bool:
    """The mean step over masks is the step without compression."""
    problem, numbers = a_problem(), {"lr": 1.0, "clip": 1.0, "sigma": 0.0}
    seeds = jax.random.split(jax.random.key(3), 3000)
    moved = steps(jaxfl.algorithm("cdp_gd"), problem, seeds, k=2, **numbers)
    plain = steps(jaxfl.algorithm("ldp_gd"), problem, seeds[:1], **numbers)[0]
    error = moved.std(0) / np.sqrt(len(seeds)) + 1e-6
    return bool((np.abs(moved.mean(0) - plain) < 5 * error).all())


def shifts_add_up() -> bool:
    """s = mean_i s_i with three of five clients taking part."""
    algorithm = jaxfl.algorithm("soteriafl_gd", participation=participation("uniform"))
    numbers = {"lr": 0.1, "clip": 1.0, "sigma": 0.1, "cohort": 3, "k": 4}
    key = jax.random.key(0)
    state = jaxfl.simulate(algorithm, a_problem(), key, 10, chunk=next(FRESH), **numbers).state
    return bool(np.abs(np.asarray(state.link) - np.mean(state.links, axis=0)).max() < 1e-5)


def no_key_serves_twice() -> bool:
    """Streams, and the keys of noise and mask of all clients over some rounds, all differ."""
    keys = streams(jax.random.key(0))
    made = [messages.client_keys([keys.noise, keys.mask], jnp.arange(5), t) for t in range(4)]
    words = [jax.random.key_data(k).reshape(-1, 2) for k in (*made, *keys)]
    every = np.concatenate(words)
    return len(np.unique(every, axis=0)) == len(every)


def every_release_is_accounted_for() -> bool:
    """The event counts as many releases as messages were sent by each client."""
    run = jaxfl.simulate("ldp_gd", a_problem(), jax.random.key(0), 13, sigma=1.0, lr=0.1)
    parts = run.algorithm.event(run.values, run.facts).events
    return all(part.releases == run.totals["clients"] / run.problem.n == 13 for part in parts)


def twice_the_mean(patch: pytest.MonkeyPatch) -> None:
    honest = messages.noise_of_mean
    patch.setattr(
        messages,
        "noise_of_mean",
        lambda mechanism, turn, like: (
            honest(mechanism, turn, like) / np.sqrt(turn.cohort.weight.size)
        ),
    )


def one_noise_for_all(patch: pytest.MonkeyPatch) -> None:
    honest = messages.client_keys
    patch.setattr(
        messages,
        "client_keys",
        lambda streams, index, t: honest(streams, jnp.zeros_like(index), t),
    )


def one_key_for_both(patch: pytest.MonkeyPatch) -> None:
    honest = messages.client_keys
    patch.setattr(
        messages, "client_keys", lambda streams, index, t: honest([streams[0]] * 2, index, t)
    )


def mask_without_scale(patch: pytest.MonkeyPatch) -> None:
    honest = messages.release

    def release(mechanism, compressor, noise, mask, v, t, hp):
        select = compressor.select

        def unscaled(key, d, hp):
            chosen = select(key, d, hp)
            return Draw(chosen.index, (chosen.weight != 0).astype(chosen.weight.dtype))

        plain = compressor._replace(select=unscaled)
        return honest(mechanism, plain, noise, mask, v, t, hp)

    patch.setattr(messages, "release", release)


def absent_shifts_move(patch: pytest.MonkeyPatch) -> None:
    honest = rounds.put

    def put(cohort, old, new):
        kept = honest(cohort, old, new)
        return jax.tree.map(lambda a: a + 0.01 * a.mean(0, keepdims=True), kept)

    patch.setattr(rounds, "put", put)


def one_round_forgotten(patch: pytest.MonkeyPatch) -> None:
    honest = rounds.Federated.event
    patch.setattr(
        rounds.Federated,
        "event",
        lambda self, values, facts: honest(
            self, {**values, "rounds": int(values["rounds"]) - 1}, facts
        ),
    )


PLANTED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Check]] = {
    "noise scaled by 1/sqrt(n) twice": (twice_the_mean, noise_of_the_mean),
    "same noise for all clients": (one_noise_for_all, noise_of_messages),
    "same key for noise and mask": (one_key_for_both, no_key_serves_twice),
    "mask scale forgotten": (mask_without_scale, compression_is_unbiased),
    "shift moved for inactive clients": (absent_shifts_move, shifts_add_up),
    "T off by one": (one_round_forgotten, every_release_is_accounted_for),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, check = PLANTED[bug]
    assert check()
    plant(monkeypatch)
    soteriafl._algorithm.cache_clear()  # cached algorithms would hide the bug, or keep it
    caught = not check()
    monkeypatch.undo()
    soteriafl._algorithm.cache_clear()
    assert caught
