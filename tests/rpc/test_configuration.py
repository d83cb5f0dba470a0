"""A broker's settings: where they come from, in which order, and what is refused by its name."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from rpc.configuration import as_toml, configure
from rpc.errors import BrokerConfigError
from rpc.settings import BrokerSettings


def test_options_come_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('data = "from-file"\nthreads = 3\ndrain_s = 4\nnode_id = 5\n')
    environment = {"LOGSTORE_BROKER_THREADS": "6", "LOGSTORE_BROKER_DRAIN_S": "7.5", "LOGSTORE_PATH": "other"}
    found = configure(str(file), {**environment, "LOGSTORE_BROKER_CONFIG": str(file)}, {"drain_s": "8"})
    assert (found.data, found.node_id, found.threads, found.drain_s) == ("from-file", 5, 6, 8.0)
    assert found.listen == "127.0.0.1:9095"
    secured = {"data": "x", "insecure_listen_beyond_loopback": "True", "listen": "0.0.0.0:1"}
    assert configure(None, {}, secured).address == ("0.0.0.0", 1)


@pytest.mark.parametrize("data", ["plain", 'quo"ted \\ back', "ünï\x7f\t😀"])
def test_what_is_printed_reads_as_the_same_settings(tmp_path: Path, data: str) -> None:
    settings = BrokerSettings(data=data, drain_s=1e-3, max_wait_s=float("inf"), listen="[::1]:0")
    text = as_toml(settings)
    assert tomllib.loads(text) == asdict(settings)
    file = tmp_path / "printed.toml"
    file.write_text(text, "utf-8")
    assert configure(str(file), {}, {}) == settings


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("data = 'x'\nthreds = 1", "'threds'.*did you mean 'threads'"),
        ("data = 'x'\nzzzz = 1", "'zzzz'.*settings are data, listen"),
        ("data = 'x'\nthreads = '1'", "threads='1': it is a whole number"),
        ("data = 'x'\nthreads = true", "threads=True: it is a whole number"),
        ("data = 'x'\ndrain_s = 'soon'", "drain_s='soon': it is a number"),
        ("data = 'x'\ninsecure_listen_beyond_loopback = 1", "it is true or false"),
        ("data = 7", "data=7: it is a text"),
        ("data = ''", "data='' is no directory's path"),
        ("data = 'x'\nthreads = 0", "threads=0: it is at least 1"),
        ("data = 'x'\ndrain_s = nan", "drain_s=nan: it is more than 0"),
        ("data = 'x'\nlisten = 'h'", "'h' is not HOST:PORT"),
        ("data = 'x'\nlisten = '127.0.0.1:65536'", "a port is 0 to 65535"),
        ("data = 'x'\nlisten = 'example.org:1'", "can be reached from other machines"),
        ("data = ", "is no TOML"),
        ("threads = 1", "a broker serves a store's directory"),
    ],
)
def test_a_file_that_cannot_be(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    with pytest.raises(BrokerConfigError, match=told):
        configure(str(file), {}, {})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BrokerConfigError, match=r"cannot read .*No such file"):
        configure(str(tmp_path / "none"), {}, {})
    file = tmp_path / "broker.toml"
    file.write_bytes(b"data = '\xff'")
    with pytest.raises(BrokerConfigError, match="is no TOML"):
        configure(str(file), {}, {})


@pytest.mark.parametrize(
    ("environment", "given", "told"),
    [
        ({"LOGSTORE_BROKER_THREDS": "1"}, {}, "'LOGSTORE_BROKER_THREDS'.*did you mean 'threads'"),
        ({"LOGSTORE_BROKER_THREADS": "x"}, {}, "LOGSTORE_BROKER_THREADS='x': it is a whole number"),
        ({"LOGSTORE_BROKER_DRAIN_S": ""}, {}, "LOGSTORE_BROKER_DRAIN_S='': it is a number"),
        ({}, {"insecure_listen_beyond_loopback": "yes"}, "it is true or false"),
        ({}, {"drian_s": "1"}, "the command line has a setting 'drian_s'.*'drain_s'"),
    ],
)
def test_texts_that_cannot_be(environment: dict[str, str], given: dict[str, str], told: str) -> None:
    with pytest.raises(BrokerConfigError, match=told):
        configure(None, environment, {"data": "x", **given})


def test_every_setting_can_be_given_as_a_text() -> None:
    """A kind that ``parse`` does not know would come out as a text, and be refused."""
    settings = BrokerSettings(data="x")
    texts = {field.name: str(getattr(settings, field.name)) for field in fields(settings)}
    assert configure(None, {}, texts) == settings
