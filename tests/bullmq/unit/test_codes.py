"""The codes of the scripts as errors."""

from __future__ import annotations

import copy

import pytest

from toril.errors import StorageError
from toril.storage.bullmq.codes import (
    BullmqRefused,
    Code,
    FlowRefused,
    JobMissing,
    LockLost,
    SchedulerRefused,
    WrongState,
    refused,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-1, JobMissing),
        (-2, LockLost),
        (-3, WrongState),
        (-4, FlowRefused),
        (-5, FlowRefused),
        (-6, LockLost),
        (-7, FlowRefused),
        (-8, SchedulerRefused),
        (-9, FlowRefused),
        (-10, SchedulerRefused),
        (-11, SchedulerRefused),
        (-99, BullmqRefused),
    ],
)
def test_each_code_is_an_error_of_its_own(code: int, kind: type[BullmqRefused]) -> None:
    error = refused("aScript", "a", code)
    assert type(error) is kind
    assert isinstance(error, StorageError)
    assert error.code == code
    assert "job 'a'" in str(error)
    assert str(code) in str(error)
    again = copy.copy(error)
    assert (again.code, str(again)) == (code, str(error))


def test_every_known_code_has_words() -> None:
    assert all("script code" not in str(refused("s", "a", code)) for code in Code)
