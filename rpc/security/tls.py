"""``ServerTls``: the broker's certificate, key and authorities, read anew for new connections once files change.

A change that does not fit together (a certificate without its key, half a file) is logged, and what was in force stays.
Connections that are open keep what they were made with.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from typing import NamedTuple

import grpc

from rpc.errors import SecretFileError, TlsConfigError
from rpc.security.secret_files import read_private, read_public

logger = logging.getLogger(__name__)

_TRIES = 3


class _Stamp(NamedTuple):
    """Which content a file has, without reading it. A file that is not there has none."""

    inode: int
    mtime_ns: int
    size: int


class ServerTls:
    """Thread-safe. The files are read when it is made. ``names``: of the settings that have the paths. SecretFileError,
    TlsConfigError."""

    def __init__(
        self,
        certificate: str,
        key: str,
        client_ca: str,
        *,
        names: tuple[str, str, str] = ("tls_certificate", "tls_key", "tls_client_ca"),
    ) -> None:
        self._names = names
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._lock = threading.Lock()
        self._seen, self._newest = self._load()

    @property
    def mutual(self) -> bool:
        """Whether clients must show certificates."""
        return bool(self._client_ca)

    def credentials(self) -> grpc.ServerCredentials:
        """For a listener. gRPC asks before each handshake what is in force."""
        # The stubs leave out that None means "as before", which grpc's documentation says.
        return grpc.dynamic_ssl_server_credentials(self._newest, self.renewed, self.mutual)  # type: ignore[arg-type]

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """What is in force from now on, if files have changed since the last question; None: what was."""
        with self._lock:
            if self._stamps() == self._seen:
                return None
            try:
                self._seen, self._newest = self._load()
            except (SecretFileError, TlsConfigError) as error:
                self._seen = self._stamps()
                logger.error("TLS: the certificate in force stays, as the new one cannot be used: %s", error)
                return None
            logger.info("TLS: the new certificate in %s is in force", self._certificate)
            return self._newest

    def _stamps(self) -> tuple[_Stamp | None, ...]:
        return tuple(_stamp(path) for path in (self._certificate, self._key, self._client_ca) if path)

    def _load(self) -> tuple[tuple[_Stamp | None, ...], grpc.ServerCertificateConfiguration]:
        """The files' stamps, and their content. Files that change while they are read are read again."""
        certificate_name, key_name, ca_name = self._names
        for _ in range(_TRIES):
            before = self._stamps()
            key, chain = (
                read_private(self._key, key_name),
                read_public(self._certificate, certificate_name),
            )
            authorities = read_public(self._client_ca, ca_name) if self._client_ca else None
            check_key_pair(self._certificate, self._key)
            if authorities is not None:
                check_authorities(authorities, f"{ca_name}={self._client_ca}")
            if self._stamps() == before:
                return before, grpc.ssl_server_certificate_configuration([(key, chain)], authorities)
        raise TlsConfigError(f"{self._certificate} and its key change while they are read")


def check_key_pair(certificate: str, key: str) -> None:
    """TlsConfigError unless the files are a certificate and its key, not encrypted."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise TlsConfigError(
            f"{certificate} and {key} are no certificate and its key: {error}",
            hint="both are PEM files; the key is not encrypted",
        ) from error


def check_authorities(data: bytes, what: str) -> None:
    """TlsConfigError unless the data are PEM certificates."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=data.decode("ascii"))
    except (OSError, ValueError) as error:
        raise TlsConfigError(f"{what}: there is no certificate in it: {error}") from error


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
