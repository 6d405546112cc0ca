"""Sort what a server answers: values, errors to wait out, errors to tell the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from toril.errors import StorageDenied, StorageError, StorageFull, StorageUnavailable
from toril.text import printable

Argument: TypeAlias = str | bytes | int
Reply: TypeAlias = "bytes | int | list[Reply] | None"
"""What RESP2 can say; error replies become exceptions."""

_WAIT: Final = frozenset({"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"})
_STALE: Final = frozenset({"READONLY", "UNBLOCKED"})
_FULL: Final = frozenset({"OOM", "MISCONF"})
_DENIED: Final = frozenset({"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"})
_UNFIT: Final = frozenset({"NOAUTH", "WRONGPASS", "READONLY"})
LOGIN: Final = (
    ". fix: put user and password into TORIL_URL, or the password into a file (--password-file)"
)
_DENIED_IN_SCRIPT: Final = (
    "ERR ACL failure in script",
    "ERR The user executing the script can't",
)
"""What servers say where a script asks for more than its user may; the second is Redis 7.0."""
_CROWDED: Final = "ERR max number of clients"
_RIGHTS: Final = "; fix: give the user what `toril acl print` lists for its role"
_ARGUMENTS: Final = ", with args beginning with"


class ServerSaid(Exception):
    """An error reply, word for word; never leaves this package."""

    @property
    def text(self) -> str:
        """The reply as one safe line, without the arguments some errors repeat."""
        return printable(str(self).partition(_ARGUMENTS)[0], 400)

    @property
    def code(self) -> str:
        """The first word, which is what clients go by."""
        return str(self).partition(" ")[0]


class Lost(Exception):
    """The connection broke; a command on it may or may not have run."""


@dataclass(frozen=True, slots=True)
class Reload:
    """The server forgot the script; load it and ask again."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The trouble passes by itself; ask the same server again soon."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The server is no master (any more); find the master and ask there."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """Another node of the cluster serves the slot: from now on, or for this question only."""

    slot: int
    host: str
    port: int
    ask: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Asking again does not help."""

    kind: type[StorageError]


Verdict: TypeAlias = Reload | Wait | Stale | Redirect | Refusal


def judge(said: ServerSaid) -> Verdict:
    """Tell what an error reply calls for."""
    code = said.code
    if code == "NOSCRIPT":
        return Reload()
    if code in ("MOVED", "ASK"):
        return _redirect(said)
    if code in _WAIT or str(said).startswith(_CROWDED):
        return Wait()
    if code in _STALE:
        return Stale()
    if code in _FULL:
        return Refusal(StorageFull)
    if _is_denial(said):
        return Refusal(StorageDenied)
    return Refusal(StorageUnavailable if code == "NOREPLICAS" else StorageError)


def _is_denial(said: ServerSaid) -> bool:
    return said.code in _DENIED or str(said).startswith(_DENIED_IN_SCRIPT)


def refusal(said: ServerSaid, where: object) -> StorageError:
    """Make the error a caller gets for a reply that was not waited out."""
    match judge(said):
        case Refusal(kind=kind):
            pass
        case Reload():
            kind = StorageError
        case _:
            kind = StorageUnavailable
    mark = "toril[E15] " if said.code in _UNFIT else ""
    return kind(f"{mark}server at {where}: {said.text}{_way_out(said)}")


def _way_out(said: ServerSaid) -> str:
    match said.code:
        case "NOAUTH":
            return LOGIN
        case "READONLY":
            return "; this is a replica. fix: give the master's address, sentinels or a cluster URL"
        case "OOM":
            return "; nothing was written, free memory or raise maxmemory"
        case "NOPERM" | "ERR" if _is_denial(said):
            return _RIGHTS
        case _:
            return ""


def _redirect(said: ServerSaid) -> Verdict:
    """Read `MOVED 3999 host:port`; an empty host means the one that was asked."""
    parts = str(said).split(" ")
    if len(parts) < 3 or not parts[1].isdecimal():
        return Refusal(StorageError)
    host, _, port = parts[2].rpartition(":")
    if not port.isdecimal():
        return Refusal(StorageError)
    host = "" if host == "?" else host.strip("[]")
    return Redirect(int(parts[1]), host, int(port), parts[0] == "ASK")


def worth_repeating(answer: object) -> bool:
    """Tell whether an answer, or an error inside an EXEC, can be waited out."""
    if isinstance(answer, list):
        return any(isinstance(part, ServerSaid) and worth_repeating(part) for part in answer)
    if isinstance(answer, ServerSaid):
        return not isinstance(judge(answer), Refusal)
    return isinstance(answer, Lost)


def trouble_in(answer: object) -> ServerSaid | Lost:
    """Give the error that makes an answer worth repeating."""
    inside = answer if isinstance(answer, list) else [answer]
    trouble = next(part for part in inside if worth_repeating(part))
    assert isinstance(trouble, ServerSaid | Lost)
    return trouble


def shown(answer: Reply | ServerSaid | Lost, where: object) -> Reply | Exception:
    """Make the errors of a pipeline the ones callers know, also inside an EXEC."""
    if isinstance(answer, ServerSaid):
        return refusal(answer, where)
    if isinstance(answer, list) and any(isinstance(part, ServerSaid) for part in answer):
        return [cast("Reply", shown(part, where)) for part in answer]
    return answer


def is_transaction(commands: Sequence[Sequence[Argument]]) -> bool:
    """Tell whether a pipeline holds a MULTI, so that it is repeated as a whole or not at all."""
    return any(command[0] in ("MULTI", "multi", b"MULTI", b"multi") for command in commands)
