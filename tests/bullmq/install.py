"""Install the Node packages the tests need, once per pin, inside the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).resolve().parent / "node"
PINS: Final = HERE / "package.json"
LIMIT_S: Final = 300


def tool(name: str) -> str:
    """Find a program; its absence skips at a desk and fails in CI."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed (Debian: apt-get install nodejs npm)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def packages() -> Path:
    """The directory whose node_modules holds what package.json pins; filled on first use."""
    node_is_there, npm = tool("node"), tool("npm")
    assert node_is_there
    home = HERE / ".installed" / hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]
    home.mkdir(parents=True, exist_ok=True)
    done = home / "done"
    # Several test processes may start at once; one installs, the others wait.
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.copy(PINS, home)
            options = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
            subprocess.run(
                [npm, "install", *options, "--silent"], cwd=home, check=True, timeout=LIMIT_S
            )
            done.touch()
    return home
