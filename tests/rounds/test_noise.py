"""The noise that rounds draw is the noise that the event states, in every round."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from planned import federated

import jaxfl
from jaxfl.core.schedules import schedule
from jaxfl.core.types import Mechanism, Param
from jaxfl.parts import (
    channels,
    compose,
    compressors,
    estimators,
    localization,
    mechanisms,
    plain,
    sampling,
)
from jaxfl.privacy.events import plain_events

T, D = 4, 4000
NUMBERS = {"clip": 1.0, "lr": 0.0001, "batch": 2, "sigma": 0.5}
ZETA = Mechanism("mine", lambda hp: 3 * hp["zeta"], (Param("zeta", "noise", schedule=True),))


def whole() -> Any:
    return estimators.minibatch(sampling.full())


def halved_at(t: Any, hp: Any) -> dict[str, Any]:
    return {"sigma": jnp.where(t < 2, hp["sigma"], hp["sigma"] / 2)}


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any], list[float]]] = {
    "gaussian": (lambda: {}, {}, [0.5] * T),
    "another multiple": (
        lambda: {"mechanism": mechanisms.gaussian()._replace(std=lambda hp: hp["sigma"] / 10)},
        {},
        [0.05] * T,
    ),
    "another name, by a schedule": (
        lambda: {"mechanism": ZETA},
        {"zeta": schedule("pieces:1,1,0.5,3")},
        [3.0, 1.5, 1.5, 1.5],
    ),
    "phases": (
        lambda: {"mechanism": localization.noised(mechanisms.gaussian())},
        {"noise_t": schedule("pieces:1,2,2,2")},
        [0.5, 0.5, 1.0, 1.0],
    ),
    "a pace": (
        lambda: {"estimator": whole()._replace(pace=lambda key, t, hp: halved_at(t, hp))},
        {},
        [0.5, 0.5, 0.25, 0.25],
    ),
    "coordinates that are selected": (
        lambda: {"compressor": compressors.random_k()},
        {"k": D},
        [0.5] * T,
    ),
    "kept on all coordinates": (lambda: {"channel": channels.error_feedback()}, {}, [0.5] * T),
}


def nothing_to_see() -> jaxfl.Problem:
    """All records are zero, and so are all gradients: messages are noise."""
    data = np.zeros((2, 4, D), np.float32), np.zeros((2, 4), np.int32)
    clients = jaxfl.data.from_clients(data, classes=2, stacked=True)
    return jaxfl.Problem(jaxfl.models.logistic(D), clients)


@pytest.mark.plain
@pytest.mark.parametrize("case", CASES)
def test_rounds_draw_the_noise_of_the_event(case, key):
    make, numbers, expected = CASES[case]
    body = federated(**{"estimator": whole(), **make()})._replace(messages=True)
    given = {**NUMBERS, **numbers}
    reads = tuple(numbers)
    algorithm = compose("mine", "", "", body, plain(omega=0.0, **given), reads=reads)
    f = jaxfl.functions(algorithm, nothing_to_see(), rounds=T)
    run, found = f.init(key), []
    for _ in range(T):
        found.append(float(np.std(f.view(run).messages)))
        run, _ = f.round(run)
    np.testing.assert_allclose(found, expected, rtol=0.05)
    event = algorithm.event(f.about.values, f.about.facts)
    stated = [part.sigma for part in plain_events(event) for _ in range(part.releases)]
    np.testing.assert_allclose(sorted(stated), sorted(expected), rtol=1e-6)


def event_of(numbers: dict[str, Any], **parts: Any) -> Any:
    body = federated(**{"estimator": whole(), **parts})
    algorithm = compose("mine", "", "", body, plain(omega=0.0, **{**NUMBERS, **numbers}))
    f = jaxfl.functions(algorithm, nothing_to_see(), rounds=T)
    return list(plain_events(algorithm.event(f.about.values, f.about.facts)))


def test_of_coordinates_the_least_noise_counts():
    uneven = lambda hp: hp["sigma"] * jnp.arange(1, D + 1)  # noqa: E731
    (event,) = event_of({}, mechanism=mechanisms.gaussian()._replace(std=uneven))
    assert (event.sigma, event.releases) == (0.5, T)


def test_a_client_takes_part_in_the_rounds_with_the_least_noise():
    """Nobody knows in which: each of two clients takes part in two of four rounds."""
    numbers = {"zeta": schedule("pieces:1,1,0.5,3"), "cohort": 1}
    (event,) = event_of(numbers, mechanism=ZETA, participation=sampling.balanced())
    assert (event.sigma, event.releases) == (1.5, 2)


def test_all_rounds_count_where_batches_differ():
    """The least noise need not be the worst round: a smaller batch moves more."""
    rows = estimators.minibatch(sampling.poisson())
    rows = rows._replace(pace=lambda key, t, hp: {"batch": jnp.where(t < 2, 1.0, 2.0)})
    found = event_of({"cohort": 1}, estimator=rows, participation=sampling.balanced())
    assert sorted((event.sampling.b, event.releases) for event in found) == [(1.0, 2), (2.0, 2)]


def test_noise_that_changes_amid_epochs_has_no_event():
    rows = estimators.minibatch(sampling.shuffled())
    assert not event_of({"zeta": schedule("pieces:1,1,0.5,3")}, mechanism=ZETA, estimator=rows)


def test_noise_that_vanishes_in_single_precision_is_refused():
    """Rounds would draw none, and in double precision an accountant would count it."""
    length = lambda hp: jnp.linalg.norm(jnp.stack([hp["sigma"], hp["sigma"]]))  # noqa: E731
    small = mechanisms.gaussian()._replace(std=length)
    assert event_of({"sigma": 1e-3}, mechanism=small)
    with pytest.raises(jaxfl.InputError, match="is 0 in single precision"):
        event_of({"sigma": 1e-24}, mechanism=small)


def test_several_noised_copies_of_a_message_are_refused(key):
    """A server of one's own could take their mean, which has less noise than the event counts."""
    twice = mechanisms.gaussian()._replace(std=lambda hp: hp["sigma"] * jnp.ones((2, D)))
    body = federated(estimator=whole(), mechanism=twice)._replace(messages=True)
    algorithm = compose("mine", "", "", body, plain(omega=0.0, **NUMBERS))
    with pytest.raises(jaxfl.InputError, match="one for each coordinate"):
        jaxfl.functions(algorithm, nothing_to_see(), rounds=T)
    each = twice._replace(std=lambda hp: hp["sigma"] * jnp.ones(D))  # of selected ones it is not
    body = body._replace(mechanism=each, compressor=compressors.random_k())
    algorithm = compose("mine", "", "", body, plain(k=7, **NUMBERS))
    with pytest.raises(jaxfl.InputError, match=r"7,. coordinates to noise"):
        jaxfl.functions(algorithm, nothing_to_see(), rounds=T)


def test_a_selection_reads_no_coordinate_twice():
    """A slot past the end would read the last one again, with noise of its own."""
    some = compressors.random_k()._replace(capacity=lambda values, facts: {"k": D + 1})
    body = federated(estimator=whole(), mechanism=mechanisms.gaussian(), compressor=some)
    algorithm = compose("mine", "", "", body, plain(k=7, **NUMBERS))
    with pytest.raises(jaxfl.InputError, match=f"{D + 1} slots, and there are {D} coordinates"):
        jaxfl.functions(algorithm, nothing_to_see(), rounds=T)
