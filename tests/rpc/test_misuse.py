"""The client API in hostile hands: a connection refuses what the embedded store refuses, by the same errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import logstore
from logstore.errors import LogStoreError
from rpc.client.store import RemoteStore
from tests.rpc.served import Served
from tests.test_misuse import CALLS, ODD, PLACE, asked, consumed, produced

_NOT_OF_A_CLIENT = (
    "append",
    "batch",
    "marker",
    "read",
    "fetch",
    "records",
    "to_arrow",
    "offset_for_timestamp",
)
_EMBEDDED_ONLY = ("release", "partition topic", "partition number", "topic", "append_batch")
"""What a connection has no method for."""

Both = tuple[logstore.LogStore, RemoteStore]

OF_BOTH: dict[str, Callable[[Any, Any], object]] = {
    name: call
    for name, call in CALLS.items()
    if name not in _EMBEDDED_ONLY and name.split()[0] not in _NOT_OF_A_CLIENT
} | {
    "transactional id": lambda store, odd: store.producer(transactional_id=odd).close(),
    "abort transaction": lambda store, odd: store.admin.abort_transaction(odd),
    "arrow isolation": lambda store, odd: store.to_arrow("t", isolation=odd),
    "arrow partition": lambda store, odd: store.to_arrow("t", partitions=[odd]),
    "table topic": lambda store, odd: store.table(odd).close(),
    "table isolation": lambda store, odd: store.table("c", isolation=odd).close(),
    "hanging topics": lambda store, odd: store.admin.find_hanging(odd),
    "last_sequence": lambda store, odd: _last_sequence(store, odd),
    "transaction timeout": lambda store, odd: produced(
        store, transactional_id="x", transaction_timeout_ms=odd
    ),
    "fetch bytes of a partition": lambda store, odd: consumed(store, max_partition_fetch_bytes=odd),
    "commit by a member": lambda store, odd: asked(store, lambda consumer: consumer.commit({PLACE: odd})),
    **{
        f"member {name}": lambda store, odd, name=name: consumed(store, group="h", **{name: odd})  # type: ignore[misc]
        for name in ("instance_id", "session_timeout_ms", "max_poll_interval_ms", "assignor")
    },
}


def _last_sequence(store: Any, odd: Any) -> object:
    with store.producer(name="odd") as producer:
        return producer.last_sequence(odd, 0)


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """An embedded store and a connection to another one, alike."""
    with logstore.open(":memory:") as store, Served(":memory:") as served, served.connect() as client:
        for one in (store, client):
            one.create_topic("t", partitions=2)
            one.create_topic("c", config={"cleanup.policy": "compact,delete"})
            with one.producer() as producer:
                for topic in ("t", "c"):
                    producer.send_many(topic, [(b"k", b"v")] * 3, partition=0).result()
        yield store, client


def _outcome(call: Callable[[], object]) -> str:
    """The name of the error; any that is not the store's own is raised."""
    try:
        call()
    except LogStoreError as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize("name", OF_BOTH)
def test_a_connection_refuses_as_a_store_does(both: Both, name: str) -> None:
    store, client = both
    for odd in ODD:
        wanted = _outcome(lambda odd=odd: OF_BOTH[name](store, odd))  # type: ignore[misc]
        found = _outcome(lambda odd=odd: OF_BOTH[name](client, odd))  # type: ignore[misc]
        if name == "create_topic partitions" and found == "InvalidPartitionsError":
            continue  # both are wrong, the name and the number: either may be told first
        assert found == wanted, odd
