"""Words to the service manager that started the process: the datagrams of systemd's ``sd_notify``."""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger(__name__)


def notify(state: str) -> bool:
    """Send ``state`` ("READY=1", "STOPPING=1") to the socket that NOTIFY_SOCKET names; False where there is none. A
    manager that does not listen is logged: the service goes on."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # Linux's abstract sockets begin with a NUL
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.connect(address)
            to.sendall(state.encode())
    except OSError as error:
        logger.warning("the service manager was not told %s: %s", state, error)
        return False
    return True
