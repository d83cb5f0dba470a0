"""``Authority``: makes certificates for tests, good ones and each kind of bad one."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: str
    key: str


class Authority:
    """``folder``: where its files go."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._made = 0
        self._not_before = datetime.datetime.now(datetime.UTC) - DAY
        signed = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = self._write(f"{name}-ca.pem", signed.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: float = 7
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._not_before)
            .not_valid_after(self._not_before + days * DAY)
        )

    def issue(
        self,
        name: str | None,
        *alternatives: str,
        days: float = 7,
        into: Pair | None = None,
    ) -> Pair:
        """A certificate for ``name`` (None: it has no common name) and alternative names. ``days``: how long it is
        valid, since yesterday; ``into``: the files that it replaces."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(name), key, days)
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(one) for one in alternatives]), critical=False
            )
        signed = builder.sign(self._key, hashes.SHA256())
        self._made += 1
        stem = f"{self._made}"
        pair = into or Pair(str(self._folder / f"{stem}.pem"), str(self._folder / f"{stem}.key"))
        self._write(pair.certificate, signed.public_bytes(serialization.Encoding.PEM))
        self._write(
            pair.key,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        return pair

    def issue_for_broker(self, **more: float) -> Pair:
        return self.issue("broker", "localhost", "127.0.0.1", days=more.get("days", 7))

    def _write(self, name: str, data: bytes) -> str:
        """A new file of the name, private, which takes the place of an old one."""
        path = self._folder / name
        temporary = path.with_suffix(".new")
        temporary.write_bytes(data)
        temporary.chmod(0o600)
        os.replace(temporary, path)
        return str(path)


def _name(common: str | None) -> x509.Name:
    rows = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "tests")]
    if common is not None:
        rows.append(x509.NameAttribute(NameOID.COMMON_NAME, common))
    return x509.Name(rows)


def _alternative(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
