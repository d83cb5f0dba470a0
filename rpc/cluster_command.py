"""`logstore cluster`: what the brokers of a cluster are doing. It asks brokers: a directory knows nothing of others."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.streams.failures import EXIT_FAILED
from logstore.cli.streams.output import note, print_json, print_table
from logstore.cli.target import Target, target_options
from rpc.cluster_moves_command import add, brokers_of, drain, move, moves, remove
from rpc.cluster_recover_command import recover

if TYPE_CHECKING:
    from replication.cluster_status import PartitionStatus
    from rpc.client.store import RemoteStore
    from rpc.drill import DrillReport
    from rpc.wire.cluster import ClusterDescription, TopicPartitionStatus

_SHOWN = 20  # partitions that are named when something is wrong
_JOINED_WITHIN_S = 10.0  # after which a broker that was just started is no longer expected

patience = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True, max=60),
    metavar="SECONDS",
    default=5.0,
    show_default=True,
    help="How long brokers that do not answer are waited for.",
)


@click.group()
def cluster() -> None:
    """Clusters: info, health, describe, add, drain, remove, moves, move, drill, recover."""


for _command in (add, moves, move, drain, remove, recover):
    cluster.add_command(_command)


@cluster.command()
@patience
@target_options
@click.pass_obj
def info(target: Target, /, timeout_s: float) -> None:
    """The brokers, who controls the cluster, and how many partitions each leads and has."""
    with brokers_of(target) as store:
        found = store.describe_cluster(timeout_s)
    leads = Counter(one.status.leader for one in found.partitions)
    has = Counter(replica.node_id for one in found.partitions for replica in one.status.replicas)
    rows = [
        {
            "node_id": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "alive": broker.alive,
            "answers": broker.node_id not in found.silent,
            "controller": broker.node_id == found.controller,
            "leads": leads[broker.node_id],
            "replicas": has[broker.node_id],
        }
        for broker in found.brokers
    ]
    if target.as_json:
        print_json({"cluster_id": found.cluster_id, "controller": found.controller, "brokers": rows})
        return
    click.echo(f"cluster {found.cluster_id or '-'}, controller {_node(found.controller)}")
    columns = ("NODE", "ADDRESS", "RACK", "ALIVE", "ANSWERS", "CONTROLLER", "LEADS", "REPLICAS")
    print_table(
        columns,
        [
            (
                row["node_id"],
                f"{row['host']}:{row['port']}",
                row["rack"] or "-",
                row["alive"],
                row["answers"],
                row["controller"],
                row["leads"],
                row["replicas"],
            )
            for row in rows
        ],
    )


@cluster.command()
@patience
@target_options
@click.pass_obj
def health(target: Target, /, timeout_s: float) -> None:
    """Whether every partition has a leader (exit code 0, else 1), and which replicas have not kept up.

    A partition is under-replicated while one of its replicas is not in sync: records are safe, with fewer copies.
    """
    with brokers_of(target) as store:
        found = store.describe_cluster(timeout_s)
    leaderless = [one for one in found.partitions if is_leaderless(one.status)]
    under = [one for one in found.partitions if is_under_replicated(one.status)]
    away = sorted({broker.node_id for broker in found.brokers if not broker.alive} | set(found.silent))
    healthy = not leaderless and found.controller >= 0
    if target.as_json:
        print_json(
            {
                "healthy": healthy,
                "cluster_id": found.cluster_id,
                "controller": found.controller,
                "brokers": len(found.brokers),
                "brokers_away": away,
                "partitions": len(found.partitions),
                "leaderless": [_place(one) for one in leaderless],
                "under_replicated": [_place(one) for one in under],
            }
        )
    else:
        _say_health(found, healthy, away, leaderless, under)
    if not healthy:
        raise click.exceptions.Exit(EXIT_FAILED)


def is_leaderless(status: PartitionStatus) -> bool:
    return status.leader < 0


def is_under_replicated(status: PartitionStatus) -> bool:
    """Some replica has not kept up, or is still being filled, as far as a leader says so."""
    return status.leader >= 0 and any(not one.in_sync for one in status.replicas)


def _say_health(
    found: ClusterDescription,
    healthy: bool,
    away: Sequence[int],
    leaderless: Sequence[TopicPartitionStatus],
    under: Sequence[TopicPartitionStatus],
) -> None:
    answering = len(found.brokers) - len(away)
    click.echo("healthy" if healthy else "not healthy")
    click.echo(f"brokers           {answering} of {len(found.brokers)}{_names(away, ' (away: {})')}")
    click.echo(f"controller        {_node(found.controller)}")
    click.echo(f"partitions        {len(found.partitions)}")
    click.echo(f"without a leader  {len(leaderless)}{_places(leaderless)}")
    click.echo(f"under-replicated  {len(under)}{_places(under)}")


def _names(nodes: Sequence[int], words: str) -> str:
    return words.format(", ".join(map(str, nodes))) if nodes else ""


def _places(found: Sequence[TopicPartitionStatus]) -> str:
    if not found:
        return ""
    shown = ", ".join(f"{one.topic}-{one.status.group.partition}" for one in found[:_SHOWN])
    return f" ({shown}{', ...' if len(found) > _SHOWN else ''})"


def _place(one: TopicPartitionStatus) -> dict[str, Any]:
    return {"topic": one.topic, "partition": one.status.group.partition}


def _node(node: int) -> str:
    return "unknown" if node < 0 else str(node)


@cluster.command()
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Of these topics; repeat for more.")
@click.option("--under-replicated", is_flag=True, help="Where a replica has not kept up, or none leads.")
@patience
@target_options
@click.pass_obj
def describe(target: Target, /, topics: tuple[str, ...], under_replicated: bool, timeout_s: float) -> None:
    """Of every partition: its leader, its replicas, those in sync, and how many offsets each lags behind."""
    from logstore.errors import UnknownTopicError

    with brokers_of(target) as store:
        found = store.describe_cluster(timeout_s)
    known = {one.topic for one in found.partitions}
    for topic in topics:
        if topic not in known:
            raise UnknownTopicError(f"there is no topic {topic!r}")
    shown = [
        one
        for one in found.partitions
        if (not topics or one.topic in topics)
        and (not under_replicated or is_leaderless(one.status) or is_under_replicated(one.status))
    ]
    if target.as_json:
        for one in shown:
            print_json(_as_json(one))
        return
    columns = ("TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "LAG", "COMMITTED")
    print_table(columns, [_row(one) for one in shown])
    if found.silent:
        note(f"brokers that did not answer: {', '.join(map(str, found.silent))}")


def _as_json(one: TopicPartitionStatus) -> dict[str, Any]:
    status = one.status
    return {
        "topic": one.topic,
        "topic_id": status.group.topic_id,
        "partition": status.group.partition,
        "leader": status.leader,
        "leader_epoch": status.term,
        "high_watermark": status.high_watermark,
        "in_sync": [replica.node_id for replica in status.replicas if replica.in_sync],
        "replicas": [
            {
                "node_id": replica.node_id,
                "end_offset": replica.end_offset,
                "lag": replica.lag,
                "in_sync": replica.in_sync,
                "learner": replica.learner,
            }
            for replica in status.replicas
        ],
    }


def _row(one: TopicPartitionStatus) -> tuple[object, ...]:
    status = one.status
    lags = [f"{replica.node_id}:{replica.lag}" for replica in status.replicas if replica.lag > 0]
    return (
        one.topic,
        status.group.partition,
        None if status.leader < 0 else status.leader,
        None if status.term < 0 else status.term,
        ",".join(f"{replica.node_id}{'*' if replica.learner else ''}" for replica in status.replicas),
        ",".join(str(replica.node_id) for replica in status.replicas if replica.in_sync) or "-",
        " ".join(lags) or "-",
        None if status.high_watermark < 0 else status.high_watermark,
    )


@cluster.command()
@click.option("--topic", default="drill", show_default=True, help="Made if it is not there.")
@click.option("--partitions", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(1, 1_000_000),
    default=1000,
    show_default=True,
    metavar="RECORDS",
    help="A second.",
)
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=15, show_default=True, metavar="SECONDS")
@click.option(
    "-s",
    "--size",
    type=click.IntRange(30, 1_000_000),
    default=200,
    show_default=True,
    help="Bytes of a value.",
)
@click.option(
    "--kill-leader",
    is_flag=True,
    help="Meanwhile end the broker that leads the topic's first partition, as kill -9 does. On this machine only.",
)
@target_options
@click.pass_obj
def drill(
    target: Target,
    /,
    topic: str,
    partitions: int,
    rate: float,
    seconds: float,
    size: int,
    kill_leader: bool,
) -> None:
    """Write numbered records for a while, whatever happens to brokers, and read back whether all are there once.

    Kill, stop and start brokers meanwhile, or have --kill-leader do it. Exit code 1 if an acknowledged record is lost,
    one appears twice, or a partition's are out of order.
    """
    from rpc.drill import Drill, DrillSettings

    settings = DrillSettings(topic=topic, partitions=partitions, rate=rate, seconds=seconds, size=size)
    with brokers_of(target) as store:
        if kill_leader:
            _check_spare(store)
        act = (lambda: _kill_leader(store, topic)) if kill_leader else None
        if not target.as_json:
            note(f"writing {rate:g} records a second to {topic!r} for {seconds:g} s")
        report = Drill(store, settings, act).run()
    if target.as_json:
        print_json({"good": report.is_good, **asdict(report)})
    else:
        _say_drill(report)
    if not report.is_good:
        raise click.exceptions.Exit(EXIT_FAILED)


def _check_spare(store: RemoteStore) -> None:
    """LastMajorityError: with a broker less nothing could be acknowledged any more. Brokers that were just started are
    known to the others some moments later, and are waited for."""
    from replication.errors import LastMajorityError
    from rpc.polling import Polling

    polling = Polling(0.2, _JOINED_WITHIN_S)
    while True:
        brokers = store.describe_cluster().brokers
        alive = sum(one.alive for one in brokers)
        if 2 * (alive - 1) > len(brokers):
            return
        if polling.again():
            continue
        raise LastMajorityError(
            f"{alive} of {len(brokers)} brokers are there, and a majority has to be left when a leader is killed",
            hint="start those that are away first; a drill needs three brokers",
        )


def _kill_leader(store: RemoteStore, topic: str) -> str:
    """What was done. StorageError: the leader is on another machine, or none is known."""
    from logstore.errors import StorageError
    from rpc.local_process import listener_of

    found = store.describe_cluster()
    leaders = [one.status.leader for one in found.partitions if one.topic == topic]
    for broker in found.brokers:
        if broker.node_id in leaders[:1]:
            process = listener_of(broker.host, broker.port)
            os.kill(process, signal.SIGKILL)
            return f"killed node {broker.node_id} (process {process}), which led {topic}-0"
    raise StorageError(f"nobody knows who leads {topic}-0")


def _say_drill(report: DrillReport) -> None:
    if report.happened:
        click.echo(report.happened)
    click.echo(f"sent             {report.sent}")
    click.echo(f"acknowledged     {report.acknowledged}")
    errors = ", ".join(f"{count} {name}" for name, count in sorted(report.errors.items()))
    click.echo(f"in doubt         {report.in_doubt}{f' ({errors})' if errors else ''}")
    click.echo(f"lost             {report.lost}")
    click.echo(f"doubled          {report.doubled}")
    click.echo(f"out of order     {report.disordered}")
    times = (
        f"{report.p50_ms:.1f} ms (p50), {report.p99_ms:.1f} ms (p99), {report.longest_ms:.0f} ms (longest)"
    )
    click.echo(f"acknowledged in  {times}")
    click.echo(f"longest pause    {report.longest_pause_ms:.0f} ms")
