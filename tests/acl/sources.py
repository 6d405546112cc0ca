"""Read from the sources which commands each group of verbs sends, in scripts and beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from toril.resp.url import Layout
from toril.storage.bullmq.official import OWN, own, scripts
from toril.storage.bullmq.scripts import USED
from toril.storage.redis.scripts import script

_COMMENT: Final = re.compile(r"--\[\[.*?\]\]|--[^\n]*", re.DOTALL)
_CALL: Final = re.compile(r"\b(?:p?call|rcall|flush)\s*\(\s*[\"']([A-Za-z]+)[\"']")
_LITERAL: Final = re.compile(r"[\"']([A-Z]{3,20})[\"']")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_FUNCTION: Final = re.compile(r"^local function (\w+).*?^end$", re.MULTILINE | re.DOTALL)
_PAIR: Final = re.compile(r"\"(CLIENT|SCRIPT)\", \"([A-Z]+)\"")
_WITH_SUBCOMMAND: Final = re.compile(r"[\"'](XINFO|XGROUP)[\"'],\s*[\"']([A-Z]+)[\"']")

OPTIONS: Final = {
    *("LIMIT", "WITHSCORES", "MINID", "MAXLEN", "COUNT", "KEEPTTL", "LEFT", "RIGHT", "STREAM"),
    *("MKSTREAM", "ENTRIESADDED", "MAXDELETEDID", "CREATE", "DESTROY", "BLOCK", "STREAMS"),
    *("MATCH", "TYPE"),
}
"""Words in capitals that are no commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """The scripts that a group of verbs runs, and the commands it sends beside them."""

    scripts: str = ""
    direct: str = ""
    if_allowed: str = ""
    """What scripts send only for users who may: to tidy up behind a look, or to be quicker."""


ADDS: Final = "addStandardJob addDelayedJob addPrioritizedJob"

GROUPS: Final[Mapping[Layout, Mapping[str, Verbs]]] = {
    "lean": {
        "produce": Verbs(
            scripts="enqueue cancel get remove keep finished",
            direct="hsetnx hget sadd blmpop",
        ),
        "work": Verbs(
            scripts="claim claim_alone settle settle_alone renew reap note outlook ring",
            direct="blpop zrange zrem",
        ),
        "observe": Verbs(
            scripts="get counts peek workers scan",
            direct="hget xrange xread lrange zcount zscore",
            if_allowed="del get hdel sadd zrem",
        ),
        "list": Verbs(direct="smembers"),
        "tend": Verbs(
            scripts="pause peek purge destroy edit discard tune get",
            direct="hsetnx hget sadd srem",
        ),
    },
    "bullmq": {
        "produce": Verbs(
            scripts=f"add later ready mark known get drop keep ended removeJob {ADDS}",
            direct="multi exec get time xread xrevrange script|exists",
        ),
        "work": Verbs(
            scripts="finish finish_alone granted mend outlook ring end fate back note sweep mark"
            " moveToActive moveToFinished moveToDelayed retryJob moveJobFromActiveToWait"
            " moveStalledJobsToWait extendLocks updateJobScheduler updateRepeatableJobMillis"
            f" {ADDS}",
            direct="multi exec get time pttl zadd zrange zrem hget hmget bzpopmin"
            " script|exists client|setname",
            if_allowed="msetex",
        ),
        "observe": Verbs(
            scripts="get counts peek events workers scan",
            direct="time lrange xread xrange xrevrange zcount zmscore",
            if_allowed="del lrem zadd zrem",
        ),
        "list": Verbs(direct="scan client|list"),
        "tend": Verbs(
            scripts="pause drain remember raze replace revive discard tune back drop cleanJobsInSet"
            " obliterate removeJob changeDelay changePriority promote",
            direct="multi exec time exists del script|exists",
        ),
    },
}


def commands_of(layout: Layout, group: str) -> set[str]:
    """Name the commands of a group as an ACL does."""
    verbs = GROUPS[layout][group]
    found = {
        command for name in verbs.scripts.split() for command in _in_script(_text(layout, name))
    }
    return (found | set(verbs.direct.split())) - set(verbs.if_allowed.split())


def sent_beside(layout: Layout) -> set[str]:
    """Name every command that the Python of a layout sends itself."""
    package = "redis" if layout == "lean" else "bullmq"
    folder = files("toril.storage") / package
    sources = [one for one in folder.iterdir() if one.name.endswith(".py")]
    sources.append(files("toril.storage") / "columns_walk.py")
    found: set[str] = set()
    for source in sources:
        text = source.read_text("utf-8")
        found |= {f"{name}|{sub}" for name, sub in _PAIR.findall(text)}
        found |= set(_LITERAL.findall(_PAIR.sub("", text))) - OPTIONS
    return {name.lower() for name in found}


def all_scripts(layout: Layout) -> set[str]:
    """Name every script that a layout sends."""
    if layout == "bullmq":
        return {*OWN, *USED}
    shared = {"enqueue_alone", "idle", "prelude", "claiming", "once", "seldom"}
    folder = files("toril.storage.redis") / "lua"
    return {one.name.removesuffix(".lua") for one in folder.iterdir()} - shared


def _text(layout: Layout, name: str) -> str:
    if layout == "lean":
        return script(name).text
    return (own(name) if name in OWN else scripts()[name]).text


def _in_script(text: str) -> set[str]:
    used = _used(_COMMENT.sub("", text))
    names = {name.upper() for name in _CALL.findall(used)} | set(_LITERAL.findall(used))
    names -= OPTIONS
    for name, sub in _WITH_SUBCOMMAND.findall(used):
        names.discard(name)
        names.add(f"{name}|{sub}")
    return {name.lower() for name in names}


def _used(text: str) -> str:
    """Leave out functions that nothing calls: all scripts share one prelude."""
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(text)}
    used = _FUNCTION.sub("", text)
    todo = set(_WORD.findall(used)) & functions.keys()
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        seen.add(name)
        used += f"\n{functions[name]}"
        todo |= set(_WORD.findall(functions[name])) & functions.keys() - seen
    return used
