"""Imports between modules of a source tree, those for types only included, and the circles among them."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

Graph = dict[str, set[str]]


def import_graph(root: Path, package: str) -> Graph:
    """Module -> the modules of ``package`` that any import statement in the module names, at whatever depth."""
    modules = {}
    for path in (root / package).rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: Graph = defaultdict(set)
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                named = [f"{node.module}.{alias.name}" for alias in node.names]
                graph[module] |= {name if name in modules else node.module for name in named}
            elif isinstance(node, ast.Import):
                graph[module] |= {alias.name for alias in node.names}
    return {module: {name for name in graph[module] if name in modules} for module in modules}


def circles(graph: Graph) -> list[frozenset[str]]:
    """Sets of modules that reach one another (strongly connected, more than one module)."""
    backward: Graph = defaultdict(set)
    for module, imported in graph.items():
        for name in imported:
            backward[name].add(module)
    found: list[frozenset[str]] = []
    seen: set[str] = set()
    for module in sorted(graph):
        if module in seen:
            continue
        circle = _reachable(graph, module) & _reachable(backward, module)
        seen |= circle
        if len(circle) > 1:
            found.append(frozenset(circle))
    return found


def _reachable(graph: Graph, start: str) -> set[str]:
    reached, todo = {start}, [start]
    while todo:
        new = graph.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    return reached
