"""The checker finds what `reliability.md` says is wrong with the official Python client.

A checker that passes everything proves nothing: here it must fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.checker import Case, check
from tests.faults.dump import Dump, JobView
from tests.faults.history import Reader
from tests.faults.official import QUEUE
from tests.faults.stage import ROOT, Stage
from tests.resp.proxy import Proxy
from tests.servers import Server
from toril.resp.sync import SyncClient
from toril.resp.url import parse_url

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VERSION = "2.16.2"
STATES = {"wait": "LRANGE", "active": "LRANGE", "delayed": "ZRANGE", "prioritized": "ZRANGE",
          "completed": "ZRANGE", "failed": "ZRANGE"}  # fmt: skip


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of a venv with the official client, kept between runs."""
    folder = Path(tempfile.gettempdir(), f"toril-official-{VERSION}")
    binary = folder / "bin" / "python"
    if subprocess.call([binary, "-c", "import bullmq"], stderr=-3) if binary.exists() else True:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [str(binary), "-m", "pip", "install", "-q", f"bullmq=={VERSION}"]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"bullmq {VERSION} cannot be installed: {done.stderr[-200:]}")
    return binary


class Official:
    """Programs of the official client, and a dump of its keys."""

    def __init__(self, python: Path, folder: Path, url: str) -> None:
        self._python = python
        self._folder = folder
        self._client = SyncClient(parse_url(url))
        self._programs: list[subprocess.Popen[bytes]] = []
        self.path = folder / "official.jsonl"
        self.reader = Reader(self.path)

    def start(self, program: str, url: str, count: int = 1) -> subprocess.Popen[bytes]:
        """Run `add` or `work`."""
        command = [str(self._python), "-m", "tests.faults.official", program, "--url", url]
        command += ["--history", str(self.path), "--count", str(count)]
        with (self._folder / f"{program}.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self._programs.append(process)
        return process

    def call(self, *args: str | bytes | int) -> object:
        """Send a command."""
        return self._client.call("", *args)

    def dump(self) -> Dump:
        """Read every job."""
        jobs = []
        for state, command in STATES.items():
            ids = self.call(command, f"bull:{QUEUE}:{state}", 0, -1)
            assert isinstance(ids, list)
            for raw in ids:
                assert isinstance(raw, bytes)
                jobs.append(self._view(raw.decode(), state))
        return Dump(jobs=jobs)

    def _view(self, job_id: str, state: str) -> JobView:
        flat = self.call("HGETALL", f"bull:{QUEUE}:{job_id}")
        assert isinstance(flat, list)
        facts = dict(zip(flat[::2], flat[1::2], strict=True))
        data = facts.get(b"data", b"{}")
        assert isinstance(data, bytes)
        try:
            label = json.loads(data)["label"]
        except ValueError:
            label = "corrupt"
        stalls = facts.get(b"stc", b"0")
        assert isinstance(stalls, bytes)
        return JobView(id=job_id, label=label, state=state, places=[state], stalls=int(stalls))

    def close(self) -> None:
        """End everything."""
        for program in self._programs:
            program.kill()
            program.wait()
        self._client.close()


@pytest.fixture
def official(python: Path, tmp_path: Path, server: Server) -> Iterator[Official]:
    official = Official(python, tmp_path, server.url)
    yield official
    official.close()


async def test_adds_whose_replies_are_lost_make_more_jobs_than_adds(
    official: Official, server: Server, stage: Stage
) -> None:
    async with Proxy(server.port) as proxy:
        adding = official.start("add", f"redis://127.0.0.1:{proxy.port}", 60)
        await stage.until(lambda: len(_acked(official)) >= 5, 20)
        while adding.poll() is None:
            proxy.cut_reply_to(b"EVALSHA", times=1)
            seen = len(_acked(official))
            await stage.until(
                lambda seen=seen: len(_acked(official)) >= seen + 10 or adding.poll() is not None,  # type: ignore[misc]
                20,
            )
        assert proxy.cuts
    found = check(Case(history=official.reader.read(), dump=official.dump(), drained=False))
    print(*found, sep="\n")
    assert "I2" in {one.rule for one in found}


async def test_a_corrupt_job_stalls_for_ever_and_never_fails(
    official: Official, server: Server, stage: Stage
) -> None:
    adding = official.start("add", server.url, 1)
    await stage.until(lambda: adding.poll() is not None, 20)
    official.call("HSET", f"bull:{QUEUE}:1", "data", b"{not json")
    official.start("work", server.url)
    begun = time.monotonic()
    await stage.until(lambda: _stalls(official) > 3, 60, "it did not stall")
    print(f"stalled {_stalls(official)} times in {time.monotonic() - begun:.1f} s")
    found = check(Case(history=[], dump=official.dump(), drained=False))
    print(*found, sep="\n")
    assert [one.rule for one in found] == ["I5"]


def _acked(official: Official) -> list[object]:
    return [one for one in official.reader.read() if one.op == "enqueue" and one.phase == "ok"]


def _stalls(official: Official) -> int:
    return max((job.stalls for job in official.dump().jobs), default=0)
