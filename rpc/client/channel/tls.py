"""``ClientTls``: whom a client trusts, and the certificate that it shows."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from rpc.security.secret_files import read_private, read_public
from rpc.security.tls import check_authorities, check_key_pair


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientTls:
    """Paths of PEM files. ``ca``: the authorities that may vouch for brokers, None: those that gRPC brings along;
    ``server_name``: the name that the broker's certificate must have, None: the host that is connected to."""

    ca: str | None
    certificate: str | None
    key: str | None
    server_name: str | None

    def channel(self, address: str, options: list[tuple[str, str | int]]) -> grpc.Channel:
        """A channel over TLS. SecretFileError, TlsConfigError."""
        authorities = chain = key = None
        if self.ca is not None:
            authorities = read_public(self.ca, "tls_ca")
            check_authorities(authorities, f"tls_ca={self.ca}")
        if self.certificate is not None and self.key is not None:
            key, chain = read_private(self.key, "tls_key"), read_public(self.certificate, "tls_certificate")
            check_key_pair(self.certificate, self.key)
        if self.server_name is not None:
            options = [*options, ("grpc.ssl_target_name_override", self.server_name)]
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(authorities, key, chain), options)
