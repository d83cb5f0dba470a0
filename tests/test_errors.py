"""One tree of errors: codes, retriability, hints, and that they cross a process border whole."""

from __future__ import annotations

import errno
import inspect
import os
import pickle

import pytest

from logstore import errors
from logstore.errors import (
    DiskFullError,
    FatalError,
    InvariantError,
    LogStoreError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RetriableError,
    StorageError,
    from_os_error,
)
from logstore.invariants import invariant

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, LogStoreError) and kind.__module__ == "logstore.errors"
]
ROOTS = {LogStoreError, RetriableError, FatalError}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_is_retriable_or_fatal_and_has_a_code(kind: type[LogStoreError]) -> None:
    if kind in ROOTS:
        return
    assert issubclass(kind, RetriableError) != issubclass(kind, FatalError)
    assert kind.retriable == issubclass(kind, RetriableError)
    assert kind.code >= 0
    assert kind.__name__.endswith("Error")


def test_our_own_codes_are_used_once() -> None:
    own = [kind.code for kind in KINDS if kind.code >= 10_000]
    assert len(own) == len(set(own))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_they_survive_pickling(kind: type[LogStoreError]) -> None:
    error = kind("tried to x at y")
    error.__dict__["position"] = 7
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.message, copy.advice) == (str(error), error.message, error.advice)
    assert copy.__dict__["position"] == 7
    assert pickle.loads(pickle.dumps(kind("m", hint="do this"))).advice == "do this"


def test_the_hint_is_part_of_the_message() -> None:
    assert str(StorageError("a")) == "a"
    assert str(StorageError("a", hint="b")) == "a (b)"
    assert str(DiskFullError("a")) == f"a ({DiskFullError.hint})"
    assert str(DiskFullError("a", hint="")) == "a"


def test_errors_carry_their_facts_through_pickling() -> None:
    error = OffsetOutOfRangeError("m", log_start_offset=3, end_offset=9)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.log_start_offset, copy.end_offset) == (3, 9)
    stale = pickle.loads(pickle.dumps(errors.StaleGenerationError("m", expected=5, found=4)))
    assert (stale.expected, stale.found) == (5, 4)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EACCES, PermissionDeniedError),
        (errno.EPERM, PermissionDeniedError),
        (errno.EROFS, PermissionDeniedError),
        (errno.EIO, StorageError),
        (errno.ENOENT, StorageError),
    ],
)
def test_system_errors_get_names(number: int, kind: type[LogStoreError]) -> None:
    error = from_os_error(OSError(number, os.strerror(number), "/x"), "append to", "/p")
    assert type(error) is kind
    assert error.message == f"cannot append to /p: {os.strerror(number)}"


def test_too_many_open_files_says_what_to_raise() -> None:
    for number in (errno.EMFILE, errno.ENFILE):
        error = from_os_error(OSError(number, os.strerror(number)), "open", "/p")
        assert "ulimit -n" in error.advice
    assert "boom" in from_os_error(OSError("boom"), "open", "/p").message


def test_builtin_bases_let_usual_handlers_work() -> None:
    assert issubclass(errors.InvalidArgumentError, ValueError)
    assert issubclass(errors.RecordTypeError, TypeError)
    assert issubclass(errors.UnknownTopicError, LookupError)
    assert issubclass(errors.StoreNotFoundError, FileNotFoundError)
    assert issubclass(errors.MissingExtraError, ImportError)


def test_an_invariant_names_what_must_hold() -> None:
    invariant(1 == 1, "all is well")
    with pytest.raises(InvariantError, match=r"invariant broken: water is wet.*report it"):
        invariant([], "water is wet")
