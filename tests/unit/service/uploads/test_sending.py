"""An upload from its announcement until it is complete."""

from __future__ import annotations

from mvprune.sources.uploads import CHUNK_BYTES
from mvprune.v1 import upload_pb2
from mvprune_service.stores.base import BlobStore

from .sender import Sender, described, noise, sha256

READY, INCOMPLETE = upload_pb2.Upload.READY, upload_pb2.Upload.INCOMPLETE
WEIGHTS = noise(CHUNK_BYTES + 1000)
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS, "empty.txt": b""}


async def test_an_upload_is_complete_when_every_chunk_was_sent(sender: Sender, store: BlobStore) -> None:
    announced = await sender.create(described(FILES))
    assert announced.state == INCOMPLETE
    assert list(announced.missing) == [sha256(b"{}"), sha256(WEIGHTS[:CHUNK_BYTES]), sha256(WEIGHTS[CHUNK_BYTES:])]
    sent = await sender.send(FILES)
    assert (sent.state, list(sent.missing), sent.total_bytes, sent.jobs) == (READY, [], len(WEIGHTS) + 2, 0)
    assert [file.path for file in sent.files] == sorted(FILES)
    kept = [store.get(entry.key) for entry in store.list("uploads/")]
    assert sorted(map(sha256, kept)) == sorted(announced.missing)
