"""Log lines: one per record, with the job, and nothing a payload could forge."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toril import InvalidOption, JobContext, Queue
from toril.logs import JsonFormatter, TextFormatter, configure_logs

Reader = Callable[[], list[str]]


@pytest.fixture
def logs(request: pytest.FixtureRequest) -> Iterator[Reader]:
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.level
    handler = configure_logs(request.param, logging.INFO, stream)
    yield lambda: stream.getvalue().splitlines()
    root.removeHandler(handler)
    root.setLevel(before)


async def work() -> None:
    """One job whose handler logs, in a thread and not."""
    queue: Queue[str, None] = Queue("mail", "memory:")

    def send(job: JobContext[str]) -> None:
        logging.getLogger("shop").info("sending %s", job.data)

    queue.execute(send, worker_id="w-1")
    async with queue:
        await queue.enqueue_and_wait("m-1", "a letter")


@pytest.mark.parametrize("logs", ["json"], indirect=True)
async def test_a_users_line_inside_a_handler_carries_its_job(logs: Reader) -> None:
    await work()
    entries = [json.loads(line) for line in logs()]
    (own,) = [entry for entry in entries if entry["logger"] == "shop"]
    assert own["message"] == "sending a letter"
    assert own["level"] == "info"
    assert {name: own[name] for name in ("queue", "job_id", "worker_id", "attempt")} == {
        "queue": "mail",
        "job_id": "m-1",
        "worker_id": "w-1",
        "attempt": 1,
    }
    ours = [entry for entry in entries if entry["logger"].startswith("toril")]
    assert {"picked_up", "completed"} <= {entry["event"] for entry in ours}
    assert all(entry["worker_id"] == "w-1" for entry in ours)
    assert all(entry["time"].endswith("+00:00") for entry in entries)


@pytest.mark.parametrize("logs", ["text"], indirect=True)
async def test_people_get_short_lines(logs: Reader) -> None:
    await work()
    (own,) = [line for line in logs() if "sending" in line]
    assert own[12:] == " INFO    shop: sending a letter [mail m-1]"
    assert any("picked up, attempt 1" in line for line in logs())


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@given(message=st.text(), extra=st.text())
def test_whatever_is_logged_stays_one_line(
    formatter: logging.Formatter, message: str, extra: str
) -> None:
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "%s", (message,), None)
    record.error = extra
    text = formatter.format(record)
    assert len(text.splitlines()) == 1
    text.encode()


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_traceback_keeps_its_lines_but_no_control_characters(
    formatter: logging.Formatter,
) -> None:
    try:
        raise ValueError("red \x1b[31m alert")
    except ValueError:
        info = sys.exc_info()
    record = logging.LogRecord("toril.worker", logging.ERROR, __file__, 1, "oh", (), info)
    text = formatter.format(record)
    assert "\x1b" not in text
    assert "ValueError" in text
    assert "test_logs.py" in text


def test_a_wrong_format_string_does_not_cost_the_line() -> None:
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "%d of %d", ("one",), None)
    assert "%d of %d ('one',)" in TextFormatter().format(record)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidOption, match="must be 'text' or 'json'"):
        configure_logs("xml")  # type: ignore[arg-type]
