"""Which machine a result comes from: processor, cores, kernel, Python, file system; no host name, no path."""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from importlib import metadata

PACKAGES = ("crc32c", "mmh3", "lmdb", "rocksdict", "pyarrow", "numpy")


def pace() -> str:
    """How fast and how busy the machine is at this moment, so that times of two runs can be compared."""

    def nothing() -> None: ...

    calls, best = 200_000, float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(calls):
            nothing()
        best = min(best, time.perf_counter() - began)
    return f"load {os.getloadavg()[0]:.1f}, an empty Python call {best / calls * 1e9:.0f} ns"


def peak_mb() -> float:
    """Largest resident size of this process so far, in MiB. On Linux from its own memory map: what getrusage
    tells there, a child takes over from its parent."""
    found = _first_match("/proc/self/status", r"VmHWM:\s*(\d+)")
    if found is not None:
        return int(found) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)  # macOS: bytes


def describe(folder: str) -> dict[str, str]:
    """Facts by name; ``folder`` is where the benches write, its file system is named."""
    import sqlite3

    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    return {
        "processor": _first_match("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory_mb": str(int(_first_match("/proc/meminfo", r"MemTotal:\s*(\d+)") or 0) // 1024),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "file_system": _file_system(folder),
        "logstore": metadata.version("logstore-engine"),
        "peers": ", ".join([f"sqlite {sqlite3.sqlite_version}", *versions]),
    }


def _first_match(path: str, pattern: str) -> str | None:
    """The pattern's group in a file of /proc; None where there is no such file (macOS)."""
    try:
        with open(path, encoding="utf-8") as file:
            found = re.search(pattern, file.read())
    except FileNotFoundError:
        return None
    return found.group(1).strip() if found else None


def _file_system(folder: str) -> str:
    """Type of the file system that holds ``folder``, from the mount table; "unknown" where there is none."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return "unknown"
    path = os.path.realpath(folder)
    best, kind = "", "unknown"
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4]
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind
