"""Tables, sizes and times as commands show them."""

from __future__ import annotations

import sys

import pytest

from logstore.cli.streams.output import bytes_text, print_table, progress, rate_text, size_text, time_text


def test_tables_align_text_left_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "N", "OK"), [("a", 5, True), ("longer", 12345, None)])
    assert capsys.readouterr().out == "NAME        N  OK\na           5  yes\nlonger  12345  -\n"
    print_table(("NAME", "N"), [])
    assert capsys.readouterr().out == "NAME  N\n"


def test_sizes_rates_and_times() -> None:
    assert [size_text(count) for count in (0, 1023, 1024, 1536, 5 << 30, 3 << 50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]
    assert rate_text(3000, 2.0) == "1,500/s"
    assert rate_text(1, 0.0) == "-"
    assert time_text(1357034400123) == "2013-01-01T10:00:00.123Z"
    assert time_text(-1) == "-1"
    assert time_text(-14_182_940_000) == "1969-07-20T20:17:40.000Z"
    assert time_text(-(2**62)) == str(-(2**62))
    assert time_text(2**62) == str(2**62)


def test_bytes_for_a_person() -> None:
    assert bytes_text(None) == "null"
    assert bytes_text(b"") == ""
    assert bytes_text("é\n\x1b[0m".encode()) == "é\\x0a\\x1b[0m"
    assert bytes_text(b"\xff\x00") == "0xff00"
    assert bytes_text(b"x" * 100, 10) == "xxxxxxx..."
    assert len(bytes_text("é".encode() * 10_000)) == 60


def test_bars_stand_on_terminals_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("work", 10) as advance:
        advance(5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("work", 10, unit_bytes=False) as advance:
        advance(10)
    assert "10/10" in capsys.readouterr().err
