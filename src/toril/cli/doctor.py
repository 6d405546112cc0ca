"""`toril doctor`: check the storage and its queues, and mend what can be mended without loss."""

from __future__ import annotations

import asyncio
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from toril.cli.confirm import confirm, yes_option
from toril.cli.errors import FAILED, FINE
from toril.cli.options import At, placed, speaking
from toril.cli.output import QUIET, Output
from toril.cli.place import shared_url_of
from toril.doctor.examine import examine, mend
from toril.doctor.finding import Bounds, Finding, Level, Report
from toril.text import printable

_WIDE: Final = 10_000
_CHECK: Final = 13
_LEVEL: Final = 9


@click.command("doctor")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@click.option("--fix", is_flag=True, help="Mend what can be mended without losing a job.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=Bounds().entries,
    show_default=True,
    help="Look at so many entries of a line and records of a queue.",
)
@yes_option
@speaking
@placed
def command(
    output: Output, queues: tuple[str, ...], at: At, fix: bool, limit: int, yes: bool
) -> int:
    """Check the server and the queues, all or those named: ok, warning or problem.

    \b
    toril doctor
    toril doctor mail --fix

    Exit 1 with a problem, 0 with warnings alone. Nothing is changed without --fix, which asks;
    it says what it did, and checks again.
    """
    url, bounds = shared_url_of(at), Bounds(entries=limit)
    report = asyncio.run(examine(url, queues, bounds))
    done: list[str] = []
    if fix and report.remedies:
        if not yes:
            _show(output, report)
        confirm(output, f"Mend {len(report.remedies)} of these findings?", yes)
        done = asyncio.run(mend(url, report.remedies, bounds))
        for text in done:
            output.say(f"fixed    {printable(text, 200)}")
        report = asyncio.run(examine(url, queues, bounds))
    elif fix:
        output.say("nothing that --fix could mend")
    _show(output, report)
    summary = _wrap(_summary(report), "", "", _width(output))
    output.result("\n".join(summary), _document(report, done))
    output.detail(f"looked at up to {bounds.entries:,} entries and {bounds.keys:,} keys")
    return FAILED if report.of(Level.PROBLEM) else FINE


def _show(output: Output, report: Report) -> None:
    if output.json:
        return
    width = _width(output)
    for finding in report.findings:
        if finding.level is Level.OK and output.level == QUIET:
            continue
        for line in lines(finding, width):
            output.line(line)


def _width(output: Output) -> int:
    """Fit a terminal; what goes into a file or a pipe has one line for each finding."""
    return shutil.get_terminal_size().columns if output.out.isatty() else _WIDE


def lines(finding: Finding, width: int) -> Iterator[str]:
    """Write a finding in lines no wider than a terminal, its fix below it."""
    code = "" if finding.code is None else f"toril[{finding.code}] "
    subject = "" if finding.queue is None else f"{printable(finding.queue, 40)}: "
    named = finding.text.startswith("queue '")
    head = f"{finding.level.value:<{_LEVEL}}{finding.check:<{_CHECK}}"
    indent = " " * len(head)
    text = f"{code}{'' if named else subject}{printable(finding.text, 2000)}"
    yield from _wrap(text, head, indent, width)
    if finding.fix is not None:
        yield from _wrap(f"fix: {printable(finding.fix, 2000)}", indent, indent, width)


def _wrap(text: str, first: str, rest: str, width: int) -> Sequence[str]:
    return textwrap.wrap(
        text,
        max(width, len(first) + 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    )


def _summary(report: Report) -> str:
    problems, warnings = (
        _counted(len(report.of(level)), level.value) for level in (Level.PROBLEM, Level.WARNING)
    )
    return f"{problems}, {warnings}, {len(report.of(Level.OK))} ok at {report.url}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _document(report: Report, done: Sequence[str]) -> dict[str, Any]:
    return {
        "url": report.url,
        "problems": len(report.of(Level.PROBLEM)),
        "warnings": len(report.of(Level.WARNING)),
        "findings": [
            {
                "level": one.level.value,
                "check": one.check,
                "queue": one.queue,
                "code": one.code,
                "text": one.text,
                "fix": one.fix,
                "count": one.count,
                "fixable": one.remedy is not None,
            }
            for one in report.findings
        ],
        "fixed": list(done),
    }
