"""Committed offsets and partitions' offsets: messages from mappings by partition, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logstore.arguments import shown
from logstore.errors import InvalidArgumentError
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
    """InvalidArgumentError for what no message can carry; the rest is the broker's to check."""
    for (topic, partition), one in offsets.items():
        where = f"cannot commit for {topic}-{partition}"
        for name, number, bits in (("offset", one.offset, 63), ("leader_epoch", one.leader_epoch, 31)):
            if type(number) is not int or not -(1 << bits) <= number < 1 << bits:
                raise InvalidArgumentError(
                    f"{where}: {name} {shown(number)} is no whole number of {bits} bits"
                )
        if not isinstance(one.metadata, str):
            raise InvalidArgumentError(f"{where}: metadata is text, not {type(one.metadata).__name__}")
        if any("\ud800" <= character <= "\udfff" for character in one.metadata):
            raise InvalidArgumentError(f"{where}: metadata holds half of a surrogate pair")
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
