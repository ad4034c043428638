"""The quarantine: objects of the store that nothing refers to, and since when.

The objects stay where they are. So if an earlier database is put back, the store has everything it refers to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from mvprune_service.db.database import Tx
from mvprune_service.db.server_models import QUARANTINE


class Found(NamedTuple):
    """The version of an object that was found to be garbage, and when."""

    modified_us: int
    found_us: int


def page_of_quarantine(conn: Connection, part: str, after: str, size: int) -> dict[str, Found]:
    """The next `size` objects of a part of the store, by key."""
    rows = select(QUARANTINE).where(QUARANTINE.c.part == part, QUARANTINE.c.key > after)
    found = conn.execute(rows.order_by(QUARANTINE.c.key).limit(size))
    return {row.key: Found(row.modified_us, row.found_us) for row in found}


def put_in_quarantine(tx: Tx, part: str, modified_us: Mapping[str, int]) -> None:
    """Notes objects, by key, and when each was modified. The delay of an object that is noted already restarts only if
    the object was modified since."""
    rows = [
        {"part": part, "key": key, "modified_us": modified, "found_us": tx.now} for key, modified in modified_us.items()
    ]
    make = postgresql.insert if tx.conn.dialect.name == "postgresql" else sqlite.insert
    new = make(QUARANTINE)
    same = [QUARANTINE.c.part, QUARANTINE.c.key]
    values = {"modified_us": new.excluded.modified_us, "found_us": new.excluded.found_us}
    is_other = QUARANTINE.c.modified_us != new.excluded.modified_us
    tx.conn.execute(new.on_conflict_do_update(index_elements=same, set_=values, where=is_other), rows)


def release(tx: Tx, part: str, keys: Collection[str]) -> None:
    """Removes the notes of objects that are deleted or no longer garbage."""
    tx.conn.execute(delete(QUARANTINE).where(QUARANTINE.c.part == part, QUARANTINE.c.key.in_(keys)))
