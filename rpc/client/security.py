"""``RemoteSecurity``: users and rules, changed through a broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rpc.client.routing.role import Calls
from rpc.pb import security_pb2 as pb
from rpc.security.access import UserSummary
from rpc.security.rules import Rule
from rpc.security.scram import Verifier
from rpc.security.users import Token
from rpc.wire.security import rule_from_wire, rule_to_wire, user_from_wire, verifiers_to_wire


class RemoteSecurity:
    """``AccessAdministration``. Thread-safe. Neither passwords nor tokens are sent: what checks them is."""

    def __init__(self, connection: Calls) -> None:
        self._connection = connection

    def list_rules(self) -> list[Rule]:
        answer = self._connection.call(
            "SecurityService/ListRules", pb.ListRulesRequest(), pb.ListRulesResponse
        )
        return sorted(map(rule_from_wire, answer.rules))

    def alter_rules(self, add: Collection[Rule], remove: Collection[Rule]) -> tuple[int, int]:
        request = pb.AlterRulesRequest(add=map(rule_to_wire, add), remove=map(rule_to_wire, remove))
        answer = self._connection.call("SecurityService/AlterRules", request, pb.AlterRulesResponse)
        return answer.added, answer.removed

    def list_users(self) -> list[UserSummary]:
        answer = self._connection.call(
            "SecurityService/ListUsers", pb.ListUsersRequest(), pb.ListUsersResponse
        )
        return [user_from_wire(one) for one in answer.users]

    def set_password(self, name: str, verifiers: Mapping[str, Verifier]) -> None:
        request = pb.SetPasswordRequest(name=name)
        for mechanism, one in verifiers_to_wire(verifiers).items():
            request.verifiers[mechanism].CopyFrom(one)
        self._connection.call("SecurityService/SetPassword", request, pb.SetPasswordResponse)

    def add_token(self, name: str, token: Token) -> None:
        request = pb.AddTokenRequest(
            name=name, token_id=token.token_id, digest=token.digest, expires_ms=token.expires_ms
        )
        self._connection.call("SecurityService/AddToken", request, pb.AddTokenResponse, again=False)

    def revoke_token(self, token_id: str) -> None:
        request = pb.RevokeTokenRequest(token_id=token_id)
        self._connection.call("SecurityService/RevokeToken", request, pb.RevokeTokenResponse, again=False)

    def remove_user(self, name: str) -> None:
        request = pb.RemoveUserRequest(name=name)
        self._connection.call("SecurityService/RemoveUser", request, pb.RemoveUserResponse, again=False)
