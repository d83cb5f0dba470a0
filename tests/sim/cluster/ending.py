"""``check_ending``: all is at peace, all is read once more, and held against what clients were told."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.format.batch import decode_batches
from logstore.types import Record, TopicPartition
from tests.history.checker import check
from tests.history.events import End, History, Place
from tests.replication.sim.checks import BrokenPropertyError
from tests.sim.cluster.client import Client, fetched
from tests.sim.cluster.operators import TOPICS
from tests.sim.cluster.producer import KeyedProducer, RetainedProducer
from tests.sim.cluster.reader import Member, Reader
from tests.sim.cluster.transactor import Transactor
from tests.sim.cluster.world import World


def check_ending(world: World, clients: Sequence[Client]) -> None:
    """BrokenPropertyError."""
    end = Client(world, "end", {})
    _check_history(end, clients)
    for client in clients:
        for topic in client.topics:
            if isinstance(client, KeyedProducer):
                _, records = read_all(end, (topic, 0))
                client.check((topic, 0), [(one.key or b"", _number(one)) for one in records])
            elif isinstance(client, RetainedProducer):
                start, records = read_all(end, (topic, 0))
                client.check((topic, 0), start, {one.offset: _number(one) for one in records})


def _check_history(end: Client, clients: Sequence[Client]) -> None:
    places = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
    records = tuple(
        (place, tuple((one.offset, (one.value or b"").decode()) for one in read_all(end, place)[1]))
        for place in places
    )
    names = sorted({one.group for one in clients if isinstance(one, Reader | Transactor | Member)})
    groups = tuple((group, _committed(end, group)) for group in names)
    found = check(History({one.name: one.events for one in clients}, End(records, groups)))
    if found:
        raise BrokenPropertyError(f"{len(found)} in the history, the first: {found[0]}")


def read_all(end: Client, place: Place) -> tuple[int, list[Record]]:
    """Where the log starts, and all that a reader of committed records sees."""
    held = TopicPartition(*place)
    found: list[Record] = []
    listed = end.ask("end", lambda node: node.engine.list_offsets([held], "latest", "read_committed"))
    stop, at, start = listed[held].offset or 0, 0, 0
    while at < stop:
        data, following, log_start = end.ask("fetch", fetched(place, at, "read_committed"))
        if log_start > at:
            at = start = log_start
            continue
        found += decode_batches(data, *place, start_offset=at)
        at = following
    return start, found


def _committed(end: Client, group: str) -> tuple[tuple[Place, int], ...]:
    found = end.ask("committed_offsets", lambda node: node.engine.committed_offsets(group))
    return tuple(sorted(((place.topic, place.partition), at.offset) for place, at in found.items()))


def _number(record: Record) -> int:
    return int((record.value or b"").rstrip(b"."))
