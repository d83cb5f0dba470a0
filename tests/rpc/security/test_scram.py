"""SCRAM by the RFC's own example, and every message that is not as it should be."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from rpc.errors import AuthenticationError
from rpc.security.scram import (
    MECHANISMS,
    FirstMessage,
    ScramClient,
    ScramServer,
    decoy_verifier,
    make_verifier,
    prepared,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
ANSWER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server(password: str = "pencil") -> ScramServer:
    verifier = make_verifier(password, "SCRAM-SHA-256", 4096, SALT)
    return ScramServer(FirstMessage.parse(FIRST), verifier, "SCRAM-SHA-256", SERVER_NONCE)


def client(password: str = "pencil") -> ScramClient:
    return ScramClient("user", password, nonce=CLIENT_NONCE)


def test_the_example_of_rfc_7677() -> None:
    asking, answering = client(), server()
    assert asking.first() == FIRST
    assert answering.challenge == CHALLENGE
    assert asking.final(CHALLENGE) == FINAL
    assert answering.answer(FINAL) == ANSWER
    asking.verify(ANSWER)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["user", "a=b", "=2C", "ünï"])
def test_both_sides_agree(mechanism: str, name: str) -> None:
    asking = ScramClient(name, "pässword", mechanism)
    first = FirstMessage.parse(asking.first())
    assert first.name == name
    answering = ScramServer(first, make_verifier("pässword", mechanism, 4096), mechanism)
    asking.verify(answering.answer(asking.final(answering.challenge)))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=rOprNGfwEbeRWgbNEkqO,n=user",
        b"p=tls-unique,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"x,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"n,a=admin,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,m=ext,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=us=er,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=us=2cer,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=user,r=short",
        b"n,,n=user,r=rOprNGfwEbeRWgb\x01kqO",
        b"n,,n=us\x00er,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=us\xffer,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=" + b"u" * 5000 + b",r=rOprNGfwEbeRWgbNEkqO",
    ],
)
def test_a_first_message_that_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationError):
        FirstMessage.parse(first)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"junk",
        FINAL[:-2],
        FINAL.replace(b"p=d", b"p=e"),
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=biw"),
        FINAL.replace(b"NEkqO%", b"NEkqO!"),
        FINAL.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        FINAL.replace(b",p=", b",x=1,p="),
        FINAL + b",x=1",
        FINAL.partition(b",p=")[0],
        FINAL.partition(b",p=")[0] + b",p=",
        FINAL.partition(b",p=")[0] + b",p=AAAA",
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=," + FINAL.partition(b",p=")[0],
    ],
)
def test_a_proof_that_is_refused(final: bytes) -> None:
    with pytest.raises(AuthenticationError):
        server().answer(final)


def proved(without_proof: str, password: str = "pencil") -> bytes:
    """A final message whose proof is right for what it says."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    agreed = f"n=user,r={CLIENT_NONCE},{CHALLENGE.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), agreed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def test_a_right_proof_of_other_words_is_refused() -> None:
    """By one who knows the password: the nonce and the binding are checked for themselves."""
    words = FINAL.partition(b",p=")[0].decode()
    assert server().answer(proved(words)) == ANSWER
    for other in (words.replace("c=biws", "c=eSws"), words + "x", words.replace("%hv", "%hw")):
        with pytest.raises(AuthenticationError):
            server().answer(proved(other))


def test_the_proof_of_another_password_or_another_challenge() -> None:
    with pytest.raises(AuthenticationError):
        server("pen").answer(FINAL)
    fresh = ScramServer(
        FirstMessage.parse(FIRST), make_verifier("pencil", "SCRAM-SHA-256", 4096, SALT), "SCRAM-SHA-256"
    )
    with pytest.raises(AuthenticationError):
        fresh.answer(FINAL)  # what was heard once serves nothing


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"e=other-error",
        CHALLENGE.replace(b"r=rOpr", b"r=xOpr"),
        CHALLENGE.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        CHALLENGE.replace(b"i=4096", b"i=4095"),
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=-4096"),
        CHALLENGE.replace(b"i=4096", b"i=999999999"),
        CHALLENGE.replace(b"i=4096", b"i=99999999999999"),
        CHALLENGE.replace(b"s=W22Z", b"s=!!!!"),
        b"m=x," + CHALLENGE,
    ],
)
def test_a_challenge_that_the_client_refuses(challenge: bytes) -> None:
    with pytest.raises(AuthenticationError):
        client().final(challenge)


@pytest.mark.parametrize("answer", [b"", b"v=", b"e=no", ANSWER.replace(b"v=6", b"v=7"), b"v=AAAA"])
def test_a_broker_that_does_not_know_the_password(answer: bytes) -> None:
    asking = client()
    asking.final(CHALLENGE)
    with pytest.raises(AuthenticationError):
        asking.verify(answer)


def test_an_answer_before_the_challenge_is_none() -> None:
    with pytest.raises(AuthenticationError):
        client().verify(b"v=")


def test_decoys_look_alike_at_each_try_and_fit_no_proof() -> None:
    one, again = (decoy_verifier(b"k" * 32, "ghost", "SCRAM-SHA-256") for _ in range(2))
    assert (one.salt, one.iterations) == (again.salt, again.iterations)
    assert one.salt != decoy_verifier(b"k" * 32, "other", "SCRAM-SHA-256").salt
    assert one.salt != decoy_verifier(b"l" * 32, "ghost", "SCRAM-SHA-256").salt
    real = make_verifier("x", "SCRAM-SHA-256")
    assert (len(one.salt), one.iterations) == (len(real.salt), real.iterations)
    assert "stored" not in repr(real)


@pytest.mark.parametrize(
    ("given", "found"),
    [("I\u00adX", "IX"), ("user", "user"), ("ª", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep(given: str, found: str) -> None:
    assert prepared(given) == found


@pytest.mark.parametrize("given", ["", "\u00ad", "a\u0007", "\u06271", "\U000e0001", "\ud800", "a\u0627"])
def test_saslprep_refuses(given: str) -> None:
    with pytest.raises(ValueError, match="password"):
        prepared(given)


@pytest.mark.parametrize(("iterations", "salt"), [(4095, SALT), (1_000_001, SALT), (4096, b"short")])
def test_verifiers_that_are_too_weak(iterations: int, salt: bytes) -> None:
    with pytest.raises(ValueError):
        make_verifier("x", "SCRAM-SHA-256", iterations, salt)
