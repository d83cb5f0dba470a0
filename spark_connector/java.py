"""Whether there is a Java that Spark can run on; one sentence if there is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Final

from logstore.errors import UnsupportedPlatformError

LEAST: Final = 17
_VERSION = re.compile(r'version "(\d+)')
_HINT = (
    "install Java 17 or 21 (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one"
)


def java_version() -> int | None:
    """The major version of the Java that Spark would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if command is None:
        return None
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return None if match is None else int(match[1])


def why_not(version: int | None) -> str | None:
    """What is wrong with this version of Java; None if nothing is."""
    if version is None:
        return "Spark needs Java and none was found"
    return None if version >= LEAST else f"Spark needs Java {LEAST} or newer and found {version}"


def require_java() -> None:
    """``UnsupportedPlatformError`` in one sentence if Java is missing or too old: call it before a session."""
    reason = why_not(java_version())
    if reason is not None:
        raise UnsupportedPlatformError(reason, hint=_HINT)
