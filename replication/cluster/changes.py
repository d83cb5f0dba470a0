"""What is asked of a catalogue, as values that travel: the difference between two, and what it does to a third.

Each change says on what it was decided, and is refused where that is no more so (``MetadataConflictError``): the caller
looks again. One that is in already is no change: whoever got no answer may ask again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from logstore.directory.catalogue import Catalogue
from logstore.directory.named_producers import NamedProducer, decode_producers, encode_producers
from logstore.errors import InvalidRecordError, TopicExistsError
from logstore.format.json_document import INT64_MAX, items, table, text, truth, whole
from replication.errors import MetadataConflictError

VERSION: Final = 1
_WHERE: Final = "a change of the cluster's metadata"


class TopicCreated(NamedTuple):
    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]
    created_ms: int
    internal: bool


class PartitionsAdded(NamedTuple):
    """``before``: how many there were."""

    name: str
    topic_id: str
    before: int
    total: int


class TopicAltered(NamedTuple):
    name: str
    topic_id: str
    before: Mapping[str, str]
    config: Mapping[str, str]


class TopicDeleted(NamedTuple):
    name: str
    topic_id: str


class ProducerChanged(NamedTuple):
    """None: there was none, or is none any more."""

    name: str
    before: NamedProducer | None
    after: NamedProducer | None


class ProducerIdsTaken(NamedTuple):
    """``first``: what was to be handed out next."""

    first: int
    ids: int


CatalogueChange: TypeAlias = (
    TopicCreated | PartitionsAdded | TopicAltered | TopicDeleted | ProducerChanged | ProducerIdsTaken
)


def changes_between(before: Catalogue, after: Catalogue) -> tuple[CatalogueChange, ...]:
    return (*_topic_changes(before, after), *_producer_changes(before, after))


def _topic_changes(before: Catalogue, after: Catalogue) -> Iterator[CatalogueChange]:
    for name, entry in before.topics.items():
        now = after.topics.get(name)
        if now is None or now.topic_id != entry.topic_id:
            yield TopicDeleted(name, entry.topic_id)
    for name, entry in after.topics.items():
        was = before.topics.get(name)
        if was is entry:
            continue
        if was is None or was.topic_id != entry.topic_id:
            yield TopicCreated(
                name, entry.topic_id, entry.partitions, entry.config, entry.created_ms, entry.internal
            )
            continue
        if was.partitions != entry.partitions:
            yield PartitionsAdded(name, entry.topic_id, was.partitions, entry.partitions)
        if was.config != entry.config:
            yield TopicAltered(name, entry.topic_id, was.config, entry.config)


def _producer_changes(before: Catalogue, after: Catalogue) -> Iterator[CatalogueChange]:
    if before.next_producer_id != after.next_producer_id:
        ids = after.next_producer_id - before.next_producer_id
        yield ProducerIdsTaken(before.next_producer_id, ids)
    if before.producers is not after.producers:
        for name in dict.fromkeys((*before.producers, *after.producers)):
            was, now = before.producers.get(name), after.producers.get(name)
            if was != now:
                yield ProducerChanged(name, was, now)


def may_be_forwarded(changes: Sequence[CatalogueChange]) -> bool:
    """Whether any node may ask the controller for these itself: what it needs to serve its clients. What administrators
    ask for goes to the controller directly."""
    return all(
        isinstance(one, ProducerChanged | ProducerIdsTaken)
        or (isinstance(one, TopicCreated) and one.internal)
        for one in changes
    )


# --- carrying out ---


def applied(catalogue: Catalogue, changes: Sequence[CatalogueChange]) -> Catalogue:
    """The catalogue with these changes; the same object if all are in already. MetadataConflictError, TopicExistsError,
    and the errors of the catalogue's own methods."""
    for change in changes:
        match change:
            case TopicCreated():
                catalogue = _created(catalogue, change)
            case PartitionsAdded():
                catalogue = _grown(catalogue, change)
            case TopicAltered():
                catalogue = _altered(catalogue, change)
            case TopicDeleted():
                catalogue = _deleted(catalogue, change)
            case ProducerChanged():
                catalogue = _with_producer(catalogue, change)
            case ProducerIdsTaken():
                if catalogue.next_producer_id != change.first:
                    raise MetadataConflictError("other producer ids were handed out meanwhile")
                catalogue = catalogue.with_producer_ids(change.ids)
    return catalogue


def _created(catalogue: Catalogue, change: TopicCreated) -> Catalogue:
    there = catalogue.topics.get(change.name)
    if there is not None and there.topic_id == change.topic_id:
        return catalogue
    if there is not None:
        raise TopicExistsError(f"topic {change.name!r} exists already", hint="choose another name, or use it")
    return catalogue.with_topic(
        change.name,
        topic_id=change.topic_id,
        partitions=change.partitions,
        config=change.config,
        created_ms=change.created_ms,
        internal=change.internal,
    )


def _grown(catalogue: Catalogue, change: PartitionsAdded) -> Catalogue:
    there = _same(catalogue, change.name, change.topic_id)
    if there == change.total:
        return catalogue
    if there != change.before:
        raise MetadataConflictError(f"topic {change.name!r} has {there} partitions by now")
    return catalogue.with_partitions(change.name, change.total)


def _altered(catalogue: Catalogue, change: TopicAltered) -> Catalogue:
    _same(catalogue, change.name, change.topic_id)
    config = catalogue.topic(change.name).config
    if config == change.config:
        return catalogue
    if config != change.before:
        raise MetadataConflictError(f"topic {change.name!r} has other settings by now")
    return catalogue.with_config(change.name, change.config)


def _deleted(catalogue: Catalogue, change: TopicDeleted) -> Catalogue:
    there = catalogue.topics.get(change.name)
    if there is None or there.topic_id != change.topic_id:
        return catalogue
    return catalogue.without_topic(change.name)


def _same(catalogue: Catalogue, name: str, topic_id: str) -> int:
    """How many partitions the topic has. UnknownTopicError; MetadataConflictError: there is another one of its name."""
    entry = catalogue.topic(name)
    if entry.topic_id != topic_id:
        raise MetadataConflictError(f"topic {name!r} was deleted and made anew meanwhile")
    return entry.partitions


def _with_producer(catalogue: Catalogue, change: ProducerChanged) -> Catalogue:
    there = catalogue.producers.get(change.name)
    if there == change.after:
        return catalogue
    if there != change.before:
        raise MetadataConflictError(f"producer {change.name!r} was opened or deleted meanwhile")
    if change.after is None:
        return catalogue.without_producer(change.name)
    producers = MappingProxyType({**catalogue.producers, change.name: change.after})
    return replace(catalogue, revision=catalogue.revision + 1, producers=producers)


# --- bytes ---

_KINDS: Final = {
    "create": TopicCreated,
    "grow": PartitionsAdded,
    "alter": TopicAltered,
    "delete": TopicDeleted,
    "producer": ProducerChanged,
    "ids": ProducerIdsTaken,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode_changes(changes: Sequence[CatalogueChange], replication_factor: int | None) -> bytes:
    rows = [{"kind": _NAMES[type(change)], **_fields(change)} for change in changes]
    document = {"version": VERSION, "changes": rows, "replication_factor": replication_factor}
    return json.dumps(document, ensure_ascii=True, allow_nan=False).encode("ascii")


def _fields(change: CatalogueChange) -> dict[str, Any]:
    if isinstance(change, ProducerChanged):
        return {
            "name": change.name,
            "before": _producer_fields(change.before),
            "after": _producer_fields(change.after),
        }
    return {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in change._asdict().items()
    }


def _producer_fields(producer: NamedProducer | None) -> Any:
    return None if producer is None else encode_producers({producer.name: producer})[producer.name]


def decode_changes(data: bytes) -> tuple[tuple[CatalogueChange, ...], int | None]:
    """The changes, and the replication factor that was asked for. InvalidRecordError, DamagedStoreError: these bytes
    are no such thing; InvalidRecordError, too, for what a newer node may have asked."""
    try:
        document = table(json.loads(data), "the request", _WHERE)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"{_WHERE} that is no JSON: {error}") from None
    if document.get("version") != VERSION:
        raise InvalidRecordError(
            f"{_WHERE} has version {document.get('version')!r}, this node reads {VERSION}",
            hint="let all brokers run the same version",
        )
    factor = document.get("replication_factor")
    rows = items(document.get("changes"), "changes", _WHERE)
    return (
        tuple(_change(table(row, "a change", _WHERE)) for row in rows),
        None if factor is None else whole(factor, "replication_factor", _WHERE, 1),
    )


def _change(row: dict[str, Any]) -> CatalogueChange:
    name = text(row.get("name"), "name", _WHERE) if row.get("kind") != "ids" else ""
    match row.get("kind"):
        case "create":
            return TopicCreated(
                name,
                text(row.get("topic_id"), "topic_id", _WHERE),
                whole(row.get("partitions"), "partitions", _WHERE),
                _settings(row.get("config")),
                whole(row.get("created_ms"), "created_ms", _WHERE),
                truth(row.get("internal"), "internal", _WHERE),
            )
        case "grow":
            topic_id = text(row.get("topic_id"), "topic_id", _WHERE)
            before, total = (whole(row.get(key), key, _WHERE) for key in ("before", "total"))
            return PartitionsAdded(name, topic_id, before, total)
        case "alter":
            topic_id = text(row.get("topic_id"), "topic_id", _WHERE)
            return TopicAltered(name, topic_id, _settings(row.get("before")), _settings(row.get("config")))
        case "delete":
            return TopicDeleted(name, text(row.get("topic_id"), "topic_id", _WHERE))
        case "producer":
            return ProducerChanged(
                name, _producer(name, row.get("before")), _producer(name, row.get("after"))
            )
        case "ids":
            return ProducerIdsTaken(*(whole(row.get(key), key, _WHERE) for key in ("first", "ids")))
        case other:
            raise InvalidRecordError(f"{_WHERE}: {other!r} is not known")


def _settings(value: object) -> Mapping[str, str]:
    return MappingProxyType(
        {key: text(setting, key, _WHERE) for key, setting in table(value, "settings", _WHERE).items()}
    )


def _producer(name: str, value: object) -> NamedProducer | None:
    return None if value is None else decode_producers({name: value}, _WHERE, INT64_MAX >> 1)[name]
