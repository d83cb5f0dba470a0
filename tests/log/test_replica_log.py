"""A replica's log: what is durable here is not committed, and what is not committed can be cut off again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from logstore.errors import (
    DamagedStoreError,
    DiskFullError,
    FencedLeaderEpochError,
    InvalidRecordError,
    InvariantError,
    LogStoreError,
    PartitionPoisonedError,
)
from logstore.format.batch import encode_batch, iter_headers
from logstore.format.control import decode_control_batch
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.log_offsets import TermEnd
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.log.producers.row_counts import read_counts
from logstore.log.replica_log import ReplicaLog
from logstore.seams.faults import FaultKind, Operation, SimulatedCrash
from logstore.seams.fs import exists
from logstore.seams.memory_crash import KeepAll, KeepNothing
from tests.log.logs import FOLDER, NOW_MS, append, batch, checked, values
from tests.log.replicas import ReplicaDesk

LEADER_1 = [b"a", b"b", b"c", b"d"]


def followed(log: ReplicaLog, *rows: bytes, term: int = 1) -> None:
    for row in rows:
        log.append_as_follower(checked(batch(row, base_offset=log.log_end_offset, epoch=term)))


def transaction(log: ReplicaLog, value: bytes, sequence: int = 0, producer_id: int = 7) -> None:
    data = encode_batch(
        [(None, value)],
        now_ms=NOW_MS,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append(checked(data), term=log.leader_epoch)


def ended(log: ReplicaLog, commit: bool, producer_id: int = 7) -> None:
    log.append_marker(Marker(producer_id, 0, 0, commit, NOW_MS), term=log.leader_epoch)


# --- the three positions ---------------------------------------------------------------------------


def test_a_sync_commits_nothing() -> None:
    desk = ReplicaDesk()
    log = desk.start()
    followed(log, *LEADER_1)
    log.sync()
    assert (log.log_end_offset, log.flushed_offset, log.high_watermark) == (4, 4, 0)
    assert log.bounds().high_watermark == log.bounds().last_stable_offset == 0
    assert desk.published[-1][0] == 0, "other processes see none of it, either"


@pytest.mark.parametrize("visible_after", ["flush", "append"])
def test_no_setting_of_the_topic_commits_anything(visible_after: str) -> None:
    log = ReplicaDesk(visible_after=visible_after).start()
    followed(log, b"a")
    log.sync()
    log.roll_idle()
    assert log.high_watermark == 0


def test_a_follower_that_synced_beyond_the_commit_index_shows_nothing_of_it_cuts_it_off_and_goes_on() -> None:
    desk = ReplicaDesk(segment_bytes=160, index_interval_bytes=0)
    log = desk.start()
    followed(log, *LEADER_1)
    log.sync()
    log.advance_high_watermark(2)
    assert values(log, end=log.bounds().high_watermark) == [b"a", b"b"]
    log.truncate_to(2)  # the new leader of term 2 has two records of term 1
    followed(log, b"C", b"D", b"E", term=2)
    log.sync()
    assert log.advance_high_watermark(5) == 5
    assert values(log) == [b"a", b"b", b"C", b"D", b"E"]
    assert [log.term_at(offset) for offset in range(6)] == [1, 1, 2, 2, 2, -1]
    desk.stop()
    assert values(ReplicaDesk(desk.fs).start()) == [b"a", b"b", b"C", b"D", b"E"]


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_restarted_follower_shows_what_was_committed_and_keeps_its_term(power_loss: bool) -> None:
    desk = ReplicaDesk(segment_bytes=160)
    log = desk.start()
    followed(log, *LEADER_1)
    log.append_leader_change(3, leader_id=9, voters=[7, 8, 9])
    log.sync()
    log.advance_high_watermark(2)
    desk.save()
    fs = desk.fs.crash(KeepNothing()) if power_loss else desk.fs.process_crash()
    again = ReplicaDesk(fs, boot="boot-1" if power_loss else "boot-0").start()
    assert again.leader_epoch == 3, "no term that nobody elected"
    assert again.epochs.entries == log.epochs.entries == ((1, 0), (3, 4))
    assert (again.log_end_offset, again.high_watermark) == (5, 2)
    followed(again, b"e", term=3)
    again.truncate_to(2)
    followed(again, b"x", term=4)
    assert values(again) == [b"a", b"b", b"x"]


def test_a_term_whose_records_are_lost_is_no_term_of_the_log() -> None:
    desk = ReplicaDesk()
    log = desk.start()
    followed(log, b"a")
    log.sync()
    log.append_leader_change(2, leader_id=0, voters=[0])
    again = ReplicaDesk(desk.fs.crash(KeepNothing()), boot="boot-1").start()
    assert (again.log_end_offset, again.leader_epoch) == (1, 1)
    followed(again, b"of another leader", term=1)
    assert again.term_at(1) == 1


def test_the_high_watermark_never_goes_back_nor_past_the_end_nor_into_a_batch() -> None:
    log = ReplicaDesk(tail_cache_bytes=0).start()
    followed(log, b"a")
    log.append_as_follower(checked(batch(b"b", b"c", b"d", base_offset=1, epoch=1)))
    followed(log, b"e")
    assert [log.advance_high_watermark(offset) for offset in (1, 0, 3, 4, 2, 99)] == [1, 1, 1, 4, 4, 5]


def test_waiters_hear_of_commits_and_not_of_syncs() -> None:
    log = ReplicaDesk().start()
    heard: list[int] = []

    class Ear:
        def set(self) -> None:
            heard.append(log.high_watermark)

    log.subscribe(Ear())
    followed(log, b"a", b"b")
    log.sync()
    assert heard == []
    log.advance_high_watermark(1)
    assert heard == [1]


# --- terms -----------------------------------------------------------------------------------------


def test_a_leader_names_its_term_and_is_fenced_by_a_newer_one() -> None:
    log = ReplicaDesk().start()
    log.append_leader_change(4, leader_id=1, voters=[1, 2, 3])
    log.append(checked(batch(b"a")), term=4)
    with pytest.raises(FencedLeaderEpochError) as caught:
        log.append(checked(batch(b"b")), term=3)
    assert (caught.value.term, caught.value.newest_term) == (3, 4)
    with pytest.raises(FencedLeaderEpochError):
        log.append_marker(Marker(7, 0, 0, True, NOW_MS), term=3)
    for term in (3, 4):
        with pytest.raises(FencedLeaderEpochError):
            log.append_leader_change(term, leader_id=1, voters=[1])
    assert values(log) == [b"a"]
    assert log.epochs.entries == ((4, 0),)


def test_what_a_leader_change_says() -> None:
    log = ReplicaDesk(tail_cache_bytes=0).start()
    log.append_leader_change(5, leader_id=2, voters=[1, 2, 3])
    chunk = log.read(0, 1 << 20, 1)
    assert chunk is not None
    ((position, header),) = list(iter_headers(chunk.data))
    record = decode_control_batch(chunk.data, position, header)
    assert (header.leader_epoch, header.is_control, record.type) == (5, True, 2)
    ids = b"".join(bytes([0, 0, 0, voter, 0]) for voter in (1, 2, 3))
    assert record.value == b"\x00\x00" + b"\x00\x00\x00\x02" + b"\x04" + ids + b"\x01" + b"\x00"
    assert values(log) == [], "no reader of records sees it"


def test_ends_of_terms() -> None:
    log = ReplicaDesk().start()
    assert log.end_of_term(3) == TermEnd(-1, 0)
    followed(log, b"a", b"b", term=1)
    followed(log, b"c", term=4)
    assert [log.end_of_term(term) for term in range(6)] == [
        TermEnd(-1, 0),
        TermEnd(1, 2),
        TermEnd(1, 2),
        TermEnd(1, 2),
        TermEnd(4, 3),
        TermEnd(4, 3),
    ]


def test_a_follower_refuses_gaps_steps_back_and_older_terms() -> None:
    log = ReplicaDesk().start()
    followed(log, b"a", term=2)
    for offset, term in ((2, 2), (0, 2), (1, 1)):
        with pytest.raises(InvalidRecordError, match="as follower"):
            log.append_as_follower(checked(batch(b"b", base_offset=offset, epoch=term)))
    assert values(log) == [b"a"]


@pytest.mark.parametrize("noted", [2, 3])
def test_an_epoch_whose_first_record_the_disk_refused_gives_way_to_an_older_leaders_records(
    noted: int,
) -> None:
    desk = ReplicaDesk()
    log = desk.start()
    followed(log, b"a")
    desk.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends=".log")
    with pytest.raises(DiskFullError):
        log.append_leader_change(noted, leader_id=0, voters=[0])
    assert log.epochs.entries == ((1, 0), (noted, 1)), "noted before its record"
    desk.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends=f"{EPOCHS_FILE}.tmp")
    with pytest.raises(DiskFullError):
        followed(log, b"b", term=noted - 1)
    assert log.epochs.entries == ((1, 0), (noted, 1)), "as its file has them"
    followed(log, b"b", term=noted - 1)
    log.sync()
    again = ReplicaDesk(desk.fs.crash(KeepNothing()), boot="boot-1").start()
    for one in (log, again):
        assert (one.log_end_offset, one.term_at(1), one.leader_epoch) == (2, noted - 1, noted - 1)
    with pytest.raises(InvalidRecordError, match="as follower"):
        followed(again, b"c", term=noted - 2)


def test_an_epoch_without_a_record_gives_way_after_a_restart_too() -> None:
    desk = ReplicaDesk()
    log = desk.start()
    followed(log, b"a")
    log.sync()
    desk.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends=".log")
    with pytest.raises(DiskFullError):
        log.append_leader_change(3, leader_id=0, voters=[0])
    again = ReplicaDesk(desk.fs.crash(KeepNothing()), boot="boot-1").start()
    followed(again, b"b", term=2)
    assert (again.log_end_offset, again.term_at(1), again.leader_epoch) == (2, 2, 2)


# --- truncation ------------------------------------------------------------------------------------


def test_never_below_the_high_watermark() -> None:
    log = ReplicaDesk().start()
    followed(log, *LEADER_1)
    log.advance_high_watermark(3)
    with pytest.raises(InvariantError, match="truncated to 2, below the high watermark 3"):
        log.truncate_to(2)
    log.truncate_to(3)
    assert log.log_end_offset == 3
    append(log, b"goes on")


def test_transactions_end_for_readers_only_when_their_markers_are_committed() -> None:
    desk = ReplicaDesk(segment_bytes=200)
    log = desk.start()
    transaction(log, b"1")
    ended(log, False)
    transaction(log, b"2", 1)
    ended(log, True)
    log.checkpoint()
    log.advance_high_watermark(1)
    assert log.bounds().last_stable_offset == 0
    log.advance_high_watermark(3)
    assert log.bounds().last_stable_offset == 2
    log.advance_high_watermark(4)
    assert log.bounds().last_stable_offset == 4


def test_a_truncated_marker_opens_its_transaction_again() -> None:
    """Also where the marker lies before a checkpoint, whose snapshot knows only of open transactions."""
    desk = ReplicaDesk()
    log = desk.start()
    transaction(log, b"1")
    log.advance_high_watermark(1)
    ended(log, False)
    log.checkpoint()
    desk.save()
    assert [row.first_offset for row in log.aborted(0, 9)] == [0]
    for replica in (log, ReplicaDesk(desk.fs.clone().process_crash()).start()):
        assert replica.bounds().last_stable_offset == 0
        replica.truncate_to(1)
        assert replica.aborted(0, 9) == []
        assert replica.producers.states.open_transactions() == {7: 0}
        ended(replica, True)
        replica.advance_high_watermark(9)
        assert replica.bounds().last_stable_offset == 2


def test_cut_into_the_middle_of_a_batch_the_aborted_transactions_behind_it_go_too() -> None:
    log = ReplicaDesk().start()
    transaction(log, b"1")
    log.append_as_follower(checked(batch(b"b", b"c", b"d", base_offset=1, epoch=0)))
    ended(log, False)
    assert len(log.aborted(0, 9)) == 1
    log.truncate_to(2)
    assert (log.log_end_offset, log.aborted(0, 9)) == (1, [])


def test_rows_of_the_transaction_index_that_were_cut_are_not_missed() -> None:
    desk = ReplicaDesk()
    log = desk.start()
    followed(log, b"a")
    log.advance_high_watermark(1)
    transaction(log, b"1")
    ended(log, False)
    log.roll_idle()
    assert read_counts(desk.fs, FOLDER) == {0: 1}
    log.truncate_to(1)
    assert read_counts(desk.fs, FOLDER) == {}
    followed(log, b"b")
    log.roll_idle()
    assert log.aborted(0, 9) == []
    again = ReplicaDesk(desk.fs.crash(KeepNothing()), boot="boot-1").start()
    assert (again.aborted(0, 9), values(again)) == ([], [b"a", b"b"])


def test_a_truncated_log_is_clean_no_further_than_it_goes() -> None:
    log = ReplicaDesk().start()
    followed(log, *LEADER_1)
    log.cleaner_point = 4
    log.truncate_to(2)
    assert log.cleaner_point == log.log_end_offset == 2


def test_a_truncated_sequence_may_come_again() -> None:
    log = ReplicaDesk().start()
    transaction(log, b"1")
    log.checkpoint()
    transaction(log, b"2", 1)
    log.checkpoint()
    log.truncate_to(1)
    entry = log.producers.entry(7)
    assert entry is not None
    assert entry.last_sequence == 0
    transaction(log, b"another", 1)
    assert values(log) == [b"1", b"another"]


def test_producers_before_a_truncation_are_known_after_a_restart() -> None:
    """Where none had state at an offset that was cut off, they may have had some before."""
    desk = ReplicaDesk(producer_expiration_ms=1)
    log = desk.start()
    data = encode_batch([(None, b"v")], now_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=5)
    log.append(checked(data), term=1)
    followed(log, b"a")
    desk.clock.advance(1_000)
    assert log.expire_producers(desk.clock.wall_ms()) == 1
    log.checkpoint()  # none has state at offset 2
    assert log.producers.no_producers_at == 2
    log.truncate_to(1)
    desk.clock.advance(-1_000)
    desk.save()
    again = ReplicaDesk(desk.fs.process_crash()).start()
    entry = again.producers.entry(7)
    assert entry is not None
    assert entry.last_sequence == 5


@pytest.mark.parametrize("keep", [KeepNothing(), KeepAll()], ids=["nothing", "all"])
def test_a_truncation_cut_short_anywhere_leaves_a_log_that_goes_on(keep: object) -> None:
    """The recovery point was past the cut: it is lowered durably before anything goes."""

    def written() -> tuple[ReplicaDesk, ReplicaLog]:
        desk = ReplicaDesk(segment_bytes=160, index_interval_bytes=0)
        log = desk.start()
        followed(log, *LEADER_1, *LEADER_1)
        followed(log, b"x", b"y", term=2)
        log.advance_high_watermark(3)
        log.checkpoint()
        desk.save()
        return desk, log

    desk, log = written()
    before = desk.fs.faults.calls
    log.truncate_to(3)
    calls = desk.fs.faults.calls - before
    assert calls > 10
    full, ends = [*LEADER_1, *LEADER_1, b"x", b"y"], set()
    for number in range(1, calls + 1):
        desk, log = written()
        desk.fs.faults.at(desk.fs.faults.calls + number, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            log.truncate_to(3)
        again = ReplicaDesk(desk.fs.crash(keep), boot="boot-1", segment_bytes=160).start()  # type: ignore[arg-type]
        end = again.log_end_offset
        ends.add(end)
        assert again.high_watermark == 3 <= end
        assert values(again) == full[:end]
        assert again.leader_epoch == (2 if end > 8 else 1)
        again.truncate_to(3)
        followed(again, b"new", term=3)
        assert values(again) == [b"a", b"b", b"c", b"new"]
    assert {3, 10} <= ends


def test_a_replica_that_lost_what_was_committed_is_refused() -> None:
    desk = ReplicaDesk()
    log = desk.start()
    followed(log, *LEADER_1)
    log.sync()
    log.advance_high_watermark(4)
    desk.save()
    assert log.recovery_point == 0, "no checkpoint yet: the high watermark alone says that it was durable"
    path = f"{FOLDER}/{0:020d}.log"
    file = desk.fs.open(path, "rw")
    file.truncate(file.size() - 70)
    file.sync()
    with pytest.raises(DamagedStoreError, match="records up to 4 were durable"):
        ReplicaDesk(desk.fs, boot="boot-1").start()


# --- snapshots -------------------------------------------------------------------------------------

PRODUCER = ProducerEntry(7, 3, [], 2, -1)
EPOCHS = [(1, 0), (2, 30), (5, 80), (6, 100)]


def test_a_snapshot_takes_the_logs_place() -> None:
    desk = ReplicaDesk(segment_bytes=160)
    log = desk.start()
    followed(log, *LEADER_1)
    chunk = log.read(0, 1 << 20, 4)
    assert chunk is not None
    log.advance_high_watermark(2)
    log.install_snapshot(100, [PRODUCER], EPOCHS)
    assert log.bounds() == (100, 100, 100, 100, 5)
    assert bytes(chunk.data), "what was lent outlives the files"
    for replica in (log, ReplicaDesk(desk.fs.clone().crash(KeepNothing()), boot="boot-1").start()):
        assert replica.bounds() == (100, 100, 100, 100, 5)
        assert replica.epochs.entries == ((1, 0), (2, 30), (5, 80))
        entry = replica.producers.entry(7)
        assert entry is not None
        assert entry.epoch == 3
        followed(replica, b"first", term=6)
        assert values(replica, 100) == [b"first"]
        assert replica.term_at(100) == 6
    with pytest.raises(InvariantError, match="must not take back"):
        log.install_snapshot(99, [], [])


@pytest.mark.parametrize("keep", [KeepNothing(), KeepAll()], ids=["nothing", "all"])
def test_an_installation_cut_short_anywhere_leaves_the_old_log_or_the_new(keep: object) -> None:
    def written() -> tuple[ReplicaDesk, ReplicaLog]:
        desk = ReplicaDesk(segment_bytes=160, index_interval_bytes=0)
        log = desk.start()
        followed(log, *LEADER_1)
        log.checkpoint()
        log.advance_high_watermark(2)
        desk.save()
        return desk, log

    desk, log = written()
    before = desk.fs.faults.calls
    log.install_snapshot(100, [PRODUCER], EPOCHS)
    calls = desk.fs.faults.calls - before
    starts = set()
    for number in range(1, calls + 1):
        desk, log = written()
        desk.fs.faults.at(desk.fs.faults.calls + number, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            log.install_snapshot(100, [PRODUCER], EPOCHS)
        again = ReplicaDesk(desk.fs.crash(keep), boot="boot-1", segment_bytes=160)  # type: ignore[arg-type]
        for _ in range(2):  # opened and killed at once, nothing changes
            replica = again.start()
            starts.add(replica.log_start_offset)
            again = ReplicaDesk(again.fs.crash(keep), boot="boot-2", segment_bytes=160)  # type: ignore[arg-type]
        log = again.start()
        if log.log_start_offset == 0:
            assert (values(log), log.leader_epoch, log.high_watermark) == (LEADER_1, 1, 2)
            log.install_snapshot(100, [PRODUCER], EPOCHS)
        assert (log.bounds(), log.epochs.entries) == ((100, 100, 100, 100, 5), ((1, 0), (2, 30), (5, 80)))
        followed(log, b"n", term=6)
        log.sync()
        last = ReplicaDesk(again.fs.crash(KeepNothing()), boot="boot-3")
        assert values(last.start(), 100) == [b"n"]
        assert not exists(last.fs, f"{FOLDER}/install-snapshot")
    assert starts == {0, 100}


def test_an_installation_that_the_disk_refuses_poisons_the_log() -> None:
    desk = ReplicaDesk()
    log = desk.start()
    followed(log, b"a")
    desk.fs.faults.on("remove", FaultKind.EIO, path_ends=".log")
    with pytest.raises(LogStoreError, match="install a snapshot"):
        log.install_snapshot(5, [], [])
    assert log.poisoned
    assert ReplicaDesk(desk.fs.process_crash()).start().bounds() == (5, 5, 5, 5, -1)


@pytest.mark.parametrize("what", ["truncation", "installation"])
def test_an_interrupt_at_any_call_leaves_a_log_as_it_was_or_one_that_accepts_nothing_more(what: str) -> None:
    def act(log: ReplicaLog) -> None:
        if what == "truncation":
            log.truncate_to(3)
        else:
            log.install_snapshot(100, [PRODUCER], EPOCHS)

    number = poisoned = 0
    while True:
        number += 1
        desk = ReplicaDesk(segment_bytes=160, index_interval_bytes=0)
        log = desk.start()
        followed(log, *LEADER_1, *LEADER_1)
        log.advance_high_watermark(3)
        log.checkpoint()
        desk.save()
        calls = count()

        def interrupt(_: Operation, calls: Iterator[int] = calls, at: int = number) -> None:
            if next(calls) == at:
                raise KeyboardInterrupt

        desk.fs.faults.observer = interrupt
        try:
            act(log)
        except KeyboardInterrupt:
            desk.fs.faults.observer = None
        else:
            break
        if log.poisoned:
            poisoned += 1
            with pytest.raises(PartitionPoisonedError, match=f"{what} of .* was cut short by Keyb"):
                followed(log, b"no")
        else:
            assert values(log) == [*LEADER_1, *LEADER_1]
            act(log)
        again = ReplicaDesk(desk.fs.process_crash()).start()
        assert again.high_watermark in (3, 100)
        act(again)
        followed(again, b"new", term=9)
        assert values(again, again.log_end_offset - 1) == [b"new"]
    assert number > 10
    assert poisoned > 5
