"""Find what a worker shall run: `module`, `module:object`."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from toril.app import Toril
from toril.errors import InvalidOption
from toril.queue import Queue
from toril.text import printable, suggest
from toril.worker import Worker

Found = Toril | Worker[object, object]

_MAKES_APP: Final = re.compile(
    r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:toril\.)?(Toril|Worker|Queue)\b", re.M
)
_SHOWN: Final = 5


def find(target: str) -> Found:
    """Import a module and give its app or worker; errors say what there is instead."""
    name, colon, attribute = target.partition(":")
    module = _import(name, target)
    if colon:
        return _take(module, name, attribute)
    return _only(module, name)


def find_app(target: str) -> Toril:
    """Import a module and give its app."""
    found = find(target)
    if not isinstance(found, Toril):
        raise InvalidOption(
            f"toril[E03] '{printable(target, 80)}' is a worker, not an app with tasks."
            " fix: name a Toril app, as module:app"
        )
    return found


def _import(name: str, target: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    shown = printable(name, 80)
    try:
        if name and not name.startswith("."):
            return importlib.import_module(name)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and _is_part(error.name, name)
        if not absent:  # it is there, and itself asks for what is not, or fails
            raise _broken(shown, error) from error
    raise InvalidOption(
        f"toril[E02] no module named '{shown}' (looked in the current directory and sys.path)\n"
        f"{_nearby()}"
    )


def _is_part(missing: str | None, name: str) -> bool:
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def _broken(name: str, error: Exception) -> InvalidOption:
    """Tell what a module raises when it is imported, with the line of it that does."""
    fact, _, fix = str(error).partition(". fix: ")
    if not fact.startswith("toril[E"):
        fact = f"toril[E02] '{name}' cannot be imported: {type(error).__name__}: {error}"
        fix = "mend it, then run this again"
    lines = (printable(fact, 400), _own_line(error), f"fix: {fix}" if fix else "")
    return InvalidOption("\n".join(lines).strip())


def _own_line(error: BaseException) -> str:
    """The last line of the user's own code the error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    skipped = ("importlib", "<frozen", str(Path(__file__).parents[1]))
    own = [frame for frame in frames if not any(part in frame.filename for part in skipped)]
    if isinstance(error, SyntaxError) and error.filename:
        return f"at {Path(error.filename).name}:{error.lineno}"
    if not own:
        return "at its first line"
    last = own[-1]
    return (
        f"at {Path(last.filename).name}:{last.lineno} in {last.name}: {printable(last.line, 100)}"
    )


def _nearby() -> str:
    found = list(_apps_here())
    if not found:
        return "fix: name a module of this directory, as: toril worker app:app"
    listed = ", ".join(f"{path} ({name})" for path, name in found[:_SHOWN])
    path, name = found[0]
    module = path.removesuffix(".py").replace("/", ".")
    return f"files here that define a toril app: {listed}\nfix: toril worker {module}:{name}"


def _apps_here() -> Iterator[tuple[str, str]]:
    here = Path.cwd()
    for path in sorted([*here.glob("*.py"), *here.glob("*/*.py")])[:200]:
        try:
            match = _MAKES_APP.search(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        if match is not None:
            yield path.relative_to(here).as_posix(), match[1]


def _take(module: ModuleType, name: str, attribute: str) -> Found:
    if not hasattr(module, attribute):
        known = [one for one in vars(module) if not one.startswith("_")]
        raise InvalidOption(
            f"toril[E03] '{name}' has no attribute '{printable(attribute, 60)}'."
            f"{suggest(attribute, known)} {_listed(module, name)}"
        )
    found = _usable(getattr(module, attribute))
    if found is None:
        raise InvalidOption(
            f"toril[E03] '{name}:{attribute}' is a {type(getattr(module, attribute)).__name__};"
            f" a worker runs a Toril app, a Worker, or a Queue with a handler."
            f" {_listed(module, name)}"
        )
    return found


def _only(module: ModuleType, name: str) -> Found:
    """The one app of a module; where there is none, its one worker."""
    found = _candidates(module)
    apps = {key: one for key, one in found.items() if isinstance(one, Toril)}
    chosen = apps or found
    if len({id(one) for one in chosen.values()}) == 1:
        return next(iter(chosen.values()))
    if not chosen:
        raise InvalidOption(
            f"toril[E03] '{name}' defines nothing a worker could run."
            " fix: make an app = Toril() with tasks, or a Worker, in it"
        )
    kind = "apps" if apps else "workers"
    raise InvalidOption(
        f"toril[E03] '{name}' defines {len(chosen)} {kind}: {', '.join(chosen)}."
        f" fix: toril worker {name}:{next(iter(chosen))}"
    )


def _candidates(module: ModuleType) -> dict[str, Found]:
    found = {}
    for key, value in vars(module).items():
        one = _usable(value)
        if one is not None and not key.startswith("_"):
            found[key] = one
    return found


def _usable(value: object) -> Found | None:
    if isinstance(value, Toril | Worker):
        return value
    if isinstance(value, Queue):
        return value.worker
    return None


def _listed(module: ModuleType, name: str) -> str:
    found = list(_candidates(module))
    return f"fix: toril worker {name}:{found[0]}" if found else "fix: name an app or a worker"
