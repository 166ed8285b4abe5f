"""Data sets by name, and LIBSVM files of the user's own."""

from __future__ import annotations

import bz2
import gzip
import inspect
import io
import math
import os
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxfl.core.checks import bind, kind_of, labels_below, one_path
from jaxfl.core.errors import InputError, attempt, require, shown
from jaxfl.core.files import reading
from jaxfl.core.memory import HOST, free
from jaxfl.core.params import known, whole
from jaxfl.data import sources
from jaxfl.data.preprocess import carve_test, moments, standardise
from jaxfl.data.records import Array, ClientData, Dataset, refuse_path, rows
from jaxfl.data.synthetic import synthetic

__all__ = ["LOADERS", "load", "load_libsvm"]

Read = Callable[[str], bytes]

DENSE_BYTES = 8 << 30  # a larger dense matrix is more likely a mistake than intended
LINE = 1 << 26  # bytes of a line of a LIBSVM file
PER_LINE, PER_ENTRY = 32, 24  # bytes that its reader takes at most
AGAIN = "replace it by the published one"
TABLE = (
    "read it by pandas, and give jaxfl.data.from_clients the table, on the command line in a file of "
    "your own with --import, as in docs/your-data.md"
)
COPIES = 3  # of the samples: as read, shared among clients, on the device


def load(
    name: str = "digits",
    *,
    directory: str | os.PathLike[str] | None = None,
    download: bool = True,
    records: int | None = None,
    **options: Any,
) -> Dataset:
    """The data set of that name; see `LOADERS` for the names and each loader for its options.

    Files are looked for in ``directory`` (default: ``JAXFL_DATA``), then in the per-user cache,
    then downloaded, unless ``download`` is False; their content is always checked.  ``records`` takes
    that number of training records, evenly spaced, and all test records.
    """
    refuse_path(name)
    loader = known("data set named", name, LOADERS)
    if records is not None and "records" in inspect.signature(loader).parameters:
        options, records = {**options, "records": records}, None  # of a user's loader
    if directory is not None:  # also where the data set needs no file
        directory = one_path("directory", directory)
        sources.find_directory(directory)
    read = partial(sources.read, directory=directory, download=download)
    found = bind("Data set", name, loader, read, beside=["records"], **options)
    return found if records is None else _thinned(found, records)


def _thinned(data: Dataset | ClientData, records: int) -> Dataset:
    """The given number of training records, evenly spaced."""
    alone = isinstance(data, Dataset)
    clients = f"does not apply to {data.name}, whose clients are given"
    require(alone, clients, "leave it out", records=records)
    count = rows(data.train)
    some = np.linspace(0, count - 1, whole("records", records, 1, count)).round().astype(int)
    return data._replace(train=jax.tree.map(lambda a: a[some], data.train))  # type: ignore[return-value]


def loader(make: Callable[..., Dataset | ClientData]) -> Callable[..., Dataset | ClientData]:
    """A function of a data set's options alone as an entry of :data:`LOADERS`, which read files."""

    @wraps(make)
    def call(read: Read, *args: Any, **options: Any) -> Dataset | ClientData:
        found = make(*args, **options)
        wrong = f"The data set {make.__name__} returned {kind_of(found)}"
        way = "make it return a jaxfl.data.Dataset, or what jaxfl.data.from_clients returns"
        require(isinstance(found, Dataset | ClientData), wrong, way)
        return found

    own = inspect.signature(make)
    first = inspect.Parameter("read", inspect.Parameter.POSITIONAL_ONLY)
    call.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    return call


def load_libsvm(
    path: str | os.PathLike[str],
    test: str | os.PathLike[str] | None = None,
    *,
    features: int | None = None,
    classes: int | None = None,
    scale: bool = False,
) -> Dataset:
    """Any LIBSVM file (plain, gzip or bzip2), dense.

    ``features`` is the number of columns; the files decide if it is None.  ``classes=None`` takes
    up to 1000 whole numbers for classes, two of them for a binary problem, and anything else for
    real targets; 0 asks for real targets.  Class labels are renumbered 0, 1, ... in increasing
    order of the training file's.  With ``scale=True`` each feature has mean 0 and deviation 1 on the
    training file (`standardise`).
    """
    given = [one_path("path", name) for name in ((path,) if test is None else (path, test))]
    files = [os.path.expanduser(file) for file in given]
    note = f"LIBSVM file {path}"
    require(isinstance(scale, bool), "must be True or False", scale=scale)
    lines = [_Lines(Path(file)) for file in files]
    data = _dense_libsvm(lines, files, Path(path).name, features, classes, note)
    return standardise(data, per_feature=True)[0] if scale else data


# --- LIBSVM --------------------------------------------------------------------------------------


def _dense_libsvm(
    files: Sequence[Any],
    names: list[str],
    name: str,
    features: int | None,
    classes: int | None,
    note: str,
) -> Dataset:
    from sklearn.datasets import load_svmlight_files

    shown = " and ".join(names)
    way = "each line must read 'label index:value index:value ...'"
    with attempt(f"{shown} cannot be read as LIBSVM data", way):
        parts = load_svmlight_files(files, dtype=np.float32)
    data, targets = parts[0::2], [np.asarray(y, np.float64) for y in parts[1::2]]
    widest = data[0].shape[1]
    columns = widest if features is None else whole("features", features, 1)
    wide = f"{shown} has an index that exceeds features={columns}"
    require(widest <= columns, wide, "raise it, or leave it out")
    for matrix, y, file in zip(data, targets, names, strict=True):
        require(
            matrix.nnz, lambda: f"LIBSVM file {file} holds no examples with features", "check it"
        )
        wrong = f"LIBSVM file {file} holds NaN, infinity, or a value that exceeds float32 (3.4e38)"
        way = "clean or scale it first"
        require(np.isfinite(matrix.data).all() and np.isfinite(y).all(), wrong, way)
        matrix.resize(rows := len(y), columns)
        size = matrix.dtype.itemsize * rows * columns
        room = min(DENSE_BYTES, free(HOST) // COPIES)
        require(
            size <= room,
            lambda: (
                f"LIBSVM file {file}, whose largest index is {matrix.indices.max() + 1}, would take "
                f"{size:,} bytes ({size / 2**30:.1f} GiB as a dense {rows} x {columns} array), and there "
                f"is room for {room:,}"
            ),
            "correct the index, or select rows or columns first",
        )
    labels, count = _class_numbers(targets, classes, shown)
    dense = [matrix.toarray() for matrix in data]
    test = (dense[1], labels[1]) if len(dense) > 1 else None
    return Dataset(name, (dense[0], labels[0]), test, count, note)


class _Lines:
    """The lines of a file for scikit-learn; raise before they fill the memory."""

    read = None  # scikit-learn iterates over what has this name

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[bytes]:
        who, way = f"LIBSVM file {self.path}", "it may be damaged, or select rows or columns first"
        room, taken, number = free(HOST), 0, 0
        with reading(self.path, "LIBSVM file"):
            with open(self.path, "rb") as file:
                start = file.read(2)
            packed: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open}
            with packed.get(start, open)(self.path, "rb") as file:
                while line := file.readline(LINE + 1):
                    taken += PER_LINE + PER_ENTRY * line.count(b":")
                    number += 1
                    first = number == 1
                    table = first and (
                        b"," in line or self.path.name.endswith((".csv", ".parquet"))
                    )
                    require(not table, lambda: f"{self.path} is a table, and no LIBSVM file", TABLE)
                    if b"_" in line.partition(b"#")[0]:  # which Python would read over
                        raise InputError(
                            f"{who}, line {number}, has a _ in a number", "leave it out"
                        )
                    require(len(line) <= LINE, lambda: f"{who} has a line over {LINE:,} bytes", way)
                    require(taken <= room, lambda: f"{who} has over {room:,} bytes of data", way)
                    yield line


def _class_numbers(
    targets: list[Array], classes: int | None, shown: str
) -> tuple[list[Array], int]:
    values = np.unique(targets[0])
    way, real = "give {classes} if they are real targets", {"classes": 0}
    one = f"{shown} has one training label, {values[0]:g}, in all rows"
    check = f"check the file, or {way}"
    require(classes is not None or len(values) > 1, one, check, suggested=real)
    if classes is None:
        whole_numbers = bool((values == np.round(values)).all())
        classes = len(values) if whole_numbers and len(values) <= 1000 else 0
    if whole("classes", classes, 0) == 0:
        return [y.astype(np.float32) for y in targets], 0
    unlike = f"does not agree with the {len(values)} distinct training labels of {shown}"
    require(len(values) == classes >= 2, unlike, way, suggested=real, classes=classes)
    held = all(np.isin(y, values).all() for y in targets[1:])
    other = f"{shown} has labels in its test file that the training file lacks"
    require(held, other, way, suggested=real)
    return [np.searchsorted(values, y).astype(np.int32) for y in targets], classes


# --- named data sets -----------------------------------------------------------------------------


def _digits(read: Read) -> Dataset:
    """8 x 8 digits that come with scikit-learn, pixels / 16.

    Every fifth row of each class, in file order, is a test row: 1,442 and 355 rows.
    """
    from sklearn.datasets import load_digits

    raw = load_digits()
    features, labels = (raw.data / 16).astype(np.float32), raw.target.astype(np.int32)
    for_test = np.zeros(len(labels), bool)
    for digit in range(10):
        for_test[np.flatnonzero(labels == digit)[4::5]] = True
    note = (
        "UCI optical digits as embedded in scikit-learn; every fifth row of each class is for test"
    )
    train, test = ((features[own], labels[own]) for own in (~for_test, for_test))
    return Dataset("digits", train, test, 10, note)


def _a9a(read: Read) -> Dataset:
    """LIBSVM a9a (Adult, one-hot): 32,561 and 16,281 rows, 123 features, labels -1/+1 as 0/1."""
    files = [io.BytesIO(read("a9a")), io.BytesIO(read("a9a.t"))]
    note = "LIBSVM a9a and a9a.t (UCI Adult, one-hot)"
    return _dense_libsvm(files, ["a9a", "a9a.t"], "a9a", 123, 2, note)


def _mushrooms(read: Read, test_share: float | None = None, seed: int = 0) -> Dataset:
    """LIBSVM mushrooms: 8,124 rows, 112 features, labels 1/2 as 0/1.

    The source has no test file; ``test_share`` carves one out, see `carve_test`.
    """
    files = [io.BytesIO(read("mushrooms"))]
    data = _dense_libsvm(files, ["mushrooms"], "mushrooms", 112, 2, "LIBSVM mushrooms")
    return data if test_share is None else carve_test(data, test_share, seed)


def _mnist(read: Read, flat: bool = True) -> Dataset:
    """MNIST: 60,000 and 10,000 rows of 784 pixels / 255; with ``flat=False`` images (28, 28, 1)."""
    shape = _shape(flat, 28, 28, 1)

    def pair(stem: str) -> tuple[Array, Array]:
        files = f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz"
        images, labels = _idx(files[0], read, 28, 28), _idx(files[1], read)
        wrong = f"Data file {files[1]} has {len(labels)} labels for {len(images)} images"
        require(len(labels) == len(images), wrong, AGAIN)
        labels_below(f"Data file {files[1]}: labels", labels, 10, f", or {AGAIN}")
        pixels = np.divide(images.reshape(-1, *shape), 255, dtype=np.float32)
        return pixels, labels.astype(np.int32)

    return Dataset("mnist", pair("train"), pair("t10k"), 10, "MNIST (LeCun, Cortes, Burges)")


def _idx(name: str, read: Read, *shape: int) -> Array:
    """The bytes of an idx file, whose header says how many items of this shape it holds."""
    content, head, size = read(name), 8 + 4 * len(shape), math.prod(shape)
    items = max(0, len(content) - head) // size
    wanted = struct.pack(f">HBB{1 + len(shape)}I", 0, 8, 1 + len(shape), items, *shape)
    fits = items and content[:head] == wanted and len(content) == head + items * size
    wrong = f"Data file {name} is damaged, or no idx file of bytes {('items', *shape)}"
    require(fits, wrong, AGAIN)
    return np.frombuffer(content, np.uint8, offset=head).reshape(items, *shape)


PIXELS = 3 * 32 * 32
# mean and deviation of red, green and blue over the training images, in [0, 1]
CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def _cifar10(read: Read, flat: bool = False) -> Dataset:
    """CIFAR-10: 50,000 and 10,000 colour images (32, 32, 3) of 10 classes, or vectors (``flat=True``).

    Of pixels / 255 the published mean of each colour, (0.4914, 0.4822, 0.4465), is subtracted, and the
    result divided by its deviation, (0.2470, 0.2435, 0.2616).
    """
    batches = [f"data_batch_{k}.bin" for k in range(1, 6)]
    files = batches, "test_batch.bin", "batches.meta.txt"
    return _cifar("10", read, flat, "cifar-10-batches-bin", files, (1, 0), 10, CIFAR10)


def _cifar100(read: Read, flat: bool = False, coarse: bool = False) -> Dataset:
    """CIFAR-100: 50,000 and 10,000 colour images (32, 32, 3) of 100 classes, or vectors (``flat=True``).

    ``coarse=True`` takes the 20 superclasses.  Of pixels / 255 the published mean of each colour,
    (0.5071, 0.4865, 0.4409), is subtracted, and the result divided by its deviation,
    (0.2673, 0.2564, 0.2762).
    """
    require(isinstance(coarse, bool), "must be True or False", coarse=coarse)
    files = ["train.bin"], "test.bin", f"{'coarse' if coarse else 'fine'}_label_names.txt"
    labels, classes = (2, 0 if coarse else 1), 20 if coarse else 100
    return _cifar("100", read, flat, "cifar-100-binary", files, labels, classes, CIFAR100)


def _cifar(
    number: str,
    read: Read,
    flat: bool,
    folder: str,
    files: tuple[list[str], str, str],
    labels: tuple[int, int],
    classes: int,
    colours: tuple[tuple[float, ...], tuple[float, ...]],
) -> Dataset:
    """The published binary files: ``labels`` are their number in a record, and which is read."""
    shape = _shape(flat, 32, 32, 3)
    train, test, names = files
    mean, deviation = np.array(colours, np.float32)
    name = f"cifar-{number}-binary.tar.gz"
    members = _members(name, read(name), [f"{folder}/{file}" for file in (names, *train, test)])
    words = members.pop(f"{folder}/{names}").decode("ascii", "replace").split()
    wrong = (
        f"Data file {name}, member {folder}/{names}, has {len(words)} names of {classes} classes"
    )
    require(len(words) == classes and all(map(str.isascii, words)), wrong, AGAIN)
    wide, parts = labels[0] + PIXELS, []
    for member, content in members.items():
        who = f"Data file {name}, member {member},"
        wrong = f"{who} has {len(content):,} bytes, and each image takes {wide:,}"
        require(content and len(content) % wide == 0, wrong, AGAIN)
        records = np.frombuffer(content, np.uint8).reshape(-1, wide)
        labels_below(f"{who}: labels", records[:, labels[1]], classes, f", or {AGAIN}")
        parts.append(records)

    def pair(records: Array) -> tuple[Array, Array]:
        planes = records[:, labels[0] :].reshape(-1, 3, 32, 32)
        images = np.divide(planes.transpose(0, 2, 3, 1), 255, dtype=np.float32, order="C")
        images -= mean
        images /= deviation
        return images.reshape(-1, *shape), records[:, labels[1]].astype(np.int32)

    note = f"CIFAR-{number} (Krizhevsky, 2009), normalized by the mean and deviation of each colour"
    sets = pair(np.concatenate(parts[:-1])), pair(parts[-1])
    return Dataset(f"cifar{number}", *sets, classes, note, class_names=tuple(words))


def _members(name: str, content: bytes, wanted: Sequence[str]) -> dict[str, bytes]:
    """The content of these members of an archive, which have to be files: no link is followed."""
    out = {}

    def in_words(member: str, what: str) -> Callable[[], str]:
        return lambda: f"Data file {name}, member {member}, {what}"

    with (
        attempt(f"Data file {name} is damaged, or no tar archive", AGAIN),
        tarfile.open(fileobj=io.BytesIO(content), mode="r:") as packed,
    ):
        found = {info.name: info for info in packed}  # the last of a name, as tar unpacks it
        for member in wanted:
            info = found.get(member)
            require(info is not None, in_words(member, "is not there"), AGAIN)
            own = packed.extractfile(info) if info and info.isreg() and not info.sparse else None
            link = "is a link, a folder or a device, and no file"
            require(own is not None, in_words(member, link), AGAIN)
            out[member] = own.read() if own else b""
    return out


def _shape(flat: bool, *shape: int) -> tuple[int, ...]:
    """The shape of an image, or of a vector."""
    require(isinstance(flat, bool), "must be True or False", flat=flat)
    return (math.prod(shape),) if flat else shape


ADULT_NUMERIC = (0, 2, 4, 10, 11, 12)
INCOMES = ("<=50K", ">50K", "<=50K.", ">50K.")  # with a full stop in the test file
ADULT_CATEGORICAL = (1, 3, 5, 6, 7, 8, 9, 13)


def _adult(read: Read, pool: bool = False) -> Dataset:
    """UCI Adult (census income), 108 features: label 1 is an income above 50K.

    All 14 attributes are kept.  The 6 numeric columns come first (age, fnlwgt, education-num,
    capital-gain, capital-loss, hours-per-week), standardised by the training rows' mean and
    deviation; then the 8 categorical ones, one-hot, categories in alphabetical order over both
    files, a missing value ("?") being a category of its own.  ``pool=True`` gives all 48,842 rows
    as training rows in file order, standardised over all of them, and no test set.
    """
    tables = []
    for name in ("adult.data", "adult.test"):
        with attempt(f"Data file {name} is damaged", AGAIN):
            lines = read(name).decode("ascii").splitlines()
        tables.append([line.split(", ") for line in lines if line and line[0] != "|"])
        require(tables[-1], lambda: f"Data file {name} has no rows", AGAIN)
        for row in tables[-1]:
            fits = len(row) == 15 and row[14] in INCOMES
            fits = fits and all(row[j].isdecimal() and len(row[j]) < 10 for j in ADULT_NUMERIC)
            require(fits, lambda: f"Data file {name} has the row {shown(', '.join(row))}", AGAIN)
    first = len(tables[0])
    columns = list(zip(*tables[0], *tables[1], strict=True))
    labels = np.fromiter((cell[0] == ">" for cell in columns[14]), np.int32)
    train = slice(None) if pool else slice(first)

    numeric = np.array([columns[j] for j in ADULT_NUMERIC]).T.astype(np.float64)
    mean, deviation = moments(numeric[train], per_feature=True)
    blocks = [((numeric - mean) / deviation).astype(np.float32)]
    for j in ADULT_CATEGORICAL:
        rank = {value: k for k, value in enumerate(sorted(set(columns[j])))}
        codes = np.fromiter((rank[cell] for cell in columns[j]), np.intp)
        blocks.append(np.eye(len(rank), dtype=np.float32)[codes])
    features = np.concatenate(blocks, axis=1)
    note = "UCI Adult; numeric columns standardised, categories one-hot, '?' a category"
    test = None if pool else (features[first:], labels[first:])
    return Dataset("adult", (features[train], labels[train]), test, 2, note)


def _synthetic(read: Read, **options: Any) -> Dataset:
    """Generated data, different for each client; the partition contiguous gives each client its own."""
    data = bind("Data set", "synthetic", synthetic, **options)
    owned = np.arange(data.train[0].shape[1]) < data.count[:, None]
    train = (data.train[0][owned], data.train[1][owned])
    note = "(alpha, beta) generator of FedProx"
    return Dataset("synthetic", train, data.test, data.classes, note)


LOADERS: dict[str, Callable[..., Dataset]] = {
    "digits": _digits,
    "a9a": _a9a,
    "mushrooms": _mushrooms,
    "mnist": _mnist,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "adult": _adult,
    "synthetic": _synthetic,
}
NAMED = frozenset(LOADERS)  # without those that users register
