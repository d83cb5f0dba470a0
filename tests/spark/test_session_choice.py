"""Whose session ``spark_session()`` gives: one of this process, or one of a server of Spark Connect."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest

from logstore.errors import MissingExtraError, UnsupportedPlatformError
from spark_connector import session
from spark_connector.session import spark_session


class Builder:
    """Notes what is asked of ``SparkSession.builder``; ``getOrCreate`` gives itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def note(*arguments: Any) -> Builder:
            self.asked.append((name, *map(str, arguments)))
            return self

        return note

    @property
    def dataSource(self) -> Builder:
        return self


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    made = Builder()
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr(session.SparkSession, "builder", made)
    monkeypatch.setattr(session, "require_java", lambda: made.asked.append(("java",)))
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if "grpc" in name else real(name))
    return made


@pytest.mark.parametrize("how", ["master", "environment", "setting"])
def test_a_server_of_spark_connect_needs_no_java_here(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    url = "sc://there:15002"
    if how == "environment":
        monkeypatch.setenv("SPARK_REMOTE", url)
    given = {"spark.remote": url} if how == "setting" else {}
    spark_session(url if how == "master" else "local[*]", **{"spark.x": "1", **given})
    assert ("remote", url) in builder.asked
    assert ("config", "spark.x", "1") in builder.asked
    assert not {"master", "java"} & {asked[0] for asked in builder.asked}
    assert builder.asked[-1][0] == "register"


def test_a_server_in_this_process_needs_java(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "local[1]")
    spark_session()
    assert {("remote", "local[1]"), ("java",)} <= set(builder.asked)


def test_without_a_server_it_is_a_session_of_this_process(builder: Builder) -> None:
    spark_session("local[3]", app="a")
    assert {("master", "local[3]"), ("appName", "a"), ("java",)} <= set(builder.asked)


def test_a_client_without_its_packages_is_told_what_to_install(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark itself prints a line about doctests and ends the process with exit code 0."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"grpc, grpc_status .*pyspark\[connect\]"):
        spark_session("sc://there")
    assert builder.asked == []


def test_java_is_asked_for_first(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise UnsupportedPlatformError("no Java")

    monkeypatch.setattr(session, "require_java", none)
    with pytest.raises(UnsupportedPlatformError):
        spark_session()
    assert builder.asked == []


UNIX_SOCKETS = ("config", "spark.python.unix.domain.socket.enabled", "true")


@pytest.fixture
def alone(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """No session is there, and files are this user's."""
    monkeypatch.setattr(session.SparkContext, "_active_spark_context", None)
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    umask = os.umask(0o022)
    yield builder
    os.umask(umask)


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[1,1,512]"])
def test_workers_of_this_machine_are_reached_by_unix_sockets(alone: Builder, master: str) -> None:
    spark_session(master)
    assert UNIX_SOCKETS in alone.asked
    assert os.umask(0o022) == 0o022


@pytest.mark.parametrize(
    ("umask", "master", "conf"),
    [
        (0o002, "local[1]", {}),  # others of the group could send a worker what it runs
        (0o020, "local[1]", {}),
        (0o022, "spark://there:7077", {}),
        (0o022, "sc://there:15002", {}),
        (0o022, "local[1]", {"spark.python.unix.domain.socket.enabled": "false"}),
        (0o022, "local[1]", {"spark.driver.extraJavaOptions": "-Djava.io.tmpdir=/a/long/way"}),
    ],
)
def test_where_unix_sockets_are_not_asked_for(
    alone: Builder, umask: int, master: str, conf: dict[str, str]
) -> None:
    os.umask(umask)
    spark_session(master, **conf)
    assert UNIX_SOCKETS not in alone.asked


def test_what_java_and_a_session_are_told_already_stays(
    alone: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g -Djava.io.tmpdir=/a/long/way")
        spark_session("local[1]")
    monkeypatch.setattr(session.SparkContext, "_active_spark_context", object())
    spark_session("local[1]")
    assert UNIX_SOCKETS not in alone.asked
