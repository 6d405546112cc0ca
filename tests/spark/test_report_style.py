"""The colours of a report can be told from its paper, in light and in dark."""

from __future__ import annotations

import re
from base64 import b64decode
from hashlib import sha256

import pytest

from toril.spark.report.style import CSS, CSS_HASH

LIGHT, DARK = (
    dict(re.findall(r"--([a-z0-9-]+): #([0-9a-f]{6});", block))
    for block in re.findall(r":root \{([^}]*)\}", CSS)
)
SHAPES = (
    *("done", "failed", "added", "retried", "stalled", "cancelled", "backlog", "busy"),
    *("p50", "p95", "p99"),
)


def contrast(one: str, two: str) -> float:
    """The ratio of WCAG 2: 1 for the same colour, 21 for black on white."""
    low, high = sorted((_light(one), _light(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_stands_out_from_its_card(theme: dict[str, str], name: str) -> None:
    assert contrast(theme[name], theme["card"]) >= 3


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_stands_out_from_what_it_is_on(theme: dict[str, str]) -> None:
    for ink in ("ink", "soft", "link", "alarm"):
        for ground in ("paper", "card"):
            assert contrast(theme[ink], theme[ground]) >= 4.5


def test_both_themes_name_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert {*SHAPES, "paper", "card"} <= LIGHT.keys()


def test_the_policy_names_exactly_this_style_sheet() -> None:
    assert b64decode(CSS_HASH.removeprefix("sha256-")) == sha256(CSS.encode()).digest()


def _light(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
