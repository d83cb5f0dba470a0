"""Kind (e): the same once more, and later than the step after: batches, markers, snapshots that come again."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from logstore.errors import DuplicateSequenceError, LogStoreError, ProducerFencedError
from logstore.format.batch import encode_batch
from logstore.log.append_validation import split_checked
from logstore.log.owned_log import OwnedLog
from logstore.log.producers import producer_recovery, producer_state
from logstore.log.producers.producer_journal import ProducerJournal
from logstore.log.producers.producer_state import Marker, ProducerEntry, ProducerStates
from tests.log.logs import NOW_MS, Desk, batch
from tests.plants.hunts import once, seeded
from tests.plants.plant import Patch, plant


def _batch(sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False) -> bytes:
    return encode_batch(
        [(None, b"%d" % (sequence + number)) for number in range(count)],
        now_ms=NOW_MS,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def batches_again(seed: int) -> None:
    """Each of the last five batches may come again, one by one and many at once; so may they after a restart."""
    source = random.Random(seed)
    desk = Desk()
    log = desk.open()
    sent: list[tuple[bytes, int]] = []
    sequence = 0
    for _ in range(source.randrange(6, 12)):
        count = source.randrange(1, 4)
        data = _batch(sequence, count)
        sequence = (sequence + count) & producer_state.SEQUENCE_MASK
        sent.append((data, log.append(split_checked(data, "t-0")).base_offset))
    end = log.log_end_offset
    for data, offset in reversed(sent[-5:]):
        assert log.append(split_checked(data, "t-0")).base_offset == offset
    joined = b"".join(data for data, _ in sent[-3:])
    assert log.append(split_checked(joined, "t-0")).base_offset == sent[-3][1]
    assert log.log_end_offset == end
    try:
        log.append(split_checked(sent[0][0], "t-0"))
    except DuplicateSequenceError:
        pass
    else:
        raise AssertionError("a batch of long ago was taken once more")
    log.checkpoint()
    again = Desk(desk.fs).open(recovery_point=log.recovery_point)
    assert again.append(split_checked(sent[-1][0], "t-0")).base_offset == sent[-1][1]
    assert again.log_end_offset == end


def markers_again() -> None:
    """A marker that comes again after the next transaction began does not end that."""
    log = Desk().open()
    log.append(split_checked(_batch(0, transactional=True), "t-0"))
    marker = Marker(7, 1, 0, True, NOW_MS)
    log.append_marker(marker, once=True)
    _check_fenced(log)
    log.append(split_checked(_batch(0, epoch=1, transactional=True), "t-0"))
    start = log.log_end_offset - 1
    for _ in range(3):
        log.append_marker(marker, once=True)
    log.sync()
    assert log.log_end_offset == start + 1
    assert log.bounds().last_stable_offset == start
    _check_fenced(log)


def _check_fenced(log: OwnedLog) -> None:
    try:
        log.append(split_checked(_batch(1, transactional=True), "t-0"))
    except ProducerFencedError:
        return
    raise AssertionError("a batch of the former epoch was taken")


def snapshot_of_the_future(seed: int) -> None:
    """A log is cut behind a snapshot: what the snapshot says of later batches is not so."""
    source = random.Random(seed)
    desk = Desk()
    log = desk.open()
    for sequence in range(4):
        log.append(split_checked(_batch(sequence), "t-0"))
    log.checkpoint()
    point, path, size = log.recovery_point, f"/t-0/{0:020d}.log", log.end_position[1]
    for sequence in range(4, 7):
        log.append(split_checked(_batch(sequence), "t-0"))
    log.sync()
    pending = log.producers.take(log.log_end_offset)
    log.producers.store(pending, {0})
    file = desk.fs.open(path, "rw")
    file.truncate(size + source.randrange(1, 40))  # the first batch behind the checkpoint is torn
    file.close()
    again = Desk(desk.fs).open(recovery_point=point)
    assert again.log_end_offset == 4
    if seed % 2:
        landed = again.append(split_checked(_batch(4), "t-0"))
        assert (landed.base_offset, again.log_end_offset) == (4, 5), (
            f"what was lost is answered with {landed}"
        )
        return
    again.append(split_checked(batch(b"another's"), "t-0"))
    again.sync()
    third = Desk(desk.fs).open(recovery_point=point)
    landed = third.append(split_checked(_batch(4), "t-0"))
    assert landed.base_offset == 5, f"what was lost is answered with {landed}"


def numbers_go_round() -> None:
    """Sequences begin again behind 2^31 - 1, also in the middle of a batch."""
    log = Desk().open()
    last = 2**31 - 1
    try:
        for sequence, count in ((last - 2, 2), (last, 3), (2, 1)):
            data = _batch(sequence, count)
            offset = log.append(split_checked(data, "t-0")).base_offset
            assert log.append(split_checked(data, "t-0")).base_offset == offset
    except LogStoreError as error:
        raise AssertionError(f"sequences do not go round: {error}") from error


@plant("one batch remembered", "only the newest batch of a producer is known again", seeded(batches_again), 2)
def _(patch: Patch) -> None:
    init = ProducerEntry.__init__

    def planted(self: ProducerEntry, *arguments: Any, **settings: Any) -> None:
        init(self, *arguments, **settings)
        self.batches = deque(self.batches, 1)

    patch.setattr(ProducerEntry, "__init__", planted)


@plant("old repeats taken", "a batch of long ago counts as a new one", seeded(batches_again), 2)
def _(patch: Patch) -> None:
    check = producer_state._check_follows

    def planted(header: Any, epoch: int, last_sequence: int, where: str) -> None:
        try:
            check(header, epoch, last_sequence, where)
        except DuplicateSequenceError:
            return

    patch.setattr(producer_state, "_check_follows", planted)


@plant(
    "repeats known by their first number",
    "a longer batch counts as the shorter one",
    seeded(batches_again),
    3,
)
def _(patch: Patch) -> None:
    repeated = ProducerStates.repeated

    def planted(self: ProducerStates, headers: Any, where: str) -> Any:
        return repeated(self, headers, where)[:1]

    patch.setattr(ProducerStates, "repeated", planted)


@plant("snapshot not read", "after a restart no producer is known", seeded(batches_again), 2)
def _(patch: Patch) -> None:
    patch.setattr(producer_recovery, "decode_snapshot", lambda data, path, *more: [])


@plant("marker written again", "a marker that comes again ends the next transaction", once(markers_again), 1)
def _(patch: Patch) -> None:
    patch.setattr(ProducerJournal, "knows_epoch", lambda self, producer_id, epoch: False)


@plant(
    "epoch of a marker forgotten",
    "a marker of a newer epoch does not fence the older one",
    once(markers_again),
    1,
)
def _(patch: Patch) -> None:
    note_marker = ProducerStates.note_marker

    def planted(self: ProducerStates, marker: Marker, offset: int, seen_s: float = 0.0) -> None:
        entry = self.entry(marker.producer_id)
        epoch = marker.epoch if entry is None else entry.epoch
        note_marker(self, marker._replace(epoch=epoch), offset, seen_s)

    patch.setattr(ProducerStates, "note_marker", planted)


@plant(
    "snapshot of the future believed",
    "recovery takes the newest snapshot, whatever the log's end",
    seeded(snapshot_of_the_future),
    3,
)
def _(patch: Patch) -> None:
    newest = producer_recovery.newest_snapshot

    def planted(fs: Any, directory: str, offsets: Any, *more: Any) -> Any:
        del offsets
        there = [int(name[:20]) for name in fs.listdir(directory) if name.endswith(".snapshot")]
        found = newest(fs, directory, there, *more)
        return None if found is None else (found[0], min(found[1], 4))

    patch.setattr(producer_recovery, "newest_snapshot", planted)


@plant("sequences do not go round", "numbers go on behind 2^31 - 1", once(numbers_go_round), 1)
def _(patch: Patch) -> None:
    patch.setattr(producer_state, "SEQUENCE_MASK", 2**32 - 1)
