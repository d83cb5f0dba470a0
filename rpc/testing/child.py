"""The process of a broker for tests: as ``logstore broker start``, with a disk and a clock that its parent moves.

`python -m rpc.testing.child`: the first line of its input is a JSON object with the settings, each later one a fault to
set; each is answered by a line. It ends with its input.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from typing import Any

from logstore.testing.clock import MovedClock
from logstore.testing.disk import FaultyDisk
from rpc.process import BrokerProcess
from rpc.settings import BrokerSettings


def obey(command: dict[str, Any], disk: FaultyDisk, clock: MovedClock) -> None:
    """One fault: ``slow_s``, ``full``, ``broken`` of the disk, ``advance_ms`` of the clock."""
    for name, value in command.items():
        if name == "advance_ms":
            clock.advance(value)
        elif name in ("slow_s", "full", "broken"):
            setattr(disk, name, value)
        else:
            raise ValueError(f"there is no fault {name!r}")


def answer(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def follow(disk: FaultyDisk, clock: MovedClock) -> None:
    """Obey the parent until its end, and end then."""
    for line in sys.stdin:
        obey(json.loads(line), disk, clock)
        answer("ok")
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    answer("ready")
    line = sys.stdin.readline()
    if not line:
        return 0  # a spare that was not needed
    disk, clock = FaultyDisk(), MovedClock()
    logging.basicConfig(level=logging.WARNING)
    settings = BrokerSettings(**json.loads(line))
    threading.Thread(target=follow, args=(disk, clock), daemon=True).start()
    process = BrokerProcess(
        settings, lambda address: answer(f"listening on {address}"), {"fs": disk, "clock": clock}
    )
    return process.run()


if __name__ == "__main__":
    sys.exit(main())
