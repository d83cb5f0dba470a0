"""``valueFormat=json`` beside Spark's own ``from_json``, on the same records: alike, or as the README's table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import col, from_json

import logstore
from tests.spark.sources import TOPIC

pytestmark = pytest.mark.xdist_group("spark")

SCHEMA = (
    "i INT, l BIGINT, t TINYINT, f DOUBLE, s STRING, b BOOLEAN, d DATE, ts TIMESTAMP, ntz TIMESTAMP_NTZ, "
    "bin BINARY, dec DECIMAL(10,2), ints ARRAY<INT>, texts ARRAY<STRING>, at STRUCT<x: INT, d: DATE, bin: BINARY>, "
    "days ARRAY<STRUCT<d: DATE, bin: BINARY>>"
)
ALIKE = [
    '{"i": 1, "l": 9223372036854775807, "t": -128, "f": 1.5, "s": "é", "b": true}',
    '{"f": 1, "i": -0, "dec": 1}',
    '{"d": "2024-01-31"}',
    '{"d": "0001-01-01"}',
    '{"ts": "2024-01-31T10:20:30Z"}',
    '{"ts": "2024-01-31T10:20:30.123456Z"}',
    '{"ts": "2024-01-31T10:20:30+02:00"}',
    '{"ts": "2024-01-31 10:20:30"}',
    '{"ts": "2024-01-31"}',
    '{"ntz": "2024-01-31T10:20:30"}',
    '{"ntz": "2024-01-31 10:20:30.5"}',
    '{"bin": "YWI="}',
    '{"bin": ""}',
    '{"dec": 1.5}',
    '{"dec": "1.5"}',
    '{"dec": 1e2}',
    '{"ints": [1, null], "texts": ["a"]}',
    '{"ints": [], "at": {}}',
    '{"at": {"x": 1, "d": "2024-01-31", "bin": "YWI=", "more": 1}}',
    '{"days": [{"d": "2024-01-31", "bin": "YWI="}, null, {}]}',
    '{"i": null, "d": null, "bin": null, "at": null, "ints": null, "ts": null}',
    "{}",
    '{"more": {"i": 1}}',
    '{"I": 1}',
    ' {"i":\n1}\n',
]
"""No field is bad: the same struct, and no error."""

EITHER_NULL = [
    '{"s": "kept there", "i": "1"}',
    '{"i": 1.0}',
    '{"i": 2147483648}',
    '{"f": "1.5"}',
    '{"b": "true"}',
    '{"d": "2024-02-30"}',
    '{"d": 19000}',
    '{"ts": "soon"}',
    '{"ntz": "2024-01-31T10:20:30Z"}',
    '{"bin": "YW"}',
    '{"bin": 1}',
    '{"dec": 123456789012.5}',
    '{"ints": 1}',
    '{"ints": [1, "x"]}',
    '{"at": [1]}',
    '{"at": {"x": "y"}}',
    '{"i": 1',
    "[1]",
    "null",
    '"x"',
    "{i: 1}",
    '{"i": 1,}',
]
"""What does not fit: there the field is null and others stay, here the value is null and ``valueError`` says why."""

THERE_READ = {
    '{"s": 1}': Row(s="1"),
    '{"s": {"b": 1}}': Row(s='{"b":1}'),
    '{"texts": ["a", 1]}': Row(texts=["a", "1"]),
    '{"f": "NaN"}': None,
    '{"f": 1e400}': Row(f=float("inf")),
    '{"t": 200}': Row(t=-56),
    '{"d": "2024-1-3"}': None,
    '{"d": "2024-01-31T10:00:00"}': None,
    '{"ts": 1706696430}': None,
    '{"ts": "2024-01-31T10:20:30.123456789Z"}': None,
    '{"dec": 1.555}': None,
    '{"i": 1, "i": 2}': Row(i=2),
    '{"i": 1} x': Row(i=1),
    "{'i': 1}": Row(i=1),
}
"""What ``from_json`` makes something of (None: what, does not matter) and the source calls a bad value."""


@pytest.mark.slow
def test_every_record_is_as_from_json_has_it_or_as_the_readme_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = [*ALIKE, *EITHER_NULL, *THERE_READ]
    with logstore.open(tmp_path) as store:
        store.create_topic(TOPIC)
        store.partition(TOPIC, 0).append([(None, text.encode()) for text in texts])
    source = spark.read.format("logstore").option("subscribe", TOPIC)
    plain = source.load(str(tmp_path)).select(
        "offset", from_json(col("value").cast("string"), SCHEMA).alias("theirs")
    )
    ours = source.option("valueFormat", "json").option("valueSchema", SCHEMA).load(str(tmp_path))
    found: dict[str, Any] = {
        texts[row.offset]: row
        for row in ours.select("offset", "value", "valueError").join(plain, "offset").collect()
    }
    assert len(found) == len(texts)
    for text in ALIKE:
        assert (found[text].value, found[text].valueError) == (found[text].theirs, None), text
    for text in [*EITHER_NULL, *THERE_READ]:
        assert found[text].value is None, text
        assert found[text].valueError, text
    assert found[EITHER_NULL[0]].theirs.s == "kept there"
    for text, expected in THERE_READ.items():
        theirs = found[text].theirs.asDict(recursive=False)
        if expected is not None:
            assert {name: theirs[name] for name in expected.asDict()} == expected.asDict(), text
        else:
            assert any(value is not None for value in theirs.values()), text
