"""Which store a command works on: a directory (--path) or brokers (--bootstrap-server), and how it answers.

The options stand on every command, before or after its name; the later one counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from logstore.api.backend import Backend
    from logstore.client.store_client import StoreClient
    from logstore.store import LogStore, Mode

_CONNECT_S = (2.0, 20.0)  # how long a broker is tried; how much longer after a word to the person who waits
_CLIENT_ID = "logstore-cli"
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(slots=True)
class Target:
    """The context object of all commands. ``others``: more directories of the Kafka broker's whose one is ``path``;
    ``partial``: what the command could not read, since it lies elsewhere, by topic."""

    path: str | None = None
    others: tuple[str, ...] = ()
    bootstrap_server: str | None = None
    as_json: bool = False
    lock_timeout_s: float | None = None
    mode_bits: int | None = None
    client_config: str | None = None
    partial: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def directory(self) -> str:
        """The store's directory, for commands that work on one. UsageError if none was named, or several were."""
        if self.others:
            raise click.UsageError("this command works on one directory: give --path once")
        return self.directories()[0]

    def directories(self) -> list[str]:
        """The directories that were named. UsageError if none was."""
        if self.path is not None:
            return [self.path, *self.others]
        if self.bootstrap_server is not None:
            raise click.UsageError("this command works on a directory: name it with --path DIR")
        raise click.UsageError("which store? Say --path DIR, or set LOGSTORE_PATH.")

    def note_missing(self, store: StoreClient, topics: Collection[str]) -> None:
        """Say which partitions of ``topics`` cannot be read, as they lie in another directory of a Kafka broker's,
        or with another broker: the command's exit code is then that of a partial answer."""
        from logstore.cli.streams.output import note

        known = store.backend.topics()
        for name in topics:
            missing = known[name].missing if name in known else ()
            if missing and name not in self.partial:
                self.partial[name] = missing
                one = len(missing) == 1
                note(
                    f"partial: partition{'' if one else 's'} {', '.join(map(str, missing))} of {name!r} "
                    f"lie{'s' if one else ''} in another directory or with another broker (--path may be repeated)"
                )

    def patience_ms(self, default_ms: float) -> float:
        """How long a record may take: no longer than its topic's lock may be waited for, where that was said."""
        return (
            default_ms
            if self.lock_timeout_s is None
            else max(min(self.lock_timeout_s * 1000, default_ms), 10)
        )

    def client(self, *, write: bool = False, create: bool = False) -> AbstractContextManager[StoreClient]:
        """The store or a connection to its brokers, for a ``with``; see ``open``. For commands that need no more than
        the verbs which both have."""
        if self.path is None and self.bootstrap_server is not None:
            return _connect(self.bootstrap_server, self.client_config)
        return self.open(write=write, create=create)

    def open(self, *, write: bool = False, create: bool = False, **settings: Any) -> LogStore:
        """The store in a directory, for a ``with``. ``write``: may change it; ``create``: make it if there is none;
        ``settings``: more of ``logstore.open``.

        A reader takes no lock. Only ``create`` makes a directory: a mistyped path is an error.
        """
        import logstore
        from logstore.directory.layout import DirectoryKind, classify_directory, missing_store
        from logstore.seams.fs import OsFileSystem

        paths = self.directories()
        path = paths[0]
        if path == logstore.store.MEMORY:
            raise click.UsageError("a store in memory would be gone with this command: name a directory")
        if not create:
            kind = classify_directory(OsFileSystem(), path)
            if kind is not DirectoryKind.STORE and (write or kind is not DirectoryKind.KAFKA):
                raise missing_store(kind, path)
        settings.setdefault("mode_bits", self.mode_bits)
        if self.lock_timeout_s is not None:
            settings.setdefault("lock_timeout_s", self.lock_timeout_s)
        mode: Mode = "rw" if write or create else "r"
        return logstore.open(path if len(paths) == 1 else paths, mode=mode, **settings)


def _connect(address: str, config: str | None) -> AbstractContextManager[StoreClient]:
    """A connection. A broker that has just been started is waited for."""
    import logstore
    from logstore.cli.streams.output import note
    from logstore.errors import RetriableError

    made: AbstractContextManager[StoreClient]
    settings = {"client_id": _CLIENT_ID, "config": config, "environment": os.environ}
    first_s, more_s = _CONNECT_S
    try:
        made = logstore.connect(address, connect_timeout_s=first_s, **settings)
    except RetriableError:
        note(f"no broker answers at {address} yet: trying for {more_s:g} s more")
        made = logstore.connect(address, connect_timeout_s=more_s, **settings)
    return made


def check_partition(backend: Backend, topic: str, partition: int) -> None:
    """``UnknownTopicError``, ``UnknownPartitionError``."""
    from logstore.errors import UnknownPartitionError

    count = backend.topic(topic).partitions
    if not 0 <= partition < count:
        raise UnknownPartitionError(
            f"topic {topic!r} has no partition {partition}", hint=f"its partitions are 0 to {count - 1}"
        )


class _Directories(click.Path):
    """The environment names one directory, whatever characters it holds."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return [rv]


def _set_place(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """--path or --bootstrap-server: what the command line says counts, the environment where it says nothing."""
    target = ctx.ensure_object(Target)
    name = param.name or ""
    explicit = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("it is empty", ctx=ctx, param=param)
    if not value or not (explicit or (target.path is None and target.bootstrap_server is None)):
        return
    target.path, *others = value if name == "path" else (None,)
    target.others = tuple(others)
    target.bootstrap_server = value if name == "bootstrap_server" else None


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value:
        ctx.ensure_object(Target).as_json = True


def _set_once(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """--lock-timeout, --mode-bits or --client-config: what the command line says counts, the environment where it
    says nothing."""
    target, name = ctx.ensure_object(Target), param.name or ""
    explicit = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    if value is not None and (explicit or getattr(target, name) is None):
        setattr(target, name, value)


class _OctalBits(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click alone
    name = "octal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            bits = int(value, 8)
        except ValueError:
            bits = -1
        if not 0o400 <= bits <= 0o777:
            self.fail(f"{value!r} is no mode of files: three octal digits, as 660 or 600", param, ctx)
        return bits


def target_options(command: _Command) -> _Command:
    """Give a command --path, --bootstrap-server, --json and what every opening of a store takes; ``click.pass_obj``
    gives it the ``Target``."""
    for option in (
        click.option(
            "--mode-bits",
            metavar="OCTAL",
            envvar="LOGSTORE_MODE_BITS",
            type=_OctalBits(),
            expose_value=False,
            callback=_set_once,
            help="Permissions of new files, as 660 for a group that shares; else the store's own, 600 for a new one "
            "(also LOGSTORE_MODE_BITS).",
        ),
        click.option(
            "--lock-timeout",
            "lock_timeout_s",
            metavar="SECONDS",
            envvar="LOGSTORE_LOCK_TIMEOUT",
            type=click.FloatRange(min=0),
            expose_value=False,
            callback=_set_once,
            help="Longest wait for a lock of another process; 30 s if not given (also LOGSTORE_LOCK_TIMEOUT).",
        ),
        click.option(
            "--json", is_flag=True, expose_value=False, callback=_set_json, help="Answer in JSON on stdout."
        ),
        click.option(
            "--client-config",
            metavar="FILE",
            envvar="LOGSTORE_CLIENT_CONFIG",
            type=click.Path(),
            expose_value=False,
            callback=_set_once,
            help="TLS and credentials for brokers, as TOML (also LOGSTORE_CLIENT_CONFIG; single settings: "
            "LOGSTORE_CLIENT_TLS_CA, LOGSTORE_CLIENT_TOKEN_FILE, ...).",
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
            type=_Directories(file_okay=False, readable=False),  # what may not be read has its own error
            multiple=True,
            expose_value=False,
            callback=_set_place,
            help="The store's directory (also LOGSTORE_PATH); repeat for all log.dirs of a Kafka broker.",
        ),
    ):
        command = option(command)
    return command
