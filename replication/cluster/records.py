"""The records of ``__cluster_metadata``: small JSON documents, each with a version.

| key | value (a null value takes the thing away) |
|---|---|
| ``{"kind": "cluster"}`` | its id and its features |
| ``{"kind": "counters"}`` | the revision, and what is handed out next |
| ``{"kind": "topic", "name"}`` | a topic as in ``topics.json`` |
| ``{"kind": "replicas", "topic_id", "first"}`` | replicas of up to 1,000 partitions from ``first`` on |
| ``{"kind": "target", "topic_id", "partition"}`` | replicas that a partition is to have instead |
| ``{"kind": "vacated", "topic_id", "partition"}`` | nodes whose directory with a replica was exchanged |
| ``{"kind": "broker", "node_id"}`` | its registration |
| ``{"kind": "peer", "node_id"}`` | where it listens for its peers, or that it was removed |
| ``{"kind": "access", "of", "name"}`` | a user, a rule |
| ``{"kind": "producer", "name"}`` | a named producer as in ``topics.json`` |

The newest value of each key is all that counts, in whatever order keys come. Kinds that this version does not know, and
values of newer versions, are not read.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from logstore.directory.catalogue import decode_topic, encode_topic
from logstore.directory.named_producers import decode_producers, encode_producers
from logstore.errors import InvalidRecordError
from logstore.format.json_document import INT64_MAX, items, table, text, truth, whole
from logstore.machine import Change
from replication.cluster.image import BrokerRegistration, ClusterImage, PeerAddress
from replication.cluster.placement import Replicas
from replication.transport import METADATA_TOPIC

VERSION: Final = 1
CHUNK: Final = 1_000  # partitions whose replicas share a record

_MAX_NODE: Final = (1 << 31) - 1
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Counters(NamedTuple):
    revision: int = 0
    next_lock_slot: int = 1
    next_live_slot: int = 0
    next_producer_id: int = 0


class MetadataRecord(NamedTuple):
    """``key``: its fields apart from the kind, in their order; ``value``: the decoded one, None: the thing is gone."""

    kind: str
    key: tuple[Any, ...]
    value: Any


# --- bytes ---


def _key(kind: str, **fields: str | int) -> bytes:
    return _bytes({"kind": kind, **fields})


def _value(**fields: Any) -> bytes:
    return _bytes({"version": VERSION, **fields})


def _bytes(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def decode_record(key: bytes | None, value: bytes | None) -> MetadataRecord | None:
    """None: of a kind or version that this one does not know. InvalidRecordError: it is no record of metadata;
    DamagedStoreError: it says what cannot be."""
    fields = _object(key, "a key")
    kind = fields.pop("kind", None)
    shape = _KEYS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        return None
    where = f"{METADATA_TOPIC}: {kind}"
    if fields.keys() != shape.keys():
        raise InvalidRecordError(f"{where}: a key with the fields {', '.join(sorted(fields))}")
    found = tuple(
        text(fields[name], name, where) if of is str else whole(fields[name], name, where)
        for name, of in shape.items()
    )
    if value is None:
        return MetadataRecord(str(kind), found, None)
    content = _object(value, "a value")
    if whole(content.get("version"), "version", where, 1) > VERSION:
        return None
    return MetadataRecord(str(kind), found, _READ[str(kind)](found, content, where))


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    try:
        fields = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"{METADATA_TOPIC}: {what} that is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidRecordError(f"{METADATA_TOPIC}: {what} that is no JSON object")
    return fields


def _node(value: object, name: str, where: str) -> int:
    return whole(value, name, where, 0, _MAX_NODE)


def read_replicas(value: object, where: str) -> Replicas:
    """DamagedStoreError."""
    return tuple(_node(node, "a replica", where) for node in items(value, "replicas", where))


def _read_cluster(_: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    features = table(fields.get("features"), "features", where)
    versions = {name: whole(level, f"feature {name}", where) for name, level in features.items()}
    return text(fields.get("cluster_id"), "cluster_id", where), versions


def _read_counters(_: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    return Counters(*(whole(fields.get(name), name, where) for name in Counters._fields))


def _read_topic(key: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    return decode_topic(key[0], fields.get("topic"), where)


def _read_chunk(_: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    return tuple(read_replicas(one, where) for one in items(fields.get("partitions"), "partitions", where))


def _read_target(_: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    return read_replicas(fields.get("replicas"), where)


def _read_nodes(_: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    return frozenset(read_replicas(fields.get("nodes"), where))


def _read_broker(key: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    return BrokerRegistration(
        _node(key[0], "node_id", where),
        text(fields.get("host"), "host", where),
        whole(fields.get("port"), "port", where, 0, 65_535),
        text(fields.get("rack"), "rack", where),
        whole(fields.get("epoch"), "epoch", where),
        truth(fields.get("draining"), "draining", where),
        text(fields.get("directory_id", ""), "directory_id", where),
        whole(fields.get("incarnation", 0), "incarnation", where),
    )


def _read_peer(_: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    return PeerAddress(
        text(fields.get("host"), "host", where),
        whole(fields.get("port"), "port", where, 0, 65_535),
        truth(fields.get("removed"), "removed", where),
    )


def _read_access(_: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    del where
    return fields.get("content")


def _read_producer(key: tuple[Any, ...], fields: dict[str, Any], where: str) -> Any:
    return decode_producers({key[0]: fields.get("producer")}, where, INT64_MAX >> 1)[key[0]]


_KEYS: Final[Mapping[str, Mapping[str, type]]] = {
    "cluster": {},
    "counters": {},
    "topic": {"name": str},
    "replicas": {"topic_id": str, "first": int},
    "target": {"topic_id": str, "partition": int},
    "leaving": {"topic_id": str, "partition": int},
    "vacated": {"topic_id": str, "partition": int},
    "broker": {"node_id": int},
    "peer": {"node_id": int},
    "access": {"of": str, "name": str},
    "producer": {"name": str},
}
_READ: Final = {
    "cluster": _read_cluster,
    "counters": _read_counters,
    "topic": _read_topic,
    "replicas": _read_chunk,
    "target": _read_target,
    "leaving": _read_nodes,
    "vacated": _read_nodes,
    "broker": _read_broker,
    "peer": _read_peer,
    "access": _read_access,
    "producer": _read_producer,
}


# --- what a change is in records ---


def records_between(before: ClusterImage, after: ClusterImage) -> tuple[Change, ...]:
    """Those that make ``after`` of ``before``, its revision among them."""
    old, new = before.catalogue, after.catalogue
    records: list[Change] = []
    if (before.cluster_id, before.features) != (after.cluster_id, after.features):
        features = dict(sorted(after.features.items()))
        records.append((_key("cluster"), _value(cluster_id=after.cluster_id, features=features)))
    for name, topic in _changed(old.topics, new.topics):
        value = None if topic is None else _value(topic=encode_topic(topic))
        records.append((_key("topic", name=name), value))
    records += _replica_records(before, after)
    for (topic_id, partition), target in _changed(before.targets, after.targets):
        key = _key("target", topic_id=topic_id, partition=partition)
        records.append((key, None if target is None else _value(replicas=list(target))))
    for kind, old_nodes, new_nodes in (
        ("leaving", before.leaving, after.leaving),
        ("vacated", before.vacated, after.vacated),
    ):
        for (topic_id, partition), nodes in _changed(old_nodes, new_nodes):
            key = _key(kind, topic_id=topic_id, partition=partition)
            records.append((key, None if nodes is None else _value(nodes=sorted(nodes))))
    for node_id, broker in _changed(before.brokers, after.brokers):
        records.append((_key("broker", node_id=node_id), None if broker is None else _broker_value(broker)))
    for node_id, address in _changed(before.peers, after.peers):
        records.append(
            (_key("peer", node_id=node_id), None if address is None else _value(**address._asdict()))
        )
    for (of, name), content in _changed(before.access, after.access):
        records.append(
            (_key("access", of=of, name=name), None if content is None else _value(content=content))
        )
    for name, producer in _changed(old.producers, new.producers):
        encoded = {} if producer is None else encode_producers({name: producer})
        value = _value(producer=encoded[name]) if encoded else None
        records.append((_key("producer", name=name), value))
    counted = Counters(new.revision, new.next_lock_slot, new.next_live_slot, new.next_producer_id)
    if records or counted != (old.revision, old.next_lock_slot, old.next_live_slot, old.next_producer_id):
        records.append((_key("counters"), _value(**counted._asdict())))
    return tuple(records)


def _broker_value(broker: BrokerRegistration) -> bytes:
    fields = broker._asdict()
    del fields["node_id"]
    return _value(**fields)


def _replica_records(before: ClusterImage, after: ClusterImage) -> Iterator[Change]:
    for topic_id, partitions in _changed(before.replicas, after.replicas):
        old = before.replicas.get(topic_id, ())
        new = () if partitions is None else partitions
        for first in range(0, max(len(old), len(new)), CHUNK):
            chunk = new[first : first + CHUNK]
            if chunk != old[first : first + CHUNK]:
                value = _value(partitions=[list(one) for one in chunk]) if chunk else None
                yield _key("replicas", topic_id=topic_id, first=first), value


def _changed(
    before: Mapping[_Key, _Value], after: Mapping[_Key, _Value]
) -> Iterator[tuple[_Key, _Value | None]]:
    """What is new, or another, and what is gone (None)."""
    if before is after:
        return
    for key in before:
        if key not in after:
            yield key, None
    for key, value in after.items():
        old = before.get(key)
        if old is not value and old != value:
            yield key, value
