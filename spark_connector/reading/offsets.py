"""``StreamOffset``: how far a streaming query has read, as Spark keeps it in a checkpoint and shows it in its progress.

    {"flights": {"0": 5, "1": 7}, "flights:<topic id>": {"0": 3, "1": 3}}

A topic's entry is topic -> partition -> next offset, the JSON of Spark's Kafka source, so that what listens to a query
of that source finds offsets here, too. Its twin, whose name no topic can have, holds the topic's id and the leader
epoch of each position. The id tells a topic that was deleted and made anew from the old one, the epoch a position that
a crash took back; a reader that comes back with either gets an error instead of other records under the same numbers.
Spark compares offsets as JSON text: the same position always gives the same text, topics in order of name and
partitions of number, and a position keeps its epoch until it moves.

Version 1, which is read: ``{"version": 1, "topics": {"flights": {"id": "<uuid>", "partitions": {"0": {"offset": 5,
"epoch": 0}}}}}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from logstore import TopicPartition
from logstore.errors import DamagedStoreError, UnsupportedStoreVersionError
from spark_connector.settings.positions import Place

_BESIDE: Final = ":"  # between a topic's name and its id; no name has one


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """``places``: next offset to read, by partition; ``ids``: the topics' ids ("" where it is not known)."""

    places: Mapping[TopicPartition, Place]
    ids: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps (a dict of dicts of numbers)."""
        found: dict[str, dict[str, int]] = {}
        for place in sorted(self.places):
            at, topic = self.places[place], place.topic
            beside = f"{topic}{_BESIDE}{self.ids.get(topic, '')}"
            found.setdefault(topic, {})[str(place.partition)] = at.offset
            found.setdefault(beside, {})[str(place.partition)] = at.epoch
        return found

    @staticmethod
    def from_json(found: Any) -> StreamOffset:
        """``UnsupportedStoreVersionError`` for an offset of a newer version; ``DamagedStoreError`` for what is none
        (a checkpoint of another source)."""
        version = found.get("version") if isinstance(found, dict) else None
        if type(version) is int and version > 1:
            raise UnsupportedStoreVersionError(
                f"the checkpoint holds offsets of version {version}, which this connector does not know",
                hint="go on with the version of the connector that wrote the checkpoint, or a newer one",
            )
        try:
            rows = list(_rows_of_version_1(found) if type(version) is int else _rows(found))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DamagedStoreError(
                f"the checkpoint holds {str(found)[:200]}, which is no offset of this source",
                hint="give the query a checkpoint location of its own",
            ) from None
        return StreamOffset(
            {place: at for place, at, _ in rows}, {place.topic: topic_id for place, _, topic_id in rows}
        )


def _rows(found: Any) -> Iterator[tuple[TopicPartition, Place, str]]:
    beside = {name.partition(_BESIDE)[0]: name for name in found if _BESIDE in name}
    for topic in [name for name in found if _BESIDE not in name]:
        name = beside.pop(topic)
        offsets, epochs = found[topic], found[name]
        if offsets.keys() != epochs.keys():
            raise ValueError(topic)
        for partition, offset in offsets.items():
            yield _row(topic, partition, offset, epochs[partition], name.partition(_BESIDE)[2])
    if beside:
        raise ValueError(beside)


def _rows_of_version_1(found: Any) -> Iterator[tuple[TopicPartition, Place, str]]:
    for topic, entry in found["topics"].items():
        for partition, row in entry["partitions"].items():
            yield _row(topic, partition, row["offset"], row["epoch"], entry["id"])


def _row(
    topic: str, partition: str, offset: Any, epoch: Any, topic_id: Any
) -> tuple[TopicPartition, Place, str]:
    if type(offset) is not int or type(epoch) is not int or offset < 0 or not isinstance(topic_id, str):
        raise ValueError(topic)
    return TopicPartition(topic, int(partition)), Place(offset, epoch), topic_id
