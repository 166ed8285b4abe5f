"""The free memory of a device, and a check that a need fits into it."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax

from jaxfl.core.errors import require

__all__ = ["HOST", "check_fits", "free"]

HOST: Any = SimpleNamespace(platform="cpu")  # this machine's memory, without starting a device
SMALL = 1 << 24  # bytes that are assumed to be free


def check_fits(what: str, nbytes: int, remedy: str) -> None:
    """Raise unless ``nbytes`` bytes of this machine's memory are free."""
    if nbytes > SMALL:
        there = free(HOST)
        require(
            nbytes <= there,
            lambda: (
                f"{what} would take {nbytes / 2**30:,.1f} GiB, but only {there / 2**30:,.1f} GiB are free"
            ),
            remedy,
        )


def free(device: jax.Device) -> int:
    """The number of free bytes on a device; on a CPU, of the host."""
    stats = (device.memory_stats() or {}) if device.platform != "cpu" else {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return max(0, int(min(_of_group(), _of_machine())))


def _of_group(root: Path = Path("/sys/fs/cgroup"), own: str = "/proc/self/cgroup") -> float:
    """The free bytes within the limits of this process's control groups (version 2).

    Schedulers and containers set them.
    """
    least = math.inf
    try:
        lines = Path(own).read_text("ascii").splitlines()
        group = root / next(line[3:] for line in lines if line.startswith("0::")).lstrip("/")
    except (OSError, StopIteration):
        return least
    for place in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or no limit ("max")
            limit = int((place / "memory.max").read_text())
            stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            used = int((place / "memory.current").read_text()) - int(stat["inactive_file"])
            least = min(least, limit - used)
    return least


def _of_machine() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30
