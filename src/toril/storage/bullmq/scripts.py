"""Write the commands that run official scripts: KEYS and ARGV in their order.

A Lua error does not undo what the script did before it, so everything is checked here, before
it is sent: the number of keys and arguments, their types, the token, the options.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from toril.errors import InvalidInput
from toril.resp.replies import Argument
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.official import key_counts, scripts

Command = tuple[Argument, ...]

# Keys by name; @job is the job's hash, @x the argument `special` of `call`.
_WORK: Final = "wait active prioritized events stalled limiter delayed paused meta pc"
_LAYOUTS: Final[dict[str, tuple[str, int]]] = {
    "addStandardJob": ("wait paused meta id completed delayed active events marker", 3),
    "addDelayedJob": ("marker meta id delayed completed events", 3),
    "addPrioritizedJob": ("marker meta id prioritized delayed completed active events pc", 3),
    "moveToActive": (f"{_WORK} marker", 3),
    "moveToFinished": (f"{_WORK} @x @job metrics:@x marker", 9),
    "moveToDelayed": ("marker active prioritized delayed @job events meta stalled", 7),
    "retryJob": (
        "active wait paused @job meta events delayed prioritized pc marker stalled",
        6,
    ),
    "moveJobFromActiveToWait": (
        "active wait stalled paused meta limiter prioritized marker events",
        3,
    ),
    "moveStalledJobsToWait": ("stalled wait active stalled-check meta paused marker events", 4),
    "extendLocks": ("stalled", 4),
    "changeDelay": ("delayed meta marker events", 4),
    "changePriority": ("wait paused meta prioritized active pc marker", 4),
    "promote": ("delayed wait paused meta prioritized active pc events marker", 2),
    "cleanJobsInSet": ("@x events repeat", 4),
    "obliterate": ("meta @base", 2),
    "removeJob": ("@job repeat", 3),
    "updateJobScheduler": (
        "repeat delayed wait paused meta prioritized marker id events pc @job active",
        7,
    ),
    "updateRepeatableJobMillis": ("repeat", 3),
}
USED: Final = tuple(_LAYOUTS)


@lru_cache(maxsize=4096)
def _head(name: str, base: str, job_id: str, special: str) -> Command:
    layout, _ = _LAYOUTS[name]
    keys = []
    for part in layout.split():
        if part == "@base":
            keys.append(base)
        elif part == "@job":
            keys.append(base + job_id)
        else:
            keys.append(base + part.replace("@x", special))
    if len(keys) != key_counts()[name]:
        raise InvalidInput(f"script {name}: {len(keys)} keys given, it takes {key_counts()[name]}")
    return ("EVALSHA", scripts()[name].sha, len(keys), *keys)


def call(name: str, keys: Keys, *args: Argument, job_id: str = "", special: str = "") -> Command:
    """Write the command that runs an official script."""
    if len(args) != _LAYOUTS[name][1]:
        raise InvalidInput(f"script {name}: {len(args)} arguments, it takes {_LAYOUTS[name][1]}")
    for number, arg in enumerate(args, 1):
        if type(arg) not in (str, bytes, int):
            kind = type(arg).__name__
            raise InvalidInput(f"script {name}: argument {number} is {kind}, not text or a number")
    if job_id:
        # Keys of one job differ by the job only, so they are not worth remembering.
        return _head.__wrapped__(name, keys.base, job_id, special) + args
    return _head(name, keys.base, "", special) + args


def check_token(token: str) -> str:
    """Refuse a token that would make a script skip its check of ownership."""
    if not token or token == "0":
        raise InvalidInput(f"token {token!r} stands for 'no lock' on the BullMQ wire")
    return token
