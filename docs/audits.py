"""Write docs/audits.md: the eps that attacks certify for each algorithm, divided by the proven eps.

``python docs/audits.py > docs/audits.md`` takes a quarter of an hour; with names of algorithms it
prints only their rows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

import jaxfl
from jaxfl.algorithms.registry import ALGORITHMS, algorithm
from jaxfl.audits.attack import AuditResult, audit
from jaxfl.audits.canary import prepare
from jaxfl.rounds.body import Body

EPS, DELTA, RUNS = 4.0, 1e-3, 20_000


class Row(NamedTuple):
    """The given values of an audit; the default is 20 rounds with batches of 5 of 50 records."""

    numbers: Mapping[str, Any] = MappingProxyType({})
    parts: Mapping[str, Any] = MappingProxyType({})
    why: str = ""  # the reason, where less than half is certified


RING = {"graph": jaxfl.parts.graphs.ring()}
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
LOOSE = "the proof adds three bounds; the exact eps of this canary is 2.9"
HIDDEN = "the proof assumes that the record's draws are known; the exact eps of this canary is 1.4"
PHASE = "the proof does not use that a record's phase is random"
REPLACED = {"smoothness": 1e-3, "diameter": 1e6}
PHASES = {**REPLACED, "lam": 1e-3, "phases": 2, "m": 100}
PASS = {"diameter": 1e6, "smoothness": 1e-9, "m": 50}
ROWS: dict[str, Row] = {
    "soteriafl_svrg": Row({**SNAPSHOT, "k": 2}, why=LOOSE),
    "ldp_svrg": Row(SNAPSHOT, why=LOOSE),
    "soteriafl_saga": Row({"batch": 25}, why=HIDDEN),
    "private_local_sgd": Row({**OF_TWO, "local_steps": 1, "clients": 3}),
    "local_dp_sgd": Row(OF_TWO),
    "dp_scaffold": Row({"local_steps": 1}),
    "shifted_local_sgd": Row({**OF_TWO, "local_steps": 1}),
    "local_adaptive_fedavg": Row({**OF_TWO, "local_steps": 1, "clip_lr": 0}),
    "local_dp_fedavg": Row({**OF_TWO, "local_steps": 1}),
    "dp_fedavg": Row({**OF_TWO, "clients": 3}),
    "adaptive_fedavg": Row({"clients": 3}),
    **{name: Row({**OF_TWO, "clients": 3}) for name in ("skellam_fedavg", "discrete_fedavg")},
    "clip21_sgd2m": Row(OF_TWO),
    "dice_sgd": Row(OF_TWO),
    "dp_srm": Row(RECURSION),
    "distributed_dp_srm": Row({**RECURSION, "clients": 3}),
    "ldp_spider": Row({"turning": 2, "period": 5, "smoothness": 1e6}),
    "isrl_svrg": Row({"turning": 20, "epoch": 20, "noise_ratio": 0.1, "batch": 1}),
    **{name: Row(parts=RING, numbers={"clients": 4}) for name in ("dp_dsgd", "q_dpsgd_1")},
    "decor": Row({"clients": 4, "coupling": 2.0}, RING),
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
    "localized_accelerated_mbsgd": Row(PHASES, why=PHASE),
    "localized_convolution": Row({**PHASES, "spread": 1.5}, why=PHASE),
    "localized_mbsgd": Row({**PHASES, "lr": 0.5}, why=PHASE),
    "localized_nesterov": Row({**PHASES, "moreau": 3.0}, why=PHASE),
    "localized_subgradient": Row(PHASES, why=PHASE),
}


class Other(NamedTuple):
    """A configuration of the second table."""

    name: str
    parts: Mapping[str, Any] = MappingProxyType({})
    numbers: Mapping[str, Any] = MappingProxyType({})
    what: str = ""
    why: str = ""  # the reason, where half the noise is not refuted


def correlated(bands: int, **more: Any) -> Any:
    return jaxfl.parts.mechanisms.banded(bands, **more)


OTHERS = (
    Other(
        "ldp_sgd",
        {"sampler": "cyclic", "mechanism": correlated(4)},
        {},
        "noise correlated over 4 rounds",
    ),
    Other(
        "ldp_sgd",
        {"sampler": "cyclic", "mechanism": correlated(16)},
        {},
        "noise correlated over 16 rounds",
    ),
    Other(
        "cdp_sgd",
        {"sampler": "cyclic", "mechanism": correlated(4, shows=True)},
        {"dim": 4, "k": 2},
        "noise correlated over what random-k shows",
        "the proof holds for the worst masks, and those of a run are random",
    ),
    Other(
        "dp_sgd",
        {"sampler": "cyclic", "mechanism": correlated(4, central=True)},
        {},
        "the same, at one node",
    ),
    Other(
        "decor", RING, {"clients": 5, "coupling": 2.0}, "noise shared with neighbours, on a ring"
    ),
    Other(
        "decor",
        {},
        {"clients": 5, "coupling": 2.0, "colluding": 2},
        "the same, complete, two collude",
    ),
    Other("ldp_sgd", {"clip": "client"}, {}, "whole clients"),
    Other(
        "local_dp_fedavg", {"aggregation": "secure_sum"}, {"clients": 3}, "whole clients, in a sum"
    ),
    Other("skellam_fedavg", {}, {"clients": 3}, "integers in a sum"),
    Other("discrete_fedavg", {}, {"clients": 3}, "integers in a sum"),
    Other(
        "ldp_sgd",
        {"mechanism": jaxfl.parts.mechanisms.gaussian((2.0,))},
        {},
        "a multiple of sigma, as budgets give each client",
    ),
    Other(
        "adaptive_fedavg", {}, {"clients": 3}, "whole clients, an adaptive clip, a server's noise"
    ),
    Other("local_adaptive_sgd", {}, {}, "an adaptive clip of gradients"),
)
SPECIAL = ("m", "rounds", "runs", "turning", "clients")  # of an audit, beside hyper-parameters
HEAD = f"""\
# Audits

Each bound on eps that an attack certifies is divided by the proven eps, {EPS:g} at delta = {DELTA:g}:
0.62 stands for a certified eps of 2.48.  *Certified* is the bound that `jaxfl audit` returns, *curve*
uses the event's trade-off curve, and *plain* assumes nothing ([privacy](privacy.md)).  Each holds with
95 % confidence by itself.
An audit has {RUNS} runs in each of two worlds; *seconds* is their time on one busy core, with
compilation.  Where *given values* does not say otherwise, a run has 20 rounds with batches of 5 of
50 records.  `python docs/audits.py > docs/audits.md` writes this page.

The page is about jaxfl's own parts.  `jaxfl audit --import FILE` attacks parts of your own: it compares
with the eps of the event that the algorithm describes, which nothing proves, and says what it did not
look at ([privacy](privacy.md)).

An attack reads the points at which gradients are evaluated, of the server or of each node.  Their
differences give the messages, of which *seen* says whose they are.  Where a proof rests on parts of your
own, it reads the messages of the client that holds the canary.

Each *statistic* is a number per run, from its messages and the canary's sign in each round.  A
threshold turns it into a guess of the world:

- *sum* adds up the messages, each projected on the canary and times its sign.
- *likelihood ratio* adds up how much likelier the event makes each message with the canary.
- *extremes* adds the largest and the smallest of these messages.
- *spread* compares the largest and the smallest message with their mean, where repeated noise cancels.
- *contrast* is the sum after the mean sign is subtracted, where repeated noise cancels, too.
- *innovations* is the likelihood ratio after what earlier messages predict is subtracted from each.
- *learned* is a linear discriminant of all innovations and their ratios, fitted to other runs.

| | seen | certified | curve | plain | statistic | seconds | given values | why less than half |
|---|---|---|---|---|---|---|---|---|"""


OTHER_HEAD = """
## Other mechanisms and units

The same attacks, on mechanisms beyond independent noise and on whole clients.  *Certified* is as above.
*Half the noise* is the bound on runs with half of sigma, divided by the eps that the event of the whole
noise proves: above 1 it refutes that event.

| | what | certified | statistic | half the noise | why it is not refuted |
|---|---|---|---|---|---|"""


def private() -> list[str]:
    """Return all algorithms with noise."""
    return sorted(name for name in ALGORITHMS if "sigma" in algorithm(name).names)


def audited(name: str, runs: int = RUNS) -> AuditResult:
    """Return the audit of one row."""
    row = ROWS.get(name, Row())
    which = algorithm(name, **row.parts)
    given: dict[str, Any] = {"m": 50, "rounds": 20, "eps": EPS, "delta": DELTA, "runs": runs}
    if "batch" in which.names and name != "rrpsgd":
        given["batch"] = 5
    given = {k: v for k, v in (given | row.numbers).items() if k in which.names or k in SPECIAL}
    return audit(which, key=jax.random.key(0), **given)


def seen(name: str) -> str:
    """Return what the adversary sees."""
    which = algorithm(name)
    if not isinstance(which.body, Body):
        return "a node's messages"
    if which.body.aggregation is not None:
        return "a sum"
    return "noised at a server or node" if which.body.mechanism.central else "a client's messages"


def line(name: str, found: AuditResult) -> str:
    """Return one line of the table."""
    row, share = ROWS.get(name, Row()), found.lower / found.proven
    curve = "" if found.curve is None else f"{found.curve / found.proven:.2f}"
    settings = [f"{key} = {value:g}" for key, value in row.numbers.items()]
    settings += [f"{role} = {part.name}" for role, part in row.parts.items()]
    cells = (
        f"`{name}`",
        seen(name),
        f"{share:.2f}",
        curve,
        f"{found.plain / found.proven:.2f}",
        found.statistic,
        f"{found.seconds:.0f}",
        ", ".join(settings),
        row.why if share < 0.5 else "",
    )
    return f"| {' | '.join(cells)} |"


def other_line(row: Other, runs: int = RUNS) -> str:
    """Return one line of the second table: an audit, and one of half the noise under the same event."""
    which = algorithm(row.name, **row.parts)
    given: dict[str, Any] = {"m": 50, "rounds": 20, "batch": 5, "delta": DELTA}
    given = {
        k: v for k, v in (given | row.numbers).items() if k in which.names or k in (*SPECIAL, "dim")
    }
    key = jax.random.key(0)
    found = audit(which, key=key, runs=runs, eps=EPS, **given)
    event: Any = which.event

    def whole(values: Mapping[str, Any], facts: Any) -> Any:
        return event({**values, "sigma": 2 * values["sigma"]}, facts)

    sigma = audited_sigma(which, given)
    half = audit(which, key=key, runs=runs, sigma=sigma / 2, event=whole, **given)
    more = [f"`{row.name}`", *(f"{name} = {value:g}" for name, value in row.numbers.items())]
    more += [f"{role} = {getattr(part, 'name', part)}" for role, part in row.parts.items()]
    share, broken = found.lower / found.proven, half.lower / half.proven
    cells = (
        ", ".join(more),
        row.what,
        f"{share:.2f}",
        found.statistic,
        f"{broken:.2f}",
        row.why,
    )
    return f"| {' | '.join(cells)} |"


def audited_sigma(which: Any, given: Mapping[str, Any]) -> float:
    """Return the noise of an audit at :data:`EPS`."""
    numbers = {k: v for k, v in given.items() if k in which.names}
    sizes = {
        k: given.get(k, usual)
        for k, usual in (("m", 50), ("dim", 1), ("rounds", 20), ("clients", 1))
    }
    return float(
        prepare(
            which, sizes["m"], sizes["dim"], sizes["rounds"], False, None, {**numbers, "eps": EPS},
            "calibrated", sizes["clients"],
        ).values["sigma"]
    )  # fmt: skip


def main(names: list[str]) -> None:
    if not names:
        print(HEAD)
    for name in names or private():
        if "others" not in names:
            print(line(name, audited(name)), flush=True)
    if not names or "others" in names:
        print(OTHER_HEAD)
        for row in OTHERS:
            if not set(names) - {"others"} or row.name in names:
                print(other_line(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
