"""Name the rights that each kind of user needs on a server: these commands, these keys, no more.

A user has a role, or several. What a role may do is what its verbs send, in scripts and beside
them: scripts run with the rights of whoever calls them. `COMMANDS` is the one place that says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from toril.errors import InvalidOption
from toril.ids import check_name
from toril.resp.url import Address, Layout
from toril.storage.bullmq.keys import PREFIX as BULLMQ_PREFIX
from toril.storage.bullmq.keys import check_tagging, keys_of
from toril.storage.redis.layout import PREFIX, base_of
from toril.text import printable, suggest

Role = Literal["producer", "worker", "viewer", "admin"]
Group = Literal["produce", "work", "observe", "list", "tend"]
Format = Literal["setuser", "file"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)

PLACEHOLDER: Final = "#SHA256-OF-THE-PASSWORD"
"""Stands for a password that was not given; a server refuses it, so nobody logs in with it."""

_GROUPS: Final[Mapping[Role, tuple[Group, ...]]] = {
    "producer": ("produce",),
    "worker": ("work", "observe"),
    "viewer": ("observe", "list"),
    "admin": ("produce", "work", "observe", "list", "tend"),
}

_EVERYBODY: Final = "client|id client|unblock evalsha info ping script|load"
_WRITERS: Final = "client|kill"
"""Ends a broken connection of one's own before a command is sent again."""

COMMANDS: Final[Mapping[Layout, Mapping[Group, str]]] = {
    "lean": {
        "produce": (
            "blmpop del exists get hdel hexists hget hincrby hmget hset hsetnx llen lpush pexpire"
            " rpush sadd set time xadd zadd zcount zrange zrem zrevrangebyscore"
        ),
        "work": (
            "blpop del exists get hdel hget hincrby hmget hset llen lpop lpush lrange ltrim pexpire"
            " rpush sadd srem time xadd zadd zcard zcount zpopmin zrange zrangebyscore zrem"
            " zremrangebyscore zrevrangebyscore"
        ),
        "observe": (
            "exists hexists hget hmget llen lrange scard time xrange xread zcard zcount zrange"
            " zrangebyscore zrank zrevrange zscore"
        ),
        "list": "smembers",
        "tend": (
            "del exists get hdel hget hincrby hmget hscan hset hsetnx llen lpush lrange pexpire"
            " rpush sadd set srem time unlink xadd xtrim zadd zcard zrange zrangebyscore zrem"
            " zrevrange zrevrangebyscore"
        ),
    },
    "bullmq": {
        "produce": (
            "del exec exists get hexists hget hgetall hmget hmset hset incr incrby llen lpos lpush"
            " lrem multi rpush sadd scard script|exists set smembers srem time xadd xread xrevrange"
            " xtrim zadd zrange zrem zrevrangebyscore zscore"
        ),
        "work": (
            "bzpopmin client|setname del exec exists get hdel hexists hget hgetall hincrby hlen"
            " hmget hmset hset incr llen lpos lpush lrange lrem ltrim mget multi pexpire pttl rpop"
            " rpoplpush rpush sadd scard script|exists set smembers srem time xadd xrange xrevrange"
            " xtrim zadd zcard zpopmin zrange zrangebyscore zrem zremrangebyrank zremrangebyscore"
            " zrevrange zrevrangebyscore zscore"
        ),
        "observe": (
            "exists hexists hget hgetall hmget llen lpos lrange time xinfo|stream xrange xread"
            " xrevrange zcard zcount zmscore zrange zrangebyscore zrank zrevrange zscore"
        ),
        "list": "client|list scan",
        "tend": (
            "del exec exists get hdel hexists hget hgetall hmget hset incr lindex llen lmove lpop"
            " lpos lpush lrange lrem lset ltrim multi rename rpush sadd scard script|exists set"
            " smembers srem time xadd xgroup|create xgroup|destroy xinfo|stream xrange xrevrange"
            " xsetid xtrim zadd zcard zrange zrangebyscore zrem zremrangebyscore zrevrangebyscore"
            " zscore"
        ),
    },
}

_PRODUCED: Final = (
    "", "meta", "jobs", "ended", "specs", "results", "progress", "queue", "stale", "prioritized",
    "delayed", "completed", "failed", "expiry", "events", "wake", "broken", "dedup:*", "logs:*",
    "reply:*", "once:*",
)  # fmt: skip
"""Keys of a lean queue that its producers touch: not those of running jobs and of workers, so that
a claim is refused before it did anything. BullMQ keeps jobs beside all other keys of a queue."""

_FENCE: Final = ":toril-fence"
_EVERY: Final = "\0"
_SPECIAL: Final = re.compile(r"[*?\[\]\\^]")
_NAME: Final = re.compile(r"[!#-&(-~]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user as a server is told of it."""

    name: str
    roles: tuple[Role, ...]
    keys: tuple[str, ...]
    commands: tuple[str, ...]
    secret: str = PLACEHOLDER
    """`#` and the SHA-256 of the password."""

    def write(self, form: Format) -> str:
        """Write the command that makes the user, or its line in a users.acl file."""
        rules = ("on", self.secret, "resetchannels", *self.keys, "-@all")
        words = (*rules, *(f"+{command}" for command in self.commands))
        if form == "file":
            return " ".join(("user", self.name, *words))
        return " ".join(map(_quoted, ("ACL", "SETUSER", self.name, "reset", *words)))


def make_user(
    address: Address,
    roles: Sequence[Role],
    *,
    queues: Sequence[str] = (),
    name: str | None = None,
    secret: str = PLACEHOLDER,
) -> User:
    """Make a user for a storage, in all of its queues or in some."""
    if address.layout == "bullmq":
        check_tagging(address)
    groups = _groups_of(roles, queues)
    chosen = name or f"toril-{'-'.join(roles)}"
    if not _NAME.fullmatch(chosen):
        raise InvalidOption(
            f"user name '{printable(chosen, 40)}': up to 100 ASCII characters, no space, no quotes"
        )
    bases = [_base(address, check_name("queue", one)) for one in queues] or [_base(address, _EVERY)]
    return User(
        name=chosen,
        roles=tuple(roles),
        keys=tuple(_keys(address, groups, bases)),
        commands=tuple(_commands(address, groups)),
        secret=secret,
    )


def read_roles(text: str) -> tuple[Role, ...]:
    """Read a role, or several joined by '+'."""
    roles: list[Role] = []
    for part in text.split("+"):
        found = next((role for role in ROLES if role == part), None)
        if found is None:
            raise InvalidOption(
                f"unknown role '{printable(part, 40)}'.{suggest(part, ROLES)}"
                f" Known: {', '.join(ROLES)}; several as in producer+viewer"
            )
        roles.append(found)
    return tuple(dict.fromkeys(roles))


def hashed(password: str) -> str:
    """Write a password as an ACL rule that does not show it."""
    if not password:
        raise InvalidOption("the password is empty; anybody could log in")
    return "#" + hashlib.sha256(password.encode()).hexdigest()


def _groups_of(roles: Sequence[Role], queues: Sequence[str]) -> set[Group]:
    groups = {group for role in roles for group in _GROUPS[role]}
    # Whoever may see some queues only must not read the names of all.
    return groups - {"list"} if queues else groups


def _base(address: Address, queue: str) -> str:
    """Give the pattern that the keys of a queue, or of every queue, begin with."""
    if address.layout == "lean":
        base = base_of(address.prefix, queue)
    elif queue == _EVERY:
        base = f"{address.prefix or BULLMQ_PREFIX}:{_EVERY}:"  # in braces or not
    else:
        base = keys_of(address, queue).base
    return _literal(base).replace(_EVERY, "*")


def _literal(text: str) -> str:
    """Write text as a pattern; no pattern can hold a space, so there it takes any character."""
    return re.sub(r"\s", "?", _SPECIAL.sub(lambda found: f"\\{found[0]}", text))


def _keys(address: Address, groups: set[Group], bases: Iterable[str]) -> Iterator[str]:
    lean = address.layout == "lean"
    names = _literal(f"{address.prefix or PREFIX}:queues")
    if lean and groups & {"produce", "tend"}:
        yield f"~{names}"
    elif lean and "list" in groups:
        yield f"%R~{names}"
    for base in bases:
        if groups & {"work", "tend"} or ("produce" in groups and not lean):
            yield f"~{base}*"
            continue
        if "produce" in groups:
            fence = () if address.durability == "memory" else (_FENCE,)
            yield from (f"~{base}{name}" for name in (*_PRODUCED, *fence))
        if "observe" in groups:
            yield f"%R~{base}*"
            if "produce" not in groups:
                yield f"~{base}"  # what scripts are told as their key; no data lies there


def _commands(address: Address, groups: set[Group]) -> list[str]:
    table = COMMANDS[address.layout]
    found = set(_EVERYBODY.split())
    for group in groups:
        found.update(table[group].split())
    writes = bool(groups & {"produce", "work", "tend"})
    if writes:
        found.update(_WRITERS.split())
    if address.db:
        found.add("select")
    if address.kind == "cluster":
        found.update(("asking", "cluster|slots"))
    if address.kind == "sentinel":
        found.add("role")
    if address.durability != "memory":
        found.add("waitaof" if address.durability == "local" else "wait")
        if writes:
            found.add("set")
    return sorted(found)


def _quoted(word: str) -> str:
    """Quote a word for the server's command line, where it would read it otherwise."""
    if not re.search(r"[\"']", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
