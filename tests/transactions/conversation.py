"""A coordinator and its log under the commands of the scripts ``tests/scripts/transaction_*.txt``.

open ID [timeout=MS] [continuing=PRODUCER/EPOCH] | add ID PRODUCER/EPOCH PLACE...
commit | abort ID PRODUCER/EPOCH                 | marked ID PRODUCER/EPOCH PLACE...
resolve ID [fence]     | overdue | abort-overdue ID | expired MS | forget MS [ID...]
wait MS                (the time goes on)          restart (a new coordinator replays the log)
lose COMMAND...        (the process dies before the command's records are durable)
show [ID]              (what the coordinator knows)
kafka ID FIELD=...     (a record that a broker may have written)
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.machine import Change, Decision
from logstore.transactions.coordinator import (
    EndedTransaction,
    TransactionCoordinator,
    TransactionState,
    TransactionStatus,
)
from logstore.transactions.transaction_records import encode_key, encode_value
from logstore.types import TopicPartition


class Conversation:
    def __init__(self) -> None:
        self.machine = TransactionCoordinator()
        self.log: list[Change] = []
        self.now_ms = 0
        self.fresh_id = 100
        self.losing = False

    def commands(self) -> dict[str, Callable[[list[str]], str]]:
        return {
            "open": self.open,
            "add": self.add,
            "commit": lambda words: self.end(words, True),
            "abort": lambda words: self.end(words, False),
            "marked": self.marked,
            "resolve": self.resolve,
            "overdue": lambda words: " ".join(self.overdue_ids()) or "none",
            "abort-overdue": self.abort_overdue,
            "expired": lambda words: " ".join(self.machine.expired(self.now_ms, int(words[0]))) or "none",
            "forget": self.forget,
            "wait": self.wait,
            "restart": self.restart,
            "lose": self.lose,
            "show": self.show,
            "kafka": self.kafka,
        }

    def keep(self, decision: Decision[object]) -> str:
        """How many records it takes; they are in the log and replayed, unless this one is lost."""
        if not self.losing:
            for key, value in decision.records:
                self.log.append((key, value))
                self.machine.replay(key, value)
        return "" if decision.records else " (no record)"

    def open(self, words: list[str]) -> str:
        options = dict(word.split("=") for word in words[1:])
        continuing = None
        if "continuing" in options:
            continuing = _identity(options["continuing"])
        fresh_id, self.fresh_id = self.fresh_id, self.fresh_id + 1
        decision = self.machine.decide_init(
            words[0], int(options.get("timeout", 1000)), fresh_id, self.now_ms, continuing=continuing
        )
        reply, kept = decision.reply, self.keep(decision)
        if reply.pending is not None:
            return f"first finish: {_ended(reply.pending)}{kept}"
        return f"{reply.producer_id}/{reply.epoch}{kept}"

    def add(self, words: list[str]) -> str:
        decision = self.machine.decide_add_partitions(
            words[0], *_identity(words[1]), _places(words[2:]), self.now_ms
        )
        return f"in it: {_names(decision.reply)}{self.keep(decision)}"

    def end(self, words: list[str], commit: bool) -> str:
        decision = self.machine.decide_end(words[0], *_identity(words[1]), commit=commit, now_ms=self.now_ms)
        return f"{_ended(decision.reply)}{self.keep(decision)}"

    def marked(self, words: list[str]) -> str:
        decision = self.machine.decide_marked(words[0], *_identity(words[1]), _places(words[2:]), self.now_ms)
        return f"left: {_names(decision.reply)}{self.keep(decision)}"

    def resolve(self, words: list[str]) -> str:
        decision = self.machine.decide_resolve(words[0], self.now_ms, fence=words[1:] == ["fence"])
        reply = decision.reply
        return f"{'nothing to do' if reply is None else _ended(reply)}{self.keep(decision)}"

    def abort_overdue(self, words: list[str]) -> str:
        if words[0] not in self.overdue_ids():
            return "not overdue (no record)"
        return self.resolve(words)

    def overdue_ids(self) -> list[str]:
        overdue = [state for state in self.machine.in_doubt() if state.is_overdue(self.now_ms)]
        return [state.transactional_id for state in overdue]

    def forget(self, words: list[str]) -> str:
        among = set(words[1:]) or None
        decision = self.machine.decide_forget(self.now_ms, int(words[0]), among)
        return f"forgotten: {' '.join(decision.reply) or 'none'}{self.keep(decision)}"

    def wait(self, words: list[str]) -> str:
        self.now_ms += int(words[0])
        return f"it is {self.now_ms}"

    def restart(self, words: list[str]) -> str:
        self.machine = TransactionCoordinator()
        for key, value in self.log:
            self.machine.replay(key, value)
        return f"{len(self.log)} records"

    def lose(self, words: list[str]) -> str:
        self.losing = True
        try:
            self.commands()[words[0]](words[1:])
        finally:
            self.losing = False
        return "lost"

    def show(self, words: list[str]) -> str:
        states = [self.machine.describe(words[0])] if words else self.machine.transactions()
        lines = [_state(state) for state in states]
        in_doubt = [state.transactional_id for state in self.machine.in_doubt()]
        if not words:
            lines.append(f"in doubt: {' '.join(in_doubt) or 'none'}")
        return "\n".join(lines)

    def kafka(self, words: list[str]) -> str:
        fields = dict(word.split("=") for word in words[1:])
        state = TransactionState(
            words[0],
            int(fields["producer"]),
            int(fields["epoch"]),
            1000,
            TransactionStatus[fields["status"]],
            tuple(_places(fields["places"].split(","))) if "places" in fields else (),
            self.now_ms,
            self.now_ms,
        )
        self.keep(Decision(((encode_key(words[0]), encode_value(state)),), None))
        return _state(state)


def _identity(word: str) -> tuple[int, int]:
    producer_id, epoch = word.split("/")
    return int(producer_id), int(epoch)


def _places(words: list[str]) -> list[TopicPartition]:
    split = (word.rsplit("-", 1) for word in words)
    return [TopicPartition(topic, int(partition)) for topic, partition in split]


def _names(places: tuple[TopicPartition, ...]) -> str:
    return " ".join(f"{place.topic}-{place.partition}" for place in places) or "none"


def _ended(ended: EndedTransaction) -> str:
    outcome = "commit" if ended.commit else "abort"
    return f"{outcome} with {ended.producer_id}/{ended.marker_epoch} in {_names(ended.places)}"


def _state(state: TransactionState) -> str:
    times = f"updated {state.updated_ms} began {state.start_ms}"
    return (
        f"{state.transactional_id}: {state.status.name} {state.producer_id}/{state.epoch} "
        f"timeout {state.timeout_ms} {times} in {_names(state.places)}"
    )
