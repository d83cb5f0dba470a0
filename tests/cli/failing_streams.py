"""Commands with streams that fail: children forked from a process that has the command's modules already, so that
dozens of calls take seconds. Each child is the whole command, up to what the interpreter does at its end."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

CASES = ("full device", "closed pipe", "no stdout")


@dataclass(frozen=True)
class Outcome:
    """How a call ended: its exit code and what it wrote to stderr."""

    words: list[str]
    code: int
    errors: str


def run_cases(store: Path, case: str, calls: list[list[str]], *, unbuffered: bool) -> list[Outcome]:
    """Each call in a child of its own, with the stdout of ``case``."""
    request = {"store": str(store), "case": case, "calls": calls, "unbuffered": unbuffered}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.failing_streams"],
        input=json.dumps(request).encode(),
        stdout=subprocess.PIPE,
        timeout=250,
        check=True,
    )
    return [Outcome(**row) for row in json.loads(done.stdout)]


def _serve() -> None:
    import tests.cli.commands  # noqa: F401 - imports every command, for the children

    request = json.load(sys.stdin)
    rows = []
    for words in request["calls"]:
        with tempfile.TemporaryFile() as errors:
            pid = os.fork()
            if not pid:
                try:
                    _become(
                        ["--path", request["store"], *words], request["case"], request["unbuffered"], errors
                    )
                finally:
                    os._exit(99)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            errors.seek(0)
            rows.append({"words": words, "code": code, "errors": errors.read().decode(errors="replace")})
    sys.stdout.write(json.dumps(rows))


def _become(words: list[str], case: str, unbuffered: bool, errors: io.BufferedIOBase) -> NoReturn:
    os.dup2(errors.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if case == "full device":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    elif case == "closed pipe":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    else:
        os.close(1)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)))
    if case == "no stdout":
        sys.stdout = None  # type: ignore[assignment]  # as the interpreter starts then
    else:
        raw = io.FileIO(1, "w", closefd=False)
        buffer = raw if unbuffered else io.BufferedWriter(raw)
        sys.stdout = io.TextIOWrapper(buffer, "utf-8", write_through=unbuffered)  # type: ignore[type-var]
    os._exit(_exit_code(words))


def _exit_code(words: list[str]) -> int:
    """What the interpreter would make of it: a traceback for what is no exit, 120 for a failing last flush."""
    from logstore.cli.main import main

    sys.argv = ["logstore", *words]
    code = 0
    try:
        main()
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BaseException:  # noqa: BLE001 - shown, as the interpreter would
        import traceback

        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"Exception ignored in: stdout: {error}\n")
        code = 120
    return code


if __name__ == "__main__":
    _serve()
