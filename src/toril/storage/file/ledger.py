"""One transaction over any number of queues, and what others must hear of afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from toril.clock import Clock
from toril.errors import TorilError
from toril.storage.file.address import FileAddress
from toril.storage.file.codec import DELAYED
from toril.storage.file.database import begin, roll_back
from toril.storage.file.endings import SWEEP, sweep
from toril.storage.file.lines import is_open, ready
from toril.storage.file.shelf import Shelf
from toril.storage.file.trouble import translate

T = TypeVar("T")


class Undone(Exception):
    """The whole transaction is to be undone, because of `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(slots=True)
class Effects:
    """What became of one queue: work for the idle, events, endings somebody waits for."""

    work: bool = False
    events: bool = False
    awaited: bool = False
    endings: list[str] = field(default_factory=list)


class Ledger:
    """A write transaction; changes are undone one by one, or all together."""

    def __init__(self, db: sqlite3.Connection, address: FileAddress, clock: Clock) -> None:
        self._db = db
        self._address = address
        self._clock = clock
        self._shelves: dict[str, Shelf] = {}
        self.effects: dict[str, Effects] = {}

    def begin(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Take the write lock."""
        begin(self._db, self._address, stopped)

    def commit(self) -> None:
        """Make the changes last; they are on the disk when this returns, if so asked."""
        self._db.execute("COMMIT")

    def failed(self, error: Exception) -> Exception:
        """Undo everything, and say what went wrong in our own words."""
        try:
            roll_back(self._db)
        except sqlite3.Error as second:
            return translate(second, self._address.url)
        return self._known(error.cause if isinstance(error, Undone) else error)

    def _known(self, error: Exception) -> Exception:
        if isinstance(error, TorilError) or not isinstance(error, sqlite3.Error | OSError):
            return error
        return translate(error, self._address.url)

    def change(self, queue: str, act: Callable[[Shelf], T], *, alone: bool = False) -> T:
        """Run one change; if it fails, undo it and raise what went wrong.

        Raises `Undone` if the changes before it are gone too. `alone` saves the savepoint: there
        is nothing before it.
        """
        db = self._db
        if not alone:
            db.execute("SAVEPOINT change")
        try:
            shelf = self._shelf(queue)
            shelf.now = self._clock.now_ms()
            answer = act(shelf)
            shelf.flush()
        except Exception as error:
            self._shelves.pop(queue, None)
            if alone or not db.in_transaction:
                raise Undone(error) from error
            db.execute("ROLLBACK TO change")
            db.execute("RELEASE change")
            raise self._known(error) from error
        if not alone:
            db.execute("RELEASE change")
        self._gather(shelf)
        return answer

    def _shelf(self, queue: str) -> Shelf:
        shelf = self._shelves.get(queue)
        if shelf is None:
            shelf = self._shelves[queue] = Shelf.open(self._db, queue)
        return shelf

    def _gather(self, shelf: Shelf) -> None:
        if not (shelf.work or shelf.told or shelf.endings):
            return
        effects = self.effects.setdefault(shelf.name, Effects())
        startable = ready(shelf) or shelf.count[DELAYED]
        effects.work = effects.work or bool(shelf.work and startable and is_open(shelf))
        effects.events = effects.events or shelf.told
        effects.awaited = effects.awaited or shelf.awaited
        effects.endings += shelf.endings
        shelf.forget_effects()


def transact(
    db: sqlite3.Connection,
    address: FileAddress,
    clock: Clock,
    queue: str,
    act: Callable[[Shelf], T],
) -> tuple[T, dict[str, Effects]]:
    """Run one change in a transaction of its own, blocking."""
    book = Ledger(db, address, clock)
    try:
        book.begin()
        answer = book.change(queue, act, alone=True)
        book.commit()
    except Exception as error:
        raise book.failed(error) from error
    return answer, book.effects


def clean(db: sqlite3.Connection, address: FileAddress, clock: Clock) -> bool:
    """Forget a lot of what is past its time; tell whether there is more."""
    past = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE queue = key AND {column} <= ?1)"
        for table, column in (("jobs", "expires_ms"), ("ghosts", "until_ms"), ("holds", "until_ms"))
    )
    try:
        names = db.execute(f"SELECT name FROM queues WHERE {past}", (clock.now_ms(),)).fetchall()
    except sqlite3.Error as error:
        raise translate(error, address.url) from error
    more = False
    for (name,) in names:
        gone, _ = transact(db, address, clock, name, sweep)
        more = more or gone >= SWEEP
    return more
