"""Log-ins by password: what they lead to, what ends it, and what leads nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from logstore.errors import InvalidArgumentError
from rpc.client.channel.connection import Connection
from rpc.client.channel.credentials import PasswordCredentials
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.store import connect
from rpc.errors import (
    AccessDeniedError,
    AuthenticationError,
    BrokerBusyError,
    BrokerTimeoutError,
    SessionExpiredError,
)
from rpc.handlers.caller import Resource
from rpc.handlers.logins import LoginHandler
from rpc.pb import security_pb2 as pb
from rpc.pb import topics_pb2
from rpc.security.access import AccessFiles
from rpc.security.audit import AuditLog
from rpc.security.scram import ScramClient, make_verifier
from rpc.security.sessions import Sessions
from tests.beside import Beside
from tests.rpc.security.authority import Authority, Pair
from tests.rpc.security.secured import Secured, refused_as, rule
from tests.rpc.served import Served

QUICK = {"connect_timeout_s": 2.0, "request_timeout_s": 5.0}
METADATA = topics_pb2.GetMetadataRequest()
WORD = "pa55 wörd"


def start(
    channel: grpc.Channel, name: str = "alice", password: str = WORD, mechanism: str = "SCRAM-SHA-256"
) -> tuple[ScramClient, pb.StartLoginResponse]:
    scram = ScramClient(name, password, mechanism)
    request = pb.StartLoginRequest(mechanism=mechanism, client_first=scram.first())
    answer = channel.unary_unary("/logstore.v1.LoginService/StartLogin")(
        request.SerializeToString(), timeout=60
    )
    return scram, pb.StartLoginResponse.FromString(answer)


def finish(channel: grpc.Channel, login_id: str, final: bytes) -> str:
    """The session."""
    request = pb.FinishLoginRequest(login_id=login_id, client_final=final)
    answer = channel.unary_unary("/logstore.v1.LoginService/FinishLogin")(
        request.SerializeToString(), timeout=60
    )
    return pb.FinishLoginResponse.FromString(answer).session


def log_in(channel: grpc.Channel) -> str:
    scram, begun = start(channel)
    return finish(channel, begun.login_id, scram.final(begun.server_first))


def finishes(channel: grpc.Channel, login_id: str, final: bytes) -> str:
    """The name of the error."""
    request = pb.FinishLoginRequest(login_id=login_id, client_final=final)
    return refused_as(channel, "LoginService/FinishLogin", request)


@pytest.fixture
def served(secured: Secured) -> Secured:
    secured.set_password("alice", WORD)
    secured.allow(rule("alice", "all", Resource.TOPIC, "*"))
    return secured


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password(secured: Secured, mechanism: str) -> None:
    secured.set_password("alice", WORD, mechanism)
    secured.allow(rule("alice", "all", Resource.TOPIC, "*"), rule("alice", "all", Resource.GROUP, "*"))
    with secured.by_password("alice", WORD, mechanism=mechanism) as alice:
        alice.create_topic("t")
        with alice.producer() as producer:
            producer.send("t", b"v").result(timeout_s=60)
        with alice.consumer("t", group="g", until_end=True) as consumer:
            assert [record.value for record in consumer] == [b"v"]
            consumer.commit()


def test_a_password_on_loopback_without_tls(tmp_path: Path) -> None:
    with Served(tmp_path / "store", access_control=True, super_users="User:admin") as plain:
        assert plain.security.access is not None
        plain.security.access.set_password("admin", {"SCRAM-SHA-256": make_verifier(WORD, "SCRAM-SHA-256")})
        with plain.connect(user="admin", password=WORD) as admin:
            admin.create_topic("t")


def test_a_password_from_a_file(served: Secured, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(WORD + "\n")
    file.chmod(0o600)
    with served.connect(tls_ca=served.authority.file, user="alice", password_file=str(file)) as alice:
        alice.create_topic("t")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"user": "a"}, "given together"),
        ({"password": "x"}, "given together"),
        ({"user": "a", "password": "x", "password_file": "f"}, "both password and password_file"),
        ({"user": "a", "password": "x", "token": "t", "tls": True}, "both a user and a token"),
        ({"user": "a", "password": "x", "mechanism": "PLAIN"}, "mechanism='PLAIN'"),
        ({"user": "a", "password": "x"}, "not proved over the network without TLS"),
        ({"user": "a", "password": "", "tls": True}, "the password is empty"),
        ({"user": "a", "password": "x\u0007", "tls": True}, "cannot be"),
    ],
)
def test_a_client_that_does_not_even_try(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        connect("broker.example:1", **settings)


@pytest.mark.parametrize(
    ("name", "password", "mechanism"),
    [
        ("alice", "wrong", "SCRAM-SHA-256"),
        ("alice", WORD + " ", "SCRAM-SHA-256"),
        ("Alice", WORD, "SCRAM-SHA-256"),
        ("ghost", WORD, "SCRAM-SHA-256"),
        ("alice", WORD, "SCRAM-SHA-512"),
    ],
)
def test_a_wrong_user_or_password(served: Secured, name: str, password: str, mechanism: str) -> None:
    with pytest.raises(AuthenticationError, match="the user or the password is wrong"):
        served.by_password(name, password, mechanism=mechanism, **QUICK)


def test_users_that_there_are_not_get_the_same_kind_of_challenge(served: Secured) -> None:
    served.set_password("known", WORD)
    served.access.set_password("known", {"SCRAM-SHA-256": make_verifier(WORD, "SCRAM-SHA-256")})
    with served.channel() as channel:
        kinds = {}
        for name in ("known", "ghost"):
            first, again = (start(channel, name)[1].server_first.decode().split(",") for _ in range(2))
            assert first[1:] == again[1:]  # the salt is not told by chance
            kinds[name] = ([len(part) for part in first], first[2])
        assert kinds["known"] == kinds["ghost"]


@pytest.mark.parametrize(
    ("mechanism", "first"),
    [
        ("PLAIN", b"n,,n=alice,r=0123456789abcdef"),
        ("", b"n,,n=alice,r=0123456789abcdef"),
        ("SCRAM-SHA-256", b"p=tls-exporter,,n=alice,r=0123456789abcdef"),
        ("SCRAM-SHA-256", b"n,a=admin,n=alice,r=0123456789abcdef"),
        ("SCRAM-SHA-256", b"junk"),
    ],
)
def test_a_log_in_that_does_not_begin(served: Secured, mechanism: str, first: bytes) -> None:
    request = pb.StartLoginRequest(mechanism=mechanism, client_first=first)
    with served.channel() as channel:
        assert refused_as(channel, "LoginService/StartLogin", request) == "AuthenticationError"


def test_a_log_in_is_finished_once_on_its_connection_and_rightly(served: Secured) -> None:
    with served.channel() as channel, served.channel() as other:
        scram, begun = start(channel)
        final = scram.final(begun.server_first)
        assert finishes(other, begun.login_id, final) == "SessionExpiredError"
        assert finishes(channel, "0" * 32, final) == "SessionExpiredError"
        assert finishes(channel, begun.login_id, final) == ""
        assert finishes(channel, begun.login_id, final) == "SessionExpiredError"
        _, fresh = start(channel)
        assert (
            finishes(channel, fresh.login_id, final) == "AuthenticationError"
        )  # what was heard serves nothing
        scram, altered = start(channel)
        wrong = scram.final(altered.server_first).replace(b",r=", b",r=x")
        assert finishes(channel, altered.login_id, wrong) == "AuthenticationError"
        assert finishes(channel, altered.login_id, wrong) == "SessionExpiredError"  # one try


def test_a_session_belongs_to_its_connection(served: Secured) -> None:
    with served.channel() as channel, served.channel() as other:
        session = log_in(channel)
        shown = (("authorization", f"Session {session}"),)
        assert refused_as(channel, "TopicService/GetMetadata", METADATA, shown) == ""
        assert refused_as(other, "TopicService/GetMetadata", METADATA, shown) == "SessionExpiredError"
        for wrong in (session[:-1], session + "x", session.split(".")[0], "x.y", session.replace(".", ":")):
            shown = (("authorization", f"Session {wrong}"),)
            assert refused_as(channel, "TopicService/GetMetadata", METADATA, shown) == "SessionExpiredError"


def test_clients_log_in_anew_when_their_session_is_over(
    tmp_path: Path, pair: Pair, authority: Authority
) -> None:
    with Secured(tmp_path / "store", pair, authority, session_s=0.05, super_users="User:alice") as served:
        served.set_password("alice", WORD)
        with served.by_password("alice", WORD) as alice:
            alice.create_topic("t")
            with alice.producer() as producer, alice.consumer("t", group="g") as consumer:
                for number in range(30):
                    producer.send("t", b"%d" % number).result(timeout_s=60)
                    assert consumer.poll(timeout_s=60)


class Stale:
    """Credentials of a connection that is gone."""

    def metadata(self, send: object, timeout_s: float) -> tuple[tuple[str, str], ...]:
        return (("authorization", "Session a.b"),)

    def expired(self, shown: object) -> bool:
        return False


def test_a_session_that_cannot_be_renewed_is_named(served: Secured) -> None:
    connection = Connection(served.address, ConnectionSettings(tls_ca=served.authority.file))
    connection._credentials = Stale()
    with pytest.raises(SessionExpiredError):
        connection.call("TopicService/GetMetadata", METADATA, topics_pb2.GetMetadataResponse)
    connection.close()


def test_a_log_in_that_hangs_keeps_others_no_longer_than_their_time() -> None:
    import threading

    credentials = PasswordCredentials("alice", WORD, "SCRAM-SHA-256")
    begun, leave = threading.Event(), threading.Event()

    def hangs(path: str, data: bytes, timeout_s: float) -> bytes:
        begun.set()
        leave.wait(60)
        raise BrokerTimeoutError("it hung")

    ended: list[BrokerTimeoutError] = []

    def log_in() -> None:
        try:
            credentials.metadata(hangs, 600.0)
        except BrokerTimeoutError as error:
            ended.append(error)

    with Beside(log_in, stop=leave.set):
        assert begun.wait(60)
        with pytest.raises(BrokerTimeoutError, match="by another thread"):
            credentials.metadata(hangs, 0.05)
        assert not ended
    assert len(ended) == 1


@pytest.mark.parametrize("what", ["removed", "another password"])
def test_a_session_ends_with_its_user_and_with_its_password(served: Secured, what: str) -> None:
    with served.by_password("alice", WORD) as alice:
        alice.create_topic("t")
        if what == "removed":
            served.access.remove_user("alice")
        else:
            served.set_password("alice", "another")
        with pytest.raises(AuthenticationError):
            alice.create_topic("t2")


def test_open_log_ins_are_bounded(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    with Secured(tmp_path / "store", pair, authority, max_handshakes=10) as served:
        served.set_password("alice", WORD)
        request = pb.StartLoginRequest(
            mechanism="SCRAM-SHA-256", client_first=ScramClient("alice", WORD).first()
        )
        with served.channel() as channel, served.channel() as other:
            path = "LoginService/StartLogin"
            found = [refused_as(channel, path, request) for _ in range(9)]
            assert found == [""] * 8 + ["BrokerBusyError"]  # of one connection
            assert [refused_as(other, path, request) for _ in range(3)] == ["", "", "BrokerBusyError"]


def test_log_ins_make_room_when_their_time_is_over(tmp_path: Path) -> None:
    import asyncio

    users = AccessFiles(None).users
    audit = AuditLog()
    handler = LoginHandler(users, Sessions(users, secure=True, lifetime_s=1), audit, secure=True, most=2)
    first = ScramClient("alice", WORD).first()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        now_s = 0.0
        loop.time = lambda: now_s  # type: ignore[method-assign]
        for _ in range(2):
            handler.start("c", "SCRAM-SHA-256", first)
        with pytest.raises(BrokerBusyError):
            handler.start("c", "SCRAM-SHA-256", first)
        now_s = 10.0
        handler.start("c", "SCRAM-SHA-256", first)

    asyncio.run(run())


def test_without_tls_passwords_are_for_this_machine_alone() -> None:
    import asyncio

    users = AccessFiles(None).users
    sessions = Sessions(users, secure=False, lifetime_s=1)
    handler = LoginHandler(users, sessions, AuditLog(), secure=False, most=2)

    class From:
        def __init__(self, peer: str) -> None:
            self._peer = peer

        def peer(self) -> str:
            return self._peer

        def auth_context(self) -> dict[str, list[bytes]]:
            return {}

    async def run() -> None:
        first = ScramClient("alice", WORD).first()
        for peer in ("ipv4:10.0.0.1:5", "ipv6:%5B2001:db8::1%5D:5", "", "ipv4:127.0.0.1.evil:5"):
            with pytest.raises(AuthenticationError):
                handler.start(peer, "SCRAM-SHA-256", first)
            with pytest.raises(AuthenticationError):
                sessions.principal("a.b", From(peer))
        for peer in ("ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5"):
            handler.start(peer, "SCRAM-SHA-256", first)
            with pytest.raises(SessionExpiredError):
                sessions.principal("a.b", From(peer))

    asyncio.run(run())


def test_sessions_of_a_user_are_bounded() -> None:
    users = AccessFiles(None).users
    verifier = make_verifier(WORD, "SCRAM-SHA-256", 4096)
    users.change(lambda found: found.with_verifiers("alice", {"SCRAM-SHA-256": verifier}))
    now_s = [0.0]
    sessions = Sessions(users, secure=True, lifetime_s=10, monotonic_s=lambda: now_s[0])

    class Here:
        def peer(self) -> str:
            return "here"

        def auth_context(self) -> dict[str, list[bytes]]:
            return {}

    made = [sessions.begin("alice", "SCRAM-SHA-256", verifier, "here") for _ in range(1001)]
    with pytest.raises(SessionExpiredError):
        sessions.principal(made[0], Here())
    assert sessions.principal(made[1], Here()) == "User:alice"
    now_s[0] = 10.0
    with pytest.raises(SessionExpiredError):
        sessions.principal(made[1], Here())
    sessions.begin("alice", "SCRAM-SHA-256", verifier, "here")
    assert len(sessions._sessions) == 1


def test_a_user_without_rights_is_known_and_refused(secured: Secured) -> None:
    secured.set_password("bob", WORD)
    with secured.by_password("bob", WORD) as bob, pytest.raises(AccessDeniedError, match="User:bob may not"):
        bob.create_topic("t")
