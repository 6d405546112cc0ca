"""Run blocks of Python one after the other in this process; say what is wrong with each.

python run_blocks.py blocks.json
The file holds a list of [where, code, output or null]; a list of complaints is printed.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import json
import linecache
import logging
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path

LIMIT_S = 20
IGNORED: list[str] = []


def _ignored(trouble: sys.UnraisableHookArgs) -> None:
    IGNORED.append(repr(trouble.exc_value))


def complaint(where: str, code: str, output: str | None) -> str:
    """Run a block as a program of its own would be; give what is wrong, or nothing."""
    linecache.cache[where] = (len(code), None, code.splitlines(keepends=True), where)
    said = io.StringIO()
    before, level = logging.root.handlers[:], logging.root.level
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    try:
        with redirect_stdout(said):
            exec(compile(code, where, "exec"), {"__name__": "__main__"})
    except BaseException:
        return f"{where}: {traceback.format_exc()}"
    finally:
        faulthandler.cancel_dump_traceback_later()
        logging.root.handlers[:] = before
        logging.root.setLevel(level)
    gc.collect()
    if IGNORED:
        return f"{where}: {IGNORED.pop()}"
    if output is not None and said.getvalue() != output:
        return f"{where}: printed {said.getvalue()!r}, the page says {output!r}"
    return ""


def main() -> None:
    """Run the blocks of the file named."""
    sys.unraisablehook = _ignored
    sys.path.insert(0, str(Path.cwd()))
    blocks = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps([said for block in blocks if (said := complaint(*block))]))


if __name__ == "__main__":
    main()
