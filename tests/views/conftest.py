"""One run that views show."""

import jax
import pytest
from rows import a_problem

import jaxfl


@pytest.fixture(scope="session")
def a_run() -> jaxfl.Run:
    numbers = {"batch": 4, "k": 3, "lr": 0.3, "eps": 20.0}
    return jaxfl.simulate("soteriafl_sgd", a_problem(), jax.random.key(0), 24, **numbers)
