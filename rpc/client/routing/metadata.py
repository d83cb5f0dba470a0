"""``Metadata``: what a client knows of topics; a thread waits for the broker to say that something has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from logstore.api.topics import TopicMetadata
from logstore.arguments import shown
from logstore.errors import ClientClosedError, LogStoreError, UnknownTopicError
from rpc.client.channel.connection import Connection
from rpc.client.routing.brokers import Brokers
from rpc.client.routing.role import Role
from rpc.errors import BrokerTimeoutError, BrokerUnavailableError
from rpc.framing import parse
from rpc.pb import topics_pb2 as pb
from rpc.wire.values import read

_WAIT_S: Final = 20.0
_PAUSE_S: Final = 0.5
_ASK_S: Final = 3.0
"""How long one broker of several may take to answer."""
_HEARD_S: Final = 2.0
"""How long a broker may take to hear of a change of topics."""
_ELSEWHERE_S: Final = 0.05
"""Until another broker is asked to tell of changes, where one is away."""


class Metadata:
    """Thread-safe. Any broker is asked; of what several have said about a partition's leader the newest counts."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._anyone = Role(brokers, try_s=_ASK_S)
        self._told_by: Connection | None = None
        self._lock = threading.Lock()
        self._topics: Mapping[str, TopicMetadata] | None = None
        self._version = -1
        self._revision = 0
        self._watch: threading.Thread | None = None
        self._closing = threading.Event()

    def topic(self, name: str) -> TopicMetadata:
        """UnknownTopicError once the broker has said so."""
        if not isinstance(name, str):
            raise UnknownTopicError(f"there is no topic {shown(name)}")
        known = self._topics
        found = None if known is None else known.get(name)
        if found is None:
            found = self.refresh().get(name)
        if found is None:
            raise UnknownTopicError(f"there is no topic {name!r} at {self._brokers.target}")
        return found

    def revision(self) -> int:
        """Goes up whenever ``topics`` may answer differently."""
        watch = self._watch
        if (
            watch is None or not watch.is_alive()
        ):  # also in a forked child, where no thread of its parent lives
            self.refresh()
        return self._revision

    def refresh(self) -> Mapping[str, TopicMetadata]:
        """Ask now."""
        answer = self._anyone.call(
            "TopicService/GetMetadata", pb.GetMetadataRequest(), pb.GetMetadataResponse
        )
        topics = self._take(answer, None)
        self._begin_watch()
        return topics

    def refresh_until(self, met: Callable[[Mapping[str, TopicMetadata]], bool]) -> None:
        """What was changed at one broker is asked of another, which hears of it a moment later. Ends after a while also
        where it is not met: another client may have changed it again."""
        until_s = time.monotonic() + _HEARD_S
        while not met(self.refresh()) and self._anyone.moves and time.monotonic() < until_s:
            if self._closing.wait(_ELSEWHERE_S):
                return

    def refresh_now(self) -> None:
        """One try. What cannot be asked stays as it is."""
        connection = self._anyone.connection()
        try:
            data = connection.send("TopicService/GetMetadata", b"", _ASK_S)
        except ClientClosedError:
            raise
        except LogStoreError as error:
            self._anyone.note(connection, error)
            return
        self._take(parse(data, pb.GetMetadataResponse), connection)

    def _begin_watch(self) -> None:
        with self._lock:
            if self._watch is None or not self._watch.is_alive():
                self._watch = threading.Thread(target=self._run, name="logstore-metadata", daemon=True)
                self._watch.start()

    def _take(
        self, answer: pb.GetMetadataResponse, told_by: Connection | None
    ) -> Mapping[str, TopicMetadata]:
        """``told_by``: whose version it is; None: not known, so that the watch begins anew."""
        topics = {one.name: read(one, TopicMetadata) for one in answer.topics}
        only = self._brokers.only
        if only is not None:
            told_by = only
            if any(topic.leaders for topic in topics.values()):
                self._brokers.look()  # a node that did not know the others when it was greeted
        with self._lock:
            if self._topics is not None and only is None:
                topics = {name: _newest(self._topics.get(name), topic) for name, topic in topics.items()}
            if topics != self._topics:
                self._topics = topics
                self._revision += 1
            self._version, self._told_by = answer.version, told_by
            return topics

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._watch_once()
            except ClientClosedError:
                return
            except LogStoreError as error:
                # What is known is used meanwhile; calls tell of the failure. Another broker is asked at once.
                lost = isinstance(error, BrokerUnavailableError | BrokerTimeoutError)
                self._closing.wait(_ELSEWHERE_S if lost and self._anyone.moves else _PAUSE_S)

    def _watch_once(self) -> None:
        connection = self._anyone.connection()
        with self._lock:
            known = self._version if self._told_by is connection else -1
        request = pb.WatchMetadataRequest(known_version=known, max_wait_ms=int(_WAIT_S * 1000))
        try:
            data = connection.send("TopicService/WatchMetadata", request.SerializeToString(), _WAIT_S + 10)
        except LogStoreError as error:
            self._anyone.note(connection, error)
            raise
        self._take(parse(data, pb.GetMetadataResponse), connection)

    def close(self) -> None:
        self._closing.set()
        self._anyone.close()


def _newest(known: TopicMetadata | None, said: TopicMetadata) -> TopicMetadata:
    """What a broker says of a topic, with the leaders of newer terms that another one has told before."""
    if known is None or known.topic_id != said.topic_id or known.leader_epochs == said.leader_epochs:
        return said
    leaders, epochs = list(said.leaders), list(said.leader_epochs)
    for partition, (leader, epoch) in enumerate(zip(known.leaders, known.leader_epochs, strict=False)):
        if partition < len(epochs) and epoch > epochs[partition]:
            leaders[partition], epochs[partition] = leader, epoch
    return replace(said, leaders=tuple(leaders), leader_epochs=tuple(epochs))
