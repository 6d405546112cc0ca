"""A URL names a storage; what it does not name is refused without giving secrets away."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from toril import Queue, Reaper
from toril.errors import InvalidName, InvalidOption
from toril.storage import ENTRY_POINTS, open_storage
from toril.storage.memory import MemoryStorage


def test_memory_is_private_to_whoever_opens_it() -> None:
    one, other = open_storage("memory:"), open_storage("memory:")
    assert isinstance(one, MemoryStorage)
    assert one is not other


def test_a_named_memory_is_shared_by_all_who_name_it() -> None:
    one, same, other = (open_storage(f"memory:{name}") for name in ("a", "a", "b"))
    assert one is same
    assert one is not other


def test_a_named_memory_lives_as_long_as_somebody_holds_it() -> None:
    held = open_storage("memory:fleeting")
    watched = weakref.ref(held)
    gc.collect()
    assert watched() is open_storage("memory:fleeting")
    del held
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("name", ["a:b", "{x}", "a\nb", "..", "x" * 256])
def test_a_memory_with_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        open_storage(f"memory:{name}")


@pytest.mark.parametrize("url", ["memory:?durability=local", "memory:a?prefix=x"])
def test_memory_takes_no_parameters(url: str) -> None:
    with pytest.raises(InvalidOption, match=r"memory takes no parameters"):
        open_storage(url)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("memroy:", "Did you mean 'memory'?"),
        ("MEMORY:x", "Did you mean 'memory'?"),
        ("carrier-pigeon://loft", "Known: memory"),
    ],
)
def test_an_unknown_scheme_is_refused_with_a_suggestion(url: str, hint: str) -> None:
    scheme = url.partition(":")[0]
    with pytest.raises(InvalidOption, match=rf"unknown scheme '{scheme}'") as caught:
        open_storage(url)
    assert hint in str(caught.value)
    assert "Known: memory" in str(caught.value)


@pytest.mark.parametrize("text", ["", "memory", ":", ":x", "//host", "C\\jobs", "two words:x"])
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"is not a URL; try 'memory:'"):
        open_storage(text)


@pytest.mark.parametrize(
    "url",
    [
        "nosuch://user:hunter2@host/0",
        "nosuch://:hunter2@host",
        "nosuch://u:p@hunter2@host",
        "nosuch://host?password=hunter2",
        "nosuch+tls://hunter2@host:6379",
        "hunter2@host",
        "hunter2@host:6379",
        "user:hunter2@host:6379",
        ":hunter2@host",
        "memory:?password=hunter2",
        b"nosuch://user:hunter2@host",
        ["nosuch://user:hunter2@host"],
    ],
)
def test_no_message_shows_a_password(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        open_storage(url)
    assert "hunter2" not in f"{caught.value} {caught.value!r}"


def test_a_message_shows_only_safe_text() -> None:
    with pytest.raises(InvalidOption) as caught:
        open_storage("nosuch:\x1b[2J\n" + "x" * 1000)
    assert not {"\x1b", "\n"} & set(str(caught.value))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("value", "kind"), [(None, "NoneType"), (5, "int"), (b"memory:", "bytes"), (Path("x"), "Path")]
)
def test_what_is_no_text_is_refused_by_its_type(value: object, kind: str) -> None:
    with pytest.raises(InvalidOption, match=rf"^storage of type \S*{kind}: give a URL such as"):
        open_storage(value)  # type: ignore[arg-type]


def test_queues_and_reapers_refuse_a_bad_url_at_once() -> None:
    for make in (lambda url: Queue("q", url), Reaper):
        with pytest.raises(InvalidOption, match=r"unknown scheme 'nosuch'"):
            make("nosuch:")


MODULE = """
from toril.storage.memory import MemoryStorage

opened = []


def open_it(url):
    opened.append(url)
    return MemoryStorage(name="theirs")
"""


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install a package that registers the scheme `acmedb`."""
    info = tmp_path / "toril_acmedb-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toril-acmedb\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{ENTRY_POINTS}]\nacmedb = toril_acmedb_for_test:open_it\n"
        "memory = toril_acmedb_for_test:open_it\n"
        "broken = toril_no_such_module:open_it\n"
    )
    (tmp_path / "toril_acmedb_for_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "toril_acmedb_for_test"
    sys.modules.pop("toril_acmedb_for_test", None)


def test_a_third_party_opens_the_urls_of_its_scheme(third_party: str) -> None:
    storage = open_storage("acmedb://user:pw@host/jobs?x=1")
    assert isinstance(storage, MemoryStorage)
    assert sys.modules[third_party].opened == ["acmedb://user:pw@host/jobs?x=1"]


@pytest.mark.usefixtures("third_party")
def test_a_third_partys_scheme_is_suggested() -> None:
    with pytest.raises(InvalidOption, match=r"Did you mean 'acmedb'\?") as caught:
        open_storage("acme-db://host")
    known = str(caught.value).partition("Known: ")[2].split(", ")
    assert known[0] == "memory"
    assert {"acmedb", "broken"} <= set(known)


def test_a_third_party_is_not_imported_before_its_scheme_is_asked_for(third_party: str) -> None:
    open_storage("memory:")
    assert third_party not in sys.modules


def test_a_third_party_cannot_take_over_a_scheme_of_ours(third_party: str) -> None:
    storage = open_storage("memory:ours")
    assert isinstance(storage, MemoryStorage)
    assert third_party not in sys.modules


@pytest.mark.usefixtures("third_party")
def test_a_third_party_that_cannot_be_imported_says_so() -> None:
    with pytest.raises(ModuleNotFoundError, match="toril_no_such_module"):
        open_storage("broken:")
