"""Waits of callers end in time, and all at once when the broker stops."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from logstore.api.groups import JoinRequest
from logstore.api.records import FetchRequest
from rpc.client.store import RemoteStore
from rpc.handlers.waits import Waits
from tests.rpc.served import Served, wait


def test_a_wait_ends_with_the_news_in_time_or_when_all_do() -> None:
    async def run() -> None:
        waits, news = Waits(), asyncio.Event()
        assert not await waits.wait(news.wait(), 0.01)
        waiting = [asyncio.create_task(waits.wait(news.wait(), limit)) for limit in (600, None)]
        late = asyncio.create_task(waits.wait(asyncio.Event().wait(), 0))
        await asyncio.sleep(0)  # all have begun, and the last one's time is over
        waits.end()
        assert await asyncio.gather(*waiting, late) == [False, False, False]
        assert not await waits.wait(news.wait(), 600)
        with pytest.raises(TimeoutError):
            async with waits.limit(None):
                await news.wait()

    asyncio.run(run())


def test_callers_that_wait_do_not_hold_a_stop_up(served: Served, client: RemoteStore) -> None:
    client.create_topic("t")
    request = FetchRequest("t", 0, 0, -1, 1 << 20, False)
    member = client.backend.join_group("g", JoinRequest(topics=frozenset({"t"})))
    with ThreadPoolExecutor(1) as readers:
        reading = readers.submit(
            client.backend.fetch, [request], isolation="read_committed", min_bytes=1, max_bytes=1 << 20, max_wait_s=600
        )  # fmt: skip
        until_s = time.monotonic() + 60
        while len(served.broker._waits._under_way) < 3:  # the fetch, a heartbeat, the wait for metadata
            assert time.monotonic() < until_s
            time.sleep(0.01)
        wait(served.broker.stop(600), 60)
        (result,) = reading.result(60)
    assert (bytes(result.batches), result.error) == (b"", None)
    member.cancel_on_change(None, None)
