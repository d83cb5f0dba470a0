"""The option ``--rewrite`` of the whole suite, see scripts.py."""

from __future__ import annotations

import pytest

from tests.scripts import Rewriting


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the commands of tests/scripts/*.txt answer into the files",
    )


def pytest_configure(config: pytest.Config) -> None:
    Rewriting.on = bool(config.getoption("--rewrite"))
