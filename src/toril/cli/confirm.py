"""Ask before something is deleted."""

from __future__ import annotations

import sys

import click

from toril.cli.output import Output

yes_option = click.option("-y", "--yes", is_flag=True, help="Do it without asking.")


def confirm(output: Output, question: str, yes: bool) -> None:
    """Go on only with a yes: given as an option, or typed on a terminal."""
    if yes:
        return
    if output.json or not sys.stdin.isatty():
        raise click.UsageError(
            f"{question} This is not a terminal, so nobody can be asked; say --yes",
            click.get_current_context(),
        )
    if not click.confirm(question, err=True):
        raise click.Abort
