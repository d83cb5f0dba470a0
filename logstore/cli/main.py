"""The command's root: finds subcommands, lets errors leave as one sentence, and keeps the exit codes.

0 done; 1 an error, or faults found; 2 wrong usage; 3 `maintain` left work for want of time; 130
Ctrl-C; 141 the reader of a pipe went away; 143 SIGTERM.
Subcommands are imported when they are needed. Other packages add theirs through the entry point group
``logstore.commands`` (name -> a click command).
"""

from __future__ import annotations

import importlib
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from logstore.cli.streams.failures import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PARTIAL,
    EXIT_PIPE_CLOSED,
    EXIT_TERMINATED,
    Failure,
    UsageFailure,
    settle_streams,
    silence_stdout,
)
from logstore.cli.target import Target, target_options
from logstore.errors import LogStoreError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "logstore.commands"
_AS_JSON = "logstore.as_json"  # in the context: whether the command line has --json anywhere

_COMMANDS = {
    "backup": "logstore.cli.backups:backup",
    "consume": "logstore.cli.consume:consume",
    "demo": "logstore.cli.demo:demo",
    "group": "logstore.cli.groups:group",
    "log": "logstore.cli.log:log",
    "maintain": "logstore.cli.maintain:maintain",
    "perf": "logstore.cli.perf:perf",
    "produce": "logstore.cli.produce:produce",
    "producer": "logstore.cli.producers:producer",
    "restore": "logstore.cli.backups:restore",
    "topic": "logstore.cli.topics:topic",
    "transaction": "logstore.cli.transactions:transaction",
}

_EPILOG = """\b
Try:
  logstore demo                                        real records through a store, in seconds
  logstore --path data topic create events --partitions 3
  echo hello | logstore --path data produce events
  logstore --path data consume events -e

\b
Completion: add the line for your shell to its start file.
  bash   eval "$(_LOGSTORE_COMPLETE=bash_source logstore)"
  zsh    eval "$(_LOGSTORE_COMPLETE=zsh_source logstore)"
  fish   _LOGSTORE_COMPLETE=fish_source logstore | source

Exit codes: 0 done, 1 error or faults found, 2 wrong usage, 3 work left, 130 Ctrl-C, 141 closed pipe,
143 terminated."""


class RootGroup(click.Group):
    """Subcommands by name, imported at first use; every error of logstore leaves as a ``Failure``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted({*_COMMANDS, *_added_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        place = _COMMANDS.get(cmd_name)
        if place is not None:
            module, _, name = place.partition(":")
            command = getattr(importlib.import_module(module), name)
        else:
            entry_point = _added_commands().get(cmd_name)
            if entry_point is None:
                return None
            command = _load(entry_point)
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """click looks for names alike among a group's own commands only, and these are known by name alone."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            alike = " or ".join(f"'{one}'" for one in get_close_matches(name, self.list_commands(ctx)))
            ctx.fail(f"No such command '{name}'." + (f" Did you mean {alike}?" if alike else ""))
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        as_json = "--json" in args
        try:
            ctx = super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _as_told(error, as_json) from error
        except BrokenPipeError:  # the help's
            silence_stdout()
            raise click.exceptions.Exit(EXIT_PIPE_CLOSED) from None
        ctx.meta[_AS_JSON] = as_json
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe shows here, not at the interpreter's end
            if isinstance(ctx.obj, Target) and ctx.obj.partial:
                raise click.exceptions.Exit(EXIT_PARTIAL)
            return result
        except Failure as error:
            error.as_json = ctx.obj.as_json
            raise
        except click.UsageError as error:
            raise _as_told(error, ctx.meta[_AS_JSON]) from error
        except LogStoreError as error:
            raise Failure.of(error, as_json=ctx.obj.as_json) from error
        except BrokenPipeError:
            silence_stdout()
            raise click.exceptions.Exit(EXIT_PIPE_CLOSED) from None
        except click.Abort as error:  # a confirmation was refused, or Ctrl-C was its answer
            if isinstance(error.__context__, KeyboardInterrupt):
                raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except OSError as error:
            silence_stdout()
            raise Failure.of(error, as_json=ctx.obj.as_json) from error


def _as_told(error: click.UsageError, as_json: bool) -> click.ClickException:
    return UsageFailure(error) if as_json else error


def _added_commands() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _load(entry_point: EntryPoint) -> click.Command:
    """The command, or one that says why it cannot be had: a broken package must not break the others."""
    try:
        command = entry_point.load()
    except ImportError as error:
        reason = f"{entry_point.value} cannot be imported: {error}"
    else:
        if isinstance(command, click.Command):
            return command
        reason = f"{entry_point.value} is no click command"

    def unavailable() -> None:
        raise Failure(f"`logstore {entry_point.name}` is not available: {reason}")

    return click.Command(entry_point.name, callback=unavailable, help=f"(not available: {reason})")


def _show_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    del option
    if not wanted or ctx.resilient_parsing:
        return
    import logstore

    click.echo(f"logstore, version {logstore.__version__}\n{logstore.native_status()}")
    ctx.exit()


@click.group(
    cls=RootGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version, which twin of the hot functions is in use, and exit.",
)  # fmt: skip
@target_options
def cli() -> None:
    """A partitioned, append-only log in a directory: topics, records, groups, and the files beneath."""


def _terminate(signal_number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM unwinds like Ctrl-C, so that what was sent is flushed and locks are given back."""
    del signal_number, frame
    raise SystemExit(EXIT_TERMINATED)


def main() -> NoReturn:
    """The console script."""
    settle_streams()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        try:
            cli(prog_name="logstore")
        finally:
            sys.stdout.flush()  # here, where it can still be told, not at the interpreter's end
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        silence_stdout()
        sys.exit(EXIT_PIPE_CLOSED)
    except OSError as error:
        # Help and version are written before any command runs, and errors after it.
        silence_stdout()
        Failure.of(error, as_json="--json" in sys.argv).show()
        sys.exit(EXIT_FAILED)
    sys.exit(0)
