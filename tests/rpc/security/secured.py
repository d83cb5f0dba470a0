"""``Secured``: a broker with TLS and access control in this process, and clients of its users, for tests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from rpc.client.store import RemoteStore
from rpc.handlers.caller import CLUSTER, Resource
from rpc.pb import common_pb2
from rpc.security.access import AccessFiles
from rpc.security.rules import Pattern, Rule
from rpc.security.scram import make_verifier
from rpc.security.users import make_token
from rpc.wire.errors import TRAILER
from tests.rpc.security.authority import Authority, Pair
from tests.rpc.served import Served


def rule(
    principal: str, operation: str, resource: Resource, name: str, *, allow: bool = True, prefix: bool = False
) -> Rule:
    return Rule(
        f"User:{principal}",
        resource,
        Pattern.PREFIX if prefix else Pattern.LITERAL,
        name,
        operation,
        allow,
    )


class Secured(Served):
    """``User:admin`` may do everything; others what ``allow`` says."""

    def __init__(self, root: Path, pair: Pair, authority: Authority, **settings: Any) -> None:
        given = {
            "tls_certificate": pair.certificate,
            "tls_key": pair.key,
            "access_control": True,
            "super_users": "User:admin",
            **settings,
        }
        super().__init__(root, **given)
        self.authority = authority
        self.tokens: dict[str, str] = {}

    @property
    def access(self) -> AccessFiles:
        assert self.security.access is not None
        return self.security.access

    def token_of(self, name: str) -> str:
        if name not in self.tokens:
            self.tokens[name], token = make_token(time.time_ns() // 1_000_000)
            self.access.add_token(name, token)
        return self.tokens[name]

    def client(self, name: str, **settings: Any) -> RemoteStore:
        return self.connect(tls_ca=self.authority.file, token=self.token_of(name), **settings)

    def by_password(self, name: str, password: str, **settings: Any) -> RemoteStore:
        return self.connect(tls_ca=self.authority.file, user=name, password=password, **settings)

    def set_password(self, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        self.access.set_password(name, {mechanism: make_verifier(password, mechanism, 4096)})

    def allow(self, *rules: Rule) -> None:
        self.access.alter_rules(rules, ())

    def forbid(self, *rules: Rule) -> None:
        self.access.alter_rules((), rules)

    def allow_topic(self, name: str, topic: str, *operations: str) -> None:
        self.allow(*(rule(name, operation, Resource.TOPIC, topic) for operation in operations))

    def allow_cluster(self, name: str, operation: str) -> None:
        self.allow(rule(name, operation, Resource.CLUSTER, CLUSTER))

    def channel(self) -> grpc.Channel:
        """One connection, without any credentials of a client."""
        credentials = grpc.ssl_channel_credentials(Path(self.authority.file).read_bytes())
        return grpc.secure_channel(self.address, credentials, [("grpc.use_local_subchannel_pool", 1)])


def refused_as(
    channel: grpc.Channel, path: str, request: Message, metadata: tuple[tuple[str, str], ...] = ()
) -> str:
    """The name of the error that a call ends with; "": it does not."""
    try:
        channel.unary_unary(f"/logstore.v1.{path}")(
            request.SerializeToString(), timeout=60, metadata=metadata
        )
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        if TRAILER not in trailers:
            return str(error.code())
        return common_pb2.Error.FromString(trailers[TRAILER]).name
    return ""
