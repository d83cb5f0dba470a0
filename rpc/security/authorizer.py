"""Authorizers that write the audit log: by rules, or without any."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from rpc.errors import AccessDeniedError
from rpc.handlers.caller import Caller, Operation, Resource
from rpc.security.audit import AuditLog
from rpc.security.document import Kept
from rpc.security.rules import RuleSet

_ADMINISTRATION: Final = (Operation.CREATE, Operation.DELETE, Operation.ALTER)
_SOME_NAME: Final = "(any)"


class Decisions(Protocol):
    """Whether a principal may. Thread-safe, quick."""

    def may(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool: ...
    def may_on_any(self, principal: str, operation: Operation, resource: Resource) -> bool: ...


class EverythingAllowed:
    """Access control is off."""

    def may(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        del principal, operation, resource, name
        return True

    def may_on_any(self, principal: str, operation: Operation, resource: Resource) -> bool:
        del principal, operation, resource
        return True


class ByRules:
    """``super_users``: principals that may do everything, whatever rules deny."""

    def __init__(self, rules: Kept[RuleSet], super_users: Collection[str]) -> None:
        self._rules = rules
        self._super_users = frozenset(super_users)

    def may(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        return principal in self._super_users or self._rules.current().allows(
            principal, operation, resource, name
        )

    def may_on_any(self, principal: str, operation: Operation, resource: Resource) -> bool:
        return principal in self._super_users or self._rules.current().allows_any(
            principal, operation, resource
        )


class AuditedAuthorizer:
    """An ``Authorizer``."""

    def __init__(self, decisions: Decisions, audit: AuditLog) -> None:
        self._decisions = decisions
        self._audit = audit

    def check(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        if not self._decisions.may(caller.principal, operation, resource, name):
            self._deny(caller, operation, resource, name)
        elif operation in _ADMINISTRATION:
            self._audit.allowed(caller, operation, resource, name)

    def check_any(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        if not self._decisions.may_on_any(caller.principal, operation, resource):
            self._deny(caller, operation, resource, _SOME_NAME)

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        return self._decisions.may(caller.principal, operation, resource, name)

    def _deny(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        self._audit.denied(caller, operation, resource, name)
        raise AccessDeniedError(f"{caller.principal} may not {operation} {resource} {name[:249]!r}")
