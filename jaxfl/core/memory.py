"""Free memory of a device."""

from __future__ import annotations

import os

import jax

__all__ = ["free"]


def free(device: jax.Device) -> int:
    """The number of free bytes on a device; on a CPU, of the host."""
    stats = (device.memory_stats() or {}) if device.platform != "cpu" else {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
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
