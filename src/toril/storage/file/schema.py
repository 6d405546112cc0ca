"""The tables of a file storage, their version, and how older ones become today's.

queues    one row per queue name ever used; counters, bounds, and the numbers of its events
jobs      one row per job; `state`, `rank` and `place` put it into exactly one line
payloads  the data of jobs, apart because it is large and never changes with the state
logs      log lines
ghosts    endings of jobs that are gone, for those who wait for them
holds     dedup keys
workers   workers seen lately
events    packed events: `last` is the number of the row's newest one

`jobs_line` holds every line of every queue: waiting and running jobs and the finished ones by
`place`, prioritised ones by priority (`rank`) and place, delayed ones by due time (`rank`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from toril.errors import StorageError

APPLICATION_ID: Final = 0x746F7269
"""Marks a database as ours; "tori" in ASCII."""

VERSION: Final = 1

SCHEMA: Final = (
    """CREATE TABLE queues (
        key INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        paused INTEGER NOT NULL DEFAULT 0,
        concurrency INTEGER,
        rate_max INTEGER,
        rate_ms INTEGER,
        window_end_ms INTEGER NOT NULL DEFAULT 0,
        window_used INTEGER NOT NULL DEFAULT 0,
        reaped_ms INTEGER,
        events_kept INTEGER NOT NULL,
        last INTEGER NOT NULL DEFAULT 0,
        dropped INTEGER NOT NULL DEFAULT 0,
        tickets INTEGER NOT NULL DEFAULT 0,
        waiting INTEGER NOT NULL DEFAULT 0,
        prioritized INTEGER NOT NULL DEFAULT 0,
        delayed INTEGER NOT NULL DEFAULT 0,
        active INTEGER NOT NULL DEFAULT 0,
        completed INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    """CREATE TABLE jobs (
        n INTEGER PRIMARY KEY,
        queue INTEGER NOT NULL,
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        origin TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        state INTEGER NOT NULL,
        rank INTEGER NOT NULL,
        place INTEGER NOT NULL,
        terms TEXT NOT NULL,
        reply INTEGER NOT NULL,
        since_ms INTEGER NOT NULL,
        due_ms INTEGER,
        expires_ms INTEGER,
        made INTEGER NOT NULL,
        started INTEGER NOT NULL,
        stalls INTEGER NOT NULL,
        processed_ms INTEGER,
        finished_ms INTEGER,
        worker_id TEXT,
        token TEXT,
        lease_until_ms INTEGER NOT NULL,
        settled_token TEXT,
        settled_started INTEGER,
        cancel INTEGER NOT NULL,
        progress BLOB,
        result BLOB,
        failure TEXT,
        stacks TEXT
    ) STRICT""",
    "CREATE UNIQUE INDEX jobs_id ON jobs (queue, id)",
    "CREATE INDEX jobs_line ON jobs (queue, state, rank, place)",
    "CREATE INDEX jobs_expiry ON jobs (queue, expires_ms) WHERE expires_ms IS NOT NULL",
    "CREATE TABLE payloads (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT",
    """CREATE TABLE logs (
        n INTEGER NOT NULL,
        number INTEGER NOT NULL,
        line TEXT NOT NULL,
        PRIMARY KEY (n, number)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE ghosts (
        queue INTEGER NOT NULL,
        id TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        kind TEXT NOT NULL,
        result BLOB,
        failure TEXT,
        PRIMARY KEY (queue, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX ghosts_expiry ON ghosts (queue, until_ms)",
    """CREATE TABLE holds (
        queue INTEGER NOT NULL,
        dedup_key TEXT NOT NULL,
        job_id TEXT NOT NULL,
        until_ms INTEGER,
        PRIMARY KEY (queue, dedup_key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX holds_expiry ON holds (queue, until_ms) WHERE until_ms IS NOT NULL",
    """CREATE TABLE workers (
        queue INTEGER NOT NULL,
        id TEXT NOT NULL,
        name TEXT,
        seen_ms INTEGER NOT NULL,
        PRIMARY KEY (queue, id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE events (
        queue INTEGER NOT NULL,
        last INTEGER NOT NULL,
        count INTEGER NOT NULL,
        time_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (queue, last)
    ) STRICT, WITHOUT ROWID""",
)

TABLES: Final = frozenset(
    {"queues", "jobs", "payloads", "logs", "ghosts", "holds", "workers", "events"}
)

Migrations = Mapping[int, Sequence[str]]

MIGRATIONS: Final[Migrations] = {}
"""Statements that lead from a version to the next, by the version they start from."""


def create(db: sqlite3.Connection) -> None:
    """Make the tables in an empty database, in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


def version_of(db: sqlite3.Connection) -> int:
    """Read the version of the tables."""
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    return found


def upgrade(
    db: sqlite3.Connection, migrations: Migrations = MIGRATIONS, version: int = VERSION
) -> None:
    """Lead older tables up to `version`, in one transaction; today's are left alone."""
    if version_of(db) == version:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        found = version_of(db)  # again: another process may have been first
        for step in range(found, version):
            if step not in migrations:
                raise StorageError(
                    f"no way leads from version {found} of the tables to {version}; "
                    "open them with the toril that wrote them"
                )
            for statement in migrations[step]:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {version}")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
