"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from toril.cli.main import toril

HEAD: Final = """\
# Command line reference

Made by `make docs` from the commands themselves; a test fails when it is stale.
[The command line](cli.md) says how they go together.
"""

SHARED: Final = {
    "Options of every command": ("json", "quiet", "verbose", "traceback"),
    "Options of every command that talks to a storage": ("url", "url-env", "password-file"),
}
_EXAMPLE_NOTE: Final = "<!-- not run: an example; a test reads its options -->"


def reference() -> str:
    """Give the page as Markdown."""
    commands = list(_walk("toril", toril))
    shared = _shared(commands)
    parts = [HEAD, _contents(commands)]
    for title, names in SHARED.items():
        parts.append(f"## {title}\n\n{_table([shared[name] for name in names])}")
    parts += [_section(name, command, shared) for name, command in commands]
    return "\n".join(parts)


def _walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command, info_name=name)
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        yield from _walk(f"{name} {each}", found)


def _contents(commands: list[tuple[str, click.Command]]) -> str:
    rows = [
        f"| [`{name}`](#{name.replace(' ', '-')}) | {_paragraphs(command)[0]} |\n"
        for name, command in commands
    ]
    return f"| command | |\n|---|---|\n{''.join(rows)}"


def _shared(commands: list[tuple[str, click.Command]]) -> dict[str, click.Option]:
    wanted = {name for names in SHARED.values() for name in names}
    found: dict[str, click.Option] = {}
    for _, command in commands:
        for option in _options(command):
            if (name := _long(option)) in wanted:
                found.setdefault(name, option)
    return found


def _section(name: str, command: click.Command, shared: dict[str, click.Option]) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"## {name}\n\n```text\n{usage}\n```\n"]
    parts += [f"{text}\n" for text in _paragraphs(command)]
    if examples := _examples(command):
        lines = "".join(f"$ {line}\n" for line in examples)
        parts.append(f"{_EXAMPLE_NOTE}\n```console\n{lines}```\n")
    own = [option for option in _options(command) if not _same(option, shared)]
    if own:
        parts.append(_table(own))
    return "\n".join(parts)


def _same(option: click.Option, shared: dict[str, click.Option]) -> bool:
    twin = shared.get(_long(option))
    return twin is not None and (twin.opts, twin.help) == (option.opts, option.help)


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def _long(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-")


def _table(options: list[click.Option]) -> str:
    rows = "".join(f"| {_names(option)} | {_meaning(option)} |\n" for option in options)
    return f"| option | |\n|---|---|\n{rows}"


def _names(option: click.Option) -> str:
    metavar = option.make_metavar(click.Context(click.Command("x")))
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        metavar = option.metavar or "N"
    value = "" if option.is_flag else f" {metavar}"
    names = [f"`{name}`" for name in sorted(option.opts, key=len)]
    names[-1] = f"`{max(option.opts, key=len)}{value}`"
    return _cell(", ".join(names))


def _meaning(option: click.Option) -> str:
    help = " ".join((option.help or "").split())
    told = [help] if help else []
    if allowed := _range(option):
        told.append(f"Allowed: {allowed}.")
    if option.default not in (None, False, ()) and isinstance(option.default, str | int | float):
        told.append(f"Default: `{option.default}`.")
    if option.multiple and "repeated" not in help:
        told.append("May be repeated.")
    if option.required:
        told.append("Required.")
    return _cell(" ".join(told))


def _range(option: click.Option) -> str:
    kind = option.type
    if not isinstance(kind, click.IntRange | click.FloatRange):
        return ""
    if kind.max is None:
        return f"{kind.min} or more"
    return f"{kind.min} to {kind.max}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _blocks(command: click.Command) -> list[str]:
    return [block for block in (command.help or "").strip().split("\n\n") if block.strip()]


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(block.split()) for block in _blocks(command) if not _is_example(block)]


def _examples(command: click.Command) -> list[str]:
    lines = [line for block in _blocks(command) if _is_example(block) for line in block.split("\n")]
    return [line.strip() for line in lines if line.strip() not in ("", "\b")]


def _is_example(block: str) -> bool:
    return block.lstrip(" \n").startswith("\b")
