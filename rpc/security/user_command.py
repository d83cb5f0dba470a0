"""`logstore user`: users and their credentials. Secrets come from files, standard input or a prompt, never from words
of the command line, which other users of the machine can see."""

from __future__ import annotations

import sys
import time
from typing import Final

import click

from logstore.cli.streams.output import note, print_json, print_table, time_text
from logstore.cli.target import Target, target_options
from rpc.security.command_target import access_of

_DAY_MS: Final = 86_400_000
_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@click.group()
def user() -> None:
    """Users: add-token, set-password, list, revoke, delete."""


@user.command("add-token")
@click.argument("name")
@click.option(
    "--expires-days",
    type=click.FloatRange(min=0, min_open=True, max=36_500),
    metavar="DAYS",
    help="The token counts so long; for good if not given.",
)
@target_options
@click.pass_obj
def add_token(target: Target, /, name: str, expires_days: float | None) -> None:
    """Make a token for the user NAME, who is made if there is none. It is shown now, and never again."""
    from rpc.security.users import make_token

    now_ms = time.time_ns() // 1_000_000
    text, token = make_token(now_ms, None if expires_days is None else now_ms + int(expires_days * _DAY_MS))
    with access_of(target) as access:
        access.add_token(name, token)
    if target.as_json:
        print_json({"name": name, "token_id": token.token_id, "token": text, "expires_ms": token.expires_ms})
    else:
        click.echo(text)
        note(f"token {token.token_id} of User:{name}: keep it in a file of mode 600")


@user.command("set-password")
@click.argument("name")
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="File of one line with the password, mode 600; - for standard input. Asked for if not given.",
)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(_MECHANISMS),
    multiple=True,
    default=(_MECHANISMS[0],),
    show_default=True,
    help="How the user can log in; repeat for both.",
)
@click.option(
    "--iterations",
    type=click.IntRange(4096, 1_000_000),
    default=16_384,
    show_default=True,
    help="What each guess costs one who has stolen the file.",
)
@target_options
@click.pass_obj
def set_password(
    target: Target, /, name: str, password_file: str | None, mechanisms: tuple[str, ...], iterations: int
) -> None:
    """Give the user NAME a password, who is made if there is none. The password itself is kept nowhere."""
    from logstore.errors import InvalidArgumentError
    from rpc.security.scram import make_verifier

    password = _password(password_file)
    try:
        verifiers = {one: make_verifier(password, one, iterations) for one in mechanisms}
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
    with access_of(target) as access:
        access.set_password(name, verifiers)
    if target.as_json:
        print_json({"name": name, "mechanisms": sorted(verifiers)})
    else:
        note(f"set the password of User:{name}")


def _password(file: str | None) -> str:
    """UsageError, SecretFileError."""
    if file == "-":
        return sys.stdin.readline().removesuffix("\n")
    if file is not None:
        from rpc.security.secret_files import read_secret_line

        return read_secret_line(file, "--password-file")
    if not sys.stdin.isatty():
        raise click.UsageError("which password? Say --password-file FILE, or - for standard input")
    found: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return found


@user.command("list")
@target_options
@click.pass_obj
def list_(target: Target, /) -> None:
    """List users and the tokens that they have, without secrets."""
    with access_of(target) as access:
        found = access.list_users()
    if target.as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "mechanisms": list(one.mechanisms),
                    "tokens": [
                        {
                            "token_id": token.token_id,
                            "created_ms": token.created_ms,
                            "expires_ms": token.expires_ms,
                        }
                        for token in one.tokens
                    ],
                }
                for one in found
            ]
        )
        return
    rows = []
    for one in found:
        tokens = [
            f"{token.token_id} (until {'revoked' if token.expires_ms is None else time_text(token.expires_ms)})"
            for token in one.tokens
        ]
        rows.append((one.name, ",".join(one.mechanisms) or "-", ", ".join(tokens) or "-"))
    print_table(("USER", "PASSWORD", "TOKENS"), rows)


@user.command()
@click.argument("token_id")
@target_options
@click.pass_obj
def revoke(target: Target, /, token_id: str) -> None:
    """Take back the token TOKEN_ID: the part between the underscores, as `list` shows it."""
    with access_of(target) as access:
        access.revoke_token(token_id)
    if target.as_json:
        print_json({"token_id": token_id, "revoked": True})
    else:
        note(f"revoked token {token_id}")


@user.command()
@click.argument("name")
@target_options
@click.pass_obj
def delete(target: Target, /, name: str) -> None:
    """Remove the user NAME with all credentials. Rules for the user stay (`logstore acl list --principal`)."""
    with access_of(target) as access:
        access.remove_user(name)
    if target.as_json:
        print_json({"name": name, "deleted": True})
    else:
        note(f"deleted user {name!r}")
