"""`toril acl print` as its users meet it, and what servers make of its lines."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import toril
from tests.servers import Server, redis_binary, valkey_binary
from toril.acl import PLACEHOLDER, ROLES
from toril.errors import StorageDenied
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url


@pytest.fixture(scope="module", params=[valkey_binary, redis_binary])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(request.param()) as running:
        yield running


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("open sesame\n")
    return path


def typed(server: Server, line: str) -> str:
    """Type a line at the server, which takes words and quotes apart as its command line does."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as link:
        link.sendall(f"{line}\r\n".encode())
        return link.recv(1000).decode()


def test_a_printed_line_makes_a_user_who_can_log_in(server: Server, password: Path) -> None:
    done = toril("acl", "print", "worker", "--user", "w-1", "--password-file", str(password))
    assert (done.code, done.err) == (0, "")
    assert hashlib.sha256(b"open sesame").hexdigest() in done.out
    assert "sesame" not in done.out
    assert typed(server, done.out.rstrip("\n")) == "+OK\r\n"
    client = SyncClient(parse_url(f"redis://w-1:open%20sesame@127.0.0.1:{server.port}"))
    assert client.call("", "PING") == b"PONG"
    with pytest.raises(StorageDenied):
        client.call("", "FLUSHALL")
    client.close()


def test_odd_prefixes_and_names_reach_the_server_as_they_are(
    server: Server, password: Path
) -> None:
    odd = toril(
        *("acl", "print", "worker", "--user", "odd", "--password-file", str(password)),
        *("--prefix", "a\"b'*", "--queue", "c\\d[1]"),
    )
    assert typed(server, odd.out.rstrip("\n")) == "+OK\r\n"
    client = SyncClient(parse_url(f"redis://odd:open%20sesame@127.0.0.1:{server.port}"))
    mine = "{a\"b'*:c\\d[1]}:meta"
    assert client.call(mine, "HGET", mine, "layout") is None
    for foreign in ("{a\"b'x:c\\d[1]}:meta", "{a\"b'*:c\\d1}:meta"):
        with pytest.raises(StorageDenied):
            client.call(foreign, "HGET", foreign, "layout")
    client.close()


def test_without_a_password_nobody_gets_in(server: Server) -> None:
    done = toril("acl", "print")
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line.split(" ")[2] for line in lines] == [f"toril-{role}" for role in ROLES]
    for line in lines:
        assert PLACEHOLDER in line
        assert typed(server, line).startswith("-ERR Error in ACL SETUSER modifier")
    assert "--password-file" in done.err
    assert toril("acl", "print", "-q").err == ""


def test_the_url_tells_layout_and_prefix_and_keeps_its_secret() -> None:
    secret = "bullmq+redis://me:hush@db:6379/2?prefix=shop"
    done = toril("acl", "print", "viewer", "--format", "file", TORIL_URL=secret)
    assert done.out.startswith(f"user toril-viewer on {PLACEHOLDER} resetchannels %R~shop:*:* ")
    assert " +select " in done.out
    assert "hush" not in done.out + done.err
    other = toril("acl", "print", "viewer", "--layout", "lean", "--prefix", "p", TORIL_URL=secret)
    assert " %R~{p:*}:* " in other.out


def test_one_document_holds_all_parts() -> None:
    done = toril("acl", "print", "producer+viewer", "--queue", "mail", "--json")
    (user,) = done.json()["users"]
    assert (user["name"], user["roles"]) == ("toril-producer-viewer", ["producer", "viewer"])
    assert user["line"].endswith(" ".join(f"+{command}" for command in user["commands"]))
    assert set(user["keys"]) <= set(user["line"].split(" "))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["wroker"], "unknown role 'wroker'. Did you mean 'worker'?"),
        (["--user", "x"], "--user and --password-file are for one user, these are 4"),
        (["viewer", "--password-file", "/nowhere"], "'/nowhere' cannot be read"),
        (["viewer", "--url", "redis://me:hush@db"], "holds a password"),
        (["viewer", "--url", "file:jobs"], "this storage has no users"),
        (["viewer", "--url", "redsi://db"], "unknown scheme 'redsi'"),
        (["viewer", "--queue", "a:b"], "queue name 'a:b' holds ':'"),
        (["viewer", "--user", "two words"], "no space, no quotes"),
        (["viewer", "--layout", "wide"], "'wide' is not one of"),
    ],
)
def test_mistakes_are_told_before_anything_is_printed(args: list[str], said: str) -> None:
    done = toril("acl", "print", *args)
    assert (done.code, done.out) == (2, "")
    done.check_brief()
    assert said in done.err
    assert "hush" not in done.err
