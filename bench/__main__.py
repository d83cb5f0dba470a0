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

ENGINE = (
    "append", "send_many", "send", "durable", "group_commit", "consume", "random_read", "open_store",
    "idle", "batches", "growth", "compaction", "idempotence", "isolation", "groups", "commits",
    "transactions", "table", "following", "beside_cleaning",
)  # fmt: skip
CONNECTOR = ("spark", "spark_sink")
BROKERS = ("rpc", "server_kinds")
QUESTIONS = ENGINE + CONNECTOR + BROKERS
BY_NAME = ("kafka", "cluster", "spark_kafka")
"""Asked by name alone: they need what is not there by itself, or take long."""
WINGS = (
    dict.fromkeys(ENGINE, "engine")
    | dict.fromkeys((*CONNECTOR, "spark_kafka"), "connector")
    | dict.fromkeys((*BROKERS, "kafka", "cluster"), "brokers")
)
HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results")
README = os.path.join(os.path.dirname(HERE), "README.md")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("questions", nargs="*", metavar="QUESTION", help=", ".join(QUESTIONS + BY_NAME))
    add("--quick", action="store_true", help="smaller sizes, fewer rounds; prints, writes nothing")
    add("--dir", default=None, help="where the sides write (default: the temporary folder)")
    add("--save", metavar="NAME", help="write the rows of these questions to results/NAME.json and NAME.md")
    add("--render", action="store_true", help="measure nothing; write the pages anew from latest.json")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.questions if name not in QUESTIONS + BY_NAME]
    if unknown:
        parser.error(f"no question {', '.join(unknown)}; there are {', '.join(QUESTIONS + BY_NAME)}")
    return chosen


def ask(names: list[str], bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        began = time.perf_counter()
        rows += importlib.import_module(f"bench.{WINGS[name]}.{name}").run(bench)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def render(done: report.Report) -> None:
    """The page of results, and the rows that README quotes."""
    write(os.path.join(RESULTS, "RESULTS.md"), report.markdown(done))
    write(README, report.with_results(read(README), done))


def keep_bytecode(folder: str) -> None:
    """The processes of both sides find compiled modules, as an installed package has them, also where the environment
    keeps none beside the sources."""
    if sys.dont_write_bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = os.path.join(folder, "bytecode")
        sys.dont_write_bytecode = False


def main(arguments: list[str]) -> None:
    """Results are written by a full run of all questions, or under a name of their own: rows of different runs do not
    share a table."""
    chosen = parse(arguments)
    latest = os.path.join(RESULTS, "latest.json")
    if chosen.render:
        render(report.from_json(read(latest)))
        return
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="logstore-bench-", dir=chosen.dir) as folder:
        keep_bytecode(folder)
        facts = machine.describe(folder) | {"pace_before": machine.pace()}
        rows = ask(chosen.questions or list(QUESTIONS), Bench(folder=folder, quick=chosen.quick))
        facts["pace_after"] = machine.pace()
    print(report.table(rows))
    if chosen.save is None and (chosen.questions or chosen.quick):
        return
    done = report.Report(
        machine=facts,
        quick=chosen.quick,
        finished=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=time.perf_counter() - began,
        rows=rows,
    )
    os.makedirs(RESULTS, exist_ok=True)
    if chosen.save is not None:
        write(os.path.join(RESULTS, f"{chosen.save}.json"), report.as_json(done))
        write(os.path.join(RESULTS, f"{chosen.save.upper()}.md"), report.markdown(done))
        return
    write(latest, report.as_json(done))
    render(done)


if __name__ == "__main__":
    main(sys.argv[1:])
