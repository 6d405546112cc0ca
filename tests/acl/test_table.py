"""The table of rights says what the sources send, no less and no more."""

from __future__ import annotations

import pytest

from tests.acl.sources import GROUPS, all_scripts, commands_of, sent_beside
from toril.acl import COMMANDS, PLACEHOLDER, ROLES, Group, Role, hashed, make_user, read_roles
from toril.errors import InvalidName, InvalidOption
from toril.resp.url import Layout, parse_url

LAYOUTS: tuple[Layout, ...] = ("lean", "bullmq")
URLS = {"lean": "redis://db", "bullmq": "bullmq+redis://db"}
ALWAYS = {"client|id", "client|unblock", "evalsha", "info", "ping", "script|load"}


def rights(url: str, *roles: Role, queues: tuple[str, ...] = ()) -> set[str]:
    return set(make_user(parse_url(url), roles, queues=queues).commands)


def keys(url: str, *roles: Role, queues: tuple[str, ...] = ()) -> list[str]:
    return list(make_user(parse_url(url), roles, queues=queues).keys)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("group", ["produce", "work", "observe", "list", "tend"])
def test_a_group_of_verbs_has_the_commands_its_sources_send(layout: Layout, group: Group) -> None:
    assert set(COMMANDS[layout][group].split()) == commands_of(layout, group)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_script_belongs_to_a_group(layout: Layout) -> None:
    known = {name for verbs in GROUPS[layout].values() for name in verbs.scripts.split()}
    assert known == all_scripts(layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_command_beside_the_scripts_belongs_to_a_group(layout: Layout) -> None:
    known = {command for verbs in GROUPS[layout].values() for command in verbs.direct.split()}
    # What the connection sends by itself, and what is an argument of a script.
    others = {"evalsha", "script|load", "rpush", "lpush"}
    assert sent_beside(layout) - others == known - {"client|setname"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_admin_may_what_all_others_may(layout: Layout) -> None:
    assert rights(URLS[layout], "admin") == rights(URLS[layout], *ROLES)
    assert all(rights(URLS[layout], role) < rights(URLS[layout], "admin") for role in ROLES[:-1])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nobody_gets_what_is_dangerous(layout: Layout) -> None:
    dangerous = {"flushall", "flushdb", "keys", "config", "debug", "shutdown", "acl", "eval"}
    assert {one.partition("|")[0] for one in rights(URLS[layout], "admin")} & dangerous == set()


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("redis://db/3", {"select"}),
        ("unix:///run/db.sock?db=2", {"select"}),
        ("redis+cluster://a,b", {"asking", "cluster|slots"}),
        ("redis+sentinel://a/main", {"role"}),
        ("redis://db?durability=local", {"waitaof", "set"}),
        ("redis://db?durability=replicated:2", {"wait", "set"}),
    ],
)
def test_a_url_asks_for_what_its_connections_need(url: str, more: set[str]) -> None:
    assert rights(url, "worker") - rights("redis://db", "worker") == more


def test_a_viewer_reads_and_writes_nothing() -> None:
    assert keys("redis://db", "viewer") == ["%R~jq:queues", "%R~{jq:*}:*", "~{jq:*}:"]
    assert keys("bullmq+redis://db", "viewer") == ["%R~bull:*:*", "~bull:*:"]
    assert "set" not in rights("redis://db?durability=local", "viewer")


def test_a_lean_producer_touches_neither_running_jobs_nor_workers() -> None:
    found = keys("redis://db", "producer")
    assert "~{jq:*}:queue" in found
    assert {"~{jq:*}:processing", "~{jq:*}:workers", "~{jq:*}:*"} & set(found) == set()
    assert "~{jq:*}::toril-fence" in keys("redis://db?durability=local", "producer")


def test_named_queues_narrow_the_keys_and_hide_the_names_of_the_others() -> None:
    assert keys("redis://db?prefix=app", "worker", queues=("mail", "sms")) == [
        "~{app:mail}:*",
        "~{app:sms}:*",
    ]
    assert keys("bullmq+redis://db", "admin", queues=("mail",)) == ["~bull:{mail}:*"]
    assert keys("bullmq+redis://db?hash_tag=off", "admin", queues=("mail",)) == ["~bull:mail:*"]
    assert keys("bullmq+redis://db?prefix={b}", "admin", queues=("mail",)) == ["~{b}:mail:*"]
    assert "scan" in rights("bullmq+redis://db", "viewer")
    assert "scan" not in rights("bullmq+redis://db", "viewer", queues=("mail",))
    assert "smembers" not in rights("redis://db", "viewer", queues=("mail",))


def test_what_a_pattern_would_read_otherwise_is_escaped() -> None:
    assert keys("redis://db?prefix=a*b", "worker", queues=("x[1]?", "two words")) == [
        r"~{a\*b:x\[1\]\?}:*",
        r"~{a\*b:two?words}:*",
    ]
    line = make_user(parse_url("redis://db?prefix=%22q%22"), ["worker"]).write("setuser")
    assert r'"~{\"q\":*}:*"' in line


def test_roles_are_joined_by_a_plus() -> None:
    assert read_roles("producer+viewer+producer") == ("producer", "viewer")
    with pytest.raises(InvalidOption, match=r"unknown role 'wroker'. Did you mean 'worker'\?"):
        read_roles("producer+wroker")


def test_bad_names_and_passwords_are_refused() -> None:
    address = parse_url("redis://db")
    with pytest.raises(InvalidOption, match="no space, no quotes"):
        make_user(address, ["viewer"], name="two words")
    with pytest.raises(InvalidName, match="holds ':'"):
        make_user(address, ["viewer"], queues=["a:b"])
    with pytest.raises(InvalidOption, match="empty"):
        hashed("")


def test_without_a_password_the_line_holds_a_mark_that_servers_refuse() -> None:
    user = make_user(parse_url("redis://db"), ["viewer"])
    assert user.write("setuser").startswith(f"ACL SETUSER toril-viewer reset on {PLACEHOLDER} ")
    assert user.write("file").startswith(f"user toril-viewer on {PLACEHOLDER} resetchannels ")
