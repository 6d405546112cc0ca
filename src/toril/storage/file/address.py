"""Read the URL of a file storage: `file:path?durability=local&timeout=5`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote

from toril.errors import InvalidOption
from toril.text import printable, suggest, type_name

Durability = Literal["local", "memory"]

TIMEOUT_S: Final = 5.0
_DURABILITIES: Final[dict[str, Durability]] = {"local": "local", "memory": "memory"}
_PARAMETERS: Final = ("durability", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAddress:
    """Which directory, how durable, and how long to wait for the lock of another process."""

    directory: Path
    durability: Durability = "local"
    timeout: float = TIMEOUT_S

    @property
    def url(self) -> str:
        """What another process would open."""
        given: list[str] = []
        if self.durability != "local":
            given.append(f"durability={self.durability}")
        if self.timeout != TIMEOUT_S:
            given.append(f"timeout={self.timeout:g}")
        query = "?" + "&".join(given) if given else ""
        return f"file:{quote(str(self.directory))}{query}"


def address_of(
    directory: str | os.PathLike[str], durability: str = "local", timeout: float = TIMEOUT_S
) -> FileAddress:
    """Check what a program gave; the directory becomes absolute."""
    if not isinstance(directory, str | os.PathLike):
        kind = type_name(type(directory))
        raise InvalidOption(f"FileStorage(directory) of type {kind}: give a path")
    text = os.fspath(directory)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidOption(f"FileStorage({text!r}): give the path of a directory")
    if durability not in _DURABILITIES:
        raise InvalidOption(
            f"durability '{printable(str(durability), 40)}' is not one of "
            f"{', '.join(_DURABILITIES)} for a file storage"
        )
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout <= 3600:
        raise InvalidOption(f"timeout {timeout!r}: must be seconds above 0, at most 3600")
    return FileAddress(
        directory=Path(text).expanduser().absolute(),
        durability=_DURABILITIES[durability],
        timeout=float(timeout),
    )


def parse_file_url(url: str) -> FileAddress:
    """Read `file:path` with its parameters; `file:///absolute/path` is the same path."""
    scheme, _, rest = url.partition(":")
    place, mark, query = rest.partition("?")
    if place.startswith("//"):
        host, slash, path = place[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise InvalidOption(
                f"storage '{printable(url, 80)}': a file storage is on this machine; "
                "write file:path or file:///path"
            )
        place = slash + path
    if scheme != "file" or not place:
        raise InvalidOption(f"storage '{printable(url, 80)}': write file:path, of a directory")
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True) if mark else ():
        if name not in _PARAMETERS:
            raise InvalidOption(
                f"storage 'file:…': unknown parameter '{printable(name, 40)}'."
                f"{suggest(name, list(_PARAMETERS))} Known: {', '.join(_PARAMETERS)}"
            )
        if name in given:
            raise InvalidOption(f"storage 'file:…': parameter {name!r} is given twice")
        given[name] = value
    return address_of(
        unquote(place), given.get("durability", "local"), _seconds(given.get("timeout"))
    )


def _seconds(text: str | None) -> float:
    if text is None:
        return TIMEOUT_S
    try:
        return float(text)
    except ValueError:
        shown = printable(text, 40)
        raise InvalidOption(f"storage 'file:…': timeout '{shown}' is not a number") from None
