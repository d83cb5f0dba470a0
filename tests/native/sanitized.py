"""The compiled twins under gcc's address and undefined-behaviour sanitizers, over malformed input.

    python -m tests.native.sanitized [--count 2000]

Builds the extension modules anew with the sanitizers into a copy of the tree, and runs the codec's malformed inputs,
the tests that hold the twins against each other, and the differential fuzz there, each allocation watched
(``PYTHONMALLOC=malloc``). It ends with 1 where a sanitizer speaks or a test fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.house import ROOT

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
TESTS = (
    "tests/format/test_malformed.py",
    "tests/format/test_record.py",
    "tests/native/test_decoding.py",
    "tests/native/test_encoding.py",
    "tests/native/test_row_buffer.py",
    "tests/client/producer/test_queue_rows.py",
    "tests/client/producer/test_send_path.py",
    "tests/native/test_columns.py",
    "tests/native/test_record_batches.py",
    "tests/native/test_batches.py",
    "tests/native/test_record.py",
    "tests/native/test_checking.py",
    "tests/native/test_appending.py",
    "tests/native/test_arrow_rows.py",
    "tests/format/test_record_spans.py",
    "tests/log/cleaning/test_key_offsets.py",
)
_IN_USE = "import sys, logstore; found = logstore.native_status(); print(found); sys.exit(not found.compiled)"
_BUILD = "import sys; from logstore.native.build import main; sys.exit(main(['--force']))"


def _library(name: str) -> str:
    """The sanitizer's own library, which has to be loaded before Python."""
    compiler = os.environ.get("CC", "gcc")
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return str(Path(found.stdout.strip()).resolve())


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.native.sanitized", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="inputs of each kind for the fuzz")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="logstore-sanitized-") as work:
        for name in ("logstore", "tests"):
            ignored = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / name, Path(work, name), ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", work)
        here = {**os.environ, "PYTHONPATH": work}
        subprocess.run([sys.executable, "-c", _BUILD], cwd=work, env={**here, "CFLAGS": FLAGS}, check=True)
        watched = {
            **here,
            "LD_PRELOAD": " ".join(map(_library, ("libasan.so", "libubsan.so"))),
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter keeps much until its end
            "PYTHONMALLOC": "malloc",
            "ARROW_DEFAULT_MEMORY_POOL": "system",  # its own pools are not watched
        }
        for command in (
            ["-c", _IN_USE],
            ["-m", "pytest", "-q", "-n", "0", *TESTS],
            ["-m", "tests.native.fuzz", "--count", str(chosen.count)],
        ):
            done = subprocess.run([sys.executable, *command], cwd=work, env=watched, check=False)
            if done.returncode:
                print(f"ended with {done.returncode}: {' '.join(command)}")
                return 1
    print("the sanitizers found nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
