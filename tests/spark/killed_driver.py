"""A driver that dies at a point of its choice while it commits: ``python -m tests.spark.killed_driver ROOT POINT``.

It commits the batch 0 of one file that is staged already; the receipt comes on stdin. Points: "open" (records are
appended, nothing is decided), "decided" (the commit is, no marker is written), "marked" (all is done, Spark does
not know).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from logstore.client.producer.transaction import TransactionControl
from logstore.coordination.transaction_manager import TransactionManager
from spark_connector.settings.sink_options import parse_sink
from spark_connector.writing.batch_marks import Content
from spark_connector.writing.sink_commit import SinkCommit
from spark_connector.writing.staging import Receipt, Staging

POINTS = ("open", "decided", "marked")
DEAD = 77


def die(*_: Any, **__: Any) -> None:
    os._exit(DEAD)


def main(root: str, point: str, query: str) -> None:
    name, size, crc, topics, content = json.load(sys.stdin)
    if point == "open":
        deliver = TransactionControl._deliver

        def delivered(control: TransactionControl) -> None:
            deliver(control)
            die()

        TransactionControl._deliver = delivered  # type: ignore[method-assign]
    elif point == "decided":
        TransactionManager.finish = die  # type: ignore[method-assign]
    receipt = Receipt(name, size, crc, tuple(topics), Content(*content))
    options = parse_sink({"path": root, "topic": "out"}).options
    SinkCommit(options, Staging(root)).once(query, 0, [receipt])
    if point == "marked":
        die()


if __name__ == "__main__":
    main(*sys.argv[1:])
