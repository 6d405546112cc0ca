"""Options that many commands share, and the values they become."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from toril.cli.output import NORMAL, QUIET, Output

Callback = Callable[..., int | None]

URL_ENV: Final = "TORIL_URL"
EMBEDDED: Final = "embedded:"


def speaking(command: Callback) -> Callback:
    """Give a command its `Output`, set by --json, -q, -v and --traceback."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.option("-q", "--quiet", is_flag=True, help="Print the result and errors only.")
    @click.option("-v", "--verbose", is_flag=True, help="Print more on the way.")
    @click.option("--traceback", is_flag=True, help="Show where an error comes from.")
    @functools.wraps(command)
    def call(
        *args: Any, as_json: bool, quiet: bool, verbose: bool, traceback: bool, **kwargs: Any
    ) -> int | None:
        context = click.get_current_context()
        output = context.find_object(Output)
        assert output is not None
        if quiet and verbose:
            raise click.UsageError("give -q or -v, not both", context)
        output.json = as_json
        output.level = QUIET if quiet else NORMAL + verbose
        output.traceback |= traceback
        return command(output, *args, **kwargs)

    return call


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """The storage a command talks to, without its secret."""

    url: str | None
    url_env: str | None
    password_file: str | None

    @classmethod
    def of(cls, url: str | None, url_env: str | None, password_file: str | None) -> At:
        """Take what was given; without anything, TORIL_URL or the embedded server."""
        if url is None and url_env is None and not os.environ.get(URL_ENV):
            url = EMBEDDED
        return cls(url=url, url_env=url_env, password_file=password_file)


def placed(command: Callback) -> Callback:
    """Give a command its `at`, set by --url, --url-env and --password-file."""
    return _placed(command, lambda *given: At.of(*given))


def overriding(command: Callback) -> Callback:
    """Give a command an `at` that is None unless somebody asked for another storage."""
    return _placed(command, lambda *given: At.of(*given) if any(given) else None)


def _placed(command: Callback, choose: Callable[..., At | None]) -> Callback:
    @click.option("--url", metavar="URL", help="The storage, without a password.")
    @click.option(
        "--url-env", metavar="NAME", help=f"The variable that holds the URL.  [default: {URL_ENV}]"
    )
    @click.option("--password-file", metavar="PATH", help="A file that holds the password.")
    @functools.wraps(command)
    def call(
        *args: Any, url: str | None, url_env: str | None, password_file: str | None, **kwargs: Any
    ) -> int | None:
        return command(*args, at=choose(url, url_env, password_file), **kwargs)

    return call
