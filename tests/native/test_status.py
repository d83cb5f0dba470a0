"""Which twin serves: by what is built, by the switch, and whatever state the built files are in."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from logstore.native import native_status
from logstore.native.modules import FOLDER, MODULES, file_of, fingerprint
from tests.house import ROOT

SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
BUILT = all(file_of(name, SUFFIX).exists() for name in MODULES)
DECODES = (
    "from logstore.format.batch import decode_batches, encode_batch\n"
    "from logstore import native_status\n"
    "found = decode_batches(encode_batch([(b'k', b'v')], now_ms=7), 't', 0)\n"
    "print([tuple(record) for record in found] == [('t', 0, 0, 7, b'k', b'v', ())], native_status())"
)


def run(code: str, folder: Path = ROOT, **environment: str) -> str:
    kept = {key: text for key, text in os.environ.items() if not key.startswith("LOGSTORE_")}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The library's tree without what was built, to put odd files into."""
    shutil.copytree(
        ROOT / "logstore", tmp_path / "logstore", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    return tmp_path


def put(tree: Path, name: str, content: bytes) -> None:
    file_of(name, SUFFIX, tree / "logstore/native").write_bytes(content)


def test_the_modules_are_the_sources() -> None:
    for ending in ".pyx", ".pyi":
        found = (path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob(f"*{ending}"))
        assert sorted(MODULES) == sorted(".".join(path.parts) for path in found)


def test_switch_selects_the_python_twin() -> None:
    assert run(DECODES, LOGSTORE_NATIVE="0") == "True compiled core not in use: LOGSTORE_NATIVE=0 is set"


def test_this_process_says_what_it_runs() -> None:
    status = native_status()
    assert status.compiled == (BUILT and os.environ.get("LOGSTORE_NATIVE") != "0")
    assert status.reason


def test_nothing_built(copied: Path) -> None:
    said = run(DECODES, copied)
    assert said.startswith("True compiled core not in use: it was not built for this Python")
    assert "python -m logstore.native.build" in said


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF\x02\x01\x01" + bytes(2000)])
def test_a_broken_file_is_a_reason_and_no_crash(copied: Path, content: bytes) -> None:
    for name in MODULES:
        put(copied, name, content)
    said = run(DECODES, copied)
    assert said.startswith(f"True compiled core not in use: {MODULES[0]} cannot be loaded (ImportError: ")


class TestBuilt:
    """With the files of this tree; where nothing is built here, there is nothing that could be stale."""

    if BUILT:

        @pytest.fixture
        def built(self, copied: Path) -> Path:
            for name in MODULES:
                put(copied, name, file_of(name, SUFFIX).read_bytes())
            return copied

        def test_in_use(self, built: Path) -> None:
            assert run(DECODES, built).startswith("True compiled core in use: built for ")

        def test_one_is_lacking(self, built: Path) -> None:
            if len(MODULES) > 1:
                file_of(MODULES[-1], SUFFIX, built / "logstore/native").unlink()
                assert f"not in use: {MODULES[-1]} was not built" in run(DECODES, built)

        def test_a_changed_source_is_seen(self, built: Path) -> None:
            with file_of(MODULES[0], ".pyx", built / "logstore/native").open("a") as source:
                source.write("# changed\n")
            said = run(DECODES, built)
            assert f"not in use: {MODULES[0]} was built from another source than the one beside it" in said

        def test_without_sources_there_is_nothing_to_compare(self, built: Path) -> None:
            for path in (built / "logstore/native").glob("*/*.p[yx][xd]"):
                path.unlink()
            assert run(DECODES, built).startswith("True compiled core in use: ")

        @pytest.mark.parametrize("name", MODULES)
        def test_loaded_modules_name_their_source(self, name: str) -> None:
            if native_status().compiled:
                assert fingerprint(name) == importlib.import_module(f"logstore.native.{name}").FINGERPRINT


def test_command_line_says_which(tmp_path: Path) -> None:
    code = "from logstore.cli.main import cli; cli(['--version'], prog_name='logstore')"
    first, second = run(code, LOGSTORE_NATIVE="0").splitlines()
    assert first.startswith("logstore, version ")
    assert second == "compiled core not in use: LOGSTORE_NATIVE=0 is set"
