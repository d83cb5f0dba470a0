"""Where an example plays: a folder, a session of Spark, some flights, and a place to print to.

An example is a module with ``play(scene)``, which tells what it does through ``scene`` and returns what came out, and
ends with ``if __name__ == "__main__": run(play)``. Tests call ``play`` with a scene of their own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from logstore.errors import LogStoreError
from spark_connector.examples.flights import read_flights
from spark_connector.session import spark_session

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # An example lives for a minute: compiling less and collecting in one thread halves what its JVM takes.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """``folder``: empty at first, for stores and checkpoints. ``flights``: rows in order of scheduled time."""

    spark: SparkSession
    folder: Path
    flights: list[dict[str, str]]

    @property
    def store(self) -> str:
        """The directory of the example's store."""
        return str(self.folder / "store")

    def checkpoint(self, query: str) -> str:
        """The directory in which Spark keeps how far this query is."""
        return str(self.folder / f"checkpoint-{query}")

    def say(self, text: str) -> None:
        print(f"-- {text}", flush=True)

    def show(self, frame: DataFrame, rows: int = 10) -> None:
        frame.show(rows, truncate=False)


def run(play: Callable[[Scene], Any]) -> None:
    """The example as a command. ``--path DIR`` keeps what it made; without, it is removed at the end."""
    module = sys.modules[play.__module__]
    parser = argparse.ArgumentParser(
        description=module.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--path", type=Path, help="an empty or new directory to play in, and to keep")
    parser.add_argument(
        "--flights", type=int, default=20_000, help="how many, in order of time (default 20,000)"
    )
    chosen = parser.parse_args()
    if chosen.flights < 1:
        parser.error("--flights must be 1 or more")
    if (
        chosen.path is not None
        and chosen.path.exists()
        and (chosen.path.is_file() or any(chosen.path.iterdir()))
    ):
        parser.error(f"--path {chosen.path} is not empty: an example begins with nothing")
    try:
        with tempfile.TemporaryDirectory(prefix="logstore-example-") as temporary:
            folder = chosen.path or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            spark = spark_session("local[2]", app=module.__name__, **SETTINGS)
            try:
                play(Scene(spark, folder, read_flights()[: chosen.flights]))
            finally:
                spark.stop()
    except LogStoreError as error:
        sys.exit(str(error))
