"""Files of a flow, on whatever file system Spark writes to."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from toril.spark.analytics.lake import Lake


class Files(Lake):
    """A directory whose files must outlive a power cut before others are deleted for them."""

    def folders(self, *names: str) -> list[str]:
        """Name the directories inside a directory; none where there is no directory."""
        if not self.exists(*names):
            return []
        found = self._fs.listStatus(self._path(self.at(*names)))
        return sorted(str(one.getPath().getName()) for one in found if one.isDirectory())

    def put(self, value: object, *names: str) -> None:
        """Write a small file, whole or not at all, and make it stay."""
        self.write_json(value, *names)
        self.sync(*names[:-1])

    def sync(self, *names: str) -> None:
        """Make a directory and its files outlive a power cut, where it is on this machine.

        Other file systems promise that by themselves once a file is closed.
        """
        address = urlsplit(self.at(*names))
        folder = Path(unquote(address.path))
        if address.scheme != "file" or not folder.is_dir():  # or it is on another machine
            return
        for one in (*(one for one in folder.iterdir() if one.is_file()), folder, folder.parent):
            handle = os.open(one, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
