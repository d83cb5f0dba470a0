"""The catalogue: names, slots, bytes, damage, and a file that can be cut short anywhere."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from logstore.directory.catalogue import (
    MAX_PARTITIONS,
    Catalogue,
    CatalogueFile,
    decode,
    encode,
    encode_uuid,
    is_uuid,
    validate_topic_name,
)
from logstore.errors import (
    DamagedStoreError,
    DiskFullError,
    ForeignDirectoryError,
    InvalidArgumentError,
    InvalidPartitionsError,
    InvalidTopicError,
    InvariantError,
    LogStoreError,
    StorageError,
    StoreNotFoundError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedStoreVersionError,
)
from logstore.format.json_document import encode_document
from logstore.log.producers.producer_state import FIRST_NAMED_ID
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.fs import OsFileSystem, replace_file
from logstore.seams.memory_crash import RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem


def uuid(number: int) -> str:
    return encode_uuid(number.to_bytes(16, "big"))


def with_topic(catalogue: Catalogue, name: str, partitions: int = 1, **settings: str) -> Catalogue:
    return catalogue.with_topic(
        name, topic_id=uuid(catalogue.revision), partitions=partitions, config=settings, created_ms=1000
    )


EMPTY = Catalogue(store_id=uuid(1))


# --- names and ids ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_one", "a__b", "-"])
def test_good_names(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "ü", "a\n", "a\0", 5, None, b"a"])
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidTopicError, match="topic"):
        validate_topic_name(name)


def test_internal_names_are_reserved() -> None:
    with pytest.raises(InvalidTopicError, match="start with '__' are for internal topics"):
        with_topic(EMPTY, "__mine")
    made = EMPTY.with_topic(
        "__consumer_offsets", topic_id=uuid(2), partitions=1, created_ms=1, internal=True
    ).topic("__consumer_offsets")
    assert made.internal
    with pytest.raises(InvariantError):
        validate_topic_name("mine", internal=True)


def test_uuids_are_printed_as_kafka_does() -> None:
    raw = bytes(range(16))
    text = encode_uuid(raw)
    back = base64.urlsafe_b64decode(text + "==")
    assert len(text) == 22
    assert (back[:6], back[7], back[9:]) == (raw[:6], raw[7], raw[9:])
    assert (back[6] >> 4, back[8] >> 6) == (4, 2)
    for first in range(256):
        assert not encode_uuid(bytes([first]) + raw[1:]).startswith("-")
    assert is_uuid("AAAAAAAAAAAAAAAAAAAAAQ")  # Kafka's Uuid.METADATA_TOPIC_ID
    assert not any(map(is_uuid, ["", "A" * 21, "A" * 23, "A" * 21 + "*", "A" * 21 + "ü"]))


# --- changes ----------------------------------------------------------------------------------------


def test_topics_get_slots_of_their_own() -> None:
    catalogue = with_topic(with_topic(EMPTY, "a", 3, **{"segment.bytes": "4096"}), "b", 2)
    a, b = catalogue.topic("a"), catalogue.topic("b")
    assert (a.lock_slot, a.live_slots, a.config) == (1, ((0, 3),), {"segment.bytes": "4096"})
    assert (b.lock_slot, b.live_slots, b.config) == (2, ((3, 2),), {})
    assert (catalogue.revision, catalogue.next_lock_slot, catalogue.next_live_slot) == (2, 3, 5)
    assert EMPTY.topics == {}


def test_slots_are_never_handed_out_again() -> None:
    catalogue = with_topic(with_topic(EMPTY, "a", 3).without_topic("a"), "a", 1)
    assert (catalogue.topic("a").lock_slot, catalogue.topic("a").live_slots) == (2, ((3, 1),))
    assert catalogue.revision == 3


def test_added_partitions_keep_the_slots_of_the_first() -> None:
    catalogue = with_topic(EMPTY, "a", 2).with_partitions("a", 4)
    assert catalogue.topic("a").live_slots == ((0, 4),)
    catalogue = with_topic(catalogue, "b", 1).with_partitions("a", 6)
    a = catalogue.topic("a")
    assert a.live_slots == ((0, 4), (5, 2))
    assert [a.live_slot(partition) for partition in range(6)] == [0, 1, 2, 3, 5, 6]
    for partition in (-1, 6):
        with pytest.raises(UnknownPartitionError, match=f"no partition {partition}.*0 to 5"):
            a.live_slot(partition)


def test_refused_changes() -> None:
    catalogue = with_topic(EMPTY, "a", 2)
    with pytest.raises(TopicExistsError, match="'a' exists"):
        with_topic(catalogue, "a")
    for change in (
        lambda: catalogue.topic("b"),
        lambda: catalogue.without_topic("b"),
        lambda: catalogue.with_config("b", {}),
        lambda: catalogue.with_partitions("b", 3),
    ):
        with pytest.raises(UnknownTopicError, match="no topic 'b'"):
            change()
    for total in (0, -1, True, 1.5, MAX_PARTITIONS + 1):
        with pytest.raises(InvalidPartitionsError, match="use 1 to 100000"):
            with_topic(catalogue, "c", total)  # type: ignore[arg-type]
    for total in (1, 2):
        with pytest.raises(InvalidPartitionsError, match="never taken away"):
            catalogue.with_partitions("a", total)


def test_settings_are_replaced_and_cannot_be_changed_from_outside() -> None:
    given_settings = {"x": "1"}
    catalogue = with_topic(EMPTY, "a").with_config("a", given_settings)
    given_settings["x"] = "2"
    assert catalogue.topic("a").config == {"x": "1"}
    with pytest.raises(TypeError):
        catalogue.topic("a").config["x"] = "3"  # type: ignore[index]
    with pytest.raises(TypeError):
        catalogue.topics["b"] = catalogue.topic("a")  # type: ignore[index]


def test_producer_ids_are_handed_out_once() -> None:
    catalogue = EMPTY.with_producer_ids(1000).with_opened_producer("a").with_opened_producer("b")
    assert catalogue.next_producer_id == 1002
    catalogue = catalogue.with_opened_producer("a").with_producer_id("a", 1).without_producer("b")
    assert catalogue.producer("a").epoch == 1
    ids = [row.producer_id for entry in catalogue.producers.values() for row in entry.ids]
    assert ids == [FIRST_NAMED_ID + 1000, FIRST_NAMED_ID + 1002]
    assert catalogue.with_producer_id("a", 1) is catalogue
    assert catalogue.next_producer_id == 1003
    for change in (lambda: catalogue.producer("b"), lambda: catalogue.without_producer("b")):
        with pytest.raises(InvalidArgumentError, match="no producer 'b'"):
            change()


def test_where_a_name_deals_its_rows_stays_as_it_was() -> None:
    catalogue = with_topic(with_topic(EMPTY, "a", 3), "b", 2).with_opened_producer("n")
    catalogue = catalogue.with_spread("n", "a").with_partitions("a", 9)
    assert catalogue.with_spread("n", "a") is catalogue
    assert catalogue.with_spread("n", "b").producer("n").spread == {uuid(0): 3, uuid(1): 2}
    assert catalogue.without_topic("a").with_spread("n", "b").producer("n").spread == {uuid(1): 2}


# --- bytes ------------------------------------------------------------------------------------------


def sample() -> Catalogue:
    catalogue = with_topic(with_topic(EMPTY, "flights", 2, partitioner="crc32"), "b", 1)
    catalogue = catalogue.with_partitions("flights", 3).without_topic("b")
    catalogue = catalogue.with_topic("__x", topic_id=uuid(9), partitions=1, created_ms=5, internal=True)
    catalogue = catalogue.with_producer_ids(1000).with_opened_producer("import")
    return catalogue.with_spread("import", "flights")


def test_golden() -> None:
    data = encode(sample())
    first, rest = data.split(b"\n", 1)
    assert first == b'{"crc32c": "%s",' % json.loads(data)["crc32c"].encode()
    assert rest.decode() == (
        f'"format_version": 2, "revision": 9, "store_id": "{uuid(1)}", "next_lock_slot": 4, '
        '"next_live_slot": 5, "next_producer_id": 1001, "topics": '
        f'{{"__x": {{"topic_id": "{uuid(9)}", "partitions": 1, "config": {{}}, "lock_slot": 3, '
        '"live_slots": [[4, 1]], "created_ms": 5, "internal": true}, '
        f'"flights": {{"topic_id": "{uuid(0)}", "partitions": 3, "config": {{"partitioner": "crc32"}}, '
        '"lock_slot": 1, "live_slots": [[0, 2], [3, 1]], "created_ms": 1000, "internal": false}}, '
        '"producers": {"import": {"generation": 0, "epoch": 0, "ids": [[0, 0, 4611686018427388904]], '
        f'"spread": {{"{uuid(0)}": 3}}}}}}}}\n'
    )
    assert decode(data, "p") == sample()


def test_every_flipped_bit_and_every_cut_is_damage() -> None:
    data = encode(sample())
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        for content in (bytes(broken), data[:position]):
            with pytest.raises(DamagedStoreError) as caught:
                decode(content, "s/topics.json")
            assert caught.value.path == "s/topics.json"


def fields_of(catalogue: Catalogue) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(encode(catalogue))
    del fields["crc32c"], fields["format_version"]
    return fields


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(fields: dict[str, Any]) -> None:
        *where, last, value = path
        for key in where:
            fields = fields[key]
        fields[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("revision", -1),
        _set("revision", True),
        _set("store_id", "short"),
        _set("next_lock_slot", 0),
        _set("next_lock_slot", 3),
        _set("next_live_slot", 4),
        _set("next_producer_id", "0"),
        _set("next_producer_id", 1000),
        _set("producers", []),
        _set("producers", "import", []),
        _set("producers", "a b", {}),
        _set("producers", "import", "colour", "red"),
        _set("producers", "import", "epoch", -1),
        _set("producers", "import", "epoch", 32_767),
        _set("producers", "import", "ids", [[1, 0, 1000]]),
        _set("producers", "import", "ids", [[0, 0, 1000, 1]]),
        _set("producers", "import", "ids", [[0, 0, 1000], [0, 1, 1000]]),
        _set("producers", "import", "ids", [[0, 0, 1000], [0, 0, 999]]),
        _set("producers", "import", "spread", {"id": 0}),
        _set("topics", []),
        _set("topics", "flights", []),
        _set("topics", "a b", {}),
        _set("topics", "flights", "colour", "red"),
        _set("topics", "flights", "topic_id", "AAAA"),
        _set("topics", "flights", "partitions", 2),
        _set("topics", "flights", "partitions", 0),
        _set("topics", "flights", "config", {"partitioner": 1}),
        _set("topics", "flights", "lock_slot", 3),
        _set("topics", "flights", "lock_slot", 0),
        _set("topics", "flights", "live_slots", [[0, 2], [1, 1]]),
        _set("topics", "flights", "live_slots", [[0, 2], [4, 1]]),
        _set("topics", "flights", "live_slots", [[0, 3, 1]]),
        _set("topics", "flights", "live_slots", [[0, 4], [9, -1]]),
        _set("topics", "flights", "created_ms", 1.5),
        _set("topics", "flights", "internal", True),
        _set("topics", "__x", "internal", False),
        lambda fields: fields.pop("revision"),
        lambda fields: fields.pop("producers"),
        lambda fields: fields["topics"]["flights"].pop("config"),
        lambda fields: fields["producers"]["import"].pop("ids"),
    ],
)
def test_malformed_fields_are_damage(change: Callable[[dict[str, Any]], object]) -> None:
    fields = fields_of(sample())
    decode(encode_document(2, fields), "p")
    change(fields)
    with pytest.raises(DamagedStoreError):
        decode(encode_document(2, fields), "p")


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedStoreVersionError, match="format version 3"):
        decode(encode_document(3, fields_of(sample()) | {"more": 1}), "p")


def version_1(catalogue: Catalogue) -> bytes:
    fields = fields_of(catalogue)
    del fields["producers"]
    return encode_document(1, fields)


def test_version_1_is_read_as_a_catalogue_without_named_producers() -> None:
    old = with_topic(EMPTY, "a", 3)
    found = decode(version_1(old), "p")
    assert found == old
    assert json.loads(encode(found))["format_version"] == 2
    with pytest.raises(DamagedStoreError, match="producers"):
        decode(encode_document(1, fields_of(old)), "p")


def test_a_power_loss_while_an_older_version_is_migrated_leaves_it_or_the_new() -> None:
    old = with_topic(EMPTY, "a", 3)
    new = old.with_opened_producer("import")
    seen = set()
    for call in range(1, 20):
        fs = store()
        CatalogueFile(fs, "/s").create(uuid(1))
        replace_file(fs, "/s/topics.json", version_1(old))
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        try:
            CatalogueFile(fs, "/s").save(CatalogueFile(fs, "/s").load().with_opened_producer("import"))
        except SimulatedCrash:
            pass  # the point of the exercise
        for crashed in fs.crash_states(16):
            found = CatalogueFile(crashed, "/s").load()
            assert found in (old, new)
            seen.add(found == new)
    assert seen == {False, True}


class CatalogueAgainstAModel(RuleBasedStateMachine):
    """Random changes against a plain dict of partition counts; the file's bytes come back each time."""

    names = st.sampled_from(["a", "b", "c.d"])

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = EMPTY
        self.model: dict[str, int] = {}
        self.slots: dict[tuple[str, int], int] = {}
        self.used: set[int] = set()

    def change(self, name: str, allowed: bool, make: Callable[[], Catalogue], partitions: int) -> None:
        if not allowed:
            with pytest.raises(LogStoreError):
                make()
            return
        self.catalogue = make()
        self.model[name] = partitions

    @rule(name=names, partitions=st.integers(0, 4))
    def create(self, name: str, partitions: int) -> None:
        allowed = name not in self.model and partitions > 0
        self.change(name, allowed, lambda: with_topic(self.catalogue, name, partitions), partitions)

    @rule(name=names, total=st.integers(0, 9))
    def grow(self, name: str, total: int) -> None:
        allowed = total > self.model.get(name, 10)
        self.change(name, allowed, lambda: self.catalogue.with_partitions(name, total), total)

    @rule(name=names, value=st.text(max_size=3))
    def configure(self, name: str, value: str) -> None:
        count = self.model.get(name, 0)
        self.change(name, count > 0, lambda: self.catalogue.with_config(name, {"k": value}), count)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name not in self.model:
            with pytest.raises(UnknownTopicError):
                self.catalogue.without_topic(name)
            return
        self.catalogue = self.catalogue.without_topic(name)
        for partition in range(self.model.pop(name)):
            del self.slots[name, partition]

    @invariant()
    def agrees(self) -> None:
        assert decode(encode(self.catalogue), "p") == self.catalogue
        assert {name: entry.partitions for name, entry in self.catalogue.topics.items()} == self.model
        for name, count in self.model.items():
            for partition in range(count):
                slot = self.catalogue.topic(name).live_slot(partition)
                if (name, partition) not in self.slots:
                    assert slot not in self.used, "a slot was handed out twice"
                    self.used.add(slot)
                assert self.slots.setdefault((name, partition), slot) == slot, "a slot moved"


TestCatalogueAgainstAModel = CatalogueAgainstAModel.TestCase
TestCatalogueAgainstAModel.settings = settings(
    derandomize=True, deadline=None, max_examples=50, stateful_step_count=20
)


@settings(derandomize=True, deadline=None)
@given(st.dictionaries(st.text(), st.text()))
def test_any_text_comes_back_in_settings(config: dict[str, str]) -> None:
    catalogue = EMPTY.with_topic("a", topic_id=uuid(2), partitions=1, config=config, created_ms=0)
    assert decode(encode(catalogue), "p").topic("a").config == config


# --- the file ---------------------------------------------------------------------------------------


def store() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir("/s")
    fs.sync_dir("/")
    return fs


def test_created_saved_loaded(tmp_path: Path) -> None:
    fs, root = OsFileSystem(), str(tmp_path)
    file = CatalogueFile(fs, root)
    created = file.create(uuid(1))
    assert created == EMPTY
    file.save(with_topic(created, "a"))
    other = CatalogueFile(fs, root)
    assert other.load() == with_topic(created, "a")
    assert other.create(uuid(2)) == with_topic(created, "a")  # somebody was first
    assert sorted(path.name for path in tmp_path.iterdir()) == [".state", "topics.json"]
    assert (tmp_path / "topics.json").stat().st_mode & 0o777 == 0o600
    file.close()
    other.close()
    file.close()


@pytest.mark.parametrize("kind", ["os", "memory"])
def test_a_change_by_another_is_seen(tmp_path: Path, kind: str) -> None:
    fs, root = (OsFileSystem(), str(tmp_path)) if kind == "os" else (store(), "/s")
    mine, theirs = CatalogueFile(fs, root), CatalogueFile(fs, root)
    catalogue = mine.create(uuid(1))
    assert not mine.changed()
    assert theirs.changed()  # never loaded
    theirs.load()
    assert not theirs.changed()
    for number in range(20):  # same size, often the same clock tick: the inode must tell
        catalogue = catalogue.with_topic("a", topic_id=uuid(2), partitions=1, created_ms=number % 10)
        for _ in range(2):
            theirs.save(catalogue)
            assert mine.changed()
            assert not theirs.changed()
        assert mine.load() == catalogue
        assert not mine.changed()
        catalogue = catalogue.without_topic("a")
    mine.close()
    theirs.close()


def test_a_file_that_is_gone_counts_as_changed() -> None:
    fs = store()
    file = CatalogueFile(fs, "/s")
    file.create(uuid(1))
    fs.remove("/s/topics.json")
    assert file.changed()
    with pytest.raises(StoreNotFoundError):
        file.load()
    fs.mkdir("/s/flights-0")
    with pytest.raises(DamagedStoreError, match=r"whose topics\.json is gone"):
        file.load()


@pytest.mark.parametrize(
    ("names", "error"),
    [([], StoreNotFoundError), (["meta.properties"], ForeignDirectoryError), (["x"], ForeignDirectoryError)],
)
def test_directories_that_hold_no_store(names: list[str], error: type[LogStoreError]) -> None:
    fs = store()
    for name in names:
        fs.mkdir(f"/s/{name}")
    with pytest.raises(error):
        CatalogueFile(fs, "/s").load()
    with pytest.raises(StoreNotFoundError):
        CatalogueFile(fs, "/nowhere").load()
    if names:
        with pytest.raises(error):
            CatalogueFile(fs, "/s").create(uuid(1))


def test_what_the_system_refuses_is_named() -> None:
    fs = store()
    file = CatalogueFile(fs, "/s")
    created = file.create(uuid(1))
    fs.faults.on("pwritev", FaultKind.ENOSPC)
    with pytest.raises(DiskFullError, match=r"cannot write /s/topics\.json"):
        file.save(with_topic(created, "a"))
    for name, verb in (("stat", "look at"), ("open", "read")):
        fs.faults.on(name, FaultKind.EIO, path_ends="topics.json")
        with pytest.raises(StorageError, match=f"cannot {verb}"):
            file.changed() if name == "stat" else file.load()
    assert file.load() == created


def test_a_save_whose_last_look_fails_is_saved_and_counts_as_changed() -> None:
    fs = store()
    file = CatalogueFile(fs, "/s")
    created = file.create(uuid(1))
    fs.faults.on("stat", FaultKind.EIO, path_ends="topics.json")
    file.save(with_topic(created, "a"))
    assert file.changed()
    assert file.load() == with_topic(created, "a")


def create_topics_until_crash(fs: MemoryFileSystem, call: int) -> Catalogue | None:
    """Create a store and three topics with a crash planned; returns the last catalogue that was saved."""
    fs.faults.at(call, FaultKind.CRASH)
    file = CatalogueFile(fs, "/s")
    done = None
    try:
        done = file.create(uuid(1))
        for name in "abc":
            changed = with_topic(done, name)
            file.save(changed)
            done = changed
    except SimulatedCrash:
        pass  # the point of the exercise
    return done


def test_a_power_loss_at_any_call_leaves_the_old_catalogue_or_the_new() -> None:
    history = [EMPTY]
    for name in "abc":
        history.append(with_topic(history[-1], name))
    states = 0
    for call in range(1, 100):
        fs = store()
        done = create_topics_until_crash(fs, fs.faults.calls + call)
        allowed = history[:1] if done is None else history[done.revision : done.revision + 2]
        for crashed in fs.crash_states(64):
            file = CatalogueFile(crashed, "/s")
            try:
                found = file.load()
            except StoreNotFoundError:
                assert done is None
                found = file.create(uuid(1))
            assert found in allowed, (call, found)
            file.save(with_topic(found, "after"))
            again = crashed.crash(RandomChooser(random.Random(call)))
            assert CatalogueFile(again, "/s").load() == with_topic(found, "after")
            states += 1
        if done == history[-1]:
            break
    assert done == history[-1]
    assert states > 60  # all that differ on the disk
