"""All that cleans in one opened store: in the background, by hand, and for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logstore import arguments
from logstore.errors import InvalidArgumentError
from logstore.log.cleaning.cleaning import Cleaning
from logstore.log.cleaning.retirement import Retirement
from logstore.partition.cleaned_topic import CleanedTopic
from logstore.partition.context import StoreContext
from logstore.upkeep.cleaner import CHECK_S, DEFAULT_DUTY, Cleaner
from logstore.upkeep.cleaning_run import CleaningKit, MakeCleaning
from logstore.upkeep.clock_guard import ClockGuard
from logstore.upkeep.compactor import Compactor
from logstore.upkeep.erasure import Eraser

DEFAULT_KEY_MAP_BYTES = 64 << 20
_LEAST_KEY_MAP_BYTES = 1 << 16


class CleaningManager:
    """``duty``: share of the time that the background may take; ``key_map_bytes``: memory for one key map."""

    def __init__(
        self,
        context: StoreContext,
        retirement: Retirement,
        topics: Callable[[], Sequence[CleanedTopic]],
        guard: ClockGuard,
        *,
        duty: float = DEFAULT_DUTY,
        key_map_bytes: int = DEFAULT_KEY_MAP_BYTES,
        check_s: float = CHECK_S,
        make: MakeCleaning | None = None,
    ) -> None:
        engine = Cleaning if make is None else make
        self.kit = CleaningKit(context, retirement, key_map_bytes=key_map_bytes, make=engine, guard=guard)
        self.cleaner = Cleaner(self.kit, topics, duty=duty, check_s=check_s)
        self.compactor = Compactor(self.kit)
        self.eraser = Eraser(self.kit, self.compactor)


def check_settings(duty: object, key_map_bytes: object) -> None:
    """InvalidArgumentError names the setting."""
    if isinstance(duty, bool) or not isinstance(duty, int | float) or not 0 < duty <= 1:
        raise InvalidArgumentError(
            f"cleaner_duty={arguments.shown(duty)}",
            hint="it is the share of the time that cleaning may take: above 0, at most 1",
        )
    arguments.whole(key_map_bytes, "cleaner_key_map_bytes", _LEAST_KEY_MAP_BYTES)
