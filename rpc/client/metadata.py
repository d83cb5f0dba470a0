"""``Metadata``: what a client knows of topics; a thread waits for the broker to say that something has changed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from logstore.api.topics import TopicMetadata
from logstore.errors import ClientClosedError, LogStoreError, UnknownTopicError
from rpc.client.connection import Connection
from rpc.framing import parse
from rpc.pb import topics_pb2 as pb
from rpc.wire.values import read

_WAIT_S: Final = 20.0
_PAUSE_S: Final = 0.5


class Metadata:
    """Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._topics: Mapping[str, TopicMetadata] | None = None
        self._version = -1
        self._revision = 0
        self._watch: threading.Thread | None = None
        self._closing = threading.Event()

    def topics(self) -> Mapping[str, TopicMetadata]:
        found = self._topics
        return self.refresh() if found is None else found

    def topic(self, name: str) -> TopicMetadata:
        """UnknownTopicError once the broker has said so."""
        found = self.topics().get(name) if isinstance(name, str) else None
        if found is None:
            found = self.refresh().get(name)
        if found is None:
            raise UnknownTopicError(f"there is no topic {name!r} at {self._connection.target}")
        return found

    def revision(self) -> int:
        """Goes up whenever ``topics`` may answer differently."""
        if self._topics is None:
            self.refresh()
        return self._revision

    def refresh(self) -> Mapping[str, TopicMetadata]:
        """Ask now."""
        answer = self._connection.call(
            "TopicService/GetMetadata", pb.GetMetadataRequest(), pb.GetMetadataResponse
        )
        topics = self._take(answer)
        with self._lock:
            if self._watch is None or not self._watch.is_alive():
                self._watch = threading.Thread(target=self._run, name="logstore-metadata", daemon=True)
                self._watch.start()
        return topics

    def _take(self, answer: pb.GetMetadataResponse) -> Mapping[str, TopicMetadata]:
        topics = {one.name: read(one, TopicMetadata) for one in answer.topics}
        with self._lock:
            if topics != self._topics:
                self._topics = topics
                self._revision += 1
            self._version = answer.version
            return topics

    def _run(self) -> None:
        while not self._closing.is_set():
            request = pb.WatchMetadataRequest(known_version=self._version, max_wait_ms=int(_WAIT_S * 1000))
            try:
                data = self._connection.send(
                    "TopicService/WatchMetadata", request.SerializeToString(), _WAIT_S + 10
                )
                self._take(parse(data, pb.GetMetadataResponse))
            except ClientClosedError:
                return
            except LogStoreError:
                self._closing.wait(_PAUSE_S)  # what is known is used meanwhile; calls tell of the failure

    def close(self) -> None:
        self._closing.set()
