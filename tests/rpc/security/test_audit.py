"""The audit log: what it tells, that names cannot forge it, and that refusals cannot flood it."""

from __future__ import annotations

import logging

import pytest

from rpc.errors import AccessDeniedError
from rpc.handlers.caller import Caller, Operation, Resource
from rpc.pb import topics_pb2
from rpc.security.audit import AuditLog
from tests.rpc.security.secured import Secured, refused_as, rule

CALLER = Caller("User:bob", "client 1", "ipv4:127.0.0.1:9", "r-1")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(one.levelno, one.getMessage()) for one in caplog.records if one.name == "logstore.audit"]


def test_what_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "logstore.audit")
    audit = AuditLog()
    audit.denied(CALLER, Operation.WRITE, Resource.TOPIC, "t")
    audit.allowed(CALLER, Operation.CREATE, Resource.TOPIC, "t")
    by = 'principal="User:bob" connection="ipv4:127.0.0.1:9" client="client 1" request="r-1"'
    assert lines(caplog) == [
        (logging.WARNING, f'denied operation=write resource=topic name="t" {by}'),
        (logging.INFO, f'allowed operation=create resource=topic name="t" {by}'),
    ]


def test_names_cannot_forge_lines(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog()
    audit.denied(
        CALLER, Operation.READ, Resource.TOPIC, 't"\nallowed principal="User:admin\u2028\x1b[2J' + "x" * 999
    )
    ((_, line),) = lines(caplog)
    assert "\n" not in line
    assert line.isascii()
    assert line.isprintable()
    assert r"\"\nallowed" in line
    assert len(line) < 600


def test_refusals_are_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    audit = AuditLog(burst=3, per_s=2.0, monotonic_s=lambda: now_s[0])
    for _ in range(10):
        audit.refused("ipv4:10.0.0.1:1", "no")
    assert len(lines(caplog)) == 3
    now_s[0] = 0.5
    audit.refused("ipv4:10.0.0.1:1", "no")
    audit.refused("ipv4:10.0.0.1:1", "no")
    assert len(lines(caplog)) == 4
    assert lines(caplog)[-1][1].endswith(" left-out=7")


def test_a_broker_tells_who_did_what(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "logstore.audit")
    secured.set_password("bob", "word")
    with secured.client("admin", client_id="ops") as admin, secured.by_password("bob", "word") as bob:
        admin.create_topic("t")
        with pytest.raises(AccessDeniedError):
            bob.create_topic("t2")
        admin.security.alter_rules([rule("bob", "read", Resource.TOPIC, "t")], [])
        admin.security.remove_user("bob")
    told = "\n".join(message for _, message in lines(caplog))
    for part in (
        'logged-in principal="User:bob"',
        'allowed operation=create resource=topic name="t" principal="User:admin"',
        'client="ops"',
        'denied operation=create resource=topic name="t2" principal="User:bob"',
        "changed rules added=",
        "allow 'User:bob' read topic literal 't'",
        "changed user removed='bob'",
    ):
        assert part in told
    caplog.clear()
    with secured.channel() as channel:
        metadata = (("authorization", "Bearer lst_x_y"), ("logstore-request-id", "r"))
        refused_as(channel, "TopicService/GetMetadata", topics_pb2.GetMetadataRequest(), metadata)
    ((level, line),) = lines(caplog)
    assert level == logging.WARNING
    assert line.startswith('refused reason="the token is not known" connection="ipv4:127.0.0.1:')
