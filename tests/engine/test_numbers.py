"""What this code computes, draws, counts and proves is what is recorded [:mod:`record`].

``python tests/record.py compare`` shows all differences, and says how to record again.
"""

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
import record
from cases import QUICK, cases

from jaxfl.algorithms.registry import OWN

# once: in the last digits another JAX has other numbers
pytestmark = pytest.mark.once
RECORDED = record.read()
GROUPS = {
    name: list(of_it) for name, of_it in itertools.groupby(cases(), lambda n: n.split("/")[0])
}


def check(*names: str) -> None:
    found = []
    for name in names:
        now = json.loads(json.dumps(record.observed(name)))
        found += record.differences(name, RECORDED[name], now)
    assert not found, "\n".join(found)


def test_every_algorithm_is_recorded() -> None:
    assert set(OWN) == set(GROUPS)
    assert set(cases()) == set(RECORDED)


@pytest.mark.parametrize("name", QUICK)
def test_recorded(name: str) -> None:
    check(name)


@pytest.mark.full  # compiles each algorithm alone and in a sweep, and a few with all parts
@pytest.mark.parametrize("name", GROUPS)
def test_recorded_of(name: str) -> None:
    check(*GROUPS[name])


def scaled(name: str, factor: float) -> Callable[[Any], Any]:
    def change(run: Any) -> None:
        run[name.split(" ")[0]][name.split(" ")[1]][-1] *= factor

    return change


CHANGES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda run: run.update(key=[0, 12]), "key"),
    (lambda run: run["exact"]["gradients"].append(1), "exact gradients"),
    (lambda run: run["exact"].update({"draws.rows": "0"}), "exact draws.rows"),
    (lambda run: run["exact"].update({"privacy.method": "none"}), "exact privacy.method"),
    (lambda run: run["exact"].pop("messages"), "exact messages is missing"),
    (scaled("single loss", 1 + 1e-5), "single loss"),
    (scaled("host eps_spent", 1 + 1e-10), "host eps_spent"),
]


def test_a_difference_is_seen() -> None:
    was = RECORDED["ldp_sgd/run"]
    for change, words in CHANGES:
        now = copy.deepcopy(was)
        now[""]["single"]["another"] = 1.0  # more than is recorded is none
        scaled("single loss", 1 + 1e-7)(now[""])
        assert list(record.differences("ldp_sgd/run", was, now)) == []
        change(now[""])
        (found,) = record.differences("ldp_sgd/run", was, now)
        assert found.startswith("ldp_sgd/run: " + words)
