"""Find the official Lua, check every byte of it, and load our own beside it.

The scripts come from the installed package `bullmq`, which is never imported, only read. A file
whose SHA-256 is not the one in `manifest.tsv` is refused: the wire format is these bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Final

from toril.errors import StorageError
from toril.extras import missing_extra
from toril.resp.script import Script

VERSION: Final = "2.16.2"
OWN: Final = (
    "add", "back", "counts", "discard", "drain", "drop", "end", "ended", "events", "fate", "finish",
    "finish_alone", "get", "granted", "keep", "known", "later", "mark", "mend", "note", "outlook",
    "pause", "peek", "raze", "ready", "remember", "replace", "revive", "ring", "scan", "sweep",
    "tune", "workers",
)  # fmt: skip
"""Our own scripts, by name."""

_OWN_FLAGS: Final = "#!lua flags=allow-oom\n"
_DECLARED: Final = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)


@cache
def manifest() -> Mapping[str, str]:
    """The SHA-256 of every official script, by `name-keys`."""
    lines = (files(__package__) / "manifest.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {row[0]: row[1] for row in rows}


def find_folder() -> Path:
    """The folder of the official scripts in the installed package."""
    try:
        package = distribution("bullmq")
    except PackageNotFoundError:
        raise missing_extra("the BullMQ storage needs", "bullmq") from None
    if package.version != VERSION:
        raise StorageError(
            f"bullmq {package.version} is installed, toril speaks the wire of {VERSION}; "
            f'fix: python -m pip install "bullmq=={VERSION}"'
        )
    return Path(str(package.locate_file("bullmq/commands")))


def load(folder: Path) -> Mapping[str, Script]:
    """Read and check every script of the manifest; give them by name without the key count."""
    return {
        name.rpartition("-")[0]: _read(folder, name, digest) for name, digest in manifest().items()
    }


def _read(folder: Path, name: str, digest: str) -> Script:
    path = folder / f"{name}.lua"
    try:
        body = path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"official script {name}.lua cannot be read ({error.strerror}); "
            f'fix: python -m pip install --force-reinstall --no-deps "bullmq=={VERSION}"'
        ) from None
    found = hashlib.sha256(body).hexdigest()
    if found != digest:
        raise StorageError(
            f"official script {name}.lua was changed: its SHA-256 is {found[:12]}…, that of bullmq "
            f"{VERSION} is {digest[:12]}…; nothing was sent. "
            f'fix: python -m pip install --force-reinstall --no-deps "bullmq=={VERSION}"'
        )
    return Script.of(name, body.decode())


@cache
def scripts() -> Mapping[str, Script]:
    """The checked scripts of the installed package; read once per process."""
    return load(find_folder())


@cache
def key_counts() -> Mapping[str, int]:
    """How many keys each official script takes."""
    return {name: int(count) for name, _, count in (one.rpartition("-") for one in manifest())}


@cache
def own(name: str) -> Script:
    """Assemble one of our own scripts: what it uses of the prelude, then the script."""
    folder = files(__package__) / "lua"
    prelude, text = ((folder / f"{part}.lua").read_text("utf-8") for part in ("prelude", name))
    first, *others = prelude.split("\n\n")
    # A server runs a script from its first line at every call, and makes each function anew. What a
    # paragraph uses stands above it, so one look from the last to the first finds all.
    for paragraph in reversed(others):
        names = _DECLARED.findall(paragraph)
        if any(re.search(rf"\b{name}\b", text) for name in names):
            text = f"{paragraph}\n{text}"
    return Script.of(name, f"{_OWN_FLAGS}{first}\n{text}")
