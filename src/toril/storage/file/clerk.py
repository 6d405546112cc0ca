"""Threads that do the blocking work: one that reads, one that writes in groups.

The writer takes all calls that wait, runs each in a savepoint of one transaction and commits
once: many callers share one sync of the disk. Each call's answer leaves after the commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from toril.clock import Clock
from toril.errors import StorageClosed, StorageError
from toril.storage.file import ledger
from toril.storage.file.address import FileAddress
from toril.storage.file.database import connect
from toril.storage.file.ledger import Effects, Ledger
from toril.storage.file.shelf import Shelf
from toril.storage.file.trouble import DiskFailed, translate

T = TypeVar("T")

_GROUP: Final = 256
_GROUP_S: Final = 0.05
_CLEAN_S: Final = 5.0
"""How often what is past its time is looked for."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A call that somebody on a loop waits for."""

    act: Callable[..., Any]
    queue: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


# An errand with its answer: a value, or an error to raise.
Answered = tuple[Errand, Any, BaseException | None]


def deliver(answers: Sequence[Answered]) -> None:
    """Answer callers, each on its own loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Answered]] = {}
    for answer in answers:
        loops.setdefault(answer[0].loop, []).append(answer)
    for loop, some in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, some)
        except RuntimeError:
            continue  # the loop has closed, and its callers with it


def _resolve(answers: Sequence[Answered]) -> None:
    for errand, value, error in answers:
        if errand.future.done():
            continue
        if error is None:
            errand.future.set_result(value)
        else:
            errand.future.set_exception(error)


class Clerk:
    """A thread with a connection of its own and a queue of errands."""

    def __init__(self, name: str, address: FileAddress, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._inbox: SimpleQueue[Errand | None] = SimpleQueue()
        self.stopping = False
        self._db = self._connect()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @abstractmethod
    def _connect(self) -> sqlite3.Connection:
        """Open the connection the thread will use."""

    @abstractmethod
    def _serve(self, errands: Sequence[Errand]) -> None:
        """Run errands and deliver their answers."""

    def _idle(self) -> None:
        """Do what is due between errands."""

    def _rest_s(self) -> float | None:
        """How long to wait for the next errand before something is due; None: for ever."""
        return None

    async def ask(self, queue: str, act: Callable[..., T]) -> T:
        """Run a function in the thread and return what it returns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._inbox.put(Errand(act, queue, loop, future))
        return await future

    def stop(self) -> None:
        """Finish what was asked, end the thread and close; blocks."""
        self.stopping = True
        self._inbox.put(None)
        self._thread.join()
        self._db.close()
        late: list[Answered] = []
        while not self._inbox.empty():
            errand = self._inbox.get()
            if errand is not None:  # asked by another thread while this one closed
                late.append((errand, None, StorageClosed(f"{self._address.url} was closed")))
        deliver(late)

    def _run(self) -> None:
        going = True
        while going:
            errands: list[Errand] = []
            try:
                first = self._inbox.get(timeout=self._rest_s())
                while first is not None:
                    errands.append(first)
                    if len(errands) >= _GROUP:
                        break
                    first = self._inbox.get_nowait()
                else:
                    going = False
            except Empty:
                pass
            if errands:
                self._serve(errands)
            self._idle()


class Reader(Clerk):
    """Runs looks, each on a snapshot of the database."""

    def _connect(self) -> sqlite3.Connection:
        return connect(self._address, writes=False)

    def _serve(self, errands: Sequence[Errand]) -> None:
        for errand in errands:
            deliver([self._look(errand)])

    def _look(self, errand: Errand) -> Answered:
        db = self._db
        try:
            db.execute("BEGIN")
            try:
                shelf = Shelf.peek(db, errand.queue)
                if shelf is not None:
                    shelf.now = self._clock.now_ms()
                return errand, errand.act(shelf, db), None
            finally:
                if db.in_transaction:
                    db.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            return errand, None, translate(error, self._address.url)
        except Exception as error:
            return errand, None, error


class Writer(Clerk):
    """Runs changes in groups, one transaction each."""

    def __init__(
        self,
        name: str,
        address: FileAddress,
        clock: Clock,
        heard: Callable[[dict[str, Effects]], None],
    ) -> None:
        self._heard = heard
        self._clean_at = time.monotonic()
        self.broken: StorageError | None = None
        super().__init__(name, address, clock)

    def _connect(self) -> sqlite3.Connection:
        return connect(self._address)

    def _serve(self, errands: Sequence[Errand]) -> None:
        left = list(errands)
        while left:
            if self.broken is not None:
                deliver([(errand, None, self.broken) for errand in left])
                return
            left = self._commit(left)

    def _commit(self, errands: list[Errand]) -> list[Errand]:
        """Run a group in one transaction; return the errands it did not get to."""
        book = Ledger(self._db, self._address, self._clock)
        answers: list[Answered] = []
        until = time.monotonic() + _GROUP_S
        try:
            book.begin(lambda: self.stopping)
            for errand in errands:
                answers.append(self._run_one(book, errand, alone=len(errands) == 1))
                if time.monotonic() > until:
                    break
            book.commit()
        except Exception as error:
            known = book.failed(error)
            if isinstance(known, DiskFailed):
                self.broken = known
            # The whole group is undone, also those who had an answer already.
            deliver([(errand, None, known) for errand in errands])
            return []
        self._heard(book.effects)
        deliver(answers)
        return errands[len(answers) :]

    def _run_one(self, book: Ledger, errand: Errand, *, alone: bool) -> Answered:
        try:
            return errand, book.change(errand.queue, errand.act, alone=alone), None
        except ledger.Undone:
            raise
        except Exception as error:
            return errand, None, error

    def _rest_s(self) -> float | None:
        return max(0.001, self._clean_at - time.monotonic())

    def _idle(self) -> None:
        if time.monotonic() < self._clean_at:
            return
        self._clean_at = time.monotonic() + _CLEAN_S
        if self.broken is not None or self.stopping:
            return
        try:
            if ledger.clean(self._db, self._address, self._clock):
                self._clean_at = time.monotonic()
        except StorageError as error:
            if isinstance(error, DiskFailed):
                self.broken = error
