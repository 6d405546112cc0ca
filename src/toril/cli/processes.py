"""Several worker processes that share nothing but the storage."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from toril.cli.errors import MISUSED, UNREACHED
from toril.cli.output import Output
from toril.errors import InvalidOption

_AGAIN_S: Final = 1.0
_LOOK_S: Final = 0.1
_DIED_QUICKLY_S: Final = 5.0
_TRIES: Final = 3
_PORTS: Final = 65536


def supervise(output: Output, args: Sequence[str], count: int, metrics_port: int | None) -> int:
    """Run the same command in `count` processes; one that crashes is started again.

    One that ends by itself with an error three times within seconds of its start ends them all: it
    would not do better the fourth time. Each serves its metrics on a port of its own, counted
    from the first.
    """
    if metrics_port and metrics_port + count > _PORTS:
        raise InvalidOption(
            f"--metrics-port {metrics_port}: {count} processes need as many ports from there on,"
            f" and the last is {_PORTS - 1}; choose {_PORTS - count} or less"
        )
    command = [sys.executable, "-m", "toril.cli", *_without(args, "-p", "--processes")]
    if metrics_port is not None:
        command = _without(command, "--metrics-port")
    team = _Team(output, command, count, metrics_port)
    before = {
        number: signal.signal(number, team.signalled) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        return team.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _without(args: Sequence[str], *names: str) -> list[str]:
    """Leave out an option and its value, however they are joined."""
    kept: list[str] = []
    words = iter(args)
    for word in words:
        short = next((name for name in names if len(name) == 2), "\0")
        joined = word.startswith(short) and word.removeprefix(short).isdigit()
        if word in names:
            next(words, None)
        elif not joined and word.partition("=")[0] not in names:
            kept.append(word)
    return kept


class _Team:
    def __init__(
        self, output: Output, command: Sequence[str], count: int, metrics_port: int | None
    ) -> None:
        self._output = output
        self._command = command
        self._metrics_port = metrics_port
        self._members: dict[subprocess.Popen[bytes], tuple[int, float]] = {}
        self._count = count
        self._signals = 0
        self._quick = 0
        self._worst = 0

    def run(self) -> int:
        for number in range(self._count):
            self._start(number)
        while self._members:
            time.sleep(_LOOK_S)
            for member in [one for one in self._members if one.poll() is not None]:
                self._ended(member)
        return self._worst

    def _start(self, number: int) -> None:
        command = [*self._command]
        if self._metrics_port is not None:  # 0 is a free one, for each
            port = self._metrics_port and self._metrics_port + number
            command += ["--metrics-port", str(port)]
        # Sessions of their own: Ctrl-C reaches them through us, once.
        member = subprocess.Popen(command, start_new_session=True)
        self._members[member] = (number, time.monotonic())

    def _ended(self, member: subprocess.Popen[bytes]) -> None:
        number, began = self._members.pop(member)
        age = time.monotonic() - began
        code = member.returncode
        crashed = code < 0 or code not in (0, 1, 130)
        if not crashed or self._signals:
            self._worst = max(self._worst, abs(code))
            return
        self._quick = self._quick + 1 if age < _DIED_QUICKLY_S else 0
        if self._quick >= _TRIES or code in (MISUSED, UNREACHED):
            self._worst = max(self._worst, abs(code))
            self._pass_on(signal.SIGTERM)
            self._signals += 1
            return
        self._output.say(f"worker process {member.pid} died (exit {code}); starting another")
        time.sleep(_AGAIN_S)
        self._start(number)

    def signalled(self, number: int, _frame: object) -> None:
        """Pass a signal on to all."""
        self._signals += 1
        self._pass_on(signal.Signals(number))

    def _pass_on(self, number: signal.Signals) -> None:
        for member in self._members:
            if member.poll() is None:
                member.send_signal(number)
