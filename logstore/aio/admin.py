"""``AsyncAdmin``: everything about topics, groups, producers and transactions, for asyncio."""

from __future__ import annotations

from logstore.aio.calls import InThread, Submit, Waits
from logstore.client.admin import Admin


class AsyncAdmin(Waits):
    """The methods of ``logstore.Admin`` as coroutines."""

    def __init__(self, twin: Admin, submit: Submit) -> None:
        self._twin = twin
        self._submit = submit

    create_topic = InThread(Admin.create_topic)
    list_topics = InThread(Admin.list_topics)
    describe_topic = InThread(Admin.describe_topic)
    alter_topic = InThread(Admin.alter_topic)
    add_partitions = InThread(Admin.add_partitions)
    delete_topic = InThread(Admin.delete_topic)
    delete_records = InThread(Admin.delete_records)
    list_producers = InThread(Admin.list_producers)
    delete_producer = InThread(Admin.delete_producer)
    list_transactions = InThread(Admin.list_transactions)
    describe_transaction = InThread(Admin.describe_transaction)
    abort_transaction = InThread(Admin.abort_transaction)
    find_hanging = InThread(Admin.find_hanging)
    end_hanging = InThread(Admin.end_hanging)
    compact = InThread(Admin.compact)
    erase_keys = InThread(Admin.erase_keys)
    list_groups = InThread(Admin.list_groups)
    describe_group = InThread(Admin.describe_group)
    seek_group = InThread(Admin.seek_group)
    delete_group = InThread(Admin.delete_group)
