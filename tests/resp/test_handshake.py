"""Logging in: to old servers and proxies, to servers that are not ready, to strangers."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.resp.fake import OK, Fake, greet
from toril.errors import StorageDenied, StorageError, StorageFull, StorageUnavailable
from toril.resp.client import Client, Settings
from toril.resp.replies import (
    Redirect,
    Refusal,
    Reload,
    ServerSaid,
    Stale,
    Verdict,
    Wait,
    judge,
    refusal,
)
from toril.resp.url import parse_url

QUICK = Settings(patience=0.3, connect_timeout=0.3, command_timeout=0.3)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("NOSCRIPT No matching script", Reload()),
        ("LOADING Redis is loading", Wait()),
        ("BUSY Redis is busy", Wait()),
        ("TRYAGAIN Multiple keys", Wait()),
        ("CLUSTERDOWN Hash slot not served", Wait()),
        ("MASTERDOWN Link with MASTER is down", Wait()),
        ("ERR max number of clients reached", Wait()),
        ("READONLY You can't write", Stale()),
        ("UNBLOCKED force unblock", Stale()),
        ("MOVED 3999 10.0.0.1:6381", Redirect(3999, "10.0.0.1", 6381, False)),
        ("MOVED 3999 :6381", Redirect(3999, "", 6381, False)),
        ("MOVED 3999 ?:6381", Redirect(3999, "", 6381, False)),
        ("ASK 1 ::1:6381", Redirect(1, "::1", 6381, True)),
        ("MOVED nonsense", Refusal(StorageError)),
        ("MOVED 1 nonsense", Refusal(StorageError)),
        ("OOM command not allowed", Refusal(StorageFull)),
        ("MISCONF Errors writing to the AOF file", Refusal(StorageFull)),
        ("NOAUTH Authentication required.", Refusal(StorageDenied)),
        ("WRONGPASS invalid", Refusal(StorageDenied)),
        ("NOPERM no permissions", Refusal(StorageDenied)),
        ("DENIED protected mode", Refusal(StorageDenied)),
        ("NOREPLICAS Not enough good replicas", Refusal(StorageUnavailable)),
        ("BUSYGROUP Consumer Group name already exists", Refusal(StorageError)),
        ("WRONGTYPE Operation", Refusal(StorageError)),
        ("", Refusal(StorageError)),
    ],
)
def test_every_error_reply_has_its_verdict(text: str, verdict: Verdict) -> None:
    assert judge(ServerSaid(text)) == verdict


def test_a_message_names_the_server_and_the_way_out() -> None:
    error = refusal(ServerSaid("READONLY You can't write.\nX"), "h:1")
    assert type(error) is StorageUnavailable
    assert str(error).startswith(
        "toril[E15] server at h:1: READONLY You can't write.\\x0aX; this is a replica"
    )


async def test_a_server_without_hello_is_logged_into_the_old_way() -> None:
    def answer(command: list[bytes]) -> bytes | None:
        if command[0] == b"HELLO":
            return b"-ERR unknown command 'HELLO'\r\n"
        return greet(command)

    async with Fake(answer) as fake:
        for login, auth in ((":pw@", [b"pw"]), ("bob:pw@", [b"bob", b"pw"])):
            fake.commands.clear()
            client = Client(parse_url(f"redis://{login}127.0.0.1:{fake.port}/3"), QUICK)
            await client.open()
            await client.close()
            assert [b"AUTH", *auth] in fake.commands
            assert fake.commands.count([b"SELECT", b"3"]) == 2
            assert [b"CLIENT", b"SETNAME", b"toril"] in fake.commands


async def test_a_password_the_old_way_can_be_wrong_too() -> None:
    def answer(command: list[bytes]) -> bytes | None:
        if command[0] == b"HELLO":
            return b"-ERR unknown command 'HELLO'\r\n"
        if command[0] == b"AUTH":
            return b"-WRONGPASS invalid username-password pair\r\n"
        return greet(command)

    async with Fake(answer) as fake:
        client = Client(parse_url(f"redis://:pw@127.0.0.1:{fake.port}"), QUICK)
        with pytest.raises(StorageDenied, match="WRONGPASS"):
            await client.open()


async def test_a_loading_server_is_waited_for() -> None:
    ready = time.monotonic() + 0.4

    def answer(command: list[bytes]) -> bytes | None:
        if command[0] == b"GET":
            loading = time.monotonic() < ready
            return (
                b"-LOADING Redis is loading the dataset in memory\r\n"
                if loading
                else b"$1\r\nv\r\n"
            )
        return greet(command)

    async with Fake(answer) as fake:
        client = Client(parse_url(fake.url))
        await client.open()
        assert await client.call("k", "GET", "k") == b"v"
        ready = time.monotonic() + 60
        hurried = Client(parse_url(fake.url), QUICK)
        await hurried.open()
        with pytest.raises(StorageUnavailable, match="LOADING"):
            await hurried.call("k", "GET", "k")
        answers = await hurried.pipeline("k", [["GET", "k"], ["PING"]])
        assert isinstance(answers[0], StorageUnavailable)
        assert answers[1] == b"PONG"
        await client.close()
        await hurried.close()


async def test_a_stranger_is_recognised() -> None:
    async with Fake(lambda _command: b"HTTP/1.1 400 Bad Request\r\n\r\n") as fake:
        client = Client(parse_url(fake.url), QUICK)
        with pytest.raises(StorageUnavailable, match="not a RESP server"):
            await client.open()


async def test_a_server_that_accepts_and_is_silent_is_given_up() -> None:
    async with Fake(lambda _command: None) as fake:
        client = Client(parse_url(fake.url), Settings(patience=0.3, connect_timeout=0.1))
        with pytest.raises(StorageUnavailable, match="timed out"):
            await client.open()


async def test_a_reply_nobody_asked_for_breaks_the_connection_and_nothing_else() -> None:
    def answer(command: list[bytes]) -> bytes | None:
        return b"+one\r\n+two\r\n" if command[0] == b"TWICE" else greet(command) or OK

    async with Fake(answer) as fake:
        client = Client(parse_url(fake.url), QUICK)
        await client.open()
        assert await client.call("k", "TWICE") == b"one"
        assert await client.call("k", "PING") == b"PONG"
        await client.close()


async def test_a_server_that_hangs_up_on_everybody_is_not_hammered() -> None:
    async with Fake(greet) as fake:
        client = Client(parse_url(fake.url), Settings(patience=1.0))
        await client.open()

        def hang_up(command: list[bytes]) -> bytes | None:
            if command[0] == b"GET":
                for writer in list(fake._writers):
                    writer.transport.abort()
            return greet(command)

        fake.answer = hang_up
        calls = (client.call("k", "GET", "k") for _ in range(20))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, StorageUnavailable) for answer in answers)
        assert fake.connections < 20
        await client.close()
