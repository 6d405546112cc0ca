"""Check where the embedded server lives: the search for its directory, and who may use it."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from toril.errors import StorageError
from toril.resp.home import Home, default_home, open_home, place_socket


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep the system's temporary directory clean; a short path, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="toril-test-") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_toril_home_wins(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    chosen = tmp_path / "elsewhere"
    assert default_home(tmp_path, {"TORIL_HOME": str(chosen)}) == chosen


def test_a_relative_toril_home_is_seen_from_the_start(tmp_path: Path) -> None:
    assert default_home(tmp_path, {"TORIL_HOME": "jobs"}) == tmp_path.resolve() / "jobs"


@pytest.mark.parametrize("mark", [".toril", ".git"])
def test_the_nearest_ancestor_with_a_directory_mark_is_the_project(
    tmp_path: Path, mark: str
) -> None:
    (tmp_path / "pyproject.toml").touch()
    project = tmp_path / "inner"
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    (project / mark).mkdir()
    assert default_home(deep, {}) == project.resolve() / ".toril"


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git"])
def test_the_nearest_ancestor_with_a_file_mark_is_the_project(tmp_path: Path, mark: str) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / mark).touch()
    assert default_home(deep, {}) == tmp_path.resolve() / ".toril"


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has its own place")
def test_outside_a_project_the_user_data_directory_is_used() -> None:
    root = Path("/")
    assert default_home(root, {"XDG_DATA_HOME": "/x/data"}) == Path("/x/data/toril")
    assert default_home(root, {"HOME": "/x"}) == Path("/x/.local/share/toril")
    relative = {"HOME": "/x", "XDG_DATA_HOME": "data"}
    assert default_home(root, relative) == Path("/x/.local/share/toril")


def test_directories_are_private_and_git_ignores_them(tmp_path: Path) -> None:
    home = open_home(tmp_path / "new" / ".toril")
    home.prepare()
    assert mode(home.root) == mode(home.data) == 0o700
    assert (home.root / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_a_directory_with_other_files_is_not_hidden_from_git(tmp_path: Path) -> None:
    (tmp_path / "code.py").touch()
    home = open_home(tmp_path)
    home.prepare()
    assert not (tmp_path / ".gitignore").exists()


def test_a_directory_everybody_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(StorageError, match=r"writable by everybody \(mode 777\); fix: chmod 700"):
        open_home(tmp_path).prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(StorageError, match=r"belongs to user 12345.*fix: .*TORIL_HOME"):
        open_home(tmp_path).prepare()


def test_a_home_below_a_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"Not a directory; fix: set TORIL_HOME"):
        open_home(tmp_path / "file" / "home").prepare()


def test_the_socket_is_in_the_runtime_directory() -> None:
    with tempfile.TemporaryDirectory() as runtime:
        socket = place_socket(Home(Path("/x")), {"XDG_RUNTIME_DIR": runtime})
        assert socket.parent == Path(runtime) / "toril"
        assert mode(socket.parent) == 0o700


def test_a_runtime_directory_others_can_enter_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    socket = place_socket(Home(Path("/x")), {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert tmp_path not in socket.parents
    assert mode(socket.parent) == 0o700


def test_long_homes_and_long_runtime_directories_have_short_sockets(tmp_path: Path) -> None:
    runtime = tmp_path / ("r" * 100)
    runtime.mkdir(mode=0o700)
    home = Home(tmp_path.joinpath(*["d" * 100] * 5))
    assert len(os.fsencode(place_socket(home, {"XDG_RUNTIME_DIR": str(runtime)}))) < 100


def test_a_private_directory_that_is_a_link_is_refused(tmp_path: Path, temporary: Path) -> None:
    (temporary / f"toril-{os.geteuid()}").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="others own it or may enter it; fix: remove it"):
        place_socket(Home(Path("/x")), {})


def test_a_large_log_is_put_aside(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    home.prepare()
    home.rotate_log()
    home.log.write_bytes(b"x")
    home.rotate_log()
    assert home.log.exists()
    os.truncate(home.log, 5 * 1024 * 1024 + 1)
    home.rotate_log()
    assert not home.log.exists()
    assert (home.root / "server.log.1").stat().st_size > 5 * 1024 * 1024


def test_a_damaged_version_record_counts_as_none(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    home.prepare()
    assert home.read_version() is None
    (home.root / "version.json").write_text("[1", encoding="utf-8")
    assert home.read_version() is None
    home.write_version("9.1.2")
    assert home.read_version() == "9.1.2"
