"""Internal topics that many processes write: catching up, recovery when one died half way, failures."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.directory import topic_state
from logstore.errors import (
    DiskFullError,
    InvalidRecordError,
    LogStoreError,
    OutcomeUnknownError,
    StorageError,
    StoreClosedError,
    TopicLockedError,
)
from logstore.format.batch import read_header
from logstore.machine import Decision
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.fs import read_file, write_all
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.shared_world import ROOT, SharedWorld

OFFSETS = "__consumer_offsets"


class Register:
    """Keeps the last value of each key: the smallest machine there is."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.replayed = 0

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        assert key is not None
        assert value is not None
        self.values[key] = value
        self.replayed += 1

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        raise InvalidRecordError("a register has no transactions")

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        raise InvalidRecordError("a register has no transactions")

    def decide_put(self, key: bytes, value: bytes) -> Decision[bytes | None]:
        return Decision(((key, value),), self.values.get(key))


class World(SharedWorld[Register]):
    def __init__(self) -> None:
        super().__init__(Register)


def put(shared: CoordinatorRuntime[Register], key: bytes, value: bytes) -> bytes | None:
    return shared.decide(lambda machine: machine.decide_put(key, value))


def get(shared: CoordinatorRuntime[Register]) -> dict[bytes, bytes]:
    return shared.look(lambda machine: dict(machine.values))


def test_each_write_sees_all_before_it() -> None:
    world = World()
    (_, first), (_, second) = world.process(), world.process()
    assert get(first) == {}
    assert put(first, b"k", b"1") is None
    assert put(second, b"k", b"2") == b"1"
    assert put(first, b"k", b"3") == b"2"
    assert get(first) == get(second) == {b"k": b"3"}
    (_, reader) = world.process("r")
    assert get(reader) == {b"k": b"3"}


def test_through_rolls_and_back_and_forth() -> None:
    world = World()
    processes = [world.process() for _ in range(3)]
    expected = {}
    for number in range(60):
        key = b"k%d" % (number % 7)
        put(processes[number % 3][1], key, b"%d" % number + b"." * 60)
        expected[key] = b"%d" % number + b"." * 60
        if number % 5 == 0:
            assert get(processes[(number + 1) % 3][1]) == expected
    for store, shared in processes:
        assert get(shared) == expected
        assert shared._followed.machine.replayed == 60  # once each, never again
        assert store.recovery_report == ()


def test_a_decision_without_records_writes_nothing() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"1")
    writes: list[str] = []
    world.fs.faults.observer = lambda op: writes.append(op.path) if op.name in ("pwritev", "sync") else None
    assert shared.decide(lambda machine: Decision((), machine.values[b"k"])) == b"1"
    assert writes == []


def test_an_error_of_the_decision_passes_and_frees_the_lock() -> None:
    world = World()
    (_, first), (_, second) = world.process(), world.process()

    def refuse(machine: Register) -> Decision[None]:
        raise StorageError("not like this")

    with pytest.raises(StorageError, match="not like this"):
        first.decide(refuse)
    put(second, b"k", b"1")


def test_a_busy_lock_is_a_named_error() -> None:
    world = World()
    (store, _), (_, second) = world.process(), world.process()
    slot = world.entry(store).lock_slot
    store._context.locks.acquire(slot, 0, "the test")
    with pytest.raises(TopicLockedError, match="internal topic '__shared' is locked by pid"):
        put(second, b"k", b"1")
    assert get(second) == {}  # looking needs no lock
    store._context.locks.release(slot)
    put(second, b"k", b"1")


def test_a_wait_in_line_of_more_than_a_second_names_the_holder(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    store, shared = world.process()
    store._context.longest_lock_wait_s = 30.0
    put(shared, b"k", b"1")
    threads = [threading.Thread(target=put, args=(shared, b"k", b"%d" % number)) for number in range(2)]
    deadline_s = time.monotonic() + 60

    def told() -> set[int | None]:
        """Threads by which a wait for the topic was told."""
        return {
            one.thread
            for one in caplog.records
            if one.levelname == "WARNING"
            and "'__shared'" in one.getMessage()
            and "held by pid" in one.getMessage()
        }

    with shared._log.held(0):
        for thread in threads:
            thread.start()
        while len(told()) < 2 and time.monotonic() < deadline_s:
            threads[0].join(0.05)
    for thread in threads:
        thread.join(60)
    assert told() == {thread.ident for thread in threads}, "the first waits for the topic, the second in line"
    assert get(shared)[b"k"] in (b"0", b"1")


def test_a_close_leaves_a_recovery_point() -> None:
    world = World()
    store, shared = world.process()
    for number in range(3):
        put(shared, b"k", b"%d" % number)
    shared.close()
    state = topic_state.load(world.fs, ROOT, "__shared")
    assert state is not None
    assert state.partitions[0].recovery_point == 3
    world.lose_power(KeepNothing(), store)
    again, shared = world.process()
    assert get(shared) == {b"k": b"2"}
    put(shared, b"k", b"3")
    (report,) = again.recovery_report
    assert (report.end_offset, report.cut_bytes) == (3, 0)


def test_a_writer_killed_at_any_call_leaves_whole_writes() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"before")
    start = world.fs.faults.calls
    put(shared, b"k", b"after")
    total = world.fs.faults.calls - start
    seen = set()
    for call in range(1, total + 1):
        for power in (None, KeepNothing(), KeepAll()):
            world = World()
            (store, shared), (other_store, other) = world.process(), world.process()
            put(shared, b"k", b"before")
            get(other)
            world.fs.faults.at(world.fs.faults.calls + call, FaultKind.CRASH)
            with pytest.raises(SimulatedCrash):
                put(shared, b"k", b"after")
            if power is None:
                world.kill(store, other_store)
            else:
                world.lose_power(power, store, other_store)
            _, reader = world.process("r")
            shown = get(reader)[b"k"]
            _, again = world.process()
            value = put(again, b"k", b"later")
            assert value in (b"before", b"after")
            assert shown in (value, b"before")  # a reader waits for the recovery of what is in flight
            seen.add(value)
            assert get(again) == {b"k": b"later"}
            assert get(reader) == {b"k": b"later"}
    assert seen == {b"before", b"after"}


def test_a_write_torn_by_a_kill_is_cut() -> None:
    world = World()
    store, shared = world.process()
    put(shared, b"k", b"1")
    path = f"{ROOT}/__shared-0/{0:020d}.log"
    size = len(read_file(world.fs, path))
    world.kill(store)
    file = world.fs.open(path, "rw")
    write_all(file, [read_file(world.fs, path)[:7] + b"\x01" + b"\0" * 30], size)
    again, shared = world.process()
    assert get(shared) == {b"k": b"1"}
    assert put(shared, b"k", b"2") == b"1"
    (report,) = again.recovery_report
    assert report.cut_bytes == 38
    _, other = world.process()
    assert put(other, b"k", b"3") == b"2"


def test_a_full_disk_refuses_and_then_works_again() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"1")
    world.fs.capacity_bytes = world.fs._used + 10
    for _ in range(2):
        with pytest.raises(DiskFullError):
            put(shared, b"k", b"2" * 100)
        assert get(shared) == {b"k": b"1"}
    world.fs.capacity_bytes = None
    assert put(shared, b"k", b"3") == b"1"


def test_a_failed_sync_is_unknown_and_the_next_write_recovers_first() -> None:
    world = World()
    store, shared = world.process()
    put(shared, b"k", b"1")
    world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    with pytest.raises(OutcomeUnknownError):
        put(shared, b"k", b"2")
    assert get(shared) == {b"k": b"1"}  # not shown until it is sure
    assert put(shared, b"k", b"3") in (b"1", b"2")
    assert store.recovery_report
    world.lose_power(KeepNothing(), store)
    _, again = world.process()
    assert get(again) == {b"k": b"3"}


def test_every_failure_of_the_disk_is_a_named_error() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"1")
    start = world.fs.faults.calls
    put(shared, b"k", b"2")
    get(world.process("r")[1])
    total = world.fs.faults.calls - start
    for kind in (FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE, FaultKind.FAILED_SYNC):
        for call in range(1, total + 1):
            world = World()
            _, shared = world.process()
            put(shared, b"k", b"1")
            world.fs.faults.at(world.fs.faults.calls + call, kind)
            try:
                put(shared, b"k", b"2")
                get(world.process("r")[1])
            except LogStoreError:
                world.fs.faults.clear()
            assert put(shared, b"k", b"3") in (b"1", b"2")
            assert get(shared) == {b"k": b"3"}


def test_a_piece_that_the_disk_refuses_is_a_named_error_and_is_replayed_later() -> None:
    world = World()
    put(world.process()[1], b"k", b"1")
    _, counted = world.process("r")
    start = world.fs.faults.calls
    assert counted.follow_some()
    refused = 0
    for call in range(1, world.fs.faults.calls - start + 1):
        _, shared = world.process("r")
        world.fs.faults.at(world.fs.faults.calls + call, FaultKind.EIO)
        try:
            shared.follow_some()
        except LogStoreError:
            refused += 1
        world.fs.faults.clear()
        assert get(shared) == {b"k": b"1"}
    assert refused > 0


def test_after_close_it_is_closed() -> None:
    store = LogStore(":memory:", threads=False)
    store.create_topic("t")
    store.partition("t", 0).append([(None, b"x")])
    place = TopicPartition("t", 0)
    store.commit_offsets("g", {place: OffsetAndMetadata(1)})
    shared = store.backend.groups.topic(create=False)
    assert shared is not None
    store.close()
    with pytest.raises(StoreClosedError):
        shared.look(lambda machine: None)
    with pytest.raises(StoreClosedError):
        shared.decide(lambda machine: Decision((), None))


def test_threads_of_one_process() -> None:
    world = World()
    _, shared = world.process()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(15):
                put(shared, b"%d" % number, b"%d" % turn)
                assert get(shared)[b"%d" % number] == b"%d" % turn
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert get(shared) == {b"%d" % number: b"14" for number in range(4)}


def test_a_segment_that_a_killed_process_has_just_made_is_the_next_to_be_written() -> None:
    world = World()
    (_, first), (_, second) = world.process(), world.process()
    put(first, b"k", b"1")
    put(second, b"k", b"2")
    for suffix in (".index", ".timeindex", ".log"):  # the first thing that a roll does
        world.fs.open(f"{ROOT}/__shared-0/{2:020d}{suffix}", "create").close()
    assert put(first, b"k", b"3") == b"2"  # not behind the segment that its own list ends with
    assert put(second, b"k", b"4") == b"3"
    _, fresh = world.process()
    assert get(fresh) == {b"k": b"4"}
    assert fresh._followed.machine.replayed == 4


def together(shared: CoordinatorRuntime[Register], works: Any) -> list[Any]:
    """What each of the works gives or raises, all of them in one group: they line up while a first one runs."""
    begun, go = threading.Event(), threading.Event()
    results: list[Any] = [None] * len(works)

    def hold(machine: Register) -> Decision[None]:
        begun.set()
        assert go.wait(30)
        return Decision((), None)

    def run(number: int) -> None:
        try:
            results[number] = shared.decide(works[number])
        except LogStoreError as error:
            results[number] = error

    first = threading.Thread(target=lambda: shared.decide(hold))
    first.start()
    assert begun.wait(30)
    threads = []
    for number in range(len(works)):
        thread = threading.Thread(target=run, args=(number,))
        thread.start()
        threads.append(thread)
        while len(shared._line._waiting) <= number:  # until it has lined up
            threading.Event().wait(0.0005)
    go.set()
    for thread in (first, *threads):
        thread.join(30)
        assert not thread.is_alive()
    return results


def test_a_group_shares_one_sync_and_each_sees_those_before_it() -> None:
    world = World()
    store, shared = world.process()
    put(shared, b"k", b"0")
    syncs: list[str] = []
    world.fs.faults.observer = lambda op: syncs.append(op.path) if op.name == "sync" else None
    works = [lambda machine, n=n: machine.decide_put(b"k", b"%d" % n) for n in range(1, 6)]
    assert together(shared, works) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(syncs) == 1
    assert shared.groups == 1
    assert get(world.process("r")[1]) == {b"k": b"5"}
    assert store.recovery_report == ()


def test_a_refusal_in_a_group_is_its_own() -> None:
    world = World()
    _, shared = world.process()

    def refuse(machine: Register) -> Decision[None]:
        raise StorageError(f"not after {sorted(machine.values)}")

    put_a, put_b = (lambda machine, k=k: machine.decide_put(k, b"1") for k in (b"a", b"b"))
    a, refused, b = together(shared, [put_a, refuse, put_b])
    assert (a, b) == (None, None)
    assert isinstance(refused, StorageError)
    assert "not after [b'a']" in refused.message
    assert get(shared) == {b"a": b"1", b"b": b"1"}


def test_a_refused_sync_fails_the_whole_group_and_nothing_of_it_is_seen() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"0")
    world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    read = [lambda machine: Decision((), machine.values[b"k"])]
    works = [lambda machine, n=n: machine.decide_put(b"k", b"%d" % n) for n in (1, 2)]
    early, first, second, late = together(shared, [*read, *works, *read])
    assert early == b"0"  # decided on what was durable
    assert isinstance(first, OutcomeUnknownError)
    assert isinstance(second, OutcomeUnknownError)
    assert isinstance(late, StorageError)  # its answer would have been of what may be gone
    assert get(shared) == {b"k": b"0"}
    assert put(shared, b"k", b"3") in (b"0", b"1", b"2")
    assert get(shared) == {b"k": b"3"}


def test_a_full_disk_in_a_group_refuses_those_that_do_not_fit() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"0")
    world.fs.capacity_bytes = world.fs._used + 100
    works = [lambda machine, v=v: machine.decide_put(b"k", v) for v in (b"small", b"L" * 200, b"t")]
    first, large, _ = together(shared, works)
    assert first == b"0"
    assert isinstance(large, DiskFullError)
    world.fs.capacity_bytes = None
    assert put(shared, b"k", b"2") in (b"small", b"t")


def test_a_group_is_one_batch() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"0")
    works = [lambda machine, n=n: machine.decide_put(b"k", b"%d" % n) for n in range(1, 5)]
    assert together(shared, works) == [b"0", b"1", b"2", b"3"]
    reader, again = world.process("r")
    data = reader.partition("__shared", 0).read(0)
    first = read_header(data)
    assert (first.records_count, read_header(data, first.size).records_count) == (1, 4)
    assert get(again) == {b"k": b"4"}


def test_what_rests_on_a_refused_batch_is_decided_anew() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"0")
    world.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends=".log")  # once: there is room again after it
    read = [lambda machine: Decision((), machine.values[b"k"])]
    works = [lambda machine, n=n: machine.decide_put(b"k", b"%d" % n) for n in (1, 2)]
    assert together(shared, [works[0], *read, works[1], *read]) == [b"0", b"1", b"1", b"2"]
    assert get(shared) == get(world.process("r")[1]) == {b"k": b"2"}


def test_a_batch_that_cannot_be_undone_is_in_doubt_for_all_who_gave_to_it() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"0")
    world.fs.faults.on("pwritev", FaultKind.EIO, path_ends=".log")
    world.fs.faults.on("truncate", FaultKind.EIO, path_ends=".log")
    works = [lambda machine, n=n: machine.decide_put(b"k", b"%d" % n) for n in (1, 2)]
    first, second = together(shared, works)
    assert isinstance(first, OutcomeUnknownError)
    assert isinstance(second, OutcomeUnknownError)


def test_changed_and_those_who_are_told() -> None:
    world = World()
    (_, first), (_, second) = world.process(), world.process()
    told = threading.Event()
    second.subscribe(told)
    assert not second.changed()
    put(first, b"k", b"1")
    assert second.changed()
    assert not told.is_set()  # of other processes nobody tells
    get(second)
    assert not second.changed()
    assert told.is_set()
    told.clear()
    get(second)
    assert not told.is_set()
    put(second, b"k", b"2")
    assert told.is_set()
    told.clear()
    second.unsubscribe(told)
    put(second, b"k", b"3")
    assert not told.is_set()


def test_a_leader_that_is_interrupted_leaves_the_lead_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"1")

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shared._log, "held", interrupted)
        with pytest.raises(KeyboardInterrupt):
            put(shared, b"k", b"2")

    def stop(machine: Register) -> Decision[None]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shared.decide(stop)
    assert put(shared, b"k", b"3") == b"1"


def test_a_machine_that_refuses_its_own_decision_is_made_anew() -> None:
    class Picky(Register):
        def replay(self, key: bytes | None, value: bytes | None) -> None:
            if value == b"bad" and not picky["done"]:
                picky["done"] = True
                raise InvalidRecordError("not this one")
            super().replay(key, value)

    picky = {"done": False}
    world = World()
    store, _ = world.process()
    shared = CoordinatorRuntime(
        store._context, store._registry.coordinator_logs.of(world.entry(store)), Picky
    )
    put(shared, b"k", b"1")
    with pytest.raises(InvalidRecordError, match="not this one"):
        put(shared, b"k", b"bad")
    assert get(shared) == {b"k": b"bad"}  # it is in the log, so it counts


# --- threads that are interrupted ---


def test_who_is_interrupted_as_it_waits_for_the_log_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    store, shared = world.process()
    put(shared, b"k", b"1")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store._context.locks, "acquire_in_turn", interrupt)
        with pytest.raises(KeyboardInterrupt):
            put(shared, b"k", b"2")
    results: list[bytes | None] = []
    later = threading.Thread(target=lambda: results.append(put(shared, b"k", b"3")), daemon=True)
    later.start()
    later.join(60)
    assert results == [b"1"]


def test_a_leader_that_is_interrupted_at_anothers_request_tells_it() -> None:
    world = World()
    _, shared = world.process()
    put(shared, b"k", b"1")
    leading, waiting = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def slow(machine: Register) -> Decision[bytes | None]:
        leading.set()
        assert waiting.wait(60)
        return machine.decide_put(b"a", b"1")

    def interrupted(machine: Register) -> Decision[bytes | None]:
        raise KeyboardInterrupt

    def attempt(decide: Any) -> None:
        try:
            shared.decide(decide)
        except BaseException as error:  # noqa: BLE001 - what it got is what is asked for
            errors.append(error)

    first = threading.Thread(target=attempt, args=(slow,))
    first.start()
    assert leading.wait(60)
    second = threading.Thread(target=attempt, args=(interrupted,))
    second.start()
    deadline_s = time.monotonic() + 60
    while not shared._line._waiting:  # it stays there: the leader is held up
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    waiting.set()
    first.join(60)
    second.join(60)
    assert sorted(type(error).__name__ for error in errors) == ["KeyboardInterrupt", "OutcomeUnknownError"]
    assert put(shared, b"k", b"2") == b"1"
    assert get(shared)[b"k"] == b"2"


def test_an_interrupted_replay_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    (_, writer), (_, reader) = world.process(), world.process()
    for number in range(3):
        put(writer, b"k%d" % number, b"v")
    real, calls = Register.replay, []

    def replay(self: Register, key: bytes | None, value: bytes | None) -> None:
        calls.append(key)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(self, key, value)

    monkeypatch.setattr(Register, "replay", replay)
    with pytest.raises(KeyboardInterrupt):
        get(reader)
    assert get(reader) == {b"k0": b"v", b"k1": b"v", b"k2": b"v"}
    assert reader._followed.machine.replayed == 3  # once each
