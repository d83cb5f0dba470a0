"""A task or a driver at brokers that dies at a point of its choice:
``python -m tests.spark.killed_broker_driver BROKERS POINT``, with a pickled list of what tasks gave on stdin.

Points: "task" (rows are sent, not prepared), "open" (the driver's offset is sent, nothing is decided), "marked" (all is
done, Spark does not know).
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from logstore.client.producer.transaction import TransactionControl
from spark_connector.settings.sink_options import parse_sink
from spark_connector.writing.prepared_sink import PreparedSink, Task, query_coordinator
from tests.spark.writing.sink_worlds import OUT, QUERY, rows

POINTS = ("open", "marked")
DEAD = 77


def die(*_: Any, **__: Any) -> None:
    os._exit(DEAD)


def main(brokers: str, point: str) -> None:
    sink = PreparedSink(parse_sink({"bootstrap.servers": brokers, "topic": OUT}).options)
    if point in ("open", "task"):
        deliver = TransactionControl._deliver

        def delivered(control: TransactionControl) -> None:
            deliver(control)
            die()

        TransactionControl._deliver = delivered  # type: ignore[method-assign]
    if point == "task":
        sink.write([rows("half")], Task(QUERY, query_coordinator(QUERY), 7, 0))
    else:
        sink.once(QUERY, 0, pickle.load(sys.stdin.buffer))
    die()


if __name__ == "__main__":
    main(*sys.argv[1:])
