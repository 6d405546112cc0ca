"""Say which storage a source talks to, without carrying its secret through Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from toril.errors import InvalidOption
from toril.resp.url import parse_url
from toril.spark.options import Options
from toril.storage import open_bulk
from toril.storage.columns import Bulk
from toril.storage.local import is_embedded, settle_path

TARGET_OPTIONS: Final = ("url", "urlEnv", "passwordFile")
DEFAULT_ENV: Final = "TORIL_URL"

_PRIVATE: Final = ("embedded", "unix", "file", "bullmq+embedded", "bullmq+unix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A storage by URL, or by the name of what holds the URL on each machine.

    Options reach plans, logs and checkpoints, so a URL given as an option must hold no password.
    What `resolve` gives exists only where it is called: on the driver's planner and on executors.
    """

    source: str
    url: str | None
    url_env: str
    password_file: str | None

    @classmethod
    def of(cls, options: Options) -> Target:
        """Read `url`, or `urlEnv` (TORIL_URL), and `passwordFile`."""
        url, url_env = options.text("url"), options.text("urlEnv")
        if url is not None and url_env is not None:
            raise InvalidOption(f"{options.source}: give 'url' or 'urlEnv', not both")
        if url is not None and _has_secret(url):
            raise InvalidOption(
                f"{options.source}: option 'url' holds a password, which lists of processes, plans"
                " and checkpoints would show; put the URL into an environment variable and name it"
                " with 'urlEnv', or the password into a file and name it with 'passwordFile'"
            )
        return cls(
            source=options.source,
            url=None if url is None else settle_path(url),
            url_env=url_env or DEFAULT_ENV,
            password_file=options.text("passwordFile"),
        )

    def resolve(self, environment: Mapping[str, str] = os.environ) -> str:
        """Give the whole URL, on the machine this runs on."""
        url = self.url or environment.get(self.url_env)
        if not url:
            raise InvalidOption(
                f"{self.source}: no storage: give option 'url', or set {self.url_env}"
                " on the driver and on all executors"
            )
        if self.password_file is None:
            return url
        try:
            password = Path(self.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise InvalidOption(
                f"{self.source}: passwordFile '{self.password_file}' cannot be read"
                f" ({error.strerror}); it must exist on the driver and on all executors"
            ) from None
        return _with_password(self.source, url, password)

    def anchored(self) -> Target:
        """The same for executors, which start in other directories: by its whole path.

        What lies on this machine has no password; other storages stay as they were named.
        """
        url = self.resolve()
        here = is_embedded(url) or url.partition(":")[0].lower() == "file"
        return replace(self, url=settle_path(url)) if here else self

    def options(self) -> dict[str, str]:
        """The options of a source that name this storage."""
        named = self.url or self.url_env
        chosen = {"urlEnv" if self.url is None else "url": named}
        return (
            chosen if self.password_file is None else chosen | {"passwordFile": self.password_file}
        )

    def check_reach(self, master: str) -> None:
        """Refuse a storage of one machine where executors may run on others."""
        if master.startswith("local"):  # local-cluster runs its executors here as well
            return
        url = self.resolve()
        scheme = url.partition(":")[0].lower()
        if scheme in _PRIVATE:
            raise InvalidOption(
                f"toril[E15] {self.source}: executors of '{master}' cannot reach '{scheme}:' on"
                " this machine. fix: use a server they can reach, as 'redis://host:6379'"
                " (for the embedded one: toril server start --port 6379)"
            )

    def open(self) -> Bulk:
        """Open the storage's blocking side; the caller closes it."""
        return open_bulk(self.resolve())


def target_of(
    source: str, url: str | None, url_env: str | None, password_file: str | None
) -> Target:
    """Read the three ways to name a storage, as the sources do."""
    given = dict(zip(TARGET_OPTIONS, (url, url_env, password_file), strict=True))
    options = {name: value for name, value in given.items() if value is not None}
    return Target.of(Options.read(source, options, TARGET_OPTIONS))


def _has_secret(url: str) -> bool:
    authority = url.partition("://")[2].partition("/")[0]
    userinfo, at, _ = authority.rpartition("@")
    return (bool(at) and bool(userinfo.partition(":")[2])) or "password=" in url.lower()


def _with_password(source: str, url: str, password: str) -> str:
    scheme, slashes, rest = url.partition("://")
    parse_url(url)
    if not slashes or scheme.endswith("unix") or _has_secret(url):
        raise InvalidOption(
            f"{source}: 'passwordFile' goes with a server URL that has no password of its own"
        )
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if not at:
        user, host = "", authority
    return f"{scheme}://{user.rstrip(':')}:{quote(password, safe='')}@{host}{slash}{path}"
