"""What clients must know of topics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicMetadata:
    """What clients must know of a topic. ``compression``: a codec name, or "producer" (the client's choice).
    ``missing``: partitions that cannot be read here (in part of a Kafka broker's directories the rest is).
    ``leaders``: the node that leads each partition, by number, -1 where none is known; ``leader_epochs``: since which
    term it does. Both are empty where one broker, or this process, leads all.

    ``partitioner``: murmur3, murmur2, crc32 or round_robin; every client of ours obeys it.
    """

    name: str
    topic_id: str
    partitions: int
    partitioner: str
    compression: str
    max_message_bytes: int  # of a batch; ``size_setting`` names the topic's setting that says so
    internal: bool = False
    compacts: bool = False  # every record needs a key
    size_setting: str = "max.message.bytes"
    missing: tuple[int, ...] = ()
    leaders: tuple[int, ...] = ()
    leader_epochs: tuple[int, ...] = ()
