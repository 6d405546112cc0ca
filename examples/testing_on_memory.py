"""Test a service without a server and without sleeping: memory storage, clock moved by hand."""

import asyncio

from toril import Backoff, JobContext, ManualClock, MemoryStorage, Queue


class Reminders:  # the service under test
    def __init__(self, queue: Queue[str, None]) -> None:
        self.queue, self.sent, self.outages = queue, list[str](), 0
        queue.execute(self.send)

    async def remind(self, who: str) -> None:
        await self.queue.enqueue(who, who, delay=3600, backoff=Backoff("fixed", 60, jitter=0))

    async def send(self, job: JobContext[str]) -> None:
        if self.outages:
            self.outages -= 1
            raise ConnectionError("mail server is away")
        self.sent.append(job.data)


async def test_a_reminder_is_sent_after_an_hour_and_once() -> None:
    clock = ManualClock()
    service = Reminders(Queue("reminders", MemoryStorage(clock=clock)))
    async with service.queue:
        await service.remind("ada")
        await service.remind("ada")
        await clock.advance(59 * 60)
        assert service.sent == []
        await clock.advance(2 * 60)
        assert service.sent == ["ada"]


async def test_a_reminder_survives_an_outage() -> None:
    clock = ManualClock()
    service = Reminders(Queue("reminders", MemoryStorage(clock=clock)))
    service.outages = 1
    async with service.queue:
        await service.remind("bob")
        await clock.advance(60 * 60 + 1)
        assert service.sent == []
        await clock.advance(60)
        assert service.sent == ["bob"]


for test in (test_a_reminder_is_sent_after_an_hour_and_once, test_a_reminder_survives_an_outage):
    asyncio.run(test())  # pytest would find and run them
    print("passed:", test.__name__)
