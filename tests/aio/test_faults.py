"""The asyncio twins on a full disk, beside another process, and in a child that was forked."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import logstore.aio
from logstore.errors import DiskFullError, ForkedStoreError, TopicLockedError
from logstore.testing.disk import FaultyDisk
from tests.worker_process import REPOSITORY

PATIENCE_S = 60.0


def run(work: object) -> object:
    return asyncio.run(asyncio.wait_for(work, PATIENCE_S))  # type: ignore[arg-type]


def test_a_full_disk_is_told_and_everything_goes_on_behind_it(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def work() -> list[bytes | None]:
        async with logstore.aio.open(tmp_path / "s", fs=disk) as store:
            await store.create_topic("t")
            async with store.producer(disk_full_timeout_ms=100) as producer:
                await (await producer.send("t", b"1"))
                disk.full = True
                with pytest.raises(DiskFullError):
                    await (await producer.send("t", b"2"))
                log = await store.partition("t", 0)
                with pytest.raises(DiskFullError):
                    await log.append([(None, b"3")])
                assert [record.value async for record in log.records(0)] == [b"1"]
                disk.full = False
                await (await producer.send("t", b"4"))
            return [record.value async for record in log.records(0)]

    assert run(work()) == [b"1", b"4"]


def test_the_loop_goes_on_while_another_process_holds_the_topic(tmp_path: Path) -> None:
    """A send behind a topic of another process waits in its thread, and is told by name."""
    root = tmp_path / "s"
    with logstore.open(root) as store:
        store.create_topic("t")
    command = [sys.executable, "-m", "tests.workers", "own", str(root), "t"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "owned"

        assert holder.stdin is not None
        let_go = holder.stdin.close

        async def work() -> None:
            async with logstore.aio.open(root, lock_timeout_s=0.2) as store:
                log = await store.partition("t", 0)
                with pytest.raises(TopicLockedError, match=str(holder.pid)):
                    await log.append([(None, b"mine, too")])
                assert [record.value async for record in log.records(0)] == [b"mine"]
            async with logstore.aio.open(root, lock_timeout_s=PATIENCE_S) as store:
                log = await store.partition("t", 0)
                append = asyncio.create_task(log.append([(None, b"mine, too")]))
                for _ in range(20):  # the loop has its turns
                    await asyncio.sleep(0.01)
                    assert not append.done()
                let_go()
                assert (await append).offset == 1

        run(work())
        assert holder.stdout.read().split() == ["closed"]
        holder.wait(PATIENCE_S)


FORKED = """
import asyncio, os, sys
import logstore.aio
from logstore.errors import LogStoreError

async def main():
    async with logstore.aio.open(sys.argv[1]) as store:
        await store.create_topic("t")
        log = await store.partition("t", 0)
        await log.append([(None, b"parent")])
        child = os.fork()
        if child == 0:
            try:
                with_twin = store._twin.partition("t", 0)
                with_twin.append([(None, b"child")])
            except LogStoreError as error:
                os._exit(7 if type(error).__name__ == "ForkedStoreError" else 8)
            os._exit(9)
        _, status = os.waitpid(child, 0)
        await log.append([(None, b"parent again")])
        values = [record.value async for record in log.records(0)]
        print(os.waitstatus_to_exitcode(status), values)

asyncio.run(main())
"""


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    assert ForkedStoreError.__name__ == "ForkedStoreError"
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.stdout.strip() == "7 [b'parent', b'parent again']", done.stderr
