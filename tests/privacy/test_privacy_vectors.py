"""Every vector of ``vectors/privacy.json`` within its own tolerance, and any that is added to it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from vectors import answers, question

from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import Event, Sampling, svrg

pytestmark = pytest.mark.once

Vector = dict[str, Any]

# What a vector states that this package computes; the rest describes how it was made.
NUMBERS = """
paper_sigma tight_sigma eps eps_at_paper_sigma delta_at_claimed_eps_paper_sigma delta mu
mu_exact_at_paper_sigma sigma_pair sigma_chain eps_pair_at_paper eps_chain_at_paper sigma_for_100
rho eps_no_secagg_same_sigma eps_cks eps_simple eps_unmasked eps_p_scaled_claim
eps_single_coordinate per_phase_eps rho_true rho_paper ratio q_hit eps_lower_at_delta
client_level_mu value
""".split()  # noqa: SIM905


@pytest.fixture(scope="session")
def vectors(shared_dir: Path) -> dict[str, Vector]:
    file = shared_dir / "vectors" / "privacy.json"
    if not file.is_file():
        pytest.skip(f"needs {file.name}, which is not in {file.parent}")
    return {v["id"]: v for v in json.loads(file.read_text())["vectors"]}


def check(vector: Vector) -> int:
    """Compare all numbers, and say how many there were."""
    found, tolerance, compared = answers(vector), vector["tolerance_rel"], 0
    for name in NUMBERS:
        stated = vector.get(name, vector["params"].get(name) if name == "q_hit" else None)
        if stated is None or stated == math.inf:  # infinity: the vector's accountant gave up
            continue
        assert name in found, f"{vector['id']}: {name} is not answered"
        of = f"{name} of {vector['id']}"
        assert found[name] == pytest.approx(stated, rel=tolerance, abs=1e-9), of
        compared += 1
    return compared


def test_vectors(vectors: dict[str, Vector]) -> None:
    assert len(vectors) >= 69
    for name, vector in vectors.items():
        assert check(vector) > 0, name


@pytest.mark.parametrize("name", ["svrg-a9a-eps1", "svrg-mnist-eps2", "svrg-half"])
def test_sharing_delta_well_is_never_worse(name: str, vectors: dict[str, Vector]) -> None:
    """The default chain bound against the vectors' own, and against what is realisable."""
    vector = vectors[name]
    _, params = question(vector)
    drawn = Sampling("poisson", params["samples"], params["batch"])
    event = Event(drawn, svrg(params["clip"]), vector["paper_sigma"], params["rounds"])
    best, fixed = (epsilon(event, params["delta"], m).eps for m in ("chain", "chain_fixed"))
    assert vector["eps_at_paper_lower"] < best <= fixed * (1 + 1e-4)
    assert best <= vector["eps_chain_at_paper"]
