"""Turn whatever went wrong into at most six lines and an exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import click

from toril.errors import (
    InvalidInput,
    JobFailed,
    MissingExtra,
    StorageDenied,
    StorageUnavailable,
    StorageUnfit,
    TorilError,
    UnsupportedFeature,
)
from toril.text import printable, type_name

FINE: Final = 0
FAILED: Final = 1
"""Jobs failed, or the command could not do all of its work."""
MISUSED: Final = 2
"""Usage: an option, a name, a missing extra; nothing was done."""
UNREACHED: Final = 3
"""The storage does not answer or does not let us in."""
STOPPED: Final = 130

LINES: Final = 6
_WIDEST: Final = 600
_CODE: Final = re.compile(r"toril\[(E\d\d)\] ?")
_START: Final = (
    "fix: start the server, leave the URL out to use the embedded one, or name another one"
)
_FIX: Final = re.compile(r"[.;]? fix: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An error as its reader meets it."""

    code: str | None
    kind: str
    lines: tuple[str, ...]
    exit: int

    @property
    def text(self) -> str:
        """All lines, the first with its mark."""
        mark = "toril:" if self.code is None else f"toril[{self.code}]"
        return "\n".join((f"{mark} {self.lines[0]}", *self.lines[1:]))


def trouble_of(error: BaseException) -> Trouble:
    """Describe an error, ours or not."""
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return Trouble(code=None, kind="Stopped", lines=("stopped",), exit=STOPPED)
    if isinstance(error, click.ClickException):
        return _of_usage(error)
    if isinstance(error, TorilError):
        return _of_ours(error)
    kind = type_name(type(error))
    reason = str(error).strip() or "no reason given"
    lines = [f"{kind}: {printable(reason.splitlines()[0], _WIDEST)}"]
    lines.append("this was not expected; run it again with --traceback to see where it comes from")
    return Trouble(code=None, kind=kind, lines=tuple(lines), exit=FAILED)


def _of_usage(error: click.ClickException) -> Trouble:
    lines = [printable(error.format_message(), _WIDEST)]
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        lines.append(f"fix: {context.command_path} --help")
    kind = type(error).__name__
    return Trouble(code=None, kind=kind, lines=tuple(lines), exit=MISUSED)


def _of_ours(error: TorilError) -> Trouble:
    text = str(error).strip() or type(error).__name__
    found = _CODE.match(text)
    code = found[1] if found else "E01" if isinstance(error, StorageUnavailable) else None
    lines = _FIX.sub("\nfix: ", _CODE.sub("", text, count=1)).splitlines()
    shown = [printable(line, _WIDEST) for line in lines if line.strip()]
    if isinstance(error, StorageUnavailable) and not shown[-1].startswith("fix: "):
        shown = [*shown[: LINES - 1], _START]
    return Trouble(
        code=code,
        kind=type(error).__name__,
        lines=tuple(shown if len(shown) <= LINES else (*shown[: LINES - 1], shown[-1])),
        exit=_exit_of(error),
    )


def _exit_of(error: TorilError) -> int:
    if isinstance(error, (StorageUnavailable, StorageDenied, StorageUnfit)):
        return UNREACHED
    if isinstance(error, (InvalidInput, MissingExtra, UnsupportedFeature)):
        return MISUSED
    return FAILED


@contextmanager
def looking_at(queue: str) -> Iterator[None]:
    """Tell of a job that failed how to look at it; messages with a code say so themselves."""
    try:
        yield
    except JobFailed as error:
        if error.original_error.coded:
            raise
        raise JobFailed(
            f"toril[E09] {error}\nfix: toril job show {queue} {printable(error.job_id, 80)}",
            job_id=error.job_id,
            original_error=error.original_error,
        ) from error
