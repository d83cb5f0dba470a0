"""Two writers of one log, by turns: what the other appended is counted, and leaves the same files behind."""

from __future__ import annotations

import random

import pytest

from logstore.format.batch import encode_batch
from logstore.log.append_validation import own_batch
from logstore.log.owned_log import OwnedLog
from logstore.log.producers.producer_state import Marker
from logstore.seams.fs import read_file, write_all
from tests.log.logs import FOLDER, NOW_MS, Desk, append, values

SETTINGS = {"index_interval_bytes": 150, "segment_bytes": 1 << 20}


def pair() -> tuple[Desk, OwnedLog, OwnedLog]:
    first = Desk(**SETTINGS)
    one = first.open()
    append(one, b"0")
    one.sync()
    second = Desk(first.fs, **SETTINGS)
    return first, one, second.open(recovery_point=1, clean=True)


def follow(log: OwnedLog, other: OwnedLog) -> bool:
    return log.follow_to(other.log_end_offset, other.end_position[1])


@pytest.mark.parametrize("seed", range(8))
def test_by_turns_as_if_one_had_written_it_all(seed: int) -> None:
    source = random.Random(seed)
    desk, one, two = pair()
    alone_desk = Desk(**SETTINGS)
    alone = alone_desk.open()
    append(alone, b"0")
    alone.sync()
    epoch = 0
    for number in range(60):
        writer, reader = (one, two) if source.random() < 0.5 else (two, one)
        kind = source.random()
        for log in (writer, alone):
            if kind < 0.5:
                append(log, b"%d" % number * 20)
            elif kind < 0.8:
                rows = [(b"k", b"%d" % number)]
                entry = log.producers.entry(7)
                sequence = entry.last_sequence + 1 if entry is not None and entry.epoch == epoch else 0
                pending = encode_batch(
                    rows,
                    now_ms=NOW_MS,
                    producer_id=7,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
                log.append([own_batch(pending)])
            else:
                log.append_marker(Marker(7, epoch + 1, 0, number % 2 == 0, NOW_MS))
            log.sync()
        epoch += kind >= 0.8
        if writer.log_end_offset % 5 == 0 and source.random() < 0.5:
            writer.checkpoint()
        assert follow(reader, writer)
        assert reader.bounds() == writer.bounds() == alone.bounds()
        assert reader.end_position == writer.end_position
        states = [[entry.facts() for entry in log.producers.states] for log in (reader, writer, alone)]
        assert states[0] == states[1] == states[2]
        assert reader.aborted(0, 1000) == writer.aborted(0, 1000) == alone.aborted(0, 1000)
    assert values(one) == values(two) == values(alone)
    (two if seed % 2 else one).checkpoint()
    alone.checkpoint()
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path = f"{FOLDER}/{0:020d}{suffix}"
        assert read_file(desk.fs, path) == read_file(alone_desk.fs, path), suffix


def test_what_is_not_just_as_said_is_not_followed() -> None:
    desk, one, two = pair()
    append(one, b"1")
    one.sync()
    before = two.bounds()
    assert not two.follow_to(3, one.end_position[1])  # it holds one record, not two
    assert not two.follow_to(2, one.end_position[1] + 1)
    file = desk.fs.open(f"{FOLDER}/{0:020d}.log", "rw")
    write_all(file, [b"\xff"], one.end_position[1] - 2)
    assert not follow(two, one)
    assert two.bounds() == before
    append(two, b"own")
    assert not follow(two, one)  # what is its own is not synced yet
