"""The recipes of `logstore/GUIDES.md`, as programs."""

from __future__ import annotations

import re

from tests.house import ROOT

_PAGE = ROOT / "logstore" / "GUIDES.md"


def titles() -> list[str]:
    """The guides that hold code."""
    page = _PAGE.read_text("utf-8")
    return [title for title in re.findall(r"^## (.*)$", page, re.MULTILINE) if blocks(title)]


def blocks(title: str) -> list[str]:
    """The Python of one recipe, block by block."""
    page = _PAGE.read_text("utf-8")
    (part,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```python\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    return list(found)


def recipe(title: str) -> str:
    return "\n".join(blocks(title))
