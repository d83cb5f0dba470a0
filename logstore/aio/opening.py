"""``Opening``: what is made in a thread, by ``await`` or by ``async with``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class Closes(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Made = TypeVar("Made", bound=Closes)


class Opening(Generic[Made]):
    """``client = await opening`` leaves closing to the caller; ``async with opening as client:`` does it."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Made]]) -> None:
        self._make = make
        self._made: Made | None = None

    def __await__(self) -> Generator[Any, None, Made]:
        return self._make().__await__()

    async def __aenter__(self) -> Made:
        self._made = made = await self._make()
        return made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is not None:
            await self._made.__aexit__(kind, error, trace)
