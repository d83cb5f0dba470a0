"""Conversations with the group coordinator, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.groups.conversation import Conversation
from tests.scripts import FOLDER, run_script


@pytest.mark.parametrize("path", sorted(FOLDER.glob("group_*.txt")), ids=lambda path: path.stem)
def test_group_conversation(path: Path) -> None:
    run_script(path, Conversation().commands())
