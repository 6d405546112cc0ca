"""Run the command line as its users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a run of the command left."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The document it printed."""
        return json.loads(self.out)

    def check_brief(self) -> None:
        """An error is a few lines and no traceback."""
        assert "Traceback" not in self.err
        assert 1 <= len(self.err.splitlines()) <= 6, self.err


def check(done: Done, code: str, exit: int, *said: str) -> None:
    """A message: its code first, brief, with its substance and its exit code."""
    assert done.code == exit, done.err + done.out
    assert done.err.startswith(f"toril[{code}] "), done.err
    done.check_brief()
    for text in said:
        assert text in done.err


def toril(*args: str, cwd: Path | None = None, timeout: float = 120, **environment: str) -> Done:
    """Run `toril` with some arguments; variables of the environment go by name."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("TORIL_URL", "TORIL_DEBUG")}
    done = subprocess.run(
        [sys.executable, "-m", "toril.cli", *args],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)
