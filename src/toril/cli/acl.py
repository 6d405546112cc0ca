"""`toril acl …`: users for a server that many share."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

import click

from toril.acl import PLACEHOLDER, ROLES, Format, User, hashed, make_user, read_roles
from toril.cli.options import URL_ENV, At, speaking
from toril.cli.output import Output
from toril.cli.place import url_of
from toril.errors import InvalidOption
from toril.resp.url import Address, Layout, parse_url

_NO_SERVER = ("memory", "file")


@click.group("acl")
def acl() -> None:
    """Users of Redis and Valkey with no more rights than they need."""


@acl.command("print")
@click.argument("roles", nargs=-1, metavar="[ROLE]...")
@click.option("--url", metavar="URL", help="The storage the users are for, without a password.")
@click.option(
    "--url-env", metavar="NAME", help=f"The variable that holds the URL.  [default: {URL_ENV}]"
)
@click.option("--layout", type=click.Choice(get_args(Layout)), help="Instead of the URL's.")
@click.option("--prefix", metavar="TEXT", help="Instead of the URL's.")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only this one; repeatable.")
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Format)),
    default="setuser",
    show_default=True,
    help="Commands for the server, or lines of its users.acl.",
)
@click.option("--user", metavar="NAME", help="The user's name.  [default: toril-ROLE]")
@click.option("--password-file", metavar="PATH", help="A file that holds the user's password.")
@speaking
def print_(
    output: Output,
    roles: tuple[str, ...],
    url: str | None,
    url_env: str | None,
    layout: Layout | None,
    prefix: str | None,
    queues: tuple[str, ...],
    form: Format,
    user: str | None,
    password_file: str | None,
) -> None:
    """Print users with the least rights, one line each; nothing is sent anywhere.

    \b
    producer  hand in, read, cancel and remove jobs, wait for results
    worker    work jobs and tell how queues fare
    viewer    read everything, write nothing
    admin     everything toril can do

    Without a ROLE all four; producer+viewer is one user with both. A password is printed as its
    SHA-256 only, and a mark that servers refuse stands for one that was not given.

    \b
    toril acl print worker --password-file worker.pw | valkey-cli
    toril acl print --url bullmq+redis://db --format file >> users.acl
    """
    wanted = [read_roles(text) for text in roles] or [(role,) for role in ROLES]
    if len(wanted) > 1 and (user or password_file):
        raise click.UsageError(
            f"--user and --password-file are for one user, these are {len(wanted)}; name one ROLE",
            click.get_current_context(),
        )
    address = _address(url, url_env, layout, prefix)
    secret = PLACEHOLDER if password_file is None else hashed(_read(password_file))
    users = [make_user(address, one, queues=queues, name=user, secret=secret) for one in wanted]
    _print(output, users, form)


def _print(output: Output, users: list[User], form: Format) -> None:
    if output.json:
        output.result("", {"users": [_described(user, form) for user in users]})
        return
    for user in users:
        output.line(user.write(form))
    if any(user.secret == PLACEHOLDER for user in users):
        output.say(
            f"put the SHA-256 of a password, after '#', in place of {PLACEHOLDER};"
            " or give --password-file"
        )


def _described(user: User, form: Format) -> dict[str, object]:
    return {
        "name": user.name,
        "roles": user.roles,
        "keys": user.keys,
        "commands": user.commands,
        "line": user.write(form),
    }


def _address(
    url: str | None, url_env: str | None, layout: Layout | None, prefix: str | None
) -> Address:
    address = Address()
    if url or url_env or os.environ.get(URL_ENV):
        whole = url_of(At.of(url, url_env, None))
        if whole.partition(":")[0] in _NO_SERVER:
            raise InvalidOption(
                "this storage has no users: they belong to a Redis or Valkey server"
            )
        address = parse_url(whole)
    return replace(address, layout=layout or address.layout, prefix=prefix or address.prefix)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidOption(f"--password-file '{path}' cannot be read ({reason})") from None
