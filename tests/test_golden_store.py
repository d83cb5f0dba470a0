"""A directory written before opens after: everything is read, appended to, closed, and read again."""

from __future__ import annotations

from pathlib import Path

import logstore
from tests.golden_store import expected, look, unpack


def test_an_old_store_is_read_as_it_was_read_then(tmp_path: Path) -> None:
    with logstore.open(unpack(tmp_path), mode="r") as store:
        assert look(store) == expected()


def test_an_old_store_is_written_on_and_opened_again(tmp_path: Path) -> None:
    path, then = unpack(tmp_path), expected()
    with logstore.open(path) as store:
        with store.producer(name="import") as producer:
            assert producer.last_sequence("flights", 0) == 20
            assert producer.last_sequence("flights", 1) == 20
            delivery = producer.send("flights", b"one more", partition=1)
            assert delivery.result(timeout_s=60).offset == then["places"]["flights-1"]["end"]
        with store.producer(
            transactional_id="till"
        ) as producer:  # fences the old one, which ends what it left open
            producer.begin()
            producer.send("paid", b"third")
            producer.commit()
        store.partition("latest", 0).append([(b"k0", b"newest")])
        now = look(store)
        assert [report.topic for report in store.recovery_report if report.topic == "paid"] == ["paid"]
    _compare(then, now)
    with logstore.open(path) as store:
        assert look(store) == now
        assert not [report for report in store.recovery_report if not report.topic.startswith("__")]
        store.admin.compact("latest")
        assert (
            store.partition("latest", 0).append([(b"k1", b"again")]).offset
            == now["places"]["latest-0"]["end"]
        )


def _compare(then: dict, now: dict) -> None:  # type: ignore[type-arg]
    """Nothing that was there has gone, and only what was written since has come."""
    assert now["groups"] == then["groups"]
    for place, before in then["places"].items():
        after = now["places"][place]
        assert after["start"] == before["start"]
        assert after["all"][: len(before["all"])] == before["all"]
    values = [row[3] for row in now["places"]["paid-0"]["committed"]]
    assert values == ["first", "third"]
