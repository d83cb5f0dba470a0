"""A reader in its own process follows a writer through rolls, retention, compaction and an erasure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logstore.store import LogStore
from tests.integration.churn import ERASED, ERASED_BEFORE, Witness, row
from tests.integration.churn_jobs import CONFIG, PARTITIONS, TOPIC
from tests.worker_process import Worker

_JOBS = "tests.integration.churn_jobs"


@pytest.mark.parametrize(
    ("seed", "least_s"), [(3, 2), pytest.param(4, 150, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_no_gap_that_is_not_reported_and_never_a_wrong_value(
    tmp_path: Path, workers: list[Worker], seed: int, least_s: float
) -> None:
    root = str(tmp_path / "store")
    with LogStore(root) as store:
        store.create_topic(TOPIC, PARTITIONS, CONFIG)
    workers.append(reader := Worker("read", root, seed, module=_JOBS))
    reader.expect("ready")
    workers.append(writer := Worker("write", root, seed, least_s, module=_JOBS))
    for worker in (writer, reader):  # however fast one of them is, and the other slow
        worker.expect("enough", patience_s=least_s + 90)
    assert writer.process.stdin is not None
    writer.process.stdin.close()
    done = json.loads(writer.expect("done").partition(" ")[2])
    assert writer.finish() == 0
    assert reader.process.stdin is not None
    reader.process.stdin.close()
    saw = json.loads(reader.expect("saw").partition(" ")[2])
    assert reader.finish() == 0
    print(f"seed {seed}: wrote {done}, read {saw}")
    assert min(done["starts"]) > 0, "retention took something"
    assert done["cleanings"] >= 12
    assert done["erased"] > 0
    assert saw["keys"] > 300
    with LogStore(root, "r") as store:
        for partition, end in enumerate(done["ends"]):
            assert store.partition(TOPIC, partition).high_watermark == end


def _records(offsets: list[int]) -> list[tuple[int, bytes, bytes | None]]:
    return [(offset, *row(1, 0, offset)) for offset in offsets]


def test_the_witness_lets_pass_what_is_right() -> None:
    witness = Witness(1, 0)
    witness.grow(400)
    keys = [row(1, 0, offset)[0] for offset in range(400)]
    replaced = [offset for offset in range(400) if keys[offset] in keys[offset + 1 :]]
    left = [offset for offset in range(400) if offset not in replaced]
    assert witness.look(0, _records(list(range(400))), 400) == 400
    assert witness.look(0, _records(left), 400) == 400
    assert witness.look(witness.lost(0, 100), _records(list(range(100, 400))), 400) == 400
    assert witness.check_state(_records([at for at in left if keys[at] not in ERASED]), 0) > 100
    assert (witness.faults, witness.legal, witness.reported) == ([], len(replaced), [(0, 100)])
    witness.grow(ERASED_BEFORE)
    assert witness.look(0, [], 0) == 0
    assert witness.faults == []


def test_the_witness_finds_each_kind_of_fault() -> None:
    keys = [row(1, 0, offset) for offset in range(400)]
    newest = max(at for at, (key, value) in enumerate(keys) if key.startswith(b"once") and value is not None)
    erased = max(at for at, (key, _) in enumerate(keys) if key in ERASED)
    every = list(range(400))
    planted = {
        "is missing": _records([at for at in every if at != newest]),
        f"offset {erased}, the newest of": _records([at for at in every if at != erased]),
        "came where": _records([*every[:10], 5]),
        "was written": [*_records(every[:10]), (10, keys[9][0], b"never sent"), *_records(every[11:])],
        "the log reaches to": [*_records(every), (400, *row(1, 0, 400))],
    }
    for words, records in planted.items():
        witness = Witness(1, 0)
        witness.grow(400)
        witness.look(0, records, 400)
        assert any(words in fault for fault in witness.faults), words
    witness = Witness(1, 0)
    witness.grow(400)
    witness.lost(390, 401)
    witness.check_state(_records([at for at in every if at != newest and keys[at][0] not in ERASED]), 0)
    assert ["reported lost" in witness.faults[0], "the log ends with" in witness.faults[1]] == [True, True]
