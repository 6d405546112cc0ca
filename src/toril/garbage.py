"""Keep Python's garbage collector out of the way of a process that works jobs.

Objects that refer to each other in circles are found by looking at all objects again and again; all
others are freed without. A job makes dozens of objects that live for as long as it does, so with
the defaults a worker with hundreds of jobs in hand spends a good part of its time on looking at
what is in use.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEW_OBJECTS: Final = 50_000
"""So many more than there were make the collector look at the new ones; by default 700.

A thousand jobs in hand are about forty thousand, and a look at them takes up to ten milliseconds.
"""


def spare_collections() -> None:
    """Let the collector look less often, and never again at what is loaded now.

    For processes that work jobs and do little else: `toril worker` calls it. What a program has
    set itself is not lowered, and a collector that is switched off stays so.
    """
    gc.collect()
    gc.freeze()
    young, *older = gc.get_threshold()
    if young:
        gc.set_threshold(max(young, _NEW_OBJECTS), *older)


@contextmanager
def spared_collections() -> Iterator[None]:
    """Spare collections for as long as this lasts, in a process that is somebody else's after it.

    A task of a fleet does so in the Python worker that Spark lends it.
    """
    before = gc.get_threshold()
    spare_collections()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
