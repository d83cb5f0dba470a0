"""What the whole suite shares: the option ``--rewrite`` (scripts.py), compiled modules for processes that it starts."""

from __future__ import annotations

import os
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.scripts import Rewriting

_compiled = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the commands of tests/scripts/*.txt answer into the files",
    )


# How long an example takes, or drawing it, says how busy the machine is: Hypothesis allows 200 ms.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    Rewriting.on = bool(config.getoption("--rewrite"))
    if sys.dont_write_bytecode:
        config.stash[_compiled] = _keep_bytecode()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _compiled in config.stash:
        config.stash[_compiled].cleanup()


def _keep_bytecode() -> tempfile.TemporaryDirectory[str]:
    """Compiled modules go to a folder that is gone at the end, where the environment wants none beside the sources.

    The suite starts hundreds of processes, each of which would compile some 250 modules anew: more than half of what a
    broker's start costs. The workers of pytest are started after this, and inherit it.
    """
    folder = tempfile.TemporaryDirectory(prefix="logstore-bytecode-", ignore_cleanup_errors=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder.name
    sys.dont_write_bytecode = False
    return folder
