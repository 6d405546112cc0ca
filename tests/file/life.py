"""One step of a job's life under a shim that fails or kills; prints what became of it as JSON.

    python -m tests.file.life <directory> enqueue|claim|settle <n> <action>

The steps before the one named run undisturbed. The step itself is tried twice: with the shim
armed, and again after it was called off.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys

from toril.errors import StorageError
from toril.job import JobSpec
from toril.outcome import Completed
from toril.storage.file import FileStorage
from toril.storage.protocol import Batch, Claim

QUEUE = "life"
SPEC = JobSpec(id="a", payload=b'"data"', origin="o1")
WISH = Claim(token="t1", worker_id="w1", count=1, lease_ms=60_000)


async def step(storage: FileStorage, name: str, batch: Batch | None) -> Batch | None:
    """Do one step."""
    if name == "enqueue":
        await storage.enqueue(QUEUE, [SPEC])
        return None
    if name == "claim":
        return await storage.claim(QUEUE, WISH)
    assert batch is not None
    (job,) = batch.jobs
    settlement = await storage.settle(QUEUE, [Completed(lease=job.lease, result=b'"done"')])
    assert settlement.answers[0].kind == "done", settlement
    return None


async def live(directory: str, name: str, number: int, action: int) -> None:
    """Lead a job up to a step, then disturb that step."""
    shim = ctypes.CDLL(None)
    shim.shim_log.restype = ctypes.c_char_p
    storage = FileStorage(directory)
    await storage.open()
    batch: Batch | None = None
    for earlier in ("enqueue", "claim", "settle"):
        if earlier == name:
            break
        batch = await step(storage, earlier, batch)
    shim.shim_arm(number, action)
    errors = []
    for _ in range(2):
        try:
            await step(storage, name, batch)
            errors.append("")
        except StorageError as error:
            errors.append(f"{type(error).__name__}: {error}")
        log = shim.shim_log().decode()
        shim.shim_disarm()
        if len(errors) == 1:
            print(json.dumps({"error": errors[0], "calls": log}), flush=True)
    print(json.dumps({"error": errors[1]}), flush=True)
    await storage.close()


if __name__ == "__main__":
    where, what, n, act = sys.argv[1:]
    asyncio.run(live(where, what, int(n), int(act)))
