"""Imports go one way, and the library imports two packages from outside."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import house
from tests.house import PACKAGES, ROOT

LINT_IMPORTS = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports(no_cache=True))"

# Where an import from outside may stand; what is not named here may stand nowhere.
ALLOWED = {
    "crc32c": "logstore/",
    "mmh3": "logstore/",
    "click": "logstore/cli/",
    "rich": "logstore/cli/",
    "zstandard": "logstore/format/compression.py",
    "lz4": "logstore/format/compression.py",
    "cramjam": "logstore/format/compression.py",
    "pyarrow": "logstore/",
    "numpy": "logstore/format/",
    "pytest": "logstore/testing/",
}
EXTRAS = {"zstandard", "lz4", "cramjam", "pyarrow", "numpy"}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT_IMPORTS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_layers_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_layers_find_an_import_that_goes_up(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    named = {name for contract in settings["contracts"] for name in contract.get("forbidden_modules", [])}
    for module in sorted({*PACKAGES, *named}):
        folder = tmp_path.joinpath(*module.split("."))
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"))
    assert lint_imports(tmp_path).returncode == 0
    (tmp_path / "logstore" / "front.py").write_text("import rpc\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "logstore is not allowed to import rpc" in done.stdout
    (tmp_path / "logstore" / "front.py").unlink()
    (tmp_path / "spark_connector" / "deep.py").write_text("import logstore.log\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "spark_connector is not allowed to import logstore.log" in done.stdout


def outside_imports(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, package, whether it runs at import time) for imports that are neither ours nor Python's."""
    tree = ast.parse(text)
    late = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _for_types_only(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for package in {name.split(".")[0] for name in names}:
            if package not in sys.stdlib_module_names and package not in PACKAGES:
                yield node.lineno, package, node not in late


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def misplaced(name: str, text: str) -> list[str]:
    faults = []
    for line, package, at_import in outside_imports(text):
        place = ALLOWED.get(package)
        if place is None or not name.startswith(place):
            faults.append(f"{name}:{line}: {package} may not be imported here")
        elif package in EXTRAS and at_import:
            faults.append(f"{name}:{line}: {package} is an extra: import it where it is used")
    return faults


def test_imports_from_outside_stand_where_they_may() -> None:
    files = [path for path in house.python_files("logstore") if path.is_file()]
    assert [
        fault for path in files for fault in misplaced(house.name_of(path), path.read_text("utf-8"))
    ] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("logstore/store.py", "import click\n"),
        ("logstore/log/segments/segment.py", "from numpy import array\n"),
        ("logstore/format/compression.py", "import zstandard\n"),
        ("logstore/store.py", "def f():\n    import grpc\n"),
    ],
)
def test_misplaced_imports_are_found(name: str, text: str) -> None:
    assert len(misplaced(name, text)) == 1


def loaded_by(code: str) -> set[str]:
    """Top-level modules that ``code`` adds to a fresh interpreter."""
    probe = (
        "import sys, json\n"
        "before = set(sys.modules)\n"
        f"{code}\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


USE = """
import logstore
with logstore.open(":memory:") as store:
    store.create_topic("t")
    with store.producer() as producer:
        producer.send("t", b"v", key=b"k").result(timeout_s=30)
    with store.consumer("t", group="g", until_end=True) as consumer:
        if [record.value for record in consumer] != [b"v"]:
            raise SystemExit("the record did not come back")
        consumer.commit()
"""


@pytest.mark.parametrize("code", ["import logstore", USE], ids=["import", "use"])
def test_library_is_light(code: str) -> None:
    loaded = loaded_by(code)
    assert "logstore" in loaded
    assert loaded - set(sys.stdlib_module_names) - {"logstore"} <= {"crc32c", "mmh3"}
    assert "asyncio" not in loaded


def test_probe_sees_what_is_loaded() -> None:
    assert {"asyncio", "crc32c"} <= loaded_by("import asyncio, crc32c")


def test_every_public_name_is_there() -> None:
    import logstore

    missing = [name for name in dir(logstore) if not hasattr(logstore, name)]
    assert missing == []
    assert set(logstore._PLACES) >= set(logstore.__all__) - {"open", "connect", "__version__"}
