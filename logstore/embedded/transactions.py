"""The transactional part of the embedded backend."""

from __future__ import annotations

from collections.abc import Collection

from logstore.api.transactions import HangingTransaction, TransactionSummary
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.embedded.transaction_services import TransactionServices


class EmbeddedTransactions:
    """Part of ``EmbeddedBackend``."""

    transactions: TransactionServices

    def init_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> CoordinatedLease:
        return self.transactions.manager.open(
            transactional_id, timeout_ms, coordinator=coordinator, keep_prepared=keep_prepared
        )

    def list_transactions(self) -> list[TransactionSummary]:
        return self.transactions.admin.summaries()

    def abort_transaction(self, transactional_id: str) -> TransactionSummary:
        return self.transactions.admin.abort(transactional_id)

    def find_hanging(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        return self.transactions.admin.find_hanging(topics)

    def end_hanging(self, hanging: HangingTransaction) -> None:
        self.transactions.admin.end_hanging(hanging)
