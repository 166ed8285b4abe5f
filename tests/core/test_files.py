"""Files: written whole or not at all, cleaned up after killed writers, bounded in what they unpack to."""

import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from told import refused

from jaxfl.core.checks import conforms
from jaxfl.core.files import NO_DIGEST, arrays, check_digest, reading, replace, sealed, writable

pytestmark = [pytest.mark.once, pytest.mark.plain]

MARK = b"digest:"


def parts(folder: Path) -> set[str]:
    return {file.name for file in folder.glob(".*.part")}


def test_the_next_writer_removes_what_killed_ones_left_and_nothing_else(tmp_path):
    """A killed writer leaves a file without a lock; a living one, of any file here, keeps its own."""
    left = {f".{name}.{i:012x}.part" for i, name in enumerate(["a.nc", "a.nc", "b"])}
    others = {".a.part", ".a.nc.0123.part", "a.nc.000000000000.part"}
    for name in left | others:
        (tmp_path / name).write_bytes(b"half of i")
    writing, go_on = threading.Event(), threading.Event()

    def slow(file: Any) -> None:
        writing.set()
        go_on.wait(20)
        file.write(b"slow")

    writer = threading.Thread(target=replace, args=(tmp_path / "slow.nc", slow))
    writer.start()
    assert writing.wait(20)
    (living,) = {name for name in parts(tmp_path) if "slow.nc" in name}
    for _ in range(2):
        replace(tmp_path / "a.nc", lambda file: file.write(b"whole"))
        writable(tmp_path / "c", "result")
    assert {file.name for file in tmp_path.iterdir()} == {"a.nc", living, *others}
    go_on.set()
    writer.join()
    assert (tmp_path / "slow.nc").read_bytes() == b"slow"
    assert living not in parts(tmp_path)


def test_a_part_that_is_taken_before_it_is_locked_is_begun_again(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    honest, taken = fcntl.flock, []

    def late(file: Any, how: int) -> None:
        if how == fcntl.LOCK_EX and not taken:
            taken.append(Path(file.name))
            taken[0].unlink()
        honest(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    replace(tmp_path / "a", lambda file: file.write(b"whole"))
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_digest_sees_every_bit(tmp_path):
    content = sealed(b"CDF " + MARK + NO_DIGEST.encode() + b" and its contents", MARK)
    check_digest(tmp_path, content, MARK, "")
    for i in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[i // 8] ^= 1 << i % 8
        refused(lambda c=bytes(flipped): check_digest(tmp_path, c, MARK, ""), "damaged")


BOMBS = ((1 << 22,), 1 << 24, "would unpack to"), ((10**12,), 64, "has"), ((3,), 64, "has")


@pytest.mark.parametrize(("shape", "nbytes", "words"), BOMBS)
def test_nothing_is_unpacked_beyond_what_a_file_may_hold(shape, nbytes, words, tmp_path):
    path, whole = tmp_path / "bomb.npz", zipfile.ZIP_DEFLATED
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(path, "w", whole) as file, file.open("x.npy", "w") as content:
        np.lib.format.write_array_header_1_0(content, header)  # type: ignore[arg-type]
        content.write(bytes(nbytes))
    assert path.stat().st_size < 1 << 16
    with pytest.raises(ValueError, match=words):
        arrays(path, 1 << 16)


def test_a_member_that_is_not_listed(tmp_path):
    """One bit in the list of a zip file, the length of a comment, hides what follows."""
    path = tmp_path / "a.npz"
    np.savez(path, allow_pickle=False, one=np.zeros(3), two=np.ones(3))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\1\2") + 32] ^= 0x40
    path.write_bytes(content)
    with zipfile.ZipFile(path) as file:
        assert len(file.infolist()) == 1
    with pytest.raises(ValueError, match="incomplete"):
        arrays(path, 1 << 16)


def test_arrays_come_back_as_they_were(tmp_path):
    given = {
        "none": np.zeros((0, 3)),
        "one": np.array("a text"),
        "turned": np.arange(6.0).reshape(2, 3).T,
    }
    np.savez(tmp_path / "a.npz", allow_pickle=False, **given)
    found = arrays(tmp_path / "a.npz", 1 << 16)
    assert found.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    np.savez(tmp_path / "b.npz", allow_pickle=True, x=np.array([None]))
    with pytest.raises(ValueError, match="an array of shape"):
        arrays(tmp_path / "b.npz", 1 << 16)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    def read(name: str) -> None:
        with reading(tmp_path / name, "result"):
            (tmp_path / name).read_bytes()

    os.mkfifo(tmp_path / "fifo")
    refused(lambda: read("fifo"), "it is not a file")
    refused(lambda: read("x" * 300), "File name too long")
    refused(lambda: read("a\0b"), "null")


KIND = {"a": int, "b?": [str], "c": {str: int | float}, "d": bool | None}
GOOD = {"a": 1, "b": ["x"], "c": {"x": 1.5}, "d": None, "more": 0}


def test_kinds():
    for change in ({}, {"b": []}):
        conforms("it", {**GOOD, **change}, KIND)
    for change, words in (
        ({"a": True}, "a is True, and must be int"),
        ({"a": "1"}, "a is '1', and must be int"),
        ({"b": ["x", 1]}, "an item of b is 1, and must be str"),
        ({"b": "x"}, "b is 'x', and must be list"),
        ({"c": {"x": None}}, "x is None, and must be int | float"),
        ({"c": []}, r"c is \[\], and must be dict"),
        ({"d": 0}, "d is 0, and must be bool | None"),
    ):
        with pytest.raises(ValueError, match=words):
            conforms("it", {**GOOD, **change}, KIND)
    with pytest.raises(ValueError, match="it has no a"):
        conforms("it", {}, KIND)
