"""`logstore acl`: rules of access: add, remove, list. In force at once, also at a broker that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from logstore.cli.streams.output import note, print_json, print_table
from logstore.cli.target import Target, target_options
from rpc.security.command_target import access_of

if TYPE_CHECKING:
    from rpc.security.rules import Rule

_OPERATIONS: Final = ("read", "write", "create", "delete", "alter", "describe", "all")
_NAMED: Final = ("topic", "group", "transactional-id", "producer")
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group()
def acl() -> None:
    """Rules of access: add, remove, list. They count where the broker has access_control set."""


def _rule_options(command: _Command) -> _Command:
    for option in (
        click.option("--deny", is_flag=True, help="Deny it, whatever other rules allow."),
        click.option("--prefix", is_flag=True, help="Names are beginnings of names."),
        click.option("--cluster", is_flag=True, help="On the cluster."),
        *(
            click.option(
                f"--{kind}",
                kind.replace("-", "_"),
                metavar="NAME",
                multiple=True,
                help=f"On a {kind}; * for all.",
            )
            for kind in reversed(_NAMED)
        ),
        click.option(
            "-o",
            "--operation",
            "operations",
            type=click.Choice(_OPERATIONS),
            multiple=True,
            required=True,
            help="Repeat for more.",
        ),
        click.argument("principal"),
    ):
        command = option(command)
    return command


@acl.command()
@_rule_options
@target_options
@click.pass_obj
def add(target: Target, /, **given: Any) -> None:
    """Allow PRINCIPAL (User:NAME, or User:* for all) operations on topics, groups and so on."""
    rules = _rules(**given)
    with access_of(target) as access:
        added, _ = access.alter_rules(rules, [])
    if target.as_json:
        print_json({"added": added})
    else:
        note(f"added {added} of {len(rules)} rule(s); the others were there")


@acl.command()
@_rule_options
@target_options
@click.pass_obj
def remove(target: Target, /, **given: Any) -> None:
    """Remove what `add` with the same words added."""
    rules = _rules(**given)
    with access_of(target) as access:
        _, removed = access.alter_rules([], rules)
    if target.as_json:
        print_json({"removed": removed})
    else:
        note(f"removed {removed} of {len(rules)} rule(s); the others were not there")


@acl.command("list")
@click.option("--principal", metavar="PRINCIPAL", help="Rules for this one alone.")
@target_options
@click.pass_obj
def list_(target: Target, /, principal: str | None) -> None:
    """List rules."""
    with access_of(target) as access:
        rules = [one for one in access.list_rules() if principal in (None, one.principal)]
    if target.as_json:
        print_json(
            [
                {
                    "principal": one.principal,
                    "allow": one.allow,
                    "operation": one.operation,
                    "resource": one.resource.value,
                    "pattern": one.pattern.value,
                    "name": one.name,
                }
                for one in rules
            ]
        )
        return
    rows = [
        (
            one.principal,
            "allow" if one.allow else "deny",
            one.operation,
            one.resource.value,
            one.pattern.value,
            one.name,
        )
        for one in rules
    ]
    print_table(("PRINCIPAL", "RULE", "OPERATION", "ON", "PATTERN", "NAME"), rows)


def _rules(
    principal: str,
    operations: tuple[str, ...],
    cluster: bool,
    prefix: bool,
    deny: bool,
    **names: tuple[str, ...],
) -> list[Rule]:
    """One for each operation on each name. UsageError, InvalidArgumentError."""
    from rpc.handlers.caller import CLUSTER, Resource
    from rpc.security.rules import Pattern, Rule

    wanted = [(Resource(kind), name) for kind in _NAMED for name in names[kind.replace("-", "_")]]
    pattern = Pattern.PREFIX if prefix else Pattern.LITERAL
    found = [
        Rule(principal, resource, pattern, name, operation, not deny)
        for resource, name in wanted
        for operation in operations
    ]
    if cluster:
        found += [
            Rule(principal, Resource.CLUSTER, Pattern.LITERAL, CLUSTER, operation, not deny)
            for operation in operations
        ]
    if not found:
        raise click.UsageError(f"on what? Say --cluster, or {', '.join(f'--{kind} NAME' for kind in _NAMED)}")
    return found
