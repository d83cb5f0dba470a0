"""Campaigns run only when they are asked for: ``-m long``."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "long" in str(config.getoption("markexpr")):
        return
    campaigns = [item for item in items if item.get_closest_marker("long") is not None]
    if campaigns:
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if item not in campaigns]
