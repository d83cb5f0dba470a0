"""The checker is checked: each promise broken on purpose is found, and a clean history raises nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from logstore.format.batch import encode_batch, stamp
from logstore.seams.memory_fs import MemoryFileSystem
from tests.sim import model as rules
from tests.sim.model import Model, PartitionModel, Place, Row, Violation, rows_of
from tests.sim.on_disk import check_indexes, reference_indexes

PLACE = Place("t", 0)
FIRST, SECOND, THIRD = (rows_of(number, 1, 8, 1_000)[0] for number in range(3))


def history() -> PartitionModel:
    """Two records, the first durable; a third is in flight."""
    mine = PartitionModel()
    for row, acks in ((FIRST, "all"), (SECOND, 1)):
        mine.in_flight = (row,)
        mine.appended(len(mine.rows), 3, acks)
    mine.saw_ends(1, 2, promises=True)
    mine.in_flight = (THIRD,)
    return mine


@pytest.mark.parametrize("found", [[FIRST], [FIRST, SECOND], [FIRST, SECOND, THIRD]])
def test_whatever_a_power_loss_may_leave_is_accepted(found: list[Row]) -> None:
    history().check_survivors(found, power_loss=True)


@pytest.mark.parametrize(
    ("found", "power_loss", "rule"),
    [
        ([], True, rules.ACKED_SURVIVES),
        ([SECOND], True, rules.ACKED_SURVIVES),
        ([FIRST, THIRD], True, rules.NOTHING_INVENTED),
        ([FIRST, SECOND, SECOND], True, rules.NOTHING_INVENTED),
        ([FIRST, SECOND, THIRD, THIRD], True, rules.NOTHING_INVENTED),
        ([FIRST], False, rules.ACKED_SURVIVES),
    ],
)
def test_what_it_may_not_leave_is_found(found: list[Row], power_loss: bool, rule: str) -> None:
    with pytest.raises(Violation) as broken:
        history().check_survivors(found, power_loss=power_loss)
    assert broken.value.rule == rule


def test_a_record_that_was_shown_may_not_go() -> None:
    mine = history()
    mine.saw_ends(2, 2, promises=True)
    with pytest.raises(Violation) as broken:
        mine.check_survivors([FIRST], power_loss=True)
    assert broken.value.rule == rules.WATERMARK_SAFE


@pytest.mark.parametrize(
    "look",
    [
        lambda mine: mine.saw_ends(0, 2, promises=True),  # below what was acknowledged
        lambda mine: mine.saw_ends(3, 2, promises=True),  # past the end
        lambda mine: mine.check_shown([], 0),  # less than was shown before
        lambda mine: mine.check_shown([FIRST], 2),  # promised, not there
    ],
)
def test_a_wrong_watermark_is_found(look: Callable[[PartitionModel], None]) -> None:
    with pytest.raises(Violation) as broken:
        look(history())
    assert broken.value.rule == rules.WATERMARK_SAFE


def test_a_watermark_that_goes_back_is_found() -> None:
    mine = history()
    mine.saw_ends(2, 2, promises=True)
    mine.durable = 0
    with pytest.raises(Violation, match="went from 2 to 1"):
        mine.saw_ends(1, 2, promises=True)


@pytest.mark.parametrize(
    ("do", "rule"),
    [
        (lambda mine: mine.saw_ends(1, 3, promises=True), rules.NOTHING_INVENTED),
        (lambda mine: mine.appended(1, 3, "all"), rules.ACKED_SURVIVES),
        (lambda mine: mine.appended(2, 2, "all"), rules.EPOCH_GROWS),
        (lambda mine: mine.name(1, 3, [THIRD]), rules.EPOCH_GROWS),
    ],
)
def test_wrong_answers_are_found(do: Callable[[PartitionModel], None], rule: str) -> None:
    with pytest.raises(Violation) as broken:
        do(history())
    assert broken.value.rule == rule


def test_other_records_at_lost_offsets_need_a_new_epoch() -> None:
    mine = history()
    mine.adopt([FIRST], power_loss=True)
    mine.in_flight = (THIRD,)
    mine.appended(1, 4, 1)
    mine.adopt([FIRST], power_loss=True)
    with pytest.raises(Violation) as broken:
        mine.name(1, 4, [SECOND])
    assert broken.value.rule == rules.EPOCH_GROWS


def test_a_failed_append_may_show_after_a_crash_at_its_place_only() -> None:
    mine = history()
    mine.refuse(2, poisoned=False)
    mine.check_survivors([FIRST, SECOND, THIRD], power_loss=True)
    with pytest.raises(Violation):
        mine.check_survivors([FIRST, THIRD], power_loss=True)


def test_a_batch_that_is_there_in_part_is_found() -> None:
    mine = history()
    mine.in_flight = rows_of(2, 3, 8, 1_000)
    with pytest.raises(Violation) as broken:
        mine.check_survivors([FIRST, SECOND, THIRD], power_loss=True)
    assert broken.value.rule == rules.NOTHING_INVENTED


def test_rows_of_several_batches_may_be_there_in_part() -> None:
    mine = history()
    mine.in_flight, mine.batch_limit_bytes = rows_of(2, 3, 8, 1_000), 50
    mine.check_survivors([FIRST, SECOND, THIRD], power_loss=True)


def test_topics_and_commits() -> None:
    model = Model()
    model.creating = "a"
    model.check_topics(["a"])
    model.check_topics([])
    model.created("a", 1)
    model.committing = {PLACE: 5}
    model.check_commits({})
    model.check_commits({PLACE: 5})
    assert model.committed == {PLACE: 5}
    for found in ({}, {PLACE: 4}, {PLACE: 5, Place("t", 1): 0}):
        with pytest.raises(Violation) as broken:
            model.check_commits(found)
        assert broken.value.rule == rules.COMMITS_SURVIVE
    for names, rule in (([], rules.TOPICS_SURVIVE), (["a", "b"], rules.NOTHING_INVENTED)):
        with pytest.raises(Violation) as broken:
            model.check_topics(names)
        assert broken.value.rule == rule


def test_a_copy_is_apart_and_has_the_same_signature() -> None:
    model = Model()
    model.created("t", 1)
    model.partitions[PLACE].in_flight = (FIRST,)
    twin = model.copy()
    assert twin == model
    assert twin.signature() == model.signature()
    twin.partitions[PLACE].appended(0, 0, "all")
    assert model.partitions[PLACE].rows == []
    assert twin.signature() != model.signature()


def a_partition() -> tuple[MemoryFileSystem, str]:
    """A folder with one segment of ten batches and its indexes."""
    fs, folder = MemoryFileSystem(), "/t-0"
    log = b""
    for offset in range(10):
        batch = encode_batch([(None, b"v" * 50)], now_ms=1_000 + offset)
        log += stamp(batch, offset, 0) + batch[16:]
    offsets, times = reference_indexes(log, 0, 200)
    fs.mkdir(folder)
    for suffix, content in ((".log", log), (".index", offsets), (".timeindex", times)):
        fs.open(f"{folder}/{0:020d}{suffix}", "create").pwritev([content], 0)
    return fs, folder


def test_reference_indexes_follow_the_rule() -> None:
    fs, folder = a_partition()
    assert check_indexes(fs, folder, 200) == 1
    content = fs.open(f"{folder}/{0:020d}.index", "r").pread(1_000, 0)
    assert [offset for offset, _ in struct.iter_unpack(">ii", content)] == [2, 4, 6, 8]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["changed", "shorter", "longer", "missing", "stranger"])
def test_a_wrong_index_is_found(suffix: str, damage: str) -> None:
    fs, folder = a_partition()
    path = f"{folder}/{0:020d}{suffix}"
    file = fs.open(path, "rw")
    if damage == "changed":
        file.pwritev([b"\x01"], 3)
    elif damage == "shorter":
        file.truncate(file.size() - 4)
    elif damage == "longer":
        file.pwritev([bytes(12)], file.size())
    elif damage == "missing":
        fs.remove(path)
    else:
        fs.open(f"{folder}/{7:020d}{suffix}", "create")
    with pytest.raises(Violation) as broken:
        check_indexes(fs, folder, 200)
    assert broken.value.rule == rules.INDEXES
