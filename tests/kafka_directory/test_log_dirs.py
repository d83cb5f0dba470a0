"""Several `log.dirs` of a broker as one, and what one of them alone says of the others."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

import logstore
from logstore.errors import (
    DamagedStoreError,
    ForeignDirectoryError,
    InvalidArgumentError,
    UnknownPartitionError,
)
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.golden_broker import expected, row_of, unpack

MOVED = ("codecs-1", "codecs-3", "plain-0", "trimmed-0")


class Dirs(NamedTuple):
    """``first`` has the metadata log, ``second`` the folders ``MOVED``."""

    first: Path
    second: Path


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    first, second = unpack("killed", tmp_path), tmp_path / "second"
    second.mkdir()
    shutil.copy(first / "meta.properties", second)
    names = [path.name for path in first.glob("*-checkpoint")]
    for name in MOVED:
        (first / name).rename(second / name)
    for name in names:  # each directory notes its own partitions
        lines = (first / name).read_text().splitlines()[2:]
        for root in (first, second):
            own = [line for line in lines if (root / "-".join(line.split()[:2])).is_dir()]
            (root / name).write_text("\n".join(["0", str(len(own)), *own, ""]))
    return Dirs(first, second)


def test_several_directories_are_read_as_one(dirs: Dirs, caplog: pytest.LogCaptureFixture) -> None:
    for order in (list(dirs), [str(root) for root in reversed(dirs)]):
        with logstore.open(order, mode="r") as store:
            for (topic, partition), seen in expected("killed").items():
                log = store.partition(topic, partition)
                assert (log.log_start_offset, log.log_end_offset) == (seen.start, seen.end)
                records = log.records(seen.start, isolation="read_uncommitted")
                assert [row_of(record) for record in records] == seen.records
            described = store.describe_topic("codecs")
            assert [row.partition for row in described.partitions] == [0, 1, 2, 3, 4]
            assert (described.missing, described.config_known) == ((), True)
            assert described.config["segment.index.bytes"] == "96"
            (row,) = store.admin.describe_group("readers").partitions
            assert (row.topic, row.end_offset) == ("plain", 48)
    assert caplog.text == ""


def test_the_directory_with_the_metadata_log_knows_what_it_lacks(
    dirs: Dirs, caplog: pytest.LogCaptureFixture
) -> None:
    with logstore.open(dirs.first, mode="r") as store:
        assert "codecs-1, codecs-3, plain-0, trimmed-0; open all directories of its log.dirs" in caplog.text
        assert caplog.records[0].levelno == logging.WARNING
        described = store.describe_topic("codecs")
        assert [row.partition for row in described.partitions] == [0, 2, 4]
        assert (described.missing, described.config_known) == ((1, 3), True)
        assert store.describe_topic("plain").missing == (0,)
        assert (
            store.describe_topic("plain").topic_id
            == (dirs.second / "plain-0" / "partition.metadata").read_text()[-22:]
        )
        with pytest.raises(UnknownPartitionError, match="here: 0, 2, 4"):
            store.partition("codecs", 3).bounds()
        group = store.admin.describe_group("readers")
        assert (group.partitions, group.lag) == ((), 0)
        assert group.elsewhere == {TopicPartition("plain", 0): OffsetAndMetadata(17, -1, "half way")}
        assert {found.topic for found in store.admin.find_hanging()} <= {"txn"}
        store.list_topics()
        assert len(caplog.records) == 1  # once, not at each look


def test_a_directory_without_the_metadata_log_says_what_it_does_not_know(
    dirs: Dirs, caplog: pytest.LogCaptureFixture
) -> None:
    with logstore.open(dirs.second, mode="r") as store:
        assert "codecs-0, codecs-2; settings and partition counts of topics are not known" in caplog.text
        described = store.describe_topic("codecs")
        assert [row.partition for row in described.partitions] == [1, 3]
        assert (described.missing, described.config, described.config_known) == ((0, 2), {}, False)
        assert "epochs" not in store.list_topics()


def test_a_partition_is_followed_to_another_directory(dirs: Dirs) -> None:
    with logstore.open(list(dirs), mode="r") as store:
        log = store.partition("codecs", 0)
        due = [record.offset for record in log.records(0)]
        (dirs.first / "codecs-0").rename(dirs.second / "codecs-0")
        assert [record.offset for record in log.records(0)] == due
        assert store.partition("codecs", 0).log_end_offset == 60


def test_directories_that_are_not_of_one_broker_are_refused(dirs: Dirs, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="mode='r'"):
        logstore.open(list(dirs))
    with pytest.raises(InvalidArgumentError, match="more than once"):
        logstore.open([dirs.first, dirs.first], mode="r")
    with pytest.raises(InvalidArgumentError):
        logstore.open([], mode="r")
    with pytest.raises(InvalidArgumentError):
        logstore.open([dirs.first, ":memory:"], mode="r")
    with logstore.open(tmp_path / "own") as store:
        store.create_topic("t")
    with pytest.raises(InvalidArgumentError, match="is a log store"):
        logstore.open([dirs.first, tmp_path / "own"], mode="r")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ForeignDirectoryError):
        logstore.open([dirs.first, tmp_path / "other"], mode="r")
    shutil.copytree(dirs.second / "plain-0", dirs.first / "plain-0")
    with pytest.raises(DamagedStoreError, match=r"both .* hold plain-0"):
        logstore.open(list(dirs), mode="r")
    properties = (dirs.second / "meta.properties").read_text()
    (dirs.second / "meta.properties").write_text(properties.replace("node.id=", "node.id=9"))
    with pytest.raises(InvalidArgumentError, match=r"two brokers: their node\.id"):
        logstore.open(list(dirs), mode="r")
