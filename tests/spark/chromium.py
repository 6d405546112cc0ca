"""Drive Debian's Chromium over a pipe: open a file, run a script in it, take a picture."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
LAUNCH: Final = """
import os, sys
theirs = [os.dup(int(one)) for one in sys.argv[1:3]]
for descriptor, one in enumerate(theirs, 3):  # the browser reads at 3 and writes at 4
    os.dup2(one, descriptor)
    os.set_inheritable(descriptor, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE_S: Final = 60.0


def chromium() -> str | None:
    """The browser's program, None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass
class Seen:
    """What a page did while it was open."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Chromium:
    """One browser with one page, spoken to in messages that end with a zero byte."""

    def __init__(self, program: str) -> None:
        # Helpers of the browser may write to it for a moment after the browser has ended.
        self._profile = tempfile.TemporaryDirectory(
            prefix="toril-chromium-", ignore_cleanup_errors=True
        )
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._out = os.fdopen(ours_out, "wb")
        self._in = os.fdopen(ours_in, "rb")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), program),
                *(*FLAGS, f"--user-data-dir={self._profile.name}"),
            ],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        with suppress(BrokenPipeError):  # what it did not read is of no use now
            self._out.close()
        self._in.close()
        self._profile.cleanup()

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send one command and wait for its answer; events that come first are kept."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        with _deadline(self._process):
            self._out.write(json.dumps(message).encode() + b"\0")
            self._out.flush()
            while True:
                answer = self._read()
                if answer.get("id") == self._number:
                    break
                self._events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def look(self, *, width: int, dark: bool = False) -> None:
        """Set the width of the window and the colours its user likes."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, page: Path) -> Seen:
        """Load a file; tell what it asked for and what it complained about."""
        self._events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.run(
            "new Promise(r => document.readyState === 'complete' ? r(0) : onload = () => r(0))"
        )
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))")
        return self._seen()

    def run(self, script: str) -> Any:
        """Evaluate a script in the page and give its value."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", **given)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def picture(self, path: Path, *, height: int | None = None) -> None:
        """Keep a picture of the whole page, or of its top."""
        size = self.run("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": height or size[1], "scale": 1}
        taken = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def _read(self) -> dict[str, Any]:
        parts: list[bytes] = []
        while (byte := self._in.read1(1)) != b"\0":  # a message has no length before it
            if not byte:
                raise RuntimeError(f"chromium is gone, exit {self._process.poll()}")
            parts.append(byte + self._in.peek(0).split(b"\0", 1)[0])
            self._in.read(len(parts[-1]) - 1)
        message: dict[str, Any] = json.loads(b"".join(parts))
        return message

    def _seen(self) -> Seen:
        seen = Seen()
        for event in self._events:
            given = event.get("params", {})
            match event.get("method"):
                case "Network.requestWillBeSent":
                    seen.requests.append(given["request"]["url"])
                case "Runtime.exceptionThrown":
                    seen.complaints.append(str(given["exceptionDetails"]))
                case "Runtime.consoleAPICalled":
                    seen.complaints.append(str(given["args"]))
                case "Log.entryAdded":
                    seen.complaints.append(given["entry"]["text"])
        return seen


@contextmanager
def _deadline(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a browser that does not answer, which ends the wait for it too."""
    timer = threading.Timer(PATIENCE_S, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
