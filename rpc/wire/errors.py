"""Errors on the wire: ``Error`` messages from the project's errors and back, by name; numbers and texts travel along.

A client that meets a name it does not know raises ``UnknownRemoteError`` or, if the broker says that a retry may
help, ``RemoteRetryError``.
"""

from __future__ import annotations

from typing import Final

import grpc

import logstore.errors
from logstore.errors import FatalError, InvalidArgumentError, LogStoreError, RetriableError
from rpc.errors import BrokerBusyError
from rpc.pb import common_pb2 as pb

TRAILER: Final = "logstore-error-bin"
"""Trailing metadata that holds the serialized ``Error`` of a call that failed."""

_MAX_TEXT: Final = 4096
_MAX_NUMBER: Final = 1 << 63


class UnknownRemoteError(FatalError):
    """The broker refused with an error that this version does not know."""

    code = 10100


class RemoteRetryError(RetriableError):
    """The broker refused for now, with an error that this version does not know."""

    code = 10101


def _known() -> dict[str, type[LogStoreError]]:
    import rpc.errors

    found: dict[str, type[LogStoreError]] = {}
    for module in (logstore.errors, rpc.errors):
        found |= {
            name: kind
            for name, kind in vars(module).items()
            if isinstance(kind, type) and issubclass(kind, LogStoreError)
        }
    return found


_KINDS: Final = _known()


def to_wire(error: LogStoreError) -> pb.Error:
    """The message; what the error carries that is neither a number nor a text stays behind."""
    message = pb.Error(
        code=error.code,
        name=type(error).__name__,
        message=error.message[:_MAX_TEXT],
        hint=error.advice[:_MAX_TEXT],
        retriable=error.retriable,
    )
    if isinstance(error, BrokerBusyError):
        message.retry_after_ms = error.retry_after_ms
    for name, value in vars(error).items():
        if type(value) is int and -_MAX_NUMBER <= value < _MAX_NUMBER:
            message.numbers[name] = value
        elif type(value) is str and name not in ("message", "advice"):
            message.texts[name] = value[:_MAX_TEXT]
    return message


def from_wire(message: pb.Error) -> LogStoreError:
    """The error, with the class of its name."""
    kind = _KINDS.get(message.name)
    if kind is None:
        unknown = RemoteRetryError if message.retriable else UnknownRemoteError
        error: LogStoreError = unknown(f"{message.name}: {message.message}", hint=message.hint)
    else:
        error = kind.__new__(kind)
        LogStoreError.__init__(error, message.message, hint=message.hint)
    error.__dict__.update(message.numbers)
    error.__dict__.update(message.texts)
    if isinstance(error, BrokerBusyError):
        error.retry_after_ms = message.retry_after_ms
    return error


def status_of(error: LogStoreError) -> grpc.StatusCode:
    """The gRPC status that stands for the error where a client knows nothing of ``Error``."""
    if isinstance(error, BrokerBusyError):
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    if isinstance(error, InvalidArgumentError | ValueError | TypeError):
        return grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, LookupError):
        return grpc.StatusCode.NOT_FOUND
    if isinstance(error, logstore.errors.PermissionDeniedError):
        return grpc.StatusCode.PERMISSION_DENIED
    return grpc.StatusCode.UNAVAILABLE if error.retriable else grpc.StatusCode.FAILED_PRECONDITION
