"""What a newcomer hears of the storage: E01 away, E13 elsewhere, E15 the wrong one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cli.program import check, toril
from tests.servers import Server, valkey_binary
from toril import NewJob, SyncQueue

TASKS: Final = """
from toril import Toril

app = Toril()

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""


def ask(server: Server, *words: str, answer: bytes = b"+OK") -> None:
    """Have the server do something to itself."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as link:
        link.sendall((" ".join(words) + "\r\n").encode())
        assert link.recv(100).startswith(answer)


@contextmanager
def answering(host: str, port: int, replies: dict[bytes, bytes]) -> Iterator[int]:
    """Listen like a server that knows a few commands; the first whose word is seen is answered."""
    with socket.create_server((host, port)) as listener:

        def serve() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    while asked := link.recv(4096):
                        for word, reply in replies.items():
                            link.sendall(reply * asked.upper().count(word))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_e01_a_server_that_is_not_there() -> None:
    with answering("127.86.75.64", 6379, {b"PING": b"+PONG\r\n"}):
        done = toril("queue", "list", TORIL_URL="redis://ada:geheim@127.86.75.64:1")
    check(
        done,
        "E01",
        3,
        "cannot reach 127.86.75.64:1 (connection refused, ",
        " failed attempts in 4 s)",
        "\nnothing listens there; something answers PING on 127.86.75.64:6379\n",
        "fix: start the server, leave the URL out to use the embedded one, or name another one,"
        " as TORIL_URL=redis://127.86.75.64:6379",
    )
    assert "geheim" not in done.err


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(valkey_binary()) as running:
        yield running


def test_e13_node_and_python_that_do_not_see_each_other(server: Server) -> None:
    theirs = f"bullmq+{server.url}?prefix=bull2&hash_tag=off"
    with SyncQueue[object, object]("post", theirs) as queue:
        queue.add_bulk([NewJob(name="send", data=number) for number in range(1204)])
    ask(server, "HSET", "bull2:post:meta", "version", "bullmq:5.62.0", answer=b":")
    done = toril("doctor", "post", "-q", "--url", f"bullmq+{server.url}?hash_tag=off")
    assert done.code == 1, done.err
    assert done.err == ""
    found = [line for line in done.out.splitlines() if "toril[E13]" in line]
    assert len(done.out.splitlines()) <= 6
    assert found == [
        (
            "problem  place        toril[E13] queue 'post' has no keys under prefix 'bull'; found"
            " 'bull2:post' (1,204 waiting), written by a Node client"
        )
    ]
    assert 'fix: prefix="bull2"' in done.out


def test_e15_a_server_that_jobs_cannot_be_trusted_to(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    with Server(valkey_binary()) as server:
        look = ("queue", "list", "--url", server.url)
        ask(server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        evicting = "maxmemory-policy is allkeys-lru: the server may delete jobs; it needs noevict"
        check(toril(*look), "E15", 3, evicting, "\nfix: CONFIG SET maxmemory-policy noeviction")
        working = toril("worker", "tasks:app", cwd=tmp_path, TORIL_URL=server.url)
        assert working.code == 3
        assert f"\ntoril[E15] {server.url}: {evicting}" in working.err
        ask(server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
        ask(server, "REPLICAOF", "127.0.0.1", "1")
        replica = toril("enqueue", "mail", "1", "--url", server.url)
        check(replica, "E15", 3, "this is a replica\nfix: give the master's address, sentinels or")
        ask(server, "REPLICAOF", "NO", "ONE")
        ask(server, "CONFIG", "SET", "requirepass", "geheim")
        check(toril(*look), "E15", 3, "login refused: NOAUTH", "\nfix: put user and password into")
        wrong = server.url.replace("://", "://:falsch@")
        denied = toril("queue", "list", TORIL_URL=wrong)
        check(denied, "E15", 3, "login refused: WRONGPASS", "\nfix: put user and password into")
        assert "falsch" not in denied.err


def test_e15_a_server_that_is_too_old() -> None:
    info = b"redis_version:6.2.14\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n"
    replies = {
        b"HELLO": b"*0\r\n",
        b"PING": b"+PONG\r\n",
        b"CLIENT\r\n$2\r\nID": b":1\r\n",
        b"INFO": b"$%d\r\n%s\r\n" % (len(info), info),
    }
    with answering("127.0.0.1", 0, replies) as port:
        done = toril("queue", "list", "--url", f"redis://127.0.0.1:{port}")
    check(done, "E15", 3, "redis 6.2.14 is too old; toril needs 7.0 or newer\nfix: upgrade it, or")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["queue", "list", "--url", "memory:"], ["MemoryStorage lives in one process", "\nfix: "]),
        (
            ["queue", "list", "--url", "bullmq+redis+cluster://127.0.0.1:1?hash_tag=off"],
            ["hash_tag=off spreads the keys of a queue over the cluster", "\nfix: leave hash_tag"],
        ),
        (
            [
                *("spark", "archive", "q", "p", "--master", "spark://h:7077"),
                *("--url", "unix:///run/valkey.sock"),
            ],
            [
                (
                    "executors of 'spark://h:7077' cannot reach 'unix:' on this machine\n"
                    "fix: use a server they can reach, as 'redis://host:6379'"
                )
            ],
        ),
    ],
)
def test_e15_a_storage_that_others_cannot_see(args: list[str], said: list[str]) -> None:
    check(toril(*args), "E15", 2, *said)
