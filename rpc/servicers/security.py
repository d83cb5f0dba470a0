"""``LoginService`` and ``SecurityService``: log-ins by password; users and rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from rpc.errors import AuthenticationError, BrokerBusyError
from rpc.handlers.caller import ANONYMOUS, Caller
from rpc.handlers.logins import LoginHandler
from rpc.handlers.security import SecurityHandler
from rpc.pb import security_pb2 as pb
from rpc.security.users import Token
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.security import rule_from_wire, rule_to_wire, user_to_wire, verifiers_from_wire

MOST_READ: Final = 32
"""Messages of log-ins that are read at once: memory that strangers take."""
READ_S: Final = 5.0
_MAX_BYTES: Final = 16 << 10


def _not_yet(context: Any, metadata: Sequence[tuple[str, str | bytes]]) -> str:
    """A log-in is what makes a caller known."""
    del context, metadata
    return ANONYMOUS


class LoginService(Service):
    def __init__(self, handler: LoginHandler, observe: Observer) -> None:
        super().__init__("LoginService", _not_yet, observe)
        self._handler = handler
        self._reading = 0
        self.unary("StartLogin", pb.StartLoginRequest, self._start)
        self.unary("FinishLogin", pb.FinishLoginRequest, self._finish)

    async def read_request(self, context: Any) -> bytes:
        """As of other services, but of strangers: of few at once, and not for long. BrokerBusyError,
        AuthenticationError."""
        if self._reading >= MOST_READ:
            raise BrokerBusyError("too many log-ins are read", retry_after_ms=200)
        self._reading += 1
        try:
            async with asyncio.timeout(READ_S):
                data = await super().read_request(context)
        except TimeoutError as error:
            raise AuthenticationError(f"the log-in's message did not come within {READ_S:g} s") from error
        finally:
            self._reading -= 1
        if len(data) > _MAX_BYTES:
            raise AuthenticationError("the log-in's message is too long")
        return data

    async def _start(self, caller: Caller, request: pb.StartLoginRequest) -> pb.StartLoginResponse:
        login_id, challenge = self._handler.start(caller.connection, request.mechanism, request.client_first)
        return pb.StartLoginResponse(login_id=login_id, server_first=challenge)

    async def _finish(self, caller: Caller, request: pb.FinishLoginRequest) -> pb.FinishLoginResponse:
        proof, session, lifetime_s = await self._handler.finish(
            caller.connection, request.login_id, request.client_final
        )
        return pb.FinishLoginResponse(server_final=proof, session=session, lifetime_ms=int(lifetime_s * 1000))


class SecurityService(Service):
    def __init__(self, handler: SecurityHandler, identify: Identify, observe: Observer) -> None:
        super().__init__("SecurityService", identify, observe)
        self._handler = handler
        self.unary("ListRules", pb.ListRulesRequest, self._list_rules)
        self.once("AlterRules", pb.AlterRulesRequest, self._alter_rules)
        self.unary("ListUsers", pb.ListUsersRequest, self._list_users)
        self.once("SetPassword", pb.SetPasswordRequest, self._set_password)
        self.once("AddToken", pb.AddTokenRequest, self._add_token)
        self.once("RevokeToken", pb.RevokeTokenRequest, self._revoke_token)
        self.once("RemoveUser", pb.RemoveUserRequest, self._remove_user)

    async def _list_rules(self, caller: Caller, request: pb.ListRulesRequest) -> pb.ListRulesResponse:
        del request
        return pb.ListRulesResponse(rules=map(rule_to_wire, await self._handler.list_rules(caller)))

    async def _alter_rules(self, caller: Caller, request: pb.AlterRulesRequest) -> pb.AlterRulesResponse:
        add, remove = [*map(rule_from_wire, request.add)], [*map(rule_from_wire, request.remove)]
        added, removed = await self._handler.alter_rules(caller, add, remove)
        return pb.AlterRulesResponse(added=added, removed=removed)

    async def _list_users(self, caller: Caller, request: pb.ListUsersRequest) -> pb.ListUsersResponse:
        del request
        return pb.ListUsersResponse(users=map(user_to_wire, await self._handler.list_users(caller)))

    async def _set_password(self, caller: Caller, request: pb.SetPasswordRequest) -> pb.SetPasswordResponse:
        await self._handler.set_password(caller, request.name, verifiers_from_wire(request.verifiers))
        return pb.SetPasswordResponse()

    async def _add_token(self, caller: Caller, request: pb.AddTokenRequest) -> pb.AddTokenResponse:
        expires_ms = request.expires_ms if request.HasField("expires_ms") else None
        token = Token(request.token_id, request.digest, time.time_ns() // 1_000_000, expires_ms)
        await self._handler.add_token(caller, request.name, token)
        return pb.AddTokenResponse()

    async def _revoke_token(self, caller: Caller, request: pb.RevokeTokenRequest) -> pb.RevokeTokenResponse:
        await self._handler.revoke_token(caller, request.token_id)
        return pb.RevokeTokenResponse()

    async def _remove_user(self, caller: Caller, request: pb.RemoveUserRequest) -> pb.RemoveUserResponse:
        await self._handler.remove_user(caller, request.name)
        return pb.RemoveUserResponse()
