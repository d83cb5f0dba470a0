"""Connections over TLS: which come about, which are refused on either side, and certificates that change."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from logstore.errors import LogStoreError
from rpc.client.store import connect
from rpc.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    SecretFileError,
    TlsConfigError,
    TlsHandshakeError,
)
from rpc.handlers.caller import AllowAll, Caller, Operation, Resource
from rpc.security.security import Security, open_security
from rpc.security.tls import ServerTls
from rpc.settings import BrokerSettings
from tests.beside import Beside
from tests.rpc.security.authority import Authority, Pair
from tests.rpc.served import Served

QUICK = {"connect_timeout_s": 1.0, "request_timeout_s": 5.0}


class Noting(AllowAll):
    """Notes who asks."""

    def __init__(self) -> None:
        self.principals: list[str] = []

    def check(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        self.principals.append(caller.principal)


def serve(**settings: Any) -> tuple[Served, Noting]:
    noting = Noting()
    opened = open_security(BrokerSettings(data="x", **settings), None)
    security = Security(identify=opened.identify, authorizer=noting, credentials=opened.credentials)
    return Served(":memory:", security=security, **settings), noting


@pytest.fixture(scope="module")
def served(pair: Pair) -> Iterator[Served]:
    found, _ = serve(tls_certificate=pair.certificate, tls_key=pair.key)
    with found:
        yield found


@pytest.fixture(scope="module")
def mutual(pair: Pair, authority: Authority) -> Iterator[tuple[Served, Noting]]:
    found, noting = serve(tls_certificate=pair.certificate, tls_key=pair.key, tls_client_ca=authority.file)
    with found:
        yield found, noting


def test_tls(served: Served, authority: Authority) -> None:
    with served.connect(tls_ca=authority.file) as client:
        client.create_topic("plain", exist_ok=True)
        with client.producer() as producer:
            assert producer.send("plain", b"v").result(timeout_s=60).offset >= 0


def test_the_name_in_the_certificate_may_be_another_one(served: Served, authority: Authority) -> None:
    address = f"localhost:{served.port}"
    with connect(address, tls_ca=authority.file, tls_server_name="127.0.0.1") as client:
        assert client.cluster.cluster_id == "tests"


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("plaintext", BrokerUnavailableError),
        ("authorities of others", TlsHandshakeError),
        ("another host's certificate", TlsHandshakeError),
        ("no authorities of ours", TlsHandshakeError),
    ],
)
def test_a_client_that_does_not_connect(
    case: str, error: type[LogStoreError], served: Served, authority: Authority, stranger: Authority
) -> None:
    settings: dict[str, Any] = {
        "plaintext": {},
        "authorities of others": {"tls_ca": stranger.file},
        "another host's certificate": {"tls_ca": authority.file, "tls_server_name": "evil.example"},
        "no authorities of ours": {"tls": True},
    }[case]
    with pytest.raises(error):
        served.connect(**settings, **QUICK)


def test_an_expired_certificate_of_the_broker(authority: Authority) -> None:
    expired = authority.issue_for_broker(days=0.5)
    found, _ = serve(tls_certificate=expired.certificate, tls_key=expired.key)
    with found, pytest.raises(TlsHandshakeError, match=r"(?i)expired|verify"):
        found.connect(tls_ca=authority.file, **QUICK)


def test_tls_to_a_broker_without(authority: Authority) -> None:
    with Served(":memory:") as plain, pytest.raises(TlsHandshakeError):
        plain.connect(tls_ca=authority.file, **QUICK)


# --- mutual TLS ---


def test_the_common_name_is_the_principal(mutual: tuple[Served, Noting], authority: Authority) -> None:
    served, noting = mutual
    mine = authority.issue("alice", "alice.example")
    with served.connect(tls_ca=authority.file, tls_certificate=mine.certificate, tls_key=mine.key) as client:
        client.create_topic("of-alice")
    assert noting.principals[-1] == "User:alice"


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("no certificate", BrokerUnavailableError),
        ("of another authority", BrokerUnavailableError),
        ("expired", BrokerUnavailableError),
        ("no common name", AuthenticationError),
        ("a reserved name", AuthenticationError),
        ("a name of everybody", AuthenticationError),
        ("a name with a comma", AuthenticationError),
    ],
)
def test_a_client_without_the_right_certificate(
    case: str,
    error: type[LogStoreError],
    mutual: tuple[Served, Noting],
    authority: Authority,
    stranger: Authority,
) -> None:
    shown: dict[str, Pair | None] = {
        "no certificate": None,
        "of another authority": stranger.issue("alice"),
        "expired": authority.issue("alice", days=0.5),
        "no common name": authority.issue(None, "alice.example"),
        "a reserved name": authority.issue("ANONYMOUS"),
        "a name of everybody": authority.issue("*"),
        "a name with a comma": authority.issue("alice,User:admin"),
    }
    mine = shown[case]
    settings = {} if mine is None else {"tls_certificate": mine.certificate, "tls_key": mine.key}
    with pytest.raises(error):
        mutual[0].connect(tls_ca=authority.file, **settings, **QUICK)


def test_an_alternative_name_may_be_the_principal(pair: Pair, authority: Authority) -> None:
    served, noting = serve(
        tls_certificate=pair.certificate,
        tls_key=pair.key,
        tls_client_ca=authority.file,
        tls_principal="subject-alternative-name",
    )
    with served:
        one, two = authority.issue("x", "spiffe://ours/alice"), authority.issue("x", "a.example", "b.example")
        with served.connect(
            tls_ca=authority.file, tls_certificate=one.certificate, tls_key=one.key
        ) as client:
            client.create_topic("t")
        assert noting.principals[-1] == "User:spiffe://ours/alice"
        with pytest.raises(AuthenticationError, match="2 names"):
            served.connect(tls_ca=authority.file, tls_certificate=two.certificate, tls_key=two.key, **QUICK)


# --- files ---


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read(mode: int, authority: Authority) -> None:
    mine = authority.issue_for_broker()
    os.chmod(mine.key, mode)
    with pytest.raises(SecretFileError, match=f"{mode:04o}.*chmod 600"):
        ServerTls(mine.certificate, mine.key, "")
    with pytest.raises(SecretFileError, match=f"{mode:04o}"):
        connect("localhost:1", tls_certificate=mine.certificate, tls_key=mine.key, **QUICK)


def test_files_that_cannot_be_used(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    other = authority.issue_for_broker()
    junk, none, wide = tmp_path / "junk", tmp_path / "none", tmp_path / "wide"
    junk.write_bytes(b"junk")
    junk.chmod(0o600)
    wide.write_bytes(Path(pair.certificate).read_bytes())
    wide.chmod(0o666)
    for certificate, key, ca, error in (
        (pair.certificate, other.key, "", TlsConfigError),
        (pair.certificate, str(junk), "", TlsConfigError),
        (str(junk), pair.key, "", TlsConfigError),
        (pair.certificate, pair.key, str(junk), TlsConfigError),
        (pair.certificate, str(none), "", SecretFileError),
        (str(none), pair.key, "", SecretFileError),
        (pair.certificate, str(tmp_path), "", SecretFileError),
        (str(wide), pair.key, "", SecretFileError),
        (pair.certificate, pair.key, str(wide), SecretFileError),
    ):
        with pytest.raises(error):
            ServerTls(certificate, key, ca)


def shown_by(port: int, authority: Authority) -> int:
    """The serial number of the certificate that a new connection is shown."""
    import ssl

    from cryptography import x509

    pem = ssl.get_server_certificate(("127.0.0.1", port), ca_certs=authority.file, timeout=60)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_a_new_certificate_is_taken_and_a_broken_one_is_not(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rpc.security.tls")
    mine = authority.issue_for_broker()
    found, _ = serve(tls_certificate=mine.certificate, tls_key=mine.key)
    with found, found.connect(tls_ca=authority.file) as open_since:
        first = shown_by(found.port, authority)
        authority.issue("broker", "localhost", "127.0.0.1", into=mine)
        second = shown_by(found.port, authority)
        assert second != first
        assert "is in force" in caplog.text
        Path(mine.certificate).write_bytes(b"half a file")
        assert shown_by(found.port, authority) == second
        assert shown_by(found.port, authority) == second
        assert caplog.text.count("the certificate in force stays") == 1
        os.remove(mine.key)
        assert shown_by(found.port, authority) == second
        authority.issue("broker", "localhost", "127.0.0.1", into=mine)
        assert shown_by(found.port, authority) not in (first, second)
        open_since.create_topic("t")  # what was connected stays so


def test_bytes_that_are_no_tls_harm_nobody(served: Served, authority: Authority) -> None:
    import socket

    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b""):
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as raw:
            raw.sendall(junk)
    with served.connect(tls_ca=authority.file) as client:
        assert client.cluster.cluster_id == "tests"


@pytest.mark.parametrize("how", ["at once", "within the handshake"])
def test_a_connection_that_breaks_may_be_tried_again(how: str) -> None:
    """Unlike one where the sides do not trust one another."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def cut() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                if how != "at once":
                    accepted.recv(4096)
                    accepted.sendall(b"\x16\x03\x03\x00\x7a\x02")
                accepted.close()

        with Beside(cut, stop=lambda: listener.shutdown(socket.SHUT_RDWR)):
            with pytest.raises(BrokerUnavailableError) as broken:
                connect(f"localhost:{listener.getsockname()[1]}", tls=True, **QUICK)
            assert broken.value.unreached


def test_health_is_served_over_tls_alone(served: Served, authority: Authority) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    credentials = grpc.ssl_channel_credentials(Path(authority.file).read_bytes())
    with grpc.secure_channel(served.address, credentials) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with grpc.insecure_channel(served.address) as channel, pytest.raises(grpc.RpcError):
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
