"""Try again after an error, on the terms of the job or of the handler."""

import asyncio

from toril import Backoff, JobContext, JobFailed, PermanentError, Postpone, Queue, Reject, Retry

postponed: set[str] = set()


async def fetch(job: JobContext[str]) -> str:
    """Do what the job's data says, as an unreliable peer would make us."""
    match job.data:
        case "flaky" if job.attempt < 3:
            raise ConnectionError("peer hung up")
        case "busy" if job.attempt == 1:
            raise Retry(after=0.05, reason="peer asked for 50 ms")
        case "closed" if job.id not in postponed:
            postponed.add(job.id)
            raise Postpone(0.05)  # comes back later; the attempt does not count
        case "unwanted":
            raise Reject("nobody wants this")
        case "broken":
            raise PermanentError("trying again is useless")
    return f"done in attempt {job.attempt} of {job.max_attempts}"


async def main() -> None:
    queue = Queue[str, str]("fetch", storage="memory:")
    queue.execute(fetch)

    @queue.on("retrying")
    def on_retrying(job: JobContext[str], error: Exception, delay: float) -> None:
        print(f"{job.data}: attempt {job.attempt}: {error}; again in {delay * 1000:.0f} ms")

    terms = Backoff("exponential", 0.02, max_delay=1, jitter=0)
    async with queue:
        for how in ("flaky", "busy", "closed", "unwanted", "broken"):
            try:
                print(f"{how}:", await queue.enqueue_and_wait(how, how, attempts=5, backoff=terms))
            except JobFailed as error:
                print(f"{how}: failed at once,", error.original_error)


asyncio.run(main())
