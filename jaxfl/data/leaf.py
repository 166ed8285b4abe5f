"""LEAF's data sets, read from the JSON files that its scripts write."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import conforms, finite, labels_below, numeric, one_path, spelt
from jaxfl.core.errors import attempt, require, shown
from jaxfl.core.files import reading
from jaxfl.core.memory import HOST, free
from jaxfl.core.params import whole
from jaxfl.data.records import Array, ClientData, from_clients

__all__ = ["leaf"]

LETTERS = (
    "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's
)
WORD = re.compile(r"[\w']+|[.,!?;]")  # LEAF's as well
WORDS, CODES = 25, 4096  # of a text, in its beginning; different codes of words
TEXT = 4  # the column of a post of Sent140 that holds its text
FORMATS, PIXELS = ("JPEG", "PNG"), 1 << 26  # of an image, before it is resized
SIDE = 84  # pixels, to which LEAF's model of CelebA resizes images
AGAIN = "write it again with LEAF's preprocess.sh"


@spelt("Function")
def leaf(
    folder: str | os.PathLike[str],
    *,
    flat: bool = False,
    clients: int | None = None,
    classes: int | None = None,
    images: str | os.PathLike[str] | None = None,
) -> ClientData:
    """Natural clients in LEAF's layout: JSON files in the folders ``train`` and ``test`` of ``folder``.

    The examples say which data set they are of:

    - FEMNIST, 784 numbers each: images (28, 28, 1), of 62 ``classes`` unless others are given; with
      ``flat=True`` vectors of 784.  Other lengths remain vectors;
    - Shakespeare, strings and the next character: codes in LEAF's alphabet of 80 characters, int32;
      with ``flat=True`` one-hot.  Characters beyond the alphabet get its last code, as in LEAF;
    - Sent140, rows whose text is the fifth column: codes 1, ..., 4095 of the first 25 words, hashed
      by CRC-32 in lower case, and 0 for none; with ``flat=True`` the number of words with each code;
    - CelebA, names of image files in ``images`` (default: ``raw/img_align_celeba`` in ``folder``): RGB
      images (84, 84, 3) in [0, 1]; with ``flat=True`` vectors.

    Clients have the names of the users, in the order of the files; ``clients`` takes the first so many.
    The test examples of a user stay theirs (``test_owner``); those of users without training examples
    belong to no client.  Files are read one after another.

    Caldas et al., LEAF: A Benchmark for Federated Settings, 2018.
    """
    root = Path(os.path.expanduser(one_path("folder", folder)))
    require(isinstance(flat, bool), "must be True or False", flat=flat)
    most = None if clients is None else whole("clients", clients, 1)
    some = None if classes is None else whole("classes", classes, 2)
    pictures = root / "raw" / "img_align_celeba" if images is None else one_path("images", images)
    reader = _Examples(flat, some, Path(os.path.expanduser(pictures)))
    train = list(reader.users(_files(root, "train"), most))
    number = {user: i for i, (user, _) in enumerate(train)}
    held, owner = [], []
    for user, rows in reader.users(_files(root, "test"), None, number if most else None):
        held.append(rows)
        owner.append(np.full(len(rows[1]), number.get(user, -1), np.int32))
    made = from_clients(
        [rows for _, rows in train],
        tuple(map(np.concatenate, zip(*held, strict=True))) if held else None,
        test_owner=np.concatenate(owner) if held else None,
        classes=reader.classes,
        name=reader.name or root.resolve().name,
    )
    return made._replace(client_names=tuple(number), partition="natural")


def _files(root: Path, part: str) -> list[Path]:
    """The JSON files of a part, by name; raise where there are none to train on."""
    files = sorted((root / part).glob("*.json"))
    way = "run LEAF's preprocess.sh -t sample, and name the folder data that it fills"
    require(files or part != "train", lambda: f"{root} has no JSON files in a folder train", way)
    return files


class _Examples:
    """Users' examples as arrays, all of one shape, and what they have in common."""

    def __init__(self, flat: bool, classes: int | None, images: Path) -> None:
        self.flat, self.given, self.images = flat, classes, images
        self.shape: tuple[int, ...] | None = None
        self.classes, self.name = classes or 0, ""

    def users(
        self, files: Sequence[Path], most: int | None, only: Any = None
    ) -> Iterator[tuple[str, tuple[Array, Array]]]:
        """The name and the examples of each user that has any, or of the first ``most``."""
        seen: dict[str, Path] = {}
        room, taken, longest = free(HOST), 0, 0
        for file in files:
            for user, x, y in _users(file, may_lack=file.parent.name == "test"):
                if only is not None and user not in only:
                    continue
                twice = f"User {shown(user)} is in {seen.get(user)} and in {file}"
                require(user not in seen, twice, "name a folder that holds each user once")
                seen[user] = file
                rows = self._rows(x, y, f"{file}, user {shown(user)},")
                each, longest = rows[0].nbytes // len(y), max(longest, len(y))
                taken += rows[0].nbytes
                wrong = (
                    f"The examples of {file.parent} take over {room:,} bytes, as much as is free"
                )
                way = "read fewer users with clients="
                require(taken + len(seen) * longest * each <= room, wrong, way)
                yield user, rows
                if len(seen) == most:
                    return

    def _rows(self, x: list[Any], y: list[Any], who: str) -> tuple[Array, Array]:
        kinds, letters = ({type(value) for value in values} for values in (x, y))
        if kinds == letters == {str}:
            name, classes, features = "shakespeare", len(LETTERS), self._strings(x, who)
            codes = _codes(y, who)
            require(codes.shape[1] == 1, lambda: f"{who} has labels of several characters", AGAIN)
            y, letters = codes[:, 0].tolist(), {int}
        elif kinds == {str}:
            name, classes, features = "celeba", 2, np.stack([self._image(file, who) for file in x])
        elif kinds == {list} and any(isinstance(value, str) for value in x[0]):
            name, classes, features = "sent140", 2, self._posts(x, who)
        else:
            features = _numbers(x, who)
            image = features.shape[1:] == (784,)
            name, classes = ("femnist", 62) if image else ("", 0)
            if image and not self.flat:
                features = features.reshape(-1, 28, 28, 1)
        require(
            letters <= {int, float, bool},
            lambda: f"{who} has labels {shown(y)}",
            "number the classes",
        )
        labels = numeric(f"{who} labels", y)
        finite(f"{who} labels", labels)
        most = self.given or classes
        labels_below(f"{who} labels", labels, most or 1 << 31)
        most = most or max(2, int(labels.max()) + 1)
        if self.shape is None:
            self.shape, self.name = features.shape[1:], name
        wrong = f"{who} has examples of shape {features.shape[1:]}, and users before {self.shape}"
        way = "name a folder of one data set"
        require((features.shape[1:], name) == (self.shape, self.name), wrong, way)
        self.classes = max(self.classes, most)
        return features, labels.astype(np.int32)

    def _strings(self, x: list[str], who: str) -> Array:
        codes = _codes(x, who)
        hot = np.eye(len(LETTERS), dtype=np.float32)
        return hot[codes].reshape(len(x), -1) if self.flat else codes

    def _posts(self, x: list[Any], who: str) -> Array:
        length, kind = (CODES, np.float32) if self.flat else (WORDS, np.int32)
        out: Array = np.zeros((len(x), length), kind)
        others = [post for post in x if len(post) <= TEXT or not isinstance(post[TEXT], str)]
        require(not others, lambda: f"{who} has a post without text: {shown(others[:1])}", AGAIN)
        for row, post in zip(out, x, strict=True):
            words = WORD.findall(post[TEXT].lower())
            codes = [1 + zlib.crc32(word.encode()) % (CODES - 1) for word in words]
            if self.flat:
                np.add.at(row, codes, 1)
            else:
                row[: len(codes)] = codes[:WORDS]
        return out

    def _image(self, file: str, who: str) -> Array:
        from PIL import Image

        place = "put CelebA's aligned images there, or name their folder with images="
        image = f"{who} names the image {shown(file)}"
        wrong = f"{image}, and images lie in {self.images}, which is no folder"
        require(self.images.is_dir(), wrong, place)
        with attempt(f"{image}, which cannot be read in {self.images}", place):
            path = (self.images / file).resolve()
            inside = path.is_relative_to(self.images.resolve())
            leaves = f"{image}, which leaves the folder {self.images}"
            require(inside, leaves, "name files in it, and no links to others")
            require(path.is_file(), lambda: f"{image}, which is no file in {self.images}", place)
            with Image.open(path, formats=FORMATS) as opened:
                wide = f"{image}, of {opened.size} pixels"
                require(math.prod(opened.size) <= PIXELS, wide, "scale it down")
                pixels = np.asarray(opened.resize((SIDE, SIDE)).convert("RGB"))
        unit: Array = np.divide(pixels, 255, dtype=np.float32)
        return unit.reshape(-1) if self.flat else unit


def _codes(strings: Sequence[str], who: str) -> npt.NDArray[np.int32]:
    """Codes (N, length) of strings of one length."""
    lengths = {len(text) for text in strings}
    wrong = f"{who} has strings of {sorted(lengths)[:3]} characters"
    require(len(lengths) == 1 and 0 not in lengths, wrong, "make all of one length")
    points, alphabet = (
        np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        for text in ("".join(strings), LETTERS)
    )
    last = len(alphabet) - 1
    code = np.minimum(np.searchsorted(alphabet, points), last)  # LEAF's alphabet is sorted
    known = alphabet[code] == points
    return np.where(known, code, last).astype(np.int32).reshape(len(strings), -1)


def _numbers(x: Any, who: str) -> Array:
    vectors = isinstance(x, np.ndarray) and x.ndim == 2 and x.size
    unlike = f"{who} has examples that are no lists of numbers of one length"
    require(vectors, unlike, AGAIN)
    finite(who, x)
    return x  # type: ignore[no-any-return]


# --- JSON ----------------------------------------------------------------------------------------


def _users(path: Path, may_lack: bool) -> Iterator[tuple[str, Any, list[Any]]]:
    """The users of a file that have examples."""
    examples = {"x": list | np.ndarray, "y": list}
    kinds = {"users": [str], "num_samples": [int], "user_data": {str: examples}}
    with reading(path, "JSON file of LEAF", AGAIN):
        content = json.loads(path.read_text("utf-8"), object_pairs_hook=_packed)
        conforms("it", content, kinds)
        listed = dict(zip(content["users"], content["num_samples"], strict=True))
        if len(listed) < len(content["users"]):
            raise ValueError("a user is listed twice")
        for user in content["user_data"]:
            user.encode()  # half of a pair of surrogates is no text, and no file can hold it
    found = content["user_data"]
    for user, own in found.items():
        alike = len(own["x"]) == len(own["y"])
        counted = (
            f"{path}: user {shown(user)} has {len(own['x'])} examples and {len(own['y'])} labels"
        )
        require(alike, counted, AGAIN)
        more = f"{path}: users lacks {shown(user)}, who has examples"
        require(user in listed or not own["y"], more, AGAIN)
    for user, number in listed.items():
        size = len(found[user]["y"]) if user in found else 0
        wrong = f"{path}: num_samples says {number} of user {shown(user)}, who has {size}"
        require(number == size, wrong, AGAIN)
        lacks = f"{path}: user {shown(user)} has no examples"
        require(number or may_lack, lacks, "remove that user")
    yield from ((user, own["x"], own["y"]) for user, own in found.items() if own["y"])


def _packed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, once it is decoded; lists of numbers take a tenth of the memory as an array."""
    own = dict(pairs)
    if len(own) < len(pairs):
        raise ValueError("a name is in an object twice")
    x = own.get("x")
    if (
        isinstance(x, list)
        and x
        and all(isinstance(row, list) and str not in {*map(type, row)} for row in x)
    ):
        with contextlib.suppress(TypeError, ValueError):
            own["x"] = np.array(x, np.float32)
    return own
