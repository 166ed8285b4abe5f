"""The expected length of a round on given links, beside all subsets of clients, one by one."""

import itertools
import math

import numpy as np
import pytest
from told import refusals

from jaxfl.core.links import Links, expected_slowest

pytestmark = [pytest.mark.once, pytest.mark.plain]


@pytest.mark.parametrize("r", [700, 4900])
def test_the_slowest_of_a_large_cohort(r):
    """E max of r of 1, ..., n is r (n + 1) / (r + 1)."""
    slowest = expected_slowest(np.arange(1.0, 20_001.0), r)
    assert slowest == pytest.approx(r * 20_001 / (r + 1), rel=1e-9)


@pytest.mark.parametrize("cohort", [1, 3, 5, 6])
def test_the_length_of_a_round(cohort):
    """The mean over all subsets, one by one; two clients are equally slow."""
    up, down = [1e3, 2e3, 5e3, 1e4, 1e5, 2e3], [9e3, 1e3, 5e3, 2e4, math.inf, 1e3]
    each = [700 / u + 4000 / d for u, d in zip(up, down, strict=True)]
    brute = 0.25 + np.mean([max(s) for s in itertools.combinations(each, cohort)])
    assert Links(up, 0.25, down).round_seconds(6, cohort, 700, 4000) == pytest.approx(brute)


def test_links_alike_and_a_cohort_between_whole_numbers():
    links = Links(1e6, 0.1)
    assert links.round_seconds(50, 7, 2e6, 1e6) == pytest.approx(0.1 + 3.0)
    assert links.round_seconds(50, 0, 2e6, 1e6) == 0.1
    assert Links(1e6, downlink=math.inf).round_seconds(5, 5, 2e6, 1e6) == pytest.approx(2.0)
    links = Links([1.0, 2.0, 4.0])
    low, high = (links.round_seconds(3, r, 1.0, 0.0) for r in (1, 2))
    assert links.round_seconds(3, 1.25, 1.0, 0.0) == pytest.approx(0.75 * low + 0.25 * high)


def test_drawn_links():
    links = Links("lognormal:1e6,0.5", seed=1)
    rates = links._speeds("bandwidth", links.bandwidth, 4000)
    np.testing.assert_array_equal(rates[:10], links._speeds("bandwidth", links.bandwidth, 10))
    # deviations of 4000 draws: median 0.5 sqrt(pi/2) / sqrt(4000) = 1 %, log-deviation 1.1 %
    assert np.median(rates) == pytest.approx(1e6, rel=0.05)
    assert np.std(np.log(rates)) == pytest.approx(0.5, rel=0.05)
    other = Links("lognormal:1e6,0.5", seed=2)
    assert not np.array_equal(rates, other._speeds("bandwidth", other.bandwidth, 4000))
    down = links._speeds("downlink", links.bandwidth, 4000)
    assert abs(np.corrcoef(np.log(rates), np.log(down))[0, 1]) < 0.1  # 6 deviations


test_mistakes = refusals(
    (lambda: Links(0.0), r"bandwidth = 0\.0 .* above 0"),
    (lambda: Links(1.0, latency=-1.0), r"latency = -1\.0"),
    (lambda: Links("normal:1,2"), "'normal:1,2' .* read 'lognormal:MEDIAN,SIGMA'"),
    (lambda: Links([1.0, 2.0]).round_seconds(3, 1, 1.0, 1.0), "2 values for 3 clients"),
    (lambda: Links(1.0).round_seconds(3, 4, 1.0, 1.0), "cohort = 4 must be at least 0"),
)
