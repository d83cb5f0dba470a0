"""What type checkers say of programs that use the public façade: settings by name, serializers' types followed."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.client.consumer.settings import ConsumerOptions
from logstore.client.producer.settings import ProducerOptions
from logstore.client.table.table import KeyTable, TableOptions
from logstore.errors import InvalidArgumentError, UnknownSettingError
from tests.house import ROOT

# WRONG: this line must be an error, and no other. TYPE: what the line reveals.
PROGRAM = """
import json
from dataclasses import dataclass

import logstore
from logstore import Record


@dataclass
class Event:
    amount: int


def encode(event: Event | None) -> bytes | None:
    return None if event is None else str(event.amount).encode()


def decode(raw: bytes) -> Event:
    return Event(int(raw))


with logstore.open(":memory:", lock_timout_s=1) as store:  # WRONG
    reveal_type(store)  # TYPE LogStore
    logstore.open(":memory:", "w")  # WRONG
    store.create_topic("t", partitions="3")  # WRONG
    store.create_topic("t", 3, {"cleanup.policy": "compact"}, exist_ok=True)

    store.producer(ack="all")  # WRONG
    store.producer(acks=2)  # WRONG
    store.producer(linger_ms="5")  # WRONG
    plain = store.producer(acks="all", linger_ms=5, compression="zstd", name="import")
    reveal_type(plain)  # TYPE Producer[bytes, bytes]
    plain.send("t", 5)  # WRONG
    plain.send("t", b"v", key="k")  # WRONG
    plain.send("t", b"v", key=b"k", headers=[("h", b"v")], timestamp_ms=1, partition=0)
    plain.send_many("t", [(b"k", "v")])  # WRONG
    plain.send_many("t", [(b"k", b"v"), (None, None), (b"k", b"v", [("h", b"1")], 17)])
    typed = store.producer(value_serializer=encode, transactional_id="copy")
    reveal_type(typed.send("t", Event(1)).result(timeout_s=5).offset)  # TYPE int
    typed.send("t", b"v")  # WRONG
    with typed.transaction() as tx:
        tx.send("t", Event(1), key=b"k")
        tx.send("t", b"v")  # WRONG
    both = store.producer(key_serializer=lambda k: str(k).encode(), value_serializer=lambda v: json.dumps(v).encode())
    reveal_type(both)  # TYPE Producer[object, object]

    store.consumer("t", group_id="x")  # WRONG
    store.consumer("t", start="begin")  # WRONG
    store.consumer(5)  # WRONG
    reveal_type(store.consumer(["a", "b"], group="g", until_end=True))  # TYPE Consumer[bytes, bytes]
    consumer = store.consumer("t", group="g", value_deserializer=decode, on_assigned=lambda places: None)
    reveal_type(consumer)  # TYPE Consumer[bytes, Event]
    typed.transaction(rewind=consumer)
    tx.send_offsets(consumer)
    tx.send_offsets(plain)  # WRONG
    for record in consumer.poll():
        reveal_type(record)  # TYPE Record[bytes, Event]
        reveal_type(record.key)  # TYPE bytes | None
        reveal_type(record.value)  # TYPE Event | None
    for record in consumer:
        reveal_type(record.value)  # TYPE Event | None
    named = store.consumer("t", key_deserializer=bytes.decode, value_deserializer=int)
    reveal_type(named)  # TYPE Consumer[str, int]
    store.consumer("t", value_deserializer=json.loads)

    store.table("t", max_age=5)  # WRONG
    reveal_type(store.table("t"))  # TYPE KeyTable[bytes]
    with store.topic("t").table(value_deserializer=decode, max_age_ms=5) as table:
        reveal_type(table[b"k"])  # TYPE Event
    store.topic("t").table(value_deserialiser=decode)  # WRONG
    store.to_arrow("t", decode={"value": "utf-8"})  # WRONG
    store.to_arrow("t", decode={"value": "utf8", "timestamp": "ms"})
    old: Record = store.partition("t", 0).records(0).__next__()
    reveal_type(old.value)  # TYPE bytes | None
"""


def mypy(program: Path) -> str:
    # With the repository's own cache and settings, which are strict.
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        "--config-file",
        str(ROOT / "pyproject.toml"),
    ]
    return run([*command, "--hide-error-context", str(program)])


def pyright(program: Path) -> str:
    (program.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    return run([*command, str(program)])


def run(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


CHECKERS = [mypy] + ([pyright] if importlib.util.find_spec("basedpyright") else [])
"""basedpyright comes with the development extra; where it is not installed mypy alone speaks."""


@pytest.mark.parametrize("check", CHECKERS, ids=lambda check: check.__name__)
def test_exactly_the_wrong_lines_are_errors(check: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = check(program)
    lines = PROGRAM.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# WRONG")}
    assert {int(line) for line in re.findall(r"program\.py:(\d+)\S* *-? *error:", said)} == wrong, said
    revealed = {
        int(number): re.sub(r"^tuple\[.*fallback=(.*)\]$", r"\1", re.sub(r"\b(?:\w+\.)+", "", kind))
        for number, kind in re.findall(
            r'program\.py:(\d+).*(?:Revealed type is|Type of ".*" is) "(.*)"', said
        )
    }
    told = {number: line.split("# TYPE ")[1] for number, line in enumerate(lines, 1) if "# TYPE " in line}
    assert {number: revealed.get(number) for number in told} == told


def keywords(call: Any) -> dict[str, Any]:
    parameters = inspect.signature(call).parameters.values()
    return {one.name: one.annotation for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("options", "call", "named"),
    [
        (ProducerOptions, logstore.Producer.__init__, {"key_serializer", "value_serializer"}),
        (
            ConsumerOptions,
            logstore.Consumer.__init__,
            {"group", "start", "key_deserializer", "value_deserializer"},
        ),
        (TableOptions, KeyTable.__init__, {"value_deserializer"}),
    ],
)
def test_options_are_the_keywords_of_the_class(options: Any, call: Any, named: set[str]) -> None:
    given = {name: getattr(hint, "__forward_arg__", hint) for name, hint in options.__annotations__.items()}
    assert given == {name: hint for name, hint in keywords(call).items() if name not in named}


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(UnknownSettingError, match="did you mean 'lock_timeout_s'"):
        logstore.open(":memory:", lock_timout_s=1)
    with logstore.open(":memory:") as store:
        store.create_topic("t")
        calls: list[tuple[Any, str, str]] = [
            (store.producer, "ack", "acks"),
            (store.producer, "value_serialiser", "value_serializer"),
            (lambda **how: store.consumer("t", **how), "group_id", "group"),
            (lambda **how: store.consumer("t", **how), "value_deserialiser", "value_deserializer"),
            (lambda **how: store.table("t", **how), "max_age", "max_age_ms"),
            (store.topic("t").table, "any_polcy", "any_policy"),
        ]
        for call, wrong, right in calls:
            with pytest.raises(TypeError, match=f"no setting {wrong!r}.*did you mean {right!r}") as caught:
                call(**{wrong: 1})
            assert isinstance(caught.value, InvalidArgumentError)
        with pytest.raises(UnknownSettingError, match=r"settings are .*acks, .*batch_bytes"):
            store.producer(zzz=1)
