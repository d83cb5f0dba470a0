"""The harness of scripts, against planted faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.errors import UnknownGroupError
from tests.scripts import Rewriting, parse, run_script


def _refuse(words: list[str]) -> str:
    raise UnknownGroupError(f"no {words[0]}")


COMMANDS: dict[str, Callable[[list[str]], str]] = {
    "echo": lambda words: "\n".join(words),
    "refuse": _refuse,
    "silent": lambda words: "",
    "gap": lambda words: "a\n\nb",
}
GOOD = "# why\n\necho a 'b c'\n----\na\nb c\n\nrefuse x\n----\n! UnknownGroupError: no x\n\nsilent\n----\n# end\n"


@pytest.fixture(autouse=True)
def _comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rewriting, "on", False)


def script(folder: Path, text: str) -> Path:
    path = folder / "one.txt"
    path.write_text(text, "utf-8")
    return path


GOOD = GOOD.replace("silent\n----\n# end", "silent\n----\n\n# end")


def test_what_answers_as_written_passes(tmp_path: Path) -> None:
    run_script(script(tmp_path, GOOD), COMMANDS)


def test_every_other_answer_is_listed_with_its_line(tmp_path: Path) -> None:
    wrong = GOOD.replace("b c\n\n", "b d\n\n").replace("no x", "no y")
    with pytest.raises(AssertionError) as failure:
        run_script(script(tmp_path, wrong), COMMANDS)
    text = str(failure.value)
    assert "one.txt:3: echo" in text
    assert "one.txt:8: refuse" in text
    assert "silent" not in text


def test_rewriting_puts_the_answers_in_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path, GOOD.replace("b c\n\n", "\n").replace("no x", "other\nand more"))
    monkeypatch.setattr(Rewriting, "on", True)
    run_script(path, COMMANDS)
    assert path.read_text("utf-8") == GOOD
    run_script(path, COMMANDS)
    assert path.read_text("utf-8") == GOOD


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo a\n", "line 2: '----' is due under the command 'echo a'"),
        ("echo a\n----\na\n\n----\n", "line 6: '----' is due"),
        ("gap\n----\n", "line 1: the answer of 'gap' holds an empty line"),
        ("ecko\n----\n", "line 1: no command 'ecko', there are echo, gap"),
    ],
)
def test_a_malformed_script_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        run_script(script(tmp_path, text), COMMANDS)


def test_a_script_without_commands_shows_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no command"):
        run_script(script(tmp_path, "# nothing\n"), COMMANDS)


def test_steps_know_their_lines() -> None:
    steps, after = parse(GOOD)
    assert [step.number for step in steps] == [3, 8, 12]
    assert [step.answer for step in steps] == ["a\nb c", "! UnknownGroupError: no x", ""]
    assert after == ["", "# end"]


def test_a_plain_error_is_no_answer(tmp_path: Path) -> None:
    def broken(words: list[str]) -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_script(script(tmp_path, "echo\n----\n"), {"echo": broken})
