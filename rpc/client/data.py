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
from rpc.client.arguments import transactional_id as checked_id
from rpc.client.channel.connection import Connection
from rpc.client.leases import LeaseKeepers
from rpc.client.membership import RemoteMembership
from rpc.client.producers import RemoteNamedLease, RemoteUnnamedLease
from rpc.client.routing.brokers import Brokers
from rpc.client.routing.coordinators import Coordinators
from rpc.client.routing.fetch_ahead import FetchSettings, RemoteFetchAhead, nothing
from rpc.client.routing.leaders import Leaders
from rpc.client.routing.metadata import Metadata
from rpc.client.routing.near import NearReplicas
from rpc.client.routing.pipeline import GRACE_S, RemotePipeline, is_known, outcome_of
from rpc.client.routing.role import Role
from rpc.client.routing.routed_fetch import RoutedFetchAhead, RoutedFetches
from rpc.client.routing.routed_produce import RoutedPipeline, RoutedProduce
from rpc.client.routing.scatter import Scatter
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

    def __init__(self, brokers: Brokers, features: Collection[str] = ()) -> None:
        """``features``: what the broker has said that it can do."""
        self._brokers = brokers
        self._features = frozenset(features)
        self._metadata = Metadata(brokers)
        self._controller = Role(brokers)
        self._coordinators = Coordinators(brokers)
        self._keepers = LeaseKeepers()
        self._leaders = Leaders(brokers, self._metadata)
        self._near = NearReplicas(brokers.settings.rack)
        self._scatter = Scatter(brokers, self._leaders)
        self._produce = RoutedProduce(brokers, self._leaders)

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
        only = self._brokers.only
        if only is None:
            return self._produce.produce(items, acks, timeout_s)
        data = produce_request(items, acks, int(timeout_s * 1000))
        try:
            answer = only.send("ProduceService/Produce", data, timeout_s + GRACE_S)
        except (BrokerUnavailableError, BrokerTimeoutError) as error:
            raise outcome_of(error, known=all(map(is_known, items))) from error
        return read_produce_response(parse(answer, produce_pb2.ProduceResponse))

    def produce_limit(self) -> int:
        """See ``Pipelining``: the broker takes in larger messages, but not many at a time."""
        return _REQUEST_BYTES

    def produce_pipeline(self) -> RemotePipeline | RoutedPipeline | None:
        """See ``Pipelining``. None from a broker without it, and for sessions, which end while a stream goes on."""
        connection = self._brokers.home()
        if "ordered-produce-stream" not in self._features or not connection.shows_fixed_credentials:
            return None
        if self._brokers.only is None:
            return RoutedPipeline(self._brokers, self._leaders)
        return RemotePipeline(connection)

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
        settings, only = FetchSettings(isolation, min_bytes, max_bytes), self._brokers.only
        if only is None:
            return self._fetches().fetch_certain(requests, settings, max_wait_s, cancel)
        data = _fetch_data(requests, settings, max_wait_s)
        timeout_s = max_wait_s + only.settings.request_timeout_s
        until_s = time.monotonic() + timeout_s
        while cancel is None or not cancel.cancelled:
            left_s = max(until_s - time.monotonic(), 0.001)
            try:
                answer = _send_fetch(only, data, left_s, cancel)
            except BrokerBusyError as error:
                only.wait_out(error, until_s)
                continue
            if answer is None:
                break
            return read_fetch_response(answer)[1]
        return [nothing(request) for request in requests]

    def begin_fetch(
        self, requests: Sequence[FetchRequest], settings: FetchSettings, max_wait_s: float
    ) -> Any:
        """See ``FetchCalls``; of a broker that is alone."""
        data, connection = _fetch_data(requests, settings, max_wait_s), self._brokers.home()
        timeout_s = max_wait_s + connection.settings.request_timeout_s
        return connection.begin("FetchService/Fetch", data, timeout_s)

    def fetch_ahead(self) -> RemoteFetchAhead:
        """See ``Pipelining``."""
        if self._brokers.only is None:
            return RoutedFetchAhead(self._fetches(), self._metadata.revision)
        return RemoteFetchAhead(self, self._metadata.revision)

    def _fetches(self) -> RoutedFetches:
        return RoutedFetches(self._brokers, self._leaders, self._near, _fetch_data)

    def list_offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        def ask(places: Collection[TopicPartition]) -> offsets_pb2.ListOffsetsRequest:
            request = offsets_pb2.ListOffsetsRequest(isolation=isolation_to_wire(isolation))
            for topic, partition in places:
                request.partitions.add(topic=topic, partition=partition)
            set_spec(request, spec)
            return request

        return self._scatter.call(
            "OffsetService/ListOffsets",
            partitions,
            ask,
            offsets_pb2.ListOffsetsResponse,
            lambda answer: {
                TopicPartition(one.topic, one.partition): read(one, ListedOffset) for one in answer.offsets
            },
        )

    def describe_partitions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionDescription]:
        def ask(places: Collection[TopicPartition]) -> offsets_pb2.DescribePartitionsRequest:
            request = offsets_pb2.DescribePartitionsRequest()
            for topic, partition in places:
                request.partitions.add(topic=topic, partition=partition)
            return request

        return self._scatter.call(
            "OffsetService/DescribePartitions",
            partitions,
            ask,
            offsets_pb2.DescribePartitionsResponse,
            lambda answer: {
                TopicPartition(one.topic, one.partition): read(one.description, PartitionDescription)
                for one in answer.partitions
            },
        )

    # --- producers and transactions ---

    def init_producer(self, name: str | None) -> ProducerLease:
        if name is None:
            return RemoteUnnamedLease(self._controller)
        return RemoteNamedLease(self._controller, self._keepers, name)

    def limit_waits(self, timeout_s: float) -> AbstractContextManager[None]:
        return self._brokers.limit(timeout_s)

    def init_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> TransactionLease:
        for name in (transactional_id,) if coordinator is None else (transactional_id, coordinator):
            checked_id(name)
        return RemoteTransactionLease(
            self._coordinators.of_id(coordinator or transactional_id),
            self._keepers,
            transactional_id,
            timeout_ms,
            coordinator=coordinator,
            keep_prepared=keep_prepared,
        )

    # --- groups ---

    def join_group(self, group: str, request: JoinRequest) -> GroupMembership:
        validate_group(group)
        return RemoteMembership(self._coordinators.of_group(group), group, request)

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
        self._coordinators.of_group(group).call(
            "OffsetService/CommitOffsets", request, offsets_pb2.CommitOffsetsResponse
        )

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return committed_from_wire(self._committed(group).offsets)

    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        return places(self._committed(group).unstable)

    def _committed(self, group: str) -> offsets_pb2.CommittedOffsetsResponse:
        validate_group(group)
        return self._coordinators.of_group(group).call(
            "OffsetService/CommittedOffsets",
            offsets_pb2.CommittedOffsetsRequest(group=group),
            offsets_pb2.CommittedOffsetsResponse,
        )

    def close(self) -> None:
        """Give up what is held. Safe to call again."""
        self._metadata.close()
        self._keepers.close()
        self._controller.close()
        self._coordinators.close()
        self._scatter.close()
        self._brokers.close()


def _send_fetch(
    connection: Connection, data: bytes, timeout_s: float, cancel: CancelHandle | None
) -> bytes | None:
    """None: it was cancelled."""
    if cancel is None:
        return connection.send("FetchService/Fetch", data, timeout_s)
    return connection.send_unless_cancelled("FetchService/Fetch", data, timeout_s, cancel)


def _fetch_data(requests: Sequence[FetchRequest], settings: FetchSettings, max_wait_s: float) -> bytes:
    return fetch_request(
        requests,
        isolation=settings.isolation,
        min_bytes=bytes_at_most(settings.min_bytes, "min_bytes"),
        max_bytes=bytes_at_most(settings.max_bytes, "max_bytes"),
        max_wait_ms=int(max_wait_s * 1000),
    ).SerializeToString()
