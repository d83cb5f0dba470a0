"""Overrides of quotas as a setting: what can be said, and what is refused by its words."""

from __future__ import annotations

import math

import pytest

from rpc.errors import BrokerConfigError
from rpc.quota_rules import QuotaRules, Target, parse_overrides
from rpc.settings import BrokerSettings


def test_what_can_be_said() -> None:
    found = parse_overrides(" User:etl/a/b produce=5 fetch=0;; User:bob fetch=7 ; */dash produce=1;")
    assert found == {
        Target("User:etl", "a/b"): {"produce": 5, "fetch": 0},
        Target("User:bob", None): {"fetch": 7},
        Target(None, "dash"): {"produce": 1},
    }
    rules = QuotaRules({"produce": 0, "fetch": 0}, found)
    assert rules.has_limits("produce")
    assert not QuotaRules({"produce": 0, "fetch": 1}, {}).has_limits("produce")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bob produce=1", "begins with User:NAME"),
        ("User: produce=1", "begins with User:NAME"),
        ("User:bob/ produce=1", "begins with User:NAME"),
        ("User:bob/* produce=1", "begins with User:NAME"),
        ("* produce=1", "produce_quota_bytes_s"),
        ("*/* produce=1", "produce_quota_bytes_s"),
        ("User:bob", "it says produce=BYTES"),
        ("User:bob produce=1 produce=2", "it says produce=BYTES"),
        ("User:bob produce=-1", "'produce=-1' is no"),
        ("User:bob produce", "'produce' is no"),
        ("User:bob send=1", "'send=1' is no"),
        ("User:bob produce=1; User:bob fetch=1", "two rules for User:bob"),
    ],
)
def test_what_is_refused(text: str, told: str) -> None:
    with pytest.raises(BrokerConfigError, match="quota_overrides has") as refused:
        BrokerSettings(data="x", quota_overrides=text)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("produce_quota_bytes_s", -1), ("fetch_quota_bytes_s", -1), ("quota_burst_s", 0.0),
     ("quota_burst_s", math.inf), ("quota_callers", 0)],
)  # fmt: skip
def test_settings_that_cannot_be(name: str, value: float) -> None:
    with pytest.raises(BrokerConfigError, match=f"{name}={value}: it is"):
        BrokerSettings(data="x", **{name: value})  # type: ignore[arg-type]
