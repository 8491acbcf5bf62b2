"""Steps from one generation of the files to the next, for both kinds of file.

A step runs inside the transaction that :func:`mnemes_lab.store.engine.migrate` opened, after a
backup was made. Facts recorded before operations were kept have none.
"""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from mnemes_lab.store import tables as t


def add_evidence(conn: Connection) -> None:
    """1 to 2: operations, edges, redaction, and supersession along valid time."""
    if inspect(conn).has_table("operations"):
        return
    if conn.exec_driver_sql("PRAGMA application_id").scalar_one() == t.SHARD_ID:
        # A CHECK of facts grew, which SQLite can only do by making the table anew.
        old = [c["name"] for c in inspect(conn).get_columns("facts")]
        conn.exec_driver_sql("ALTER TABLE facts RENAME TO facts_1")
        conn.exec_driver_sql("DROP INDEX IF EXISTS ix_facts_expiring")
        t.shard.create_all(conn)
        names = ", ".join(f'"{n}"' for n in old)
        conn.exec_driver_sql(f"INSERT INTO facts ({names}) SELECT {names} FROM facts_1")
        conn.exec_driver_sql("DROP TABLE facts_1")
        _grow(conn, [("shard_state", "redacted_generation")])
        return
    grown = [
        ("devices", "clock_ahead_us"),
        ("catalogue", "evidence_generation"),
        ("catalogue", "evidence_row"),
        ("pending_writes", "written_at"),
    ]
    _grow(conn, grown)
    t.pooled.create_all(conn)


def _grow(conn: Connection, columns: list[tuple[str, str]]) -> None:
    for table, column in columns:
        conn.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
