"""One evaluator: a smoothed gradient is the same for a server, over a network, and in local steps."""

from typing import Any

import jax
import numpy as np
import pytest
from planned import federated
from rows import a_problem

import jaxfl
from jaxfl import estimators, mechanisms, sampling
from jaxfl.algorithms import compose, plain
from jaxfl.parts import compressors, graphs, local, servers, smoothing
from jaxfl.rounds import Gossip, gossip

T = 3
NUMBERS = {"clip": 0.6, "lr": 0.2, "batch": 4, "moreau": 0.5, "spread": 1.5, "omega": 0.0}


def moved(body: Any, key: jax.Array, rounds: int = T, **numbers: float) -> np.ndarray:
    names = {p.name for part in body.roles.values() for p in getattr(part, "params", ())}
    given = {k: v for k, v in {**NUMBERS, **numbers}.items() if k in (*names, "omega")}
    algorithm = compose("mine", "", "", body, plain(**given))
    f = jaxfl.functions(algorithm, a_problem(), rounds=rounds)
    end, _ = jax.lax.scan(f.round, f.init(key), length=rounds)
    return np.asarray(f.output(end))


@pytest.mark.plain
@pytest.mark.parametrize("smooth", [smoothing.moreau, smoothing.convolution])
def test_smoothing_is_the_same_everywhere(smooth, key):
    usual = estimators.minibatch(sampling.poisson())
    estimator, silent = smooth(usual), mechanisms.noiseless()
    served = moved(federated(estimator=estimator, mechanism=silent), key)
    assert not np.allclose(
        served, moved(federated(estimator=usual, mechanism=silent), key), rtol=1e-3
    )
    nodes = Gossip(estimator, silent, compressors.identity(), gossip.averaging(), graphs.complete())
    np.testing.assert_allclose(moved(nodes, key), served, rtol=2e-5, atol=2e-6)
    if smooth is smoothing.moreau:  # displacements have a draw for each local step
        steps = local.steps(estimator, silent, local.free())
        body = federated(estimator=estimator, mechanism=silent, local=steps)
        body = body._replace(server=servers.descent())
        one = moved(body, key, rounds=1, local_steps=1, lr=0.2)
        step = moved(federated(estimator=estimator, mechanism=silent), key, rounds=1)
        x0 = np.asarray(jaxfl.functions("fedgd", a_problem(), rounds=1).init(key).state.server[0])
        np.testing.assert_allclose(one - x0, 0.2 * (step - x0), rtol=1e-4, atol=1e-6)
