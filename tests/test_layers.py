"""Imports go one way, and the library imports two packages from outside."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import house
from tests.house import PACKAGES, ROOT
from tests.import_graph import circles, import_graph

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
    "prometheus_client": "logstore/metrics/",
    "pytest": "logstore/testing/",
    "hatchling": "logstore/native/build_hook.py",
    "typing_extensions": "logstore/",  # type checkers bring it; never at run time
}
EXTRAS = {"typing_extensions", "zstandard", "lz4", "cramjam", "pyarrow", "numpy"}


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


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages' sources, to plant faults in."""
    folder = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("logstore/store.py", "import rpc", "logstore is not allowed to import rpc"),
        (
            "logstore/client/admin.py",
            "from logstore.ownership.lock import Locks",
            "logstore.client is not allowed to import logstore.ownership",
        ),
        (
            "logstore/client/admin.py",
            "from logstore.log.epochs import EpochTable",
            "logstore.client is not allowed to import logstore.log",
        ),
        (
            "logstore/api/topics.py",
            "from logstore.log.epochs import EpochTable",
            "logstore.api is not allowed to import logstore.log",
        ),
        (
            "logstore/groups/offsets.py",
            "from logstore.seams.clock import Clock",
            "logstore.groups is not allowed to import logstore.seams",
        ),
        (
            "logstore/format/varint.py",
            "from logstore.partition.topic import Topic",
            "logstore.format is not allowed to import logstore.partition",
        ),
        (
            "logstore/client/producer/route.py",
            "from logstore.client.consumer.consumer import Consumer",
            "logstore.client.producer is not allowed to import logstore.client.consumer",
        ),
        (
            "spark_connector/reading/planner.py",
            "from logstore.format.batch import read_header",
            "spark_connector is not allowed to import logstore.format",
        ),
    ],
)
def test_each_wall_finds_an_import_that_goes_up(copied: Path, file: str, line: str, complaint: str) -> None:
    """Planted for types only: those count as well."""
    path = copied / file
    text = path.read_text("utf-8")
    path.write_text(f"{text}\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {line}\n", "utf-8")
    try:
        done = lint_imports(copied)
    finally:
        path.write_text(text, "utf-8")
    assert done.returncode == 1
    assert complaint in " ".join(done.stdout.split())


def test_no_import_circle() -> None:
    """Those of types only included."""
    found = circles(import_graph(ROOT, "logstore"))
    assert [sorted(circle) for circle in found] == []


def test_a_planted_circle_is_found(copied: Path) -> None:
    graph = import_graph(copied, "logstore")
    graph["logstore.types"] = {"logstore.config"}
    assert any(
        {"logstore.types", "logstore.arguments", "logstore.config"} <= circle for circle in circles(graph)
    )
    (copied / "logstore" / "one.py").write_text("import logstore.two\n")
    (copied / "logstore" / "two.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from logstore import one\n"
    )
    try:
        assert {"logstore.one", "logstore.two"} in circles(import_graph(copied, "logstore"))
    finally:
        (copied / "logstore" / "one.py").unlink()
        (copied / "logstore" / "two.py").unlink()


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
    # Every compiled module makes these two for itself; they are no files.
    loaded = {name for name in loaded if name != "cython_runtime" and not name.startswith("_cython_")}
    assert loaded - set(sys.stdlib_module_names) - {"logstore"} <= {"crc32c", "mmh3"}
    assert "asyncio" not in loaded


def test_probe_sees_what_is_loaded() -> None:
    assert {"asyncio", "crc32c"} <= loaded_by("import asyncio, crc32c")


def test_every_public_name_is_there() -> None:
    import logstore

    missing = [name for name in dir(logstore) if not hasattr(logstore, name)]
    assert missing == []
    assert set(logstore._PLACES) >= set(logstore.__all__) - {"open", "connect", "__version__"}
