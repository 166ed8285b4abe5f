"""The common table: one row per algorithm, and the small problems that all of them are run on."""

from typing import Any, NamedTuple

import numpy as np

import jaxfl
from jaxfl.core.types import Problem
from jaxfl.problems.public import nonconvex


class Row(NamedTuple):
    """An algorithm and numbers with which it makes progress on :func:`a_problem`."""

    name: str
    numbers: dict[str, Any]
    gradients: Any  # (problem, rounds) -> per-example gradients expected, None where coins decide
    compressed: bool | str | None  # a sparsifier, a biased code, or k that changes
    down: int = 1  # vectors that the server sends to a client
    n: int = 5  # clients
    m: int = 12  # samples of the largest
    everyone: bool = False  # all clients have to take part
    quick: bool = True  # False where its parts are all seen in other rows
    convex: bool = False  # it asks for convex losses on a bounded set, and for more records
    axis: str = "lr"  # a number that sweeps may vary
    more: int = 0  # numbers that go both ways beside those of the model

    @property
    def problem(self) -> Problem:
        return a_convex_problem() if self.convex else a_problem(n=self.n, m=self.m)


def per_round(points: int, rows: Any = "all", start: bool = False) -> Any:
    """Gradient counts of an algorithm that evaluates ``rows`` samples at ``points`` points."""

    def count(problem: Problem, rounds: int) -> int:
        total = int(np.sum(problem.count))
        each = total if rows == "all" else rows * problem.n
        return rounds * points * each + (total if start else 0)

    return count


# ISRL-DP; lambda of the theorems is that of noise which drowns so few records
ISRL: dict[str, dict[str, Any]] = {
    "localized_accelerated_mbsgd": {"phases": 4, "lam": 0.05},
    "localized_convolution": {"phases": 4, "lam": 0.05, "spread": 1.5},
    "localized_mbsgd": {"phases": 4, "lr": 0.5, "lam": 0.05},
    "localized_nesterov": {"phases": 4, "lam": 0.05, "moreau": 3.0},
    "localized_subgradient": {"phases": 4, "lam": 0.05},
    "accelerated_mbsgd": {},
    "mb_subgradient": {"mu": 0.05},
    "multi_pass_mbsgd": {"lr": 0.5},
    "multistage_accelerated": {"mu": 0.05},
    "one_pass_accelerated": {},
    "one_pass_mbsgd": {"lr": 0.5},
}
QUIET = {"lr": 0.2, "clip": 2.0, "sigma": 0.01}
ROWS = (
    Row("soteriafl_gd", {**QUIET, "k": 6}, per_round(1), True, quick=False),
    Row("soteriafl_sgd", {**QUIET, "k": 6, "batch": 4}, per_round(1, 4), True),
    Row("soteriafl_svrg", {**QUIET, "k": 6, "batch": 4, "refresh": 0.2}, None, True),
    Row("soteriafl_saga", {**QUIET, "k": 6, "batch": 4}, per_round(1, 4, True), True),
    Row("cdp_gd", {**QUIET, "k": 6}, per_round(1), True),
    Row("cdp_sgd", {**QUIET, "k": 6, "batch": 4}, per_round(1, 4), True, quick=False),
    Row("ldp_gd", QUIET, per_round(1), False, quick=False),
    Row("ldp_sgd", {**QUIET, "batch": 4}, per_round(1, 4), False),
    Row("ldp_svrg", {**QUIET, "batch": 4, "refresh": 0.2}, None, False, quick=False),
    Row("fedgd", {"lr": 0.2, "clip": 2.0}, per_round(1), False, quick=False),
    Row("fedsgd", {"lr": 0.2, "clip": 2.0, "batch": 4}, per_round(1, 4), False, quick=False),
    Row("private_local_sgd", {**QUIET, "batch": 4, "local_steps": 3}, per_round(3, 4), False),
    Row("local_dp_sgd", {**QUIET, "batch": 4}, per_round(1, 4), False, quick=False),
    Row(
        "dp_fedavg",
        {"lr": 0.2, "sigma": 0.01, "batch": 4, "local_steps": 3},
        per_round(3, 4),
        False,
    ),
    Row(
        "local_dp_fedavg",
        {"lr": 0.2, "sigma": 0.01, "batch": 4, "local_steps": 3},
        per_round(3, 4),
        False,
        quick=False,
    ),
    *(
        Row(
            name,
            {"lr": 0.2, "sigma": 0.05, "batch": 4, "local_steps": 3},
            per_round(3, 4),
            False,
            quick=name == "skellam_fedavg",
        )
        for name in ("skellam_fedavg", "discrete_fedavg")
    ),
    Row(
        "adaptive_fedavg",
        {"lr": 0.2, "sigma": 0.01, "batch": 4, "local_steps": 3, "clip": 0.5},
        per_round(3, 4),
        False,
        more=1,
    ),
    Row(
        "local_adaptive_fedavg",
        {"lr": 0.2, "sigma": 0.01, "batch": 4, "local_steps": 3, "clip": 0.5},
        per_round(3, 4),
        False,
        more=1,
        quick=False,
    ),
    Row("adaptive_sgd", {**QUIET, "batch": 4}, per_round(1, 4), False, more=1, quick=False),
    Row("local_adaptive_sgd", {**QUIET, "batch": 4}, per_round(1, 4), False, more=1),
    Row("fedavg", {"lr": 0.2, "batch": 4, "local_steps": 3}, per_round(3, 4), False, quick=False),
    Row("fedprox", {"lr": 0.2, "batch": 4, "local_steps": 3}, per_round(3, 4), False, quick=False),
    Row("scaffold", {"lr": 0.2, "batch": 4, "local_steps": 3}, per_round(3, 4), False, down=2),
    Row("dp_scaffold", {**QUIET, "batch": 4, "local_steps": 3}, per_round(3, 4), False, down=2),
    Row(
        "shifted_local_sgd", {**QUIET, "k": 6, "batch": 4, "local_steps": 3}, per_round(3, 4), True
    ),
    *(
        Row(
            name,
            {**numbers, "clip": 2.0, "sigma": 0.01},
            None,
            False,
            convex=True,
            axis="clip",
            quick=name in ("localized_accelerated_mbsgd", "one_pass_mbsgd"),
        )
        for name, numbers in ISRL.items()
    ),
)
PASS = {"m": 64, "everyone": True}  # 60 rounds, a sample used once
ANYTIME = {**QUIET, "lr": 0.01, "smoothness": 4.0, "diameter": 4.0}
SRM = {**QUIET, "batch": 4, "anchor_batch": 8, "momentum": 0.3, "step_limit": 0.4}
ROWS += (
    Row("mu2_untrusted", ANYTIME, per_round(2, 1), False, **PASS),
    Row("mu2_trusted", ANYTIME, per_round(2, 1), False, **PASS, quick=False),
    Row("noisy_mu2", ANYTIME, per_round(2, 1), False, n=1, **PASS, quick=False),
    Row(
        "mu2",
        {k: v for k, v in ANYTIME.items() if k != "sigma"},
        per_round(2, 1),
        False,
        **PASS,
        quick=False,
    ),
    Row("noisy_sgd", {**QUIET, "diameter": 4.0}, per_round(1, 1), False, **PASS, quick=False),
    Row("dp_gd", QUIET, per_round(1), False, quick=False),
    Row("dp_sgd", {**QUIET, "batch": 4}, per_round(1, 4), False, quick=False),
    Row("rrpsgd", QUIET, per_round(1, 1), False, quick=False),
    Row("dp_srm", SRM, None, False),
    Row("distributed_dp_srm", SRM, None, False, quick=False),
    Row("ldp_spider", {**QUIET, "period": 5}, per_round(2), False),
    Row("diana", {"lr": 0.2, "k": 6}, per_round(1), True, quick=False),
    Row("marina", {"lr": 0.2, "k": 6, "restart": 0.3}, per_round(2), None),
    Row("ef21", {"lr": 0.2, "k": 3}, per_round(1), "top_k", quick=False),
    Row("ef_sgd", {"lr": 0.1, "k": 3, "batch": 4}, per_round(1, 4), "top_k"),
    Row(
        "ef21_sgdm",
        {"lr": 0.1, "k": 3, "batch": 4, "momentum": 0.5},
        per_round(1, 4),
        "top_k",
        everyone=True,
    ),
    Row("dasha", {"lr": 0.2, "k": 6}, per_round(1), True, quick=False),
    Row(
        "dasha_page",
        {"lr": 0.1, "k": 6, "batch": 4, "restart": 0.3},
        None,
        True,
        everyone=True,
        quick=False,
    ),
    Row(
        "dasha_mvr",
        {"lr": 0.1, "k": 6, "batch": 4, "momentum": 0.3},
        per_round(2, 4),
        True,
        everyone=True,
    ),
    Row(
        "q_dpsgd_1",
        {**QUIET, "batch": 4, "quantum": 1e-3},
        per_round(1, 4),
        "fixed_step",
        0,
        everyone=True,
    ),
    Row("sdm_dsgd", {**QUIET, "batch": 4, "k": 6}, per_round(1, 4), None, 0, everyone=True),
    Row("dp_dsgd", {**QUIET, "batch": 4}, per_round(1, 4), False, 0, everyone=True, quick=False),
    Row(
        "decor",
        {**QUIET, "batch": 4, "coupling": 2.0},
        per_round(1, 4),
        False,
        0,
        everyone=True,
    ),
    Row(
        "porter_dp",
        {**QUIET, "batch": 4, "k": 4},
        per_round(1, 4),
        None,
        0,
        everyone=True,
        axis="clip",
    ),
    Row(
        "porter_gc",
        {"lr": 0.2, "clip": 2.0, "batch": 4, "k": 4},
        per_round(1, 4),
        None,
        0,
        everyone=True,
        quick=False,
    ),
    Row(
        "clip21_sgd2m", {**QUIET, "batch": 4, "momentum": 0.5, "shift": 0.5}, per_round(1, 4), False
    ),
    Row("alpha_normec", {**QUIET, "lr": 0.1, "smoothing": 0.5, "shift": 0.3}, per_round(1), False),
    Row(
        "fed_alpha_normec",
        {**QUIET, "smoothing": 0.5, "shift": 0.3, "local_steps": 3, "server_lr": 0.1},
        per_round(3),
        False,
    ),
    Row("dice_sgd", {**QUIET, "batch": 4, "error_clip": 0.5}, per_round(1, 4), False),
    Row("isrl_svrg", {**QUIET, "batch": 4, "epoch": 3}, None, False),
)
ONE_SHOT = tuple(row.name for row in ROWS[:11])  # one estimate per round, no local steps


def a_problem(
    strength: float = 0.01, n: int = 5, m: int = 12, d: int = 8, seed: int = 0
) -> Problem:
    """Logistic regression on clients of unequal size and different distributions."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    clients = []
    for i in range(n):
        a = rng.normal(size=(m - (i % 3), d)).astype(np.float32) + np.float32(0.3 * i)
        y = (a @ w + rng.normal(size=len(a)) > 0).astype(np.int32)
        clients.append((a, y))
    test = (rng.normal(size=(20, d)).astype(np.float32), rng.integers(0, 2, 20).astype(np.int32))
    data = jaxfl.data.from_clients(clients, test=test, classes=2)
    model = jaxfl.models.logistic(d, regularizer=nonconvex(strength))
    x0 = rng.normal(size=d).astype(np.float32) / 5
    return jaxfl.Problem(model, data, x0=x0)


def a_convex_problem(n: int = 5, m: int = 130, d: int = 8, seed: int = 0) -> Problem:
    """Logistic regression with an l2 regularizer on a ball, other labels in other places."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    clients = []
    for i in range(n):
        a = (rng.normal(size=(m - (i % 3), d)) + 0.2 * i) / 2
        y = (a @ w + rng.normal(size=len(a)) / 4 > 0).astype(np.int32)
        clients.append((a.astype(np.float32), y))
    test = clients[0][0][:20], clients[0][1][:20]
    data = jaxfl.data.from_clients(clients, test=test, classes=2)
    model = jaxfl.models.logistic(d, regularizer="l2:0.05", constraint="ball:4")
    x0 = rng.normal(size=d).astype(np.float32) / 5
    return jaxfl.Problem(model, data, x0=x0)


def a_network(n: int = 4, m: int = 10, seed: int = 0) -> Problem:
    """A small network with one hidden layer."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, m, 6)).astype(np.float32)
    y = rng.integers(0, 3, size=(n, m)).astype(np.int32)
    model = jaxfl.models.mlp(6, hidden=(5,), classes=3)
    return jaxfl.Problem(model, jaxfl.data.from_clients((a, y), classes=3, stacked=True))


def a_quadratic(n: int = 4, m: int = 6, d: int = 3, seed: int = 0) -> Problem:
    """Least squares with another solution at every client."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, m, d)).astype(np.float32)
    w = rng.normal(size=(n, d, 1))
    y = (a @ w)[..., 0].astype(np.float32)
    data = jaxfl.data.from_clients((a, y), stacked=True)
    return jaxfl.Problem(jaxfl.models.least_squares(d), data, x0=np.ones(d))
