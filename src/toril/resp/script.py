"""Name a Lua script once: its text, and the digest the server knows it by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from toril.resp.replies import Argument

_EVALSHA: Final = ("EVALSHA", "EVALSHA_RO")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A Lua script; `sha` is the SHA-1 the server files it under."""

    name: str
    text: str = field(repr=False)
    sha: str

    @classmethod
    def of(cls, name: str, text: str) -> Script:
        """Make a script from its text."""
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        return cls(name=name, text=text, sha=digest)


def shas_of(commands: Iterable[Sequence[Argument]]) -> list[str]:
    """Give the digests that EVALSHA commands name, each once."""
    words = ([_text(part) for part in command[:2]] for command in commands)
    named = (word[1] for word in words if len(word) == 2 and word[0].upper() in _EVALSHA)
    return list(dict.fromkeys(named))


def _text(part: Argument) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else str(part)
