"""`logstore broker`: a store served to many clients. gRPC is imported only by what needs it."""

from __future__ import annotations

import os

import click

from logstore.cli.target import Target, target_options


@click.group()
def broker() -> None:
    """Brokers: start."""


@broker.command()
@click.option(
    "--data", metavar="DIR", type=click.Path(), help="The store's directory, made if it is not there."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where clients connect; port 0: any free one.  [default: 127.0.0.1:9095]",
)
@click.option("--node-id", metavar="N", type=int, help="This broker's number in its cluster.  [default: 1]")
@click.option(
    "--peers",
    metavar="N=HOST:PORT,...",
    help="The brokers of the cluster, this one among them, and where each listens for the others; the same on all.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    envvar="LOGSTORE_BROKER_CONFIG",
    type=click.Path(),
    help="Settings as TOML.",
)
@click.option(
    "-s", "--set", "pairs", metavar="NAME=VALUE", multiple=True, help="Any setting; repeat for more."
)
@click.option("--print-config", is_flag=True, help="Print all settings as TOML, and end.")
@target_options
@click.pass_obj
def start(
    target: Target,
    /,
    data: str | None,
    listen: str | None,
    node_id: int | None,
    peers: str | None,
    file: str | None,
    pairs: tuple[str, ...],
    print_config: bool,
) -> None:
    """Serve the store in a directory until SIGTERM or Ctrl-C. Prints "listening on HOST:PORT" once it does.

    Settings come from the file, then from the environment (LOGSTORE_BROKER_DRAIN_S is drain_s), then from options.
    The broker owns every topic: other processes read the directory, and write through the broker.

    With --node-id and --peers it is one of a cluster's brokers: start the same on each, with its own --node-id.

    The first SIGTERM (exit code 0) or Ctrl-C (130) lets calls under way end and closes the store in order; the second
    ends the process at once.
    """
    from rpc.configuration import as_toml, configure

    options = {
        "data": data,
        "listen": listen,
        "node_id": None if node_id is None else str(node_id),
        "peers": peers,
    }
    settings = configure(file, os.environ, _given(pairs, options))
    if print_config:
        if target.as_json:
            from dataclasses import asdict

            from logstore.cli.streams.output import print_json

            print_json(asdict(settings))
        else:
            click.echo(as_toml(settings), nl=False)
        return
    from logstore.errors import BackendNotInstalledError

    try:
        from rpc.observability.logs import configure_logging
        from rpc.process import BrokerProcess
    except ModuleNotFoundError as error:
        raise BackendNotInstalledError(
            f"a broker needs gRPC, and module {error.name} is not installed",
            hint="pip install 'logstore-engine[grpc]'",
        ) from error
    configure_logging(settings.log_format)
    more = {"mode_bits": target.mode_bits, "lock_timeout_s": target.lock_timeout_s}
    process = BrokerProcess(
        settings,
        lambda address: _say(address, target.as_json),
        {name: value for name, value in more.items() if value is not None},
    )
    raise click.exceptions.Exit(process.run())


def _given(pairs: tuple[str, ...], options: dict[str, str | None]) -> dict[str, str]:
    """What the command line says, by the settings' names. UsageError."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--set {pair!r} is not NAME=VALUE")
        if name.strip() in given:
            raise click.UsageError(f"--set {name.strip()} is given twice")
        given[name.strip()] = value.strip()
    for name, option in options.items():
        if option is not None:
            if name in given:
                raise click.UsageError(f"{name} is given both by --{name.replace('_', '-')} and by --set")
            given[name] = option
    return given


def _say(address: str, as_json: bool) -> None:
    """The one line of stdout, at once: what started the broker waits for it."""
    from logstore.cli.streams.output import print_json

    if as_json:
        print_json({"listening": address})
    else:
        click.echo(f"listening on {address}")
