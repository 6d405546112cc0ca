"""Open a storage by its URL; each kind is imported only when it is asked for."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Final

from toril.errors import InvalidOption, UnsupportedFeature
from toril.ids import check_name
from toril.text import printable, suggest, type_name

if TYPE_CHECKING:
    from toril.storage.columns import Bulk
    from toril.storage.memory import MemoryStorage
    from toril.storage.protocol import Storage

ENTRY_POINTS: Final = "toril.storages"
"""Third parties register `scheme = "package.module:open"` here; it takes the URL."""

_REDIS: Final = (
    "embedded",
    "redis",
    "rediss",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)

_BULLMQ: Final = tuple(f"bullmq+{scheme}" for scheme in _REDIS)

_SCHEME: Final = re.compile(r"[a-z][\w+.-]*", re.ASCII | re.IGNORECASE)

# Named memory storages are shared by everybody in this process who names them, for as long
# as somebody holds them.
_named: Final[weakref.WeakValueDictionary[str, MemoryStorage]] = weakref.WeakValueDictionary()


def open_storage(url: str) -> Storage:
    """Make the storage a URL names; connecting is left to its `open`.

    `memory:` is private to the caller, `memory:name` is shared within this process.
    """
    if not isinstance(url, str):
        kind = type_name(type(url))
        raise InvalidOption(f"storage of type {kind}: give a URL such as 'memory:', or a Storage")
    scheme, colon, rest = url.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise InvalidOption(f"storage {_safe(url)!r} is not a URL; try 'memory:'")
    if scheme == "memory":
        return _open_memory(rest)
    if scheme == "file":
        from toril.storage.file import FileStorage

        return FileStorage.at(url)
    if scheme in _REDIS:
        from toril.storage.redis import RedisStorage

        return RedisStorage(url)
    if scheme in _BULLMQ:
        from toril.storage.bullmq import BullmqStorage

        return BullmqStorage(url)
    # Only strangers pay for this import: it is a fifth of `import toril`.
    from importlib.metadata import entry_points

    registered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if scheme in registered:
        storage: Storage = registered[scheme].load()(url)
        return storage
    known = ["memory", "file", *_REDIS, *sorted(registered)]
    raise InvalidOption(
        f"storage {_safe(url)!r}: unknown scheme {printable(scheme, 40)!r}."
        f"{suggest(scheme, [*known, *_BULLMQ])} Known: {', '.join(known)};"
        " for BullMQ put 'bullmq+' before a server's"
    )


def open_bulk(url: str) -> Bulk:
    """Make the blocking, columnar side of a storage; it connects at its first call.

    Only an embedded server is started here, and let go by `close`.
    """
    scheme = url.partition(":")[0] if isinstance(url, str) else ""
    if scheme in ("embedded", "bullmq+embedded"):
        from toril.storage.local import open_embedded

        return open_embedded(url, open_bulk)
    if scheme in _REDIS:
        from toril.storage.redis.bulk import RedisBulk

        return RedisBulk(url)
    if scheme == "file":
        from toril.storage.file.bulk import FileBulk

        return FileBulk(url)
    if scheme in _BULLMQ:
        from toril.storage.bullmq.bulk import BullmqBulk

        return BullmqBulk(url)
    raise UnsupportedFeature(
        f"storage {_safe(str(url))!r} cannot be read in bulk; known: file, {', '.join(_REDIS)}"
    )


def _open_memory(name: str) -> MemoryStorage:
    from toril.storage.memory import MemoryStorage

    if not name:
        return MemoryStorage()
    if "?" in name:
        raise InvalidOption("storage 'memory:…': memory takes no parameters; use 'memory:name'")
    storage = _named.get(check_name("queue", name))
    if storage is None:
        storage = _named[name] = MemoryStorage(name=name)
    return storage


def _safe(url: str) -> str:
    """Show a URL without what may be a password in it."""
    if not {"@", "?"} & set(url):
        return printable(url, 80)
    scheme = url.partition(":")[0]
    return f"{printable(scheme, 40)}:…" if _SCHEME.fullmatch(scheme) else "…"
