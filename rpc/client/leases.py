"""``LeaseKeeper``: keeps what a client holds at one broker alive, with one call at a time for all of it;
``LeaseKeepers``: one for each broker where something is held."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from logstore.errors import ClientClosedError, LogStoreError
from rpc.client.channel.connection import Connection
from rpc.errors import AuthenticationError
from rpc.framing import parse
from rpc.pb import cluster_pb2 as pb
from rpc.wire.errors import from_wire

_WAIT_S: Final = 5.0
_PAUSE_S: Final = 0.2
_ABANDON_S: Final = 1.0


class LeaseKeeper:
    """Thread-safe. Its thread runs while there are leases."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._leases: dict[str, LogStoreError | None] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def add(self, lease_id: str) -> None:
        with self._lock:
            self._leases[lease_id] = None
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="logstore-leases", daemon=True)
                self._thread.start()

    def ended_by(self, lease_id: str) -> LogStoreError | None:
        """Why the lease is over, as far as the broker has said; None: it is not."""
        return self._leases.get(lease_id)

    def release(self, lease_id: str) -> None:
        """Give it up. Errors of the connection: the broker gives it up by itself later."""
        with self._lock:
            known = self._leases.pop(lease_id, self)
        if known is self:
            return
        request = pb.ReleaseLeasesRequest(lease_ids=[lease_id])
        self._connection.call("LeaseService/ReleaseLeases", request, pb.ReleaseLeasesResponse)

    def forget(self, lease_id: str) -> None:
        """It was given up in another way."""
        with self._lock:
            self._leases.pop(lease_id, None)

    def abandon(self, lease_id: str) -> None:
        """It goes on elsewhere, and must not stand in the way if it comes back here. One try: a broker that does not
        answer gives it up by itself later."""
        self.forget(lease_id)
        request = pb.ReleaseLeasesRequest(lease_ids=[lease_id]).SerializeToString()
        with suppress(LogStoreError):
            self._connection.send("LeaseService/ReleaseLeases", request, _ABANDON_S)

    def _run(self) -> None:
        while not self._closing.is_set():
            with self._lock:
                alive = [lease_id for lease_id, reason in self._leases.items() if reason is None]
                if not alive:
                    self._thread = None
                    return
            request = pb.KeepLeasesRequest(lease_ids=alive, max_wait_ms=int(_WAIT_S * 1000))
            try:
                data = self._connection.send(
                    "LeaseService/KeepLeases", request.SerializeToString(), _WAIT_S + 10
                )
            except ClientClosedError:
                return
            except AuthenticationError as error:
                self._end(alive, error)
                continue
            except LogStoreError:
                self._closing.wait(_PAUSE_S)  # the next try may be in time; calls tell of the failure
                continue
            with self._lock:
                for ended in parse(data, pb.KeepLeasesResponse).ended:
                    if ended.lease_id in self._leases:
                        self._leases[ended.lease_id] = from_wire(ended.reason)

    def _end(self, lease_ids: list[str], reason: LogStoreError) -> None:
        """They cannot be kept any more."""
        with self._lock:
            for lease_id in lease_ids:
                if lease_id in self._leases:
                    self._leases[lease_id] = reason

    def close(self) -> None:
        self._closing.set()


class LeaseKeepers:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keepers: dict[Connection, LeaseKeeper] = {}

    def at(self, connection: Connection) -> LeaseKeeper:
        """Of what is held there."""
        with self._lock:
            found = self._keepers.get(connection)
            if found is None:
                found = self._keepers[connection] = LeaseKeeper(connection)
            return found

    def close(self) -> None:
        with self._lock:
            keepers = list(self._keepers.values())
        for one in keepers:
            one.close()
