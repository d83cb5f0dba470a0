"""What a worker says: a line counts once it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import worker_process
from tests.worker_process import Worker


def test_a_line_that_a_kill_cut_is_not_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torn.py").write_text(
        "import os, signal\nos.write(1, b'acked g 1\\nacked')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setattr(worker_process, "REPOSITORY", str(tmp_path))
    worker = Worker(module="torn")
    try:
        assert worker.next() == "acked g 1"
        assert worker.next() is None
        assert worker.process.wait(30) == -9
    finally:
        worker.dispose()
