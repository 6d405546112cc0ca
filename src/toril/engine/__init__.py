"""The moving parts of a worker: one duty per file, no storage known by name."""
