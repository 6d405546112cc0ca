"""Files of a lake, wherever Spark can write: a directory, HDFS, an object store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Lake:
    """The few things Spark's own writers do not do; runs on the driver."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        home = self._path(root)
        self._fs = home.getFileSystem(spark._jsc.hadoopConfiguration())
        self.root = str(self._fs.makeQualified(home).toString()).rstrip("/")
        self._jvm = jvm

    def at(self, *names: str) -> str:
        """The full name of something inside."""
        return "/".join((self.root, *names))

    def exists(self, *names: str) -> bool:
        """Tell whether it is there."""
        return bool(self._fs.exists(self._path(self.at(*names))))

    def sizes(self, *names: str) -> dict[str, int]:
        """Name the files of a directory and their sizes; none where there is no directory."""
        if not self.exists(*names):
            return {}
        found = self._fs.listStatus(self._path(self.at(*names)))
        return {str(one.getPath().getName()): int(one.getLen()) for one in found if one.isFile()}

    def read_text(self, *names: str) -> str:
        """Read a small file."""
        stream = self._fs.open(self._path(self.at(*names)))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def tail(self, count: int, size: int, *names: str) -> bytes:
        """Read the last bytes of a file of a known size."""
        stream = self._fs.open(self._path(self.at(*names)))
        try:
            stream.seek(max(0, size - count))
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write_json(self, value: object, *names: str) -> None:
        """Write a small file so that it is seen whole or not at all, and replaced likewise."""
        place = self._path(self.at(*names))
        fresh = self._path(self.at(*names[:-1], f".{names[-1]}.tmp"))
        stream = self._fs.create(fresh, True)
        try:
            stream.write(json.dumps(value, separators=(",", ":")).encode())
        finally:
            stream.close()
        if not self._fs.rename(fresh, place):
            self._fs.delete(place, False)
            if not self._fs.rename(fresh, place):
                raise OSError(f"{self.at(*names)}: cannot be written")

    def delete(self, *names: str) -> None:
        """Delete a file or a directory with all that is in it."""
        self._fs.delete(self._path(self.at(*names)), True)
