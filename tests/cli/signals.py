"""Commands that get a signal at a chosen call of the file system: children forked from a process that has the
command's modules already. Each child is the whole command on a copy of the store, up to its exit."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

_CALLS: Final = ("open", "rename", "remove", "sync_dir", "listdir", "stat", "mkdir", "link")
_FILE_CALLS: Final = ("pread", "pwritev", "sync", "truncate")
_NOT_ENDED: Final = 99


@dataclass(frozen=True)
class Ended:
    """``at``: the call before which the signal came, from 1; ``calls``: how many there were all in all."""

    at: int
    code: int
    calls: int
    out: str
    errors: str
    store: str


def interrupted(store: Path, words: list[str], number: signal.Signals, places: list[int]) -> list[Ended]:
    """The command once for each of ``places``; 0: no signal comes."""
    request = {"store": str(store), "words": words, "number": int(number), "places": places}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.signals"],
        input=json.dumps(request).encode(),
        stdout=subprocess.PIPE,
        timeout=250,
        check=True,
    )
    return [Ended(**row) for row in json.loads(done.stdout)]


def _serve() -> None:
    import tests.cli.commands  # noqa: F401 - imports every command, for the children

    request = json.load(sys.stdin)
    rows = []
    for at in request["places"]:
        store = f"{request['store']}-{request['number']}-{at}"
        shutil.copytree(request["store"], store)
        words = ["--path", store, *(word.replace("STORE", store) for word in request["words"])]
        with (
            tempfile.TemporaryFile() as stdin,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
        ):
            counted, counts = os.pipe()
            pid = os.fork()
            if not pid:
                try:
                    _become(
                        words, at, request["number"], (stdin.fileno(), out.fileno(), errors.fileno()), counts
                    )
                finally:
                    os._exit(_NOT_ENDED)
            os.close(counts)
            calls = 0
            while piece := os.read(counted, 1 << 16):
                calls += len(piece)
            os.close(counted)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            texts = []
            for file in (out, errors):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
            rows.append(
                {"at": at, "code": code, "calls": calls, "out": texts[0], "errors": texts[1], "store": store}
            )
    sys.stdout.write(json.dumps(rows))


def _become(words: list[str], at: int, number: int, streams: tuple[int, ...], counts: int) -> NoReturn:
    from logstore.cli.main import main

    for target, source in enumerate(streams):
        os.dup2(source, target)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)))
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _count_calls(at, number, counts)
    sys.argv = ["logstore", *words]
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 0)


def _count_calls(at: int, number: int, counts: int) -> None:
    from logstore.seams import fs
    from logstore.seams.fs import OsFileSystem

    numbers = itertools.count(1)

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **settings: Any) -> Any:
            os.write(counts, b".")
            if next(numbers) == at:
                os.kill(os.getpid(), number)
            return call(*arguments, **settings)

        return counted

    for kind, names in ((OsFileSystem, _CALLS), (fs.OsFile, _FILE_CALLS)):
        for name in names:
            setattr(kind, name, counting(getattr(kind, name)))


if __name__ == "__main__":
    _serve()
