"""How long a refused batch waits before it is tried again."""

from __future__ import annotations

from logstore.client.producer.accumulator import RETRY_FIRST_S, RETRY_MOST_S, _pause_s
from logstore.errors import RetriableError, UnknownTopicError


def test_longer_each_time_and_never_shorter_than_the_error_says() -> None:
    told = RetriableError("busy")
    assert _pause_s(1, told) == RETRY_FIRST_S
    assert _pause_s(3, told) == 4 * RETRY_FIRST_S
    assert _pause_s(10_000, told) == RETRY_MOST_S
    told.retry_after_ms = 2_500
    assert _pause_s(1, told) == 2.5
    told.retry_after_ms = 1
    assert _pause_s(1, told) == RETRY_FIRST_S
    assert _pause_s(1, UnknownTopicError("none")) == RETRY_FIRST_S
