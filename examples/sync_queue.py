"""Hand in and wait without await: for scripts, web views and threads."""

import asyncio
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

from toril import JobContext, Queue, SyncQueue


def weigh(job: JobContext[str]) -> int:
    return len(job.data)


def work(url: str, ready: threading.Event, done: threading.Event) -> None:
    """A worker; usually a process of its own."""

    async def main() -> None:
        queue = Queue[str, int]("parcels", url)
        queue.execute(weigh, concurrency=4)
        async with queue:
            ready.set()
            await asyncio.to_thread(done.wait)

    asyncio.run(main())


with tempfile.TemporaryDirectory() as home:
    url = f"embedded:{home}"  # leave it out to use the project's own
    ready, done = threading.Event(), threading.Event()
    worker = threading.Thread(target=work, args=(url, ready, done))
    worker.start()
    ready.wait()

    with SyncQueue[str, int]("parcels", url) as queue:
        print("weight:", queue.enqueue_and_wait("parcel-1", "a book"))
        print("again:", queue.enqueue("parcel-1", "a book").status)

        with ThreadPoolExecutor(4) as pool:  # threads share the queue
            names = ["a cup", "a chair", "a piano"]
            weights = pool.map(lambda name: queue.enqueue_and_wait(name[2:], name), names)
            print("together:", sum(weights))

        print("completed:", queue.get_job_counts().completed)

    done.set()
    worker.join()
