"""Which store a command works on: a directory (--path) or brokers (--bootstrap-server), and how it answers.

The three options stand on every command, before or after its name; the later one counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from logstore.store import LogStore

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(slots=True)
class Target:
    """The context object of all commands."""

    path: str | None = None
    bootstrap_server: str | None = None
    as_json: bool = False

    def directory(self) -> str:
        """The store's directory, for commands that work on files. UsageError if none was named."""
        if self.path is not None:
            return self.path
        if self.bootstrap_server is not None:
            raise click.UsageError("this command works on a directory: name it with --path DIR")
        raise click.UsageError("which store? Say --path DIR, or set LOGSTORE_PATH.")

    def open(self, *, write: bool = False, create: bool = False, **settings: Any) -> LogStore:
        """The store, for a ``with``. ``write``: may change it; ``create``: make it if there is none;
        ``settings``: more of ``logstore.open``.

        A reader takes no lock. Only ``create`` makes a directory: a mistyped path is an error.
        """
        import logstore
        from logstore.directory.layout import DirectoryKind, classify_directory, missing_store
        from logstore.seams.fs import OsFileSystem

        if self.path is None and self.bootstrap_server is not None:
            client: LogStore = logstore.connect(self.bootstrap_server)
            return client
        path = self.directory()
        if path == logstore.store.MEMORY:
            raise click.UsageError("a store in memory would be gone with this command: name a directory")
        if not create:
            kind = classify_directory(OsFileSystem(), path)
            if kind is not DirectoryKind.STORE and (write or kind is not DirectoryKind.KAFKA):
                raise missing_store(kind, path)
        return logstore.open(path, mode="rw" if write or create else "r", **settings)


def _set_place(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """--path or --bootstrap-server: what the command line says counts, the environment where it says nothing."""
    target = ctx.ensure_object(Target)
    name = param.name or ""
    explicit = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    if value == "":
        raise click.BadParameter("it is empty", ctx=ctx, param=param)
    if value is None or not (explicit or (target.path is None and target.bootstrap_server is None)):
        return
    target.path = value if name == "path" else None
    target.bootstrap_server = value if name == "bootstrap_server" else None


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value:
        ctx.ensure_object(Target).as_json = True


def target_options(command: _Command) -> _Command:
    """Give a command --path, --bootstrap-server and --json; ``click.pass_obj`` gives it the ``Target``."""
    for option in (
        click.option(
            "--json", is_flag=True, expose_value=False, callback=_set_json, help="Answer in JSON on stdout."
        ),
        click.option(
            "--bootstrap-server",
            metavar="HOST:PORT,..",
            envvar="LOGSTORE_BOOTSTRAP",
            expose_value=False,
            callback=_set_place,
            help="Brokers to talk to (also LOGSTORE_BOOTSTRAP).",
        ),
        click.option(
            "--path",
            metavar="DIR",
            envvar="LOGSTORE_PATH",
            type=click.Path(file_okay=False, readable=False),  # what may not be read has its own error
            expose_value=False,
            callback=_set_place,
            help="The store's directory (also LOGSTORE_PATH).",
        ),
    ):
        command = option(command)
    return command
