"""The user's own line, found from inside."""

from __future__ import annotations

import asyncio
import sys
import warnings
from pathlib import Path

import pytest

from toril import Backoff, InvalidPayload, JobOptions, Queue, TorilWarning
from toril.extras import install
from toril.retry import doubt_milliseconds
from toril.whence import caller, caller_and_function, running_line

HERE = Path(__file__).name


def line() -> int:
    return sys._getframe(1).f_lineno


def test_the_caller_is_the_next_line_of_the_users_own() -> None:
    assert (caller(), line()) == (f"{HERE}:{line()}", line())
    assert caller_and_function().endswith(" in test_the_caller_is_the_next_line_of_the_users_own()")


async def test_there_is_no_caller_where_the_event_loop_called() -> None:
    queue: Queue[object, object] = Queue("mail", "memory:")
    with pytest.raises(InvalidPayload, match=f"called at {HERE}:"):
        await queue.enqueue("a", {1})
    with pytest.raises(InvalidPayload) as caught:
        await asyncio.create_task(queue.enqueue("a", {1}))
    assert "called at" not in str(caught.value)


def test_a_line_in_a_library_counts_for_the_line_that_called_it(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("def fetch(then):\n    return then()\n")
    scope: dict[str, object] = {"__name__": "library"}
    exec(compile(library.read_text(), str(library), "exec"), scope)
    fetch = scope["fetch"]
    assert callable(fetch)
    inside = fetch(lambda: sys._getframe(1))
    assert inside.f_code.co_name == "fetch"
    said = running_line(inside)
    assert said.startswith(
        f"test_a_line_in_a_library_counts_for_the_line_that_called_it at {HERE}:"
    )


@pytest.mark.parametrize(
    ("value", "doubted"),
    [
        *[(1000, True), (5000, True), (30_000, True), (60_000, True), (3_600_000, True)],
        *[(86_400_000, True), (999, False), (1500, False), (1800, False), (3600, False)],
        *[(18_000, False), (36_000, False), (86_400, False), (604_800, False), (864_000, False)],
        *[(5000.0, False), (True, False), (0, False)],
    ],
)
def test_whole_thousands_are_taken_for_milliseconds_unless_they_make_sense(
    value: float, doubted: bool
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert doubt_milliseconds("delay", value) == doubted
    assert len(caught) == doubted


def test_a_doubtful_option_blames_the_line_that_gave_it() -> None:
    with pytest.warns(TorilWarning, match=r"E12.*did you mean 5 s\? 5000 s is 1 h 23 min") as told:
        JobOptions(delay=5000)
    with pytest.warns(TorilWarning, match="did you mean 60 s"):
        Backoff("fixed", 60_000, max_delay=60_000)
    assert Path(told[0].filename).name == HERE


def test_an_extra_is_installed_as_the_environment_was_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install("toril[web]") == 'python -m pip install "toril[web]"'
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.13.7\n")
    assert install("toril[web]") == 'uv add "toril[web]"'
