"""Data that know whose they are: test parts of clients, LEAF's files, images, examples of any source."""

import hashlib
import io
import json
import math
import re
import sys
import tarfile
import zlib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
from told import refusals, refused

import jaxfl
from jaxfl import Problem, data, models
from jaxfl.cli.build import choose_problem
from jaxfl.cli.options import Setup
from jaxfl.cli.written import data as absolute
from jaxfl.core.errors import JaxflWarning
from jaxfl.data import sources
from jaxfl.data.leaf import LETTERS
from jaxfl.problems.problem import held_out

pytestmark = pytest.mark.once


def test_rows_held_out_of_each_client_stay_with_it():
    """The features of client i are i; an owner that is shifted, or sorted otherwise, is seen."""
    x, y = np.arange(12.0)[:, None] // 4, np.arange(12) % 2
    made = data.split(data.Dataset("d", (x, y), None, 2), 3, "contiguous", test_share=0.25)
    assert made.test_owner.tolist() == made.test[0][:, 0].tolist() == [0, 1, 2]
    assert "3 for testing of 3 clients" in repr(made)
    assert data.synthetic(4, 5, 3, test=2).test_owner.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.split("digits", 3).test_owner is None


def test_test_tables_and_lists_say_whose_their_rows_are():
    frame = pandas.DataFrame({"site": ["b", "a", "b"], "x": [1.0, 2, 3], "y": [0, 1, 1]})
    test = frame.assign(site=["c", "b", "a"])
    for given, owners in (({}, [-1, 1, 0]), ({"test_owner": [1, 1, -1]}, [1, 1, -1])):
        lost = "The test set has the clients c, which training lacks.*: spell them alike in both"
        with nullcontext([]) if given else pytest.warns(JaxflWarning, match=lost) as said:
            made = data.from_clients(frame, test, client="site", label="y", **given)
        assert {one.filename for one in said} <= {__file__}  # the line of the call
        assert made.test_owner.tolist() == owners
    parts = [(np.full((m, 3), i), np.arange(m)) for i, m in enumerate((2, 3, 1))]
    made = data.from_clients(parts, [parts[0], None, parts[2]])
    assert made.test_owner.tolist() == made.test[0][:, 0].tolist() == [0, 0, 2]
    assert made.test[1].tolist() == [0, 1, 0]
    named = data.from_clients(dict(zip("bac", parts, strict=True)), {"c": parts[2], "a": parts[1]})
    assert named.test_owner.tolist() == named.test[0][:, 0].tolist() == [2, 1, 1, 1]
    assert data.from_clients({"ab": parts[0], "AB": parts[1]}).client_names == ("ab", "AB")
    pooled = data.from_clients(parts[:2], parts[0])  # two arrays of all, not of two clients
    assert pooled.test_owner is None


def test_a_problem_holds_the_owners_of_its_test_examples():
    """They follow the examples where some are set aside."""
    made = data.synthetic(4, 20, 3, test=5, seed=1)
    made.test[0][:, 0] = made.test_owner
    model = models.softmax_regression(3, 10)
    problem = Problem(model, made)
    assert problem.test_owner.tolist() == made.test_owner.tolist()
    part = Problem(model, made, validation_share=0.4)
    assert part.test_owner.tolist() == part.test[0][:, 0].tolist()
    assert len(part.test_owner) == 12
    assert held_out(problem, "test").held == ("test", 4)


CLIENTS: Any = [(np.ones((2, 3)), np.ones(2, int))] * 2
ONE = CLIENTS[0]


def owned(*given: Any, **more: Any) -> Any:
    return lambda: data.from_clients(*given, **more)


test_mistakes_in_owners = refusals(
    (owned(CLIENTS, test_owner=[0]), "test_owner = .0. needs test examples"),
    (owned(CLIENTS, CLIENTS[:1]), "has 1 parts, and there are 2 clients: give one"),
    (owned(CLIENTS, {"a": ONE}), "must be a list, as the clients are"),
    (owned(CLIENTS, ONE, test_owner=[0]), "one client number for each of"),
    (owned(CLIENTS, ONE, test_owner=[0, 2]), r"must lie in 0\.\.1, or"),
)


RNG = np.random.default_rng(0)
LINE = "Friends, Romans, countrymen, lend me your ears; I come to bury Caesar, not to..."


def written(folder: Path, part: str, name: str, of: dict[str, Any], **changed: Any) -> Path:
    """A file as LEAF's split_data.py writes it; users without examples are in its data alone."""
    data = {user: {"x": x, "y": y} for user, (x, y) in of.items()}
    told = {user: len(y) for user, (_, y) in of.items() if y}
    file = folder / part / name
    file.parent.mkdir(parents=True, exist_ok=True)
    head = {"users": [*told], "num_samples": [*told.values()], "user_data": data}
    file.write_text(json.dumps({**head, **changed}))
    return file


def pixels(*labels: int) -> tuple[list[Any], list[int]]:
    return RNG.random((len(labels), 784)).round(3).tolist(), [*labels]


def test_femnist(tmp_path):
    """Several files; a user without examples, one without test examples, one with these alone."""
    a, b, c, held = pixels(3, 61), pixels(0), pixels(5, 5, 9), pixels(7, 8)
    written(tmp_path, "train", "all_data_10_train_9.json", {"f03": c})
    written(tmp_path, "train", "all_data_0_train_9.json", {"f01": a, "f00": ([], []), "f02": b})
    written(tmp_path, "test", "all_data_0_test_9.json", {"f09": pixels(1), "f03": held})
    made = data.leaf(tmp_path)
    assert made.client_names == ("f01", "f02", "f03")
    assert made.count.tolist() == [2, 1, 3]
    assert (made.train[0].shape, made.train[0].dtype) == ((3, 3, 28, 28, 1), np.float32)
    assert (made.classes, made.name, made.partition) == (62, "femnist", "natural")
    np.testing.assert_array_equal(made.train[0][0, 1].ravel(), np.float32(a[0][1]))
    assert made.train[1].tolist() == [[3, 61, 0], [0, 0, 0], [5, 5, 9]]
    assert made.test[1].tolist() == [1, 7, 8]
    assert made.test_owner.tolist() == [-1, 2, 2]
    first = data.leaf(tmp_path, clients=2, flat=True, classes=70)
    assert first.client_names == ("f01", "f02")
    assert (first.test, first.test_owner, first.classes) == (None, None, 70)
    assert first.train[0].shape == (2, 2, 784)


def test_shakespeare(tmp_path):
    lines, following = [LINE, LINE[1:] + " "], [" ", "*"]
    written(tmp_path, "train", "a.json", {"THE_TRAGEDY_CASSIUS": (lines, following)})
    made = data.leaf(tmp_path)
    assert (made.train[0].shape, made.train[0].dtype) == ((1, 2, 80), np.int32)
    assert "".join(LETTERS[code] for code in made.train[0][0, 0]) == LINE
    assert made.train[1].tolist() == [[1, 79]]
    assert (made.classes, made.test) == (80, None)
    hot = data.leaf(tmp_path, flat=True).train[0].reshape(2, 80, 80)
    np.testing.assert_array_equal(hot.argmax(axis=2), made.train[0][0])
    assert (hot.sum(axis=2) == 1).all()


def test_sent140(tmp_path):
    texts = ["Happy, happy day", "", " ".join(f"w{i}" for i in range(30))]
    posts = [[str(i), "Mon", "NO_QUERY", "me", text, "training"] for i, text in enumerate(texts)]
    written(tmp_path, "train", "a.json", {"me": (posts, [1, 0, 0])})
    (codes,) = data.leaf(tmp_path).train[0]
    happy, comma, again, day = codes[0, :4].tolist()
    assert happy == again == 1 + zlib.crc32(b"happy") % 4095
    assert len({happy, comma, day, 0}) == 4
    assert (codes[0, 4:] == 0).all()
    assert (codes[1] == 0).all()
    assert codes[2, [0, 24]].tolist() == [1 + zlib.crc32(word) % 4095 for word in (b"w0", b"w24")]
    (bags,) = data.leaf(tmp_path, flat=True).train[0]
    assert bags.sum(axis=1).tolist() == [4, 0, 30]


def test_celeba(tmp_path):
    users = {"17": (["1.png", "2.png"], [1.0, 0.0])}
    written(tmp_path, "train", "a.json", users)
    refused(lambda: data.leaf(tmp_path), "lie in .*img_align_celeba, which is no folder: put")
    (images := tmp_path / "raw" / "img_align_celeba").mkdir(parents=True)
    for file, red in (("1.png", 255), ("2.png", 51)):
        pixels = np.zeros((218, 178, 3), np.uint8)
        pixels[..., 0] = red
        plt.imsave(images / file, pixels)
    made = data.leaf(tmp_path)
    assert made.train[0].shape == (1, 2, 84, 84, 3)
    mean = [[[1, 0, 0], [0.2, 0, 0]]]
    np.testing.assert_allclose(made.train[0].mean(axis=(2, 3)), mean, rtol=1e-4)
    assert (made.train[1].tolist(), made.classes) == ([[1, 0]], 2)
    assert data.leaf(tmp_path, flat=True, images=images).train[0].shape == (1, 2, 84 * 84 * 3)
    (images / "2.png").write_bytes(b"GIF")
    refused(lambda: data.leaf(tmp_path), "user '17', names the image '2.png', which cannot be read")


BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"a": pixels(1), "b": pixels(2)}, {"num_samples": [1, 2]}, "says 2 of user 'b', who has 1"),
    ({"a": pixels(1)}, {"num_samples": [1, 2]}, "damaged, or not a JSON file of LEAF .ValueError"),
    ({"a": pixels(1)}, {"users": ["a", "b"], "num_samples": [1, 0]}, "user 'b' has no examples"),
    ({"a": pixels(1)}, {"users": [], "num_samples": []}, "users lacks 'a', who has examples"),
    ({"a": pixels(1)}, {"user_data": {"a": {"x": [[1]]}}}, "a has no y"),
    ({"a": (pixels(1)[0], [1, 2])}, {}, "user 'a' has 1 examples and 2 labels"),
    ({"a": pixels(62)}, {}, r"user 'a', labels hold 62, and must be whole numbers in 0\.\.61"),
    ({"a": ([[1, 2]], ["b"])}, {}, r"has labels \['b'\]: number the classes"),
    ({"a": ([[1, 2], [1]], [0, 1])}, {}, "examples that are no lists of numbers of one length"),
    (
        {"a": ([[1, 2]], [0]), "b": ([[1]], [0])},
        {},
        r"'b', has examples of shape \(1,\), and users",
    ),
    ({"a": (["abc", "ab"], ["a", "b"])}, {}, r"strings of \[2, 3\] characters: make all of one"),
    ({"a": (["abc"], ["ab"])}, {}, "labels of several characters"),
    ({"a": ([["1", "2"]], [0])}, {}, "a post without text"),
    ({"a": ([[math.nan]], [0])}, {}, "user 'a', is not finite in row 0"),
]


@pytest.mark.plain
@pytest.mark.parametrize(("users", "changed", "words"), BAD, ids=[words for *_, words in BAD])
def test_bad_file_of_leaf(tmp_path, users, changed, words):
    file = written(tmp_path, "train", "bad.json", users, **changed)
    refused(lambda: data.leaf(tmp_path), f"{re.escape(str(file))}.*{words}")


def test_a_file_of_leaf_that_is_cut(tmp_path):
    file = written(tmp_path, "train", "cut.json", {"a": pixels(1, 2), "b": pixels(2)})
    words = "cut.json is damaged, or not a JSON file of LEAF .JSONDecodeError: .*preprocess.sh"
    whole = file.read_text()
    for kept in (0, 10, 4000, -1):
        file.write_text(whole[:kept])
        refused(lambda: data.leaf(tmp_path), words)


def test_folders_that_are_not_of_leaf(tmp_path, monkeypatch):
    refused(lambda: data.leaf(tmp_path), "no JSON files in a folder train: run LEAF's")
    written(tmp_path, "train", "a.json", {"a": pixels(1)})
    twice = written(tmp_path, "train", "b.json", {"b": pixels(1)})
    twice.write_text(2 * twice.read_text())
    refused(lambda: data.leaf(tmp_path), "b.json is damaged, .*Extra data")
    refused(lambda: data.leaf(tmp_path, flat=1), "flat = 1 must be True or False")
    written(tmp_path, "train", "b.json", {"a": pixels(1)})
    refused(lambda: data.leaf(tmp_path), "User 'a' is in .*a.json and in .*b.json")
    monkeypatch.setattr(sys.modules["jaxfl.data.leaf"], "free", lambda device: 6000)
    refused(lambda: data.leaf(tmp_path), "take over 6,000 bytes, as much as is free: read fewer")


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A maker of archives in the layout of CIFAR's, with their checksum in the place of the true one."""
    monkeypatch.setenv("JAXFL_DATA", str(tmp_path))

    def make(number: int, files: dict[str, bytes]) -> Path:
        folder = f"cifar-{number}-b{'atches-bin' if number == 10 else 'inary'}"
        file = tmp_path / f"cifar-{number}-binary.tar.gz"
        with tarfile.open(file, "w:gz") as packed:
            for name, content in files.items():
                (info := tarfile.TarInfo(f"{folder}/{name}")).size = len(content)
                packed.addfile(info, io.BytesIO(content))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        source = sources.FILES[file.name]._replace(sha256=digest)
        monkeypatch.setitem(sources.FILES, file.name, source)
        return file

    return make


def record(*labels: int, colours: tuple[int, int, int] = (0, 0, 0), second: int = 0) -> bytes:
    """Labels, and planes of red, green and blue; ``second`` is the second pixel of the first row."""
    planes = np.repeat(np.uint8(colours), 1024)
    planes[1] = second
    return bytes(labels) + planes.tobytes()


def test_cifar10(archive):
    """Colours, rows and columns, the order of the batches, and the normalization."""
    files = {f"data_batch_{k}.bin": record(k) + record(9 - k) for k in range(1, 6)}
    files["test_batch.bin"] = record(7, colours=(255, 51, 0), second=102)
    archive(10, {**files, "batches.meta.txt": b"airplane\nautomobile\n" + b"c\n" * 8 + b"\n"})
    made = data.load("cifar10")
    assert made.train[1].tolist() == [1, 8, 2, 7, 3, 6, 4, 5, 5, 4]
    assert (made.train[0].shape, made.train[0].dtype) == ((10, 32, 32, 3), np.float32)
    assert (made.classes, made.class_names[:2]) == (10, ("airplane", "automobile"))
    (image,) = made.test[0] * [0.2470, 0.2435, 0.2616] + [0.4914, 0.4822, 0.4465]
    pixels = [image[0, 0], image[0, 1], image[1, 0]]
    np.testing.assert_allclose(pixels, [[1, 0.2, 0], [0.4, 0.2, 0], [1, 0.2, 0]], atol=1e-6)
    flat = data.load("cifar10", flat=True).test[0]
    assert flat.tolist() == made.test[0].reshape(1, 3072).tolist()
    posed = choose_problem(Setup(data="cifar10", clients=5))
    assert (posed.train[0].shape, posed.model.dim) == ((5, 2, 3072), 30730)


def test_cifar100(archive):
    names = {"fine_label_names.txt": b"f\n" * 100, "coarse_label_names.txt": b"c\n" * 20}
    file = archive(100, {**names, "train.bin": record(19, 99), "test.bin": record(3, 50) * 2})
    for coarse, labels, classes in ((False, [99, 50, 50], 100), (True, [19, 3, 3], 20)):
        made = data.load("cifar100", coarse=coarse)
        assert [*made.train[1], *made.test[1]] == labels
        assert made.classes == classes
    file.write_bytes(file.read_bytes()[:-1])
    words = "cifar-100-binary.tar.gz is not the published one: its sha256 is .*replace or delete it"
    refused(lambda: data.load("cifar100"), words)
    file.unlink()
    words = "fetch https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz, put it into"
    refused(lambda: data.load("cifar100", download=False), words)


@pytest.mark.full
def test_a_sweep_of_the_clients_of_leaf(tmp_path, monkeypatch, shell):
    """A folder beside the working folder; all clients, or the first few; vectors for softmax."""
    for part, m in (("train", 4), ("test", 1)):
        written(tmp_path / "fem", part, "a.json", {f"f{i}": pixels(*[i] * m) for i in range(12)})
    monkeypatch.chdir(tmp_path)
    given = "ldp_sgd --data leaf:fem --batch 2 --sigma 0.1 --quiet --no-plot"
    shell("sweep", given, "--lr 0.1 --rounds 1 --clients 3 --out grid")
    assert json.loads(jaxfl.load("grid/result.nc").attrs["config"])["facts"]["n"] == 3
    found = Setup(data=absolute("--data", "leaf:fem"))
    assert found.data == f"leaf:{tmp_path / 'fem'}"
    problem = choose_problem(found)
    assert (problem.n, problem.model.dim, len(problem.test_owner)) == (12, 785 * 62, 12)
    words = "--partition iid does not apply to LEAF's data, where clients"
    assert words in shell.refused("run", given, "--partition iid")
    words = "leaf:~no-such-user/x"
    assert "~no-such-user/x has no JSON files" in shell.refused("run ldp_sgd --data", words)


IMAGES = RNG.integers(0, 256, (7, 4, 4), dtype=np.uint8)
ROWS = [
    {"image": IMAGES[j], "label": j % 3, "writer": "ba"[j % 2], "age": j, "name": "x"}
    for j in range(7)
]


class Table:
    """What a `datasets.Dataset` offers of itself: names, formats, features, rows."""

    def __init__(self, rows: list[Any], names: Any = None, used: Any = ()) -> None:
        self.rows, self.used = rows, used
        self.column_names, self.features = [*rows[0]], {"label": SimpleNamespace(names=names)}

    def select_columns(self, names: list[str]) -> "Table":
        return Table([{name: row[name] for name in names} for row in self.rows], used=names)

    def with_format(self, kind: str) -> "Table":
        assert kind == "numpy"
        return self

    def __iter__(self) -> Any:
        assert self.used, "all columns are decoded"
        return iter(self.rows)


class Tensors:
    """A `tf.data.Dataset`, whose text is bytes."""

    def as_numpy_iterator(self) -> Any:
        return ({**row, "writer": row["writer"].encode()} for row in ROWS)


@pytest.mark.parametrize("make", [list, iter, Table, lambda rows: Tensors()])
def test_examples_with_a_column_of_clients(make):
    made = data.from_examples(make(ROWS), ROWS[5:], client="writer", name="mine")
    assert made.client_names == ("a", "b")
    assert made.count.tolist() == [3, 4]
    own = data.client(made, 0)
    assert own[0].shape == (3, 4, 4, 1)
    np.testing.assert_array_equal(own[0][..., 0], IMAGES[1::2] / np.float32(255))
    assert own[1].tolist() == [1, 0, 2]
    assert (made.test_owner.tolist(), made.partition, made.name) == ([0, 1], "natural", "mine")


def test_examples_shared_among_clients():
    rows = [{**row, "label": ["no", "yes"][row["label"] % 2]} for row in ROWS]
    options = {"how": "shards", "per_client": 1, "seed": 3}
    made = data.from_examples(rows, features=["age", "image"], clients=3, **options)
    assert made.train[0].shape == (3, 2, 17)
    assert made.class_names == ("no", "yes")
    ages, pixels = np.split(made.train[0], [1], axis=2)
    np.testing.assert_array_equal(pixels, IMAGES.reshape(7, 16)[ages[..., 0].astype(int)])
    held = data.from_examples(ROWS, features="age", client="writer", test_share=0.3)
    assert held.count.tolist() == [2, 2]
    assert held.test_owner.tolist() == [0, 1, 1]
    assert (held.test[0][:, 0] % 2).tolist() == [1, 0, 0]
    assert data.from_examples(Table(ROWS, ["x", "y", "z"]), clients=2).classes == 3


def examples(rows: Any = ROWS, **given: Any) -> Any:
    return lambda: data.from_examples(rows, **{"clients": 2, **given})


def spoilt(**changed: Any) -> Any:
    """The second row is another one."""
    return examples([ROWS[0], {**ROWS[1], **changed}])


test_mistakes_in_examples = refusals(
    (examples({"train": ROWS}), "a dict with the keys train: pass one of its data sets"),
    (examples(3), "The data set is 3, and must be rows, each a dict"),
    (examples([]), "The data set has no rows"),
    (examples(Table(ROWS), features="images"), "no column in the data set named 'images': did you"),
    (examples(client="age"), "client = 'age' and clients = 2 are alternatives"),
    (examples(client="age", clients=None, how="iid"), "how = 'iid' goes with clients="),
    (examples(features="name"), "'name' holds text, and features are numbers"),
    (examples(classes=2), "labels of 'examples' hold 2, and must be whole numbers in 0..1"),
    (spoilt(image=IMAGES[0, :2]), r"row 1, has uint8.2, 4. as 'image', and row 0 uint8.4, 4.:"),
    (spoilt(label=None), "row 1, has None as 'label': fill it in"),
)


def test_heterogeneity_by_hand():
    """Unequal clients: a mean over clients where one over records is meant, or padding, is seen."""
    x = [np.array([[0.0], [2.0], [4.0]]), np.array([[6.0]])]
    y = [np.array([0, 0, 1]), np.array([5])]
    found = data.heterogeneity(data.from_clients(list(zip(x, y, strict=True))))
    p = np.array([1 / 2, 1 / 4, 1 / 4])
    own = np.array([[2 / 3, 1 / 3, 0], [0, 0, 1]])
    assert found.labels == pytest.approx(np.abs(own - p).sum(axis=1).mean() / 2)
    assert found.features == pytest.approx((3 * (2 - 3) ** 2 + (6 - 3) ** 2) / (9 + 1 + 1 + 9))


def test_heterogeneity_of_images_and_of_other_data():
    made = data.split("digits", 10, "dirichlet", alpha=0.05)
    found = data.heterogeneity(made)
    assert repr(made).endswith(f"  partition: dirichlet(alpha=0.05)\n  heterogeneity: {found}")
    whole = data.from_clients([(np.ones((2, 1), int), np.ones(2))] * 2)
    assert data.heterogeneity(whole) == (None, None)
    assert "heterogeneity" not in repr(whole)
    blocks = data.map_features(made, lambda a: np.repeat(a, 2, axis=-1))
    assert data.heterogeneity(blocks).features == pytest.approx(found.features)
    refused(lambda: data.heterogeneity(whole.train), "must be a ClientData")
