"""Which Java will do."""

from __future__ import annotations

import pytest

from spark_connector.java import java_version, why_not


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (None, "Spark needs Java and none was found"),
        (11, "Spark needs Java 17 or newer and found 11"),
        (17, None),
        (21, None),
    ],
)
def test_versions(version: int | None, reason: str | None) -> None:
    assert why_not(version) == reason


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_411"', 1),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_what_java_says(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, says: str, version: int | None
) -> None:
    home = tmp_path_factory.mktemp("java")
    (home / "bin").mkdir()
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_version() == version
    monkeypatch.setenv("JAVA_HOME", str(home / "none"))
    assert java_version() is None
