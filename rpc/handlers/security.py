"""``SecurityHandler``: users and rules, changed by a caller who may alter the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from rpc.errors import SecurityDisabledError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import CLUSTER, Authorizer, Caller, Operation, Resource
from rpc.security.access import AccessAdministration, UserSummary
from rpc.security.audit import AuditLog
from rpc.security.rules import Rule
from rpc.security.scram import Verifier
from rpc.security.users import Token

Answer = TypeVar("Answer")


class SecurityHandler:
    """Of the event loop alone. ``access=None``: access control is off, and nothing is changed from outside: what
    anybody plants now would count once it is on."""

    def __init__(
        self,
        access: AccessAdministration | None,
        blocking: Blocking,
        authorizer: Authorizer,
        audit: AuditLog,
    ) -> None:
        self._access = access
        self._blocking = blocking
        self._authorizer = authorizer
        self._audit = audit

    def _allowed(self, caller: Caller, operation: Operation) -> AccessAdministration:
        """AccessDeniedError, SecurityDisabledError."""
        self._authorizer.check(caller, operation, Resource.CLUSTER, CLUSTER)
        if self._access is None:
            raise SecurityDisabledError("this broker has no access control")
        return self._access

    async def list_rules(self, caller: Caller) -> list[Rule]:
        return await self._blocking.run(self._allowed(caller, Operation.DESCRIBE).list_rules)

    async def list_users(self, caller: Caller) -> list[UserSummary]:
        return await self._blocking.run(self._allowed(caller, Operation.DESCRIBE).list_users)

    async def alter_rules(
        self, caller: Caller, add: Collection[Rule], remove: Collection[Rule]
    ) -> tuple[int, int]:
        access = self._allowed(caller, Operation.ALTER)
        told = f"rules added={[*map(_told, add)]} removed={[*map(_told, remove)]}"
        return await self._change(caller, told, lambda: access.alter_rules(add, remove))

    async def set_password(self, caller: Caller, name: str, verifiers: Mapping[str, Verifier]) -> None:
        access = self._allowed(caller, Operation.ALTER)
        await self._change(caller, f"password of={name!a}", lambda: access.set_password(name, verifiers))

    async def add_token(self, caller: Caller, name: str, token: Token) -> None:
        access = self._allowed(caller, Operation.ALTER)
        told = f"token added={token.token_id!a} of={name!a}"
        await self._change(caller, told, lambda: access.add_token(name, token))

    async def revoke_token(self, caller: Caller, token_id: str) -> None:
        access = self._allowed(caller, Operation.ALTER)
        await self._change(caller, f"token revoked={token_id!a}", lambda: access.revoke_token(token_id))

    async def remove_user(self, caller: Caller, name: str) -> None:
        access = self._allowed(caller, Operation.ALTER)
        await self._change(caller, f"user removed={name!a}", lambda: access.remove_user(name))

    async def _change(self, caller: Caller, told: str, change: Callable[[], Answer]) -> Answer:
        answer = await self._blocking.run(change)
        self._audit.changed(caller, told)
        return answer


def _told(rule: Rule) -> str:
    kind = "allow" if rule.allow else "deny"
    return f"{kind} {rule.principal!a} {rule.operation} {rule.resource} {rule.pattern} {rule.name!a}"
