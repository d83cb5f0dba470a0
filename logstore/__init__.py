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

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.api.transactions import PreparedTransaction
    from logstore.client.admin import Admin
    from logstore.client.arrow_encoder import ArrowEncoder
    from logstore.client.consumer.consumer import Consumer
    from logstore.client.consumer.dead_letters import DeadLetters
    from logstore.client.producer.delivery import Delivery, DeliveryGroup
    from logstore.client.producer.producer import Producer
    from logstore.client.table.table import KeyTable
    from logstore.directory.backup import BackupReport
    from logstore.embedded.topic_handle import TopicHandle
    from logstore.errors import FatalError, LogStoreError, RetriableError
    from logstore.format.arrow_rows import ArrowRows
    from logstore.native.status import native_status
    from logstore.partition.partition_log import PartitionLog
    from logstore.store import LogStore, restore
    from logstore.store import Mode as Mode
    from logstore.types import OffsetAndMetadata, OffsetRange, Record, RecordMetadata, TopicPartition

    __version__: str

# The public names and where they are. Imported at first use: a command that shows its help, or a program that
# only needs a type, does not wait for the engine.
_PLACES = {
    "Admin": "client.admin",
    "ArrowEncoder": "client.arrow_encoder",
    "ArrowRows": "format.arrow_rows",
    "BackendNotInstalledError": "errors",
    "Consumer": "client.consumer.consumer",
    "DeadLetters": "client.consumer.dead_letters",
    "Delivery": "client.producer.delivery",
    "DeliveryGroup": "client.producer.delivery",
    "FatalError": "errors",
    "KeyTable": "client.table.table",
    "LogStore": "store",
    "LogStoreError": "errors",
    "Mode": "store",
    "OffsetAndMetadata": "types",
    "OffsetRange": "types",
    "PartitionLog": "partition.partition_log",
    "PreparedTransaction": "api.transactions",
    "Producer": "client.producer.producer",
    "Record": "types",
    "RecordMetadata": "types",
    "RetriableError": "errors",
    "BackupReport": "directory.backup",
    "TopicHandle": "embedded.topic_handle",
    "TopicPartition": "types",
    "native_status": "native.status",
    "restore": "store",
}
_MODULES = (
    "config",
    "errors",
    "store",
    "types",
)  # reached as logstore.errors and so on after "import logstore"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("logstore-engine")
    elif name in _MODULES:
        return importlib.import_module(f"logstore.{name}")
    elif name in _PLACES:
        found = getattr(importlib.import_module(f"logstore.{_PLACES[name]}"), name)
    else:
        raise AttributeError(f"module 'logstore' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    # For type checkers `open` is the class: a call with a wrong keyword then keeps its type, and what follows it is
    # still checked.
    open = LogStore  # noqa: A001
else:

    def open(path, mode="rw", **settings):  # noqa: A001
        """Open the log store in a directory, making it if ``mode="rw"`` and it is not there.

        ``path``: the directory, or ``":memory:"``. ``mode="r"``: read-only, takes no lock. Settings and errors:
        see ``LogStore``.
        """
        from logstore.arguments import refuse_unknown
        from logstore.directory.layout import refuse_node_directory
        from logstore.seams.fs import OsFileSystem
        from logstore.store import MEMORY, LogStore, directories

        refuse_unknown(settings, LogStore.__init__.__kwdefaults__, "open()")
        root, *_ = directories(path, mode)
        if mode == "rw" and root != MEMORY:
            refuse_node_directory(settings.get("fs") or OsFileSystem(), root)
        return LogStore(path, mode, **settings)


def connect(target: str, **settings: Any) -> Any:
    """A client of brokers at ``"host:port[,host:port...]"``, with a store's verbs.

    Settings: ``tls_ca=``, ``token_file=``, ``user=`` and ``password_file=`` among them; all are in
    ``rpc.client.channel.settings``, and ``config=`` names a TOML file of them. The backend comes from the entry points
    ``logstore.backends`` (the package ``rpc`` adds "grpc").
    ``BackendNotInstalledError`` when there is none.
    """
    from importlib.metadata import entry_points

    from logstore.errors import BackendNotInstalledError

    lacking = "this installation has no backend for brokers"
    for point in entry_points(group="logstore.backends", name="grpc"):
        try:
            made = point.load()
        except ModuleNotFoundError as error:
            lacking = f"module {error.name} is not installed"
            continue
        return made(target, **settings)
    raise BackendNotInstalledError(
        f"cannot connect to {target}: {lacking}", hint="pip install 'logstore-engine[grpc]'"
    )


__all__ = [
    "open",
    "connect",
    "restore",
    "LogStore",
    "BackupReport",
    "TopicHandle",
    "PartitionLog",
    "Producer",
    "PreparedTransaction",
    "Consumer",
    "Admin",
    "KeyTable",
    "ArrowEncoder",
    "ArrowRows",
    "DeadLetters",
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
    "native_status",
    "__version__",
]
