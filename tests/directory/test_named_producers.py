"""Which ids a named producer has had, and what they say of a partition."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.directory.named_producers import (
    LAST_EPOCH,
    SEQUENCE_MASK,
    NamedProducer,
    validate_producer_name,
)
from logstore.errors import InvalidArgumentError


@pytest.mark.parametrize("name", ["a", "import-flights", "A.b_c-9", "x" * 249])
def test_good_names(name: str) -> None:
    validate_producer_name(name)


@pytest.mark.parametrize("name", ["", "x" * 250, "a/b", "a b", "ü", "a\n", "a\0", 5, None, b"a"])
def test_bad_names(name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot name a producer"):
        validate_producer_name(name)


def test_each_opening_has_an_epoch_of_its_own() -> None:
    entry = NamedProducer(name="n")
    seen = []
    for _ in range(LAST_EPOCH + 3):
        entry = entry.reopened()
        seen.append((entry.generation, entry.epoch))
    assert len(set(seen)) == len(seen)
    assert seen[0] == (0, 0)
    assert seen[-3:] == [(0, LAST_EPOCH), (1, 0), (1, 1)]


def test_ids_are_those_of_the_generation() -> None:
    entry = NamedProducer(name="n", epoch=LAST_EPOCH).with_id(0, 7).with_id(1, 9)
    assert (entry.id_of(0), entry.id_of(1), entry.id_of(2)) == (7, 9, None)
    entry = entry.reopened()
    assert entry.id_of(0) is None
    assert entry.with_id(1, 12).id_of(1) == 12


def test_records_are_counted_past_every_id() -> None:
    entry = NamedProducer(name="n", epoch=LAST_EPOCH).with_id(0, 7).with_id(1, 9).reopened().with_id(1, 12)
    whole = SEQUENCE_MASK + 1
    assert entry.records_in({}) == 0
    assert entry.records_in({7: -1}) == 0
    assert entry.records_in({7: 0}) == 1
    assert entry.records_in({7: SEQUENCE_MASK}) == whole
    assert entry.records_in({7: SEQUENCE_MASK, 9: 4}) == whole + 5
    assert entry.records_in({7: SEQUENCE_MASK, 9: 4, 12: 6}) == whole + 7
    assert entry.records_in({12: 6}) == whole + 7  # what the others said may be long gone
