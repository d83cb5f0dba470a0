"""The plugin, in a pytest of its own: fixtures, marker, and how little it costs where it is not used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT

SUITE = """
import pytest
from logstore.errors import DiskFullError
from logstore.testing import crash_test


def test_a_store(logstore_store, logstore_disk):
    logstore_store.create_topic("t")
    log = logstore_store.partition("t", 0)
    log.append([(None, b"x")])
    logstore_disk.full = True
    with pytest.raises(DiskFullError):
        log.append([(None, b"y")])


@pytest.mark.logstore(memory=True)
def test_it_is_empty_again(logstore_store):
    assert logstore_store.list_topics() == []
    assert logstore_store.root == "/store"


@pytest.mark.parametrize("number", range(3))
def test_a_broker(logstore_broker, number):
    with logstore_broker.connect() as client:
        assert client.list_topics() == []
        client.create_topic("t")
        with client.producer() as producer:
            producer.send("t", b"kept").result()
    logstore_broker.kill()
    logstore_broker.restart()
    with logstore_broker.connect() as client, client.consumer("t", until_end=True) as consumer:
        assert [record.value for record in consumer] == [b"kept"]


@pytest.mark.logstore(max_message_bytes=1234)
def test_settings_of_a_broker(logstore_broker):
    assert logstore_broker.connect().cluster.limits.max_message_bytes == 1234
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_a_suite_of_a_users_own(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(SUITE)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_it_is_in_the_list_of_fixtures_and_markers(tmp_path: Path) -> None:
    told = run(tmp_path, "--fixtures").stdout
    for name in ("logstore_store", "logstore_broker", "logstore_disk", "logstore_clock"):
        assert name in told
    assert "@pytest.mark.logstore" in run(tmp_path, "--markers").stdout


def test_a_suite_that_does_not_use_it_loads_no_engine(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import sys\n"
        "def test_nothing():\n"
        "    assert 'logstore.testing.plugin' in sys.modules\n"
        "    assert not {'logstore.store', 'grpc', 'rpc', 'crc32c'} & set(sys.modules)\n"
    )
    done = run(tmp_path, "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", ["logstore/testing/README.md"])
def test_the_pages_example_runs_as_pasted(tmp_path: Path, page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    blocks = text.split("```python\n")[1:]
    assert blocks
    for number, block in enumerate(blocks):
        (tmp_path / f"test_page_{number}.py").write_text(block.split("```")[0])
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
