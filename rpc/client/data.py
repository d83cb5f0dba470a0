"""``RemoteData``: the data plane at a broker."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from logstore.api.cancellation import CancelHandle
from logstore.api.groups import GroupMembership, JoinRequest, MemberIdentity, checked_offsets, validate_group
from logstore.api.producers import ProducerLease
from logstore.api.records import (
    FetchRequest,
    FetchResult,
    ListedOffset,
    OffsetSpec,
    ProduceItem,
    ProduceResult,
)
from logstore.api.topics import TopicMetadata
from logstore.api.transactions import TransactionLease
from logstore.types import Acks, Isolation, OffsetAndMetadata, PartitionDescription, TopicPartition
from rpc.client.arguments import bytes_at_most
from rpc.client.connection import Connection
from rpc.client.fetch_ahead import FetchSettings, RemoteFetchAhead, nothing
from rpc.client.leases import LeaseKeeper
from rpc.client.membership import RemoteMembership
from rpc.client.metadata import Metadata
from rpc.client.pipeline import GRACE_S, RemotePipeline, is_known, outcome_of
from rpc.client.producers import RemoteNamedLease, RemoteUnnamedLease
from rpc.client.transactions import RemoteTransactionLease
from rpc.errors import BrokerBusyError, BrokerTimeoutError, BrokerUnavailableError
from rpc.framing import parse
from rpc.pb import offsets_pb2, produce_pb2
from rpc.wire.enums import isolation_to_wire, set_spec
from rpc.wire.offsets import committed_from_wire, committed_to_wire
from rpc.wire.records import fetch_request, produce_request, read_fetch_response, read_produce_response
from rpc.wire.values import places, read

_REQUEST_BYTES: Final = 4 << 20
"""Of batches in one produce request: enough that a call's cost is small beside that of its bytes."""


class RemoteData:
    """A ``DataPlane``. Thread-safe."""

    def __init__(self, connection: Connection, features: Collection[str] = ()) -> None:
        """``features``: what the broker has said that it can do."""
        self._connection = connection
        self._features = frozenset(features)
        self._metadata = Metadata(connection)
        self._keeper = LeaseKeeper(connection)

    # --- metadata ---

    def topics(self) -> Mapping[str, TopicMetadata]:
        """What the broker knows now: other clients' topics, and internal ones that a commit made, among them."""
        return self._metadata.refresh()

    def topic(self, name: str) -> TopicMetadata:
        return self._metadata.topic(name)

    def metadata_version(self) -> int:
        return self._metadata.revision()

    # --- data ---

    def produce(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> list[ProduceResult]:
        """As ``DataPlane.produce``. Where the connection breaks before the answer: the error is retriable if every
        batch has a producer id, as the broker then knows a repetition; else OutcomeUnknownError."""
        data = produce_request(items, acks, int(timeout_s * 1000))
        try:
            answer = self._connection.send("ProduceService/Produce", data, timeout_s + GRACE_S)
        except (BrokerUnavailableError, BrokerTimeoutError) as error:
            raise outcome_of(error, known=all(map(is_known, items))) from error
        return read_produce_response(parse(answer, produce_pb2.ProduceResponse))

    def produce_limit(self) -> int:
        """See ``Pipelining``: the broker takes in larger messages, but not many at a time."""
        return _REQUEST_BYTES

    def produce_pipeline(self) -> RemotePipeline | None:
        """See ``Pipelining``. None from a broker without it, and for sessions, which end while a stream goes on."""
        if "ordered-produce-stream" not in self._features or not self._connection.shows_fixed_credentials:
            return None
        return RemotePipeline(self._connection)

    def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_s: float,
        cancel: CancelHandle | None = None,
    ) -> list[FetchResult]:
        data = _fetch_data(requests, FetchSettings(isolation, min_bytes, max_bytes), max_wait_s)
        timeout_s = max_wait_s + self._connection.settings.request_timeout_s
        until_s = time.monotonic() + timeout_s
        while cancel is None or not cancel.cancelled:
            left_s = max(until_s - time.monotonic(), 0.001)
            try:
                answer = self._send_fetch(data, left_s, cancel)
            except BrokerBusyError as error:
                self._connection.wait_out(error, until_s)
                continue
            if answer is None:
                break
            return read_fetch_response(answer)[1]
        return [nothing(request) for request in requests]

    def _send_fetch(self, data: bytes, timeout_s: float, cancel: CancelHandle | None) -> bytes | None:
        """None: it was cancelled."""
        if cancel is None:
            return self._connection.send("FetchService/Fetch", data, timeout_s)
        return self._connection.send_unless_cancelled("FetchService/Fetch", data, timeout_s, cancel)

    def begin_fetch(
        self, requests: Sequence[FetchRequest], settings: FetchSettings, max_wait_s: float
    ) -> Any:
        """See ``FetchCalls``."""
        data = _fetch_data(requests, settings, max_wait_s)
        timeout_s = max_wait_s + self._connection.settings.request_timeout_s
        return self._connection.begin("FetchService/Fetch", data, timeout_s)

    def fetch_ahead(self) -> RemoteFetchAhead:
        """See ``Pipelining``."""
        return RemoteFetchAhead(self, self._metadata.revision)

    def list_offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        request = offsets_pb2.ListOffsetsRequest(isolation=isolation_to_wire(isolation))
        for topic, partition in partitions:
            request.partitions.add(topic=topic, partition=partition)
        set_spec(request, spec)
        answer = self._connection.call("OffsetService/ListOffsets", request, offsets_pb2.ListOffsetsResponse)
        return {TopicPartition(one.topic, one.partition): read(one, ListedOffset) for one in answer.offsets}

    def describe_partitions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionDescription]:
        request = offsets_pb2.DescribePartitionsRequest()
        for topic, partition in partitions:
            request.partitions.add(topic=topic, partition=partition)
        answer = self._connection.call(
            "OffsetService/DescribePartitions", request, offsets_pb2.DescribePartitionsResponse
        )
        return {
            TopicPartition(one.topic, one.partition): read(one.description, PartitionDescription)
            for one in answer.partitions
        }

    # --- producers and transactions ---

    def init_producer(self, name: str | None) -> ProducerLease:
        if name is None:
            return RemoteUnnamedLease(self._connection)
        return RemoteNamedLease(self._connection, self._keeper, name)

    def limit_waits(self, timeout_s: float) -> AbstractContextManager[None]:
        return self._connection.limit(timeout_s)

    def init_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> TransactionLease:
        return RemoteTransactionLease(
            self._connection,
            self._keeper,
            transactional_id,
            timeout_ms,
            coordinator=coordinator,
            keep_prepared=keep_prepared,
        )

    # --- groups ---

    def join_group(self, group: str, request: JoinRequest) -> GroupMembership:
        validate_group(group)
        return RemoteMembership(self._connection, group, request)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member: MemberIdentity | None = None,
    ) -> None:
        validate_group(group)
        request = offsets_pb2.CommitOffsetsRequest(
            group=group, offsets=committed_to_wire(checked_offsets(offsets))
        )
        if member is not None:
            request.member.member_id, request.member.epoch = member
        self._connection.call("OffsetService/CommitOffsets", request, offsets_pb2.CommitOffsetsResponse)

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return committed_from_wire(self._committed(group).offsets)

    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        return places(self._committed(group).unstable)

    def _committed(self, group: str) -> offsets_pb2.CommittedOffsetsResponse:
        validate_group(group)
        return self._connection.call(
            "OffsetService/CommittedOffsets",
            offsets_pb2.CommittedOffsetsRequest(group=group),
            offsets_pb2.CommittedOffsetsResponse,
        )

    def close(self) -> None:
        """Give up what is held. Safe to call again."""
        self._metadata.close()
        self._keeper.close()
        self._connection.close()


def _fetch_data(requests: Sequence[FetchRequest], settings: FetchSettings, max_wait_s: float) -> bytes:
    return fetch_request(
        requests,
        isolation=settings.isolation,
        min_bytes=bytes_at_most(settings.min_bytes, "min_bytes"),
        max_bytes=bytes_at_most(settings.max_bytes, "max_bytes"),
        max_wait_ms=int(max_wait_s * 1000),
    ).SerializeToString()
