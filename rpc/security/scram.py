"""SCRAM (RFC 5802, RFC 7677): both sides of a log-in by password, without input or output.

The password never leaves the client: the broker keeps what checks a proof, and proves to the client that it does. What
the broker keeps does not serve to log in. No channel binding: gRPC for Python shows neither side the TLS channel's
binding data, so clients send ``n,,`` and a log-in is bound to its connection by the broker (``sessions.py``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rpc.errors import AuthenticationError

MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""And their hashes."""
DEFAULT_MECHANISM: Final = "SCRAM-SHA-256"
FEWEST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 1_000_000
DEFAULT_ITERATIONS: Final = 16_384
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 24
_MAX_MESSAGE: Final = 4096
_GS2: Final = "n,,"
_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a broker keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def checked(self, mechanism: str) -> Verifier:
        """Itself. ValueError where it cannot be one of the mechanism."""
        size = hashlib.new(MECHANISMS[mechanism]).digest_size
        if not FEWEST_ITERATIONS <= self.iterations <= MOST_ITERATIONS:
            raise ValueError(
                f"iterations are {FEWEST_ITERATIONS} to {MOST_ITERATIONS}, not {self.iterations}"
            )
        if not 8 <= len(self.salt) <= 64 or {len(self.stored_key), len(self.server_key)} != {size}:
            raise ValueError("salt or keys have a wrong length")
        return self


def make_verifier(
    password: str, mechanism: str, iterations: int = DEFAULT_ITERATIONS, salt: bytes | None = None
) -> Verifier:
    """ValueError for a password that SASLprep refuses."""
    kind = MECHANISMS[mechanism]
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(kind, prepared(password).encode(), salt, iterations)
    stored = hashlib.new(kind, _mac(kind, salted, b"Client Key")).digest()
    return Verifier(salt, iterations, stored, _mac(kind, salted, b"Server Key")).checked(mechanism)


def decoy_verifier(decoy_key: bytes, name: str, mechanism: str) -> Verifier:
    """A challenge for a user that there is not: the same at each try, and no proof fits it."""
    kind = MECHANISMS[mechanism]
    seed = _mac(kind, decoy_key, f"{mechanism} {name}".encode("utf-8", "surrogatepass"))
    stored = _mac(kind, seed, secrets.token_bytes(_NONCE_BYTES))
    return Verifier(seed[:_SALT_BYTES], DEFAULT_ITERATIONS, stored, _mac(kind, seed, b"server"))


def prepared(text: str) -> str:
    """SASLprep (RFC 4013). ValueError for characters that a password cannot have."""
    mapped = "".join(
        " " if stringprep.in_table_c12(one) else one for one in text if not stringprep.in_table_b1(one)
    )
    found = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not found:
        raise ValueError("the password is empty")
    if any(stringprep.in_table_a1(one) or any(table(one) for table in _PROHIBITED) for one in found):
        raise ValueError("the password has a character that passwords cannot have")
    if any(map(stringprep.in_table_d1, found)):
        ends = stringprep.in_table_d1(found[0]) and stringprep.in_table_d1(found[-1])
        if not ends or any(map(stringprep.in_table_d2, found)):
            raise ValueError("the password mixes directions of writing as passwords cannot")
    return found


class ScramClient:
    """One log-in: ``first``, then ``final`` with the broker's challenge, then ``verify`` its answer.
    AuthenticationError where the broker's side is wrong."""

    def __init__(self, name: str, password: str, mechanism: str = DEFAULT_MECHANISM, nonce: str = "") -> None:
        self._kind = MECHANISMS[mechanism]
        self._password = password
        self._nonce = nonce or _nonce()
        self._bare = f"n={_escaped(name)},r={self._nonce}"
        self._expected = b""

    def first(self) -> bytes:
        return f"{_GS2}{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        text = _text(challenge, "the broker's challenge")
        nonce, salt_text, count_text = _fields(text, "r", "s", "i")
        salt = _decoded(salt_text)
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise AuthenticationError("the broker's challenge does not belong to this log-in")
        if not count_text.isascii() or not count_text.isdigit() or len(count_text) > 9:
            raise AuthenticationError("the broker's challenge has no number of iterations")
        iterations = int(count_text)
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations} iterations, and {FEWEST_ITERATIONS} to {MOST_ITERATIONS} are safe"
            )
        salted = hashlib.pbkdf2_hmac(self._kind, prepared(self._password).encode(), salt, iterations)
        client_key = _mac(self._kind, salted, b"Client Key")
        without_proof = f"c={_encoded(_GS2.encode())},r={nonce}"
        agreed = f"{self._bare},{text},{without_proof}".encode()
        signature = _mac(self._kind, hashlib.new(self._kind, client_key).digest(), agreed)
        self._expected = _mac(self._kind, _mac(self._kind, salted, b"Server Key"), agreed)
        return f"{without_proof},p={_encoded(_xor(client_key, signature))}".encode()

    def verify(self, answer: bytes) -> None:
        (given,) = _fields(_text(answer, "the broker's answer"), "v")
        if not self._expected or not hmac.compare_digest(_decoded(given), self._expected):
            raise AuthenticationError(
                "the broker does not know the password: it may be another one than it seems"
            )


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """A client's first message. AuthenticationError."""

    name: str
    nonce: str
    bare: str
    header: str

    @staticmethod
    def parse(data: bytes) -> FirstMessage:
        text = _text(data, "the first message")
        flag, _, rest = text.partition(",")
        authorized, _, bare = rest.partition(",")
        if flag not in ("n", "y"):
            raise AuthenticationError("the log-in wants a channel binding, and gRPC has none")
        name_text, nonce = _fields(bare, "n", "r")
        name = _unescaped(name_text)
        if authorized and (not authorized.startswith("a=") or _unescaped(authorized[2:]) != name):
            raise AuthenticationError("the log-in is for another user than the one that proves itself")
        if not nonce.isprintable() or not nonce.isascii() or len(nonce) < 16:
            raise AuthenticationError("the log-in's nonce is none")
        return FirstMessage(name, nonce, bare, f"{flag},{authorized},")


class ScramServer:
    """The broker's side of one log-in."""

    def __init__(self, first: FirstMessage, verifier: Verifier, mechanism: str, nonce: str = "") -> None:
        self._kind = MECHANISMS[mechanism]
        self._first = first
        self._verifier = verifier
        self._nonce = first.nonce + (nonce or _nonce())
        self.challenge = f"r={self._nonce},s={_encoded(verifier.salt)},i={verifier.iterations}".encode()

    def answer(self, final: bytes) -> bytes:
        """The broker's own proof. AuthenticationError unless the client's is right."""
        text = _text(final, "the final message")
        without_proof, comma, _ = text.rpartition(",p=")
        binding, nonce, proof_text = _fields(text, "c", "r", "p")
        proof = _decoded(proof_text)
        agreed = f"{self._first.bare},{self.challenge.decode()},{without_proof}".encode()
        signature = _mac(self._kind, self._verifier.stored_key, agreed)
        client_key = _xor(proof, signature) if len(proof) == len(signature) else signature
        stored = hashlib.new(self._kind, client_key).digest()
        right = hmac.compare_digest(stored, self._verifier.stored_key)
        right &= hmac.compare_digest(nonce.encode(), self._nonce.encode())
        right &= hmac.compare_digest(_decoded(binding), self._first.header.encode())
        if not right or not comma:
            raise AuthenticationError("the proof is wrong")
        return f"v={_encoded(_mac(self._kind, self._verifier.server_key, agreed))}".encode()


def _nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _mac(kind: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, kind)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AuthenticationError("a message of the log-in is malformed") from error


def _text(data: bytes, what: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AuthenticationError(f"{what} of the log-in is malformed") from error
    if len(data) > _MAX_MESSAGE or "\0" in text:
        raise AuthenticationError(f"{what} of the log-in is malformed")
    return text


def _fields(text: str, *names: str) -> list[str]:
    """The values of fields that stand in this order; what follows them is an extension, which may be left aside, but
    for a mandatory one at the beginning. AuthenticationError."""
    parts = text.split(",")
    found = [part[2:] for part, name in zip(parts, names, strict=False) if part.startswith(f"{name}=")]
    last = parts[len(names) - 1 :]
    if len(found) != len(names) or (names[-1] == "p" and len(last) != 1):
        raise AuthenticationError("a message of the log-in is malformed")
    return found


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(text: str) -> str:
    """AuthenticationError for an escape that there is not."""
    name = text.replace("=2C", ",").replace("=3D", "=")
    if not name or _escaped(name) != text:
        raise AuthenticationError("the user's name in the log-in is malformed")
    return name
