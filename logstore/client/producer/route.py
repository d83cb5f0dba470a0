"""``TopicRoute``: what a producer knows of one topic, and which partition is next for null keys."""

from __future__ import annotations

from logstore.api.topics import TopicMetadata
from logstore.client.partitioner import KeyPartitioner, key_partitioner
from logstore.client.producer.pending import PartitionQueue
from logstore.native import compiled


@compiled("client.pending")
class QuickRoute:
    """What the quick path of ``send`` touches of a route: compiled, without a step of Python. ``queues``, by
    partition, and ``sticky``, where null keys go, are guarded by the accumulator's lock; the rest never changes.
    ``compacts``: a key is due. ``codec``: of the batches, ``max_message_bytes``: each has at most."""

    __slots__ = ("choose", "codec", "compacts", "max_message_bytes", "murmur3", "queues", "sticky")

    def __init__(
        self, compacts: bool, murmur3: bool, choose: KeyPartitioner, max_message_bytes: int, codec: str
    ) -> None:
        self.compacts = compacts
        self.murmur3 = murmur3
        self.choose = choose
        self.max_message_bytes = max_message_bytes
        self.codec = codec
        self.queues: list[PartitionQueue] = []
        self.sticky: PartitionQueue

    def move_on(self, queue: PartitionQueue) -> None:
        """Null keys leave ``queue`` for the next partition, if that is where they were going."""
        if queue is self.sticky:
            self.sticky = self.queues[(queue.partition + 1) % len(self.queues)]


class TopicRoute(QuickRoute):
    """One per topic and metadata version; guarded by the accumulator's lock. ``queues``: by partition.

    Null keys stick to a partition while its batch is open. They move on when the batch is full, or when it
    has landed and nothing waits behind it (KIP-480; as in KIP-794 a slow partition is not sent more for
    being slow). Staying while something waits is what lets many threads share one sync.
    """

    __slots__ = (
        "name",
        "partitioner",
        "round_robin",
        "size_setting",
        "topic_id",
        "version",
    )

    def __init__(self, metadata: TopicMetadata, version: int, compression: str | None, first: int) -> None:
        choose: KeyPartitioner = key_partitioner(metadata.partitioner, metadata.partitions, first)
        if compression is None:
            compression = "none" if metadata.compression == "producer" else metadata.compression
        limit = metadata.max_message_bytes
        super().__init__(metadata.compacts, metadata.partitioner == "murmur3", choose, limit, compression)
        self.name = metadata.name
        self.topic_id = metadata.topic_id
        self.version = version
        self.size_setting = metadata.size_setting
        self.partitioner = metadata.partitioner
        self.round_robin = metadata.partitioner == "round_robin"

    def set_queues(self, queues: list[PartitionQueue], first: int) -> None:
        self.queues = queues
        self.sticky = queues[first % len(queues)]
