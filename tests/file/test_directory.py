"""Directories and databases that are refused, and nothing in them touched; `reliability.md` D7."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toril.errors import InvalidOption, StorageDenied, StorageError, StorageFull
from toril.job import JobSpec
from toril.storage import open_bulk, open_storage
from toril.storage.file import FileStorage, schema
from toril.storage.file.schema import VERSION, upgrade


def contents(directory: Path) -> dict[str, tuple[int, bytes | None]]:
    """Everything that could have been touched."""
    return {
        str(path.relative_to(directory)): (
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
        for path in [directory, *directory.rglob("*")]
    }


async def make_store(directory: Path) -> None:
    storage = FileStorage(directory)
    await storage.open()
    await storage.enqueue("q", [JobSpec(id=f"job-{number}") for number in range(50)])
    await storage.close()


async def refusal(directory: Path) -> StorageError:
    """Open what must be refused without being touched; the bulk side refuses it too."""
    before = contents(directory)
    with pytest.raises(StorageError) as caught:
        await FileStorage(directory).open()
    bulk = open_bulk(f"file:{directory}")
    with pytest.raises(type(caught.value)):
        bulk.span("q")
    assert contents(directory) == before, "it was touched"
    return caught.value


def world_writable(store: Path) -> None:
    store.chmod(0o777)


def read_only(store: Path) -> None:
    store.chmod(0o500)


def read_only_database(store: Path) -> None:
    (store / "toril.db").chmod(0o400)


def readable_by_others(store: Path) -> None:
    (store / "toril.db").chmod(0o644)


def symbolic_link(store: Path) -> None:
    (store / "toril.db").rename(store.parent / "elsewhere.db")
    (store / "toril.db").symlink_to(store.parent / "elsewhere.db")


def hard_link(store: Path) -> None:
    os.link(store / "toril.db", store.parent / "second.db")


def foreign(store: Path) -> None:
    (store / "toril.db").unlink()
    with sqlite3.connect(store / "toril.db") as db:
        db.execute("CREATE TABLE recipes (title TEXT)")
        db.execute("PRAGMA application_id = 4711")
    db.close()
    (store / "toril.db").chmod(0o600)


def newer(store: Path) -> None:
    with sqlite3.connect(store / "toril.db") as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()


def no_database(store: Path) -> None:
    (store / "toril.db").write_bytes(b"To whom it may concern: this is no database." * 100)


def no_tables(store: Path) -> None:
    with sqlite3.connect(store / "toril.db") as db:
        db.execute("DROP TABLE holds")
    db.close()


def cut_short(store: Path) -> None:
    os.truncate(store / "toril.db", (store / "toril.db").stat().st_size // 2)


def scrambled(store: Path) -> None:
    with (store / "toril.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (world_writable, StorageDenied, "everybody may write"),
        (read_only, StorageDenied, "is read-only"),
        (read_only_database, StorageDenied, "is read-only"),
        (readable_by_others, StorageDenied, "chmod 600"),
        (symbolic_link, StorageDenied, "is a link"),
        (hard_link, StorageDenied, "is a link"),
        (foreign, StorageError, "database of another program"),
        (newer, StorageError, "upgrade toril"),
        (no_database, StorageError, "is broken"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_d7_an_unfit_store_is_refused_with_a_reason_and_untouched(
    spoil: Callable[[Path], None], kind: type[StorageError], words: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    await make_store(store)
    spoil(store)
    error = await refusal(store)
    assert isinstance(error, kind)
    assert words in str(error)
    assert str(store) in str(error)


@pytest.mark.parametrize("spoil", [cut_short, scrambled, no_tables])
async def test_d7_a_broken_database_is_refused_and_its_bytes_are_left(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    await make_store(store)
    spoil(store)
    bytes_before = (store / "toril.db").read_bytes()
    with pytest.raises(StorageError, match="is broken"):
        await FileStorage(store).open()
    assert (store / "toril.db").read_bytes() == bytes_before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_d7_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    await make_store(store)
    os.chown(store, 65534, -1)
    error = await refusal(store)
    assert isinstance(error, StorageDenied)
    assert "belongs to user 65534" in str(error)


async def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("mine")
    with pytest.raises(StorageError, match="is not a directory"):
        await FileStorage(tmp_path / "store").open()
    assert (tmp_path / "store").read_text() == "mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
async def test_a_new_store_on_a_full_disk_is_refused_and_leaves_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A database of one page has no room for the tables: what a full disk looks like.
    monkeypatch.setattr(schema, "SCHEMA", ("PRAGMA max_page_count = 1", *schema.SCHEMA))
    with pytest.raises(StorageFull, match="the disk is full"):
        await FileStorage(tmp_path / "store").open()
    assert not (tmp_path / "store" / "toril.db").exists()
    monkeypatch.undo()
    await make_store(tmp_path / "store")


async def test_directory_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = tmp_path / "deep" / "store"
    storage = FileStorage(store)
    await storage.open()
    await storage.enqueue("q", [JobSpec(id="a")])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [store, *store.rglob("*")]}
    await storage.close()
    assert {mode for name, mode in modes.items() if name in ("store", "notify")} == {0o700}
    assert {mode for name, mode in modes.items() if name not in ("store", "notify")} == {0o600}
    assert {"toril.db", "toril.db-wal", "toril.db-shm", "lock"} <= set(modes)


async def test_older_tables_are_led_up_step_by_step(tmp_path: Path) -> None:
    await make_store(tmp_path / "store")
    with sqlite3.connect(tmp_path / "store" / "toril.db", isolation_level=None) as db:
        steps = {
            VERSION: ["ALTER TABLE jobs ADD COLUMN colour TEXT"],
            VERSION + 1: ["UPDATE jobs SET colour = 'red'", "CREATE TABLE more (x) STRICT"],
        }
        with pytest.raises(sqlite3.OperationalError):  # a column needs a type in a strict table
            upgrade(db, steps, VERSION + 2)
        assert schema.version_of(db) == VERSION, "half of the way was kept"
        steps[VERSION + 1][1] = "CREATE TABLE more (x INTEGER) STRICT"
        upgrade(db, steps, VERSION + 2)
        upgrade(db, steps, VERSION + 2)
        assert schema.version_of(db) == VERSION + 2
        assert db.execute("SELECT DISTINCT colour FROM jobs").fetchall() == [("red",)]
        with pytest.raises(StorageError, match=rf"version {VERSION + 2} .* to {VERSION + 3}"):
            upgrade(db, steps, VERSION + 3)
    db.close()


async def test_a_store_of_an_older_version_is_opened_and_led_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    await make_store(store)
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)
    way = {VERSION: ["CREATE TABLE later (x INTEGER) STRICT"]}
    monkeypatch.setattr(upgrade, "__defaults__", (way, VERSION + 1))
    storage = FileStorage(store)
    await storage.open()
    assert (await storage.counts("q")).waiting == 50
    await storage.close()
    with sqlite3.connect(store / "toril.db") as db:
        assert schema.version_of(db) == VERSION + 1
    db.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:", "write file:path"),
        ("file:?durability=local", "write file:path"),
        ("file://host/path", "on this machine"),
        ("file:x?durability=replicated:1", "not one of local, memory"),
        ("file:x?durabilty=local", "Did you mean 'durability'?"),
        ("file:x?timeout=soon", "is not a number"),
        ("file:x?timeout=0", "above 0"),
        ("file:x?timeout=1&timeout=2", "given twice"),
    ],
)
def test_a_bad_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        open_storage(url)
    assert words in str(caught.value)


def test_a_url_and_a_directory_name_the_same_storage(tmp_path: Path) -> None:
    plain = FileStorage(tmp_path / "a b")
    assert open_storage(plain.url).url == plain.url
    assert open_storage(f"file://{tmp_path}/a%20b").url == plain.url
    eager = FileStorage(tmp_path, durability="memory", timeout=2)
    assert eager.url == f"file:{tmp_path}?durability=memory&timeout=2"
    assert open_storage(eager.url).url == eager.url


@pytest.mark.parametrize("directory", ["", 7, None, "a\0b"])
def test_what_is_no_path_is_refused(directory: str) -> None:
    with pytest.raises(InvalidOption):
        FileStorage(directory)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes, where the system lets us have one."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(where)]
    may = shutil.which("mount") is not None and os.geteuid() == 0
    if not may or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a small disk")
    yield where
    subprocess.run(["umount", where], check=True)


async def test_a_disk_that_fills_up_refuses_new_jobs_keeps_the_old_and_recovers(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    storage = FileStorage(small_disk / "store")
    await storage.open()
    kept = 0

    async def fill() -> None:
        nonlocal kept
        while kept < 10_000:
            await storage.enqueue("q", [JobSpec(id=f"job-{kept}", payload=b"x" * 10_000)])
            kept += 1

    with pytest.raises(StorageFull, match="nothing was written"):
        await fill()
    assert (await storage.counts("q")).waiting == kept > 10
    ballast.unlink()
    await storage.enqueue("q", [JobSpec(id="after")])
    assert (await storage.counts("q")).waiting == kept + 1
    await storage.close()
