"""The checker finds one planted anomaly of each kind, and nothing in a history without any."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.history.checker import KINDS, check
from tests.history.events import (
    Acked,
    Begun,
    Decided,
    End,
    Event,
    EventFile,
    History,
    Moved,
    OffsetsCommitted,
    Polled,
    Reading,
    Refused,
    Send,
    read_events,
)

IN, OUT = ("in", 0), ("out", 0)


def clean() -> History:
    """A producer, a writer of transactions, a copier, and two readers of a group: what was promised holds."""
    return History(
        {
            "p": [
                Begun(),
                Send(IN, ("a", "b")),
                Acked(("a", "b"), (0, 1)),
                Send(IN, ("refused",)),
                Refused(("refused",)),
                Send(IN, ("doubt", "c")),
                Acked(("c",), (3,)),
            ],
            "t": [
                Begun(),
                Send(IN, ("t1",), "t/1"),
                Send(OUT, ("t1-out",), "t/1"),
                Acked(("t1", "t1-out"), (4, 0)),
                Decided("t/1", True),
                Send(IN, ("t2",), "t/2"),
                Acked(("t2",), (6,)),
                Decided("t/2", False),
                Send(IN, ("t3",), "t/3"),
                Acked(("t3",), (8,)),
            ],
            "copier": [
                Begun(),
                Moved("assigned"),
                Polled(((IN, 0, "a"), (IN, 1, "b"), (IN, 2, "doubt"), (IN, 3, "c"), (IN, 4, "t1"))),
                Reading("c/1", "copy", ("a", "b", "doubt", "c", "t1")),
                Send(OUT, ("a'", "b'", "doubt'", "c'", "t1'"), "c/1"),
                Acked(("a'", "b'", "doubt'", "c'", "t1'"), (2, 3, 4, 5, 6)),
                Decided("c/1", True),
                OffsetsCommitted("copy", ((IN, 5),)),
            ],
            "r1": [
                Moved("assigned"),
                Polled(((OUT, 0, "t1-out"), (OUT, 2, "a'"))),
                Polled(((OUT, 3, "b'"),)),
                OffsetsCommitted("readers", ((OUT, 4),)),
                Moved("revoked"),
                Polled(()),
            ],
            "r2": [Moved("assigned"), Polled(((OUT, 4, "doubt'"), (OUT, 5, "c'"), (OUT, 6, "t1'")))],
        },
        End(
            records=(
                (IN, ((0, "a"), (1, "b"), (2, "doubt"), (3, "c"), (4, "t1"))),
                (OUT, ((0, "t1-out"), (2, "a'"), (3, "b'"), (4, "doubt'"), (5, "c'"), (6, "t1'"))),
            ),
            groups=(("copy", ((IN, 5),)), ("readers", ((OUT, 4),))),
            drained=(("in", "copy"),),
        ),
    )


def replaced(process: str, old: Event, *new: Event) -> Callable[[History], None]:
    def plant(history: History) -> None:
        events = history.processes[process]
        at = events.index(old)
        events[at : at + 1] = new

    return plant


def left(place: tuple[str, int], *records: tuple[int, str]) -> Callable[[History], None]:
    """The end, with other records in one partition."""

    def plant(history: History) -> None:
        end = history.end
        parts = tuple((one, records if one == place else there) for one, there in end.records)
        history.end = End(parts, end.groups, end.drained)

    return plant


def both(*plants: Callable[[History], None]) -> Callable[[History], None]:
    def plant(history: History) -> None:
        for one in plants:
            one(history)

    return plant


READ = Polled(((OUT, 3, "b'"),))
PLANTS: dict[str, Callable[[History], None]] = {
    "inconsistent offset": replaced("r1", READ, Polled(((OUT, 3, "c'"),))),
    "duplicate": replaced("p", Acked(("c",), (3,)), Acked(("c",), (5,))),
    "lost write": left(IN, (0, "a"), (2, "doubt"), (3, "c"), (4, "t1")),
    "unseen write": left(OUT, (0, "t1-out"), (2, "a'"), (3, "b'"), (4, "doubt'"), (5, "c'")),
    "phantom read": replaced("r1", READ, READ, Polled(((OUT, 9, "never sent"),))),
    "aborted read": left(IN, (0, "a"), (1, "b"), (2, "doubt"), (3, "c"), (4, "t1"), (6, "t2")),
    "unstable read": replaced("r1", READ, READ, Polled(((IN, 8, "t3"),))),
    "torn transaction": both(
        replaced("t", Decided("t/1", True)),
        left(IN, (0, "a"), (1, "b"), (2, "doubt"), (3, "c")),
    ),
    "write before its source": left(
        OUT, (2, "a'"), (3, "b'"), (4, "doubt'"), (5, "c'"), (6, "t1'"), (7, "t1-out")
    ),
    "source taken twice": replaced(
        "copier",
        OffsetsCommitted("copy", ((IN, 5),)),
        Reading("c/2", "copy", ("t1",)),
        Decided("c/2", True),
        OffsetsCommitted("copy", ((IN, 5),)),
    ),
    "source left": replaced(
        "copier",
        Reading("c/1", "copy", ("a", "b", "doubt", "c", "t1")),
        Reading("c/1", "copy", ("a", "b", "doubt", "t1")),
    ),
    "non-monotonic send": replaced("p", Send(IN, ("a", "b")), Send(IN, ("b", "a"))),
    "non-monotonic poll": replaced("r1", READ, READ, Polled(((OUT, 2, "a'"),))),
    "skipped poll": replaced("r2", Moved("assigned"), Moved("assigned"), Polled(((OUT, 2, "a'"),))),
    "offset gone back": replaced(
        "r1", OffsetsCommitted("readers", ((OUT, 4),)), OffsetsCommitted("readers", ((OUT, 5),))
    ),
}


def test_a_clean_history_raises_nothing() -> None:
    assert check(clean()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_anomaly_is_found(kind: str) -> None:
    history = clean()
    PLANTS[kind](history)
    assert kind in {anomaly.kind for anomaly in check(history)}


def test_a_source_of_its_own_is_found() -> None:
    history = clean()
    replaced(
        "t", Send(OUT, ("t1-out",), "t/1"), Send(OUT, ("t1-out",), "t/1"), Reading("t/1", "g", ("t1'",))
    )(history)
    found = [anomaly.detail for anomaly in check(history) if anomaly.kind == "write before its source"]
    assert any("from its own writes" in detail for detail in found)


def test_positions_that_moved_are_no_anomaly() -> None:
    history = clean()
    replaced("r1", READ, READ, Moved("rewound"), Polled(((OUT, 2, "a'"), (OUT, 3, "b'"))))(history)
    assert check(history) == []


def test_what_is_in_doubt_may_be_there_or_not() -> None:
    history = clean()
    left(IN, *history.end.records[0][1], (8, "t3"))(history)
    assert {anomaly.kind for anomaly in check(history)} == {"source left"}


def test_a_value_is_sent_once() -> None:
    history = clean()
    history.processes["q"] = [Send(IN, ("a",))]
    with pytest.raises(ValueError, match="sent before"):
        check(history)


@pytest.mark.parametrize("seed", range(50))
def test_a_dropped_or_doubled_record_is_found_in_a_long_history(seed: int) -> None:
    """A log of three partitions and 600 records: each is dropped, doubled or moved at a random place."""
    dice = random.Random(seed)
    places = [("t", number) for number in range(3)]
    logs: dict[tuple[str, int], list[str]] = {place: [] for place in places}
    events: list[Event] = [Begun()]
    for number in range(60):
        place = dice.choice(places)
        values = tuple(f"{number}.{n}" for n in range(10))
        offsets = tuple(range(len(logs[place]), len(logs[place]) + 10))
        logs[place].extend(values)
        events += [Send(place, values), Acked(values, offsets)]
    records = {place: list(enumerate(log)) for place, log in logs.items()}
    polls: list[Event] = [Moved("assigned")]
    for place, log in records.items():
        polls += [Polled(tuple((place, *one) for one in log[at : at + 7])) for at in range(0, len(log), 7)]

    def found() -> set[str]:
        end = End(tuple((place, tuple(log)) for place, log in records.items()))
        return {anomaly.kind for anomaly in check(History({"p": events, "r": polls}, end))}

    assert found() == set()
    place = dice.choice([place for place in places if len(records[place]) > 20])
    at = dice.randrange(5, len(records[place]) - 5)
    kind = dice.choice(["dropped", "doubled", "swapped"])
    log = records[place]
    if kind == "dropped":
        del log[at]
        assert found() & {"lost write"}
    elif kind == "doubled":
        log.append((len(log), log[at][1]))
        assert "duplicate" in found()
    else:
        log[at], log[at + 1] = (at, log[at + 1][1]), (at + 1, log[at][1])
        assert {"inconsistent offset", "duplicate"} <= found()


def test_events_survive_a_file_and_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events"
    file = EventFile(path)
    for events in clean().processes.values():
        for event in events:
            file.note(event)
    file.close()
    assert list(read_events(path)) == [event for events in clean().processes.values() for event in events]
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert len(list(read_events(path))) == whole.count(b"\n") - 1
