"""The connector's README: its snippets run as pasted, one after another; what they print is what the text says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import logstore
import spark_connector
from tests.spark.test_session import until

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]
README = Path(spark_connector.__file__).with_name("README.md")
FOLDERS = ("data", "ckpt", "counting-ckpt")


def snippets(folder: Path) -> list[str]:
    """As they stand there, but for where their directories are: Spark's workers run where the session was made."""
    found = []
    for block in re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for name in FOLDERS:
            block = re.sub(rf"(['\"]){name}\1", rf"\g<1>{folder / name}\1", block)
        found.append(block)
    return found


def test_every_snippet_runs_as_pasted(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = snippets(tmp_path)
    assert len(blocks) >= 6
    namespace: dict[str, Any] = {}
    try:
        for block in blocks:
            exec(compile(block, str(README), "exec"), namespace)
        printed = capsys.readouterr().out
        query = namespace["live"].writeStream.format("noop").trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "watched")).start()
        assert query.awaitTermination(60)
        until(lambda: said(capsys, "'maxOffsetsBehindLatest': '0'"))
    finally:
        if "lag" in namespace:
            spark.streams.removeListener(namespace["lag"])
    assert "|flights|        0|    1|" in printed
    with logstore.open(tmp_path / "data", mode="r") as store:
        values = [
            record.value for record in store.partition("late", 0).records(0, isolation="read_committed")
        ]
    assert values[:3] == [b"UA 1545, late by 11 min", b"landed", b"on time"]
    counted = [int(value) for value in values[3:] if value is not None]
    assert counted == list(range(len(counted)))
    assert "|       2|" in printed  # what the view counts


def said(capsys: pytest.CaptureFixture[str], text: str) -> bool:
    """Whether a listener has printed the text by now."""
    return text in capsys.readouterr().out
