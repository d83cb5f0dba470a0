"""Conversations as text: commands, and under each what it must answer. ``pytest --rewrite`` writes the answers anew,
to be reviewed as a diff (the form is that of etcd-io/raft's datadriven tests).

    # a comment, up to the next command
    open orders timeout=1000
    ----
    producer 7 epoch 0

    end orders
    ----
    ! UnknownTransactionError: transactional id ...

A command is one line of words, split as a shell does; the answer ends at an empty line. ``! `` and the name begin
the answer of a command that raised one of the project's errors.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from logstore.errors import LogStoreError

FOLDER = Path(__file__).parent / "scripts"
BETWEEN = "----"


class Rewriting:
    """Whether answers are written into the files instead of compared; conftest.py sets it from the option."""

    on = False


class Step(NamedTuple):
    """``number``: the command's line in the file, from 1; ``before``: comments and empty lines above it."""

    number: int
    before: tuple[str, ...]
    command: str
    answer: str


def parse(text: str) -> tuple[list[Step], list[str]]:
    """The steps, and the lines behind the last one. ValueError names the line that no step can hold."""
    steps: list[Step] = []
    before: list[str] = []
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.startswith("#"):
            before.append(line)
            continue
        number = at
        if at >= len(lines) or lines[at] != BETWEEN:
            raise ValueError(f"line {number + 1}: {BETWEEN!r} is due under the command {line!r}")
        at += 1
        answer = []
        while at < len(lines) and lines[at].strip():
            answer.append(lines[at])
            at += 1
        steps.append(Step(number, tuple(before), line, "\n".join(answer)))
        before = []
    return steps, before


def run_script(path: Path | str, commands: Mapping[str, Callable[[list[str]], str]]) -> None:
    """Run each command of the file with the words after its name, and compare what it answers.

    AssertionError lists every step that answered differently. An answer has no empty lines.
    """
    path = Path(path)
    steps, after = parse(path.read_text("utf-8"))
    assert steps, f"{path.name} holds no command"
    differing: list[str] = []
    rewritten: list[str] = []
    for step in steps:
        answer = _answer(step, commands)
        rewritten += (*step.before, step.command, BETWEEN, *(answer.split("\n") if answer else ()))
        if answer != step.answer:
            differing.append(
                f"{path.name}:{step.number}: {step.command}\n--- due\n{step.answer}\n--- found\n{answer}"
            )
    if Rewriting.on:
        path.write_text("\n".join([*rewritten, *after]) + "\n", "utf-8")
        return
    assert not differing, "\n\n".join(differing)


def _answer(step: Step, commands: Mapping[str, Callable[[list[str]], str]]) -> str:
    name, *words = shlex.split(step.command)
    command = commands.get(name)
    if command is None:
        raise ValueError(f"line {step.number}: no command {name!r}, there are {', '.join(sorted(commands))}")
    try:
        answer = command(words).rstrip("\n")
    except LogStoreError as error:
        answer = f"! {type(error).__name__}: {error}"
    if any(not line.strip() for line in answer.split("\n")) and answer:
        raise ValueError(
            f"line {step.number}: the answer of {step.command!r} holds an empty line: {answer!r}"
        )
    return answer
