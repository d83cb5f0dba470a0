"""The store as this process sees it: opened lazily, read-only, or connected to, once per process and target.

Spark's Python workers fork, and readers travel pickled: nothing here is held by a reader. A store that was
opened before a fork is the parent's, so the key has the process id in it. A store whose directory was removed, or
removed and made anew, is opened again: a session outlives the stores that it reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Final, Protocol

import logstore
from logstore import LogStore, OffsetAndMetadata, TopicPartition
from logstore.api.backend import Backend
from logstore.api.records import FetchRequest, FetchResult
from logstore.api.topics import TopicMetadata
from logstore.errors import (
    StoreNotFoundError,
    StoreReplacedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.types import Isolation
from spark_connector.settings.options import Selection
from spark_connector.settings.positions import Place
from spark_connector.settings.target import Target


class Store(Protocol):
    """What an open store and a connection to brokers have in common here."""

    @property
    def backend(self) -> Backend: ...
    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...
    def close(self) -> None: ...


_MOST_STORES: Final = 16
_stores: dict[tuple[int, str], LogStore] = {}
_clients: dict[tuple[int, Target], Store] = {}


def store_at(path: str) -> LogStore:
    """The store in the directory, read-only. The least recently used of many is closed."""
    pid, root = os.getpid(), os.path.realpath(path)
    store = _stores.pop((pid, root), None)
    if store is not None and not is_there(store):
        store.close()
        store = None
    if store is None:
        for key in [key for key in _stores if key[0] != pid]:
            del _stores[key]  # the parent's: not ours to close
        while len(_stores) >= _MOST_STORES:
            _stores.pop(next(iter(_stores))).close()
        store = logstore.open(root, mode="r")
    _stores[pid, root] = store
    return store


def is_there(store: LogStore) -> bool:
    """Whether the directory holds, at this moment, the store that was opened there."""
    try:
        _ = store.store_id  # looks at the directory each time; `metadata_version` at most each 10 ms
    except (StoreNotFoundError, StoreReplacedError):
        return False
    return True


def client_of(target: Target) -> Store:
    """The store, by the verbs that stores and connections share. Errors of opening or of connecting."""
    if target.path:
        return store_at(target.path)
    pid = os.getpid()
    client = _clients.pop((pid, target), None)
    if client is None:
        for key in [key for key in _clients if key[0] != pid]:
            del _clients[key]  # the parent's
        while len(_clients) >= _MOST_STORES:
            _clients.pop(next(iter(_clients))).close()
        settings = dict(target.settings) | ({"config": target.config} if target.config else {})
        client = logstore.connect(target.brokers, client_id="logstore-spark", **settings)
    _clients[pid, target] = client
    return client


def forget_stores() -> None:
    """Close what this process has open (tests, and benches that remove directories)."""
    pid = os.getpid()
    for key in [key for key in _stores if key[0] == pid]:
        _stores.pop(key).close()
    for place in [place for place in _clients if place[0] == pid]:
        _clients.pop(place).close()


class Logs:
    """What reading needs of a store, by ``Backend`` alone. Picklable."""

    def __init__(self, target: Target, isolation: Isolation) -> None:
        self.target = target
        self.isolation: Isolation = isolation

    @property
    def backend(self) -> Backend:
        return client_of(self.target).backend

    def topics(self, selection: Selection) -> dict[str, TopicMetadata]:
        """The topics that are read. ``UnknownTopicError`` for one that was named and is not there."""
        known = self.backend.topics()
        if selection.pattern:
            pattern = re.compile(selection.pattern)
            return {n: t for n, t in known.items() if not t.internal and pattern.fullmatch(n)}
        named = selection.topics or sorted({place.topic for place in selection.assigned})
        for name in named:
            if name not in known:
                raise UnknownTopicError(f"topic {name!r} is not in the store at {self.target}")
        return {name: known[name] for name in named}

    def places(self, selection: Selection, topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
        """The partitions that are read, in order. ``UnknownPartitionError``."""
        for place in selection.assigned:
            if place.topic in topics and place.partition >= topics[place.topic].partitions:
                raise UnknownPartitionError(
                    f"assign: topic {place.topic!r} has partitions 0 to {topics[place.topic].partitions - 1}, "
                    f"not {place.partition}",
                    hint="correct option assign",
                )
        if selection.assigned:
            return [place for place in selection.assigned if place.topic in topics]
        return [TopicPartition(n, number) for n in sorted(topics) for number in range(topics[n].partitions)]

    def earliest(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        listed = self.backend.list_offsets(places, "earliest", self.isolation)
        return {place: at.offset or 0 for place, at in listed.items()}

    def latest(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        """Where what may be read now ends."""
        listed = self.backend.list_offsets(places, "latest", self.isolation)
        return {place: Place(at.offset or 0, at.leader_epoch) for place, at in listed.items()}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at least that new, by partition."""
        found: dict[TopicPartition, int | None] = {}
        for timestamp_ms in set(times_ms.values()):
            places = [place for place, asked in times_ms.items() if asked == timestamp_ms]
            listed = self.backend.list_offsets(places, timestamp_ms, self.isolation)
            found.update({place: at.offset for place, at in listed.items()})
        return found

    def fetch(
        self, place: TopicPartition, at: Place, max_bytes: int, backend: Backend | None = None
    ) -> FetchResult:
        """Whole batches from the position on. Errors of the partition are in the result. ``backend``: ``self.backend``
        for one fetch after the other, so that whether its directory is still there is not looked at each time."""
        request = FetchRequest(place.topic, place.partition, at.offset, at.epoch, max_bytes)
        (result,) = (backend or self.backend).fetch(
            [request], isolation=self.isolation, min_bytes=0, max_bytes=max_bytes, max_wait_s=0.0
        )
        return result
