"""mvprune-server that counts what watching a job reads, in a file of eight bytes: `counted_server.py FILE FLAGS`."""

from __future__ import annotations

import itertools
import mmap
import sys
from pathlib import Path
from typing import Any

from mvprune_service.db import records
from mvprune_service.db.engine.database import Database
from mvprune_service.server import main

_WATCHING = (records.job_named, records.job_by_uid, records.events_of)


def count_reads(file: Path) -> None:
    """From now on `file` holds the number of these reads."""
    file.write_bytes(bytes(8))
    with file.open("r+b") as opened:
        shown = mmap.mmap(opened.fileno(), 8)
    numbers = itertools.count(1)

    def counting(read: Any) -> Any:
        async def counted(self: Database, work: Any, *args: Any, **kwargs: Any) -> Any:
            if work in _WATCHING:
                shown[:] = next(numbers).to_bytes(8, "little")
            return await read(self, work, *args, **kwargs)

        return counted

    Database.read = counting(Database.read)  # type: ignore[method-assign]
    Database.look_up = counting(Database.look_up)  # type: ignore[method-assign]


if __name__ == "__main__":
    count_reads(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
