"""`logstore transaction`: transactional ids, and transactions that hang."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.streams.output import note, print_json, print_table
from logstore.cli.target import Target, target_options

if TYPE_CHECKING:
    from logstore.api.transactions import HangingTransaction, TransactionSummary

TRANSACTIONS_TOPIC = "__transaction_state"


@click.group()
def transaction() -> None:
    """Transactions: list, describe, abort, find-hanging."""


@transaction.command("list")
@target_options
@click.pass_obj
def list_(target: Target, /) -> None:
    """List transactional ids, their state, who has them open, and the id that decides what they prepare."""
    with target.client() as store:
        found = store.admin.list_transactions()
        target.note_missing(store, [TRANSACTIONS_TOPIC])
    if target.as_json:
        print_json([_as_json(one) for one in found])
        return
    rows = [
        (
            one.transactional_id,
            one.state,
            one.producer_id,
            one.epoch,
            len(one.places),
            one.holder or "nobody",
            one.coordinator or "-",
        )
        for one in found
    ]
    print_table(("ID", "STATE", "PRODUCER ID", "EPOCH", "PARTITIONS", "OPEN BY", "DECIDED BY"), rows)


@transaction.command()
@click.argument("transactional_id", metavar="ID")
@target_options
@click.pass_obj
def describe(target: Target, /, transactional_id: str) -> None:
    """Show one transactional id: its state, since when, and the partitions that are in it."""
    with target.client() as store:
        target.note_missing(store, [TRANSACTIONS_TOPIC])
        found = store.admin.describe_transaction(transactional_id)
    if target.as_json:
        print_json(_as_json(found))
        return
    click.echo(f"id        {found.transactional_id}")
    click.echo(f"state     {found.state}")
    click.echo(f"producer  {found.producer_id}, epoch {found.epoch}")
    click.echo(f"timeout   {found.timeout_ms} ms")
    click.echo(f"began     {_moment(found.started_ms)}")
    click.echo(f"open by   {found.holder or 'nobody'}")
    if found.coordinator is not None:
        click.echo(f"decided   by {found.coordinator}")
    print_table(("TOPIC", "PARTITION"), found.places)


def _moment(wall_ms: int) -> str:
    if wall_ms < 0:
        return "-"
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _as_json(found: TransactionSummary) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "started_ms": None if found.started_ms < 0 else found.started_ms,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in found.places],
        "holder": found.holder,
        "coordinator": found.coordinator,
    }


@transaction.command()
@click.argument("transactional_id", metavar="ID")
@target_options
@click.pass_obj
def abort(target: Target, /, transactional_id: str) -> None:
    """Abort what the transactional ID has open, also under a live producer.

    That producer finds its transaction aborted, and may begin another one. What was decided to be committed is
    finished instead. One that is PREPARED is aborted, too: a commit of its coordinator with it will be refused.
    """
    with target.client(write=True) as store:
        known = {one.transactional_id: one for one in store.admin.list_transactions()}
        found = store.admin.abort_transaction(transactional_id)
    if target.as_json:
        print_json(_as_json(found))
        return
    note(f"{transactional_id!r} is {found.state}")
    before = known.get(transactional_id)  # None: the caller may not see it
    if before is not None and before.state == "PREPARED" and not found.state.endswith("COMMIT"):
        note(f"it was prepared: a commit of {before.coordinator!r} with it will be refused")
    if found.places:
        note(f"{len(found.places)} partitions are another process's, which marks them within a second or so")


@transaction.command("find-hanging")
@click.option("-t", "--topic", "topics", multiple=True, help="Only this topic; repeat for more.")
@click.option("--repair", is_flag=True, help="Abort them: write the markers that nothing else will write.")
@target_options
@click.pass_obj
def find_hanging(target: Target, /, topics: tuple[str, ...], repair: bool) -> None:
    """Find transactions that are open in a partition and that no coordinator knows of.

    Readers of committed records wait before them for ever. Only the first of each partition shows; --repair goes
    on until none is left.
    """
    done: list[HangingTransaction] = []
    with target.client(write=repair) as store:
        found = store.admin.find_hanging(topics or None)
        target.note_missing(store, [TRANSACTIONS_TOPIC, *(topics or store.list_topics())])
        while repair and found:
            for one in found:
                store.admin.end_hanging(one)
            done += found
            found = store.admin.find_hanging(topics or None)
    rows = done if repair else found
    if target.as_json:
        print_json({"hanging": [one._asdict() for one in rows], "repaired": repair})
        return
    table = [
        (one.topic, one.partition, one.start_offset, one.producer_id, one.epoch, one.transactional_id or "-")
        for one in rows
    ]
    print_table(("TOPIC", "PARTITION", "OFFSET", "PRODUCER ID", "EPOCH", "ID"), table)
    if repair:
        note(f"aborted {len(rows)}")
    elif rows:
        note("--repair aborts them")
