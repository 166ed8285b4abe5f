"""Results: labelled, exact on disk, and refused in one sentence where they are no results."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from rows import a_problem
from told import refused

import jaxfl
from jaxfl import privacy
from jaxfl.engine import dataset, results
from jaxfl.engine.runs import SEEDED, Record
from jaxfl.privacy.claims import above

pytestmark = pytest.mark.once


METRICS = {
    "shares": lambda problem, x: jnp.stack([jnp.max(x), jnp.min(x)]),
    "active": lambda problem, x: jnp.sum(x != 0),
    "half": lambda problem, x: jnp.mean(x).astype(jnp.bfloat16),
    "above": lambda problem, x: jnp.mean(x) > 0,
}


@pytest.fixture(scope="module")
def run() -> jaxfl.Run:
    given: dict[str, Any] = dict(eval_every=4, metrics=METRICS, batch=4, k=3, lr=0.2, sigma=1.0)
    return jaxfl.simulate("soteriafl_sgd", a_problem(), jax.random.key(1), 11, **given)


def test_what_a_dataset_holds(run: jaxfl.Run) -> None:
    """Labels and dimensions, the run's numbers and totals, and the running mean."""
    ds = run.dataset()
    assert ds["round"].values.tolist() == [0, 4, 8, 11]
    assert ds["loss"].dims == ds["uplink_bits"].dims == ds["active"].dims == ("round",)
    assert ds["client_loss"].dims == ("round", "client")
    assert ds["shares"].dims == ("round", "shares_0")
    assert ds["x"].dims == ("coordinate",)
    for name in ds.variables:
        assert ds[name].attrs["units"]
        assert ds[name].attrs["long_name"]
    np.testing.assert_array_equal(ds["x"], run.x)
    np.testing.assert_array_equal(ds["loss"], run.metrics["loss"])
    g = run.metrics["grad_norm_sq"].astype(np.float64)
    average = np.cumsum(g) / np.arange(1, len(g) + 1)
    np.testing.assert_allclose(ds["utility"], average, 1e-12)
    for name, value in run.totals.items():
        assert float(ds["messages" if name == "clients" else name][-1]) == value
    assert ds["uplink_bits"].values[0] == 0


def spent_by_hand(run: jaxfl.Run) -> list[float]:
    """eps of every evaluated round, from events made one by one."""
    values = [{**run.values, "rounds": int(t)} for t in run.rounds]
    events = [run.algorithm.event(each, run.facts) for each in values]
    return [privacy.epsilon(event, run.values["delta"]).eps for event in events]


def test_privacy_spent_ends_at_what_is_proven(run: jaxfl.Run) -> None:
    """Clients of three sizes: each of them makes every release, from the first round on."""
    assert len(run.facts.sizes) == 3
    eps = run.dataset()["eps_spent"]
    assert eps.values[0] == 0
    assert eps.values[-1] == run.privacy().proven
    assert eps.values.tolist() == spent_by_hand(run)
    assert "upper bound" in eps.attrs["comment"]
    more = run.extend(24)
    assert len(more.rounds) < dataset.ACCOUNTED
    assert more.dataset()["eps_spent"].values.tolist() == spent_by_hand(more)
    assert spent_by_hand(more)[-1] == more.privacy().proven > run.privacy().proven


def test_privacy_spent_is_never_below_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed at few of the rounds; the others hold the value of the next of these."""
    run = jaxfl.simulate("ldp_sgd", a_problem(), jax.random.key(0), 60, eval_every=1, batch=4)
    asked: list[int] = []
    spent = Record.spent

    def counted(run: Record, rounds: Any, delta: float | None = None) -> Any:
        asked.extend(rounds)
        return spent(run, rounds, delta)

    monkeypatch.setattr(Record, "spent", counted)
    eps = run.dataset()["eps_spent"].values
    true = np.asarray(spent_by_hand(run))
    assert len(asked) <= dataset.ACCOUNTED < len(true)
    np.testing.assert_array_equal(eps[asked], true[asked])
    assert np.all(eps >= true)
    assert np.all(np.diff(eps) >= 0)
    for t in range(61):
        assert eps[t] == true[min(s for s in asked if s >= t)]
    assert np.max(np.diff(eps)) < 0.1 * eps[-1]  # 24 steps of about the same height


def test_nothing_is_said_of_eps_where_none_is_proven() -> None:
    for name, parts, numbers, words in (
        ("fedsgd", {}, {}, "not private: no noise"),
        ("ldp_sgd", {}, {"sigma": 0.0}, "not private: no noise"),
        ("ldp_sgd", {"clip": "batch"}, {"sigma": 1.0}, "no per-record"),
    ):
        algorithm = jaxfl.algorithm(name, **parts)
        ran = jaxfl.simulate(algorithm, a_problem(), jax.random.key(0), 2, batch=4, **numbers)
        assert np.isinf(ran.privacy().proven)
        assert "eps_spent" not in ran.dataset()
        assert words in results.privacy(results.config(ran.dataset()))


def test_config_says_how_to_make_it_again(run: jaxfl.Run) -> None:
    """Also with numbers that JSON does not have."""
    odd = {**run.values, "eps": float("inf"), "batch": np.float32(4)}
    about = results.config(dataclasses.replace(run, values=odd).dataset())
    assert (about["values"]["eps"], about["values"]["batch"]) == ("inf", 4.0)
    about = results.config(run.dataset())
    assert about["values"]["k"] == 3
    assert about["sources"]["k"] == "given"
    assert about["settings"]["versions"]["jax"] == jax.__version__
    assert about["settings"]["key"] != str(jax.random.key_data(run.key).tolist())
    assert about["facts"]["n"] == 5
    assert about["ended"] == "finished"
    assert about["privacy"]["proven"] == run.privacy().proven
    words = f"eps = {above(run.privacy().proven):.4g}, delta = 0.001 proven"
    assert results.privacy(about).startswith(words)
    assert about["seconds"] >= about["compile_seconds"] > 0


def test_round_trip_is_exact(run: jaxfl.Run, tmp_path: Path) -> None:
    ds = run.dataset()
    ds["loss"].values[2] = np.nan
    ds["worst_client_loss"].values[1] = -np.inf
    path = run.save(tmp_path / "deeper" / "run.nc")
    results.save(ds, path)
    back = jaxfl.load(path)
    assert back.identical(ds)
    for name in ds.variables:
        assert back[name].dtype == ds[name].dtype
        assert back[name].values.tobytes() == ds[name].values.tobytes()
    assert [p.name for p in path.parent.iterdir()] == ["run.nc"]


def test_totals_beyond_exact_floats_are_the_nearest(run: jaxfl.Run) -> None:
    """Counts, and bits that follow from them: a run of weeks does not lose its result at the end."""
    counts = np.array([1, 2**60 + 1], np.int64)
    np.testing.assert_array_equal(results.portable("gradients", counts), [1.0, 2.0**60])
    assert run.computed is not None
    ((number, arrays),) = run.computed.found.items()
    assert arrays is not None
    huge = {**arrays, "clients": np.full_like(arrays["clients"], 2.0**60)}
    huge["clients"][..., 1] = np.nan
    bits = dataset.dataset(run.computed.planned, {number: huge}, {})["downlink_bits"].values.ravel()
    assert np.isnan(bits[1])
    assert bits[-1] == 2.0**60 * run.cost.downlink


def test_more_evaluations_than_fit_in_memory_are_refused_before_they_are_listed() -> None:
    for call in (jaxfl.simulate, jaxfl.sweep):
        long = functools.partial(call, "fedgd", a_problem(), rounds=2**31 - 1, eval_every=1, lr=0.1)
        refused(long, "results of these runs would take")
    refused(
        lambda: jaxfl.simulate("fedgd", a_problem(), rounds=2**31, lr=0.1), "at most 2147483647"
    )


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.nc"
    for content in (b"", b"not a result\n", b"CDF\x02", b"PK\x03\x04" * 9):
        path.write_bytes(content)
        refused(lambda: jaxfl.load(path), r"other\.nc")
    refused(lambda: jaxfl.load(tmp_path / "none.nc"), "none.nc")
    xarray.Dataset({"a": ("b", [1.0])}).to_netcdf(path, engine="scipy")
    refused(lambda: jaxfl.load(path), "has no digest of its contents, as files of .* other prog")


def test_a_failed_write_leaves_the_old_file(
    run: jaxfl.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(lambda: run.save(tmp_path), "it is a folder, and a result is a file")
    refused(lambda: run.save(tmp_path / "run.csv"), "names a table, and results are netCDF files")
    path = run.save(tmp_path / "run.nc")
    before = path.read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    refused(lambda: run.save(path), "No space left")
    assert path.read_bytes() == before


@pytest.mark.parametrize("given", [{"seed": 3}, {}, {"seed": 3, "key": jax.random.key(7)}])
def test_a_seed_that_others_may_guess_is_named(given: dict[str, Any]) -> None:
    """In the report, in its card and in the file; with a key of the user's own nothing follows from it."""
    run = jaxfl.simulate("ldp_gd", a_problem(), rounds=2, eps=2.0, lr=0.1, **given)
    file = results.assumed(results.config(run.dataset()))
    for words in (str(run.privacy()), str(run.privacy().card()), file):
        assert (SEEDED.format(3) in words) == ("seed" in given and "key" not in given)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("name", "given", "public"),
    [
        ("dp_srm", {}, True),
        ("dp_srm", {"smoothness": 1.0}, False),
        ("dp_sgd", {}, True),
        ("dp_sgd", {"lr": 0.1}, False),  # no round reads L
        ("dp_srm", {"lr": 0.1}, True),  # other numbers follow from it,
        ("ldp_spider", {"lr": 0.1}, True),  # and here rounds read it
    ],
)
def test_a_smoothness_that_data_give_is_assumed_to_be_public(
    name: str, given: dict[str, Any], public: bool
) -> None:
    report = jaxfl.simulate(name, a_problem(), rounds=2, eps=2.0, seed=3, **given).privacy()
    for words in (str(report), str(report.card())):
        assert (
            "that the smoothness L, which is computed from the data, is public" in words
        ) == public
