"""Small files of a flow on whatever file system Spark writes to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from toril.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """A directory seen through Hadoop's file systems, which Spark uses for its own files."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = spark._jvm
        context: Any = spark.sparkContext
        conf = context._jsc.hadoopConfiguration()
        path = self._jvm.org.apache.hadoop.fs.Path(root)
        self._system = path.getFileSystem(conf)
        self.root = str(
            path.makeQualified(self._system.getUri(), self._system.getWorkingDirectory())
        )

    def path(self, *parts: str) -> str:
        """The whole address of something below the directory."""
        return "/".join((self.root.rstrip("/"), *parts))

    def _at(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path(*parts))

    def exists(self, *parts: str) -> bool:
        """Tell whether something is there."""
        return bool(self._system.exists(self._at(*parts)))

    def names(self, *parts: str) -> list[str]:
        """Name what lies in a directory, in order; a missing one is empty."""
        if not self.exists(*parts):
            return []
        found = self._system.listStatus(self._at(*parts))
        return sorted(str(one.getPath().getName()) for one in found)

    def read(self, *parts: str) -> str:
        """Read a small text."""
        stream = self._system.open(self._at(*parts))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def put(self, text: str, *parts: str) -> None:
        """Write a small text whole or not at all: to another name first, then by rename."""
        *folders, name = parts
        draft = self._at(*folders, f".{name}.draft")
        stream = self._system.create(draft, True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        if not self._system.rename(draft, self._at(*parts)):
            raise StorageError(
                f"'{self.path(*parts)}' cannot be put in place; is it there already?"
            )
        self.sync(*folders)

    def delete(self, *parts: str) -> None:
        """Delete a file or a directory with all it holds."""
        self._system.delete(self._at(*parts), True)

    def sync(self, *parts: str) -> None:
        """Make a directory and its files outlive a power cut, where it is on this machine.

        Other file systems promise that by themselves once a file is closed.
        """
        address = urlsplit(self.path(*parts))
        if address.scheme != "file":
            return
        folder = Path(unquote(address.path))
        if not folder.is_dir():  # a local path of another machine
            return
        for one in (*folder.iterdir(), folder):
            if one.is_file() or one == folder:
                handle = os.open(one, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
