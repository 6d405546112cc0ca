"""Go on where the server does not let this user look: that is a finding, too."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from toril.doctor.finding import Finding, warning
from toril.errors import StorageDenied, StorageError, StorageUnavailable

_DENIED: Final = re.compile(r"has no permissions to (?:run|access)[^.;]*", re.IGNORECASE)
_FIX: Final = "run toril doctor as a user who may do more"


async def allowed(
    check: str, look: AsyncIterator[Finding], queue: str | None = None
) -> AsyncIterator[Finding]:
    """Pass findings on; a refusal of the server ends this check, not the others."""
    try:
        async for finding in look:
            yield finding
    except StorageError as error:
        if not is_denied(error):
            raise
        yield refused(check, error, queue)


async def each(
    look: Callable[[], Awaitable[Iterable[Finding] | Finding]],
) -> AsyncIterator[Finding]:
    """Give the findings of a check that comes with all at once."""
    found = await look()
    for finding in (found,) if isinstance(found, Finding) else found:
        yield finding


def is_denied(error: StorageError) -> bool:
    """Whether the user lacks a right; inside a script a server says so in other words."""
    if isinstance(error, StorageUnavailable):
        return False
    return isinstance(error, StorageDenied) or bool(_DENIED.search(str(error)))


def refused(check: str, error: StorageError, queue: str | None = None) -> Finding:
    """Say what could not be looked at, and why."""
    match = _DENIED.search(str(error))
    why = match[0] if match else "may not"
    return warning(check, f"not looked at: this user {why}", _FIX, queue=queue)
