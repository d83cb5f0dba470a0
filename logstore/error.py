"""The root of all errors, and its two branches. Their leaves: ``errors.py``."""

from __future__ import annotations

from typing import ClassVar


class LogStoreError(Exception):
    """Root of all errors raised by this project.

    ``code``: Kafka's protocol code or ours (>= 10000); ``hint``: what to change, appended to the message.
    """

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.advice = self.hint if hint is None else hint
        super().__init__(f"{message} ({self.advice})" if self.advice else message)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep errors picklable: they cross process borders in Spark and in tests."""
        return (_rebuild, (type(self), self.message, self.advice, self.__dict__.copy()))


def _rebuild(kind: type[LogStoreError], message: str, advice: str, state: dict[str, object]) -> LogStoreError:
    error = kind.__new__(kind)
    LogStoreError.__init__(error, message, hint=advice)
    error.__dict__.update(state)
    return error


class RetriableError(LogStoreError):
    """The same call may succeed later, unchanged."""

    retriable = True


class FatalError(LogStoreError):
    """The same call will fail again until something is changed."""


class InvariantError(FatalError):
    """A programmer's mistake inside logstore: something that must always hold did not."""

    code = 10000
    hint = "this is a bug in logstore; please report it with the message"
