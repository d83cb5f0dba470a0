"""The logs of a Kafka broker's directory, as readers of topics want them."""

from __future__ import annotations

from logstore.kafka_directory.broker_log import BrokerLog
from logstore.partition.context import StoreContext


def broker_log(context: StoreContext, topic: str, partition: int) -> BrokerLog | None:
    """The partition's log if the store is a broker's directory; None if it is our own."""
    broker = context.broker
    if broker is None:
        return None
    return BrokerLog(
        where=f"{topic}-{partition}",
        folder=lambda: broker.folder(topic, partition),
        pool=context.pool,
        state=lambda: broker.state(topic, partition),
        is_remote=lambda: broker.is_remote(topic),
        not_here=lambda: broker.not_here(topic, partition),
    )
