"""Durable queues without a server: SQLite inside a directory, shared by many processes."""

from toril.storage.file.storage import FileStorage

__all__ = ["FileStorage"]
