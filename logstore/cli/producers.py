"""`logstore producer`: named producers."""

from __future__ import annotations

import click

from logstore.cli.streams.output import note, print_json, print_table
from logstore.cli.target import Target, target_options


@click.group()
def producer() -> None:
    """Named producers: list, delete."""


@producer.command("list")
@target_options
@click.pass_obj
def list_(target: Target, /) -> None:
    """List producers that have a name, and who has them open."""
    with target.client() as store:
        found = store.admin.list_producers()
    if target.as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "producer_ids": list(one.producer_ids),
                    "epoch": one.epoch,
                    "holder": one.holder,
                }
                for one in found
            ]
        )
        return
    rows = [
        (one.name, ",".join(map(str, one.producer_ids)), one.epoch, one.holder or "nobody") for one in found
    ]
    print_table(("NAME", "PRODUCER IDS", "EPOCH", "OPEN BY"), rows)


@producer.command()
@click.argument("name")
@target_options
@click.pass_obj
def delete(target: Target, /, name: str) -> None:
    """Forget the producer NAME: an import under that name begins anew, with the first row.

    Its records stay. A name that is open is refused.
    """
    with target.client(write=True) as store:
        store.admin.delete_producer(name)
    if target.as_json:
        print_json({"name": name, "deleted": True})
    else:
        note(f"deleted producer {name!r}")
