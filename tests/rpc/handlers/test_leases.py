"""Leases end when nobody is heard of, or by their holder; what is open ends with the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rpc.errors import UnknownLeaseError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import Caller
from rpc.handlers.leases import Leases
from rpc.handlers.waits import Waits

CALLER = Caller("User:a")
DEADLINE_S = 30.0


class Opening:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Under:
    """One of the leases under which an opening is held."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening

    def release(self) -> None:
        self.opening.release()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_an_opening_that_was_taken_up_twice_does_not_end_with_the_lease_that_nobody_knows() -> None:
    """The first answer got lost: its lease is kept by nobody, and the one that is kept is of the same opening."""

    async def work() -> None:
        blocking = Blocking("test", 1)
        leases, opening = Leases(blocking, Waits(), 0.8), Opening()
        lost = leases.add(CALLER, Under(opening), of=opening)
        kept = leases.add(CALLER, Under(opening), of=opening)

        def is_gone() -> bool:
            leases.find(CALLER, kept, Under)  # a word of its holder
            return lost not in leases._held

        await _until(is_gone)
        assert opening.released == 0
        leases.find(CALLER, kept, Under)
        await _until(lambda: opening.released == 1)  # silent from now on
        with pytest.raises(UnknownLeaseError):
            leases.find(CALLER, kept, Under)
        await leases.close()
        blocking.close()

    asyncio.run(work())


def test_who_gives_an_opening_up_has_no_lease_of_it_any_more() -> None:
    async def work() -> None:
        blocking = Blocking("test", 1)
        leases, opening, other = Leases(blocking, Waits(), 600), Opening(), Opening()
        first = leases.add(CALLER, Under(opening), of=opening)
        second = leases.add(CALLER, Under(opening), of=opening)
        third = leases.add(CALLER, Under(other), of=other)
        await leases.release(CALLER, [second])
        assert opening.released == 1
        for gone in (first, second):
            with pytest.raises(UnknownLeaseError):
                leases.find(CALLER, gone, Under)
        leases.find(CALLER, third, Under)
        await leases.close()
        assert (opening.released, other.released) == (1, 1)
        blocking.close()

    asyncio.run(work())
