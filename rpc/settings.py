"""``BrokerSettings``: everything that can be set of a broker, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from rpc.addresses import host_and_port
from rpc.errors import BrokerConfigError
from rpc.peers.settings import PeerSettings, check_peers
from rpc.quota_rules import Direction, QuotaRules, parse_overrides
from rpc.security.settings import check_security, is_loopback

_MIB = 1 << 20
_KINDS: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "str": ("a text", (str,)),
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "bool": ("true or false", (bool,)),
}
"""What a setting of a kind is: in words, and the types that it may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerSettings(PeerSettings):
    """One broker. Sizes are bytes, times seconds."""

    data: str
    """The store's directory, made if it is not there."""
    listen: str = "127.0.0.1:9095"
    """HOST:PORT that clients connect to; port 0: any free one."""
    threads: int = 16
    """Calls of the engine that are under way at once."""
    max_message_bytes: int = 16 * _MIB
    """Largest request and answer."""
    max_wait_s: float = 60.0
    """Longest wait of a call."""
    produce_bytes: int = 256 * _MIB
    """Requests to append that are under way, in all."""
    produce_connection_bytes: int = 64 * _MIB
    """The same for one connection."""
    fetch_bytes: int = 256 * _MIB
    """Answers with records that are under way, in all: half of it for streams, whose readers may be slow."""
    fetch_connection_bytes: int = 64 * _MIB
    """The same for one connection."""
    fetch_answer_bytes: int = 8 * _MIB
    """Records in one answer; a first batch that is larger is sent whole."""
    max_calls: int = 20_000
    """Calls under way at once, those that wait among them; what comes beyond is refused."""
    max_connection_calls: int = 2_000
    """The same for one connection, whose client waits with more."""
    lease_timeout_s: float = 30.0
    """After how long without a word a client's names and transactional ids are released."""
    prepared_max_age_s: float = 86_400.0
    """How long a prepared transaction, and readers of committed records behind it, wait for its coordinator."""
    drain_s: float = 10.0
    """How long calls under way may go on once the broker is asked to stop."""
    slow_request_s: float = 1.0
    """Calls that took longer are logged, but for waits."""
    log_format: str = "text"
    """Of lines on stderr: text, or json (an object a line)."""
    produce_quota_bytes_s: int = 0
    """Bytes a second that each client id of each principal may produce; 0: no limit."""
    fetch_quota_bytes_s: int = 0
    """The same for records that are fetched."""
    quota_overrides: str = ""
    """Other quotas, 0 for none: User:etl/loader produce=1048576 fetch=0; User:bob fetch=65536; */dashboard fetch=65536.
    Without a client id: for all that the principal's clients do together."""
    quota_burst_s: float = 1.0
    """How many seconds of a quota may pass at once."""
    quota_callers: int = 10_000
    """Callers with a quota whose use is remembered; beyond them callers share one."""
    metrics_listen: str = ""
    """HOST:PORT of GET /metrics for Prometheus; port 0: any free one; "": none. Needs the extra `metrics`."""
    metrics_partitions: int = 1000
    """Of how many partitions, topics and groups there are series; the rest is counted as left out."""
    insecure_metrics_beyond_loopback: bool = False
    """Let /metrics, which has no TLS, be read from other machines: anybody there then knows the names of topics and
    groups."""

    def __post_init__(self) -> None:
        """BrokerConfigError names the setting."""
        for field in fields(self):
            _check_kind(field.name, getattr(self, field.name), str(field.type))
        if not self.data or "\0" in self.data:
            raise BrokerConfigError(f"data={self.data!r} is no directory's path")
        host, _ = self.address
        check_security(self, self.listen, host)
        check_peers(self, self.listen)
        if self.log_format not in ("text", "json"):
            raise BrokerConfigError(f"log_format={self.log_format!r}: it is text or json")
        self._check_metrics()
        self._check_quotas()
        for name in (
            "threads",
            "max_message_bytes",
            "produce_bytes",
            "produce_connection_bytes",
            "fetch_bytes",
            "fetch_connection_bytes",
            "fetch_answer_bytes",
            "max_calls",
            "max_connection_calls",
            "max_handshakes",
            "quota_callers",
        ):
            if getattr(self, name) < 1:
                raise BrokerConfigError(f"{name}={getattr(self, name)}: it is at least 1")
        for name in (
            "max_wait_s",
            "lease_timeout_s",
            "prepared_max_age_s",
            "drain_s",
            "slow_request_s",
            "session_s",
            "quota_burst_s",
        ):
            if not getattr(self, name) > 0:
                raise BrokerConfigError(f"{name}={getattr(self, name)}: it is more than 0")

    def _check_metrics(self) -> None:
        if self.metrics_partitions < 0:
            raise BrokerConfigError(f"metrics_partitions={self.metrics_partitions}: it is at least 0")
        if not self.metrics_listen:
            return
        host, _ = host_and_port(self.metrics_listen, "metrics_listen")
        if not is_loopback(host) and not self.insecure_metrics_beyond_loopback:
            raise BrokerConfigError(
                f"metrics_listen={self.metrics_listen!r} can be reached from other machines, and it has no TLS",
                hint="listen on 127.0.0.1, or set insecure_metrics_beyond_loopback",
            )

    def _check_quotas(self) -> None:
        for name in ("produce_quota_bytes_s", "fetch_quota_bytes_s"):
            if getattr(self, name) < 0:
                raise BrokerConfigError(f"{name}={getattr(self, name)}: it is at least 0")
        if not math.isfinite(self.quota_burst_s):
            raise BrokerConfigError(f"quota_burst_s={self.quota_burst_s}: it is a number of seconds")
        parse_overrides(self.quota_overrides)

    @property
    def quota_rules(self) -> QuotaRules:
        defaults: dict[Direction, int] = {
            "produce": self.produce_quota_bytes_s,
            "fetch": self.fetch_quota_bytes_s,
        }
        return QuotaRules(defaults, parse_overrides(self.quota_overrides))

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) of ``listen``. BrokerConfigError."""
        return host_and_port(self.listen, "listen")


def _check_kind(name: str, value: object, kind: str) -> None:
    words, types = _KINDS[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        raise BrokerConfigError(f"{name}={value!r}: it is {words}")
