"""The fast round equals the plain one, which reads as the papers do.

Of every algorithm `check_algorithm` compares them (tests/testing); here with other parts.
"""

from typing import Any

import jax
import numpy as np
import pytest
from rows import ROWS

import jaxfl
from jaxfl.algorithms.composition import in_plain

T = 4
QSGD, RANDOM_K = jaxfl.compressors.qsgd(), jaxfl.compressors.random_k()
PARTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "some clients": ("soteriafl_saga", {"participation": "uniform"}, {"k": 6, "cohort": 3}),
    "a cohort of random size": (
        "soteriafl_sgd",
        {"participation": "poisson"},
        {"k": 6, "cohort": 3},
    ),
    "rows of epochs": ("ldp_sgd", {"sampler": "shuffled"}, {}),
    "a biased code": ("cdp_sgd", {"compressor": "natural"}, {}),
    "a code of what is selected": (
        "cdp_sgd",
        {"compressor": jaxfl.compressors.compose(QSGD, RANDOM_K)},
        {"k": 6, "levels": 4},
    ),
    "a secure sum": ("ldp_sgd", {"aggregation": "secure_sum"}, {}),
    "batches clipped": ("soteriafl_sgd", {"clip": "batch"}, {"k": 6, "gradient_bound": 2.0}),
    "noise of each client": ("ldp_sgd", {"noise": "per_client"}, {}),
    **{
        name: (name, {}, {})
        for name in ("private_local_sgd", "scaffold", "clip21_sgd2m", "dice_sgd", "dp_srm")
    },
}


@pytest.mark.parametrize("case", PARTS)
def test_a_fast_round_is_its_plain_round(case, key):
    """The model and all counts; and both prove the same."""
    name, parts, numbers = PARTS[case]
    row = next(row for row in ROWS if row.name == name)
    given = {**{k: v for k, v in row.numbers.items() if k != "k" or not parts}, **numbers}
    algorithm, ends = jaxfl.algorithm(name, **parts), []
    for how in ({"messages": case != "noise of each client"}, {"plain": True}):
        f = jaxfl.functions(algorithm, row.problem, rounds=T, **how, **given)
        end, counts = jax.lax.scan(f.round, f.init(key), length=T)
        ends.append((np.asarray(f.output(end)), counts, f.privacy(T).proven))
    (x, counts, proven), (same, others, other) = ends
    np.testing.assert_allclose(x, same, rtol=2e-5, atol=2e-6)
    for mine, its in zip(counts, others, strict=True):
        np.testing.assert_array_equal(mine, its)
    assert proven == other


def test_memory_in_fewer_bits_has_no_plain_round():
    stored = jaxfl.algorithm("soteriafl_sgd", storage="bfloat16")
    with pytest.raises(jaxfl.InputError, match="storage = 'bfloat16'"):
        in_plain(stored)
