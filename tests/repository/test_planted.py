"""Bugs that change a guarantee or a number without changing how a curve looks: each is planted in a
copy of the package, and caught by the tests that it names (``planted/bugs.toml``)."""

import pytest
from planted.run import bugs, files_of, place, tried

BUGS = {bug.name: bug for bug in bugs()}


@pytest.mark.once
def test_every_bug_has_one_place_and_tests() -> None:
    for bug in BUGS.values():
        assert bug.old != bug.new
        place(bug)
        assert files_of(bug)


@pytest.mark.full  # another process for each of them
@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_are_caught(name: str) -> None:
    outcome = tried(BUGS[name])
    assert outcome.caught, outcome.output
