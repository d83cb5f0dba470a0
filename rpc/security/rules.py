"""Rules of access, and what follows from a set of them: deny by default, and deny beats allow.

As Apache Kafka's ACLs: a rule allows or denies one principal (or ``User:*``) one operation (or ``all``) on a resource,
by its name, by the beginning of its name, or on all of a kind (``*``). An allowed READ, WRITE, DELETE or ALTER brings
DESCRIBE along; a denied one does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from logstore.errors import InvalidArgumentError
from rpc.handlers.caller import CLUSTER, Operation, Resource
from rpc.security.principals import ANYBODY, KIND, principal_of

ALL: Final = "all"
ANY_NAME: Final = "*"
MOST_RULES: Final = 100_000
_MOST_DECIDED: Final = 20_000
_IMPLY_DESCRIBE: Final = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)

GRANTABLE: Final[Mapping[Resource, frozenset[Operation]]] = {
    Resource.TOPIC: frozenset(Operation),
    Resource.GROUP: frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE}),
    Resource.TRANSACTION: frozenset({Operation.WRITE, Operation.ALTER, Operation.DESCRIBE}),
    Resource.PRODUCER: frozenset({Operation.WRITE, Operation.DELETE, Operation.DESCRIBE}),
    Resource.CLUSTER: frozenset({Operation.ALTER, Operation.DESCRIBE}),
}
"""What handlers ask for, by the kind of resource."""


class Pattern(StrEnum):
    """What a rule's name is: the whole name or ``*``, or its beginning."""

    LITERAL = "literal"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """``operation``: one of ``Operation``, or ``all``. InvalidArgumentError for a rule that could never apply."""

    principal: str
    resource: Resource
    pattern: Pattern
    name: str
    operation: str
    allow: bool

    def __post_init__(self) -> None:
        if self.principal != ANYBODY and (
            not self.principal.startswith(KIND) or not _can_be(self.principal.removeprefix(KIND))
        ):
            raise InvalidArgumentError(
                f"{self.principal!r} is no principal", hint="User:NAME, or User:* for all"
            )
        if self.operation != ALL and self.operation not in GRANTABLE[self.resource]:
            known = ", ".join(sorted(GRANTABLE[self.resource]))
            raise InvalidArgumentError(
                f"there is no operation {self.operation!r} on a {self.resource}",
                hint=f"it is {known} or {ALL}",
            )
        if not 0 < len(self.name) <= 249 or not self.name.isprintable():
            raise InvalidArgumentError(f"{self.name[:60]!r} is no name of a {self.resource}")
        if self.resource is Resource.CLUSTER and (self.name, self.pattern) != (CLUSTER, Pattern.LITERAL):
            raise InvalidArgumentError(f"a rule on the cluster has the name {CLUSTER!r}")
        if self.pattern is Pattern.PREFIX and self.name == ANY_NAME:
            raise InvalidArgumentError(
                "a prefix '*' matches names that begin with a star", hint="leave --prefix out"
            )

    def matches(self, name: str) -> bool:
        if self.pattern is Pattern.PREFIX:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)

    def covers(self, other: Rule) -> bool:
        """Whether every name that ``other`` matches is matched here, too."""
        if self.pattern is Pattern.LITERAL and self.name == ANY_NAME:
            return True
        if self.pattern is Pattern.PREFIX:
            return other.name != ANY_NAME and other.name.startswith(self.name)
        return other.pattern is Pattern.LITERAL and other.name == self.name


def _can_be(name: str) -> bool:
    return name == "ANONYMOUS" or principal_of(name) is not None


class RuleSet:
    """Immutable but for the decisions that it remembers. Thread-safe."""

    def __init__(self, rules: Collection[Rule] = ()) -> None:
        self.rules = frozenset(rules)
        if len(self.rules) > MOST_RULES:
            raise InvalidArgumentError(f"{len(self.rules)} rules are more than {MOST_RULES}")
        self._by_principal: dict[tuple[str, Resource], list[Rule]] = defaultdict(list)
        for rule in self.rules:
            self._by_principal[rule.principal, rule.resource].append(rule)
        self._decided: dict[tuple[str, Operation, Resource, str], bool] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleSet) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def allows(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        asked = (principal, operation, resource, name)
        known = self._decided.get(asked)
        if known is None:
            if len(self._decided) >= _MOST_DECIDED:  # names come from callers
                self._decided.clear()
            known = self._decided[asked] = self._decide(principal, operation, resource, name)
        return known

    def _of(self, principal: str, resource: Resource) -> list[Rule]:
        return [
            *self._by_principal.get((principal, resource), ()),
            *self._by_principal.get((ANYBODY, resource), ()),
        ]

    def _decide(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        allowed = False
        for rule in self._of(principal, resource):
            if not rule.matches(name):
                continue
            if not rule.allow:
                if rule.operation in (ALL, operation):
                    return False
            elif _grants(rule, operation):
                allowed = True
        return allowed

    def allows_any(self, principal: str, operation: Operation, resource: Resource) -> bool:
        """Whether there can be a name on which the principal may: an allowing rule that no denying one covers."""
        rules = self._of(principal, resource)
        denying = [rule for rule in rules if not rule.allow and rule.operation in (ALL, operation)]
        return any(
            rule.allow and _grants(rule, operation) and not any(deny.covers(rule) for deny in denying)
            for rule in rules
        )


def _grants(rule: Rule, operation: Operation) -> bool:
    return rule.operation in (ALL, operation) or (
        operation is Operation.DESCRIBE and rule.operation in _IMPLY_DESCRIBE
    )


def rules_from_json(values: object) -> RuleSet:
    """ValueError, KeyError, TypeError."""
    if not isinstance(values, list):
        raise TypeError("the rules are no list")
    return RuleSet([_rule(value) for value in values])


def _rule(value: dict[str, object]) -> Rule:
    allow = value["allow"]
    if not isinstance(allow, bool):
        raise TypeError(f"allow={allow!r}")
    texts = {name: value[name] for name in ("principal", "resource", "pattern", "name", "operation")}
    if len(value) != 6 or not all(isinstance(text, str) for text in texts.values()):
        raise TypeError("a rule has other fields than this version knows")
    return Rule(
        str(texts["principal"]),
        Resource(str(texts["resource"])),
        Pattern(str(texts["pattern"])),
        str(texts["name"]),
        str(texts["operation"]),
        allow,
    )


def rules_to_json(found: RuleSet) -> object:
    return [
        {
            "allow": rule.allow,
            "principal": rule.principal,
            "operation": rule.operation,
            "resource": rule.resource.value,
            "pattern": rule.pattern.value,
            "name": rule.name,
        }
        for rule in sorted(found.rules)
    ]
