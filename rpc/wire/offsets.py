"""Committed offsets and partitions' offsets: messages from mappings by partition, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logstore.types import OffsetAndMetadata, TopicPartition
from rpc.pb import offsets_pb2 as pb


def committed_from_wire(messages: Iterable[pb.CommittedOffset]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(one.topic, one.partition): OffsetAndMetadata(
            one.offset, one.leader_epoch, one.metadata
        )
        for one in messages
    }


def committed_to_wire(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[pb.CommittedOffset]:
    return [
        pb.CommittedOffset(
            topic=topic,
            partition=partition,
            offset=one.offset,
            leader_epoch=one.leader_epoch,
            metadata=one.metadata,
        )
        for (topic, partition), one in offsets.items()
    ]
