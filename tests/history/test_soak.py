"""What a soak tells: growth that is planted is found, and a broker that stays where it is is not blamed."""

from __future__ import annotations

import os

from tests.history.soak import Sample, growth, quarters, sample


def steady(count: int = 40) -> list[Sample]:
    return [Sample(60 + number % 3, 50 + number % 5, 30) for number in range(count)]


def test_what_stays_is_not_blamed() -> None:
    assert growth(steady()) == []
    assert growth([Sample(40, 20, 10)] * 10 + steady(30)) == []  # it was warming up


def test_what_grows_is_named() -> None:
    leaking = [Sample(60 + number, 50 + number * 3, 30 + number) for number in range(40)]
    assert [line.split()[0] for line in growth(leaking)] == ["memory", "descriptors", "threads"][
        : len(growth(leaking))
    ]
    assert len(growth(leaking)) >= 2
    assert growth([*steady(30), *[Sample(200, 55, 30)] * 10])[0].startswith("memory grew")


def test_a_process_is_looked_at() -> None:
    found = sample(os.getpid())
    assert found.resident_mib > 1
    assert found.descriptors >= 3
    assert found.threads >= 1
    assert len(quarters([found] * 9)) == 4
