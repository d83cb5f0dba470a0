"""``Backend``: a store, local or remote, as clients and administrators see it."""

from __future__ import annotations

from typing import Protocol

from logstore.api.admin_plane import AdminPlane
from logstore.api.data_plane import DataPlane


class Backend(DataPlane, AdminPlane, Protocol):
    """Both planes over one connection."""

    def close(self) -> None:
        """Give up what the clients of this backend hold. Safe to call again."""
        ...
