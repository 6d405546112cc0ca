"""The log: one safe line per event, with the fields to find it by, and no secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest

from toril.engine.journal import Journal, Logger
from toril.job import JobSpec
from toril.outcome import Failure, Lease
from toril.retry import ErrorCategory
from toril.storage.protocol import Claimed

PAYLOAD, RESULT = b'{"card": "4111-PAYLOAD"}', "RESULT-9f3"
NASTY = "evil\nINFO forged\r\x1b[31mred\x1b[0m\x00\x9b2J\u2028next\u202egnp\ud800"
UNSAFE = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0xD800)]


class Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    @property
    def extras(self) -> list[dict[str, object]]:
        plain = set(vars(logging.makeLogRecord({}))) | {"message"}
        return [
            {name: value for name, value in vars(record).items() if name not in plain}
            for record in self.records
        ]


@pytest.fixture
def logger() -> logging.Logger:
    return logging.Logger("toril.test", logging.DEBUG)  # noqa: LOG001 - shared with nobody


@pytest.fixture
def log(logger: logging.Logger) -> Iterator[Collector]:
    collector = Collector()
    logger.addHandler(collector)
    yield collector
    logger.removeHandler(collector)


def claimed(job_id: str = "order-42", name: str = "mail", payload: bytes = PAYLOAD) -> Claimed:
    return Claimed(
        spec=JobSpec(id=job_id, name=name, payload=payload),
        lease=Lease(job_id=job_id, token="t", attempt=2),
        created_ms=1000,
        age_ms=70,
    )


def failure(reason: str = "no route") -> Failure:
    return Failure(kind="ValueError", reason=reason, stack="Traceback: a\nb")


@dataclass(frozen=True, kw_only=True)
class Case:
    event: str
    level: int
    write: Callable[[Journal, Claimed, str], None]
    says: str = ""
    about_job: bool = True
    extra: dict[str, object] | None = None


CASES = [
    Case(
        event="picked_up",
        level=logging.INFO,
        write=lambda journal, job, _text: journal.picked_up([job]),
        says="picked up, attempt 2, 70 ms after it was added",
        extra={"age_ms": 70},
    ),
    Case(
        event="completed",
        level=logging.INFO,
        write=lambda journal, job, _text: journal.completed(job, 0.25, RESULT),
        says="completed in 250 ms",
        extra={"duration_s": 0.25},
    ),
    Case(
        event="failed",
        level=logging.ERROR,
        write=lambda journal, job, text: journal.failed(
            job, failure(text), ErrorCategory.PERMANENT, False
        ),
        says="failed: ValueError: ",
        extra={"category": "permanent"},
    ),
    Case(
        event="failed",
        level=logging.ERROR,
        write=lambda journal, job, text: journal.failed(job, failure(text), None, True),
        says="failed after 2 attempts: ValueError: ",
        extra={"category": None},
    ),
    Case(
        event="retried",
        level=logging.WARNING,
        write=lambda journal, job, text: journal.retried(job, failure(text), 1500),
        says="failed, next attempt in 1.5 s: ValueError: ",
        extra={"delay_s": 1.5},
    ),
    Case(
        event="postponed",
        level=logging.INFO,
        write=lambda journal, job, _text: journal.moved(job, "postponed"),
        says="postponed",
    ),
    Case(
        event="lease_lost",
        level=logging.WARNING,
        write=lambda journal, job, _text: journal.lease_lost(job, "raise lease="),
        says="lease lost: raise lease=",
    ),
    Case(
        event="gone",
        level=logging.WARNING,
        write=lambda journal, job, _text: journal.gone(job),
        says="was removed while it ran",
    ),
    Case(
        event="stalled",
        level=logging.WARNING,
        write=lambda journal, job, _text: journal.stalled(job.spec.id, False),
        says="its lease lapsed; back in line",
        about_job=False,
    ),
    Case(
        event="stalled",
        level=logging.WARNING,
        write=lambda journal, job, _text: journal.stalled(job.spec.id, True),
        says="its lease lapsed; failed for good",
        about_job=False,
    ),
    Case(
        event="heartbeat_failed",
        level=logging.WARNING,
        write=lambda journal, _job, text: journal.heartbeat_failed(OSError(text), 3),
        says="could not renew 3 leases, trying again: ",
        about_job=False,
    ),
    Case(
        event="loop_blocked",
        level=logging.WARNING,
        write=lambda journal, _job, text: journal.loop_blocked(
            31.24, task=text, line="resize at tasks.py:41", others=3, renewed=False
        ),
        says=" blocked the event loop for 31.2 s (resize at tasks.py:41); 3 other jobs could not"
        " renew their leases. fix: write it as plain def",
        about_job=False,
        extra={"duration_s": 31.24},
    ),
    Case(
        event="reap_skipped",
        level=logging.WARNING,
        write=lambda journal, _job, _text: journal.reap_skipped(),
        says="reap cycle skipped",
        about_job=False,
    ),
    Case(
        event="disconnected",
        level=logging.ERROR,
        write=lambda journal, _job, text: journal.disconnected(OSError(text), 4, 2.5),
        says="storage unavailable (try 4, 2.5 s): ",
        about_job=False,
    ),
    Case(
        event="reconnected",
        level=logging.INFO,
        write=lambda journal, _job, _text: journal.reconnected(4, 2.5),
        says="storage is back after 2.5 s and 4 tries",
        about_job=False,
        extra={"attempt": 4, "duration_s": 2.5},
    ),
    Case(
        event="error",
        level=logging.ERROR,
        write=lambda journal, _job, text: journal.trouble("hook 'failed' raised", OSError(text)),
        says="hook 'failed' raised: ",
        about_job=False,
    ),
    Case(
        event="started",
        level=logging.INFO,
        write=lambda journal, _job, text: journal.worker("started", f"worker started {text}"),
        says="worker started",
        about_job=False,
    ),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.event)


@each_case
def test_every_event_is_one_record_with_its_level_and_fields(
    case: Case, logger: logging.Logger, log: Collector
) -> None:
    logger.setLevel(logging.INFO)
    case.write(Journal(logger, "emails", "host-1-abc"), claimed(), "no route")
    [record] = log.records
    [extra] = log.extras
    assert record.levelno == case.level
    assert case.says in record.getMessage()
    wanted = {"queue": "emails", "worker_id": "host-1-abc", "event": case.event}
    if case.about_job:
        wanted |= {"job_id": "order-42", "job_name": "mail"}
        assert extra["attempt"] == 2
        assert record.getMessage().startswith("mail order-42 ")
    assert wanted.items() <= extra.items()
    assert (case.extra or {}).items() <= extra.items()


@each_case
def test_payload_and_result_are_not_above_debug(
    case: Case, logger: logging.Logger, log: Collector
) -> None:
    case.write(Journal(logger, "emails", "w"), claimed(), "no route")
    for record, extra in zip(log.records, log.extras, strict=True):
        text = f"{record.getMessage()} {extra}"
        if record.levelno > logging.DEBUG:
            assert "PAYLOAD" not in text
            assert "RESULT" not in text


def test_payload_and_result_are_shown_at_debug(logger: logging.Logger, log: Collector) -> None:
    journal = Journal(logger, "emails", "w")
    journal.picked_up([claimed()])
    journal.completed(claimed(), 0.1, RESULT)
    at_debug = [record for record in log.records if record.levelno == logging.DEBUG]
    assert [extra["event"] for extra in log.extras] == [
        "picked_up",
        "payload",
        "completed",
        "result",
    ]
    assert "4111-PAYLOAD" in at_debug[0].getMessage()
    assert RESULT in at_debug[1].getMessage()
    assert {extra["job_id"] for extra in log.extras} == {"order-42"}


@each_case
def test_nothing_that_others_wrote_can_break_the_line(
    case: Case, logger: logging.Logger, log: Collector
) -> None:
    job = claimed(
        job_id=NASTY, name=f"{NASTY} %s %(queue)s {{}}", payload=NASTY.encode("utf8", "ignore")
    )
    case.write(Journal(logger, "emails", "w"), job, NASTY)
    assert log.records
    for line, extra in zip(log.lines, log.extras, strict=True):
        for text in (line, *map(str, extra.values())):
            assert not [character for character in UNSAFE if character in text]
            assert len(text) < 1000


def test_what_was_escaped_can_still_be_read(logger: logging.Logger, log: Collector) -> None:
    Journal(logger, "emails", "w").failed(claimed(name="a\nb"), failure("\x1b[31m"), None, False)
    assert log.lines == ["a\\x0ab order-42 failed: ValueError: \\x1b[31m"]
    assert log.extras[0]["job_name"] == "a\\x0ab"
    assert log.extras[0]["error"] == "ValueError: \\x1b[31m"


def test_a_valid_id_of_any_length_is_in_the_fields_unchanged(
    logger: logging.Logger, log: Collector
) -> None:
    long = "x" * 255
    Journal(logger, "emails", "w").stalled(long, False)
    Journal(logger, "emails", "w").gone(claimed(job_id=long, name=long))
    assert [extra["job_id"] for extra in log.extras] == [long, long]
    assert log.extras[1]["job_name"] == long


def test_an_error_that_cannot_be_shown_is_logged_all_the_same(
    logger: logging.Logger, log: Collector
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    Journal(logger, "emails", "w").heartbeat_failed(Mute(), 1)
    assert "str() raised ValueError" in log.lines[0]


def test_trouble_brings_the_traceback(logger: logging.Logger, log: Collector) -> None:
    error = ValueError("x")
    Journal(logger, "emails", "w").trouble("hook raised", error)
    assert log.records[0].exc_info == (ValueError, error, None)
    assert log.extras[0]["error"] == "x"


def test_a_journal_without_a_logger_uses_the_packages_own() -> None:
    collector = Collector()
    own = logging.getLogger("toril.worker")
    own.addHandler(collector)
    try:
        Journal(None, "emails", "w").reap_skipped()
    finally:
        own.removeHandler(collector)
    assert [record.name for record in collector.records] == ["toril.worker"]


@each_case
def test_an_adapter_keeps_its_own_fields_and_ours(
    case: Case, logger: logging.Logger, log: Collector
) -> None:
    adapter = logging.LoggerAdapter(logger, {"tenant": "acme"})
    case.write(Journal(adapter, "emails", "w"), claimed(), "no route")
    for extra in log.extras:
        assert {"tenant": "acme", "queue": "emails", "worker_id": "w"}.items() <= extra.items()
        assert "event" in extra


def test_adapters_around_adapters_all_keep_their_fields(
    logger: logging.Logger, log: Collector
) -> None:
    inner = logging.LoggerAdapter(logger, {"tenant": "acme"})
    outer: Logger = logging.LoggerAdapter(inner, {"zone": "eu"})  # type: ignore[arg-type]
    Journal(outer, "emails", "w").gone(claimed())
    wanted = {"tenant": "acme", "zone": "eu", "queue": "emails", "job_id": "order-42"}
    assert wanted.items() <= log.extras[0].items()


def test_an_adapter_without_fields_is_fine(logger: logging.Logger, log: Collector) -> None:
    Journal(logging.LoggerAdapter(logger, None), "emails", "w").reap_skipped()
    assert log.extras[0]["queue"] == "emails"


def test_an_adapter_may_change_the_message_and_sees_the_error(
    logger: logging.Logger, log: Collector
) -> None:
    class Prefix(logging.LoggerAdapter[logging.Logger]):
        def process(
            self, msg: str, kwargs: MutableMapping[str, Any]
        ) -> tuple[str, MutableMapping[str, Any]]:
            shown = type(kwargs["exc_info"]).__name__
            return f"[{shown}] {msg}", {**kwargs, "stack_info": True}

    Journal(Prefix(logger, {}), "emails", "w").trouble("hook raised", ValueError("x"))
    assert log.lines == ["[ValueError] hook raised: x"]
    assert log.records[0].stack_info
    assert log.records[0].exc_info
    assert log.extras[0]["event"] == "error"


class Touchy(str):
    """Text that tells when somebody reads it."""

    reads = 0

    def __str__(self) -> str:
        Touchy.reads += 1
        return "read"

    __repr__ = __format__ = __str__  # type: ignore[assignment]


@pytest.mark.parametrize("adapted", [False, True], ids=["logger", "adapter"])
@each_case
def test_nothing_is_computed_when_the_level_is_off(
    case: Case, adapted: bool, logger: logging.Logger, log: Collector
) -> None:
    logger.setLevel(case.level + 1)
    Touchy.reads = 0
    journal = Journal(logging.LoggerAdapter(logger, {}) if adapted else logger, "emails", "w")
    job = claimed(job_id=Touchy("id"), name=Touchy("name"))
    if case.event == "started":
        journal.worker("started", Touchy("text"))
    else:
        case.write(journal, job, Touchy("text"))
    assert Touchy.reads == 0
    assert log.records == []


def test_data_is_not_shown_before_debug_is_on(logger: logging.Logger, log: Collector) -> None:
    class Result:
        def __str__(self) -> str:
            raise AssertionError("shown")

    logger.setLevel(logging.INFO)
    Journal(logger, "emails", "w").completed(claimed(), 0.1, Result())
    assert len(log.records) == 1
