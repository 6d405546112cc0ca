"""Groups that know their commands by name and import one when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from toril.text import printable, suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class Lazy:
    """Where a command is, and its line in the list of commands."""

    home: str
    name: str
    help: str

    def load(self) -> click.Command:
        """Import the command."""
        command = getattr(import_module(self.home), self.name)
        assert isinstance(command, click.Command)
        return command


class LazyGroup(click.Group):
    """A group that lists its commands without importing them, so that help stays quick."""

    def __init__(self, *, lazy: Mapping[str, Lazy], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order they were given."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        found = self.lazy.get(cmd_name)
        return None if found is None else found.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is refused with the nearest known."""
        name = args[0]
        if name not in self.lazy and not name.startswith("-"):
            raise click.UsageError(
                f"no command '{printable(name, 60)}'.{suggest(name, self.lazy)}"
                f" Known: {', '.join(self.lazy)}",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.help) for name, one in self.lazy.items()])
