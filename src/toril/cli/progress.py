"""Show how far a long piece of work is, on a terminal and in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from toril.cli.width import cut, width_of

_BAR: Final = 24
_REDRAW_S: Final = 0.1
_LINE_S: Final = 5.0
"""How often a log gets a line."""


class Progress:
    """A bar that is drawn anew, or without a terminal a line every five seconds."""

    def __init__(
        self,
        label: str,
        unit: str,
        stream: TextIO | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label = label
        self.unit = unit
        self._stream = stream
        self._clock = clock
        self._started = self._told = clock()
        self._first: int | None = None
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._width and self._stream is not None:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()

    def __call__(self, done: int, total: int | None = None, note: str = "") -> None:
        """Tell how much is done; may be called as often as one likes."""
        now = self._clock()
        if self._first is None:
            self._first, self._started = done, now
        if self._stream is None:
            return
        drawn = self._stream.isatty()
        if now - self._told < (_REDRAW_S if drawn else _LINE_S):
            return
        self._told = now
        text = self.text(done, total, note, now)
        if drawn:
            text = cut(text, width_of(self._stream))
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def text(self, done: int, total: int | None, note: str, now: float) -> str:
        """Write one state of the work as a line."""
        elapsed = now - self._started
        rate = (done - (self._first or 0)) / elapsed if elapsed > 0 else 0.0
        parts = [self.label]
        if total:
            full = min(done / total, 1.0)
            filled = int(full * _BAR)
            parts.append(f"[{'#' * filled}{'.' * (_BAR - filled)}] {full:4.0%}")
            parts.append(f"{done:,} of {total:,} {self.unit}")
        else:
            parts.append(f"{done:,} {self.unit}")
        if rate:
            parts.append(f"{rate:,.0f}/s")
            if total and done < total:
                parts.append(f"{_span((total - done) / rate)} left")
        return "  ".join([*parts, note] if note else parts)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
