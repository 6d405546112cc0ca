"""Enforce the coverage limits on the output of `coverage json`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "src/toril"
VALUES = (
    *("errors", "clock", "ids", "job", "event", "outcome", "retry", "serde", "text"),
    "msgpack_serde",
)
VALUE_LIMIT = 90.0
TOTAL_LIMIT = 80.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """State how much of a name is covered and how much must be."""

    name: str
    percent: float | None
    limit: float

    @property
    def ok(self) -> bool:
        return self.percent is not None and self.percent >= self.limit

    def __str__(self) -> str:
        found = "missing" if self.percent is None else f"{self.percent:.1f} %"
        verdict = "ok" if self.ok else "TOO LOW"
        return f"{self.name:<24} {found:>8}  of {self.limit:.0f} %  {verdict}"


def read_percents(report: Path) -> tuple[dict[str, float], float]:
    """Return the percentage of each file and the total; lines and branches count together."""
    content = json.loads(report.read_text(encoding="utf-8"))
    files = {
        path.replace("\\", "/"): float(entry["summary"]["percent_covered"])
        for path, entry in content["files"].items()
    }
    return files, float(content["totals"]["percent_covered"])


def judge(files: dict[str, float], total: float, root: Path) -> list[Row]:
    """Compare with the limits; a value module on disk but not in the report fails."""
    paths = (f"{PACKAGE}/{name}.py" for name in VALUES)
    rows = [
        Row(name=path, percent=files.get(path), limit=VALUE_LIMIT)
        for path in paths
        if (root / path).exists()
    ]
    return [*rows, Row(name="total", percent=total, limit=TOTAL_LIMIT)]


def main(arguments: list[str]) -> int:
    report = Path(arguments[0] if arguments else "coverage.json")
    if not report.is_file():
        print(f"coverage: no {report}; run `make test` first", file=sys.stderr)
        return 1
    rows = judge(*read_percents(report), root=Path.cwd())
    print("\n".join(str(row) for row in rows))
    low = [row.name for row in rows if not row.ok]
    if low:
        print(f"coverage: below the limit: {', '.join(low)}; add tests", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
