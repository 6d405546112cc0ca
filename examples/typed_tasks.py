"""Typed tasks: a function's parameters and result are checked where it is called."""

import asyncio
from dataclasses import dataclass
from datetime import date

from toril import InvalidPayload, Toril

app = Toril("invoices", storage="memory:")


@dataclass(frozen=True)
class Invoice:
    number: int
    due: date


@app.task(attempts=3)
async def remind(invoice: Invoice, *, polite: bool = True) -> str:
    tone = "please pay" if polite else "pay"
    return f"{tone} {invoice.number} by {invoice.due:%d %B}"


@app.task(queue="sums")
def add(a: int, b: int) -> int:  # a plain function runs in a thread
    return a + b


async def main() -> None:
    async with app, app.worker(concurrency=10), app.worker("sums"):
        job = await remind.enqueue(Invoice(7, date(2026, 1, 31)))
        print(await job.result())
        print(await add.options(attempts=1, wait=5).call(2, 3))
        try:
            await add.enqueue("two", 3)  # type: ignore[arg-type]  # mypy refuses it, too
        except InvalidPayload as error:
            print(str(error).partition(" (")[0])


asyncio.run(main())
