"""Errors form one tree, the one that is drawn, and carry what their readers need."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable

import pytest

import toril
from toril import errors
from toril.errors import (
    EventsTrimmed,
    InvalidPayload,
    JobCancelled,
    JobError,
    JobFailed,
    JobNotFound,
    JobTimeout,
    LeaseLost,
    MissingExtra,
    RetriesExhausted,
    StorageUnavailable,
    TorilError,
    TorilWarning,
    WaitTimeout,
)
from toril.event import Cursor
from toril.outcome import Failure

BRANCH = re.compile(
    r"(?P<indent>[│ ]*)(?:[├└]── )?(?P<name>[A-Z]\w+)(?: \((?P<mixin>\w+)\))?(?: |$)"
)
DECLARED = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and kind.__module__ == errors.__name__
}
FAILURE = Failure(kind="ValueError", reason="no")

MADE: list[TorilError] = [
    InvalidPayload("bad", path="$.a[0]"),
    MissingExtra("install toril[web]"),
    JobError("trouble", job_id="a"),
    JobNotFound("no job", job_id="a"),
    JobFailed("failed", job_id="a", original_error=FAILURE),
    RetriesExhausted("failed", job_id="a", original_error=FAILURE, payload={"x": [1]}, attempts=3),
    JobCancelled("cancelled", job_id="a"),
    JobTimeout("slow", job_id="a"),
    WaitTimeout("slow", job_id="a"),
    LeaseLost("lost", job_id="a"),
    StorageUnavailable("no answer"),
    EventsTrimmed("gone", count=7, resume=Cursor(8)),
]


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """Read the tree of the docstring: name to parent and builtin."""
    tree: dict[str, tuple[str | None, str | None]] = {}
    path: list[str] = []
    text = inspect.cleandoc(errors.__doc__ or "")
    for line in text.split("\n\n")[1].splitlines():
        found = BRANCH.match(line)
        assert found, line
        depth = 0 if "──" not in line else len(found["indent"]) // 4 + 1
        path[depth:] = [found["name"]]
        tree[found["name"]] = (path[depth - 1] if depth else None, found["mixin"])
    return tree


def test_the_drawn_tree_is_the_tree() -> None:
    real: dict[str, tuple[str | None, str | None]] = {}
    for name, kind in DECLARED.items():
        if kind is TorilWarning:
            continue
        own = [base.__name__ for base in kind.__bases__ if base.__name__ in DECLARED]
        foreign = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins"]
        mixin = foreign[0] if own and foreign else None
        real[name] = (own[0] if own else None, mixin)
    assert drawn() == real


def test_the_tree_has_one_root() -> None:
    assert [name for name, (parent, _) in drawn().items() if parent is None] == ["TorilError"]
    assert issubclass(TorilError, Exception)


def test_every_error_is_reachable_from_the_package() -> None:
    for name, kind in DECLARED.items():
        assert getattr(toril, name) is kind
        assert name in toril.__all__


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InvalidInput", ValueError),
        ("InvalidName", ValueError),
        ("InvalidOption", ValueError),
        ("InvalidPayload", ValueError),
        ("SerdeError", ValueError),
        ("MissingExtra", ImportError),
        ("JobNotFound", LookupError),
        ("JobTimeout", TimeoutError),
        ("WaitTimeout", TimeoutError),
        ("StorageUnavailable", ConnectionError),
        ("EventsTrimmed", LookupError),
        ("TorilWarning", UserWarning),
    ],
)
def test_an_error_can_be_caught_as_the_builtin_it_is(
    name: str, builtin: type[BaseException]
) -> None:
    assert issubclass(DECLARED[name], builtin)


@pytest.mark.parametrize("kind", DECLARED.values(), ids=DECLARED)
def test_every_error_says_what_it_means(kind: type) -> None:
    assert kind.__doc__
    assert kind.__doc__.endswith(".")


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_an_error_shows_its_message_and_nothing_else(error: TorilError) -> None:
    assert [str(error)] == list(error.args)


def test_errors_of_a_job_know_the_job() -> None:
    kinds = {kind for kind in DECLARED.values() if issubclass(kind, JobError)}
    about_jobs = [error for error in MADE if isinstance(error, JobError)]
    assert {type(error) for error in about_jobs} == kinds
    assert {error.job_id for error in about_jobs} == {"a"}


def test_a_failed_job_knows_the_original_error() -> None:
    error = JobFailed("failed", job_id="a", original_error=FAILURE)
    assert error.original_error == FAILURE


def test_an_exhausted_job_brings_its_payload_for_a_dead_letter_queue() -> None:
    error = RetriesExhausted("x", job_id="a", original_error=FAILURE, payload={"b": 1}, attempts=3)
    assert (error.payload, error.attempts, error.original_error) == ({"b": 1}, 3, FAILURE)


def test_a_bad_payload_knows_the_path() -> None:
    assert InvalidPayload("bad", path="$.a[0]").path == "$.a[0]"
    assert InvalidPayload("bad").path == ""


def test_trimmed_events_know_how_many_and_where_to_read_on() -> None:
    error = EventsTrimmed("gone", count=7, resume=Cursor(8))
    assert (error.count, error.resume) == (7, Cursor(8))


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_an_error_survives_a_copy_as_process_pools_make_it(
    error: TorilError, make: Callable[[TorilError], TorilError]
) -> None:
    twin = make(error)
    assert type(twin) is type(error)
    assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))
