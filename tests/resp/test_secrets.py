"""A password is nowhere to be seen."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import traceback

import pytest

from tests.resp.conftest import Connect
from tests.resp.fake import OK, Fake, greet
from tests.servers import Server
from toril.errors import StorageDenied, StorageError
from toril.resp.client import Client, Settings
from toril.resp.secret import Secret
from toril.resp.url import parse_url

CANARY = "c4n4ry-pw"
QUICK = Settings(patience=0.2, connect_timeout=0.2)


def everything_shown(error: BaseException) -> str:
    """Collect what a log, a debugger or a test report would print of an error, locals included."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "\n".join([repr(error), str(error), *shown.format()])


def test_a_secret_shows_stars() -> None:
    secret = Secret(CANARY)
    assert {repr(secret), str(secret), f"{secret}", f"{secret:>3}"} == {"***"}
    assert CANARY not in repr([secret]) + repr({"p": secret})
    assert secret.reveal() == CANARY
    assert secret == Secret(CANARY) != Secret("other")
    assert hash(secret) == hash(Secret(CANARY))
    assert copy.deepcopy(secret) is copy.copy(secret) is secret
    assert secret.scrub(f"a{CANARY}b") == "a***b"
    assert Secret("").scrub("text") == "text"


def test_a_secret_is_not_serialised() -> None:
    with pytest.raises(TypeError, match="send the URL"):
        Secret(CANARY).__reduce_ex__(4)
    with pytest.raises(TypeError):
        json.dumps(Secret(CANARY))
    assert not hasattr(Secret(CANARY), "__dict__")


@pytest.mark.parametrize("place", ["127.0.0.1:1", "no-such-host.invalid"])
async def test_errors_of_a_dead_server_show_no_password(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = Client(parse_url(f"redis://bob:{CANARY}@{place}"), QUICK)
    with pytest.raises(StorageError, match=place) as caught:
        await client.open()
    sync = client.sync()
    with pytest.raises(StorageError, match=place) as caught_too:
        await asyncio.to_thread(sync.call, "k", "PING")
    sync.close()
    assert CANARY not in everything_shown(caught.value) + everything_shown(caught_too.value)
    assert CANARY not in repr(client) + repr(sync) + repr(client.address) + caplog.text


async def test_a_server_that_repeats_the_password_is_not_quoted() -> None:
    def answer(command: list[bytes]) -> bytes | None:
        if command[0].upper() in (b"HELLO", b"AUTH"):
            return b"-ERR unknown command, with args beginning with: '%s'\r\n" % CANARY.encode()
        return greet(command)

    def answer_in_the_text(command: list[bytes]) -> bytes | None:
        if command[0].upper() == b"HELLO":
            return b"-WRONGPASS %s is wrong\r\n" % CANARY.encode()
        return greet(command)

    for speak in (answer, answer_in_the_text):
        async with Fake(speak) as fake:
            client = Client(parse_url(f"redis://:{CANARY}@127.0.0.1:{fake.port}"), QUICK)
            with pytest.raises(StorageError) as caught:
                await client.open()
            assert CANARY not in str(caught.value)
            assert CANARY not in repr(caught.value.__context__) + repr(caught.value.__cause__)


async def test_a_denied_login_shows_no_password(own_server: Server, connect: Connect) -> None:
    admin = await connect(own_server.url)
    await admin.call("", "CONFIG", "SET", "requirepass", "right")
    url = f"redis://:{CANARY}@127.0.0.1:{own_server.port}"
    with pytest.raises(StorageDenied) as caught:
        await connect(url)
    assert CANARY not in everything_shown(caught.value).replace(url, "")


async def test_a_refused_command_shows_no_arguments() -> None:
    def answer(command: list[bytes]) -> bytes | None:
        if command[0] == b"ODD":
            return b"-ERR unknown command 'ODD', with args beginning with: 'payload'\r\n"
        return greet(command) or OK

    async with Fake(answer) as fake:
        client = Client(parse_url(fake.url), QUICK)
        await client.open()
        with pytest.raises(StorageError, match=r"unknown command 'ODD'$"):
            await client.call("k", "ODD", "payload")
        await client.close()
