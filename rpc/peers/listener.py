"""``PeerListener``: where peers connect: their streams of messages, and their calls.

A server of its own with threads of its own, one for each peer's stream and a bounded number for calls: what a broker
does for its clients in its event loop and what it does for its peers do not wait for each other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from logstore.errors import InvariantError, LogStoreError
from replication.raft.types import NodeId
from replication.transport import CallHandler, Deliver
from rpc.addresses import address_of
from rpc.errors import BrokerBusyError, BrokerConfigError, MalformedRequestError, UnknownOperationError
from rpc.framing import join, split
from rpc.pb import peers_pb2 as pb
from rpc.peers.frames import FrameDecoder
from rpc.peers.handshake import Hello, Identity, hello_of, refuse
from rpc.peers.settings import PeerSettings
from rpc.peers.tls import PeerTls

logger = logging.getLogger(__name__)

_SERVICE: Final = "logstore.v1.PeerService"
_HEADROOM: Final = 1 << 16
_LAST_CALLS_S: Final = 0.5  # calls at work when a broker stops: what takes longer is told to be unavailable
_STREAM_THREADS: Final = 32  # streams of peers, older ones that are about to end among them


class PeerListener:
    """``deliver``: told of messages in the thread of their stream; while it works, that peer's next ones wait at the
    peer. ``handlers``: by operation."""

    def __init__(
        self,
        settings: PeerSettings,
        identity: Identity,
        deliver: Deliver,
        handlers: Mapping[str, CallHandler],
        tls: PeerTls | None,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._deliver = deliver
        self._handlers = handlers
        self._tls = tls
        self._lock = threading.Lock()
        self._streams: dict[NodeId, tuple[Hello, Any]] = {}
        self._calls = threading.BoundedSemaphore(settings.peer_threads)
        self._refused: dict[str, None] = {}
        self._server: grpc.Server | None = None
        self.port = 0

    def start(self) -> int:
        """Listen; the port. BrokerConfigError where the address cannot be listened on, SecretFileError,
        TlsConfigError."""
        limit = self._settings.peer_message_bytes + _HEADROOM
        silence_ms = max(int(self._settings.peer_timeout_s * 500), 50)
        threads = self._settings.peer_threads + _STREAM_THREADS
        server = self._server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="peer-listener"),
            handlers=[grpc.method_handlers_generic_handler(_SERVICE, self._methods())],
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", silence_ms),
                ("grpc.keepalive_timeout_ms", silence_ms),
                ("grpc.http2.ping_timeout_ms", silence_ms),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 10),
                ("grpc.http2.max_ping_strikes", 0),
            ],
            maximum_concurrent_rpcs=threads,
        )
        address = address_of(*self._settings.peer_address)
        try:
            if self._tls is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, self._tls.server())
        except RuntimeError as error:
            raise BrokerConfigError(
                f"cannot listen for peers on {address}: {error}",
                hint="another process may use the port; see peers and peer_listen",
            ) from error
        server.start()
        return self.port

    def close(self) -> None:
        """End all streams and calls. Safe to call again."""
        server, self._server = self._server, None
        if server is None:
            return
        stopped = server.stop(_LAST_CALLS_S)
        with self._lock:
            streams = list(self._streams.values())
        for _, context in streams:
            context.cancel()
        stopped.wait()

    def recheck(self) -> None:
        """End the streams of peers that would be refused by now."""
        with self._lock:
            streams = list(self._streams.values())
        for hello, context in streams:
            try:
                self._identity.check(hello)
            except LogStoreError as error:
                self._say_refused(error)
                context.cancel()

    def _methods(self) -> dict[str, Any]:
        return {
            "Deliver": grpc.stream_unary_rpc_method_handler(self._take_stream),
            "Call": grpc.unary_unary_rpc_method_handler(self._take_call),
        }

    # --- a peer's messages ---

    def _take_stream(self, frames: Iterator[bytes], context: Any) -> bytes:
        hello = self._greet(context, messages=True)
        decoder = FrameDecoder(hello.node)
        with self._lock:
            older, self._streams[hello.node] = self._streams.get(hello.node), (hello, context)
        if older is not None:
            older[1].cancel()  # the node was started anew, or its connection was lost without a word
        try:
            for frame in frames:
                self._deliver(hello.node, decoder.decode(frame))
        except MalformedRequestError as error:
            logger.error("the stream of node %d is ended: %s", hello.node, error)
            refuse(context, error)
        except grpc.RpcError:
            logger.debug("the stream of node %d is over", hello.node)
        finally:
            with self._lock:
                newest, other = self._streams.get(hello.node, (hello, context))
                if other is context:
                    self._streams.pop(hello.node, None)
            if other is context or newest.incarnation != hello.incarnation:
                self._identity.left(hello)
        return pb.PeerFrameEnd().SerializeToString()

    def _greet(self, context: Any, *, messages: bool) -> Hello:
        """Who calls; it is told who answers, in the initial metadata. Others are refused by name."""
        try:
            hello = hello_of(context.invocation_metadata() or ())
            self._identity.check(hello, messages=messages)
        except LogStoreError as error:
            self._say_refused(error)
            refuse(context, error)
            raise
        context.send_initial_metadata(self._identity.hello_to(hello.node).metadata())
        return hello

    def _say_refused(self, error: LogStoreError) -> None:
        """Once each, as the other side tries again and again."""
        if str(error) not in self._refused and len(self._refused) < 1000:
            self._refused[str(error)] = None
            logger.warning("a peer is refused: %s", error)

    # --- a peer's calls ---

    def _take_call(self, data: bytes, context: Any) -> bytes:
        hello = self._greet(context, messages=False)
        try:
            answer = self._answer(hello.node, data)
        except LogStoreError as error:
            refuse(context, error)
            raise
        return join(pb.PeerAnswer(), (answer,), len(answer))

    def _answer(self, node: NodeId, data: bytes) -> bytes:
        call, request = split(data, pb.PeerCall)
        handler = self._handlers.get(call.operation)
        if handler is None:
            raise UnknownOperationError(
                f"node {self._identity.node_id} serves no operation {call.operation[:60]!r} to peers"
            )
        if not self._calls.acquire(blocking=False):
            raise BrokerBusyError(
                f"node {self._identity.node_id} answers {self._settings.peer_threads} calls of peers already",
                hint="raise peer_threads",
                retry_after_ms=50,
            )
        try:
            return answer_of(handler, node, call.operation, bytes(request))
        finally:
            self._calls.release()


def answer_of(handler: CallHandler, node: NodeId, operation: str, request: bytes) -> bytes:
    """The handler's answer, or its error; one that is no error of the store's is logged, and becomes
    InvariantError."""
    try:
        return handler(node, request)
    except LogStoreError:
        raise
    except Exception as error:
        logger.exception(
            "%s, called by node %d, failed with an error that is not the store's", operation, node
        )
        raise InvariantError(f"{operation} failed; the broker's log says how") from error
