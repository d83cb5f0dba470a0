"""Children of a bench, which measure in a process of their own.

A fresh process has a limit on descriptors of its own, its own processor time, and can die without a close. What a
child does is in ``child_work``; a child prints figures as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # benches are run from the tree


def call(verb: str, **arguments: Any) -> dict[str, float]:
    """Run a verb in a child and give back its figures; a child that fails is loud."""
    command = [sys.executable, "-m", "bench.child_work", verb, json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return {name: float(value) for name, value in json.loads(done.stdout or "{}").items()}


class Running:
    """A verb at work in a child of its own; it may say a line (``say``) before its figures."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def await_line(self) -> None:
        """Until the child has said something, or has ended."""
        if self._process.stdout is not None:
            self._process.stdout.readline()

    def figures(self) -> dict[str, float]:
        """Wait for the end; a child that failed is loud."""
        out, _ = self._process.communicate()
        if self._process.returncode:
            raise subprocess.CalledProcessError(self._process.returncode, self._process.args)
        return {name: float(value) for name, value in json.loads(out).items()}


def begin(verb: str, **arguments: Any) -> Running:
    """Start a verb in a child."""
    command = [sys.executable, "-m", "bench.child_work", verb, json.dumps(arguments)]
    return Running(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
