"""What happened, one JSON line per event, so that it survives the death of whoever wrote it.

phase   invoke  somebody begins an operation
        ok      it took effect
        fail    it had no effect
        info    nobody knows (timeout, lost reply), or just a remark
op      enqueue, cancel     by producers
        run                 a handler begins (invoke) and ends (ok, fail); the token is its lease
        progress            a handler writes; fail when the lease was lost
        commit              a worker learnt that its outcome is recorded; data.kind says which
        lost, gone          a worker learnt that a lease, or the job, is not its own any more
        worker, log         a worker begins and ends; what it logs
        fault               the injector did something
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

Phase = Literal["invoke", "ok", "fail", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of a history. `t_mono` is the machine's monotonic clock, shared by processes."""

    seq: int
    t_mono: float
    t_wall: float
    proc: str
    op: str
    phase: Phase
    job: str | None = None
    attempt: int | None = None
    token: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)


class History:
    """Appends to a file that many processes share."""

    def __init__(self, path: Path, proc: str) -> None:
        self.path = path
        self.proc = proc
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._numbers = count(1)

    def write(
        self,
        op: str,
        phase: Phase,
        job: str | None = None,
        *,
        attempt: int | None = None,
        token: str | None = None,
        **data: object,
    ) -> None:
        """Add a line with a single write, which the kernel does not mix with others."""
        line = Happening(
            seq=next(self._numbers),
            t_mono=time.clock_gettime(time.CLOCK_MONOTONIC),
            t_wall=time.time(),
            proc=self.proc,
            op=op,
            phase=phase,
            job=job,
            attempt=attempt,
            token=token,
            data=data,
        )
        os.write(self._file, json.dumps(asdict(line), default=str).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Reader:
    """Reads a growing history; what was read once is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._seen: list[Happening] = []

    def read(self) -> list[Happening]:
        """Return everything written so far."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offset += len(whole)
            self._seen += [Happening(**json.loads(line)) for line in whole.splitlines()]
        return self._seen
