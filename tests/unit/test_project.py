"""Check the promises of the project itself: paths, pins, licence, version, imports."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from toril._version import __version__

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/")
ADDRESS = re.compile(r"\b(?:https?|file|git\+\w+|ssh)://", re.IGNORECASE)
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+!]*")
LOCK_FILES = re.compile(
    r"(?:uv|poetry|pdm|Pipfile|yarn)\.lock|pylock.*\.toml|(?:package-lock|npm-shrinkwrap)\.json"
    r"|pnpm-lock\.yaml"
)
BANNED_MODULES = frozenset({"pickle", "marshal", "shelve", "yaml"})
BANNED_CALLS = frozenset({"eval", "exec"})


def project_files() -> list[Path]:
    """List the files git tracks or would track."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listing.split("\0") if name]
    return [path for path in paths if path.is_file() and path != Path(__file__).resolve()]


def lines_matching(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        )
        if pattern.search(line)
    ]


def bad_pins(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and line[0] != "#" and not PIN.fullmatch(line)]


def normalize(requirement: str) -> str:
    name = re.split(r"[\s\[<>=!~;@]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module")
            | ast.Attribute(attr="__import__" | "import_module"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            yield module


def forbidden(source: str) -> list[str]:
    """Name the banned imports and calls in a piece of source code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        found += [n for n in imported_names(node) if n.partition(".")[0] in BANNED_MODULES]
        match node:
            case ast.Call(
                func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="builtins"), attr=name)
            ) if name in BANNED_CALLS:
                found.append(name)
    return found


def test_no_file_names_a_path_of_a_machine() -> None:
    assert lines_matching(MACHINE_PATH, project_files()) == []


@pytest.mark.parametrize(
    "text", [f"{'/'}home/me/x", f'cd "{"/"}root/x"', f"see {'/'}work/x", f"file://{'/'}Users/me/"]
)
def test_a_path_of_a_machine_is_recognised(text: str) -> None:
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize("text", ["src/work/x", "../home/x", "/workers/", "a/root/b"])
def test_a_relative_path_is_no_path_of_a_machine(text: str) -> None:
    assert not MACHINE_PATH.search(text)


def test_no_lock_file_holds_addresses() -> None:
    locks = [path for path in project_files() if LOCK_FILES.fullmatch(path.name)]
    assert lines_matching(ADDRESS, locks) == []


def test_constraints_are_exact_pins_without_addresses() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert bad_pins(text) == []
    assert not ADDRESS.search(text)


@pytest.mark.parametrize(
    "line",
    ["redis>=6", "redis", "-e .", "redis @ https://example.org/redis.whl", "--index-url x", "a==*"],
)
def test_a_line_that_is_no_exact_pin_is_recognised(line: str) -> None:
    assert bad_pins(f"# comment\nclick==8.1\n{line}\n") == [line]


def test_every_dependency_of_core_and_dev_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {*project["dependencies"], *project["optional-dependencies"]["dev"]}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {normalize(line) for line in pins if line and line[0] != "#"}
    assert {normalize(requirement) for requirement in wanted} - pinned == set()


def test_the_licence_is_there() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("MIT License")
    assert "The toril authors" in text


def test_the_version_agrees_with_the_installed_metadata() -> None:
    assert metadata.version("toril") == __version__


def test_the_package_ships_its_types() -> None:
    assert (ROOT / "src/toril/py.typed").is_file()


# -I alone also sees optional packages behind `try: import`; -S proves none is needed.
@pytest.mark.parametrize("flags", [["-I"], ["-I", "-S"]], ids=["installed", "bare"])
def test_importing_toril_imports_only_the_standard_library(flags: list[str]) -> None:
    code = (
        "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1]);"
        "from toril import *; import toril.storage.memory;"
        "print(*sorted({n.partition('.')[0] for n in set(sys.modules) - before}))"
    )
    command = [sys.executable, *flags, "-c", code, str(ROOT / "src")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = set(done.stdout.split())
    assert "toril" in names
    # orjson, of the extra `fast`, is taken where it is there.
    assert names - sys.stdlib_module_names - {"orjson"} == {"toril"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_source_file_can_run_stored_bytes(path: Path) -> None:
    assert forbidden(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "def f():\n    import shelve as s",
        "import yaml.loader",
        "importlib.import_module('pickle')",
        "eval('1')",
        "builtins.exec('1')",
    ],
)
def test_code_that_could_run_stored_bytes_is_recognised(source: str) -> None:
    assert len(forbidden(source)) == 1


@pytest.mark.parametrize("source", ["redis.eval(script)", "from .yaml import x", "import json"])
def test_harmless_code_is_left_alone(source: str) -> None:
    assert forbidden(source) == []


@pytest.mark.parametrize(
    ("values", "total", "code", "said"),
    [
        ({"errors": 90.0, "job": 100.0}, 80.0, 0, ""),
        ({"errors": 89.9, "job": 100.0}, 95.0, 1, "src/toril/errors.py"),
        ({"job": 100.0}, 95.0, 1, "src/toril/errors.py"),
        ({"errors": 100.0, "job": 100.0}, 79.9, 1, "total"),
    ],
    ids=["enough", "value-low", "value-not-measured", "total-low"],
)
def test_the_coverage_limits_hold(
    tmp_path: Path, values: dict[str, float], total: float, code: int, said: str
) -> None:
    (tmp_path / "src/toril").mkdir(parents=True)
    for name in ("errors", "job"):
        (tmp_path / f"src/toril/{name}.py").touch()
    files = {f"src/toril/{n}.py": {"summary": {"percent_covered": p}} for n, p in values.items()}
    report = {"files": files, "totals": {"percent_covered": total}}
    (tmp_path / "coverage.json").write_text(json.dumps(report), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/check_coverage.py"), "coverage.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, said in done.stderr) == (code, True)


def test_every_public_name_is_there_and_no_other() -> None:
    import toril

    for name in toril.__all__:
        assert getattr(toril, name) is not None
        assert name in dir(toril)
    with pytest.raises(AttributeError, match="has no attribute 'Que'"):
        toril.Que  # noqa: B018
