"""Write docs/audits.md: what attacks certify of each algorithm, beside what is proven.

``python docs/audits.py > docs/audits.md`` takes half an hour; with names of algorithms it prints their
rows alone.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import jax

import jaxfl
from jaxfl.algorithms.registry import ALGORITHMS, algorithm
from jaxfl.audit.attack import AuditResult, audit

EPS, DELTA, RUNS = 4.0, 1e-3, 20_000
TRUST = {
    "local_transcript": "local transcript",
    "secure_sum": "secure sum",
    "trusted_server": "trusted server",
    "single_node": "single node",
    "network": "network",
}


class Row(NamedTuple):
    """The setting of an audit, where it is not 20 rounds of batches of 5 of 50 records."""

    numbers: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    why: str = ""  # what is in the way where less than half is certified


RING = {"graph": jaxfl.graphs.ring()}
OF_TWO = {"batch": 25}  # an epoch has two rounds: the attack does not know the record's round
SNAPSHOT = {"batch": 25, "refresh": 1e-9, "turning": 1000}
RECURSION = {
    "turning": 2,
    "step_limit": 1e9,
    "anchor_batch": 10,
    "momentum": 0.3,
    "smoothness": 1e6,
    "difference_clip": 2.0,
}
LOOSE = "the proof adds up three bounds; the exact eps of this canary is 2.9"
HIDDEN = "the proof shows the record's draws, which the table hides; the exact eps of a canary of one sign is 1.4"
REPLACED = {"smoothness": 1e-3, "diameter": 1e6}
PHASES = {**REPLACED, "lam": 1e-3, "phases": 2, "m": 100}
PASS = {"diameter": 1e6, "smoothness": 1e-9, "m": 50}
ROWS: dict[str, Row] = {
    "soteriafl_svrg": Row({**SNAPSHOT, "k": 2}, why=LOOSE),
    "ldp_svrg": Row(SNAPSHOT, why=LOOSE),
    "soteriafl_saga": Row({"batch": 25}, why=HIDDEN),
    "private_local_sgd": Row({**OF_TWO, "local_steps": 1, "clients": 3}),
    "local_dp_sgd": Row(OF_TWO),
    "dp_fedavg": Row({**OF_TWO, "clients": 3}),
    "clip21_sgd2m": Row(OF_TWO),
    "dp_srm": Row(RECURSION),
    "distributed_dp_srm": Row({**RECURSION, "clients": 3}),
    "ldp_spider": Row({"turning": 2, "period": 5, "smoothness": 1e6}),
    "isrl_svrg": Row({"turning": 20, "epoch": 20, "noise_ratio": 0.1, "batch": 1}),
    **{name: Row(parts=RING, numbers={"clients": 4}) for name in ("dp_dsgd", "q_dpsgd_1")},
    "sdm_dsgd": Row({"clients": 4, "k": 1}, RING),
    "porter_dp": Row({"clients": 4, "k": 1}, RING),
    "mu2_trusted": Row({**PASS, "batch": 1, "clients": 3}),
    "mu2_untrusted": Row({**PASS, "batch": 1}),
    "noisy_mu2": Row({**PASS, "batch": 1}),
    "noisy_sgd": Row({"diameter": 1e6, "batch": 1}),
    "one_pass_mbsgd": Row({"rounds": 2, "batch": 25, "diameter": 1e6}),
    "one_pass_accelerated": Row({"rounds": 2, "batch": 25, "mu": 0.05, **REPLACED}),
    "multi_pass_mbsgd": Row({"diameter": 1e6}),
    "accelerated_mbsgd": Row({"mu": 1e-3, **REPLACED}),
    "multistage_accelerated": Row({"mu": 1e-3, **REPLACED}),
    "mb_subgradient": Row({"mu": 1e-3, "diameter": 1e6}),
    "localized_accelerated_mbsgd": Row(PHASES),
    "localized_convolution": Row({**PHASES, "spread": 1.5}),
    "localized_mbsgd": Row({**PHASES, "lr": 0.5}),
    "localized_nesterov": Row({**PHASES, "moreau": 3.0}),
    "localized_subgradient": Row(PHASES),
}


def private() -> list[str]:
    """All algorithms with noise."""
    return sorted(name for name in ALGORITHMS if "sigma" in algorithm(name).names)


def audited(name: str, runs: int = RUNS) -> AuditResult:
    """The audit of one row."""
    row = ROWS.get(name, Row())
    which = algorithm(name, **row.parts)
    given: dict[str, Any] = {"m": 50, "rounds": 20, "eps": EPS, "delta": DELTA, "runs": runs}
    if "batch" in which.names and name != "rrpsgd":
        given["batch"] = 5
    given = {k: v for k, v in (given | row.numbers).items() if k in which.names or k in AUDIT}
    return audit(which, key=jax.random.key(0), **given)


AUDIT = {"m", "rounds", "runs", "turning", "clients"}


def line(name: str, found: AuditResult) -> str:
    """One line of the table."""
    curve = "" if found.curve is None else f"{found.curve / found.proven:.2f}"
    best = max(found.plain, found.curve or 0.0) / found.proven
    row = ROWS.get(name, Row())
    setting = ", ".join(
        f"{key} = {value:g}" if not isinstance(value, bool) else key
        for key, value in row.numbers.items()
    )
    why = row.why if best < 0.5 else ""
    cells = (f"`{name}`", f"{found.proven:.2f}", f"{found.plain / found.proven:.2f}", curve,
             found.statistic, f"{found.seconds:.0f}", setting, why)  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main(names: list[str]) -> None:
    for name in names or private():
        try:
            print(line(name, audited(name)), flush=True)
        except Exception as e:
            print(name, type(e).__name__, e, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
