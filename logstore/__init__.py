"""A partitioned, append-only log: embed it like SQLite.

import logstore

with logstore.open("data") as store:
    store.create_topic("flights", partitions=3)
    with store.producer() as producer:
        producer.send("flights", b"value", key=b"key").result(timeout_s=5)
    with store.consumer("flights", group="g", until_end=True) as consumer:
        for record in consumer:
            print(record.key, record.value)
        consumer.commit()
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points, version
from typing import Any

from logstore.client.admin import Admin
from logstore.client.consumer import Consumer
from logstore.client.delivery import Delivery, DeliveryGroup
from logstore.client.producer import Producer
from logstore.errors import (
    BackendNotInstalledError,
    FatalError,
    LogStoreError,
    RetriableError,
)
from logstore.log.partition_log import PartitionLog
from logstore.store import LogStore, Mode
from logstore.topic_handle import TopicHandle
from logstore.types import (
    OffsetAndMetadata,
    OffsetRange,
    Record,
    RecordMetadata,
    TopicPartition,
)

__version__ = version("logstore")


def open(path: str | os.PathLike[str], mode: Mode = "rw", **settings: Any) -> LogStore:  # noqa: A001
    """Open the log store in a directory, making it if ``mode="rw"`` and it is not there.

    ``path``: the directory, or ``":memory:"``. ``mode="r"``: read-only, takes no lock. Settings and errors:
    see ``LogStore``.
    """
    return LogStore(path, mode, **settings)


def connect(target: str, **settings: Any) -> Any:
    """A client of brokers at ``"host:port[,host:port...]"``, with a store's verbs.

    The backend comes from the entry points ``logstore.backends`` (the package ``rpc`` adds "grpc").
    ``BackendNotInstalledError`` when there is none.
    """
    for point in entry_points(group="logstore.backends", name="grpc"):
        return point.load()(target, **settings)
    raise BackendNotInstalledError(
        f"cannot connect to {target}: this installation has no backend for brokers",
        hint="brokers come with a later version; logstore.open(DIRECTORY) works without one",
    )


__all__ = [
    "open",
    "connect",
    "LogStore",
    "TopicHandle",
    "PartitionLog",
    "Producer",
    "Consumer",
    "Admin",
    "Delivery",
    "DeliveryGroup",
    "Record",
    "RecordMetadata",
    "OffsetRange",
    "OffsetAndMetadata",
    "TopicPartition",
    "LogStoreError",
    "RetriableError",
    "FatalError",
    "__version__",
]
