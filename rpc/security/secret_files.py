"""Files with secrets: read whole, bounded, and only if others cannot read them."""

from __future__ import annotations

import os
import stat
from typing import Final

from rpc.errors import SecretFileError

_MAX_BYTES: Final = 1 << 20
_OTHERS: Final = stat.S_IRWXO
_GROUP: Final = stat.S_IRWXG


def read_private(path: str, what: str) -> bytes:
    """The content. SecretFileError where it cannot be read, is too long, or others than its owner may read it; the
    group may read a file of root's, as a package manager makes it."""
    data, found = _read(path, what)
    shared = stat.S_IMODE(found.st_mode) & (_OTHERS | _GROUP)
    if found.st_uid == 0 and os.geteuid() != 0:
        shared &= ~stat.S_IRGRP
    if shared:
        raise SecretFileError(
            f"{what}: {path} has mode {stat.S_IMODE(found.st_mode):04o}, so that others can use the secret in it",
            hint=f"chmod 600 {path}",
        )
    return data


def read_public(path: str, what: str) -> bytes:
    """The content. SecretFileError where it cannot be read or is too long, or anybody may change it."""
    data, found = _read(path, what)
    if found.st_mode & stat.S_IWOTH:
        raise SecretFileError(f"{what}: anybody may write {path}", hint=f"chmod o-w {path}")
    return data


def read_secret_line(path: str, what: str) -> str:
    """The one line of a file with a token or a password, without its line end. SecretFileError."""
    try:
        text = read_private(path, what).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SecretFileError(f"{what}: {path} is no text in UTF-8") from error
    line = text.removesuffix("\n").removesuffix("\r")
    if not line or "\n" in line:
        raise SecretFileError(f"{what}: {path} has not exactly one line")
    return line


def _read(path: str, what: str) -> tuple[bytes, os.stat_result]:
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise SecretFileError(f"{what}: {path} is no regular file")
            data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SecretFileError(f"{what}: cannot read {path!r}: {error}") from error
    if len(data) > _MAX_BYTES:
        raise SecretFileError(f"{what}: {path} is larger than {_MAX_BYTES} bytes")
    return data, found
