"""A named producer whose process hangs keeps its name; one whose process has died does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logstore.errors import ProducerBusyError, TopicLockedError
from logstore.store import LogStore
from tests.worker_process import Worker


def _stop(worker: Worker) -> None:
    """SIGSTOP, and wait until it stands still."""
    worker.process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(worker.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def test_a_stopped_process_keeps_the_name_until_it_is_killed(tmp_path: Path, workers: list[Worker]) -> None:
    root = str(tmp_path / "store")
    with LogStore(root) as store:
        store.create_topic("t", config={"segment.bytes": "2000"})
    workers.append(zombie := Worker("send_by_name", root, "t", "import"))
    assert zombie.expect("ready") == "ready 0"
    for _ in range(20):
        zombie.expect("acked")
    _stop(zombie)
    holder = f"producer 'import' is open: pid {zombie.process.pid} on "
    with LogStore(root, lock_timeout_s=0.1) as store:
        with pytest.raises(ProducerBusyError, match=holder) as caught:
            store.producer(name="import")
        assert caught.value.retriable
        with pytest.raises(ProducerBusyError, match=holder):
            store.admin.delete_producer("import")
        with pytest.raises(TopicLockedError, match=f"pid {zombie.process.pid} "):
            store.partition("t", 0).append([(None, b"mine")])
    command = [sys.executable, "-m", "logstore.cli", "--path", root, "produce", "t", "--name", "import"]
    refused = subprocess.run(command, input="a\n", text=True, capture_output=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert holder in refused.stderr
    workers.append(heir := Worker("send_by_name", root, "t", "import"))
    assert heir.expect("busy").startswith(f"busy {holder}")
    zombie.process.send_signal(signal.SIGCONT)  # nothing has happened to it: it goes on
    for _ in range(20):
        acked = int(zombie.expect("acked").split()[1])
    _stop(zombie)
    assert heir.lines.empty(), "it waits"
    zombie.kill()
    while (line := zombie.next()) is not None:
        acked = int(line.split()[1])
    went_on = int(heir.expect("ready").split()[1])
    assert acked <= went_on <= acked + 3, "the heir knows what is in, acknowledged or in flight"
    for _ in range(20):
        acked = int(heir.expect("acked").split()[1])
    assert acked > went_on
    heir.kill()
    with LogStore(root) as store:
        producer = store.producer(name="import")
        assert producer.last_sequence("t", 0) >= acked
        values = [int(record.value or b"") for record in store.partition("t", 0).records(0)]
        assert values == list(range(producer.last_sequence("t", 0)))
        (summary,) = store.admin.list_producers()
        assert (summary.epoch, str(os.getpid()) in str(summary.holder)) == (2, True)
