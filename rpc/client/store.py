"""``RemoteStore``: a store at brokers, with the verbs of an open one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import TracebackType

from logstore.client.partition_client import PartitionClient
from logstore.client.store_client import StoreClient
from logstore.client.topic_client import TopicClient
from logstore.errors import ClientClosedError, LogStoreError
from logstore.seams.clock import SystemClock
from rpc.client.administration import RemoteAdministration
from rpc.client.cluster import describe_cluster
from rpc.client.configuration import configure
from rpc.client.connection import Connection
from rpc.client.data import RemoteData
from rpc.client.security import RemoteSecurity
from rpc.client.settings import ConnectionSettings
from rpc.pb import cluster_pb2
from rpc.wire.cluster import ClusterDescription


class RemoteBackend(RemoteData, RemoteAdministration):
    """A ``Backend``: both planes over one connection."""

    def __init__(self, connection: Connection, features: Collection[str] = ()) -> None:
        RemoteData.__init__(self, connection, features)
        RemoteAdministration.__init__(self, connection, self._metadata.refresh)


class _Usable:
    """Whether the connection may be used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def check_usable(self) -> None:
        if self._connection.closed:
            raise ClientClosedError(f"the connection to {self._connection.target} is closed")

    check_writable = check_usable


class RemoteStore(StoreClient):
    """A connection to brokers. Any thread may use it, and a child after ``os.fork()`` connects anew.

    ``target``: ``"host:port[,host:port...]"``; settings: see ``ConnectionSettings``. Errors: ``InvalidArgumentError``,
    ``BrokerUnavailableError`` when none answers within ``connect_timeout_s``, ``UnsupportedFeatureError`` from a broker
    that is too old.
    """

    def __init__(self, target: str, settings: ConnectionSettings) -> None:
        self._connection = Connection(target, settings)
        try:
            self.cluster = self._greet()
        except BaseException:
            self._connection.close()
            raise
        self._remote = RemoteBackend(self._connection, self.cluster.features)
        super().__init__(self._remote, _Usable(self._connection), SystemClock())

    def _greet(self) -> cluster_pb2.GetClusterResponse:
        from logstore import __version__

        request = cluster_pb2.GetClusterRequest(
            client=f"logstore-python {__version__}", required_features=["produce", "fetch"]
        )
        settings = self._connection.settings
        return self._connection.call(
            "ClusterService/GetCluster",
            request,
            cluster_pb2.GetClusterResponse,
            timeout_s=min(settings.connect_timeout_s, settings.request_timeout_s),
        )

    @property
    def backend(self) -> RemoteBackend:
        return self._remote

    @property
    def security(self) -> RemoteSecurity:
        """Users and rules of the brokers."""
        return RemoteSecurity(self._connection)

    def describe_cluster(self, timeout_s: float = 5.0) -> ClusterDescription:
        """Brokers, and who has and who leads every partition. ``timeout_s``: how long brokers that do not answer are
        waited for. AccessDeniedError, UnsupportedFeatureError."""
        return describe_cluster(self._connection, self.cluster.features, timeout_s)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
        exist_ok: bool = False,
    ) -> TopicClient:
        """Make a topic, durably; see ``Admin.create_topic``."""
        self.admin.create_topic(
            name, partitions, config, replication_factor=replication_factor, exist_ok=exist_ok
        )
        return self._topic(name)  # not looked up: a caller that may create need not be allowed to describe

    def topic(self, name: str) -> TopicClient:
        """A handle on one topic. ``UnknownTopicError``."""
        self._remote.topic(name)
        return self._topic(name)

    def _topic(self, name: str) -> TopicClient:
        return self._keep_for(TopicClient(self, self._client_clock, name))

    def partition(self, topic: str, partition: int) -> PartitionClient:
        """One partition as a log. ``UnknownTopicError``, ``UnknownPartitionError``."""
        return self._keep_for(PartitionClient(self._remote, self._client_clock, topic, partition))

    def close(self) -> None:
        """Close what was made from it, and the connection. Safe to call again. The first failure is raised, after
        everything is closed."""
        if self._connection.closed:
            return
        failures: list[LogStoreError] = self._close_clients()
        self._remote.close()
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Drop the connection without a word to the brokers: what was not answered yet is not waited for."""
        self._connection.close()

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(
    target: str,
    *,
    config: str | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: str | float | int | None,
) -> RemoteStore:
    """See ``logstore.connect``. ``config``: a TOML file of settings; ``environment``: variables, LOGSTORE_CLIENT_TLS_CA
    among them; what is given here counts before both."""
    from logstore.arguments import refuse_unknown

    refuse_unknown(settings, ConnectionSettings.__dataclass_fields__, "connect()")
    return RemoteStore(target, configure(config, environment or {}, settings))
