"""Errors on the wire: ``Error`` messages from the project's errors and back, by name; numbers and texts travel along.

A client that meets a name it does not know raises ``UnknownRemoteError`` or, if the broker says that a retry may
help, ``RemoteRetryError``.
"""

from __future__ import annotations

from typing import Final

import grpc

import logstore.errors
from logstore.errors import FatalError, InvalidArgumentError, LogStoreError, RetriableError
from rpc.errors import AccessDeniedError, AuthenticationError, BrokerBusyError, SessionExpiredError
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
    import replication.errors
    import rpc.errors

    found: dict[str, type[LogStoreError]] = {}
    for module in (logstore.errors, replication.errors, rpc.errors):
        found |= {
            name: kind
            for name, kind in vars(module).items()
            if isinstance(kind, type) and issubclass(kind, LogStoreError)
        }
    return found


_KINDS: Final = _known()


def to_wire(error: LogStoreError) -> pb.Error:
    """The message. What the error carries goes along: numbers, pairs of them (as ``name.0`` and ``name.1``), texts."""
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
        elif type(value) is tuple:
            message.numbers.update({f"{name}.{index}": number for index, number in enumerate(value)})
        elif type(value) is str and name not in ("message", "advice"):
            message.texts[name] = value[:_MAX_TEXT]
    return message


def from_wire(message: pb.Error) -> LogStoreError:
    """The error, with the class of its name; what that class does not know of stays behind."""
    kind = _KINDS.get(message.name)
    if kind is None:
        unknown = RemoteRetryError if message.retriable else UnknownRemoteError
        error: LogStoreError = unknown(f"{message.name}: {message.message}", hint=message.hint)
    else:
        error = kind(message.message, hint=message.hint)
    carried = vars(error)
    for name, value in list(carried.items()):
        if type(value) is tuple:
            carried[name] = tuple(
                message.numbers.get(f"{name}.{index}", other) for index, other in enumerate(value)
            )
        elif name in message.numbers:
            carried[name] = message.numbers[name]
        elif name in message.texts and name not in ("message", "advice"):
            carried[name] = message.texts[name]
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
    if isinstance(error, AuthenticationError | SessionExpiredError):
        return grpc.StatusCode.UNAUTHENTICATED
    if isinstance(error, logstore.errors.PermissionDeniedError | AccessDeniedError):
        return grpc.StatusCode.PERMISSION_DENIED
    return grpc.StatusCode.UNAVAILABLE if error.retriable else grpc.StatusCode.FAILED_PRECONDITION
