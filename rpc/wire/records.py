"""Produce and fetch messages with their record bytes, made and taken apart for broker and client alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logstore.api.records import FetchRequest, FetchResult, ProduceItem, ProduceResult
from logstore.arguments import whole
from logstore.types import Acks, Isolation
from rpc.errors import MalformedRequestError
from rpc.framing import join, split
from rpc.pb import fetch_pb2, produce_pb2
from rpc.wire.enums import acks_to_wire, isolation_to_wire
from rpc.wire.errors import from_wire, to_wire

_MOST_BYTES: Final = 2**31 - 1

# --- produce ---


def produce_request(
    items: Sequence[ProduceItem],
    acks: Acks,
    timeout_ms: int,
    correlation_id: int = 0,
    seen_correlation_id: int | None = None,
) -> bytes:
    head = produce_pb2.ProduceRequest(
        acks=acks_to_wire(acks),
        timeout_ms=timeout_ms,
        correlation_id=correlation_id,
        seen_correlation_id=seen_correlation_id,
    )
    total = 0
    for item in items:
        size = len(item.batch)
        total += size
        batch = head.batches.add(topic=item.topic, partition=item.partition, size=size)
        if item.expected_offset is not None:
            batch.expected_offset = item.expected_offset
    return join(head, [item.batch for item in items], total)


def read_produce_request(data: bytes) -> tuple[produce_pb2.ProduceRequest, list[ProduceItem]]:
    """The head, and the batches as views of ``data``. MalformedRequestError."""
    head, records = split(data, produce_pb2.ProduceRequest)
    items = []
    position = 0
    for batch in head.batches:
        end = position + batch.size
        if batch.size <= 0 or end > len(records):
            raise MalformedRequestError(
                f"a batch of {batch.size} bytes for {batch.topic}-{batch.partition}, and {len(records)} in all"
            )
        expected = batch.expected_offset if batch.HasField("expected_offset") else None
        items.append(
            ProduceItem(batch.topic, batch.partition, records[position:end], expected_offset=expected)
        )
        position = end
    if position != len(records):
        raise MalformedRequestError(f"{len(records) - position} bytes of records belong to no batch")
    return head, items


def produce_response(results: Sequence[ProduceResult], correlation_id: int) -> bytes:
    message = produce_pb2.ProduceResponse(correlation_id=correlation_id)
    for result in results:
        row = message.results.add(base_offset=result.base_offset, append_time_ms=result.append_time_ms)
        if result.error is not None:
            row.error.CopyFrom(to_wire(result.error))
    return message.SerializeToString()


def read_produce_response(message: produce_pb2.ProduceResponse) -> list[ProduceResult]:
    return [
        ProduceResult(
            row.base_offset, row.append_time_ms, from_wire(row.error) if row.HasField("error") else None
        )
        for row in message.results
    ]


# --- fetch ---


def fetch_request(
    requests: Sequence[FetchRequest],
    *,
    isolation: Isolation,
    min_bytes: int,
    max_bytes: int,
    max_wait_ms: int,
    correlation_id: int = 0,
) -> fetch_pb2.FetchRequest:
    message = fetch_pb2.FetchRequest(
        isolation=isolation_to_wire(isolation),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        max_wait_ms=max_wait_ms,
        correlation_id=correlation_id,
    )
    for request in requests:
        message.partitions.add(
            topic=request.topic,
            partition=request.partition,
            offset=request.offset,
            leader_epoch=request.leader_epoch,
            max_bytes=min(whole(request.max_bytes, "max_bytes"), _MOST_BYTES),
            reverse=request.reverse,
            rack=request.rack,
        )
    return message


def read_fetch_request(message: fetch_pb2.FetchRequest, most_bytes: int) -> list[FetchRequest]:
    """The partitions asked for, none for more than ``most_bytes``."""
    return [
        FetchRequest(
            row.topic,
            row.partition,
            row.offset,
            row.leader_epoch,
            min(row.max_bytes, most_bytes) if row.max_bytes > 0 else most_bytes,
            row.reverse,
            row.rack,
        )
        for row in message.partitions
    ]


def fetch_response(results: Sequence[FetchResult], correlation_id: int) -> bytes:
    head = fetch_pb2.FetchResponse(correlation_id=correlation_id)
    total = 0
    for result in results:
        size = len(result.batches)
        total += size
        row = head.partitions.add(
            topic=result.topic,
            partition=result.partition,
            size=size,
            next_offset=result.next_offset,
            log_start_offset=result.log_start_offset,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
        )
        if result.error is not None:
            row.error.CopyFrom(to_wire(result.error))
        if result.preferred_replica >= 0:
            row.preferred_replica = result.preferred_replica
    return join(head, [result.batches for result in results], total)


def read_fetch_response(data: bytes) -> tuple[fetch_pb2.FetchResponse, list[FetchResult]]:
    """The head, and the results, whose batches are views of ``data``. MalformedRequestError."""
    head, records = split(data, fetch_pb2.FetchResponse)
    results = []
    position = 0
    for row in head.partitions:
        end = position + row.size
        if row.size < 0 or end > len(records):
            raise MalformedRequestError(f"{row.topic}-{row.partition} has {row.size} of {len(records)} bytes")
        results.append(
            FetchResult(
                row.topic,
                row.partition,
                records[position:end],
                row.next_offset,
                row.log_start_offset,
                row.high_watermark,
                row.last_stable_offset,
                from_wire(row.error) if row.HasField("error") else None,
                row.preferred_replica if row.HasField("preferred_replica") else -1,
            )
        )
        position = end
    return head, results
