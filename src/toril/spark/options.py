"""Read the options of a source: text in, checked values out, nothing ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from toril.errors import InvalidOption
from toril.text import printable, suggest

_YES: Final = {"true": True, "false": False}
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation"})
"""Spark hands these over with ours."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options somebody gave to one source; names as in the documentation, any case."""

    source: str
    given: Mapping[str, str]

    @classmethod
    def read(cls, source: str, given: Mapping[str, str], known: Sequence[str]) -> Options:
        """Take what was given; a name that is not known is refused."""
        names = {name.lower(): name for name in known}
        taken: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in _SPARKS_OWN:
                continue
            if name.lower() not in names:
                raise InvalidOption(
                    f"{source}: unknown option '{printable(name, 60)}'."
                    f"{suggest(name, known)} Known: {', '.join(known)}"
                )
            taken[names[name.lower()]] = str(value)
        return cls(source, taken)

    def text(self, name: str) -> str | None:
        """A text, None where it was not given; an empty one counts as a mistake."""
        value = self.given.get(name)
        if value is not None and not value.strip():
            raise self.wrong(name, "is empty; leave it out or give a value")
        return value

    def count(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within limits."""
        value = self.text(name)
        if value is None:
            return default
        digits = value.strip().replace("_", "")
        if not (digits.isascii() and digits.isdigit()) or not least <= int(digits) <= most:
            raise self.wrong(name, f"must be a whole number from {least:,} to {most:,}")
        return int(digits)

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        value = self.text(name)
        if value is None:
            return default
        found = _YES.get(value.strip().lower())
        if found is None:
            raise self.wrong(name, "must be true or false")
        return found

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """One of a few words."""
        value = self.text(name)
        if value is None:
            return default
        if value not in choices:
            hint = suggest(value, choices)
            raise self.wrong(name, f"must be one of {', '.join(choices)}.{hint}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Names with commas between them."""
        value = self.text(name)
        if value is None:
            return ()
        parts = tuple(part.strip() for part in value.split(","))
        if not all(parts):
            raise self.wrong(name, "has an empty name between its commas")
        return parts

    def instant(self, name: str) -> int | None:
        """A time in ISO 8601 with its zone, or milliseconds since 1970; gives the latter."""
        value = self.text(name)
        if value is None:
            return None
        if value.strip().isascii() and value.strip().isdigit():
            return int(value)
        try:
            found = datetime.fromisoformat(value.strip())
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            raise self.wrong(
                name, "must be ISO 8601 with a zone, as '2026-01-31T12:00:00Z', or milliseconds"
            )
        return round((found - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)

    def wrong(self, name: str, fact: str) -> InvalidOption:
        """Make the error for a value; the value is shown, so never use it for a secret."""
        return InvalidOption(
            f"{self.source}: option '{name}' = '{printable(self.given.get(name), 80)}' {fact}"
        )
