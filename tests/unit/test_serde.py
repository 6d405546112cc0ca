"""Values survive the way to bytes and back; everything else is refused with its place."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import subprocess
import sys
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Iterator

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toril import serde as serde_module
from toril.errors import InvalidPayload, MissingExtra, SerdeError
from toril.msgpack_serde import MsgpackSerde
from toril.serde import MAX_BYTES, JsonSerde, Serde, check_size, dumps_all

SAFE = 2**53 - 1
SECRET = "hunter2"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)
msgpack_values = st.recursive(
    scalars | st.binary(max_size=8) | st.integers(-(2**63), 2**64 - 1),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(-5, 5), inner, max_size=4)
    ),
    max_leaves=30,
)


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


@pytest.fixture(autouse=True, scope="module", params=["orjson", "plain"])
def _encoder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything here holds with the extra `fast` and without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(serde_module, "orjson", None)
        else:
            pytest.importorskip("orjson")
        yield


def nested(depth: int) -> object:
    value: object = 1
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def refusal(serde: Serde[object], value: object) -> InvalidPayload:
    with pytest.raises(InvalidPayload) as caught:
        serde.dumps(value)
    str(caught.value).encode()
    return caught.value


def test_both_serdes_name_their_format() -> None:
    serdes: list[Serde[object]] = [JsonSerde(), MsgpackSerde()]
    assert [serde.format for serde in serdes] == ["json", "msgpack"]


@given(json_values)
def test_json_values_come_back_equal(value: object) -> None:
    serde = JsonSerde()
    payload = serde.dumps(value)
    assert serde.loads(payload) == value
    assert json.loads(payload) == value


def test_json_is_compact_utf_8() -> None:
    assert JsonSerde().dumps({"größe": [1, None, True]}) == '{"größe":[1,null,true]}'.encode()


def test_json_accepts_tuples_enums_and_subclasses_as_what_they_are() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    Point = namedtuple("Point", "x y")
    value = {Colour.RED: (Level.HIGH, Point(1, 2)), "o": OrderedDict(a=Colour.RED)}
    assert JsonSerde().dumps(value) == b'{"red":[3,[1,2]],"o":{"a":"red"}}'


@dataclasses.dataclass
class Order:
    number: int


class Shade(enum.Enum):
    DARK = object()


@pytest.mark.parametrize(
    ("value", "path", "fact"),
    [
        (float("nan"), "$", "nan is not JSON"),
        ({"a": [1, float("inf")]}, "$.a[1]", "inf is not JSON"),
        ({"user": {"tags": ["a", "b", "c", b"x"]}}, "$.user.tags[3]", "bytes is not JSON"),
        ([SAFE + 1], "$[0]", "54 bits"),
        ([-SAFE - 1], "$[0]", "54 bits"),
        ([10**5_000], "$[0]", "16610 bits"),
        ({"a": {1: 2}}, "$.a", "key 1: int cannot be a key"),
        ({"a": {None: 2}}, "$.a", "key None: NoneType cannot be a key"),
        (["ok", "\ud800"], "$[1]", "lone surrogate at index 0"),
        ({"x\udfff": 1}, "$", r"key x\udfff: lone surrogate at index 1"),
        ({"a b": {1}}, "$['a b']", "set is not JSON; pass a list"),
        ({"o": Order(1)}, "$.o", "dataclasses.asdict()"),
        ({"o": Shade.DARK}, "$.o", "pass .value"),
        ({"o": decimal.Decimal(1)}, "$.o", "decimal.Decimal is not JSON; pass str() of it"),
        ({"o": object()}, "$.o", "object is not JSON; pass a dict"),
        ((1, [2, (3, {"z": bytearray()})]), "$[1][1][1].z", "bytearray"),
    ],
)
def test_json_refuses_with_the_path_to_the_culprit(value: object, path: str, fact: str) -> None:
    error = refusal(JsonSerde(), value)
    assert error.path == path
    assert fact in str(error)


def test_the_refusal_of_a_datetime_tells_the_way_out() -> None:
    moment = datetime.datetime.now(datetime.UTC)
    assert str(refusal(JsonSerde(), {"user": {"created_at": moment}})) == (
        "cannot encode $.user.created_at: datetime.datetime is not JSON;"
        " pass .isoformat(), or set serde="
    )


@pytest.mark.parametrize("value", [SAFE, -SAFE, 0, -1.5e300, 5e-324, True])
def test_json_carries_every_number_javascript_holds_exactly(value: object) -> None:
    assert JsonSerde().loads(JsonSerde().dumps(value)) == value


@pytest.mark.parametrize("serde", [JsonSerde(), MsgpackSerde()], ids=["json", "msgpack"])
def test_64_levels_pass_and_65_do_not(serde: Serde[object]) -> None:
    assert serde.loads(serde.dumps(nested(64))) == nested(64)
    assert "deeper than 64 levels" in str(refusal(serde, nested(65)))
    assert len(str(refusal(serde, nested(100_000)))) < 500


@pytest.mark.parametrize("serde", [JsonSerde(), MsgpackSerde()], ids=["json", "msgpack"])
def test_a_cycle_is_refused_quickly_even_if_it_branches(serde: Serde[object]) -> None:
    cycle: list[object] = []
    cycle.extend([cycle, cycle, {"again": cycle}])
    assert "deeper than 64 levels" in str(refusal(serde, cycle))


@pytest.mark.parametrize(
    "serde", [JsonSerde(max_bytes=10_000), MsgpackSerde(max_bytes=10_000)], ids=["json", "msgpack"]
)
def test_data_that_repeats_itself_without_end_is_refused(serde: Serde[object]) -> None:
    value: list[object] = []
    for _ in range(60):
        value = [value, value]
    assert "too many values" in str(refusal(serde, value))


def test_a_hostile_key_cannot_break_the_message() -> None:
    error = refusal(JsonSerde(), {"a\n\x1b[31m" + "x" * 1_000: {"k": b""}})
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize("spare", [40, 50, 60, 80, 120])
@pytest.mark.parametrize("action", ["dumps", "loads"])
def test_a_stack_that_is_nearly_full_gives_no_recursion_error(spare: int, action: str) -> None:
    serde = JsonSerde()
    value, payload = nested(64), serde.dumps(nested(64))

    def call_deep(levels: int) -> None:
        if levels:
            call_deep(levels - 1)
        elif action == "dumps":
            serde.dumps(value)
        else:
            serde.loads(payload)

    # Whether 64 levels fit differs between Python versions; that nothing else comes out does not.
    with contextlib.suppress(InvalidPayload, SerdeError):
        call_deep(sys.getrecursionlimit() - len(inspect.stack(0)) - spare)


@pytest.mark.parametrize(
    ("payload", "fact"),
    [
        (b"", "empty"),
        (b"NaN", "NaN or Infinity"),
        (b'{"a":-Infinity}', "NaN or Infinity"),
        (b"[1e999]", "range of a double"),
        (b'{"a":1,"a":2}', "same key twice"),
        (b'{"x":{"a":1,"\\u0061":2}}', "same key twice"),
        (b'"hunter2\xff"', "not UTF-8 at byte 8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"hunter2\\ud800"', "lone surrogate"),
        (b'{"\\uDC00":1}', "lone surrogate"),
        (b'{"a":1} hunter2', "not JSON: Extra data at character 8"),
        (b'"hunter2', "not JSON: Unterminated string starting at character 0"),
        (b"\xef\xbb\xbf1", "not JSON"),
        (b'"a\nhunter2"', "not JSON"),
        (b"9" * 5_000, "too many digits"),
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b"[" * 1_000_000, "deeper than 64"),
        (b'{"a":' * 100_000, "deeper than 64"),
        (b'"' + b'\\"' * 1_000_000 + b"[" * 100, "Unterminated"),
    ],
)
def test_bytes_that_are_not_sound_json_are_refused_without_quoting_them(
    payload: bytes, fact: str
) -> None:
    with pytest.raises(SerdeError, match=fact) as caught:
        JsonSerde().loads(payload)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(str(caught.value)) < 200


def test_brackets_inside_strings_are_not_depth() -> None:
    value = ["[" * 1_000, '\\"[[' * 100, {"{" * 100: "\\"}]
    assert JsonSerde().loads(JsonSerde().dumps(value)) == value


def test_many_shallow_containers_are_not_depth() -> None:
    value: list[object] = [[{}] for _ in range(1_000)]
    assert JsonSerde().loads(JsonSerde().dumps(value)) == value


def test_a_surrogate_pair_written_as_escapes_is_one_character() -> None:
    assert JsonSerde().loads(b'"\\ud83d\\udc4d \\\\ud800"') == "👍 \\ud800"


@pytest.mark.parametrize("serde", [JsonSerde, MsgpackSerde])
def test_payloads_over_the_limit_are_refused_before_parsing(
    serde: type[JsonSerde | MsgpackSerde],
) -> None:
    with pytest.raises(SerdeError, match="takes 11 bytes; the limit is 10"):
        serde(max_bytes=10).loads(b"x" * 11)
    with pytest.raises(SerdeError, match="10,485,761 bytes"):
        serde().loads(b" " * (MAX_BYTES + 1))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_raise_serde_error(payload: bytes) -> None:
    for serde in (JsonSerde(), MsgpackSerde()):
        with contextlib.suppress(SerdeError):
            serde.loads(payload)


@given(json_values, st.integers(0, 200), st.integers(0, 255))
def test_damaged_payloads_decode_or_raise_serde_error(value: object, at: int, byte: int) -> None:
    for serde in (JsonSerde(), MsgpackSerde()):
        payload = bytearray(serde.dumps(value))
        payload[at % len(payload)] = byte
        with contextlib.suppress(SerdeError):
            serde.loads(bytes(payload))


@given(msgpack_values)
def test_msgpack_values_come_back_equal(value: object) -> None:
    serde = MsgpackSerde()
    assert serde.loads(serde.dumps(value)) == value


@pytest.mark.parametrize(
    ("value", "path", "fact"),
    [
        ({"a": [datetime.timedelta(1)]}, "$.a[0]", "datetime.timedelta is not MessagePack"),
        ({"a": msgpack.ExtType(1, b"x")}, "$.a", "ExtType is not MessagePack"),
        ([msgpack.Timestamp(1)], "$[0]", "Timestamp is not MessagePack"),
        ([2**64], "$[0]", "beyond 64 bits"),
        ([-(2**63) - 1], "$[0]", "beyond 64 bits"),
        (["\ud800"], "$[0]", "lone surrogate"),
        ({"m": {(1, 2): 3}}, "$.m", "tuple is not MessagePack"),
    ],
)
def test_msgpack_refuses_with_the_path_to_the_culprit(value: object, path: str, fact: str) -> None:
    error = refusal(MsgpackSerde(), value)
    assert error.path == path
    assert fact in str(error)


@pytest.mark.parametrize(
    ("payload", "fact"),
    [
        (b"", "empty"),
        (b"\xc1", "not MessagePack"),
        (b"\x01\x02", "ExtraData"),
        (b"\x93\x01", "not MessagePack"),
        (b"\xa1\xff", "not UTF-8"),
        (b"\x82\x01\x02\x01\x03", "same key twice"),
        (b"\x81\x90\x01", "TypeError"),
        (msgpack.packb(msgpack.ExtType(5, b"hunter2")), "extension type"),
        (msgpack.packb([msgpack.Timestamp(1)]), "extension type"),
        (b"\xc7\x07\x05hunter2", "extension type"),
        (b"\x91" * 65 + b"\x01", "deeper than 64"),
        (b"\x91" * 1_000_000, "deeper than 64"),
        ((b"\xdd\x00\x9f\xff\xff" * 60).ljust(MAX_BYTES, b"\x00"), "cut off"),
        (b"\xdf\xff\xff\xff\xff" * 70, "cut off"),
        (b"\xdc\x00\x50" + b"\x90" * 70, "cut off"),
    ],
)
def test_bytes_that_are_not_sound_msgpack_are_refused_without_quoting_them(
    payload: bytes, fact: str
) -> None:
    with pytest.raises(SerdeError, match=fact) as caught:
        MsgpackSerde().loads(payload)
    assert SECRET not in str(caught.value)


@given(st.lists(msgpack_values, min_size=65, max_size=70))
@settings(max_examples=10, deadline=None)
def test_the_scan_before_parsing_refuses_no_sound_list(values: list[object]) -> None:
    serde = MsgpackSerde()
    wide: list[object] = [[value] for value in values]
    assert serde.loads(serde.dumps(wide)) == wide


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
def test_the_scan_before_parsing_knows_every_header(size: int) -> None:
    serde = MsgpackSerde()
    value: list[object] = [[number] for number in range(70)]
    value += ["x" * size, b"x" * size, list(range(size)), {str(n): n for n in range(size)}]
    value += [size, -size, 2**40, -(2**40), 2**64 - 1, 1.5, None, True, False]
    assert serde.loads(serde.dumps(value)) == value
    assert serde.loads(msgpack.packb([value, 1.5], use_single_float=True)) == [value, 1.5]


def test_a_missing_msgpack_is_reported_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(MissingExtra, match="fix: python -m pip install msgpack"):
        MsgpackSerde()


def test_importing_the_module_does_not_import_msgpack() -> None:
    code = "import sys, toril.msgpack_serde; sys.exit('msgpack' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_size_over_the_limit_is_refused_with_the_numbers() -> None:
    check_size("data and options of job 'x'", MAX_BYTES, MAX_BYTES)
    with pytest.raises(InvalidPayload) as caught:
        check_size("data and options of job 'x'", MAX_BYTES + 1, MAX_BYTES)
    assert str(caught.value) == (
        "data and options of job 'x' take 10,485,761 bytes; the limit is 10,485,760"
        " (size_limit=): store it elsewhere and pass a reference"
    )


def one_by_one(serde: Serde[object], values: list[object]) -> list[bytes] | str:
    try:
        return [serde.dumps(value) for value in values]
    except InvalidPayload as error:
        return str(error)


def all_at_once(serde: Serde[object], values: list[object]) -> list[bytes] | str:
    try:
        return dumps_all(serde, values)
    except InvalidPayload as error:
        return str(error)


odd_values = st.sampled_from(
    [
        *(float("nan"), float("inf"), 1e308, SAFE + 1, -SAFE - 1, "\ud800", {1: 2}, {"\ud800": 1}),
        *(
            uuid.UUID(int=1),
            Level.LOW,
            datetime.date(2026, 1, 1),
            b"x",
            {1},
            nested(64),
            nested(65),
        ),
        *((1, [2.5]), Name("n"), {Name("n"): Name("n")}, [[]], {}, json.loads("[[1e5,null]]")),
    ]
)


@given(st.lists(json_values | odd_values | st.lists(json_values | odd_values), max_size=8))
@settings(max_examples=300)
def test_many_values_are_encoded_and_refused_as_one_by_one(values: list[object]) -> None:
    for serde in (JsonSerde(), JsonSerde(max_bytes=40), MsgpackSerde()):
        assert all_at_once(serde, values) == one_by_one(serde, values)


def test_a_serde_of_ones_own_is_asked_for_each_of_many_values() -> None:
    class Shouting(JsonSerde[str]):
        def dumps(self, value: str) -> bytes:
            return super().dumps(value.upper())

    assert dumps_all(Shouting(), ["a", "b"]) == [b'"A"', b'"B"']


def test_many_values_that_repeat_themselves_without_end_are_refused_in_time() -> None:
    value: object = [1]
    for _ in range(40):
        value = [value] * 10
    with pytest.raises(InvalidPayload, match="too many values"):
        dumps_all(JsonSerde(max_bytes=10_000), [1, value])
