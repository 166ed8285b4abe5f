"""What runs and sweeps compute, and how often they save it: fixtures of their tests."""

import math
from typing import Any

import pytest

from jaxfl.engine import compute


class Calls(list[tuple[int, int, int]]):
    """The calls of compiled programs: the first round, the one after the last, and the runs."""

    @property
    def rounds(self) -> list[int]:
        return [t for start, stop, _ in self for t in range(start, stop)]

    @property
    def spent(self) -> int:
        """The rounds of all runs together."""
        return sum((stop - start) * runs for start, stop, runs in self)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls that this process makes from now on."""
    seen, honest = Calls(), compute.compiled

    def compiled(*args: Any) -> Any:
        made = honest(*args)

        def call(*inputs: Any) -> Any:
            seen.append((int(inputs[4]), int(inputs[5]), math.prod(made.shape)))
            return made.call(*inputs)

        return made._replace(call=call)

    monkeypatch.setattr(compute, "compiled", compiled)
    return seen


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after each call, and workers that return as often."""
    monkeypatch.setattr(compute, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(compute, "SHARE", 1e9)
    monkeypatch.setattr(compute, "OFTEN", 1)
