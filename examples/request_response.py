"""Hand in a job and wait for its result, as if it were a function call."""

import asyncio
from datetime import UTC, datetime
from typing import TypedDict

from toril import JobContext, Queue


class Image(TypedDict):
    url: str
    width: int


class Thumbnail(TypedDict):
    url: str
    seconds: float


async def shrink(job: JobContext[Image]) -> Thumbnail:
    """Give the same thumbnail for the same image, so running twice does no harm."""
    await asyncio.sleep(0.01)
    took = datetime.now(UTC) - job.created_at
    return {"url": f"{job.data['url']}?w={job.data['width']}", "seconds": took.total_seconds()}


async def main() -> None:
    queue = Queue[Image, Thumbnail]("images", storage="memory:")
    queue.execute(shrink, concurrency=10)
    async with queue:
        photo = Image(url="https://example.com/photo.jpg", width=200)
        thumbnail = await queue.enqueue_and_wait("photo-200", photo, timeout=10)
        print("thumbnail:", thumbnail["url"])

        widths = range(100, 200)
        calls = (
            queue.enqueue_and_wait(f"photo-{width}", {"url": photo["url"], "width": width})
            for width in widths
        )
        thumbnails = await asyncio.gather(*calls)
        right = [t["url"].endswith(f"w={w}") for t, w in zip(thumbnails, widths, strict=True)]
        print("at once:", len(thumbnails), "all right:", all(right))


asyncio.run(main())
