"""Type the console blocks of a page into a shell, and compare what it shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.docs.pages import BACKGROUND, ROOT, Block

LIMIT_S: Final = 60
PROGRAMS: Final = ("python", "pytest", "toril")
"""What a page may have typed here; it writes nowhere but into its own directory."""

_SEPARATORS: Final = re.compile(r"[|&;<>()]+")
_SETTING: Final = re.compile(r"[A-Z_]+=.*")
_FAILS: Final = re.compile(r"fails with (\d+)")
_CHANGING: Final = (
    (re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?"), "TIME"),
    (re.compile(r"\b[0-9a-z]{26}\b"), "ID"),
    (re.compile(r"\d[\d,.]* (?=(?:ms|s|a second)\b)"), "N "),
    (re.compile(r"/\S+\.sock"), "SOCKET"),
    (re.compile(r"\b(toril|Valkey) \d+(?:\.\d+)+"), r"\1 VERSION"),
    (re.compile(r"embedded:\S*"), "embedded:"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)
"""What differs from run to run, and what stands for it."""


def commands(block: Block) -> list[tuple[str, str]]:
    """Split a block into commands and what each shows."""
    found: list[tuple[str, str]] = []
    for line in block.code.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].rstrip("\n"), ""))
        else:
            command, shown = found[-1]
            found[-1] = (command, shown + line)
    return found


def words_of(line: str) -> list[list[str]]:
    """Split a line of shell into simple commands, without settings of variables."""
    split = shlex.shlex(line, posix=True, punctuation_chars=True)
    split.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in split:
        if _SEPARATORS.fullmatch(word):
            found.append([])
        elif found[-1] or not _SETTING.fullmatch(word):
            found[-1].append(word)
    return found


def is_plain(command: str) -> bool:
    """Whether a command is one call of a known program, without pipes and redirections."""
    calls = words_of(command)
    return len(calls) == 1 and calls[0][:1] != [] and calls[0][0] in PROGRAMS


def agrees(shown: str, page: str) -> bool:
    """Whether a page shows what was shown; `…` on the page stands for anything."""
    for pattern, name in _CHANGING:
        shown, page = pattern.sub(name, shown), pattern.sub(name, page)
    parts = [
        r"(?:.*\n)*?" if line == "…\n" else re.escape(line).replace("…", ".*")
        for line in page.splitlines(keepends=True)
    ]
    return re.fullmatch("".join(parts), shown) is not None


class Terminal:
    """A directory, an environment, and the programs that run in the background."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[tuple[Block, subprocess.Popen[bytes], Path]] = []
        programs = directory / ".bin"
        programs.mkdir()
        for name, module in (("toril", "-m toril.cli"), ("python", ""), ("pytest", "-m pytest")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            program.chmod(0o755)
        # Not inside a worker of pytest-xdist, should the page run pytest.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TORIL_", "PYTEST_"))}
        self.environment = {
            **inherited,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
            "PYTHONUNBUFFERED": "1",
            "TORIL_HOME": str(directory / ".toril"),
        }

    def type(self, block: Block) -> str:
        """Run a block's commands; say what is wrong with it, or nothing."""
        for command, _ in commands(block):
            if not is_plain(command):
                told = "say above the block why it is not run: <!-- not run: reason -->"
                return f"{block.where}: $ {command}\nis no plain call of {PROGRAMS}; {told}"
        if block.note == BACKGROUND:
            return self._start(block)
        fails = _FAILS.fullmatch(block.note or "")
        for command, page in commands(block):
            try:
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=self.directory,
                    env=self.environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=LIMIT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"{block.where}: $ {command}\nstill running after {LIMIT_S} s"
            if done.returncode != (int(fails[1]) if fails else 0):
                return f"{block.where}: $ {command}\nended with {done.returncode}\n{done.stdout}"
            if not agrees(done.stdout, page):
                return f"{block.where}: $ {command}\nshowed:\n{done.stdout}the page says:\n{page}"
        return ""

    def _start(self, block: Block) -> str:
        ((command, _),) = commands(block)
        shown = self.directory / f".shown-{len(self._running)}"
        with shown.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.directory,
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append((block, process, shown))
        end = time.monotonic() + LIMIT_S
        while not shown.stat().st_size and process.poll() is None:
            if time.monotonic() > end:
                return f"{block.where}: $ {command}\nsaid nothing for {LIMIT_S} s"
            time.sleep(0.02)
        return ""

    def end(self) -> list[str]:
        """Press Ctrl-C in the background; say what was wrong there."""
        complaints = []
        while self._running:
            block, process, shown = self._running.pop()
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            ((command, page),) = commands(block)
            text = shown.read_text()
            if code or not agrees(text, page + "…\n"):
                said = f"{block.where}: $ {command}\nended with {code}, showed:\n{text}"
                complaints.append(f"{said}the page says:\n{page}")
        return complaints
