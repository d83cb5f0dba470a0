"""The asyncio twins have the names and arguments of the synchronous classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.aio.calls import InThread
from logstore.client.partition_client import PartitionClient
from logstore.client.producer.transaction import Transaction
from logstore.client.store_client import StoreClient
from logstore.client.topic_client import TopicClient

# What a twin leaves out: what is for another world, or has no wait in it.
LEFT_OUT: dict[type, set[str]] = {
    logstore.Admin: set(),
    # For those that make batches or hold the loop's thread themselves.
    logstore.Producer: {"send_now", "refuse_in_child"},
    logstore.Consumer: {"take_back", "close_with_store", "consumed_offsets"},
    logstore.KeyTable: {"closing"},
    Transaction: {"check_open"},
    StoreClient: {"backend"},
    PartitionClient: set(),
    TopicClient: set(),
}
# Arguments that are a twin here: a consumer.
TWINS = [
    (logstore.Admin, aio.AsyncAdmin),
    (logstore.Producer, aio.AsyncProducer),
    (logstore.Consumer, aio.AsyncConsumer),
    (logstore.KeyTable, aio.AsyncTable),
    (Transaction, aio.AsyncTransaction),
    (StoreClient, aio.AsyncStore),
    (PartitionClient, aio.AsyncPartition),
    (TopicClient, aio.AsyncTopic),
]


def public(kind: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def arguments(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()][1:]


@pytest.mark.parametrize(("kind", "twin"), TWINS)
def test_the_twin_has_every_name_with_its_arguments(kind: type, twin: type) -> None:
    theirs = public(twin)
    compared = 0
    for name, member in public(kind).items():
        if name in LEFT_OUT[kind]:
            continue
        assert name in theirs, f"{twin.__name__} lacks {name}"
        other = theirs[name]
        if isinstance(member, property) or not callable(member):
            continue
        if isinstance(other, InThread):
            assert other.method is member or other.method is getattr(kind, name), name
        else:
            assert arguments(other) == arguments(getattr(kind, name)), name
        compared += 1
    assert compared >= 3


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    for kind, names in LEFT_OUT.items():
        instance_names = {"closing", "consumed_offsets"}
        assert names - instance_names <= set(dir(kind))
