"""One evaluator: a smoothed gradient is the same for a server, over a network, and in local steps."""

from typing import Any

import jax
import numpy as np
import pytest
from planned import federated
from rows import a_problem

import jaxfl
from jaxfl.parts import (
    Gossip,
    compose,
    compressors,
    estimators,
    graphs,
    local,
    mechanisms,
    plain,
    sampling,
    servers,
    smoothing,
)
from jaxfl.rounds import gossip

T = 3
NUMBERS = {"clip": 0.6, "lr": 0.2, "batch": 4, "moreau": 0.5, "spread": 1.5, "omega": 0.0}


def moved(body: Any, key: jax.Array, rounds: int = T, **numbers: float) -> np.ndarray:
    names = {p.name for part in body.roles.values() for p in getattr(part, "params", ())}
    given = {k: v for k, v in {**NUMBERS, **numbers}.items() if k in (*names, "omega")}
    algorithm = compose("mine", "", "", body, plain(**given))
    f = jaxfl.functions(algorithm, a_problem(), rounds=rounds)
    end, _ = jax.lax.scan(f.round, f.init(key), length=rounds)
    return np.asarray(f.output(end))


def served(estimator: Any) -> Any:
    return federated(estimator=estimator, mechanism=mechanisms.noiseless())


@pytest.mark.plain
@pytest.mark.parametrize("smooth", [smoothing.moreau, smoothing.convolution])
def test_smoothing_is_the_same_everywhere(smooth, key):
    usual = estimators.minibatch(sampling.poisson())
    estimator, silent = smooth(usual), mechanisms.noiseless()
    found = moved(served(estimator), key)
    assert not np.allclose(found, moved(served(usual), key), rtol=1e-3)
    nodes = Gossip(estimator, silent, compressors.identity(), gossip.averaging(), graphs.complete())
    np.testing.assert_allclose(moved(nodes, key), found, rtol=2e-5, atol=2e-6)


@pytest.mark.full
def test_a_local_step_is_smoothed_as_a_round(key):
    """Of displacements each local step has a draw of its own."""
    estimator = smoothing.moreau(estimators.minibatch(sampling.poisson()))
    steps = local.steps(estimator, mechanisms.noiseless(), local.free())
    body = served(estimator)._replace(local=steps, server=servers.descent())
    one = moved(body, key, rounds=1, local_steps=1, lr=0.2)
    step = moved(served(estimator), key, rounds=1)
    x0 = np.asarray(a_problem().x0)
    np.testing.assert_allclose(one - x0, 0.2 * (step - x0), rtol=1e-4, atol=1e-6)
