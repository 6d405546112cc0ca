"""Log lines for people and for machines; lines inside a handler carry their job."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from toril.context import current_job
from toril.errors import InvalidOption
from toril.text import printable

LogFormat = Literal["text", "json"]

FIELDS: Final = (
    *("event", "queue", "worker_id", "job_id", "job_name", "attempt", "duration_s"),
    *("age_ms", "delay_s", "category", "error", "correlation_id"),
)
"""The extras of toril's own records, in the order they are written."""

_LINE: Final = 16 * 1024


class JobFilter(logging.Filter):
    """Put the running job into every record made inside its handler, also the user's own."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add what the record lacks; never drops one."""
        job = current_job.get()
        if job is not None:
            for name, value in (
                ("queue", job.queue),
                ("worker_id", job.worker_id),
                ("job_id", printable(job.id, 255)),
                ("job_name", printable(job.name, 255)),
                ("attempt", job.attempt),
                ("correlation_id", job.correlation_id),
            ):
                if value is not None and not hasattr(record, name):
                    setattr(record, name, value)
        return True


class TextFormatter(logging.Formatter):
    """One line per record: time, level, where, what; then the job, for the user's own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record as one line; a traceback follows on lines of its own."""
        when = datetime.fromtimestamp(record.created, UTC)
        parts = [
            f"{when:%H:%M:%S}.{when.microsecond // 1000:03d}",
            f"{record.levelname:<7}",
            printable(_message_of(record), _LINE),
        ]
        if not record.name.startswith("toril"):
            parts.insert(2, f"{record.name}:")
            job_id = getattr(record, "job_id", None)
            if job_id is not None:
                parts.append(f"[{getattr(record, 'queue', '')} {job_id}]")
        text = " ".join(parts)
        return f"{text}\n{_traceback_of(self, record)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """One JSON object per record, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record with its fields; what is not JSON is written as text."""
        when = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(_message_of(record), _LINE),
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                plain = isinstance(value, bool | int | float)
                entry[name] = value if plain else printable(value, _LINE)
        if record.exc_info:
            entry["traceback"] = _traceback_of(self, record)
        return json.dumps(entry, ensure_ascii=False, allow_nan=False, default=str)


def configure_logs(
    format: LogFormat = "text", level: int | str = logging.INFO, stream: TextIO | None = None
) -> logging.Handler:
    """Send all log records to `stream` (stderr) in one of the two formats; gives the handler.

    For programs, not for libraries: it adds one handler to the root logger.
    """
    formats: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}
    if format not in formats:
        raise InvalidOption(f"log format {printable(format, 40)!r}: must be 'text' or 'json'")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(formats[format]())
    handler.addFilter(JobFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # a wrong %-format must not cost the line
        return f"{record.msg} {record.args}"


def _traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    assert record.exc_info
    lines = formatter.formatException(record.exc_info).splitlines()
    return "\n".join(printable(line, _LINE) for line in lines)
