"""Compiles the extension modules: for the build hook, and in place by ``python -m logstore.native.build``.

Cython writes C, and the compiler that Python was built with (or ``CC``) makes a shared library of it. Neither has
to be there: ``BuildSkippedError`` says what is missing, and the Python twin serves.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from logstore.native.modules import FOLDER, MODULES, file_of, fingerprint

NO_BUILD = "LOGSTORE_NO_BUILD"
"""``1`` in this environment variable: compile nothing."""

REQUIRE_BUILD = "LOGSTORE_REQUIRE_BUILD"
"""``1`` in this environment variable: the build hook fails where it cannot compile."""

_ROOT = FOLDER.parent.parent
_MARK = "logstore-source:"
_DIRECTIVES = [
    # Methods are of CPython's own kind, which looks at the type of ``self``. Cython's own functions do not: one that is
    # called by its class with another object would take that object's memory for its fields.
    "-Xbinding=False",
    "-Xembedsignature=True",  # what ``inspect.signature`` reads, which such methods have nothing else for
    "-Xembedsignature.format=clinic",
    # None where a compiled class is declared is an AttributeError, and not memory that is read as that class's fields.
    "-Xnonecheck=True",
]


class BuildSkippedError(Exception):
    """The extension modules were not compiled; the message says why."""


def suffix() -> str:
    """The end of an extension module's file name, which names the Python it is for."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def build(target: Path, *, force: bool = False, flags: Sequence[str] = ()) -> list[Path]:
    """Compile the extension modules into the folder ``target``; their files.

    Without ``force``, a file there that was made from the same source is kept. ``flags``: more of the compiler's.
    ``BuildSkippedError`` where a tool is missing or fails: then nothing in ``target`` has changed.
    """
    done = [file_of(name, suffix(), target) for name in MODULES]
    due = [name for name, path in zip(MODULES, done, strict=True) if force or not _is_current(name, path)]
    if not due:
        return done
    compiler = _compiler()
    with tempfile.TemporaryDirectory(prefix="logstore-native-") as work:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            libraries = pool.map(lambda name: _make(name, Path(work), compiler, flags), due)
            made = [
                (file, file_of(name, suffix(), target)) for name, file in zip(due, libraries, strict=True)
            ]
        for file, path in made:
            # Beside its place first, then renamed: a process that has the old file mapped keeps it, and no process
            # ever sees half a file.
            path.parent.mkdir(exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            shutil.copyfile(file, beside)
            beside.replace(path)
    return done


def _is_current(name: str, path: Path) -> bool:
    try:
        return f"{_MARK}{fingerprint(name)}".encode() in path.read_bytes()
    except OSError:
        return False


def _compiler() -> list[str]:
    if os.environ.get(NO_BUILD) == "1":
        raise BuildSkippedError(f"{NO_BUILD}=1 is set")
    if find_spec("Cython") is None:
        raise BuildSkippedError("Cython is not installed")
    command = shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc"))
    if not command or shutil.which(command[0]) is None:
        raise BuildSkippedError(f"no C compiler: {' '.join(command)!r} is not there")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.exists():
        raise BuildSkippedError(f"Python's own header is not there: {header}")
    return command


def _make(name: str, work: Path, compiler: list[str], flags: Sequence[str]) -> Path:
    """One shared library, in the folder ``work``."""
    source, code, made = file_of(name, ".pyx"), work / f"{name}.c", work / f"{name}{suffix()}"
    # -w: the package's name in the module's own is found from the folders above the source.
    _run([sys.executable, "-m", "cython", "-3", "-w", str(_ROOT), *_DIRECTIVES, "-o", str(code), str(source)])
    paths = sysconfig.get_paths()
    mark = f'"{_MARK}{fingerprint(name)}"'
    _run(
        [
            *compiler,
            *_shared_library_flags(),
            "-O3",
            "-fwrapv",
            "-DNDEBUG",
            f"-DLOGSTORE_SOURCE={mark}",
            *(f"-I{folder}" for folder in {paths["include"], paths["platinclude"]}),
            *shlex.split(os.environ.get("ARCHFLAGS", "")),
            *shlex.split(os.environ.get("CFLAGS", "")),
            *flags,
            str(code),
            "-o",
            str(made),
            *shlex.split(os.environ.get("LDFLAGS", "")),
        ]
    )
    return made


def _shared_library_flags() -> list[str]:
    if sys.platform == "darwin":
        return ["-bundle", "-undefined", "dynamic_lookup"]
    return ["-shared", "-fPIC"]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-4000:]
        raise BuildSkippedError(f"{shlex.join(command)} failed:\n{said}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 if the extension modules are in place, 1 with a sentence if not."""
    parser = argparse.ArgumentParser(
        prog="python -m logstore.native.build",
        description="Compile the extension modules beside their sources.",
    )
    parser.add_argument("--force", action="store_true", help="also what is current")
    chosen = parser.parse_args(arguments)
    try:
        made = build(FOLDER, force=chosen.force)
    except BuildSkippedError as error:
        sys.stderr.write(f"not built, the Python twin serves: {error}\n")
        return 1
    sys.stdout.write("".join(f"{path.relative_to(_ROOT)}\n" for path in made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
