"""The lock of an accumulator."""

from __future__ import annotations

import threading

from logstore.native import compiled


@compiled("client.pending")
def send_lock() -> threading.Lock:
    """The compiled twin's is one that compiled code takes without a step of Python."""
    return threading.Lock()
