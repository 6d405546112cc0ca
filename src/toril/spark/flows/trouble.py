"""Read our own errors out of Spark's, which carry them as text across processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from toril import errors
from toril.errors import InvalidOption, TorilError
from toril.text import printable

_OURS: Final = re.compile(r"^toril\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise what a source or a task of ours raised, instead of Spark's wrapping of it."""
    try:
        yield
    except TorilError:
        raise
    except Exception as error:
        ours = ours_in(error)
        if ours is None:
            raise
        raise ours from error


def ours_in(error: Exception) -> TorilError | None:
    """Find the error of ours that an error of Spark tells about, None where there is none."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    text = str(error)
    found = _OURS.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, TorilError):
        return None
    try:
        return kind(message)
    except TypeError:  # it wants more than a message
        return TorilError(message)


def sql_error(what: str, error: Exception) -> InvalidOption:
    """Say what is wrong with a piece of SQL, in Spark's first line."""
    first = str(error).strip().splitlines()[0]
    return InvalidOption(f"{what}: {printable(first, 300)}")
