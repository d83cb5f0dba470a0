"""Rules and users as messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logstore.errors import InvalidArgumentError
from rpc.handlers.caller import Resource
from rpc.pb import security_pb2 as pb
from rpc.security.access import TokenSummary, UserSummary
from rpc.security.rules import Pattern, Rule
from rpc.security.scram import Verifier


def rule_to_wire(rule: Rule) -> pb.Rule:
    return pb.Rule(
        principal=rule.principal,
        allow=rule.allow,
        operation=rule.operation,
        resource=rule.resource.value,
        pattern=rule.pattern.value,
        name=rule.name,
    )


def rule_from_wire(message: pb.Rule) -> Rule:
    """InvalidArgumentError."""
    try:
        resource, pattern = Resource(message.resource), Pattern(message.pattern)
    except ValueError as error:
        raise InvalidArgumentError(
            f"a rule has resource {message.resource[:40]!r} and pattern {message.pattern[:40]!r}",
            hint=f"resources are {', '.join(Resource)}; patterns are {', '.join(Pattern)}",
        ) from error
    return Rule(message.principal, resource, pattern, message.name, message.operation, message.allow)


def user_to_wire(user: UserSummary) -> pb.UserSummary:
    message = pb.UserSummary(name=user.name, mechanisms=user.mechanisms)
    for token in user.tokens:
        message.tokens.add(token_id=token.token_id, created_ms=token.created_ms, expires_ms=token.expires_ms)
    return message


def user_from_wire(message: pb.UserSummary) -> UserSummary:
    return UserSummary(message.name, tuple(message.mechanisms), tuple(_tokens(message.tokens)))


def _tokens(messages: Iterable[pb.TokenSummary]) -> Iterable[TokenSummary]:
    for one in messages:
        yield TokenSummary(
            one.token_id, one.created_ms, one.expires_ms if one.HasField("expires_ms") else None
        )


def verifiers_from_wire(messages: Mapping[str, pb.PasswordVerifier]) -> dict[str, Verifier]:
    return {
        mechanism: Verifier(one.salt, one.iterations, one.stored_key, one.server_key)
        for mechanism, one in messages.items()
    }


def verifiers_to_wire(verifiers: Mapping[str, Verifier]) -> dict[str, pb.PasswordVerifier]:
    return {
        mechanism: pb.PasswordVerifier(
            salt=one.salt,
            iterations=one.iterations,
            stored_key=one.stored_key,
            server_key=one.server_key,
        )
        for mechanism, one in verifiers.items()
    }
