"""The small text files, byte for byte as a Kafka broker writes them."""

from __future__ import annotations

import pytest

from logstore.errors import DamagedStoreError, UnsupportedStoreVersionError
from logstore.log.checkpoints import decode_metadata, decode_pairs, encode_metadata, encode_pairs

# The forms of Kafka's CheckpointFile (every line ends) and PartitionMetadata.encode (the last one does not).
EPOCHS = b"0\n3\n0 0\n2 10\n5 25\n"
METADATA = b"version: 0\ntopic_id: 4I4Ud7ZZS3mzZ3q1kG1hJQ"
NONE = b"0\n0\n"


def test_epochs_byte_for_byte() -> None:
    assert encode_pairs([(0, 0), (2, 10), (5, 25)]) == EPOCHS
    assert decode_pairs(EPOCHS, "p") == [(0, 0), (2, 10), (5, 25)]
    assert encode_pairs([]) == NONE
    assert decode_pairs(NONE, "p") == []


def test_metadata_byte_for_byte() -> None:
    assert encode_metadata("4I4Ud7ZZS3mzZ3q1kG1hJQ") == METADATA
    assert decode_metadata(METADATA, "p") == "4I4Ud7ZZS3mzZ3q1kG1hJQ"
    assert decode_metadata(METADATA + b"\n", "p") == "4I4Ud7ZZS3mzZ3q1kG1hJQ"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0",
        b"0\n",
        b"0\nx\n",
        b"0\n2\n0 0\n",  # fewer than announced
        b"0\n1\n0 0\n1 5\n",  # more
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\na b\n",
        b"\n0\n",
        b"\xff\xfe",
    ],
)
def test_a_checkpoint_that_is_none(content: bytes) -> None:
    with pytest.raises((DamagedStoreError, UnsupportedStoreVersionError), match="/some/file"):
        decode_pairs(content, "/some/file")


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(UnsupportedStoreVersionError, match="/some/file has version '1'; 0 is supported"):
        decode_pairs(b"1\n0\n", "/some/file")
    with pytest.raises(UnsupportedStoreVersionError, match="version '7'"):
        decode_metadata(b"version: 7\ntopic_id: x\n", "p")


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 0\ntopic_id:\n", b"\x00\x01"])
def test_metadata_without_an_id(content: bytes) -> None:
    with pytest.raises(DamagedStoreError, match="/f is damaged: ") as caught:
        decode_metadata(content, "/f")
    assert caught.value.path == "/f"
