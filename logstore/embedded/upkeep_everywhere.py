"""``UpkeepEverywhere``: compaction and erasure of a topic whose partitions other brokers have, too, and how far it is.

Each broker rewrites its own copies. What is told of a partition is what its leader did; what one broker could not do is
the failure of the call, which may be made again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from logstore.errors import ErasureIncompleteError, InvalidRecordError
from logstore.partition.leadership import Leadership
from logstore.types import (
    CleaningProgress,
    CompactedPartition,
    ErasedPartition,
    ErasureReport,
    LastCleaning,
    OpenTransaction,
    PartitionCompaction,
)
from logstore.upkeep.compactor import Steps

COMPACT: Final = "upkeep.compact"
ERASE: Final = "upkeep.erase"
CLEAN: Final = "upkeep.clean"
OPERATIONS: Final = (COMPACT, ERASE, CLEAN)


class UpkeepEverywhere:
    """``compact``, ``erase``: the work in this process alone; ``clean``: how clean the copies here are."""

    def __init__(
        self,
        leadership: Leadership,
        compact: Callable[[str, int | None, bool], Steps[list[CompactedPartition]]],
        erase: Callable[[str, Collection[bytes]], Steps[ErasureReport]],
        clean: Callable[[str], Mapping[int, PartitionCompaction]],
    ) -> None:
        self._leadership = leadership
        self._compact = compact
        self._erase = erase
        self._clean = clean

    # --- as the broker that was asked ---

    def compact(self, name: str, partition: int | None, roll: bool) -> Steps[list[CompactedPartition]]:
        """Errors as of the work in one process; PeerUnavailableError: a broker could not be asked."""
        request = json.dumps({"topic": name, "partition": partition, "roll": roll}).encode()
        await_others = self._leadership.everywhere(COMPACT, request)
        rows = {row.partition: row for row in (yield from self._compact(name, partition, roll))}
        leaders = self._leadership.leaders_of(name)
        for node, answer in await_others().items():
            for fields in json.loads(answer):
                row = _compacted(fields)
                if row.partition < len(leaders) and leaders[row.partition] == node:
                    rows[row.partition] = row
        return [rows[number] for number in sorted(rows)]

    def erase(self, name: str, keys: Collection[bytes]) -> Steps[ErasureReport]:
        """As ``compact``; ErasureIncompleteError: a broker that has copies is away."""
        away = self._leadership.away_from(name)
        if away:
            raise ErasureIncompleteError(
                f"brokers {', '.join(map(str, away))} have copies of {name!r} and are away: nothing was erased",
                hint="start them, then erase again",
            )
        encoded = [base64.b64encode(key).decode("ascii") for key in keys]
        ends = self._leadership.ends_of(name)
        request = json.dumps({"topic": name, "keys": encoded, "ends": ends}).encode()
        await_others = self._leadership.everywhere(ERASE, request)
        self._leadership.await_records(name, ends)
        report = yield from self._erase(name, keys)
        rows = {row.partition: row for row in report.partitions}
        leaders = self._leadership.leaders_of(name)
        for node, answer in await_others().items():
            for fields in json.loads(answer):
                row = ErasedPartition(**{**fields, "removed_files": tuple(fields["removed_files"])})
                if row.partition not in rows or leaders[row.partition] == node:
                    rows[row.partition] = row
        partitions = tuple(rows[number] for number in sorted(rows))
        return ErasureReport(topic=name, keys=report.keys, partitions=partitions, proven=report.proven)

    def clean(self, name: str) -> dict[int, PartitionCompaction]:
        """By partition, as its leader has it. But for ``exact_from``: a reader may have been at any copy, or at the
        leader before this one."""
        here = self._clean(name)
        answers = self._leadership.heard(CLEAN, json.dumps({"topic": name}).encode())
        told = {node: _cleaned(json.loads(answer)) for node, answer in answers.items()}
        leaders = dict(enumerate(self._leadership.leaders_of(name)))
        found: dict[int, PartitionCompaction] = {}
        for rows in (*told.values(), here):
            found |= rows
        for number, row in found.items():
            row = told.get(leaders.get(number, -1), here).get(number, row)
            exact_from = max(rows[number].exact_from for rows in (*told.values(), here) if number in rows)
            found[number] = replace(row, exact_from=exact_from)
        return found

    # --- as a broker that has copies ---

    def answer(self, operation: str, request: bytes) -> bytes:
        """The work here, asked by another broker. InvalidRecordError; errors of the work."""
        try:
            fields: Mapping[str, Any] = json.loads(request)
            name = str(fields["topic"])
            if operation == COMPACT:
                compacted = _finished(self._compact(name, fields["partition"], bool(fields["roll"])))
                return json.dumps([asdict(row) for row in compacted]).encode()
            if operation == CLEAN:
                return json.dumps({number: asdict(row) for number, row in self._clean(name).items()}).encode()
            keys = [base64.b64decode(key) for key in fields["keys"]]
            ends = {int(number): int(end) for number, end in fields["ends"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidRecordError(f"a request for {operation} that is none: {error}") from error
        self._leadership.await_records(name, ends)
        report = _finished(self._erase(name, keys))
        return json.dumps([asdict(row) for row in report.partitions]).encode()


def _finished(steps: Steps[Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _compacted(fields: Mapping[str, Any]) -> CompactedPartition:
    held_by = fields.get("held_by")
    return CompactedPartition(**{**fields, "held_by": None if held_by is None else OpenTransaction(*held_by)})


def _cleaned(rows: Mapping[str, Any]) -> dict[int, PartitionCompaction]:
    return {int(number): _cleaned_one(fields) for number, fields in rows.items()}


def _cleaned_one(fields: Mapping[str, Any]) -> PartitionCompaction:
    running, last = fields.get("running"), fields.get("last")
    return PartitionCompaction(
        **{
            **fields,
            "running": None if running is None else CleaningProgress(*running),
            "last": None if last is None else LastCleaning(**last),
        }
    )
