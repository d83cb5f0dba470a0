"""Hatchling's hook: compiled extension modules in the wheel where a C compiler is there, a pure wheel where none is.

``pip install .`` gets a wheel for this platform with the modules in it. An editable install gets them beside their
sources, where Python finds them. Nothing is fetched.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):
    """Compiles before the wheel is put together."""

    _work: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """``version``: "standard" or "editable". Changes ``build_data`` for a wheel that holds the modules."""
        sys.path.insert(0, self.root)  # the tree that is being built, not one that is installed
        try:
            from logstore.native import build, modules
        finally:
            sys.path.remove(self.root)
        try:
            if version == "editable":
                build.build(modules.FOLDER)
                return
            self._work = tempfile.TemporaryDirectory(prefix="logstore-wheel-")
            target = Path(self._work.name)
            made = build.build(target)
        except build.BuildSkippedError as error:
            self._clear()
            if os.environ.get(build.REQUIRE_BUILD) == "1":
                raise
            self.app.display_warning(f"logstore: the Python twin will serve, nothing was compiled: {error}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(
            {str(path): f"logstore/native/{path.relative_to(target)}" for path in made}
        )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: the compiled files outside it go."""
        del version, build_data, artifact_path
        self._clear()

    def _clear(self) -> None:
        if self._work is not None:
            self._work.cleanup()
