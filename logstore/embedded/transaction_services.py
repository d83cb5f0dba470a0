"""The parts of the embedded store that serve transactions, put together."""

from __future__ import annotations

from collections.abc import Callable

from logstore.coordination.transaction_manager import TransactionManager
from logstore.coordination.transaction_reaper import TransactionReaper
from logstore.coordination.transactional_offsets import TransactionalOffsets
from logstore.directory.producer_ids import ProducerIds
from logstore.embedded.coordination_parts import CoordinationParts
from logstore.embedded.transaction_admin import TransactionAdmin
from logstore.partition.context import StoreContext
from logstore.partition.topic_registry import TopicRegistry
from logstore.transactions.coordinator import TransactionState


class TransactionServices:
    """``manager``: open ids; ``reaper``: the housekeeper's part; ``admin``: the administrator's. ``may_forget``: see
    ``TransactionReaper``."""

    def __init__(
        self,
        context: StoreContext,
        registry: TopicRegistry,
        producer_ids: ProducerIds,
        offsets: TransactionalOffsets,
        parts: CoordinationParts,
        may_forget: Callable[[TransactionState], bool] | None = None,
    ) -> None:
        runtime = parts.transaction_runtime(producer_ids)
        self.manager = TransactionManager(context, runtime, offsets, parts.coordinators)
        self.reaper = TransactionReaper(
            self.manager,
            int(context.prepared_max_age_s * 1000),
            owners_return=parts.owners_return,
            may_forget=may_forget,
        )
        self.admin = TransactionAdmin(context, registry, self.manager, offsets, parts)

    def abandon(self) -> None:
        """As if the process had been killed: its ids are free for others."""
        self.manager.let_go()

    def close(self) -> None:
        self.manager.close()
