"""Ids are random, in forked processes too."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from mvprune_service import ids


def made(count: int) -> set[str]:
    return {ids.new_uid(0) for _ in range(count)} | {ids.new_token_id() for _ in range(count)}


def test_ids_differ_in_threads() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(set().union(*pool.map(made, [500] * 4))) == 4_000


def test_a_forked_process_makes_others() -> None:
    made(1)
    reads, writes = os.pipe()
    if not (child := os.fork()):
        os.write(writes, "\n".join(made(20)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = set(os.read(reads, 10_000).decode().split("\n"))
    os.close(reads)
    os.close(writes)
    assert len(theirs) == 40
    assert not theirs & made(20)
