"""What callers that are not known may cost: their requests are not read, and their log-ins are few."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rpc.pb import common_pb2, security_pb2
from rpc.servicers import security as servicer
from rpc.wire.errors import TRAILER
from tests.rpc.security.authority import Authority, Pair
from tests.rpc.security.secured import Secured, refused_as
from tests.rpc.test_garbage import METHODS


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, pair: Pair, authority: Authority) -> Iterator[Secured]:
    root: Path = tmp_path_factory.mktemp("strict") / "store"
    with Secured(root, pair, authority, authentication_required=True) as served:
        yield served


class Silent:
    """Calls that are begun and say nothing."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._open: list[queue.SimpleQueue[None]] = []

    def begin(self, path: str) -> grpc.Future:
        never: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._open.append(never)
        return self._channel.stream_unary(path).future(iter(never.get, None), timeout=60)

    def close(self) -> None:
        for one in self._open:
            one.put(None)


def name_of(call: grpc.Future) -> str:
    with pytest.raises(grpc.RpcError) as ended:
        call.result()
    return common_pb2.Error.FromString(dict(ended.value.trailing_metadata())[TRAILER]).name


@pytest.mark.parametrize("path", [path for path in METHODS if "LoginService" not in path])
def test_a_stranger_is_refused_before_the_request_is_read(path: str, strict: Secured) -> None:
    with strict.channel() as channel:
        silent = Silent(channel)
        assert name_of(silent.begin(path)) == "AuthenticationError"
        silent.close()


def test_log_ins_that_say_nothing_are_few_and_short(strict: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicer, "READ_S", 0.5)
    monkeypatch.setattr(servicer, "MOST_READ", 3)
    path = "/logstore.v1.LoginService/StartLogin"
    with strict.channel() as channel:
        silent = Silent(channel)
        names = sorted(name_of(call) for call in [silent.begin(path) for _ in range(5)])
        assert names == ["AuthenticationError"] * 3 + ["BrokerBusyError"] * 2
        silent.close()
        huge = security_pb2.StartLoginRequest(mechanism="SCRAM-SHA-256", client_first=b"x" * (1 << 20))
        assert refused_as(channel, "LoginService/StartLogin", huge) == "AuthenticationError"


def test_calls_of_one_connection_are_bounded(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    from rpc.pb import cluster_pb2

    path, request = "ClusterService/GetCluster", cluster_pb2.GetClusterRequest()
    with (
        Secured(tmp_path / "store", pair, authority, max_connection_calls=2) as served,
        served.channel() as channel,
        served.channel() as other,
    ):
        assert refused_as(channel, path, request) == ""  # the bound has come with the first answer
        silent = Silent(channel)
        waiting = [silent.begin(f"/logstore.v1.{path}") for _ in range(2)]
        call = channel.unary_unary(f"/logstore.v1.{path}")
        with pytest.raises(grpc.RpcError) as late:
            call(request.SerializeToString(), timeout=0.5)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert refused_as(other, path, request) == ""
        silent.close()
        assert [name_of(one) for one in waiting] == ["MalformedRequestError"] * 2


def test_a_call_without_a_request(secured: Secured) -> None:
    with secured.channel() as channel:
        call = channel.stream_unary("/logstore.v1.ClusterService/GetCluster").future(iter(()), timeout=60)
        assert name_of(call) == "MalformedRequestError"
