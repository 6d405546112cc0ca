"""Which files of bronze count: one small file per batch, written after the batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from toril.errors import StorageError
from toril.spark.analytics.lake import Lake

FOLDER: Final = "bronze"
_ENTRIES: Final = "_manifest"
_LAYOUT: Final = 1
_MAGIC: Final = b"PAR1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A batch that is whole: its files and sizes, its rows, and where it ended."""

    batch: int
    files: Mapping[str, int]
    rows: int
    gaps: int
    lost: int
    end: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TornFile:
    """A file of bronze that is missing or not whole."""

    path: str
    fact: str


def folder_of(batch: int) -> str:
    """The directory of a batch, inside bronze."""
    return f"batch={batch}"


def read_entries(lake: Lake) -> list[Entry]:
    """Read what was recorded, oldest first."""
    names = [name for name in lake.sizes(FOLDER, _ENTRIES) if name.endswith(".json")]
    return [_read(lake, name) for name in sorted(n for n in names if not n.startswith("."))]


def _read(lake: Lake, name: str) -> Entry:
    try:
        found = json.loads(lake.read_text(FOLDER, _ENTRIES, name))
        if found.pop("layout") > _LAYOUT:
            raise StorageError(f"{lake.at(FOLDER)}: written by a newer toril; upgrade toril")
        return Entry(**found)
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{lake.at(FOLDER, _ENTRIES, name)}: unreadable ({type(error).__name__});"
            " restore it, or read the events again into another lake"
        ) from error


def record(lake: Lake, entry: Entry) -> None:
    """Make a batch count, in one step."""
    found = {"layout": _LAYOUT, **asdict(entry)}
    lake.write_json(found, FOLDER, _ENTRIES, f"{entry.batch:012d}.json")


def check_files(lake: Lake, entries: Sequence[Entry]) -> tuple[list[str], list[TornFile]]:
    """Sort the recorded files into those that are whole and those that are torn."""
    whole: list[str] = []
    torn: list[TornFile] = []
    for entry in entries:
        folder = folder_of(entry.batch)
        found = lake.sizes(FOLDER, folder) if entry.files else {}
        for name, size in entry.files.items():
            path = lake.at(FOLDER, folder, name)
            fact = _fault(lake, folder, name, size, found.get(name))
            if fact:
                torn.append(TornFile(path, fact))
            else:
                whole.append(path)
    return whole, torn


def _fault(lake: Lake, folder: str, name: str, size: int, found: int | None) -> str:
    if found is None:
        return "missing"
    if found != size:
        return f"has {found:,} bytes, was written with {size:,}"
    if lake.tail(len(_MAGIC), size, FOLDER, folder, name) != _MAGIC:
        return "has no footer"
    return ""
