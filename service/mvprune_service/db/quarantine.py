"""The quarantine: objects of the store that nothing refers to, and since when.

The objects stay where they are. So if an earlier database is put back, the store has everything it refers to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.tables.server import QUARANTINE
from mvprune_service.stores.base import Entry
from mvprune_service.stores.layout import MANIFESTS


@dataclass(frozen=True)
class Quarantined:
    """The quarantine. `artifacts` are those of the `objects` that are manifests. `since_us` is when the first
    of all was found, None if there is nothing."""

    objects: int
    size_bytes: int
    artifacts: int
    since_us: int | None


class Found(NamedTuple):
    """The version of an object that was found to be garbage, and when."""

    modified_us: int
    found_us: int


def page_of_quarantine(conn: Connection, part: str, after: str, size: int) -> dict[str, Found]:
    """The next `size` objects of a part of the store, by key."""
    rows = select(QUARANTINE).where(QUARANTINE.c.part == part, QUARANTINE.c.key > after)
    found = conn.execute(rows.order_by(QUARANTINE.c.key).limit(size))
    return {row.key: Found(row.modified_us, row.found_us) for row in found}


def quarantined(conn: Connection) -> Quarantined:
    """The objects in quarantine now."""
    is_manifest = QUARANTINE.c.key.startswith(MANIFESTS, autoescape=True)
    columns = (func.count(), func.sum(QUARANTINE.c.size_bytes), func.count().filter(is_manifest))
    count, size, artifacts, since = conn.execute(select(*columns, func.min(QUARANTINE.c.found_us))).one()
    return Quarantined(count, int(size or 0), artifacts, since)


def put_in_quarantine(tx: Tx, part: str, entries: Sequence[Entry]) -> None:
    """Notes objects. The delay of an object that is noted already restarts only if the object was modified since."""
    rows = [
        {"part": part, "key": one.key, "modified_us": one.modified_us, "size_bytes": one.size, "found_us": tx.now}
        for one in entries
    ]
    make = postgresql.insert if tx.conn.dialect.name == "postgresql" else sqlite.insert
    new = make(QUARANTINE)
    same = [QUARANTINE.c.part, QUARANTINE.c.key]
    values = {name: new.excluded[name] for name in ("modified_us", "size_bytes", "found_us")}
    is_other = QUARANTINE.c.modified_us != new.excluded.modified_us
    tx.conn.execute(new.on_conflict_do_update(index_elements=same, set_=values, where=is_other), rows)


def release(tx: Tx, part: str, keys: Collection[str]) -> None:
    """Removes the notes of objects that are deleted or no longer garbage."""
    tx.conn.execute(delete(QUARANTINE).where(QUARANTINE.c.part == part, QUARANTINE.c.key.in_(keys)))
