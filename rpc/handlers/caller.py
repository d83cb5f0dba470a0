"""The caller of an operation, and whether the caller may do it: one check for every protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from logstore.types import COUNTER_TOPIC, TopicPartition

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a caller without credentials."""


@dataclass(frozen=True, slots=True)
class Caller:
    """``principal``: "User:NAME", taken from the channel alone; ``client_id``: what the client calls itself;
    ``connection``: names the connection, for bounds per connection; ``request_id``: for the logs."""

    principal: str
    client_id: str = ""
    connection: str = ""
    request_id: str = ""


class Operation(StrEnum):
    """What can be granted. As Kafka's: ALTER includes settings, DESCRIBE metadata and offsets."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"


class Resource(StrEnum):
    """On what."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTION = "transactional-id"
    PRODUCER = "producer"
    CLUSTER = "cluster"


CLUSTER: Final = "cluster"
"""The name of the one resource of kind CLUSTER."""


def topics_in(places: Iterable[TopicPartition]) -> set[str]:
    """The topics whose rights are asked for offsets of a group. A number of the group's own (``COUNTER_TOPIC``) is in
    no topic: who may use the group may use it."""
    return {place.topic for place in places} - {COUNTER_TOPIC}


class Authorizer(Protocol):
    """Thread-safe, and quick: it is asked for every call."""

    def check(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        """AccessDeniedError unless the caller may."""
        ...

    def check_any(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """AccessDeniedError unless the caller may on some name of the kind."""
        ...

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        """The same as an answer, for lists of what may be seen; it is not noted as a refusal."""
        ...


class AllowAll:
    """The authorizer of a broker without access control: everything is allowed."""

    def check(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        del caller, operation, resource, name

    def check_any(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        del caller, operation, resource

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        del caller, operation, resource, name
        return True
