"""TLS with certificates made here: verified by default, refused when they do not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.resp.conftest import Connect
from tests.resp.secure import make_certificates, secure_server
from tests.servers import Server
from toril.errors import InvalidOption, StorageUnavailable
from toril.resp.client import Client, Settings
from toril.resp.url import parse_url

QUICK = Settings(patience=0.5, connect_timeout=2)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a certificate for localhost only, and one for a client."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_port(certificates: Path) -> Iterator[int]:
    """The port of a server that speaks TLS."""
    with secure_server(certificates) as server:
        yield server.port


async def test_a_trusted_certificate_is_accepted(
    tls_port: int, certificates: Path, connect: Connect
) -> None:
    client = await connect(f"rediss://localhost:{tls_port}?ca={certificates}/ca.pem")
    assert await client.call("k", "SET", "k", "v") == b"OK"
    assert await client.block("l", "BLPOP", "l", "0.01", timeout_s=0.01) is None
    large = "x" * 1_000_000
    assert await client.call("k", "ECHO", large) == large.encode()
    sync = client.sync()
    assert await asyncio.to_thread(sync.call, "k", "GET", "k") == b"v"
    sync.close()


async def test_a_client_certificate_is_shown(
    tls_port: int, certificates: Path, connect: Connect
) -> None:
    where = f"rediss://localhost:{tls_port}?ca={certificates}/ca.pem"
    own = f"&cert={certificates}/client.pem&key={certificates}/client.key"
    client = await connect(where + own)
    assert await client.call("k", "PING") == b"PONG"


async def test_an_unknown_ca_is_refused_at_once(tls_port: int) -> None:
    client = Client(parse_url(f"rediss://localhost:{tls_port}"), Settings(patience=60))
    with pytest.raises(StorageUnavailable, match="certificate is not trusted"):
        await asyncio.wait_for(client.open(), 10)
    sync = client.sync()
    with pytest.raises(StorageUnavailable, match="certificate is not trusted"):
        await asyncio.to_thread(sync.call, "k", "PING")
    sync.close()


async def test_another_host_name_is_refused(tls_port: int, certificates: Path) -> None:
    url = f"rediss://127.0.0.1:{tls_port}?ca={certificates}/ca.pem"
    client = Client(parse_url(url), QUICK)
    with pytest.raises(StorageUnavailable, match="mismatch"):
        await client.open()


async def test_verification_can_be_switched_off_and_says_so(
    tls_port: int, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect(f"rediss://127.0.0.1:{tls_port}?verify=off")
    assert await client.call("k", "PING") == b"PONG"
    assert "not verified" in caplog.text


async def test_a_server_without_tls_is_refused(own_server: Server, certificates: Path) -> None:
    client = Client(
        parse_url(f"rediss://localhost:{own_server.port}?ca={certificates}/ca.pem"), QUICK
    )
    with pytest.raises(StorageUnavailable):
        await client.open()


async def test_a_missing_file_is_named(certificates: Path) -> None:
    for query in ("ca=/no/such.pem", "cert=/no/c.pem&key=/no/k.pem", f"ca={certificates}/ca.key"):
        client = Client(parse_url(f"rediss://localhost:1?{query}"), QUICK)
        with pytest.raises(InvalidOption, match="cannot read ca, cert or key"):
            await client.open()
