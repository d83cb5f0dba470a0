"""The tree obeys the house's rules, and each rule finds a fault that was planted for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import house
from tests.house import PACKAGES, ROOT, Rule

# One worker parses the tree for all rules.
pytestmark = pytest.mark.xdist_group("tidiness")

PRODUCT = house.python_files(*PACKAGES)
BENCH = house.python_files("bench")
TESTS = house.python_files("tests")


def product_length(text: str) -> Iterator[str]:
    return house.too_long(text, house.PRODUCT_LINES)


def test_length(text: str) -> Iterator[str]:
    return house.too_long(text, house.TEST_LINES)


test_length.__test__ = False  # type: ignore[attr-defined]  # a rule, not a test

# One tree of errors in one file: a table that is read by name, not from top to bottom.
ERRORS = ROOT / "logstore/errors.py"


def error_table_length(text: str) -> Iterator[str]:
    return house.too_long(text, house.ERROR_TABLE_LINES)


# The commands, and the one file through which the examples speak.
SPEAK = {ROOT / "logstore/cli", ROOT / "spark_connector/examples/scene.py"}
SILENT = [path for path in PRODUCT if SPEAK.isdisjoint([path, *path.parents])]

# Tests of brokers, whose clients go on for long where a broker is gone.
BROKERS = house.python_files("tests/rpc", "tests/history", "tests/replication")
# The event loop of all brokers of a process; a process of its own; connections of a listener; a thread that is over.
LOOSE = ("rpc/served.py", "history/workers.py", "rpc/testing/test_proxy.py", "rpc/test_connection_ends.py")
BESIDE = [path for path in BROKERS if path not in {ROOT / "tests" / name for name in LOOSE}]

# Clients and faults of a history have times of their own; a simulated cluster's seconds are its clock's.
HURRIED = [ROOT / "tests" / name for name in ("history", "sim", "interleave")]
UNHURRIED = [path for path in TESTS if not {path, *path.parents} & set(HURRIED)]

RULES: list[tuple[str, Rule, list[Path], str]] = [
    (
        "product length",
        product_length,
        [path for path in PRODUCT + BENCH if path != ERRORS],
        '"""Doc."""\n' + "x = 1\n" * 560,
    ),
    ("error table length", error_table_length, [ERRORS], "x = 1\n" * 701),
    ("test length", test_length, TESTS, "x = 1\n" * 801),
    ("function length", house.long_functions, PRODUCT + BENCH + TESTS, "def f():\n" + "    x = 1\n" * 75),
    ("no assert", house.bare_asserts, PRODUCT, "assert True\n"),
    ("no print", house.prints, SILENT, "print(1)\n"),
    ("nothing unfinished", house.unfinished, PRODUCT + BENCH + TESTS, "x = 1  # TO" + "DO: later\n"),
    ("docstrings", house.no_docstring, PRODUCT + BENCH, "x = 1\n"),
    (
        "no skipped test",
        house.skipped_tests,
        TESTS,
        "@pytest.mark.skip\ndef test(): ...\n",
    ),
    ("no sleeping test", house.sleeps, TESTS, "import time\n\ntime.sleep(1)\n"),
    ("no short wait", house.short_waits, UNHURRIED, "def test() -> None:\n    assert ready.wait(10)\n"),
    ("no count of threads", house.counted_threads, TESTS, "import threading\n\nthreading.active_count()\n"),
    ("threads end", house.loose_threads, BESIDE, "import threading\n\nthreading.Thread(target=f).start()\n"),
    ("loud excepts", house.quiet_excepts, PRODUCT + BENCH, "try:\n    f()\nexcept:\n    raise\n"),
]


@pytest.fixture(scope="module")
def found() -> dict[Rule, list[str]]:
    return house.offences([(rule, set(paths)) for _, rule, paths, _ in RULES])


@pytest.mark.parametrize(("rule", "paths"), [row[1:3] for row in RULES], ids=[row[0] for row in RULES])
def test_tree_obeys(rule: Rule, paths: list[Path], found: dict[Rule, list[str]]) -> None:
    assert paths, "the rule looks at no file"
    assert found[rule] == []


@pytest.mark.parametrize(("rule", "planted"), [(r[1], r[3]) for r in RULES], ids=[row[0] for row in RULES])
def test_rule_finds_what_was_planted(rule: Rule, planted: str) -> None:
    assert list(rule(planted))


@pytest.mark.parametrize(
    "swallowed",
    [
        "try:\n    f()\nexcept Exception:\n    x = 1\n",
        "try:\n    f()\nexcept (ValueError, BaseException) as error:\n    x = 1\n",
        "try:\n    f()\nexcept ValueError:\n    pass\n",
        "for x in y:\n    try:\n        f()\n    except OSError:\n        continue\n",
    ],
)
def test_swallowed_errors_are_found(swallowed: str) -> None:
    assert len(list(house.quiet_excepts(swallowed))) == 1


@pytest.mark.parametrize(
    "spoken",
    [
        "try:\n    f()\nexcept Exception as error:\n    keep(error)\n",
        "try:\n    f()\nexcept BaseException:\n    undo()\n    raise\n",
        "try:\n    f()\nexcept Exception:\n    logger.exception('f failed')\n",
        "try:\n    f()\nexcept ValueError:\n    pass  # a foreign name: not ours to read\n",
    ],
)
def test_handled_errors_are_not(spoken: str) -> None:
    assert list(house.quiet_excepts(spoken)) == []


def test_top_level_holds_only_what_belongs() -> None:
    names = {path.name for path in ROOT.iterdir()}
    strangers = {name for name in names - house.TOP_LEVEL if not house.LEFT_BEHIND.fullmatch(name)}
    assert strangers == set()
    assert house.TOP_LEVEL - names <= {".git"}  # an archive of the tree has no .git


def test_every_package_has_a_door_and_a_marker() -> None:
    folders = {path.parent for path in PRODUCT if path.name == "__init__.py"}
    folders |= {ROOT / "rpc/pb", ROOT / "proto", ROOT / "tests", ROOT / "bench"}
    missing = [house.name_of(folder) for folder in sorted(folders) if not (folder / "README.md").is_file()]
    assert missing == []
    assert [package for package in PACKAGES if not (ROOT / package / "py.typed").is_file()] == []


def test_no_module_is_named_for_nothing() -> None:
    stems = {
        house.name_of(path): {path.stem, *path.relative_to(ROOT).parent.parts} for path in PRODUCT + BENCH
    }
    assert [name for name, parts in stems.items() if parts & house.FORBIDDEN_NAMES] == []


def test_folders_of_python_are_packages() -> None:
    """A folder without ``__init__.py`` would be missed by the wheel, by mypy and by the layers."""
    folders = {path.parent for path in PRODUCT + TESTS + BENCH}
    assert [
        house.name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()
    ] == []
