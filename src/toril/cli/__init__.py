"""The command `toril`."""

from toril.cli.main import main

__all__ = ["main"]
