"""Data on the host: the published files, partitions, user arrays, and a user's mistakes."""

import gzip
import hashlib
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas
import pytest
from told import refusals, refused

from jaxfl import Problem, data, models
from jaxfl.core.errors import JaxflWarning
from jaxfl.data import sources
from jaxfl.data.loaders import load_libsvm
from jaxfl.data.partition import (
    PARTITIONS,
    by_label,
    class_pairs,
    dirichlet,
    iid,
    partition,
    round_robin,
    shards,
)
from jaxfl.data.preprocess import append_ones, drop_trailing, moments, scale_spectral
from jaxfl.data.records import gather
from jaxfl.data.sizes import sizes
from jaxfl.data.splits import holdout

pytestmark = pytest.mark.once


def test_a9a_as_in_soteriafl(data_dir):
    """Experiment E1: the exact order of the authors' code."""
    dataset = data.map_features(data.load("a9a", directory=data_dir), append_ones)
    dataset, c = scale_spectral(drop_trailing(dataset, 10))
    assert abs(c - 1.3485619931) < 1e-9
    clients = data.split(dataset, 10, "by_label")
    x, y = clients.train
    assert (x.shape, x.dtype, y.dtype) == ((10, 3256, 124), np.float32, np.int32)
    assert clients.test[0].shape == (16281, 124)
    assert (clients.count == 3256).all()
    np.testing.assert_allclose(y.mean(axis=1), [0] * 7 + [0.4079, 1, 1], atol=5e-5)


def test_mnist_facts(data_dir):
    mnist = data.load("mnist", directory=data_dir)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.train[1]).tolist() == counts
    assert (mnist.train[0].shape, mnist.test[0].shape) == ((60000, 784), (10000, 784))
    assert mnist.train[0].max() == 1
    mean, deviation = moments(mnist.train[0])
    assert float(mean) == pytest.approx(0.1306604763, abs=1e-8)
    assert float(deviation) == pytest.approx(0.3081078039, abs=1e-8)


def test_a_part_of_a_named_data_set():
    """Evenly spaced training records, and all test records; an option of that name comes first."""
    whole, some = data.load("digits"), data.load("digits", records=100)
    assert len(some.train[1]) == 100
    at = np.linspace(0, len(whole.train[1]) - 1, 100).round().astype(int)
    np.testing.assert_array_equal(some.train[0], whole.train[0][at])
    np.testing.assert_array_equal(some.test[0], whole.test[0])
    refused(lambda: data.load("digits", records=1443), "records = 1443 must be .* at most 1442")


def test_adult(data_dir):
    adult = data.load("adult", directory=data_dir)
    assert adult.train[0].shape == (32561, 108)
    assert np.bincount(adult.train[1]).tolist() == [24720, 7841]
    assert np.bincount(adult.test[1]).tolist() == [12435, 3846]
    numeric, hot = np.split(adult.train[0].astype(np.float64), [6], axis=1)
    assert np.abs(numeric.mean(axis=0)).max() < 1e-5
    assert np.abs(numeric.std(axis=0) - 1).max() < 1e-5
    assert (hot.sum(axis=1) == 8).all()
    everything = data.load("adult", directory=data_dir, pool=True)
    assert everything.test is None
    assert data.split(everything, 16).train[0].shape == (16, 3052, 108)


def test_mushrooms_has_a_test_set_only_on_request(data_dir):
    whole = data.load("mushrooms", directory=data_dir)
    assert (whole.test, whole.train[0].shape) == (None, (8124, 112))
    assert np.bincount(whole.train[1]).tolist() == [3916, 4208]
    parts = data.load("mushrooms", directory=data_dir, test_share=0.25)
    assert np.bincount(parts.test[1]).tolist() == [979, 1052]
    assert len(parts.train[1]) == 8124 - 979 - 1052


CONTENT = b"1 1:1 3:2\n-1 2:1\n"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An empty user directory, an empty cache, no network, and one known gzipped file."""
    own, cache = tmp_path / "own", tmp_path / "cache"
    own.mkdir()
    cache.mkdir()
    digest = hashlib.sha256(CONTENT).hexdigest()
    source = sources.Source("toy.gz", digest, ("https://a.invalid/", "https://b.invalid/"))
    monkeypatch.setattr(sources, "FILES", {"toy.gz": source})
    monkeypatch.setattr(sources, "_cache", lambda: cache)
    monkeypatch.setattr(sources, "_fetch", offline)
    monkeypatch.setenv("JAXFL_DATA", str(own))
    return own, cache


def offline(url: str, path: str) -> None:
    raise ConnectionError(url)


def test_user_directory_then_cache_then_hosts(places, monkeypatch):
    """A file that is not the published one is not taken from anywhere."""
    own, cache = places
    words = f"'toy.gz' is not in {own} or {cache}.*ConnectionError.*https://a.invalid/"
    refused(lambda: sources.read("toy.gz"), words)
    assert not list(cache.iterdir())
    refused(lambda: sources.read("toy.gz", download=False), "downloads are switched off")

    def fetch(url: str, path: str) -> None:
        body = b"<html>moved</html>" if url.startswith("https://a.") else gzip.compress(CONTENT)
        Path(path).write_bytes(body)

    monkeypatch.setattr(sources, "_fetch", fetch)
    assert sources.read("toy.gz") == CONTENT
    assert [file.name for file in cache.iterdir()] == ["toy.gz"]
    monkeypatch.setattr(sources, "_fetch", offline)
    assert sources.read("toy.gz") == CONTENT
    words = f"own/toy is not the published .*{hashlib.sha256(CONTENT).hexdigest()}.*replace or"
    for raw in (b"text", gzip.compress(b"other"), gzip.compress(CONTENT)[:-9]):
        (own / "toy").write_bytes(raw)
        refused(lambda: sources.read("toy.gz"), words)
    (own / "toy").write_bytes(CONTENT)
    assert sources.read("toy.gz") == CONTENT


def test_small_differences_of_large_numbers_are_standardised_and_told():
    """8 is the least difference of two floats at 1e8."""
    y = np.array([0, 1, 1, 1], np.float32)
    rows = data.Dataset("rows", (np.stack([1e8 + 8 * y, y], 1), y))
    with pytest.warns(JaxflWarning, match=r"of feature 0 are equal, or differ by .* float32"):
        made, *_ = data.standardise(rows, per_feature=True)
    np.testing.assert_allclose(*made.train[0].T, rtol=1e-6)


def test_libsvm_file(tmp_path, monkeypatch):
    """One has to fit what is free, whatever an index that is a slip of the pen asks for."""
    (tmp_path / "train").write_bytes(CONTENT)
    (tmp_path / "test").write_bytes(b"1 2:5\n")
    (tmp_path / "packed").write_bytes(gzip.compress(CONTENT))
    toy = load_libsvm(tmp_path / "packed", tmp_path / "test")
    np.testing.assert_array_equal(toy.train[0], [[1, 0, 2], [0, 1, 0]])
    np.testing.assert_array_equal(toy.train[1], [1, 0])
    np.testing.assert_array_equal(toy.test[0], [[0, 5, 0]])
    assert toy.classes == 2
    assert load_libsvm(tmp_path / "train", features=7).train[0].shape == (2, 7)
    scaled = load_libsvm(tmp_path / "train", scale=True)
    np.testing.assert_array_equal(scaled.train[0], [[1, -1, 1], [-1, 1, -1]])
    real = load_libsvm(tmp_path / "train", classes=0)
    assert (real.train[1].dtype, real.train[1].tolist()) == (np.float32, [1, -1])
    (tmp_path / "two").write_text("0.25 1:1\n0.75 1:2\n")
    assert load_libsvm(tmp_path / "two").train[1].tolist() == [0.25, 0.75]
    (tmp_path / "wide").write_text("1 1000000:1\n2 1:1\n")
    assert load_libsvm(tmp_path / "wide").train[0].shape == (2, 1_000_000)
    monkeypatch.setattr("jaxfl.data.loaders.free", lambda device: 3 * 7_999_999)
    words = r"8,000,000 bytes .* there is room for 7,999,999"
    refused(lambda: load_libsvm(tmp_path / "wide"), words)


LABELS = np.random.default_rng(0).integers(0, 6, 907)
CASES = [
    ("iid", {}),
    ("contiguous", {"drop_remainder": False}),
    ("round_robin", {}),
    ("by_label", {}),
    ("shards", {"per_client": 3}),
    ("shards", {"per_client": 1, "drop_remainder": False}),
    ("dirichlet", {"alpha": 0.1}),
    ("dirichlet", {"alpha": 1e9, "min_size": 90}),
    ("class_pairs", {}),
    ("class_pairs", {"per_class": 40}),
    ("by_size", {"law": "lognormal", "spread": 2.0, "min_size": 5}),
    ("by_size", {"law": "zipf"}),
]


@pytest.mark.plain
@pytest.mark.parametrize(("name", "options"), CASES)
def test_partition(name, options):
    assert {name for name, _ in CASES} == set(PARTITIONS)
    parts = partition(name, LABELS, 9, seed=3, **options)
    used, size = np.concatenate(parts), np.array([len(part) for part in parts])
    assert len(parts) == 9
    assert len(np.unique(used)) == len(used)
    assert 0 <= used.min() <= used.max() < 907
    assert size.min() >= options.get("min_size", 1)
    fixed = name in ("iid", "contiguous", "round_robin", "by_label", "shards")
    if fixed and options.get("drop_remainder", True):
        assert (size == 907 // 9 - (907 // 9) % options.get("per_client", 1)).all()
    else:
        assert size.sum() == (9 * 80 if "per_class" in options else 907)
    for seed, alike in ((3, True), (4, name in ("contiguous", "round_robin", "by_label"))):
        again = partition(name, LABELS, 9, seed=seed, **options)
        assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True)) == alike


def test_partitions_by_hand():
    """By label is stable and drops in the order of the file; sizes follow their law."""
    parts = by_label(np.array([1, 0, 1, 0, 1, 0, 0]), 3)
    assert [part.tolist() for part in parts] == [[1, 3], [5, 0], [2, 4]]
    assert round_robin(7, 3)[0].tolist() == [0, 3]
    assert sizes("equal", 10, 3).tolist() == [4, 3, 3]
    assert sizes("zipf", 1100, 3, min_size=0).tolist() == [600, 300, 200]
    assert sizes("zipf", 4, 4, min_size=1).tolist() == [1, 1, 1, 1]
    log_size = np.log(sizes("lognormal", 10**9, 4000, spread=0.7))
    assert log_size.std() == pytest.approx(0.7, rel=0.05)


def test_dirichlet_follows_its_law():
    """E sum_k p_k^2 = (alpha + 1) / (n alpha + 1) for p ~ Dirichlet(alpha, ..., alpha)."""
    labels, found = np.zeros(2000, int), []
    for seed in range(400):
        size = [len(part) for part in dirichlet(labels, 4, seed, alpha=0.7, min_size=1)]
        found.append(np.sum(np.square(size)) / 2000**2)
    # Discarding draws with an empty client moves the mean by less than the tolerance.
    assert np.mean(found) == pytest.approx(1.7 / 3.8, abs=0.03)
    for part in dirichlet(np.zeros(1000, int), 2, seed=0, alpha=100.0):
        assert part[0] < 50 < 950 < part[-1]  # not the first rows, which may be in order of time


def test_class_pairs_share_or_reuse():
    pairs = [(0, 1), (0, 3), (2, 5)]
    for reuse in (False, True):
        parts = class_pairs(LABELS, 3, pairs=pairs, reuse=reuse)
        assert [set(LABELS[part]) for part in parts] == [set(pair) for pair in pairs]
        zeros = [set(part[LABELS[part] == 0]) for part in parts[:2]]
        assert (zeros[0] == zeros[1]) if reuse else not zeros[0] & zeros[1]


def test_split_pads_with_zeros():
    """How it was split is said, and enters no compiled program."""
    x = np.arange(1, 21, dtype=np.float64).reshape(10, 2)
    dataset = data.Dataset("toy", (x, np.ones(10, np.int64)), (x[:3], np.ones(3, int)), 2)
    clients = data.split(dataset, 3, "by_size", law="zipf")
    assert clients.partition == "by_size(law=zipf)"
    model = models.logistic(2)
    one, two = (Problem(model, clients._replace(partition=how)) for how in ("iid", "by"))
    assert jax.tree.structure(one) == jax.tree.structure(two)
    assert clients.count.tolist() == [5, 3, 2]
    features, labels = clients.train
    for i, own in enumerate(clients.count):
        assert (features[i, :own] != 0).all()
        assert not features[i, own:].any() | labels[i, own:].any()
        assert data.client(clients, i)[0].shape == (own, 2)


@pytest.mark.plain
@pytest.mark.parametrize(("classes", "unequal"), [(0, None), (2, "lognormal"), (7, None)])
def test_synthetic_shapes(classes, unequal):
    options = {"classes": classes, "unequal": unequal, "seed": 2}
    made = data.synthetic(6, 20, 5, test=3, **options)
    x, y = made.train
    assert made.count.sum() == 120
    assert (x.shape, made.test[0].shape) == ((6, made.count.max(), 5), (18, 5))
    assert y.dtype == (np.int32 if classes else np.float32)
    padding = np.arange(x.shape[1]) >= made.count[:, None]
    assert (x[padding] == 0).all()
    pooled = data.load("synthetic", n=6, m=20, d=5, **options)
    np.testing.assert_array_equal(pooled.train[0], x[~padding])


def test_synthetic_data_have_the_published_moments():
    x = data.synthetic(400, 50, 8, beta=2.0, seed=1).train[0].astype(np.float64)
    within = (x - x.mean(axis=1, keepdims=True)).reshape(-1, 8)
    cov = within.T @ within / (400 * 49)
    np.testing.assert_allclose(cov, np.diag(np.arange(1, 9) ** -1.2), atol=0.03)
    centre = x.mean(axis=(1, 2))
    assert centre.std() == pytest.approx(np.sqrt(2.0**2 + 1 / 8), rel=0.1)
    made = data.synthetic(30, 100, 6, 0.0, 1.0, classes=0, noise=0.3, variant="entrywise")
    x = append_ones(made.train[0].reshape(-1, 6)).astype(np.float64)
    y = made.train[1].reshape(-1)
    residual = y - x @ np.linalg.lstsq(x, y)[0]  # of one model, at alpha = 0
    assert residual.std() == pytest.approx(0.3, rel=0.05)


class Rows(NamedTuple):
    x: np.ndarray
    y: np.ndarray


def user(*lengths: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.full((k, 3), i + 1.0), np.ones(k, int)) for i, k in enumerate(lengths)]


def test_from_clients_of_unequal_lengths():
    made = data.from_clients(user(4, 1, 2), test=user(5)[0], classes=2, name="mine")
    assert (made.train[0].shape, made.train[0].dtype) == ((3, 4, 3), np.float32)
    assert made.train[1].dtype == np.int32
    assert (made.count.tolist(), made.train[0][1].sum()) == ([4, 1, 2], 6)
    assert (made.test[0].dtype, made.test[0].shape) == (np.float32, (5, 3))
    np.testing.assert_array_equal(data.client(made, 2)[0], np.full((2, 3), 3.0))
    assert data.from_clients(user(4, 1), dtype="float64").train[0].dtype == np.float64


def test_from_clients_of_stacked_leaves():
    x, y = np.ones((3, 4, 2)), np.ones((3, 4), np.int8)
    for tree in ({"x": x, "y": y}, Rows(x, y)):
        assert data.from_clients(tree, stacked=True).count.tolist() == [4, 4, 4]
    made = data.from_clients((x, y), stacked=True, count=[4, 2, 1])
    assert made.train[0].sum(axis=(1, 2)).tolist() == [8, 4, 2]
    assert x.all()
    assert data.from_clients(list(x)).train.shape == x.shape
    table = pandas.DataFrame(np.arange(6.0).reshape(3, 2))  # an array too, as is an open mask
    clients = data.from_clients([(table,), (np.ma.masked_array(table.values, mask=False),)])
    np.testing.assert_array_equal(clients.train[0], np.stack([table.values] * 2))


COLUMNS: dict[str, list[Any]] = {
    "site": ["oslo", "bern", "oslo", "rome", "bern", "oslo"],
    "age": [61, 48, 55, 30, 71, 44],
    "bmi": [22.5, 30.0, 27.1, 19.8, 24.4, 33.3],
    "smokes": [True, False, False, True, True, False],
    "ill": ["yes", "no", "no", "yes", "no", "yes"],
}


@pytest.fixture(params=["pandas", "polars"])
def table(request):
    """A maker of tables with ``COLUMNS``, changed by its arguments (None: without that column)."""
    library = pytest.importorskip(request.param)

    def make(**columns: Any) -> Any:
        every = {**COLUMNS, **columns}
        return library.DataFrame({name: c for name, c in every.items() if c is not None})

    return make


def test_a_table_with_a_column_of_clients(table):
    """A misread column, row or client changes one of these."""
    made = data.from_clients(table(), client="site", label="ill", test=table()[:2])
    x, y = made.train
    assert made.count.tolist() == [2, 3, 1]
    assert (x.dtype, y.dtype, made.classes) == (np.float32, np.int32, 2)
    assert x[1].tolist() == np.float32([[61, 22.5, 1], [55, 27.1, 0], [44, 33.3, 0]]).tolist()
    assert y[1].tolist() == [1, 0, 1]
    assert [leaf.tolist() for leaf in data.client(made, 0)][1] == [0, 0]
    assert made.test[1].tolist() == [1, 0]
    assert repr(made).splitlines() == [
        "ClientData 'data': 3 clients, 6 samples, 1 to 3 each, 2 for testing of 2 clients",
        "  train[0]: float32 (3, 3, 3)",
        "  train[1]: int32 (3, 3)",
        "  features: age, bmi, smokes",
        "  label: ill",
        "  classes: 0 = no (3 records), 1 = yes (3 records)",
        "  clients: bern, oslo, rome",
        "  heterogeneity: label divergence 0.389, feature divergence 0.571",
    ]


def test_labels_that_are_all_alike_are_told(table):
    """Of clients of different sizes, whose padding is zero."""
    alike = data.from_clients(table(ill=[1] * len(table())), client="site", label="ill")
    assert "  labels: all are 1" in repr(alike).splitlines()


def test_tables_of_several_clients_agree_by_the_names_of_columns(table):
    turned = table()[["ill", "smokes", "bmi", "age"]]
    by_name = data.from_clients({"a": table(site=None), "b": turned}, label="ill")
    np.testing.assert_array_equal(by_name.train[0][0], by_name.train[0][1])
    assert by_name.client_names == ("a", "b")
    alone = data.from_clients(table(), client="age", features=["smokes", "bmi"], dtype="float64")
    assert alone.train.tolist()[0] == [[1.0, 19.8]]


def test_an_error_about_labels_has_the_names_of_classes():
    made = data.from_frame(pandas.DataFrame({"x": [0.0, 1.0, 2.0], "y": list("abc")}), label="y")
    posed = lambda: Problem(models.logistic(1), data.split(made, 1))  # noqa: E731
    refused(posed, "^The classes of these data are 'a', 'b', 'c': Labels hold 2, and must be whole")


def test_whole_numbers_booleans_and_categories_as_labels(table):
    frame = table(site=None)
    kind = "category" if hasattr(frame, "astype") else pytest.importorskip("polars").Categorical
    named = getattr(frame, "astype", getattr(frame, "cast", None))({"ill": kind})
    for labels, classes, wanted in (
        (table(site=None, ill=[2, 0, 1, 0, 1, 2]), (), [2, 0, 1, 0, 1, 2]),
        (table(site=None, ill=COLUMNS["smokes"]), ("False", "True"), [1, 0, 0, 1, 1, 0]),
        (named, ("no", "yes"), [1, 0, 0, 1, 0, 1]),
    ):
        made = data.from_frame(labels, label="ill")
        assert (made.class_names, made.train[1].tolist()) == (classes, wanted)


@pytest.mark.parametrize(
    ("columns", "given", "words"),
    [
        ({}, {"client": None}, "has the columns site, age, bmi, smokes, ill: name the one"),
        ({}, {"client": "sites"}, "no column in the table named 'sites': did you mean 'site'"),
        ({}, {"client": "bmi"}, "client = 'bmi' is a column of real numbers"),
        ({}, {"features": ["agee"]}, "no column in the table named 'agee': did you mean 'age'"),
        ({}, {"features": ["ill", "age"]}, "is the label too"),
        ({"age": ["a"] * 6}, {}, "column 'age' holds text, and features are numbers: encode it"),
        ({"age": [*"123456"]}, {}, "holds numbers as text, .*: convert it .pandas.to_numeric"),
        ({"age": [*"12", "n/a", *"456"]}, {}, "holds 'n/a' in row 2 among numbers, .*: convert it"),
        ({"age": [1, None, 2, 3, 4, 5]}, {}, "'age' misses 1 of 6 values, the first in row 1"),
        ({"site": [*"abcde", None]}, {}, "column 'site' misses 1 of 6 values, the first in row 5"),
    ],
)
@pytest.mark.plain
def test_mistakes_in_tables(table, columns, given, words):
    given = {"client": "site", "label": "ill", **given}
    refused(lambda: data.from_clients(table(**columns), **given), words)


DIGIT = data.Dataset("d", (np.ones((6, 2)), np.arange(6) % 2), None, 2)
HIDDEN = np.ma.masked_equal(np.arange(6.0).reshape(2, 3), 4)
TABLE = pandas.DataFrame({"a": [1, 0], "b": [0.5, 2.0]})
ILL = pandas.DataFrame({"site": ["a", "b"], "x": [1.0, 2.0], "y": ["ill", "well"]})
SITE = {"client": "site", "label": "y"}
NAN = np.array([[1.0, 2.0], [np.nan, 3.0]])
ONES = np.ones((99, 3))
ROWS = {"x": np.ones(9), "y": np.ones(9)}


def clients(*given: Any, **more: Any) -> Any:
    return lambda: data.from_clients(*given, **more)


def split(*given: Any, **more: Any) -> Any:
    return lambda: data.split(*given, **more)


test_mistake = refusals(
    (lambda: data.load("a9a", directory="/no/such"), "not a directory"),
    (lambda: load_libsvm("/no/such"), "does not exist"),
    (split(DIGIT, 2, alpha=1), "no option 'alpha'"),
    (split("digits", 2, records=9), r"jaxfl.data.load\(name, records=...\)"),
    (split("digits", client=2), "has no option 'client': did you mean 'clients'[?] its options"),
    (
        clients(ILL, client="site", lable="y"),
        "'lable': did you mean 'label'[?] its options are test, ",
    ),
    (lambda: data.synthetic(3, 8, 4, clases=2), "^Function 'synthetic' .* did you mean 'classes'"),
    (lambda: data.load("digits", n=9), "no option 'n': its options are records"),
    (split(DIGIT, 7), "7 clients .* cannot share 6 rows"),
    (split(DIGIT.train, 2), "must be a Dataset"),
    (split(data.standardise(DIGIT), 2), "first item of a tuple: unpack it, as in data,"),
    (
        split(Path("mine.csv"), 2),
        r"'mine.csv' is a path, and no data: read a table by pandas, and take",
    ),
    (clients("mine.csv"), "'mine.csv' is a path, and no data: .* jaxfl.data.leaf"),
    (split(TABLE, 2), r"^dataset = DataFrame of shape \(\d+, \d+\) must .*from_clients\("),
    (lambda: dirichlet(LABELS, 30, alpha=0.01, min_size=25), "alpha = 0.01 .* raise alpha"),
    (lambda: by_label(10, 2), "one label per row"),
    (lambda: shards(LABELS, 300, per_client=4), "at least 4 rows each cannot share 907"),
    (lambda: class_pairs(LABELS, 2), "clients = 2 must be .* 9"),
    (lambda: class_pairs(LABELS, 9, per_class=900), "whose clients need 2700"),
    (lambda: holdout(iid(4, 4), 0.5), "all 1 rows of client 0"),
    (lambda: gather(DIGIT, [[0, 6]]), r"integers in 0\.\.5"),
    (clients([]), "0 clients"),
    (clients([(NAN[:1],), (NAN,)]), r"Client 1, leaf \[0\],.* in row 1"),
    (clients([np.array([1e300])]), r"exceeds float32 \(3.4e\+38\) in row 0: scale it"),
    (clients([(np.ones((3, 2)), np.ones(2))]), r"\[1\], has 2 rows but its first leaf has 3"),
    (clients([[[1.0, 2.0], [3.0]]]), "not nested lists"),
    (clients([np.ones((2, 3)), np.ones((2, 4))]), "make them alike"),
    (clients((np.ones((3, 4, 2)), np.ones((3, 4)))), "stacked=True"),
    (clients(user(2, 0)), "Client 1.* has no rows"),
    (clients([(np.ones((2, 1)), np.array([-1, 1]))], classes=2), "hold -1, "),
    (clients([(np.ones((2, 1)), np.array(["a", "b"]))]), "number names of classes"),
    (clients(ILL, ILL.assign(site="c"), **SITE), "has the clients c, and training a, b: spell"),
    (
        clients(ILL.assign(y=["ill ", "Ill"]), **SITE),
        "has the classes 'Ill' and 'ill ', which differ in case or spaces alone: spell them alike",
    ),
    (
        clients(ILL.assign(site=["St. A", " St.  A"]), **SITE),
        "^There are the clients ' St.  A' and 'St. A', which differ in spaces alone: spell them alike",
    ),
    (
        clients(ILL, ILL.assign(y=["ILL", "well"]), **SITE),
        "is ILL in the test set, and only ill, w",
    ),
    (clients([HIDDEN]), "Client 0 hides some of its values"),
    (clients(ONES), r"float64\[99, 3\], which is no list of clients"),
    (clients(ROWS), "keys x, y may hold one client"),
    (clients([TABLE, TABLE]), "Client 0 has the columns a, b: name the one"),
    (clients([TABLE, TABLE.assign(c=1)], label="a"), "columns c, and"),
    (clients(TABLE.rename(columns={"a": "b"}), client="b"), "several columns"),
    (lambda: Problem(models.logistic(1), TABLE), "a DataFrame: read a table with"),
)


BAD_LIBSVM = [
    (b"hello world\n", {}, "could not convert"),
    (b"", {}, "no examples"),
    (b"1 1:nan\n2 1:1\n", {}, "holds NaN"),
    (b"1 2:1 1:1\n", {}, "sorted"),
    (b"1 5:1\n2 1:1\n", {"features": 3}, "exceeds features=3"),
    (b"1 1:1\n2 1:1\n3 1:1\n", {"classes": 2}, "3 distinct training labels"),
    (b"1 999999999:1\n" * 3, {}, "whose largest index is 999999999, .* 11,999,999,988 bytes"),
    (b"1 1:1e39\n2 1:1\n", {}, "a value that exceeds float32"),
    (b"age,a_b\n1,2\n", {}, "is a table, .*from_clients.*--import"),
    (b"1 1:1 # a_b\n2 1:1_0\n", {}, "line 2, has a _ in a number"),
    (gzip.compress(b"1 1:1\n2 1:1\n", mtime=0)[:-9], {}, "LIBSVM file .EOFError"),
]


@pytest.mark.plain
@pytest.mark.parametrize(("content", "options", "sentence"), BAD_LIBSVM)
def test_bad_libsvm_file(tmp_path, content, options, sentence):
    (tmp_path / "bad").write_bytes(content)
    both = f"(?=.*{re.escape(str(tmp_path / 'bad'))}).*{sentence}"
    refused(lambda: load_libsvm(tmp_path / "bad", **options), both)
