"""A compiled object that nothing has initialized raises an error: None's memory is not taken for its fields."""

from __future__ import annotations

import subprocess
import sys

from logstore import native_status
from tests.house import ROOT


def test_no_method_crashes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.native.bare_objects"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0, f"{last}: {done.stderr}"
    if native_status().compiled:
        count, _, rest = last.partition(" ")
        assert rest == "methods and fields"
        assert int(count) > 200
