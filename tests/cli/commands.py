"""The command tree as data: every command, a call of each that does something, and calls that misuse it.

What a call needs is read off the command's own parameters, so that a command that is added later is called, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from logstore.cli.main import cli

# A parameter's value in a call that succeeds, over the store of the fixture ``filled``; {tmp}: a folder of the test's.
VALUES = {
    "directory": "{tmp}/made",
    "new_store": "{tmp}/made",
    "topic": "t",
    "topics": "t",
    "source": "{store}",
    "what": "t",
    "transactional_id": "x",
    "key": "k1",
    "keys": "k1",
    "principal": "User:alice",
    "token_id": "0123456789abcdef",
    "node": "1",
    "broker": "4=127.0.0.1:1",
}
NAMES = {"group": "g", "producer": "p", "topic": "t", "log": "c", "user": "alice"}
"""What an argument ``name`` or ``names`` means in each group of commands."""
TOPIC = {"create": "made", "delete": "d", "get": "c", "erase-key": "c"}  # topics of their own
MORE = {
    "acl add": ("-o", "read", "--topic", "t"),
    "acl remove": ("-o", "read", "--topic", "t"),
    "broker start": ("--data", "{tmp}/made", "--print-config"),
    "cluster drill": ("--seconds", "1", "--rate", "10"),
    "cluster move": ("--to", "1"),
    "cluster recover": ("--unclean", "--data", "{tmp}/node", "--node-id", "1"),
    "consume": ("-e",),
    "demo": ("--dir", "{tmp}/made"),
    "group seek": ("--to-earliest",),
    "perf consume": ("-n", "10"),
    "perf end-to-end": ("-n", "10"),
    "perf produce": ("-n", "10"),
    "topic add-partitions": ("-t", "5", "--allow-keyed"),
    "topic alter": ("-c", "retention.ms=7000"),
    "topic delete": ("--yes",),
    "topic erase-key": ("--yes",),
    "topic trim": ("--before-offset", "1"),
    "user set-password": ("--password-file", "{tmp}/password"),
}


def leaves(
    group: click.Group = cli, path: tuple[str, ...] = (), parent: click.Context | None = None
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """(words, command) of every command that is no group."""
    context = click.Context(group, parent=parent)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name), context)
        else:
            yield (*path, name), command


COMMANDS: dict[str, click.Command] = {" ".join(words): command for words, command in leaves()}
NEED_BROKERS = {name for name in COMMANDS if name.startswith("cluster ") and name != "cluster recover"}
"""Commands that ask brokers: a directory cannot answer."""


def arguments(command: click.Command) -> list[click.Argument]:
    return [param for param in command.params if isinstance(param, click.Argument)]


def options(command: click.Command, *kinds: type[click.ParamType]) -> list[click.Option]:
    """Its own options that take a value of these kinds; not those that every command has."""
    common = {"path", "bootstrap_server", "json"}
    return [
        param
        for param in command.params
        if isinstance(param, click.Option)
        and param.name not in common
        and not param.is_flag
        and isinstance(param.type, kinds or click.ParamType)
    ]


def good_call(name: str, tmp: Path, store: Path) -> list[str]:
    """Words of a call that succeeds."""
    words = name.split()
    given = [
        _value(argument, words).format(tmp=tmp, store=store)
        for argument in arguments(COMMANDS[name])
        if argument.required or argument.name in VALUES
    ]
    return [*words, *given, *(word.format(tmp=tmp) for word in MORE.get(name, ()))]


def filled_with(name: str, value: str) -> list[str]:
    """Words of a call whose every argument is ``value``, and that does not wait for more to come."""
    ends = ["-e"] if name == "consume" else []
    return [*name.split(), *ends, *[value for _ in arguments(COMMANDS[name])]]


def _value(argument: click.Argument, words: list[str]) -> str:
    if argument.name in VALUES:
        return VALUES[argument.name]
    if words[0] == "topic":
        return TOPIC.get(words[1], "t")
    return NAMES[words[0]]


def option_words(option: click.Option, value: str) -> list[str]:
    """The option with this value, as one word: a value that begins with a dash is one all the same."""
    longest = max(option.opts, key=len)
    return [f"{longest}={value}" if longest.startswith("--") else longest + value]


def required_options(command: click.Command, but: click.Option | None = None) -> list[str]:
    """The options that the command cannot do without, with a plain value each."""
    required = [option for option in options(command) if option.required and option is not but]
    return [word for option in required for word in option_words(option, "1")]
