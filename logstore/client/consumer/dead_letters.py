"""Dead letters: records that cannot be decoded go to a topic of their own, with where they came from and why.

A letter is durable before the consumer passes the record, and so before its offset can be committed. A crash in
between may write a letter twice, never lose one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logstore.api.backend import Backend
from logstore.api.records import FetchRequest
from logstore.arguments import refuse_internal, shown
from logstore.client.producer.producer import Producer
from logstore.errors import InvalidArgumentError, SegmentVanishedError
from logstore.format.batch import decode_batches
from logstore.types import Isolation, Record, RecordMetadata

PREFIX = "dead-letter."
_LONGEST_MESSAGE = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """``on_poison=DeadLetters("orders.dead")``: what a deserializer refuses goes to that topic, which must exist.

    A letter is the record as it was, key, value and headers, and behind its headers `dead-letter.topic`,
    `.partition`, `.offset`, `.timestamp` (ms), `.group` (if there is one), `.error` (the exception's type),
    `.message` and `.attempts`, all as text. Its timestamp is the time of the letter. ``timeout_s``: how long to
    wait until it is durable; what fails then is raised by ``poll``, and the record comes again.
    """

    topic: str
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise InvalidArgumentError(
                f"dead letters for topic {shown(self.topic)}", hint="give the name of a topic that exists"
            )
        if (
            isinstance(self.timeout_s, bool)
            or not isinstance(self.timeout_s, int | float)
            or not self.timeout_s > 0
        ):
            raise InvalidArgumentError(
                f"timeout_s={shown(self.timeout_s)}", hint="it is a number of seconds above 0"
            )


class LetterBox:
    """The letters of one consumer, and of its thread. The producer is made with the first of them."""

    def __init__(self, backend: Backend, policy: DeadLetters, group: str | None) -> None:
        # Errors now, not with the first letter.
        refuse_internal(policy.topic, backend.topic(policy.topic).internal)
        self._backend = backend
        self._policy = policy
        self._group = group
        self._producer: Producer[bytes | None, bytes | None] | None = None

    def check_source(self, reads: Callable[[str], bool]) -> None:
        """InvalidArgumentError if the letters are read again: each would make another one, without end."""
        topic = self._policy.topic
        if reads(topic):
            raise InvalidArgumentError(
                f"dead letters for topic {topic!r}, which this consumer reads: each would come back as another one",
                hint="keep them in a topic that it does not read, or that its pattern does not match",
            )

    def __call__(self, record: Record, error: Exception) -> None:
        self.send(record, error, 1)

    def send(self, record: Record, error: BaseException, attempts: int) -> RecordMetadata:
        """Returns when the letter is durable. ``record``: raw, its key and value as bytes."""
        if self._producer is None:
            self._producer = Producer(self._backend)
        headers = [*record.headers, *self._origin(record, error, attempts)]
        delivery = self._producer.send(self._policy.topic, record.value, key=record.key, headers=headers)
        return delivery.result(timeout_s=self._policy.timeout_s)

    def _origin(self, record: Record, error: BaseException, attempts: int) -> list[tuple[str, bytes]]:
        kind = type(error)
        facts = {
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "timestamp": str(record.timestamp_ms),
            "error": f"{kind.__module__}.{kind.__qualname__}",
            "message": str(error)[:_LONGEST_MESSAGE],
            "attempts": str(attempts),
        }
        if self._group is not None:
            facts["group"] = self._group
        return [(PREFIX + name, text.encode("utf-8", "backslashreplace")) for name, text in facts.items()]

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()


def raw_record(backend: Backend, record: Record[Any, Any], isolation: Isolation) -> Record:
    """The record as it is in the log, before any deserializer. SegmentVanishedError if it is gone."""
    topic, partition, offset = record.topic, record.partition, record.offset
    (result,) = backend.fetch(
        [FetchRequest(topic, partition, offset, -1, 1)],
        isolation=isolation,
        min_bytes=1,
        max_bytes=1,
        max_wait_s=0,
    )
    if result.error is not None:
        raise result.error
    for found in decode_batches(result.batches, topic, partition, start_offset=offset, end_offset=offset + 1):
        return found
    raise SegmentVanishedError(
        f"{topic}-{partition}: the record at offset {offset} is not in the log any more",
        hint="pass over it: compaction or retention took it meanwhile",
        lost=(offset, offset + 1),
    )
