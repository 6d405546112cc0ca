"""Which errors are worth another try."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable
from http import HTTPStatus
from types import SimpleNamespace

import pytest

from toril.errors import (
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    JobTimeout,
    PermanentError,
    SerdeError,
    StorageUnavailable,
    TransientError,
)
from toril.retry import ErrorCategory, Reject, categorize_error

TRANSIENT, PERMANENT = ErrorCategory.TRANSIENT, ErrorCategory.PERMANENT


class WithStatusCode(Exception):
    def __init__(self, code: object) -> None:
        self.status_code = code


class WithResponse(Exception):
    def __init__(self, code: object) -> None:
        self.response = SimpleNamespace(status_code=code)


class LikeAiohttp(Exception):
    def __init__(self, code: object) -> None:
        self.status = code


class LikeAiohttpInside(Exception):
    def __init__(self, code: object) -> None:
        self.response = SimpleNamespace(status=code)


class HostileAttributes(Exception):
    @property
    def status_code(self) -> int:
        raise RuntimeError("no request was sent")

    @property
    def response(self) -> object:
        raise RuntimeError("no request was sent")


HTTP = (WithStatusCode, WithResponse, LikeAiohttp, LikeAiohttpInside)
PASSING_CODES = (500, 502, 503, 504, 599, 408, 425, 429, HTTPStatus.SERVICE_UNAVAILABLE)
LASTING_CODES = (400, 401, 403, 404, 409, 410, 422, 451, HTTPStatus.NOT_FOUND)
NO_CODES = (200, 204, 302, 399, 600, 0, -500, True, "503", 503.0, None)

PASSING = [
    TransientError("later"),
    ConnectionError(),
    ConnectionRefusedError(),
    BrokenPipeError(),
    TimeoutError(),
    socket.gaierror(socket.EAI_NONAME, "no such host"),
    OSError(errno.EHOSTUNREACH, "no route"),
    OSError(errno.ENETUNREACH, "no network"),
    OSError(errno.EMFILE, "too many files"),
    OSError(errno.ENOSPC, "disk full"),
    MemoryError(),
    asyncio.CancelledError(),
    StorageUnavailable("gone"),
    JobTimeout("too slow", job_id="a"),
]
LASTING = [
    PermanentError("never"),
    Reject("never"),
    SerdeError("not JSON"),
    InvalidInput("wrong"),
    InvalidName("wrong"),
    InvalidOption("wrong"),
    InvalidPayload("wrong"),
]
UNKNOWN = [
    ValueError("x"),
    KeyError("x"),
    Exception(),
    KeyboardInterrupt(),
    OSError(errno.ENOENT, "no file"),
    OSError(errno.EACCES, "not allowed"),
    OSError("without a number"),
    HostileAttributes(),
]


def cases(codes: Iterable[object]) -> list[tuple[type[Exception], object]]:
    return [(kind, code) for kind in HTTP for code in codes]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_trouble_that_passes_is_transient_under_any_setting(error: BaseException) -> None:
    assert categorize_error(error) is TRANSIENT
    assert categorize_error(error, unknown=PERMANENT) is TRANSIENT


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_trouble_that_stays_is_permanent_under_any_setting(error: BaseException) -> None:
    assert categorize_error(error) is PERMANENT
    assert categorize_error(error, unknown=TRANSIENT) is PERMANENT


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
def test_unknown_trouble_is_what_the_setting_says_and_transient_by_default(
    error: BaseException,
) -> None:
    assert categorize_error(error) is TRANSIENT
    assert categorize_error(error, unknown=TRANSIENT) is TRANSIENT
    assert categorize_error(error, unknown=PERMANENT) is PERMANENT


@pytest.mark.parametrize(("kind", "code"), cases(PASSING_CODES))
def test_http_answers_that_may_change_are_transient(kind: type[Exception], code: int) -> None:
    assert categorize_error(kind(code), unknown=PERMANENT) is TRANSIENT


@pytest.mark.parametrize(("kind", "code"), cases(LASTING_CODES))
def test_http_answers_that_stay_are_permanent(kind: type[Exception], code: int) -> None:
    assert categorize_error(kind(code), unknown=TRANSIENT) is PERMANENT


@pytest.mark.parametrize(("kind", "code"), cases(NO_CODES))
def test_what_is_no_http_error_code_says_nothing(kind: type[Exception], code: object) -> None:
    assert categorize_error(kind(code), unknown=PERMANENT) is PERMANENT
    assert categorize_error(kind(code), unknown=TRANSIENT) is TRANSIENT


def test_an_http_code_beats_the_type_of_the_error() -> None:
    error = ConnectionError("closed after the answer")
    error.status_code = 404  # type: ignore[attr-defined]
    assert categorize_error(error) is PERMANENT


def test_the_users_own_word_beats_an_http_code() -> None:
    class NotDeployedYet(TransientError):
        status_code = 404

    assert categorize_error(NotDeployedYet(), unknown=PERMANENT) is TRANSIENT


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", errors)


GROUPS: list[tuple[BaseException, ErrorCategory | None]] = [
    (group(TimeoutError(), ConnectionError()), TRANSIENT),
    (group(TimeoutError(), PermanentError()), PERMANENT),
    (group(TimeoutError(), ValueError()), None),
    (group(ValueError(), KeyError()), None),
    (group(group(TimeoutError()), TransientError()), TRANSIENT),
    (group(group(ValueError(), group(SerdeError())), TransientError()), PERMANENT),
    (BaseExceptionGroup("several", [asyncio.CancelledError(), TimeoutError()]), TRANSIENT),
]


@pytest.mark.parametrize(("error", "category"), GROUPS, ids=[repr(error) for error, _ in GROUPS])
def test_a_group_is_as_bad_as_its_worst_member(
    error: BaseException, category: ErrorCategory | None
) -> None:
    for unknown in ErrorCategory:
        assert categorize_error(error, unknown=unknown) is (category or unknown)


def test_a_wrapped_network_error_is_known_by_its_cause() -> None:
    error = ValueError("client error")
    error.__cause__ = ConnectionResetError()
    assert categorize_error(error, unknown=ErrorCategory.PERMANENT) is ErrorCategory.TRANSIENT
    loop = ValueError("its own cause")
    loop.__cause__ = loop
    assert categorize_error(loop, unknown=ErrorCategory.PERMANENT) is ErrorCategory.PERMANENT
