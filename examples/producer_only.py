"""Hand in jobs and leave the work to others; an id that is there already is not queued twice."""

import asyncio
from typing import TypedDict

from toril import Queue


class Email(TypedDict):
    address: str
    template: str


async def main() -> None:
    async with Queue[Email, None]("emails", storage="memory:") as queue:
        email = Email(address="ada@example.com", template="welcome")

        first = await queue.enqueue("email-123", email)
        print("first:", first.status)

        again = await queue.enqueue("email-123", email)
        print("again:", again.status, "of a job that is", again.existing_state)

        counts = await queue.get_job_counts()
        print("waiting for a worker:", counts.waiting)


asyncio.run(main())
