"""What ends a consumer's waits: a trigger before, during and after, and news of its group."""

from __future__ import annotations

from logstore.api.cancellation import CancelHandle
from logstore.client.consumer.wakeup import Wakeup


def test_a_cancelled_handle_stays_so_and_stops_a_wait_that_begins_later() -> None:
    stopped: list[str] = []
    handle = CancelHandle()
    handle.on_cancel(lambda: stopped.append("early"))
    handle.cancel()
    assert (handle.cancelled, stopped) == (True, ["early"])
    handle.on_cancel(lambda: stopped.append("late"))
    assert stopped == ["early", "late"]
    handle.on_cancel(None)
    handle.cancel()
    assert stopped == ["early", "late"]


def test_a_trigger_ends_the_wait_under_way_or_the_next_one() -> None:
    wakeup = Wakeup()
    with wakeup.waiting() as handle:
        assert not handle.cancelled
        wakeup.trigger()
        assert handle.cancelled
    with wakeup.waiting() as handle:
        assert handle.cancelled  # nobody has taken it
    assert wakeup.take()
    assert not wakeup.take()
    with wakeup.waiting() as handle:
        assert not handle.cancelled


def test_each_wait_is_watched_while_it_lasts() -> None:
    wakeup, watched = Wakeup(), []
    wakeup.watch = watched.append
    with wakeup.waiting() as handle:
        assert watched == [handle]
        watched[-1].cancel()
        assert handle.cancelled
    assert watched[1:] == [None]
    assert not wakeup.take()  # news of the group is no wakeup of the caller's
