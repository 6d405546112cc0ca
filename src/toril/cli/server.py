"""`toril server …`: the Valkey inside, for as long as you want it to stay."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Final

import click

from toril.cli.confirm import confirm, yes_option
from toril.cli.errors import FAILED
from toril.cli.options import speaking
from toril.cli.output import Output
from toril.errors import StorageError

_PATIENCE_S: Final = 20.0


@click.group("server")
def server() -> None:
    """Start, stop and look at the embedded server of this project."""


@server.command("start")
@click.option("--port", type=click.IntRange(1, 65535), help="Listen on loopback, too.")
@click.option("--home", type=click.Path(file_okay=False), help="Its directory.")
@speaking
def start(output: Output, port: int | None, home: str | None) -> None:
    """Start the server, or join the one that runs, and stay until Ctrl-C.

    Programs start it by themselves when they need it; this keeps it running between them, and
    opens a port for Node or for Spark.
    """
    from toril.resp.embedded import EmbeddedServer

    embedded = EmbeddedServer(home, port=port)

    async def stay() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await embedded.start()
        try:
            how = "joined" if embedded.adopted else "started"
            place = f"redis://127.0.0.1:{port}" if port else f"unix://{embedded.socket}"
            output.result(
                f"{how} Valkey {embedded.version} (pid {embedded.pid}) at {place}",
                {
                    "pid": embedded.pid,
                    "version": embedded.version,
                    "socket": str(embedded.socket),
                    "port": port,
                    "adopted": embedded.adopted,
                },
            )
            await stop.wait()
        finally:
            await embedded.stop()

    asyncio.run(stay())


@server.command("status")
@click.option("--home", type=click.Path(file_okay=False), help="Its directory.")
@speaking
def status(output: Output, home: str | None) -> int | None:
    """Say whether the server runs, where, and who uses it; exit 1 where it does not."""
    from toril.resp.embedded_look import look

    found = look(home)
    if found is None:
        output.result("not running", {"running": False})
        return FAILED
    output.result(
        f"Valkey {found.version} (pid {found.pid}) at unix://{found.socket},"
        f" used by {len(found.users)} programs",
        {
            "running": True,
            "pid": found.pid,
            "version": found.version,
            "socket": str(found.socket),
            "users": list(found.users),
        },
    )
    return None


@server.command("stop")
@click.option("--home", type=click.Path(file_okay=False), help="Its directory.")
@yes_option
@speaking
def stop(output: Output, home: str | None, yes: bool) -> None:
    """Stop the server, with all jobs saved; programs that use it start it again when needed."""
    from toril.resp.embedded_look import look

    found = look(home)
    if found is None:
        output.result("not running", {"running": False})
        return
    others = [pid for pid in found.users if pid != os.getpid()]
    if others:
        confirm(output, f"{len(others)} programs use the server. Stop it all the same?", yes)
    os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while look(home) is not None:
        if time.monotonic() > deadline:
            raise StorageError(
                f"the server (pid {found.pid}) has not stopped within {_PATIENCE_S:.0f} s;"
                f" its log is {found.log}"
            )
        time.sleep(0.05)
    output.result(f"stopped the server (pid {found.pid})", {"running": False, "pid": found.pid})
