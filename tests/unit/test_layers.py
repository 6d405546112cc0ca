"""Imports point one way: values, contract, storages, engine, what users hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "toril"

VALUES = {
    *("errors", "clock", "ids", "job", "event", "outcome", "retry", "serde", "text", "options"),
    *("drafts", "extras", "msgpack_serde", "quick", "whence"),
}

# Who may import whom inside toril; the first match counts.
LAYERS: list[tuple[str, set[str]]] = [
    ("resp.", VALUES | {"resp"}),
    ("storage.__init__", VALUES | {"storage"}),
    ("storage.local", VALUES | {"storage", "resp"}),
    ("storage.protocol", VALUES),
    ("storage.columns_walk", VALUES | {"storage.columns"}),
    ("storage.columns", VALUES),
    ("storage.runs", VALUES | {"storage.columns"}),
    ("storage.memory", VALUES | {"storage.protocol", "storage.quick", "storage.memory"}),
    ("storage.quick", VALUES | {"storage.protocol"}),
    ("storage.created", VALUES | {"storage.protocol", "storage.quick"}),
    (
        "storage.redis",
        VALUES
        | {"storage.protocol", "storage.created", "storage.columns", "storage.redis", "resp"}
        | {"storage.quick", "storage.runs"},
    ),
    ("storage.file", VALUES | {"storage.protocol", "storage.columns", "storage.file"}),
    (
        "engine.",
        VALUES | {"storage.protocol", "engine", "context", "hooks", "metrics", "failpoints"},
    ),
    ("context", VALUES | {"storage.protocol"}),
    ("metrics", VALUES),
    ("hooks", VALUES),
    ("testing.", VALUES | {"storage.protocol", "storage.memory", "testing"}),
]


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        found.append((".".join(path.relative_to(SOURCE).with_suffix("").parts), path))
    return found


def imports(path: Path) -> set[str]:
    """Name the toril modules a file imports when it runs, also inside functions."""
    return set(re.findall(r"^\s*from toril\.([\w.]+) import", path.read_text("utf-8"), re.M))


def allowed(module: str) -> set[str] | None:
    if module in VALUES:
        return VALUES
    return next((layer for start, layer in LAYERS if f"{module}.".startswith(start)), None)


@pytest.mark.parametrize(("module", "path"), modules())
def test_a_module_imports_only_from_below(module: str, path: Path) -> None:
    layer = allowed(module)
    if layer is None:  # what users hold, and the edges, may import everything
        return
    for name in imports(path):
        assert any(name == one or name.startswith((f"{one}.", f"{one}_")) for one in layer), (
            f"{module} imports {name}"
        )


def test_the_rule_can_be_broken() -> None:
    layer = allowed("storage.memory")
    assert layer is not None
    assert not layer & {"engine", "resp", "queue", "worker"}
