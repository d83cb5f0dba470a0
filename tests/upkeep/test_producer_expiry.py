"""Producer ids are forgotten after ``producer.id.expiration.ms``, however short the lives of the processes are."""

from __future__ import annotations

import pytest

from logstore.format.batch import encode_batch
from logstore.seams.memory_crash import KeepNothing
from logstore.store import LogStore
from tests.upkeep.test_cleaner import Desk

DAY_MS = 86_400_000
MINUTE_MS = 60_000


def send(
    store: LogStore, desk: Desk, producer_id: int, sequence: int = 0, *, at_ms: int | None = None
) -> int:
    data = encode_batch(
        [(None, b"v")],
        now_ms=desk.clock.wall_ms() if at_ms is None else at_ms,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return store.partition("t", 0).append_batch(data).offset


def known(store: LogStore) -> list[int]:
    with store._registry.get("t").using() as topic:
        return sorted(entry.producer_id for entry in topic.log(0).producers.states)


def minutes(desk: Desk, count: int, step_ms: int) -> None:
    """So many processes, each of which appends one plain record and ends."""
    for _ in range(count):
        desk.clock.advance(step_ms)
        with desk.open() as store:
            store.partition("t", 0).append([(None, b"x")])


def made(desk: Desk, config: dict[str, str] | None = None) -> None:
    with desk.open() as store:
        store.create_topic("t", 1, config or {})


@pytest.mark.parametrize("step_ms", [MINUTE_MS, DAY_MS // 4])
def test_ids_grow_old_over_processes_that_live_for_a_moment(step_ms: int) -> None:
    desk = Desk()
    made(desk, {"producer.id.expiration.ms": str(10 * step_ms)})
    with desk.open() as store:
        send(store, desk, 7)
    minutes(desk, 9, step_ms)
    with desk.open() as store:
        assert known(store) == [7]
        assert send(store, desk, 7) == 0, "the repeated batch is recognised in the last process, too"
    minutes(desk, 3, step_ms)
    with desk.open() as store:
        assert known(store) == []


def test_an_append_makes_an_id_young_again_whatever_its_records_times_are() -> None:
    desk = Desk()
    made(desk, {"producer.id.expiration.ms": str(10 * MINUTE_MS)})
    for sequence in range(4):
        with desk.open() as store:
            send(store, desk, 7, sequence, at_ms=1_000)  # records of 1970: an import
        minutes(desk, 6, MINUTE_MS)
    with desk.open() as store:
        assert known(store) == [7]
        assert send(store, desk, 7, 3, at_ms=1_000) == 3 * 7


@pytest.mark.parametrize("jump_ms", [400 * DAY_MS, -400 * DAY_MS])
def test_a_clock_set_wrong_makes_no_id_old(jump_ms: int) -> None:
    desk = Desk()
    made(desk)
    with desk.open() as store:
        send(store, desk, 7)
        desk.run(store, 2 * MINUTE_MS)
        desk.clock.jump_wall(jump_ms)
        desk.run(store, 2 * MINUTE_MS)
        assert known(store) == [7]
    desk.clock.jump_wall(-jump_ms)
    minutes(desk, 2, MINUTE_MS)
    with desk.open() as store:
        assert known(store) == [7]


@pytest.mark.parametrize("power_loss", [False, True])
def test_what_recovery_reads_again_is_as_young_as_the_recovery(power_loss: bool) -> None:
    desk = Desk()
    made(desk)
    store = desk.open()
    send(store, desk, 7, at_ms=1_000)
    store.abandon()
    if power_loss:
        desk.fs = desk.fs.crash(KeepNothing())
        desk.clock.reboot("boot-1")
    minutes(desk, 3, MINUTE_MS)
    with desk.open() as store:
        assert known(store) == [7]
        assert send(store, desk, 7, at_ms=1_000) == 0
    minutes(desk, 2, DAY_MS)
    with desk.open() as store:
        assert known(store) == []


def test_an_idle_topic_of_a_process_that_stays_forgets_them_too() -> None:
    desk = Desk()
    made(desk)
    with desk.open() as store:
        send(store, desk, 7)
        desk.run(store, 2 * MINUTE_MS)
        assert known(store) == [7]
        desk.clock.advance(DAY_MS)
        desk.run(store, 2 * MINUTE_MS)
        assert known(store) == []
    with desk.open() as store:
        assert known(store) == []
