"""The fast round equals the plain one, which reads as the papers do."""

from typing import Any

import jax
import numpy as np
import pytest
from rows import ROWS, Row

import jaxfl
from jaxfl.algorithms import trial
from jaxfl.algorithms.composition import in_plain
from jaxfl.engine.functions import Functions
from jaxfl.parts import Federated
from jaxfl.problems.clipping import clipped_as

T = 4
SERVED = [row for row in ROWS if isinstance(jaxfl.algorithm(row.name).body, Federated)]
# Together they have every kind of memory, channel and local procedure.
SOME = (
    *("soteriafl_gd", "soteriafl_svrg", "soteriafl_saga", "ldp_spider", "dp_srm", "marina"),
    *(
        "private_local_sgd",
        "dp_scaffold",
        "clip21_sgd2m",
        "alpha_normec",
        "fed_alpha_normec",
        "dice_sgd",
    ),
)
PARTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "some clients": ("soteriafl_saga", {"participation": "uniform"}, {"k": 6, "cohort": 3}),
    "a cohort of random size": (
        "soteriafl_sgd",
        {"participation": "poisson"},
        {"k": 6, "cohort": 3},
    ),
    "rows of epochs": ("ldp_sgd", {"sampler": "shuffled"}, {}),
    "rows of cycles": ("ldp_sgd", {"sampler": "cyclic"}, {}),
    "a biased code": ("cdp_sgd", {"compressor": "natural"}, {}),
    "a code of what is selected": (
        "cdp_sgd",
        {"compressor": "qsgd+random_k"},
        {"k": 6, "levels": 4},
    ),
    "a secure sum": ("ldp_sgd", {"aggregation": "secure_sum"}, {}),
    "batches clipped": ("soteriafl_sgd", {"clip": "batch"}, {"k": 6, "gradient_bound": 2.0}),
}


def rounds(f: Functions, key: jax.Array) -> tuple[Any, Any]:
    """The model and the counts after T rounds, and what the server gets in the next one."""
    end, counts = jax.lax.scan(f.round, f.init(key), length=T)
    return np.asarray(f.output(end)), jax.tree.map(np.asarray, counts)


def agree(name: Any, problem: Any, key: jax.Array, numbers: dict[str, Any]) -> None:
    fast = jaxfl.functions(name, problem, rounds=T, messages=True, **numbers)
    plain = jaxfl.functions(name, problem, rounds=T, plain=True, **numbers)
    (x, counts), (same, others) = rounds(fast, key), rounds(plain, key)
    np.testing.assert_allclose(x, same, rtol=2e-5, atol=2e-6)
    for mine, its in zip(counts, others, strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, id=r.name, marks=[pytest.mark.plain] * (r.name in SOME)) for r in SERVED],
)
def test_every_fast_round_is_its_plain_round(row: Row, key: jax.Array) -> None:
    agree(row.name, row.problem, key, row.numbers)


def test_nobody_tries_rounds_of_jaxfl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each form of them is traced once, when it runs."""
    monkeypatch.setattr(trial, "_trace", None)
    for how in ({}, {"plain": True}, {"messages": True}):
        jaxfl.functions("ldp_sgd", ROWS[0].problem, rounds=T, sigma=0.1, lr=0.1, **how)


@pytest.mark.parametrize("case", PARTS)
def test_with_other_parts(case: str, key: jax.Array) -> None:
    name, parts, numbers = PARTS[case]
    row = next(row for row in ROWS if row.name == name)
    given = {**{k: v for k, v in row.numbers.items() if k != "k"}, **numbers}
    agree(jaxfl.algorithm(name, **parts), row.problem, key, given)


@pytest.mark.parametrize(
    "name", ["soteriafl_svrg", "soteriafl_saga", "dice_sgd", "clip21_sgd2m", "dp_fedavg"]
)
def test_smooth_clipping_is_everywhere(name: str, key: jax.Array) -> None:
    """Also plain, and as on a model whose kernel clips smoothly; hard clipping leads elsewhere."""
    row = next(row for row in ROWS if row.name == name)
    smooth = jaxfl.algorithm(name, clipping="smooth")
    assert dict(smooth.parts)["clipping"] == "smooth"
    given = {**row.numbers, "clip": 0.3} if name != "dp_fedavg" else row.numbers
    agree(smooth, row.problem, key, given)
    ends = [
        rounds(jaxfl.functions(made, problem, rounds=T, **given), key)[0]
        for made, problem in (
            (smooth, row.problem),
            (name, clipped_as(row.problem, "smooth")),
            (name, row.problem),
        )
    ]
    np.testing.assert_array_equal(ends[0], ends[1])
    assert np.abs(ends[0] - ends[2]).max() > 1e-3


def test_a_fused_round_with_noise_of_each_client_is_the_plain_round(key: jax.Array) -> None:
    fast = jaxfl.algorithm("ldp_sgd", noise="per_client")
    row = next(row for row in ROWS if row.name == "ldp_sgd")
    x, _ = rounds(jaxfl.functions(fast, row.problem, rounds=T, **row.numbers), key)
    plain = jaxfl.functions("ldp_sgd", row.problem, rounds=T, plain=True, **row.numbers)
    np.testing.assert_allclose(x, rounds(plain, key)[0], rtol=2e-5, atol=2e-6)


def test_plain_rounds_prove_what_fast_ones_prove(key: jax.Array) -> None:
    row = next(row for row in ROWS if row.name == "soteriafl_sgd")
    fast, plain = (
        jaxfl.functions(row.name, row.problem, rounds=T, plain=which, **row.numbers)
        for which in (False, True)
    )
    assert fast.privacy(T).proven == plain.privacy(T).proven < np.inf


def test_memory_in_fewer_bits_has_no_plain_round() -> None:
    stored = jaxfl.algorithm("soteriafl_sgd", storage="bfloat16")
    with pytest.raises(jaxfl.InputError, match="storage = 'bfloat16'"):
        in_plain(stored)
