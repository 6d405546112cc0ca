"""Hold the docs to the tests they name: none may be missing, on either side."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
MAP: Final = ROOT / "docs" / "seed-tests.md"
PAGES: Final = sorted((ROOT / "docs").glob("*.md"))

SEED_TESTS: Final = {
    "001": (
        "TestCategorizeError_NetworkError",
        "TestCategorizeError_ValidationError",
        "TestBuildKey_WithHashTag",
        "TestExponentialBackoff_Calculation",
        "TestExponentialBackoff_MaxCap",
        "TestWorkerID_Generation",
        "TestWorkerID_Uniqueness",
        "TestWorker_PickupJob",
        "TestWorker_Heartbeat",
        "TestWorker_HeartbeatFailure",
        "TestWorker_StalledDetection",
        "TestWorker_Concurrency",
        "TestWorker_Retry",
        "TestWorker_MaxAttempts",
        "TestQueue_Pause",
        "TestQueue_Resume",
        "TestRedisCluster_HashTags",
        "TestRedisCluster_LuaScripts",
        "TestEdgeCases_UnicodeData",
        "TestEdgeCases_LargePayload",
        "TestRaceCondition_CompletionVsStalled",
        "TestCompatibility_NodeProducerGoConsumer",
        "TestCompatibility_GoProducerNodeConsumer",
        "TestCompatibility_ShadowTest",
        "TestCompatibility_EventStreamFormat",
        "TestCompatibility_RedisStateFormat",
        "TestLoad_Throughput",
        "TestLoad_MemoryLeak",
        "TestLoad_GoroutineLeak",
    ),
    "002": (
        "TestHashTagCompliance",
        "Test Case 2: Validate Multi-Key Lua Script in Cluster",
    ),
    "003": (
        "Unit Tests (Lua)",
        "Integration Tests (Go)",
        "Compatibility Tests (Node.js ↔ Go)",
    ),
    "004": (
        "queue.test.ts",
        "deduplication.test.ts",
        "request-response.test.ts",
        "reaper.test.ts",
        "memory-storage.test.ts",
        "file-storage.test.ts",
        "redis-storage.test.ts",
        "helpers/events.ts",
        "fixtures/redis.ts",
        "integration/e2e.test.ts",
        "should process job and return result",
        "should deduplicate jobs",
    ),
}

ROW: Final = re.compile(r"^\| `(?P<seed>[^`]+)` \| [^|]+ \| (?P<ours>[^|]+) \|$", re.MULTILINE)
CODE: Final = re.compile(r"`([^`\n]+)`")
# What a cell of the column "ours" may hold.
ENTRY: Final = re.compile(r"tests/\S+\.py::\w+|check: \w+|issue [3-8]|open")
REFERENCE: Final = re.compile(r"(?P<path>tests/\S+\.py)::(?P<test>\w+)|check: (?P<check>\w+)")
PLACEHOLDERS: Final = frozenset({"tests/path.py::test_name", "check: name"})


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Find every function of a file without importing it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@cache
def found_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(f.name for f in functions(path) if f.name.startswith("test_"))


def is_check(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    calls = (d.func for d in function.decorator_list if isinstance(d, ast.Call))
    return any(isinstance(call, ast.Name) and call.id == "check" for call in calls)


@cache
def checks() -> frozenset[str]:
    paths = sorted((ROOT / "src" / "toril" / "testing").glob("*.py"))
    return frozenset(f.name for path in paths for f in functions(path) if is_check(f))


def missing(text: str) -> list[str]:
    """Name the tests and checks a text refers to that do not exist."""
    found = []
    for code in CODE.findall(text):
        match = REFERENCE.fullmatch(code)
        if match is None or code in PLACEHOLDERS:
            continue
        known = checks() if match["check"] else found_in(ROOT / match["path"])
        if (match["check"] or match["test"]) not in known:
            found.append(code)
    return found


def unclear(cell: str) -> bool:
    """Tell whether a cell holds anything but entries."""
    entries = CODE.findall(cell)
    rest = CODE.sub("", cell).replace(",", "").strip()
    return not entries or bool(rest) or not all(ENTRY.fullmatch(entry) for entry in entries)


def rows() -> dict[str, str]:
    return {row["seed"]: row["ours"] for row in ROW.finditer(MAP.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_and_check_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("seed", SEED_TESTS)
def test_every_test_a_seed_names_has_a_row(seed: str) -> None:
    assert [name for name in SEED_TESTS[seed] if name not in rows()] == []


def test_every_row_is_of_a_seed_and_there_is_one_of_each() -> None:
    named = [row["seed"] for row in ROW.finditer(MAP.read_text(encoding="utf-8"))]
    assert [name for name, times in Counter(named).items() if times > 1] == []
    assert set(named) - {name for names in SEED_TESTS.values() for name in names} == set()


def test_no_line_of_the_table_escapes() -> None:
    lines = [line for line in MAP.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    assert len(lines) == len(rows())


def test_every_row_says_where_our_test_is() -> None:
    assert [seed for seed, ours in rows().items() if unclear(ours)] == []


@pytest.mark.parametrize(
    "text",
    [
        "`tests/unit/test_ids.py::test_that_nobody_wrote`",
        "`tests/nowhere/test_x.py::test_x`",
        "`check: a_promise_nobody_made`",
        "`check: run_check`",
    ],
)
def test_a_name_that_leads_nowhere_is_noticed(text: str) -> None:
    assert missing(f"see {text} and others") == [text.strip("`")]


@pytest.mark.parametrize(
    "cell", ["", "`later`", "`issue 2`", "tests/unit/test_ids.py", "`open` soon"]
)
def test_a_cell_that_says_nothing_is_noticed(cell: str) -> None:
    assert unclear(cell)


@pytest.mark.parametrize(
    "cell", ["`open`", "`issue 4`", "`check: a_b`, `tests/a/test_b.py::test_c`"]
)
def test_a_cell_that_says_where_is_accepted(cell: str) -> None:
    assert not unclear(cell)
