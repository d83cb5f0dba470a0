"""``PeerLink``: this broker's side of the way to one peer: a channel, the stream on it, and calls.

A thread holds the connection and makes it anew; gRPC's thread that reads a stream's requests encodes what waits as
frames, which HTTP/2 takes as fast as the peer reads.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from logstore.errors import LogStoreError
from replication.errors import DuplicateBrokerError, PeerUnavailableError, StaleBrokerError
from replication.raft.types import NodeId
from replication.transport import GroupMessage
from rpc.addresses import address_of
from rpc.errors import MalformedRequestError
from rpc.framing import join, split
from rpc.pb import peers_pb2 as pb
from rpc.peers.frames import FrameEncoder, size_of
from rpc.peers.handshake import Identity, hello_of, refusal_of
from rpc.peers.outbox import Outbox
from rpc.peers.settings import PeerSettings
from rpc.peers.tls import PeerTls

logger = logging.getLogger(__name__)

DELIVER: Final = "/logstore.v1.PeerService/Deliver"
CALL: Final = "/logstore.v1.PeerService/Call"
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.05, 1.0
_CALLS_ONLY_S: Final = 0.5
_HEADROOM: Final = 1 << 16  # what a frame or a call has beside its messages


class PeerLink:
    """To ``node`` at ``address``, from ``start`` to ``close``. Thread-safe. ``fault``: why the node could not be
    reached last; "": it is connected, or was not tried yet. ``gone``: told once the peer does not take connections any
    more, by the thread that makes them."""

    def __init__(
        self,
        node: NodeId,
        address: tuple[str, int],
        identity: Identity,
        settings: PeerSettings,
        tls: PeerTls | None,
        gone: Callable[[NodeId], None],
    ) -> None:
        self.node = node
        self.given = address
        self.address = address_of(*address)
        self._identity = identity
        self._settings = settings
        self._tls = tls
        self._tell_gone = gone
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._channel: grpc.Channel | None = None
        self._call: Any = None
        self._outbox: Outbox | None = None
        self.fault = ""
        self._said = ""
        self._told_size = False
        self._thread = threading.Thread(target=self._run, name=f"peer-{node}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """Whether the peer has taken the stream."""
        return self._outbox is not None

    # --- from any thread ---

    def send(self, message: GroupMessage) -> None:
        """Dropped without a connection, and where the queue is full."""
        outbox = self._outbox
        if outbox is None:
            return
        size = size_of(message)
        if size > self._settings.peer_message_bytes:
            self._say_too_large(size)
            return
        outbox.put(message, size)

    def call(self, operation: str, request: bytes, timeout_s: float) -> bytes:
        """The answer. Errors of the peer by name; PeerUnavailableError."""
        channel = self._channel
        if channel is None:
            raise PeerUnavailableError(f"node {self.node} at {self.address} cannot be reached: {self.fault}")
        return self._ask(channel, operation, request, timeout_s)

    def ask_once(self, operation: str, request: bytes, timeout_s: float) -> bytes:
        """As ``call``, on a connection for it alone, of a link that is not started. Errors also those by which the node
        refuses this one."""
        channel = self._open_channel()
        try:
            return self._ask(channel, operation, request, timeout_s)
        finally:
            channel.close()

    def _ask(self, channel: grpc.Channel, operation: str, request: bytes, timeout_s: float) -> bytes:
        message = join(pb.PeerCall(operation=operation), (request,), len(request))
        ask: Any = channel.unary_unary(CALL)
        try:
            answer = ask(message, timeout=timeout_s, metadata=self._metadata())
        except grpc.RpcError as error:
            named = refusal_of(error)
            if isinstance(named, StaleBrokerError):
                # It is of this process: whoever asked it is told that the peer cannot be had by it.
                self._identity.refused(named)
                raise PeerUnavailableError(
                    f"node {self.node} does not listen to this process: {named}"
                ) from error
            if named is not None:
                raise named from error
            raise PeerUnavailableError(
                f"node {self.node} at {self.address} did not answer {operation}: {_words(error)}"
            ) from error
        except ValueError as error:  # "Cannot invoke RPC on closed channel!"
            raise PeerUnavailableError(f"the connection to node {self.node} was closed") from error
        return bytes(split(answer, pb.PeerAnswer)[1])

    def close(self) -> None:
        """What waits is dropped, calls under way fail. Safe to call again."""
        self._closed.set()
        with self._lock:
            call = self._call
        if call is not None:
            call.cancel()
        if self._thread.is_alive():
            self._thread.join()

    def reconnect(self) -> None:
        """Make the stream anew, and shake hands again."""
        with self._lock:
            call = self._call
        if call is not None:
            call.cancel()

    # --- the thread of the connection ---

    def _run(self) -> None:
        delay_s, was_up = _FIRST_DELAY_S, False
        while not self._closed.is_set():
            before = was_up
            try:
                was_up = self._connection()
            except LogStoreError as error:
                was_up = False
                self._say(str(error))
            if was_up:
                delay_s = _FIRST_DELAY_S
            elif before and not self._closed.is_set():
                self._tell_gone(self.node)
            # Of both brokers of a pair, and of all after a fault, none tries in step with the others.
            self._closed.wait(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(delay_s * 2, _LONGEST_DELAY_S)

    def _connection(self) -> bool:
        """One connection, from the attempt to its end; whether the peer took the stream. Errors: those by which the
        peer refuses, SecretFileError, TlsConfigError."""
        channel = self._open_channel()
        outbox = Outbox(self._settings.peer_queue_bytes)
        taken = threading.Event()
        try:
            ask: Any = channel.stream_unary(DELIVER)
            call = ask.future(self._frames(outbox, taken), metadata=self._metadata())
            with self._lock:
                self._channel, self._call = channel, call
            if self._closed.is_set():
                call.cancel()
            accepted = self._is_taken(call)
            if accepted:
                self._outbox = outbox
                taken.set()
                self.fault = self._said = ""
                logger.info("node %d at %s is connected", self.node, self.address)
            self._await_end(call)
            return accepted
        except DuplicateBrokerError as error:
            self._say(str(error), "duplicate")
            self._closed.wait(_CALLS_ONLY_S)  # by calls this process finds out which of the two is the broker
            return False
        finally:
            self._outbox = None
            with self._lock:
                self._channel = self._call = None
            outbox.close()
            taken.set()
            channel.close()

    def _is_taken(self, call: Any) -> bool:
        """Wait until the peer answers: whether it took the stream. UnknownPeerError, ClusterMismatchError,
        ContractMismatchError; MalformedRequestError: what answers is no broker of a cluster."""
        metadata = call.initial_metadata()
        if not metadata:
            return False
        self._identity.check(hello_of(metadata))
        return True

    def _await_end(self, call: Any) -> None:
        """Errors: those by whose name the peer ended the stream."""
        try:
            error = call.exception()
        except grpc.FutureCancelledError:
            return
        if self._closed.is_set():
            return
        if error is None:
            self._say("the peer ended the stream")
            return
        named = refusal_of(error)
        if named is not None:
            self._identity.refused(named)
            raise named
        self._say(_words(error), error.code().name)

    def _frames(self, outbox: Outbox, taken: threading.Event) -> Iterator[bytes]:
        taken.wait()
        encoder = FrameEncoder()
        while messages := outbox.take(self._settings.peer_frame_bytes):
            try:
                frame = encoder.encode(messages)
            except MalformedRequestError as error:
                logger.error("%d messages to node %d are not sent: %s", len(messages), self.node, error)
                continue
            yield frame

    def _open_channel(self) -> grpc.Channel:
        silence_ms = max(int(self._settings.peer_timeout_s * 500), 50)
        limit = self._settings.peer_message_bytes + _HEADROOM
        options: list[tuple[str, str | int]] = [
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", silence_ms),
            ("grpc.keepalive_timeout_ms", silence_ms),
            ("grpc.http2.ping_timeout_ms", silence_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", int(_FIRST_DELAY_S * 1000)),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", int(_LONGEST_DELAY_S * 1000)),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
        ]
        if self._tls is None:
            return grpc.insecure_channel(self.address, options)
        return self._tls.channel(self.address, options)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return self._identity.hello_to(self.node).metadata()

    def _say_too_large(self, size: int) -> None:
        if not self._told_size:
            self._told_size = True
            logger.error(
                "a message of %d bytes to node %d is larger than peer_message_bytes, and is not sent: raise it on all "
                "brokers",
                size,
                self.node,
            )

    def _say(self, words: str, kind: str = "") -> None:
        """Once until it is a fault of another ``kind``, or the peer was connected meanwhile."""
        self.fault = words
        if (kind or words) != self._said:
            self._said = kind or words
            logger.warning("node %d at %s is not connected: %s", self.node, self.address, words)


def _words(error: Any) -> str:
    return f"{error.code().name}: {error.details()}"
