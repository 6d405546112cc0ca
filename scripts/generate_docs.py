"""Write the parts of the docs that come from the code; with --check, only say what is stale.

python -m scripts.generate_docs, or `make docs`
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.cli_reference import reference
from scripts.feature_table import feature_table

ROOT: Final = Path(__file__).resolve().parents[1]
COMMAND: Final = "make docs"
REFERENCE: Final = "docs/cli-reference.md"
TABLES: Final = ("README.md", "docs/howto/choose-a-storage.md")
_TABLE: Final = re.compile(r"(<!-- features: .+? -->\n).*?(<!-- /features -->)", re.DOTALL)


def generated(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Give each page with what it should be."""
    yield root / REFERENCE, reference()
    table = feature_table()
    for name in TABLES:
        text = (root / name).read_text(encoding="utf-8")
        renewed, count = _TABLE.subn(lambda found: f"{found[1]}{table}{found[2]}", text)
        assert count == 1, f"{name}: {count} tables of features, not one"
        yield root / name, renewed


def stale(root: Path = ROOT) -> list[str]:
    """Name the pages that are not what the code says."""
    return [
        str(path.relative_to(root))
        for path, text in generated(root)
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """Write the pages, or check them."""
    found = stale()
    if "--check" in arguments:
        for name in found:
            print(f"{name} is stale. fix: {COMMAND}", file=sys.stderr)
        return bool(found)
    for path, text in generated():
        path.write_text(text, encoding="utf-8")
    print(f"written: {', '.join(found) or 'nothing, all is up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
