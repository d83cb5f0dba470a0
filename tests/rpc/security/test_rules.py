"""What follows from rules, and which rules cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import InvalidArgumentError
from rpc.handlers.caller import CLUSTER, Operation, Resource
from rpc.security.rules import (
    ALL,
    GRANTABLE,
    Pattern,
    Rule,
    RuleSet,
    rules_from_json,
    rules_to_json,
)
from tests.rpc.security.secured import rule

TOPIC, GROUP = Resource.TOPIC, Resource.GROUP


@pytest.mark.parametrize(
    ("rules", "asked", "allowed"),
    [
        ([], ("read", TOPIC, "t"), False),
        ([rule("a", "read", TOPIC, "t")], ("read", TOPIC, "t"), True),
        ([rule("a", "read", TOPIC, "t")], ("write", TOPIC, "t"), False),
        ([rule("a", "read", TOPIC, "t")], ("read", TOPIC, "t2"), False),
        ([rule("a", "read", TOPIC, "t")], ("read", TOPIC, "T"), False),
        ([rule("a", "read", TOPIC, "t")], ("read", GROUP, "t"), False),
        ([rule("b", "read", TOPIC, "t")], ("read", TOPIC, "t"), False),
        ([rule("*", "read", TOPIC, "t")], ("read", TOPIC, "t"), True),
        ([rule("a", "read", TOPIC, "*")], ("read", TOPIC, "anything"), True),
        ([rule("a", "all", TOPIC, "t")], ("delete", TOPIC, "t"), True),
        # prefixes
        ([rule("a", "read", TOPIC, "t", prefix=True)], ("read", TOPIC, "t"), True),
        ([rule("a", "read", TOPIC, "t", prefix=True)], ("read", TOPIC, "tea"), True),
        ([rule("a", "read", TOPIC, "tea", prefix=True)], ("read", TOPIC, "te"), False),
        ([rule("a", "read", TOPIC, "team.", prefix=True)], ("read", TOPIC, "teams"), False),
        ([rule("a", "read", TOPIC, "t")], ("read", TOPIC, "*"), False),
        # what describes
        ([rule("a", "read", TOPIC, "t")], ("describe", TOPIC, "t"), True),
        ([rule("a", "write", TOPIC, "t")], ("describe", TOPIC, "t"), True),
        ([rule("a", "delete", TOPIC, "t")], ("describe", TOPIC, "t"), True),
        ([rule("a", "alter", TOPIC, "t")], ("describe", TOPIC, "t"), True),
        ([rule("a", "create", TOPIC, "t")], ("describe", TOPIC, "t"), False),
        ([rule("a", "describe", TOPIC, "t")], ("read", TOPIC, "t"), False),
        # deny goes first
        (
            [rule("a", "read", TOPIC, "t"), rule("a", "read", TOPIC, "t", allow=False)],
            ("read", TOPIC, "t"),
            False,
        ),
        (
            [rule("a", "all", TOPIC, "*"), rule("a", "read", TOPIC, "t", allow=False, prefix=True)],
            ("read", TOPIC, "tea"),
            False,
        ),
        (
            [rule("a", "all", TOPIC, "*"), rule("*", "all", TOPIC, "t", allow=False)],
            ("write", TOPIC, "t"),
            False,
        ),
        (
            [rule("a", "read", TOPIC, "*"), rule("a", "write", TOPIC, "t", allow=False)],
            ("read", TOPIC, "t"),
            True,
        ),
        (
            [rule("a", "describe", TOPIC, "t"), rule("a", "read", TOPIC, "t", allow=False)],
            ("describe", TOPIC, "t"),
            True,
        ),
        (
            [rule("a", "read", TOPIC, "t"), rule("a", "describe", TOPIC, "t", allow=False)],
            ("describe", TOPIC, "t"),
            False,
        ),
        (
            [rule("a", "all", TOPIC, "t"), rule("b", "all", TOPIC, "t", allow=False)],
            ("read", TOPIC, "t"),
            True,
        ),
    ],
)
def test_what_follows(rules: list[Rule], asked: tuple[str, Resource, str], allowed: bool) -> None:
    operation, resource, name = asked
    found = RuleSet(rules)
    for _ in range(2):  # decided, and remembered
        assert found.allows("User:a", Operation(operation), resource, name) is allowed


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        ([rule("a", "write", TOPIC, "t")], True),
        ([rule("a", "read", TOPIC, "t")], False),
        ([rule("a", "write", TOPIC, "t"), rule("a", "write", TOPIC, "t", allow=False)], False),
        ([rule("a", "write", TOPIC, "t"), rule("*", "all", TOPIC, "*", allow=False)], False),
        (
            [
                rule("a", "write", TOPIC, "tea", prefix=True),
                rule("a", "write", TOPIC, "t", prefix=True, allow=False),
            ],
            False,
        ),
        (
            [
                rule("a", "write", TOPIC, "t", prefix=True),
                rule("a", "write", TOPIC, "tea", prefix=True, allow=False),
            ],
            True,
        ),
        ([rule("a", "write", TOPIC, "*"), rule("a", "write", TOPIC, "t", prefix=True, allow=False)], True),
        ([rule("a", "write", TOPIC, "t", prefix=True), rule("a", "write", TOPIC, "t", allow=False)], True),
    ],
)
def test_on_some_name(rules: list[Rule], allowed: bool) -> None:
    assert RuleSet(rules).allows_any("User:a", Operation.WRITE, TOPIC) is allowed


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("alice", TOPIC, Pattern.LITERAL, "t", "read", True), "no principal"),
        (("User:", TOPIC, Pattern.LITERAL, "t", "read", True), "no principal"),
        (("User:a,User:b", TOPIC, Pattern.LITERAL, "t", "read", True), "no principal"),
        (("Group:a", TOPIC, Pattern.LITERAL, "t", "read", True), "no principal"),
        (("User:a", TOPIC, Pattern.LITERAL, "t", "reed", True), "no operation 'reed'"),
        (("User:a", GROUP, Pattern.LITERAL, "g", "write", True), "no operation 'write' on a group"),
        (("User:a", TOPIC, Pattern.LITERAL, "", "read", True), "no name"),
        (("User:a", TOPIC, Pattern.LITERAL, "x" * 250, "read", True), "no name"),
        (("User:a", TOPIC, Pattern.LITERAL, "a\nb", "read", True), "no name"),
        (("User:a", TOPIC, Pattern.PREFIX, "*", "read", True), "begin with a star"),
        (("User:a", Resource.CLUSTER, Pattern.LITERAL, "other", "alter", True), "has the name 'cluster'"),
        (("User:a", Resource.CLUSTER, Pattern.PREFIX, CLUSTER, "alter", True), "has the name 'cluster'"),
    ],
)
def test_a_rule_that_cannot_be(given: tuple[str, Resource, Pattern, str, str, bool], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        Rule(*given)


names = st.text("ab.*", min_size=1, max_size=4)


@st.composite
def some_rules(draw: st.DrawFn) -> Rule:
    resource = draw(st.sampled_from([TOPIC, GROUP]))
    prefix = draw(st.booleans())
    name = draw(names.filter(lambda text: not prefix or text != "*"))
    operation = draw(st.sampled_from([*sorted(GRANTABLE[resource]), ALL]))
    return rule(
        draw(st.sampled_from("ab*")), operation, resource, name, allow=draw(st.booleans()), prefix=prefix
    )


def plainly(rules: list[Rule], principal: str, operation: Operation, resource: Resource, name: str) -> bool:
    """The rules' meaning, read aloud."""
    mine = [
        one
        for one in rules
        if one.principal in (principal, "User:*")
        and one.resource is resource
        and (name.startswith(one.name) if one.pattern is Pattern.PREFIX else one.name in ("*", name))
    ]
    brings = {operation, ALL}
    if operation is Operation.DESCRIBE:
        brings |= {"read", "write", "delete", "alter"}
    denied = any(not one.allow and one.operation in (operation, ALL) for one in mine)
    return not denied and any(one.allow and one.operation in brings for one in mine)


@given(st.lists(some_rules(), max_size=8), st.sampled_from(sorted(GRANTABLE[GROUP])), names)
def test_the_same_as_read_aloud(rules: list[Rule], operation: Operation, name: str) -> None:
    found = RuleSet(rules)
    for resource in (TOPIC, GROUP):
        meant = plainly(rules, "User:a", operation, resource, name)
        assert found.allows("User:a", operation, resource, name) is meant
        if meant:
            assert found.allows_any("User:a", operation, resource)
    assert rules_from_json(rules_to_json(found)) == found


def test_decisions_that_are_remembered_are_bounded() -> None:
    found = RuleSet([rule("a", "read", TOPIC, "t")])
    for number in range(50_000):
        found.allows("User:a", Operation.READ, TOPIC, f"{number}")
    assert len(found._decided) <= 20_000
    assert found.allows("User:a", Operation.READ, TOPIC, "t")
