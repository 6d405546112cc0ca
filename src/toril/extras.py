"""Say which extra is missing, and how it is installed here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from toril.errors import MissingExtra


def missing_extra(what: str, extra: str, more: str = "") -> MissingExtra:
    """Make the error, as "metrics need"; `more` names what no package brings."""
    return MissingExtra(
        f"toril[E14] {what} the '{extra}' extra. fix: {install(f'toril[{extra}]')}{more}"
    )


def install(package: str) -> str:
    """Write the command that installs a package, as the environment at hand was made."""
    return f'uv add "{package}"' if _by_uv() else f'python -m pip install "{package}"'


def _by_uv() -> bool:
    if os.environ.get("UV"):  # set by `uv run`
        return True
    try:
        made = Path(sys.prefix, "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(line.startswith("uv =") for line in made.splitlines())
