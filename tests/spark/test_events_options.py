"""Options and offsets of `toril_events`: checked before Spark or a server is asked."""

from __future__ import annotations

import pytest

from toril.errors import InvalidInput, InvalidOption
from toril.event import Cursor
from toril.spark.events_offsets import Mark, Place, read_marks, write_marks
from toril.spark.events_options import EventsOptions
from toril.spark.events_plan import is_reset, shares

URL = "redis://localhost"


def read(**given: str) -> EventsOptions:
    return EventsOptions.read({"url": URL, **given})


def place(n: int) -> Place:
    return Place(Cursor(n), n)


def test_defaults_are_those_of_the_documentation() -> None:
    options = read(queue="emails")
    assert (options.queues, options.pattern) == (("emails",), None)
    assert (options.starting, options.ending) == ("earliest", "latest")
    assert (options.fetch_size, options.partitions, options.max_rows) == (2000, None, None)
    assert options.fail_on_loss


def test_several_queues_are_a_list_or_a_pattern() -> None:
    assert read(queues="a, b").queues == ("a", "b")
    assert read(queuePattern="mail-*").pattern == "mail-*"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no queue; give one of 'queue', 'queues' or 'queuePattern'"),
        ({"queue": "a", "queues": "b"}, "queue and queues exclude each other"),
        ({"queues": "a,a"}, "names a queue twice"),
        ({"queues": "a,,b"}, "has an empty name between its commas"),
        ({"queue": "a:b"}, "a:b"),
        ({"queue": "a", "fetchSize": "0"}, "from 1 to 10,000"),
        ({"queue": "a", "fetchSize": "10001"}, "from 1 to 10,000"),
        ({"queue": "a", "partitions": "none"}, "must be a whole number"),
        ({"queue": "a", "failOnDataLoss": "no"}, "must be true or false"),
        ({"queue": "a", "maxRowsPerTriger": "5"}, "Did you mean 'maxRowsPerTrigger'?"),
        ({"queue": "a", "startingOffsets": "first"}, "must be earliest, latest or JSON"),
        ({"queue": "a", "startingOffsets": '{"b": "latest"}'}, "names 'b', which is not read"),
        ({"queue": "a", "startingOffsets": '{"a": 5}'}, 'an offset is {"id"'),
        ({"queue": "a", "startingOffsets": '{"a": {"id": "5", "n": 5}}'}, "of the form '1-2-3'"),
        ({"queue": "a", "startingOffsets": '{"a": {"id": "5-0-0", "n": -1}}'}, "a whole number"),
    ],
)
def test_what_does_not_make_sense_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(**given)
    assert message in str(caught.value)


def test_what_only_streams_or_only_batches_obey_is_refused_by_the_other() -> None:
    with pytest.raises(InvalidOption, match="'maxRowsPerTrigger' is for streams"):
        read(queue="a", maxRowsPerTrigger="5").check_batch()
    with pytest.raises(InvalidOption, match="'startingOffsets' = 'latest'"):
        read(queue="a", startingOffsets="latest").check_batch()
    with pytest.raises(InvalidOption, match="'endingOffsets' is for batch reads"):
        read(queue="a", endingOffsets='{"a": "latest"}').check_stream()


def test_offsets_come_back_from_their_text() -> None:
    marks = {
        "a": Mark(place=Place(Cursor(1794801800310, 43, 10), 10)),
        "b": Mark(place=place(9), start=place(5), at_ms=1, lost=3),
        "c": Mark(place=place(9), start=place(5), at_ms=1, lost=None),
        "d": Mark(place=place(2), initial=True),
    }
    text = write_marks(marks)
    assert read_marks(text) == marks
    assert text["a"] == {"id": "1794801800310-43-10", "n": 10}


@pytest.mark.parametrize(
    ("here", "first", "last", "reset"),
    [
        (0, 0, 0, False),
        (5, 0, 10, False),
        (5, 8, 10, False),  # trimmed
        (10, 10, 10, False),  # all read, then trimmed
        (11, 0, 10, True),  # fewer than were read
        (3, 0, 0, True),
    ],
)
def test_a_stream_that_began_anew_is_known_by_its_numbers(
    here: int, first: int, last: int, reset: bool
) -> None:
    assert is_reset(place(here), place(first), place(last)) is reset


def test_a_stream_that_began_anew_is_known_by_its_times() -> None:
    here = Place(Cursor(1000, 0, 5), 5)
    first, last = Place(Cursor(1999, 7, 0), 0), Place(Cursor(2000, 9, 50), 50)
    assert is_reset(here, first, last)
    assert not is_reset(here, Place(Cursor(999, 7, 2), 2), last)


def test_a_limit_is_divided_by_what_there_is() -> None:
    assert shares({"a": 5, "b": 5}, 100) == {"a": 5, "b": 5}
    assert shares({"a": 900, "b": 100}, 100) == {"a": 90, "b": 10}
    assert shares({"a": 1_000_000, "b": 1, "c": 0}, 100) == {"a": 99, "b": 1, "c": 0}
    assert sum(shares({str(one): one for one in range(40)}, 7).values()) == 7


def test_a_function_is_given_also_where_a_module_has_its_name() -> None:
    import toril.spark.analytics.bronze
    import toril.spark.register

    for _ in range(2):
        from toril.spark import register
        from toril.spark.analytics import bronze

        assert register is toril.spark.register
        assert callable(register)
        assert callable(bronze)
