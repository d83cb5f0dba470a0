"""What a command ends with when it does not end well: exit codes, and errors as one sentence on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import IO, Any

import click

from logstore.errors import LogStoreError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PARTIAL = 3  # the answer is what could be read: some partitions lie in another directory, as was said
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE
EXIT_TERMINATED = 143  # 128 + SIGTERM


class Failure(click.ClickException):
    """An error shown as one sentence, or as one JSON object under --json; exit code 1."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, fields: dict[str, Any] | None = None, as_json: bool = False) -> None:
        super().__init__(message)
        self.fields = fields or {}
        self.as_json = as_json

    @classmethod
    def of(cls, error: LogStoreError | OSError, *, as_json: bool) -> Failure:
        if isinstance(error, LogStoreError):
            fields = {"name": type(error).__name__, "code": error.code, "retriable": error.retriable}
            if error.request_id:
                fields["request_id"] = error.request_id
            return cls(str(error), fields=fields, as_json=as_json)
        # Files are wrapped where they are used; what names none came from writing out.
        where = error.filename or "cannot write to stdout"
        return cls(
            f"{where}: {error.strerror or error}", fields={"name": type(error).__name__}, as_json=as_json
        )

    def show(self, file: IO[Any] | None = None) -> None:
        if self.as_json:
            text = json.dumps({"error": {"message": self.message, **self.fields}}, ensure_ascii=False)
        else:
            text = f"Error: {self.message}"
        click.echo(text, file=file, err=file is None)


class UsageFailure(Failure):
    """Wrong usage under --json, where click would print text."""

    exit_code = EXIT_USAGE

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(error.format_message(), fields={"name": "UsageError"}, as_json=True)


class InputError(Failure):
    """A line of the input that cannot be made a record. ``source``: a file or "stdin"; ``line``: from 1."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        fields = {"name": "InputError", "file": source, "line": line}
        super().__init__(f"{source}, line {line}: {reason}", fields=fields)


def settle_streams() -> None:
    """Give every standard stream a descriptor and a Python object, whatever the caller closed.

    A closed one would otherwise be taken by the next file that is opened, a segment say, and what is meant
    for a terminal would end in it. Reading a closed stdin and writing a closed stdout stay errors; stderr
    is for people, and if there are none nothing is lost. Nor does a character that the terminal's encoding
    lacks end a command.
    """
    for number, name, flags in (
        (0, "stdin", os.O_WRONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_WRONLY),
    ):
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, flags)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
        stream = getattr(sys, name)
        if number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def silence_stdout() -> None:
    """After the reader went away: let the interpreter's last flush go nowhere instead of failing."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # no descriptor behind it (a test's buffer): nothing will fail
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, number)
    os.close(devnull)
