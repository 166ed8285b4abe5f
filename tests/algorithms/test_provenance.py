"""What is proven of compositions with parts of a user's own: the table of :mod:`own`."""

import own_proven  # noqa: F401
import own_tricks  # noqa: F401
import pytest
from own import CASES, Case, fits, said

pytestmark = pytest.mark.once


def test_each_case_has_a_name_and_a_reason() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.why.endswith(".") for case in CASES)
    found = [case.expected for case in CASES]
    assert set(found) <= {"no claim", "unproven", "stated", "refused", "above", "proven", "open"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_stated(case: Case) -> None:
    found = said(case)
    if case.expected != "open":
        assert fits(case, found), f"{case.expected} expected: {case.why}\n{found}"
