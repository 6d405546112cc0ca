"""Install the libraries of `pins.toml`, each into an environment outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PINS: Final = ROOT / "benchmarks" / "pins.toml"
INSTALL_LIMIT_S: Final = 600


class NotInstalled(Exception):
    """A library could not be installed; the message says what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A library, its exact packages, and how it is driven."""

    key: str
    name: str
    packages: tuple[str, ...]
    adapter: str
    pace: float = 1.0
    waits: bool = True
    threads: bool = False

    @property
    def is_node(self) -> bool:
        """Whether it runs on Node."""
        return self.adapter.endswith(".mjs")


@cache
def pins() -> dict[str, Pin]:
    """All libraries, in the order of the file."""
    table = tomllib.loads(PINS.read_text(encoding="utf-8"))
    return {
        key: Pin(key=key, **{**fields, "packages": tuple(fields["packages"])})
        for key, fields in table.items()
    }


def cache_home() -> Path:
    """Where the environments are: never inside the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "toril-bench"


def home_of(pin: Pin) -> Path:
    """Where the library is; install it first unless exactly these packages are there."""
    home = cache_home() / pin.key
    stamp, wanted = home / "packages.txt", "\n".join(pin.packages) + "\n"
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"installing {' '.join(pin.packages)} into {home}", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (_install_node if pin.is_node else _install_python)(home, pin.packages)
        stamp.write_text(wanted)
    return home


def _install_python(home: Path, packages: tuple[str, ...]) -> None:
    _run([sys.executable, "-m", "venv", str(home / "venv")], home)
    options = ("install", "--quiet", "--disable-pip-version-check")
    _run([str(python_of(home)), "-m", "pip", *options, *packages], home)


def _install_node(home: Path, packages: tuple[str, ...]) -> None:
    (home / "package.json").write_text('{"private": true}\n')
    options = ("install", "--no-audit", "--no-fund", "--no-package-lock", "--silent")
    _run([_found("npm"), *options, *packages], home)


def python_of(home: Path) -> Path:
    """The interpreter of an environment."""
    return home / "venv" / "bin" / "python"


def node() -> str:
    """The path of Node."""
    return _found("node")


def has_node() -> bool:
    """Whether libraries for Node can be installed and run."""
    return shutil.which("node") is not None and shutil.which("npm") is not None


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise NotInstalled(f"no {program} found on the PATH; install Node.js")
    return path


def _run(command: list[str], home: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=INSTALL_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{Path(command[0]).name}: not done in {INSTALL_LIMIT_S} s") from None
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise NotInstalled(f"{Path(command[0]).name} failed: {' / '.join(last)}")
