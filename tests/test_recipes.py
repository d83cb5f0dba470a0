"""The recipes of `logstore/GUIDES.md`: their code runs as it stands, and holds under contention."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import logstore
from rpc.client.store import RemoteStore
from tests.recipes import recipe, titles
from tests.rpc.served import Served

AnyStore: TypeAlias = logstore.LogStore | RemoteStore


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the recipe, after it ran in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(recipe("Event sourcing"), names)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("title", titles())
def test_a_guide_runs_as_it_stands_and_again(title: str, tmp_path: Path) -> None:
    program = tmp_path / "recipe.py"
    program.write_text(recipe(title))
    for _ in range(1 if title == "Event sourcing" else 2):  # its bank is opened once
        done = subprocess.run(
            [sys.executable, "-W", "error", str(program)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(params=["embedded", "remote"])
def store(request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    """A store in memory, and one at a broker."""
    if request.param == "embedded":
        with logstore.open(":memory:") as opened:
            yield opened
    else:
        with Served(":memory:") as served, served.connect() as client:
            yield client


def accounts_of(store: AnyStore, bank: dict[str, Any], every: int) -> Any:
    store.create_topic("account-events", partitions=2)
    store.create_topic("account-states", config={"cleanup.policy": "compact"})
    return bank["Accounts"](store, every)


def moved(store: AnyStore, account: bytes) -> list[int]:
    return [
        json.loads(record.value)["amount"]
        for number in range(2)
        for record in store.partition("account-events", number).records(0)
        if record.key == account
    ]


def test_commands_that_meet_never_break_a_rule(bank: dict[str, Any], store: AnyStore) -> None:
    """Threads draw from two accounts at once: no balance goes below zero, and nothing is booked twice."""
    accounts = accounts_of(store, bank, every=7)
    for account in (b"alice", b"bob"):
        accounts.book(account, 30)
    booked: list[tuple[bytes, int]] = []
    refused: list[str] = []

    def draw(account: bytes) -> None:
        for _ in range(10):
            try:
                accounts.book(account, -2)
                booked.append((account, -2))
            except ValueError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=draw, args=(account,)) for account in (b"alice", b"bob") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(booked), set(refused)) == (30, {"0 does not cover 2"})
    for account in (b"alice", b"bob"):
        assert moved(store, account) == [30] + [-2] * 15
        assert accounts.load(account)[0] == 0


def test_snapshots_are_a_shortcut_and_nothing_else(bank: dict[str, Any], store: AnyStore) -> None:
    accounts = accounts_of(store, bank, every=4)
    for amount in range(1, 11):
        accounts.book(b"alice", amount)
    balance, _, _, replayed = accounts.load(b"alice")
    assert (balance, replayed) == (55, 2)
    store.partition("account-states", 0).append([(b"alice", None)])
    balance, _, _, replayed = accounts.load(b"alice")
    assert (balance, replayed) == (55, 10)
    accounts.book(b"alice", 1)
    store.admin.compact("account-states", roll=True)
    assert accounts.load(b"alice")[0] == 56


def test_a_read_model_counts_each_event_once_and_can_be_rebuilt(
    bank: dict[str, Any], store: AnyStore
) -> None:
    accounts = accounts_of(store, bank, every=100)
    model = sqlite3.connect(":memory:")
    for amount in (5, 6, 7):
        accounts.book(b"alice", amount)
    accounts.book(b"bob", 1)
    evolve = bank["evolve"]

    def failing(balance: int, event: Any) -> int:
        if event["amount"] == 7:
            raise RuntimeError("killed here")
        return int(evolve(balance, event))

    bank["evolve"] = failing
    with pytest.raises(RuntimeError):
        bank["project"](store, model)
    bank["evolve"] = evolve
    rows = "select account, balance, moves from model order by account"
    for _ in range(2):
        bank["project"](store, model)
        assert model.execute(rows).fetchall() == [(b"alice", 18, 3), (b"bob", 1, 1)]
    model.executescript("drop table model; drop table seen")
    bank["project"](store, model)
    assert model.execute(rows).fetchall() == [(b"alice", 18, 3), (b"bob", 1, 1)]
    model.close()
