"""Names in a partition's folder, sorted out."""

from __future__ import annotations

import pytest

from logstore.errors import UnsupportedStoreVersionError
from logstore.log.segments.listing import Listing


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def test_segments_indexes_and_leftovers() -> None:
    found = Listing.of(
        [
            name(20, ".log"),
            name(0, ".log"),
            name(0, ".index"),
            name(0, ".timeindex"),
            name(0, ".txnindex"),
            name(20, ".snapshot"),
            name(0, ".log") + ".cut-1700000000000",
            name(5, ".log") + ".deleted",
            name(5, ".index") + ".tmp",
            "leader-epoch-checkpoint",
            "leader-epoch-checkpoint.tmp",
            "partition.metadata",
            "0.log",
            "notes.txt",
        ],
        "/t-0",
    )
    assert found.bases == [0, 20]
    assert found.indexes == {(0, ".index"), (0, ".timeindex"), (0, ".txnindex"), (20, ".snapshot")}
    assert found.leftovers == [
        name(5, ".log") + ".deleted",
        name(5, ".index") + ".tmp",
        "leader-epoch-checkpoint.tmp",
    ]


@pytest.mark.parametrize("suffix", [".log.swap", ".timeindex.swap", ".index.swap"])
def test_segments_that_kafka_was_swapping_in_are_refused(suffix: str) -> None:
    with pytest.raises(UnsupportedStoreVersionError, match=r"/t-0/0{20}.*cleaning.*Kafka broker"):
        Listing.of([name(0, suffix)], "/t-0")


def test_what_an_unfinished_cleaning_left() -> None:
    names = [name(0, ".log"), name(0, ".log.cleaned"), name(0, ".index.cleaned"), name(0, ".swap")]
    found = Listing.of(names, "/t-0")
    assert found.bases == [0]
    assert found.leftovers == [name(0, ".log.cleaned"), name(0, ".index.cleaned")]


def test_an_empty_folder() -> None:
    assert Listing.of([], "/t-0") == Listing()
