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
from rpc.client.channel.configuration import configure
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.cluster import RemoteClusterAdministration, describe_cluster
from rpc.client.data import RemoteData
from rpc.client.routing.brokers import Brokers
from rpc.client.routing.role import Role
from rpc.client.security import RemoteSecurity
from rpc.pb import cluster_pb2
from rpc.wire.cluster import ClusterDescription


class RemoteBackend(RemoteData, RemoteAdministration):
    """A ``Backend``: both planes over the same connections."""

    def __init__(self, brokers: Brokers, features: Collection[str] = ()) -> None:
        RemoteData.__init__(self, brokers, features)
        RemoteAdministration.__init__(
            self, self._controller, self._coordinators, self._scatter, self._metadata.refresh_until
        )

    @property
    def controller(self) -> Role:
        """For calls of administrators that are no part of ``Backend``."""
        return self._controller


class _Usable:
    """Whether the connections may be used."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def check_usable(self) -> None:
        if self._brokers.closed:
            raise ClientClosedError(f"the connection to {self._brokers.target} is closed")

    check_writable = check_usable


class RemoteStore(StoreClient):
    """A connection to brokers. Any thread may use it, and a child after ``os.fork()`` connects anew.

    ``target``: ``"host:port[,host:port...]"``, of which one has to answer: it names the others of its cluster;
    settings: see ``ConnectionSettings``. Errors: ``InvalidArgumentError``, ``BrokerUnavailableError`` when none
    answers within ``connect_timeout_s``, ``UnsupportedFeatureError`` from a broker that is too old.
    """

    def __init__(self, target: str, settings: ConnectionSettings) -> None:
        self._brokers = Brokers(target, settings)
        try:
            self.cluster = self._greet()
        except BaseException:
            self._brokers.close()
            raise
        self._remote = RemoteBackend(self._brokers, self.cluster.features)
        super().__init__(self._remote, _Usable(self._brokers), SystemClock())

    def _greet(self) -> cluster_pb2.GetClusterResponse:
        from logstore import __version__

        request = cluster_pb2.GetClusterRequest(
            client=f"logstore-python {__version__}", required_features=["produce", "fetch"]
        )
        settings = self._brokers.settings
        return self._brokers.greet(request, min(settings.connect_timeout_s, settings.request_timeout_s))

    @property
    def backend(self) -> RemoteBackend:
        return self._remote

    @property
    def security(self) -> RemoteSecurity:
        """Users and rules of the brokers."""
        return RemoteSecurity(self._remote.controller)

    @property
    def cluster_administration(self) -> RemoteClusterAdministration:
        """Brokers that leave, partitions that move."""
        return RemoteClusterAdministration(self._remote.controller)

    def describe_cluster(self, timeout_s: float = 5.0) -> ClusterDescription:
        """Brokers, and who has and who leads every partition. ``timeout_s``: how long brokers that do not answer are
        waited for. AccessDeniedError, UnsupportedFeatureError."""
        return describe_cluster(self._remote.controller, self.cluster.features, timeout_s)

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
        if self._brokers.closed:
            return
        failures: list[LogStoreError] = self._close_clients()
        self._remote.close()
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Drop the connection without a word to the brokers: what was not answered yet is not waited for."""
        self._brokers.close()

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
