"""``PromptMembership``: a member at a broker that asks for news whenever its consumer polls, for tests of what members
see of each other: the same as in one process, and not a heartbeat later."""

from __future__ import annotations

import pytest

from logstore.errors import LogStoreError
from rpc.client.membership import RemoteMembership


class PromptMembership(RemoteMembership):
    def polled(self) -> None:
        super().polled()
        if self.ended_by() is None:
            try:
                self._beat_once(0)
            except LogStoreError:
                pass  # the heartbeat's thread meets it, too, and says what it means


def make_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that join from now on are prompt."""
    monkeypatch.setattr("rpc.client.data.RemoteMembership", PromptMembership)
