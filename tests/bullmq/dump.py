"""Everything a BullMQ queue holds, in a form that two runs can be compared in.

Each key is shown with its type, its time to live and its content. What differs from run to run is
replaced: times by the time since the run began, in steps of ten seconds; lock tokens by a word.
The order of lists, streams and sorted sets is kept. Scores that hold
no time are exact. Options are parsed, because the server's JSON encoder orders fields by chance;
all other text is kept byte for byte. Keys, fields and options whose names begin with `toril` mean
nothing to Node; they are left out, unless asked for.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import redis

OURS: Final = "toril"
EVENT: Final = ":events    "
STEP_S: Final = 10
DAY_MS: Final = 86_400_000
DELAYED_SHIFT: Final = 4096
PRIORITY_SHIFT: Final = 2**32

_MS: Final = re.compile(r"(?<!\d)\d{13}(?!\d)")
_ITERATION: Final = re.compile(r"repeat:.+:<[^<>]+>$")
_SCHEDULER: Final = re.compile(r"repeat:[^:]+$")
# Who made the queue object last, not what is in the queue; toril does not pretend to be Node.
_SIGNATURE: Final = {"meta": frozenset({"version"})}


@dataclass(frozen=True, slots=True)
class Dump:
    """The lines of one dump."""

    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def without_order_of_events(self) -> Dump:
        """The same dump with the events sorted."""
        events = sorted(line for line in self.lines if EVENT in line)
        rest = [line for line in self.lines if EVENT not in line]
        return Dump((*rest, *events))

    def diff(self, other: Dump, mine: str, others: str) -> str:
        """Show how another dump differs; nothing if it does not."""
        return "\n".join(
            difflib.unified_diff(self.lines, other.lines, mine, others, n=2, lineterm="")
        )


class Dumper:
    """Reads the keys of queues; `begun_ms` is when the run to be shown began."""

    def __init__(self, port: int, begun_ms: int) -> None:
        self._client = redis.Redis(port=port)
        self._begun = begun_ms

    def dump(self, *queues: str, prefix: str = "bull") -> Dump:
        """Show every key of the queues, but not what is toril's own."""
        lines: list[str] = []
        for number, queue in enumerate(queues):
            base = f"{prefix}:{queue}:"
            aliases = {f"{prefix}:{one}": f"<queue {n}>" for n, one in enumerate(queues)}
            shown = self._queue(base)
            lines += [_alias(f"{number}:{line}", aliases) for line in shown]
        return Dump(tuple(lines))

    def ours(self, queue: str, prefix: str = "bull") -> list[str]:
        """Name the keys that are toril's own."""
        base = f"{prefix}:{queue}:"
        return sorted(key for key in self._names(base) if key.startswith(OURS))

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def _names(self, base: str) -> list[str]:
        keys = self._call("KEYS", f"{_literal(base)}*")
        return [_text(key).removeprefix(base) for key in keys]

    def _queue(self, base: str) -> Iterator[str]:
        names = [name for name in self._names(base) if not name.startswith(OURS)]
        for name, key in sorted((self.normal(name), base + name) for name in names):
            kind = _text(self._call("TYPE", key))
            if kind == "stream" and not self._call("XLEN", key):
                continue  # toril keeps the last number of a queue's events when it destroys them
            yield f"{name} ({kind}{self._expiry(key)})"
            for line in self._content(kind, name, key):
                yield f"{name}    {line}"

    def _expiry(self, key: str) -> str:
        left: int = self._call("PTTL", key)
        if left < 0:
            return ""
        return f", expires in {-(-left // (STEP_S * 1000)) * STEP_S} s"

    def _content(self, kind: str, name: str, key: str) -> Iterator[str]:
        readers: Mapping[str, Callable[[str, str], Iterator[str]]] = {
            "string": self._string,
            "list": self._list,
            "set": self._set,
            "hash": self._hash,
            "zset": self._sorted_set,
            "stream": self._stream,
        }
        return readers[kind](name, key)

    def _string(self, name: str, key: str) -> Iterator[str]:
        value = _text(self._call("GET", key))
        if name.endswith(":lock"):
            value = "<token>"
        yield self.normal(value)

    def _list(self, name: str, key: str) -> Iterator[str]:
        for value in self._call("LRANGE", key, 0, -1):
            yield self._short(_text(value))

    def _set(self, name: str, key: str) -> Iterator[str]:
        yield from sorted(self.normal(_text(one)) for one in self._call("SMEMBERS", key))

    def _hash(self, name: str, key: str) -> Iterator[str]:
        flat = [_text(one) for one in self._call("HGETALL", key)]
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        if _ITERATION.match(name):
            options = json.loads(fields["opts"])
            fields |= {**_until(fields), "opts": json.dumps(options | _until(options))}
        elif _SCHEDULER.match(name) and "offset" in fields:
            fields["offset"] = "<offset>"
        for field in sorted(fields.keys() - _SIGNATURE.get(name, frozenset())):
            if field.startswith(OURS):
                continue
            yield f"{self.normal(field)} = {self._field(field, fields[field])}"

    def _field(self, field: str, value: str) -> str:
        if field == "opts":
            options = {k: v for k, v in json.loads(value).items() if not k.startswith(OURS)}
            return self.normal(json.dumps(options, sort_keys=True, ensure_ascii=False))
        return self._short(value)

    def _sorted_set(self, name: str, key: str) -> Iterator[str]:
        flat = self._call("ZRANGE", key, 0, -1, "WITHSCORES")
        pairs = zip(flat[::2], flat[1::2], strict=True)
        for member, raw in pairs:
            yield f"{self.normal(_text(member))} @ {self._score(name, float(raw))}"

    def _score(self, name: str, score: float) -> str:
        if name == "delayed":  # a tie-breaker is in the low bits; the order shows it
            return self.normal(str(int(score) // DELAYED_SHIFT))
        if name == "prioritized":
            priority, turn = divmod(int(score), PRIORITY_SHIFT)
            return f"priority {priority}, number {turn}"
        return self.normal(f"{score:.0f}")

    def _stream(self, name: str, key: str) -> Iterator[str]:
        for _, flat in self._call("XRANGE", key, "-", "+"):
            words = [_text(one) for one in flat]
            pairs = zip(words[::2], words[1::2], strict=True)
            yield ", ".join(f"{field} {self._short(value)}" for field, value in pairs)

    def normal(self, text: str) -> str:
        """Replace the times in a text."""
        return _MS.sub(self._since, text)

    def _since(self, found: re.Match[str]) -> str:
        ms = int(found[0])
        if ms % DAY_MS == 0:  # a slot of a scheduler: the same for every run of a day
            return f"<{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}>"
        if not self._begun - DAY_MS <= ms <= self._begun + 800 * DAY_MS:
            return found[0]
        return f"<{(ms - self._begun) // (STEP_S * 1000) * STEP_S:+} s>"

    def _short(self, text: str) -> str:
        shown = self.normal(text)
        if len(shown) <= 300:
            return ascii(shown) if not shown.isprintable() else shown
        return f"{shown[:40]!a}… {len(text)} characters, {hash_of(text)}"

    def _call(self, *args: str | int) -> Any:
        # The raw reply: parsers of the client would turn it into its own types.
        connection: Any = self._client.connection_pool.get_connection()
        try:
            connection.send_command(*args)
            return connection.read_response()
        finally:
            self._client.connection_pool.release(connection)


def hash_of(text: str) -> str:
    """A short name for a long text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")


def _until(fields: Mapping[str, Any]) -> dict[str, str]:
    """The delay of a scheduled job as a point in time: its length depends on the moment."""
    delay = int(fields.get("delay", 0))
    if not delay:
        return {}
    due = int(fields["timestamp"]) + delay
    slot = round(due / DAY_MS) * DAY_MS  # Node reads its clock twice, so it may miss by a little
    return {"delay": f"until {slot if abs(due - slot) < 1000 else due}"}


def _literal(pattern: str) -> str:
    return re.sub(r"([\[\]*?\\])", r"\\\1", pattern)


def _alias(line: str, aliases: Mapping[str, str]) -> str:
    for name, alias in aliases.items():
        line = line.replace(name, alias)
    return line
