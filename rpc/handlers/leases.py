"""``Leases``: names of producers and transactional ids that clients hold, as long as they are heard of."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from logstore.errors import LogStoreError
from replication.errors import NotLeaderError
from rpc.errors import UnknownLeaseError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import Caller
from rpc.handlers.waits import Waits

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.5


class Releasable(Protocol):
    def release(self) -> None: ...


Held = TypeVar("Held", bound=Releasable)


@dataclass(slots=True)
class HeldLease:
    """``of``: what is open, of which there may be several leases: an opening that is taken up again, as the answer got
    lost, is the same one. ``ended_by``: why it is over without its holder's doing, None while it is not; ``moves``:
    when the broker stops, another one goes on with it."""

    what: Releasable
    of: object
    principal: str
    heard_s: float
    ended_by: Callable[[], LogStoreError | None]
    moves: bool


class Leases:
    """Of the event loop alone. ``timeout_s``: after how long without a word a lease is released."""

    def __init__(self, blocking: Blocking, waits: Waits, timeout_s: float) -> None:
        self._waits = waits
        self._blocking = blocking
        self.timeout_s = timeout_s
        self._held: dict[str, HeldLease] = {}
        self._watching: asyncio.Task[None] | None = None

    def add(
        self,
        caller: Caller,
        what: Releasable,
        ended_by: Callable[[], LogStoreError | None] = lambda: None,
        *,
        of: object = None,
        moves: bool = False,
    ) -> str:
        """The lease's id, which cannot be guessed. ``of``: see ``HeldLease``; None: ``what``."""
        lease_id = secrets.token_hex(16)
        now_s = asyncio.get_running_loop().time()
        self._held[lease_id] = HeldLease(
            what, what if of is None else of, caller.principal, now_s, ended_by, moves
        )
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        return lease_id

    def find(self, caller: Caller, lease_id: str, kind: type[Held]) -> Held:
        """What is held. UnknownLeaseError unless it is held by this caller, and of this kind."""
        held = self._held.get(lease_id)
        if held is None or held.principal != caller.principal or not isinstance(held.what, kind):
            raise UnknownLeaseError(
                "the lease has ended: it was not kept alive, or the broker was started anew"
            )
        held.heard_s = asyncio.get_running_loop().time()
        return held.what

    async def keep(
        self, caller: Caller, lease_ids: Collection[str], max_wait_s: float
    ) -> list[tuple[str, LogStoreError]]:
        """Those that have ended and why, once there is one, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(max_wait_s, self.timeout_s / 3)
        while True:
            ended = [
                (lease_id, reason)
                for lease_id in lease_ids
                if (reason := self._hear(caller, lease_id)) is not None
            ]
            left_s = deadline_s - loop.time()
            if ended or left_s <= 0 or self._waits.over:
                return ended
            await self._waits.pause(min(left_s, _LOOK_S))

    def _hear(self, caller: Caller, lease_id: str) -> LogStoreError | None:
        held = self._held.get(lease_id)
        if held is None or held.principal != caller.principal:
            return UnknownLeaseError("the lease has ended")
        held.heard_s = asyncio.get_running_loop().time()
        ended = held.ended_by()
        if isinstance(ended, NotLeaderError):
            del self._held[lease_id]  # it goes on elsewhere
        return ended

    async def release(self, caller: Caller, lease_ids: Collection[str]) -> None:
        for lease_id in lease_ids:
            held = self._held.get(lease_id)
            if held is not None and held.principal == caller.principal:
                for one in self._all_of(held):
                    del self._held[one]
                await self._blocking.run(held.what.release)

    def _all_of(self, held: HeldLease) -> list[str]:
        return [lease_id for lease_id, one in self._held.items() if one.of is held.of]

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._held:
            await asyncio.sleep(_LOOK_S)
            for lease_id, held in list(self._held.items()):
                if isinstance(held.ended_by(), NotLeaderError):
                    self._held.pop(lease_id, None)
                elif loop.time() - held.heard_s > self.timeout_s:
                    self._held.pop(lease_id, None)
                    if not self._all_of(held):  # else its holder goes on under another lease
                        await self._end(held)
        self._watching = None

    async def _end(self, held: HeldLease) -> None:
        try:
            await self._blocking.run(held.what.release)
        except LogStoreError as error:
            logger.warning("a lease of a silent client was not released cleanly: %s", error)

    async def close(self) -> None:
        """Release all, unless another node can go on with it."""
        while self._held:
            _, held = self._held.popitem()
            if not held.moves:
                await self._end(held)
        if self._watching is not None:
            self._watching.cancel()
