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

_AGAIN_S: Final = 1.0
_LOOK_S: Final = 0.1
_DIED_QUICKLY_S: Final = 5.0
_TRIES: Final = 3


def supervise(output: Output, args: Sequence[str], count: int) -> int:
    """Run the same command in `count` processes; one that crashes is started again.

    One that ends by itself with an error three times within seconds of its start ends them all: it
    would not do better the fourth time.
    """
    command = [sys.executable, "-m", "toril.cli", *_without_processes(args)]
    team = _Team(output, command, count)
    before = {
        number: signal.signal(number, team.signalled) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        return team.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _without_processes(args: Sequence[str]) -> list[str]:
    kept: list[str] = []
    words = iter(args)
    for word in words:
        if word in ("-p", "--processes"):
            next(words, None)
        elif not word.startswith("--processes=") and not (word[:2] == "-p" and word[2:].isdigit()):
            kept.append(word)
    return kept


class _Team:
    def __init__(self, output: Output, command: Sequence[str], count: int) -> None:
        self._output = output
        self._command = command
        self._members: dict[subprocess.Popen[bytes], float] = {}
        self._count = count
        self._signals = 0
        self._quick = 0
        self._worst = 0

    def run(self) -> int:
        for _ in range(self._count):
            self._start()
        while self._members:
            time.sleep(_LOOK_S)
            for member in [one for one in self._members if one.poll() is not None]:
                self._ended(member)
        return self._worst

    def _start(self) -> None:
        # Sessions of their own: Ctrl-C reaches them through us, once.
        member = subprocess.Popen(self._command, start_new_session=True)
        self._members[member] = time.monotonic()

    def _ended(self, member: subprocess.Popen[bytes]) -> None:
        age = time.monotonic() - self._members.pop(member)
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
        self._start()

    def signalled(self, number: int, _frame: object) -> None:
        """Pass a signal on to all."""
        self._signals += 1
        self._pass_on(signal.Signals(number))

    def _pass_on(self, number: signal.Signals) -> None:
        for member in self._members:
            if member.poll() is None:
                member.send_signal(number)
