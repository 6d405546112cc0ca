"""Run the command line: find the command, say what went wrong, end with its code."""

from __future__ import annotations

import functools
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

import click

from toril._version import __version__
from toril.cli.errors import FAILED, FINE, trouble_of
from toril.cli.lazy import Lazy, LazyGroup
from toril.cli.output import Output
from toril.errors import StorageUnavailable, TorilWarning

COMMANDS = {
    "demo": Lazy(home="toril.cli.demo", name="command", help="See it work, then a report of it."),
    "init": Lazy(home="toril.cli.init", name="command", help="Make a small project that works."),
    "worker": Lazy(home="toril.cli.worker", name="command", help="Work the jobs of an app."),
    "call": Lazy(home="toril.cli.call", name="command", help="Run a task and print its result."),
    "enqueue": Lazy(home="toril.cli.enqueue", name="command", help="Hand in jobs."),
    "events": Lazy(home="toril.cli.events", name="command", help="Show what happens in a queue."),
    "job": Lazy(home="toril.cli.jobs", name="job", help="Look at one job and decide on it."),
    "queue": Lazy(home="toril.cli.queues", name="queue", help="Look at queues and tend them."),
    "top": Lazy(home="toril.cli.top", name="command", help="Show all queues live."),
    "doctor": Lazy(
        home="toril.cli.doctor", name="command", help="Check the storage and its queues."
    ),
    "metrics": Lazy(
        home="toril.cli.metrics", name="command", help="Print gauges as Prometheus reads them."
    ),
    "server": Lazy(home="toril.cli.server", name="server", help="The Valkey inside."),
    "acl": Lazy(home="toril.cli.acl", name="acl", help="Users with no more rights than needed."),
    "explain": Lazy(home="toril.cli.explain", name="command", help="Explain a code."),
    "spark": Lazy(
        home="toril.cli.spark",
        name="spark",
        help="Queues as tables: load, archive, replay, report.",
    ),
}

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

toril = LazyGroup(
    name="toril",
    lazy=COMMANDS,
    help="Background jobs: run, look at and tend queues.",
    context_settings=_CONTEXT,
    no_args_is_help=True,
)
toril = click.version_option(__version__, message="%(prog)s %(version)s")(toril)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave with its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)  # so that what was opened is closed
    sys.exit(run(sys.argv[1:] if args is None else args, Output()))


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def run(args: Sequence[str], output: Output) -> int:
    """Run a command; give its exit code, whatever happens."""
    output.json = "--json" in args  # for what goes wrong before the options are read
    try:
        with warnings.catch_warnings():
            warnings.showwarning = functools.partial(_warn, output, warnings.showwarning)
            answer = toril.main(list(args), prog_name="toril", standalone_mode=False, obj=output)
    except click.exceptions.NoArgsIsHelpError as error:
        output.say(error.format_message())
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has had enough; the interpreter must not try to flush it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (Exception, KeyboardInterrupt) as error:
        return _fail(error, output)
    return answer if isinstance(answer, int) else FINE


def _fail(error: BaseException, output: Output) -> int:
    if output.traceback and not isinstance(error, click.ClickException):
        output.err.write("".join(traceback.format_exception(error)))
    trouble = trouble_of(error)
    if isinstance(error, StorageUnavailable):
        from toril.cli.neighbours import look_around

        trouble = look_around(trouble)
    output.trouble(trouble)
    return trouble.exit


def _warn(
    output: Output,
    otherwise: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    *where: object,
    **more: object,
) -> None:
    """Tell a warning of ours as everything else is told."""
    if issubclass(category, TorilWarning):
        output.say(str(message).replace(". fix: ", "\nfix: "))
    else:
        otherwise(message, category, *where, **more)
