"""``Quota``: how many bytes a second callers may produce, or fetch: a token bucket for each that has a limit.

A bucket holds ``rate * burst_s`` bytes at most and is filled with ``rate`` bytes a second. What is larger than a full
bucket passes when the bucket is full, and is paid off before anything else passes. So in any t seconds there pass at
most ``rate * t`` bytes and a burst, or one request where that is larger.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from rpc.errors import BrokerBusyError, BrokerUnavailableError
from rpc.handlers.caller import Caller
from rpc.handlers.waits import Waits
from rpc.quota_rules import Direction, Limit, QuotaRules, Target

_LONGEST_DELAY_S: Final = 10.0
"""Longest delay of a fetch; beyond it the answer is "busy"."""
_LEAST_SHARE: Final = 4
"""A fetch begins when this part of a full bucket is there: not with the first few bytes."""
_ROUNDING: Final = 1e-3
"""A lack of less than this part of a byte is one of floating-point numbers."""
_LOOKS: Final = 8
"""How many of the buckets that were not used for longest are looked at to find one that can be forgotten."""


class TokenBucket:
    """Of the event loop alone. Full at the beginning. ``turn``: fetches read one after the other, as a read says only
    at its end how much it was."""

    def __init__(self, rate: int, burst_s: float, now_s: Callable[[], float]) -> None:
        self.rate = rate
        self.burst = max(rate * burst_s, 1.0)
        self.turn = asyncio.Lock()
        self._now_s = now_s
        self._tokens = self.burst
        self._filled_s = now_s()

    def tokens(self) -> float:
        """Bytes that may pass now; below 0: what is still to be paid off."""
        now_s = self._now_s()
        self._tokens = min(self.burst, self._tokens + (now_s - self._filled_s) * self.rate)
        self._filled_s = now_s
        return self._tokens

    def shortage_s(self, size: float) -> float:
        """After how many seconds so many bytes may pass, or a full bucket is there; 0: now."""
        lack = min(size, self.burst) - self.tokens()
        return lack / self.rate if lack > _ROUNDING else 0.0

    def charge(self, size: int) -> None:
        """The bytes have passed."""
        self._tokens = self.tokens() - size

    def is_unused(self) -> bool:
        """A new bucket would be the same."""
        return self.tokens() >= self.burst and not self.turn.locked()


class Quota:
    """Of one direction. ``most_callers``: how many buckets are remembered at most. A full one that was not used for
    long makes room for a new one; where none is found, callers share one bucket for each rate."""

    def __init__(
        self,
        direction: Direction,
        rules: QuotaRules,
        burst_s: float,
        most_callers: int,
        waits: Waits,
        now_s: Callable[[], float],
    ) -> None:
        self._direction = direction
        self._rules = rules
        self._burst_s = burst_s
        self._most_callers = most_callers
        self._waits = waits
        self._now_s = now_s
        self._limited = rules.has_limits(direction)
        self._buckets: OrderedDict[Target, TokenBucket] = OrderedDict()
        self._shared: dict[int, TokenBucket] = {}
        self.held_back = 0

    @property
    def tracked(self) -> int:
        """Callers whose use is remembered."""
        return len(self._buckets)

    def bucket(self, caller: Caller) -> TokenBucket | None:
        """The caller's; None: the caller has no limit."""
        if not self._limited:
            return None
        limit = self._rules.limit(self._direction, caller.principal, caller.client_id)
        if limit is None:
            return None
        found = self._buckets.get(limit.shared_by)
        if found is None:
            return self._new_bucket(limit)
        self._buckets.move_to_end(limit.shared_by)
        return found

    def _new_bucket(self, limit: Limit) -> TokenBucket:
        made = TokenBucket(limit.rate, self._burst_s, self._now_s)
        if len(self._buckets) >= self._most_callers:
            oldest = [key for key, _ in zip(self._buckets, range(_LOOKS), strict=False)]
            unused = [key for key in oldest if self._buckets[key].is_unused()]
            if not unused:
                return self._shared.setdefault(limit.rate, made)
            for key in unused:
                del self._buckets[key]
        self._buckets[limit.shared_by] = made
        return made

    def take(self, caller: Caller, size: int) -> None:
        """Bytes that came from the caller are taken. BrokerBusyError says when to send them again: they are not
        kept meanwhile."""
        bucket = self.bucket(caller)
        if bucket is None:
            return
        wait_s = bucket.shortage_s(size)
        if wait_s > 0:
            self.held_back += 1
            raise self._busy(caller, bucket, wait_s)
        bucket.charge(size)

    async def wait_to_take(self, caller: Caller, size: int) -> None:
        """As ``take``, for a stream, which is not read on meanwhile: once they may pass. BrokerUnavailableError: the
        broker stops."""
        bucket = self.bucket(caller)
        if bucket is None:
            return
        while (wait_s := bucket.shortage_s(size)) > 0:
            self.held_back += 1
            await self._pause(wait_s)
        bucket.charge(size)

    @asynccontextmanager
    async def reading(self, bucket: TokenBucket, most_bytes: int) -> AsyncIterator[int]:
        """The turn of a fetch of up to ``most_bytes``, before it has read anything: gives how many it may read; it
        says by ``charge`` how many these were. BrokerBusyError, BrokerUnavailableError."""
        try:
            async with self._waits.limit(_LONGEST_DELAY_S):
                await bucket.turn.acquire()
        except TimeoutError:
            self.held_back += 1
            raise self._busy(None, bucket, 1.0) from None
        try:
            least = min(most_bytes, bucket.burst / _LEAST_SHARE)
            wait_s = bucket.shortage_s(least)
            if wait_s > 0:
                self.held_back += 1
                if wait_s > _LONGEST_DELAY_S:
                    raise self._busy(None, bucket, wait_s)
                await self._pause(wait_s)
            yield min(most_bytes, max(1, int(bucket.tokens())))
        finally:
            bucket.turn.release()

    async def _pause(self, wait_s: float) -> None:
        if not await self._waits.pause(wait_s):
            raise BrokerUnavailableError("the broker stops", unreached=True)

    def _busy(self, caller: Caller | None, bucket: TokenBucket, wait_s: float) -> BrokerBusyError:
        of = "" if caller is None else f" of {caller.principal}, client id {caller.client_id!r},"
        return BrokerBusyError(
            f"{self._direction}: the quota{of} is {bucket.rate} bytes a second",
            hint="send less, or raise the quota (quota_overrides of the broker)",
            retry_after_ms=math.ceil(wait_s * 1000),
        )
