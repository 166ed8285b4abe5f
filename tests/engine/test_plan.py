"""From a grid to programs and chunks: what is compiled, what is padded, what fits."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import a_problem

import jaxfl
from jaxfl.core.memory import _of_group
from jaxfl.engine.compute import budget
from jaxfl.engine.grid import Cell, lay_out, spans
from jaxfl.engine.plan import Program, chunks, halves, programs

pytestmark = pytest.mark.once

FREE = {"lr": 0.1, "clip": 2.0, "sigma": 0.01}


def large(m: int = 4096) -> jaxfl.Problem:
    """Two clients of m samples, of which nothing is ever computed here."""
    clients = [(jnp.ones((m, 8)), jnp.zeros(m, jnp.int32))] * 2
    data = jaxfl.data.from_clients(clients, classes=2)
    return jaxfl.Problem(jaxfl.models.logistic(8), data, x0=jnp.zeros(8))


class Planned(BaseException):
    """A sweep is planned, and ends."""


def plan_of(algorithm: Any, **given: Any) -> jaxfl.engine.progress.Plan:
    """The plan of a sweep, which computes nothing."""
    plans: list[jaxfl.engine.progress.Plan] = []

    def announce(plan: jaxfl.engine.progress.Plan) -> None:
        plans.append(plan)
        raise Planned

    with pytest.raises(Planned):
        jaxfl.sweep(algorithm, large(), announce=announce, **{"rounds": 5, **FREE, **given})
    return plans[0]


def programs_of(algorithm: Any, problem: Any, **given: Any) -> list[Program]:
    axes, fixed = spans({"rounds": 5, **FREE, **given})
    return programs(lay_out(algorithm, problem, axes, fixed, 1, "calibrated", "train"))


@pytest.mark.parametrize(
    ("rounds", "often", "half"),
    [(400, 1, True), (400, None, True), (400, 0, False), (24, 1, False)],  # of 24, two are too many
)
def test_a_plan_names_evaluations_that_are_half_of_the_work(
    rounds: int, often: int | None, half: bool
) -> None:
    given: Any = {"rounds": rounds, "batch": 1}
    plan = plan_of("ldp_sgd", **given, eval_every=often)
    assert (plan.evaluation > 0.5) == (half or rounds == 24)
    assert (plan.half is not None) == half == ("half or less with eval_every=" in repr(plan))
    if half:
        fewer = plan_of("ldp_sgd", **given, eval_every=plan.half)
        assert (fewer.evaluation <= 0.5, fewer.half) == (True, None)
        assert "half or less" not in repr(plan._replace(finished=1))


# --- programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "count"),
    [([1, 4096], 2), ([64, 100], 1), ([100, 110, 120], 1), ([1, 2, 3000, 4096], 2), ([512], 1)],
)
def test_programs_split_where_padding_would_double_the_work(batches: list[int], count: int) -> None:
    plan = plan_of("ldp_sgd", batch=batches, lr=[0.1, 0.2])
    assert (len(plan.programs), plan.runs) == (count, 2 * len(batches))
    for program in programs_of("ldp_sgd", large(), batch=batches, lr=[0.1, 0.2]):
        own = [program.algorithm.capacity(cell.values, cell.facts) for cell in program.cells]
        assert dict(program.caps)["batch"] <= 2 * min(each["batch"] for each in own)


@pytest.mark.parametrize(
    ("given", "count", "parts"),
    [
        ({"k": [1, 8], "batch": 500}, 1, 1),  # coordinates weigh nothing beside many rows
        ({"k": [1, 8], "batch": 1}, 2, 2),  # and much beside one
        ({"k": [6, 8], "batch": 1}, 1, 1),
        ({"rounds": [3, 3000], "lr": [0.1, 1e-9], "batch": 4, "k": 2}, 1, 2),
    ],
)
def test_k_alone_may_split_too_and_rounds_never(
    given: dict[str, Any], count: int, parts: int
) -> None:
    """T fills no capacity, however different: cells that are done are not computed."""
    build = jaxfl.algorithm("cdp_sgd", sampler=jaxfl.parts.sampling.sampler("without_replacement"))
    plan = plan_of(build, **given)
    assert (len(plan.programs), plan.chunks) == (count, parts)


def test_slots_are_those_of_the_longest_run() -> None:
    """Of a million rounds some batch is larger than of three."""
    (program,) = programs_of("ldp_sgd", large(), rounds=[3, 10**6], batch=400)
    own = [program.algorithm.capacity(c.values, c.facts)["batch"] for c in program.cells]
    assert dict(program.caps)["batch"] == max(own) > min(own)


# --- chunks --------------------------------------------------------------------------------------


def made_of(*batches: int) -> Program:
    (program,) = programs_of("ldp_sgd", a_problem(), lr=[0.1])
    facts = program.cells[0].facts
    some = [
        Cell((i,), f"{i}", {"batch": b, "lr": i, "rounds": 5}, {}, facts, 5)
        for i, b in enumerate(batches)
    ]
    return program._replace(cells=tuple(some))


@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    seeds=st.integers(1, 12),
    limit=st.integers(1, 60),
    parts=st.sampled_from([1, 2, 3, 8]),
)
def test_chunks_cover_every_run_once(sizes: list[int], seeds: int, limit: int, parts: int) -> None:
    """Within the limit, divisible by the devices, one batch size in each."""
    batches = [b + 1 for b, size in enumerate(sizes) for _ in range(size)]
    todo = chunks(3, made_of(*batches), range(seeds), limit, parts)
    ((tall, wide),) = {chunk.shape for chunk in todo}
    found = [(j, s) for chunk in todo for j in chunk.cells for s in chunk.seeds]
    assert sorted(found) == list(itertools.product(range(len(batches)), range(seeds)))
    assert tall * wide <= max(limit, parts)
    assert tall % parts == 0 or wide % parts == 0
    for chunk in todo:
        assert chunk.program == 3
        assert len(chunk.seeds) <= tall
        assert len(chunk.cells) <= wide
        assert len({batches[j] for j in chunk.cells}) == 1


def test_shapes() -> None:
    for size, seeds, limit, parts, shape in (
        (6, 4, 100, 1, (4, 6)),  # all at once
        (6, 5, 12, 1, (2, 6)),  # cells first
        (10, 4, 6, 1, (1, 5)),  # even parts
        (12, 5, 1000, 8, (5, 16)),  # 10 runs on each device: split by seeds it would be 12
        (12, 8, 1000, 8, (8, 12)),  # 12 on each: split by cells it would be 16
        (3, 1, 1, 8, (1, 8)),  # no less than one on each
    ):
        assert chunks(0, made_of(*[1] * size), range(seeds), limit, parts)[0].shape == shape


@settings(max_examples=50)
@given(cells=st.integers(1, 20), seeds=st.integers(1, 12), parts=st.sampled_from([1, 2, 8]))
def test_halves_are_the_whole(cells: int, seeds: int, parts: int) -> None:
    """Again and again, down to one run on each device."""
    first = chunks(0, made_of(*[1] * cells), range(seeds), 1000, parts)[0]
    waiting, found = [(0, first)], []
    while waiting:
        number, chunk = waiting.pop()
        some = halves(number, chunk, parts)
        if not some:
            found.append(chunk)
            assert chunk.shape[0] * chunk.shape[1] <= parts
        for half in some:
            assert half.parent == number
            assert len(half.seeds) <= half.shape[0]
            assert len(half.cells) <= half.shape[1]
            waiting.append((number + 1, half))
    runs = [(c, s) for chunk in found for c in chunk.cells for s in chunk.seeds]
    assert sorted(runs) == sorted(itertools.product(first.cells, first.seeds))


# --- memory --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide() -> jaxfl.Problem:
    return a_problem(n=6, d=3000)


@pytest.mark.full
def test_chunks_obey_the_memory(wide: jaxfl.Problem) -> None:
    """One that does not fit after all is halved."""
    given: Any = dict(rounds=3, seeds=2, clip=2.0, k=6, lr=[0.1, 0.2, 0.3], sigma=[0.01, 0.02])
    plans: list[Any] = []
    losses, counts = [], []
    for memory in (None, 1_900_000):
        ds = jaxfl.sweep("soteriafl_gd", wide, memory=memory, announce=plans.append, **given)
        losses.append(ds["loss"].values)
        counts.append(json.loads(ds.attrs["config"])["chunks"])
        assert 0 < plans[-1].bytes <= plans[-1].available == (memory or plans[-1].available)
    assert 1 == counts[0] < counts[1] <= 12
    assert jnp.allclose(*losses, 1e-5)


def test_a_run_that_cannot_fit_is_refused(wide: jaxfl.Problem, tmp_path: Path) -> None:
    """What is finished before it is kept: with more memory it goes on."""
    given: Any = dict(rounds=3, clip=2.0, k=6, sigma=0.01, lr=[0.1, 0.2], out=tmp_path)
    both = ["ldp_gd", "soteriafl_gd"]
    words = r"One run of soteriafl_gd .* needs [\d,]+ bytes and 1,250,000 are available"
    with pytest.raises(jaxfl.InputError, match=words):
        jaxfl.sweep(both, wide, memory=1_250_000, **given)
    assert list((tmp_path / "chunks").glob("chunk-*.npz"))
    ds = jaxfl.sweep(both, wide, resume=True, **given)
    assert (ds["complete"] == 1).all()


def test_free_memory_is_looked_up() -> None:
    here = jax.local_devices()
    assert budget(10**9, here) == 10**9
    assert 0 < budget(None, here) < 0.7 * 2**50
    with open("/proc/meminfo", encoding="ascii") as file:
        total = int(file.readline().split()[1]) * 1024
    assert budget(None, here) < total


def test_a_control_group_limits_the_free_memory(tmp_path: Path) -> None:
    """As of a job of SLURM: the limit is that of a group above, and cached files are not in use."""
    own, group = tmp_path / "cgroup", tmp_path / "job" / "step"
    group.mkdir(parents=True)
    own.write_text("4:memory:/other\n0::/job/step\n")
    assert _of_group(tmp_path, str(own)) == math.inf
    for place, limit in ((group, "max"), (group.parent, "1000")):
        (place / "memory.max").write_text(limit)
        (place / "memory.current").write_text("500\n")
        (place / "memory.stat").write_text("anon 300\ninactive_file 200\n")
    assert _of_group(tmp_path, str(own)) == 700
