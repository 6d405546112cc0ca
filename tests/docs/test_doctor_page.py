"""The page on the doctor names every check there is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_check_is_on_the_page() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "src/toril/doctor").glob("*.py")
    )
    checks = set(re.findall(r"\b(?:ok|warning|problem)\(\s*\"(\w+)\"", sources))
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    section = page.partition("## Doctor")[2].partition("## Metrics")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert len(checks) > 15
    assert checks - named == set()
