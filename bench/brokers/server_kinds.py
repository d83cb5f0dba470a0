"""The two servers of gRPC for Python, with a broker's work behind them: which one a broker is made of.

``python -m bench.brokers.server_kinds KIND`` is a server: its calls do a produce's work (look at the bytes in a thread
that may wait for a disk) or wait for records. The aio server has one event loop, and a thread of its pool for each call
at work; the sync server has a thread for each call, at work or waiting.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from bench import child
from bench.harness import Bench, Row, alone, percentile

QUESTION = "sync or aio server"
KINDS = ("aio", "sync")
WORKERS = 16
WAITING = 1000
"""Long polls at once."""

_PRODUCE, _WAIT = "/bench.Server/Produce", "/bench.Server/Wait"
_BATCH = bytes(64 << 10)
_STARTED_WITHIN_S = 30.0


def _work(data: bytes) -> bytes:
    return b"%d" % zlib.crc32(data)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Methods by path."""

    def __init__(self, methods: dict[str, Any]) -> None:
        self._methods = {path: grpc.unary_unary_rpc_method_handler(serve) for path, serve in methods.items()}

    def service(self, details: Any) -> Any:
        return self._methods.get(details.method)


def serve_sync() -> None:
    records = threading.Event()

    def wait(data: bytes, context: Any) -> bytes:
        del context
        records.wait(60)
        return data

    def produce(data: bytes, context: Any) -> bytes:
        del context
        return _work(data)

    server = grpc.server(ThreadPoolExecutor(WAITING + WORKERS))
    server.add_generic_rpc_handlers((_Handler({_PRODUCE: produce, _WAIT: wait}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


async def serve_aio() -> None:
    pool = ThreadPoolExecutor(WORKERS)
    loop, records = asyncio.get_running_loop(), asyncio.Event()

    async def produce(data: bytes, context: Any) -> bytes:
        del context
        return await loop.run_in_executor(pool, _work, data)

    async def wait(data: bytes, context: Any) -> bytes:
        del context
        await asyncio.wait_for(records.wait(), 60)
        return data

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Handler({_PRODUCE: produce, _WAIT: wait}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


@contextmanager
def running(kind: str) -> Iterator[tuple[int, str]]:
    """A server's process and address."""
    command = [sys.executable, "-m", "bench.brokers.server_kinds", kind]
    process = subprocess.Popen(command, cwd=child.ROOT, stdout=subprocess.PIPE, text=True)
    late = threading.Timer(_STARTED_WITHIN_S, process.kill)
    late.start()
    try:
        assert process.stdout is not None  # it was asked for
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the server ended with {process.wait()}")
        yield process.pid, f"127.0.0.1:{port}"
    finally:
        late.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def busy_s(pid: int) -> float:
    """Processor time that the process took so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(kind: str, singles: int, batches: int) -> dict[str, float]:
    """Figures of one server, in a process of its own."""
    found: dict[str, float] = {}
    with running(kind) as (pid, address), grpc.insecure_channel(address) as channel:
        produce, wait = channel.unary_unary(_PRODUCE), channel.unary_unary(_WAIT)
        for _ in range(200):
            produce(b"warm")
        took = []
        for _ in range(singles):
            began = time.perf_counter()
            produce(bytes(1024))
            took.append(time.perf_counter() - began)
        found["p50"], found["p99"] = percentile(took, 50), percentile(took, 99)
        began, worked_s = time.perf_counter(), busy_s(pid)
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(produce, [_BATCH] * batches))
        found["batches"] = batches / (time.perf_counter() - began)
        found["work"] = (busy_s(pid) - worked_s) / batches
        before = resident_mb(pid)
        waiting = [wait.future(b"") for _ in range(WAITING)]
        time.sleep(2)  # they have all arrived
        began, worked_s = time.perf_counter(), busy_s(pid)
        time.sleep(2)
        found["idle"] = (busy_s(pid) - worked_s) / (time.perf_counter() - began)
        found["waiting"] = (resident_mb(pid) - before) / WAITING
        found["threads"] = len(os.listdir(f"/proc/{pid}/task"))
        for call in waiting:
            call.cancel()
    return found


def run(bench: Bench) -> Iterator[Row]:
    singles, batches = bench.size(3_000, 300), bench.size(8_000, 500)
    figures: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    for number in range(bench.rounds):
        for kind in KINDS if number % 2 else reversed(KINDS):
            for name, figure in measure(kind, singles, batches).items():
                figures[kind].setdefault(name, []).append(figure)
    for kind in KINDS:
        of = figures[kind]
        yield alone(QUESTION, f"{kind}: one call of 1 KiB, p50", of["p50"], unit="ms", scale=1e3)
        yield alone(QUESTION, f"{kind}: one call of 1 KiB, p99", of["p99"], unit="ms", scale=1e3)
        yield alone(QUESTION, f"{kind}: calls of 64 KiB, 8 at once", of["batches"], unit="calls/s")
        yield alone(QUESTION, f"{kind}: processor time of such a call", of["work"], unit="us", scale=1e6)
        note = f"{WAITING:,} calls that wait for records"
        yield alone(
            QUESTION, f"{kind}: memory of a waiting call", of["waiting"], unit="KiB", scale=1024, note=note
        )
        yield alone(QUESTION, f"{kind}: threads with those", of["threads"], unit="threads", note=note)
        yield alone(QUESTION, f"{kind}: a core's time with those", of["idle"], unit="%", scale=100, note=note)


if __name__ == "__main__":
    serve_sync() if sys.argv[1] == "sync" else asyncio.run(serve_aio())
