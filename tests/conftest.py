"""The option ``--rewrite`` of the whole suite, see scripts.py, and how many workers share it."""

from __future__ import annotations

import os

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For ``-n auto``: tests wait for disks and other processes a third of their time."""
    del config
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2
