"""Large files to S3 in parts. An interrupted upload is resumed: parts that arrived are not sent again.

boto3's own transfer manager starts again and ignores what a process that was killed had sent.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mvprune_service.stores.base import BadSource, checked

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

_PART = 16 << 20
_MOST_PARTS = 10_000  # S3's limit
_AT_A_TIME = 4


@dataclass(frozen=True)
class Parts:
    """The identity of a file that is sent: its bytes, and the MD5 of each part, which S3 compares."""

    size: int
    step: int  # bytes of a part
    md5s: tuple[bytes, ...]

    @property
    def tag(self) -> str:
        """The ETag of the object that they make; a bucket that is encrypted with KMS has others."""
        if self.step >= self.size:
            return f'"{self.md5s[0].hex()}"'
        return f'"{_md5(b"".join(self.md5s)).hex()}-{len(self.md5s)}"'


def parts_of(path: Path, sha256: str, *, single: int) -> Parts:
    """Reads a file. One of less than `single` bytes is a single part. Raises BadSource, OSError."""
    size = path.stat().st_size
    step = max(_PART, -(-size // _MOST_PARTS)) if size >= single else max(size, 1)
    md5s, hasher, filled = [], _new_md5(), 0
    for chunk in checked(path, sha256):
        rest = memoryview(chunk)
        while rest:
            taken, rest = rest[: step - filled], rest[step - filled :]
            hasher.update(taken)
            filled += len(taken)
            if filled == step:
                md5s.append(hasher.digest())
                hasher, filled = _new_md5(), 0
    if filled or not md5s:
        md5s.append(hasher.digest())
    return Parts(size, step, tuple(md5s))


def upload(client: S3Client, bucket: str, key: str, path: Path, parts: Parts) -> None:
    """Uploads a file; the object appears, whole, when its last part has arrived.

    Each part is retried by the client. Several processes may send the same file: they share the parts, and whoever
    comes late finds the object there. Raises BadSource for a file that has changed since its `parts` were computed.
    """
    upload_id = _unfinished(client, bucket, key)
    if upload_id is None:
        upload_id = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    arrived = dict(_arrived(client, bucket, key, upload_id))

    def send(number: int) -> CompletedPartTypeDef:
        md5 = parts.md5s[number - 1]
        tag = f'"{md5.hex()}"'
        if arrived.get(number) != tag:
            sent = client.upload_part(
                Bucket=bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                Body=read_part(path, parts, number),
                ContentMD5=base64.b64encode(md5).decode(),
            )
            tag = sent["ETag"]
        return {"PartNumber": number, "ETag": tag}

    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="upload") as pool:
        sent = list(pool.map(send, range(1, len(parts.md5s) + 1)))
    client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": sent})


def read_part(path: Path, parts: Parts, number: int) -> bytes:
    """The content of a part, from 1. Raises BadSource where it is no longer what it was."""
    try:
        with path.open("rb") as file:
            file.seek((number - 1) * parts.step)
            content = file.read(parts.step)
    except OSError as error:
        raise BadSource(f"{path} cannot be read: {error.strerror}") from error
    if _md5(content) != parts.md5s[number - 1]:
        raise BadSource(f"{path} was changed while it was uploaded")
    return content


def _new_md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _unfinished(client: S3Client, bucket: str, key: str) -> str | None:
    """The newest upload to this key that has not ended."""
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=key)
    uploads = [upload for page in pages for upload in page.get("Uploads", []) if upload["Key"] == key]
    newest = max(uploads, key=lambda upload: upload["Initiated"], default=None)
    return newest["UploadId"] if newest else None


def _arrived(client: S3Client, bucket: str, key: str, upload_id: str) -> Iterator[tuple[int, str]]:
    """Number and tag, the MD5 of its content, of each part that is there."""
    for page in client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=upload_id):
        for part in page.get("Parts", []):
            yield part["PartNumber"], part["ETag"]
