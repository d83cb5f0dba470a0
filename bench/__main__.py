"""``python -m bench [--quick] [QUESTION ...]``: run, print one table, write the results."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from datetime import UTC, datetime

from bench import machine, report
from bench.harness import Bench, Row

QUESTIONS = (
    "append", "send_many", "send", "durable", "group_commit", "consume", "random_read", "open_store", "idle",
    "batches", "growth",
)  # fmt: skip
HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results")
README = os.path.join(os.path.dirname(HERE), "README.md")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=", ".join(QUESTIONS))
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--dir", default=None, help="where the sides write (default: the temporary folder)")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.questions if name not in QUESTIONS]
    if unknown:
        parser.error(f"no question {', '.join(unknown)}; there are {', '.join(QUESTIONS)}")
    return chosen


def ask(names: list[str], bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        began = time.perf_counter()
        rows += importlib.import_module(f"bench.{name}").run(bench)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def write(name: str, text: str) -> None:
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def main(arguments: list[str]) -> None:
    """Results are written when all questions were asked: rows of different runs do not share a table."""
    chosen = parse(arguments)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="logstore-bench-", dir=chosen.dir) as folder:
        facts = machine.describe(folder)
        rows = ask(chosen.questions or list(QUESTIONS), Bench(folder=folder, quick=chosen.quick))
    print(report.table(rows))
    if chosen.questions:
        return
    done = report.Report(
        machine=facts,
        quick=chosen.quick,
        finished=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=time.perf_counter() - began,
        rows=rows,
    )
    os.makedirs(RESULTS, exist_ok=True)
    write(os.path.join(RESULTS, "latest.json"), report.as_json(done))
    write(os.path.join(RESULTS, "RESULTS.md"), report.markdown(done))
    with open(README, encoding="utf-8") as file:
        readme = file.read()
    write(README, report.with_results(readme, done))


if __name__ == "__main__":
    main(sys.argv[1:])
