"""Send bytes as they are, with MessagePack in place of JSON."""

import asyncio
import zlib
from typing import TypedDict, cast

from toril import JobContext, MsgpackSerde, Queue, Serde


class Video(TypedDict):
    video: str
    frames: bytes


class Squeezed(TypedDict):
    frames: bytes


async def squeeze(job: JobContext[Video]) -> Squeezed:
    return {"frames": zlib.compress(job.data["frames"])}


async def main() -> None:
    # A serde reads and writes plain data; the types are a promise of yours.
    queue = Queue(
        "videos",
        storage="memory:",
        serde=cast("Serde[Video]", MsgpackSerde()),
        result_serde=cast("Serde[Squeezed]", MsgpackSerde()),
    )
    queue.execute(squeeze)
    async with queue:
        frames = bytes(100_000)
        result = await queue.enqueue_and_wait("video-1", {"video": "bulls", "frames": frames})
        print("in:", len(frames), "bytes, out:", len(result["frames"]), "bytes")
        print("same after a round trip:", zlib.decompress(result["frames"]) == frames)


asyncio.run(main())
