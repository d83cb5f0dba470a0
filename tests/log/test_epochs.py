"""Leader epochs and where they start."""

from __future__ import annotations

from logstore.log.epochs import Epochs

TABLE = [(0, 0), (2, 10), (5, 25)]


def test_assign() -> None:
    epochs = Epochs()
    assert epochs.latest == -1
    assert epochs.assign(0, 0)
    assert not epochs.assign(0, 5)  # a batch of the same epoch
    assert epochs.assign(3, 7)
    assert not epochs.assign(2, 9)
    assert epochs.entries == ((0, 0), (3, 7))
    assert epochs.latest == 3


def test_an_epoch_without_records_goes() -> None:
    epochs = Epochs([(0, 0), (1, 8), (2, 8)])
    assert epochs.entries == ((0, 0), (2, 8))
    epochs.assign(4, 3)  # its records were cut away
    assert epochs.entries == ((0, 0), (4, 3))


def test_ends() -> None:
    epochs = Epochs(TABLE)
    assert [epochs.end_offset(epoch, 99) for epoch in (-1, 0, 1, 2, 4, 5, 6)] == [0, 10, 10, 25, 25, 99, 99]


def test_epoch_of_an_offset() -> None:
    epochs = Epochs([(1, 5), (2, 10)])
    assert [epochs.epoch_at(offset) for offset in (0, 4, 5, 9, 10, 1000)] == [-1, -1, 1, 1, 2, 2]


def test_truncate() -> None:
    epochs = Epochs(TABLE)
    assert not epochs.truncate(26)
    assert epochs.truncate(25)
    assert epochs.entries == ((0, 0), (2, 10))
    assert epochs.truncate(0)
    assert not epochs.entries
