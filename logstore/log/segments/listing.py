"""What a partition's directory holds, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from logstore.errors import UnsupportedStoreVersionError
from logstore.format.varint import INT64_MAX
from logstore.log.cleaning.swap import CLEANED_SUFFIX, SWAP_SUFFIX
from logstore.log.producers import transaction_index
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.segment import LOG_SUFFIX

_NAME = re.compile(r"(\d{20})(\.[a-z]+)(\..+)?")
_KNOWN = {LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX, transaction_index.SUFFIX, ".snapshot"}


@dataclass(slots=True)
class Listing:
    """``bases``: base offsets of the segments, sorted; ``indexes``: (base, suffix) of the index files there;
    ``leftovers``: names of temporary and retired files that a crash left and an owner removes."""

    bases: list[int] = field(default_factory=list)
    indexes: set[tuple[int, str]] = field(default_factory=set)
    leftovers: list[str] = field(default_factory=list)

    @staticmethod
    def of(names: Iterable[str], directory: str) -> Listing:
        """Sort the names out. A `%020d.swap` is for the owner to finish (``swap.py``): the segments can be read
        beside it. Segments renamed to `.swap` are Kafka's, of a cleaning that only Kafka can finish, and are
        refused: to ignore them could show records that were already cleaned away."""
        found = Listing()
        for name in names:
            match = _NAME.fullmatch(name)
            if name.endswith((".tmp", ".deleted", CLEANED_SUFFIX)):
                found.leftovers.append(name)
            elif match is not None and match[3] == SWAP_SUFFIX:
                raise UnsupportedStoreVersionError(
                    f"{directory}/{name} was left by a cleaning that this version cannot finish",
                    hint="open and close the directory with the Kafka broker that wrote it",
                )
            elif match is not None and int(match[1]) > INT64_MAX:
                continue  # no offset: such a file is a stranger's
            elif match is not None and match[3] is None and match[2] in _KNOWN:
                if match[2] == LOG_SUFFIX:
                    found.bases.append(int(match[1]))
                else:
                    found.indexes.add((int(match[1]), match[2]))
        found.bases.sort()
        return found
