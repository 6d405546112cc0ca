"""Open a storage by its URL; each kind is imported only when it is asked for."""

from __future__ import annotations

import weakref
from importlib.metadata import entry_points
from typing import Final

from toril.errors import InvalidOption
from toril.ids import check_name
from toril.storage.memory import MemoryStorage
from toril.storage.protocol import Storage
from toril.text import printable, suggest

ENTRY_POINTS: Final = "toril.storages"
"""Third parties register `scheme = "package.module:open"` here; it takes the URL."""

# Named memory storages are shared by everybody in this process who names them, for as long
# as somebody holds them.
_named: Final[weakref.WeakValueDictionary[str, MemoryStorage]] = weakref.WeakValueDictionary()


def open_storage(url: str) -> Storage:
    """Make the storage a URL names; connecting is left to its `open`.

    `memory:` is private to the caller, `memory:name` is shared within this process.
    """
    if not isinstance(url, str):
        raise InvalidOption(f"storage={url!r}: give a URL such as 'memory:', or a Storage")
    scheme, colon, rest = url.partition(":")
    if not colon or not scheme:
        raise InvalidOption(f"storage {_safe(url)!r} is not a URL; try 'memory:'")
    if scheme == "memory":
        return _open_memory(rest)
    registered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if scheme in registered:
        storage: Storage = registered[scheme].load()(url)
        return storage
    known = ["memory", *sorted(registered)]
    raise InvalidOption(
        f"storage {_safe(url)!r}: unknown scheme {printable(scheme, 40)!r}."
        f"{suggest(scheme, known)} Known: {', '.join(known)}"
    )


def _open_memory(name: str) -> MemoryStorage:
    if not name:
        return MemoryStorage()
    storage = _named.get(check_name("queue", name))
    if storage is None:
        storage = _named[name] = MemoryStorage(name=name)
    return storage


def _safe(url: str) -> str:
    """Show a URL without what may be a password in it."""
    scheme, _, rest = url.partition(":")
    return f"{printable(scheme, 40)}:…" if "@" in rest else printable(url, 80)
