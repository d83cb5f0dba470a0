"""`logstore log` and `logstore backup`: what they show of sound and of damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import logstore
from tests.cli.conftest import Shell


def damage(shell: Shell, partition: int = 0) -> Path:
    """Flip a bit inside the first batch's records."""
    path = shell.store / f"t-{partition}" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    return path


@pytest.fixture
def batches(shell: Shell) -> Shell:
    """Topic "t", one partition: 40 batches over several segments, indexes with entries."""
    shell.run("topic", "create", "t", "-c", "segment.bytes=4096", "-c", "index.interval.bytes=256")
    with logstore.open(shell.store) as store:
        log = store.partition("t", 0)
        for number in range(40):
            log.append([(b"key", b"%d " % number + b"." * 300, [("h", b"\xff")], 1_000_000 + number)])
    return shell


def test_dump_of_batches_records_and_indexes(batches: Shell) -> None:
    found = batches.json_lines("log", "dump", "t")
    assert [row["base_offset"] for row in found] == list(range(40))
    assert len({row["segment"] for row in found}) > 2
    records = batches.json_lines("log", "dump", "t", "--records")
    assert [record["offset"] for record in records] == list(range(40))
    assert records[3]["headers"] == [{"name": "h", "value_base64": "/w=="}]
    entries = batches.json_lines("log", "dump", "t", "--indexes")
    starts = {(row["segment"], row["position"]): row["last_offset"] for row in found}
    offset_entries = [entry for entry in entries if entry["index"] == "offset"]
    assert len(offset_entries) > 10
    assert all(
        starts[entry["segment"], entry["position"]] == entry["last_offset"] for entry in offset_entries
    )
    assert {entry["index"] for entry in entries} == {"offset", "time"}


def test_dump_as_tables(batches: Shell) -> None:
    text = batches.run("log", "dump", "t", "-n", "2").stdout
    lines = text.splitlines()
    assert lines[0] == f"# {batches.store}/t-0/{0:020d}.log"
    assert lines[1].split()[:3] == ["POSITION", "SIZE", "BASE_OFFSET"]
    assert len(lines) == 4
    text = batches.run("log", "dump", "t-0", "--records", "-n", "1").stdout
    assert "1970-01-01T00:16:40.000Z" in text
    assert "h=0xff" in text
    text = batches.run("log", "dump", "t-0", "--indexes").stdout
    assert text.count("# ") > 2
    assert "LAST_OFFSET" in text


def test_dump_takes_paths_and_names(batches: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(*arguments: str) -> int:
        return len(batches.bare("--json", "log", "dump", *arguments).stdout.splitlines())

    folder = batches.store / "t-0"
    first = folder / f"{0:020d}.log"
    assert count(str(batches.store)) == count(str(folder)) == 40
    assert 0 < count(str(first)) < 40
    monkeypatch.chdir(folder)
    assert count(first.name) == count(str(first))
    assert len(batches.run("--json", "log", "dump").stdout.splitlines()) == 40
    assert "no topic or partition" in batches.run("log", "dump", "nope", code=1).stderr
    assert "is no segment" in batches.run("log", "dump", str(batches.store / "topics.json"), code=2).stderr
    assert "which store?" in batches.bare("log", "dump", code=2).stderr


def test_dump_shows_damage_and_goes_on(batches: Shell) -> None:
    path = damage(batches)
    result = batches.run("log", "dump", "t", code=1)
    assert f"!! {path} at byte 0: crc" in result.stdout
    found = batches.json_lines("log", "dump", "t", "--records", code=1)
    assert found[0]["damage"] == "crc"
    assert [row["offset"] for row in found[1:]] == list(range(1, 40))


def test_verify_of_a_sound_store(batches: Shell) -> None:
    result = batches.run("log", "verify")
    assert result.stdout == ""
    assert "no fault: read 1 partitions" in result.stderr
    report = batches.json("log", "verify", "t")
    assert (report["clean"], report["faults"], report["warnings"]) == (True, [], [])
    assert (report["records"], report["batches"]) == (40, 40)
    assert "there is no topic" in batches.run("log", "verify", "nope", code=1).stderr


def test_verify_names_faults_and_says_so_in_the_exit_code(batches: Shell) -> None:
    path = damage(batches)
    (batches.store / "notes.txt").write_text("x")
    result = batches.run("log", "verify", code=1)
    assert f"FAULT  crc  {path} at byte 0: wrong CRC-32C" in result.stdout
    assert f"FAULT  name  {batches.store}/notes.txt: nothing in a store" in result.stdout
    assert result.stderr.startswith("2 faults: ")
    report = batches.json("log", "verify", code=1)
    assert not report["clean"]
    assert [(fault["kind"], fault["position"]) for fault in report["faults"]] == [("name", -1), ("crc", 0)]


def test_a_torn_end_after_a_kill_is_a_warning_that_the_next_open_repairs(batches: Shell) -> None:
    store = logstore.open(batches.store)
    store.partition("t", 0).append([(None, b"last")], acks=1)
    store.abandon()
    path = max((batches.store / "t-0").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    result = batches.run("log", "verify")
    assert "warning  torn" in result.stdout
    assert "the next open cuts the log here, at offset 40" in result.stdout
    with logstore.open(batches.store) as again:
        again.partition("t", 0).append([(None, b"after")])
        assert again.recovery_report[0].cut_bytes > 0
    assert batches.run("log", "verify").stdout == ""


def test_verify_beside_a_writer(batches: Shell) -> None:
    with logstore.open(batches.store) as store:
        store.partition("t", 0).append([(None, b"more")], acks=1)
        report = batches.json("log", "verify")
        assert report["clean"]
        assert report["records"] == 41


def test_salvage(batches: Shell, tmp_path: Path) -> None:
    damage(batches)
    target = tmp_path / "new"
    result = batches.bare("log", "salvage", str(batches.store), str(target))
    assert "t-0  offsets 0 to 0: " in result.stdout
    assert "wrong CRC-32C" in result.stdout
    assert "1 ranges lost: copied 1 topics" in result.stderr
    copy = Shell(target)
    assert copy.json("log", "verify")["clean"]
    assert [row["offset"] for row in copy.json_lines("consume", "t", "-e")] == list(range(1, 40))
    copy.run("produce", "t", stdin="goes on\n")
    assert copy.json_lines("consume", "t", "-e", "-o", "-1")[0]["offset"] == 40
    assert copy.json("log", "verify")["clean"]
    assert "not empty" in batches.bare("log", "salvage", str(batches.store), str(target), code=1).stderr
    other = str(tmp_path / "other")
    report = json.loads(batches.bare("--json", "log", "salvage", str(batches.store), other).stdout)
    assert [(lost["start"], lost["end_exclusive"]) for lost in report["lost"]] == [(0, 1)]


def test_backup(filled: Shell, tmp_path: Path) -> None:
    filled.run("consume", "t", "-g", "g", "-n", "11")
    target = tmp_path / "copy"
    result = filled.run("backup", str(target))
    assert f"logstore --path {target} log verify" in result.stderr
    copy = Shell(target)
    assert copy.json("log", "verify")["clean"]
    assert len(copy.json_lines("consume", "t", "-e")) == 30
    assert len(copy.json_lines("consume", "t", "-g", "g", "-e")) == 19
    assert "not empty" in filled.run("backup", str(target), code=1).stderr
    assert "inside the store" in filled.run("backup", str(filled.store / "x"), code=1).stderr
    report = filled.json("backup", str(tmp_path / "two"), "--copy")
    assert (report["topics"], report["linked_bytes"]) == (2, 0)


def test_restore(filled: Shell, tmp_path: Path) -> None:
    filled.run("backup", str(tmp_path / "backup"))
    back = tmp_path / "back"
    result = filled.run("restore", str(tmp_path / "backup"), str(back))
    assert "records of" in result.stderr
    assert Shell(back).json("log", "verify")["clean"]
    assert "not empty" in filled.run("restore", str(tmp_path / "backup"), str(back), code=1).stderr
    report = filled.json("restore", str(tmp_path / "backup"), str(tmp_path / "linked"), "--link")
    assert report["directory"] == str(tmp_path / "linked")
    assert report["skipped_topics"] == []
    log = next((tmp_path / "backup").glob("*-0/*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    failed = filled.run("restore", str(tmp_path / "backup"), str(tmp_path / "none"), code=1)
    assert "is not restored" in failed.stderr
    assert not (tmp_path / "none").exists()
