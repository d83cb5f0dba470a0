"""The coordinator's conversations, as scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import FOLDER, run_script
from tests.transactions.conversation import Conversation

SCRIPTS = sorted(FOLDER.glob("transaction_*.txt"))


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_coordinator_answers_as_written(path: Path) -> None:
    run_script(path, Conversation().commands())
