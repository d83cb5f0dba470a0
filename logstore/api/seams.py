"""The file system and the clock as this library sees them, for packages above it that keep files beside a store.

``File``, ``FileSystem`` and ``Clock`` are protocols, ``OsFileSystem`` and ``SystemClock`` the real ones.
"""

from __future__ import annotations

from logstore.seams.clock import Clock, SystemClock
from logstore.seams.fs import File, FileSystem, OsFileSystem, write_all

__all__ = ["Clock", "File", "FileSystem", "OsFileSystem", "SystemClock", "write_all"]
