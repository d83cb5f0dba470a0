"""`logstore cluster add|drain|remove|move|moves`: brokers that come and leave, partitions that move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from logstore.cli.streams.output import note, print_json, print_table
from logstore.cli.target import Target, target_options
from replication.transport import METADATA_TOPIC
from rpc.polling import Polling

if TYPE_CHECKING:
    from rpc.client.store import RemoteStore
    from rpc.wire.cluster import PartitionMove

_LOOK_S = 0.5

until_done = click.option("--wait", is_flag=True, help="Until it is done; what is left is told meanwhile.")


@contextmanager
def brokers_of(target: Target) -> Iterator[RemoteStore]:
    """A connection. UsageError without brokers."""
    if target.path is not None or target.bootstrap_server is None:
        raise click.UsageError("this command asks brokers: name one with --bootstrap-server HOST:PORT")
    with target.client() as store:
        from rpc.client.store import RemoteStore

        if not isinstance(store, RemoteStore):
            raise TypeError(f"{target.bootstrap_server} was connected to by {type(store).__name__}")
        yield store


@click.command()
@click.argument("node", type=click.IntRange(min=0))
@click.option("--undo", is_flag=True, help="Let it have replicas again; what has moved stays where it is.")
@until_done
@target_options
@click.pass_obj
def drain(target: Target, /, node: int, undo: bool, wait: bool) -> None:
    """Have the broker NODE give up all its replicas to others, and get no new ones.

    Then it can be stopped, and removed. `logstore cluster moves` shows how far it is.
    """
    with brokers_of(target) as store:
        store.cluster_administration.drain(node, not undo)
        if not undo:
            _note_stuck(store, node)
        if wait and not undo:
            _await(target, lambda: _held_by(store, node), f"replicas on broker {node}")
    if target.as_json:
        print_json({"node_id": node, "draining": not undo})
    else:
        note(
            f"broker {node} {'may have replicas again' if undo else 'is drained' if wait else 'is being drained'}"
        )


def _note_stuck(store: RemoteStore, node: int) -> None:
    """Say that replicas have nowhere to go."""
    found = store.describe_cluster()
    others = sum(one.node_id != node for one in found.brokers)
    held = [
        {replica.node_id for replica in one.status.replicas}
        for one in found.partitions
        if one.topic != METADATA_TOPIC
    ]
    stuck = sum(node in nodes and len(nodes) > others for nodes in held)
    if stuck:
        one = stuck == 1
        note(
            f"{stuck} partition{' has' if one else 's have'} more replicas than there are other brokers: "
            f"{'it stays' if one else 'they stay'} on broker {node} until one is added (`logstore cluster add`)"
        )


def _held_by(store: RemoteStore, node: int) -> int:
    """Of topics: the metadata leave when it is removed."""
    return sum(
        any(replica.node_id == node for replica in one.status.replicas)
        for one in store.describe_cluster().partitions
        if one.topic != METADATA_TOPIC
    )


def _await(target: Target, left: Callable[[], int], words: str) -> None:
    last, polling = -1, Polling(_LOOK_S)  # as long as the caller wants: Ctrl-C ends it, and the work goes on
    while (now := left()) > 0:
        if now != last and not target.as_json:
            note(f"{now} {words} left")
        last = now
        polling.again()


@click.command()
@click.argument("broker", metavar="NODE=HOST:PORT")
@until_done
@target_options
@click.pass_obj
def add(target: Target, /, broker: str, wait: bool) -> None:
    """Have the broker NODE, which listens for its peers at HOST:PORT, join the cluster.

    Start it first, with a directory of its own, and with brokers of the cluster and itself in `peers`: it waits until
    it is added. Others need no restart. Then move partitions there, or make topics.
    """
    node, host, port = _broker(broker)
    with brokers_of(target) as store:
        store.cluster_administration.add(node, host, port)
        if wait:
            _await(
                target, lambda: int(not _votes(store, node)), f"broker {node} has yet to get the metadata:"
            )
    if target.as_json:
        print_json({"node_id": node, "host": host, "port": port, "added": True})
    else:
        note(f"broker {node} {'has joined' if wait else 'joins'} the cluster")


def _broker(text: str) -> tuple[int, str, int]:
    """UsageError."""
    from rpc.errors import BrokerConfigError
    from rpc.peers.settings import parse_peers

    try:
        ((node, (host, port)),) = parse_peers(text).items()
    except (BrokerConfigError, ValueError):
        raise click.UsageError(f"{text!r} is no broker's number and address, e.g. 4=10.0.0.4:9195") from None
    return node, host, port


def _votes(store: RemoteStore, node: int) -> bool:
    """Whether it has the metadata, and a vote on it."""
    return any(
        replica.node_id == node and not replica.learner
        for one in store.describe_cluster().partitions
        for replica in one.status.replicas
        if one.topic == METADATA_TOPIC
    )


@click.command()
@click.argument("node", type=click.IntRange(min=0))
@click.option(
    "--drain", "drain_first", is_flag=True, help="Have it give up its replicas before, and wait for that."
)
@target_options
@click.pass_obj
def remove(target: Target, /, node: int, drain_first: bool) -> None:
    """Forget the broker NODE, which has no replicas any more: its vote on the metadata, and its address.

    What runs of it afterwards is refused by the others; it may be added again.
    """
    with brokers_of(target) as store:
        if drain_first:
            store.cluster_administration.drain(node)
            _note_stuck(store, node)
            _await(target, lambda: _held_by(store, node), f"replicas on broker {node}")
        store.cluster_administration.remove(node)
    if target.as_json:
        print_json({"node_id": node, "removed": True})
    else:
        note(f"removed broker {node}")


@click.command()
@click.argument("topic")
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Of these; all if not given.")
@click.option(
    "--to", metavar="NODE,NODE,...", help="Brokers that shall have them, the preferred leader first."
)
@click.option("--cancel", is_flag=True, help="Let them move no further; they stay on what they have.")
@until_done
@target_options
@click.pass_obj
def move(
    target: Target, /, topic: str, partitions: tuple[int, ...], to: str | None, cancel: bool, wait: bool
) -> None:
    """Move partitions of TOPIC to other brokers: records are copied first, then the old replicas go."""
    replicas = _nodes(to, cancel)
    with brokers_of(target) as store:
        numbers = partitions or range(store.backend.topic(topic).partitions)
        store.cluster_administration.reassign({(topic, number): replicas for number in numbers})
        if wait:
            _await(target, lambda: len(_moving(store, topic, numbers)), "partitions to move")
    if target.as_json:
        print_json({"topic": topic, "partitions": list(numbers), "replicas": list(replicas)})
    else:
        note(
            f"{len(numbers)} partitions of {topic!r} {'stay' if cancel else 'have moved' if wait else 'move'}"
        )


def _nodes(to: str | None, cancel: bool) -> tuple[int, ...]:
    """UsageError."""
    if cancel == (to is not None):
        raise click.UsageError("say either --to NODE,NODE,... or --cancel")
    if to is None:
        return ()
    try:
        return tuple(int(node) for node in to.split(","))
    except ValueError:
        raise click.UsageError(f"--to {to!r} is no list of brokers, e.g. 1,2,3") from None


def _moving(store: RemoteStore, topic: str, partitions: Sequence[int]) -> list[PartitionMove]:
    return [
        one
        for one in store.cluster_administration.moves()
        if one.topic == topic and one.partition in partitions
    ]


@click.command()
@target_options
@click.pass_obj
def moves(target: Target, /) -> None:
    """The partitions that move, from where to where, and what new replicas still lack."""
    with brokers_of(target) as store:
        found = store.cluster_administration.moves()
    if target.as_json:
        for one in found:
            print_json({**one._asdict(), "lags": {str(node): lag for node, lag in one.lags.items()}})
        return
    print_table(
        ("TOPIC", "PARTITION", "FROM", "TO", "LACKING"),
        [
            (
                one.topic,
                one.partition,
                ",".join(map(str, one.replicas)),
                ",".join(map(str, one.target)),
                " ".join(f"{node}:{lag}" for node, lag in sorted(one.lags.items())) or "-",
            )
            for one in found
        ],
    )
