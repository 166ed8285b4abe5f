"""Processes of `jax.distributed` that compute one program together: what they agree on, and losses."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pickle
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils

from jaxfl.core.errors import InputError, one_line

__all__ = ["first", "gathered", "is_first", "on_host", "placed", "several", "together"]

T = TypeVar("T")
# what JAX says of a process that has ended, or does not answer
LOST = re.compile(
    "gloo|nccl|coordination|distributed service|heartbeat|socket|connection|unavailable|deadline",
    re.IGNORECASE,
)


def several() -> bool:
    return bool(jax.process_count() > 1)


def is_first() -> bool:
    """Whether this process is the one that writes files and reports."""
    return bool(jax.process_index() == 0)


def on_host(array: Any) -> npt.NDArray[Any]:
    """An array that may be split over the devices of several processes; all of them ask for it."""
    if isinstance(array, jax.Array) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


def placed(tree: Any, where: Any) -> Any:
    """The tree on devices, of which other processes may have some; each has all of what is not there."""
    if several() and where is not None:
        return jax.tree.map(_placed, tree, where)
    return jax.device_put(tree, where)


def _placed(array: Any, where: jax.sharding.Sharding | None) -> Any:
    if where is None:  # of an argument that the compiler has left out
        return array
    if isinstance(array, jax.Array) and array.sharding.is_equivalent_to(where, array.ndim):
        return array
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = _placed(jax.random.key_data(array), where)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
    whole = np.asarray(array)
    return jax.make_array_from_callback(whole.shape, where, lambda part: whole[part])


def gathered(value: float) -> npt.NDArray[np.float64]:
    """A number of each process, exactly."""
    if not several():
        return np.array([value], np.float64)
    own = np.array([value], np.float64).view(np.uint8)
    found = np.ascontiguousarray(multihost_utils.process_allgather(own)).view(np.float64)
    return found.ravel()


def first(call: Callable[[], T]) -> T:
    """What ``call`` returns in process 0, everywhere; also an :class:`InputError` that it raises."""
    if not several():
        return call()
    error: BaseException | None = None
    content = b""
    if is_first():
        try:
            content = pickle.dumps((call(), None))
        except BaseException as raised:
            error = raised
            ended = InputError(f"Process 0 has ended ({type(raised).__name__})")
            content = pickle.dumps((None, raised if isinstance(raised, InputError) else ended))
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    sent = np.frombuffer(content.ljust(size), np.uint8)
    reply = np.asarray(multihost_utils.broadcast_one_to_all(sent[:size]))
    if error is not None:
        raise error
    result, told = pickle.loads(reply.astype(np.uint8).tobytes())
    if told is not None:
        raise told
    found: T = result
    return found


@contextlib.contextmanager
def together(resume: Any) -> Iterator[None]:
    """Turn the loss of another process into one sentence, which says how to ``resume`` unless it is None.

    JAX aborts a process that cannot reach process 0, or learns of a loss while it waits; then the
    sentence is the last line on standard error.
    """
    if not several():
        yield
        return
    problem = "Another process of this computation is lost"
    way = "start all of them again" + ("" if resume is None else ", and pass {resume}")
    lost = InputError(problem, way, suggested={"resume": resume})

    def abort(_: int) -> None:
        os.write(2, f"{lost}\n".encode())
        os._exit(1)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(abort)
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    before = set_handler(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    except (ValueError, RuntimeError, OSError) as error:
        if isinstance(error, InputError) or not LOST.search(str(error)):
            raise
        atexit.register(_end)
        lost.problem += f" ({one_line(error)})"
        raise lost from None
    finally:
        set_handler(signal.SIGABRT, before)


def _end() -> None:
    """End this process: JAX would wait for those that are lost, and abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
