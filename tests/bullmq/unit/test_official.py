"""The official scripts: found, checked, refused when they were changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from toril.errors import InvalidInput, MissingExtra, StorageError
from toril.storage.bullmq import official
from toril.storage.bullmq.keys import Keys
from toril.storage.bullmq.scripts import USED, call, check_token

KEYS = Keys("bull", "{q}")


def copy_scripts(to: Path) -> Path:
    folder = to / "commands"
    shutil.copytree(official.find_folder(), folder)
    return folder


def test_every_script_of_the_manifest_is_there_and_unchanged() -> None:
    assert len(official.manifest()) == 50
    assert set(USED) <= set(official.scripts())
    assert official.scripts()["moveToActive"].sha == "6c4c6de2bece2ad87657691d945d902df2198f5e"


def test_a_script_that_was_changed_is_refused(tmp_path: Path) -> None:
    folder = copy_scripts(tmp_path)
    path = folder / "moveToFinished-14.lua"
    path.write_text(path.read_text() + "\n-- a harmless comment\n")
    with pytest.raises(StorageError, match=r"moveToFinished-14\.lua was changed.*572920a790ad"):
        official.load(folder)


def test_a_script_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = copy_scripts(tmp_path)
    (folder / "retryJob-11.lua").unlink()
    with pytest.raises(StorageError, match=r"retryJob-11\.lua cannot be read"):
        official.load(folder)


def test_without_the_extra_the_way_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> object:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(official, "distribution", not_installed)
    with pytest.raises(MissingExtra) as caught:
        official.find_folder()
    assert str(caught.value) == (
        "toril[E14] the BullMQ storage needs the 'bullmq' extra. "
        'fix: python -m pip install "toril[bullmq]"'
    )


def test_the_package_of_the_scripts_is_never_imported() -> None:
    code = (
        "import sys; from toril.storage import open_storage;"
        "open_storage('bullmq+redis://localhost');"
        "sys.exit('imported' if 'bullmq' in sys.modules or 'redis' in sys.modules else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_our_own_scripts_are_all_listed() -> None:
    folder = Path(official.__file__).parent / "lua"
    assert sorted(official.OWN) == sorted(
        p.stem for p in folder.glob("*.lua") if p.stem != "prelude"
    )
    for name in official.OWN:
        assert official.own(name).text.startswith("#!lua flags=allow-oom\n")


@pytest.mark.parametrize("name", USED)
def test_the_keys_of_each_script_are_as_many_as_its_file_says(name: str) -> None:
    from toril.storage.bullmq.scripts import _LAYOUTS

    count = _LAYOUTS[name][1]
    command = call(name, KEYS, *["x"] * count, job_id="job", special="completed")
    assert command[2] == official.key_counts()[name]
    keys = command[3 : 3 + int(command[2])]
    assert all(str(key).startswith("bull:{q}:") for key in keys)
    assert not any("@" in str(key) for key in keys)


def test_a_call_that_would_break_a_script_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidInput, match="2 arguments, it takes 3"):
        call("moveToActive", KEYS, "bull:{q}:", 1)
    with pytest.raises(InvalidInput, match="argument 2 is NoneType"):
        call("moveToActive", KEYS, "bull:{q}:", None, b"")  # type: ignore[arg-type]
    for token in ("", "0"):
        with pytest.raises(InvalidInput, match="no lock"):
            check_token(token)


def test_a_job_id_that_looks_like_a_placeholder_stays_itself() -> None:
    command = call("removeJob", KEYS, "a@x", "0", "bull:{q}:", job_id="a@x", special="y")
    assert command[3] == "bull:{q}:a@x"
