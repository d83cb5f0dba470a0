"""``PeerTls``: the certificate that a broker shows its peers, and the authorities that make a peer."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from rpc.client.channel.tls import ClientTls
from rpc.peers.settings import PeerSettings
from rpc.security.tls import ServerTls


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerTls:
    """Paths of PEM files, which are read anew for each connection that is made."""

    certificate: str
    key: str
    ca: str

    def server(self) -> grpc.ServerCredentials:
        """Of the listener: peers must show certificates. SecretFileError, TlsConfigError."""
        names = ("peer_tls_certificate", "peer_tls_key", "peer_tls_ca")
        return ServerTls(self.certificate, self.key, self.ca, names=names).credentials()

    def channel(self, address: str, options: list[tuple[str, str | int]]) -> grpc.Channel:
        """To a peer, whose certificate has to be for the host in ``address``. SecretFileError, TlsConfigError."""
        tls = ClientTls(ca=self.ca, certificate=self.certificate, key=self.key, server_name=None)
        return tls.channel(address, options)


def tls_of(settings: PeerSettings) -> PeerTls | None:
    """None without TLS between peers."""
    if not settings.peer_tls_certificate:
        return None
    return PeerTls(
        certificate=settings.peer_tls_certificate, key=settings.peer_tls_key, ca=settings.peer_tls_ca
    )
