"""`toril worker`: run the tasks of an app, or a worker of your own."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import click

from toril._version import __version__
from toril.cli.errors import FAILED, STOPPED
from toril.cli.options import At, overriding, speaking
from toril.cli.output import NORMAL, QUIET, Output
from toril.errors import InvalidOption
from toril.garbage import spare_collections
from toril.metrics import MetricsCollector, NoMetrics

if TYPE_CHECKING:
    from toril.app import Toril
    from toril.cli.find import Found
    from toril.cli.lines import Tally
    from toril.prometheus import PrometheusMetrics
    from toril.worker import Worker
    from toril.worker_options import WorkerOverrides

    AnyWorker = Worker[Any, Any]
_BURST_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was asked for on the command line."""

    queues: tuple[str, ...]
    concurrency: int | None
    burst: bool
    log_format: str
    metrics_port: int | None
    at: At | None


@click.command("worker")
@click.argument("target")
@click.option("--queue", "queues", multiple=True, help="Only these queues; may be repeated.")
@click.option("-c", "--concurrency", type=click.IntRange(1), help="Jobs at once, per queue.")
@click.option("-p", "--processes", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option("--burst", is_flag=True, help="Work until the queues are empty, then stop.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve /metrics and health; with -p, one port each from here on.",
)
@speaking
@overriding
def command(
    output: Output,
    target: str,
    queues: tuple[str, ...],
    concurrency: int | None,
    processes: int,
    burst: bool,
    log_format: str,
    metrics_port: int | None,
    at: At | None,
) -> int | None:
    """Work the jobs of TARGET: module, module:app, or module:worker.

    Ctrl-C once lets running jobs finish; twice hands them back at once.

    \b
    toril worker tasks -c 50
    toril worker shop.jobs:app --queue mail --processes 4
    toril worker tasks --burst
    """
    wishes = Wishes(
        queues=queues,
        concurrency=concurrency,
        burst=burst,
        log_format=log_format,
        metrics_port=metrics_port,
        at=at,
    )
    from toril.cli.find import find

    found = find(target)  # before there is a loop: a module may run one of its own
    if processes > 1:
        from toril.cli.processes import supervise

        _workers(found, wishes, NoMetrics())  # a mistake is told once, and not by each process
        return supervise(output, sys.argv[1:], processes, metrics_port)
    spare_collections()
    return _runner()(work(output, wishes, found))


def _runner() -> Callable[[Coroutine[Any, Any, int]], int]:
    try:
        import uvloop
    except ImportError:  # only this one: a worker may raise such errors, too
        return asyncio.run
    return uvloop.run


async def work(output: Output, wishes: Wishes, found: Found) -> int:
    """Run until a signal, or with --burst until nothing is left."""
    from toril.cli.lines import Discreet, Spare, TerminalFormatter, summarise, tally_of
    from toril.logs import configure_logs

    inner = _collector(found, wishes.metrics_port)
    tally, spare = tally_of(inner), Spare()
    app, workers = _workers(found, wishes, cast("MetricsCollector", tally))
    level = logging.ERROR if output.level == QUIET else logging.INFO
    level = logging.DEBUG if output.level > NORMAL else level
    handler = configure_logs("json" if wishes.log_format == "json" else "text", level, output.err)
    handler.addFilter(spare)
    if wishes.log_format == "text" and output.level <= NORMAL:
        handler.addFilter(Discreet())
        if output.err.isatty():
            handler.setFormatter(TerminalFormatter(output.err))
    began = time.monotonic()
    output.say(_banner(workers))
    stop = _Stop(workers, output)
    async with AsyncExitStack() as stack:
        if app is not None:
            await stack.enter_async_context(app)
        if wishes.metrics_port is not None:
            from toril.exporter import Exporter

            exporter = Exporter(cast("PrometheusMetrics", inner), workers, port=wishes.metrics_port)
            await stack.enter_async_context(exporter)
            output.say(f"metrics at {exporter.url}/metrics")
        logger = logging.getLogger("toril.worker")
        talk = asyncio.create_task(summarise(output, tally, spare, logger))
        try:
            running = [asyncio.create_task(worker.run()) for worker in workers]
            if wishes.burst:
                running.append(asyncio.create_task(_until_empty(output, workers, tally)))
            await asyncio.gather(*running)
        finally:
            talk.cancel()
            logging.getLogger().removeHandler(handler)
    took = time.monotonic() - began
    output.result(
        f"{tally.text()} in {took:.1f} s",
        {
            "completed": tally.completed,
            "failed": tally.failed,
            "retried": tally.retried,
            "stalled": tally.stalled,
            "seconds": round(took, 3),
        },
    )
    if stop.hurried:
        return STOPPED
    return FAILED if wishes.burst and tally.failed else 0


def _collector(found: Found, port: int | None) -> MetricsCollector:
    from toril.app import Toril

    own = found.metrics if isinstance(found, Toril) else found.options.metrics
    if port is None:
        return own or NoMetrics()
    from toril.prometheus import PrometheusMetrics

    if isinstance(own, PrometheusMetrics) and isinstance(found, Toril):
        return own
    if own is not None:
        kind = type(found).__name__
        raise InvalidOption(f"--metrics-port: this {kind} has metrics= of its own; serve those")
    made = PrometheusMetrics()
    if isinstance(found, Toril):
        found.measure(made)  # also what its tasks hand in
    return made


def _workers(
    found: Found, wishes: Wishes, metrics: MetricsCollector
) -> tuple[Toril | None, Sequence[AnyWorker]]:
    from toril.app import Toril
    from toril.cli.place import open_at

    options: WorkerOverrides = {"metrics": metrics}
    if wishes.concurrency is not None:
        options["concurrency"] = wishes.concurrency
    if not isinstance(found, Toril):
        for name, given in (("--queue", wishes.queues), ("--url", wishes.at)):
            if given:
                raise InvalidOption(f"{name} goes with an app; a Worker brings its own")
        _check_shared(found.queue.storage.url)
        return None, [found.changed(**options)]
    if wishes.at is not None:
        found.use(open_at(wishes.at))
    _check_shared(found.storage.url)
    names = wishes.queues or found.queue_names
    return found, [found.worker(name, **options) for name in names]


def _check_shared(url: str) -> None:
    if url.startswith("memory:"):
        raise InvalidOption(
            "toril[E15] MemoryStorage lives in this process; no other could hand in jobs."
            " fix: leave storage= out for the embedded server, or set TORIL_URL"
        )


def _banner(workers: Sequence[AnyWorker]) -> str:
    url = workers[0].queue.storage.url
    queues = ", ".join(worker.queue.name for worker in workers)
    at_once = workers[0].options.concurrency
    tasks = sorted({name for worker in workers for name in worker.handler_names})
    told = f" · tasks: {', '.join(tasks)}" if tasks else ""
    return f"toril {__version__} · {url} · queue {queues} · {at_once} at once{told}"


async def _until_empty(output: Output, workers: Sequence[AnyWorker], tally: Tally) -> None:
    """Stop the workers once nothing is left to do now; shows how far they are."""
    with output.progress("burst", "jobs") as progress:
        while True:
            left = 0
            for worker in workers:
                counts = await worker.queue.get_job_counts()
                left += counts.waiting + counts.prioritized + counts.active
            progress(tally.completed + tally.failed, tally.completed + tally.failed + left)
            if not left:
                break
            await asyncio.sleep(_BURST_LOOK_S)
    await asyncio.gather(*(worker.stop() for worker in workers))


class _Stop:
    """Signals: the first drains, the second hands running jobs back."""

    def __init__(self, workers: Sequence[AnyWorker], output: Output) -> None:
        self._workers = workers
        self._output = output
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = False
        self.hurried = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self)

    def __call__(self) -> None:
        if self._asked:
            self.hurried = True
            self._output.say("stopping now; running jobs go back in line")
        else:
            active = sum(worker.active for worker in self._workers)
            jobs = f"{active} running job{'s' * (active != 1)}"
            self._output.say(f"stopping; {jobs} may finish, Ctrl-C again: at once")
        grace = 0.0 if self._asked else None
        self._asked = True
        for worker in self._workers:
            task = asyncio.ensure_future(worker.stop(grace))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
