"""Commands of the scripts about groups, ``tests/scripts/group_*.txt``: what clients and time do, what is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from logstore.api.groups import MemberView
from logstore.machine import Decision, TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.groups.life import Log

Reply = TypeVar("Reply")
GROUP = "g"


class Conversation:
    """One coordinator, its log, and one group unless ``group=`` says another."""

    def __init__(self) -> None:
        self.log = Log()
        self.partitions: dict[str, int] = {}
        self.now_ms = 0

    def commands(self) -> Mapping[str, Callable[[list[str]], str]]:
        return {
            "topics": self.topics,
            "join": self.join,
            "sync": self.sync,
            "update": self.update,
            "leave": self.leave,
            "expire": self.expire,
            "view": self.view,
            "commit": self.commit,
            "end": self.end,
            "delete": self.delete,
            "retain": self.retain,
            "wait": self.wait,
            "show": self.show,
            "records": self.records,
            "restart": self.restart,
        }

    # --- facts and time ---

    def topics(self, words: list[str]) -> str:
        """topics flights=3 ...: what there is from now on; a topic that is gone is told to the groups."""
        given = {name: int(count) for name, count in (word.split("=") for word in words)}
        answers = []
        for topic in sorted(self.partitions.keys() - given.keys()):
            decision = self.log.machine.decide_delete_topic(topic, lambda _: None)
            answers.append(f"{topic} deleted{self.did(decision)}")
        self.partitions = given
        return "\n".join(answers)

    def wait(self, words: list[str]) -> str:
        """wait 1000: milliseconds."""
        self.now_ms += int(words[0])
        return f"it is {self.now_ms}"

    def restart(self, words: list[str]) -> str:
        """Another process takes over, from the log alone."""
        self.log.machine = self.log.rebuilt()
        return f"{sum(len(entry.records) for entry in self.log.entries)} records"

    # --- members ---

    def join(self, words: list[str]) -> str:
        """join a flights ... instance=i pattern=p assignor=range: its topics, then its wishes."""
        (name, *topics), wishes = split(words)
        decision = self.log.machine.decide_join(
            wishes.pop("group", GROUP),
            name,
            instance_id=wishes.pop("instance", None),
            client=f"{name}@here",
            topics=topics,
            pattern=wishes.pop("pattern", None),
            assignor=wishes.pop("assignor", "sticky"),
            session_timeout_ms=int(wishes.pop("session", "45000")),
            max_poll_interval_ms=300_000,
            liveness=bytes(4),
            partitions=self.partitions,
            now_ms=self.now_ms,
        )
        return self.seen(decision)

    def sync(self, words: list[str]) -> str:
        """sync a [partition ...] epoch=3: what it owns; without partitions, what it may read. Without epoch, its
        own."""
        (name, *places), wishes = split(words)
        group = wishes.get("group", GROUP)
        view = self.log.machine.view(group, name)
        owned: Iterable[TopicPartition] = [place_of(word) for word in places]
        if not places and view is not None:
            owned = view.assigned
        epoch = int(wishes.get("epoch", 0 if view is None else view.epoch))
        decision = self.log.machine.decide_sync(group, name, epoch, list(owned), self.now_ms)
        return self.seen(decision)

    def update(self, words: list[str]) -> str:
        """update a flights ...: what it wants, under what topics there are."""
        (name, *topics), wishes = split(words)
        group = wishes.get("group", GROUP)
        view = self.log.machine.view(group, name)
        epoch = 0 if view is None else view.epoch
        decision = self.log.machine.decide_update(group, name, epoch, topics, self.partitions, self.now_ms)
        return self.seen(decision)

    def leave(self, words: list[str]) -> str:
        """leave a [forget]"""
        decision = self.log.machine.decide_leave(GROUP, words[0], self.now_ms, forget="forget" in words)
        done = self.did(decision)
        return ("gone" if decision.reply else "was no member") + done

    def expire(self, words: list[str]) -> str:
        decision = self.log.machine.decide_expire(GROUP, words, self.now_ms)
        return f"gone: {' '.join(decision.reply) or 'nobody'}{self.did(decision)}"

    def view(self, words: list[str]) -> str:
        found = self.log.machine.view(GROUP, words[0])
        return "no member" if found is None else shown_view(found)

    # --- offsets ---

    def commit(self, words: list[str]) -> str:
        """commit flights-0=5 ... by=a epoch=2 producer=7/0 group=g: an epoch is the member's own if not given."""
        _, wishes = split(words)
        group, name = wishes.pop("group", GROUP), wishes.pop("by", None)
        epoch, producer = wishes.pop("epoch", None), wishes.pop("producer", None)
        offsets = {place_of(word): OffsetAndMetadata(int(offset)) for word, offset in wishes.items()}
        who: dict[str, Any] = {}
        if name is not None:
            view = self.log.machine.view(group, name)
            who = {"member_id": name, "epoch": int(epoch or (0 if view is None else view.epoch))}
        if producer is None:
            decision = self.log.machine.decide_commit(group, offsets, self.now_ms, **who)
        else:
            writer = TransactionalWriter(*map(int, producer.split("/")))
            decision = self.log.machine.decide_transactional_commit(
                group, offsets, writer, self.now_ms, **who
            )
        return ("pending" if decision.producer else "committed") + self.did(decision)

    def end(self, words: list[str]) -> str:
        """end 7/1 commit|abort: the marker."""
        producer_id, epoch = map(int, words[0].split("/"))
        self.log.end_transaction(producer_id, epoch, words[1] == "commit")
        return self.offsets(GROUP) or "no offsets"

    def delete(self, words: list[str]) -> str:
        """delete g [flights-0 ...]: the group, or just these offsets."""
        group, *places = words
        machine = self.log.machine
        decision = (
            machine.decide_delete_offsets(group, [place_of(word) for word in places])
            if places
            else machine.decide_delete_group(group)
        )
        return f"deleted: {shown(decision.reply) or 'nothing'}{self.did(decision)}"

    def retain(self, words: list[str]) -> str:
        """retain 60000: forget what is older."""
        decision = self.log.machine.decide_expire_offsets(self.now_ms, int(words[0]))
        gone = [f"{name}: {shown(places) or 'the group'}" for name, places in decision.reply.items()]
        return "\n".join([*gone, f"forgotten{self.did(decision)}"])

    # --- looks ---

    def show(self, words: list[str]) -> str:
        """show [group ...]: state, members, offsets."""
        lines = []
        for name in words or self.log.machine.groups():
            row = self.log.machine.describe(name)
            lines.append(f"{name}: {row.state}, epoch {row.epoch}, {row.assignor}")
            for member in row.members:
                static = f" ({member.instance_id})" if member.instance_id is not None else ""
                left = " left" if member.left else ""
                parts = [f"  {member.member_id}{static}{left} epoch {member.epoch}: {shown(member.assigned)}"]
                parts += [f"revoking {shown(member.revoking)}"] * bool(member.revoking)
                waiting = set(member.target) - set(member.assigned)
                parts += [f"waits for {shown(waiting)}"] * bool(waiting)
                lines.append("; ".join(parts).replace(": ;", ":").rstrip(": "))
            offsets = self.offsets(name)
            lines += [f"  {offsets}"] if offsets else []
        return "\n".join(lines) or "no groups"

    def offsets(self, group: str) -> str:
        found = self.log.machine.committed(group)
        parts = [f"{shown([place])}={row.offset}" for place, row in sorted(found.items())]
        pending = self.log.machine.pending(group)
        parts += [f"{shown([place])} pending by {producer}" for place, producer in sorted(pending.items())]
        return " ".join(parts)

    def records(self, words: list[str]) -> str:
        return str(sum(len(entry.records) for entry in self.log.entries))

    def seen(self, decision: Decision[MemberView]) -> str:
        done = self.did(decision)
        return shown_view(decision.reply) + done

    def did(self, decision: Decision[Reply]) -> str:
        self.log.append(decision)
        return "" if decision.records else " (no record)"


def split(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    plain = [word for word in words if "=" not in word]
    return plain, dict(word.split("=", 1) for word in words if "=" in word)


def place_of(word: str) -> TopicPartition:
    topic, _, partition = word.rpartition("-")
    return TopicPartition(topic, int(partition))


def shown(places: Iterable[TopicPartition]) -> str:
    return " ".join(f"{topic}-{partition}" for topic, partition in sorted(places))


def shown_view(view: MemberView) -> str:
    revoking = f", revoking {shown(view.revoking)}" if view.revoking else ""
    initial = " ".join(f"{topic}={count}" for topic, count in sorted(view.initial.items()))
    return f"epoch {view.epoch} of {view.group_epoch}: {shown(view.assigned) or '-'}{revoking} (began with {initial})"
