"""Who leads, who waits, and what happens to the line when a thread is interrupted in it."""

from __future__ import annotations

import threading

import pytest

from logstore.coordination.commit_queue import CommitQueue, Request, Wait


def request() -> Request[None]:
    return Request(lambda _subject, _request: None, 0.0)


def test_the_first_leads_and_hands_on_to_the_next_in_line() -> None:
    line: CommitQueue[None] = CommitQueue()
    first, second, third = request(), request(), request()
    assert line.join(first)
    results: list[bool] = []
    threads = []
    for number, other in enumerate((second, third)):
        thread = threading.Thread(target=lambda other=other: results.append(line.join(other)))
        thread.start()
        threads.append(thread)
        while len(line._waiting) < 2 + number:
            threading.Event().wait(0.0005)
    assert line.take() is first
    line.hand_on()
    threads[0].join(30)
    assert results == [True]
    assert line.take() is second
    assert line.take() is third
    assert line.take() is None
    third.wake()
    threads[1].join(30)
    assert results == [True, False]
    line.hand_on()
    assert line.join(request())  # idle again


class _Interrupted(Request[None]):
    """A request whose thread is interrupted as it waits, after ``before`` has been done."""

    before = staticmethod(lambda: None)

    def wait(self, wait: Wait) -> None:
        self.before()
        raise KeyboardInterrupt


def test_an_interrupted_thread_leaves_the_line() -> None:
    line: CommitQueue[None] = CommitQueue()
    first = request()
    assert line.join(first)
    with pytest.raises(KeyboardInterrupt):
        line.join(_Interrupted(lambda _subject, _request: None, 0.0))
    assert line.take() is first
    assert line.take() is None


def test_a_thread_interrupted_as_it_gets_the_lead_hands_it_on() -> None:
    line: CommitQueue[None] = CommitQueue()
    first = request()
    assert line.join(first)
    interrupted = _Interrupted(lambda _subject, _request: None, 0.0)

    def lead_comes() -> None:
        assert line.take() is first
        line.hand_on()

    interrupted.before = lead_comes  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        line.join(interrupted)
    assert interrupted.leads
    assert line.join(request())  # nobody leads any more
