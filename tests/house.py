"""The rules of the house as functions over source text, so that each can be run against a planted fault."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("logstore", "replication", "rpc", "spark_connector")
PRODUCT_LINES, TEST_LINES, FUNCTION_LINES = 560, 800, 75
ERROR_TABLE_LINES = 700
FORBIDDEN_NAMES = {"utils", "util", "helpers", "misc", "common"}
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
BROAD = {"Exception", "BaseException"}

TOP_LEVEL = {
    ".ci", ".git", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml",
    "bench", "logstore", "proto", "replication", "rpc", "spark_connector", "tests",
}  # fmt: skip
# What tools leave behind, all of it in .gitignore.
LEFT_BEHIND = re.compile(
    r"\.venv|__pycache__|build|dist|logstore-demo.*|\..*_cache|\.hypothesis|\.benchmarks|.*\.egg-info"
)


@lru_cache(maxsize=1)
def _tree(text: str) -> ast.Module:
    """One file after the other is parsed once for all rules. Trees of all would slow down whatever runs after."""
    return ast.parse(text)


@lru_cache(maxsize=1)
def _by_kind(text: str) -> dict[type[ast.AST], list[ast.AST]]:
    """The nodes of a file by their type: a walk over a whole tree costs more than all that a rule asks of it."""
    kinds: dict[type[ast.AST], list[ast.AST]] = {}
    for node in ast.walk(_tree(text)):
        kinds.setdefault(type(node), []).append(node)
    return kinds


def _nodes(text: str, kind: type[Node]) -> list[Node]:
    """Every node of one type in a file, outer ones first."""
    return _by_kind(text).get(kind, [])  # type: ignore[return-value]  # the key is the type of each


def python_files(*folders: str) -> list[Path]:
    """Every Python file under these folders of the tree, generated code left out."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "__pycache__" not in path.parts and path.parent.name != "pb")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def too_long(text: str, limit: int) -> Iterator[str]:
    lines = text.count("\n")
    if lines > limit:
        yield f"1: {lines} lines, {limit} at most: split it by noun"


def long_functions(text: str) -> Iterator[str]:
    for node in [*_nodes(text, ast.FunctionDef), *_nodes(text, ast.AsyncFunctionDef)]:
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        if size > FUNCTION_LINES:
            yield f"{node.lineno}: {node.name} is {size} lines, {FUNCTION_LINES} at most"


def bare_asserts(text: str) -> Iterator[str]:
    """``assert`` disappears under -O: product code uses ``invariant`` or a named error."""
    for node in _nodes(text, ast.Assert):
        yield f"{node.lineno}: assert in product code: use invariant() or a named error"


def _caught(kind: ast.expr | None) -> set[str]:
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return {name.id for name in names if isinstance(name, ast.Name)}


def _speaks(handler: ast.ExceptHandler) -> bool:
    """The handler raises, does something with the error it bound, or logs it with its traceback."""
    for node in (inner for statement in handler.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Attribute) and node.attr == "exception"):
            return True
        if isinstance(node, ast.Name) and handler.name is not None and node.id == handler.name:
            return True
    return False


def quiet_excepts(text: str) -> Iterator[str]:
    """No bare except; a broad one raises or uses the error; a handler that does nothing says why."""
    lines = text.split("\n")
    for node in _nodes(text, ast.ExceptHandler):
        if node.type is None:
            yield f"{node.lineno}: bare except"
        elif _caught(node.type) & BROAD and not _speaks(node):
            yield f"{node.lineno}: a broad except that swallows the error"
        elif all(isinstance(step, ast.Pass | ast.Continue) for step in node.body):
            span = lines[node.lineno - 1 : node.end_lineno]
            if not any("#" in line for line in span):
                yield f"{node.lineno}: an except that does nothing carries a comment that says why"


def prints(text: str) -> Iterator[str]:
    for node in _nodes(text, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{node.lineno}: print outside the command, the examples and the benches"


def unfinished(text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if UNFINISHED.search(line):
            yield f"{number}: unfinished: {line.strip()[:80]}"


def no_docstring(text: str) -> Iterator[str]:
    tree = _tree(text)
    if tree.body and ast.get_docstring(tree) is None:
        yield "1: a module says in its docstring what it is"


def skipped_tests(text: str) -> Iterator[str]:
    """A test that does not run shows nothing."""
    for node in _nodes(text, ast.Attribute):
        if node.attr in {"skip", "skipif", "xfail", "importorskip"}:
            yield f"{node.lineno}: {node.attr}: a test runs or is not there"


def loose_threads(text: str) -> Iterator[str]:
    """A thread that outlives its test, as that failed, has other tests of the process fail: see ``tests/beside.py``."""
    for node in _nodes(text, ast.Call):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("threading.Thread", "Thread"):
            yield f"{node.lineno}: a thread of its own: have Beside start it, and end it with the block"


def sleeps(text: str) -> Iterator[str]:
    """Naked ``time.sleep`` in a test of more than a polling step waits for luck."""
    for node in _nodes(text, ast.Call):
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "sleep"
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, int | float)
            and node.args[0].value > 0.05
        ):
            yield f"{node.lineno}: sleep({node.args[0].value}): poll with a deadline instead"


_WAITS = {"result", "exception", "join", "wait", "acquire", "communicate", "flush"}
_LIMITS = {"timeout", "timeout_s", "patience_s"}
_SHORTEST_S = 30


def _is_short(node: ast.expr) -> bool:
    """Seconds that a busy machine may take over anything; less than two are meant to pass."""
    return (
        isinstance(node, ast.Constant) and type(node.value) in (int, float) and 2 <= node.value < _SHORTEST_S
    )


def _refused(text: str) -> set[int]:
    """Lines of blocks that are to raise: what is waited for there may be the end of the time."""
    blocks = [
        block
        for block in _nodes(text, ast.With)
        if any("raises" in ast.unparse(item.context_expr) for item in block.items)
    ]
    return {line for block in blocks for line in range(block.lineno, (block.end_lineno or block.lineno) + 1)}


def short_waits(text: str) -> Iterator[str]:
    """A test that gives what is to come a few seconds fails where the machine has other things to do, and so does one
    that says how long something took."""
    refused = _refused(text)
    for node in _nodes(text, ast.Call):
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in _WAITS or node.lineno in refused:
            continue
        limits = [limit.value for limit in node.keywords if limit.arg in _LIMITS]
        given = [] if node.func.attr == "acquire" else node.args[:1]  # the slot of a lock
        if any(map(_is_short, [*limits, *given])):
            yield f"{node.lineno}: {node.func.attr}: it is given {_SHORTEST_S} s and more"
    for node in _nodes(text, ast.Assign):
        names = [name.id for name in node.targets if isinstance(name, ast.Name)]
        if any(re.search("PATIENCE|DEADLINE", name) for name in names) and _is_short(node.value):
            yield f"{node.lineno}: {names[0]}: it is {_SHORTEST_S} s and more"
    for node in _nodes(text, ast.Compare):
        took = re.match(r"time\.(monotonic|perf_counter)\(\) - ", ast.unparse(node.left))
        if took and isinstance(node.ops[0], ast.Lt) and any(map(_is_short, node.comparators)):
            yield f"{node.lineno}: a time that a busy machine exceeds"


def counted_threads(text: str) -> Iterator[str]:
    """Threads of stores that other tests left to the collector end at any moment."""
    for node in _nodes(text, ast.Attribute):
        if node.attr == "active_count":
            yield f"{node.lineno}: active_count: compare sets of threads, of which others may go"


Rule = Callable[[str], Iterator[str]]


def offences(rules: Sequence[tuple[Rule, Collection[Path]]]) -> dict[Rule, list[str]]:
    """``file:line: what`` for each place where a rule is broken in one of the files that it is for."""
    found: dict[Rule, list[str]] = {rule: [] for rule, _ in rules}
    for path in sorted({path for _, paths in rules for path in paths}):
        text = path.read_text("utf-8")
        for rule, paths in rules:
            if path in paths:
                found[rule] += [f"{name_of(path)}:{offence}" for offence in rule(text)]
    return found
