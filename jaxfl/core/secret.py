"""Secrets: the base key of runs that are given no key, and the salt of digests."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxfl.core.types import Key

__all__ = ["key_of_words", "salted", "system_key", "words_of_key"]

SALT = 32  # bytes


def system_key() -> Key:
    """A key of JAX's default generator with all its bits from the operating system."""
    words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    found = np.frombuffer(os.urandom(4 * words.size), np.uint32).reshape(words.shape)
    return _key(found)


def words_of_key(key: Key) -> dict[str, Any]:
    """A key as JSON; the generators that have no name are read as JAX's default."""
    kind = jax.random.key_impl(key)
    words = np.asarray(jax.random.key_data(key)).tolist()
    return {"generator": kind if isinstance(kind, str) else None, "words": words}


def key_of_words(found: Mapping[str, Any]) -> Key:
    """The key that :func:`words_of_key` wrote."""
    words = np.asarray(found["words"], np.uint32)
    return _key(words, found["generator"])


def _key(words: Any, generator: str | None = None) -> Key:
    key: Key = jax.random.wrap_key_data(words, impl=generator)
    return key


def salted(text: str) -> str:
    """A digest of a text that reveals nothing of it without this user's salt: "MARK:DIGEST".

    Digests with the same mark are equal if and only if their texts are.
    """
    return ":".join(
        hashlib.blake2b(part, key=_salt(), digest_size=size).hexdigest()
        for part, size in ((b"", 3), (text.encode(), 8))
    )


@functools.cache
def _salt() -> bytes:
    """Drawn once, and kept where only this user reads it; of this process alone where that fails."""
    import pooch

    path = Path(pooch.os_cache("jaxfl")) / "salt"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            begun = path.with_name(f".salt.{os.urandom(6).hex()}")
            with open(os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(os.urandom(SALT))
            try:
                os.link(begun, path)  # whole, and the first of several processes wins
            finally:
                begun.unlink()
        found = path.read_bytes()
        if len(found) == SALT:
            return found
    return os.urandom(SALT)
