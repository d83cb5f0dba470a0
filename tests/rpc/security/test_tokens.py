"""Callers with tokens, and every header that is none."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from rpc.client.store import connect
from rpc.errors import AccessDeniedError, AuthenticationError, SecretFileError
from rpc.handlers.caller import Resource
from rpc.pb import topics_pb2
from rpc.security.users import make_token
from tests.rpc.security.authority import Authority, Pair
from tests.rpc.security.secured import Secured, refused_as, rule
from tests.rpc.served import Served

QUICK = {"connect_timeout_s": 2.0, "request_timeout_s": 5.0}
METADATA = topics_pb2.GetMetadataRequest()


def test_a_token_names_its_user(secured: Secured) -> None:
    with secured.client("admin") as admin:
        admin.create_topic("t")
    secured.allow_topic("alice", "t", "write")
    with secured.client("alice") as alice, alice.producer() as producer:
        assert producer.send("t", b"v").result(timeout_s=60).offset == 0


def test_a_token_from_a_file(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(secured.token_of("admin") + "\n")
    file.chmod(0o600)
    with secured.connect(tls_ca=secured.authority.file, token_file=str(file)) as client:
        client.create_topic("t")
    file.chmod(0o644)
    with pytest.raises(SecretFileError, match="0644"):
        secured.connect(tls_ca=secured.authority.file, token_file=str(file))
    for text in ("", "\n", "two\nlines\n"):
        file.write_text(text)
        file.chmod(0o600)
        with pytest.raises(SecretFileError, match="exactly one line"):
            secured.connect(tls_ca=secured.authority.file, token_file=str(file))


@pytest.mark.parametrize(
    "headers",
    [
        ("Bearer wrong",),
        ("Bearer lst_0000000000000000_wrong",),
        ("Bearer {id}_",),
        ("Bearer {token}x",),
        ("Bearer {short}",),
        ("Bearer {upper}",),
        ("Bearer ",),
        ("Bearer",),
        ("",),
        ("{token}",),
        ("Bearer  {token}",),
        ("Basic {token}",),
        ("Bearer {token} {token}",),
        ("Bearer {token}", "Bearer {token}"),
        ("Bearer {token}", "Bearer wrong"),
        ("Bearer {digest}",),
        ("Session {token}",),
        ("Bearer " + "x" * 5000,),
    ],
)
def test_headers_that_are_refused(secured: Secured, headers: tuple[str, ...]) -> None:
    token = secured.token_of("admin")
    kept = secured.access.users.current().user("admin").tokens[0]
    words = {
        "token": token,
        "short": token[:-1],
        "upper": token.upper(),
        "id": f"lst_{kept.token_id}",
        "digest": f"lst_{kept.token_id}_{kept.digest.hex()}",
    }
    metadata = tuple(("authorization", one.format(**words)) for one in headers)
    with secured.channel() as channel:
        refused = refused_as(channel, "TopicService/GetMetadata", METADATA, metadata)
        assert refused in ("AuthenticationError", "SessionExpiredError")
        right = (("authorization", f"bearer {token}"),)  # schemes are of any case
        assert refused_as(channel, "TopicService/GetMetadata", METADATA, right) == ""


def test_metadata_beyond_all_bounds(secured: Secured) -> None:
    with secured.channel() as channel:
        found = refused_as(channel, "TopicService/GetMetadata", METADATA, (("authorization", "x" * 40_000),))
        assert found == "StatusCode.RESOURCE_EXHAUSTED"


def test_a_token_that_has_expired(secured: Secured) -> None:
    now_ms = time.time_ns() // 1_000_000
    text, token = make_token(now_ms - 2000, now_ms - 1000)
    secured.access.add_token("admin", token)
    with pytest.raises(AuthenticationError, match="has expired"):
        secured.connect(tls_ca=secured.authority.file, token=text, **QUICK)


def test_a_token_that_was_revoked(secured: Secured) -> None:
    with secured.client("admin") as client:
        client.create_topic("t")
        token_id = secured.token_of("admin").split("_")[1]
        secured.access.revoke_token(token_id)
        with pytest.raises(AuthenticationError, match="not known"):
            client.create_topic("t2")


def test_a_user_that_was_removed(secured: Secured) -> None:
    with secured.client("admin") as client:
        client.create_topic("t")
        secured.access.remove_user("admin")
        with pytest.raises(AuthenticationError):
            client.create_topic("t2")


def test_a_right_token_without_tls_is_refused_too(tmp_path: Path) -> None:
    with Served(tmp_path / "store", access_control=True, super_users="User:admin") as plain:
        assert plain.security.access is not None
        text, token = make_token(0)
        plain.security.access.add_token("admin", token)
        import grpc

        with grpc.insecure_channel(plain.address) as channel:
            metadata = (("authorization", f"Bearer {text}"),)
            assert (
                refused_as(channel, "TopicService/GetMetadata", METADATA, metadata) == "AuthenticationError"
            )


def test_a_wrong_token_does_not_fall_back_to_the_certificate(
    tmp_path: Path, pair: Pair, authority: Authority
) -> None:
    mine = authority.issue("admin")
    shown = {"tls_ca": authority.file, "tls_certificate": mine.certificate, "tls_key": mine.key}
    with Secured(tmp_path / "store", pair, authority, tls_client_ca=authority.file) as served:
        with served.connect(**shown) as by_certificate:
            by_certificate.create_topic("t")
        with pytest.raises(AuthenticationError):
            served.connect(**shown, token="lst_0000000000000000_wrong", **QUICK)
        with served.connect(**shown, token=served.token_of("bob")) as bob, pytest.raises(AccessDeniedError):
            bob.create_topic("t2")  # the token's user counts


def test_calls_without_credentials(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    strict = Secured(tmp_path / "store", pair, authority, authentication_required=True)
    with strict, pytest.raises(AuthenticationError, match="wants some"):
        connect(strict.address, tls_ca=authority.file, **QUICK)
    lax = Secured(tmp_path / "other", pair, authority)
    with lax, connect(lax.address, tls_ca=authority.file) as nobody:
        with pytest.raises(AccessDeniedError, match="User:ANONYMOUS may not create"):
            nobody.create_topic("t")
        lax.allow(rule("ANONYMOUS", "create", Resource.TOPIC, "t"))
        nobody.create_topic("t")


def test_secrets_are_in_no_file_log_or_error(
    secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secured.set_password("carol", "open sesame 123")
    told = []
    token = secured.token_of("admin")
    with secured.client("admin") as client, secured.by_password("carol", "open sesame 123") as carol:
        client.create_topic("t")
        with pytest.raises(AccessDeniedError) as denied:
            carol.create_topic("t2")
        told.append(str(denied.value))
    for settings in ({"token": token + "x"}, {"user": "carol", "password": "open sesame 12"}):
        with pytest.raises(AuthenticationError) as refused:
            secured.connect(tls_ca=secured.authority.file, **settings, **QUICK)
        told.append(str(refused.value) + repr(refused.value.__cause__))
    kept = [
        (Path(folder) / name).read_bytes()
        for folder, _, names in os.walk(tmp_path / "store" / ".security")
        for name in names
    ]
    found = caplog.text + "\n".join(told) + repr(secured.access.users.current()) + repr(b"".join(kept))
    for secret in (token, token.split("_", 2)[2], "open sesame"):
        assert secret not in found
    assert "refused" in caplog.text
    assert "logged-in" in caplog.text
