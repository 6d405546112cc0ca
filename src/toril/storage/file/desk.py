"""The threads and files of an open storage, opened and closed together."""

from __future__ import annotations

from toril.clock import Clock
from toril.storage.file.address import FileAddress
from toril.storage.file.bells import Bells, News
from toril.storage.file.clerk import Reader, Writer
from toril.storage.file.database import set_up
from toril.storage.file.directory import NOTIFY
from toril.storage.file.ledger import Effects
from toril.storage.file.notify import Listener, Toucher


class Desk:
    """Who writes, who reads, who hears of other processes and who tells them."""

    def __init__(self, address: FileAddress, clock: Clock, bells: Bells, poll_s: float) -> None:
        set_up(address)
        self._bells = bells
        self._toucher = Toucher(address.directory / NOTIFY)
        self.writer = Writer("toril-file-writer", address, clock, self._announce)
        try:
            self.reader = Reader("toril-file-reader", address, clock)
        except BaseException:
            self.writer.stop()
            raise
        self.listener = Listener(address.directory / NOTIFY, bells, poll_s)

    def _announce(self, effects: dict[str, Effects]) -> None:
        """Tell those who wait, here and elsewhere, what a transaction brought."""
        for queue, what in effects.items():
            if what.work:
                self._bells.ring(queue, News.WORK)
            if what.events:
                self._bells.ring(queue, News.EVENTS)
            if what.endings:
                self._bells.ring(queue, News.ENDINGS, what.endings)
        touch_all(self._toucher, effects)

    def close(self) -> None:
        """Finish what was asked, then let everything go; blocks."""
        self.writer.stop()
        self.reader.stop()
        self.listener.stop()
        self._toucher.close()


def touch_all(toucher: Toucher, effects: dict[str, Effects]) -> None:
    """Tell other processes what a transaction brought."""
    for queue, what in effects.items():
        if what.work:
            toucher.touch(queue, News.WORK)
        if what.events:
            toucher.touch(queue, News.EVENTS)
        if what.awaited:
            toucher.touch(queue, News.ENDINGS)
