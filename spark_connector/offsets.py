"""``StreamOffset``: how far a streaming query has read, as Spark keeps it in a checkpoint.

    {"version": 1, "topics": {"flights": {"id": "<uuid>", "partitions": {"0": {"offset": 5, "epoch": 0}}}}}

The topic's id tells a topic that was deleted and made anew from the old one, the leader epoch a position that a
crash took back; a reader that comes back with either gets an error instead of other records under the same
numbers. Spark compares offsets as JSON text: the same position always gives the same text, topics in order of
name and partitions of number, and a position keeps its epoch until it moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from logstore import TopicPartition
from logstore.errors import DamagedStoreError, UnsupportedStoreVersionError
from spark_connector.positions import Place

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """``places``: next offset to read, by partition; ``ids``: the topics' ids ("" where it is not known)."""

    places: Mapping[TopicPartition, Place]
    ids: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps (a dict of dicts, numbers and texts)."""
        topics: dict[str, Any] = {}
        for place in sorted(self.places):
            topic = topics.setdefault(place.topic, {"id": self.ids.get(place.topic, ""), "partitions": {}})
            at = self.places[place]
            topic["partitions"][str(place.partition)] = {"offset": at.offset, "epoch": at.epoch}
        return {"version": VERSION, "topics": topics}

    @staticmethod
    def from_json(found: Any) -> StreamOffset:
        """``UnsupportedStoreVersionError`` for an offset of a newer version; ``DamagedStoreError`` for what is none
        (a checkpoint of another source)."""
        version = found.get("version") if isinstance(found, dict) else None
        if type(version) is int and version > VERSION:
            raise UnsupportedStoreVersionError(
                f"the checkpoint holds offsets of version {version}, this connector knows up to {VERSION}",
                hint="go on with the version of the connector that wrote the checkpoint, or a newer one",
            )
        try:
            rows = list(_rows(found))
        except (KeyError, TypeError, ValueError, AttributeError):
            rows = None
        if rows is None or version != VERSION:
            raise DamagedStoreError(
                f"the checkpoint holds {str(found)[:200]}, which is no offset of this source",
                hint="give the query a checkpoint location of its own",
            )
        return StreamOffset(
            {place: at for place, at, _ in rows}, {place.topic: topic_id for place, _, topic_id in rows}
        )


def _rows(found: Any) -> Iterator[tuple[TopicPartition, Place, str]]:
    for topic, entry in found["topics"].items():
        topic_id = entry["id"]
        if not isinstance(topic_id, str):
            raise TypeError(topic_id)
        for partition, row in entry["partitions"].items():
            offset, epoch = row["offset"], row["epoch"]
            if type(offset) is not int or type(epoch) is not int or offset < 0:
                raise ValueError(row)
            yield TopicPartition(topic, int(partition)), Place(offset, epoch), topic_id
