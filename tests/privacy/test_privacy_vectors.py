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

IDS = """
gd-a9a-eps1 sot-gd-a9a-eps1 gd-a9a-eps5 gd-a9a-eps10 sot-gd-a9a-eps10 gd-generic-1 gd-generic-2
cdp-sgd-a9a-eps1-poisson cdp-sgd-a9a-eps1-wor cdp-sgd-a9a-eps1-wr cdp-sgd-a9a-eps5-poisson
cdp-sgd-a9a-eps5-wor cdp-sgd-a9a-eps5-wr cdp-sgd-mnist-eps1-poisson cdp-sgd-mnist-eps2-poisson
cdp-sgd-mnist-eps4-poisson cdp-sgd-mnist-eps2-wor sot-sgd-a9a-eps5-poisson
dpsgd-largebatch-poisson dpsgd-largebatch-wor dpsgd-largebatch-wr offbyone-T-plus-1 svrg-a9a-eps1
svrg-a9a-eps10 svrg-mnist-eps2 svrg-half saga-half svrg-wor-chain saga-reveal theoremK-numeric
batchclip-a9a-eps1 batchclip-a9a-eps1-lipschitz batchclip-a9a-eps10 batchclip-a9a-eps10-lipschitz
hu-nosecagg hu-secagg-tau1-round hu-secagg-convex hu-secagg-nonconvex-counterexample
hu-partial-epoch gao-phase1-wr gao-phase1-wor gao-conv-poisson gao-phase1-wr-eps5
gao-fullbatch-phase1 isrl-onepass-eps1 gao-parallel mu2-rho4 mu2-rho1 mu2-trusted rrpsgd-m100
dpsrm-1 dpsrm-distributed spider-poisson qdpsgd-a9a-eps1 sdm-mask-p05 gdp-mu1.0-eps1.0
gdp-mu0.5-eps2.0 zcdp-conv semantics-noise-multiplier audit-cp-1000-1000-0-1000
audit-cp-500-1000-10-1000 audit-cp-20-20-0-20 audit-onerun-1000-300-260 audit-onerun-1000-1000-800
audit-onerun-100-40-40 audit-sim-batchclip-eps1 audit-sim-record-eps1 audit-sim-record-eps5
audit-sim-batchclip-eps10
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
        assert found[name] == pytest.approx(stated, rel=tolerance, abs=1e-9), name
        compared += 1
    return compared


@pytest.mark.parametrize("name", IDS)
def test_vector(name: str, vectors: dict[str, Vector]) -> None:
    assert check(vectors[name]) > 0


def test_vectors_added_later(vectors: dict[str, Vector]) -> None:
    for name in vectors.keys() - {*IDS}:
        assert check(vectors[name]) > 0, name


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
