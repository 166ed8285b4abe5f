"""Hostile files of data: read as what they mean, or refused in one sentence that names the file.

Each reader has small true files, the call that reads them, and a reading of its own here, which finds no
meaning in most of what is damaged.  Damage is drawn from seeds, or written by hand in `files.toml`.
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
import tomllib
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets  # noqa: F401  (imports take seconds, which are no case's)
from PIL import Image

from jaxfl import data
from jaxfl.core.errors import InputError
from jaxfl.data import sources
from jaxfl.data.leaf import LETTERS
from jaxfl.data.loaders import load_libsvm

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]

TABLE = tomllib.loads((Path(__file__).parent / "files.toml").read_text())
SECONDS, BYTES = 60, 1 << 30  # of one case
RNG = np.random.default_rng(0)
DIGITS = [f"data_batch_{k}.bin" for k in range(1, 6)]
CIFAR: dict[str, Any] = {  # folder, files of images and of names, classes, mean and deviation of colours
    "10": (
        "cifar-10-batches-bin", [*DIGITS, "test_batch.bin"], ["batches.meta.txt"], [10],
        [(0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)],
    ),
    "100": (
        "cifar-100-binary", ["train.bin", "test.bin"],
        ["coarse_label_names.txt", "fine_label_names.txt"],
        [20, 100], [(0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)],
    ),
}  # fmt: skip
IMAGES = "raw/img_align_celeba"


class Meaningless(Exception):
    """Nobody can say what a file means."""


def certain(*holds: Any) -> None:
    if not all(holds):
        raise Meaningless


# --- true files ----------------------------------------------------------------------------------


def members(number: str) -> dict[str, Any]:
    """The content of each member of an archive of CIFAR's."""
    folder, images, names, classes, _ = CIFAR[number]
    body = {
        k: RNG.integers(0, [*classes, *[256] * 3072], (2, 3072 + len(classes)), np.uint8)
        for k in images
    }
    named = {k: b"name\n" * c for k, c in zip(names, classes, strict=True)}
    return {f"{folder}/{k}": bytes(v) for k, v in {**body, **named}.items()}


def tar(content: dict[str, Any]) -> bytes:
    """A packed archive of these members, or of headers alone."""
    with tarfile.open(fileobj=(out := io.BytesIO()), mode="w") as packed:
        for name, body in content.items():
            info = tarfile.TarInfo(name)
            for field, value in (body if isinstance(body, dict) else {"size": len(body)}).items():
                setattr(info, field, value.encode() if field == "type" else value)
            packed.addfile(info, None if isinstance(body, dict) else io.BytesIO(body))
    return out.getvalue()


def idx(a: Any, kind: int = 8) -> bytes:
    return struct.pack(f">HBB{a.ndim}I", 0, kind, a.ndim, *a.shape) + a.tobytes()


def leaf_file(of: dict[str, Any], **changed: Any) -> bytes:
    told = {"users": [*of], "num_samples": [len(y) for _, y in of.values()]}
    own = {user: {"x": x, "y": y} for user, (x, y) in of.items()}
    return json.dumps({**told, "user_data": own, **changed}).encode()


@functools.cache
def dot(size: int = 9, kind: str = "PNG", shade: int = 51) -> bytes:
    Image.new("RGB", (size, size), (shade, 0, 0)).save(out := io.BytesIO(), kind)
    return out.getvalue()


POST = ["1", "Mon", "NO_QUERY", "me", "Happy, happy day", "training"]
USERS: dict[str, dict[str, Any]] = {
    "numbers": {"a": ([[0.5, 1], [2, -3]], [0, 1]), "b": ([[1e-3, 4e8]], [1])},
    "femnist": {"a": (RNG.random((1, 784)).round(2).tolist(), [61])},
    "shakespeare": {"a": (["to be ", "or not"], ["n", " "]), "b": (["nor ye"], ["!"])},
    "sent140": {"a": ([POST, ["2", *POST[1:]]], [1, 0])},
    "celeba": {"7": (["1.png", "2.png"], [1, 0])},
}
REST = ", Private, 77516, HS-grad, 13, Single, Clerk, Own, White, Male, 2174, 0, 40, Peru, "
LINES = b"1 1:0.5 3:2\n-1 2:-1e3 # c\n1 3:7 4:1\n"
TRUE: dict[str, dict[str, bytes]] = {
    **{f"cifar{n}": {f"cifar-{n}-binary.tar.gz": tar(members(n))} for n in CIFAR},
    "mnist": {
        f"{stem}-{what}-idx{len(shape) + 1}-ubyte.gz": idx(
            RNG.integers(0, most, (m, *shape), np.uint8)
        )
        for stem, m in (("train", 3), ("t10k", 2))
        for what, shape, most in (("images", (28, 28), 256), ("labels", (), 10))
    },
    "adult": {
        f"adult.{k}": f"{a}{REST}<=50K\n41{REST}>50K\n".encode()
        for k, a in (("data", 39), ("test", 20))
    },
    "libsvm": {"own": LINES},
    **{k: {"train/a.json": leaf_file(users)} for k, users in USERS.items()},
}
TRUE["celeba"] |= {f"{IMAGES}/{k}.png": dot(shade=51 * k) for k in (1, 2)}
PACKED = ("cifar10", "cifar100", "mnist")


# --- what a file means ---------------------------------------------------------------------------


def unpacked(file: Path) -> bytes:
    content = file.read_bytes()
    return {b"\x1f\x8b": gzip.decompress, b"BZ": bz2.decompress}.get(content[:2], bytes)(content)


def cifar(folder: Path, number: str) -> list[Any]:
    place, images, names, classes, (mean, deviation) = CIFAR[number]
    content = io.BytesIO(unpacked(folder / f"cifar-{number}-binary.tar.gz"))
    with tarfile.open(fileobj=content) as packed:
        found: Any = {
            i.name: packed.extractfile(i).read() if i.isreg() and not i.sparse else None
            for i in packed
        }  # type: ignore[union-attr]
    words, out = found[f"{place}/{names[-1]}"].decode("ascii").split(), []
    labels, wide = len(classes), 3072 + len(classes)
    for files in (images[:-1], images[-1:]):
        bodies = [found[f"{place}/{file}"] for file in files]
        certain(*(body and len(body) % wide == 0 for body in bodies), len(words) == classes[-1])
        rows = np.frombuffer(b"".join(bodies), np.uint8).reshape(-1, wide)
        certain((rows[:, labels - 1] < classes[-1]).all())
        pixels = rows[:, labels:].reshape(-1, 3, 1024).transpose(0, 2, 1) / 255
        out += [(pixels - mean) / deviation, rows[:, labels - 1]]
    return [*out, words]


def mnist(folder: Path) -> list[Any]:
    out: list[Any] = []
    for file in TRUE["mnist"]:
        content, d = unpacked(folder / file), 3 if "images" in file else 1
        zero, kind, dims, *shape = struct.unpack(f">HBB{d}I", content[: 4 + 4 * d])
        body = np.frombuffer(content[4 + 4 * d :], np.uint8)
        certain(
            (zero, kind, dims, *shape[1:]) == (0, 8, d, 28, 28)[: 2 + d],
            shape[0],
            math.prod(shape) == body.size,
        )
        certain(d == 3 or ((body < 10).all() and len(body) == len(out[-1])))
        out.append(body.reshape(shape) / (255 if d == 3 else 1))
    return [*out, []]


def adult(folder: Path) -> list[Any]:
    """Ages and labels: what is between them is read alike."""
    tables = []
    for file in TRUE["adult"]:
        lines = (folder / file).read_text("ascii").splitlines()
        rows = [line.split(", ") for line in lines if line and line[0] != "|"]
        certain(
            rows, *(len(row) == 15 and row[14].rstrip(".") in ("<=50K", ">50K") for row in rows)
        )
        certain(*(row[j].isdecimal() for row in rows for j in (0, 2, 4, 10, 11, 12)))
        tables.append(
            (np.array([float(row[0]) for row in rows]), [row[14][0] == ">" for row in rows])
        )
    mean, spread = tables[0][0].mean(), tables[0][0].std() or 1.0
    return [a for ages, labels in tables for a in ((ages - mean) / spread, labels)] + [[]]


def libsvm(folder: Path) -> list[Any]:
    lines = (line.split(b"#")[0].split() for line in unpacked(folder / "own").split(b"\n"))
    rows = [(float(w[0]), [v.split(b":") for v in w[1:] if v[:4] != b"qid:"]) for w in lines if w]
    at = [[int(i) for i, _ in row] for _, row in rows]
    certain(
        *(
            own == sorted({*own}) and min(own, default=0) >= 0 and max(own, default=0) < 1 << 20
            for own in at
        )
    )
    every = [i for own in at for i in own]
    start = min(every) > 0
    x, y = (np.zeros((len(rows), max(every) + 1 - start)), np.array([label for label, _ in rows]))
    for out, own, (_, row) in zip(x, at, rows, strict=True):
        out[np.array(own, int) - start] = [float(v) for _, v in row]
    classes = np.unique(y)
    certain(np.isfinite(y).all(), (np.abs(x) < 3.4e38).all(), len(classes) > 1)
    real = len(classes) > 2 and (y % 1).any()
    return [x, y if real else np.searchsorted(classes, y), []]


def number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 3.4e38


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    certain(len(dict(pairs)) == len(pairs))
    return dict(pairs)


FEATURES: dict[str, Callable[[Any, Path], Any]] = {
    "shakespeare": lambda text, _: [LETTERS.find(c) % 80 for c in text],
    "sent140": lambda post, _: [len(re.findall(r"[\w']+", post[4].lower()))],
    "celeba": lambda file, of: [
        np.asarray(Image.open(of / file).resize((84, 84)).convert("RGB"))[0, 0, 0] / 255
    ],
}


def leaf(folder: Path, kind: str) -> list[Any]:
    content = json.loads((folder / "train/a.json").read_text("utf-8"), object_pairs_hook=once)
    own, sizes, pictures = content["user_data"], content["num_samples"], folder / IMAGES
    certain(*(type(m) is int for m in sizes), len({*content["users"]}) == len(content["users"]))
    certain(
        dict(zip(content["users"], sizes, strict=True)) == {u: len(v["y"]) for u, v in own.items()}
    )
    "".join(own).encode()
    certain(
        *(
            isinstance(v[k], list) and len(v["x"]) == len(v[k]) > 0
            for v in own.values()
            for k in "xy"
        )
    )
    x, y = ([a for v in own.values() for a in v[k]] for k in "xy")
    certain(*(isinstance(v, str if kind in ("shakespeare", "celeba") else list) for v in x))
    if kind == "shakespeare":
        certain(*(isinstance(v, str) and len(v) == 1 for v in y))
        y = [LETTERS.find(v) % 80 for v in y]
    if kind == "celeba":
        certain(*((pictures / v).resolve().is_relative_to(pictures) for v in x))
    x = [FEATURES[kind](v, pictures) for v in x] if kind in FEATURES else x
    certain(*(number(v) for row in x for v in row), len({*map(len, x)}) == 1, x[0])
    most = {"femnist": 62, "sent140": 2, "celeba": 2}.get(kind, 2**31)
    certain(*(number(v) and 0 <= v < most and v % 1 == 0 for v in y))
    return [np.array(x, float), np.array(y, float), [*own]]


# --- what jaxfl reads ----------------------------------------------------------------------------


def sets(made: Any, names: Any = ()) -> list[Any]:
    return [*made.train, *(made.test or ()), names]


def read_adult(folder: Path) -> list[Any]:
    made = data.load("adult", directory=folder)
    return [a[:, 0] if np.ndim(a) == 2 else a for a in sets(made)]


def read_leaf(folder: Path, kind: str) -> list[Any]:
    made = data.leaf(folder)
    owned = np.arange(made.train[1].shape[1]) < made.count[:, None]
    x, y = (a[owned] for a in made.train)
    if kind == "sent140":
        marks = [0, *(1 + zlib.crc32(c.encode()) % 4095 for c in ",.!?;")]
        x = np.isin(x, marks, invert=True).sum(axis=1, keepdims=True)
    return [x[:, 0, 0, :1] if kind == "celeba" else x, y, made.client_names]


READERS: dict[str, tuple[Callable[[Path], list[Any]], Callable[[Path], list[Any]]]] = {
    "cifar10": (
        lambda f: sets(d := data.load("cifar10", directory=f), d.class_names),
        lambda f: cifar(f, "10"),
    ),
    "cifar100": (
        lambda f: sets(d := data.load("cifar100", directory=f), d.class_names),
        lambda f: cifar(f, "100"),
    ),
    "mnist": (lambda f: sets(data.load("mnist", directory=f)), mnist),
    "adult": (read_adult, adult),
    "libsvm": (lambda f: sets(load_libsvm(f / "own")), libsvm),
    **{k: (functools.partial(read_leaf, kind=k), functools.partial(leaf, kind=k)) for k in USERS},
}


# --- damage --------------------------------------------------------------------------------------

Case = tuple[str, dict[str, bytes]]  # a reader, and the files that are others
KINDS = ("cut", "bit", "sign", "noise", "gone", "zeros", "doubled")
ODD = [
    math.nan, math.inf, 1e300, 10**400, 2**31, 2**63, -1, 62, 0.5, 1.0, 1e-50, True, None, "x", "",
    "1", "\ud800", "\0", "../x",
    [], [[]], [1], {}, {"x": 1}, [None, None], ["1", "2"], [[1, 2], [3, 4]], [[1], [2, 3]],
]  # fmt: skip


def damaged(content: bytes, draw: random.Random, kind: str) -> bytes:
    at, size = draw.randrange(len(content)), draw.choice([1, 4, 32, 512])
    block, sign = content[at : at + size], draw.choice(b'0123456789-+.eEnN:,# \n"\\[]{}\xff\0')
    if kind in ("bit", "sign"):
        new = content[at] ^ 1 << draw.randrange(8) if kind == "bit" else sign
        return content[:at] + bytes([new]) + content[at + 1 :]
    other = {
        "noise": draw.randbytes(len(block)),
        "gone": b"",
        "zeros": bytes(len(block)),
        "doubled": 2 * block,
    }
    return content[:at] + (other[kind] + content[at + size :] if kind in other else b"")


def swapped(content: bytes, draw: random.Random) -> bytes:
    """A file of JSON with another value somewhere, or another key."""
    tree = at = json.loads(content)
    key = draw.choice([*tree])
    while isinstance(at[key], dict | list) and at[key] and draw.random() < 0.8:
        at = at[key]
        key = draw.choice([*at]) if isinstance(at, dict) else draw.randrange(len(at))
    if isinstance(at, dict) and draw.random() < 0.3:
        at[draw.choice(["\ud800", "", "x", "a\n"])] = at.pop(key)
    else:
        at[key] = draw.choice(ODD)
    return json.dumps(tree).encode()


def drawn() -> dict[str, Case]:
    out: dict[str, Case] = {}
    for name, files in TRUE.items():
        for seed in range({"libsvm": 70, "mnist": 42}.get(name, 28)):
            draw, kind, turn = random.Random(f"{name} {seed}"), KINDS[seed % 7], seed // 7
            file = draw.choice([*files][: 4 if name == "mnist" else 1])
            pack: Any = (
                gzip.compress
                if name in PACKED
                else (bytes, gzip.compress, bz2.compress)[turn % 3 * (name == "libsvm")]
            )
            inside = turn % 2  # damage before the file is packed, or after
            new = (
                pack(damaged(files[file], draw, kind))
                if inside
                else damaged(pack(files[file]), draw, kind)
            )
            out[f"{name} {kind} {seed}"] = name, {file: new}
        for seed in range(24 if name in USERS else 0):
            new = swapped(files["train/a.json"], random.Random(seed))
            out[f"{name} swap {seed}"] = name, {"train/a.json": new}
    return out


class Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def archives() -> dict[str, bytes]:
    """Archives of CIFAR-10."""
    true, trap = members("10"), pickle.dumps(Trap())
    place = "cifar-10-batches-bin"
    batch, names = f"{place}/data_batch_2.bin", f"{place}/batches.meta.txt"
    with zipfile.ZipFile(zipped := io.BytesIO(), "w") as file:
        file.writestr(batch, true[batch])
    inner = {
        **{k: {batch: v} for k, v in TABLE["headers"].items()},
        "a label of 77": {batch: b"\x4d" + true[batch][1:]},
        "a label of 10": {batch: b"\x0a" + true[batch][1:]},
        "half a record": {batch: true[batch][:4000]}, "a byte more": {batch: true[batch] + b"\0"},
        "no records": {batch: b""},
        "a pickle": {batch: trap}, "a long pickle": {batch: trap.ljust(6146, b"\0")},
        "three names": {names: b"a\nb\nc\n"},
        "eleven names": {names: b"a\n" * 11}, "names in Latin": {names: b"\xe9\n" * 10},
        "names in a folder": {names: {"type": "5"}},
        "a member more": {"../../out": b"x"},
    }  # fmt: skip
    return {
        "empty": b"", "zeros": bytes(10240), "a zip": zipped.getvalue(),
        "packed zeros": gzip.compress(bytes(10240)),
        "packed nothing": gzip.compress(b""), "text": b"<html>404</html>" * 99,
        "a tar of xz": lzma.compress(tar(true)),
        "no gzip": tar(true), "packed twice": gzip.compress(gzip.compress(tar(true))),
        "a pickle alone": gzip.compress(trap),
        "a member less": gzip.compress(tar({k: v for k, v in true.items() if k != batch})),
        "another folder": gzip.compress(tar({k.replace("-bin", "-py"): v for k, v in true.items()})),
        "absolute names": gzip.compress(tar({f"/{k}": v for k, v in true.items()})),
        "a terabyte first": gzip.compress(tar({"big": {"size": 1 << 40}, **true})),
        "400 MB of zeros": gzip.compress(bytes(400 << 20), 1),
        **{k: gzip.compress(tar({**true, **changed})) for k, changed in inner.items()},
    }  # fmt: skip


def by_hand() -> dict[str, Case]:
    made, hundred = archives(), members("100")
    train = "cifar-100-binary/train.bin"
    for labels in (b"\0\x64", b"\0\xff"):
        made[f"fine {labels[1]}"] = gzip.compress(
            tar({**hundred, train: labels + hundred[train][2:]})
        )
    out: dict[str, Case] = {
        f"cifar10 {k}": ("cifar10", {"cifar-10-binary.tar.gz": v}) for k, v in made.items()
    }
    for k in ("empty", "a link", "a zip", "fine 100", "fine 255"):
        out[f"cifar100 {k}"] = "cifar100", {"cifar-100-binary.tar.gz": made[k]}
    images, labels = [*TRUE["mnist"]][:2]
    a = np.zeros((3, 28, 28), np.uint8)
    odd: dict[str, dict[str, bytes]] = {
        "empty": {images: b""}, "no labels": {labels: b""},
        "a label of 77": {labels: idx(np.uint8([1, 77, 2]))},
        "two labels": {labels: idx(np.uint8([1, 2]))},
        "real images": {images: idx(a.astype(">f4"), 0xD)},
        "flat images": {images: idx(a.reshape(3, 784))},
        "turned images": {images: idx(a.reshape(28, 3, 28))},
        "no images": {images: idx(a[:0]), labels: idx(np.uint8([]))},
        "labels as images": {images: idx(np.uint8([1, 2, 3]))},
        "a header alone": {images: idx(a)[:16]}, "a short header": {images: idx(a)[:9]},
        "a zip": {images: made["a zip"]},
        "4e9 images": {images: struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 28, 28) + bytes(784)},
    }  # fmt: skip
    out |= {
        f"mnist {k}": ("mnist", {f: gzip.compress(v) for f, v in new.items()})
        for k, new in odd.items()
    }
    out |= {
        f"libsvm {line!a}": ("libsvm", {"own": LINES + line.encode() + b"\n"})
        for line in TABLE["libsvm"]
    }
    for row in TABLE["adult"]:
        out[f"adult {row!a}"] = (
            "adult",
            {"adult.data": TRUE["adult"]["adult.data"] + row.replace("REST", REST).encode()},
        )
    plain, true = USERS["numbers"], TRUE["numbers"]["train/a.json"]
    texts = {
        **{k: v.encode() for k, v in TABLE["text"].items()},
        "deeper": b"[" * 100_000, "long": true.replace(b"0.5", b"9" * 9999),
        "utf-16": true.decode().encode("utf-16"),
        "sizes that are true": leaf_file(plain, num_samples=[2, True]),
        "a user twice": leaf_file(plain, users=["a", "b", "b"], num_samples=[2, 1, 1]),
        "a name of one": leaf_file({**plain, "": plain["b"]}),
        "half a pair": leaf_file({**plain, "\udc80": plain["b"]}),
        "a long name": leaf_file({**plain, "x" * 9999: ([[1]], [0])}),
    }  # fmt: skip
    for pair in TABLE["leaf"]:
        x, y = (
            v.replace("BIG", str(10**400))
            for v in re.fullmatch(r"(.*), (\[.*\]|3|null)", pair).groups()
        )  # type: ignore[union-attr]
        size = 2 if y.count(",") else 1
        texts[pair] = true.replace(
            b"}}}", b'}, "c": {"x": %s, "y": %s}}}' % (x.encode(), y.encode())
        ).replace(b'"b"]', b'"b", "c"]')
        texts[pair] = texts[pair].replace(b"[2, 1]", b"[2, 1, %d]" % size)
    out |= {f"numbers {k}": ("numbers", {"train/a.json": v}) for k, v in texts.items()}
    for file in TABLE["celeba"]:
        named = file.replace("LONG", "x" * 999)
        out[f"celeba {file!a}"] = (
            "celeba",
            {"train/a.json": leaf_file({"7": (["1.png", named], [1, 0])})},
        )
    return out


CASES = {**by_hand(), **drawn()}
PLAIN = {k for j, k in enumerate(CASES) if "zeros" not in k and j % 13 == 5} | {
    *(f"cifar10 {k}" for k in ("empty", "a zip", "a label of 77", "a link", "a device", "a pickle")),
    *(f"numbers {k}" for k in (*TABLE["leaf"][:4], "3, [1]", "half a pair")),
    "cifar10 a member less", "celeba '../secret.png'", "celeba 'out.png'",
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files, with a secret beside it, and no network."""

    def fetch(url: str, path: str) -> None:
        raise ConnectionError(url)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "_cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(sources, "_fetch", fetch)
    (folder := tmp_path / "files").mkdir()
    return folder


def write(
    folder: Path, name: str, changed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """True files and changed ones; the published digests are those of these files."""
    for file, content in (TRUE[name] | changed).items():
        (path := folder / file).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            gzip.compress(content) if name in PACKED and file not in changed else content
        )
        if file in sources.FILES:
            try:
                whole = path.read_bytes() if file.endswith(".tar.gz") else unpacked(path)
            except Exception:
                whole = b""
            known = sources.FILES[file]._replace(sha256=hashlib.sha256(whole).hexdigest())
            monkeypatch.setitem(sources.FILES, file, known)
    if name == "celeba":
        (images := folder / IMAGES).joinpath("sub").mkdir()
        head = b"IHDR" + struct.pack(">2I5B", 9000, 9000, 8, 2, 0, 0, 0)
        wide = dot()[:12] + head + zlib.crc32(head).to_bytes(4) + dot()[33:]
        more = {
            "../secret.png": dot(shade=255),
            "sub/3.png": dot(shade=153),
            "big.png": wide,
            "cut.png": dot()[:60],
        }
        for file, content in {
            **more,
            "text.png": b"%!PS\n" * 9,
            "page.eps": dot(kind="EPS"),
        }.items():
            (images / file).write_bytes(content)
        for link, to in {"out.png": "../secret.png", "loop.png": "loop.png", "up": ".."}.items():
            (images / link).symlink_to(to)
        os.mkfifo(images / "pipe.png")


def late(*_: Any) -> None:
    raise TimeoutError


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=[pytest.mark.plain] * (k in PLAIN)) for k in CASES]
)
def test_a_hostile_file(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, changed = CASES[name]
    write(place, kind, changed, monkeypatch)
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    tracemalloc.start()
    try:
        found, said = READERS[kind][0](place), ""
    except InputError as error:
        found, said = [], str(error)
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        signal.alarm(0)
    assert most < BYTES
    assert not Path("ran").exists()
    if said:
        assert len(said) < 1000
        assert said.endswith((".", "?"))
        assert said.isprintable()
        assert any(Path(file).name in said for file in changed)
    else:
        same(found, READERS[kind][1](place))


def same(found: list[Any], meant: list[Any]) -> None:
    for a, b in zip(found[:-1], meant[:-1], strict=True):
        np.testing.assert_allclose(np.reshape(a, -1), np.reshape(b, -1), rtol=2e-6, atol=1e-6)
        assert len(a) == len(b)
    assert [*found[-1]] == [*meant[-1]]


@pytest.mark.plain
@pytest.mark.parametrize("name", READERS)
def test_true_files_are_read(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusing all is no way out."""
    write(place, name, {}, monkeypatch)
    same(*(read(place) for read in READERS[name]))
