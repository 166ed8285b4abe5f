"""Hostile files of data: read as what they mean, or refused in one sentence that names the file.

Each reader has small true files, the call that reads them, and a reading of its own here, which finds no
meaning in most of what is damaged.  Most damage is drawn from seeds, and some is written by hand.
"""

import bz2
import functools
import gzip
import hashlib
import io
import json
import lzma
import math
import os
import pickle
import random
import re
import signal
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import sklearn.datasets  # noqa: F401  (imports take seconds, which are no case's)
from PIL import Image

from jaxfl import data
from jaxfl.core.errors import InputError
from jaxfl.data import sources
from jaxfl.data.leaf import LETTERS

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]

SECONDS, BYTES = 60, 1 << 30  # of one case
RNG = np.random.default_rng(0)
CIFAR = {"10": ("cifar-10-batches-bin", [10]), "100": ("cifar-100-binary", [20, 100])}
BATCHES = {"10": [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"], "100": ["train.bin", "test.bin"]}
NAMES = {"10": ["batches.meta.txt"], "100": ["coarse_label_names.txt", "fine_label_names.txt"]}
COLOURS = {
    "10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


class Meaningless(Exception):
    """Nobody can say what a file means."""


def certain(holds: Any) -> None:
    if not holds:
        raise Meaningless


# --- true files ----------------------------------------------------------------------------------


def members(number: str) -> dict[str, Any]:
    """The content of each member of an archive of CIFAR's."""
    folder, classes = CIFAR[number]
    rows = lambda: b"".join(bytes(int(RNG.integers(c)) for c in classes) + RNG.bytes(3072) for _ in range(2))
    named = {k: b"name\n" * c for k, c in zip(NAMES[number], classes, strict=True)}
    return {f"{folder}/{k}": v for k, v in ({b: rows() for b in BATCHES[number]} | named).items()}


def tar(content: dict[str, Any]) -> bytes:
    """An archive of these members; a function changes the header of one without content."""
    with tarfile.open(fileobj=(out := io.BytesIO()), mode="w") as packed:
        for name, body in content.items():
            info = tarfile.TarInfo(name)
            if callable(body):
                body(info)
            else:
                info.size = len(body)
            packed.addfile(info, None if callable(body) else io.BytesIO(body))
    return out.getvalue()


def idx(a: Any, kind: int = 8) -> bytes:
    return struct.pack(f">HBB{a.ndim}I", 0, kind, a.ndim, *a.shape) + a.tobytes()


def leaf_file(of: dict[str, Any], **changed: Any) -> bytes:
    told = {"users": [*of], "num_samples": [len(y) for _, y in of.values()]}
    own = {user: {"x": x, "y": y} for user, (x, y) in of.items()}
    return json.dumps({**told, "user_data": own, **changed}).encode()


@functools.cache
def dot(size: tuple[int, int] = (9, 9), kind: str = "PNG", shade: int = 51) -> bytes:
    Image.new("RGB", size, (shade, 0, 0)).save(out := io.BytesIO(), kind)
    return out.getvalue()


COMMAS = [1 + zlib.crc32(c) % 4095 for c in (b",", b".", b"!", b"?", b";")]
IMAGES = "raw/img_align_celeba"
POST = ["1", "Mon", "NO_QUERY", "me", "Happy, happy day", "training"]
USERS: dict[str, dict[str, Any]] = {
    "numbers": {"a": ([[0.5, 1], [2, -3]], [0, 1]), "b": ([[1e-3, 4e8]], [1])},
    "femnist": {"a": (RNG.random((1, 784)).round(2).tolist(), [61])},
    "shakespeare": {"a": (["to be ", "or not"], ["n", " "]), "b": (["nor ye"], ["!"])},
    "sent140": {"a": ([POST, ["2", *POST[1:]]], [1, 0])},
    "celeba": {"7": (["1.png", "2.png"], [1, 0])},
}
ADULT = "39, Private, 77516, HS-grad, 13, Single, Clerk, Own, White, Male, 2174, 0, 40, Peru, "
LINES = b"1 1:0.5 3:2\n-1 2:-1e3 # c\n1 3:7 4:1\n"
TRUE: dict[str, dict[str, bytes]] = {
    **{f"cifar{n}": {f"cifar-{n}-binary.tar.gz": tar(members(n))} for n in CIFAR},
    "mnist": {
        f"{stem}-{what}-idx{len(shape) + 1}-ubyte.gz": idx(RNG.integers(0, most, (m, *shape)).astype(np.uint8))
        for stem, m in (("train", 3), ("t10k", 2))
        for what, shape, most in (("images", (28, 28), 256), ("labels", (), 10))
    },
    "adult": {f"adult.{k}": f"{ADULT}<=50K\n{ADULT}>50K\n".replace("39", a, 1).encode() for k, a in (("data", "39"), ("test", "41"))},
    "libsvm": {"own": LINES},
    **{k: {"train/a.json": leaf_file(users)} for k, users in USERS.items()},
}  # fmt: skip
TRUE["celeba"] |= {f"{IMAGES}/{k}.png": dot(shade=51 * k) for k in (1, 2)}


# --- what jaxfl reads, and what a file means -----------------------------------------------------


def unpacked(file: Path) -> bytes:
    content = file.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def parts(made: Any, *more: Any) -> list[Any]:
    leaves = [*made.train, *(made.test or ())]
    return [np.asarray(a).reshape(len(a), -1) for a in leaves] + [np.asarray(more)]


def cifar(number: str, folder: Path) -> list[Any]:
    place, classes = CIFAR[number]
    with tarfile.open(fileobj=io.BytesIO(unpacked(folder / f"cifar-{number}-binary.tar.gz"))) as packed:
        found = {i.name: packed.extractfile(i).read() if i.isreg() and not i.sparse else None for i in packed}  # type: ignore[union-attr]
    words = found[f"{place}/{NAMES[number][-1]}"].decode("ascii").split()  # type: ignore[union-attr]
    certain(len(words) == classes[-1])
    out = []
    mean, deviation = COLOURS[number]
    for files in (BATCHES[number][:-1], BATCHES[number][-1:]):
        bodies = [found[f"{place}/{file}"] for file in files]
        wide = 3072 + len(classes)
        certain(all(body and len(body) % wide == 0 for body in bodies))
        rows = np.frombuffer(b"".join(bodies), np.uint8).reshape(-1, wide)  # type: ignore[arg-type]
        certain((rows[:, len(classes) - 1] < classes[-1]).all())
        pixels = rows[:, len(classes) :].reshape(-1, 3, 1024).transpose(0, 2, 1)
        out += [((pixels / 255 - mean) / deviation).reshape(len(rows), -1), rows[:, len(classes) - 1 : len(classes)]]
    return [*out, np.asarray(words)]


def mnist(folder: Path) -> list[Any]:
    out = []
    for file in TRUE["mnist"]:
        content = unpacked(folder / file)
        d = 3 if "images" in file else 1
        zero, kind, dims, *shape = struct.unpack(f">HBB{d}I", content[: 4 + 4 * d])
        body = np.frombuffer(content[4 + 4 * d :], np.uint8)
        certain((zero, kind, dims, *shape[1:]) == (0, 8, d, 28, 28)[: 2 + d] and shape[0] and math.prod(shape) == body.size)
        out.append(body.reshape(shape[0], -1))
        certain(d == 3 or (body < 10).all() and len(body) == len(out[-2]))
    return [a / 255 if a.shape[1] > 1 else a for a in out] + [np.asarray(())]


def adult(folder: Path) -> list[Any]:
    """Ages and labels: the rest is one column per word."""
    tables = []
    for file in TRUE["adult"]:
        lines = (folder / file).read_text("ascii").splitlines()
        rows = [line.split(", ") for line in lines if line and line[0] != "|"]
        certain(rows and all(len(row) == 15 and row[14].rstrip(".") in ("<=50K", ">50K") for row in rows))
        for row in rows:
            certain(all(np.isfinite(float(row[j])) for j in (0, 2, 4, 10, 11, 12)))
        tables.append(rows)
    ages = np.array([float(row[0]) for row in tables[0]])
    spread = ages.std() or 1.0
    each = [[[(float(row[0]) - ages.mean()) / spread, row[14][0] == ">"] for row in rows] for rows in tables]
    return [np.array(rows)[:, [k]] for rows in each for k in (0, 1)] + [np.asarray(())]


def libsvm(folder: Path) -> list[Any]:
    file = next(folder.iterdir())
    content = file.read_bytes()
    content = {b"\x1f\x8b": gzip.decompress, b"BZ": bz2.decompress}.get(content[:2], bytes)(content)
    rows: list[tuple[float, dict[int, float]]] = []
    for line in content.split(b"\n"):
        if words := line.split(b"#")[0].split():
            pairs = [word.split(b":") for word in words[1:] if not word.startswith(b"qid:")]
            at = [int(i) for i, _ in pairs]
            certain(at == sorted({*at}) and all(0 <= i < 1 << 20 for i in at))
            rows.append((float(words[0]), {i: float(v) for i, (_, v) in zip(at, pairs, strict=True)}))
    every = [i for _, row in rows for i in row]
    start = min(every) > 0
    x, y = np.zeros((len(rows), max(every) + 1 - start)), np.array([label for label, _ in rows])
    for j, (_, row) in enumerate(rows):
        for i, v in row.items():
            x[j, i - start] = v
    classes = np.unique(y)
    certain(np.isfinite(y).all() and (np.abs(x) < 3.4e38).all() and len(classes) > 1)
    if len(classes) == 2 or (y == np.rint(y)).all():
        y = np.searchsorted(classes, y)
    return [x, y[:, None], np.asarray(())]


def number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < 3.4e38


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    certain(len(dict(pairs)) == len(pairs))
    return dict(pairs)


def leaf(kind: str, folder: Path) -> list[Any]:
    """Features, labels and names, of lists of numbers of one length or of what the kind has."""
    content = json.loads((folder / "train/a.json").read_text("utf-8"), object_pairs_hook=once)
    own = content["user_data"]
    certain(all(type(m) is int for m in content["num_samples"]))
    certain(dict(zip(content["users"], content["num_samples"], strict=True)) == {u: len(v["y"]) for u, v in own.items()})
    certain(len({*content["users"]}) == len(content["users"]))
    every_x, every_y = [], []
    for user, table in own.items():
        user.encode()
        x, y = table["x"], table["y"]
        certain(isinstance(x, list) and isinstance(y, list) and len(x) == len(y) > 0)
        if kind == "shakespeare":
            code = lambda text: [max(0, LETTERS.find(c)) if c in LETTERS else 79 for c in text]
            certain(all(isinstance(v, str) and v for v in (*x, *y)) and all(len(v) == 1 for v in y))
            x, y = [code(text) for text in x], [code(c)[0] for c in y]
        elif kind == "sent140":
            certain(all(isinstance(post, list) and isinstance(post[4], str) for post in x))
            x = [[len(re.findall(r"[\w']+", post[4].lower()))] for post in x]
        elif kind == "celeba":
            files = [(folder / IMAGES / v).resolve() for v in x]
            certain(all(file.is_relative_to(folder / IMAGES) for file in files))
            x = [[np.asarray(Image.open(f).resize((84, 84)).convert("RGB"))[0, 0, 0] / 255] for f in files]
        else:
            certain(all(isinstance(v, list) and all(map(number, v)) for v in x))
        certain(all(number(v) and 0 <= v < (62 if kind == "femnist" else 2**31) and v % 1 == 0 for v in y))
        every_x += x
        every_y += y
    certain(len({len(v) for v in every_x}) == 1 and every_x[0])
    certain(kind not in ("sent140", "celeba") or max(every_y) < 2)
    return [np.array(every_x, float), np.array(every_y, float)[:, None], np.asarray([*own])]


class Reader(NamedTuple):
    read: Callable[[Path], list[Any]]
    meaning: Callable[[Path], list[Any]]
    files: tuple[str, ...]  # those that are damaged
    packed: Any = None


def read_leaf(kind: str, folder: Path) -> list[Any]:
    made = data.leaf(folder)
    owned = np.arange(made.train[1].shape[1]) < made.count[:, None]
    x, y = (leaf[owned] for leaf in made.train)
    x = x.reshape(len(x), -1)
    if kind == "sent140":
        x = np.isin(x, [0, *COMMAS], invert=True).sum(axis=1, keepdims=True)  # commas are words, too
    x = x[:, :1] if kind == "celeba" else x
    return [x, y[:, None], np.asarray(made.client_names)]


def read_adult(folder: Path) -> list[Any]:
    made = data.load("adult", directory=folder)
    return [made.train[0][:, :1], made.train[1][:, None], made.test[0][:, :1], made.test[1][:, None], np.asarray(())]


READERS: dict[str, Reader] = {
    **{
        f"cifar{n}": Reader(
            lambda f, n=n: parts(d := data.load(f"cifar{n}", directory=f))[:-1] + [np.asarray(d.class_names)],  # type: ignore[misc]
            lambda f, n=n: cifar(n, f), (*TRUE[f"cifar{n}"],), gzip.compress,  # type: ignore[misc]
        )
        for n in CIFAR
    },
    "mnist": Reader(lambda f: parts(data.load("mnist", directory=f)), mnist, (*TRUE["mnist"],), gzip.compress),
    "adult": Reader(read_adult, adult, ("adult.data",)),
    "libsvm": Reader(lambda f: parts(data.load_libsvm(next(f.iterdir()))), libsvm, ("own",)),
    **{k: Reader(lambda f, k=k: read_leaf(k, f), lambda f, k=k: leaf(k, f), ("train/a.json",)) for k in USERS},  # type: ignore[misc]
}  # fmt: skip


# --- damage --------------------------------------------------------------------------------------


def damaged(content: bytes, draw: random.Random, kind: str) -> bytes:
    at, size = draw.randrange(len(content)), draw.choice([1, 4, 32, 512])
    block = content[at : at + size]
    if kind == "cut":
        return content[:at]
    if kind == "bit":
        return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    if kind == "digit":
        return content[:at] + draw.choice(b"0123456789-+.eEnN:,# \n\"\\[]{}\xff\0").to_bytes() + content[at + 1 :]
    other = {"noise": draw.randbytes(len(block)), "gone": b"", "zeros": bytes(len(block))}
    return content[:at] + other.get(kind, 2 * block) + content[at + size :]


ODD = [
    math.nan, math.inf, -math.inf, 1e300, 1e39, 10**400, 2**31, 2**63, -1, 62, 77, 0.5, 1.0, 1e-50, True, None, "x", "",
    "1", "\ud800", "\0", "../x", [], [[]], [1], {}, {"x": 1}, [None, None], ["1", "2"], [[1, 2], [3, 4]], [[1], [2, 3]],
]  # fmt: skip


def swapped(content: bytes, draw: random.Random) -> bytes:
    """A file of JSON with another value somewhere, or with a key of its own."""
    tree = json.loads(content)
    at, key = tree, draw.choice([*tree])
    while isinstance(at[key], dict | list) and at[key] and draw.random() < 0.8:
        at = at[key]
        key = draw.choice([*at]) if isinstance(at, dict) else draw.randrange(len(at))
    if isinstance(at, dict) and draw.random() < 0.3:
        at[draw.choice(["\ud800", "", "x", "a\n"])] = at.pop(key)
    else:
        at[key] = draw.choice(ODD)
    return json.dumps(tree).replace("Infinity", draw.choice(["Infinity", "1e400"])).encode()


def drawn() -> dict[str, tuple[str, dict[str, bytes]]]:
    """Cases of seeds: their reader, and the files that are others."""
    out: dict[str, tuple[str, dict[str, bytes]]] = {}
    kinds = ("cut", "bit", "digit", "noise", "gone", "zeros", "doubled")
    for name, reader in READERS.items():
        text = name in USERS or name in ("adult", "libsvm")
        for seed in range({"libsvm": 70, "mnist": 42, "adult": 35}.get(name, 28)):
            draw, kind = random.Random(f"{name} {seed}"), kinds[seed % 7]
            file = draw.choice(reader.files)
            content, pack = TRUE[name][file], reader.packed or bytes
            if name == "libsvm":
                pack = (bytes, bytes, gzip.compress, bz2.compress)[seed // 7 % 4]
            inside = seed // 7 % 2 or text
            whole = pack(damaged(content, draw, kind)) if inside and pack is not bz2.compress else damaged(pack(content), draw, kind)
            out[f"{name} {kind} {seed}"] = name, {file: whole}
        for seed in range(24 if name in USERS else 0):
            out[f"{name} swap {seed}"] = name, {"train/a.json": swapped(TRUE[name]["train/a.json"], random.Random(seed))}
    return out


class Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def kind_of(**fields: Any) -> Callable[[Any], None]:
    return lambda info: [setattr(info, k, v) for k, v in fields.items()] and None


def by_hand() -> dict[str, tuple[str, dict[str, Any]]]:
    true, trap = members("10"), pickle.dumps(Trap())
    place = "cifar-10-batches-bin"
    batch, names = f"{place}/data_batch_2.bin", f"{place}/batches.meta.txt"
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr(batch, true[batch])
    inner = {
        "a label of 77": {batch: b"\x4d" + true[batch][1:]},
        "a label of 10": {batch: b"\x0a" + true[batch][1:]},
        "half a record": {batch: true[batch][:4000]},
        "two thirds of a byte more": {batch: true[batch] + b"\0"},
        "no records": {batch: b""},
        "a pickle": {batch: trap},
        "a long pickle": {batch: trap.ljust(6146, b"\0")},
        "three names": {names: b"a\nb\nc\n"},
        "eleven names": {names: b"a\n" * 11},
        "names in Latin": {names: "\xe9\n".encode("latin-1") * 10},
        "a link": {batch: kind_of(type=tarfile.SYMTYPE, linkname="data_batch_1.bin")},
        "a link out": {batch: kind_of(type=tarfile.SYMTYPE, linkname="/etc/passwd")},
        "a hard link": {batch: kind_of(type=tarfile.LNKTYPE, linkname=f"{place}/data_batch_1.bin")},
        "a link to itself": {batch: kind_of(type=tarfile.SYMTYPE, linkname="data_batch_2.bin")},
        "a device": {batch: kind_of(type=tarfile.CHRTYPE, devmajor=1, devminor=5)},
        "a pipe": {batch: kind_of(type=tarfile.FIFOTYPE)},
        "a folder": {batch: kind_of(type=tarfile.DIRTYPE)},
        "a size of a terabyte": {batch: kind_of(size=1 << 40)},
        "a sparse terabyte": {batch: kind_of(pax_headers={"GNU.sparse.major": "0", "GNU.sparse.size": "1099511627776", "GNU.sparse.map": "0,0", "GNU.sparse.numblocks": "1"})},
        "names that are a folder": {names: kind_of(type=tarfile.DIRTYPE)},
    }  # fmt: skip
    archives = {
        "empty": b"", "zeros": bytes(10240), "a zip": zipped.getvalue(), "packed zeros": gzip.compress(bytes(10240)),
        "packed nothing": gzip.compress(b""), "text": b"<html>404</html>" * 99, "a tar of xz": lzma.compress(tar(true)),
        "no gzip": tar(true), "packed twice": gzip.compress(gzip.compress(tar(true))), "a pickle alone": gzip.compress(trap),
        "a member less": gzip.compress(tar({k: v for k, v in true.items() if k != batch})),
        "another folder": gzip.compress(tar({k.replace("-bin", "-py"): v for k, v in true.items()})),
        "absolute names": gzip.compress(tar({f"/{k}": v for k, v in true.items()})),
        "a member more": gzip.compress(tar({**true, "../../out": b"x"})),
        "a terabyte's promise": gzip.compress(tar({"big": kind_of(size=1 << 40), **true})),
        "400 MB of zeros": gzip.compress(bytes(400 << 20), 1),
        **{k: gzip.compress(tar({**true, **changed})) for k, changed in inner.items()},
    }  # fmt: skip
    out: dict[str, tuple[str, dict[str, Any]]] = {
        f"cifar10 {k}": ("cifar10", {"cifar-10-binary.tar.gz": v}) for k, v in archives.items()
    }
    out |= {f"cifar100 {k}": ("cifar100", {"cifar-100-binary.tar.gz": archives[k]}) for k in ("empty", "a link", "a zip", "no gzip")}
    hundred = members("100")
    for k, labels in (("fine 100", b"\0\x64"), ("fine 255", b"\0\xff")):
        changed = {"cifar-100-binary/train.bin": labels + hundred["cifar-100-binary/train.bin"][2:]}
        out[f"cifar100 {k}"] = "cifar100", {"cifar-100-binary.tar.gz": gzip.compress(tar({**hundred, **changed}))}
    images, labels = (f"train-{k}-ubyte.gz" for k in ("images-idx3", "labels-idx1"))
    a = np.zeros((3, 28, 28), np.uint8)
    for k, changed in {
        "empty": {images: b""}, "no labels": {labels: b""}, "a label of 77": {labels: idx(np.uint8([1, 77, 2]))},
        "two labels": {labels: idx(np.uint8([1, 2]))}, "real images": {images: idx(a.astype(">f4"), 0xD)},
        "flat images": {images: idx(a.reshape(3, 784))}, "turned images": {images: idx(a.reshape(28, 3, 28))},
        "no images": {images: idx(a[:0]), labels: idx(np.uint8([]))}, "labels as images": {images: idx(np.uint8([1, 2, 3]))},
        "a header alone": {images: idx(a)[:16]}, "a short header": {images: idx(a)[:9]}, "a zip": {images: zipped.getvalue()},
        "4e9 images": {images: struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 28, 28) + bytes(784)},
    }.items():  # fmt: skip
        out[f"mnist {k}"] = "mnist", {f: gzip.compress(v) for f, v in changed.items()}
    for j, line in enumerate(["1 1:1e39", "1 -1:2", "1 0:2", "1 1:2 1:3", "1 2:1 1:2", "nan 1:1", "inf 1:1", "1e400 1:1", "1",
        "1 qid:3 1:2", "1,2 1:2", "1 1:", "1 :1", "1 1:x", "1 99999999999999999999:1", "1 2147483648:1", "1 999999999:1", "0x1 1:1",
        "1 1:1e-50", "1 1.5:2", "one 1:1", "1 1:1 #", "# c", "", "\ufeff1 1:1", "1 1:\u0663", "1\r", "\0"]):  # fmt: skip
        out[f"libsvm line {j}"] = "libsvm", {"own": LINES + line.encode() + b"\n"}
    for j, row in enumerate(["", "1, 2", ADULT, ADULT + "<=60K", ADULT.replace("39", "nan") + ">50K", ADULT.replace("39", "1e400") + ">50K",
        ADULT.replace("39", "x") + ">50K", ADULT + ">50K, more", "\xe9", ADULT.replace(", ", ",") + ">50K", "| comment"]):  # fmt: skip
        out[f"adult row {j}"] = "adult", {"adult.data": TRUE["adult"]["adult.data"] + row.encode() + b"\n"}
    for j, (x, y) in enumerate([([[1, 2]], [math.nan]), ([[1, 2]], [math.inf]), ([[1, 2]], [10**400]), ([[1, 2]], [2**40]), ([[1, 2]], [-1]),
        (3, [1]), ([1, 2], [0, 1]), ([[1, 2]], 3), ([[1, 2]], [[0]]), ([[1, 2]], ["a"]), ([[1, 2]], [None]), ([["1", 2]], [0]), ([[1, "2"]], [0]),
        ([[1, 2], ["3", "4"]], [0, 1]), ([[1e39, 2]], [0]), ([[10**400, 2]], [0]), ([[[1, 2]]], [0]), ([[]], [0]), ([[1, None]], [0]), ([{}], [0]),
        ([[1, 2]], [1.5]), ([[True, 2]], [True]), ([[1e-50, 0]], [1])]):  # fmt: skip
        out[f"numbers by hand {j}"] = "numbers", {"train/a.json": leaf_file({**USERS["numbers"], "c": (x, y if isinstance(y, list) else [y])} if j != 7 else {"a": (x, [1])}).replace(b"[1]}}", b"3}}" if j == 7 else b"[1]}}")}
    plain = USERS["numbers"]
    for k, content in {
        "a lone surrogate": leaf_file({**plain, "\udc80": plain["b"]}), "a user twice": leaf_file(plain, users=["a", "b", "b"], num_samples=[2, 1, 1]),
        "deep": b"[" * 100_000, "long number": leaf_file(plain).replace(b"0.5", b"9" * 9999), "a byte mark": b"\xef\xbb\xbf" + leaf_file(plain),
        "utf-16": leaf_file(plain).decode().encode("utf-16"), "sizes that are true": leaf_file(plain, num_samples=[2, True]), "empty": b"", "null": b"null",
        "an empty name": leaf_file({**plain, "": plain["b"]}), "lists": b"[[]]",
    }.items():  # fmt: skip
        out[f"numbers {k}"] = "numbers", {"train/a.json": content}
    out["shakespeare a lone surrogate"] = "shakespeare", {"train/a.json": leaf_file({"a": (["to \ud800"], ["\udfff"])})}
    for file in ("../secret.png", "/etc/passwd", "", ".", "..", "a/../../secret.png", "\0", "x" * 999, "\ud800.png", "none.png", "out.png", "loop.png",
        "FOLDER/secret.png", "up/secret.png", "sub/../1.png", "big.png", "cut.png", "text.png", "pipe.png", "sub/3.png", "page.eps"):  # fmt: skip
        out[f"celeba {ascii(file[:20])}"] = "celeba", {"train/a.json": leaf_file({"7": (["1.png", file], [1, 0])})}
    return out


CASES = {**by_hand(), **drawn()}
PLAIN = {k for j, k in enumerate(CASES) if "zeros" not in k and j % 12 == 5} | {
    "cifar10 empty", "cifar10 a zip", "cifar10 a label of 77", "cifar10 a link", "cifar10 a device", "cifar10 a pickle", "cifar10 a member less",
    "numbers by hand 0", "numbers by hand 1", "numbers by hand 2", "numbers by hand 5", "numbers a lone surrogate", "celeba '../secret.png'",
    "celeba '/etc/passwd'", "celeba 'out.png'",
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files, with secrets beside it, no network, and an end to patience."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "_cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(sources, "_fetch", lambda url, path: (_ for _ in ()).throw(ConnectionError(url)))
    folder = tmp_path / "files"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(dot(shade=255))
    return folder


def write(folder: Path, name: str, changed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    for file, content in (TRUE[name] | changed).items():
        (path := folder / file).parent.mkdir(parents=True, exist_ok=True)
        pack = READERS[name].packed
        path.write_bytes(pack(content) if pack and file not in changed else content)
        if file in sources.FILES:
            whole = path.read_bytes()
            try:
                whole = whole if file.endswith(".tar.gz") else unpacked(path)
            except Exception:
                whole = b""
            known = sources.FILES[file]._replace(sha256=hashlib.sha256(whole).hexdigest())
            monkeypatch.setitem(sources.FILES, file, known)
    if name == "celeba":
        images = folder / IMAGES
        (images.parent / "secret.png").write_bytes(dot(shade=255))
        (images / "sub").mkdir()
        (images / "sub/3.png").write_bytes(dot(shade=153))
        for link, to in (("out.png", images.parent / "secret.png"), ("loop.png", "loop.png"), ("up", images.parent)):
            (images / link).symlink_to(to)
        (images / "big.png").write_bytes(dot((9000, 9000)))
        (images / "cut.png").write_bytes(dot()[:60])
        (images / "text.png").write_text("%!PS\n" * 9)
        (images / "page.eps").write_bytes(dot(kind="EPS"))
        os.mkfifo(images / "pipe.png")


def late(*_: Any) -> None:
    raise TimeoutError


@pytest.mark.parametrize("name", [pytest.param(k, marks=[pytest.mark.plain] * (k in PLAIN)) for k in CASES])
def test_a_hostile_file(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, changed = CASES[name]
    write(place, kind, changed, monkeypatch)
    reader = READERS[kind]
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    tracemalloc.start()
    try:
        found, said = reader.read(place), ""
    except InputError as error:
        found, said = None, str(error)
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        signal.alarm(0)
    assert most < BYTES
    assert not Path("ran").exists()
    if found is None:
        assert len(said) < 1000
        assert said.endswith((".", "?"))
        assert said.isprintable()
        assert any(Path(file).name in said for file in changed)
        return
    meant = reader.meaning(place)
    assert len(found) == len(meant)
    for a, b in zip(found, meant, strict=True):
        assert a.shape == b.shape
        if a.dtype.kind in "US":
            assert a.tolist() == b.tolist()
        else:
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", READERS)
def test_true_files_are_read(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusing all is no way out: true files are read, and mean what is read."""
    write(place, name, {}, monkeypatch)
    assert all(len(a) == len(b) for a, b in zip(READERS[name].read(place), READERS[name].meaning(place), strict=True))
